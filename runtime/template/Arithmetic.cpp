//===- Arithmetic.cpp - numbers and what + and * do to the rest -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include <charconv>
#include <cmath>

namespace lathe::jinja {

static const char *symbol(Op op) {
  switch (op) {
  case Op::add:
    return "+";
  case Op::sub:
    return "-";
  case Op::mul:
    return "*";
  case Op::div:
    return "/";
  case Op::floorDiv:
    return "//";
  case Op::mod:
    return "%";
  default:
    return "**";
  }
}

static bool overflow(Renderer &r, Op op) { return r.exhausted("the result of '%s' does not fit 64 bits", symbol(op)); }

static bool powInt(Renderer &r, int64_t base, int64_t exponent, Value &out) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return overflow(r, Op::pow);
    exponent >>= 1;
    // A base of 0, 1 or -1 never grows; any other ends in an overflow within 64 rounds.
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(r, Op::pow);
  }
  out = Value::integer(result);
  return true;
}

static bool integers(Renderer &r, Op op, int64_t a, int64_t b, Value &out) {
  int64_t c = 0;
  switch (op) {
  case Op::add:
    if (__builtin_add_overflow(a, b, &c)) return overflow(r, op);
    break;
  case Op::sub:
    if (__builtin_sub_overflow(a, b, &c)) return overflow(r, op);
    break;
  case Op::mul:
    if (__builtin_mul_overflow(a, b, &c)) return overflow(r, op);
    break;
  case Op::floorDiv:
  case Op::mod: {
    if (b == 0) return r.fail("division by zero");
    if (b == -1) { // INT64_MIN / -1 does not fit
      if (op == Op::mod) break;
      if (__builtin_sub_overflow(int64_t(0), a, &c)) return overflow(r, op);
      break;
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) --quotient, rest += b;
    c = op == Op::mod ? rest : quotient;
    break;
  }
  default:
    return false;
  }
  out = Value::integer(c);
  return true;
}

/// Python's float floor division and remainder: the remainder has the sign of |b|.
static void divideFloor(double a, double b, double &quotient, double &rest) {
  rest = std::fmod(a, b);
  double div = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      div -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (div != 0) {
    quotient = std::floor(div);
    if (div - quotient > 0.5) quotient += 1;
  } else {
    quotient = std::copysign(0.0, a / b);
  }
}

static bool numbers(Renderer &r, Op op, const Value &x, const Value &y, Value &out) {
  if (x.isInteger() && y.isInteger()) {
    if (op == Op::pow && y.asInt() >= 0) return powInt(r, x.asInt(), y.asInt(), out);
    if (op == Op::div) {
      if (y.asInt() == 0) return r.fail("division by zero");
      // One rounding more than Python's from 2^53 on, which long double mostly hides.
      out = Value::real(static_cast<double>(static_cast<long double>(x.asInt()) / static_cast<long double>(y.asInt())));
      return true;
    }
    if (op != Op::pow) return integers(r, op, x.asInt(), y.asInt(), out);
  }
  double a = x.asReal(), b = y.asReal(), c = 0, rest;
  switch (op) {
  case Op::add:
    c = a + b;
    break;
  case Op::sub:
    c = a - b;
    break;
  case Op::mul:
    c = a * b;
    break;
  case Op::div:
    if (b == 0) return r.fail("division by zero");
    c = a / b;
    break;
  case Op::floorDiv:
  case Op::mod:
    if (b == 0) return r.fail("division by zero");
    divideFloor(a, b, c, rest);
    if (op == Op::mod) c = rest;
    break;
  default:
    if (a == 0 && b < 0) return r.fail("0 to a negative power");
    if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
      return r.unsupported("a negative number to a broken power is complex");
    c = std::pow(a, b);
    if (std::isinf(c) && std::isfinite(a) && std::isfinite(b)) return r.fail("the result of '**' is too large");
  }
  out = Value::real(c);
  return true;
}

static bool repeat(Renderer &r, const Value &what, int64_t times, Value &out) {
  if (times < 0) times = 0;
  if (what.is(Kind::string)) {
    uint64_t n = what.text().size();
    if (n > 0 && static_cast<uint64_t>(times) > r.options.maxOutputBytes / n + 1) return r.checkSize(UINT64_MAX);
    std::string text;
    text.reserve(n * times);
    for (int64_t i = 0; n > 0 && i < times; ++i)
      text += what.text();
    return r.makeString(std::move(text), out, what.isMarkup());
  }
  uint64_t n = what.items().size();
  if (n > 0 && static_cast<uint64_t>(times) > r.options.maxSteps / n + 1) return r.tick(r.options.maxSteps + 1);
  if (!r.tick(n * times)) return false;
  std::vector<Value> items;
  for (int64_t i = 0; n > 0 && i < times; ++i)
    items.insert(items.end(), what.items().begin(), what.items().end());
  return r.makeList(std::move(items), out, what.kind());
}

bool Renderer::binary(Op op, const Value &a, const Value &b, Value &out) {
  if (a.isNumber() && b.isNumber()) return numbers(*this, op, a, b, out);
  if (a.is(Kind::string) && op == Op::mod) return formatPercent(a, b, out);
  if (a.isUndefined() || b.isUndefined()) {
    const Value &u = a.isUndefined() ? a : b;
    return fail("'%s' on an undefined value%s%s", symbol(op), u.ref() ? ": " : "",
                u.ref() ? u.as<StringObject>().text.c_str() : "");
  }
  if (op == Op::add) {
    if (a.is(Kind::string) && b.is(Kind::string)) {
      if (!checkSize(a.text().size() + b.text().size())) return false;
      // HTML and plain text: the plain part is escaped.
      bool markup = a.isMarkup() || b.isMarkup();
      std::string text = markup && !a.isMarkup() ? escapeHtml(a.text()) : a.text();
      text += markup && !b.isMarkup() ? escapeHtml(b.text()) : b.text();
      return makeString(std::move(text), out, markup);
    }
    if (a.isSequence() && a.kind() == b.kind()) {
      std::vector<Value> items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return makeList(std::move(items), out, a.kind());
    }
  }
  if (op == Op::mul) {
    if ((a.is(Kind::string) || a.isSequence()) && b.isInteger()) return repeat(*this, a, b.asInt(), out);
    if ((b.is(Kind::string) || b.isSequence()) && a.isInteger()) return repeat(*this, b, a.asInt(), out);
  }
  return fail("'%s' does not work on %s and %s", symbol(op), typeName(a), typeName(b));
}

bool Renderer::negate(const Value &a, Value &out) {
  if (a.is(Kind::real)) {
    out = Value::real(-a.asReal());
    return true;
  }
  if (a.isInteger()) return integers(*this, Op::sub, 0, a.asInt(), out);
  return fail("'-' does not work on %s", typeName(a));
}

bool Renderer::parseInt(const std::string &source, int base, int64_t &out, bool &ok) {
  std::string_view s = strip(source, stripBoth);
  ok = false;
  bool negative = false;
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  if (s.size() > 1 && s[0] == '0') {
    int prefix = (s[1] | 0x20) == 'x' ? 16 : (s[1] | 0x20) == 'o' ? 8 : (s[1] | 0x20) == 'b' ? 2 : 0;
    if (prefix && (base == prefix || base == 0)) {
      base = prefix;
      s.remove_prefix(2);
      if (!s.empty() && s[0] == '_') s.remove_prefix(1);
    }
  }
  if (base == 0) {
    base = 10;
    if (s.size() > 1 && s[0] == '0' && s.find_first_not_of("0_") != std::string_view::npos) return true;
  }
  if (base < 2 || base > 36) return true;
  std::string digits = negative ? "-" : "";
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_')
      digits += s[i];
    else if (i == 0 || s[i - 1] == '_' || i + 1 == s.size())
      return true;
  }
  auto r = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
  if (s.empty() || s[0] == '-' || r.ptr != digits.data() + digits.size()) return true;
  if (r.ec == std::errc::result_out_of_range) return exhausted("integer %.40s does not fit 64 bits", digits.c_str());
  ok = r.ec == std::errc();
  return true;
}

bool Renderer::parseReal(const std::string &source, double &out) {
  std::string_view s = strip(source, stripBoth);
  std::string plain;
  for (size_t i = 0; i < s.size(); ++i) {
    auto digit = [&](size_t k) { return k < s.size() && s[k] >= '0' && s[k] <= '9'; };
    if (s[i] != '_')
      plain += s[i];
    else if (i == 0 || !digit(i - 1) || !digit(i + 1))
      return false;
  }
  bool negative = !plain.empty() && plain[0] == '-';
  if (!plain.empty() && (plain[0] == '-' || plain[0] == '+')) plain.erase(0, 1);
  if (plain.empty() || plain[0] == '-') return false;
  std::string lower = toLower(plain);
  if (lower == "inf" || lower == "infinity")
    out = HUGE_VAL;
  else if (lower == "nan")
    out = NAN;
  else {
    if (plain.find_first_not_of("0123456789.eE+-") != std::string::npos) return false;
    auto r = std::from_chars(plain.data(), plain.data() + plain.size(), out);
    if (r.ptr != plain.data() + plain.size()) return false;
    if (r.ec == std::errc::result_out_of_range) {
      size_t e = lower.find('e');
      out = e != std::string::npos && lower[e + 1] == '-' ? 0.0 : HUGE_VAL;
    } else if (r.ec != std::errc()) {
      return false;
    }
  }
  if (negative) out = -out;
  return true;
}

} // namespace lathe::jinja
