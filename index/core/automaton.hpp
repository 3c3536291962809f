// A generalized suffix automaton over token ids, grown online, in flat arrays.
//
// Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). Each document
// is preceded by a unique separator, so the longest string of a prefix state occurs exactly once,
// and there are two kinds of states:
//   leaf    one per position, and identified by it: strings that end there and nowhere else. Its
//           only edge leads to the next position and is not stored.
//   branch  strings that occur at least twice. Only branches store a length and edges.
// The suffix links form a tree whose leaves are the positions: a state's occurrences are the leaves
// below it. That makes counts and occurrences exact at any time.
//
// Not thread-safe, but a call that conflicts with a writer throws instead of racing or blocking.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "array.hpp"
#include "documents.hpp"
#include "edges.hpp"
#include "tree.hpp"

namespace draftline {

struct Match {
  int64_t length = 0;         // of the match
  int64_t count = 0;          // live occurrences
  std::vector<int32_t> docs;  // of the newest occurrences, newest first
  std::vector<int32_t> ends;  // positions after the match in these documents
};

class Automaton : public Documents {
 public:
  Automaton();

  int32_t add(Tokens tokens, Label label);  // open + extend, all or nothing
  int32_t open(Label label);
  void extend(Tokens tokens);  // to the last document
  void kill(int64_t doc);

  Match match(Tokens tail, int64_t k, int64_t limit, bool followed) const;
  Tree tree(Tokens tail, int64_t nodes, int64_t width, int64_t limit, int64_t most) const;

  Tokens run() const override { return {text_.data(), text_.size()}; }
  std::span<const uint32_t> starts() const override { return {starts_.data(), starts_.size()}; }

  // Found: `first` is a state.
  Found find_living(Tokens tail, int64_t limit, size_t least) const override;
  size_t newest(Found found, size_t most, std::vector<uint32_t>& positions) const override;

  size_t states() const;  // of the minimal automaton, including the root; linear time
  size_t nbytes() const;  // allocated memory
  std::string check() const;

 private:
  struct Leaf {
    uint32_t link;  // branch
    uint32_t next;  // next leaf with the same link
  };

  struct Branch {
    uint32_t length;  // of its longest string
    uint32_t link;    // branch
    uint32_t end;     // first occurrence, itself a leaf below
    uint32_t first;   // newest leaf linked here
    int32_t token;    // of the first edge; kNoToken: no edges
    uint32_t target;  // leaf, or branch | kBranch
    int32_t more;     // token of the second edge, in `Edges`
  };

  class Reading;
  class Writing;

  void require_room(size_t positions) const;
  int32_t begin(Label label);
  void append(Tokens tokens);
  void append(int32_t token);
  uint32_t clone(uint32_t parent, int32_t token, uint32_t state);
  uint32_t* edge(uint32_t branch, int32_t token);
  void add_edge(uint32_t branch, int32_t token, uint32_t target);
  uint32_t step(uint32_t state, int32_t token) const;
  int32_t edge_after(uint32_t branch, int32_t token) const;

  Found find(Tokens tail, bool followed) const;
  Found find_living(Tokens tail, int64_t limit, bool followed, size_t least = 1) const;
  Found longest_suffix(Tokens tail) const;
  Found shorter(uint32_t state) const;
  uint32_t longest_living(Tokens tail, bool followed) const;
  size_t occurrences(Found found, bool followed, size_t k, std::vector<uint32_t>& newest) const;
  bool counts(uint32_t position, bool followed) const;
  bool walk(uint32_t branch, size_t budget, std::vector<uint32_t>& leaves) const;

  std::string check_tree() const;
  std::string check_edges() const;

  Array<int32_t> text_;
  Array<uint32_t> starts_;
  Array<Leaf> leaves_;      // by position, unused for borders
  Array<Branch> branches_;  // 0: the root
  Edges edges_;
  mutable std::atomic<int> users_{0};  // number of readers, or -1 for a writer
};

}  // namespace draftline
