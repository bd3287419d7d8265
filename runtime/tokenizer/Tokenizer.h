//===- Tokenizer.h - text to token ids and back -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/TokenizerSpec.h"
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// A piece of a prompt. Neighbouring pieces are tokenized as one text; special tokens are only
/// recognised in pieces that allow it, so that a message cannot forge them.
struct TextPiece {
  std::string_view text;
  bool parseSpecial = false;
};

struct EncodeOptions {
  bool addSpecial = true;    ///< put the spec's prefix and suffix ids (bos, eos) around
  bool parseSpecial = false; ///< of the one-text overload: control tokens in the text become tokens
};

/// Encodes and decodes. Immutable after create(); all members are safe to call from several threads.
class Tokenizer {
public:
  ~Tokenizer();
  Tokenizer(Tokenizer &&) noexcept;
  Tokenizer &operator=(Tokenizer &&) noexcept;

  /// Errors: invalidArgument (the spec is inconsistent, a pattern is wrong), unsupported.
  static Result<Tokenizer> create(TokenizerSpec spec);

  /// Ids of |text|, which may be any bytes: models with byte-level pieces or byte fallback keep them,
  /// for others what is not UTF-8 is an unknown character. Never fails; takes time O(n log n).
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  std::vector<int32_t> encode(const std::vector<TextPiece> &pieces, bool addSpecial) const;

  /// Text of |ids|. Special tokens are left out unless |keepSpecial|; ids out of range are ignored.
  /// The bytes are what the model said: not always valid UTF-8, see StreamDecoder.
  std::string decode(const std::vector<int32_t> &ids, bool keepSpecial = false) const;

  /// Bytes that token |id| adds in the middle of a text; empty for special tokens unless
  /// |keepSpecial|, and for ids out of range.
  std::string tokenToPiece(int32_t id, bool keepSpecial = false) const;
  /// Id of the piece or added token with exactly this text (for added tokens the literal text), or -1.
  int32_t pieceToToken(std::string_view text) const;

  int32_t vocabularySize() const;
  bool isSpecial(int32_t id) const;
  bool isEndOfGeneration(int32_t id) const;
  const TokenizerSpec &spec() const;

private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

/// Turns the tokens of one generation into text as they come. Every returned string is whole UTF-8
/// characters; the parts add up to decode() with invalid bytes replaced by U+FFFD (one for each
/// maximal ill-formed part, as the Unicode Standard recommends). Not thread-safe; the Tokenizer must
/// outlive it.
class StreamDecoder {
public:
  /// |keepSpecial|: as in decode(). |continues|: the tokens go on an earlier text, so that the
  /// leading-space rule does not apply.
  explicit StreamDecoder(const Tokenizer &tokenizer, bool keepSpecial = false, bool continues = false);
  /// Text that is complete with token |id|.
  std::string push(int32_t id);
  /// What is left at the end: U+FFFD for an unfinished character, else nothing.
  std::string flush();
  /// The same, behind what |out| holds: a caller that keeps |out| from call to call allocates nothing once it is long enough.
  void push(int32_t id, std::string &out);
  void flush(std::string &out) { complete(true, out); }

private:
  void complete(bool last, std::string &out);
  const Tokenizer *tokenizer;
  bool keepSpecial;
  bool started = false; ///< a word came before (wordPiece)
  uint32_t strip;       ///< leading spaces still to drop
  std::string held;     ///< bytes of an unfinished character
};

} // namespace lathe
