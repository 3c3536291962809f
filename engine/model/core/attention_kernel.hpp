// The arithmetic of attention; see attention.cpp, which includes this once per instruction set.
//
// Orders that make the bits: a score is one chain of fma over d. Places, a token's positions in its
// own sequence, are taken in blocks of kPlaces that begin at multiples of it. Of a block, the
// largest score so far is found, weights are exp(score - largest), and they are added as four sums
// by place modulo 4. What earlier blocks gave is scaled to the new largest score first. An output
// is one chain of fma over the places seen, a lane per element of d.

// Vectors of queries scored together, and keys: as many as leave a register for each sum.
constexpr int kVectors = 3;
template <int W, int V>
constexpr int kKeys = W == 16 || V == 1 ? 8 : 4;
// Queries weighed together, and vectors of values.
constexpr int kWeighed = 6;
template <int W>
constexpr int kValues = W == 8 ? 2 : 4;

// What a task computes with: `wide` lanes, its queries and zeros.
struct Scratch {
  size_t wide;
  float* q;              // by groups of kVectors vectors, or what is left of them: [d][queries]
  float* out;            // [query][d]
  float* most;           // [wide]: the largest score so far
  float* sum;            // [wide]: of the weights
  float* factor;         // [wide]: of what earlier blocks gave
  float* scores;         // [kPlaces][wide], then weights
  float* last;           // [rows behind the last whole block of committed ones][wide]: scores
  float *keys, *values;  // of a block or of those rows, where the cache is in 8 bits: [row][d]
};

// W signed bytes as floats. (GCC takes conversions of narrow vectors apart: intrinsics.)
template <int W>
HOT Lanes<W> of_levels(const int8_t* p) {
#if LANES > 8
  if constexpr (W == 16) {
    __m128i bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
#endif
#if LANES > 4
  if constexpr (W == 8) {
    int64_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_set1_epi64x(bytes)))};
  }
#endif
  float x[W];
  for (int i = 0; i < W; ++i) x[i] = float(p[i]);
  return Lanes<W>::load(x);
}

// `count` rows from row `first` on, as floats: as they lie in the cache, or unpacked to `to`.
template <int W>
HOT const float* floats(const Attention& a, const uint8_t* rows, int first, int count, float* to) {
  using L = Lanes<W>;
  constexpr int H = W < 8 ? W : 8;
  const size_t bytes = CacheRows{a.d, a.q8}.bytes();
  rows += size_t(first) * bytes;
  if (!a.q8) return reinterpret_cast<const float*>(rows);
  for (int j = 0; j < count; ++j, rows += bytes) {
    const auto* levels = reinterpret_cast<const int8_t*>(rows);
    float scales[kMaxHeadSize / 32], *line = to + size_t(j) * a.d;
    std::memcpy(scales, rows + a.d, bytes - size_t(a.d));
    int i = 0;
    for (; i + W <= a.d; i += W)
      (of_levels<W>(levels + i) * L::all(scales[i / 32])).store(line + i);
    for (; i < a.d; i += H)
      (of_levels<H>(levels + i) * Lanes<H>::all(scales[i / 32])).store(line + i);
  }
  return to;
}

// Scores of V vectors of queries q [d][V * W] against N keys -> s [N][wide].
template <int W, int V, int N>
HOT void score_keys(const float* keys, const float* q, int d, float scale, float* s, size_t wide) {
  using L = Lanes<W>;
  L acc[N][V];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) acc[n][v] = L::all(0.0f);
  for (int i = 0; i < d; ++i) {
    L x[V];
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) x[v] = L::load(q + (i * V + v) * W);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const L key = L::all(keys[size_t(n) * d + i]);
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) acc[n][v] = fma(x[v], key, acc[n][v]);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) (acc[n][v] * L::all(scale)).store(s + n * wide + v * W);
}

// The same for `count` keys. The last ones may be scored twice.
template <int W, int V>
HOT void score_group(const float* keys, int count, const float* q, int d, float scale, float* s,
                     size_t wide) {
  constexpr int N = kKeys<W, V>;
  if (count < N) {
    for (int j = 0; j < count; ++j)
      score_keys<W, V, 1>(keys + size_t(j) * d, q, d, scale, s + j * wide, wide);
    return;
  }
  for (int j = 0; j < count; j += N) {
    const int at = std::min(j, count - N);
    score_keys<W, V, N>(keys + size_t(at) * d, q, d, scale, s + at * wide, wide);
  }
}

// Scores of all queries against `count` keys -> s [count][wide], capped.
template <int W>
HOT void score(const Attention& a, const Scratch& m, const float* keys, int count, float* s) {
  using L = Lanes<W>;
  for (size_t z = 0; z < m.wide;) {
    const size_t left = (m.wide - z) / W;
    const float* q = m.q + z * size_t(a.d);
    if (left >= 3)
      score_group<W, 3>(keys, count, q, a.d, a.scale, s + z, m.wide);
    else if (left == 2)
      score_group<W, 2>(keys, count, q, a.d, a.scale, s + z, m.wide);
    else
      score_group<W, 1>(keys, count, q, a.d, a.scale, s + z, m.wide);
    z += std::min(left, size_t(kVectors)) * W;
  }
  if (a.cap > 0)
    for (size_t i = 0; i < size_t(count) * m.wide; i += W)
      (L::all(a.cap) * tanh(L::load(s + i) / L::all(a.cap))).store(s + i);
}

// Scores of a block -> weights: exp(score - largest so far).
template <int W>
HOT void weigh(const Scratch& m) {
  using L = Lanes<W>;
  for (size_t z = 0; z < m.wide; z += W) {
    float* s = m.scores + z;
    const L before = L::load(m.most + z);
    L most = before;
    for (int j = 0; j < kPlaces; ++j) most = larger(L::load(s + j * m.wide), most);
    L sums[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) sums[n] = L::all(0.0f);
    for (int j = 0; j < kPlaces; j += 4)
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        float* at = s + (j + n) * m.wide;
        const L weight = exp_negative(L::load(at) - most);
        weight.store(at);
        sums[n] = sums[n] + weight;
      }
    const L factor = exp_negative(before - most);
    most.store(m.most + z);
    factor.store(m.factor + z);
    const L sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    fma(L::load(m.sum + z), factor, sum).store(m.sum + z);
  }
}

// out[n][0 .. W * V) += sum of p[j][n] * value row j, in the order of j. `rows`: which rows, or
// null for 0, 1, 2 ...
template <int W, int V, int N>
HOT void add_values(float* out, const float* p, size_t wide, const float* values, int d,
                    const int* rows, int count) {
  using L = Lanes<W>;
  L sum[N][V];
#pragma GCC unroll 6
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[n][v] = L::load(out + size_t(n) * d + v * W);
  for (int j = 0; j < count; ++j) {
    const float* line = values + size_t(rows ? rows[j] : j) * d;
    L x[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) x[v] = L::load(line + v * W);
#pragma GCC unroll 6
    for (int n = 0; n < N; ++n) {
      const L weight = L::all(p[j * wide + n]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[n][v] = fma(weight, x[v], sum[n][v]);
    }
  }
#pragma GCC unroll 6
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[n][v].store(out + size_t(n) * d + v * W);
}

// The same over the whole width d, a multiple of 8.
template <int W, int N>
HOT void add_rows(float* out, const float* p, size_t wide, const float* values, int d,
                  const int* rows, int count) {
  constexpr int H = W < 8 ? W : 8, V = kValues<W>;
  int i = 0;
  for (; i + V * W <= d; i += V * W)
    add_values<W, V, N>(out + i, p, wide, values + i, d, rows, count);
  for (; i + W <= d; i += W) add_values<W, 1, N>(out + i, p, wide, values + i, d, rows, count);
  for (; i < d; i += H) add_values<H, 1, N>(out + i, p, wide, values + i, d, rows, count);
}

// Adds value rows, with the weights from place j of the block on, to the first of n queries from z
// on; returns to how many.
template <int W>
HOT int add_some(const Scratch& m, int z, int n, int j, const float* values, int d, const int* rows,
                 int count) {
  const float* p = m.scores + size_t(j) * m.wide + z;
  float* out = m.out + size_t(z) * d;
  if (n >= kWeighed) {
    add_rows<W, kWeighed>(out, p, m.wide, values, d, rows, count);
    return kWeighed;
  }
  if (n >= 2) {
    add_rows<W, 2>(out, p, m.wide, values, d, rows, count);
    return 2;
  }
  add_rows<W, 1>(out, p, m.wide, values, d, rows, count);
  return 1;
}

// Adds committed rows j to stop - 1 of the block at place j to each query that sees them. `values`:
// of row j on.
template <int W>
HOT void add_committed(const Task& k, const Scratch& m, const float* values, int j, int stop) {
  const int count = k.last - k.first, d = k.a.d;
  for (int z = 0; z < count;) {
    const int from = std::max(j, k.sight(k.first + z).committed);
    int n = 1;  // queries that see as much
    while (z + n < count && std::max(j, k.sight(k.first + z + n).committed) == from) ++n;
    if (from >= stop)
      z += n;
    else
      z += add_some<W>(m, z, n, from - j, values + size_t(from - j) * d, d, nullptr, stop - from);
  }
}

// Hides scores of the block at place j that lie before what a query sees.
HOT void hide_unseen(const Task& k, const Scratch& m, int j) {
  if (!k.a.window) return;
  for (int z = 0; z < k.last - k.first; ++z) {
    const int stop = std::min(k.sight(k.first + z).first(k.a.base) - j, kPlaces);
    for (int i = 0; i < stop; ++i) m.scores[size_t(i) * m.wide + z] = kNever;
  }
}

// Weights of the scores in m.scores; what earlier blocks gave is scaled to them.
template <int W>
HOT void next_block(const Task& k, const Scratch& m) {
  weigh<W>(m);
  for (int z = 0; z < k.last - k.first; ++z) {
    const float factor = m.factor[z];
    if (factor == 1) continue;
    float* out = m.out + size_t(z) * k.a.d;
    for (int i = 0; i < k.a.d; ++i) out[i] *= factor;
  }
}

// The part of a query's path in the block at place j: its rows [from, stop) of the path.
struct Part {
  int first, from, stop;  // first: the place of the path's first row

  HOT Part(const Sight& sight, int j) {
    const int size = int(sight.path.size());
    first = sight.own + 1 - size;
    from = std::max(0, j - first);
    stop = std::min(size, j + kPlaces - first);
  }
};

// Blocks of committed rows, up to row `stop`, which all queries see alike.
template <int W>
HOT void run_whole(const Task& k, const Scratch& m, const uint8_t* keys, const uint8_t* values,
                   int start, int stop) {
  for (int j = start / kPlaces * kPlaces; j < stop; j += kPlaces) {
    score<W>(k.a, m, floats<W>(k.a, keys, j, kPlaces, m.keys), kPlaces, m.scores);
    hide_unseen(k, m, j);
    next_block<W>(k, m);
    add_committed<W>(k, m, floats<W>(k.a, values, j, kPlaces, m.values), j, j + kPlaces);
  }
}

// Blocks of what is behind them: committed rows, then each query's own path.
template <int W>
HOT void run_paths(const Task& k, const Scratch& m, const uint8_t* keys, const uint8_t* values,
                   int start, int first, int stop) {
  const Attention& a = k.a;
  const int count = k.last - k.first;
  score<W>(a, m, floats<W>(a, keys, first, stop - first, m.keys), stop - first, m.last);
  const float* committed_values = floats<W>(a, values, first, stop - first, m.values);
  const float* draft_values = committed_values + size_t(a.base - first) * a.d;
  int end = first;  // of the places that a query sees
  for (int z = 0; z < count; ++z) end = std::max(end, k.sight(k.first + z).own + 1);
  for (int j = std::max(first, start / kPlaces * kPlaces); j < end; j += kPlaces) {
    const int committed = std::clamp(a.base - j, 0, kPlaces);
    std::copy_n(m.last + size_t(j - first) * m.wide, committed * m.wide, m.scores);
    std::fill(m.scores + committed * m.wide, m.scores + kPlaces * m.wide, kNever);
    hide_unseen(k, m, j);
    for (int z = 0; z < count; ++z) {
      const Sight& sight = k.sight(k.first + z);
      const Part part(sight, j);
      for (int i = part.from; i < part.stop; ++i)
        m.scores[size_t(part.first + i - j) * m.wide + z] =
            m.last[size_t(a.base - first + sight.path[i]) * m.wide + z];
    }
    next_block<W>(k, m);
    if (committed)
      add_committed<W>(k, m, committed_values + size_t(j - first) * a.d, j, j + committed);
    for (int z = 0; z < count;) {
      const Sight& sight = k.sight(k.first + z);
      const Part part(sight, j);
      const int row = k.row(k.first + z);
      const int n = std::min(count, (row + 1) * k.group() - k.first) - z;  // queries of the row
      if (part.from >= part.stop)
        z += n;
      else
        z += add_some<W>(m, z, n, part.first + part.from - j, draft_values, a.d,
                         sight.path.data() + part.from, part.stop - part.from);
    }
  }
}

template <int W>
HOT Scratch scratch_of(const Task& k, int last_rows) {
  static thread_local std::vector<float> memory;
  const size_t count = size_t(k.last - k.first), d = size_t(k.a.d);
  Scratch m;
  m.wide = (count + W - 1) / W * W;
  const size_t unpacked = k.a.q8 ? size_t(std::max(kPlaces, last_rows)) * d : 0;
  memory.resize(m.wide * (2 * d + 3 + kPlaces + size_t(last_rows)) + 2 * unpacked + 16);
  m.q = memory.data() + (64 - uintptr_t(memory.data()) % 64) / 4;  // aligned
  m.most = m.q + m.wide * d;
  m.sum = m.most + m.wide;
  m.factor = m.sum + m.wide;
  m.scores = m.factor + m.wide;
  m.last = m.scores + kPlaces * m.wide;
  m.out = m.last + size_t(last_rows) * m.wide;
  m.keys = m.out + m.wide * d;
  m.values = m.keys + unpacked;
  return m;
}

TARGET void run(const Task& k) {
  constexpr int W = LANES;
  const Attention& a = k.a;
  const int count = k.last - k.first, stop = a.base + k.row(k.last - 1) + 1;
  const int whole = a.base / kPlaces * kPlaces;  // committed rows in whole blocks
  const Scratch m = scratch_of<W>(k, stop - whole);
  std::fill_n(m.q, m.wide * size_t(a.d), 0.0f);
  std::fill_n(m.out, size_t(count) * a.d, 0.0f);
  std::fill_n(m.most, m.wide, kLeast);
  std::fill_n(m.sum, m.wide, 0.0f);
  int start = stop;  // the first place that a query sees
  for (int z = 0; z < count; ++z) {
    start = std::min(start, k.sight(k.first + z).first(a.base));
    const float* q = a.q + k.at(k.first + z);
    const size_t group = z / (kVectors * W) * (kVectors * W);
    const size_t width = std::min(size_t(kVectors * W), m.wide - group);
    for (int i = 0; i < a.d; ++i) m.q[group * a.d + i * width + (z - group)] = q[i];
    if (!a.sinks) continue;
    m.most[z] = std::max(a.sinks[k.head(k.first + z)], kLeast);
    m.sum[z] = 1.0f;  // exp(sink - sink)
  }
  const size_t at = size_t(k.kv) * a.capacity * CacheRows{a.d, a.q8}.bytes();
  const auto *keys = static_cast<const uint8_t*>(a.keys) + at,
             *values = static_cast<const uint8_t*>(a.values) + at;
  run_whole<W>(k, m, keys, values, start, whole);
  run_paths<W>(k, m, keys, values, start, whole, stop);
  for (int z = 0; z < count; ++z)
    for (int i = 0; i < a.d; ++i)
      a.out[k.at(k.first + z) + i] = m.out[size_t(z) * a.d + i] / m.sum[z];
}
