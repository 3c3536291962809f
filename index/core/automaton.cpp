// Building the automaton of automaton.hpp.
#include "automaton.hpp"

#include <algorithm>
#include <utility>

#include "inner.hpp"

namespace draftline {
namespace {

constexpr size_t kLargest = kBranch - 2;  // positions

}  // namespace

Automaton::Automaton() {
    text_.push_back(kNoToken);
    branches_.push_back({0, kNone, 0, kNone, kNoToken, kNone, kNoToken, 0});
}

int32_t Automaton::add(Tokens tokens) {
    require_ids(tokens);
    Writing writing(*this);
    require_room(tokens.size() + 1);
    const int32_t document = begin();
    append(tokens);
    return document;
}

int32_t Automaton::open() {
    Writing writing(*this);
    require_room(1);
    return begin();
}

void Automaton::extend(Tokens tokens) {
    require_ids(tokens);
    Writing writing(*this);
    if (starts_.empty()) throw std::invalid_argument("no document to extend: open one first");
    require_room(tokens.size());
    append(tokens);
}

void Automaton::require_room(size_t positions) const {
    if (leaves_.size() + positions > kLargest)
        throw std::invalid_argument("the automaton is full: start another one");
}

int32_t Automaton::begin() {
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
    text_[leaf] = token;  // where the border was; the leaf before now has its edge
    text_.push_back(kNoToken);
    uint32_t at = leaves_[leaf - 1].link;
    edges_.prefetch(at, token);
    uint32_t* target = nullptr;
    for (; at != kNone; at = branches_[at].link) {
        const uint32_t link = branches_[at].link;  // memory answers late: ask for the next now
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
        const bool whole = is_branch(state) &&
                           branches_[state & ~kBranch].length == branches_[at].length + 1;
        home = whole ? state & ~kBranch : clone(at, token, state);
    }
    leaves_.push_back({home, branches_[home].first});
    branches_[home].first = leaf;
}

// A branch for the strings of `state` that are at most one longer than `parent`: they occur again.
uint32_t Automaton::clone(uint32_t parent, int32_t token, uint32_t state) {
    const auto made = static_cast<uint32_t>(branches_.size());
    Branch branch{branches_[parent].length + 1, kNone, state, kNone, kNoToken, kNone, kNoToken, 0};
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

std::vector<uint32_t> Automaton::by_length() const {
    uint32_t longest = 0;
    for (const Branch& branch : branches_) longest = std::max(longest, branch.length);
    std::vector<uint32_t> place(longest + 2), order(branches_.size());
    for (const Branch& branch : branches_) ++place[branch.length + 1];
    for (size_t length = 0; length <= longest; ++length) place[length + 1] += place[length];
    for (uint32_t at = 0; at < branches_.size(); ++at) order[place[branches_[at].length]++] = at;
    return order;
}

void Automaton::freeze() {
    Writing writing(*this);
    std::vector<bool> border(leaves_.size());
    for (uint32_t start : starts_) border[start] = true;
    for (uint32_t leaf = 0; leaf < leaves_.size(); ++leaf)
        if (!border[leaf]) ++branches_[leaves_[leaf].link].count;
    const std::vector<uint32_t> order = by_length();
    for (size_t i = order.size(); i-- > 1;)
        branches_[branches_[order[i]].link].count += branches_[order[i]].count;

    // Ranks: every branch takes the next part of its parent's range, every leaf the next place.
    branches_[kRoot].first = 0;
    for (size_t i = 1; i < order.size(); ++i) {
        Branch& branch = branches_[order[i]];
        branch.first = branches_[branch.link].first;
        branches_[branch.link].first += branch.count;
    }
    std::vector<uint32_t> ranks(leaves_.size());
    for (uint32_t leaf = 0; leaf < leaves_.size(); ++leaf)
        if (!border[leaf]) ranks[leaf] = branches_[leaves_[leaf].link].first++;
    for (uint32_t leaf = 0; leaf < leaves_.size(); ++leaf)
        if (!border[leaf]) {
            leaves_[ranks[leaf]].next = leaf;
            if (text_[leaf + 1] == kNoToken) ended_.push_back(ranks[leaf]);
        }
    std::sort(ended_.begin(), ended_.end());
    text_.shrink_to_fit();
    starts_.shrink_to_fit();
    leaves_.shrink_to_fit();
    branches_.shrink_to_fit();
    ended_.shrink_to_fit();
    frozen_ = true;
}

}  // namespace draftline
