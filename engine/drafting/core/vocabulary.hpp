// What is known of a token beside its id: how it looks, and a hash of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Compiled for wider registers, too; which is used is decided when the module is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define DRAFTLINE_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define DRAFTLINE_WIDE
#endif

// Into such functions too.
#if defined(__GNUC__)
#define DRAFTLINE_INLINE __attribute__((always_inline)) inline
#else
#define DRAFTLINE_INLINE inline
#endif

namespace draftline::drafting {

constexpr int32_t kBorder = -1;  // stands between texts, equals no token
constexpr int kLooks = 6;        // blank, with a line end, punctuation, " word", word, other

struct Vocabulary {
  std::vector<uint32_t> hashes;  // by id, of the UTF-8 bytes: the same whatever the tokenizer is
  std::vector<uint8_t> looks;    // by id: 0 .. kLooks - 1, + 8 where a line starts after the token

  uint32_t hash(int32_t token) const {
    return token >= 0 && size_t(token) < hashes.size() ? hashes[size_t(token)] : uint32_t(token);
  }
  void prefetch(int32_t token) const {
    if (token < 0 || size_t(token) >= hashes.size()) return;
    __builtin_prefetch(&hashes[size_t(token)]);
    __builtin_prefetch(&looks[size_t(token)]);
  }
  unsigned look(int32_t token) const { return at(token) & 7; }
  // What stands for a token where only the form of the code counts: words are alike.
  int32_t shape(int32_t token) const {
    const unsigned kind = look(token);
    return kind == 3 || kind == 4 ? -int32_t(kind) : token;
  }
  bool starts_line(int32_t token) const { return at(token) & 8; }

 private:
  uint8_t at(int32_t token) const {
    return token >= 0 && size_t(token) < looks.size() ? looks[size_t(token)]
                                                      : (token < 0 ? 8 | 5 : 5);
  }
};

}  // namespace draftline::drafting
