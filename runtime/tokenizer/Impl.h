//===- Impl.h - the inside of a Tokenizer -------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Model.h"
#include "Steps.h"
#include "Tokenizer.h"
#include <bitset>

namespace lathe {

struct Tokenizer::Impl {
  TokenizerSpec spec;
  std::unique_ptr<tokenizer::Model> model;
  tokenizer::NormalizerChain normalizers;
  tokenizer::Splitter splitter;
  /// Added tokens to look for in the raw text, with and without special ones, and after normalization;
  /// values are indices into spec.added.
  tokenizer::Trie withSpecial, withoutSpecial, afterNormalization;
  std::vector<std::string> normalizedTexts; ///< keys of afterNormalization
  std::vector<bool> special;                ///< by id
  bool cutAtSpaces = false;                 ///< words of a metaspace model may be merged one by one
  std::bitset<256> joining;                 ///< but not where one of these bytes stands before the space

  template <typename OnText, typename OnToken>
  void cut(const tokenizer::Trie &special, const tokenizer::Trie &plain, std::string_view text,
           const std::vector<uint8_t> *allowed, OnText onText, OnToken onToken) const;

  /// Appends what |id| adds to a text; |first|: it is the first word (wordPiece).
  void appendPiece(int32_t id, bool keepSpecial, bool first, std::string &out) const;
};

} // namespace lathe
