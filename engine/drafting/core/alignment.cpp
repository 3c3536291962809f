#include "alignment.hpp"

#include <algorithm>
#include <cstdlib>

#include "vocabulary.hpp"

namespace draftline::drafting {

DRAFTLINE_WIDE void near_places(const Text& text, int32_t token, int32_t first, int32_t last,
                                NearPlaces& found) {
  int count = 0;
  const int32_t* t = text.data();
  int32_t i = std::max(first, 1) - 1;
  const int32_t stop = std::min(last, text.size());  // q = i + 1 <= last
  for (; i + 16 <= stop; i += 16) {                  // matches are rare: compare sixteen at once
    int any = 0;
    for (int k = 0; k < 16; ++k) any |= t[i + k] == token;
    if (any)
      for (int k = 0; k < 16; ++k) {  // branch-free: matches are unpredictable
        found.places[count] = i + k + 1;
        count += t[i + k] == token;
      }
  }
  for (; i < stop; ++i)
    if (t[i] == token) found.places[count++] = i + 1;
  found.count = count;
}

void Rules::clear() { rules_.clear(); }

void Rules::learn(const int32_t* old_tokens, int old_size, const int32_t* new_tokens,
                  int new_size) {
  if (old_size < 1 || old_size > kOld || new_size < 0 || new_size > kNew) return;
  for (Rule& rule : rules_) {
    if (int(rule.old_tokens.size()) != old_size ||
        !std::equal(old_tokens, old_tokens + old_size, rule.old_tokens.begin()))
      continue;
    if (int(rule.new_tokens.size()) == new_size &&
        std::equal(new_tokens, new_tokens + new_size, rule.new_tokens.begin()))
      return;  // hits are counted on use
    rule = Rule{
        rule.old_tokens, {new_tokens, new_tokens + new_size}, 0, 0};  // the latest replacement wins
    return;
  }
  if (rules_.size() < 256)
    rules_.push_back(
        {{old_tokens, old_tokens + old_size}, {new_tokens, new_tokens + new_size}, 0, 0});
}

int Rules::at(const Text& text, int32_t pointer) const {
  int best = -1;
  size_t length = 0;
  for (size_t n = 0; n < rules_.size(); ++n) {
    const auto& old_tokens = rules_[n].old_tokens;
    if (old_tokens.size() <= length || pointer + int32_t(old_tokens.size()) > text.size() ||
        text[pointer] != old_tokens[0])
      continue;
    if (std::equal(old_tokens.begin(), old_tokens.end(), text.data() + pointer)) {
      best = int(n);
      length = old_tokens.size();
    }
  }
  return best;
}

Alignment advance(const Alignment& at, const Text& text, const Rules& rules, const int32_t* after,
                  int32_t tail_size, bool* jumped) {
  const int32_t token = after[-1];
  *jumped = false;
  if (at.rule >= 0) {
    const Rule& rule = rules[at.rule];
    if (at.stage < int(rule.new_tokens.size()) && rule.new_tokens[size_t(at.stage)] == token) {
      Alignment next = at;
      if (++next.stage == int(rule.new_tokens.size()))
        return {at.pointer + int32_t(rule.old_tokens.size()), 0, 1, -1, 0};
      ++next.gap;
      return next;
    }
  }
  if (at.gap == 0 && at.pointer < text.size() && text[at.pointer] == token)
    return {at.pointer + 1, 0, at.run + 1, -1, 0};
  if (at.gap == 0 && at.rule < 0) {
    const int n = rules.at(text, at.pointer);
    const int32_t past = n >= 0 ? at.pointer + int32_t(rules[n].old_tokens.size()) : 0;
    if (n >= 0 && rules[n].new_tokens.empty() && past < text.size() && text[past] == token)
      return {past + 1, 0, 1, -1, 0};
    if (n >= 0 && !rules[n].new_tokens.empty() && rules[n].new_tokens[0] == token) {
      if (rules[n].new_tokens.size() == 1)
        return {at.pointer + int32_t(rules[n].old_tokens.size()), 0, 1, -1, 0};
      return {at.pointer, 1, 0, n, 1};
    }
  }
  NearPlaces places;
  near_places(text, token, at.pointer - kBack, at.pointer + kAhead, places);
  int best_spare = -1;
  int32_t best = -1, best_run = 0;
  for (const int32_t q : places) {
    const int32_t j = q - at.pointer;
    const int m = agree(text.data(), q, after, tail_size, kLookBack);
    int need;
    if (0 < at.gap && at.gap <= 3 && j == at.gap + 1)
      need = 1;  // as many tokens replaced as were written
    else if (j >= 0)
      need = 2 + 3 * (j > at.gap + 4) + 2 * (j > 32) + 2 * (j > 128);
    else
      need = j < -32 ? 12 : 7;
    const int spare = m - need;
    if (spare < 0) continue;
    if (spare > best_spare || (spare == best_spare && std::abs(j) < std::abs(best - at.pointer))) {
      best_spare = spare;
      best = q;
      best_run = m;
    }
  }
  if (best >= 0) {
    *jumped = true;
    return {best, 0, best_run, -1, 0};
  }
  return {at.pointer, at.gap + 1, 0, -1, 0};
}

}  // namespace draftline::drafting
