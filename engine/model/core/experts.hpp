// The feed-forward part of a mixture of experts. A row's bits depend on that row alone.
#pragma once
#include <cstdint>
#include <vector>

#include "qlinear.hpp"
#include "rows.hpp"

namespace draftline {

struct Routing {
  int experts, k;
  bool normalise;              // weights are divided by their sum over the k
  bool sigmoid;                // scores are sigmoids of the logits, not their softmax
  const float* bias;           // [experts]: added to the scores to choose by; or null
  float scale;                 // of all weights
  const float* expert_scales;  // [experts]: of the weights of each; or null
};

// The k experts of each row with the largest scores, in order of their index, and their scores as
// weights. Ties go to the lower index. logits [rows, experts] -> choice, weights [rows, k]
void route(const Routing& r, const float* logits, int rows, int32_t* choice, float* weights);

// y = the sum over a row's experts, in order of their index, of weight * down(activation(gate) *
// up). gate_up has 2 n outputs, the gates first, and down n inputs. x [rows, in], choice and
// weights [rows, k] -> y [rows, out].
struct Experts {
  std::vector<const QLinear*> gate_up, down;
  Activation activation;

  void forward(const float* x, const int32_t* choice, const float* weights, int rows, int k,
               float* y) const;
};

}  // namespace draftline
