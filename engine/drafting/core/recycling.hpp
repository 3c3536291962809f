// Token Recycling's table: the model's most recent likely successors of each token.
// Luo et al., "Turning Trash into Treasure: Accelerating Inference of Large Language Models with
// Token Recycling" (2024, arXiv 2408.08696).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace draftline::drafting {

class Recycling {
 public:
  Recycling(size_t vocabulary, int width);

  // Replaces the row of `token` by the `width` most likely tokens of `logits` [size], best first,
  // ties by id.
  void update(int32_t token, const float* logits, int64_t size);
  // The same from precomputed ids and logits, best first.
  void put(int32_t token, const int32_t* ids, const float* logits, int count);
  void clear();

  // Fetches the row of `token` into the processor's cache, where it is read or put soon.
  void prefetch(int32_t token) const {
    if (!row(token)) return;
    __builtin_prefetch(row(token));
    __builtin_prefetch(shares(token));
  }
  // Successors, best first, padded with -1; nullptr for ids outside the vocabulary.
  const int32_t* row(int32_t token) const {
    return token >= 0 && size_t(token) < vocabulary_ ? ids_.data() + size_t(token) * size_t(width_)
                                                     : nullptr;
  }
  // Probabilities of a row, normalised over it, in 1/255.
  const uint8_t* shares(int32_t token) const {
    return shares_.data() + size_t(token) * size_t(width_);
  }
  int width() const { return width_; }
  size_t vocabulary() const { return vocabulary_; }
  const int32_t* data() const { return ids_.data(); }

 private:
  size_t vocabulary_;
  int width_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> shares_;
};

}  // namespace draftline::drafting
