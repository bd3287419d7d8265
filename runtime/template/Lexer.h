//===- Lexer.h - template text to tokens --------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::jinja {

enum class TokenKind : uint8_t {
  end,
  data,          ///< text between tags, whitespace control applied
  variableBegin, ///< {{
  variableEnd,
  blockBegin, ///< {%
  blockEnd,
  name,
  string, ///< escapes resolved
  integer,
  real,
  op, ///< an operator or bracket; text says which
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;
  int64_t integer = 0;
  double real = 0;

  bool isOp(std::string_view s) const { return kind == TokenKind::op && text == s; }
  bool isName(std::string_view s) const { return kind == TokenKind::name && text == s; }
};

/// Splits |source| (valid UTF-8) into tokens; the last is `end`. Errors carry the line.
Result<std::vector<Token>> tokenize(std::string_view source);

/// "template line N: |what|".
Status syntaxError(int line, const std::string &what);

} // namespace lathe::jinja
