//===- StringMethods.cpp - methods of str -----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include "TextOps.h"
#include <algorithm>
#include <cstring>

namespace lathe::jinja {

size_t findText(std::string_view hay, std::string_view needle, size_t from) {
  if (from > hay.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void *hit = memmem(hay.data() + from, hay.size() - from, needle.data(), needle.size());
  return hit ? static_cast<size_t>(static_cast<const char *>(hit) - hay.data()) : std::string_view::npos;
}

size_t findTextLast(std::string_view hay, std::string_view needle) {
  // The last of the matches that do not overlap from the right; found through all matches in turn.
  std::string reversedHay(hay.rbegin(), hay.rend()), reversedNeedle(needle.rbegin(), needle.rend());
  size_t at = findText(reversedHay, reversedNeedle, 0);
  return at == std::string_view::npos ? at : hay.size() - at - needle.size();
}

bool replaceText(Renderer &r, std::string_view text, std::string_view from, std::string_view to, int64_t count,
                 std::string &out) {
  size_t at = 0;
  if (from.empty()) {
    // Between all characters, and at both ends.
    while (count != 0) {
      out += to;
      if (!r.checkSize(out.size())) return false;
      --count;
      if (at >= text.size()) return true;
      size_t begin = at;
      decodeAt(text, at);
      out += text.substr(begin, at - begin);
    }
    out += text.substr(at);
    return true;
  }
  while (count != 0) {
    size_t hit = findText(text, from, at);
    if (hit == std::string_view::npos) break;
    out += text.substr(at, hit - at);
    out += to;
    if (!r.checkSize(out.size())) return false;
    at = hit + from.size();
    --count;
  }
  out += text.substr(at);
  return true;
}

std::vector<std::string_view> splitLines(std::string_view text, bool keepEnds) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    char32_t c = decodeAt(text, at);
    bool isEnd = (c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!isEnd) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keepEnds ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

namespace {

using Parts = std::vector<std::string_view>;

Parts splitWords(std::string_view s, int64_t most) {
  Parts parts;
  while (true) {
    s = strip(s, stripLeft);
    if (s.empty()) return parts;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(strip(s, stripRight));
      return parts;
    }
    size_t end = 0;
    while (end < s.size()) {
      size_t next = end;
      if (isSpace(decodeAt(s, next))) break;
      end = next;
    }
    parts.push_back(s.substr(0, end));
    s.remove_prefix(end);
  }
}

Parts splitWordsRight(std::string_view s, int64_t most) {
  Parts parts;
  while (true) {
    s = strip(s, stripRight);
    if (s.empty()) break;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(strip(s, stripLeft));
      break;
    }
    size_t begin = s.size();
    while (begin > 0) {
      size_t last = begin;
      do
        --last;
      while ((s[last] & 0xC0) == 0x80 && last > 0);
      size_t at = last;
      if (isSpace(decodeAt(s, at))) break;
      begin = last;
    }
    parts.push_back(s.substr(begin));
    s = s.substr(0, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts splitBy(std::string_view s, std::string_view separator, int64_t most) {
  Parts parts;
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    size_t hit = findText(s, separator, at);
    if (hit == std::string_view::npos) break;
    parts.push_back(s.substr(at, hit - at));
    at = hit + separator.size();
  }
  parts.push_back(s.substr(at));
  return parts;
}

Parts splitByRight(std::string_view s, std::string_view separator, int64_t most) {
  std::string hay(s.rbegin(), s.rend()), needle(separator.rbegin(), separator.rend());
  Parts mirrored = splitBy(hay, needle, most), parts;
  for (auto it = mirrored.rbegin(); it != mirrored.rend(); ++it) {
    size_t from = hay.size() - static_cast<size_t>(it->data() - hay.data()) - it->size();
    parts.push_back(s.substr(from, it->size()));
  }
  return parts;
}

/// All characters satisfy |test|, and there is one.
bool every(std::string_view s, bool (*test)(char32_t)) {
  if (s.empty()) return false;
  for (size_t i = 0; i < s.size();)
    if (!test(decodeAt(s, i))) return false;
  return true;
}

bool isTitleText(std::string_view s) {
  bool any = false, inWord = false;
  for (size_t i = 0; i < s.size();) {
    char32_t c = decodeAt(s, i);
    if (isUpper(c) || isTitle(c)) {
      if (inWord) return false;
      any = inWord = true;
    } else if (isLower(c)) {
      if (!inWord) return false;
      any = true;
    } else {
      inWord = false;
    }
  }
  return any;
}

} // namespace

bool isUpperText(std::string_view s) {
  bool any = false;
  for (size_t i = 0; i < s.size();) {
    char32_t c = decodeAt(s, i);
    if (isLower(c) || isTitle(c)) return false;
    any |= isUpper(c);
  }
  return any;
}

bool isLowerText(std::string_view s) {
  bool any = false;
  for (size_t i = 0; i < s.size();) {
    char32_t c = decodeAt(s, i);
    if (isUpper(c) || isTitle(c)) return false;
    any |= isLower(c);
  }
  return any;
}

bool Renderer::stringMethod(const Value &self, const std::string &name, Args &args, Value &out) {
  const std::string &s = self.text();
  bool markup = self.isMarkup();
  std::vector<Value> a;
  if (!tickBytes(s.size())) return false;
  if (name == "format") return formatBraces(self, args, out);
  // Only split, splitlines, expandtabs and encode know names for their arguments.
  if (!args.keyword.empty() && name != "split" && name != "rsplit" && name != "splitlines" && name != "expandtabs")
    return fail("%s takes no named arguments", name.c_str());
  auto text = [&](std::string t) { return makeString(std::move(t), out, markup); };
  auto truthOf = [&](bool b) {
    out = Value::boolean(b);
    return true;
  };
  auto argText = [&](size_t i, std::string &t) {
    if (!needText(name.c_str(), a[i], t)) return false;
    // HTML escapes what plain text puts into it.
    if (markup && !a[i].isMarkup() && (name == "replace" || name == "join")) t = escapeHtml(t);
    return true;
  };
  auto listOf = [&](const Parts &parts) {
    std::vector<Value> items;
    if (!tick(parts.size())) return false;
    for (std::string_view part : parts)
      items.push_back(Value::string(std::string(part), markup));
    return makeList(std::move(items), out);
  };
  std::string x, y;

  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    if (!bind(name.c_str(), args, {"chars"}, 0, a)) return false;
    StripSide side = name == "strip" ? stripBoth : name == "lstrip" ? stripLeft : stripRight;
    if (a[0].isMissing() || a[0].is(Kind::none)) return text(std::string(strip(s, side)));
    if (!argText(0, x) || !tick(x.size() * s.size() >> 16)) return false;
    std::u32string chars = decode(x);
    return text(std::string(strip(s, side, &chars)));
  }
  if (name == "split" || name == "rsplit") {
    if (!bind(name.c_str(), args, {"sep", "maxsplit"}, 0, a)) return false;
    int64_t most = -1;
    if (!a[1].isMissing() && !needInt(name.c_str(), a[1], most)) return false;
    if (most < 0) most = -1;
    bool right = name == "rsplit";
    if (a[0].isMissing() || a[0].is(Kind::none)) return listOf(right ? splitWordsRight(s, most) : splitWords(s, most));
    if (!argText(0, x)) return false;
    if (x.empty()) return fail("%s: empty separator", name.c_str());
    return listOf(right ? splitByRight(s, x, most) : splitBy(s, x, most));
  }
  if (name == "splitlines") {
    bool keep = false;
    if (!bind("splitlines", args, {"keepends"}, 0, a) || (!a[0].isMissing() && !truth(a[0], keep))) return false;
    return listOf(splitLines(s, keep));
  }
  if (name == "partition" || name == "rpartition") {
    if (!bind(name.c_str(), args, {"sep"}, 1, a) || !argText(0, x)) return false;
    if (x.empty()) return fail("%s: empty separator", name.c_str());
    bool right = name == "rpartition";
    size_t at = right ? findTextLast(s, x) : findText(s, x, 0);
    std::string parts[3];
    if (at == std::string::npos)
      parts[right ? 2 : 0] = s;
    else
      parts[0] = s.substr(0, at), parts[1] = x, parts[2] = s.substr(at + x.size());
    return makeList({Value::string(parts[0], markup), Value::string(parts[1], markup), Value::string(parts[2], markup)},
                    out, Kind::tuple);
  }
  if (name == "startswith" || name == "endswith" || name == "find" || name == "index" || name == "rfind" ||
      name == "rindex" || name == "count") {
    if (!bind(name.c_str(), args, {"text", "start", "end"}, 1, a)) return false;
    // Bounds count characters, from the end when negative.
    int64_t n = static_cast<int64_t>(self.codePoints()), from = 0, to = n;
    int64_t *bounds[] = {&from, &to};
    for (int i = 0; i < 2; ++i) {
      if (a[i + 1].isMissing() || a[i + 1].is(Kind::none)) continue;
      if (!needInt(name.c_str(), a[i + 1], *bounds[i])) return false;
      if (*bounds[i] < 0) *bounds[i] = *bounds[i] < -n ? 0 : *bounds[i] + n;
    }
    to = std::min(to, n);
    bool empty = from > to; // not even an empty string is found behind the end
    size_t begin = empty ? 0 : byteOffset(s, from), end = empty ? 0 : to == n ? s.size() : byteOffset(s, to);
    std::string_view part = std::string_view(s).substr(begin, end - begin);
    if (name == "startswith" || name == "endswith") {
      std::vector<Value> options = {a[0]};
      if (a[0].is(Kind::tuple)) options = a[0].items();
      for (const Value &option : options) {
        if (!needText(name.c_str(), option, x)) return false;
        if (!empty && (name == "startswith" ? part.starts_with(x) : part.ends_with(x))) return truthOf(true);
      }
      return truthOf(false);
    }
    if (!argText(0, x)) return false;
    if (name == "count") {
      int64_t count = 0;
      if (x.empty())
        count = empty ? 0 : to - from + 1;
      else
        for (size_t at = 0; (at = findText(part, x, at)) != std::string::npos; at += x.size())
          ++count;
      out = Value::integer(count);
      return true;
    }
    size_t at = empty ? std::string::npos : name[0] == 'r' ? findTextLast(part, x) : findText(part, x, 0);
    if (at == std::string::npos && name.ends_with("index")) return fail("%s: the text is not found", name.c_str());
    out = Value::integer(at == std::string::npos ? -1 : static_cast<int64_t>(countCodePoints(s.substr(0, begin + at))));
    return true;
  }
  if (name == "replace") {
    int64_t count = -1;
    std::string result;
    if (!bind("replace", args, {"old", "new", "count"}, 2, a) || !needText("replace", a[0], x) || !argText(1, y) ||
        (!a[2].isMissing() && !needInt("replace", a[2], count)))
      return false;
    return replaceText(*this, s, x, y, count < 0 ? -1 : count, result) && text(std::move(result));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    if (!bind(name.c_str(), args, {"text"}, 1, a) || !argText(0, x)) return false;
    bool hit = name == "removeprefix" ? s.starts_with(x) : s.ends_with(x);
    if (!hit) return text(s);
    return text(name == "removeprefix" ? s.substr(x.size()) : s.substr(0, s.size() - x.size()));
  }
  if (name == "join") {
    std::vector<Value> items;
    std::string joined;
    if (!bind("join", args, {"iterable"}, 1, a) || !collect(a[0], items)) return false;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!needText("join", items[i], x)) return false;
      if (i) joined += s;
      joined += markup && !items[i].isMarkup() ? escapeHtml(x) : x;
      if (!checkSize(joined.size())) return false;
    }
    return text(std::move(joined));
  }
  if (name == "center" || name == "ljust" || name == "rjust" || name == "zfill") {
    int64_t width;
    if (!bind(name.c_str(), args, {"width", "fill"}, 1, a) || !needInt(name.c_str(), a[0], width)) return false;
    std::string fill = name == "zfill" ? "0" : " ";
    if (!a[1].isMissing() && (name == "zfill" || !needText(name.c_str(), a[1], fill) || countCodePoints(fill) != 1))
      return fail("%s: expected one character to fill with", name.c_str());
    int64_t missing = width - static_cast<int64_t>(self.codePoints());
    if (missing <= 0) return text(s);
    if (!checkSize(static_cast<uint64_t>(missing) * fill.size() + s.size())) return false;
    // Python's center puts the odd character left when the width is odd.
    int64_t left = name == "center" ? missing / 2 + (missing & width & 1) : name == "ljust" ? 0 : missing;
    std::string before, after;
    for (int64_t i = 0; i < missing; ++i)
      (i < left ? before : after) += fill;
    bool sign = name == "zfill" && !s.empty() && (s[0] == '+' || s[0] == '-');
    return text(sign ? s[0] + before + s.substr(1) : before + s + after);
  }
  if (name == "expandtabs") {
    int64_t size = 8;
    std::string result;
    if (!bind("expandtabs", args, {"tabsize"}, 0, a) || (!a[0].isMissing() && !needInt("expandtabs", a[0], size)))
      return false;
    int64_t column = 0;
    for (size_t i = 0; i < s.size();) {
      size_t begin = i;
      char32_t c = decodeAt(s, i);
      if (c == '\t') {
        int64_t n = size > 0 ? size - column % size : 0;
        if (!checkSize(result.size() + n)) return false;
        result.append(n, ' ');
        column += n;
      } else {
        result.append(s, begin, i - begin);
        column = c == '\n' || c == '\r' ? 0 : column + 1;
      }
    }
    return text(std::move(result));
  }
  if (name == "striptags" && markup) return makeString(stripTags(s), out);
  if (name == "unescape" || name == "escape" || name == "encode" || name == "translate" || name == "maketrans" ||
      name == "format_map")
    return unsupported("method '%s' of str", name.c_str());

  if (!bind(name.c_str(), args, {}, 0, a)) return false;
  if (name == "upper") return text(toUpper(s));
  if (name == "lower") return text(toLower(s));
  if (name == "casefold") return text(foldCase(s));
  if (name == "title") return text(toTitle(s));
  if (name == "capitalize") return text(capitalize(s));
  if (name == "swapcase") return text(swapCase(s));
  if (name == "isupper") return truthOf(isUpperText(s));
  if (name == "islower") return truthOf(isLowerText(s));
  if (name == "istitle") return truthOf(isTitleText(s));
  if (name == "isalpha") return truthOf(every(s, isAlpha));
  if (name == "isalnum") return truthOf(every(s, isAlnum));
  if (name == "isspace") return truthOf(every(s, isSpace));
  if (name == "isdigit") return truthOf(every(s, isDigit));
  if (name == "isdecimal") return truthOf(every(s, isDecimal));
  if (name == "isnumeric") return truthOf(every(s, isNumeric));
  if (name == "isprintable") return truthOf(s.empty() || every(s, isPrintable));
  if (name == "isascii") return truthOf(s.size() == self.codePoints());
  if (name == "isidentifier") {
    size_t first = 0;
    return truthOf(every(s, isIdentifierPart) && isIdentifierStart(decodeAt(s, first)));
  }
  return unsupported("method '%s' of str", name.c_str());
}

} // namespace lathe::jinja
