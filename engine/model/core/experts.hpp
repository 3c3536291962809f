// The feed-forward part of a mixture of experts. A row's bits depend on that row alone.
#pragma once
#include <cstdint>
#include <vector>

#include "qlinear.hpp"

namespace draftline {

// The k experts of each row with the largest logits [rows, experts], in order of their index, and
// their softmax over all experts, divided by its sum over the k if `normalise`. Ties go to the
// lower index. choice, weights: [rows, k]
void route(const float* logits, int rows, int experts, int k, bool normalise, int32_t* choice,
           float* weights);

// y = the sum over a row's experts of weight * down(silu(gate) * up). gate_up has 2 n outputs, the
// gates first, and down n inputs. x [rows, in], choice and weights [rows, k] in order of the
// experts
// -> y [rows, out].
struct Experts {
  std::vector<const QLinear*> gate_up, down;

  void forward(const float* x, const int32_t* choice, const float* weights, int rows, int k,
               float* y) const;
};

}  // namespace draftline
