//===- Value.cpp - values of the template language --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Value.h"
#include <charconv>
#include <cmath>
#include <cstring>

namespace lathe::jinja {

thread_local int64_t Object::liveBytes = 0;

Value Value::undefined(std::string why) {
  Value v(Kind::undefined);
  if (!why.empty()) v.heap = std::make_shared<StringObject>(std::move(why));
  return v;
}

Value Value::boolean(bool b) {
  Value v(Kind::boolean);
  v.number.i = b;
  return v;
}

Value Value::integer(int64_t i) {
  Value v(Kind::integer);
  v.number.i = i;
  return v;
}

Value Value::real(double d) {
  Value v(Kind::real);
  v.number.d = d;
  return v;
}

Value Value::string(std::string text, bool markup) {
  Value v(Kind::string);
  v.markup = markup;
  v.heap = std::make_shared<StringObject>(std::move(text));
  return v;
}

Value Value::sequence(Kind kind, std::vector<Value> items) {
  Value v(kind);
  v.heap = std::make_shared<ListObject>(std::move(items));
  return v;
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value v(kind);
  v.heap = std::move(object);
  return v;
}

const std::string &Value::text() const { return as<StringObject>().text; }
size_t Value::codePoints() const { return as<StringObject>().length; }
const std::vector<Value> &Value::items() const { return as<ListObject>().items; }

bool Value::identical(const Value &other) const {
  if (tag != other.tag || heap != other.heap) return false;
  if (heap) return markup == other.markup;
  return tag == Kind::real ? std::memcmp(&number.d, &other.number.d, sizeof(double)) == 0 : number.i == other.number.i;
}

ListObject::ListObject(std::vector<Value> v) : items(std::move(v)) {
  charge(sizeof(*this) + items.capacity() * sizeof(Value));
  for (const Value &item : items)
    depth = std::max<int>(depth, item.depth());
  ++depth;
}

Value makeDict(std::shared_ptr<DictObject> dict) { return Value::object(Kind::dict, std::move(dict)); }

template <typename Same> int64_t DictObject::probe(uint64_t hash, Same same) const {
  if (table.empty()) {
    for (size_t i = 0; i < items.size(); ++i)
      if (same(items[i].first)) return static_cast<int64_t>(i);
    return -1;
  }
  size_t mask = table.size() - 1;
  for (size_t at = hash & mask; table[at] >= 0; at = (at + 1) & mask)
    if (same(items[table[at]].first)) return table[at];
  return -1;
}

int64_t DictObject::find(const Value &key) const {
  return probe(table.empty() ? 0 : hashOf(key), [&](const Value &k) { return equalKeys(k, key); });
}

static uint64_t hashText(std::string_view s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : s)
    h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return h ^ h >> 29;
}

int64_t DictObject::find(std::string_view key) const {
  return probe(table.empty() ? 0 : hashText(key),
               [&](const Value &k) { return k.is(Kind::string) && k.text() == key; });
}

void DictObject::set(const Value &key, Value value) {
  depth = std::max<int>(depth, 1 + std::max(key.depth(), value.depth()));
  int64_t at = find(key);
  if (at >= 0) {
    items[at].second = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
  charge(3 * sizeof(Value));
  if (items.size() > 8 && items.size() * 2 > table.size()) return grow();
  if (table.empty()) return;
  size_t mask = table.size() - 1, slot = hashOf(key) & mask;
  while (table[slot] >= 0)
    slot = (slot + 1) & mask;
  table[slot] = static_cast<int32_t>(items.size() - 1);
}

void DictObject::grow() {
  size_t size = 32;
  while (size < items.size() * 4)
    size *= 2;
  table.assign(size, -1);
  for (size_t i = 0; i < items.size(); ++i) {
    size_t slot = hashOf(items[i].first) & (size - 1);
    while (table[slot] >= 0)
      slot = (slot + 1) & (size - 1);
    table[slot] = static_cast<int32_t>(i);
  }
}

bool isHashable(const Value &v) {
  switch (v.kind()) {
  case Kind::list:
  case Kind::dict:
  case Kind::view:
    return false;
  case Kind::tuple:
    for (const Value &item : v.items())
      if (!isHashable(item)) return false;
    return true;
  default:
    return true;
  }
}

uint64_t hashOf(const Value &v) {
  auto mix = [](uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  };
  switch (v.kind()) {
  case Kind::boolean:
  case Kind::integer:
    return mix(static_cast<uint64_t>(v.asInt()));
  case Kind::real: {
    double d = v.asReal();
    if (d >= -9.2e18 && d <= 9.2e18 && d == std::floor(d)) return mix(static_cast<uint64_t>(static_cast<int64_t>(d)));
    uint64_t bits;
    std::memcpy(&bits, &d, sizeof(bits));
    return mix(bits);
  }
  case Kind::string:
    return hashText(v.text());
  case Kind::tuple: {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (const Value &item : v.items())
      h = mix(h ^ hashOf(item));
    return h;
  }
  case Kind::undefined:
  case Kind::none:
    return mix(static_cast<uint64_t>(v.kind()));
  default:
    return mix(reinterpret_cast<uintptr_t>(v.ref().get()));
  }
}

int compareNumbers(const Value &a, const Value &b) {
  if (a.isInteger() && b.isInteger()) return a.asInt() < b.asInt() ? -1 : a.asInt() > b.asInt();
  if (a.isInteger()) {
    int c = compareNumbers(b, a);
    return c == 2 ? 2 : -c;
  }
  double x = a.asReal();
  if (std::isnan(x)) return 2;
  if (!b.isInteger()) {
    double y = b.asReal();
    return std::isnan(y) ? 2 : x < y ? -1 : x > y;
  }
  // Exactly: the integer may have more digits than a double.
  if (x >= 9223372036854775808.0) return 1;
  if (x < -9223372036854775808.0) return -1;
  double whole = std::floor(x);
  int64_t i = static_cast<int64_t>(whole);
  if (i != b.asInt()) return i < b.asInt() ? -1 : 1;
  return x > whole ? 1 : 0;
}

bool equalKeys(const Value &a, const Value &b) {
  if (a.isNumber() && b.isNumber()) return a.identical(b) || compareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
  case Kind::undefined:
  case Kind::none:
    return true;
  case Kind::string:
    return a.text() == b.text();
  case Kind::tuple: {
    if (a.identical(b)) return true;
    const auto &x = a.items(), &y = b.items();
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!equalKeys(x[i], y[i])) return false;
    return true;
  }
  default:
    return a.identical(b);
  }
}

std::string formatReal(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  auto r = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific);
  std::string_view sci(buffer, r.ptr - buffer);
  std::string out;
  if (sci[0] == '-') {
    out = "-";
    sci.remove_prefix(1);
  }
  size_t e = sci.find('e');
  std::string digits;
  for (char c : sci.substr(0, e))
    if (c != '.') digits += c;
  int exponent = 0;
  bool negative = sci[e + 1] == '-';
  for (char c : sci.substr(e + 2))
    exponent = exponent * 10 + (c - '0');
  if (negative) exponent = -exponent;
  int n = static_cast<int>(digits.size());
  // repr() switches to an exponent below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    std::string power = std::to_string(std::abs(exponent));
    return out + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(exponent + 1 - n, '0') + ".0";
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

const char *typeName(const Value &v) {
  switch (v.kind()) {
  case Kind::missing:
  case Kind::undefined:
    return "undefined";
  case Kind::none:
    return "none";
  case Kind::boolean:
    return "bool";
  case Kind::integer:
    return "int";
  case Kind::real:
    return "float";
  case Kind::string:
    return "str";
  case Kind::list:
    return "list";
  case Kind::tuple:
    return "tuple";
  case Kind::dict:
    return "dict";
  case Kind::range:
    return "range";
  case Kind::view:
    return "dict view";
  case Kind::space:
    return "namespace";
  case Kind::generator:
    return "generator";
  case Kind::method:
    return "method";
  case Kind::function:
    return "function";
  case Kind::macro:
    return "macro";
  case Kind::loop:
    return "loop";
  case Kind::cycler:
    return "cycler";
  case Kind::joiner:
    return "joiner";
  }
  return "value";
}

} // namespace lathe::jinja
