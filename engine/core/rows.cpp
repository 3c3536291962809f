#include "rows.hpp"

#include <algorithm>
#include <cmath>

#include "cpu.hpp"
#include "lanes.hpp"
#include "pool.hpp"

namespace draftline {
namespace {

// A row is taken as vectors of W; the last may hold fewer floats.
template <int W>
INLINE Lanes<W> load(const float* p, int n) {
  return n == W ? Lanes<W>::load(p) : Lanes<W>::load(p, n, 0.0f);
}

template <int W>
INLINE void store(Lanes<W> x, float* p, int n) {
  if (n == W)
    x.store(p);
  else
    x.store(p, n);
}

struct Norm {
  const float *x, *delta, *weight;  // delta: null, or added to `residual` first
  float *residual, *out;
  float eps;
  int n;
};

template <int W>
INLINE void norm_row(const Norm& r) {
  using L = Lanes<W>;
  Sum16<W> squares;
  for (int i = 0; i < r.n; i += 16) {
#pragma GCC unroll 4
    for (int v = 0; v < 16 / W; ++v) {
      const int at = i + v * W, n = std::min(W, r.n - at);
      if (n <= 0) break;
      L x = load<W>(r.x + at, n);
      if (r.delta) {
        x = x + load<W>(r.delta + at, n);
        store<W>(x, r.residual + at, n);
      }
      squares.part[v] = fma(x, x, squares.part[v]);
    }
  }
  const L factor = L::all(1.0f / std::sqrt(squares.total() / float(r.n) + r.eps));
  const float* x = r.delta ? r.residual : r.x;
  for (int i = 0; i < r.n; i += W) {
    const int n = std::min(W, r.n - i);
    store<W>(load<W>(x + i, n) * factor * load<W>(r.weight + i, n), r.out + i, n);
  }
}

// silu(g) * u = g * sigmoid(g) * u, with sigmoid from exp(-|g|), which cannot overflow.
template <int W>
INLINE void silu_row(const float* gate, const float* up, float* out, int n) {
  using L = Lanes<W>;
  for (int i = 0; i < n; i += W) {
    const int m = std::min(W, n - i);
    const L g = load<W>(gate + i, m), zero = L::all(0.0f), one = L::all(1.0f);
    const L e = exp_negative(L{g.v < zero.v ? g.v : (zero - g).v});
    const L top{g.v < zero.v ? e.v : one.v};
    store<W>(g * (top / (one + e)) * load<W>(up + i, m), out + i, m);
  }
}

void norm_plain(const Norm& r) { norm_row<4>(r); }
void silu_plain(const float* g, const float* u, float* out, int n) { silu_row<4>(g, u, out, n); }
#if DRAFTLINE_X86
TARGET_AVX2 void norm_avx2(const Norm& r) { norm_row<8>(r); }
TARGET_AVX512 void norm_avx512(const Norm& r) { norm_row<16>(r); }
TARGET_AVX2 void silu_avx2(const float* g, const float* u, float* out, int n) {
  silu_row<8>(g, u, out, n);
}
TARGET_AVX512 void silu_avx512(const float* g, const float* u, float* out, int n) {
  silu_row<16>(g, u, out, n);
}
#endif

// The variant for the instruction set in use.
template <class F>
F choose([[maybe_unused]] F avx512, [[maybe_unused]] F avx2, F plain) {
#if DRAFTLINE_X86
  if (isa() == Isa::avx512vnni) return avx512;
  if (isa() == Isa::avx2) return avx2;
#endif
  return plain;
}
#if !DRAFTLINE_X86
constexpr auto norm_avx2 = norm_plain, norm_avx512 = norm_plain;
constexpr auto silu_avx2 = silu_plain, silu_avx512 = silu_plain;
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
  const auto norm = choose(&norm_avx512, &norm_avx2, &norm_plain);
  each_row(rows, n, [&](int row) {
    const size_t at = size_t(row) * n;
    norm({x + at, nullptr, weight, nullptr, out + at, eps, n});
  });
}

void add_rms_norm(float* residual, const float* delta, const float* weight, float eps, float* out,
                  int rows, int n) {
  const auto norm = choose(&norm_avx512, &norm_avx2, &norm_plain);
  each_row(rows, n, [&](int row) {
    const size_t at = size_t(row) * n;
    norm({residual + at, delta + at, weight, residual + at, out + at, eps, n});
  });
}

void silu_mul(const float* gate_up, float* out, int rows, int n) {
  const auto silu = choose(&silu_avx512, &silu_avx2, &silu_plain);
  each_row(rows, n, [&](int row) {
    const float* gate = gate_up + size_t(row) * 2 * n;
    silu(gate, gate + n, out + size_t(row) * n, n);
  });
}

}  // namespace draftline
