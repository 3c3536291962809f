// Queries to the automaton.
#include <algorithm>
#include <functional>
#include <utility>

#include "inner.hpp"

namespace draftline {
namespace {

// Keeps the k largest values.
class Newest {
 public:
  Newest(size_t k, std::vector<uint32_t>& heap) : k_(k), heap_(heap) { heap_.clear(); }

  bool wants(uint32_t position) const {
    return heap_.size() < k_ || (k_ > 0 && position > heap_.front());
  }

  void take(uint32_t position) {
    if (heap_.size() == k_) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
    }
    heap_.push_back(position);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void sort() { std::sort_heap(heap_.begin(), heap_.end(), std::greater<>()); }

 private:
  size_t k_;
  std::vector<uint32_t>& heap_;
};

}  // namespace

uint32_t Automaton::step(uint32_t state, int32_t token) const {
  if (!is_branch(state)) return text_[state + 1] == token ? state + 1 : kNone;
  const Branch& from = branches_[state & ~kBranch];
  if (from.token == token) return from.target;
  if (from.more == kNoToken) return kNone;
  const Edge* found = edges_.find(state & ~kBranch, token);
  return found ? found->target : kNone;
}

// The longest suffix of `tail` that occurs, deleted documents included. Most are short, so a short
// suffix is tried first: unless all of it occurs, nothing longer does.
Found Automaton::find(Tokens tail, bool followed) const {
  Found found{0, kRoot | kBranch};
  for (size_t part = std::min<size_t>(8, tail.size()); part > 0;
       part = std::min(4 * part, tail.size())) {
    found = longest_suffix(tail.last(part));
    if (found.length < part || part == tail.size()) break;
  }
  const auto ends_here = [&](uint32_t state) {
    return is_branch(state) ? branches_[state & ~kBranch].token == kNoToken
                            : text_[state + 1] == kNoToken;
  };
  while (followed && found.length > 0 && ends_here(found.first)) found = shorter(found.first);
  return found;
}

Found Automaton::find_living(Tokens tail, int64_t limit, size_t least) const {
  Reading reading(*this);
  return find_living(tail, limit, true, least);
}

// The longest match is often in deleted documents. Then shorter suffixes are tried, and after a few
// of them all living positions are scanned.
Found Automaton::find_living(Tokens tail, int64_t limit, bool followed, size_t least) const {
  require_ids(tail);
  require_not_negative("limit", limit);
  tail = tail.last(std::min(tail.size(), static_cast<size_t>(limit)));
  Found found = find(tail, followed);
  if (found.length < least) return {};
  if (!any_dead()) return found;
  std::vector<uint32_t> newest;
  for (int attempts = 4; found.length > 0 && attempts > 0; --attempts) {
    if (occurrences(found, followed, 1, newest) > 0) return found;
    found = shorter(found.first);
    if (found.length < least) return {};
  }
  if (found.length == 0) return found;
  found = find(tail.last(longest_living(tail.last(found.length), followed)), followed);
  return found.length < least ? Found{} : found;
}

// Length of the longest suffix that occurs in a living document, by a scan.
uint32_t Automaton::longest_living(Tokens tail, bool followed) const {
  size_t longest = 0;
  for (size_t doc = 0; doc < documents(); ++doc) {
    if (!alive(doc)) continue;
    const size_t stop = stop_of(doc) - (followed ? 1 : 0);
    for (size_t at = starts_[doc] + 1; at < stop; ++at) {
      if (text_[at] != tail.back()) continue;
      size_t shared = 1;
      while (shared < tail.size() && text_[at - shared] == tail[tail.size() - 1 - shared]) ++shared;
      longest = std::max(longest, shared);
    }
  }
  return static_cast<uint32_t>(longest);
}

Found Automaton::longest_suffix(Tokens tail) const {
  Found found{0, kRoot | kBranch};
  for (int32_t token : tail) {
    uint32_t next = step(found.first, token);
    while (next == kNone && found.length > 0) {
      found = shorter(found.first);
      next = step(found.first, token);
    }
    if (next != kNone) found = {found.length + 1, next};
  }
  return found;
}

// The longest proper suffix of the state's strings that has more occurrences.
Found Automaton::shorter(uint32_t state) const {
  const uint32_t link = is_branch(state) ? branches_[state & ~kBranch].link : leaves_[state].link;
  return {branches_[link].length, link | kBranch};
}

Match Automaton::match(Tokens tail, int64_t k, int64_t limit, bool followed) const {
  Reading reading(*this);
  require_not_negative("k", k);
  const Found found = find_living(tail, limit, followed);
  if (found.length == 0) return {};
  std::vector<uint32_t> newest;
  const size_t count = occurrences(found, followed, static_cast<size_t>(k), newest);
  Match match{found.length, static_cast<int64_t>(count), {}, {}};
  match.docs.reserve(newest.size());
  match.ends.reserve(newest.size());
  for (uint32_t position : newest) {
    const size_t doc = document_at(position);
    match.docs.push_back(static_cast<int32_t>(doc));
    match.ends.push_back(static_cast<int32_t>(position - starts_[doc]));
  }
  return match;
}

size_t Automaton::newest(Found found, size_t most, std::vector<uint32_t>& positions) const {
  Reading reading(*this);
  return occurrences(found, true, most, positions);
}

bool Automaton::counts(uint32_t position, bool followed) const {
  if (followed && text_[position + 1] == kNoToken) return false;
  return !any_dead() || alive(document_at(position));
}

// The number of living occurrences of `found`, and the positions of the k newest ones, newest
// first.
size_t Automaton::occurrences(Found found, bool followed, size_t k,
                              std::vector<uint32_t>& newest) const {
  newest.clear();
  if (!is_branch(found.first)) {
    if (!counts(found.first, followed)) return 0;
    if (k > 0) newest.push_back(found.first);
    return 1;
  }
  const Branch& branch = branches_[found.first & ~kBranch];
  // Each leaf costs a cache miss; beyond the budget, streaming over the text is cheaper.
  std::vector<uint32_t> leaves;
  size_t count = 0;
  if (walk(found.first & ~kBranch, text_.size() / 256 + 32, leaves)) {
    Newest top(k, newest);
    for (uint32_t leaf : leaves)
      if (counts(leaf, followed)) {
        ++count;
        if (top.wants(leaf)) top.take(leaf);
      }
    top.sort();
  } else {
    const Tokens needle = run().subspan(branch.end + 1 - found.length, found.length);
    for (size_t doc = documents(); doc-- > 0;)
      if (alive(doc)) count += scan(doc, needle, followed, k, newest);
  }
  return count;
}

// Collects the leaves below a branch, unordered; false if there are more than the budget.
//
// A clone is inserted above the state it was copied from and keeps its `end`. So the branches with
// one `end` form a path above that leaf, and the other leaves linked along the path start paths of
// their own.
bool Automaton::walk(uint32_t branch, size_t budget, std::vector<uint32_t>& leaves) const {
  std::vector<std::pair<uint32_t, uint32_t>> paths;  // leaf, branch above the path
  paths.emplace_back(branches_[branch].end, branches_[branch].link);
  while (!paths.empty()) {
    if (leaves.size() + paths.size() > budget) return false;
    const auto [bottom, above] = paths.back();
    paths.pop_back();
    leaves.push_back(bottom);
    for (uint32_t at = leaves_[bottom].link; at != above; at = branches_[at].link)
      for (uint32_t leaf = branches_[at].first; leaf != kNone; leaf = leaves_[leaf].next) {
        paths.emplace_back(leaf, at);
        if (leaves.size() + paths.size() > budget) return false;
      }
  }
  return true;
}

Tree Automaton::tree(Tokens tail, int64_t nodes, int64_t width, int64_t limit, int64_t most) const {
  Reading reading(*this);
  require_not_negative("most", most);
  const Found found = find_living(tail, limit, true);
  std::vector<uint32_t> newest;
  if (found.length > 0) occurrences(found, true, static_cast<size_t>(most), newest);
  std::vector<const int32_t*> places;
  for (uint32_t position : newest) places.push_back(text_.data() + position + 1);
  return grow_tree(static_cast<int64_t>(found.length), std::move(places), nodes, width);
}

size_t Automaton::states() const {
  Reading reading(*this);
  size_t states = branches_.size();
  for (size_t doc = 0; doc < starts_.size(); ++doc) {
    const size_t stop = doc + 1 < starts_.size() ? starts_[doc + 1] : leaves_.size();
    for (size_t leaf = starts_[doc] + 1; leaf < stop; ++leaf)  // does more than its document's
      states += branches_[leaves_[leaf].link].length < leaf - starts_[doc];  // head end here?
  }
  return states;
}

size_t Automaton::nbytes() const {
  Reading reading(*this);
  return sizeof(*this) + text_.nbytes() + starts_.nbytes() + leaves_.nbytes() + branches_.nbytes() +
         edges_.nbytes();
}

}  // namespace draftline
