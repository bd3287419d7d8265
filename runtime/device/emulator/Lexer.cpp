//===- Lexer.cpp - tokens of PTX text --------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Lexer.h"
#include <charconv>
#include <cstring>

namespace lathe::emulator {
namespace {

constexpr std::string_view kLayerMark = "lathe.layer:";

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isHex(char c) { return isDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%'; }

class Lexer {
public:
  explicit Lexer(std::string_view source) : source(source) {}

  Result<TokenList> run() {
    // PTX is about four characters a token; a token is 40 bytes, so memory is bounded by the text.
    list.tokens.reserve(source.size() / 4 + 16);
    while (true) {
      LATHE_RETURN_IF_ERROR(skipBlank());
      Token token;
      token.line = line;
      if (at >= source.size()) {
        list.tokens.push_back(token);
        return std::move(list);
      }
      LATHE_RETURN_IF_ERROR(next(token));
      list.tokens.push_back(token);
    }
  }

private:
  char peek(size_t ahead = 0) const { return at + ahead < source.size() ? source[at + ahead] : '\0'; }
  Status error(const char *what) const {
    return makeError(StatusCode::invalidArgument, "ptx line %u: %s", line, what);
  }

  Status skipBlank() {
    while (at < source.size()) {
      char c = source[at];
      if (c == '\n') {
        ++line;
        ++at;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\0') {
        ++at; // nvcc and LLVM end the text with a zero byte when it is embedded
      } else if (c == '/' && peek(1) == '/') {
        size_t begin = at + 2;
        while (at < source.size() && source[at] != '\n')
          ++at;
        noteLayer(source.substr(begin, at - begin));
      } else if (c == '/' && peek(1) == '*') {
        size_t end = source.find("*/", at + 2);
        if (end == source.npos) return error("comment is not closed");
        for (; at < end + 2; ++at)
          line += source[at] == '\n';
      } else {
        break;
      }
    }
    return {};
  }

  void noteLayer(std::string_view comment) {
    size_t begin = comment.find_first_not_of(" \t");
    if (begin == comment.npos || comment.substr(begin, kLayerMark.size()) != kLayerMark) return;
    comment.remove_prefix(begin + kLayerMark.size());
    size_t first = comment.find_first_not_of(" \t"), last = comment.find_last_not_of(" \t\r");
    if (first != comment.npos) list.layers.push_back({line, comment.substr(first, last - first + 1)});
  }

  Status next(Token &token) {
    char c = source[at];
    size_t begin = at;
    if (isLetter(c) || (c == '.' && (isLetter(peek(1)) || isDigit(peek(1))))) {
      token.kind = TokenKind::word;
      while (at < source.size()) {
        char d = source[at];
        if (isLetter(d) || isDigit(d) || d == '.') ++at;
        else if (d == ':' && peek(1) == ':' && isLetter(peek(2))) at += 2;
        else break;
      }
      token.text = source.substr(begin, at - begin);
      return {};
    }
    if (isDigit(c)) return number(token);
    if (c == '"') {
      size_t end = source.find_first_of("\"\n", at + 1);
      if (end == source.npos || source[end] != '"') return error("string is not closed");
      token.kind = TokenKind::text;
      token.text = source.substr(at + 1, end - at - 1);
      at = end + 1;
      return {};
    }
    if (c < 0x20 || c > 0x7e) return error("character that PTX does not have");
    token.kind = TokenKind::symbol;
    token.text = source.substr(at++, 1);
    return {};
  }

  Status hex(Token &token, size_t digits) {
    at += 2;
    size_t begin = at;
    while (isHex(peek()))
      ++at;
    if (at - begin != digits) return error("floating-point constant needs 8 (0f) or 16 (0d) hexadecimal digits");
    std::from_chars(source.data() + begin, source.data() + at, token.value, 16);
    return {};
  }

  Status number(Token &token) {
    size_t begin = at;
    char mark = peek(1);
    if (source[at] == '0' && (mark == 'f' || mark == 'F')) {
      token.kind = TokenKind::single;
      return hex(token, 8);
    }
    if (source[at] == '0' && (mark == 'd' || mark == 'D')) {
      token.kind = TokenKind::real;
      return hex(token, 16);
    }
    token.kind = TokenKind::integer;
    int base = 10;
    if (source[at] == '0' && (mark == 'x' || mark == 'X')) {
      base = 16;
      at += 2;
    } else if (source[at] == '0' && (mark == 'b' || mark == 'B')) {
      base = 2;
      at += 2;
    } else if (source[at] == '0' && isDigit(mark)) {
      base = 8;
    }
    auto [end, code] = std::from_chars(source.data() + at, source.data() + source.size(), token.value, base);
    if (code != std::errc()) return error("number is not a 64-bit integer");
    size_t stop = static_cast<size_t>(end - source.data());
    if (base == 10 && stop < source.size() && (source[stop] == '.' || source[stop] == 'e' || source[stop] == 'E')) {
      double value = 0;
      auto [tail, bad] = std::from_chars(source.data() + begin, source.data() + source.size(), value);
      if (bad != std::errc()) return error("floating-point constant out of range");
      token.kind = TokenKind::real;
      std::memcpy(&token.value, &value, sizeof(value));
      stop = static_cast<size_t>(tail - source.data());
    }
    at = stop;
    if (peek() == 'U') ++at;
    token.text = source.substr(begin, at - begin);
    return {};
  }

  std::string_view source;
  size_t at = 0;
  uint32_t line = 1;
  TokenList list;
};

} // namespace

Result<TokenList> tokenize(std::string_view source) { return Lexer(source).run(); }

} // namespace lathe::emulator
