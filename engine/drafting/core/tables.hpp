// The model's features. Each has a table of weights; the tables are laid out one after another.
// Shipped weights depend on this layout: see layout() in model.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace draftline::drafting {

constexpr uint32_t kHashed = 1 << 14;  // weights per hashed feature

// m is the number of matching tokens before a candidate; near, out (output so far), far and files
// are its sources.
enum Name : size_t {
  kNearJump,
  kNearLine,
  kNearBest,
  kLookPair,
  kZeroGap,
  kPointerRun,
  kFar,
  kFarNear,
  kOut,
  kOutNear,
  kFiles,
  kFilesNear,
  kNgram,
  kNgramOut,
  kRule,
  kRuleNear,
  kMask,
  kMaskLook,
  kZeroOut,
  kRecycledNear,
  kRecycledLook,
  kRecycledBest,
  kShape,
  kShapeLook,
  kLoose,
  kLooseLook,
  kNoneGap,
  kNoneLook,
  kNoneBest,
  kNoneOut,
  kNoneSeen,
  kNoneRecycled,
  kHashNear,
  kHashPair,
  kHashMask,
  kHashNone,
  kNames
};
constexpr std::array<uint32_t, kNames> kSizes = {
    11 * 12 * 7,     // kNearJump: m, distance from the pointer, gap
    2 * 11 * 3 * 5,  // kNearLine: at a line start, m, sign of the distance, occurrences
    11 * 11 * 5,     // kNearBest: m, the best m, share of the occurrences
    8 * 8 * 6,       // kLookPair: of the token, of the one before, m
    8 * 7 * 4,       // kZeroGap: kind, gap, m
    2 * 7 * 7 * 6,   // kPointerRun: is the pointer's token, run, gap, best m
    11 * 5 * 4 * 4,  // kFar: m, share, near m, best near m
    6 * 6 * 6,       // kFarNear: m, best far m, near m
    11 * 5 * 4 * 4,  // kOut: m, share, recency, best near m
    6 * 6 * 6 * 6,   // kOutNear: m, best out m, near m, best near m
    11 * 6 * 4 * 4,  // kFiles: m, probability, rank, best near m
    6 * 6 * 6 * 4,   // kFilesNear: m, probability, near m, out m
    4 * 6 * 6 * 6,   // kNgram: order, share, near m, best near m
    4 * 6 * 6 * 6,   // kNgramOut: order, share, out m, best out m
    3 * 6 * 4 * 4,   // kRule: kind, hits, misses, near m
    3 * 6 * 6,       // kRuleNear: kind, run, near m
    256 * 6,         // kMask: sources that offer it, the best near m
    256 * 8,         // kMaskLook: the same, look
    8 * 6 * 6,       // kZeroOut: kind, out m, files m
    9 * 6 * 6,       // kRecycledNear: rank, near m, out m
    9 * 8 * 8,       // kRecycledLook: rank, look, of the one before
    9 * 6 * 6 * 6,   // kRecycledBest: rank, share, best near m, best out m
    6 * 5 * 6 * 4,   // kShape: m, share, near m, out m
    6 * 8 * 8,       // kShapeLook: m, look, of the one before
    7 * 7 * 6,       // kLoose: around, recent, best near m
    4 * 8 * 8,       // kLooseLook: both, look, of the one before
    11 * 7 * 7,      // kNoneGap: best near m, gap, run
    8 * 11 * 4,      // kNoneLook: look of the last, best near m, gap
    6 * 6 * 6 * 4,   // kNoneBest: best near, out and files m, n-gram's order
    11 * 6 * 3,      // kNoneOut: best out m, best far m, rule
    6 * 7 * 6,       // kNoneSeen: number of tokens, gap, best shape m
    6 * 6 * 6,       // kNoneRecycled: the best one's share, best near m, best out m
    kHashed,        kHashed, kHashed, kHashed};

constexpr std::array<uint32_t, kNames + 1> starts() {
  std::array<uint32_t, kNames + 1> at{};
  for (size_t n = 0; n < kNames; ++n) at[n + 1] = at[n] + kSizes[n];
  return at;
}
constexpr auto kStarts = starts();

}  // namespace draftline::drafting
