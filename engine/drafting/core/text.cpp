#include "text.hpp"

#include <algorithm>

#include "vocabulary.hpp"

namespace draftline::drafting {
namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15ull;
  return x ^ (x >> 29);
}

// Hash of the `count` tokens before `end`; ~0 if one of them is a border.
uint64_t key_of(const int32_t* end, int count) {
  uint64_t key = uint64_t(count);
  for (int i = count; i > 0; --i) {
    if (end[-i] == kBorder) return ~0ull;
    key = mix(key ^ uint64_t(uint32_t(end[-i])) * 0xD6E8FEB86659FD93ull);
  }
  key = mix(key);
  return key == ~0ull ? 0 : key;
}

}  // namespace

size_t Places::slot(uint64_t key) const {
  const auto upper = uint32_t(key >> 32), lower = uint32_t(key);
  size_t at = key & (slots_.size() - 1);
  while (slots_[at].place >= 0 && (slots_[at].key != upper || slots_[at].hash != lower))
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

int32_t Places::find(uint64_t key) const { return slots_[slot(key)].place; }

int32_t& Places::at(uint64_t key) {
  if (2 * used_ >= slots_.size()) {
    std::vector<Slot> old(4 * slots_.size());
    old.swap(slots_);
    for (const Slot& one : old)
      if (one.place >= 0) slots_[slot(uint64_t(one.key) << 32 | one.hash)] = one;
  }
  Slot& found = slots_[slot(key)];
  if (found.place < 0) {
    ++used_;
    found.key = uint32_t(key >> 32);
    found.hash = uint32_t(key);
  }
  return found.place;
}

void Places::clear() {
  slots_.assign(16, Slot{});
  used_ = 0;
}

void Text::clear() {
  tokens_.clear();
  shapes_.clear();
  for (int n = 0; n < kChains; ++n) {
    older_[n].assign(1, -1);
    newest_[n].clear();
  }
}

void Text::push(int32_t token, int32_t shape) {
  tokens_.push_back(token);
  shapes_.push_back(shape);
  for (int n = 0; n < kChains; ++n) {
    const int32_t* end = (n == kShape ? shapes_ : tokens_).data() + tokens_.size();
    if (older_[n].empty()) older_[n].push_back(-1);
    int32_t before = -1;
    if (size() >= kOrders[n]) {
      const uint64_t key = key_of(end, kOrders[n]);
      if (key != kNoKey) {
        int32_t& newest = newest_[n].at(key);
        before = newest;
        newest = size();
      }
    }
    older_[n].push_back(before);
  }
}

uint64_t Text::key(int n, const int32_t* tail_end, int32_t tail_size) {
  return tail_size < kOrders[n] ? kNoKey : key_of(tail_end, kOrders[n]);
}

}  // namespace draftline::drafting
