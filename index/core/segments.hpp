// Several segments queried as one: the longest living match over all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "documents.hpp"
#include "tree.hpp"

namespace draftline {

struct Place {   // one occurrence
  int32_t part;  // index of the segment
  int32_t doc;
  int32_t end;  // position after the matched text in the document
  double prob;  // share of the newest kSample occurrences that continue with the same token
};

struct Places {
  int64_t length = 0;  // of the match
  int64_t count = 0;   // living occurrences
  std::vector<Place> best;
};

class Segments {
 public:
  static constexpr size_t kSample = 64;

  explicit Segments(std::vector<const Documents*> parts) : parts_(std::move(parts)) {}

  // The k best occurrences: those in the document with this path, then those in this folder, then
  // those in the most recently changed documents; within a document, the later position first.
  Places match(Tokens tail, int64_t k, int64_t limit, int32_t path, int32_t folder) const;

  // Empty if the match has fewer than `least` tokens.
  Tree tree(Tokens tail, int64_t nodes, int64_t width, int64_t limit, int64_t most,
            int64_t least) const;

 private:
  struct Hit {
    uint32_t part, doc, position;
    int64_t changed;
    int nearness;  // 2: same path, 1: same folder
  };

  std::vector<Found> find(Tokens tail, int64_t limit, size_t least, size_t& length) const;
  std::vector<size_t> newest_first(const std::vector<Found>& found, size_t length) const;
  int64_t oldest_change(size_t part, const std::vector<uint32_t>& positions, size_t most) const;
  void add_hits(size_t part, const std::vector<uint32_t>& positions, std::vector<Hit>& hits) const;
  void add_near(size_t part, Tokens needle, size_t k, int32_t path, int32_t folder,
                std::vector<Hit>& hits) const;
  void keep_newest(std::vector<Hit>& hits, size_t most) const;
  const int32_t* following(const Hit& hit) const;

  std::vector<const Documents*> parts_;
};

}  // namespace draftline
