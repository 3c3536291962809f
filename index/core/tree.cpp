// Every node is a range of `places`, permuted so that occurrences with a common path are adjacent.
#include "tree.hpp"

#include <algorithm>
#include <utility>

#include "documents.hpp"

namespace draftline {
namespace {

constexpr uint32_t kEnd = 0xFFFFFFFFu;

struct Node {
  int32_t token, parent;
  uint32_t begin, count, depth;
  uint32_t from;  // count of the parent
  uint32_t next;  // next node with the same count
};

// A bucket queue of nodes, by falling count, then in order of insertion.
class Open {
 public:
  explicit Open(size_t places) : ends_(places + 1, {kEnd, kEnd}), count_(places) {
    nodes_.reserve(2 * places);
  }

  void push(const Node& node) {
    const auto made = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(node);
    auto& [first, last] = ends_[node.count];
    (first == kEnd ? first : nodes_[last].next) = made;
    last = made;
  }

  bool empty() {  // counts only fall along a path
    while (count_ > 0 && ends_[count_].first == kEnd) --count_;
    return count_ == 0;
  }

  Node pop() {
    uint32_t& first = ends_[count_].first;
    const Node node = nodes_[first];
    first = node.next;
    return node;
  }

 private:
  struct Ends {
    uint32_t first, last;
  };
  std::vector<Ends> ends_;
  std::vector<Node> nodes_;
  size_t count_;
};

struct Group {  // places that continue with the same token
  int32_t token;
  uint32_t count, begin;
};

}  // namespace

Tree grow_tree(int64_t length, std::vector<const int32_t*> places, int64_t nodes, int64_t width) {
  require_not_negative("nodes", nodes);
  require_not_negative("width", width);
  Tree tree;
  tree.length = length;
  const auto most = std::min<uint64_t>(static_cast<uint64_t>(nodes), 64);
  tree.tokens.reserve(most);
  tree.parents.reserve(most);
  tree.probs.reserve(most);
  Open open(places.size());
  std::vector<std::pair<int32_t, const int32_t*>> following;
  std::vector<Group> groups;
  const auto expand = [&](int32_t parent, uint32_t begin, uint32_t count, uint32_t depth) {
    groups.clear();
    bool mixed = false;
    for (uint32_t i = begin + 1; i < begin + count && !mixed; ++i)
      mixed = places[i][depth] != places[begin][depth];
    if (!mixed) {
      if (count > 0 && places[begin][depth] >= 0)
        groups.push_back({places[begin][depth], count, begin});
    } else {
      following.clear();
      for (uint32_t i = begin; i < begin + count; ++i)
        following.emplace_back(places[i][depth], places[i]);
      std::sort(following.begin(), following.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      for (uint32_t i = 0; i < count; ++i) {
        const auto [token, place] = following[i];
        places[begin + i] = place;
        if (token < 0) continue;
        if (!groups.empty() && groups.back().token == token)
          ++groups.back().count;
        else
          groups.push_back({token, 1, begin + i});
      }
      std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
        return a.count != b.count ? a.count > b.count : a.token < b.token;
      });
    }
    if (groups.size() > static_cast<uint64_t>(width)) groups.resize(width);
    for (const Group& one : groups)
      open.push({one.token, parent, one.begin, one.count, depth + 1, count, kEnd});
  };
  expand(-1, 0, static_cast<uint32_t>(places.size()), 0);
  while (tree.tokens.size() < static_cast<uint64_t>(nodes) && !open.empty()) {
    const Node node = open.pop();
    const auto index = static_cast<int32_t>(tree.tokens.size());
    tree.tokens.push_back(node.token);
    tree.parents.push_back(node.parent);
    tree.probs.push_back(double(node.count) / node.from);
    expand(index, node.begin, node.count, node.depth);
  }
  return tree;
}

}  // namespace draftline
