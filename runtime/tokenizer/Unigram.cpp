//===- Unigram.cpp - unigram language model and word pieces ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Model.h"
#include <algorithm>
#include <limits>

namespace lathe::tokenizer {
namespace {
using Type = TokenizerSpec::PieceType;

/// The segmentation with the largest sum of scores (Viterbi over character positions). A character
/// that is no piece costs ten more than the worst piece, as in SentencePiece.
class Unigram : public Model {
public:
  explicit Unigram(const TokenizerSpec &spec) : spec(spec), bytes(bytePieces(spec)) {
    std::vector<Trie::Key> keys;
    constexpr double none = std::numeric_limits<double>::max();
    double worst = none;
    for (uint32_t id = 0; id < spec.pieces.size(); ++id) {
      if (spec.types[id] != Type::normal && spec.types[id] != Type::userDefined) continue;
      keys.push_back({spec.pieces[id], id});
      if (spec.types[id] == Type::normal) worst = std::min(worst, spec.scores[id]);
    }
    if (worst == none) worst = 0;
    unknownScore = worst - 10.0;
    trie.build(std::move(keys));
  }

  void encode(std::string_view word, Scratch &scratch, std::vector<int32_t> &out) const override {
    std::vector<Scratch::Best> &best = scratch.best;
    const double unreached = -std::numeric_limits<double>::infinity();
    best.assign(word.size() + 1, {unreached, 0, -1});
    best[0].score = 0;
    for (size_t at = 0; at < word.size();) {
      uint32_t size = characterBytes(word, at);
      bool single = false;
      double base = best[at].score;
      uint32_t node = Trie::root;
      for (size_t i = at; i < word.size(); ++i) {
        node = trie.child(node, static_cast<uint8_t>(word[i]));
        if (node == Trie::none) break;
        uint32_t id = trie.value(node);
        if (id == Trie::none) continue;
        size_t end = i + 1;
        double score = add(base, spec.types[id] == Type::userDefined ? 0.0 : spec.scores[id]);
        if (score > best[end].score) best[end] = {score, static_cast<uint32_t>(at), static_cast<int32_t>(id)};
        single |= end - at == size;
      }
      if (double score = add(base, unknownScore); !single && score > best[at + size].score)
        best[at + size] = {score, static_cast<uint32_t>(at), -1};
      at += size;
    }
    size_t first = out.size();
    // Backwards; the ids come out reversed.
    size_t at = word.size();
    while (at > 0) {
      size_t from = best[at].from;
      if (best[at].id >= 0) {
        out.push_back(best[at].id);
        at = from;
        continue;
      }
      // A run of unknown characters: bytes, or one unknown token.
      if (fallback(word.substr(from, at - from))) {
        for (size_t i = at; i-- > from;)
          out.push_back(bytes[static_cast<uint8_t>(word[i])]);
      } else if (spec.unknown >= 0) {
        bool same = spec.fuseUnknown && out.size() > first && out.back() == spec.unknown;
        if (!same) out.push_back(spec.unknown);
      }
      at = from;
    }
    std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
  }

private:
  double add(double a, double b) const {
    return spec.floatSums ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b)) : a + b;
  }
  bool fallback(std::string_view character) const {
    return spec.byteFallback &&
           std::all_of(character.begin(), character.end(), [&](char c) { return bytes[static_cast<uint8_t>(c)] >= 0; });
  }
  const TokenizerSpec &spec;
  std::vector<int32_t> bytes;
  Trie trie;
  double unknownScore;
};

/// Greedy: the longest piece at each place of the word, with the continuation prefix from the second
/// on; the whole word is unknown when one place has none.
class WordPiece : public Model {
public:
  explicit WordPiece(const TokenizerSpec &spec) : spec(spec) {
    std::vector<Trie::Key> starts, inner;
    for (uint32_t id = 0; id < spec.pieces.size(); ++id) {
      if (spec.types[id] != Type::normal && spec.types[id] != Type::userDefined) continue;
      std::string_view text = spec.pieces[id];
      starts.push_back({text, id});
      if (text.starts_with(spec.continuation)) inner.push_back({text.substr(spec.continuation.size()), id});
    }
    first.build(std::move(starts));
    rest.build(std::move(inner));
  }

  void encode(std::string_view word, Scratch &, std::vector<int32_t> &out) const override {
    size_t characters = 0;
    for (char c : word)
      characters += (static_cast<uint8_t>(c) & 0xc0) != 0x80;
    size_t before = out.size();
    for (size_t at = 0; at < word.size();) {
      const Trie &trie = at == 0 ? first : rest;
      uint32_t node = Trie::root, found = Trie::none;
      size_t end = at;
      for (size_t i = at; i < word.size(); ++i) {
        node = trie.child(node, static_cast<uint8_t>(word[i]));
        if (node == Trie::none) break;
        if (trie.value(node) != Trie::none) found = trie.value(node), end = i + 1;
      }
      if (found == Trie::none || characters > spec.maxWordCharacters) {
        out.resize(before);
        if (spec.unknown >= 0) out.push_back(spec.unknown);
        return;
      }
      out.push_back(static_cast<int32_t>(found));
      at = end;
    }
  }

private:
  const TokenizerSpec &spec;
  Trie first, rest;
};

} // namespace

std::unique_ptr<Model> makeUnigram(const TokenizerSpec &spec) { return std::make_unique<Unigram>(spec); }
std::unique_ptr<Model> makeWordPiece(const TokenizerSpec &spec) { return std::make_unique<WordPiece>(spec); }

} // namespace lathe::tokenizer
