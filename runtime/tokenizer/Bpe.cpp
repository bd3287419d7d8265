//===- Bpe.cpp - byte-pair encoding, by rank and by score -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Symbols form a linked list; a queue holds the pairs that may be merged, the best first and of
// equals the leftmost. Every merge removes a symbol and adds at most two pairs: O(n log n).
//===----------------------------------------------------------------------===//
#include "Model.h"
#include "lathe/base/Unicode.h"
#include <algorithm>
#include <cmath>

namespace lathe::tokenizer {
namespace {

using Symbol = Scratch::Symbol;
/// Joins |left| with its right neighbour.
void join(std::vector<Symbol> &symbols, uint32_t left, int32_t id) {
  Symbol &a = symbols[left];
  Symbol &b = symbols[a.next];
  a.bytes += b.bytes;
  a.id = id;
  b.bytes = 0;
  a.next = b.next;
  if (b.next >= 0) symbols[b.next].previous = static_cast<int32_t>(left);
}

void link(std::vector<Symbol> &symbols) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i + 1) : -1;
  }
}

class Bpe : public Model {
public:
  explicit Bpe(const TokenizerSpec &spec) : spec(spec), bytes(bytePieces(spec)) {
    pieces = textPieces(spec);
    merges.reserve(spec.merges.size());
    for (size_t i = 0; i < spec.merges.size(); ++i) {
      const TokenizerSpec::Merge &merge = spec.merges[i];
      // Plain text must not become a control token, whatever a vocabulary says.
      if (spec.types[merge.result] == TokenizerSpec::PieceType::control) continue;
      merges.add(merge.left, merge.right, {static_cast<uint32_t>(i), merge.result});
    }
    if (spec.byteLevel)
      for (unsigned b = 0; b < 256; ++b) {
        char c = static_cast<char>(b);
        bytes[b] = pieces.find({&c, 1});
      }
  }

  void encode(std::string_view word, Scratch &scratch, std::vector<int32_t> &out) const override {
    if (spec.ignoreMerges) {
      int32_t id = pieces.find(word);
      if (id >= 0) {
        out.push_back(id);
        return;
      }
    }
    std::vector<Symbol> &symbols = scratch.symbols;
    symbols.clear();
    if (spec.byteLevel)
      splitBytes(word, symbols);
    else
      splitCharacters(word, symbols);
    link(symbols);

    CandidateQueue &queue = scratch.queue;
    queue.start(spec.merges.size(), symbols.size());
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      consider(symbols, static_cast<int32_t>(i), queue);
    for (Candidate top; queue.pop(top);) {
      Symbol &symbol = symbols[top.left];
      if (symbol.bytes == 0 || symbol.next < 0) continue;
      // The symbols may have grown since; the pair still counts when it makes the same piece.
      const MergeMap::Entry *now = find(symbol, symbols[symbol.next]);
      if (!now || now->result != top.result) continue;
      join(symbols, top.left, static_cast<int32_t>(top.result));
      consider(symbols, symbol.previous, queue);
      consider(symbols, static_cast<int32_t>(top.left), queue);
    }
    for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next)
      if (symbols[i].id >= 0) out.push_back(symbols[i].id);
  }

private:
  void splitBytes(std::string_view word, std::vector<Symbol> &symbols) const {
    for (size_t i = 0; i < word.size(); ++i) {
      int32_t id = bytes[static_cast<uint8_t>(word[i])];
      if (id < 0) id = spec.unknown; // and if there is none, the byte is lost
      if (id >= 0) symbols.push_back({0, 0, static_cast<uint32_t>(i), 1, id});
    }
  }

  void splitCharacters(std::string_view word, std::vector<Symbol> &symbols) const {
    std::string last;
    for (size_t i = 0; i < word.size();) {
      uint32_t size = characterBytes(word, i);
      std::string_view character = word.substr(i, size);
      int32_t id;
      if (!spec.endOfWord.empty() && i + size == word.size()) {
        last = std::string(character) + spec.endOfWord;
        id = pieces.find(last);
      } else {
        id = pieces.find(character);
      }
      uint32_t at = static_cast<uint32_t>(i);
      i += size;
      if (id >= 0) {
        symbols.push_back({0, 0, at, size, id});
        continue;
      }
      if (spec.byteFallback && std::all_of(character.begin(), character.end(),
                                           [&](char c) { return bytes[static_cast<uint8_t>(c)] >= 0; })) {
        for (uint32_t b = 0; b < size; ++b)
          symbols.push_back({0, 0, at + b, 1, bytes[static_cast<uint8_t>(character[b])]});
        continue;
      }
      if (spec.unknown < 0) continue;
      if (spec.fuseUnknown && !symbols.empty() && symbols.back().id == spec.unknown)
        symbols.back().bytes += size;
      else
        symbols.push_back({0, 0, at, size, spec.unknown});
    }
  }

  const MergeMap::Entry *find(const Symbol &a, const Symbol &b) const {
    return merges.find(static_cast<uint32_t>(a.id), static_cast<uint32_t>(b.id));
  }
  void consider(const std::vector<Symbol> &symbols, int32_t left, CandidateQueue &queue) const {
    if (left < 0 || symbols[left].next < 0) return;
    if (const MergeMap::Entry *merge = find(symbols[left], symbols[symbols[left].next]))
      queue.push({merge->rank, static_cast<uint32_t>(left), 0, merge->result});
  }

  const TokenizerSpec &spec;
  PieceMap pieces;
  MergeMap merges;
  std::vector<int32_t> bytes; ///< byte to id
};

/// Merges neighbours whose joined text is a piece, by the score of that piece.
class ScoredBpe : public Model {
public:
  explicit ScoredBpe(const TokenizerSpec &spec) : spec(spec), bytes(bytePieces(spec)) {
    pieces = textPieces(spec);
    // The heap compares integers: the place of a score among all of them, best first.
    std::vector<double> sorted(spec.scores);
    std::sort(sorted.begin(), sorted.end(), std::greater<double>());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (double score : spec.scores)
      order.push_back(static_cast<uint32_t>(
          std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<double>()) - sorted.begin()));
    for (TokenizerSpec::PieceType type : spec.types)
      anyUnused |= type == TokenizerSpec::PieceType::unused;
  }

  void encode(std::string_view word, Scratch &scratch, std::vector<int32_t> &out) const override {
    merge(word, scratch.symbols, scratch.queue, 0xffffffffu);
    size_t first = out.size();
    for (int32_t i = scratch.symbols.empty() ? -1 : 0; i >= 0; i = scratch.symbols[i].next)
      emit(word.substr(scratch.symbols[i].first, scratch.symbols[i].bytes), scratch.symbols[i].id, out, first, 0);
  }

private:
  /// Merges the characters of |text| into |symbols|; pieces of |forbidden| bytes are not made.
  void merge(std::string_view text, std::vector<Symbol> &symbols, CandidateQueue &queue, uint32_t forbidden) const {
    symbols.clear();
    for (size_t i = 0; i < text.size();) {
      uint32_t size = characterBytes(text, i);
      symbols.push_back({0, 0, static_cast<uint32_t>(i), size, -1});
      i += size;
    }
    link(symbols);
    queue.start(order.size(), symbols.size()); // orders are places among the scores
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      consider(text, symbols, static_cast<int32_t>(i), queue);
    for (Candidate top; queue.pop(top);) {
      Symbol &symbol = symbols[top.left];
      if (symbol.bytes == 0 || symbol.next < 0 || symbol.bytes + symbols[symbol.next].bytes != top.bytes) continue;
      if (top.bytes == forbidden) continue;
      join(symbols, top.left, static_cast<int32_t>(top.result));
      consider(text, symbols, symbol.previous, queue);
      consider(text, symbols, static_cast<int32_t>(top.left), queue);
    }
  }

  void consider(std::string_view text, const std::vector<Symbol> &symbols, int32_t left, CandidateQueue &queue) const {
    if (left < 0 || symbols[left].next < 0) return;
    uint32_t size = symbols[left].bytes + symbols[symbols[left].next].bytes;
    int32_t id = pieces.find(text.substr(symbols[left].first, size));
    if (id >= 0) queue.push({order[id], static_cast<uint32_t>(left), size, static_cast<uint32_t>(id)});
  }

  /// |first|: where the word's ids start in |out|.
  void emit(std::string_view text, int32_t id, std::vector<int32_t> &out, size_t first, unsigned depth) const {
    if (id < 0) id = pieces.find(text); // a character that never merged
    if (id >= 0 && (!anyUnused || spec.types[id] != TokenizerSpec::PieceType::unused)) {
      out.push_back(id);
      return;
    }
    // An unused piece is a step towards others but no result: it becomes the two parts that its own
    // merging would have had last.
    if (id >= 0 && depth < 100 && split(text, out, first, depth)) return;
    for (char c : text) {
      int32_t byte = bytes[static_cast<uint8_t>(c)];
      if (byte >= 0) {
        out.push_back(byte);
      } else {
        if (spec.unknown >= 0 && !(spec.fuseUnknown && out.size() > first && out.back() == spec.unknown))
          out.push_back(spec.unknown);
        return;
      }
    }
  }

  /// Tokenizes |text| without the piece that it is as a whole.
  bool split(std::string_view text, std::vector<int32_t> &out, size_t first, unsigned depth) const {
    std::vector<Symbol> symbols;
    CandidateQueue queue;
    merge(text, symbols, queue, static_cast<uint32_t>(text.size()));
    if (symbols.size() < 2) return false;
    for (int32_t i = 0; i >= 0; i = symbols[i].next)
      emit(text.substr(symbols[i].first, symbols[i].bytes), symbols[i].id, out, first, depth + 1);
    return true;
  }

  const TokenizerSpec &spec;
  PieceMap pieces;
  std::vector<uint32_t> order; ///< by id
  std::vector<int32_t> bytes;
  bool anyUnused = false;
};

} // namespace

PieceMap textPieces(const TokenizerSpec &spec) {
  using Type = TokenizerSpec::PieceType;
  PieceMap map;
  map.reserve(spec.pieces.size());
  // Of pieces with the same text, those of the model come before added ones.
  for (bool userDefined : {false, true})
    for (uint32_t id = 0; id < spec.pieces.size(); ++id) {
      Type type = spec.types[id];
      bool wanted = userDefined ? type == Type::userDefined : type == Type::normal || type == Type::unused;
      if (wanted && !spec.pieces[id].empty()) map.add(spec.pieces[id], id);
    }
  return map;
}

std::vector<int32_t> bytePieces(const TokenizerSpec &spec) {
  std::vector<int32_t> ids(256, -1);
  for (size_t id = spec.pieces.size(); id-- > 0;)
    if (spec.types[id] == TokenizerSpec::PieceType::byte)
      ids[static_cast<uint8_t>(spec.pieces[id][0])] = static_cast<int32_t>(id);
  return ids;
}

std::unique_ptr<Model> makeBpe(const TokenizerSpec &spec) { return std::make_unique<Bpe>(spec); }
std::unique_ptr<Model> makeScoredBpe(const TokenizerSpec &spec) { return std::make_unique<ScoredBpe>(spec); }

} // namespace lathe::tokenizer
