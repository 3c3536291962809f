#include "formats.hpp"

#include <cstring>
#include <initializer_list>

namespace draftline {
namespace {

uint16_t u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

// 32 levels from 16 bytes: first the low halves, then the high ones.
void nibbles(const uint8_t* p, uint8_t* level) {
  for (int i = 0; i < 16; ++i) {
    level[i] = p[i] & 15;
    level[i + 16] = p[i] >> 4;
  }
}

// The 6-bit scale and minimum of sub-block `at` of 8, in 12 bytes (Q4_K, Q5_K).
void six_bits(const uint8_t* p, int at, Block& b) {
  const int low = at % 4, shift = at < 4 ? 0 : 4;
  const uint8_t d = p[low], m = p[low + 4], both = p[low + 8];
  b.scales[0] = int8_t(shift ? (both & 15) | (d >> 2 & 48) : d & 63);
  b.minima[0] = int8_t(shift ? (both >> 4) | (m >> 2 & 48) : m & 63);
}

uint16_t negative(uint16_t f16) { return f16 ^ 0x8000; }

Block q2_k(const uint8_t* p, int at) {  // 16 scales and minima, 64 of levels, d, dmin
  Block b{};
  const uint8_t* q = p + 16 + at / 4 * 32;
  for (int i = 0; i < kBlock; ++i) b.level[i] = q[i] >> (at % 4 * 2) & 3;
  for (int part = 0; part < 2; ++part) {
    b.scales[part] = int8_t(p[at * 2 + part] & 15);
    b.minima[part] = int8_t(p[at * 2 + part] >> 4);
  }
  b.scale = u16(p + 80);
  b.minimum = negative(u16(p + 82));
  return b;
}

Block q3_k(const uint8_t* p, int at) {  // 32 of high bits, 64 of low ones, 12 of scales, d
  Block b{};
  const uint8_t *q = p + 32 + at / 4 * 32, *scales = p + 96;
  for (int i = 0; i < kBlock; ++i)
    b.level[i] = uint8_t((q[i] >> (at % 4 * 2) & 3) | (p[i] >> at & 1) << 2);
  for (int part = 0; part < 2; ++part) {
    const int n = at * 2 + part;
    const int low = scales[n % 8] >> (n / 8 * 4) & 15, high = scales[8 + n % 4] >> (n / 4 * 2) & 3;
    b.scales[part] = int8_t((low | high << 4) - 32);
  }
  b.scale = u16(p + 108);
  return b;
}

Block q45_k(const uint8_t* p, int at, bool five) {  // d, dmin, 12, [32 of high bits], 128
  Block b{};
  const uint8_t* q = p + 16 + (five ? 32 : 0) + at / 2 * 32;
  for (int i = 0; i < kBlock; ++i) {
    b.level[i] = q[i] >> (at % 2 * 4) & 15;
    if (five) b.level[i] |= uint8_t((p[16 + i] >> at & 1) << 4);
  }
  six_bits(p + 4, at, b);
  b.scale = u16(p);
  b.minimum = negative(u16(p + 2));
  return b;
}

Block q6_k(const uint8_t* p, int at) {  // 128 of low bits, 64 of high ones, 16 scales, d
  Block b{};
  const int half = at / 4, quarter = at % 4;
  const uint8_t *low = p + half * 64 + quarter % 2 * 32, *high = p + 128 + half * 32;
  for (int i = 0; i < kBlock; ++i)
    b.level[i] = uint8_t((low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> quarter * 2 & 3) << 4);
  std::memcpy(b.scales, p + 192 + at * 2, 2);
  b.scale = u16(p + 208);
  return b;
}

Block iq4_xs(const uint8_t* p, int at) {  // d, 2 of high bits of scales, 4 of low ones, 128
  Block b{};
  nibbles(p + 8 + at * 16, b.level);
  const int low = p[4 + at / 2] >> (at % 2 * 4) & 15, high = u16(p + 2) >> (at * 2) & 3;
  b.scales[0] = int8_t((low | high << 4) - 32);
  b.scale = u16(p);
  return b;
}

// Formats whose blocks have a scale of their own: d, [minimum], [4 of high bits], levels.
Block simple(Format format, const uint8_t* p) {
  const Layout how = layout(format);
  Block b{};
  if (format == Format::MXFP4) {  // half of 2^(e - 127), which bfloat16 holds
    b.scale = uint16_t(*p < 2 ? 0x20 << *p : (*p - 1) << 7);
    p += 1;
  } else {
    b.scale = u16(p);
    p += 2;
  }
  if (how.minimum) {
    b.minimum = u16(p);
    p += 2;
  }
  uint32_t high = 0;
  if (how.high) {
    std::memcpy(&high, p, 4);
    p += 4;
  }
  if (how.low == 8) {
    for (int i = 0; i < kBlock; ++i) b.level[i] = uint8_t(p[i] + 128);
    return b;
  }
  nibbles(p, b.level);
  for (int i = 0; i < kBlock; ++i) b.level[i] |= uint8_t((high >> i & 1) << 4);
  return b;
}

// Bytes of a file's block, and its inputs.
struct Stored {
  int bytes, inputs;
};

constexpr Stored stored(Format format) {
  switch (format) {
    case Format::F32:
      return {4, 1};
    case Format::F16:
    case Format::BF16:
      return {2, 1};
    case Format::Q4_0:
    case Format::IQ4_NL:
      return {18, 32};
    case Format::Q4_1:
      return {20, 32};
    case Format::Q5_0:
      return {22, 32};
    case Format::Q5_1:
      return {24, 32};
    case Format::MXFP4:
      return {17, 32};
    case Format::Q2_K:
      return {84, 256};
    case Format::Q3_K:
      return {110, 256};
    case Format::Q4_K:
      return {144, 256};
    case Format::Q5_K:
      return {176, 256};
    case Format::Q6_K:
      return {210, 256};
    case Format::IQ4_XS:
      return {136, 256};
    default:
      return {34, 32};  // Q8_0
  }
}

}  // namespace

bool known(int type) {
  for (int one : {0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 39})
    if (type == one) return true;
  return false;
}

int block_inputs(Format format) { return stored(format).inputs; }

size_t row_bytes(Format format, int in) {
  const Stored one = stored(format);
  return size_t(in / one.inputs) * one.bytes;
}

Block decode(Format format, const uint8_t* row, int block) {
  const Stored one = stored(format);
  if (one.inputs == kBlock) return simple(format, row + size_t(block) * one.bytes);
  const uint8_t* p = row + size_t(block / kSuper) * one.bytes;
  const int at = block % kSuper;
  switch (format) {
    case Format::Q2_K:
      return q2_k(p, at);
    case Format::Q3_K:
      return q3_k(p, at);
    case Format::Q4_K:
      return q45_k(p, at, false);
    case Format::Q5_K:
      return q45_k(p, at, true);
    case Format::Q6_K:
      return q6_k(p, at);
    default:
      return iq4_xs(p, at);
  }
}

float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
  if (rest >= 0x7c00)  // infinity and NaN
    return __builtin_bit_cast(float, sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // Exact, of subnormals too: a product with a power of two.
  const float scaled = __builtin_bit_cast(float, rest << 13) * 0x1p112f;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, scaled) | sign);
}

float element(Format format, const uint8_t* row, size_t i) {
  if (format == Format::F32) {
    float value;
    std::memcpy(&value, row + i * 4, 4);
    return value;
  }
  const uint16_t bits = u16(row + i * 2);
  return format == Format::F16 ? from_f16(bits) : from_bf16(bits);
}

void dequantize(Format format, const uint8_t* row, int in, float* out) {
  if (is_float(format)) {
    for (int i = 0; i < in; ++i) out[i] = element(format, row, size_t(i));
    return;
  }
  const Layout how = layout(format);
  for (int b = 0; b < in / kBlock; ++b) decode(format, row, b).values(how, out + b * kBlock);
}

void Block::values(const Layout& how, float* out) const {
  const bool product = how.scale == Scale::product;
  const float d = how.scale == Scale::bf16 ? from_bf16(scale) : from_f16(scale);
  const float m = how.scale == Scale::bf16 ? from_bf16(minimum) : from_f16(minimum);
  for (int i = 0; i < kBlock; ++i) {
    const int part = i * how.parts / kBlock;
    const int x = how.table ? how.table[level[i]] : level[i] - how.zero;
    const float value = (product ? d * float(scales[part]) : d) * float(x);
    out[i] = how.minimum ? value + (product ? m * float(minima[part]) : m) : value;
  }
}

bool Block::finite(const Layout& how) const {
  // Of the tables' levels only those of MXFP4 have scales that large: 12 times it is a number.
  const uint16_t most = how.scale == Scale::f16 || how.scale == Scale::product ? 0x7c00
                        : how.table                                            ? 0x7e00
                                                                               : 0x7f80;
  return (scale & 0x7fff) < most && (minimum & 0x7fff) < most;
}

}  // namespace draftline
