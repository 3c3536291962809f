// W floats side by side. Included by each_isa.hpp inside a namespace of its own for every
// instruction set. An operation acts on each lane alone and rounds once, so W never shows in a
// result: kernels that give a number the same operations in the same order, in whatever lane, give
// it the same bits on every processor. Needs the vector extension of GCC and Clang.

template <int W>
struct Lanes {
  typedef float F __attribute__((vector_size(W * 4)));
  typedef int32_t I __attribute__((vector_size(W * 4)));
  F v;

  static HOT Lanes all(float x) { return {x - F{}}; }
  static HOT Lanes load(const float* p) {
    Lanes r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  // The first n floats at p, then `rest`.
  static HOT Lanes load(const float* p, int n, float rest) {
    Lanes r = all(rest);
    std::memcpy(&r.v, p, sizeof(float) * size_t(n));
    return r;
  }
  HOT void store(float* p) const { std::memcpy(p, &v, sizeof v); }
  HOT void store(float* p, int n) const { std::memcpy(p, &v, sizeof(float) * size_t(n)); }
};

template <int W>
HOT Lanes<W> operator+(Lanes<W> a, Lanes<W> b) {
  return {a.v + b.v};
}
template <int W>
HOT Lanes<W> operator-(Lanes<W> a, Lanes<W> b) {
  return {a.v - b.v};
}
template <int W>
HOT Lanes<W> operator*(Lanes<W> a, Lanes<W> b) {
  return {a.v * b.v};
}
template <int W>
HOT Lanes<W> operator/(Lanes<W> a, Lanes<W> b) {
  return {a.v / b.v};
}

// Per lane: a > b ? a : b. A NaN in a is dropped.
template <int W>
HOT Lanes<W> larger(Lanes<W> a, Lanes<W> b) {
  return {a.v > b.v ? a.v : b.v};
}

// a * b + c, rounded once.
template <int W>
HOT Lanes<W> fma(Lanes<W> a, Lanes<W> b, Lanes<W> c) {
#if LANES > 4  // x86: no compiler is trusted to see one instruction in the loop below
  if constexpr (W == 8) return {_mm256_fmadd_ps(a.v, b.v, c.v)};
#endif
#if LANES > 8
  if constexpr (W == 16) return {_mm512_fmadd_ps(a.v, b.v, c.v)};
#endif
#if defined(__aarch64__)
  if constexpr (W == 4) return {vfmaq_f32(c.v, a.v, b.v)};
#endif
  Lanes<W> r;
  for (int i = 0; i < W; ++i) r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}

// x1 x0 x3 x2 ...
template <int W>
HOT Lanes<W> swap_pairs(Lanes<W> x) {
#if defined(__clang__)
  Lanes<W> y;
  for (int i = 0; i < W; ++i) y.v[i] = x.v[i ^ 1];
  return y;
#else
  typename Lanes<W>::I each;
  for (int i = 0; i < W; ++i) each[i] = i ^ 1;
  return {__builtin_shuffle(x.v, each)};
#endif
}

// exp(x) for x <= 0, within 2 ulp; 0 below -87; NaN stays NaN. The polynomial of Cephes' expf.
template <int W>
HOT Lanes<W> exp_negative(Lanes<W> x) {
  using L = Lanes<W>;
  const L magic =
      L::all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const L shifted = fma(x, L::all(1.44269504088896341f), magic);
  const L n = shifted - magic;
  const L r = fma(n, L::all(2.12194440e-4f), fma(n, L::all(-0.693359375f), x));
  L p = fma(L::all(1.9875691500e-4f), r, L::all(1.3981999507e-3f));
  p = fma(p, r, L::all(8.3334519073e-3f));
  p = fma(p, r, L::all(4.1665795894e-2f));
  p = fma(p, r, L::all(1.6666665459e-1f));
  p = fma(p, r, L::all(5.0000001201e-1f));
  p = fma(p, r * r, r) + L::all(1.0f);
  typedef typename L::I I;
  typedef typename L::F F;
  const L e{(F)((I)p.v + ((I)shifted.v << 23))};  // times 2^n: n lies in the low bits of `shifted`
  return {x.v < L::all(-87.0f).v ? F{} : e.v};
}

// tanh(x), within 3 ulp; NaN stays NaN. The polynomial of Cephes' tanhf near 0.
template <int W>
HOT Lanes<W> tanh(Lanes<W> x) {
  using L = Lanes<W>;
  typedef typename L::I I;
  typedef typename L::F F;
  const L size{(F)((I)x.v & 0x7fffffff)}, one = L::all(1.0f);
  const L e = exp_negative(L::all(-2.0f) * size), large = (one - e) / (one + e);
  const L z = x * x;
  L p = fma(L::all(-5.70498872745e-3f), z, L::all(2.06390887954e-2f));
  p = fma(p, z, L::all(-5.37397155531e-2f));
  p = fma(p, z, L::all(1.33314422036e-1f));
  p = fma(p, z, L::all(-3.33332819422e-1f));
  p = fma(p * z, size, size);
  const L positive{size.v < L::all(0.625f).v ? p.v : large.v};
  return {(F)((I)positive.v | ((I)x.v & ~0x7fffffff))};
}

// 1 / (1 + exp(-x)): from exp(-|x|), which cannot overflow.
template <int W>
HOT Lanes<W> sigmoid(Lanes<W> x) {
  using L = Lanes<W>;
  const L zero = L::all(0.0f), one = L::all(1.0f);
  const L e = exp_negative(L{x.v < zero.v ? x.v : (zero - x).v});
  return L{x.v < zero.v ? e.v : one.v} / (one + e);
}

// Sixteen partial sums, by index modulo 16, and their total in a fixed order.
template <int W>
struct Sum16 {
  Lanes<W> part[16 / W];

  HOT Sum16() {
    for (auto& p : part) p = Lanes<W>::all(0.0f);
  }
  HOT float total() const {
    float s[16];
    std::memcpy(s, part, sizeof s);
    for (int step = 8; step > 0; step /= 2)
      for (int i = 0; i < step; ++i) s[i] += s[i + step];
    return s[0];
  }
};
