//===- Format.cpp - "%s" % x and "{}".format(x) -----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include <algorithm>
#include <cmath>

namespace lathe::jinja {
namespace {

std::string digitsOf(uint64_t n, unsigned base, bool upper) {
  std::string out;
  do
    out += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[n % base];
  while (n /= base);
  std::reverse(out.begin(), out.end());
  return out;
}

uint64_t magnitude(int64_t n) { return n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n); }

/// The absolute value of |d| with C's conversion |type| (e, f, g or upper case).
std::string realDigits(double d, char type, int precision, bool alternate) {
  std::string format = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  double x = std::fabs(d);
  int n = std::snprintf(nullptr, 0, format.c_str(), precision, x);
  std::string out(n > 0 ? n : 0, '\0');
  std::snprintf(out.data(), out.size() + 1, format.c_str(), precision, x);
  return out;
}

std::string escapeNonAscii(std::string_view s) {
  std::string out;
  char text[16];
  for (size_t i = 0; i < s.size();) {
    char32_t c = decodeAt(s, i);
    if (c < 0x80)
      out += static_cast<char>(c);
    else {
      std::snprintf(text, sizeof(text),
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out += text;
    }
  }
  return out;
}

constexpr int64_t maxPrecision = 1000;

} // namespace

//===--- % ------------------------------------------------------------------===//

bool Renderer::formatPercent(const Value &format, const Value &args, Value &out) {
  const std::string &f = format.text();
  std::string result;
  std::vector<Value> list;
  bool isTuple = args.is(Kind::tuple), named = false;
  if (isTuple)
    list = args.items();
  else
    list.push_back(args);
  size_t used = 0;
  auto next = [&](Value &v) {
    if (used >= list.size()) return fail("'%%': more places than values");
    v = list[used++];
    return true;
  };
  for (size_t i = 0; i < f.size();) {
    size_t percent = std::min(f.find('%', i), f.size());
    result.append(f, i, percent - i);
    i = percent + 1;
    if (percent == f.size()) break;
    bool left = false, plus = false, space = false, alternate = false, zero = false;
    int64_t width = 0, precision = -1;
    Value value;
    if (i < f.size() && f[i] == '(') {
      size_t depth = 1, begin = ++i;
      while (i < f.size() && depth > 0)
        depth += (f[i] == '(') - (f[i] == ')'), ++i;
      if (depth > 0) return fail("'%%': a name is not closed");
      if (!args.is(Kind::dict)) return fail("'%%': expected a dict for a named place, found %s", typeName(args));
      DictObject &dict = args.as<DictObject>();
      int64_t at = dict.find(std::string_view(f).substr(begin, i - 1 - begin));
      if (at < 0) return fail("'%%': no value for '%s'", f.substr(begin, i - 1 - begin).c_str());
      value = dict.items[at].second;
      named = true;
    }
    for (; i < f.size() && std::string_view("-+ #0").find(f[i]) != std::string_view::npos; ++i) {
      left |= f[i] == '-';
      plus |= f[i] == '+';
      space |= f[i] == ' ';
      alternate |= f[i] == '#';
      zero |= f[i] == '0';
    }
    auto number = [&](int64_t &n) {
      if (i < f.size() && f[i] == '*') {
        ++i;
        Value v;
        return next(v) && needInt("'%'", v, n);
      }
      for (n = 0; i < f.size() && f[i] >= '0' && f[i] <= '9'; ++i)
        if ((n = n * 10 + (f[i] - '0')) > INT32_MAX) return checkSize(UINT64_MAX);
      return true;
    };
    if (!number(width)) return false;
    if (width < 0) left = true, width = -width;
    if (i < f.size() && f[i] == '.') {
      ++i;
      if (!number(precision)) return false;
      precision = std::max<int64_t>(precision, 0);
    }
    while (i < f.size() && (f[i] == 'l' || f[i] == 'h' || f[i] == 'L'))
      ++i;
    if (i >= f.size()) return fail("'%%': a place has no end");
    char type = f[i++];
    if (type == '%' && value.isMissing()) {
      result += '%';
      continue;
    }
    if (value.isMissing() && !next(value)) return false;
    std::string sign, prefix, body;
    bool numeric = true;
    auto setSign = [&](bool negative) { sign = negative ? "-" : plus ? "+" : space ? " " : ""; };
    switch (type) {
    case 's':
    case 'r':
    case 'a':
      if (!(type == 's' ? toText(value, body) : repr(value, body))) return false;
      if (type == 'a') body = escapeNonAscii(body);
      if (format.isMarkup() && !(type == 's' && value.is(Kind::string) && value.isMarkup())) body = escapeHtml(body);
      if (precision >= 0) body.resize(byteOffset(body, precision));
      numeric = false;
      break;
    case 'c':
      if (value.is(Kind::string) && value.codePoints() == 1)
        body = value.text();
      else if (value.isInteger() && value.asInt() >= 0 && value.asInt() < 0x110000 &&
               (value.asInt() < 0xD800 || value.asInt() > 0xDFFF))
        appendUtf8(body, static_cast<char32_t>(value.asInt()));
      else
        return fail("'%%c': expected a character, found %s", typeName(value));
      numeric = false;
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      int64_t n;
      bool decimal = type == 'd' || type == 'i' || type == 'u';
      if (value.isInteger())
        n = value.asInt();
      else if (decimal && value.is(Kind::real) && std::fabs(value.asReal()) < 9.2e18)
        n = static_cast<int64_t>(value.asReal());
      else
        return fail("'%%%c': expected an integer, found %s", type, typeName(value));
      body = digitsOf(magnitude(n), decimal ? 10 : type == 'o' ? 8 : 16, type == 'X');
      if (precision > maxPrecision) return checkSize(UINT64_MAX);
      if (static_cast<int64_t>(body.size()) < precision) body.insert(0, precision - body.size(), '0');
      if (alternate && !decimal) prefix = std::string("0") + type;
      setSign(n < 0);
      break;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.isNumber()) return fail("'%%%c': expected a number, found %s", type, typeName(value));
      if (precision > maxPrecision) return checkSize(UINT64_MAX);
      body = realDigits(value.asReal(), type, precision < 0 ? 6 : static_cast<int>(precision), alternate);
      setSign(std::signbit(value.asReal()) && !std::isnan(value.asReal()));
      break;
    default:
      return fail("'%%': unknown kind of place '%c'", type);
    }
    int64_t missing = width - static_cast<int64_t>(countCodePoints(body) + sign.size() + prefix.size());
    if (missing > 0 && !checkSize(result.size() + missing)) return false;
    std::string pad(missing > 0 ? missing : 0, ' ');
    if (left)
      result += sign + prefix + body + pad;
    else if (zero && numeric)
      result += sign + prefix + std::string(pad.size(), '0') + body;
    else
      result += pad + sign + prefix + body;
    if (!tick() || !checkSize(result.size())) return false;
  }
  // Anything that has items may be left unused, as in Python.
  bool mapping = named || args.is(Kind::dict) || args.is(Kind::list) || args.is(Kind::range) || args.isUndefined();
  if (used < list.size() && !mapping) return fail("'%%': more values than places");
  return makeString(std::move(result), out, format.isMarkup());
}

//===--- format -------------------------------------------------------------===//

namespace {

/// [[fill]align][sign][#][0][width][,_][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false;
  bool zero = false; ///< a 0 in front of the width, without an alignment
  int64_t width = 0, precision = -1;
};

bool parseSpec(Renderer &r, const std::string &s, Spec &spec) {
  auto isAlign = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  size_t i = 0, second = 0;
  if (!s.empty()) decodeAt(s, second);
  if (!s.empty() && second < s.size() && isAlign(s[second])) {
    spec.fill = s.substr(0, second);
    spec.align = s[second];
    i = second + 1;
  } else if (!s.empty() && isAlign(s[0])) {
    spec.align = s[i++];
  }
  auto at = [&](char c) { return i < s.size() && s[i] == c; };
  if (at('+') || at('-') || at(' ')) spec.sign = s[i++];
  if (at('#')) spec.alternate = true, ++i;
  if (at('0')) {
    spec.zero = !spec.align;
    if (spec.zero) spec.align = '=', spec.fill = "0";
    ++i;
  }
  auto number = [&](int64_t &n) {
    for (n = 0; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i)
      if ((n = n * 10 + (s[i] - '0')) > INT32_MAX) return r.checkSize(UINT64_MAX);
    return true;
  };
  if (!number(spec.width)) return false;
  if (at(',') || at('_')) spec.grouping = s[i++];
  if (at('.')) {
    ++i;
    if (i >= s.size() || s[i] < '0' || s[i] > '9')
      return r.fail("format: expected digits behind '.' in '%s'", s.c_str());
    if (!number(spec.precision)) return false;
    if (spec.precision > maxPrecision) return r.checkSize(UINT64_MAX);
  }
  if (i < s.size()) spec.type = s[i++];
  if (i < s.size()) return r.fail("format: cannot read the format '%s'", s.c_str());
  return true;
}

std::string group(const std::string &digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

bool pad(Renderer &r, const Spec &spec, char defaultAlign, const std::string &sign, const std::string &body,
         std::string &out) {
  char align = spec.align ? spec.align : defaultAlign;
  int64_t missing = spec.width - static_cast<int64_t>(countCodePoints(body) + sign.size());
  missing = std::max<int64_t>(missing, 0);
  if (!r.checkSize(out.size() + missing * spec.fill.size() + body.size())) return false;
  int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  auto fill = [&](int64_t n) {
    while (n-- > 0)
      out += spec.fill;
  };
  if (align == '=') out += sign;
  fill(before);
  if (align != '=') out += sign;
  out += body;
  fill(missing - before);
  return true;
}

bool formatValue(Renderer &r, const Value &v, const std::string &text, std::string &out) {
  if (text.empty()) return r.toText(v, out);
  Spec spec;
  if (!parseSpec(r, text, spec)) return false;
  auto badType = [&] { return r.fail("format: '%s' does not fit a %s", text.c_str(), typeName(v)); };
  if (v.is(Kind::string)) {
    if (spec.zero) spec.align = '<'; // as Python does from 3.10 on
    if ((spec.type && spec.type != 's') || spec.align == '=' || spec.grouping || spec.sign != '-' || spec.alternate)
      return badType();
    std::string body = v.text();
    if (spec.precision >= 0) body.resize(byteOffset(body, spec.precision));
    return pad(r, spec, '<', "", body, out);
  }
  if (!v.isNumber()) return badType();
  char type = spec.type;
  std::string body, sign;
  auto setSign = [&](bool negative) { sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign); };
  bool isReal = v.is(Kind::real) || (type && std::string_view("eEfFgG%").find(type) != std::string_view::npos);
  if (!isReal) {
    if (spec.precision >= 0 || (type && std::string_view("dnbxXoc").find(type) == std::string_view::npos))
      return badType();
    if (type == 'c') {
      if (v.asInt() < 0 || v.asInt() >= 0x110000 || (v.asInt() >= 0xD800 && v.asInt() < 0xE000)) return badType();
      appendUtf8(body, static_cast<char32_t>(v.asInt()));
      return pad(r, spec, '<', "", body, out);
    }
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    body = digitsOf(magnitude(v.asInt()), base, type == 'X');
    if (spec.grouping == ',' && base != 10) return badType();
    if (spec.grouping) body = group(body, spec.grouping, base == 10 ? 3 : 4);
    setSign(v.asInt() < 0);
    if (spec.alternate && base != 10) sign += std::string("0") + type;
  } else {
    double d = v.asReal();
    if (type && std::string_view("eEfFgGn%").find(type) == std::string_view::npos) return badType();
    setSign(std::signbit(d) && !std::isnan(d));
    int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
    if (type == '%')
      body = realDigits(d * 100, 'f', precision, spec.alternate) + "%";
    else if (type == 'n')
      body = realDigits(d, 'g', precision, spec.alternate);
    else if (type)
      body = realDigits(d, type, precision, spec.alternate);
    else if (spec.precision < 0)
      body = formatReal(std::fabs(d));
    else {
      body = realDigits(d, 'g', std::max(precision, 1), spec.alternate);
      if (std::isfinite(d) && body.find_first_of(".e") == std::string::npos) body += ".0";
    }
    if (spec.grouping) {
      size_t end = 0;
      while (end < body.size() && body[end] >= '0' && body[end] <= '9')
        ++end;
      body = group(body.substr(0, end), spec.grouping, 3) + body.substr(end);
    }
  }
  if (spec.grouping && spec.fill == "0" && spec.align == '=')
    return r.unsupported("format: zeros in front of grouped digits");
  return pad(r, spec, '>', sign, body, out);
}

/// One use of str.format.
struct BraceFormat {
  Renderer &r;
  const std::string &source;
  Args &args;
  bool markup;
  int64_t automatic = 0; ///< next number of '{}', -1 once a number was written out

  bool field(const std::string &name, Value &out) {
    size_t i = std::min(name.find_first_of(".["), name.size());
    std::string first = name.substr(0, i);
    bool number = !first.empty() && first.size() < 10 && first.find_first_not_of("0123456789") == std::string::npos;
    if (first.empty() || number) {
      if (number == (automatic > 0)) {
        if (number || automatic < 0) return r.fail("format: numbered and unnumbered places in one text");
      }
      if (number && automatic == 0) automatic = -1;
      if (!number && automatic < 0) return r.fail("format: numbered and unnumbered places in one text");
      size_t index = number ? std::stoul(first) : static_cast<size_t>(automatic++);
      if (index >= args.positional.size()) return r.fail("format: no value for place %zu", index);
      out = args.positional[index];
    } else {
      bool hit = false;
      for (auto &[key, value] : args.keyword)
        if (key == first) out = value, hit = true;
      if (!hit) return r.fail("format: no value for '%s'", first.c_str());
    }
    while (i < name.size()) {
      Value next;
      if (name[i] == '.') {
        size_t end = std::min(name.find_first_of(".[", i + 1), name.size());
        if (end == i + 1) return r.fail("format: an empty attribute in '%s'", name.c_str());
        if (!r.getAttr(out, name.substr(i + 1, end - i - 1), next)) return false;
        i = end;
      } else if (name[i] == '[') {
        size_t end = name.find(']', i);
        if (end == std::string::npos || end == i + 1) return r.fail("format: a bad index in '%s'", name.c_str());
        std::string key = name.substr(i + 1, end - i - 1);
        bool isIndex = key.size() < 18 && key.find_first_not_of("0123456789") == std::string::npos;
        if (!r.getItem(out, isIndex ? Value::integer(std::stoll(key)) : Value::string(key), next)) return false;
        i = end + 1;
      } else {
        return r.fail("format: expected '.' or '[' behind ']' in '%s'", name.c_str());
      }
      out = next;
    }
    return true;
  }

  bool run(std::string_view f, int depth, std::string &out) {
    if (depth > 2) return r.fail("format: places nested too deep");
    for (size_t i = 0; i < f.size(); ++i) {
      if (f[i] != '{' && f[i] != '}') {
        out += f[i];
        continue;
      }
      if (i + 1 < f.size() && f[i + 1] == f[i] && depth == 1) {
        out += f[i++];
        continue;
      }
      if (f[i] == '}') return r.fail("format: a single '}'");
      size_t begin = ++i, open = 1, nameEnd = std::string::npos;
      bool inIndex = false;
      for (; i < f.size() && open > 0; ++i) {
        if (nameEnd == std::string::npos && f[i] == '[') inIndex = true;
        if (f[i] == ']') inIndex = false;
        if (inIndex) continue;
        open += (f[i] == '{') - (f[i] == '}');
        if (nameEnd == std::string::npos && (f[i] == '!' || f[i] == ':')) nameEnd = i;
      }
      if (open > 0) return r.fail("format: a single '{'");
      size_t end = --i;
      nameEnd = std::min(nameEnd, end);
      std::string name(f.substr(begin, nameEnd - begin)), spec;
      if (name.find('{') != std::string::npos) return r.fail("format: unexpected '{' in the name of a place");
      char conversion = 0;
      size_t rest = nameEnd;
      if (rest < end && f[rest] == '!') {
        if (rest + 1 >= end) return r.fail("format: nothing behind '!'");
        conversion = f[rest + 1];
        rest += 2;
        if (rest < end && f[rest] != ':') return r.fail("format: expected ':' behind the conversion");
      }
      Value value;
      if (!r.tick() || !field(name, value)) return false;
      if (rest < end && !run(f.substr(rest + 1, end - rest - 1), depth + 1, spec)) return false;
      std::string converted;
      if (conversion == 's' || conversion == 'r' || conversion == 'a') {
        if (!(conversion == 's' ? r.toText(value, converted) : r.repr(value, converted))) return false;
        value = Value::string(conversion == 'a' ? escapeNonAscii(converted) : converted);
      } else if (conversion) {
        return r.fail("format: unknown conversion '!%c'", conversion);
      }
      std::string text;
      if (!formatValue(r, value, spec, text)) return false;
      bool plain = !markup || (value.is(Kind::string) && value.isMarkup());
      out += plain || depth > 1 ? text : Renderer::escapeHtml(text);
      if (!r.checkSize(out.size())) return false;
    }
    return true;
  }
};

} // namespace

bool Renderer::formatBraces(const Value &format, Args &args, Value &out) {
  std::string result;
  BraceFormat braces{*this, format.text(), args, format.isMarkup()};
  return braces.run(format.text(), 1, result) && makeString(std::move(result), out, format.isMarkup());
}

} // namespace lathe::jinja
