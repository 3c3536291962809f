// Verifies all invariants of the automaton, for tests.
#include <algorithm>

#include "inner.hpp"

namespace draftline {
namespace {

size_t start_of(const Automaton& automaton, uint32_t position) {
  return automaton.starts()[automaton.document_at(position)];
}

}  // namespace

std::string Automaton::check() const {
  Reading reading(*this);
  std::string broken = check_tree();
  if (broken.empty()) broken = check_edges();
  return broken;
}

// Text, suffix links, and that `walk` reaches every leaf.
std::string Automaton::check_tree() const {
  if (text_.size() != leaves_.size() + 1 || text_.back() != kNoToken) return "text: no last border";
  for (size_t at = 0, doc = 0; at < leaves_.size(); ++at) {
    const bool border = doc < starts_.size() && starts_[doc] == at;
    if (border) ++doc;
    if (border != (text_[at] == kNoToken)) return "text: borders are not where documents start";
    if (!border && text_[at] < 0) return "text: a negative id";
    if (leaves_[at].link >= branches_.size()) return "leaf: its link is no branch";
    if (!border && branches_[leaves_[at].link].length > at - start_of(*this, at))
      return "leaf: longer than its document so far";
  }
  if (branches_[kRoot].length != 0 || branches_[kRoot].link != kNone) return "root: not empty";
  for (uint32_t at = 1; at < branches_.size(); ++at) {
    const Branch& branch = branches_[at];
    if (branch.link >= branches_.size()) return "branch: its link is no branch";
    if (branches_[branch.link].length >= branch.length) return "branch: its link is no shorter";
    if (branch.end >= leaves_.size() || text_[branch.end] == kNoToken)
      return "branch: its end is no position";
    if (branch.length > branch.end - start_of(*this, branch.end))
      return "branch: its end leaves the document";
    uint32_t above = leaves_[branch.end].link;
    while (above != at && above != kNone) above = branches_[above].link;
    if (above != at) return "branch: its end is not below it";
    const Branch& shorter = branches_[branch.link];  // link: a suffix
    const int32_t* const mine = text_.data() + branch.end + 1;
    if (shorter.length > 0 &&
        !std::equal(mine - shorter.length, mine, text_.data() + shorter.end + 1 - shorter.length))
      return "branch: its link is no suffix";
  }
  std::vector<uint32_t> hung;
  for (const Branch& branch : branches_)
    for (uint32_t leaf = branch.first; leaf != kNone; leaf = leaves_[leaf].next) {
      if (leaf >= leaves_.size() || hung.size() >= size()) return "leaf: hangs in a circle";
      hung.push_back(leaf);
    }
  std::sort(hung.begin(), hung.end());
  if (hung.size() != size() || std::adjacent_find(hung.begin(), hung.end()) != hung.end())
    return "leaf: hangs nowhere or twice";
  for (uint32_t at = 0; at < branches_.size(); ++at)
    for (uint32_t leaf = branches_[at].first; leaf != kNone; leaf = leaves_[leaf].next) {
      uint32_t above = leaves_[leaf].link;  // branches on the path above a leaf share its end
      while (above != at && above != kNone && branches_[above].end == leaf)
        above = branches_[above].link;
      if (above != at) return "leaf: does not hang above its path";
    }
  return "";
}

// Edges are correct and complete: every state has an edge for each token that follows it.
std::string Automaton::check_edges() const {
  size_t further = 0;
  for (uint32_t at = 0; at < branches_.size(); ++at) {
    const Branch& from = branches_[at];
    if (from.token == kNoToken && from.more != kNoToken) return "edge: further ones, no first";
    for (int32_t token = from.token; token != kNoToken; token = edge_after(at, token)) {
      const uint32_t target = step(at | kBranch, token);
      if (target == kNone) return "edge: listed, but not in the table";
      const uint32_t to = target & ~kBranch;
      if (to >= (is_branch(target) ? branches_.size() : leaves_.size()))
        return "edge: leads nowhere";
      const uint32_t link = is_branch(target) ? branches_[to].link : leaves_[to].link;
      const uint32_t length = is_branch(target) ? branches_[to].length
                                                : to - start_of(*this, to) + 1;  // border included
      if (length <= from.length || branches_[link].length > from.length)
        return "edge: leads to a state of another length";
      if (text_[is_branch(target) ? branches_[to].end : to] != token)
        return "edge: leads to another token";
      if (token != from.token && ++further > edges_.size()) return "edge: listed in a circle";
    }
  }
  size_t used = 0;
  for (const Edge& edge : edges_.slots()) used += edge.branch != kNone;
  if (further != edges_.size() || used != edges_.size())
    return "edge: in the table, but not listed";
  for (uint32_t leaf = 0; leaf + 1 < leaves_.size(); ++leaf) {
    const int32_t token = text_[leaf + 1];
    if (token == kNoToken) continue;
    uint32_t above = leaf + 1;  // suffix links of the targets, in step with the sources'
    bool branch = false;
    for (uint32_t at = leaves_[leaf].link; at != kNone; at = branches_[at].link) {
      const uint32_t target = step(at | kBranch, token);
      while (target != (branch ? above | kBranch : above)) {
        above = branch ? branches_[above].link : leaves_[above].link;
        branch = true;
        if (above == kNone) return "edge: missing, or away from the text";
      }
    }
  }
  return "";
}

// The token of the next edge of a branch.
int32_t Automaton::edge_after(uint32_t branch, int32_t token) const {
  if (token == branches_[branch].token) return branches_[branch].more;
  return edges_.find(branch, token)->next;
}

}  // namespace draftline
