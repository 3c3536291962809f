// The arithmetic of attention; see attention.cpp, which includes this once per instruction set.
//
// Orders that make the bits: a score is one chain of fma over d, a lane per key. The softmax's
// denominator is Sum16 by place in the visible sequence, then the sink. An output is one chain of
// fma over the visible sequence, a lane per element of d.

// Keys scored together: as many as leave a register for each sum of 8 queries.
template <int W>
constexpr int kKeys = W == 16 ? 2 * W : W;

// W vectors, transposed in place: each zip of the two halves moves one bit of the index.
template <int W>
HOT void transpose(Lanes<W> (&x)[W]) {
#pragma GCC unroll 4
  for (int step = 1; step < W; step *= 2) {
    Lanes<W> y[W];
#pragma GCC unroll 8
    for (int r = 0; r < W / 2; ++r) zip(x[r], x[r + W / 2], y[2 * r], y[2 * r + 1]);
#pragma GCC unroll 16
    for (int r = 0; r < W; ++r) x[r] = y[r];
  }
}

// W keys from row j on, transposed: t [d rounded up to W][kKeys]. Rows past the draft repeat its
// last.
template <int W>
HOT void transpose_keys(const Attention& a, const float* keys, int j, float* t) {
  using L = Lanes<W>;
  const float* line[W];
  for (int r = 0; r < W; ++r) line[r] = keys + size_t(std::min(j + r, a.base + a.rows - 1)) * a.d;
  for (int i = 0; i < a.d; i += W) {
    L x[W];
    if (i + W <= a.d) {
#pragma GCC unroll 16
      for (int r = 0; r < W; ++r) x[r] = L::load(line[r] + i);
    } else {
      for (int r = 0; r < W; ++r) x[r] = L::load(line[r] + i, a.d - i, 0.0f);
    }
    transpose<W>(x);
#pragma GCC unroll 16
    for (int r = 0; r < W; ++r) x[r].store(t + (i + r) * kKeys<W>);
  }
}

// Scores of N queries against a block of keys: q [d][8] -> s [N][stride].
template <int W, int N>
HOT void score(const float* t, const float* q, int d, float scale, float* s, size_t stride) {
  using L = Lanes<W>;
  constexpr int V = kKeys<W> / W;
  L acc[N][V];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) acc[n][v] = L::all(0.0f);
  for (int i = 0; i < d; ++i) {
    L key[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) key[v] = L::load(t + i * kKeys<W> + v * W);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const L x = L::all(q[i * kQueries + n]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) acc[n][v] = fma(x, key[v], acc[n][v]);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) (acc[n][v] * L::all(scale)).store(s + n * stride + v * W);
}

// Scores [n] -> cap * tanh(score / cap), and as much of what follows as fills a vector.
template <int W>
HOT void cap_scores(float* s, int n, float cap) {
  using L = Lanes<W>;
  for (int j = 0; j < n; j += W) (L::all(cap) * tanh(L::load(s + j) / L::all(cap))).store(s + j);
}

// Scores -> exp(score - largest), padded with 0 to a multiple of 16; returns their sum. `sink`: one
// more score of both, or null.
template <int W>
HOT float softmax(float* s, int n, const float* sink) {
  using L = Lanes<W>;
  const int padded = (n + 15) / 16 * 16;
  std::fill(s + n, s + padded, kNever);
  L top = L::all(kNever);
  for (int j = 0; j < padded; j += W) top = larger(L::load(s + j), top);
  float lanes[W], most = kNever;
  top.store(lanes);
  for (float x : lanes) most = x > most ? x : most;
  if (sink) most = *sink > most ? *sink : most;
  Sum16<W> sum;
  for (int j = 0; j < padded; j += 16) {
#pragma GCC unroll 4
    for (int i = 0; i < 16 / W; ++i) {
      const L e = exp_negative(L::load(s + j + i * W) - L::all(most));
      e.store(s + j + i * W);
      sum.part[i] = sum.part[i] + e;
    }
  }
  if (!sink) return sum.total();
  exp_negative(L::all(*sink - most)).store(lanes);
  return sum.total() + lanes[0];
}

// acc[n][0 .. W * V) += sum of p[n][j] * value row j, in the order of j. `rows`: which rows, or
// null for 0, 1, 2 ...
template <int W, int V, int N>
HOT void add_values(float* acc, size_t acc_stride, const float* p, size_t p_stride,
                    const float* values, int d, const int* rows, int count) {
  using L = Lanes<W>;
  L sum[N][V];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[n][v] = L::load(acc + n * acc_stride + v * W);
  for (int j = 0; j < count; ++j) {
    const float* line = values + size_t(rows ? rows[j] : j) * d;
    L x[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) x[v] = L::load(line + v * W);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const L weight = L::all(p[n * p_stride + j]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[n][v] = fma(weight, x[v], sum[n][v]);
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[n][v].store(acc + n * acc_stride + v * W);
}

// The same over the whole width d, a multiple of 8.
template <int W, int N>
HOT void add_rows(float* acc, size_t acc_stride, const float* p, size_t p_stride,
                  const float* values, int d, const int* rows, int count) {
  constexpr int H = W < 8 ? W : 8;
  int i = 0;
  for (; i + 4 * W <= d; i += 4 * W)
    add_values<W, 4, N>(acc + i, acc_stride, p, p_stride, values + i, d, rows, count);
  for (; i + W <= d; i += W)
    add_values<W, 1, N>(acc + i, acc_stride, p, p_stride, values + i, d, rows, count);
  for (; i < d; i += H)
    add_values<H, 1, N>(acc + i, acc_stride, p, p_stride, values + i, d, rows, count);
}

// Scores of all queries against the cache's rows `start` to `stop`, a column each.
template <int W>
HOT void score_all(const Task& k, int start, int stop, float* packed, float* t, float* scores,
                   size_t stride) {
  const Attention& a = k.a;
  const float* keys = a.keys + size_t(k.kv) * a.capacity * a.d;
  const int count = k.last - k.first;
  for (int z = 0; z < count; ++z) {  // [query / 8][d][8]
    const float* q = a.q + k.at(k.first + z);
    float* to = packed + size_t(z / kQueries) * a.d * kQueries + z % kQueries;
    for (int i = 0; i < a.d; ++i) to[i * kQueries] = q[i];
  }
  for (int j = start; j < stop; j += kKeys<W>) {
    for (int v = 0; v < kKeys<W>; v += W) transpose_keys<W>(a, keys, j + v, t + v);
    for (int z = 0; z < count; z += kQueries) {
      const float* q = packed + size_t(z) * a.d;
      float* s = scores + z * stride + (j - start);
      const int n = count - z;
      if (n > 4)
        score<W, 8>(t, q, a.d, a.scale, s, stride);
      else if (n > 1)
        score<W, 4>(t, q, a.d, a.scale, s, stride);
      else
        score<W, 1>(t, q, a.d, a.scale, s, stride);
    }
  }
}

// `scores`: of the row's own sequence from column `first - start` on.
template <int W>
HOT void weigh_all(const Task& k, int start, const float* scores, size_t stride, float* acc) {
  const Attention& a = k.a;
  const float* values = a.values + size_t(k.kv) * a.capacity * a.d;
  const int count = k.last - k.first, d = a.d;
  for (int j = start; j < a.base; j += kValues) {
    const int stop = std::min(j + kValues, a.base);
    for (int z = 0; z < count;) {
      const float* p = scores + z * stride;
      bool four = z + 4 <= count;
      for (int n = z; four && n < z + 4; ++n) four = k.sight(k.first + n).committed <= j;
      const int from = std::max(j, k.sight(k.first + z).committed);
      const float* block = values + size_t(from) * d;
      if (four)  // which see the whole block
        add_rows<W, 4>(acc + size_t(z) * d, d, p + (from - start), stride, block, d, nullptr,
                       stop - from);
      else
        add_rows<W, 1>(acc + size_t(z) * d, d, p + (from - start), stride, block, d, nullptr,
                       stop - from);
      z += four ? 4 : 1;
    }
  }
  const float* draft = values + size_t(a.base) * d;
  for (int z = 0; z < count; ++z) {
    const Sight& sight = k.sight(k.first + z);
    const int column = sight.first(a.base) - start + (a.base - sight.committed);
    add_rows<W, 1>(acc + size_t(z) * d, d, scores + z * stride + column, stride, draft, d,
                   sight.path.data(), int(sight.path.size()));
  }
}

TARGET void run(const Task& k) {
  constexpr int W = LANES;
  static thread_local std::vector<float> scratch;
  const Attention& a = k.a;
  const int count = k.last - k.first, stop = a.base + k.row(k.last - 1) + 1;
  int start = stop;  // of the cache's rows that a query sees
  for (int row = k.row(k.first); row <= k.row(k.last - 1); ++row)
    start = std::min(start, k.sights[size_t(row)].first(a.base));
  const size_t padded = size_t(count + kQueries - 1) / kQueries * kQueries;
  const size_t stride =
      size_t(stop - start + 31) / 32 * 32 + 16;  // whole blocks, and off the powers of two
  scratch.resize(padded * (stride + 2 * size_t(a.d)) + size_t(a.d + 8) * kKeys<W> + 16);
  float* scores = scratch.data() + (64 - uintptr_t(scratch.data()) % 64) / 4;  // aligned
  float* packed = scores + padded * stride;
  float* acc = packed + padded * a.d;
  float* t = acc + padded * a.d;
  std::fill(packed, t, 0.0f);
  score_all<W>(k, start, stop, packed, t, scores, stride);
  std::vector<float> sums(count);
  for (int z = 0; z < count; ++z) {
    // The row's own sequence: committed scores, then its path's. A path ascends, so in place is
    // safe.
    const Sight& sight = k.sight(k.first + z);
    float* own = scores + z * stride + (sight.first(a.base) - start);
    float* draft = own + (a.base - sight.committed);
    const float* all = scores + z * stride + (a.base - start);
    for (size_t i = 0; i < sight.path.size(); ++i) draft[i] = all[sight.path[i]];
    const int n = sight.size(a.base);
    if (a.cap > 0) cap_scores<W>(own, n, a.cap);
    sums[z] = softmax<W>(own, n, a.sinks ? a.sinks + k.head(k.first + z) : nullptr);
  }
  weigh_all<W>(k, start, scores, stride, acc);
  for (int z = 0; z < count; ++z)
    for (int i = 0; i < a.d; ++i) a.out[k.at(k.first + z) + i] = acc[size_t(z) * a.d + i] / sums[z];
}
