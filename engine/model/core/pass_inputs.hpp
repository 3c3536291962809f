// The inputs of a pass of static shape (engine/model/torch/cuda), laid out as they go to the card.
#pragma once
#include <cstddef>
#include <cstdint>

namespace draftline {

// A buffer of a header, then for each of `rows` rows its token, its position and the `words` words
// of its visibility; then, with `paths`, `rows` bytes a row. What is behind the real rows is
// padding that sees the committed rows and row 0.
struct PassInputs {
  int rows;  // a multiple of 64, at most 256
  bool paths;

  static constexpr int kHeader = 8;  // keys, values, capacity, base, count; the rest is unused
  int words() const { return rows / 64; }
  size_t size() const {  // int64s
    return kHeader + size_t(rows) * (2 + words()) + (paths ? size_t(rows) * rows / 8 : 0);
  }

  // Writes `count` tokens behind `base` committed rows: `first`, then `tokens`, whose parents are
  // earlier ones of them, or -1 for `first`. `header`: keys, values, capacity.
  void fill(int64_t first, const int64_t* tokens, const int32_t* parents, int count,
            const int64_t header[3], int64_t base, int64_t* out) const;
};

}  // namespace draftline
