// Documents side by side in one run of tokens, with a border before each and after the last: what
// both forms of a segment are made of, the growing automaton and the frozen suffix array.
//
// A document may die: its text stays where it is, but no question finds it any more. Here "living"
// occurrences are those in living documents.
//
// No Python, no paths, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace draftline {

using Tokens = std::span<const int32_t>;

inline constexpr uint32_t kNone = 0xFFFFFFFFu;  // no state, no position
inline constexpr int32_t kNoToken = -1;         // no edge; also the border between documents

struct Label {             // what the caller says of a document
    int64_t changed = 0;   // documents with a larger one are newer
    int32_t path = -1;     // numbers of its path and its folder: equal ones are the same
    int32_t folder = -1;
};

struct Found {              // a suffix of a tail
    uint32_t length = 0;    // 0: nothing
    uint32_t first = 0, last = 0;  // where: each form has its own meaning of these
};

class Documents {
public:
    virtual ~Documents() = default;

    size_t documents() const { return starts().size(); }
    size_t size() const;  // tokens, the dead ones included
    size_t living() const { return size() - dead_; }
    Tokens tokens(int64_t doc) const;
    Tokens continuation(int64_t doc, int64_t end, int64_t n) const;

    bool alive(size_t doc) const { return alive_[doc]; }
    void kill(int64_t doc);  // once more: nothing happens
    const Label& label(size_t doc) const { return labels_[doc]; }
    void set_label(int64_t doc, Label label);

    // Positions in the whole run. A match ends at the position of its last token.
    virtual Tokens run() const = 0;
    virtual std::span<const uint32_t> starts() const = 0;  // by document: its border's position
    size_t document_at(uint32_t position, size_t most = SIZE_MAX) const;  // found soon where near
    size_t stop_of(size_t doc) const;  // the border after it

    // The longest suffix of the last `limit` tokens of `tail` that a living document continues, and
    // its occurrences there: how many, and the newest ones, newest (largest) first. Nothing where it
    // has fewer than `least` tokens, which costs less than to find it.
    virtual Found find_living(Tokens tail, int64_t limit, size_t least) const = 0;
    virtual size_t newest(Found found, size_t most, std::vector<uint32_t>& positions) const = 0;

    // Occurrences of `needle` in one document, newest first, appended until there are `most` in
    // all; `followed`: only those that a token follows. How many there are, also beyond `most`.
    size_t scan(size_t doc, Tokens needle, bool followed, size_t most,
                std::vector<uint32_t>& positions) const;

protected:
    void add_document(Label label);
    virtual void killed(size_t) {}
    size_t require_document(int64_t doc) const;
    bool any_dead() const { return any_dead_; }

private:
    std::vector<Label> labels_;
    std::vector<bool> alive_;
    size_t dead_ = 0;  // tokens
    bool any_dead_ = false;
};

void require_ids(Tokens tokens);
void require_not_negative(const char* name, int64_t value);

}  // namespace draftline
