// Trees as in tree.hpp. Every node is a range of the places: those that its tokens follow.
#include "tree.hpp"

#include <algorithm>
#include <queue>
#include <utility>

#include "documents.hpp"

namespace draftline {
namespace {

struct Node {
    uint32_t count, made;  // ties: the older first; siblings are made by rising token
    int32_t token, parent;
    uint32_t begin, depth, from;  // from: count of the parent
};

struct Later {
    bool operator()(const Node& a, const Node& b) const {
        return a.count != b.count ? a.count < b.count : a.made > b.made;
    }
};

}  // namespace

Tree grow_tree(int64_t length, std::vector<const int32_t*> places, int64_t nodes, int64_t width) {
    require_not_negative("nodes", nodes);
    require_not_negative("width", width);
    Tree tree;
    tree.length = length;
    std::priority_queue<Node, std::vector<Node>, Later> open;
    std::vector<std::pair<int32_t, const int32_t*>> following;
    std::vector<Node> children;
    uint32_t made = 0;
    const auto expand = [&](int32_t parent, uint32_t begin, uint32_t count, uint32_t depth) {
        following.clear();
        for (uint32_t i = begin; i < begin + count; ++i)
            following.emplace_back(places[i][depth], places[i]);
        std::sort(following.begin(), following.end());  // borders come first
        children.clear();
        for (uint32_t i = 0; i < count; ++i) {
            const auto [token, place] = following[i];
            places[begin + i] = place;
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

}  // namespace draftline
