// y = x W^T (+ bias) with int8 weights and activations. A row's bits depend on that row alone: not
// on the rows beside it, their number, the threads or the instruction set.
//
// W is cut in blocks of 32 inputs; a block of one output channel is 32 int8 and a scale. A row of x
// is cut and quantised likewise, at each call. Within a block the product is an exact integer;
// blocks are added in order: acc = fma(float(dot), wscale * xscale, acc). The bias is added last.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

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

class QLinear {
 public:
  // Exactly one of `f32` and `bf16` is given: [out, in], row-major. `bias`: [out] or null.
  // Throws std::invalid_argument when a weight is NaN or infinite.
  QLinear(const float* f32, const uint16_t* bf16, const float* bias, int out, int in);

  // x [rows, in] -> y [rows, out]. A row of x that holds NaN or infinity gives a row of NaN.
  void forward(const float* x, float* y, int rows) const;

  void dequantize(float* w) const;  // [out, in]: the weights that forward uses
  size_t nbytes() const;

  const int out, in;

 private:
  const int blocks_, tiles_;  // of 32 inputs, of 32 output channels; padded with zeros
  Aligned<uint8_t> weights_;  // [tile][block][8 groups][32 channels][4 inputs], plus 128
  Aligned<uint16_t> scales_;  // [tile][block][32 channels], bfloat16 bits
  std::vector<float> bias_;   // [tile][32], or empty

  template <class Load>
  void pack(Load load);
  void run_tile(int tile, const struct Activations& x, float* y) const;
};

}  // namespace draftline
