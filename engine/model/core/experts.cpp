#include "experts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "activations.hpp"
#include "pool.hpp"

namespace draftline {
namespace {

// Scores [experts] of the logits of a row.
void score(const Routing& r, const float* logits, float* scores) {
  if (r.sigmoid) {
    for (int e = 0; e < r.experts; ++e) scores[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    return;
  }
  const float largest = *std::max_element(logits, logits + r.experts);
  float total = 0.0f;
  for (int e = 0; e < r.experts; ++e) total += scores[e] = std::exp(logits[e] - largest);
  for (int e = 0; e < r.experts; ++e) scores[e] /= total;
}

void route_row(const Routing& r, const float* logits, int32_t* choice, float* weights) {
  std::vector<float> scores(size_t(r.experts)), keys(logits, logits + r.experts);
  score(r, logits, scores.data());
  if (r.bias)
    for (int e = 0; e < r.experts; ++e) keys[size_t(e)] = scores[size_t(e)] + r.bias[e];
  std::vector<bool> chosen(size_t(r.experts), false);
  for (int n = 0; n < r.k; ++n) {
    int best = -1;  // the first of those that are left, where all are NaN
    for (int e = 0; e < r.experts; ++e)
      if (!chosen[size_t(e)] && (best < 0 || keys[size_t(e)] > keys[size_t(best)])) best = e;
    chosen[size_t(best)] = true;
  }
  float kept = 0.0f;
  int n = 0;
  for (int e = 0; e < r.experts; ++e) {
    if (!chosen[size_t(e)]) continue;
    kept += scores[size_t(e)];
    choice[n] = e;
    weights[n++] = scores[size_t(e)];
  }
  for (int i = 0; i < r.k; ++i) {
    if (r.normalise) weights[i] /= kept + 1e-20f;  // sigmoids may all be 0
    weights[i] *= r.scale * (r.expert_scales ? r.expert_scales[choice[i]] : 1.0f);
  }
}

// The uses of experts by rows, sorted by expert and then by row.
struct Uses {
  std::vector<int> used;     // experts with a use
  std::vector<int> starts;   // [used + 1]: their first uses
  std::vector<int> row, of;  // of each use: its row, and its expert's index in `used`
  std::vector<float> weight;
  std::vector<int> of_row;  // [rows, k]: uses, in order of the experts

  Uses(const int32_t* choice, const float* weights, int rows, int k, int experts) {
    const size_t count = size_t(rows) * k;
    std::vector<std::vector<int>> places(static_cast<size_t>(experts));  // in `choice`
    for (size_t i = 0; i < count; ++i) places[size_t(choice[i])].push_back(int(i));
    std::vector<int> filled(size_t(rows), 0);
    of_row.resize(count);
    for (int e = 0; e < experts; ++e) {
      if (places[size_t(e)].empty()) continue;
      starts.push_back(int(row.size()));
      for (int i : places[size_t(e)]) {
        const int at = i / k;
        of_row[size_t(at) * k + size_t(filled[size_t(at)]++)] = int(row.size());
        row.push_back(at);
        of.push_back(int(used.size()));
        weight.push_back(weights[i]);
      }
      used.push_back(e);
    }
    starts.push_back(int(row.size()));
  }

  int size() const { return int(row.size()); }
  int start(int n) const { return starts[size_t(n)]; }
  int count(int n) const { return start(n + 1) - start(n); }
};

// Calls body(0) ... body(count - 1), `size` in a task.
void in_chunks(int count, int size, const std::function<void(int)>& body) {
  size = std::max(1, size);
  parallel((count + size - 1) / size, [&](int i) {
    for (int n = i * size; n < std::min(count, (i + 1) * size); ++n) body(n);
  });
}

using Linears = std::vector<const QLinear*>;

bool any(const Linears& linears, bool (QLinear::*what)() const) {
  return std::any_of(linears.begin(), linears.end(), [&](auto* q) { return (q->*what)(); });
}

// y [uses, out] of all experts in one parallel section. Rows of an expert share the read of its
// weights. x: [uses, in], of float weights.
void multiply(const Linears& linears, const Uses& uses, const std::vector<Activations>& a,
              const float* x, float* y) {
  const int used = int(uses.used.size());
  int tiles = 0;  // of each expert, at most
  for (int e : uses.used) tiles = std::max(tiles, linears[size_t(e)]->tiles());
  const int chunk = std::max(1, std::min(tiles, tiles * used / (threads() * 4)));
  const int parts = (tiles + chunk - 1) / chunk;
  parallel(used * parts, [&](int i) {
    const int n = i / parts, first = i % parts * chunk;
    const QLinear& q = *linears[size_t(uses.used[size_t(n)])];
    q.run_tiles(first, std::min(q.tiles(), first + chunk), a[size_t(n)],
                x + size_t(uses.start(n)) * q.in, y + size_t(uses.start(n)) * q.out, uses.count(n));
  });
}

// Memory of a forward, kept for the next one.
struct Scratch {
  Activations x;                  // of all rows
  std::vector<Activations> some;  // of the uses of each expert
  std::vector<float> rows, gates, gated, parts;
};

void resize(std::vector<Activations>& some, const Uses& uses, int blocks) {
  if (some.size() < uses.used.size()) some.resize(uses.used.size());
  for (int n = 0; n < int(uses.used.size()); ++n) some[size_t(n)].resize(uses.count(n), blocks);
}

}  // namespace

void route(const Routing& r, const float* logits, int rows, int32_t* choice, float* weights) {
  for (int row = 0; row < rows; ++row) {
    const size_t at = size_t(row) * r.k;
    route_row(r, logits + size_t(row) * r.experts, choice + at, weights + at);
  }
}

void Experts::forward(const float* x, const int32_t* choice, const float* weights, int rows, int k,
                      float* y) const {
  static thread_local Scratch own;
  Scratch& s = own;  // a worker's own `own` is another
  const Uses uses(choice, weights, rows, k, int(gate_up.size()));
  const int in = gate_up[0]->in, both = gate_up[0]->out, inner = both / 2, out = down[0]->out;
  const auto place = [&](int use) { return use - uses.start(uses.of[size_t(use)]); };

  s.gates.resize(size_t(uses.size()) * both);
  resize(s.some, uses, gate_up[0]->blocks());
  if (any(gate_up, &QLinear::quantised)) {  // a row once, however many experts it has
    s.x.resize(rows, gate_up[0]->blocks());
    in_chunks(rows, 1, [&](int row) { quantize_activations(x, in, s.x, row); });
    in_chunks(uses.size(), 32, [&](int use) {
      s.some[size_t(uses.of[size_t(use)])].copy(place(use), s.x, uses.row[size_t(use)]);
    });
  }
  if (any(gate_up, &QLinear::floats)) {
    s.rows.resize(size_t(uses.size()) * in);
    for (int use = 0; use < uses.size(); ++use)
      std::memcpy(&s.rows[size_t(use) * in], x + size_t(uses.row[size_t(use)]) * in,
                  sizeof(float) * size_t(in));
  }
  multiply(gate_up, uses, s.some, s.rows.data(), s.gates.data());

  s.gated.resize(size_t(uses.size()) * inner);
  resize(s.some, uses, down[0]->blocks());
  const bool quantised = any(down, &QLinear::quantised);
  in_chunks(uses.size(), 4096 / inner, [&](int use) {
    float* gated = &s.gated[size_t(use) * inner];
    gate_mul(activation, &s.gates[size_t(use) * both], gated, 1, inner);
    const int n = uses.of[size_t(use)];
    float* first = &s.gated[size_t(uses.start(n)) * inner];
    if (quantised) quantize_activations(first, inner, s.some[size_t(n)], place(use));
  });

  s.parts.resize(size_t(uses.size()) * out);
  multiply(down, uses, s.some, s.gated.data(), s.parts.data());
  in_chunks(rows, 1, [&](int row) {
    float* line = y + size_t(row) * out;
    std::fill(line, line + out, 0.0f);
    for (int i = 0; i < k; ++i) {
      const int use = uses.of_row[size_t(row) * k + size_t(i)];
      const float weight = uses.weight[size_t(use)], *part = &s.parts[size_t(use) * out];
      for (int c = 0; c < out; ++c) line[c] += weight * part[c];
    }
  });
}

}  // namespace draftline
