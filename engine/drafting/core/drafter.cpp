#include "drafter.hpp"

#include <algorithm>
#include <cmath>

namespace draftline::drafting {
namespace {

constexpr int kChildren = 12;   // children per node
constexpr int32_t kTail = 128;  // tokens of the answer that are compared

// Stopping rule: a node is drafted if its path probability is at least
//   min(kMost, kCaution * c * sqrt(r)) and at least kLeast,
// where c is the node's marginal cost in plain steps and r the expected tokens per plain step so
// far. The plain marginal rule (p >= c * r) drafts too much; factor and root were tuned on replays.
constexpr double kCaution = 2.2, kMost = 0.9;
constexpr float kLeast = 1e-4f;
constexpr int kAhead = 8;  // nodes that share a cost which comes in steps
constexpr int kSure = 12;  // run length after which only the copy is considered

bool sure(const Alignment& at) { return at.gap == 0 && at.run >= kSure; }

struct Open {
  float reach;
  int32_t parent;  // node in the tree, -1 for the root
  int32_t child;   // candidate in the parent's evaluation
};
bool operator<(const Open& a, const Open& b) { return a.reach < b.reach; }

// Whether children of a node with this path probability may be among the next `capacity` nodes,
// i.e. fewer than `capacity` open nodes have more than half of it.
bool is_worth_expanding(const std::vector<Open>& heap, float reach, int capacity) {
  const auto surer = [&](auto& self, size_t n) -> int {  // counts in the subheap of n
    if (n >= heap.size() || !(heap[n].reach > 0.5f * reach)) return 0;
    const int left = 1 + self(self, 2 * n + 1);
    return left >= capacity ? left : left + self(self, 2 * n + 2);
  };
  return capacity > 0 && surer(surer, 0) < capacity;
}

// Minimum path probability of node number `index`.
double least_worth(const double* costs, int index, int capacity, double expected) {
  if (index >= capacity) return 0;
  const int last = std::min(index + kAhead, capacity);
  const double own = costs[index + 1] - costs[index];
  const double shared = (costs[last] - costs[index]) / (last - index);
  const double share = std::min(own, shared) / costs[0];
  return std::min(kMost, kCaution * share * std::sqrt(expected * costs[0] / costs[index]));
}

// The source with the longest match; ties go to the expected text.
Source source_of(const Evidence& e) {
  if (e.rule) return kSubstitution;
  const int expected = std::max(e.near_m, e.far_m),
            best = std::max({expected, int(e.out_m), int(e.files_m)});
  if (best == 0 && !e.zero) {
    if (e.recycled) return kRecycling;
    return e.ngram_order ? kNgram : e.around ? kPrediction : kOutput;
  }
  if (expected == best || (e.zero & kPointer)) return kPrediction;
  return e.out_m == best ? kOutput : kWorkspace;
}

}  // namespace

void Drafter::begin(const int32_t* expected, int64_t size, int32_t start, const int32_t* before,
                    int64_t before_size) {
  expected_.clear();
  for (int64_t i = 0; i < size; ++i) expected_.push(expected[i], vocabulary_->shape(expected[i]));
  output_.clear();
  for (int64_t i = 0; i < before_size; ++i) output_.push(before[i], vocabulary_->shape(before[i]));
  rules_.clear();
  files_.clear();
  at_ = Alignment{std::clamp(start, 0, expected_.size()), 0, 0, -1, 0};
  free_ = at_.pointer >= expected_.size() || expected_[at_.pointer] == kBorder;
  left_ = -1;
  evaluated_ = 0;
}

void Drafter::align(int32_t position) {
  at_ = Alignment{std::clamp(position, 0, expected_.size()), 0, 0, -1, 0};
  left_ = -1;
  evaluated_ = 0;  // the last tree was scored elsewhere
}

View Drafter::view(const Alignment& at, const int32_t* shapes_end, const int32_t* tail_end,
                   int32_t tail_size, int32_t files_node, int32_t drafted) const {
  return {&expected_,  &output_,   &files_,    ngram_,   &rules_,
          vocabulary_, recycling_, shapes_end, tail_end, std::min(tail_size, kTail),
          at,          files_node, drafted,    without_};
}

const Tree& Drafter::propose(int capacity, const double* costs) {
  tree_.tokens.clear();
  tree_.parents.clear();
  tree_.probs.clear();
  tree_.sources.clear();
  tree_.places.clear();
  nodes_.clear();
  evaluated_ = 0;
  if (capacity <= 0) return tree_;
  const size_t committed = size_t(std::min(output_.size(), kTail));
  path_.assign(output_.data() + output_.size() - committed, output_.data() + output_.size());
  path_shapes_.assign(output_.shapes() + output_.size() - committed,
                      output_.shapes() + output_.size());
  static thread_local std::vector<Open> heap;
  heap.clear();
  int32_t on_path = -1;  // the node whose path is in path_
  const float least = std::max(kLeast, float(0.7 * least_worth(costs, 0, capacity, 1)));
  const auto expand = [&](int32_t parent, float reach, const Alignment& at, int32_t files_node,
                          int32_t drafted) {
    if (evaluated_ == int(evaluations_.size())) evaluations_.emplace_back();
    Scored& scored = evaluations_[size_t(evaluated_++)];
    score(view(at, path_shapes_.data() + path_.size(), path_.data() + path_.size(),
               int32_t(path_.size()), files_node, drafted),
          *weights_, field_, scored, drafted > 0 && sure(at));
    const int most = without_ & kSiblings ? 1 : kChildren;
    int best[kChildren], count = 0;
    for (int n = 0; n < int(scored.tokens.size()); ++n) {
      if (!(reach * scored.probs[size_t(n)] >= least)) continue;  // also skips NaN
      int at_rank = count < most ? count++ : most;
      for (; at_rank > 0 && scored.probs[size_t(n)] > scored.probs[size_t(best[at_rank - 1])];
           --at_rank)
        if (at_rank < most) best[at_rank] = best[at_rank - 1];
      if (at_rank < most) best[at_rank] = n;
    }
    for (int i = 0; i < count; ++i) {
      heap.push_back({reach * scored.probs[size_t(best[i])], parent, best[i]});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  expand(-1, 1, at_, -1, 0);
  double expected = 1;  // expected tokens of this step, including the model's own
  while (!heap.empty() && int(tree_.tokens.size()) < capacity) {
    std::pop_heap(heap.begin(), heap.end());
    const Open open = heap.back();
    heap.pop_back();
    const Scored& scored =
        evaluations_[size_t(open.parent < 0 ? 0 : nodes_[size_t(open.parent)].scored)];
    const Evidence& e = scored.tokens[size_t(open.child)];
    const auto index = int32_t(tree_.tokens.size());
    if (open.reach < least_worth(costs, index, capacity, expected)) break;
    Node node{open.reach,
              open.parent,
              {},
              e.files_node >= 0 ? e.files_node : -2,
              open.parent < 0 ? 1 : nodes_[size_t(open.parent)].depth + 1};
    const Alignment& above = open.parent < 0 ? at_ : nodes_[size_t(open.parent)].at;
    tree_.tokens.push_back(e.token);
    tree_.parents.push_back(open.parent);
    tree_.probs.push_back(scored.probs[size_t(open.child)]);
    const Source source = source_of(e);
    tree_.sources.push_back(source);
    tree_.places.push_back(source == kPrediction  ? e.place
                           : source == kOutput    ? e.out_place
                           : source == kWorkspace ? e.files_node
                                                  : -1);
    expected += open.reach;
    // Append the path to the answer's tail, so that both are matched alike.
    const size_t known = open.parent == on_path ? size_t(node.depth) - 1 : 0;
    path_.resize(committed + size_t(node.depth));
    path_shapes_.resize(path_.size());
    size_t d = size_t(node.depth);
    for (int32_t n = index; d > known; n = tree_.parents[size_t(n)]) {
      path_[committed + --d] = tree_.tokens[size_t(n)];
      path_shapes_[committed + d] = vocabulary_->shape(tree_.tokens[size_t(n)]);
    }
    on_path = index;
    bool jumped;
    node.at = advance(above, expected_, rules_, path_.data() + path_.size(), int32_t(path_.size()),
                      &jumped);
    nodes_.push_back(node);
    if (is_worth_expanding(heap, node.reach, capacity - int(tree_.tokens.size())) &&
        0.95f * node.reach >= least_worth(costs, index + 1, capacity, expected)) {
      nodes_.back().scored = evaluated_;
      expand(index, node.reach, node.at, node.files_node, node.depth);
    }
  }
  return tree_;
}

void Drafter::learn_rule(const Alignment& before, const Alignment& after) {
  // The answer left the expected text at left_ (a position in the output), where the pointer was,
  // and is aligned again, after `run` matching tokens.
  const int32_t new_size = output_.size() - after.run - left_;
  const int32_t old_size = after.pointer - after.run - before.pointer;
  if (new_size < 0 || old_size < 1) return;
  rules_.learn(expected_.data() + before.pointer, old_size, output_.data() + left_, new_size);
}

void Drafter::step(int32_t token) {
  if (at_.gap == 0 && at_.rule < 0 && at_.pointer < expected_.size()) {
    const int n = rules_.at(expected_, at_.pointer);
    if (n >= 0) {
      Rule& rule = rules_[n];
      const int32_t past = at_.pointer + int32_t(rule.old_tokens.size());
      const int32_t first = !rule.new_tokens.empty()  ? rule.new_tokens[0]
                            : past < expected_.size() ? expected_[past]
                                                      : kBorder;
      if (token == first)
        ++rule.hits;
      else if (token == expected_[at_.pointer])
        ++rule.misses;
    }
  }
  const Alignment before = at_;
  output_.push(token, vocabulary_->shape(token));
  bool jumped;
  at_ = advance(before, expected_, rules_, output_.data() + output_.size(),
                std::min(output_.size(), kTail), &jumped);
  if (before.gap == 0 && at_.gap > 0) left_ = output_.size() - 1;
  if (jumped && left_ >= 0 && before.gap > 0) learn_rule(before, at_);
  if (at_.gap == 0) left_ = -1;
  if (free_ && at_.gap > 0) follow_far();
}

void Drafter::follow_far() {
  constexpr int chain = 2;  // the one with the longest tails
  const int32_t* end = output_.data() + output_.size();
  const uint64_t key = Text::key(chain, end, output_.size());
  for (int32_t q = expected_.newest(chain, key), looked = 0; q > 0 && looked < 8;
       q = expected_.older(chain, q), ++looked) {
    const int m = agree(expected_.data(), q, end, output_.size(), kTail);
    if (m > at_.run && m >= Text::kOrders[chain]) at_ = Alignment{q, 0, m, -1, 0};
  }
}

void Drafter::commit(const int32_t* tokens, int64_t size, float learning) {
  int32_t node = -1;  // tree node reached by the committed tokens
  bool inside = evaluated_ > 0;
  for (int64_t i = 0; i < size; ++i) {
    const int32_t token = tokens[i];
    if (learning > 0 && inside) {
      const Scored& scored = evaluations_[size_t(node < 0 ? 0 : nodes_[size_t(node)].scored)];
      const int index = scored.find(token);
      const float p = index < int(scored.tokens.size()) ? scored.probs[size_t(index)] : scored.none;
      if (p < 0.98f) learn(scored, index, *weights_, learning);
    }
    if (inside) {  // descend to the matching child
      int32_t child = -1;
      for (size_t n = size_t(node + 1); n < nodes_.size() && n < tree_.tokens.size(); ++n)
        if (tree_.parents[n] == node && tree_.tokens[n] == token) child = int32_t(n);
      inside = child >= 0 && nodes_[size_t(child)].scored >= 0;
      node = child;
    }
    step(token);
  }
  evaluated_ = 0;
  files_.clear();
}

void FilesAt::at(int64_t i, Files& out) const {
  static constexpr int32_t root[64] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                       -1, -1, -1, -1, -1, -1, -1, -1};
  size_t count = 0;
  double wide[16];
  while (count < size_t(width) && tokens[i * width + int64_t(count)] >= 0) {
    wide[count] = probs[i * width + int64_t(count)];
    ++count;
  }
  out.set(tokens + i * width, root, wide, count, matches[i]);
}

double Drafter::fit(const int32_t* tokens, int64_t size, float learning, const FilesAt* files) {
  double bits = 0;
  if (evaluations_.empty()) evaluations_.emplace_back();
  for (int64_t i = 0; i < size; ++i) {
    Scored& scored = evaluations_[0];
    if (files) files->at(i, files_);
    score(view(at_, output_.shapes() + output_.size(), output_.data() + output_.size(),
               output_.size(), -1, 0),
          *weights_, field_, scored,
          sure(at_) && (i & 1));  // train the full and the brief evaluation
    const int index = scored.find(tokens[i]);
    bits -= std::log2(std::max(
        1e-9f, index < int(scored.tokens.size()) ? scored.probs[size_t(index)] : scored.none));
    if (learning > 0) learn(scored, index, *weights_, learning);
    step(tokens[i]);
    files_.clear();
  }
  return bits;
}

}  // namespace draftline::drafting
