// What follows a text, best first: the occurrences' own continuations as one tree.
#pragma once

#include <cstdint>
#include <vector>

namespace draftline {

struct Tree {
    int64_t length = 0;  // tokens of the tail that the text before it agrees with
    std::vector<int32_t> tokens;
    std::vector<int32_t> parents;  // index of a node before, or -1: follows the text
    std::vector<double> probs;     // count(node) / count(parent)
};

// `places`: the token after each occurrence; a border (-1) ends its document. At most `nodes` nodes,
// `width` under each parent.
Tree grow_tree(int64_t length, std::vector<const int32_t*> places, int64_t nodes, int64_t width);

}  // namespace draftline
