// Features of tokens that do not depend on their ids: a class, and a hash of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Function multiversioning: an AVX2 clone is selected when the module is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define DRAFTLINE_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define DRAFTLINE_WIDE
#endif

// Inlined even into multiversioned functions.
#if defined(__GNUC__) || defined(__clang__)
#define DRAFTLINE_INLINE __attribute__((always_inline)) inline
#else
#define DRAFTLINE_INLINE inline
#endif

namespace draftline::drafting {

constexpr int32_t kBorder = -1;  // pseudo token between texts; equals no token
constexpr int kLooks = 6;        // classes: blank, line end, punctuation, " word", word, other

struct Vocabulary {
  std::vector<uint32_t> hashes;  // by id: CRC-32 of the UTF-8 bytes
  std::vector<uint8_t> looks;    // by id: the class, + 8 if a line starts after the token

  bool has(int32_t token) const { return token >= 0 && size_t(token) < hashes.size(); }
  uint32_t hash(int32_t token) const {
    return has(token) ? hashes[size_t(token)] : uint32_t(token);
  }
  void prefetch(int32_t token) const {
    if (!has(token)) return;
    __builtin_prefetch(&hashes[size_t(token)]);
    __builtin_prefetch(&looks[size_t(token)]);
  }
  unsigned look(int32_t token) const { return at(token) & 7; }
  // The token with all words mapped to one value per class: the form of the code.
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
