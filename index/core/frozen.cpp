// Construction of and queries to the suffix array in frozen.hpp.
#include "frozen.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <stdexcept>
#include <string>

#include "suffix_sort.hpp"

namespace draftline {
namespace {

constexpr uint32_t kStride = 64, kBlock = 4096;  // ranks
constexpr size_t kMaxPositions = (1u << 31) - 2;
constexpr int32_t kDirect = 1 << 22;  // smaller ids are renumbered by a table

// Renumbers ids in order, without gaps, from 2; the first border is 0, the others are 1.
class Symbols {
 public:
  explicit Symbols(Tokens text) {
    const int32_t largest = *std::max_element(text.begin(), text.end());
    if (largest < kDirect) {
      table_.resize(static_cast<size_t>(largest) + 1);
      for (int32_t token : text)
        if (token >= 0) table_[token] = 1;
      for (int32_t& symbol : table_)
        if (symbol) symbol = static_cast<int32_t>(count_++);
    } else {
      sorted_.assign(text.begin(), text.end());
      std::sort(sorted_.begin(), sorted_.end());
      sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
      if (sorted_.front() == kNoToken) sorted_.erase(sorted_.begin());
      count_ += sorted_.size();
    }
  }

  int32_t operator[](int32_t token) const {
    if (token < 0) return 1;
    if (!table_.empty()) return table_[token];
    return 2 + static_cast<int32_t>(std::lower_bound(sorted_.begin(), sorted_.end(), token) -
                                    sorted_.begin());
  }

  size_t count() const { return count_; }

 private:
  std::vector<int32_t> table_, sorted_;
  size_t count_ = 2;
};

// Keeps the largest entries; returns the upper half of the largest dropped one, or 0.
uint32_t keep_largest(std::vector<uint64_t>& entries, size_t most) {
  if (entries.size() <= most) return 0;
  std::nth_element(entries.begin(), entries.begin() + most, entries.end(), std::greater<>());
  const auto dropped = static_cast<uint32_t>(entries[most] >> 32);
  entries.resize(most);
  return dropped;
}

void require(bool sound, const char* what) {
  if (!sound) throw std::invalid_argument(std::string("invalid segment: ") + what);
}

}  // namespace

Frozen::Frozen(const std::vector<Tokens>& documents, const std::vector<Label>& labels) {
  size_t positions = documents.size() + 1;
  for (Tokens tokens : documents) {
    require_ids(tokens);
    positions += tokens.size();
  }
  if (positions > kMaxPositions)
    throw std::invalid_argument("too many tokens for one segment; use several");
  const auto owned = std::make_shared<Owned>();
  Array<int32_t>& text = owned->text;
  text.reserve_more(positions);
  for (Tokens tokens : documents) {
    owned->starts.push_back(static_cast<uint32_t>(text.size()));
    text.push_back(kNoToken);
    for (int32_t token : tokens) text.push_back(token);
  }
  text.push_back(kNoToken);

  const size_t n = text.size() - 1, borders = documents.size();  // without the last border
  owned->order.fill(n, 0);
  if (n > 0) {
    const Symbols symbols({text.data(), n});
    Array<int32_t> reversed;
    reversed.fill(n, 0);
    for (size_t i = 0; i + 1 < n; ++i) reversed[i] = symbols[text[n - 1 - i]];
    int32_t* const order = reinterpret_cast<int32_t*>(owned->order.begin());
    sort_suffixes(reversed.begin(), order, n, symbols.count());
  }
  owned->ranks.fill(n, 0);                // only now, to take the place of what was sorted
  for (size_t i = borders; i < n; ++i) {  // borders come first
    const auto position = static_cast<uint32_t>(n - 1) - owned->order[i];
    owned->order[i] = position;
    owned->ranks[position] = static_cast<uint32_t>(i - borders);
  }
  arrays_ = {{text.data(), text.size()},
             {owned->starts.data(), owned->starts.size()},
             {owned->order.data() + borders, n - borders},
             {owned->ranks.data(), n}};
  owner_ = owned;
  for (const Label& label : labels) add_document(label);
  prepare();
}

Frozen::Frozen(Arrays arrays, std::shared_ptr<const void> owner, const std::vector<Label>& labels)
    : arrays_(arrays), owner_(std::move(owner)) {
  require_fit();
  if (arrays_.followed.empty()) check_order();
  for (const Label& label : labels) add_document(label);
  prepare();
}

void Frozen::require_fit() const {
  const auto& [text, starts, order, ranks, keys, followed, tops] = arrays_;
  require(!text.empty() && text.size() <= kMaxPositions && text.back() == kNoToken &&
              text.front() == kNoToken,
          "its text");
  require(starts.size() < text.size() && ranks.size() + 1 == text.size() &&
              order.size() + starts.size() == ranks.size(),
          "its arrays do not fit each other");
  const size_t lines = (order.size() + kStride - 1) / kStride;
  require((keys.empty() && followed.empty() && tops.empty()) ||
              (keys.size() == lines && followed.size() == lines && tops.size() == lines),
          "its keys do not fit its ranks");
  bool ascending = (text.size() == 1) == starts.empty() && (starts.empty() || starts[0] == 0);
  for (size_t doc = 0; doc + 1 < starts.size(); ++doc)
    ascending = ascending && starts[doc] < starts[doc + 1];
  require(ascending && (starts.empty() || starts.back() < text.size() - 1), "its documents");
}

void Frozen::check() const {
  check_order();
  require(std::ranges::equal(arrays_.keys, find_keys()), "its keys");
  require(std::ranges::equal(arrays_.followed, find_followed()), "its followed ranks");
  require(std::ranges::equal(arrays_.tops, find_tops()), "its largest positions");
}

void Frozen::check_order() const {
  const auto& [text, starts, order, ranks, keys, followed, tops] = arrays_;
  size_t doc = 0;
  for (size_t at = 0; at + 1 < text.size(); ++at) {
    const bool border = doc < starts.size() && starts[doc] == at;
    doc += border;
    require(border ? text[at] == kNoToken
                   : text[at] >= 0 && ranks[at] < order.size() && order[ranks[at]] == at,
            "its text or its ranks");
  }
}

std::vector<uint64_t> Frozen::find_keys() const {
  std::vector<uint64_t> keys;
  keys.reserve(arrays_.order.size() / kStride + 1);
  for (size_t rank = 0; rank < arrays_.order.size(); rank += kStride)
    keys.push_back(key(static_cast<uint32_t>(rank)));
  return keys;
}

std::vector<uint64_t> Frozen::find_followed() const {
  const size_t n = arrays_.order.size();
  std::vector<uint64_t> followed((n + 63) / 64, ~uint64_t{0});
  if (n % 64) followed.back() >>= 64 - n % 64;
  for (size_t doc = 0; doc < starts().size(); ++doc)
    if (const size_t stop = stop_of(doc); stop > starts()[doc] + 1) {
      const uint32_t rank = arrays_.ranks[stop - 1];
      followed[rank / 64] &= ~(uint64_t{1} << rank % 64);
    }
  return followed;
}

std::vector<uint32_t> Frozen::find_tops() const {
  const auto order = arrays_.order;
  std::vector<uint32_t> tops((order.size() + kStride - 1) / kStride, 0);
  for (size_t rank = 0; rank < order.size(); ++rank)
    tops[rank / kStride] = std::max(tops[rank / kStride], order[rank]);
  return tops;
}

void Frozen::prepare() {
  const size_t n = arrays_.order.size();
  if (arrays_.followed.empty()) {
    arrays_.keys = keys_ = find_keys();
    arrays_.followed = followed_ = find_followed();
    arrays_.tops = tops_ = find_tops();
  }
  living_.assign(arrays_.followed.begin(), arrays_.followed.end());
  if (n % 64) living_.back() &= ~uint64_t{0} >> (64 - n % 64);
  counts_.assign(n / kBlock + 1, 0);
  for (size_t word = 0; word < living_.size(); ++word)
    counts_[word / (kBlock / 64)] += std::popcount(living_[word]);
  block_tops_.assign(n / kBlock + 1, 0);
  for (size_t line = 0; line < arrays_.tops.size(); ++line) {
    uint32_t& top = block_tops_[line / (kBlock / kStride)];
    top = std::max(top, arrays_.tops[line]);
  }
}

void Frozen::killed(size_t doc) {
  const size_t stop = stop_of(doc);
  for (size_t at = starts()[doc] + 1; at < stop; ++at) {
    const uint32_t rank = arrays_.ranks[at];
    if (rank >= arrays_.order.size()) continue;
    counts_[rank / kBlock] -= living_at(rank);
    living_[rank / 64] &= ~(uint64_t{1} << rank % 64);
  }
}

// Sort key of a rank: the token at its position and the one before, with borders as 0.
uint64_t Frozen::key(uint32_t rank) const {
  const int32_t* const at = arrays_.text.data() + arrays_.order[rank];
  return uint64_t(uint32_t(at[0] + 1)) << 32 | uint32_t(at[-1] + 1);
}

// Length of the longest common suffix of the tail and the text up to the rank's position, of which
// `known` tokens are known to agree.
size_t Frozen::common(uint32_t rank, Tokens tail, size_t known) const {
  const uint32_t position = this->position(rank);
  const int32_t* const at = arrays_.text.data() + position;
  const int32_t* const end = tail.data() + tail.size() - 1;
  const auto size = static_cast<ptrdiff_t>(tail.size());
  auto shared = static_cast<ptrdiff_t>(std::min<size_t>(known, position));
  while (shared < size && at[-shared] == end[-shared]) ++shared;
  return static_cast<size_t>(shared);
}

// Prefetches what is compared next.
void Frozen::fetch(uint32_t rank) const {
  if (rank < arrays_.order.size()) __builtin_prefetch(arrays_.text.data() + position(rank));
}

// The first rank that is not less than the tail.
uint32_t Frozen::lower_bound(Tokens tail) const {
  const uint64_t last = uint64_t(uint32_t(tail.back()) + 1) << 32;
  const bool two = tail.size() > 1;
  const uint64_t least = last | (two ? uint32_t(tail[tail.size() - 2]) + 1 : 0);
  const uint64_t most = two ? least : last | 0xFFFFFFFFu;
  const auto keys = arrays_.keys;
  const auto from = std::lower_bound(keys.begin(), keys.end(), least);
  const auto to = std::upper_bound(from, keys.end(), most);
  // Invariant: the key before `from` is smaller, the one at `to` is larger.
  uint32_t first = from == keys.begin() ? 0 : (from - keys.begin() - 1) * kStride + 1;
  auto stop = static_cast<uint32_t>(
      std::min<size_t>((to - keys.begin()) * size_t{kStride}, arrays_.order.size()));
  size_t below = 0, above = 0;  // common suffix with the tail at both ends of the range
  while (first < stop) {
    const uint32_t middle = first + (stop - first) / 2;
    fetch(first + (middle - first) / 2);
    fetch(middle + (stop - middle) / 2);
    const size_t shared = common(middle, tail, std::min(below, above));
    const bool smaller = shared < tail.size() &&
                         arrays_.text[position(middle) - shared] < tail[tail.size() - 1 - shared];
    if (smaller) {
      first = middle + 1;
      below = shared;
    } else {
      stop = middle;
      above = shared;
    }
  }
  return first;
}

// The last rank in one direction from `rank` at which `needle` ends, as it does at `rank`.
uint32_t Frozen::outmost(uint32_t rank, Tokens needle, int64_t direction) const {
  const auto n = static_cast<int64_t>(arrays_.order.size());
  const auto holds = [&](int64_t at) {
    return at >= 0 && at < n && common(uint32_t(at), needle, 0) == needle.size();
  };
  for (int64_t step = 1; step <= kStride; step *= 2)
    fetch(static_cast<uint32_t>(rank + step * direction));
  int64_t step = 1, good = rank;
  while (holds(good + step * direction)) {
    good += step * direction;
    step *= 2;
  }
  for (; step > 0; step /= 2)
    if (holds(good + step * direction)) good += step * direction;
  return static_cast<uint32_t>(good);
}

Found Frozen::find_living(Tokens tail, int64_t limit, size_t least) const {
  require_ids(tail);
  require_not_negative("limit", limit);
  tail = tail.last(std::min(tail.size(), static_cast<size_t>(limit)));
  if (tail.empty()) return {};
  const uint32_t at = lower_bound(tail);
  const uint32_t before = living_before(at), from = living_from(at);
  const size_t left = before == kNone ? 0 : common(before, tail, 0);
  const size_t right = from == kNone ? 0 : common(from, tail, 0);
  const size_t length = std::max(left, right);
  if (length == 0 || length < least) return {};
  const Tokens needle = tail.last(length);
  return {static_cast<uint32_t>(length), left == length ? outmost(before, needle, -1) : from,
          (right == length ? outmost(from, needle, 1) : before) + 1};
}

size_t Frozen::newest(Found found, size_t most, std::vector<uint32_t>& positions) const {
  positions.clear();
  const size_t count = living_between(found.first, found.last);
  if (most == 0) return count;
  if (count <= most) {
    collect(found, 0, positions);
  } else {
    // Spread evenly, so many occurrences are among the last `part` positions. If there are many
    // ranks, scanning the text there is cheaper than looking at all of them.
    const size_t size = run().size(), part = 4 * most * size / count;
    if (part < size && part < 4 * count) {
      const Tokens needle = run().subspan(position(found.first) + 1 - found.length, found.length);
      for (size_t doc = documents(), left = part; doc-- > 0 && positions.size() < most;) {
        if (alive(doc)) scan(doc, needle, true, most, positions);
        const size_t length = stop_of(doc) - starts()[doc];
        if (length >= left) break;
        left -= length;
      }
    } else if (part < size) {
      collect(found, static_cast<uint32_t>(size - part), positions);
    }
    if (positions.size() < most) collect_newest(found, most, positions);
  }
  if (positions.size() > most) {
    std::nth_element(positions.begin(), positions.begin() + most, positions.end(),
                     std::greater<>());
    positions.resize(most);
  }
  std::sort(positions.begin(), positions.end(), std::greater<>());
  return count;
}

// Appends the living positions of a range of ranks, from `least` on.
void Frozen::collect(Found found, uint32_t least, std::vector<uint32_t>& positions) const {
  const uint32_t first = found.first / 64, last = (found.last + 63) / 64;
  for (uint32_t word = first; word < last; ++word) {
    uint64_t bits = living_[word];
    if (word == first) bits &= ~uint64_t{0} << found.first % 64;
    if (word + 1 == last && found.last % 64) bits &= ~(~uint64_t{0} << found.last % 64);
    for (; bits; bits &= bits - 1) {
      const uint32_t at = position(word * 64 + std::countr_zero(bits));
      if (at >= least) positions.push_back(at);
    }
  }
}

// Finds the `most` newest living positions of a range, and a few others: looks only at the lines of
// ranks with the largest positions, and at more of them if those are of deleted documents.
void Frozen::collect_newest(Found found, size_t most, std::vector<uint32_t>& positions) const {
  std::vector<uint64_t> blocks, lines;  // a largest position, and the number of its block or line
  for (size_t limit = most;; limit *= 4) {
    blocks.clear();
    lines.clear();
    positions.clear();
    for (uint32_t block = found.first / kBlock; block <= (found.last - 1) / kBlock; ++block)
      blocks.push_back(uint64_t{block_tops_[block]} << 32 | block);
    const uint32_t missed = keep_largest(blocks, limit);
    for (uint64_t entry : blocks) {
      const uint32_t begin = static_cast<uint32_t>(entry) * kBlock;
      const uint32_t first = std::max(begin, found.first);
      const uint32_t last = std::min(begin + kBlock, found.last) - 1;
      for (uint32_t line = first / kStride; line <= last / kStride; ++line)
        lines.push_back(uint64_t{arrays_.tops[line]} << 32 | line);
    }
    const uint32_t least = std::max(missed, keep_largest(lines, limit));  // all above were seen
    for (uint64_t entry : lines) {
      const uint32_t begin = static_cast<uint32_t>(entry) * kStride;
      const uint32_t first = std::max(begin, found.first);
      collect({found.length, first, std::min(begin + kStride, found.last)}, least, positions);
    }
    if (least == 0 || positions.size() >= most) return;
  }
}

// The last living rank before this one, or kNone.
uint32_t Frozen::living_before(uint32_t rank) const {
  while (rank > 0) {
    if (rank % kBlock == 0 && counts_[rank / kBlock - 1] == 0) {
      rank -= kBlock;
      continue;
    }
    const uint32_t word = (rank - 1) / 64;
    const uint64_t bits = living_[word] & (~uint64_t{0} >> (63 - (rank - 1) % 64));
    if (bits) return word * 64 + 63 - std::countl_zero(bits);
    rank = word * 64;
  }
  return kNone;
}

// The first living rank from this one on, or kNone.
uint32_t Frozen::living_from(uint32_t rank) const {
  const auto n = static_cast<uint32_t>(arrays_.order.size());
  while (rank < n) {
    if (rank % kBlock == 0 && counts_[rank / kBlock] == 0) {
      rank += kBlock;
      continue;
    }
    const uint64_t bits = living_[rank / 64] >> rank % 64;
    if (bits) return rank + std::countr_zero(bits);
    rank = (rank / 64 + 1) * 64;
  }
  return kNone;
}

size_t Frozen::living_between(uint32_t first, uint32_t last) const {
  size_t count = 0;
  while (first < last) {
    if (first % kBlock == 0 && last - first >= kBlock) {
      count += counts_[first / kBlock];
      first += kBlock;
      continue;
    }
    uint64_t bits = living_[first / 64] >> first % 64;
    const uint32_t size = std::min(64 - first % 64, last - first);
    if (size < 64) bits &= ~(~uint64_t{0} << size);
    count += std::popcount(bits);
    first += size;
  }
  return count;
}

size_t Frozen::nbytes() const {
  return sizeof(*this) + arrays_.text.size_bytes() + arrays_.starts.size_bytes() +
         arrays_.order.size_bytes() + arrays_.ranks.size_bytes() + arrays_.keys.size_bytes() +
         arrays_.followed.size_bytes() + living_.capacity() * sizeof(living_[0]) +
         counts_.capacity() * sizeof(counts_[0]) + block_tops_.capacity() * sizeof(block_tops_[0]);
}

}  // namespace draftline
