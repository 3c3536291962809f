// The automaton's edges beyond the first of each branch: an open-addressing hash table keyed by
// (branch, token), without deletion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "array.hpp"
#include "documents.hpp"

namespace draftline {

struct Edge {               // 16 bytes, four per cache line
  uint32_t branch = kNone;  // kNone: free slot
  int32_t token = kNoToken;
  uint32_t target = kNone;
  int32_t next = kNoToken;  // token of the branch's next edge, a linked list
};

class Edges {
 public:
  Edge* find(uint32_t branch, int32_t token) {
    return const_cast<Edge*>(std::as_const(*this).find(branch, token));
  }

  const Edge* find(uint32_t branch, int32_t token) const {
    if (slots_.empty()) return nullptr;
    for (size_t at = home(branch, token);; at = after(at)) {
      const Edge& edge = slots_[at];
      if (edge.branch == branch && edge.token == token) return &edge;
      if (edge.branch == kNone) return nullptr;
    }
  }

  // The edge must be absent.
  void insert(const Edge& edge) {
    if (5 * (used_ + 1) > 3 * slots_.size()) grow();
    place(edge);
    ++used_;
  }

  void prefetch(uint32_t branch, int32_t token) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[home(branch, token)]);
  }

  size_t size() const { return used_; }
  size_t nbytes() const { return slots_.nbytes(); }
  const Array<Edge>& slots() const { return slots_; }

 private:
  // The top bits of a mixed key, scaled to the table size: growing keeps the order of the slots,
  // so rehashing streams through memory.
  size_t home(uint32_t branch, int32_t token) const {
    uint64_t key = (uint64_t{branch} << 32 | static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    key = (key ^ key >> 32) * 0xD6E8FEB86659FD93u;
    return (key >> 32) * slots_.size() >> 32;
  }

  size_t after(size_t at) const { return at + 1 == slots_.size() ? 0 : at + 1; }

  void place(const Edge& edge) {
    size_t at = home(edge.branch, edge.token);
    while (slots_[at].branch != kNone) at = after(at);
    slots_[at] = edge;
  }

  void grow() {
    Array<Edge> old;
    old.fill(slots_.size() + slots_.size() / 2 + 16, Edge{});
    old.swap(slots_);
    for (const Edge& edge : old)
      if (edge.branch != kNone) place(edge);
  }

  Array<Edge> slots_;  // load factor at most 3/5: a miss ends within a cache line
  size_t used_ = 0;
};

}  // namespace draftline
