#include "recycling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "vocabulary.hpp"

namespace draftline::drafting {
namespace {

constexpr int kMost = 64;   // tokens per row
constexpr int kBlock = 64;  // logits compared at once; most blocks contain no candidate

DRAFTLINE_WIDE int is_any_above(const float* logits, float least) {
  int any = 0;
  for (int n = 0; n < kBlock; ++n) any |= logits[n] > least;
  return any;
}

}  // namespace

Recycling::Recycling(size_t vocabulary, int width)
    : vocabulary_(vocabulary), width_(std::clamp(width, 1, kMost)) {
  clear();
}

void Recycling::clear() {
  ids_.assign(vocabulary_ * size_t(width_), -1);
  shares_.assign(ids_.size(), 0);
}

void Recycling::update(int32_t token, const float* logits, int64_t size) {
  int32_t ids[kMost];
  float best[kMost];
  int count = 0;
  float least = -std::numeric_limits<float>::infinity();
  const auto look = [&](int64_t i) {
    const float value = logits[i];
    if (!(value > least)) return;  // false for NaN; the first of equal values stays
    int at = count < width_ ? count++ : width_ - 1;
    for (; at > 0 && value > best[at - 1]; --at) {
      best[at] = best[at - 1];
      ids[at] = ids[at - 1];
    }
    best[at] = value;
    ids[at] = int32_t(i);
    if (count == width_) least = best[width_ - 1];
  };
  int64_t i = 0;
  for (; i + kBlock <= size; i += kBlock)
    if (is_any_above(logits + i, least))
      for (int64_t k = i; k < i + kBlock; ++k) look(k);
  for (; i < size; ++i) look(i);
  put(token, ids, best, count);
}

void Recycling::put(int32_t token, const int32_t* ids, const float* logits, int count) {
  if (!row(token)) return;
  int32_t* row = ids_.data() + size_t(token) * size_t(width_);
  uint8_t* shares = shares_.data() + size_t(token) * size_t(width_);
  count = std::min(count, width_);
  float all = 0, odds[kMost];
  for (int n = 0; n < count; ++n) all += odds[n] = std::exp(logits[n] - logits[0]);
  for (int n = 0; n < width_; ++n) {
    row[n] = n < count ? ids[n] : -1;
    const float share = n < count ? odds[n] / all : 0;
    shares[n] = share > 0 ? uint8_t(std::lround(255 * std::min(share, 1.f))) : 0;
  }
}

}  // namespace draftline::drafting
