//===- Unicode.cpp - characters as Python sees them -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Unicode.h"
#include <algorithm>
#include <iterator>

namespace lathe::jinja {
namespace {

struct Range {
  char32_t first, last;
};
struct CaseRun {
  char32_t first, last;
  int32_t step, delta;
};
struct CaseSpecial {
  char32_t from;
  char32_t to[3];
};
#include "UnicodeTables.inc"

template <size_t N> bool contains(const Range (&table)[N], char32_t c) {
  const Range *it =
      std::lower_bound(std::begin(table), std::end(table), c, [](const Range &r, char32_t c) { return r.last < c; });
  return it != std::end(table) && it->first <= c;
}

template <size_t R, size_t S>
void appendMapped(std::string &out, char32_t c, const CaseRun (&runs)[R], const CaseSpecial (&specials)[S]) {
  const CaseRun *run =
      std::lower_bound(std::begin(runs), std::end(runs), c, [](const CaseRun &r, char32_t c) { return r.last < c; });
  if (run != std::end(runs) && run->first <= c && (c - run->first) % run->step == 0)
    return appendUtf8(out, c + run->delta);
  const CaseSpecial *special = std::lower_bound(std::begin(specials), std::end(specials), c,
                                                [](const CaseSpecial &s, char32_t c) { return s.from < c; });
  if (special == std::end(specials) || special->from != c) return appendUtf8(out, c);
  for (char32_t to : special->to)
    if (to) appendUtf8(out, to);
}

void appendUpper(std::string &out, char32_t c) {
  if (c < 0x80)
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  else
    appendMapped(out, c, toUpperRuns, toUpperSpecials);
}

void appendTitle(std::string &out, char32_t c) {
  if (c < 0x80)
    appendUpper(out, c);
  else
    appendMapped(out, c, toTitleRuns, toTitleSpecials);
}

/// Lower case of the character at |at| of |text| (which ends at |next|): a capital sigma at the end
/// of a word has its own form.
void appendLower(std::string &out, std::string_view text, size_t at, size_t next, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  if (c != 0x3a3) return appendMapped(out, c, toLowerRuns, toLowerSpecials);
  bool before = false, after = false;
  for (size_t i = at; i > 0;) {
    do
      --i;
    while ((text[i] & 0xC0) == 0x80);
    size_t j = i;
    char32_t d = decodeAt(text, j);
    if (contains(ignorable, d)) continue;
    before = isCased(d);
    break;
  }
  for (size_t i = next; i < text.size();) {
    char32_t d = decodeAt(text, i);
    if (contains(ignorable, d)) continue;
    after = isCased(d);
    break;
  }
  appendUtf8(out, before && !after ? 0x3c2 : 0x3c3);
}

} // namespace

bool isValidUtf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    uint8_t c = s[i];
    if (c < 0x80) {
      ++i;
      continue;
    }
    size_t n = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4 || i + n > s.size()) return false;
    char32_t value = c & (0xFF >> (n + 1));
    for (size_t k = 1; k < n; ++k) {
      if ((s[i + k] & 0xC0) != 0x80) return false;
      value = value << 6 | (s[i + k] & 0x3F);
    }
    if ((n == 3 && (value < 0x800 || (value >= 0xD800 && value < 0xE000))) ||
        (n == 4 && (value < 0x10000 || value > 0x10FFFF)))
      return false;
    i += n;
  }
  return true;
}

size_t countCodePoints(std::string_view s) {
  size_t n = 0;
  for (char c : s)
    n += (c & 0xC0) != 0x80;
  return n;
}

char32_t decodeAt(std::string_view s, size_t &i) {
  uint8_t c = s[i++];
  if (c < 0x80) return c;
  int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
  char32_t value = c & (0x3F >> more);
  for (; more > 0 && i < s.size(); --more)
    value = value << 6 | (s[i++] & 0x3F);
  return value;
}

void appendUtf8(std::string &out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::u32string decode(std::string_view s) {
  std::u32string out;
  for (size_t i = 0; i < s.size();)
    out += decodeAt(s, i);
  return out;
}

std::string encode(std::u32string_view s) {
  std::string out;
  for (char32_t c : s)
    appendUtf8(out, c);
  return out;
}

size_t byteOffset(std::string_view s, size_t index) {
  size_t i = 0;
  for (; i < s.size(); ++i)
    if ((s[i] & 0xC0) != 0x80 && index-- == 0) return i;
  return i;
}

bool isSpace(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}
bool isPrintable(char32_t c) { return c < 0x7f ? c >= 0x20 : contains(printable, c); }
bool isAlnum(char32_t c) { return contains(alnum, c); }
bool isAlpha(char32_t c) { return contains(alpha, c); }
bool isUpper(char32_t c) { return contains(upper, c); }
bool isLower(char32_t c) { return contains(lower, c); }
bool isTitle(char32_t c) { return contains(titled, c); }
bool isDecimal(char32_t c) { return contains(decimal, c); }
bool isDigit(char32_t c) { return contains(digit, c); }
bool isNumeric(char32_t c) { return contains(numeric, c); }
bool isIdentifierStart(char32_t c) { return contains(identifierStart, c); }
bool isIdentifierPart(char32_t c) { return contains(identifier, c); }

std::string toUpper(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();)
    appendUpper(out, decodeAt(s, i));
  return out;
}

std::string toLower(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    size_t at = i;
    char32_t c = decodeAt(s, i);
    appendLower(out, s, at, i, c);
  }
  return out;
}

std::string foldCase(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    char32_t c = decodeAt(s, i);
    size_t before = out.size();
    appendMapped(out, c, toFoldRuns, toFoldSpecials);
    std::string same;
    appendUtf8(same, c);
    if (c >= 0x13a0 && c <= 0x13f5) continue; // Cherokee folds to its capitals
    if (out.compare(before, std::string::npos, same) != 0) continue;
    // Not in the table: the lower case, whatever stands around it.
    out.resize(before);
    appendMapped(out, c, toLowerRuns, toLowerSpecials);
  }
  return out;
}

std::string toTitle(std::string_view s) {
  std::string out;
  bool inWord = false;
  for (size_t i = 0; i < s.size();) {
    size_t at = i;
    char32_t c = decodeAt(s, i);
    if (inWord)
      appendLower(out, s, at, i, c);
    else
      appendTitle(out, c);
    inWord = isCased(c);
  }
  return out;
}

std::string capitalize(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    size_t at = i;
    char32_t c = decodeAt(s, i);
    if (at > 0)
      appendLower(out, s, at, i, c);
    else
      appendTitle(out, c);
  }
  return out;
}

std::string swapCase(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    size_t at = i;
    char32_t c = decodeAt(s, i);
    if (isUpper(c))
      appendLower(out, s, at, i, c);
    else if (isLower(c))
      appendUpper(out, c);
    else
      appendUtf8(out, c);
  }
  return out;
}

std::string_view strip(std::string_view s, StripSide side, const std::u32string *chars) {
  auto drop = [&](char32_t c) { return chars ? chars->find(c) != std::u32string::npos : isSpace(c); };
  size_t begin = 0, end = s.size();
  if (side & stripLeft)
    while (begin < end) {
      size_t next = begin;
      if (!drop(decodeAt(s, next))) break;
      begin = next;
    }
  if (side & stripRight)
    while (end > begin) {
      size_t last = end;
      do
        --last;
      while ((s[last] & 0xC0) == 0x80 && last > begin);
      size_t at = last;
      if (!drop(decodeAt(s, at))) break;
      end = last;
    }
  return s.substr(begin, end - begin);
}

} // namespace lathe::jinja
