// Where the answer stands in the text that it is expected to repeat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text.hpp"

namespace draftline::drafting {

constexpr int kBack = 64, kAhead = 256;  // tokens around the pointer that are near
constexpr int kLookBack = 12;            // agreeing tokens that decide where to go on

// A span of the expected text that was replaced, and by what.
struct Rule {
  std::vector<int32_t> old_tokens, new_tokens;
  int hits = 0, misses = 0;
};

// After `gap` tokens that are not the expected text's, its next token is at `pointer`; the last
// `run` ones agreed with it. Inside a rule, `stage` of its new tokens were written.
struct Alignment {
  int32_t pointer = 0, gap = 0, run = 0;
  int32_t rule = -1, stage = 0;
};

// Positions q in [first, last], which are near each other, with text[q - 1] == token, rising.
struct NearPlaces {
  int32_t places[kBack + kAhead + 2];
  int count = 0;
  const int32_t* begin() const { return places; }
  const int32_t* end() const { return places + count; }
};
void near_places(const Text& text, int32_t token, int32_t first, int32_t last, NearPlaces& found);

// The rules seen in this answer, by the first token of what they replace.
class Rules {
 public:
  static constexpr int kOld = 6, kNew = 8;  // tokens at most
  void clear();
  void learn(const int32_t* old_tokens, int old_size, const int32_t* new_tokens, int new_size);
  // The rule that replaces the longest span at `pointer`, -1: none.
  int at(const Text& text, int32_t pointer) const;
  Rule& operator[](int n) { return rules_[size_t(n)]; }
  const Rule& operator[](int n) const { return rules_[size_t(n)]; }

 private:
  std::vector<Rule> rules_;
};

// `after`: one past the token that was just written (the answer's tail, which ends with it).
// Sets `jumped` where the pointer was found again after a gap.
Alignment advance(const Alignment& at, const Text& text, const Rules& rules, const int32_t* after,
                  int32_t tail_size, bool* jumped);

}  // namespace draftline::drafting
