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
    L y = load<W>(x + i, n) * factor;
    if (r.weight) y = y * load<W>(r.weight + i, n);
    store<W>(y, r.out + i, n);
  }
}

// Of gelu's approximation: (1 + tanh(y)) / 2 is sigmoid(2 y).
template <Gate kind, int W>
HOT Lanes<W> gated(Lanes<W> g, Lanes<W> u, const Activation& a) {
  using L = Lanes<W>;
  if constexpr (kind == Gate::silu) return g * sigmoid(g) * u;
  if constexpr (kind == Gate::gelu) {
    const L y = fma(L::all(0.044715f) * g * g, g, g);
    return g * sigmoid(L::all(1.5957691216f) * y) * u;  // 2 sqrt(2 / pi)
  }
  const L limit = L::all(a.limit), least = L::all(-a.limit);
  g = L{g.v > limit.v ? limit.v : g.v};  // a NaN stays
  u = L{u.v > limit.v ? limit.v : u.v};
  u = L{u.v < least.v ? least.v : u.v};
  return (u + L::all(1.0f)) * (g * sigmoid(L::all(a.alpha) * g));
}

template <Gate kind>
HOT void gate_each(const Activation& a, const float* gate, const float* up, float* out, int n) {
  constexpr int W = LANES;
  for (int i = 0; i < n; i += W) {
    const int m = std::min(W, n - i);
    store<W>(gated<kind, W>(load<W>(gate + i, m), load<W>(up + i, m), a), out + i, m);
  }
}

TARGET void gate_row(const Activation& a, const float* gate, const float* up, float* out, int n) {
  if (a.gate == Gate::silu)
    gate_each<Gate::silu>(a, gate, up, out, n);
  else if (a.gate == Gate::gelu)
    gate_each<Gate::gelu>(a, gate, up, out, n);
  else
    gate_each<Gate::clamped>(a, gate, up, out, n);
}

// x *= sigmoid(gate), or silu(gate).
template <bool silu>
HOT void multiply_by_gate(const float* gate, float* x, int n) {
  constexpr int W = LANES;
  for (int i = 0; i < n; i += W) {
    const int m = std::min(W, n - i);
    const Lanes<W> g = load<W>(gate + i, m), factor = silu ? g * sigmoid(g) : sigmoid(g);
    store<W>(load<W>(x + i, m) * factor, x + i, m);
  }
}

TARGET void sigmoid_row(const float* gate, float* x, int n) { multiply_by_gate<false>(gate, x, n); }

TARGET void gated_norm_row(const Norm& r, const float* gate) {
  norm_row(r);
  multiply_by_gate<true>(gate, r.out, r.n);
}

TARGET void softcap_row(float* x, float cap, int n) {
  constexpr int W = LANES;
  const Lanes<W> all = Lanes<W>::all(cap);
  for (int i = 0; i < n; i += W) {
    const int m = std::min(W, n - i);
    store<W>(all * tanh(load<W>(x + i, m) / all), x + i, m);
  }
}

// A head x [d] to `out`, normed if there is a weight or `norm`.
HOT void norm_head(const HeadSplit& s, const float* x, const float* weight, bool norm, float* out) {
  if (weight || norm)
    norm_row({x, nullptr, weight, nullptr, out, s.eps, s.d});
  else
    std::memcpy(out, x, sizeof(float) * size_t(s.d));
}

// x, n floats of complex pairs, times cos + i sin: cos [n] has each number twice, and sin with
// both signs.
HOT void rotate(float* x, const float* cos, const float* sin, int n) {
  constexpr int W = LANES;
  for (int i = 0; i < n; i += W) {
    const int m = std::min(W, n - i);
    const Lanes<W> pairs = load<W>(x + i, m);
    const Lanes<W> crossed = swap_pairs(pairs) * load<W>(sin + i, m);
    store<W>(fma(pairs, load<W>(cos + i, m), crossed), x + i, m);
  }
}

// x [d] to a row of the cache in 8 bits.
HOT void store_levels(const float* x, int d, uint8_t* row) {
  for (int i = 0, b = 0; i < d; i += kBlock, ++b) {
    float padded[kBlock] = {};
    std::memcpy(padded, x + i, sizeof(float) * size_t(std::min(kBlock, d - i)));
    int8_t levels[kBlock];
    Terms terms;
    quantize_block(padded, levels, &terms);
    std::memcpy(row + i, levels, size_t(std::min(kBlock, d - i)));
    std::memcpy(row + d + sizeof(float) * size_t(b), &terms.scale, sizeof(float));
  }
}

TARGET void split_row(const HeadSplit& s, int row) {
  constexpr int W = LANES;
  float cos[kMaxHeadSize], sin[kMaxHeadSize];
  const int turned = s.turn ? 2 * s.pairs : 0;
  for (int i = 0; i < turned; i += 2) {
    const float* turn = s.turn + size_t(row) * turned + i;
    cos[i] = cos[i + 1] = turn[0];
    sin[i] = -turn[1];
    sin[i + 1] = turn[1];
  }
  const float* x = s.qkv + size_t(row) * s.total;
  for (int h = 0; h < s.heads; ++h) {
    float* q = s.q + (size_t(row) * s.heads + h) * s.d;
    norm_head(s, x + size_t(h) * s.d, s.q_norm, false, q);
    rotate(q, cos, sin, turned);
    if (!s.q_factor) continue;
    const Lanes<W> factor = Lanes<W>::all(s.q_factor[row]);
    for (int i = 0; i < s.d; i += W) {
      const int m = std::min(W, s.d - i);
      store<W>(load<W>(q + i, m) * factor, q + i, m);
    }
  }
  if (!s.keys) return;
  const float* keys = x + size_t(s.heads) * s.d;
  const float* values = s.values_of_keys ? keys : keys + size_t(s.kv_heads) * s.d;
  for (int h = 0; h < s.kv_heads; ++h) {
    const size_t from = size_t(h) * s.d;
    const size_t at = (size_t(h) * s.capacity + s.base + row) * CacheRows{s.d, s.q8}.bytes();
    uint8_t *key = static_cast<uint8_t*>(s.keys) + at,
            *value = static_cast<uint8_t*>(s.values) + at;
    float numbers[kMaxHeadSize];
    float* to = s.q8 ? numbers : reinterpret_cast<float*>(key);
    norm_head(s, keys + from, s.k_norm, false, to);
    rotate(to, cos, sin, turned);
    if (s.q8) store_levels(numbers, s.d, key);
    to = s.q8 ? numbers : reinterpret_cast<float*>(value);
    norm_head(s, values + from, nullptr, s.norm_values, to);
    if (s.q8) store_levels(numbers, s.d, value);
  }
}
