// What the model itself last held likely after each token: Token Recycling's table.
// Luo et al., "Turning Trash into Treasure: Accelerating Inference of LLMs with Token Recycling".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace draftline::drafting {

class Recycling {
 public:
  Recycling(size_t vocabulary, int width);

  // A row of logits [size] that followed `token`: its `width` likeliest tokens, best first, the
  // lowest id first where they are equal. What was there is gone.
  void update(int32_t token, const float* logits, int64_t size);
  // The same where they were found elsewhere: ids and their logits, best first.
  void put(int32_t token, const int32_t* ids, const float* logits, int count);
  void clear();

  // Best first, -1: no more; nullptr for no token of the vocabulary.
  const int32_t* row(int32_t token) const {
    return token >= 0 && size_t(token) < vocabulary_ ? ids_.data() + size_t(token) * size_t(width_)
                                                     : nullptr;
  }
  // Beside a row: probabilities among its tokens, in 255ths.
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
