// The next-token model of drafting: how likely each token with evidence is, and that it is another.
//
// Log-linear over tokens: P(t) = exp(sum of t's weights) / sum over tokens and "none of them". All
// features are 0 or 1; each has one weight.
#pragma once

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
  std::vector<float> values, squares;  // squares: AdaGrad's sums
  void reset(float square, float hashed);  // learn from here on; hashed: of the hashed features
};

// One evaluation: tokens with their probabilities, and the features that made them.
struct Scored {
  std::vector<Evidence> tokens;
  std::vector<float> probs;         // beside tokens; what is missing to 1 is "none"
  float none = 1;
  std::vector<uint32_t> features;   // all tokens' features, then those of "none"
  std::vector<uint32_t> starts;     // by token, "none" and the end
  int find(int32_t token) const;    // index in tokens, or their number for "none"
};

void score(const View& view, const Weights& weights, Field& field, Scored& out,
           bool brief);

// One step of AdaGrad on -log P(token at `index`).
void learn(const Scored& scored, int index, Weights& weights, float rate);

}  // namespace draftline::drafting
