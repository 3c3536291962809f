#include "rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "activations.hpp"
#include "cpu.hpp"
#include "pool.hpp"

namespace draftline {
namespace {

struct Norm {
  const float *x, *delta, *weight;  // delta: null, or added to `residual` first; weight: or null
  float *residual, *out;
  float eps;
  int n;
};

}  // namespace
}  // namespace draftline

#define KERNEL "rows_kernel.hpp"
#include "each_isa.hpp"

namespace draftline {
namespace {

#if DRAFTLINE_X86
#define ON_ISA(call) \
  (isa() == Isa::avx512vnni ? avx512::call : isa() != Isa::plain ? avx2::call : plain::call)
#else
#define ON_ISA(call) plain::call
#endif

// A few rows are done before a thread would wake.
void each_row(int rows, int n, const std::function<void(int)>& body) {
  constexpr int kTask = 16384;  // floats
  const int chunk = std::max(1, kTask / std::max(1, n));
  parallel((rows + chunk - 1) / chunk, [&](int i) {
    for (int row = i * chunk; row < std::min(rows, (i + 1) * chunk); ++row) body(row);
  });
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, float* out, int rows, int n) {
  each_row(rows, n, [&](int row) {
    const size_t at = size_t(row) * n;
    ON_ISA(norm_row({x + at, nullptr, weight, nullptr, out + at, eps, n}));
  });
}

void add_rms_norm(float* residual, const float* delta, const float* weight, float eps, float* out,
                  int rows, int n) {
  each_row(rows, n, [&](int row) {
    const size_t at = size_t(row) * n;
    ON_ISA(norm_row({residual + at, delta + at, weight, residual + at, out + at, eps, n}));
  });
}

void gate_mul(const Activation& activation, const float* gate_up, float* out, int rows, int n) {
  each_row(rows, n, [&](int row) {
    const float* gate = gate_up + size_t(row) * 2 * n;
    ON_ISA(gate_row(activation, gate, gate + n, out + size_t(row) * n, n));
  });
}

void sigmoid_mul(const float* gate, size_t stride, float* x, int rows, int n) {
  each_row(rows, n, [&](int row) {
    ON_ISA(sigmoid_row(gate + size_t(row) * stride, x + size_t(row) * n, n));
  });
}

void gated_norm(const float* x, const float* gate, size_t stride, const float* weight, float eps,
                float* out, int rows, int heads, int d) {
  each_row(rows, heads * d, [&](int row) {
    for (int h = 0; h < heads; ++h) {
      const size_t in_row = size_t(h) * d, at = size_t(row) * heads * d + in_row;
      const Norm norm{x + at, nullptr, weight, nullptr, out + at, eps, d};
      ON_ISA(gated_norm_row(norm, gate + size_t(row) * stride + in_row));
    }
  });
}

void softcap(float* x, float cap, int rows, int n) {
  each_row(rows, n, [&](int row) { ON_ISA(softcap_row(x + size_t(row) * n, cap, n)); });
}

void split_heads(const HeadSplit& s) {
  each_row(s.rows, s.total, [&](int row) { ON_ISA(split_row(s, row)); });
}

}  // namespace draftline
