// The continuations of a text's occurrences, merged into a best-first tree.
#pragma once

#include <cstdint>
#include <vector>

namespace draftline {

struct Tree {
  int64_t length = 0;  // of the match
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;  // index of an earlier node, or -1 for the roots
  std::vector<double> probs;     // count(node) / count(parent)
};

// `places`: the token after each occurrence; a border (-1) ends a document. At most `nodes` nodes,
// and `width` per parent.
Tree grow_tree(int64_t length, std::vector<const int32_t*> places, int64_t nodes, int64_t width);

}  // namespace draftline
