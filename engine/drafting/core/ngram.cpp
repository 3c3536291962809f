#include "ngram.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "vocabulary.hpp"

namespace draftline::drafting {

uint64_t Ngram::key(const int32_t* tail_end, int order) {
  uint64_t key = uint64_t(order) * 0x9E3779B97F4A7C15ull;
  for (int i = order; i > 0; --i) {
    if (tail_end[-i] < 0) return 0;
    key = (key ^ uint64_t(uint32_t(tail_end[-i]))) * 0xD6E8FEB86659FD93ull;
    key ^= key >> 32;
  }
  return key ? key : 1;
}

const Ngram::Entry* Ngram::find(const int32_t* tail_end, int order) const {
  const uint64_t wanted = key(tail_end, order);
  if (!slots_ || !wanted) return nullptr;
  size_t at = wanted & (slots_ - 1);
  for (size_t looked = 0; looked < slots_; ++looked, at = (at + 1) & (slots_ - 1)) {
    if (entries_[at].key == wanted) return &entries_[at];
    if (!entries_[at].key) return nullptr;
  }
  return nullptr;  // the table is full, hence damaged
}

void Ngram::adopt(const Entry* entries, size_t slots) {
  entries_ = entries;
  slots_ = slots;
}

void Ngram::count(const int32_t* tokens, int64_t size, int least) {
  add(tokens, size, {least, least, least}, 0, 1);
  finish();
}

void Ngram::add(const int32_t* tokens, int64_t size, const Least& least, int part, int parts) {
  refuse_if_made();
  if (part < 0 || part >= parts)
    throw std::invalid_argument("part " + std::to_string(part) + " of " + std::to_string(parts) +
                                ": must be below the number of parts");
  // A context belongs to the slice given by its last token, or its last two: few enough occurrences
  // share one that slices are of similar size.
  std::vector<int64_t> after_one, after_two;
  for (int64_t i = 1; i < size; ++i) {
    if (tokens[i] < 0) continue;
    const uint32_t one = uint32_t(tokens[i - 1]) * 0x9E3779B1u;
    const uint32_t two = i > 1 ? one + uint32_t(tokens[i - 2]) * 0x85EBCA77u : 0;
    if (uint64_t(one) * uint32_t(parts) >> 32 == uint64_t(part)) after_one.push_back(i);
    if (i > 1 && uint64_t(two) * uint32_t(parts) >> 32 == uint64_t(part)) after_two.push_back(i);
  }
  std::vector<std::pair<uint64_t, int32_t>> seen;  // (key of a context, its successor)
  std::vector<std::pair<int64_t, int32_t>> ways;   // (-count, token)
  for (int order = 1; order <= kOrders; ++order) {
    seen.clear();
    for (const int64_t i : order == 1 ? after_one : after_two)
      if (const uint64_t tail = i < order ? 0 : key(tokens + i, order))
        seen.emplace_back(tail, tokens[i]);
    std::sort(seen.begin(), seen.end());
    for (size_t a = 0; a < seen.size();) {
      size_t b = a;
      ways.clear();
      while (b < seen.size() && seen[b].first == seen[a].first) {
        size_t c = b;
        while (c < seen.size() && seen[c] == seen[b]) ++c;
        ways.emplace_back(-int64_t(c - b), seen[b].second);
        b = c;
      }
      const auto total = int64_t(b - a);
      if (total >= least[size_t(order - 1)]) {
        const size_t top = std::min<size_t>(ways.size(), kTop);
        std::partial_sort(ways.begin(), ways.begin() + long(top), ways.end());
        Entry entry;
        entry.key = seen[a].first;
        entry.seen = uint8_t(std::bit_width(uint64_t(total)));
        for (size_t n = 0; n < top; ++n) {
          entry.tokens[n] = ways[n].second;
          entry.shares[n] = uint8_t(std::max<int64_t>(1, -ways[n].first * 255 / total));
        }
        added_.push_back(entry);
      }
      a = b;
    }
  }
}

void Ngram::refuse_if_made() const {
  if (slots_) throw std::invalid_argument("the n-gram is already built: create a new one");
}

void Ngram::finish() {
  refuse_if_made();
  own_.assign(std::bit_ceil(2 * added_.size() + 1), Entry{});
  for (const Entry& entry : added_) {
    size_t at = entry.key & (own_.size() - 1);
    while (own_[at].key) at = (at + 1) & (own_.size() - 1);
    own_[at] = entry;
  }
  added_ = {};
  adopt(own_.data(), own_.size());
}

}  // namespace draftline::drafting
