// The arithmetic of delta_rule.cpp, which includes this once per instruction set.
//
// Orders that make the bits: the convolution is one chain of fma from the oldest tap on; the norms
// and q^T k are Sum16; S^T k and S^T q are one chain of fma over key_dim, a lane per column. The
// output is taken from the state before the row, so that a row without children never writes its
// own: S'^T q = decay * S^T q + (q^T k) delta.

// Columns of the state updated together: as many as leave a register for each sum.
template <int W>
constexpr int kStrip = W == 16 ? 64 : 32;

// log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|) <= 1, by the series of
// log(1 + e) = 2 atanh(s), s = e / (2 + e) <= 1/3.
template <int W>
HOT Lanes<W> softplus(Lanes<W> x) {
  using L = Lanes<W>;
  const L zero = L::all(0.0f), e = exp_negative(L{x.v < zero.v ? x.v : (zero - x).v});
  const L s = e / (L::all(2.0f) + e), square = s * s;
  L sum = L::all(2.0f / 15);
  for (float odd : {13.0f, 11.0f, 9.0f, 7.0f, 5.0f, 3.0f})
    sum = fma(sum, square, L::all(2.0f / odd));
  return larger(x, zero) + fma(sum, square * s, s + s);
}

// n: a multiple of 8, as everywhere below.
template <int W>
HOT float dot(const float* x, const float* y, int n) {
  using L = Lanes<W>;
  Sum16<W> sum;
  for (int i = 0; i < n; i += 8) {
#pragma GCC unroll 2
    for (int v = 0; v < 8 / W; ++v) {
      L& part = sum.part[i / 8 % 2 * (8 / W) + v];
      part = fma(L::load(x + i + v * W), L::load(y + i + v * W), part);
    }
  }
  return sum.total();
}

// Channels [channel, channel + n) of rows from `first` on, after the convolution and silu:
// out [rows][stride], 0 beyond n.
template <int W>
HOT void convolve(const Pass& p, int channel, int n, int first, float* out, int stride) {
  using L = Lanes<W>;
  const int taps = p.d.taps;
  float weights[kMaxTaps][kMaxDim];
  for (int i = 0; i < n; ++i)
    for (int tap = 0; tap < taps; ++tap)
      weights[tap][i] = p.d.conv[size_t(channel + i) * taps + tap];
  for (int row = first; row < p.d.rows; ++row) {
    const float* const* inputs = p.inputs.data() + size_t(row) * taps;
    float* to = out + size_t(row) * stride;
    for (int i = 0; i < n; i += W) {
      L sum = L::all(0.0f);
      for (int tap = 0; tap < taps; ++tap)
        sum = fma(L::load(weights[tap] + i), L::load(inputs[tap] + channel + i), sum);
      (sum * sigmoid(sum)).store(to + i);
    }
    std::fill(to + n, to + stride, 0.0f);
  }
}

template <int W>
HOT void normalise(float* x, int n, float scale) {
  using L = Lanes<W>;
  const L factor = L::all(scale / std::sqrt(dot<W>(x, x, n) + 1e-6f));
  for (int i = 0; i < n; i += W) (L::load(x + i) * factor).store(x + i);
}

template <int W>
HOT void prepare_keys(const Pass& p, int head) {
  const DeltaRule& d = p.d;
  const int n = d.key_dim, channel = head * n;
  const size_t at = size_t(head) * d.rows;
  float *q = p.q + at * n, *k = p.k + at * n;
  const float scale = 1.0f / std::sqrt(float(n));
  convolve<W>(p, channel, n, d.first, q, n);
  convolve<W>(p, d.key_heads * n + channel, n, 0, k, n);
  for (int row = 0; row < d.rows; ++row) {
    normalise<W>(k + size_t(row) * n, n, 1.0f);
    if (row < d.first) continue;
    normalise<W>(q + size_t(row) * n, n, scale);
    p.qk[at + row] = dot<W>(q + size_t(row) * n, k + size_t(row) * n, n);
  }
}

// decay = exp(A * softplus(a + dt_bias)), beta = sigmoid(b).
template <int W>
HOT void prepare_gates(const Pass& p) {
  using L = Lanes<W>;
  const DeltaRule& d = p.d;
  for (int row = 0; row < d.rows; ++row) {
    const size_t line = size_t(row) * d.value_heads;
    for (int h = 0; h < d.value_heads; h += W) {
      const int m = std::min(W, d.value_heads - h);
      const L a = L::load(d.a + line + h, m, 0.0f), dt = L::load(d.dt_bias + h, m, 0.0f);
      float decay[W], beta[W];
      exp_negative(L::load(d.A + h, m, 0.0f) * softplus(a + dt)).store(decay);
      sigmoid(L::load(d.b + line + h, m, 0.0f)).store(beta);
      for (int i = 0; i < m; ++i) {
        p.decay[size_t(h + i) * d.rows + row] = decay[i];
        p.beta[size_t(h + i) * d.rows + row] = beta[i];
      }
    }
  }
}

// Task 0 has the gates, then each key head is a task, then each value head.
TARGET void prepare(const Pass& p, int i) {
  constexpr int W = LANES < 8 ? LANES : 8;
  const DeltaRule& d = p.d;
  const int head = i - 1 - d.key_heads;
  if (i == 0)
    prepare_gates<W>(p);
  else if (head < 0)
    prepare_keys<W>(p, i - 1);
  else
    convolve<W>(p, 2 * d.key_heads * d.key_dim + head * d.value_dim, d.value_dim, 0,
                p.v + size_t(head) * d.rows * p.wide, p.wide);
}

// What a row reads from the state before it.
template <int W>
struct Read {
  float sk[kStrip<W>], sq[kStrip<W>];  // S^T k and, for a row with an output, S^T q
};

// s: [n][kStrip].
template <int W, bool Q>
HOT void read_state(const float* s, const float* k, const float* q, int n, Read<W>& r) {
  using L = Lanes<W>;
  constexpr int V = kStrip<W> / W;
  L key[V], query[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) key[v] = query[v] = L::all(0.0f);
  for (int i = 0; i < n; ++i, s += kStrip<W>) {
    const L ki = L::all(k[i]), qi = Q ? L::all(q[i]) : ki;
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const L x = L::load(s + v * W);
      key[v] = fma(ki, x, key[v]);
      if (Q) query[v] = fma(qi, x, query[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    key[v].store(r.sk + v * W);
    if (Q) query[v].store(r.sq + v * W);
  }
}

// to = decay * s + k delta^T, which may be s itself; and what the next row, of k2 and q2, reads
// from it: with the sums of read_state, whose loads this saves.
template <int W, bool Q>
HOT void write_state(const float* s, float* to, float decay, const float* k, const float* delta,
                     const float* k2, const float* q2, int n, Read<W>& r) {
  using L = Lanes<W>;
  constexpr int V = kStrip<W> / W;
  L key[V], query[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) key[v] = query[v] = L::all(0.0f);
  const L keep = L::all(decay);
  for (int i = 0; i < n; ++i, s += kStrip<W>, to += kStrip<W>) {
    const L ki = L::all(k[i]), k2i = L::all(k2[i]), q2i = Q ? L::all(q2[i]) : k2i;
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const L x = fma(ki, L::load(delta + v * W), keep * L::load(s + v * W));
      x.store(to + v * W);
      key[v] = fma(k2i, x, key[v]);
      if (Q) query[v] = fma(q2i, x, query[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    key[v].store(r.sk + v * W);
    if (Q) query[v].store(r.sq + v * W);
  }
}

namespace {

// The columns [column, column + kStrip) of a head's state, while a task's visits go over its rows.
template <int W>
struct Strip {
  const Pass& p;
  int head, column;
  float* blocks;  // [p.blocks][key_dim][kStrip]
  Read<W> read;   // by the row that is next

  HOT size_t key_row(int row) const { return size_t(p.d.key_head_of[head]) * p.d.rows + row; }
  HOT const float* key(int row) const { return p.k + key_row(row) * p.d.key_dim; }
  HOT const float* query(int row) const { return p.q + key_row(row) * p.d.key_dim; }
  HOT float* block(int i) const { return blocks + size_t(i) * p.d.key_dim * kStrip<W>; }

  HOT void read_by(const Visit& next) {
    const float *s = block(next.from), *k = key(next.row), *q = query(next.row);
    if (next.row >= p.d.first)
      read_state<W, true>(s, k, q, p.d.key_dim, read);
    else
      read_state<W, false>(s, k, q, p.d.key_dim, read);
  }

  // The output and the state of a row that has read; then `next`, if any, reads.
  HOT void step(const Visit& visit, const Visit* next) {
    using L = Lanes<W>;
    constexpr int N = kStrip<W>;
    const DeltaRule& d = p.d;
    const size_t row = size_t(head) * d.rows + visit.row;
    const float* v = p.v + row * p.wide + column;
    const L decay = L::all(p.decay[row]), beta = L::all(p.beta[row]);
    float delta[N];
    for (int i = 0; i < N; i += W)
      ((L::load(v + i) - decay * L::load(read.sk + i)) * beta).store(delta + i);
    if (visit.row >= d.first) {
      const L qk = L::all(p.qk[key_row(visit.row)]);
      for (int i = 0; i < N; i += W)
        fma(decay, L::load(read.sq + i), qk * L::load(delta + i)).store(read.sq + i);
      const size_t width = size_t(d.value_heads) * d.value_dim;
      std::copy(read.sq, read.sq + std::min(N, d.value_dim - column),
                d.out + (visit.row - d.first) * width + head * d.value_dim + column);
    }
    if (visit.to < 0) {
      if (next) read_by(*next);
      return;
    }
    const float *s = block(visit.from), *k = key(visit.row);
    const float *next_k = next ? key(next->row) : k, *next_q = next ? query(next->row) : k;
    if (next && next->row >= d.first)
      write_state<W, true>(s, block(visit.to), p.decay[row], k, delta, next_k, next_q, d.key_dim,
                           read);
    else
      write_state<W, false>(s, block(visit.to), p.decay[row], k, delta, next_k, next_q, d.key_dim,
                            read);
  }
};

}  // namespace

// n columns of some rows.
template <int W>
HOT void copy_columns(const float* from, size_t from_stride, float* to, size_t to_stride, int rows,
                      int n) {
  for (; rows > 0; --rows, from += from_stride, to += to_stride)
    for (int i = 0; i < n; i += W) Lanes<W>::load(from + i).store(to + i);
}

// All rows of a head, over kColumns columns of its state.
TARGET void run(const Pass& p, int head, int column) {
  constexpr int W = LANES, N = kStrip<W>, H = W < 8 ? W : 8;
  static thread_local std::vector<float> scratch;
  const DeltaRule& d = p.d;
  scratch.resize(size_t(p.blocks) * d.key_dim * N + 16);
  float* blocks = scratch.data() + (64 - uintptr_t(scratch.data()) % 64) / 4;  // aligned
  const Visit *visits = p.visits.data(), *end = visits + p.visits.size();
  for (int at = column; at < std::min(column + kColumns, d.value_dim); at += N) {
    float* state = d.state + size_t(head) * d.key_dim * d.value_dim + at;
    const int n = std::min(N, d.value_dim - at);
    if (n < N) std::fill(blocks, blocks + d.key_dim * N, 0.0f);
    copy_columns<H>(state, d.value_dim, blocks, N, d.key_dim, n);
    Strip<W> strip{p, head, at, blocks, {}};
    strip.read_by(*visits);
    for (const Visit* visit = visits; visit < end; ++visit) {
      strip.step(*visit, visit + 1 < end ? visit + 1 : nullptr);
      if (visit - visits + 1 == d.committed)
        copy_columns<H>(blocks, N, state, d.value_dim, d.key_dim, n);
    }
  }
}
