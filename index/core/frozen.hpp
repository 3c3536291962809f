// An immutable segment: the suffix array of the reversed text. Ranks order the positions by the
// text that ends there, read backwards, so the occurrences of a suffix of a tail are a range of
// ranks, found by binary search. Answers equal the automaton's, for living and followed
// occurrences.
#pragma once

#include <memory>

#include "array.hpp"
#include "documents.hpp"

namespace draftline {

class Frozen : public Documents {
 public:
  struct Arrays {                             // as stored on disk; n tokens, d documents
    std::span<const int32_t> text;            // n + d + 1: a border before each, and after the last
    std::span<const uint32_t> starts;         // d
    std::span<const uint32_t> order;          // n: the position of each rank
    std::span<const uint32_t> ranks;          // n + d: by position, unused for borders
    std::span<const uint64_t> keys = {};      // of every kStride-th rank, searched first
    std::span<const uint64_t> followed = {};  // bit per rank: followed by a token
    std::span<const uint32_t> tops = {};      // the largest position of every kStride ranks
  };

  Frozen(const std::vector<Tokens>& documents, const std::vector<Label>& labels);

  // Untrusted arrays, kept alive by `owner`. Throws if they do not fit each other. With the last
  // three nothing is read but the documents' borders, whatever the size: queries may answer
  // wrongly until `check`, but read nothing out of bounds. Without, they are computed after it.
  Frozen(Arrays arrays, std::shared_ptr<const void> owner, const std::vector<Label>& labels);

  void check() const;  // throws if the arrays contradict each other

  Tokens run() const override { return arrays_.text; }
  std::span<const uint32_t> starts() const override { return arrays_.starts; }
  const Arrays& arrays() const { return arrays_; }

  // `Found` is a range of ranks.
  Found find_living(Tokens tail, int64_t limit, size_t least) const override;
  size_t newest(Found found, size_t most, std::vector<uint32_t>& positions) const override;

  size_t nbytes() const;  // mapped arrays included

 private:
  void killed(size_t doc) override;
  void prepare();
  void require_fit() const;
  void check_order() const;
  std::vector<uint64_t> find_followed() const;
  std::vector<uint64_t> find_keys() const;
  std::vector<uint32_t> find_tops() const;

  // Of a rank; never out of bounds, whatever the arrays hold.
  uint32_t position(uint32_t rank) const {
    const uint32_t at = arrays_.order[rank];
    return at < arrays_.ranks.size() ? at : 0;
  }
  size_t common(uint32_t rank, Tokens tail, size_t known) const;
  void fetch(uint32_t rank) const;
  uint32_t lower_bound(Tokens tail) const;
  uint32_t outmost(uint32_t rank, Tokens needle, int64_t direction) const;
  uint64_t key(uint32_t rank) const;
  void collect(Found found, uint32_t least, std::vector<uint32_t>& positions) const;
  void collect_newest(Found found, size_t most, std::vector<uint32_t>& positions) const;

  bool living_at(uint32_t rank) const { return living_[rank / 64] >> rank % 64 & 1; }
  uint32_t living_before(uint32_t rank) const;
  uint32_t living_from(uint32_t rank) const;
  size_t living_between(uint32_t first, uint32_t last) const;

  struct Owned {
    Array<int32_t> text;
    Array<uint32_t> starts, order, ranks;
  };
  Arrays arrays_;
  std::shared_ptr<const void> owner_;
  std::vector<uint64_t> keys_, followed_;  // unless they were given
  std::vector<uint32_t> tops_;
  std::vector<uint64_t> living_;      // bit per rank: in a living document, and followed by a token
  std::vector<uint32_t> counts_;      // set bits in each block of kBlock ranks
  std::vector<uint32_t> block_tops_;  // the largest position in each block
};

}  // namespace draftline
