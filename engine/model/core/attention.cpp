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
#include "rows.hpp"

namespace draftline {
namespace {

constexpr int kPlaces = 64;   // of a sequence, weighed together
constexpr int kQueries = 96;  // of a task, at most: what it computes with stays in L2
constexpr int kLine = 16;     // queries in the widest vector
constexpr float kNever = -std::numeric_limits<float>::infinity();  // the score of an unseen place
constexpr float kLeast = std::numeric_limits<float>::lowest();

// What a row sees: the committed rows from `committed` on, then the rows `path` of the draft.
struct Sight {
  int committed;
  int own;                // the row's place in its sequence
  std::vector<int> path;  // the ancestors in the window, then the row itself

  int size(int base) const { return base - committed + int(path.size()); }
  int first(int base) const { return own + 1 - size(base); }  // the first place of them
};

// A task: queries [first, last) of a key head; query z is row z / group, head z % group of it.
struct Task {
  const Attention& a;
  const std::vector<Sight>& sights;  // of the rows
  int kv, first, last;

  int group() const { return a.heads / a.kv_heads; }
  int row(int z) const { return z / group(); }
  int head(int z) const { return kv * group() + z % group(); }
  size_t at(int z) const {  // in q and out
    return (size_t(row(z)) * a.heads + size_t(head(z))) * a.d;
  }
  const Sight& sight(int z) const { return sights[size_t(row(z))]; }
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

std::vector<Sight> find_sights(const Attention& a) {
  std::vector<Sight> sights(a.rows);
  for (int i = 0; i < a.rows; ++i) {
    const int parent = a.parents[i];
    if (parent < -1 || parent >= i)
      refuse("parents[" + std::to_string(i) + "] is " + std::to_string(parent) +
             ": must be -1 or an earlier row");
    Sight& sight = sights[size_t(i)];
    if (parent >= 0)
      sight = sights[size_t(parent)];
    else
      sight = {a.window ? std::max(0, a.base - a.window) : 0, a.base - 1, {}};
    sight.path.push_back(i);
    ++sight.own;
    if (a.window && sight.size(a.base) > a.window) {  // by one: the oldest leaves
      if (sight.committed < a.base)
        ++sight.committed;
      else
        sight.path.erase(sight.path.begin());
    }
  }
  return sights;
}

}  // namespace

void attend(const Attention& a) {
  if (a.d % 8 != 0 || a.d > kMaxHeadSize || a.d == 0)
    refuse("head size " + std::to_string(a.d) + ": must be a multiple of 8, at most " +
           std::to_string(kMaxHeadSize));
  if (a.kv_heads == 0 || a.heads % a.kv_heads != 0)
    refuse("heads " + std::to_string(a.heads) + ": must be a multiple of the key heads, " +
           std::to_string(a.kv_heads));
  if (a.base < 0 || a.rows > a.capacity - a.base)
    refuse("base " + std::to_string(a.base) + " and " + std::to_string(a.rows) +
           " rows: must fit the cache's " + std::to_string(a.capacity));
  if (a.window < 0) refuse("window " + std::to_string(a.window) + ": must be 0 (none) or more");
  if (!(a.cap >= 0)) refuse("softcap " + std::to_string(a.cap) + ": must be 0 (none) or more");
  if (a.rows == 0) return;
  const std::vector<Sight> sights = find_sights(a);
  const int queries = a.rows * (a.heads / a.kv_heads);                   // of one key head
  const int share = (queries * a.kv_heads + threads() - 1) / threads();  // every thread gets a task
  int size = std::min({queries, kQueries, share});
  if (size > kLine) size = (size + kLine - 1) / kLine * kLine;
  const int parts = (queries + size - 1) / size;
  parallel(parts * a.kv_heads, [&](int i) {
    const int first = i % parts * size;
    run_task({a, sights, i / parts, first, std::min(queries, first + size)});
  });
}

}  // namespace draftline
