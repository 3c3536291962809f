// The parts shared by the automaton and the suffix array.
#include "documents.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace draftline {

void require_ids(Tokens tokens) {
  for (int32_t token : tokens)
    if (token < 0)
      throw std::invalid_argument("token id " + std::to_string(token) +
                                  ": ids must be 0 to 2147483647");
}

void require_not_negative(const char* name, int64_t value) {
  if (value < 0)
    throw std::invalid_argument(std::string(name) + " " + std::to_string(value) +
                                ": must be 0 or more");
}

size_t Documents::size() const { return run().size() - starts().size() - 1; }

size_t Documents::require_document(int64_t doc) const {
  if (doc < 0 || doc >= static_cast<int64_t>(documents()))
    throw std::invalid_argument("document " + std::to_string(doc) + ": there are " +
                                std::to_string(documents()));
  return static_cast<size_t>(doc);
}

size_t Documents::stop_of(size_t doc) const {
  const auto starts = this->starts();
  return doc + 1 < starts.size() ? starts[doc + 1] : run().size() - 1;
}

size_t Documents::document_at(uint32_t position, size_t most) const {
  const auto starts = this->starts();
  size_t stop = std::min(most, starts.size() - 1) + 1, step = 1;
  while (step < stop && starts[stop - step] > position) {
    stop -= step;
    step *= 2;
  }
  const auto from = starts.begin() + (stop > step ? stop - step : 0);
  return std::upper_bound(from, starts.begin() + stop, position) - starts.begin() - 1;
}

Tokens Documents::tokens(int64_t doc) const {
  const size_t at = require_document(doc), begin = starts()[at] + 1;
  return run().subspan(begin, stop_of(at) - begin);
}

Tokens Documents::continuation(int64_t doc, int64_t end, int64_t n) const {
  const Tokens all = tokens(doc);
  require_not_negative("n", n);
  if (end < 0 || end > static_cast<int64_t>(all.size()))
    throw std::invalid_argument("end " + std::to_string(end) + ": document " + std::to_string(doc) +
                                " has " + std::to_string(all.size()) + " tokens");
  const Tokens rest = all.subspan(static_cast<size_t>(end));
  return rest.first(std::min(rest.size(), static_cast<size_t>(n)));
}

void Documents::add_document(Label label) {
  labels_.push_back(label);
  last_change_ = std::max(last_change_, label.changed);
  alive_.push_back(true);
}

void Documents::set_label(int64_t doc, Label label) {
  labels_[require_document(doc)] = label;
  last_change_ = std::max(last_change_, label.changed);
}

void Documents::kill(int64_t doc) {
  const size_t at = require_document(doc);
  if (!alive_[at]) return;
  alive_[at] = false;
  any_dead_ = true;
  dead_ += tokens(doc).size();
  killed(at);
}

size_t Documents::scan(size_t doc, Tokens needle, bool followed, size_t most,
                       std::vector<uint32_t>& positions) const {
  constexpr size_t kBlock = 32;
  const int32_t* const text = run().data();
  const size_t back = needle.size() > 1 ? 1 : 0;
  const int32_t last = needle.back(), previous = needle[needle.size() - 1 - back];
  const size_t begin = starts()[doc] + 1;
  const auto ends_at = [&](size_t at) {
    return text[at] == last && text[at - back] == previous && at + 1 >= begin + needle.size() &&
           std::equal(needle.begin(), needle.end(), text + at + 1 - needle.size());
  };
  size_t count = 0;
  for (size_t stop = stop_of(doc) - (followed ? 1 : 0); stop > begin;) {
    const size_t size = std::min(kBlock, stop - begin);
    const int32_t* const block = text + stop - size;
    int32_t hits = 0;  // branchless, to be vectorized
    for (size_t i = 0; i < size; ++i) hits += (block[i] == last) & (block[i - back] == previous);
    if (needle.size() <= 2 && positions.size() >= most) {
      count += hits;
    } else if (hits > 0) {
      for (size_t at = stop; at-- > stop - size;) {
        if (!ends_at(at)) continue;
        ++count;
        if (positions.size() < most) positions.push_back(static_cast<uint32_t>(at));
      }
    }
    stop -= size;
  }
  return count;
}

}  // namespace draftline
