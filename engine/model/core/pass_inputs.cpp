#include "pass_inputs.hpp"

#include <algorithm>
#include <cstring>

namespace draftline {

void PassInputs::fill(int64_t first, const int64_t* tokens, const int32_t* parents, int count,
                      const int64_t header[3], int64_t base, int64_t* out) const {
  std::copy(header, header + 3, out);
  out[3] = base;
  out[4] = count;
  int64_t* ids = out + kHeader;
  int64_t* positions = ids + rows;
  auto* seen = reinterpret_cast<uint64_t*>(positions + rows);
  std::fill(ids, ids + rows, 0);
  std::fill(positions, positions + rows, base);
  std::memset(seen, 0, size_t(rows) * words() * sizeof *seen);
  for (int row = 0; row < rows; ++row) {
    uint64_t* mine = seen + row * words();
    if (row == 0 || row >= count) {
      mine[0] = 1;
      continue;
    }
    const int parent = parents[row - 1] + 1;
    std::copy_n(seen + parent * words(), words(), mine);
    mine[row / 64] |= uint64_t{1} << row % 64;
    positions[row] = positions[parent] + 1;
    ids[row] = tokens[row - 1];
  }
  ids[0] = first;
  if (!paths) return;
  auto* path = reinterpret_cast<uint8_t*>(seen + rows * words());
  std::memset(path, 0, size_t(rows) * rows);
  for (int row = 1; row < count; ++row) {
    uint8_t* mine = path + row * rows;
    const int depth = int(positions[row] - base);
    std::copy_n(path + (parents[row - 1] + 1) * rows, depth, mine);
    mine[depth] = uint8_t(row);
  }
}

}  // namespace draftline
