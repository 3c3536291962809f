#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu.hpp"
#include "pool.hpp"

namespace draftline {
namespace {

constexpr int kQueries = 8;         // scored together against a block of keys
constexpr int kValues = 64;         // values read by all queries before the next ones
constexpr int kScores = 96 * 1024;  // floats of scores a task holds, to stay in L2
constexpr float kNever = -std::numeric_limits<float>::infinity();

// A task: queries [first, last) of a key head; query z is row z / group, head z % group of it.
struct Task {
  const Attention& a;
  const std::vector<std::vector<int>>& paths;  // per row: its ancestors, then itself
  int kv, first, last;

  int group() const { return a.heads / a.kv_heads; }
  int row(int z) const { return z / group(); }
  size_t at(int z) const {  // in q and out
    return (size_t(row(z)) * a.heads + size_t(kv) * group() + z % group()) * a.d;
  }
  int visible(int z) const { return a.base + int(paths[row(z)].size()); }
};

}  // namespace
}  // namespace draftline

#define KERNEL "attention_kernel.hpp"
#include "each_isa.hpp"

namespace draftline {
namespace {

void run_task(const Task& k) {
#if DRAFTLINE_X86
  if (isa() == Isa::avx512vnni) return avx512::run(k);
  if (isa() != Isa::plain) return avx2::run(k);
#endif
  plain::run(k);
}

[[noreturn]] void refuse(const std::string& line) { throw std::invalid_argument(line); }

std::vector<std::vector<int>> find_paths(const Attention& a) {
  std::vector<std::vector<int>> paths(a.rows);
  for (int i = 0; i < a.rows; ++i) {
    const int parent = a.parents[i];
    if (parent < -1 || parent >= i)
      refuse("parents[" + std::to_string(i) + "] is " + std::to_string(parent) +
             ": must be -1 or an earlier row");
    if (parent >= 0) paths[i] = paths[parent];
    paths[i].push_back(i);
  }
  return paths;
}

}  // namespace

void attend(const Attention& a) {
  if (a.d % 8 != 0 || a.d > 256 || a.d == 0)
    refuse("head size " + std::to_string(a.d) + ": must be a multiple of 8, at most 256");
  if (a.kv_heads == 0 || a.heads % a.kv_heads != 0)
    refuse("heads " + std::to_string(a.heads) + ": must be a multiple of the key heads, " +
           std::to_string(a.kv_heads));
  if (a.base < 0 || a.rows > a.capacity - a.base)
    refuse("base " + std::to_string(a.base) + " and " + std::to_string(a.rows) +
           " rows: must fit the cache's " + std::to_string(a.capacity));
  if (a.rows == 0) return;
  const std::vector<std::vector<int>> paths = find_paths(a);
  const int queries = a.rows * (a.heads / a.kv_heads);  // of one key head
  const int fit = std::max(1, kScores / (a.base + a.rows));
  const int share = (queries * a.kv_heads + threads() - 1) / threads();  // every thread gets a task
  int size = std::min({queries, fit, share});
  if (size > kQueries) size -= size % kQueries;
  const int parts = (queries + size - 1) / size;
  parallel(parts * a.kv_heads, [&](int i) {
    const int first = i % parts * size;
    run_task({a, paths, i / parts, first, std::min(queries, first + size)});
  });
}

}  // namespace draftline
