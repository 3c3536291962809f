// A frozen segment: the leaves of a suffix automaton's tree of links in order, which is the suffix
// array of the reversed text. Every position is a rank; positions whose texts *end* alike stand side
// by side. So the occurrences of a suffix of a tail are one range of ranks, found by binary search.
// Its answers are the automaton's, for living documents and followed occurrences.
#pragma once

#include <memory>

#include "array.hpp"
#include "documents.hpp"

namespace draftline {

class Frozen : public Documents {
public:
    struct Arrays {                         // what is kept on disk; n tokens, d documents
        std::span<const int32_t> text;      // n + d + 1: a border before each, and after the last
        std::span<const uint32_t> starts;   // d
        std::span<const uint32_t> order;    // n: the position of each rank
        std::span<const uint32_t> ranks;    // n + d: by position; those of borders are unused
    };

    Frozen(const std::vector<Tokens>& documents, const std::vector<Label>& labels);

    // Arrays that `owner` keeps, read from a file: refused where a query could go wrong by them.
    Frozen(Arrays arrays, std::shared_ptr<const void> owner);

    Tokens run() const override { return arrays_.text; }
    std::span<const uint32_t> starts() const override { return arrays_.starts; }
    const Arrays& arrays() const { return arrays_; }

    // Found: a range of ranks.
    Found find_living(Tokens tail, int64_t limit, size_t least) const override;
    size_t newest(Found found, size_t most, std::vector<uint32_t>& positions) const override;

    size_t nbytes() const;  // arrays on disk included: they are mapped

private:
    void killed(size_t doc) override;
    void prepare();
    void require_sound() const;

    size_t common(uint32_t rank, Tokens tail, size_t known) const;
    void fetch(uint32_t rank) const;
    uint32_t lower_bound(Tokens tail) const;
    uint32_t outmost(uint32_t rank, Tokens needle, int64_t direction) const;
    uint64_t key(uint32_t rank) const;
    void collect(Found found, uint32_t least, std::vector<uint32_t>& positions) const;

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
    std::vector<uint64_t> living_;  // a bit a rank: in a living document, and a token follows
    std::vector<uint32_t> counts_;  // of them in each block of kBlock ranks
    std::vector<uint64_t> keys_;    // the last two tokens at every kStride-th rank: searched first
};

}  // namespace draftline
