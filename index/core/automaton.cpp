// Construction of the automaton in automaton.hpp.
#include "automaton.hpp"

#include <algorithm>
#include <utility>

#include "inner.hpp"

namespace draftline {
namespace {

constexpr size_t kMaxPositions = kBranch - 2;

}  // namespace

Automaton::Automaton() {
  text_.push_back(kNoToken);
  branches_.push_back({0, kNone, 0, kNone, kNoToken, kNone, kNoToken});
}

int32_t Automaton::add(Tokens tokens, Label label) {
  require_ids(tokens);
  Writing writing(*this);
  require_room(tokens.size() + 1);
  const int32_t document = begin(label);
  append(tokens);
  return document;
}

int32_t Automaton::open(Label label) {
  Writing writing(*this);
  require_room(1);
  return begin(label);
}

void Automaton::extend(Tokens tokens) {
  require_ids(tokens);
  Writing writing(*this);
  if (starts_.empty()) throw std::invalid_argument("no document to extend; open one first");
  if (!alive(documents() - 1))
    throw std::invalid_argument("the last document was deleted; open a new one");
  require_room(tokens.size());
  append(tokens);
}

void Automaton::kill(int64_t doc) {
  Writing writing(*this);
  Documents::kill(doc);
}

void Automaton::require_room(size_t positions) const {
  if (leaves_.size() + positions > kMaxPositions)
    throw std::invalid_argument("the automaton is full; use another one");
}

int32_t Automaton::begin(Label label) {
  add_document(label);
  starts_.push_back(static_cast<uint32_t>(leaves_.size()));
  leaves_.push_back({kRoot, kNone});
  text_.push_back(kNoToken);
  return static_cast<int32_t>(starts_.size() - 1);
}

void Automaton::append(Tokens tokens) {
  text_.reserve_more(tokens.size());
  leaves_.reserve_more(tokens.size());
  for (int32_t token : tokens) append(token);
}

void Automaton::append(int32_t token) {
  const auto leaf = static_cast<uint32_t>(leaves_.size());
  text_[leaf] = token;  // overwrites the border; the previous leaf gets its edge
  text_.push_back(kNoToken);
  uint32_t at = leaves_[leaf - 1].link;
  edges_.prefetch(at, token);
  uint32_t* target = nullptr;
  for (; at != kNone; at = branches_[at].link) {
    const uint32_t link = branches_[at].link;  // prefetch the next step
    if (link != kNone) {
      __builtin_prefetch(&branches_[link]);
      edges_.prefetch(link, token);
    }
    target = edge(at, token);
    if (target) break;
    add_edge(at, token, leaf);
  }
  uint32_t home = kRoot;
  if (target) {
    const uint32_t state = *target;
    const bool whole =
        is_branch(state) && branches_[state & ~kBranch].length == branches_[at].length + 1;
    home = whole ? state & ~kBranch : clone(at, token, state);
  }
  leaves_.push_back({home, branches_[home].first});
  branches_[home].first = leaf;
}

// Splits off the strings of `state` that are at most one longer than `parent`: they occur again.
uint32_t Automaton::clone(uint32_t parent, int32_t token, uint32_t state) {
  const auto made = static_cast<uint32_t>(branches_.size());
  Branch branch{branches_[parent].length + 1, kNone, state, kNone, kNoToken, kNone, kNoToken};
  if (is_branch(state)) {
    Branch& of = branches_[state & ~kBranch];
    branch.end = of.end;
    branch.token = of.token;
    branch.target = of.target;
    branch.link = std::exchange(of.link, made);
    for (int32_t next = of.more; next != kNoToken;) {
      const Edge copied = *edges_.find(state & ~kBranch, next);
      edges_.insert({made, next, copied.target, branch.more});
      branch.more = next;
      next = copied.next;
    }
  } else {
    branch.link = std::exchange(leaves_[state].link, made);
    if (text_[state + 1] != kNoToken) {
      branch.token = text_[state + 1];
      branch.target = state + 1;
    }
  }
  branches_.push_back(branch);
  for (uint32_t at = parent; at != kNone; at = branches_[at].link) {
    uint32_t* target = edge(at, token);
    if (*target != state) break;
    *target = made | kBranch;
  }
  return made;
}

uint32_t* Automaton::edge(uint32_t branch, int32_t token) {
  Branch& from = branches_[branch];
  if (from.token == token) return &from.target;
  if (from.more == kNoToken) return nullptr;
  Edge* found = edges_.find(branch, token);
  return found ? &found->target : nullptr;
}

void Automaton::add_edge(uint32_t branch, int32_t token, uint32_t target) {
  Branch& from = branches_[branch];
  if (from.token == kNoToken) {
    from.token = token;
    from.target = target;
  } else {
    edges_.insert({branch, token, target, from.more});
    from.more = token;
  }
}

}  // namespace draftline
