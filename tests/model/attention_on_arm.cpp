// Attention and the kernels of rows, for test_kernels_on_arm.py: with the instruction set named by
// the argument, writes their results for fixed inputs to stdout, as f32.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "../../engine/model/core/attention.hpp"
#include "../../engine/model/core/cpu.hpp"
#include "../../engine/model/core/rows.hpp"

using namespace draftline;
using Floats = std::vector<float>;

uint32_t state = 1;

Floats numbers(int count, float size = 1.0f) {
  Floats made(static_cast<size_t>(count));
  for (float& x : made) {
    state = state * 1664525u + 1013904223u;
    x = (float(state >> 8) / 8388608.0f - 1.0f) * size;
  }
  return made;
}

void write(const Floats& x) { std::fwrite(x.data(), sizeof(float), x.size(), stdout); }

void attention(int d, int window, float cap, bool sunk) {
  const int rows = 13, heads = 6, kv = 2, base = 37, capacity = 60;
  const Floats q = numbers(rows * heads * d, 3), keys = numbers(kv * capacity * d),
               values = numbers(kv * capacity * d), sinks = numbers(heads);
  const int32_t parents[rows] = {-1, 0, 1, 2, 3, 3, 2, 6, -1, 8, 9, 10, 4};
  Floats out(size_t(rows * heads * d));
  attend({.q = q.data(),
          .keys = keys.data(),
          .values = values.data(),
          .parents = parents,
          .out = out.data(),
          .rows = rows,
          .heads = heads,
          .kv_heads = kv,
          .capacity = capacity,
          .d = d,
          .base = base,
          .scale = 0.2f,
          .window = window,
          .cap = cap,
          .sinks = sunk ? sinks.data() : nullptr});
  write(out);
}

void gates(int rows, int n) {
  const Floats both = numbers(rows * 2 * n, 9), weight = numbers(n);
  Floats x = numbers(rows * n), out(x.size());
  for (Gate gate : {Gate::silu, Gate::gelu, Gate::clamped}) {
    gate_mul({gate, 1.702f, 7.0f}, both.data(), out.data(), rows, n);
    write(out);
  }
  gated_norm(x.data(), both.data(), size_t(2 * n), weight.data(), 1e-6f, out.data(), rows, 1, n);
  write(out);
  sigmoid_mul(both.data(), size_t(2 * n), x.data(), rows, n);
  softcap(x.data(), 0.5f, rows, n);
  write(x);
}

void heads(int d, int pairs) {
  const int rows = 5, heads = 3, kv = 2, total = (heads + 2 * kv) * d;
  const Floats qkv = numbers(rows * total), turn = numbers(rows * pairs * 2), norm = numbers(d),
               factor = numbers(rows);
  Floats q(size_t(rows * heads * d)), keys(size_t(kv * rows * d)), values(keys.size());
  split_heads({.qkv = qkv.data(),
               .rows = rows,
               .total = total,
               .heads = heads,
               .kv_heads = kv,
               .d = d,
               .q = q.data(),
               .keys = keys.data(),
               .values = values.data(),
               .capacity = rows,
               .base = 0,
               .turn = turn.data(),
               .pairs = pairs,
               .q_norm = norm.data(),
               .k_norm = nullptr,
               .norm_values = true,
               .eps = 1e-6f,
               .q_factor = factor.data(),
               .values_of_keys = false});
  write(q);
  write(keys);
  write(values);
}

// Over a cache in 8 bits, with a pass of its own rows.
void levels(int d) {
  const int rows = 90, heads = 3, kv = 1, total = (heads + 2 * kv) * d;
  const Floats qkv = numbers(rows * total, 2);
  const size_t bytes = CacheRows{d, true}.bytes();
  Floats q(size_t(rows * heads * d)), out(q.size());
  std::vector<uint8_t> keys(size_t(kv * rows) * bytes), values(keys.size());
  split_heads({.qkv = qkv.data(),
               .rows = rows,
               .total = total,
               .heads = heads,
               .kv_heads = kv,
               .d = d,
               .q = q.data(),
               .keys = keys.data(),
               .values = values.data(),
               .capacity = rows,
               .base = 0,
               .turn = nullptr,
               .pairs = 0,
               .q_norm = nullptr,
               .k_norm = nullptr,
               .norm_values = false,
               .eps = 0,
               .q_factor = nullptr,
               .values_of_keys = false,
               .q8 = true});
  std::vector<int32_t> parents(rows);
  for (int i = 0; i < rows; ++i) parents[size_t(i)] = i - 1;
  attend({.q = q.data(),
          .keys = keys.data(),
          .values = values.data(),
          .parents = parents.data(),
          .out = out.data(),
          .rows = rows,
          .heads = heads,
          .kv_heads = kv,
          .capacity = rows,
          .d = d,
          .base = 0,
          .scale = 0.2f,
          .window = 0,
          .cap = 0,
          .sinks = nullptr,
          .q8 = true});
  write(out);
}

int main(int count, char** arguments) {
  if (count != 2) return 1;
  set_isa(arguments[1]);
  attention(64, 0, 0, false);
  attention(40, 16, 2, true);
  attention(512, 5, 0, true);
  gates(3, 45);
  heads(64, 32);
  heads(40, 7);
  levels(64);
  levels(40);
}
