// The base class of the automaton and the suffix array: documents concatenated in one array of
// tokens, with a border before each document and after the last.
//
// Deleting a document ("kill") keeps its tokens but hides them from all queries. "Living"
// occurrences are those in documents that were not deleted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace draftline {

using Tokens = std::span<const int32_t>;

inline constexpr uint32_t kNone = 0xFFFFFFFFu;  // no state, no position
inline constexpr int32_t kNoToken = -1;         // no edge; also the border between documents

struct Label {          // ordering criteria of a document
  int64_t changed = 0;  // larger is newer
  int32_t path = -1;    // ids of its path and its folder
  int32_t folder = -1;
};

struct Found {                   // a suffix of a tail
  uint32_t length = 0;           // 0: nothing
  uint32_t first = 0, last = 0;  // state or range, depending on the class
};

class Documents {
 public:
  virtual ~Documents() = default;

  size_t documents() const { return starts().size(); }
  size_t size() const;  // tokens, deleted documents included
  size_t living() const { return size() - dead_; }
  Tokens tokens(int64_t doc) const;
  Tokens continuation(int64_t doc, int64_t end, int64_t n) const;

  bool alive(size_t doc) const { return alive_[doc]; }
  void kill(int64_t doc);  // idempotent
  const Label& label(size_t doc) const { return labels_[doc]; }
  void set_label(int64_t doc, Label label);
  int64_t last_change() const { return last_change_; }  // no document's `changed` is larger

  // Positions index `run()`. A match is identified by the position of its last token.
  virtual Tokens run() const = 0;
  virtual std::span<const uint32_t> starts() const = 0;  // positions of the borders before
  size_t document_at(uint32_t position, size_t most = SIZE_MAX) const;  // fast if close to `most`
  size_t stop_of(size_t doc) const;                                     // the border after it

  // The longest suffix of the last `limit` tokens of `tail` that a living document continues; the
  // number of its living occurrences, and the `most` newest ones, newest (largest) first. Nothing
  // if it has fewer than `least` tokens, which is faster.
  virtual Found find_living(Tokens tail, int64_t limit, size_t least) const = 0;
  virtual size_t newest(Found found, size_t most, std::vector<uint32_t>& positions) const = 0;

  // Appends the occurrences of `needle` in one document, newest first, until there are `most`.
  // `followed`: only those followed by a token. Returns their number, not limited to `most`.
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
  int64_t last_change_ = INT64_MIN;
  bool any_dead_ = false;
};

void require_ids(Tokens tokens);
void require_not_negative(const char* name, int64_t value);

}  // namespace draftline
