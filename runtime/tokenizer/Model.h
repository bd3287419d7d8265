//===- Model.h - one word to ids ----------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "CandidateQueue.h"
#include "Tables.h"
#include "lathe/artifact/TokenizerSpec.h"
#include "lathe/base/Unicode.h"
#include <memory>

namespace lathe::tokenizer {

/// Working memory of one encode() call, kept between its words.
struct Scratch {
  struct Symbol {
    int32_t previous, next; ///< -1: none
    uint32_t first, bytes;  ///< in the word; bytes 0: merged away
    int32_t id;             ///< -1: no piece
  };
  std::vector<Symbol> symbols;
  CandidateQueue queue;
  struct Best {
    double score;
    uint32_t from;
    int32_t id;
  };
  std::vector<Best> best;
};

/// Turns the text between two splits into ids. Immutable.
class Model {
public:
  virtual ~Model() = default;
  virtual void encode(std::string_view word, Scratch &scratch, std::vector<int32_t> &out) const = 0;
};

/// |spec| must outlive the model. |spec| has been verified.
std::unique_ptr<Model> makeBpe(const TokenizerSpec &spec);
std::unique_ptr<Model> makeScoredBpe(const TokenizerSpec &spec);
std::unique_ptr<Model> makeUnigram(const TokenizerSpec &spec);
std::unique_ptr<Model> makeWordPiece(const TokenizerSpec &spec);

/// Pieces that text can become: normal, unused and user-defined ones.
PieceMap textPieces(const TokenizerSpec &spec);
/// Id of the byte piece of every byte, or -1.
std::vector<int32_t> bytePieces(const TokenizerSpec &spec);
/// Bytes of the character at |at|; 1 for a byte that is part of none.
inline uint32_t characterBytes(std::string_view text, size_t at) {
  unsigned length = 1;
  if (static_cast<uint8_t>(text[at]) >= 0x80) unicode::decode(text, at, length);
  return length;
}

} // namespace lathe::tokenizer
