// The small steps between linears, row by row. A row's bits depend on that row alone, on every
// processor; sums over a row are Sum16 (lanes.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace draftline {

// out = x / sqrt(mean(x^2) + eps) * weight; x, out [rows, n], weight [n]
void rms_norm(const float* x, const float* weight, float eps, float* out, int rows, int n);

// residual += delta, then out = rms_norm(residual)
void add_rms_norm(float* residual, const float* delta, const float* weight, float eps, float* out,
                  int rows, int n);

// What a gate is put through: x * sigmoid(x); gelu in its approximation with tanh; or gpt-oss's
// x * sigmoid(alpha * x) of x <= limit, whose product is with 1 + up, up within +-limit.
enum class Gate { silu, gelu, clamped };

struct Activation {
  Gate gate;
  float alpha = 0, limit = 0;  // of `clamped`
};

// out = activation(gate) * up; gate_up [rows, 2 n], the gates first; out [rows, n]
void gate_mul(const Activation& activation, const float* gate_up, float* out, int rows, int n);

// x *= sigmoid(gate); x [rows, n], row i of the gates at gate + i * stride
void sigmoid_mul(const float* gate, size_t stride, float* x, int rows, int n);

// out = rms_norm(x) * silu(gate) of each head; x, out [rows, heads, d], weight [d], the gates of
// row i [heads, d] at gate + i * stride
void gated_norm(const float* x, const float* gate, size_t stride, const float* weight, float eps,
                float* out, int rows, int heads, int d);

// x = cap * tanh(x / cap); [rows, n]
void softcap(float* x, float cap, int rows, int n);

constexpr int kMaxHeadSize = 512;

// A cache's rows, the keys or values of one head and token: d floats; or in 8 bits d levels, then a
// float for each 32 of them, their scale.
struct CacheRows {
  int d;
  bool q8 = false;

  int scales() const { return (d + 31) / 32; }
  size_t bytes() const { return q8 ? size_t(d) + sizeof(float) * size_t(scales()) : 4 * size_t(d); }
};

// The steps between the product of q, k and v and attention.
struct HeadSplit {
  const float* qkv;  // [rows, total]: heads * d of q, then kv_heads * d of k, and of v
  int rows, total, heads, kv_heads, d;  // d at most kMaxHeadSize
  float* q;                             // [rows, heads, d]
  void *keys, *values;  // [kv_heads, capacity] rows, written from row `base` on; or null
  int capacity, base;
  const float* turn;  // [rows, pairs] complex: factors of each head's first pairs; or null
  int pairs;
  const float *q_norm, *k_norm;  // [d]: weights of the heads' norms, or null for none
  bool norm_values;              // without weights
  float eps;
  const float* q_factor;  // [rows], or null
  bool values_of_keys;    // v is k as the product gives it
  bool q8 = false;        // the cache's rows
};

void split_heads(const HeadSplit& s);

}  // namespace draftline
