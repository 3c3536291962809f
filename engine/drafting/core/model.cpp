#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "lanes.hpp"
#include "tables.hpp"

namespace draftline::drafting {
namespace {

constexpr size_t kMostFeatures = Scored::kMostFeatures;

using Column = std::array<int16_t, Field::kMost>;

// The evidence of all candidates as columns, in the order of Field.
struct alignas(16) Columns {
  Column near_m, near_j, near_count, far_m, far_count, out_m, out_count, out_back, files_m,
      files_prob, files_rank, order, share, rule, hits, misses, recycled, recycled_share, zero,
      kind, shape_m, shape_count, around, recent, look;
  std::array<uint32_t, Field::kMost> hash;
};

void fill(const Field& f, const Vocabulary& vocabulary, Columns& c) {
  for (size_t n = 0; n < f.tokens.size(); ++n) {
    const Evidence& e = f.tokens[n];
    c.near_m[n] = e.near_m;
    c.near_j[n] = int16_t(e.near_j);
    c.near_count[n] = e.near_count;
    c.far_m[n] = e.far_m;
    c.far_count[n] = e.far_count;
    c.out_m[n] = e.out_m;
    c.out_count[n] = e.out_count;
    c.out_back[n] = int16_t(std::min(e.out_back, 0x7FFF));
    c.files_m[n] = e.files_m;
    c.files_prob[n] = e.files_m ? int16_t(of_prob(e.files_prob)) : int16_t(0);
    c.files_rank[n] = std::min<int16_t>(e.files_rank, 3);
    c.order[n] = e.ngram_order;
    c.share[n] = kOfByte[e.ngram_share];
    c.rule[n] = e.rule;
    c.hits[n] = std::min<int16_t>(e.rule_hits, 5);
    c.misses[n] = std::min<int16_t>(e.rule_misses, 3);
    c.recycled[n] = e.recycled;
    c.recycled_share[n] = kOfByte[e.recycled_share];
    c.zero[n] = e.zero;
    c.kind[n] = kOfZero[e.zero];
    c.shape_m[n] = e.shape_m;
    c.shape_count[n] = e.shape_count;
    c.around[n] = e.around;
    c.recent[n] = e.recent;
    c.look[n] = int16_t(vocabulary.look(e.token));
    c.hash[n] = vocabulary.hash(e.token);
  }
}

template <class T>
struct Of {  // a class and the number of classes
  T value;
  int size;
};

template <class... T>
DRAFTLINE_INLINE Lanes place(Of<T>... parts) {
  Lanes index{};
  const auto add = [&](const auto& part) __attribute__((always_inline)) {
    index *= int16_t(part.size);
    if constexpr (std::is_same_v<std::decay_t<decltype(part.value)>, Lanes>)
      index += part.value;
    else
      index += int16_t(part.value);
  };
  (add(parts), ...);
  return index;
}

uint16_t hashed(uint32_t a, uint32_t b) {
  uint64_t x = (uint64_t(a) << 32 | b) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93ull;
  return uint16_t(uint32_t(x >> 40) % kHashed);
}

// Sums the weights of eight candidates feature by feature and records the features. Often there
// are only one or two candidates: `used` is how many are summed.
template <size_t used>
struct Eight {
  const float* weights;
  Scored& out;
  size_t n;  // the first candidate
  size_t row = 0;
  Floats low{}, high{};  // sums

  DRAFTLINE_INLINE void note(Name name, Lanes index) {
    out.tables[row] = kStarts[name];
    std::memcpy(out.rows.data() + row * out.stride + n, &index, sizeof(index));
    ++row;
  }
  DRAFTLINE_INLINE void all(Name name, Lanes index) {  // every candidate has this feature
    note(name, index);
    const float* const t = weights + kStarts[name];
    if constexpr (used == 2) {
      low += Floats{t[index[0]], t[index[1]]};
    } else {
      low += Floats{t[index[0]], t[index[1]], t[index[2]], t[index[3]]};
      high += Floats{t[index[4]], t[index[5]], t[index[6]], t[index[7]]};
    }
  }
  // Only candidates with a nonzero `has` have this feature.
  DRAFTLINE_INLINE void some(Name name, Lanes has, Lanes index) {
    const Lanes wanted = has != 0;
    note(name, index | ~wanted);  // -1 is kNot
    const float* const t = weights + kStarts[name];
    if constexpr (used == 2) {
      low += only(Floats{t[index[0]], t[index[1]]}, wanted, 0);
    } else {
      low += only(Floats{t[index[0]], t[index[1]], t[index[2]], t[index[3]]}, wanted, 0);
      high += only(Floats{t[index[4]], t[index[5]], t[index[6]], t[index[7]]}, wanted, 4);
    }
  }
  // Hashed weights are scattered in memory: prefetch them while others are summed.
  uint16_t fetch(Name name, uint32_t a, uint32_t b) const {
    const uint16_t index = hashed(a, b);
    __builtin_prefetch(weights + kStarts[name] + index);
    return index;
  }
  void by_hash(Name name, const std::array<uint16_t, kLanes>& places) {
    Lanes index;
    std::memcpy(&index, places.data(), sizeof(index));
    all(name, index);
  }
};

// The features of the eight candidates from `n` on.
template <size_t used>
void features_of_eight(const Field& f, const View& v, const Columns& c, size_t n,
                       Eight<used>& add) {
  const int32_t last = v.tail_size ? v.tail_end[-1] : kBorder;
  const int far_off = std::min(v.at.gap, 0x7FFF);
  const int gap = of_gap(v.at.gap), run = int(of_run(v.at.run));
  const int best = of_match(f.near_m), best4 = of_match4(f.near_m), best6 = of_match6(f.near_m);
  const int best_far6 = of_match6(f.far_m), best_out6 = of_match6(f.out_m);
  const int last_look = int(v.vocabulary->look(last)), line = v.vocabulary->starts_line(last);
  const auto at = [n](const Column& column) {
    Lanes values;
    std::memcpy(&values, column.data() + n, sizeof(values));
    return values;
  };
  const Lanes near_m = at(c.near_m), near_j = at(c.near_j), near_count = at(c.near_count),
              far_m = at(c.far_m), far_count = at(c.far_count), out_m = at(c.out_m),
              out_count = at(c.out_count), out_back = at(c.out_back), files_m = at(c.files_m),
              files_prob = at(c.files_prob), files_rank = at(c.files_rank), order = at(c.order),
              share = at(c.share), rule = at(c.rule), hits = at(c.hits), misses = at(c.misses),
              recycled = at(c.recycled), recycled_share = at(c.recycled_share), zero = at(c.zero),
              kind = at(c.kind), shape_m = at(c.shape_m), shape_count = at(c.shape_count),
              around = at(c.around), recent = at(c.recent), look = at(c.look);
  const Lanes m = of_match(near_m), m4 = of_match4(near_m), m6 = of_match6(near_m);
  const Lanes out4 = of_match4(out_m), out6 = of_match6(out_m), files6 = of_match6(files_m);
  const Lanes pointer = zero & int16_t(kPointer);
  const Lanes mask = above(near_m, 0) | pointer << 1 | above(far_m, 0) << 2 | above(out_m, 0) << 3 |
                     above(files_m, 0) << 4 | above(order, 0) << 5 | above(rule, 0) << 6 |
                     above(zero, kPointer) << 7;
  const Lanes near_key = m4 * int16_t(2) + pointer;
  const uint32_t last_hash = v.vocabulary->hash(last);
  std::array<uint16_t, kLanes> near_hash{}, pair_hash{}, mask_hash{};
  for (size_t k = 0; k < used; ++k) {
    near_hash[k] = add.fetch(kHashNear, c.hash[n + k], uint32_t(near_key[k]));
    pair_hash[k] = add.fetch(kHashPair, c.hash[n + k], last_hash);
    mask_hash[k] = add.fetch(kHashMask, c.hash[n + k], uint32_t(mask[k]));
  }
  if (f.near_m) {
    add.some(kNearJump, near_m, place(Of{m, 11}, Of{of_jump(near_j, far_off), 12}, Of{gap, 7}));
    add.some(kNearLine, near_m,
             place(Of{line, 2}, Of{m, 11}, Of{above(near_j, -1) + above(near_j, 0), 3},
                   Of{of_count(near_count), 5}));
  }
  add.all(kNearBest,
          place(Of{m, 11}, Of{best, 11}, Of{of_share(near_count, std::max(f.near_count, 1)), 5}));
  add.all(kLookPair, place(Of{look, 8}, Of{last_look, 8}, Of{m6, 6}));
  add.all(kZeroGap, place(Of{kind, 8}, Of{gap, 7}, Of{m4, 4}));
  add.all(kPointerRun, place(Of{pointer, 2}, Of{run, 7}, Of{gap, 7}, Of{best6, 6}));
  if (f.far_m) {
    add.some(kFar, far_m,
             place(Of{of_match(far_m), 11}, Of{of_share(far_count, f.far_count), 5}, Of{m4, 4},
                   Of{best4, 4}));
    add.all(kFarNear, place(Of{of_match6(far_m), 6}, Of{best_far6, 6}, Of{m6, 6}));
  }
  if (f.out_m) {
    add.some(kOut, out_m,
             place(Of{of_match(out_m), 11}, Of{of_share(out_count, f.out_count), 5},
                   Of{of_back(out_back), 4}, Of{best4, 4}));
    add.all(kOutNear, place(Of{out6, 6}, Of{best_out6, 6}, Of{m6, 6}, Of{best6, 6}));
  }
  if (f.files_m) {
    add.some(kFiles, files_m,
             place(Of{of_match(files_m), 11}, Of{files_prob, 6}, Of{files_rank, 4}, Of{best4, 4}));
    add.all(kFilesNear, place(Of{files6, 6}, Of{files_prob, 6}, Of{m6, 6}, Of{out4, 4}));
  }
  if (f.ngram_order) {
    add.all(kNgram, place(Of{order, 4}, Of{share, 6}, Of{m6, 6}, Of{best6, 6}));
    add.all(kNgramOut, place(Of{order, 4}, Of{share, 6}, Of{out6, 6}, Of{best_out6, 6}));
  }
  if (f.ruled) {
    add.some(kRule, rule, place(Of{rule, 3}, Of{hits, 6}, Of{misses, 4}, Of{m4, 4}));
    add.some(kRuleNear, rule, place(Of{rule, 3}, Of{std::min(run, 5), 6}, Of{m6, 6}));
  }
  add.all(kMask, place(Of{mask, 256}, Of{best6, 6}));
  add.all(kMaskLook, place(Of{mask, 256}, Of{look, 8}));
  add.all(kZeroOut, place(Of{kind, 8}, Of{out6, 6}, Of{files6, 6}));
  if (f.recycled_share >= 0) {
    add.all(kRecycledNear, place(Of{recycled, 9}, Of{m6, 6}, Of{out6, 6}));
    add.all(kRecycledLook, place(Of{recycled, 9}, Of{look, 8}, Of{last_look, 8}));
    add.all(kRecycledBest,
            place(Of{recycled, 9}, Of{recycled_share, 6}, Of{best6, 6}, Of{best_out6, 6}));
  }
  if (f.shape_count) {
    add.all(kShape, place(Of{of_match6(shape_m), 6}, Of{of_share(shape_count, f.shape_count), 5},
                          Of{m6, 6}, Of{out4, 4}));
    add.all(kShapeLook, place(Of{of_match6(shape_m), 6}, Of{look, 8}, Of{last_look, 8}));
  }
  if (f.loose) {
    const Lanes loose = around | recent;
    add.some(kLoose, loose, place(Of{of_gap(around), 7}, Of{of_gap(recent), 7}, Of{best6, 6}));
    add.some(kLooseLook, loose,
             place(Of{above(around, 0) + above(recent, 0) * int16_t(2), 4}, Of{look, 8},
                   Of{last_look, 8}));
  }
  add.by_hash(kHashNear, near_hash);
  add.by_hash(kHashPair, pair_hash);
  add.by_hash(kHashMask, mask_hash);
}

// Sums the weights of "none of them" and records its features.
float add_none(const Field& f, const View& v, bool brief, const float* weights, Scored& out) {
  float sum = 0;
  const auto put = [&](uint32_t index) {
    out.none_features[out.none_count++] = index;
    sum += weights[index];
  };
  const auto add = [&](Name name, std::initializer_list<Of<unsigned>> parts) {
    uint32_t index = 0;
    for (const Of<unsigned>& part : parts) index = index * uint32_t(part.size) + part.value;
    put(kStarts[name] + index);
  };
  const int32_t last = v.tail_size ? v.tail_end[-1] : kBorder;
  const unsigned gap = unsigned(of_gap(v.at.gap)), run = of_run(v.at.run);
  const unsigned best = unsigned(of_match(f.near_m)), best6 = unsigned(of_match6(f.near_m));
  const unsigned out6 = unsigned(of_match6(f.out_m));
  const unsigned rule = brief ? 2 : v.at.rule >= 0, many = unsigned(f.tokens.size()) / 8;
  add(kNoneGap, {{best, 11}, {gap, 7}, {run, 7}});
  add(kNoneLook, {{v.vocabulary->look(last), 8}, {best, 11}, {std::min(gap, 3u), 4}});
  add(kNoneBest,
      {{best6, 6}, {out6, 6}, {unsigned(of_match6(f.files_m)), 6}, {unsigned(f.ngram_order), 4}});
  add(kNoneOut, {{unsigned(of_match(f.out_m)), 11}, {unsigned(of_match6(f.far_m)), 6}, {rule, 3}});
  add(kNoneSeen, {{std::min(many, 5u), 6}, {gap, 7}, {unsigned(of_match6(f.shape_m)), 6}});
  if (f.recycled_share >= 0)
    add(kNoneRecycled, {{kOfByte[size_t(f.recycled_share)], 6}, {best6, 6}, {out6, 6}});
  put(kStarts[kHashNone] + hashed(v.vocabulary->hash(last), uint32_t(of_match4(f.near_m))));
  return sum;
}

}  // namespace

size_t weight_count() { return kStarts[kNames]; }

std::vector<std::pair<uint32_t, uint32_t>> recycling_weights() {
  return {{kStarts[kRecycledNear], kStarts[kRecycledBest + 1]},
          {kStarts[kNoneRecycled], kStarts[kNoneRecycled + 1]}};
}

std::string layout() {
  uint64_t mixed = 1;  // change this when the meaning of a feature changes
  for (const uint32_t size : kSizes) mixed = (mixed ^ size) * 0x9E3779B97F4A7C15ull;
  return std::to_string(mixed >> 16);
}

void Weights::reset(float square, float hashed) {
  values.resize(weight_count());
  squares.assign(weight_count(), square);
  std::fill(squares.begin() + kStarts[kHashNear], squares.end(), hashed);
}

int Scored::find(int32_t token) const {
  size_t n = 0;
  while (n < tokens.size() && tokens[n].token != token) ++n;
  return int(n);
}

void score(const View& view, const Weights& weights, Field& field, Scored& out, bool brief) {
  static thread_local Columns columns{};
  gather(view, field, brief);
  const size_t count = field.tokens.size();
  const float* const values = weights.values.data();
  out.stride = (count + kLanes - 1) / kLanes * kLanes;
  out.count = out.none_count = 0;
  out.rows.resize(kMostFeatures * out.stride);
  out.probs.resize(out.stride + 1);
  fill(field, *view.vocabulary, columns);
  for (size_t n = 0; n < count; n += kLanes) {
    const auto add = [&](auto eight) {
      features_of_eight(field, view, columns, n, eight);
      std::memcpy(out.probs.data() + n, &eight.low, sizeof(Floats));
      std::memcpy(out.probs.data() + n + kLanes / 2, &eight.high, sizeof(Floats));
      out.count = eight.row;
    };
    if (count - n > 2)
      add(Eight<kLanes>{values, out, n});
    else
      add(Eight<2>{values, out, n});
  }
  out.probs.resize(count + 1);
  out.probs[count] = add_none(field, view, brief, values, out);
  float most = -1e30f;
  for (const float sum : out.probs) most = std::max(most, sum);
  out.tokens.swap(field.tokens);
  float all = 0;
  for (float& p : out.probs) all += p = std::exp(p - most);
  for (float& p : out.probs) p /= all;
  out.none = out.probs.back();
  out.probs.pop_back();
}

void learn(const Scored& scored, int index, Weights& weights, float rate) {
  float* const values = weights.values.data();
  float* const squares = weights.squares.data();
  const size_t count = scored.tokens.size();
  const auto move = [&](uint32_t f, float slope) {
    squares[f] += slope * slope;
    values[f] -= rate * slope / std::sqrt(squares[f]);
  };
  for (size_t n = 0; n <= count; ++n) {
    const float slope = (n < count ? scored.probs[n] : scored.none) - float(n == size_t(index));
    if (std::abs(slope) < 1e-4f) continue;
    if (n == count) {
      for (size_t k = 0; k < scored.none_count; ++k) move(scored.none_features[k], slope);
      break;
    }
    uint32_t found[kMostFeatures];
    size_t many = 0;
    for (size_t row = 0; row < scored.count; ++row) {
      const uint16_t at = scored.rows[row * scored.stride + n];
      found[many] = scored.tables[row] + at;
      many += at != Scored::kNot;
    }
    for (size_t k = 0; k < many; ++k) move(found[k], slope);
  }
}

}  // namespace draftline::drafting
