// Suffix array construction by SA-IS: "Two Efficient Algorithms for Linear Time Suffix Array
// Construction" (Nong, Zhang, Chan, 2011).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace draftline {

// While true, running and new sorts throw std::runtime_error.
inline std::atomic<bool> stop_sorting{false};

// order[0..n): the start of each suffix in ascending order. The n < 2^31 symbols of `text` are 0 to
// alphabet - 1; the last symbol is 0, and no other. Linear time.
void sort_suffixes(const int32_t* text, int32_t* order, size_t n, size_t alphabet);

}  // namespace draftline
