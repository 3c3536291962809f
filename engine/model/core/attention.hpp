// Attention of k new tokens, a chain or a tree, over a cache. A row's bits depend only
// on its query and on the sequence of keys and values it sees: not on where the cache holds them,
// the rows beside it, the threads or the instruction set. So a node of a tree gets exactly what one
// token gets once the node's path is committed.
#pragma once
#include <cstdint>

namespace draftline {

struct Attention {
  const float* q;          // [rows, heads, d], rotated
  const void* keys;        // [kv_heads, capacity] rows, rotated; see CacheRows
  const void* values;      // [kv_heads, capacity] rows
  const int32_t* parents;  // [rows]: an earlier row, or -1 for a child of the last committed one
  float* out;              // [rows, heads * d]
  int rows, heads, kv_heads, capacity, d;
  int base;  // committed rows; row i of the draft lies at base + i
  float scale;
  int window;          // of positions, the row's own included; 0: all
  float cap;           // scores are cap * tanh(score / cap); 0: as they are
  const float* sinks;  // [heads]: a logit each in the softmax that has no value; or null
  bool q8 = false;     // the cache's rows
};

// Row i sees the committed rows, its ancestors and itself, in a window the last of these. Throws
// std::invalid_argument.
void attend(const Attention& a);

}  // namespace draftline
