// The small steps between linears, row by row. A row's bits depend on that row alone, on every
// processor; sums over a row are Sum16 (lanes.hpp).
#pragma once

namespace draftline {

// out = x / sqrt(mean(x^2) + eps) * weight; x, out [rows, n], weight [n]
void rms_norm(const float* x, const float* weight, float eps, float* out, int rows, int n);

// residual += delta, then out = rms_norm(residual)
void add_rms_norm(float* residual, const float* delta, const float* weight, float eps, float* out,
                  int rows, int n);

// out = silu(gate) * up; gate_up [rows, 2 n], the gates first; out [rows, n]
void silu_mul(const float* gate_up, float* out, int rows, int n);

}  // namespace draftline
