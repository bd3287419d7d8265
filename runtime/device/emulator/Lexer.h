//===- Lexer.h - tokens of PTX text ------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Syntax". An opcode with its modifiers ("ld.global.nc.v4.b32") is one token, and so is a
// directive (".reg") and a register ("%tid.x"). Comments are skipped, but for one kind that carries a
// name: "// lathe.layer: NAME" says which layer of the model the lines after it belong to.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <string_view>
#include <vector>

namespace lathe::emulator {

enum class TokenKind : uint8_t {
  word,     ///< identifier, opcode, directive, register
  integer,  ///< decimal, octal, binary or hexadecimal; value
  single,   ///< 0fXXXXXXXX; value holds the 32 bits
  real,     ///< 0dXXXXXXXXXXXXXXXX or a decimal fraction; value holds the 64 bits
  text,     ///< "..." without the quotes
  symbol,   ///< one character of punctuation
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  uint32_t line = 0;
  std::string_view text; ///< points into the source
  uint64_t value = 0;
};

/// A "// lathe.layer: NAME" comment.
struct LayerMark {
  uint32_t line = 0;
  std::string_view name;
};

struct TokenList {
  std::vector<Token> tokens; ///< the last one is `end`
  std::vector<LayerMark> layers;
};

/// Splits |source|, which must outlive the tokens.
Result<TokenList> tokenize(std::string_view source);

} // namespace lathe::emulator
