// N-gram table: the most frequent successors of one, two or three tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace draftline::drafting {

class Ngram {
 public:
  static constexpr int kOrders = 3, kTop = 6;
  struct Entry {
    uint64_t key = 0;  // 0: empty
    int32_t tokens[kTop] = {-1, -1, -1, -1, -1, -1};
    uint8_t shares[kTop] = {};  // relative frequencies in 1/255
    uint8_t seen = 0;           // bit width of the count of the context
  };
  static_assert(sizeof(Entry) == 40);

  // Counts `size` tokens (texts end with a border) and builds the table. Contexts seen less often
  // than `least` are dropped.
  void count(const int32_t* tokens, int64_t size, int least);
  // The same in `parts` slices, with `least` by order: `add` every slice, then `finish`. The table
  // is built only once, so views of it stay valid.
  using Least = std::array<int, kOrders>;
  void add(const int32_t* tokens, int64_t size, const Least& least, int part, int parts);
  void finish();
  void adopt(const Entry* entries, size_t slots);               // owned by the caller
  const Entry* find(const int32_t* tail_end, int order) const;  // nullptr if unknown
  void prefetch(const int32_t* tail_end, int order) const {
    if (!slots_) return;
    const Entry* entry = &entries_[key(tail_end, order) & (slots_ - 1)];
    __builtin_prefetch(entry);
    __builtin_prefetch(&entry->seen);  // an entry may span two cache lines
  }
  const Entry* data() const { return entries_; }
  size_t slots() const { return slots_; }

 private:
  static uint64_t key(const int32_t* tail_end, int order);
  void refuse_if_made() const;
  std::vector<Entry> added_, own_;
  const Entry* entries_ = nullptr;
  size_t slots_ = 0;  // a power of two, or 0
};

}  // namespace draftline::drafting
