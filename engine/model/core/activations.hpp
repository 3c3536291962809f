// Rows of x in 8 bits: a scale for each block of 32 inputs, as amax / 127.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu.hpp"
#include "formats.hpp"

namespace draftline {

constexpr int kMostRows = 16;  // rows computed together, at most
constexpr uint32_t kInf = 0x7f800000;
constexpr float kTiny = 1e-36f;  // a block below this is stored as zeros: 127 / amax would overflow

// Zeros of formats divide these: of those with scales of halves, and of the others.
constexpr int kMostZero[3] = {32, 32, 128};

// Of a block of a row: its scale, and the sums of its first half, second half and all, as integers
// times -kMostZero, and times the scale. `pairs`: those of the halves as two sums of 16 bits each,
// of inputs 0 and 1 of four, and of inputs 2 and 3.
struct Terms {
  float scale;
  int32_t minus[3];
  float sums[3];
  int32_t pairs[2];
};

int rows_together(int rows);  // at most, in a pass over `rows`, by the instruction set in use

// Rows are cut in groups of nearly equal size, r <= `most`; the rows of a group stand side by side:
// values [group][block][r][32], terms [group][block][r].
struct Activations {
  int rows, blocks, most;
  std::vector<int8_t> values;
  std::vector<Terms> terms;

  int groups() const { return (rows + most - 1) / most; }
  int start(int group) const { return int(int64_t(rows) * group / groups()); }
  int group_of(int row) const { return int((int64_t(row + 1) * groups() - 1) / rows); }

  void resize(int rows_, int blocks_) {
    rows = rows_;
    blocks = blocks_;
    most = rows_together(rows);
    values.resize(size_t(rows) * blocks * kBlock);
    terms.resize(size_t(rows) * blocks);
  }

  // Where the blocks of a row are: block b at start + b * step.
  struct Place {
    size_t start, step;
  };
  Place place(int row) const {
    const int group = group_of(row), first = start(group);
    return {size_t(first) * blocks + size_t(row - first), size_t(start(group + 1) - first)};
  }

  // A row of others with as many blocks.
  void copy(int row, const Activations& others, int other) {
    const Place to = place(row), from = others.place(other);
    for (size_t b = 0; b < size_t(blocks); ++b) {
      const size_t here = to.start + b * to.step, there = from.start + b * from.step;
      std::memcpy(&values[here * kBlock], &others.values[there * kBlock], kBlock);
      terms[here] = others.terms[there];
    }
  }
};

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

INLINE void quantize_block(const float* x, int8_t* q, Terms* terms) {
  const uint32_t bits = largest(x);
  const float amax = std::bit_cast<float>(bits);
  const bool usable = bits < kInf && amax >= kTiny;
  const float inverse = 127.0f / amax;
  const float scale = bits >= kInf ? std::numeric_limits<float>::quiet_NaN()
                      : usable     ? amax / 127.0f
                                   : 0.0f;
  int32_t sums[3] = {}, pairs[2] = {};
  if (usable) {
    for (int half = 0; half < 2; ++half) {
      int32_t two[2] = {};
      for (int i = 0; i < kBlock / 2; ++i) {
        const int at = half * kBlock / 2 + i;
        const int32_t v = nearest(x[at] * inverse);
        q[at] = int8_t(v);
        two[i / 2 % 2] += v;
      }
      sums[half] = two[0] + two[1];
      pairs[half] = int32_t(uint32_t(-kMostZero[half] * two[1]) << 16 |
                            (uint32_t(-kMostZero[half] * two[0]) & 0xffff));
    }
    sums[2] = sums[0] + sums[1];
  } else {
    std::memset(q, 0, kBlock);
  }
  terms->scale = scale;
  for (int i = 0; i < 3; ++i) {
    terms->minus[i] = -kMostZero[i] * sums[i];
    terms->sums[i] = scale * float(sums[i]);
  }
  for (int i = 0; i < 2; ++i) terms->pairs[i] = pairs[i];
}

INLINE void quantize_row(const float* x, int in, Activations& a, int row) {
  const Activations::Place place = a.place(row);
  const float* line = x + size_t(row) * in;
  for (int b = 0; b < a.blocks; ++b) {
    const size_t slot = place.start + size_t(b) * place.step;
    const float* block = line + b * kBlock;
    float padded[kBlock] = {};
    if ((b + 1) * kBlock > in) {
      std::memcpy(padded, block, sizeof(float) * size_t(in - b * kBlock));
      block = padded;
    }
    quantize_block(block, &a.values[slot * kBlock], &a.terms[slot]);
  }
}

}  // namespace draftline
