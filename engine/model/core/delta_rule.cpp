#include "delta_rule.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu.hpp"
#include "pool.hpp"

namespace draftline {
namespace {

constexpr int kColumns =
    64;  // of a head's state, which a task updates; its columns are independent
constexpr int kMaxTaps = 8;
constexpr int kMaxDim = 256;

// A row's turn in a task: it reads the state in block `from` and leaves its own in block `to`, or
// nowhere if no row follows.
struct Visit {
  int row, from, to;
};

struct Pass {
  const DeltaRule& d;
  int wide;                          // value_dim, rounded up to whole tasks
  std::vector<const float*> inputs;  // [rows, taps]: what each row's convolution reads
  std::vector<Visit> visits;         // the committed rows, then the tree, depth first
  int blocks;                        // of the state that the visits need
  float *q, *k;                      // [key_heads, rows, key_dim], normalised
  float* v;                          // [value_heads, rows, wide], 0 beyond value_dim
  float* qk;                         // [key_heads, rows]: q^T k
  float *decay, *beta;               // [value_heads, rows]
};

}  // namespace
}  // namespace draftline

#define KERNEL "delta_rule_kernel.hpp"
#include "each_isa.hpp"

namespace draftline {
namespace {

void prepare(const Pass& p, int i) {
#if DRAFTLINE_X86
  if (isa() == Isa::avx512vnni) return avx512::prepare(p, i);
  if (isa() != Isa::plain) return avx2::prepare(p, i);
#endif
  plain::prepare(p, i);
}

void run_task(const Pass& p, int head, int column) {
#if DRAFTLINE_X86
  if (isa() == Isa::avx512vnni) return avx512::run(p, head, column);
  if (isa() != Isa::plain) return avx2::run(p, head, column);
#endif
  plain::run(p, head, column);
}

[[noreturn]] void refuse(const std::string& line) { throw std::invalid_argument(line); }

void check_dim(const char* name, int n) {
  if (n < 8 || n % 8 != 0 || n > kMaxDim)
    refuse(std::string(name) + " " + std::to_string(n) + ": must be a multiple of 8, at most " +
           std::to_string(kMaxDim));
}

void check(const DeltaRule& d) {
  check_dim("head size of keys", d.key_dim);
  check_dim("head size of values", d.value_dim);
  if (d.taps < 2 || d.taps > kMaxTaps)
    refuse("conv has " + std::to_string(d.taps) + " taps: must be 2 to " +
           std::to_string(kMaxTaps));
  for (int h = 0; h < d.value_heads; ++h) {
    if (d.key_head_of[h] < 0 || d.key_head_of[h] >= d.key_heads)
      refuse("key_head_of[" + std::to_string(h) + "] is " + std::to_string(d.key_head_of[h]) +
             ": must be 0 to " + std::to_string(d.key_heads - 1));
    if (!(d.A[h] <= 0))
      refuse("A[" + std::to_string(h) + "] is " + std::to_string(d.A[h]) + ": must be at most 0");
  }
  for (int i = 0; i < d.rows - d.committed; ++i)
    if (d.parents[i] < -1 || d.parents[i] >= i)
      refuse("parents[" + std::to_string(i) + "] is " + std::to_string(d.parents[i]) +
             ": must be -1 or an earlier row of the tree");
}

// What each row's convolution reads, oldest first: its ancestors, the committed rows, the tail.
std::vector<const float*> find_inputs(const DeltaRule& d) {
  const int before = d.taps - 1;
  std::vector<const float*> inputs(size_t(d.rows) * d.taps);
  for (int row = 0; row < d.rows; ++row) {
    int at = row;  // below 0: a row of the tail
    for (int tap = before; tap >= 0; --tap) {
      inputs[size_t(row) * d.taps + tap] = at < 0 ? d.tail + ptrdiff_t(at + before) * d.channels()
                                                  : d.mixed + size_t(at) * d.channels();
      at = at < d.committed                  ? at - 1
           : d.parents[at - d.committed] < 0 ? d.committed - 1
                                             : d.committed + d.parents[at - d.committed];
    }
  }
  return inputs;
}

// Depth first. A row's state is a copy only where a sibling still needs the parent's, and the
// largest subtree comes last, so log2(rows) blocks are enough.
void add_tree(Pass& p) {
  const DeltaRule& d = p.d;
  const int nodes = d.rows - d.committed;
  std::vector<int> size(nodes, 1);
  for (int i = nodes - 1; i >= 0; --i)
    if (d.parents[i] >= 0) size[d.parents[i]] += size[i];
  std::vector<std::vector<int>> children(nodes + 1);  // of each node; of the root, the last
  for (int i = 0; i < nodes; ++i) children[d.parents[i] < 0 ? nodes : d.parents[i]].push_back(i);
  for (auto& some : children)
    std::stable_sort(some.begin(), some.end(), [&](int x, int y) { return size[x] > size[y]; });

  struct Next {
    int node, from;
    bool last;
  };
  std::vector<Next> stack;
  const auto push = [&](const std::vector<int>& some, int from) {  // the largest is popped last
    for (size_t i = 0; i < some.size(); ++i) stack.push_back({some[i], from, i == 0});
  };
  push(children[nodes], 0);
  while (!stack.empty()) {
    const auto [node, from, last] = stack.back();
    stack.pop_back();
    const int to = children[node].empty() ? -1 : last ? from : from + 1;
    p.visits.push_back({d.committed + node, from, to});
    p.blocks = std::max(p.blocks, to + 1);
    push(children[node], to);
  }
}

// The last rows of the old tail and the committed ones.
void move_tail(const DeltaRule& d) {
  const int before = d.taps - 1, fresh = std::min(before, d.committed);
  const size_t line = d.channels();
  std::memmove(d.tail, d.tail + fresh * line, (before - fresh) * line * sizeof(float));
  std::memcpy(d.tail + (before - fresh) * line, d.mixed + (d.committed - fresh) * line,
              fresh * line * sizeof(float));
}

}  // namespace

void delta_rule(const DeltaRule& d) {
  check(d);
  if (d.rows == 0) return;
  const int parts = (d.value_dim + kColumns - 1) / kColumns;
  Pass p{d, parts * kColumns, find_inputs(d), {}, 1, {}, {}, {}, {}, {}, {}};
  for (int row = 0; row < d.committed; ++row) p.visits.push_back({row, 0, 0});
  add_tree(p);

  static thread_local std::vector<float> scratch;
  const size_t rows = d.rows, keys = d.key_heads * rows, values = d.value_heads * rows;
  scratch.resize(keys * (2 * d.key_dim + 1) + values * (p.wide + 2));
  p.q = scratch.data();
  p.k = p.q + keys * d.key_dim;
  p.v = p.k + keys * d.key_dim;
  p.qk = p.v + values * p.wide;
  p.decay = p.qk + keys;
  p.beta = p.decay + values;
  parallel(1 + d.key_heads + d.value_heads, [&](int i) { prepare(p, i); });
  parallel(d.value_heads * parts, [&](int i) { run_task(p, i / parts, i % parts * kColumns); });
  move_tail(d);
}

}  // namespace draftline
