// The inner loops of QLinear, for every instruction set: quantise rows, multiply a tile. Only
// qlinear.cpp includes this.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu.hpp"
#if DRAFTLINE_X86
#include <immintrin.h>
#endif

namespace draftline {

constexpr int kBlock = 32;  // inputs that share a scale
constexpr int kTile = 32;   // output channels computed together
constexpr int kBytes = kBlock * kTile;
constexpr int kGroup = 6;  // rows computed together: 2 * 6 sums of each kind fit 32 registers
constexpr uint32_t kInf = 0x7f800000;
constexpr float kTiny = 1e-36f;  // a block below this is stored as zeros: 127 / amax would overflow

// Quantised rows. Rows are cut in groups of nearly equal size, r <= 6; the rows of a group stand
// side by side: values [group][block][r][32], scales and offsets [group][block][r].
struct Activations {
  int rows, blocks;
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> offsets;  // -128 * sum of the block: undoes the weights' plus 128

  int groups() const { return (rows + kGroup - 1) / kGroup; }
  int start(int group) const { return int(int64_t(rows) * group / groups()); }

  void resize(int rows_, int blocks_) {
    rows = rows_;
    blocks = blocks_;
    values.resize(size_t(rows) * blocks * kBlock);
    scales.resize(size_t(rows) * blocks);
    offsets.resize(size_t(rows) * blocks);
  }
};

namespace {

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

// Bits of the largest magnitude; as integers, so that NaN > inf > every number on every path.
INLINE uint32_t largest(const float* x) {
  int32_t most = 0;
  for (int i = 0; i < kBlock; ++i) {
    const int32_t magnitude = std::bit_cast<int32_t>(x[i]) & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  return uint32_t(most);
}

// Nearest integer, ties to even, of |x| < 2^22: the low bits of x + 1.5 * 2^23.
INLINE int32_t nearest(float x) {
  return std::bit_cast<int32_t>(x + 12582912.0f) - std::bit_cast<int32_t>(12582912.0f);
}

INLINE void quantize_block(const float* x, int8_t* q, float* scale, int32_t* offset) {
  const uint32_t bits = largest(x);
  const float amax = std::bit_cast<float>(bits);
  const bool usable = bits < kInf && amax >= kTiny;
  const float inverse = 127.0f / amax;
  *scale = bits >= kInf ? std::numeric_limits<float>::quiet_NaN() : usable ? amax / 127.0f : 0.0f;
  int32_t sum = 0;
  if (usable) {
    for (int i = 0; i < kBlock; ++i) {
      const int32_t v = nearest(x[i] * inverse);
      q[i] = int8_t(v);
      sum += v;
    }
  } else {
    std::memset(q, 0, kBlock);
  }
  *offset = -128 * sum;
}

INLINE void quantize_group(const float* x, int in, Activations& a, int group) {
  const int first = a.start(group), r = a.start(group + 1) - first;
  for (int row = 0; row < r; ++row) {
    const float* line = x + size_t(first + row) * in;
    for (int b = 0; b < a.blocks; ++b) {
      const size_t slot = size_t(first) * a.blocks + size_t(b) * r + row;
      const float* block = line + b * kBlock;
      float padded[kBlock] = {};
      if ((b + 1) * kBlock > in) {
        std::memcpy(padded, block, sizeof(float) * size_t(in - b * kBlock));
        block = padded;
      }
      quantize_block(block, &a.values[slot * kBlock], &a.scales[slot], &a.offsets[slot]);
    }
  }
}

void quantize_plain(const float* x, int in, Activations& a, int group) {
  quantize_group(x, in, a, group);
}

// A tile kernel: 32 channels times R rows. w [block][1024], ws [block][32]; values, scales and
// offsets of one group; y [R][32].
struct Tile {
  const uint8_t* w;
  const uint16_t* ws;
  const int8_t* values;
  const float* scales;
  const int32_t* offsets;
  int blocks;
  float* y;
  const uint8_t* ahead;  // weights to fetch meanwhile, `lines` cache lines a block
  int lines;
};

template <int R>
void tile_plain(const Tile& t) {
  float acc[R][kTile] = {};
  for (int b = 0; b < t.blocks; ++b) {
    for (int r = 0; r < R; ++r) {
      int32_t dot[kTile] = {};
      const int8_t* x = t.values + (size_t(b) * R + r) * kBlock;
      for (int g = 0; g < kBlock / 4; ++g)
        for (int c = 0; c < kTile; ++c)
          for (int i = 0; i < 4; ++i)
            dot[c] += (t.w[size_t(b) * kBytes + g * kTile * 4 + c * 4 + i] - 128) * x[g * 4 + i];
      for (int c = 0; c < kTile; ++c)
        acc[r][c] = std::fma(float(dot[c]), from_bf16(t.ws[b * kTile + c]) * t.scales[b * R + r],
                             acc[r][c]);
    }
  }
  std::memcpy(t.y, acc, sizeof acc);
}

#if DRAFTLINE_X86

TARGET_AVX2 void quantize_avx2(const float* x, int in, Activations& a, int group) {
  quantize_group(x, in, a, group);
}

TARGET_AVX512 void quantize_avx512(const float* x, int in, Activations& a, int group) {
  quantize_group(x, in, a, group);
}

INLINE int four(const int8_t* x) {
  int bytes;
  std::memcpy(&bytes, x, 4);
  return bytes;
}

// maddubs wants unsigned times signed and saturates at 16 bits: |w| * sign(x, w) stays below, as
// neither side holds -128 (2 * 127 * 127 < 2^15).
template <int R>
TARGET_AVX2 void tile_avx2(const Tile& t) {
  const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  for (int part = 0; part < kTile / 8;
       ++part) {  // 8 channels: 6 sums of each kind fit 16 registers
    __m256 acc[R];
    for (int r = 0; r < R; ++r) acc[r] = _mm256_setzero_ps();
    for (int b = 0; b < t.blocks; ++b) {
      const uint8_t* w = t.w + size_t(b) * kBytes + part * 32;
      const int8_t* x = t.values + size_t(b) * R * kBlock;
      __m256i dot[R];
      for (int r = 0; r < R; ++r) dot[r] = _mm256_setzero_si256();
      for (int g = 0; g < kBlock / 4; ++g) {
        const __m256i wg = _mm256_xor_si256(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(w + g * kTile * 4)), flip);
        const __m256i size = _mm256_abs_epi8(wg);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const __m256i xg = _mm256_sign_epi8(_mm256_set1_epi32(four(x + r * kBlock + g * 4)), wg);
          dot[r] =
              _mm256_add_epi32(dot[r], _mm256_madd_epi16(_mm256_maddubs_epi16(size, xg), ones));
        }
      }
      const __m256 ws = _mm256_castsi256_ps(_mm256_slli_epi32(
          _mm256_cvtepu16_epi32(
              _mm_load_si128(reinterpret_cast<const __m128i*>(t.ws + b * kTile + part * 8))),
          16));
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
        acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r]),
                                 _mm256_mul_ps(ws, _mm256_set1_ps(t.scales[b * R + r])), acc[r]);
    }
    for (int r = 0; r < R; ++r) _mm256_storeu_ps(t.y + r * kTile + part * 8, acc[r]);
  }
}

INLINE TARGET_AVX512 __m512 scales16(const uint16_t* bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(bits))), 16));
}

template <int R>
TARGET_AVX512 void tile_avx512(const Tile& t) {
  __m512 acc0[R], acc1[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) acc0[r] = acc1[r] = _mm512_setzero_ps();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* w = t.w + size_t(b) * kBytes;
    const int8_t* x = t.values + size_t(b) * R * kBlock;
    __m512i dot0[R], dot1[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) dot0[r] = dot1[r] = _mm512_set1_epi32(t.offsets[b * R + r]);
#pragma GCC unroll 8
    for (int g = 0; g < kBlock / 4; ++g) {
      const __m512i w0 = _mm512_load_si512(w + g * 128), w1 = _mm512_load_si512(w + g * 128 + 64);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i xg = _mm512_set1_epi32(four(x + r * kBlock + g * 4));
        dot0[r] = _mm512_dpbusd_epi32(dot0[r], w0, xg);
        dot1[r] = _mm512_dpbusd_epi32(dot1[r], w1, xg);
      }
    }
    for (int l = 0; l < t.lines; ++l)
      _mm_prefetch(reinterpret_cast<const char*>(t.ahead + (b * t.lines + l) * 64), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(t.ws + b * kTile + 256), _MM_HINT_T0);
    const __m512 ws0 = scales16(t.ws + b * kTile), ws1 = scales16(t.ws + b * kTile + 16);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 xs = _mm512_set1_ps(t.scales[b * R + r]);
      acc0[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot0[r]), _mm512_mul_ps(ws0, xs), acc0[r]);
      acc1[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot1[r]), _mm512_mul_ps(ws1, xs), acc1[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    _mm512_storeu_ps(t.y + r * kTile, acc0[r]);
    _mm512_storeu_ps(t.y + r * kTile + 16, acc1[r]);
  }
}

#endif

using TileKernel = void (*)(const Tile&);
using Quantize = void (*)(const float*, int, Activations&, int);
#define EACH_R(k) {k<1>, k<2>, k<3>, k<4>, k<5>, k<6>}

struct Path {
  Quantize quantize;
  TileKernel tile[kGroup];  // by rows - 1
};

const Path& path() {
  static constexpr Path plain{quantize_plain, EACH_R(tile_plain)};
#if DRAFTLINE_X86
  static constexpr Path avx2{quantize_avx2, EACH_R(tile_avx2)};
  static constexpr Path avx512{quantize_avx512, EACH_R(tile_avx512)};
  if (isa() == Isa::avx512vnni) return avx512;
  if (isa() == Isa::avx2) return avx2;
#endif
  return plain;
}

}  // namespace

}  // namespace draftline
