// Bucketing of evidence into feature classes, vectorised over eight tokens.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "vocabulary.hpp"

namespace draftline::drafting {

// One value of eight tokens. A class is a sum of comparisons, of one value or of eight at once.
using Lanes [[gnu::vector_size(16)]] = int16_t;
using Floats [[gnu::vector_size(16)]] = float;
constexpr size_t kLanes = 8;

// Masks four values by the lanes from `n` on, which are -1 (keep) or 0 (clear).
DRAFTLINE_INLINE Floats only(Floats values, Lanes wanted, size_t n) {
  using Four [[gnu::vector_size(8)]] = int16_t;
  using Ints [[gnu::vector_size(16)]] = int32_t;
  Four four;
  std::memcpy(&four, reinterpret_cast<const char*>(&wanted) + n * sizeof(int16_t), sizeof(four));
  return (Floats)((Ints)values & __builtin_convertvector(four, Ints));
}

DRAFTLINE_INLINE int above(int value, int least) { return value > least; }
DRAFTLINE_INLINE Lanes above(Lanes value, int least) { return -(value > int16_t(least)); }
template <class T, class... Least>
DRAFTLINE_INLINE T rank(T value, Least... least) {  // number of thresholds that `value` exceeds
  return (above(value, least) + ...);
}

template <class T>
DRAFTLINE_INLINE T of_match(T m) {
  return rank(m, 0, 1, 2, 3, 4, 6, 9, 15, 31, 63);
}  // 11 classes
template <class T>
DRAFTLINE_INLINE T of_match4(T m) {
  return rank(m, 0, 2, 7);
}
template <class T>
DRAFTLINE_INLINE T of_match6(T m) {
  return rank(m, 0, 1, 2, 5, 15);
}
template <class T>
DRAFTLINE_INLINE T of_gap(T gap) {
  return rank(gap, 0, 1, 2, 4, 8, 16);
}  // 7 classes
inline unsigned of_run(int run) { return unsigned(rank(run, 0, 1, 3, 7, 15, 31)); }  // 7 classes
DRAFTLINE_INLINE Lanes of_count(Lanes count) { return rank(count, 0, 1, 2, 5); }     // 5 classes
DRAFTLINE_INLINE Lanes of_back(Lanes back) { return rank(back, 15, 63, 511); }       // 4 classes
DRAFTLINE_INLINE Lanes of_jump(Lanes j, int gap) {                                   // 12 classes
  const Lanes jump =
      j < 0 ? int16_t(3) - above(j, -9) : int16_t(4) + rank(j, 1, 2, 4, 8, 16, 64, 128);
  return j == 0 ? Lanes{} : j == int16_t(gap) ? Lanes{} + int16_t(1) : jump;
}
DRAFTLINE_INLINE Lanes of_share(Lanes count,
                                int all) {  // 5 classes: below 3, 8, 12 and 16 sixteenths
  count *= int16_t(16);
  return rank(count, 3 * all - 1, 8 * all - 1, 12 * all - 1, 16 * all - 1);
}
constexpr unsigned of_prob(float p) {  // 6 classes
  return unsigned((p > 0.07f) + (p > 0.2f) + (p > 0.4f) + (p > 0.7f) + (p > 0.95f));
}
constexpr auto kOfByte = [] {  // of_prob of n / 255
  std::array<uint8_t, 256> classes{};
  for (int n = 0; n < 256; ++n) classes[size_t(n)] = uint8_t(of_prob(float(n) / 255));
  return classes;
}();
constexpr auto kOfZero = [] {  // 8 classes: 0, or 1 + the lowest bit of Zero
  std::array<uint8_t, 256> classes{};
  for (int n = 1; n < 256; ++n) classes[size_t(n)] = uint8_t(1 + std::countr_zero(unsigned(n)));
  return classes;
}();

}  // namespace draftline::drafting
