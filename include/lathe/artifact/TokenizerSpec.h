//===- TokenizerSpec.h - what a tokenizer needs to know -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A tokenizer as data: importers make one from GGUF metadata or tokenizer.json, the artifact holds
// its encoding as the section `tokenizer`, the runtime builds a Tokenizer from it. The pipeline is
//
//   text -> added tokens cut out -> normalizers -> splits -> model -> ids
//   ids  -> pieces -> decoder -> text
//
// with the steps that the `tokenizers` library has; llama.cpp's tokenizers are special cases.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe {

struct TokenizerSpec {
  enum class Model : uint8_t {
    bpe = 0,       ///< merges by rank
    scoredBpe = 1, ///< SentencePiece's BPE: merges by the score of the merged piece
    unigram = 2,   ///< best sum of scores
    wordPiece = 3, ///< longest piece first within a word
  };
  /// Kinds of pieces, with SentencePiece's and GGUF's numbers. Text becomes normal, unused and byte
  /// pieces only through the model, userDefined and control ones only as added tokens.
  enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, userDefined = 4, unused = 5, byte = 6 };

  struct Merge {
    uint32_t left, right, result; ///< ids; the rank is the position in the list
  };

  /// Text that is one token wherever it stands.
  struct AddedToken {
    uint32_t id = 0;
    std::string text;
    bool special = false;    ///< a control token: only found where special tokens are parsed, left out of plain output
    bool stripLeft = false;  ///< swallows the white space before it
    bool stripRight = false; ///< and after it
    bool singleWord = false; ///< not inside a word
    bool normalized = false; ///< looked for after normalization
  };

  struct Normalizer {
    enum class Kind : uint8_t {
      nfc = 0,
      nfd = 1,
      nfkc = 2,
      nfkd = 3,
      lowercase = 4,
      stripAccents = 5, ///< drops marks (categories M)
      strip = 6,        ///< white space at the left (flag 1) and right (flag 2) end
      replace = 7,      ///< |text| by |with|
      replacePattern = 8,
      prepend = 9,      ///< |text|, unless the segment is empty
      bert = 10,        ///< flags: 1 clean, 2 spaces around CJK, 4 strip accents (Mn), 8 lower case
      charsMap = 11,    ///< SentencePiece's compiled map in |text|
      mergeSpaces = 12, ///< runs of U+0020 become one; none at the ends
    };
    Kind kind = Kind::nfc;
    uint32_t flags = 0;
    std::string text, with;
  };

  struct Split {
    enum class Kind : uint8_t {
      pattern = 0,     ///< at the matches of |pattern|
      literal = 1,     ///< at each |pattern| as it stands
      prefixSpace = 2, ///< no split: U+0020 in front of a segment that does not start with white space
      metaspace = 3,   ///< U+0020 becomes |pattern|; prefix and split as |prefix| and |behavior| say
    };
    /// What becomes of a match; isolated: a piece of its own.
    enum class Behavior : uint8_t {
      isolated = 0,
      removed = 1,
      withPrevious = 2,
      withNext = 3,
      contiguous = 4,
      none = 5
    };
    enum class Prefix : uint8_t { never = 0, first = 1, always = 2 };
    Kind kind = Kind::pattern;
    Behavior behavior = Behavior::isolated;
    Prefix prefix = Prefix::never; ///< of metaspace
    bool invert = false;           ///< the gaps are the matches
    std::string pattern;
  };

  enum class Decoder : uint8_t {
    plain = 0,     ///< pieces as they are
    byteLevel = 1, ///< pieces are bytes (the same as plain, for pieces are stored as bytes)
    metaspace = 2, ///< |metaspace| becomes U+0020; stripStart
    wordPiece = 3, ///< a space between words, none before |continuation|; clean-up of punctuation
  };

  Model model = Model::bpe;
  bool byteLevel = false;    ///< bpe: symbols are bytes, else characters
  bool byteFallback = false; ///< a character without a piece becomes byte pieces
  bool ignoreMerges = false; ///< bpe: a word that is a piece is that piece, whatever the merges say
  bool fuseUnknown = false;  ///< neighbouring unknown tokens become one
  bool floatSums = false;    ///< unigram: sums of scores are rounded to float32, as SentencePiece does; else float64

  /// By id: the bytes that the piece stands for ("\xE2\x96\x81the", " the" in a byte-level model; byte
  /// pieces of other models one byte).
  std::vector<std::string> pieces;
  std::vector<PieceType> types; ///< as many as pieces
  std::vector<double> scores;   ///< as many as pieces, or none
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::vector<Normalizer> normalizers;
  std::vector<Split> splits;

  /// wordPiece: prefix of a piece that goes on a word. bpe: suffix of a piece that ends one (endOfWord).
  std::string continuation, endOfWord;
  uint32_t maxWordCharacters = 100; ///< wordPiece: longer words are unknown

  Decoder decoder = Decoder::byteLevel;
  std::string metaspace;   ///< of Decoder::metaspace
  uint32_t stripStart = 0; ///< spaces dropped at the start of decoded text
  bool cleanUp = false;    ///< wordPiece: no space before punctuation

  /// Ids put around a text when special tokens are asked for: [bos], [eos], or what a template says.
  std::vector<uint32_t> prefix, suffix;

  /// -1: none.
  int32_t bos = -1, eos = -1, eot = -1, unknown = -1, pad = -1;
  /// Tokens that end a generation; eos and eot among them.
  std::vector<uint32_t> endOfGeneration;

  /// Checks what the runtime relies on: sizes agree, ids are below the number of pieces, enumerators
  /// exist. invalidArgument says what is wrong.
  Status verify() const;

  /// Binary form; decode() gives an equal spec.
  std::string encode() const;
  /// Errors: dataLoss (cut off or inconsistent, with the offset), failedPrecondition (another
  /// version, with both numbers). The result is verified. Memory is bounded by the input's size.
  static Result<TokenizerSpec> decode(std::span<const uint8_t> bytes);

  static constexpr uint32_t version = 1;
};

} // namespace lathe
