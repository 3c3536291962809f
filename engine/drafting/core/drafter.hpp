// One answer being drafted: its texts, its place in the expected one, and the trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace draftline::drafting {

// A drafted tree; parallel, parents (-1: the last committed token) precede children.
struct Tree {
  std::vector<int32_t> tokens, parents;
  std::vector<float> probs;      // given the parent
  std::vector<uint8_t> sources;  // Source
  std::vector<int32_t> places;   // in the source's text, -1: none
};

enum Source : uint8_t {
  kPrediction,
  kOutput,
  kWorkspace,
  kNgram,
  kSubstitution,
  kRecycling,
  kSources
};

// What other files say at each position of a text, for training: `width` (16 at most) tokens each.
struct FilesAt {
  const int32_t* tokens;  // -1: no more
  const float* probs;
  const int32_t* matches;
  int64_t width;
  void at(int64_t i, Files& out) const;
};

class Drafter {
 public:
  Drafter(const Vocabulary* vocabulary, const Ngram* ngram, Weights* weights)
      : vocabulary_(vocabulary), ngram_(ngram), weights_(weights) {}

  // `expected`: the text to be repeated, `start`: where; `before`: what the answer follows.
  void begin(const int32_t* expected, int64_t size, int32_t start, const int32_t* before,
             int64_t before_size);
  // What other files say follows now; for the next propose only.
  Files& files() { return files_; }
  void recycle(const Recycling* table) { recycling_ = table; }
  // The tree of at most `room` nodes, best first by path probability, up to the first one that is
  // not worth its time; costs[n]: the seconds of a pass over n + 1 tokens, room + 1 of them.
  const Tree& propose(int room, const double* costs);
  // Committed tokens, in order. `learning`: rate of the online update, 0: none.
  void commit(const int32_t* tokens, int64_t size, float learning);
  // Teacher-forced: one update for each token; -log2 likelihood in all.
  double fit(const int32_t* tokens, int64_t size, float learning, const FilesAt* files);

  void leave_out(unsigned parts) { without_ = parts; }

  const Alignment& at() const { return at_; }

 private:
  struct Node {
    float reach;
    int32_t parent;  // in tree_, -1: the root
    Alignment at;
    int32_t files_node, depth;
    int32_t scored = -1;  // index in evaluations_
  };
  View view(const Alignment& at, const int32_t* shapes_end, const int32_t* tail_end,
            int32_t tail_size, int32_t files_node, int32_t drafted) const;
  void learn_rule(const Alignment& before, const Alignment& after);
  void step(int32_t token);
  void follow_far();  // take up a copy from anywhere, where no place is expected

  const Vocabulary* vocabulary_;
  const Ngram* ngram_;
  Weights* weights_;
  const Recycling* recycling_ = nullptr;
  bool free_ = false;  // nothing is expected to be repeated from a place on
  unsigned without_ = 0;
  Text expected_, output_;
  Rules rules_;
  Files files_;
  Alignment at_;
  int32_t left_ = -1;  // where the answer left the expected text: output's position
  Tree tree_;
  std::vector<Node> nodes_;
  std::vector<Scored> evaluations_;
  int evaluated_ = 0;
  Field field_;
  std::vector<int32_t> path_, path_shapes_;  // the answer and a drafted path behind it
};

}  // namespace draftline::drafting
