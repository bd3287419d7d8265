//===- Objects.cpp - what templates do with values --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Truth, equality, order, membership, length, iteration and printing, as in Python.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace lathe::jinja {

bool Renderer::truth(const Value &v, bool &out) {
  switch (v.kind()) {
  case Kind::missing:
  case Kind::undefined:
  case Kind::none:
    out = false;
    break;
  case Kind::boolean:
  case Kind::integer:
    out = v.asInt() != 0;
    break;
  case Kind::real:
    out = v.asReal() != 0;
    break;
  case Kind::string:
    out = !v.text().empty();
    break;
  case Kind::list:
  case Kind::tuple:
    out = !v.items().empty();
    break;
  case Kind::dict:
    out = !v.as<DictObject>().items.empty();
    break;
  case Kind::view:
    out = !v.as<ViewObject>().dict.as<DictObject>().items.empty();
    break;
  case Kind::range:
    out = v.as<RangeObject>().size != 0;
    break;
  case Kind::loop: {
    int64_t n;
    if (!length(v, n)) return false;
    out = n != 0;
    break;
  }
  default:
    out = true;
  }
  return true;
}

bool Renderer::equal(const Value &a, const Value &b, bool &out) {
  if (!tick(0)) return false;
  if (a.isNumber() && b.isNumber()) {
    out = compareNumbers(a, b) == 0;
    return true;
  }
  out = false;
  if (a.kind() != b.kind()) return true;
  switch (a.kind()) {
  case Kind::undefined:
  case Kind::none:
    out = true;
    return true;
  case Kind::string:
    out = a.text() == b.text();
    return tickBytes(std::min(a.text().size(), b.text().size()));
  case Kind::list:
  case Kind::tuple: {
    const auto &x = a.items(), &y = b.items();
    if (x.size() != y.size()) return true;
    for (size_t i = 0; i < x.size(); ++i) {
      bool same = x[i].identical(y[i]);
      if (!tick() || (!same && !equal(x[i], y[i], same))) return false;
      if (!same) return true;
    }
    out = true;
    return true;
  }
  case Kind::dict: {
    DictObject &x = a.as<DictObject>(), &y = b.as<DictObject>();
    if (x.items.size() != y.items.size()) return true;
    for (const auto &[key, value] : x.items) {
      int64_t at = y.find(key);
      if (at < 0) return true;
      const Value &other = y.items[at].second;
      bool same = value.identical(other);
      if (!tick() || (!same && !equal(value, other, same))) return false;
      if (!same) return true;
    }
    out = true;
    return true;
  }
  case Kind::range: {
    RangeObject &x = a.as<RangeObject>(), &y = b.as<RangeObject>();
    out = x.size == y.size && (x.size == 0 || x.start == y.start) && (x.size < 2 || x.step == y.step);
    return true;
  }
  case Kind::view: {
    ViewObject &x = a.as<ViewObject>(), &y = b.as<ViewObject>();
    if (x.view == ViewKind::values || y.view == ViewKind::values) {
      out = a.identical(b);
      return true;
    }
    int64_t n, m;
    if (!length(a, n) || !length(b, m)) return false;
    if (n != m) return true;
    Iterator it;
    if (!it.start(*this, a)) return false;
    Value item;
    for (bool done = false, in = false;;) {
      if (!it.next(*this, item, done)) return false;
      if (done) break;
      if (!tick() || !contains(b, item, in)) return false;
      if (!in) return true;
    }
    out = true;
    return true;
  }
  case Kind::method: {
    MethodObject &x = a.as<MethodObject>(), &y = b.as<MethodObject>();
    out = x.name == y.name && x.self.identical(y.self);
    return true;
  }
  default:
    out = a.identical(b);
    return true;
  }
}

bool Renderer::less(const Value &a, const Value &b, bool &out) { return compare(Op::lt, a, b, out); }

bool Renderer::compare(Op op, const Value &a, const Value &b, bool &out) {
  if (op == Op::eq || op == Op::ne) {
    if (!equal(a, b, out)) return false;
    out = out == (op == Op::eq);
    return true;
  }
  if (op == Op::in || op == Op::notIn) {
    if (!contains(b, a, out)) return false;
    out = out == (op == Op::in);
    return true;
  }
  if (!tick(0)) return false;
  int order;
  if (a.isNumber() && b.isNumber()) {
    order = compareNumbers(a, b);
    if (order == 2) {
      out = false;
      return true;
    }
  } else if (a.is(Kind::string) && b.is(Kind::string)) {
    // UTF-8 sorts as its code points do.
    order = a.text().compare(b.text());
    if (!tickBytes(std::min(a.text().size(), b.text().size()))) return false;
  } else if (a.isSequence() && a.kind() == b.kind()) {
    const auto &x = a.items(), &y = b.items();
    size_t n = std::min(x.size(), y.size());
    for (size_t i = 0; i < n; ++i) {
      bool same = x[i].identical(y[i]);
      if (!tick() || (!same && !equal(x[i], y[i], same))) return false;
      if (!same) return compare(op, x[i], y[i], out);
    }
    order = x.size() < y.size() ? -1 : x.size() > y.size();
  } else if (a.isUndefined() || b.isUndefined()) {
    return fail("cannot compare an undefined value");
  } else {
    static const char *const signs[] = {"<", "<=", ">", ">="};
    return fail("'%s' does not order %s and %s", signs[static_cast<int>(op) - static_cast<int>(Op::lt)], typeName(a),
                typeName(b));
  }
  out = op == Op::lt ? order < 0 : op == Op::le ? order <= 0 : op == Op::gt ? order > 0 : order >= 0;
  return true;
}

bool Renderer::needHashable(const Value &key) {
  if (isHashable(key)) return true;
  return fail("a %s cannot be a key", typeName(key));
}

bool Renderer::contains(const Value &container, const Value &item, bool &out) {
  switch (container.kind()) {
  case Kind::string: {
    if (!item.is(Kind::string)) return fail("expected a string left of 'in', found %s", typeName(item));
    const std::string &hay = container.text(), &needle = item.text();
    // Linear whatever the texts are, which std::string::find is not.
    out = needle.empty() || memmem(hay.data(), hay.size(), needle.data(), needle.size()) != nullptr;
    return tickBytes(hay.size());
  }
  case Kind::dict:
    if (!needHashable(item)) return false;
    out = container.as<DictObject>().find(item) >= 0;
    return true;
  case Kind::view: {
    ViewObject &view = container.as<ViewObject>();
    if (view.view != ViewKind::keys) break;
    return contains(view.dict, item, out);
  }
  case Kind::range: {
    const RangeObject &r = container.as<RangeObject>();
    if (!item.isInteger()) break;
    int64_t offset = item.asInt() - r.start;
    if (item.asInt() < std::min(r.start, r.stop) || item.asInt() > std::max(r.start, r.stop))
      out = false;
    else
      out = offset % r.step == 0 && offset / r.step >= 0 && offset / r.step < r.size;
    return true;
  }
  default:
    break;
  }
  Iterator it;
  if (!it.start(*this, container)) return false;
  out = false;
  Value element;
  for (bool done = false; !out;) {
    if (!it.next(*this, element, done)) return false;
    if (done) break;
    if (!tick(1)) return false;
    out = element.identical(item);
    if (!out && !equal(element, item, out)) return false;
  }
  return true;
}

bool Renderer::length(const Value &v, int64_t &out) {
  switch (v.kind()) {
  case Kind::undefined:
    out = 0;
    return true;
  case Kind::string:
    out = static_cast<int64_t>(v.codePoints());
    return true;
  case Kind::list:
  case Kind::tuple:
    out = static_cast<int64_t>(v.items().size());
    return true;
  case Kind::dict:
    out = static_cast<int64_t>(v.as<DictObject>().items.size());
    return true;
  case Kind::view:
    return length(v.as<ViewObject>().dict, out);
  case Kind::range:
    out = v.as<RangeObject>().size;
    return true;
  case Kind::loop:
    return v.as<LoopObject>().getLength(*this, out);
  default:
    return fail("a %s has no length", typeName(v));
  }
}

//===--- Iteration ----------------------------------------------------------===//

bool Iterator::start(Renderer &r, const Value &v) {
  switch (v.kind()) {
  case Kind::undefined:
  case Kind::string:
  case Kind::list:
  case Kind::tuple:
  case Kind::dict:
  case Kind::view:
  case Kind::range:
  case Kind::generator:
  case Kind::loop:
    source = v;
    return true;
  default:
    return r.fail("a %s cannot be iterated", typeName(v));
  }
}

int64_t Iterator::size() const {
  switch (source.kind()) {
  case Kind::undefined:
    return 0;
  case Kind::string:
    return static_cast<int64_t>(source.codePoints());
  case Kind::list:
  case Kind::tuple:
    return static_cast<int64_t>(source.items().size());
  case Kind::dict:
    return static_cast<int64_t>(source.as<DictObject>().items.size());
  case Kind::view:
    return static_cast<int64_t>(source.as<ViewObject>().dict.as<DictObject>().items.size());
  case Kind::range:
    return source.as<RangeObject>().size;
  default:
    return -1;
  }
}

bool Iterator::next(Renderer &r, Value &out, bool &done) {
  done = false;
  switch (source.kind()) {
  case Kind::string: {
    const std::string &text = source.text();
    if (at >= text.size()) break;
    size_t from = at;
    decodeAt(text, at);
    out = Value::string(text.substr(from, at - from));
    return true;
  }
  case Kind::list:
  case Kind::tuple:
    if (at >= source.items().size()) break;
    out = source.items()[at++];
    return true;
  case Kind::dict: {
    auto &items = source.as<DictObject>().items;
    if (at >= items.size()) break;
    out = items[at++].first;
    return true;
  }
  case Kind::view: {
    ViewObject &view = source.as<ViewObject>();
    auto &items = view.dict.as<DictObject>().items;
    if (at >= items.size()) break;
    const auto &[key, value] = items[at++];
    out = view.view == ViewKind::keys ? key : view.view == ViewKind::values ? value : Value::tuple({key, value});
    return true;
  }
  case Kind::range: {
    const RangeObject &range = source.as<RangeObject>();
    if (static_cast<int64_t>(at) >= range.size) break;
    out = Value::integer(range.start + range.step * static_cast<int64_t>(at++));
    return true;
  }
  case Kind::generator:
    return source.as<GeneratorObject>().pull(r, out, done);
  case Kind::loop:
    return r.fail("a loop object cannot be iterated again");
  default:
    break;
  }
  done = true;
  return true;
}

bool LoopObject::peek(Renderer &r, const Value *&out) {
  if (ahead.empty()) {
    Value item;
    bool done;
    if (!iterator.next(r, item, done)) return false;
    if (done) {
      out = nullptr;
      return true;
    }
    ahead.push_back(std::move(item));
  }
  out = &ahead.back();
  return true;
}

bool LoopObject::getLength(Renderer &r, int64_t &out) {
  if (length < 0) length = iterator.size();
  if (length < 0) {
    // Only the rest of a generator can tell: take it out.
    std::vector<Value> rest;
    while (true) {
      Value item;
      bool done;
      if (!r.tick() || !iterator.next(r, item, done)) return false;
      if (done) break;
      rest.push_back(std::move(item));
    }
    std::reverse(rest.begin(), rest.end());
    rest.insert(rest.end(), ahead.begin(), ahead.end());
    ahead = std::move(rest);
    length = index0 + 1 + static_cast<int64_t>(ahead.size());
  }
  out = length;
  return true;
}

bool Renderer::collect(const Value &iterable, std::vector<Value> &out) {
  if (iterable.isSequence()) {
    out = iterable.items();
    return tick(out.size() / 4);
  }
  Iterator it;
  if (!it.start(*this, iterable)) return false;
  while (true) {
    Value item;
    bool done;
    if (!it.next(*this, item, done)) return false;
    if (done) return true;
    if (!tick()) return false;
    out.push_back(std::move(item));
  }
}

bool Renderer::sortBy(std::vector<Value> &items, std::vector<Value> &keys, bool reverse) {
  // Merge sort: the order is stable, and a comparison that fails ends it.
  size_t n = items.size();
  std::vector<size_t> order(n), other(n);
  for (size_t i = 0; i < n; ++i)
    order[i] = i;
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * width) {
      size_t middle = std::min(begin + width, n), end = std::min(begin + 2 * width, n);
      size_t a = begin, b = middle;
      for (size_t k = begin; k < end; ++k) {
        bool takeRight = a == middle;
        if (a < middle && b < end) {
          const Value &left = keys[order[a]], &right = keys[order[b]];
          if (!tick() || !(reverse ? less(left, right, takeRight) : less(right, left, takeRight))) return false;
        }
        other[k] = takeRight ? order[b++] : order[a++];
      }
    }
    std::swap(order, other);
  }
  std::vector<Value> sorted;
  for (size_t i : order)
    sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
  return true;
}

//===--- Printing -----------------------------------------------------------===//

bool Renderer::writeQuoted(std::string_view text, std::string &out) {
  char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  static const char hex[] = "0123456789abcdef";
  for (size_t i = 0; i < text.size();) {
    char32_t c = decodeAt(text, i);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (isPrintable(c)) {
      appendUtf8(out, c);
    } else {
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      for (int shift = c < 0x100 ? 4 : c < 0x10000 ? 12 : 28; shift >= 0; shift -= 4)
        out += hex[c >> shift & 15];
    }
  }
  out += quote;
  return tickBytes(text.size()) && checkSize(out.size());
}

bool Renderer::write(const Value &v, std::string &out, bool quoted) {
  switch (v.kind()) {
  case Kind::missing:
  case Kind::undefined:
    out += quoted ? "Undefined" : "";
    break;
  case Kind::none:
    out += "None";
    break;
  case Kind::boolean:
    out += v.asBool() ? "True" : "False";
    break;
  case Kind::integer:
    out += std::to_string(v.asInt());
    break;
  case Kind::real:
    out += formatReal(v.asReal());
    break;
  case Kind::string:
    if (!quoted) {
      out += v.text();
      return tickBytes(v.text().size()) && checkSize(out.size());
    }
    if (v.isMarkup()) out += "Markup(";
    if (!writeQuoted(v.text(), out)) return false;
    if (v.isMarkup()) out += ")";
    break;
  case Kind::list:
  case Kind::tuple: {
    const auto &items = v.items();
    out += v.is(Kind::list) ? '[' : '(';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out += ", ";
      if (!tick() || !write(items[i], out, true)) return false;
    }
    if (v.is(Kind::tuple) && items.size() == 1) out += ',';
    out += v.is(Kind::list) ? ']' : ')';
    break;
  }
  case Kind::space:
  case Kind::dict: {
    // A namespace can hold itself.
    if (++evals > 500) return exhausted("values nested too deep to print");
    DictObject &dict = v.is(Kind::dict) ? v.as<DictObject>() : v.as<NamespaceObject>().attributes;
    out += v.is(Kind::dict) ? "{" : "<Namespace {";
    bool first = true;
    for (const auto &[key, value] : dict.items) {
      if (!first) out += ", ";
      first = false;
      if (!tick() || !write(key, out, true)) return false;
      out += ": ";
      if (!write(value, out, true)) return false;
    }
    out += v.is(Kind::dict) ? "}" : "}>";
    --evals;
    break;
  }
  case Kind::view: {
    ViewObject &view = v.as<ViewObject>();
    std::vector<Value> items;
    out += view.view == ViewKind::keys ? "dict_keys(" : view.view == ViewKind::values ? "dict_values(" : "dict_items(";
    if (!collect(v, items) || !write(Value::list(std::move(items)), out, true)) return false;
    out += ")";
    break;
  }
  case Kind::range: {
    const RangeObject &r = v.as<RangeObject>();
    out += "range(" + std::to_string(r.start) + ", " + std::to_string(r.stop);
    if (r.step != 1) out += ", " + std::to_string(r.step);
    out += ")";
    break;
  }
  case Kind::loop: {
    LoopObject &loop = v.as<LoopObject>();
    int64_t n;
    if (!loop.getLength(*this, n)) return false;
    out += "<LoopContext " + std::to_string(loop.index0 + 1) + "/" + std::to_string(n) + ">";
    break;
  }
  case Kind::macro: {
    const std::string &name = v.as<MacroObject>().function->name;
    out += name == "caller" || name.empty() ? "<Macro anonymous>" : "<Macro '" + name + "'>";
    break;
  }
  case Kind::generator:
  case Kind::method:
  case Kind::function:
  case Kind::cycler:
  case Kind::joiner:
    // Python prints an address here.
    out += std::string("<") + typeName(v) + ">";
    break;
  }
  return checkSize(out.size());
}

} // namespace lathe::jinja
