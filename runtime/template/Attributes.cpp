//===- Attributes.cpp - a.b, a[b] and a[b:c] --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// a.b looks for a method or attribute of the object first and for the key 'b' then; a['b'] the other
// way round. A method that would change its object, and any name that begins with an underscore,
// gives an undefined value: that is the immutable sandbox.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include <algorithm>
#include <cstring>

namespace lathe::jinja {
namespace {

const char *const stringNames[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};
const char *const markupNames[] = {"escape", "striptags", "unescape"};
const char *const listNames[] = {"copy", "count", "index"};
const char *const listUnsafe[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
const char *const tupleNames[] = {"count", "index"};
const char *const dictNames[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
const char *const dictUnsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};
const char *const intNames[] = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes"};
const char *const realNames[] = {"as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"};
const char *const viewNames[] = {"isdisjoint"};

template <size_t N> bool has(const char *const (&names)[N], const std::string &name) {
  return std::any_of(std::begin(names), std::end(names), [&](const char *n) { return name == n; });
}

enum class Found { no, yes, failed };

} // namespace

/// The attribute of the object itself. |unsafe| is set when the sandbox hides it.
static Found ownAttribute(Renderer &r, const Value &v, const std::string &name, Value &out) {
  auto method = [&] {
    auto object = std::make_shared<MethodObject>();
    object->charge(sizeof(MethodObject));
    object->self = v;
    object->name = name;
    object->depth = static_cast<uint16_t>(v.depth() + 1);
    out = Value::object(Kind::method, std::move(object));
    return r.checkDepth(out.depth()) ? Found::yes : Found::failed;
  };
  auto hidden = [&] {
    out = Value::undefined("'" + name + "' of a " + typeName(v) + " may not be used: it changes its object");
    return Found::yes;
  };
  auto give = [&](Value value) {
    out = std::move(value);
    return Found::yes;
  };
  switch (v.kind()) {
  case Kind::string:
    return has(stringNames, name) || (v.isMarkup() && has(markupNames, name)) ? method() : Found::no;
  case Kind::list:
    return has(listNames, name) ? method() : has(listUnsafe, name) ? hidden() : Found::no;
  case Kind::tuple:
    if (v.as<ListObject>().isGroup && (name == "grouper" || name == "list"))
      return give(v.items()[name == "grouper" ? 0 : 1]);
    return has(tupleNames, name) ? method() : Found::no;
  case Kind::dict:
    return has(dictNames, name) ? method() : has(dictUnsafe, name) ? hidden() : Found::no;
  case Kind::view:
    if (name == "mapping") return give(v.as<ViewObject>().dict);
    return has(viewNames, name) && v.as<ViewObject>().view != ViewKind::values ? method() : Found::no;
  case Kind::boolean:
  case Kind::integer:
    if (name == "real" || name == "numerator") return give(Value::integer(v.asInt()));
    if (name == "imag") return give(Value::integer(0));
    if (name == "denominator") return give(Value::integer(1));
    return has(intNames, name) ? method() : Found::no;
  case Kind::real:
    if (name == "real") return give(v);
    if (name == "imag") return give(Value::real(0));
    return has(realNames, name) ? method() : Found::no;
  case Kind::range: {
    const RangeObject &range = v.as<RangeObject>();
    if (name == "start") return give(Value::integer(range.start));
    if (name == "stop") return give(Value::integer(range.stop));
    if (name == "step") return give(Value::integer(range.step));
    return has(tupleNames, name) ? method() : Found::no;
  }
  case Kind::space: {
    if (name[0] == '_') return Found::no;
    DictObject &attributes = v.as<NamespaceObject>().attributes;
    int64_t at = attributes.find(std::string_view(name));
    return at < 0 ? Found::no : give(attributes.items[at].second);
  }
  case Kind::loop: {
    LoopObject &loop = v.as<LoopObject>();
    int64_t n;
    const Value *next;
    if (name == "index") return give(Value::integer(loop.index0 + 1));
    if (name == "index0") return give(Value::integer(loop.index0));
    if (name == "first") return give(Value::boolean(loop.index0 == 0));
    if (name == "depth") return give(Value::integer(loop.depth0 + 1));
    if (name == "depth0") return give(Value::integer(loop.depth0));
    if (name == "length" || name == "revindex" || name == "revindex0") {
      if (!loop.getLength(r, n)) return Found::failed;
      return give(Value::integer(name == "length" ? n : name == "revindex" ? n - loop.index0 : n - loop.index0 - 1));
    }
    if (name == "last" || name == "nextitem") {
      if (!loop.peek(r, next)) return Found::failed;
      if (name == "last") return give(Value::boolean(!next));
      return give(next ? *next : Value::undefined("there is no next item"));
    }
    if (name == "previtem") return give(loop.index0 == 0 ? Value::undefined("there is no previous item") : loop.before);
    return name == "cycle" || name == "changed" ? method() : Found::no;
  }
  case Kind::macro: {
    const Function &f = *v.as<MacroObject>().function;
    if (name == "name") return give(Value::string(f.name));
    if (name == "catch_kwargs") return give(Value::boolean(f.kwargsSlot >= 0));
    if (name == "catch_varargs") return give(Value::boolean(f.varargsSlot >= 0));
    if (name == "caller") return give(Value::boolean(f.callerSlot >= 0 || f.explicitCaller));
    if (name == "arguments") {
      std::vector<Value> names;
      for (const std::string &p : f.parameters)
        names.push_back(Value::string(p));
      return give(Value::tuple(std::move(names)));
    }
    return Found::no;
  }
  case Kind::cycler: {
    CyclerObject &cycler = v.as<CyclerObject>();
    if (name == "current") return give(cycler.items[cycler.at]);
    if (name == "pos") return give(Value::integer(static_cast<int64_t>(cycler.at)));
    if (name == "items") return give(Value::tuple(cycler.items));
    return name == "next" || name == "reset" ? method() : Found::no;
  }
  case Kind::joiner: {
    if (name == "sep") return give(v.as<JoinerObject>().separator);
    if (name == "used") return give(Value::boolean(v.as<JoinerObject>().used));
    return Found::no;
  }
  default:
    return Found::no;
  }
}

static bool isDunder(const std::string &name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

bool Renderer::getAttr(const Value &object, const std::string &name, Value &out) {
  if (object.isUndefined()) {
    if (isDunder(name)) {
      out = Value::undefined();
      return true;
    }
    return fail("cannot read '%s' of an undefined value%s%s", name.c_str(), object.ref() ? ": " : "",
                object.ref() ? object.as<StringObject>().text.c_str() : "");
  }
  Found found = ownAttribute(*this, object, name, out);
  if (found != Found::no) return found == Found::yes;
  if (object.is(Kind::dict) && !isDunder(name)) {
    DictObject &dict = object.as<DictObject>();
    int64_t at = dict.find(std::string_view(name));
    if (at >= 0) {
      out = dict.items[at].second;
      return true;
    }
  }
  out = Value::undefined(std::string(typeName(object)) + " has no '" + name + "'");
  return true;
}

bool Renderer::ownAttr(const Value &object, const std::string &name, Value &out) {
  if (object.isUndefined()) return getAttr(object, name, out);
  Found found = ownAttribute(*this, object, name, out);
  if (found == Found::no) out = Value::undefined(std::string(typeName(object)) + " has no '" + name + "'");
  return found != Found::failed;
}

bool Renderer::rangeItem(const RangeObject &range, int64_t index, Value &out) {
  if (index < 0) index += range.size;
  if (index < 0 || index >= range.size) return false;
  out = Value::integer(range.start + range.step * index);
  return true;
}

bool Renderer::getItem(const Value &object, const Value &key, Value &out) {
  switch (object.kind()) {
  case Kind::undefined:
    return fail("cannot read an item of an undefined value%s%s", object.ref() ? ": " : "",
                object.ref() ? object.as<StringObject>().text.c_str() : "");
  case Kind::dict: {
    if (!isHashable(key)) break;
    DictObject &dict = object.as<DictObject>();
    int64_t at = dict.find(key);
    if (at < 0) break;
    out = dict.items[at].second;
    return true;
  }
  case Kind::list:
  case Kind::tuple: {
    if (!key.isInteger()) break;
    const auto &items = object.items();
    int64_t index = key.asInt() + (key.asInt() < 0 ? static_cast<int64_t>(items.size()) : 0);
    if (index < 0 || index >= static_cast<int64_t>(items.size())) break;
    out = items[index];
    return true;
  }
  case Kind::string: {
    if (!key.isInteger()) break;
    const std::string &text = object.text();
    int64_t n = static_cast<int64_t>(object.codePoints());
    int64_t index = key.asInt() + (key.asInt() < 0 ? n : 0);
    if (index < 0 || index >= n) break;
    bool ascii = text.size() == static_cast<size_t>(n);
    if (!ascii && !tickBytes(text.size())) return false;
    size_t from = ascii ? index : byteOffset(text, index), end = from;
    decodeAt(text, end);
    return makeString(text.substr(from, end - from), out, object.isMarkup());
  }
  case Kind::range:
    if (key.isInteger() && rangeItem(object.as<RangeObject>(), key.asInt(), out)) return true;
    break;
  default:
    break;
  }
  if (key.is(Kind::string)) {
    Found found = ownAttribute(*this, object, key.text(), out);
    if (found != Found::no) return found == Found::yes;
  }
  out = Value::undefined(std::string(typeName(object)) + " has no such item");
  return true;
}

bool Renderer::getSlice(const Value &object, const Value &from, const Value &to, const Value &step, Value &out) {
  int64_t n;
  switch (object.kind()) {
  case Kind::string:
  case Kind::list:
  case Kind::tuple:
  case Kind::range:
    break;
  case Kind::undefined:
    return fail("cannot slice an undefined value");
  default:
    return fail("a %s cannot be sliced", typeName(object));
  }
  if (!length(object, n)) return false;
  for (const Value *bound : {&from, &to, &step})
    if (!bound->is(Kind::none) && !bound->isInteger())
      return fail("expected integers in a slice, found %s", typeName(*bound));
  int64_t stride = step.is(Kind::none) ? 1 : step.asInt();
  if (stride == 0) return fail("the step of a slice is 0");
  auto clamp = [&](const Value &v, int64_t otherwise) {
    if (v.is(Kind::none)) return otherwise;
    int64_t i = v.asInt();
    if (i < 0) i = i < -n ? (stride < 0 ? -1 : 0) : i + n;
    return std::min(i, stride < 0 ? n - 1 : n);
  };
  int64_t begin = clamp(from, stride < 0 ? n - 1 : 0), end = clamp(to, stride < 0 ? -1 : n);
  if (object.is(Kind::range)) {
    const RangeObject &r = object.as<RangeObject>();
    auto slice = std::make_shared<RangeObject>();
    int64_t first, last;
    if (__builtin_mul_overflow(begin, r.step, &first) || __builtin_add_overflow(r.start, first, &slice->start) ||
        __builtin_mul_overflow(end, r.step, &last) || __builtin_add_overflow(r.start, last, &slice->stop) ||
        __builtin_mul_overflow(r.step, stride, &slice->step) || stride == INT64_MIN)
      return exhausted("a slice of a range does not fit 64 bits");
    int64_t span = stride > 0 ? end - begin : begin - end, width = stride > 0 ? stride : -stride;
    slice->size = span > 0 ? (span - 1) / width + 1 : 0;
    out = Value::object(Kind::range, std::move(slice));
    return true;
  }
  if (object.is(Kind::string) && stride == 1) {
    const std::string &text = object.text();
    if (end <= begin) return makeString("", out, object.isMarkup());
    bool ascii = text.size() == static_cast<size_t>(n);
    if (!tickBytes(text.size())) return false;
    size_t a = ascii ? begin : byteOffset(text, begin);
    size_t b = ascii ? end : a + byteOffset(std::string_view(text).substr(a), end - begin);
    return makeString(text.substr(a, b - a), out, object.isMarkup());
  }
  std::vector<int64_t> indices;
  if (stride > 0)
    for (int64_t i = begin; i < end; i += std::min(stride, end - i))
      indices.push_back(i);
  else
    for (int64_t i = begin; i > end; i -= std::min(-std::max(stride, -n - 1), i - end))
      indices.push_back(i);
  if (object.is(Kind::string)) {
    if (!tickBytes(object.text().size() + indices.size())) return false;
    std::u32string text = decode(object.text()), picked;
    for (int64_t i : indices)
      picked += text[i];
    return makeString(encode(picked), out, object.isMarkup());
  }
  std::vector<Value> items;
  for (int64_t i : indices)
    items.push_back(object.items()[i]);
  return makeList(std::move(items), out, object.kind());
}

} // namespace lathe::jinja
