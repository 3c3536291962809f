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
#include <span>
#include <string>
#include <vector>

#include "array.hpp"
#include "edges.hpp"

namespace draftline {

struct Match {
    int64_t length = 0;         // tokens of the tail that were found
    int64_t count = 0;          // occurrences in all
    std::vector<int32_t> docs;  // the newest occurrences, newest first: document,
    std::vector<int32_t> ends;  // and the position after the matched text in it
};

struct Tree {
    std::vector<int32_t> tokens;
    std::vector<int32_t> parents;  // index of a node before, or -1: follows the tail
    std::vector<double> probs;     // count(node) / count(parent)
};

class Automaton {
public:
    using Tokens = std::span<const int32_t>;

    Automaton();

    int32_t add(Tokens tokens);  // open + extend; bad tokens leave no document
    int32_t open();
    void extend(Tokens tokens);  // to the last document
    void freeze();

    Match match(Tokens tail, int64_t k, int64_t limit, bool followed) const;
    Tree tree(Tokens tail, int64_t nodes, int64_t width, int64_t limit, int64_t most) const;
    Tokens continuation(int64_t doc, int64_t end, int64_t n) const;
    Tokens tokens(int64_t doc) const;

    bool frozen() const { return frozen_; }
    size_t documents() const { return starts_.size(); }
    size_t size() const { return leaves_.size() - starts_.size(); }
    size_t states() const;  // of the minimal automaton, root included; linear time
    size_t nbytes() const;  // memory held: capacities, not sizes
    std::string check() const;

private:
    struct Leaf {
        uint32_t link;  // branch
        uint32_t next;  // growing: the next leaf that hangs where this one does; frozen: the leaf of
    };                  // this rank, where ranks follow the tree: a branch's leaves are one range

    struct Branch {          // 32 bytes: two to a cache line
        uint32_t length;     // of its longest string
        uint32_t link;       // branch
        uint32_t end;        // its first occurrence, which is also a leaf below it
        uint32_t first;      // growing: newest leaf that hangs here; frozen: end of its range of ranks
        int32_t token;       // first edge, kNoToken: no edge at all
        uint32_t target;     // leaf, or branch | kBranch
        int32_t more;        // token of the first further edge
        uint32_t count;      // frozen: leaves below
    };

    struct Found {
        uint32_t state;   // leaf, or branch | kBranch
        uint32_t length;  // 0: nothing
    };

    class Reading;
    class Writing;

    void require_room(size_t positions) const;
    int32_t begin();
    void append(Tokens tokens);
    void append(int32_t token);
    uint32_t clone(uint32_t parent, int32_t token, uint32_t state);
    uint32_t* edge(uint32_t branch, int32_t token);
    void add_edge(uint32_t branch, int32_t token, uint32_t target);
    uint32_t step(uint32_t state, int32_t token) const;
    int32_t edge_after(uint32_t branch, int32_t token) const;

    Found find(Tokens tail, int64_t limit, bool followed) const;
    Found longest_suffix(Tokens tail) const;
    Found shorter(uint32_t state) const;
    size_t occurrences(Found found, bool followed, size_t k, std::vector<uint32_t>& newest) const;
    bool walk(uint32_t branch, size_t budget, std::vector<uint32_t>& leaves) const;
    size_t scan(Found found, bool followed, size_t k, size_t reach,
                std::vector<uint32_t>& newest) const;
    size_t ended(const Branch& branch) const;

    std::vector<uint32_t> by_length() const;
    uint32_t start_of(uint32_t position) const;
    std::string check_tree() const;
    std::string check_edges() const;
    std::string check_frozen() const;

    Array<int32_t> text_;     // documents with a border before each and after the last
    Array<uint32_t> starts_;  // by document: its border's position
    Array<Leaf> leaves_;      // by position; those of borders are unused
    Array<Branch> branches_;  // 0: root, the empty string
    Edges edges_;
    Array<uint32_t> ended_;   // frozen: sorted ranks of the documents' last positions
    bool frozen_ = false;
    mutable std::atomic<int> users_{0};  // readers, or -1: a writer
};

}  // namespace draftline
