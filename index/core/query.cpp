// What the automaton answers: matches, trees, and plain facts.
#include <algorithm>
#include <array>
#include <functional>
#include <queue>

#include "inner.hpp"

namespace draftline {
namespace {

// Keeps the k largest of what it is offered.
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

// The longest suffix of `tail` that occurs. Most are short, so a short end of the tail is read first:
// where that does not occur whole, nothing longer does.
Automaton::Found Automaton::find(Tokens tail, int64_t limit, bool followed) const {
    require_ids(tail);
    require_not_negative("limit", limit);
    const size_t length = std::min(tail.size(), static_cast<size_t>(limit));
    Found found{kRoot | kBranch, 0};
    for (size_t part = std::min<size_t>(8, length); part > 0; part = std::min(4 * part, length)) {
        found = longest_suffix(tail.last(part));
        if (found.length < part || part == length) break;
    }
    const auto ends_here = [&](uint32_t state) {
        return is_branch(state) ? branches_[state & ~kBranch].token == kNoToken
                                : text_[state + 1] == kNoToken;
    };
    while (followed && found.length > 0 && ends_here(found.state)) found = shorter(found.state);
    return found;
}

Automaton::Found Automaton::longest_suffix(Tokens tail) const {
    Found found{kRoot | kBranch, 0};
    for (int32_t token : tail) {
        uint32_t next = step(found.state, token);
        while (next == kNone && found.length > 0) {
            found = shorter(found.state);
            next = step(found.state, token);
        }
        if (next != kNone) found = {next, found.length + 1};
    }
    return found;
}

// The longest suffix of the state's strings that occurs elsewhere too.
Automaton::Found Automaton::shorter(uint32_t state) const {
    const uint32_t link =
        is_branch(state) ? branches_[state & ~kBranch].link : leaves_[state].link;
    return {link | kBranch, branches_[link].length};
}

Match Automaton::match(Tokens tail, int64_t k, int64_t limit, bool followed) const {
    Reading reading(*this);
    require_not_negative("k", k);
    const Found found = find(tail, limit, followed);
    if (found.length == 0) return {};
    std::vector<uint32_t> newest;
    const size_t count = occurrences(found, followed, static_cast<size_t>(k), newest);
    Match match{found.length, static_cast<int64_t>(count), {}, {}};
    match.docs.reserve(newest.size());
    match.ends.reserve(newest.size());
    for (uint32_t position : newest) {
        const auto next = std::upper_bound(starts_.begin(), starts_.end(), position);
        match.docs.push_back(static_cast<int32_t>(next - starts_.begin() - 1));
        match.ends.push_back(static_cast<int32_t>(position - *(next - 1)));
    }
    return match;
}

// How often `found` occurs, and the positions of its last token, the k newest, newest first.
size_t Automaton::occurrences(Found found, bool followed, size_t k,
                              std::vector<uint32_t>& newest) const {
    if (!is_branch(found.state)) {
        newest.assign(k > 0 ? 1 : 0, found.state);
        return 1;
    }
    const Branch& branch = branches_[found.state & ~kBranch];
    Newest top(k, newest);
    const auto offer = [&](uint32_t leaf) {
        if (top.wants(leaf) && !(followed && text_[leaf + 1] == kNoToken)) top.take(leaf);
    };
    size_t count;
    if (frozen_) {
        count = branch.count - (followed ? ended(branch) : 0);
        // Among many the newest are near the end of the text, most often.
        if (count > 256 && scan(found, followed, k, 4 * count, newest) >= std::min(k, count))
            return count;
        newest.clear();
        for (uint32_t rank = branch.first - branch.count; rank < branch.first; ++rank)
            offer(leaves_[rank].next);
    } else {
        // A cache miss a leaf against a stream over the text: stop where the stream is cheaper.
        std::vector<uint32_t> leaves;
        if (!walk(found.state & ~kBranch, text_.size() / 256 + 32, leaves))
            return scan(found, followed, k, text_.size(), newest);
        for (uint32_t leaf : leaves) offer(leaf);
        count = leaves.size();
        if (followed)
            for (uint32_t leaf : leaves) count -= text_[leaf + 1] == kNoToken;
    }
    top.sort();
    return count;
}

// The leaves below a branch, in no order; false where they are more than the budget.
//
// A branch is made above the state it was copied from and keeps that one's `end`. So above each
// leaf stands a path of the branches made over it, ending below the branch where the leaf hangs;
// the leaves that hang along the path start paths of their own.
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

// The same as `occurrences`, by reading the text from its end, `reach` positions at most; a frozen
// automaton knows the count, so there it stops at the k-th.
size_t Automaton::scan(Found found, bool followed, size_t k, size_t reach,
                       std::vector<uint32_t>& newest) const {
    constexpr size_t kBlock = 64;
    const size_t length = found.length, back = length > 1 ? 1 : 0;
    const int32_t* const text = text_.data();
    const int32_t* const needle = text + branches_[found.state & ~kBranch].end + 1 - length;
    const int32_t last = needle[length - 1], previous = needle[length - 1 - back];
    const int32_t least = followed ? 0 : kNoToken;  // of the token after: borders are kNoToken
    size_t count = 0;
    newest.clear();
    for (size_t stop = leaves_.size(); stop > 1 && reach > 0 && !(frozen_ && count >= k);) {
        const size_t size = std::min({kBlock, stop - 1, reach});  // text begins with a border
        const int32_t* const block = text + stop - size;
        std::array<uint8_t, kBlock> hit;
        uint32_t hits = 0;
        for (size_t i = 0; i < size; ++i) {  // for vector registers: no branch in it
            hit[i] = (block[i] == last) & (block[i - back] == previous) & (block[i + 1] >= least);
            hits += hit[i];
        }
        if (length <= 2 && newest.size() >= k) {
            count += hits;
        } else if (hits > 0) {
            for (size_t i = size; i-- > 0;) {
                const size_t at = stop - size + i;
                if (!hit[i] || at + 1 < length) continue;
                if (!std::equal(needle, needle + length, text + at + 1 - length)) continue;
                if (++count <= k) newest.push_back(static_cast<uint32_t>(at));
            }
        }
        stop -= size;
        reach -= size;
    }
    return count;
}

// Frozen: how many documents end in this branch's strings.
size_t Automaton::ended(const Branch& branch) const {
    const auto first = std::lower_bound(ended_.begin(), ended_.end(), branch.first - branch.count);
    return std::lower_bound(first, ended_.end(), branch.first) - first;
}

// Every node is a range of the occurrences: those that its tokens follow.
Tree Automaton::tree(Tokens tail, int64_t nodes, int64_t width, int64_t limit,
                     int64_t most) const {
    struct Node {
        uint32_t count, made;  // ties: the older first; siblings are made by rising token
        int32_t token, parent;
        uint32_t begin, depth, from;  // from: count of the parent
    };
    const auto after = [](const Node& a, const Node& b) {
        return a.count != b.count ? a.count < b.count : a.made > b.made;
    };
    Reading reading(*this);
    require_not_negative("nodes", nodes);
    require_not_negative("width", width);
    require_not_negative("most", most);
    Tree tree;
    const Found found = find(tail, limit, true);
    if (found.length == 0) return tree;
    std::vector<uint32_t> places;
    occurrences(found, true, static_cast<size_t>(most), places);

    std::priority_queue<Node, std::vector<Node>, decltype(after)> open(after);
    std::vector<uint64_t> keys;
    std::vector<Node> children;
    uint32_t made = 0;
    const auto expand = [&](int32_t parent, uint32_t begin, uint32_t count, uint32_t depth) {
        keys.clear();
        for (uint32_t i = begin; i < begin + count; ++i)  // a border sorts first, as 0
            keys.push_back(uint64_t(text_[places[i] + 1 + depth] + int64_t{1}) << 32 | places[i]);
        std::sort(keys.begin(), keys.end());
        children.clear();
        for (uint32_t i = 0; i < count; ++i) {
            places[begin + i] = static_cast<uint32_t>(keys[i]);
            const auto token = static_cast<int32_t>(int64_t(keys[i] >> 32) - 1);
            if (token == kNoToken) continue;
            if (!children.empty() && children.back().token == token)
                ++children.back().count;
            else
                children.push_back({1, 0, token, parent, begin + i, depth + 1, count});
        }
        std::stable_sort(children.begin(), children.end(),
                         [](const Node& a, const Node& b) { return a.count > b.count; });
        if (children.size() > static_cast<uint64_t>(width)) children.resize(width);
        for (Node& child : children) {
            child.made = made++;
            open.push(child);
        }
    };
    expand(-1, 0, static_cast<uint32_t>(places.size()), 0);
    while (!open.empty() && tree.tokens.size() < static_cast<uint64_t>(nodes)) {
        const Node node = open.top();
        open.pop();
        const auto index = static_cast<int32_t>(tree.tokens.size());
        tree.tokens.push_back(node.token);
        tree.parents.push_back(node.parent);
        tree.probs.push_back(double(node.count) / node.from);
        expand(index, node.begin, node.count, node.depth);
    }
    return tree;
}

Automaton::Tokens Automaton::tokens(int64_t doc) const {
    Reading reading(*this);
    if (doc < 0 || doc >= static_cast<int64_t>(starts_.size()))
        throw std::invalid_argument("document " + std::to_string(doc) + ": there are " +
                                    std::to_string(starts_.size()));
    const size_t begin = starts_[doc] + 1;
    const size_t stop = doc + 1 < static_cast<int64_t>(starts_.size()) ? starts_[doc + 1]
                                                                       : leaves_.size();
    return {text_.data() + begin, stop - begin};
}

Automaton::Tokens Automaton::continuation(int64_t doc, int64_t end, int64_t n) const {
    const Tokens all = tokens(doc);
    require_not_negative("n", n);
    if (end < 0 || end > static_cast<int64_t>(all.size()))
        throw std::invalid_argument("end " + std::to_string(end) + ": document " +
                                    std::to_string(doc) + " has " + std::to_string(all.size()) +
                                    " tokens");
    const Tokens rest = all.subspan(static_cast<size_t>(end));
    return rest.first(std::min(rest.size(), static_cast<size_t>(n)));
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
    return sizeof(*this) + text_.nbytes() + starts_.nbytes() + leaves_.nbytes() +
           branches_.nbytes() + edges_.nbytes() + ended_.nbytes();
}

}  // namespace draftline
