// The drafter of one answer: its texts, its alignment with the expected text, and draft trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace draftline::drafting {

// A draft tree as parallel arrays. Parents (-1: the last committed token) precede children.
struct Tree {
  std::vector<int32_t> tokens, parents;
  std::vector<float> probs;      // conditional on the parent
  std::vector<uint8_t> sources;  // Source
  std::vector<int32_t> places;   // position in the source's text, or -1
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

// Continuations from other files at each position of a text, for training: `width` (at most 16)
// tokens per position.
struct FilesAt {
  const int32_t* tokens;  // padded with -1
  const float* probs;
  const int32_t* matches;
  int64_t width;
  void at(int64_t i, Files& out) const;
};

class Drafter {
 public:
  Drafter(const Vocabulary* vocabulary, const Ngram* ngram, Weights* weights)
      : vocabulary_(vocabulary), ngram_(ngram), weights_(weights) {}

  // `expected`: the text to be repeated, from `start` on; `before`: the text before the answer.
  void begin(const int32_t* expected, int64_t size, int32_t start, const int32_t* before,
             int64_t before_size);
  // The answer goes on at `position` of the expected text.
  void align(int32_t position);
  // Continuations from other files, for the next propose only.
  Files& files() { return files_; }
  void recycle(const Recycling* table) { recycling_ = table; }
  // The tree of at most `capacity` nodes, expanded best first by path probability until a node is
  // not worth its time. costs[n]: seconds of a pass over n + 1 tokens, for n = 0 .. capacity.
  const Tree& propose(int capacity, const double* costs);
  // Appends committed tokens. `learning`: rate of the online update, 0 for none.
  void commit(const int32_t* tokens, int64_t size, float learning);
  // Teacher-forced training, one update per token. Returns the total -log2 likelihood.
  double fit(const int32_t* tokens, int64_t size, float learning, const FilesAt* files);

  void leave_out(unsigned parts) { without_ = parts; }

  const Alignment& at() const { return at_; }

 private:
  struct Node {
    float reach;     // path probability
    int32_t parent;  // index in tree_, or -1 for the root
    Alignment at;
    int32_t files_node, depth;
    int32_t scored = -1;  // index in evaluations_, -1: not expanded
  };
  View view(const Alignment& at, const int32_t* shapes_end, const int32_t* tail_end,
            int32_t tail_size, int32_t files_node, int32_t drafted) const;
  void learn_rule(const Alignment& before, const Alignment& after);
  void step(int32_t token);
  void follow_far();  // align with a distant copy when no text is expected

  const Vocabulary* vocabulary_;
  const Ngram* ngram_;
  Weights* weights_;
  const Recycling* recycling_ = nullptr;
  bool free_ = false;  // no position in the expected text is given
  unsigned without_ = 0;
  Text expected_, output_;
  Rules rules_;
  Files files_;
  Alignment at_;
  int32_t left_ = -1;  // position in the output where the answer left the expected text
  Tree tree_;
  std::vector<Node> nodes_;
  std::vector<Scored> evaluations_;
  int evaluated_ = 0;
  Field field_;
  std::vector<int32_t> path_, path_shapes_;  // the answer followed by the current drafted path
};

}  // namespace draftline::drafting
