// SA-IS.
//
// A suffix is S-type if it is smaller than the next one, else L-type; LMS is an S-type suffix after
// an L-type one. Two passes over the order induce all suffixes from the sorted LMS suffixes. In
// these passes an entry ~j (negative) is a suffix whose predecessor is not induced by that pass.
#include "suffix_sort.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace draftline {
namespace {

constexpr ptrdiff_t kAhead = 16, kFar = 32;  // prefetch distances in entries
constexpr ptrdiff_t kCheckEvery = 1 << 16;   // entries between two looks at stop_sorting

void check_stopped(ptrdiff_t i) {
  if (i % kCheckEvery == 0 && stop_sorting.load(std::memory_order_relaxed))
    throw std::runtime_error("stopped: the process is exiting");
}

class Sorter {
 public:
  Sorter(const int32_t* text, int32_t* order, size_t n, size_t alphabet)
      : text_(text),
        order_(order),
        n_(static_cast<ptrdiff_t>(n)),
        sizes_(alphabet),
        places_(alphabet) {
    for (ptrdiff_t i = 0; i < n_; ++i) ++sizes_[text_[i]];
  }

  void sort() {
    const ptrdiff_t found = sort_substrings();
    const int32_t names = name_substrings(found);
    if (names < found) sort_reduced(found, names);  // else the suffixes are sorted, too
    spread(found);
    induce<false>();
  }

 private:
  void bucket_starts() {
    int32_t at = 0;
    for (size_t c = 0; c < sizes_.size(); ++c) {
      places_[c] = at;
      at += sizes_[c];
    }
  }

  void bucket_ends() {
    int32_t at = 0;
    for (size_t c = 0; c < sizes_.size(); ++c) places_[c] = at += sizes_[c];
  }

  // Visits the start of each LMS suffix, from the end of the text.
  template <class Visit>
  void each_lms(Visit visit) const {
    visit(n_ - 1);
    bool larger = true;  // text_[i] is L-type
    for (ptrdiff_t i = n_ - 2; i > 0; --i) {
      if (text_[i] != text_[i + 1]) larger = text_[i] > text_[i + 1];
      if (!larger && text_[i - 1] > text_[i]) visit(i);
    }
  }

  // Sorts the LMS substrings to the front of the order; returns their number.
  ptrdiff_t sort_substrings() {
    std::fill(order_, order_ + n_, 0);
    bucket_ends();
    each_lms([&](ptrdiff_t i) { order_[--places_[text_[i]]] = static_cast<int32_t>(i); });
    induce<true>();
    ptrdiff_t found = 1;
    order_[0] = static_cast<int32_t>(n_ - 1);
    for (ptrdiff_t i = 1; i < n_; ++i)
      if (order_[i] < 0) order_[found++] = ~order_[i];
    return found;
  }

  // Names substrings by rank, equal ones alike, in the back of the order at found + start / 2.
  int32_t name_substrings(ptrdiff_t found) {
    int32_t* const names = order_ + found;
    std::fill(names, order_ + n_, 0);
    ptrdiff_t next = n_ - 1;
    each_lms([&](ptrdiff_t i) {
      names[i >> 1] = static_cast<int32_t>(next - i + 1);  // a length for now
      next = i;
    });
    int32_t name = 0;
    ptrdiff_t before = 0, length_before = 0;
    for (ptrdiff_t i = 0; i < found; ++i) {
      if (i + kFar < found) {
        __builtin_prefetch(&text_[order_[i + kFar]]);
        __builtin_prefetch(&names[order_[i + kFar] >> 1]);
      }
      const ptrdiff_t start = order_[i], length = names[start >> 1];
      if (length != length_before ||
          !std::equal(text_ + start, text_ + start + length, text_ + before)) {
        ++name;
        before = start;
        length_before = length;
      }
      names[start >> 1] = name;
    }
    return name;
  }

  // Sorts the LMS suffixes, recursively by their names, to the front of the order.
  void sort_reduced(ptrdiff_t found, int32_t names) {
    int32_t* const reduced = order_ + n_ - found;
    for (ptrdiff_t i = found + (n_ - 1) / 2, to = found; i >= found; --i)
      if (order_[i] > 0) reduced[--to] = order_[i] - 1;
    sort_suffixes(reduced, order_, static_cast<size_t>(found), static_cast<size_t>(names));
    each_lms([&, to = found](ptrdiff_t i) mutable { reduced[--to] = static_cast<int32_t>(i); });
    for (ptrdiff_t i = 0; i < found; ++i) {
      if (i + kFar < found) __builtin_prefetch(&reduced[order_[i + kFar]]);
      order_[i] = reduced[order_[i]];
    }
  }

  // Moves the sorted LMS suffixes from the front to the ends of their buckets.
  void spread(ptrdiff_t found) {
    std::fill(order_ + found, order_ + n_, 0);
    bucket_ends();
    for (ptrdiff_t i = found - 1; i >= 0; --i) {
      if (i >= kFar) __builtin_prefetch(&text_[order_[i - kFar]]);
      const int32_t start = order_[i];
      order_[i] = 0;
      order_[--places_[text_[start]]] = start;
    }
  }

  // Prefetches the chain from an entry to the text, to its bucket, to a place in the order.
  void look_ahead(ptrdiff_t i, ptrdiff_t step) const {
    const ptrdiff_t near = i + step, next = i + 2 * step, far = i + 3 * step;
    if (far >= 0 && far < n_ && order_[far] > 0) __builtin_prefetch(&text_[order_[far] - 1]);
    if (next >= 0 && next < n_ && order_[next] > 0)
      __builtin_prefetch(&places_[text_[order_[next] - 1]]);
    if (near >= 0 && near < n_ && order_[near] > 0)
      __builtin_prefetch(&order_[places_[text_[order_[near] - 1]]], 1);
  }

  // Induces from the LMS suffixes at the ends of their buckets all L-type, then all S-type ones.
  // kLms: keeps only the LMS ones, as ~start.
  template <bool kLms>
  void induce() {
    bucket_starts();
    for (ptrdiff_t i = 0; i < n_; ++i) {
      check_stopped(i);
      look_ahead(i, kAhead);
      const int32_t j = order_[i];
      if (j > 0) {
        const int32_t c = text_[j - 1];
        const bool goes_on = j == 1 || text_[j - 2] >= c;
        order_[places_[c]++] = goes_on ? j - 1 : ~(j - 1);
        order_[i] = kLms ? 0 : ~j;
      } else {
        order_[i] = kLms && j == 0 ? 0 : ~j;
      }
    }
    bucket_ends();
    for (ptrdiff_t i = n_ - 1; i >= 0; --i) {
      check_stopped(i);
      look_ahead(i, -kAhead);
      const int32_t j = order_[i];
      if (j > 0) {
        const int32_t c = text_[j - 1];
        const bool goes_on = j > 1 ? text_[j - 2] <= c : kLms;  // nothing comes before 0
        order_[--places_[c]] = goes_on ? j - 1 : ~(j - 1);
        if (kLms) order_[i] = 0;
      } else if (!kLms) {
        order_[i] = ~j;
      }
    }
  }

  const int32_t* const text_;
  int32_t* const order_;
  const ptrdiff_t n_;
  std::vector<int32_t> sizes_, places_;  // of each symbol's bucket
};

}  // namespace

void sort_suffixes(const int32_t* text, int32_t* order, size_t n, size_t alphabet) {
  if (n == 1) order[0] = 0;
  if (n > 1) Sorter(text, order, n, alphabet).sort();
}

}  // namespace draftline
