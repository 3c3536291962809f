// Several segments asked as one: the longest living match over all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "documents.hpp"
#include "tree.hpp"

namespace draftline {

struct Place {      // one occurrence
    int32_t part;   // which segment
    int32_t doc;
    int32_t end;    // position after the matched text in the document
    double prob;    // share of the newest kSample occurrences that continue with the same token
};

struct Places {
    int64_t length = 0;  // tokens of the tail that were found
    int64_t count = 0;   // living occurrences in all
    std::vector<Place> best;
};

class Segments {
public:
    static constexpr size_t kSample = 64;

    explicit Segments(std::vector<const Documents*> parts) : parts_(std::move(parts)) {}

    // The k best occurrences: those in the document with this path first, then those in the same
    // folder, then the documents changed last; in a document the later position.
    Places match(Tokens tail, int64_t k, int64_t limit, int32_t path, int32_t folder) const;

    // Nothing where fewer than `least` tokens agree.
    Tree tree(Tokens tail, int64_t nodes, int64_t width, int64_t limit, int64_t most,
              int64_t least) const;

private:
    struct Hit {
        uint32_t part, doc, position;
        int64_t changed;
        int nearness;  // 2: this path, 1: this folder
    };

    std::vector<Found> find(Tokens tail, int64_t limit, size_t least, size_t& length) const;
    void add_hits(size_t part, const std::vector<uint32_t>& positions, std::vector<Hit>& hits) const;
    void add_near(size_t part, Tokens needle, size_t k, int32_t path, int32_t folder,
                  std::vector<Hit>& hits) const;
    void keep_newest(std::vector<Hit>& hits, size_t most) const;
    const int32_t* following(const Hit& hit) const;

    std::vector<const Documents*> parts_;
};

}  // namespace draftline
