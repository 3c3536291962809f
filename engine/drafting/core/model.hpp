// The next-token model: a log-linear model of the candidates and of "none of them".
//
// P(t) = exp(sum of t's weights) / (the same sum over all candidates and "none of them"). Features
// are binary; each has one weight.
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
std::vector<std::pair<uint32_t, uint32_t>> recycling_weights();  // [first, last) ranges
std::string layout();  // identifies the feature tables: weights of another layout are unusable

struct Weights {
  std::vector<float> values, squares;  // squares: AdaGrad's sums of squared gradients
  void reset(float square,
             float hashed);  // start learning with these sums; hashed: for hashed features
};

// One evaluation: candidates, their probabilities and their features.
struct Scored {
  std::vector<Evidence> tokens;
  std::vector<float> probs;  // of the candidates; the rest is `none`
  float none = 1;
  // Active features: row r holds, for every candidate, an index into the table tables[r].
  static constexpr uint16_t kNot = 0xFFFF;     // the candidate lacks this feature
  static constexpr size_t kMostFeatures = 36;  // per candidate
  std::vector<uint16_t> rows;                  // [count, stride]
  std::array<uint32_t, kMostFeatures> tables;  // offset of each row's table
  size_t count = 0, stride = 0;                // rows in use; candidates rounded up to kLanes
  static constexpr size_t kMostNone = 8;
  std::array<uint32_t, kMostNone> none_features;
  size_t none_count = 0;
  int find(int32_t token) const;  // index in tokens, or tokens.size() for "none"
};

void score(const View& view, const Weights& weights, Field& field, Scored& out, bool brief);

// One AdaGrad step on -log P(candidate at `index`).
void learn(const Scored& scored, int index, Weights& weights, float rate);

}  // namespace draftline::drafting
