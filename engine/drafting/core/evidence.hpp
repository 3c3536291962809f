// What speaks for each token that may come next.
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

// Places around the pointer whose text may follow without any token agreeing.
enum Zero : uint8_t {
  kPointer = 1,
  kNext = 2,
  kSecond = 4,
  kReplaced = 8,
  kLine = 16,
  kLater = 32,
  kSameLine = 64
};

// Of one token. `m`: agreeing tokens before the best place that it was copied from; 0: none.
struct Evidence {
  int32_t token = kBorder;
  int32_t place = -1;      // in the expected text, of the nearest best one
  int32_t out_place = -1;  // in the answer so far
  int32_t near_j = 0;      // the best near place less the pointer
  int16_t near_m = 0, near_count = 0;
  int16_t far_m = 0, far_count = 0;
  int16_t out_m = 0, out_count = 0;
  int32_t out_back = 0;  // tokens since
  int16_t files_m = 0;
  float files_prob = 0;
  int16_t files_node = -1, files_rank = 0;
  uint8_t ngram_order = 0, ngram_share = 0, ngram_seen = 0, ngram_low = 0;
  uint8_t rule = 0;  // 1: at its start, 2: inside
  uint8_t rule_hits = 0, rule_misses = 0;
  uint8_t recycled = 0, recycled_share = 0;  // rank + 1 in the model's own table, 255ths
  uint8_t zero = 0;
  uint8_t shape_m = 0, shape_count = 0;  // copied from code of the same form
  uint8_t around = 0,
          recent = 0;  // 1 + how far: in the expected text near the pointer, in the answer
};

// All of them, and what they have in common.
struct Field {
  static constexpr size_t kMost = 64;  // tokens
  std::vector<Evidence> tokens;
  int near_m = 0, far_m = 0, out_m = 0, files_m = 0;  // the best of each
  int shape_m = 0;
  int near_count = 0, far_count = 0, out_count = 0, shape_count = 0;  // places looked at
  int ngram_order = 0;
  int recycled_share = -1;  // of the best one; -1: the table says nothing
  bool ruled = false,
       loose = false;  // a substitution says something; what stands near was looked at
  void clear(const Vocabulary* known);
  Evidence& of(int32_t token) {  // one without a place where there are too many
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
  uint8_t slots_[kSlots] = {};  // by hash: index + 1
  int32_t ids_[kMost] = {};     // of the tokens
  Evidence spare_;
  const Vocabulary* vocabulary_ = nullptr;
};

// What follows the answer in other files: a tree, first children at -1.
struct Files {
  std::vector<int32_t> tokens, parents, first, next;  // first child and next sibling, -1: none
  std::vector<float> probs;
  int root = -1;  // first child of the root
  int match = 0;  // tokens that agree before the root
  void set(const int32_t* tokens, const int32_t* parents, const double* probs, size_t size,
           int match);
  void clear();
};

// What may be left out, to see what it is worth.
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

// The end of a drafted path, with all that is written before it.
struct View {
  const Text* expected;
  const Text* output;
  const Files* files;
  const Ngram* ngram;
  const Rules* rules;
  const Vocabulary* vocabulary;
  const Recycling* recycling;  // or nullptr
  const int32_t* shapes_end;   // beside tail_end
  const int32_t* tail_end;     // one past the last token; context before it
  int32_t tail_size;
  Alignment at;
  int32_t files_node;  // -1: the root; -2: left the tree
  int32_t drafted;     // tokens of the path that are not committed
  unsigned without;    // Parts
};

// `brief`: only what stands around the pointer, for the inside of a long copy.
void gather(const View& view, Field& field, bool brief);

}  // namespace draftline::drafting
