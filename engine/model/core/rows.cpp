#include "rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "cpu.hpp"
#include "pool.hpp"

namespace draftline {
namespace {

struct Norm {
  const float *x, *delta, *weight;  // delta: null, or added to `residual` first
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

void norm_row(const Norm& r) {
#if DRAFTLINE_X86
  if (isa() == Isa::avx512vnni) return avx512::norm_row(r);
  if (isa() != Isa::plain) return avx2::norm_row(r);
#endif
  plain::norm_row(r);
}

void silu_row(const float* gate, const float* up, float* out, int n) {
#if DRAFTLINE_X86
  if (isa() == Isa::avx512vnni) return avx512::silu_row(gate, up, out, n);
  if (isa() != Isa::plain) return avx2::silu_row(gate, up, out, n);
#endif
  plain::silu_row(gate, up, out, n);
}

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
    norm_row({x + at, nullptr, weight, nullptr, out + at, eps, n});
  });
}

void add_rms_norm(float* residual, const float* delta, const float* weight, float eps, float* out,
                  int rows, int n) {
  each_row(rows, n, [&](int row) {
    const size_t at = size_t(row) * n;
    norm_row({residual + at, delta + at, weight, residual + at, out + at, eps, n});
  });
}

void silu_mul(const float* gate_up, float* out, int rows, int n) {
  each_row(rows, n, [&](int row) {
    const float* gate = gate_up + size_t(row) * 2 * n;
    silu_row(gate, gate + n, out + size_t(row) * n, n);
  });
}

}  // namespace draftline
