// The arithmetic of rows.cpp, which includes this once per instruction set.

// A row is taken as vectors of W; the last may hold fewer floats.
template <int W>
HOT Lanes<W> load(const float* p, int n) {
  return n == W ? Lanes<W>::load(p) : Lanes<W>::load(p, n, 0.0f);
}

template <int W>
HOT void store(Lanes<W> x, float* p, int n) {
  if (n == W)
    x.store(p);
  else
    x.store(p, n);
}

TARGET void norm_row(const Norm& r) {
  constexpr int W = LANES;
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

// silu(g) * u = g * sigmoid(g) * u
TARGET void silu_row(const float* gate, const float* up, float* out, int n) {
  constexpr int W = LANES;
  for (int i = 0; i < n; i += W) {
    const int m = std::min(W, n - i);
    const Lanes<W> g = load<W>(gate + i, m);
    store<W>(g * sigmoid(g) * load<W>(up + i, m), out + i, m);
  }
}
