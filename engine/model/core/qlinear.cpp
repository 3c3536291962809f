#include "qlinear.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "activations.hpp"
#include "pool.hpp"

namespace draftline {
namespace {

// 32 channels times R rows of one group of activations; y [R][32].
struct Tile {
  const uint8_t* w;
  const int8_t* values;
  const Terms* terms;
  int blocks, rows;
  float* y;
  const uint8_t* ahead;  // weights to fetch meanwhile, `lines` cache lines a block
  int lines;
};

// 32 channels of a float format times R rows; x [R][in], y [R][32].
struct FloatTile {
  const uint8_t* w;
  const float* x;
  int in;
  float* y;
};

using TileKernel = void (*)(const Tile&);
using FloatKernel = void (*)(const FloatTile&);
constexpr int kFloatGroup = 3;  // rows computed together: 4 * 3 sums fit 16 registers
constexpr int kMany = 32;       // rows; passes over more are long
constexpr int kAhead = 4096;    // bytes to the weights that are fetched meanwhile, in a single pass

}  // namespace
}  // namespace draftline

#define KERNEL "qlinear_kernel.hpp"
#define EACH_DOT
#include "each_isa.hpp"

namespace draftline {
namespace {

struct Path {
  void (*quantize)(const float*, int, Activations&, int);
  TileKernel (*tile)(Format, int rows);
  FloatKernel (*float_tile)(Format, int rows);
  int rows, of_many;  // of a tile, at most; in passes over more than kMany
};

const Path& path() {
#define PATH(isa)                                                                \
  {                                                                              \
    isa::quantize, isa::tile_kernel, isa::float_kernel, isa::kRows, isa::kOfMany \
  }
  static constexpr Path plain PATH(plain);
#if DRAFTLINE_X86
  static constexpr Path avx2 PATH(avx2), avxvnni PATH(avxvnni), avx512 PATH(avx512);
  if (isa() == Isa::avx512vnni) return avx512;
  if (isa() == Isa::avxvnni) return avxvnni;
  if (isa() == Isa::avx2) return avx2;
#elif DRAFTLINE_ARM
  static constexpr Path dotprod PATH(dotprod), i8mm PATH(i8mm);
  if (isa() == Isa::i8mm) return i8mm;
  if (isa() == Isa::dotprod) return dotprod;
#endif
#undef PATH
  return plain;
}

uint16_t bf16_up(float positive) {
  return uint16_t((std::bit_cast<uint32_t>(positive) + 0xffff) >> 16);
}

uint16_t bf16_down(float x) {  // towards minus infinity
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return uint16_t((bits + (x < 0 ? 0xffff : 0)) >> 16);
}

// A block of f32 or bfloat16 weights in 8 bits, or in 4 bits with a minimum. Scales are rounded up:
// no value exceeds the levels, and a step grows by 0.8 % at most.
Block quantised(const float* weights, Format format) {
  const bool eight = format == Format::Q8;
  const float amax = std::bit_cast<float>(largest(weights));
  Block b{};
  if (!std::isfinite(amax)) {
    b.scale = 0x7f80;
    return b;
  }
  float least = 0.0f, step = amax / 127.0f;
  if (!eight) {
    const auto [low, high] = std::minmax_element(weights, weights + kBlock);
    b.minimum = bf16_down(*low);
    least = from_bf16(b.minimum);
    step = (*high - least) / 15.0f;
  }
  const bool zero = step < kTiny / 127.0f;
  b.scale = zero ? 0 : bf16_up(step);
  const float inverse = zero ? 0.0f : 1.0f / from_bf16(b.scale);
  for (int i = 0; i < kBlock; ++i)
    b.level[i] = uint8_t((zero ? 0 : nearest((weights[i] - least) * inverse)) + (eight ? 128 : 0));
  return b;
}

// Block b of one channel of `in` inputs. Past the last input there are zeros.
Block block_of(const QLinear::Rows& rows, int channel, int b, int in) {
  if (!is_own(rows.format))
    return decode(rows.format, rows.data + size_t(channel) * row_bytes(rows.format, in), b);
  const Format stored = rows.f32 ? Format::F32 : Format::BF16;
  const uint8_t* row = rows.data + size_t(channel) * in * float_bytes(stored);
  float weights[kBlock] = {};
  for (int i = 0; i < std::min(kBlock, in - b * kBlock); ++i)
    weights[i] = element(stored, row, size_t(b) * kBlock + i);
  return quantised(weights, rows.format);
}

constexpr uint32_t each_byte(int x) { return uint32_t(x) * 0x01010101; }

// Writes the bits of 8 groups of levels of channel c, 4 levels to a word, into a plane whose bytes
// were zero.
void put_plane(const uint32_t* groups, int width, uint8_t* plane, int c) {
  if (width == 1) {
    for (int g = 0; g < 8; ++g) {
      const uint32_t bits = groups[g], four = bits | bits >> 7 | bits >> 14 | bits >> 21;
      plane[g * kTile / 2 + c / 2] |= uint8_t((four & 15) << c % 2 * 4);
    }
    return;
  }
  for (int line = 0; line < width; ++line) {
    uint32_t word = 0;
    for (int g = line; g < 8; g += width) word |= groups[g] << (g / width * width);
    std::memcpy(plane + (line * kTile + c) * 4, &word, 4);
  }
}

void get_plane(uint32_t* groups, int width, const uint8_t* plane, int c) {
  for (int g = 0; g < 8; ++g) {
    if (width == 1) {
      const uint32_t four = plane[g * kTile / 2 + c / 2] >> c % 2 * 4 & 15;
      groups[g] = (four | four << 7 | four << 14 | four << 21) & each_byte(1);
    } else {
      uint32_t word;
      std::memcpy(&word, plane + (g % width * kTile + c) * 4, 4);
      groups[g] = word >> (g / width * width) & each_byte((1 << width) - 1);
    }
  }
}

// Writes a block of channel c into a tile whose bytes were zero.
void put(const Layout& how, const Block& b, uint8_t* header, uint8_t* tile, int c) {
  uint32_t levels[8], some[8];
  std::memcpy(levels, b.level, sizeof levels);
  for (int g = 0; g < 8; ++g) some[g] = levels[g] & each_byte((1 << how.low) - 1);
  put_plane(some, how.low, tile, c);
  if (how.high) {
    for (int g = 0; g < 8; ++g) some[g] = (levels[g] ^ some[g]) >> how.low;
    put_plane(some, how.high, tile + how.low * kBlock * kTile / 8, c);
  }
  uint8_t *scale = tile + how.level_bytes(), *minimum = scale + how.scale_bytes();
  const bool product = how.scale == Scale::product;
  std::memcpy((product ? header : scale) + c * 2, &b.scale, 2);
  if (how.minimum) std::memcpy((product ? header + kTile * 2 : minimum) + c * 2, &b.minimum, 2);
  if (!product) return;
  for (int part = 0; part < how.parts; ++part) {
    scale[part * kTile + c] = uint8_t(b.scales[part]);
    if (how.minimum) minimum[part * kTile + c] = uint8_t(b.minima[part]);
  }
}

// Reads it back.
Block get(const Layout& how, const uint8_t* header, const uint8_t* tile, int c) {
  Block b{};
  uint32_t levels[8], high[8] = {};
  get_plane(levels, how.low, tile, c);
  if (how.high) get_plane(high, how.high, tile + how.low * kBlock * kTile / 8, c);
  for (int g = 0; g < 8; ++g) levels[g] |= high[g] << how.low;
  std::memcpy(b.level, levels, sizeof levels);
  const uint8_t *scale = tile + how.level_bytes(), *minimum = scale + how.scale_bytes();
  const bool product = how.scale == Scale::product;
  std::memcpy(&b.scale, (product ? header : scale) + c * 2, 2);
  if (how.minimum) std::memcpy(&b.minimum, (product ? header + kTile * 2 : minimum) + c * 2, 2);
  for (int part = 0; product && part < how.parts; ++part) {
    b.scales[part] = int8_t(scale[part * kTile + c]);
    if (how.minimum) b.minima[part] = int8_t(minimum[part * kTile + c]);
  }
  return b;
}

// Offsets of a block and of its header in a tile.
struct Offsets {
  size_t block, header;
};

Offsets offsets(const Layout& how, int b) {
  const size_t before = how.tile_bytes(b / kSuper * kSuper);
  return {before + size_t(how.header_bytes()) + size_t(b % kSuper) * how.block_bytes(), before};
}

size_t bytes_of_tile(Format format, int blocks, int in) {
  return is_float(format) ? size_t(in) * kTile * float_bytes(format)
                          : layout(format).tile_bytes(blocks);
}

}  // namespace

size_t QLinear::total(const std::vector<Rows>& parts, int in) {
  size_t bytes = 0;
  for (const Rows& part : parts)
    bytes += bytes_of_tile(part.format, (in + kBlock - 1) / kBlock, in) *
             size_t((part.out + kTile - 1) / kTile);
  return bytes;
}

QLinear::QLinear(const std::vector<Rows>& parts, const float* bias, int in_)
    : out([&] {
        int sum = 0;
        for (const Rows& part : parts) sum += part.out;
        return sum;
      }()),
      in(in_),
      blocks_((in_ + kBlock - 1) / kBlock),
      data_(total(parts, in_)) {
  int first = 0;
  size_t start = 0;
  for (const Rows& rows : parts) {
    const int tiles = (rows.out + kTile - 1) / kTile;
    const size_t bytes = bytes_of_tile(rows.format, blocks_, in);
    parts_.push_back({rows.format, first, rows.out, tiles, tiles_, bytes, start});
    pack(parts_.back(), rows);
    first += rows.out;
    tiles_ += tiles;
    start += bytes * tiles;
    quantised_ |= !is_float(rows.format);
    floats_ |= is_float(rows.format);
  }
  if (bias) bias_.assign(bias, bias + out);
}

void QLinear::pack(const Part& part, const Rows& rows) {
  std::atomic<int> bad{-1};  // a channel with a weight that is no number
  const Layout how = layout(part.format);
  parallel(part.tiles, [&](int n) {
    uint8_t* tile = &data_.data[part.start + size_t(n) * part.tile_bytes];
    std::memset(tile, 0, part.tile_bytes);
    const int count = std::min(kTile, part.out - n * kTile);
    if (is_float(part.format)) {
      const size_t size = size_t(float_bytes(part.format));
      for (int c = 0; c < count; ++c) {
        const uint8_t* row = rows.data + size_t(n * kTile + c) * in * size;
        for (int i = 0; i < in; ++i) {
          if (!std::isfinite(element(part.format, row, size_t(i)))) bad = n * kTile + c;
          std::memcpy(tile + (size_t(i) * kTile + c) * size, row + size_t(i) * size, size);
        }
      }
      return;
    }
    for (int b = 0; b < blocks_; ++b) {
      const Offsets at = offsets(how, b);
      for (int c = 0; c < count; ++c) {
        const Block block = block_of(rows, n * kTile + c, b, in);
        if (!block.finite(how)) bad = n * kTile + c;
        put(how, block, tile + at.header, tile + at.block, c);
      }
    }
  });
  if (bad >= 0)
    throw std::invalid_argument("weight: output channel " + std::to_string(part.first + bad) +
                                " holds NaN or infinity; give finite weights");
}

QLinear::Place QLinear::place(int tile) const {
  const Part* part = &parts_.front();
  for (const Part& one : parts_)
    if (tile >= one.before) part = &one;
  const int n = tile - part->before;
  return {*part, part->first + n * kTile, std::min(kTile, part->out - n * kTile),
          &data_.data[part->start + size_t(n) * part->tile_bytes]};
}

void QLinear::run_tile(int tile, const Activations& a, const float* x, float* y, int rows) const {
  const Place at = place(tile);
  alignas(64) float sums[kMostRows * kTile];
  const auto write = [&](int first, int r) {
    for (int row = 0; row < r; ++row) {
      float* line = y + size_t(first + row) * out + at.channel;
      for (int c = 0; c < at.count; ++c)
        line[c] = bias_.empty() ? sums[row * kTile + c]
                                : sums[row * kTile + c] + bias_[size_t(at.channel + c)];
    }
  };
  if (is_float(at.part.format)) {
    for (int first = 0; first < rows; first += kFloatGroup) {
      const int r = std::min(kFloatGroup, rows - first);
      path().float_tile(at.part.format, r)({at.data, x + size_t(first) * in, in, sums});
      write(first, r);
    }
    return;
  }
  // The next tile is fetched evenly during this one's passes, so that memory and arithmetic
  // overlap. A single pass is as fast as memory, and fetches what it needs soon.
  const int passes = a.groups(), block_lines = layout(at.part.format).block_bytes() / 64 + 1;
  const int lines = (block_lines + passes - 1) / passes;
  for (int pass = 0; pass < passes; ++pass) {
    const int first = a.start(pass), r = a.start(pass + 1) - first;
    const size_t slot = size_t(first) * blocks_;
    const uint8_t* ahead = passes == 1
                               ? at.data + kAhead
                               : at.data + at.part.tile_bytes + size_t(blocks_) * pass * lines * 64;
    path().tile(at.part.format, r)(
        {at.data, &a.values[slot * kBlock], &a.terms[slot], blocks_, r, sums, ahead, lines});
    write(first, r);
  }
}

int rows_together(int rows) { return rows > kMany ? path().of_many : path().rows; }

void quantize_activations(const float* x, int in, Activations& a, int row) {
  path().quantize(x, in, a, row);
}

void QLinear::run_tiles(int first, int last, const Activations& a, const float* x, float* y,
                        int rows) const {
  for (int tile = first; tile < last; ++tile) run_tile(tile, a, x, y, rows);
}

// `tiles` names the tiles by number, below `count`.
template <class Tiles>
void QLinear::forward(const float* x, float* y, int rows, int count, Tiles tiles) const {
  static thread_local Activations own;
  Activations& a = own;  // a worker's own `own` is another
  if (rows == 0) return;
  if (quantised_) {
    a.resize(rows, blocks_);
    const int share = (rows + threads() - 1) / threads();
    parallel((rows + share - 1) / share, [&](int i) {
      for (int row = i * share; row < std::min(rows, (i + 1) * share); ++row)
        quantize_activations(x, in, a, row);
    });
  }
  const int chunk = std::max(1, count / (threads() * 4));  // few, long streams of weights
  parallel((count + chunk - 1) / chunk, [&](int i) {
    for (int n = i * chunk; n < std::min(count, (i + 1) * chunk); ++n)
      run_tile(tiles(n), a, x, y, rows);
  });
}

void QLinear::forward(const float* x, float* y, int rows) const {
  forward(x, y, rows, tiles_, [](int n) { return n; });
}

void QLinear::forward(const float* x, float* y, int rows, const int32_t* tiles, int count) const {
  forward(x, y, rows, count, [&](int n) { return int(tiles[n]); });
}

void QLinear::dequantize(const int64_t* channels, int count, float* w) const {
  for (int n = 0; n < count; ++n, w += in) {
    const Part* part = &parts_.front();
    for (const Part& one : parts_)
      if (channels[n] >= one.first) part = &one;
    const int channel = int(channels[n]) - part->first, c = channel % kTile;
    const uint8_t* tile = &data_.data[part->start + size_t(channel / kTile) * part->tile_bytes];
    if (is_float(part->format)) {
      const size_t size = size_t(float_bytes(part->format));
      for (int i = 0; i < in; ++i)
        w[i] = element(part->format, tile + (size_t(i) * kTile + c) * size, 0);
      continue;
    }
    const Layout how = layout(part->format);
    for (int b = 0; b < blocks_; ++b) {
      const Offsets at = offsets(how, b);
      float values[kBlock];
      get(how, tile + at.header, tile + at.block, c).values(how, values);
      std::memcpy(w + b * kBlock, values,
                  sizeof(float) * size_t(std::min(kBlock, in - b * kBlock)));
    }
  }
}

size_t QLinear::nbytes() const { return data_.size + bias_.size() * sizeof(float); }

}  // namespace draftline
