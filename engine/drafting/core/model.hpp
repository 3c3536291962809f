// The next-token model of drafting: how likely each token with evidence is, and that it is another.
//
// Log-linear over tokens: P(t) = exp(sum of t's weights) / sum over tokens and "none of them". All
// features are 0 or 1; each has one weight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "evidence.hpp"

namespace draftline::drafting {

size_t weight_count();
std::vector<std::pair<uint32_t, uint32_t>> recycling_weights();  // first and one past the last
std::string layout();  // what the weights mean, as a short text

struct Weights {
  std::vector<float> values, squares;      // squares: AdaGrad's sums
  void reset(float square, float hashed);  // learn from here on; hashed: of the hashed features
};

// One evaluation: tokens with their probabilities, and the features that made them.
struct Scored {
  std::vector<Evidence> tokens;
  std::vector<float> probs;  // beside tokens; what is missing to 1 is "none"
  float none = 1;
  // Their features: in each row one of every token, as an index into one table of weights.
  static constexpr uint16_t kNot = 0xFFFF;     // the token does not have it
  static constexpr size_t kMostFeatures = 36;  // of one token
  std::vector<uint16_t> rows;                  // [count, stride]
  std::array<uint32_t, kMostFeatures> tables;  // where each row's table starts
  size_t count = 0, stride = 0;                // stride: tokens, rounded up
  static constexpr size_t kMostNone = 8;
  std::array<uint32_t, kMostNone> none_features;
  size_t none_count = 0;
  int find(int32_t token) const;  // index in tokens, or their number for "none"
};

void score(const View& view, const Weights& weights, Field& field, Scored& out, bool brief);

// One step of AdaGrad on -log P(token at `index`).
void learn(const Scored& scored, int index, Weights& weights, float rate);

}  // namespace draftline::drafting
