// Linear attention by the gated delta rule (Gated DeltaNet, arXiv:2412.06464) over new rows, a
// chain that is kept and a tree that may not be. A head's state S is a [key_dim, value_dim] matrix;
// a row with key k, query q and value v makes of it
//
//   S' = decay * S + k (beta * (v - decay * S^T k))^T,   and its output is S'^T q.
//
// A row's bits depend only on the sequence of rows before it: not on the rows beside it, on how
// many are kept in which call, the threads or the instruction set.
#pragma once
#include <cstdint>

namespace draftline {

struct DeltaRule {
  const float* mixed;          // [rows, channels()]: q of all heads, then k, then v
  const float* a;              // [rows, value_heads]
  const float* b;              // [rows, value_heads]
  const float* conv;           // [channels(), taps]: the last tap is the row's own
  const float* A;              // [value_heads], at most 0
  const float* dt_bias;        // [value_heads]
  const int32_t* key_head_of;  // [value_heads]: the key head that each uses
  const int32_t* parents;      // [rows - committed]: an earlier row of the tree, or -1
  float* tail;                 // [taps - 1, channels()]: rows before these, the oldest first
  float* state;                // [value_heads, key_dim, value_dim]
  float* out;                  // [rows - first, value_heads * value_dim]
  int rows, key_heads, value_heads, key_dim, value_dim, taps;
  int committed;  // rows that follow the state as a chain; the others are a tree after them
  int first;      // rows before this one need no output; at most `committed`

  int channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

// Applies the committed rows to `tail` and `state`, and writes the outputs of rows from `first` on.
// Throws std::invalid_argument before anything is changed.
void delta_rule(const DeltaRule& d);

}  // namespace draftline
