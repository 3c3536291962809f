// A generalized suffix automaton over token ids, grown online, in flat arrays.
//
// Every document is read as if a separator of its own stood before it. Then the longest string of
// a prefix state occurs once only, and the states fall into two kinds:
//   leaf    one a position, named by it: what ends there and nowhere else. Its one edge leads to the
//           next position, so none is stored.
//   branch  strings that occur twice or more. Only these have a length and edges.
// Suffix links make a tree with the positions as leaves: a state occurs where the leaves below it
// are. So counts and occurrences are exact at any time.
//
// No Python, no paths, no locks: a call that would meet a writer is refused, never made to wait.
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
    int64_t length = 0;         // tokens of the tail that were found
    int64_t count = 0;          // living occurrences in all
    std::vector<int32_t> docs;  // the newest of them, newest first: document,
    std::vector<int32_t> ends;  // and the position after the matched text in it
};

class Automaton : public Documents {
public:
    Automaton();

    int32_t add(Tokens tokens, Label label);  // open + extend; bad tokens leave no document
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

    size_t states() const;  // of the minimal automaton, root included; linear time
    size_t nbytes() const;  // memory held: capacities, not sizes
    std::string check() const;

private:
    struct Leaf {
        uint32_t link;  // branch
        uint32_t next;  // the next leaf that hangs where this one does
    };

    struct Branch {
        uint32_t length;  // of its longest string
        uint32_t link;    // branch
        uint32_t end;     // its first occurrence, which is also a leaf below it
        uint32_t first;   // newest leaf that hangs here
        int32_t token;    // first edge, kNoToken: no edge at all
        uint32_t target;  // leaf, or branch | kBranch
        int32_t more;     // token of the first further edge
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
    Array<Leaf> leaves_;      // by position; those of borders are unused
    Array<Branch> branches_;  // 0: root, the empty string
    Edges edges_;
    mutable std::atomic<int> users_{0};  // readers, or -1: a writer
};

}  // namespace draftline
