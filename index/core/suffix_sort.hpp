// The suffixes of a text in order: SA-IS, "Two Efficient Algorithms for Linear Time Suffix Array
// Construction" (Nong, Zhang, Chan, 2011).
#pragma once

#include <cstddef>
#include <cstdint>

namespace draftline {

// order[0..n): where each suffix starts, smallest first. The n symbols of `text` are 0 to
// alphabet - 1; the last one is 0 and no other is. n < 2^31. Time is linear.
void sort_suffixes(const int32_t* text, int32_t* order, size_t n, size_t alphabet);

}  // namespace draftline
