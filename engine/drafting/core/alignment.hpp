// Alignment of the answer with the text it is expected to repeat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text.hpp"

namespace draftline::drafting {

constexpr int kBack = 64, kAhead = 256;  // tokens before and after the pointer that count as near
constexpr int kLookBack = 12;            // matching tokens compared when re-aligning

// A substitution observed in this answer: a span of the expected text and its replacement.
struct Rule {
  std::vector<int32_t> old_tokens, new_tokens;
  int hits = 0, misses = 0;
};

// The next expected token is at `pointer`. Either the last `run` tokens matched, or the last `gap`
// tokens did not. Inside substitution `rule`, `stage` of its new tokens were written.
struct Alignment {
  int32_t pointer = 0, gap = 0, run = 0;
  int32_t rule = -1, stage = 0;
};

// Positions q in [first, last] with text[q - 1] == token, in ascending order.
struct NearPlaces {
  int32_t places[kBack + kAhead + 2];
  int count = 0;
  const int32_t* begin() const { return places; }
  const int32_t* end() const { return places + count; }
};
void near_places(const Text& text, int32_t token, int32_t first, int32_t last, NearPlaces& found);

// The substitutions observed in this answer.
class Rules {
 public:
  static constexpr int kOld = 6, kNew = 8;  // maximum tokens of either side
  void clear();
  void learn(const int32_t* old_tokens, int old_size, const int32_t* new_tokens, int new_size);
  // The rule whose old span at `pointer` is longest, or -1.
  int at(const Text& text, int32_t pointer) const;
  Rule& operator[](int n) { return rules_[size_t(n)]; }
  const Rule& operator[](int n) const { return rules_[size_t(n)]; }

 private:
  std::vector<Rule> rules_;
};

// Advances the alignment by the last written token. `after` points one past it, `tail_size` tokens
// before it are readable. Sets `jumped` if the pointer was re-aligned.
Alignment advance(const Alignment& at, const Text& text, const Rules& rules, const int32_t* after,
                  int32_t tail_size, bool* jumped);

}  // namespace draftline::drafting
