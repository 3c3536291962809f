// Which tokens follow one, two or three tokens in a language's library: counted once, looked up.
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
    uint8_t shares[kTop] = {};  // of 255
    uint8_t seen = 0;           // log2 of the count
  };
  static_assert(sizeof(Entry) == 40);

  // Counts `size` tokens (borders end texts) into a table. Tails seen less often than `least` are
  // left out.
  void count(const int32_t* tokens, int64_t size, int least);
  // The same in slices, `least` by order: `add` each of `parts`, then `finish`, which makes the
  // table. It is made once: whoever looks at it (Python's view, drafters) may keep it.
  using Least = std::array<int, kOrders>;
  void add(const int32_t* tokens, int64_t size, const Least& least, int part, int parts);
  void finish();
  void adopt(const Entry* entries, size_t slots);               // kept by the caller
  const Entry* find(const int32_t* tail_end, int order) const;  // nullptr: not seen
  void prefetch(const int32_t* tail_end, int order) const {
    if (!slots_) return;
    const Entry* entry = &entries_[key(tail_end, order) & (slots_ - 1)];
    __builtin_prefetch(entry);
    __builtin_prefetch(&entry->seen);  // it may lie across two lines
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
