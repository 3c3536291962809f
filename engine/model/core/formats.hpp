// How weights are stored: in a GGUF file, block by block of a row, and in a tile of a QLinear.
//
// Of 32 inputs and one output channel, every quantised format has 32 levels and a scale, some a
// scale for each 16 inputs, some a minimum: w = scale * (level - zero) + minimum, or
// scale * table[level]. A tile has the same numbers of 32 channels, in an order for which a vector
// holds 4 inputs of each channel:
//
//   header of 8 blocks  where scales are products: d [32] and with minima dmin [32], in f16
//   a block             levels, then scales, then minima
//   levels              planes of bits, `low` and then `high`, of 8 groups of 4 inputs:
//     8 bits            [8 groups][32 channels][4 inputs]
//     4 bits            [4][32][4]: group g in the low bits of byte line g, g + 4 in the high ones
//     2 bits            [2][32][4]: groups g, g + 2, g + 4, g + 6, from the low bits up
//     1 bit             [8][32][4]: a bit each
//   scales, minima      [32] f16 or bfloat16; or, times the header's, int8 [1 or 2 parts][32]
#pragma once
#include <cstddef>
#include <cstdint>

namespace draftline {

constexpr int kBlock = 32;  // inputs
constexpr int kTile = 32;   // output channels computed together
constexpr int kSuper = 8;   // blocks that share a header

// The numbers of GGML_TYPE_*. Q8 and Q4 are our own, to quantise other weights: Q8_0 and Q4_1 with
// scales and minima in bfloat16.
enum class Format : int {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  IQ4_XS = 23,
  BF16 = 30,
  MXFP4 = 39,
  Q8 = -8,
  Q4 = -4,
};

enum class Scale { f16, bf16, product };  // product: a header's f16 times an int8

struct Layout {
  int low, high;  // bits of the levels' planes
  int zero;       // the level that is 0; of a table 128
  Scale scale;
  int parts;  // scales of a block
  bool minimum;
  const int8_t* table;  // of 16 levels, or null

  constexpr int level_bytes() const { return (low + high) * kBlock * kTile / 8; }
  constexpr int scale_bytes() const {  // of scales alone
    return scale == Scale::product ? parts * kTile : kTile * 2;
  }
  constexpr int block_bytes() const { return level_bytes() + scale_bytes() * (minimum ? 2 : 1); }
  constexpr int header_bytes() const {
    return scale == Scale::product ? kTile * (minimum ? 4 : 2) : 0;
  }
  constexpr size_t tile_bytes(int blocks) const {
    return size_t(blocks) * block_bytes() + size_t(blocks / kSuper) * header_bytes();
  }
};

inline constexpr int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kFloat4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr bool is_own(Format format) { return format == Format::Q8 || format == Format::Q4; }

// Of a quantised format.
constexpr Layout layout(Format format) {
  switch (format) {
    case Format::Q4_0:
      return {4, 0, 8, Scale::f16, 1, false, nullptr};
    case Format::Q4_1:
      return {4, 0, 0, Scale::f16, 1, true, nullptr};
    case Format::Q5_0:
      return {4, 1, 16, Scale::f16, 1, false, nullptr};
    case Format::Q5_1:
      return {4, 1, 0, Scale::f16, 1, true, nullptr};
    case Format::Q8_0:
      return {8, 0, 128, Scale::f16, 1, false, nullptr};
    case Format::Q2_K:
      return {2, 0, 0, Scale::product, 2, true, nullptr};
    case Format::Q3_K:
      return {2, 1, 4, Scale::product, 2, false, nullptr};
    case Format::Q4_K:
      return {4, 0, 0, Scale::product, 1, true, nullptr};
    case Format::Q5_K:
      return {4, 1, 0, Scale::product, 1, true, nullptr};
    case Format::Q6_K:
      return {4, 2, 32, Scale::product, 2, false, nullptr};
    case Format::IQ4_NL:
      return {4, 0, 128, Scale::f16, 1, false, kNonlinear};
    case Format::IQ4_XS:
      return {4, 0, 128, Scale::product, 1, false, kNonlinear};
    case Format::MXFP4:
      return {4, 0, 128, Scale::bf16, 1, false, kFloat4};
    case Format::Q4:
      return {4, 0, 0, Scale::bf16, 1, true, nullptr};
    default:
      return {8, 0, 128, Scale::bf16, 1, false, nullptr};  // Q8
  }
}

constexpr bool is_float(Format format) {
  return format == Format::F32 || format == Format::F16 || format == Format::BF16;
}

constexpr int float_bytes(Format format) { return format == Format::F32 ? 4 : 2; }

// A block of one channel.
struct Block {
  uint8_t level[kBlock];
  uint16_t scale, minimum;      // bits: f16, or bfloat16 by the layout; a header's where products
  int8_t scales[2], minima[2];  // factors of a header's, by part

  // The weights. Raises no error; a scale may be infinite or NaN.
  void values(const Layout& layout, float* out) const;
  bool finite(const Layout& layout) const;  // scale and minimum
};

bool known(int type);                     // whether a GGML type is one of Format
int block_inputs(Format format);          // of a block in a GGUF file: 1, 32 or 256
size_t row_bytes(Format format, int in);  // of whole such blocks
Block decode(Format format, const uint8_t* row, int block);
void dequantize(Format format, const uint8_t* row, int in, float* out);
float from_f16(uint16_t bits);
float element(Format format, const uint8_t* row, size_t i);  // of a row of a float format

inline float from_bf16(uint16_t bits) { return __builtin_bit_cast(float, uint32_t(bits) << 16); }

}  // namespace draftline
