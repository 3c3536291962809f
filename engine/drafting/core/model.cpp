// Features and learning as in model.hpp.
#include "model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace draftline::drafting {
namespace {

constexpr uint32_t kHashed = 1 << 14;  // weights of each hashed feature

unsigned of_match(int m) {  // 11
  constexpr uint8_t small[] = {0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7};
  return m < 16 ? small[m] : m < 32 ? 8 : m < 64 ? 9 : 10;
}
unsigned of_match4(int m) { return m == 0 ? 0 : m < 3 ? 1 : m < 8 ? 2 : 3; }
unsigned of_match6(int m) { return m < 3 ? unsigned(m) : m < 6 ? 3 : m < 16 ? 4 : 5; }
unsigned of_jump(int j, int gap) {  // 12
  if (j == 0) return 0;
  if (j == gap && gap) return 1;
  if (j < 0) return j >= -8 ? 2 : 3;
  return j == 1 ? 4 : j == 2 ? 5 : j <= 4 ? 6 : j <= 8 ? 7 : j <= 16 ? 8 : j <= 64 ? 9 : j <= 128 ? 10 : 11;
}
unsigned of_gap(int gap) {  // 7
  return gap < 3 ? unsigned(gap) : gap < 5 ? 3 : gap < 9 ? 4 : gap < 17 ? 5 : 6;
}
unsigned of_run(int run) {  // 7
  return run < 2 ? unsigned(run) : run < 4 ? 2 : run < 8 ? 3 : run < 16 ? 4 : run < 32 ? 5 : 6;
}
unsigned of_share(int count, int all) {  // 5
  if (count >= all) return 4;
  const int share = count * 16 / all;
  return share >= 12 ? 3 : share >= 8 ? 2 : share >= 3 ? 1 : 0;
}
unsigned of_count(int count) { return count < 3 ? unsigned(count) : count < 6 ? 3 : 4; }  // 5
unsigned of_back(int back) { return back < 16 ? 0 : back < 64 ? 1 : back < 512 ? 2 : 3; }  // 4
unsigned of_prob(float p) {  // 6
  return p > 0.95f ? 5 : p > 0.7f ? 4 : p > 0.4f ? 3 : p > 0.2f ? 2 : p > 0.07f ? 1 : 0;
}
unsigned of_zero(unsigned zero) {  // 8: the strongest kind
  if (!zero) return 0;
  return 1 + unsigned(std::countr_zero(zero));
}

// Every feature has a table of its own; tables lie one after another.
struct Table {
  uint32_t size;
};
enum Name : size_t {
  kNearJump, kNearLine, kNearBest, kLooks, kZeroGap, kPointerRun, kFar, kFarNear, kOut, kOutNear,
  kFiles, kFilesNear, kNgram, kNgramOut, kRule, kRuleNear, kMask, kMaskLook, kZeroOut, kRecycledNear, kRecycledLook, kRecycledBest, kShape, kShapeLook, kLoose, kLooseLook,
  kNoneGap, kNoneLook, kNoneBest, kNoneOut, kNoneSeen, kNoneRecycled, kHashNear, kHashPair, kHashMask, kHashNone,
  kNames
};
constexpr std::array<uint32_t, kNames> kSizes = {
    11 * 12 * 7,          // kNearJump: m, jump, gap
    2 * 11 * 3 * 5,       // kNearLine: at a line's start, m, sign of the jump, places
    11 * 11 * 5,          // kNearBest: m, the best m, share of the places
    8 * 8 * 6,            // kLooks: of the token, of the one before, m
    8 * 7 * 4,            // kZeroGap: kind, gap, m
    2 * 7 * 7 * 6,        // kPointerRun: the pointer's token, run, gap, the best m
    11 * 5 * 4 * 4,       // kFar: m, share, near m, best near m
    6 * 6 * 6,            // kFarNear: m, best far m, near m
    11 * 5 * 4 * 4,       // kOut: m, share, recency, best near m
    6 * 6 * 6 * 6,        // kOutNear: m, best out m, near m, best near m
    11 * 6 * 4 * 4,       // kFiles: m, probability, rank, best near m
    6 * 6 * 6 * 4,        // kFilesNear: m, probability, near m, out m
    4 * 6 * 6 * 6,        // kNgram: order, share, near m, best near m
    4 * 6 * 6 * 6,        // kNgramOut: order, share, out m, best out m
    3 * 6 * 4 * 4,        // kRule: kind, hits, misses, near m
    3 * 6 * 6,            // kRuleNear: kind, run, near m
    256 * 6,              // kMask: sources that offer it, the best near m
    256 * 8,              // kMaskLook: the same, look
    8 * 6 * 6,            // kZeroOut: kind, out m, files m
    9 * 6 * 6,            // kRecycledNear: rank, near m, out m
    9 * 8 * 8,            // kRecycledLook: rank, look, of the one before
    9 * 6 * 6 * 6,        // kRecycledBest: rank, share, best near m, best out m
    6 * 5 * 6 * 4,        // kShape: m, share, near m, out m
    6 * 8 * 8,            // kShapeLook: m, look, of the one before
    7 * 7 * 6,            // kLoose: around, recent, best near m
    4 * 8 * 8,            // kLooseLook: both, look, of the one before
    11 * 7 * 7,           // kNoneGap: best near m, gap, run
    8 * 11 * 4,           // kNoneLook: look of the last, best near m, gap
    6 * 6 * 6 * 4,        // kNoneBest: best near, out and files m, n-gram's order
    11 * 6 * 3,           // kNoneOut: best out m, best far m, rule
    6 * 7 * 6,            // kNoneSeen: number of tokens, gap, best shape m
    6 * 6 * 6,            // kNoneRecycled: the best one's share, best near m, best out m
    kHashed, kHashed, kHashed, kHashed};

constexpr std::array<uint32_t, kNames + 1> starts() {
  std::array<uint32_t, kNames + 1> at{};
  for (size_t n = 0; n < kNames; ++n) at[n + 1] = at[n] + kSizes[n];
  return at;
}
constexpr auto kStarts = starts();

constexpr size_t kMostFeatures = 36;  // of one token

// Adds up weights and notes whose they are.
struct Adder {
  const float* weights;
  uint32_t* out;
  float sum = 0;
  void put(uint32_t index) {
    *out++ = index;
    sum += weights[index];
  }
  template <class... Pairs>
  void operator()(Name name, Pairs... pairs) {  // (value, how many) ...
    uint32_t index = 0;
    ((index = index * uint32_t(pairs.second) + uint32_t(pairs.first)), ...);
    put(kStarts[name] + index);
  }
  void hashed(Name name, uint32_t a, uint32_t b) {
    uint64_t x = (uint64_t(a) << 32 | b) * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93ull;
    put(kStarts[name] + uint32_t(x >> 40) % kHashed);
  }
};

using P = std::pair<unsigned, unsigned>;

void features_of(const Evidence& e, const Field& f, const View& v, Adder& add) {
  const Vocabulary& vocabulary = *v.vocabulary;
  const int32_t last = v.tail_size ? v.tail_end[-1] : kBorder;
  const unsigned gap = of_gap(v.at.gap), run = of_run(v.at.run);
  const unsigned m = of_match(e.near_m), m4 = of_match4(e.near_m), m6 = of_match6(e.near_m);
  const unsigned best4 = of_match4(f.near_m), best6 = of_match6(f.near_m);
  const unsigned out6 = of_match6(e.out_m), files6 = of_match6(e.files_m);
  const unsigned look = vocabulary.look(e.token), last_look = vocabulary.look(last);
  const unsigned line = vocabulary.starts_line(last);
  const unsigned pointer = e.zero & kPointer;
  const unsigned mask = unsigned(e.near_m > 0) | pointer << 1 | unsigned(e.far_m > 0) << 2 |
                        unsigned(e.out_m > 0) << 3 | unsigned(e.files_m > 0) << 4 |
                        unsigned(e.ngram_order > 0) << 5 | unsigned(e.rule > 0) << 6 |
                        unsigned((e.zero & ~unsigned(kPointer)) != 0) << 7;
  if (e.near_m) {
    add(kNearJump, P{m, 11}, P{of_jump(e.near_j, v.at.gap), 12}, P{gap, 7});
    add(kNearLine, P{line, 2}, P{m, 11}, P{e.near_j < 0 ? 0 : e.near_j ? 2 : 1, 3},
        P{of_count(e.near_count), 5});
  }
  add(kNearBest, P{m, 11}, P{of_match(f.near_m), 11},
      P{f.near_count ? of_share(e.near_count, f.near_count) : 0, 5});
  add(kLooks, P{look, 8}, P{last_look, 8}, P{m6, 6});
  add(kZeroGap, P{of_zero(e.zero), 8}, P{gap, 7}, P{m4, 4});
  add(kPointerRun, P{pointer, 2}, P{run, 7}, P{gap, 7}, P{best6, 6});
  if (e.far_m) {
    add(kFar, P{of_match(e.far_m), 11}, P{of_share(e.far_count, f.far_count), 5}, P{m4, 4}, P{best4, 4});
  }
  if (f.far_m) add(kFarNear, P{of_match6(e.far_m), 6}, P{of_match6(f.far_m), 6}, P{m6, 6});
  if (e.out_m)
    add(kOut, P{of_match(e.out_m), 11}, P{of_share(e.out_count, f.out_count), 5},
        P{of_back(e.out_back), 4}, P{best4, 4});
  if (f.out_m) add(kOutNear, P{out6, 6}, P{of_match6(f.out_m), 6}, P{m6, 6}, P{best6, 6});
  if (e.files_m) {
    add(kFiles, P{of_match(e.files_m), 11}, P{of_prob(e.files_prob), 6},
        P{std::min<unsigned>(unsigned(e.files_rank), 3), 4}, P{best4, 4});
  }
  if (f.files_m) add(kFilesNear, P{files6, 6}, P{of_prob(e.files_prob), 6}, P{m6, 6}, P{of_match4(e.out_m), 4});
  const float share = float(e.ngram_share) / 255;
  if (f.ngram_order) {
    add(kNgram, P{e.ngram_order, 4}, P{of_prob(share), 6}, P{m6, 6}, P{best6, 6});
    add(kNgramOut, P{e.ngram_order, 4}, P{of_prob(share), 6}, P{out6, 6}, P{of_match6(f.out_m), 6});
  }
  if (e.rule) {
    add(kRule, P{e.rule, 3}, P{std::min<unsigned>(e.rule_hits, 5), 6},
        P{std::min<unsigned>(e.rule_misses, 3), 4}, P{m4, 4});
    add(kRuleNear, P{e.rule, 3}, P{std::min(run, 5u), 6}, P{m6, 6});
  }
  add(kMask, P{mask, 256}, P{best6, 6});
  add(kMaskLook, P{mask, 256}, P{look, 8});
  add(kZeroOut, P{of_zero(e.zero), 8}, P{out6, 6}, P{files6, 6});
  if (f.recycled_share >= 0) {
    add(kRecycledNear, P{e.recycled, 9}, P{m6, 6}, P{out6, 6});
    add(kRecycledLook, P{e.recycled, 9}, P{look, 8}, P{last_look, 8});
    add(kRecycledBest, P{e.recycled, 9}, P{of_prob(float(e.recycled_share) / 255), 6}, P{best6, 6},
        P{of_match6(f.out_m), 6});
  }
  if (f.shape_count) {
    add(kShape, P{of_match6(e.shape_m), 6}, P{of_share(e.shape_count, f.shape_count), 5}, P{m6, 6},
        P{of_match4(e.out_m), 4});
    add(kShapeLook, P{of_match6(e.shape_m), 6}, P{look, 8}, P{last_look, 8});
  }
  if (e.around | e.recent) {
    add(kLoose, P{of_gap(e.around), 7}, P{of_gap(e.recent), 7}, P{best6, 6});
    add(kLooseLook, P{unsigned(e.around > 0) + 2u * unsigned(e.recent > 0), 4}, P{look, 8}, P{last_look, 8});
  }
  const uint32_t hash = vocabulary.hash(e.token);
  add.hashed(kHashNear, hash, m4 * 2 + (pointer != 0));
  add.hashed(kHashPair, hash, vocabulary.hash(last));
  add.hashed(kHashMask, hash, mask);
}

void features_of_none(const Field& f, const View& v, bool brief, Adder& add) {
  const int32_t last = v.tail_size ? v.tail_end[-1] : kBorder;
  const unsigned gap = of_gap(v.at.gap), run = of_run(v.at.run);
  const unsigned best = of_match(f.near_m), best6 = of_match6(f.near_m);
  add(kNoneGap, P{best, 11}, P{gap, 7}, P{run, 7});
  add(kNoneLook, P{v.vocabulary->look(last), 8}, P{best, 11}, P{std::min(gap, 3u), 4});
  add(kNoneBest, P{best6, 6}, P{of_match6(f.out_m), 6}, P{of_match6(f.files_m), 6},
      P{unsigned(f.ngram_order), 4});
  add(kNoneOut, P{of_match(f.out_m), 11}, P{of_match6(f.far_m), 6},
      P{brief ? 2 : v.at.rule >= 0, 3});
  add(kNoneSeen, P{std::min<unsigned>(unsigned(f.tokens.size()) / 8, 5), 6}, P{gap, 7},
      P{of_match6(f.shape_m), 6});
  if (f.recycled_share >= 0)
    add(kNoneRecycled, P{of_prob(float(f.recycled_share) / 255), 6}, P{best6, 6}, P{of_match6(f.out_m), 6});
  add.hashed(kHashNone, v.vocabulary->hash(last), of_match4(f.near_m));
}

}  // namespace

size_t weight_count() { return kStarts[kNames]; }

std::vector<std::pair<uint32_t, uint32_t>> recycling_weights() {
  return {{kStarts[kRecycledNear], kStarts[kRecycledBest + 1]}, {kStarts[kNoneRecycled], kStarts[kNoneRecycled + 1]}};
}

std::string layout() {
  uint64_t mixed = 1;  // change this with what a feature means
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
  gather(view, field, brief);
  out.starts.clear();
  out.probs.clear();
  const size_t count = field.tokens.size();
  out.features.resize((count + 1) * kMostFeatures);
  Adder add{weights.values.data(), out.features.data()};
  float most = -1e30f;
  for (size_t n = 0; n <= count; ++n) {
    out.starts.push_back(uint32_t(add.out - out.features.data()));
    add.sum = 0;
    if (n < count)
      features_of(field.tokens[n], field, view, add);
    else
      features_of_none(field, view, brief, add);
    out.probs.push_back(add.sum);
    most = std::max(most, add.sum);
  }
  out.starts.push_back(uint32_t(add.out - out.features.data()));
  out.tokens.swap(field.tokens);
  float all = 0;
  for (float& p : out.probs) all += p = std::exp(p - most);
  for (float& p : out.probs) p /= all;
  out.none = out.probs.back();
  out.probs.pop_back();
}

void learn(const Scored& scored, int index, Weights& weights, float rate) {
  const int count = int(scored.tokens.size());
  for (int n = 0; n <= count; ++n) {
    const float slope = (n < count ? scored.probs[size_t(n)] : scored.none) - float(n == index);
    if (std::abs(slope) < 1e-4f) continue;
    for (uint32_t i = scored.starts[size_t(n)]; i < scored.starts[size_t(n) + 1]; ++i) {
      const uint32_t f = scored.features[i];
      weights.squares[f] += slope * slope;
      weights.values[f] -= rate * slope / std::sqrt(weights.squares[f]);
    }
  }
}

}  // namespace draftline::drafting
