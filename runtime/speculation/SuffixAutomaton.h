//===- SuffixAutomaton.h - all substrings of texts, online --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The suffix automaton (Blumer et al., 1985) of a set of token sequences that grow at the same time: the smallest
// automaton of all their substrings, whose suffix links are the suffix tree of the reversed texts. A state stands for
// substrings that occur at the same places and counts these places, so that the path of the largest counts is what
// mostly followed (suffix decoding, Oliaro et al., 2024).
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace lathe::runtime {

/// Amortised constant time a token. All memory is reserved at construction, about 160 bytes a token, and touched as it
/// is used. One thread at a time.
class SuffixAutomaton {
public:
  /// Room for |capacity| tokens over all sequences, at most 2^24.
  explicit SuffixAutomaton(uint32_t capacity);

  /// Bytes that one of |capacity| tokens takes at most.
  static uint64_t bytesFor(uint32_t capacity);

  bool full() const { return tokens >= capacity; }
  uint32_t size() const { return tokens; }
  /// Forgets everything.
  void clear();

  using State = uint32_t;
  static constexpr State root = 0;
  /// Appends |token| to the sequence whose last append returned |last| (root: a new one). Not when full().
  State append(State last, int32_t token);

  /// A substring that some sequence contains.
  struct Match {
    State state = root;
    uint32_t length = 0;
  };
  /// The longest suffix of (match + |token|) that some sequence contains.
  void advance(Match &match, int32_t token) const;
  /// The longest proper suffix, of the sequence whose last append returned |last|, that also occurs elsewhere or
  /// earlier.
  Match repeated(State last) const;

  struct Next {
    int32_t token = -1; ///< -1: nothing ever followed
    float share = 0;    ///< of the places where |match| went on, those that went on with |token|
  };
  /// Different followers of a place that are looked at, which bounds the time of a lookup: what mostly follows one that has more is seldom
  /// worth a guess.
  static constexpr uint32_t mostFollowers = 256;
  /// What mostly followed |match|, the lowest token of equals; |match| moves on to it. When nothing did, shorter
  /// suffixes are tried, down to |shortest| tokens. Of more than |mostFollowers| different tokens so many are looked at, which ones is not said;
  /// shares are of all places then too.
  Next follow(Match &match, uint32_t shortest) const;
  /// The tokens that followed |match| most often, as follow() finds the first: as many as there are, at most |out|.size(), and
  /// where |match| is behind each. Returns how many.
  uint32_t followers(Match match, uint32_t shortest, std::span<Next> out, std::span<Match> behind) const;
  /// Places where |match| ends. (Of substrings that occur in more than 64 classes of contexts it may be too small.)
  uint32_t occurrences(Match match) const;

private:
  struct Node {
    uint32_t length, link, firstEdge, count; ///< firstEdge: slot + 1
  };
  struct Edge {
    uint32_t state1; ///< state + 1; 0: an empty slot
    int32_t token;
    uint32_t target, next; ///< next: slot + 1 of the state's next edge
  };
  struct Free {
    void operator()(void *memory) const { std::free(memory); }
  };
  uint32_t slotOf(State state, int32_t token) const;
  const Edge *find(State state, int32_t token) const;
  void link(State state, int32_t token, State target);
  State newState(uint32_t length);
  void normalise(Match &match) const;

  uint32_t capacity, tokens = 0, states = 0, mask = 0;
  std::unique_ptr<Node[], Free> nodes;
  std::unique_ptr<Edge[], Free> edges;
};

} // namespace lathe::runtime
