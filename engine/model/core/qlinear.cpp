#include "qlinear.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

#include "pool.hpp"
#include "qlinear_tiles.hpp"

namespace draftline {

QLinear::QLinear(const float* f32, const uint16_t* bf16, const float* bias, int out_, int in_)
    : out(out_),
      in(in_),
      blocks_((in_ + kBlock - 1) / kBlock),
      tiles_((out_ + kTile - 1) / kTile),
      weights_(size_t(blocks_) * tiles_ * kBytes),
      scales_(size_t(blocks_) * tiles_ * kTile) {
  if (f32)
    pack([=](size_t i) { return f32[i]; });
  else
    pack([=](size_t i) { return from_bf16(bf16[i]); });
  if (bias) {
    bias_.assign(size_t(tiles_) * kTile, 0.0f);
    std::copy(bias, bias + out, bias_.begin());
  }
}

template <class Load>
void QLinear::pack(Load load) {
  std::atomic<int> bad{-1};  // a channel with a weight that is no number
  parallel(tiles_, [&](int tile) {
    for (int b = 0; b < blocks_; ++b) {
      const size_t at = size_t(tile) * blocks_ + b;
      for (int c = 0; c < kTile; ++c) {
        const int channel = tile * kTile + c;
        float block[kBlock] = {};
        if (channel < out)
          for (int i = 0; i < std::min(kBlock, in - b * kBlock); ++i)
            block[i] = load(size_t(channel) * in + b * kBlock + i);
        const uint32_t amax = largest(block);
        if (amax >= kInf) bad = channel;
        // bfloat16, rounded up: no value exceeds 127 steps, and the step grows by 0.8 % at most.
        const float exact = std::bit_cast<float>(amax) / 127.0f;
        const uint32_t up = (std::bit_cast<uint32_t>(exact) + 0xffff) >> 16;
        const bool zero = amax >= kInf || std::bit_cast<float>(amax) < kTiny;
        scales_.data[at * kTile + c] = zero ? 0 : uint16_t(up);
        const float inverse = zero ? 0.0f : 1.0f / from_bf16(uint16_t(up));
        for (int i = 0; i < kBlock; ++i) {
          const int q = zero ? 0 : nearest(block[i] * inverse);
          weights_.data[at * kBytes + i / 4 * kTile * 4 + c * 4 + i % 4] = uint8_t(q + 128);
        }
      }
    }
  });
  if (bad >= 0)
    throw std::invalid_argument("weight: output channel " + std::to_string(bad) +
                                " holds NaN or infinity; give finite weights");
}

void QLinear::run_tile(int tile, const Activations& x, float* y) const {
  const Path& p = path();
  const int valid = std::min(kTile, out - tile * kTile);
  const float* bias = bias_.empty() ? nullptr : &bias_[size_t(tile) * kTile];
  float acc[kGroup * kTile];
  // The next tile is fetched evenly during this one's passes, so that memory and arithmetic
  // overlap.
  const int passes = x.groups(), lines = (kBytes / 64 + passes - 1) / passes;
  const uint8_t* w = &weights_.data[size_t(tile) * blocks_ * kBytes];
  for (int pass = 0; pass < passes; ++pass) {
    const int first = x.start(pass), r = x.start(pass + 1) - first;
    const size_t slot = size_t(first) * blocks_;
    const uint8_t* ahead =
        passes == 1 ? w + 4096 : w + size_t(blocks_) * (kBytes + pass * lines * 64);
    p.tile[r - 1]({w, &scales_.data[size_t(tile) * blocks_ * kTile], &x.values[slot * kBlock],
                   &x.scales[slot], &x.offsets[slot], blocks_, acc, ahead, lines});
    for (int row = 0; row < r; ++row) {
      float* line = y + size_t(first + row) * out + tile * kTile;
      float* sums = acc + row * kTile;
      if (bias)
        for (int c = 0; c < kTile; ++c) sums[c] += bias[c];
      if (valid == kTile)
        std::memcpy(line, sums, sizeof(float) * kTile);
      else
        std::memcpy(line, sums, sizeof(float) * size_t(valid));
    }
  }
}

void QLinear::forward(const float* x, float* y, int rows) const {
  static thread_local Activations a;
  Activations& rows8 = a;  // a worker's own `a` is another
  rows8.resize(rows, blocks_);
  const Quantize quantize = path().quantize;
  parallel(rows8.groups(), [&](int group) { quantize(x, in, rows8, group); });
  const int chunk = std::max(1, tiles_ / (threads() * 4));  // few, long streams of weights
  parallel((tiles_ + chunk - 1) / chunk, [&](int i) {
    for (int t = i * chunk; t < std::min(tiles_, (i + 1) * chunk); ++t) run_tile(t, rows8, y);
  });
}

void QLinear::dequantize(float* w) const {
  for (int channel = 0; channel < out; ++channel) {
    for (int i = 0; i < in; ++i) {
      const size_t at = size_t(channel / kTile) * blocks_ + i / kBlock;
      const int c = channel % kTile, j = i % kBlock;
      const int q = weights_.data[at * kBytes + j / 4 * kTile * 4 + c * 4 + j % 4] - 128;
      w[size_t(channel) * in + i] = float(q) * from_bf16(scales_.data[at * kTile + c]);
    }
  }
}

size_t QLinear::nbytes() const {
  return weights_.size + scales_.size * sizeof(uint16_t) + bias_.size() * sizeof(float);
}

}  // namespace draftline
