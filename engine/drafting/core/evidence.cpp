#include "evidence.hpp"

#include <algorithm>
#include <cstdlib>

namespace draftline::drafting {
namespace {

constexpr int kAgree = 128;  // matching tokens that are counted
constexpr int kNear = 12;    // near occurrences considered
constexpr int kBriefBack = 16, kBriefAhead = 48,
              kBriefNear = 4;              // the same in brief mode, in tokens
constexpr int kLooked[] = {8, 12, 8};      // occurrences per chain, longest tails first
constexpr int kShapes = 16;                // occurrences of equal shape
constexpr int kAround = 12, kRecent = 32;  // nearby tokens offered without a match
constexpr int kRecycled = 8;               // successors taken from the Token Recycling table
constexpr int kUnsure = 4;                 // match length below which weak sources are used, too
constexpr int kLine2 = 64;                 // tokens searched for line starts

struct Near {
  int32_t place;
  int m, j;
};

void near(const View& v, Field& field, bool brief) {
  NearPlaces places;
  Near found[kBack + kAhead + 1];
  const Text& text = *v.expected;
  if (!v.tail_size) return;
  near_places(text, v.tail_end[-1], v.at.pointer - (brief ? kBriefBack : kBack),
              v.at.pointer + (brief ? kBriefAhead : kAhead), places);
  size_t count = 0;
  for (const int32_t q : places)
    if (q < text.size() && text[q] != kBorder)
      found[count++] = {q, agree(text.data(), q, v.tail_end, v.tail_size, kAgree),
                        q - v.at.pointer};
  const auto better = [](const Near& a, const Near& b) {
    return a.m != b.m ? a.m > b.m : std::abs(a.j) < std::abs(b.j);
  };
  const size_t most = brief ? kBriefNear : kNear;
  if (count > most) {
    std::partial_sort(found, found + most, found + count, better);
    count = most;
  }
  for (size_t n = 0; n < count; ++n) {
    const Near& one = found[n];
    field.near_m = std::max(field.near_m, one.m);
    ++field.near_count;
    Evidence& e = field.of(text[one.place]);
    ++e.near_count;
    if (one.m > e.near_m || (one.m == e.near_m && std::abs(one.j) < std::abs(e.near_j))) {
      e.near_m = int16_t(one.m);
      e.near_j = one.j;
      e.place = one.place;
    }
  }
}

void zero(const View& v, Field& field) {
  const Text& text = *v.expected;
  const auto offer = [&](int32_t place, uint8_t kind) {
    if (place < 0 || place >= text.size() || text[place] == kBorder) return;
    Evidence& e = field.of(text[place]);
    e.zero |= kind;
    if (e.place < 0) e.place = place;
  };
  const int32_t p = v.at.pointer;
  offer(p, kPointer);
  if (v.at.gap > 0) {
    offer(p + 1, kNext);
    offer(p + 2, kSecond);
    offer(p + v.at.gap, kReplaced);
  }
  if (v.tail_size && v.vocabulary->starts_line(v.tail_end[-1])) {
    int lines = 0;
    for (int32_t i = p; i < std::min(p + kLine2, text.size() - 1) && lines < 3; ++i)
      if (v.vocabulary->starts_line(text[i])) offer(i + 1, lines++ ? kLater : kLine);
    for (int32_t i = p - 2; i >= std::max(p - kLine2, 0); --i)
      if (i + 1 < text.size() && v.vocabulary->starts_line(text[i])) {
        offer(i + 1, kSameLine);
        break;
      }
  }
}

// Calls f(position, matching tokens) for occurrences in a text, longest tails first.
template <class F>
void each_place(const Text& text, const View& v, const uint64_t* keys, F f) {
  int known = kAgree + 1;  // occurrences with at least this match were visited
  for (int n = 2; n >= 0; --n) {
    int looked = 0;
    bool whole = true;
    for (int32_t q = text.newest(n, keys[n]); q > 0; q = text.older(n, q)) {
      if (looked++ == kLooked[2 - n]) {
        whole = false;
        break;
      }
      const int m = agree(text.data(), q, v.tail_end, v.tail_size, kAgree);
      if (q < text.size() && text[q] != kBorder && m >= Text::kOrders[n] && m < known) f(q, m);
    }
    if (looked > (n == 1 ? 0 : 3)) break;  // shorter tails add little once longer ones are found
    known = whole ? Text::kOrders[n] : known;
  }
}

void far(const View& v, const uint64_t* keys, Field& field) {
  const Text& text = *v.expected;
  const int32_t low = v.at.pointer - kBack, high = v.at.pointer + kAhead;
  each_place(text, v, keys, [&](int32_t q, int m) {
    if (low <= q && q <= high) return;
    field.far_m = std::max(field.far_m, m);
    ++field.far_count;
    Evidence& e = field.of(text[q]);
    ++e.far_count;
    if (m > e.far_m) {
      e.far_m = int16_t(m);
      if (!e.near_m && !e.zero) e.place = q;
    }
  });
}

void output(const View& v, const uint64_t* keys, Field& field) {
  const Text& text = *v.output;
  each_place(text, v, keys, [&](int32_t q, int m) {
    field.out_m = std::max(field.out_m, m);
    ++field.out_count;
    Evidence& e = field.of(text[q]);
    ++e.out_count;
    if (m > e.out_m) {
      e.out_m = int16_t(m);
      e.out_back = text.size() + v.drafted - q;
      e.out_place = q;
    }
  });
}

void shapes(const View& v, const Text& text, uint64_t key, Field& field) {
  int looked = 0;
  for (int32_t q = text.newest(Text::kShape, key); q > 0 && looked < kShapes;
       q = text.older(Text::kShape, q), ++looked) {
    if (q >= text.size() || text[q] == kBorder) continue;
    const int m = agree(text.shapes(), q, v.shapes_end, v.tail_size, 24);
    if (m < 3) continue;
    field.shape_m = std::max(field.shape_m, m);
    ++field.shape_count;
    Evidence& e = field.of(text[q]);
    ++e.shape_count;
    e.shape_m = std::max(e.shape_m, uint8_t(m));
  }
}

void loose(const View& v, Field& field) {
  field.loose = true;
  const Text& text = *v.expected;
  const int32_t p = v.at.pointer;
  for (int32_t i = 0; i < kAround; ++i) {
    if (p + i < text.size() && text[p + i] != kBorder) {
      Evidence& e = field.of(text[p + i]);
      if (!e.around) e.around = uint8_t(1 + i);
      if (e.place < 0) e.place = p + i;
    }
  }
  const Text& out = *v.output;
  for (int32_t i = 1; i <= kRecent && i <= out.size(); ++i) {
    if (out[out.size() - i] == kBorder) break;
    Evidence& e = field.of(out[out.size() - i]);
    if (!e.recent) e.recent = uint8_t(i);
  }
}

void files(const View& v, Field& field) {
  if (v.files_node < -1 || v.files->tokens.empty()) return;
  const Files& tree = *v.files;
  int n = v.files_node < 0 ? tree.root : tree.first[size_t(v.files_node)];
  const int m = std::min(32, tree.match + v.drafted);
  for (int rank = 0; n >= 0 && rank < 10; n = tree.next[size_t(n)], ++rank) {
    if (!v.vocabulary->has(tree.tokens[size_t(n)])) continue;  // of a damaged index
    field.files_m = m;
    Evidence& e = field.of(tree.tokens[size_t(n)]);
    e.files_m = int16_t(m);
    e.files_prob = tree.probs[size_t(n)];
    e.files_node = int16_t(n);
    e.files_rank = int16_t(rank);
  }
}

void ngram(const View& v, Field& field) {
  for (int order = std::min<int>(Ngram::kOrders, v.tail_size); order >= 1; --order) {
    const Ngram::Entry* entry = v.ngram->find(v.tail_end, order);
    if (!entry) continue;
    field.ngram_order = std::max(field.ngram_order, order);
    for (int n = 0; n < Ngram::kTop && entry->tokens[n] >= 0; ++n) {
      Evidence& e = field.of(entry->tokens[n]);
      if (!e.ngram_order) {
        e.ngram_order = uint8_t(order);
        e.ngram_share = entry->shares[n];
        e.ngram_seen = entry->seen;
      } else if (!e.ngram_low) {
        e.ngram_low = entry->shares[n];
      }
    }
  }
}

void rules(const View& v, Field& field) {
  const Text& text = *v.expected;
  const auto offer = [&](int n, int32_t token, uint8_t kind) {
    const Rule& rule = (*v.rules)[n];
    Evidence& e = field.of(token);
    e.rule = kind;
    field.ruled = true;
    e.rule_hits = uint8_t(std::min(rule.hits, 255));
    e.rule_misses = uint8_t(std::min(rule.misses, 255));
  };
  if (v.at.rule >= 0) {
    const Rule& rule = (*v.rules)[v.at.rule];
    if (v.at.stage < int(rule.new_tokens.size()))
      offer(v.at.rule, rule.new_tokens[size_t(v.at.stage)], 2);
  } else if (v.at.gap == 0) {
    const int n = v.at.pointer < text.size() ? v.rules->at(text, v.at.pointer) : -1;
    if (n < 0) return;
    const Rule& rule = (*v.rules)[n];
    const int32_t past = v.at.pointer + int32_t(rule.old_tokens.size());
    if (!rule.new_tokens.empty())
      offer(n, rule.new_tokens[0], 1);
    else if (past < text.size() && text[past] != kBorder)
      offer(n, text[past], 1);
  }
}

void recycled(const View& v, Field& field) {
  const int32_t* row = v.recycling && v.tail_size ? v.recycling->row(v.tail_end[-1]) : nullptr;
  if (!row || row[0] < 0) return;
  const uint8_t* shares = v.recycling->shares(v.tail_end[-1]);
  field.recycled_share = shares[0];
  for (int n = 0; n < std::min(kRecycled, v.recycling->width()) && row[n] >= 0; ++n) {
    Evidence& e = field.of(row[n]);
    e.recycled = uint8_t(n + 1);
    e.recycled_share = shares[n];
  }
}

}  // namespace

void Field::clear(const Vocabulary* known) {
  vocabulary_ = known;
  tokens.clear();
  std::fill(std::begin(slots_), std::end(slots_), uint8_t(0));
  near_m = far_m = out_m = files_m = near_count = far_count = out_count = ngram_order = shape_m =
      shape_count = 0;
  recycled_share = -1;
  ruled = loose = false;
}

void Files::clear() {
  tokens.clear();
  root = -1;
  match = 0;
}

void Files::set(const int32_t* t, const int32_t* p, const double* prob, size_t size, int matched) {
  tokens.assign(t, t + size);
  parents.assign(p, p + size);
  probs.assign(prob, prob + size);
  first.assign(size, -1);
  next.assign(size, -1);
  root = -1;
  match = std::clamp(matched, 0, 32);
  for (size_t n = size; n-- > 0;) {  // parents precede children; siblings are best first
    int32_t& head = parents[n] < 0 ? root : first[size_t(parents[n])];
    next[n] = head;
    head = int32_t(n);
  }
}

void gather(const View& view, Field& field, bool brief) {
  field.clear(view.vocabulary);
  uint64_t keys[Text::kChains];
  if (!brief) {  // the tables are large: prefetch their cache lines
    for (int n = 0; n < Text::kChains; ++n) {
      keys[n] = Text::key(n, n == Text::kShape ? view.shapes_end : view.tail_end, view.tail_size);
      view.expected->prefetch(n, keys[n]);
      view.output->prefetch(n, keys[n]);
    }
    for (int order = 1; order <= std::min<int>(Ngram::kOrders, view.tail_size); ++order)
      view.ngram->prefetch(view.tail_end, order);
  }
  const auto with = [&](Part part) { return !(view.without & part); };
  if (with(kNearPart)) near(view, field, brief);
  if (with(kZeroPart)) zero(view, field);
  if (with(kRulesPart)) rules(view, field);
  if (brief) return;
  if (with(kFarPart)) far(view, keys, field);
  if (with(kOutputPart)) output(view, keys, field);
  if (with(kFilesPart)) files(view, field);
  if (with(kLibraryPart)) ngram(view, field);
  if (std::max(field.near_m, field.out_m) >= kUnsure) return;
  if (with(kRecycledPart)) recycled(view, field);
  if (view.drafted > 1) return;
  if (with(kFormPart)) {
    shapes(view, *view.output, keys[Text::kShape], field);
    shapes(view, *view.expected, keys[Text::kShape], field);
  }
  if (with(kAroundPart)) loose(view, field);
}

}  // namespace draftline::drafting
