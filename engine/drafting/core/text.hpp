// A growing text with an index of where its last tokens occurred before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "vocabulary.hpp"

namespace draftline::drafting {

// Open-addressed map from 64-bit hashes to positions. Distinct contexts with equal hashes are
// merged, so callers compare what they find with the text.
class Places {
 public:
  Places() : slots_(16) {}
  int32_t& at(uint64_t key);         // -1 if new
  int32_t find(uint64_t key) const;  // -1 if absent
  void prefetch(uint64_t key) const { __builtin_prefetch(&slots_[key & (slots_.size() - 1)]); }
  void clear();

 private:
  struct Slot {
    uint32_t key = 0, hash = 0;  // upper and lower half of the 64-bit key
    int32_t place = -1;          // -1: empty
  };
  size_t slot(uint64_t key) const;
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

// Position i is between tokens i - 1 and i: what follows there is token i.
class Text {
 public:
  // Positions are chained by equal tails of these lengths; the last chain is over shapes.
  static constexpr int kChains = 4, kShape = 3;
  static constexpr int kOrders[kChains] = {1, 2, 4, 3};

  void clear();
  void push(int32_t token, int32_t shape);
  int32_t size() const { return int32_t(tokens_.size()); }
  int32_t operator[](int32_t i) const { return tokens_[size_t(i)]; }
  const int32_t* data() const { return tokens_.data(); }
  const int32_t* shapes() const { return shapes_.data(); }

  // Key of the last kOrders[n] tokens of a tail (shapes for kShape); kNoKey if it is too short or
  // contains a border.
  static constexpr uint64_t kNoKey = ~0ull;
  static uint64_t key(int n, const int32_t* tail_end, int32_t tail_size);
  // The newest position with that key, or -1.
  int32_t newest(int n, uint64_t key) const { return key == kNoKey ? -1 : newest_[n].find(key); }
  void prefetch(int n, uint64_t key) const { newest_[n].prefetch(key); }
  // The next older position of the same chain, or -1.
  int32_t older(int n, int32_t position) const { return older_[n][size_t(position)]; }

 private:
  std::vector<int32_t> tokens_, shapes_;
  std::vector<int32_t> older_[kChains];  // by position
  Places newest_[kChains];
};

// Number of tokens before `position` that equal those before tail_end, up to `most`.
inline int agree(const int32_t* text, int32_t position, const int32_t* tail_end, int32_t tail_size,
                 int most) {
  constexpr int kLong = 8;  // after this many matches, compare in blocks of this size
  const int32_t* const end = text + position;
  const int limit = std::min({most, int(position), int(tail_size)});
  int count = 0;
  for (int stop = std::min(limit, kLong);; stop = limit) {
    while (count < stop && end[-1 - count] == tail_end[-1 - count] &&
           tail_end[-1 - count] != kBorder)
      ++count;
    if (count < stop || stop == limit) return count;
    for (int other = 0; count + kLong <= limit; count += kLong) {
      for (int k = 1; k <= kLong; ++k)
        other |= (end[-count - k] != tail_end[-count - k]) | (tail_end[-count - k] == kBorder);
      if (other) break;
    }
  }
}

}  // namespace draftline::drafting
