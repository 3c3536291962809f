// Evidence for each candidate of the next token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "alignment.hpp"
#include "ngram.hpp"
#include "recycling.hpp"
#include "text.hpp"
#include "vocabulary.hpp"

namespace draftline::drafting {

// Positions around the pointer that are offered without a matching token.
enum Zero : uint8_t {
  kPointer = 1,
  kNext = 2,
  kSecond = 4,
  kReplaced = 8,
  kLine = 16,
  kLater = 32,
  kSameLine = 64
};

// One candidate. `m`: matching tokens before the best occurrence in a source; 0: none.
struct Evidence {
  int32_t token = kBorder;
  int32_t place = -1;      // position in the expected text of the best occurrence
  int32_t out_place = -1;  // position in the output so far
  int32_t near_j = 0;      // best near position minus the pointer
  int16_t near_m = 0, near_count = 0;
  int16_t far_m = 0, far_count = 0;
  int16_t out_m = 0, out_count = 0;
  int32_t out_back = 0;  // distance of the occurrence in tokens
  int16_t files_m = 0;
  float files_prob = 0;
  int16_t files_node = -1, files_rank = 0;
  uint8_t ngram_order = 0, ngram_share = 0, ngram_seen = 0, ngram_low = 0;
  uint8_t rule = 0;  // substitution: 1 at its start, 2 inside
  uint8_t rule_hits = 0, rule_misses = 0;
  uint8_t recycled = 0,
          recycled_share = 0;  // rank + 1 in the Token Recycling table, probability in 1/255
  uint8_t zero = 0;            // flags of Zero
  uint8_t shape_m = 0, shape_count = 0;  // match of token classes instead of tokens
  uint8_t around = 0,
          recent = 0;  // 1 + distance from the pointer; distance back in the output
};

// All candidates, and properties of the whole set.
struct Field {
  static constexpr size_t kMost = 64;  // candidates
  std::vector<Evidence> tokens;
  int near_m = 0, far_m = 0, out_m = 0, files_m = 0;  // longest match per source
  int shape_m = 0;
  int near_count = 0, far_count = 0, out_count = 0, shape_count = 0;  // occurrences considered
  int ngram_order = 0;
  int recycled_share = -1;  // of the most likely token; -1: empty row
  bool ruled = false,
       loose = false;  // a substitution applies; nearby tokens were offered
  void clear(const Vocabulary* known);
  Evidence& of(int32_t token) {  // a scratch entry if there are too many
    size_t at = uint32_t(token) * 0x9E3779B1u >> 25;
    while (slots_[at] && ids_[slots_[at] - 1] != token) at = (at + 1) % kSlots;
    if (slots_[at]) return tokens[slots_[at] - 1u];
    if (tokens.size() == kMost) return spare_ = Evidence{};
    ids_[tokens.size()] = token;
    tokens.emplace_back().token = token;
    slots_[at] = uint8_t(tokens.size());
    vocabulary_->prefetch(token);
    return tokens.back();
  }

 private:
  static constexpr size_t kSlots = 128;
  uint8_t slots_[kSlots] = {};  // hash table of index + 1
  int32_t ids_[kMost] = {};     // token of each candidate
  Evidence spare_;
  const Vocabulary* vocabulary_ = nullptr;
};

// Continuations from other files as a tree.
struct Files {
  std::vector<int32_t> tokens, parents, first, next;  // first child and next sibling, or -1
  std::vector<float> probs;
  int root = -1;  // first child of the root
  int match = 0;  // matching tokens before the root
  void set(const int32_t* tokens, const int32_t* parents, const double* probs, size_t size,
           int match);
  void clear();
};

// set of Part flags that can be disabled for ablation.
enum Part : unsigned {
  kNearPart = 1,
  kZeroPart = 2,
  kRulesPart = 4,
  kFarPart = 8,
  kOutputPart = 16,
  kFilesPart = 32,
  kLibraryPart = 64,
  kRecycledPart = 128,
  kFormPart = 256,
  kAroundPart = 512,
  kSiblings = 1024
};

// The context of one evaluation: the end of a drafted path and all texts.
struct View {
  const Text* expected;
  const Text* output;
  const Files* files;
  const Ngram* ngram;
  const Rules* rules;
  const Vocabulary* vocabulary;
  const Recycling* recycling;  // may be nullptr
  const int32_t* shapes_end;   // parallel to tail_end
  const int32_t* tail_end;     // one past the last token
  int32_t tail_size;
  Alignment at;
  int32_t files_node;  // node in files; -1: the root; -2: outside the tree
  int32_t drafted;     // drafted tokens of the path
  unsigned without;    // Parts
};

// Collects the candidates. `brief`: only from around the pointer, inside a long copy.
void gather(const View& view, Field& field, bool brief);

}  // namespace draftline::drafting
