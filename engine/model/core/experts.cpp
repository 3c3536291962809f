#include "experts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rows.hpp"

namespace draftline {
namespace {

void route_row(const float* logits, int experts, int k, bool normalise, int32_t* choice,
               float* weights) {
  std::vector<bool> chosen(size_t(experts), false);
  float largest = 0.0f;
  for (int n = 0; n < k; ++n) {
    int best = -1;  // the first of those that are left, where all are NaN
    for (int e = 0; e < experts; ++e)
      if (!chosen[size_t(e)] && (best < 0 || logits[e] > logits[best])) best = e;
    chosen[size_t(best)] = true;
    if (n == 0) largest = logits[best];
  }
  float total = 0.0f, kept = 0.0f;
  int n = 0;
  for (int e = 0; e < experts; ++e) {
    const float weight = std::exp(logits[e] - largest);
    total += weight;
    if (!chosen[size_t(e)]) continue;
    kept += weight;
    choice[n] = e;
    weights[n++] = weight;
  }
  for (int i = 0; i < k; ++i) weights[i] /= normalise ? kept : total;
}

}  // namespace

void route(const float* logits, int rows, int experts, int k, bool normalise, int32_t* choice,
           float* weights) {
  for (int row = 0; row < rows; ++row) {
    const size_t at = size_t(row) * k;
    route_row(logits + size_t(row) * experts, experts, k, normalise, choice + at, weights + at);
  }
}

void Experts::forward(const float* x, const int32_t* choice, const float* weights, int rows, int k,
                      float* y) const {
  struct Use {
    int row;
    float weight;
  };
  std::vector<std::vector<Use>> uses(gate_up.size());
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < k; ++i)
      uses[size_t(choice[row * k + i])].push_back({row, weights[row * k + i]});
  const int in = gate_up[0]->in, both = gate_up[0]->out, inner = both / 2, out = down[0]->out;
  std::vector<float> some(size_t(rows) * in), gates(size_t(rows) * both);
  std::vector<float> gated(size_t(rows) * inner), part(size_t(rows) * out);
  std::fill(y, y + size_t(rows) * out, 0.0f);
  for (size_t e = 0; e < uses.size(); ++e) {  // in this order for every row
    const int count = int(uses[e].size());
    if (count == 0) continue;
    for (int n = 0; n < count; ++n)
      std::memcpy(&some[size_t(n) * in], x + size_t(uses[e][size_t(n)].row) * in,
                  sizeof(float) * in);
    gate_up[e]->forward(some.data(), gates.data(), count);
    gate_mul({Gate::silu}, gates.data(), gated.data(), count, inner);
    down[e]->forward(gated.data(), part.data(), count);
    for (int n = 0; n < count; ++n) {
      const Use use = uses[e][size_t(n)];
      float* line = y + size_t(use.row) * out;
      for (int i = 0; i < out; ++i) line[i] += use.weight * part[size_t(n) * out + i];
    }
  }
}

}  // namespace draftline
