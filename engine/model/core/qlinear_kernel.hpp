// The arithmetic of QLinear; see qlinear.cpp, which includes this once per instruction set.
//
// Of one row and one output channel, whatever is computed beside it: the product of a block, or of
// each part with a scale of its own, is an exact integer. Blocks are added in order:
// acc = fma(float(dot), scale * xscale, acc), then acc = fma(minimum, xscale * float(sum of x),
// acc). A float format has four sums, by input modulo 4, each one chain of fma.

constexpr int W = LANES;          // channels in a vector
constexpr int kLine = kTile / W;  // vectors in a tile's channels

// Vectors of channels and rows computed together: so many that their sums fit the registers. For
// more than kUnrolled rows, registers hold unpacked levels instead, and one row after another
// passes.
// kOfMany: rows together in long passes, so that a tile's weights stay in the first cache.
#if DOT == DOT_512
constexpr int kVectors = 2, kRows = 8, kOfMany = 6, kUnrolled = 8;
#elif DOT == DOT_MADD
constexpr int kVectors = 1, kRows = kMostRows, kOfMany = kMostRows, kUnrolled = 2;
#elif DOT == DOT_NONE
constexpr int kVectors = 1, kRows = kMostRows, kOfMany = kMostRows, kUnrolled = 2;
#else
constexpr int kVectors = 1, kRows = 8, kOfMany = 6, kUnrolled = 8;
#endif

typedef float F __attribute__((vector_size(W * 4)));
typedef int32_t I __attribute__((vector_size(W * 4)));
typedef uint32_t U __attribute__((vector_size(W * 4)));
typedef uint8_t B __attribute__((vector_size(W * 4)));   // 4 inputs of each channel
typedef uint16_t H __attribute__((vector_size(W * 2)));  // 2 bytes of each channel

// Whether levels of 8 bits are multiplied as they are, or as signed numbers around 128.
constexpr bool kSigned = DOT == DOT_MADD || DOT == DOT_SIGNED;

template <class T>
HOT T read(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

HOT F fma_each(F a, F b, F c) { return fma(Lanes<W>{a}, Lanes<W>{b}, Lanes<W>{c}).v; }

// Of f16 or bfloat16. (GCC takes conversions of narrow vectors apart: intrinsics.)
template <bool bf16>
HOT F floats(const uint8_t* p) {
  const H bits = read<H>(p);
#if DOT == DOT_512
  if (bf16) return (F)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)bits), 16);
  return (F)_mm512_cvtph_ps((__m256i)bits);
#elif DOT == DOT_MADD || DOT == DOT_256
  if (bf16) return (F)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)bits), 16);
  return (F)_mm256_cvtph_ps((__m128i)bits);
#elif DOT == DOT_SIGNED || DOT == DOT_USDOT
  if (bf16) return (F)vshll_n_u16((uint16x4_t)bits, 16);
  return vcvt_f32_f16((float16x4_t)bits);
#else
  F out;
  for (int i = 0; i < W; ++i) out[i] = bf16 ? from_bf16(bits[i]) : from_f16(bits[i]);
  return out;
#endif
}

HOT F floats_of_bytes(const uint8_t* p) {  // signed
#if DOT == DOT_512
  return (F)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(read<__m128i>(p)));
#elif DOT == DOT_MADD || DOT == DOT_256
  return (F)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_set1_epi64x(read<int64_t>(p))));
#elif DOT == DOT_SIGNED || DOT == DOT_USDOT
  const int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(read<int32_t>(p)));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
#else
  F out;
  for (int i = 0; i < W; ++i) out[i] = float(int8_t(p[i]));
  return out;
#endif
}

// acc + the products of 4 levels and 4 inputs of x, in each lane. `full`: levels have 8 bits, and
// are signed if kSigned.
template <bool full>
HOT I dot(I acc, B levels, int32_t x) {
#if DOT == DOT_512
  return (I)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)levels, _mm512_set1_epi32(x));
#elif DOT == DOT_256
  return (I)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)levels, _mm256_set1_epi32(x));
#elif DOT == DOT_MADD
  // maddubs wants unsigned times signed and saturates at 16 bits, which two products of signed
  // levels as |w| * sign(x, w) stay below: 2 * 128 * 127.
  const __m256i w = (__m256i)levels, v = _mm256_sign_epi8(_mm256_set1_epi32(x), w);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), v);
  return acc + (I)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif DOT == DOT_SIGNED
  return vdotq_s32(acc, (int8x16_t)levels, (int8x16_t)vdupq_n_s32(x));
#elif DOT == DOT_USDOT
  return vusdotq_s32(acc, (uint8x16_t)levels, (int8x16_t)vdupq_n_s32(x));
#else
  for (int c = 0; c < W; ++c)
    for (int i = 0; i < 4; ++i) acc[c] += levels[c * 4 + i] * int8_t(uint32_t(x) >> i * 8);
  return acc;
#endif
}

// levels + value where a bit is set.
HOT B add_bits(B levels, const uint8_t* bits, uint8_t value) {
#if DOT == DOT_512
  return (B)_mm512_mask_add_epi8((__m512i)levels, read<uint64_t>(bits), (__m512i)levels,
                                 _mm512_set1_epi8(char(value)));
#elif DOT == DOT_256 || DOT == DOT_MADD
  const __m256i each = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                        2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(read<int32_t>(bits)), each);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
  return levels + (B)_mm256_and_si256(set, _mm256_set1_epi8(char(value)));
#else
  for (int i = 0; i < W * 4; ++i)
    levels[i] = uint8_t(levels[i] + (bits[i / 8] >> i % 8 & 1) * value);
  return levels;
#endif
}

template <int bits>
HOT B shifted(B x, int by) {  // bits of each byte, from bit `by` up
  return (B)((U)x >> by) & uint8_t((1 << bits) - 1);
}

// table[levels], plus 128 unless kSigned.
HOT B looked_up(B levels, const int8_t* table) {
  typedef uint8_t T __attribute__((vector_size(16)));
  const T sixteen = read<T>(table) + uint8_t(kSigned ? 0 : 128);
#if DOT == DOT_512
  return (B)_mm512_shuffle_epi8(_mm512_broadcast_i32x4((__m128i)sixteen), (__m512i)levels);
#elif DOT == DOT_256 || DOT == DOT_MADD
  return (B)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256((__m128i)sixteen), (__m256i)levels);
#elif DOT == DOT_SIGNED || DOT == DOT_USDOT
  return (B)vqtbl1q_u8((uint8x16_t)sixteen, (uint8x16_t)levels);
#else
  for (int i = 0; i < W * 4; ++i) levels[i] = sixteen[levels[i]];
  return levels;
#endif
}

// Levels of group g of a block, of W channels from c on.
template <Format format>
HOT B group(const uint8_t* block, int g, int c) {
  constexpr Layout L = layout(format);
  constexpr int kLine = kTile * 4, kHigh = L.low * kBlock * kTile / 8;
  B q;
  if constexpr (L.low == 8) {
    q = read<B>(block + g * kLine + c * 4);
    if (kSigned) q = q ^ 128;
  } else if constexpr (L.low == 4) {
    q = shifted<4>(read<B>(block + g % 4 * kLine + c * 4), g / 4 * 4);
  } else {
    q = shifted<2>(read<B>(block + g % 2 * kLine + c * 4), g / 2 * 2);
  }
  if constexpr (L.high == 1) q = add_bits(q, block + kHigh + g * kLine / 8 + c / 2, 1 << L.low);
  if constexpr (L.high == 2) {  // bits 2 * (g / 2) and the next, to bits 4 and 5
    const U two = read<U>(block + kHigh + g % 2 * kLine + c * 4);
    const int up = 4 - g / 2 * 2;
    q = q | ((B)(up < 0 ? two >> -up : two << up) & 48);
  }
  if constexpr (L.table != nullptr) q = looked_up(q, L.table);
  return q;
}

// Scales (or minima) of W channels. `at`: of the block's first channel; `header`: likewise.
template <Format format>
HOT F scales(const uint8_t* at, const uint8_t* header, int c) {
  constexpr Layout L = layout(format);
  if constexpr (L.scale != Scale::product) {
    return floats<L.scale == Scale::bf16>(at + c * 2);
  } else {
    return floats<false>(header + c * 2) * floats_of_bytes(at + c);
  }
}

// Of kVectors vectors of channels from c on: levels of a part of a block as they are stored.
template <Format format>
struct Packed {
  static constexpr int kGroups = 8 / layout(format).parts;
  const uint8_t* block;
  int part, c;

  HOT B level(int g, int v) const { return group<format>(block, part * kGroups + g, c + v * W); }
};

// The same, unpacked.
template <Format format>
struct Unpacked {
  B levels[Packed<format>::kGroups][kVectors];

  HOT explicit Unpacked(const Packed<format>& packed) {
#pragma GCC unroll 8
    for (int g = 0; g < packed.kGroups; ++g)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) levels[g][v] = packed.level(g, v);
  }
  HOT B level(int g, int v) const { return levels[g][v]; }
};

// The product of a part of a block with a row, in each lane.
template <Format format>
struct Product {
  static constexpr Layout L = layout(format);
  static constexpr bool kFull = L.low == 8 || L.table != nullptr;
  static constexpr int kGroups = 8 / L.parts, kZero = kFull && kSigned ? 0 : L.zero;
  // Sums of pairs of products in 16 bits take so many groups; or all of a part, around a zero of
  // 32: they may overflow on the way, but the whole is at most 8 * 32 * 127.
  static constexpr bool kAround = L.zero == 32;
  static constexpr int kPair = 2 * 127 * ((1 << (L.low + L.high)) - 1);
  static constexpr int kFit = kAround ? kGroups : std::min(kGroups, 32767 / kPair);
  I sum, pairs;

  HOT void start(const Terms& terms, int part) {
    constexpr int kMost = kMostZero[L.parts == 2 ? 0 : 2];  // a power of two, as all zeros are
    constexpr int kShift = kZero ? std::countr_zero(unsigned(kMost / kZero)) : 0;
    sum = kZero ? (terms.minus[L.parts == 2 ? part : 2] - I{}) >> kShift : I{};
#if DOT == DOT_MADD
    if constexpr (!kFull && kAround) {
      pairs = terms.pairs[part] - I{};
      sum = I{};
    }
#endif
  }

  HOT void add([[maybe_unused]] int g, B levels, int32_t x) {
#if DOT == DOT_MADD
    if constexpr (!kFull) {
      static_assert(kGroups % kFit == 0);
      const __m256i two = _mm256_maddubs_epi16((__m256i)levels, _mm256_set1_epi32(x));
      pairs = g % kFit || kAround ? (I)_mm256_add_epi16((__m256i)pairs, two) : (I)two;
      if (g % kFit == kFit - 1) sum += (I)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1));
    } else {
      sum = dot<kFull>(sum, levels, x);
    }
#else
    sum = dot<kFull>(sum, levels, x);
#endif
  }
};

// Of kVectors vectors of channels, the scales of a part of a block.
template <Format format>
struct Scales {
  static constexpr Layout L = layout(format);
  F scale[kVectors], minimum[kVectors];

  HOT Scales(const uint8_t* at, const uint8_t* header, int part, int c) {
    at += L.scale == Scale::product ? part * kTile : 0;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v, c += W) {
      scale[v] = scales<format>(at, header, c);
      if (L.minimum) minimum[v] = scales<format>(at + L.scale_bytes(), header + kTile * 2, c);
    }
  }

  // Adds the part's products with R rows to acc [R][kLine].
  template <int R, class Levels>
  HOT void add(const Levels& levels, int part, const int8_t* x, const Terms* terms, F* acc) const {
    using P = Product<format>;
    P products[R][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) products[r][v].start(terms[r], part);
#pragma GCC unroll 8
    for (int g = 0; g < P::kGroups; ++g) {
      B level[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) level[v] = levels.level(g, v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int32_t four = read<int32_t>(x + r * kBlock + (part * P::kGroups + g) * 4);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) products[r][v].add(g, level[v], four);
      }
    }
    const int which = L.parts == 2 ? part : 2;  // of the sums
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const F product = __builtin_convertvector(products[r][v].sum, F);
        F total = fma_each(product, scale[v] * terms[r].scale, acc[r * kLine + v]);
        if (L.minimum) total = fma_each(minimum[v], terms[r].sums[which] - F{}, total);
        acc[r * kLine + v] = total;
      }
  }
};

// Adds the products of a block with R rows, or with `rows` if R is 0, in kVectors vectors of
// channels from c on.
template <Format format, int R>
HOT void add_block(const uint8_t* block, const uint8_t* header, int c, const int8_t* x,
                   const Terms* terms, int rows, F* acc) {
  constexpr Layout L = layout(format);
#pragma GCC unroll 2
  for (int part = 0; part < L.parts; ++part) {
    const Scales<format> scales(block + L.level_bytes(), header, part, c);
    const Packed<format> packed{block, part, c};
    if constexpr (R > 0) {
      scales.template add<R>(packed, part, x, terms, acc);
    } else {
      const Unpacked<format> levels(packed);
      for (int r = 0; r < rows; ++r)
        scales.template add<1>(levels, part, x + r * kBlock, terms + r, acc + r * kLine);
    }
  }
}

template <Format format, int R>
TARGET void tile(const Tile& t) {
  constexpr Layout L = layout(format);
  constexpr bool kHeld = R > 0 && DOT != DOT_NONE && (W == 16 || R * kLine <= 8);  // in registers
  const int rows = R ? R : t.rows;
  F held[kHeld ? R * kLine : 1] = {};
  F* acc = kHeld ? held : reinterpret_cast<F*>(t.y);
  if (!kHeld) std::memset(t.y, 0, sizeof(float) * size_t(rows * kTile));
  const uint8_t *w = t.w, *header = nullptr;
  for (int b = 0; b < t.blocks; ++b, w += L.block_bytes()) {
    if (L.header_bytes() && b % kSuper == 0) {
      header = w;
      w += L.header_bytes();
    }
    const int8_t* x = t.values + size_t(b) * rows * kBlock;
    const Terms* terms = t.terms + b * rows;
    if constexpr (kHeld) {
#pragma GCC unroll 8
      for (int v = 0; v < kLine; v += kVectors)
        add_block<format, R>(w, header, v * W, x, terms, rows, acc + v);
    } else {
      for (int v = 0; v < kLine; v += kVectors)
        add_block<format, R>(w, header, v * W, x, terms, rows, acc + v);
    }
#if DOT == DOT_512 || DOT == DOT_256 || DOT == DOT_MADD
    for (int l = 0; l < t.lines; ++l)
      _mm_prefetch(reinterpret_cast<const char*>(t.ahead + (b * t.lines + l) * 64), _MM_HINT_T0);
#endif
  }
  if (kHeld) std::memcpy(t.y, held, sizeof held);
}

// w [in][32] of a float format; x [R][in].
template <Format format, int R>
TARGET void float_tile(const FloatTile& t) {
  constexpr int kBytes = format == Format::F32 ? 4 : 2;
  for (int c = 0; c < kTile; c += W) {
    F acc[R][4] = {};
    for (int i = 0; i < t.in; i += 4) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        if (i + k >= t.in) break;
        const uint8_t* at = t.w + (size_t(i + k) * kTile + c) * kBytes;
        F w;
        if constexpr (format == Format::F32)
          w = read<F>(at);
        else
          w = floats<format == Format::BF16>(at);
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r)
          acc[r][k] = fma_each(w, t.x[size_t(r) * t.in + i + k] - F{}, acc[r][k]);
      }
    }
    for (int r = 0; r < R; ++r) {
      const F sum = (acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3]);
      std::memcpy(t.y + r * kTile + c, &sum, sizeof sum);
    }
  }
}

TARGET void quantize(const float* x, int in, Activations& a, int row) {
  quantize_row(x, in, a, row);
}

template <Format format, size_t... R>
TileKernel of_rows(int rows, std::index_sequence<R...>) {
  static constexpr TileKernel kernels[] = {tile<format, int(R)>...};
  return kernels[rows <= kUnrolled ? rows : 0];
}

#define EACH(name)   \
  case Format::name: \
    return of_rows<Format::name>(rows, std::make_index_sequence<kUnrolled + 1>());

TileKernel tile_kernel(Format format, int rows) {
  switch (format) {
    EACH(Q4_0)
    EACH(Q4_1)
    EACH(Q5_0)
    EACH(Q5_1)
    EACH(Q8_0)
    EACH(Q2_K)
    EACH(Q3_K)
    EACH(Q4_K)
    EACH(Q5_K)
    EACH(Q6_K)
    EACH(IQ4_NL)
    EACH(IQ4_XS)
    EACH(MXFP4)
    EACH(Q4)
    default:
      EACH(Q8)
  }
}
#undef EACH

FloatKernel float_kernel(Format format, int rows) {
  static constexpr FloatKernel f32[] = {float_tile<Format::F32, 1>, float_tile<Format::F32, 2>,
                                        float_tile<Format::F32, 3>};
  static constexpr FloatKernel f16[] = {float_tile<Format::F16, 1>, float_tile<Format::F16, 2>,
                                        float_tile<Format::F16, 3>};
  static constexpr FloatKernel bf16[] = {float_tile<Format::BF16, 1>, float_tile<Format::BF16, 2>,
                                         float_tile<Format::BF16, 3>};
  return (format == Format::F32 ? f32 : format == Format::F16 ? f16 : bf16)[rows - 1];
}
