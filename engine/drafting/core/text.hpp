// A text that grows at its end, and where its tokens occurred in it before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "vocabulary.hpp"

namespace draftline::drafting {

// An open-addressed map from hashed keys to positions. Half of a key is kept: two that share it and
// their slot are taken for one, so what is found is compared with the text.
class Places {
 public:
  Places() : slots_(16) {}
  int32_t& at(uint64_t key);         // -1 where it is new
  int32_t find(uint64_t key) const;  // -1 where it is not
  void prefetch(uint64_t key) const { __builtin_prefetch(&slots_[key & (slots_.size() - 1)]); }
  void clear();

 private:
  struct Slot {
    uint32_t key = 0, hash = 0;  // the upper and the lower half
    int32_t place = -1;          // -1: empty
  };
  size_t slot(uint64_t key) const;
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

// Position i stands for "after token i - 1": what follows there is token i.
class Text {
 public:
  // Lengths of tail by which positions are chained; the last one is of shapes.
  static constexpr int kChains = 4, kShape = 3;
  static constexpr int kOrders[kChains] = {1, 2, 4, 3};

  void clear();
  void push(int32_t token, int32_t shape);
  int32_t size() const { return int32_t(tokens_.size()); }
  int32_t operator[](int32_t i) const { return tokens_[size_t(i)]; }
  const int32_t* data() const { return tokens_.data(); }
  const int32_t* shapes() const { return shapes_.data(); }

  // The key of the last kOrders[n] tokens of a tail (its shapes for kShape); kNoKey: there are
  // none.
  static constexpr uint64_t kNoKey = ~0ull;
  static uint64_t key(int n, const int32_t* tail_end, int32_t tail_size);
  // The newest position after such tokens; -1: none.
  int32_t newest(int n, uint64_t key) const { return key == kNoKey ? -1 : newest_[n].find(key); }
  void prefetch(int n, uint64_t key) const { newest_[n].prefetch(key); }
  // The one before it of the same kind.
  int32_t older(int n, int32_t position) const { return older_[n][size_t(position)]; }

 private:
  std::vector<int32_t> tokens_, shapes_;
  std::vector<int32_t> older_[kChains];  // by position
  Places newest_[kChains];
};

// How many tokens before `position` of a text equal those before tail_end; at most `most`.
inline int agree(const int32_t* text, int32_t position, const int32_t* tail_end, int32_t tail_size,
                 int most) {
  constexpr int kLong = 8;  // where so many agree, the others are compared so many at once
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
