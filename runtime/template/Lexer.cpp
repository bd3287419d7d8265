//===- Lexer.cpp - template text to tokens ----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Whitespace control with trim_blocks and lstrip_blocks on: a newline right behind a block tag or
// comment goes, and so does the space before one that begins its line. `-` strips all whitespace on
// its side, `+` keeps what would go.
//===----------------------------------------------------------------------===//
#include "Lexer.h"
#include "Unicode.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace lathe::jinja {

Status syntaxError(int line, const std::string &what) {
  return makeError(StatusCode::invalidArgument, "template line %d: %s", line, what.c_str());
}

namespace {

/// One kind of line end, and none at the end of the file.
std::string normalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isNameChar(char c) { return isDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Lexer {
public:
  explicit Lexer(std::string text) : source(std::move(text)) {}
  Status run();
  std::vector<Token> tokens;

private:
  bool startsWith(std::string_view s) const { return std::string_view(source).substr(at).starts_with(s); }
  size_t skipSpace(size_t from) const {
    std::string_view rest = std::string_view(source).substr(from);
    return from + rest.size() - strip(rest, stripLeft).size();
  }
  /// Moves to |to|, counting lines.
  void advance(size_t to) {
    line += static_cast<int>(std::count(source.begin() + at, source.begin() + to, '\n'));
    at = to;
  }
  void add(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line;
    token.text = std::move(text);
    tokens.push_back(std::move(token));
  }
  bool matchRawBegin(size_t from, size_t &end, char &sign) const;
  Status skipComment(size_t from);
  Status readRaw();
  Status readTag(bool block);
  bool matchTagEnd(bool block, size_t &end) const;
  Status readToken();
  Status readString();
  Status readNumber();
  void addData(size_t end, char sign, bool isVariable);

  std::string source;
  size_t at = 0;
  int line = 1;
  bool lineStarting = true; ///< the last thing read ended in a newline, or nothing is read yet
  std::string brackets;     ///< closing brackets that are due
};

/// {% raw %}, with its signs: |end| is behind it.
bool Lexer::matchRawBegin(size_t from, size_t &end, char &sign) const {
  size_t i = from + 2;
  sign = i < source.size() && (source[i] == '-' || source[i] == '+') ? source[i++] : 0;
  i = skipSpace(i);
  if (source.compare(i, 3, "raw") != 0) return false;
  i = skipSpace(i + 3);
  bool stripAfter = i < source.size() && source[i] == '-';
  if (stripAfter) ++i;
  if (source.compare(i, 2, "%}") != 0) return false;
  end = stripAfter ? skipSpace(i + 2) : i + 2;
  return true;
}

/// The text from here to |end|, without what the tag behind it strips.
void Lexer::addData(size_t end, char sign, bool isVariable) {
  std::string_view text = std::string_view(source).substr(at, end - at);
  if (sign == '-') {
    text = strip(text, stripRight);
  } else if (sign != '+' && !isVariable) {
    size_t begin = text.rfind('\n') + 1; // 0 without a newline
    if ((begin > 0 || lineStarting) && begin < text.size() && strip(text.substr(begin), stripLeft).empty())
      text = text.substr(0, begin);
  }
  if (!text.empty()) add(TokenKind::data, std::string(text));
  advance(end);
}

Status Lexer::run() {
  while (at < source.size()) {
    size_t tag = at;
    while ((tag = source.find('{', tag)) != std::string::npos) {
      char next = tag + 1 < source.size() ? source[tag + 1] : 0;
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string::npos) {
      add(TokenKind::data, source.substr(at));
      advance(source.size());
      break;
    }
    char kind = source[tag + 1], sign = 0;
    size_t end;
    if (kind == '%' && matchRawBegin(tag, end, sign)) {
      addData(tag, sign, false);
      advance(end);
      LATHE_RETURN_IF_ERROR(readRaw());
      continue;
    }
    end = tag + 2;
    if (end < source.size() && (source[end] == '-' || source[end] == '+')) sign = source[end++];
    addData(tag, sign, kind == '{');
    if (kind == '#') {
      LATHE_RETURN_IF_ERROR(skipComment(end));
      continue;
    }
    add(kind == '{' ? TokenKind::variableBegin : TokenKind::blockBegin, "");
    advance(end);
    LATHE_RETURN_IF_ERROR(readTag(kind == '%'));
  }
  add(TokenKind::end, "");
  return Status();
}

Status Lexer::skipComment(size_t from) {
  if (from == source.size()) return advance(from), Status(); // with nothing behind it, Jinja2 does not miss its end
  size_t close = source.find("#}", from);
  if (close == std::string::npos) return syntaxError(line, "comment is not closed, expected '#}'");
  char sign = close > from ? source[close - 1] : 0;
  size_t end = close + 2;
  if (sign == '-')
    end = skipSpace(end);
  else if (sign != '+' && end < source.size() && source[end] == '\n')
    ++end;
  lineStarting = source[end - 1] == '\n';
  advance(end);
  return Status();
}

Status Lexer::readRaw() {
  if (at == source.size()) return Status(); // as of a comment
  for (size_t tag = source.find("{%", at); tag != std::string::npos; tag = source.find("{%", tag + 1)) {
    size_t i = tag + 2;
    char sign = i < source.size() && (source[i] == '-' || source[i] == '+') ? source[i++] : 0;
    i = skipSpace(i);
    if (source.compare(i, 6, "endraw") != 0) continue;
    i = skipSpace(i + 6);
    char endSign = i < source.size() && (source[i] == '-' || source[i] == '+') ? source[i++] : 0;
    if (source.compare(i, 2, "%}") != 0) continue;
    i += 2;
    if (endSign == '-')
      i = skipSpace(i);
    else if (endSign != '+' && i < source.size() && source[i] == '\n')
      ++i;
    lineStarting = source[at - 1] == '\n';
    addData(tag, sign, false);
    lineStarting = source[i - 1] == '\n';
    advance(i);
    return Status();
  }
  return syntaxError(line, "raw block is not closed, expected '{% endraw %}'");
}

bool Lexer::matchTagEnd(bool block, size_t &end) const {
  std::string_view close = block ? "%}" : "}}";
  if (startsWith(close)) {
    end = at + 2;
    if (block && end < source.size() && source[end] == '\n') ++end;
    return true;
  }
  if (source[at] == '-' && source.compare(at + 1, 2, close) == 0) {
    end = skipSpace(at + 3);
    return true;
  }
  if (block && source[at] == '+' && source.compare(at + 1, 2, close) == 0) {
    end = at + 3;
    return true;
  }
  return false;
}

Status Lexer::readTag(bool block) {
  brackets.clear();
  int begun = line;
  while (at < source.size()) {
    size_t end;
    if (brackets.empty() && matchTagEnd(block, end)) {
      add(block ? TokenKind::blockEnd : TokenKind::variableEnd, "");
      lineStarting = source[end - 1] == '\n';
      advance(end);
      return Status();
    }
    end = skipSpace(at);
    if (end > at) {
      advance(end);
      continue;
    }
    LATHE_RETURN_IF_ERROR(readToken());
  }
  return syntaxError(line, std::string("tag begun in line ") + std::to_string(begun) + " is not closed, expected '" +
                               (block ? "%}" : "}}") + "'");
}

Status Lexer::readToken() {
  char c = source[at];
  if (isDigit(c)) return readNumber();
  if (isNameChar(c) || (c & 0x80)) {
    size_t end = at;
    while (end < source.size() && (isNameChar(source[end]) || (source[end] & 0x80))) {
      size_t next = end;
      if (!isIdentifierPart(decodeAt(source, next))) break;
      end = next;
    }
    size_t first = at;
    if (end == at || !isIdentifierStart(decodeAt(source, first)))
      return syntaxError(line, "unexpected character '" + source.substr(at, std::max(end, first) - at) + "'");
    add(TokenKind::name, source.substr(at, end - at));
    advance(end);
    return Status();
  }
  if (c == '"' || c == '\'') return readString();
  static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                          "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const char *op : operators) {
    if (!startsWith(op)) continue;
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty()) return syntaxError(line, std::string("unexpected '") + c + "'");
      if (brackets.back() != c)
        return syntaxError(line, std::string("expected '") + brackets.back() + "', found '" + c + "'");
      brackets.pop_back();
    }
    add(TokenKind::op, op);
    advance(at + tokens.back().text.size());
    return Status();
  }
  return syntaxError(line, std::string("unexpected character '") + c + "'");
}

/// A run of digits of |base| that may hold single underscores between digits; returns its end.
size_t digitRun(std::string_view s, size_t i, int base, std::string &digits) {
  auto value = [&](size_t k) {
    if (k >= s.size()) return 99;
    char c = s[k];
    int v = isDigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
    return v < base ? v : 99;
  };
  while (true) {
    size_t k = i < s.size() && s[i] == '_' && !digits.empty() ? i + 1 : i;
    if (value(k) == 99) return i;
    digits += s[k];
    i = k + 1;
  }
}

Status Lexer::readNumber() {
  std::string_view s = source;
  Token token;
  token.line = line;
  int base = 10;
  size_t end = at;
  std::string digits;
  if (s[at] == '0' && at + 1 < s.size()) {
    char x = s[at + 1] | 0x20;
    base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
    if (base != 10) {
      size_t from = at + 2;
      if (from < s.size() && s[from] == '_') ++from;
      end = digitRun(s, from, base, digits);
      if (digits.empty()) base = 10;
    }
  }
  if (base == 10) {
    end = digitRun(s, at, 10, digits);
    // The part behind the point, then the exponent. A number behind a point is an index: a.0.1
    bool afterDot = at > 0 && s[at - 1] == '.';
    std::string real = digits;
    size_t i = end;
    bool isReal = false;
    if (!afterDot) {
      std::string fraction;
      if (i < s.size() && s[i] == '.') {
        size_t j = digitRun(s, i + 1, 10, fraction);
        if (!fraction.empty()) {
          real += "." + fraction;
          i = j;
          isReal = true;
        }
      }
      if (i < s.size() && (s[i] | 0x20) == 'e') {
        size_t j = i + 1;
        std::string power;
        std::string sign = j < s.size() && (s[j] == '+' || s[j] == '-') ? std::string(1, s[j++]) : "";
        j = digitRun(s, j, 10, power);
        if (!power.empty()) {
          real += "e" + sign + power;
          i = j;
          isReal = true;
        }
      }
    }
    if (isReal) {
      token.kind = TokenKind::real;
      auto r = std::from_chars(real.data(), real.data() + real.size(), token.real);
      if (r.ec == std::errc::result_out_of_range) token.real = real.find("e-") == std::string::npos ? HUGE_VAL : 0.0;
      token.text = real;
      advance(i);
      tokens.push_back(std::move(token));
      return Status();
    }
    // Python has no octal with a bare leading zero: 012 is 0 and then 12.
    if (digits[0] == '0') {
      end = at + 1;
      while (end < s.size() && (s[end] == '0' || (s[end] == '_' && end + 1 < s.size() && s[end + 1] == '0')))
        ++end;
      digits = "0";
    }
  }
  token.kind = TokenKind::integer;
  token.text = digits;
  auto r = std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
  if (r.ec != std::errc())
    return makeError(StatusCode::unsupported, "template line %d: integer %s does not fit 64 bits", line,
                     digits.c_str());
  advance(end);
  tokens.push_back(std::move(token));
  return Status();
}

Status Lexer::readString() {
  char quote = source[at];
  size_t end = at + 1;
  while (end < source.size() && source[end] != quote)
    end += source[end] == '\\' ? 2 : 1;
  if (end >= source.size()) return syntaxError(line, "string is not closed");
  std::string out;
  for (size_t i = at + 1; i < end;) {
    char c = source[i++];
    if (c != '\\') {
      out += c;
      continue;
    }
    char e = source[i++];
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    if (const char *hit = e ? std::strchr(from, e) : nullptr) {
      out += to[hit - from];
    } else if (e == '\n') {
      // a line goes on
    } else if (e >= '0' && e <= '7') {
      char32_t value = e - '0';
      for (int k = 0; k < 2 && i < end && source[i] >= '0' && source[i] <= '7'; ++k)
        value = value * 8 + (source[i++] - '0');
      appendUtf8(out, value);
    } else if (e == 'x' || e == 'u' || e == 'U') {
      size_t n = e == 'x' ? 2 : e == 'u' ? 4 : 8;
      uint32_t value = 0;
      const char *first = source.data() + i, *last = source.data() + std::min(i + n, end);
      auto r = std::from_chars(first, last, value, 16);
      if (static_cast<size_t>(last - first) < n || r.ptr != last || r.ec != std::errc() || value > 0x10FFFF)
        return syntaxError(line, std::string("bad escape \\") + e + " in a string, expected " + std::to_string(n) +
                                     " hexadecimal digits of a character");
      if (value >= 0xD800 && value < 0xE000)
        return makeError(StatusCode::unsupported, "template line %d: half of a surrogate pair in a string", line);
      i += n;
      appendUtf8(out, value);
    } else if (e == 'N') {
      return makeError(StatusCode::unsupported, "template line %d: named character \\N{...} in a string", line);
    } else {
      out += '\\';
      out += e;
    }
  }
  add(TokenKind::string, std::move(out));
  advance(end + 1);
  return Status();
}

} // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  Lexer lexer(normalizeNewlines(source));
  LATHE_RETURN_IF_ERROR(lexer.run());
  return std::move(lexer.tokens);
}

} // namespace lathe::jinja
