//===- TextFilters.cpp - filters of text and numbers ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Filters.h"
#include "Parser.h"
#include "TextOps.h"
#include <algorithm>
#include <cmath>

namespace lathe::jinja {

std::string Renderer::escapeHtml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&#34;";
      break;
    case '\'':
      out += "&#39;";
      break;
    default:
      out += c;
    }
  }
  return out;
}

std::string stripTags(std::string_view text) {
  std::string plain;
  size_t at = 0;
  for (size_t begin; (begin = text.find('<', at)) != std::string_view::npos;) {
    bool comment = text.substr(begin).starts_with("<!--");
    size_t end = comment ? text.find("-->", begin + 4) : text.find('>', begin);
    if (end == std::string_view::npos) break;
    plain += text.substr(at, begin - at);
    at = end + (comment ? 3 : 1);
  }
  plain += text.substr(at);
  std::string out;
  for (size_t i = 0; i < plain.size();) {
    size_t begin = i;
    if (isSpace(decodeAt(plain, i))) {
      while (i < plain.size()) {
        size_t next = i;
        if (!isSpace(decodeAt(plain, next))) break;
        i = next;
      }
      if (begin > 0 && i < plain.size()) out += ' ';
    } else {
      out.append(plain, begin, i - begin);
    }
  }
  static const std::pair<const char *, const char *> entities[] = {
      {"&lt;", "<"},  {"&gt;", ">"},        {"&quot;", "\""}, {"&#34;", "\""},
      {"&#39;", "'"}, {"&nbsp;", "\u00a0"}, {"&amp;", "&"}};
  std::string resolved;
  for (size_t i = 0; i < out.size();) {
    bool hit = false;
    for (const auto &[entity, to] : entities) {
      std::string_view e = entity;
      if (out.compare(i, e.size(), e) != 0) continue;
      resolved += to;
      i += e.size();
      hit = true;
      break;
    }
    if (!hit) resolved += out[i++];
  }
  return resolved;
}

namespace {

using F = bool(Renderer &r, const Value &in, Args &args, Value &out);

/// The text of any value; HTML stays HTML.
bool softText(Renderer &r, const Value &in, std::string &out, bool &markup) {
  markup = in.is(Kind::string) && in.isMarkup();
  return r.toText(in, out);
}

/// A filter that is a method of str called on the text of its input.
template <typename Map> bool mapText(const char *name, Map map, Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text;
  bool markup;
  return r.bind(name, args, {}, 0, a) && softText(r, in, text, markup) && r.makeString(map(text), out, markup);
}

bool upperFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return mapText("upper", toUpper, r, in, args, out);
}
bool lowerFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return mapText("lower", toLower, r, in, args, out);
}
bool capitalizeFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return mapText("capitalize", capitalize, r, in, args, out);
}

bool titleFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  // A word begins behind a space, a dash or an opening bracket.
  auto title = [](std::string_view s) {
    std::string result;
    for (size_t i = 0; i < s.size();) {
      size_t begin = i;
      auto splits = [](char32_t c) { return c == '-' || isSpace(c) || c == '(' || c == '{' || c == '[' || c == '<'; };
      bool splitter = splits(decodeAt(s, i));
      size_t firstEnd = i;
      while (i < s.size()) {
        size_t next = i;
        if (splits(decodeAt(s, next)) != splitter) break;
        i = next;
      }
      result += toUpper(s.substr(begin, firstEnd - begin));
      result += toLower(s.substr(firstEnd, i - firstEnd));
    }
    return result;
  };
  return mapText("title", title, r, in, args, out);
}

bool trimFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text, chars;
  bool markup;
  if (!r.bind("trim", args, {"chars"}, 0, a) || !softText(r, in, text, markup)) return false;
  if (a[0].isMissing() || a[0].is(Kind::none)) return r.makeString(std::string(strip(text, stripBoth)), out, markup);
  if (!r.needText("trim", a[0], chars) || !r.tick(chars.size() * text.size() >> 16)) return false;
  std::u32string set = decode(chars);
  return r.makeString(std::string(strip(text, stripBoth, &set)), out, markup);
}

bool stringFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return mapText("string", [](std::string &s) { return std::move(s); }, r, in, args, out);
}

bool safeFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text;
  return r.bind("safe", args, {}, 0, a) && r.toText(in, text) && r.makeString(std::move(text), out, true);
}

bool escapeFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text;
  bool markup;
  if (!r.bind("escape", args, {}, 0, a) || !softText(r, in, text, markup)) return false;
  return r.makeString(markup ? text : Renderer::escapeHtml(text), out, true);
}

bool forceEscapeFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text;
  return r.bind("forceescape", args, {}, 0, a) && r.toText(in, text) &&
         r.makeString(Renderer::escapeHtml(text), out, true);
}

bool striptagsFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text;
  return r.bind("striptags", args, {}, 0, a) && r.toText(in, text) && r.tick(text.size() >> 4) &&
         r.makeString(stripTags(text), out);
}

bool replaceFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text, from, to, result;
  int64_t count = -1;
  if (!r.bind("replace", args, {"old", "new", "count"}, 2, a) || !r.toText(in, text) || !r.toText(a[0], from) ||
      !r.toText(a[1], to))
    return false;
  if (!a[2].isMissing() && !a[2].is(Kind::none) && !r.needInt("replace", a[2], count)) return false;
  return replaceText(r, text, from, to, count < 0 ? -1 : count, result) && r.makeString(std::move(result), out);
}

bool indentFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string indent, s, result;
  bool first = false, blank = false;
  if (!r.bind("indent", args, {"width", "first", "blank"}, 0, a) || !r.needText("indent", in, s)) return false;
  if (a[0].is(Kind::string)) {
    indent = a[0].text();
  } else {
    int64_t width = 4;
    if (!a[0].isMissing() && !r.needInt("indent", a[0], width)) return false;
    if (width > 0 && !r.checkSize(width)) return false;
    indent.assign(std::max<int64_t>(width, 0), ' ');
  }
  if (!a[1].isMissing() && !r.truth(a[1], first)) return false;
  if (!a[2].isMissing() && !r.truth(a[2], blank)) return false;
  s += '\n';
  std::vector<std::string_view> lines = splitLines(s, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i > 0 ? blank || !lines[i].empty() : first) result += indent;
    result += lines[i];
    if (!r.checkSize(result.size())) return false;
  }
  return r.makeString(std::move(result), out, in.isMarkup());
}

bool centerFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text;
  bool markup;
  if (!r.bind("center", args, {"width"}, 0, a) || !softText(r, in, text, markup)) return false;
  Args forward;
  forward.positional.push_back(a[0].isMissing() ? Value::integer(80) : a[0]);
  return r.stringMethod(Value::string(text, markup), "center", forward, out);
}

bool truncateFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  int64_t length = 255, leeway = 5;
  std::string end = "...", s;
  bool kill = false;
  if (!r.bind("truncate", args, {"length", "killwords", "end", "leeway"}, 0, a) ||
      (!a[0].isMissing() && !r.needInt("truncate", a[0], length)) || (!a[1].isMissing() && !r.truth(a[1], kill)) ||
      (!a[2].isMissing() && !r.needText("truncate", a[2], end)) ||
      (!a[3].isMissing() && !a[3].is(Kind::none) && !r.needInt("truncate", a[3], leeway)))
    return false;
  int64_t endLength = static_cast<int64_t>(countCodePoints(end));
  if (length < endLength || leeway < 0)
    return r.fail("truncate: expected a length of at least that of the end (%lld) and a leeway of at least 0",
                  static_cast<long long>(endLength));
  int64_t n;
  if (!r.length(in, n)) return false;
  if (n <= leeway || n - leeway <= length) {
    out = in;
    return true;
  }
  if (!r.needText("truncate", in, s)) return false;
  std::string cut = s.substr(0, byteOffset(s, length - endLength));
  if (!kill)
    if (size_t space = cut.rfind(' '); space != std::string::npos) cut.resize(space);
  return r.makeString(cut + (in.isMarkup() ? Renderer::escapeHtml(end) : end), out, in.isMarkup());
}

bool wordcountFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string s;
  if (!r.bind("wordcount", args, {}, 0, a) || !r.toText(in, s)) return false;
  int64_t count = 0;
  bool inWord = false;
  for (size_t i = 0; i < s.size();) {
    char32_t c = decodeAt(s, i);
    bool word = c == '_' || isAlnum(c);
    count += word && !inWord;
    inWord = word;
  }
  out = Value::integer(count);
  return true;
}

bool urlencodeFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, pairs;
  if (!r.bind("urlencode", args, {}, 0, a)) return false;
  auto quote = [&](const Value &v, bool form, std::string &to) {
    std::string text;
    static const char hex[] = "0123456789ABCDEF";
    if (!r.toText(v, text)) return false;
    for (unsigned char c : text) {
      bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '.' ||
                   c == '-' || c == '~' || (c == '/' && !form);
      if (plain)
        to += static_cast<char>(c);
      else if (c == ' ' && form)
        to += '+';
      else
        (to += '%') += {hex[c >> 4], hex[c & 15]};
    }
    return r.checkSize(to.size());
  };
  std::string result;
  bool iterable = in.is(Kind::dict) || in.isSequence() || in.is(Kind::view) || in.is(Kind::range) ||
                  in.is(Kind::generator) || in.isUndefined();
  if (!iterable) return quote(in, false, result) && r.makeString(std::move(result), out);
  if (in.is(Kind::dict)) {
    for (const auto &[key, value] : in.as<DictObject>().items)
      pairs.push_back(Value::tuple({key, value}));
  } else if (!r.collect(in, pairs)) {
    return false;
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::vector<Value> parts;
    if (!r.collect(pairs[i], parts)) return false;
    if (parts.size() != 2) return r.fail("urlencode: expected pairs, found %zu values", parts.size());
    if (i) result += '&';
    if (!quote(parts[0], true, result)) return false;
    result += '=';
    if (!quote(parts[1], true, result)) return false;
  }
  return r.makeString(std::move(result), out);
}

bool formatFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::string text;
  bool markup;
  if (!args.keyword.empty() && !args.positional.empty())
    return r.fail("format: arguments are either all named or all without names");
  if (!softText(r, in, text, markup)) return false;
  Value format = Value::string(text, markup), values;
  if (args.keyword.empty()) {
    if (!r.makeList(args.positional, values, Kind::tuple)) return false;
  } else {
    auto dict = std::make_shared<DictObject>();
    for (const auto &[name, value] : args.keyword)
      dict->set(Value::string(name), value);
    if (!r.makeDict(std::move(dict), values)) return false;
  }
  return r.formatPercent(format, values, out);
}

bool tojsonFilter(Renderer &r, const Value &in, Args &args, Value &out) { return r.toJson(in, args, out); }

//===--- Numbers ------------------------------------------------------------===//

/// int(d): false when it is not a number that fits.
bool wholeNumber(Renderer &r, double d, int64_t &out, bool &ok) {
  ok = std::isfinite(d);
  if (!ok) return true;
  d = std::trunc(d);
  if (d >= 9223372036854775808.0 || d < -9223372036854775808.0)
    return r.exhausted("integer %.0f does not fit 64 bits", d);
  out = static_cast<int64_t>(d);
  return true;
}

bool intFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  int64_t base = 10, value = 0;
  bool ok = false;
  if (!r.bind("int", args, {"default", "base"}, 0, a)) return false;
  if (in.isUndefined()) return r.fail("int of an undefined value");
  if (in.is(Kind::string)) {
    if (!a[1].isMissing() && !r.needInt("int", a[1], base)) return false;
    if (base != 0 && (base < 2 || base > 36)) base = 1; // never a number
    if (!r.parseInt(in.text(), static_cast<int>(base), value, ok)) return false;
    double d;
    if (!ok && Renderer::parseReal(in.text(), d) && !wholeNumber(r, d, value, ok)) return false;
  } else if (in.isInteger()) {
    value = in.asInt();
    ok = true;
  } else if (in.is(Kind::real)) {
    if (std::isinf(in.asReal())) return r.fail("int of an infinite number");
    if (!wholeNumber(r, in.asReal(), value, ok)) return false;
  }
  out = ok ? Value::integer(value) : a[0].isMissing() ? Value::integer(0) : a[0];
  return true;
}

bool floatFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  double d;
  if (!r.bind("float", args, {"default"}, 0, a)) return false;
  if (in.isUndefined()) return r.fail("float of an undefined value");
  if (in.isNumber())
    out = Value::real(in.asReal());
  else if (in.is(Kind::string) && Renderer::parseReal(in.text(), d))
    out = Value::real(d);
  else
    out = a[0].isMissing() ? Value::real(0) : a[0];
  return true;
}

bool absFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  if (!r.bind("abs", args, {}, 0, a)) return false;
  if (in.is(Kind::real))
    out = Value::real(std::fabs(in.asReal()));
  else if (in.isInteger() && in.asInt() < 0)
    return r.negate(in, out);
  else if (in.isInteger())
    out = Value::integer(in.asInt());
  else
    return r.fail("abs of a %s", typeName(in));
  return true;
}

bool roundFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  int64_t precision = 0;
  std::string method = "common";
  if (!r.bind("round", args, {"precision", "method"}, 0, a) ||
      (!a[0].isMissing() && !r.needInt("round", a[0], precision)) ||
      (!a[1].isMissing() && !r.needText("round", a[1], method)))
    return false;
  if (method != "common" && method != "ceil" && method != "floor")
    return r.fail("round: expected method 'common', 'ceil' or 'floor', found '%s'", method.c_str());
  if (!in.isNumber()) return r.fail("round of a %s", typeName(in));
  if (method != "common") {
    double scale = std::pow(10.0, static_cast<double>(precision)), x = in.asReal() * scale;
    if (!std::isfinite(x)) return r.fail("round of a number that is not finite");
    out = Value::real((method == "ceil" ? std::ceil(x) : std::floor(x)) / scale);
    return true;
  }
  if (in.isInteger()) {
    if (precision >= 0 || precision < -18) {
      out = Value::integer(precision >= 0 ? in.asInt() : 0);
      return true;
    }
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; ++i)
      unit *= 10;
    int64_t n = in.asInt(), rest = ((n % unit) + unit) % unit, down;
    if (__builtin_sub_overflow(n, rest, &down)) return r.exhausted("the result of round does not fit 64 bits");
    bool up = rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
    if (up && __builtin_add_overflow(down, unit, &down)) return r.exhausted("the result of round does not fit 64 bits");
    out = Value::integer(down);
    return true;
  }
  double x = in.asReal();
  if (!std::isfinite(x) || precision > 330) {
    out = in;
    return true;
  }
  if (precision < -330) {
    out = Value::real(std::copysign(0.0, x));
    return true;
  }
  // Half to even on the exact binary value, which printf does for decimals.
  if (precision >= 0) {
    char text[700];
    std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(precision), x);
    if (!Renderer::parseReal(text, x)) return false;
  } else {
    double unit = std::pow(10.0, static_cast<double>(-precision));
    double scaled = x / unit, whole = std::nearbyint(scaled);
    x = whole * unit;
  }
  out = Value::real(x);
  return true;
}

bool filesizeFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  bool binary = false;
  double bytes;
  if (!r.bind("filesizeformat", args, {"binary"}, 0, a) || (!a[0].isMissing() && !r.truth(a[0], binary))) return false;
  if (in.isNumber())
    bytes = in.asReal();
  else if (!in.is(Kind::string) || !Renderer::parseReal(in.text(), bytes))
    return r.fail("filesizeformat: expected a number, found %s", typeName(in));
  double base = binary ? 1024 : 1000, unit = base;
  if (bytes == 1) return r.makeString("1 Byte", out);
  if (bytes < base) return r.makeString(std::to_string(static_cast<int64_t>(bytes)) + " Bytes", out);
  const char *prefixes = "kMGTPEZY";
  char text[64];
  for (int i = 0; i < 8; ++i) {
    unit *= base;
    if (bytes >= unit && i < 7) continue;
    std::snprintf(text, sizeof(text), "%.1f %c%sB", base * bytes / unit, binary && i == 0 ? 'K' : prefixes[i],
                  binary ? "i" : "");
    return r.makeString(text, out);
  }
  return false;
}

template <int N> bool unavailable(Renderer &r, const Value &, Args &, Value &) {
  static const char *const names[] = {"pprint", "random", "urlize", "wordwrap", "xmlattr"};
  return r.unsupported("filter '%s'", names[N]);
}

} // namespace

std::span<const FilterEntry> textFilters() {
  static const FilterEntry table[] = {
      {"abs", absFilter},
      {"capitalize", capitalizeFilter},
      {"center", centerFilter},
      {"e", escapeFilter},
      {"escape", escapeFilter},
      {"filesizeformat", filesizeFilter},
      {"float", floatFilter},
      {"forceescape", forceEscapeFilter},
      {"format", formatFilter},
      {"indent", indentFilter},
      {"int", intFilter},
      {"lower", lowerFilter},
      {"replace", replaceFilter},
      {"round", roundFilter},
      {"safe", safeFilter},
      {"string", stringFilter},
      {"striptags", striptagsFilter},
      {"title", titleFilter},
      {"tojson", tojsonFilter},
      {"trim", trimFilter},
      {"truncate", truncateFilter},
      {"upper", upperFilter},
      {"urlencode", urlencodeFilter},
      {"wordcount", wordcountFilter},
      {"pprint", unavailable<0>},
      {"random", unavailable<1>},
      {"urlize", unavailable<2>},
      {"wordwrap", unavailable<3>},
      {"xmlattr", unavailable<4>},
  };
  return table;
}

//===--- All filters --------------------------------------------------------===//

int findFilter(std::string_view name) {
  auto text = textFilters(), sequence = sequenceFilters();
  for (size_t i = 0; i < text.size(); ++i)
    if (name == text[i].name) return static_cast<int>(i);
  for (size_t i = 0; i < sequence.size(); ++i)
    if (name == sequence[i].name) return static_cast<int>(text.size() + i);
  return -1;
}

bool Renderer::applyFilter(int id, const Value &in, Args &args, Value &out) {
  auto text = textFilters();
  size_t at = static_cast<size_t>(id);
  return at < text.size() ? text[at].apply(*this, in, args, out)
                          : sequenceFilters()[at - text.size()].apply(*this, in, args, out);
}

} // namespace lathe::jinja
