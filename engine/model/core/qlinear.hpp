// y = x W^T (+ bias), with weights in the formats of GGUF files. A row's bits depend on that row
// alone: not on the rows beside it, their number, the threads or the instruction set.
//
// Quantised weights are multiplied with x in 8 bits, which is quantised by blocks of 32 at each
// call; weights in floating point with x as it is. The orders of sums are those of
// qlinear_kernel.hpp; the bias is added last.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "formats.hpp"

namespace draftline {

// 64-byte aligned, not initialised.
template <class T>
struct Aligned {
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  std::unique_ptr<T[], Free> data;
  size_t size = 0;

  explicit Aligned(size_t n) : data(new (std::align_val_t(64)) T[n]), size(n) {}
};

struct Activations;

// Row `row` of x [rows, in] in 8 bits, to that of `a`.
void quantize_activations(const float* x, int in, Activations& a, int row);

class QLinear {
 public:
  // Output channels in one format, one after another as in a GGUF file; Q8 and Q4 are f32 or bf16
  // (`f32` false), quantised here.
  struct Rows {
    Format format;
    const uint8_t* data;
    int out;
    bool f32 = false;
  };

  // The output channels of `parts`, one after another. `in` is whole blocks of each format, but
  // for Q8 and Q4. `bias`: [out] or null. Throws std::invalid_argument when a weight is NaN or
  // infinite.
  QLinear(const std::vector<Rows>& parts, const float* bias, int in);

  // x [rows, in] -> y [rows, out]. A row of x that holds NaN or infinity gives a row of NaN.
  void forward(const float* x, float* y, int rows) const;
  // The same for the channels of some tiles only; what y has for the others stays.
  void forward(const float* x, float* y, int rows, const int32_t* tiles, int count) const;

  void dequantize(const int64_t* channels, int count, float* w) const;  // [count, in]
  size_t nbytes() const;

  // The steps of `forward`, for callers that share them out among products. Tiles [first, last) of
  // the outputs, from `a` where weights are quantised and from x where they are floats.
  int tiles() const { return tiles_; }
  int blocks() const { return blocks_; }
  bool quantised() const { return quantised_; }  // whether any weights are
  bool floats() const { return floats_; }
  void run_tiles(int first, int last, const Activations& a, const float* x, float* y,
                 int rows) const;

  const int out, in;

 private:
  struct Part {
    Format format;
    int first, out;     // channels
    int tiles, before;  // tiles of 32 channels, the last padded; of earlier parts
    size_t tile_bytes, start;
  };
  struct Place {  // of a tile
    const Part& part;
    int channel, count;  // of y
    const uint8_t* data;
  };

  const int blocks_;  // of 32 inputs, the last padded with zeros
  int tiles_ = 0;
  bool quantised_ = false, floats_ = false;
  std::vector<Part> parts_;
  Aligned<uint8_t> data_;
  std::vector<float> bias_;  // [out], or empty

  static size_t total(const std::vector<Rows>& parts, int in);
  Place place(int tile) const;
  void pack(const Part& part, const Rows& rows);
  void run_tile(int tile, const Activations& a, const float* x, float* y, int rows) const;
  template <class Tiles>
  void forward(const float* x, float* y, int rows, int count, Tiles tiles) const;
};

}  // namespace draftline
