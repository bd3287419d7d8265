//===- Value.h - values of the template language ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Python's values, as far as templates see them: immutable except for namespaces, counters of
// generators and the like. Shared by reference count. Integers have 64 bits.
//===----------------------------------------------------------------------===//
#pragma once
#include "Unicode.h"
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe::jinja {

enum class Kind : uint8_t {
  missing, ///< no value at all: an unset variable or argument; never seen by a template
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  range,
  view,      ///< keys(), values() or items() of a dict
  space,     ///< namespace()
  generator, ///< what map, select and the like give: elements made on demand, once
  method,    ///< a method bound to its object
  function,  ///< a global function
  macro,
  loop,
  cycler,
  joiner,
};

/// Heap part of a value. Counts the bytes alive on this thread, for the limit of a render.
struct Object {
  Object() = default;
  Object(const Object &) = delete;
  Object &operator=(const Object &) = delete;
  virtual ~Object() { liveBytes -= static_cast<int64_t>(charged); }
  void charge(size_t bytes) {
    charged += bytes;
    liveBytes += static_cast<int64_t>(bytes);
  }
  static thread_local int64_t liveBytes;
  uint16_t depth = 0; ///< containers within containers; bounds every recursion over values

private:
  size_t charged = 0;
};

class Value;
struct StringObject;
struct ListObject;
struct DictObject;
struct RangeObject;

class Value {
public:
  Value() = default;
  static Value undefined(std::string why = "");
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);
  static Value string(std::string text, bool markup = false);
  static Value list(std::vector<Value> items) { return sequence(Kind::list, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return sequence(Kind::tuple, std::move(items)); }
  static Value object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return tag; }
  bool is(Kind k) const { return tag == k; }
  bool isMissing() const { return tag == Kind::missing; }
  bool isUndefined() const { return tag == Kind::undefined; }
  /// Python's bool is an int.
  bool isInteger() const { return tag == Kind::integer || tag == Kind::boolean; }
  bool isNumber() const { return isInteger() || tag == Kind::real; }
  bool isSequence() const { return tag == Kind::list || tag == Kind::tuple; }
  /// A string that says it is HTML already: text added to it is escaped.
  bool isMarkup() const { return markup; }

  bool asBool() const { return number.i != 0; }
  int64_t asInt() const { return number.i; }
  double asReal() const { return tag == Kind::real ? number.d : static_cast<double>(number.i); }
  const std::string &text() const;
  size_t codePoints() const;
  const std::vector<Value> &items() const;
  template <typename T> T &as() const { return static_cast<T &>(*heap); }
  const std::shared_ptr<Object> &ref() const { return heap; }
  int depth() const { return heap ? heap->depth : 0; }
  /// Same object, or same number.
  bool identical(const Value &other) const;

private:
  explicit Value(Kind kind) : tag(kind) {}
  static Value sequence(Kind kind, std::vector<Value> items);
  Kind tag = Kind::missing;
  bool markup = false;
  union {
    int64_t i = 0;
    double d;
  } number;
  std::shared_ptr<Object> heap;
};

struct StringObject : Object {
  explicit StringObject(std::string s) : text(std::move(s)), length(countCodePoints(text)) {
    charge(sizeof(*this) + text.size());
  }
  const std::string text;
  const size_t length; ///< code points
};

struct ListObject : Object {
  explicit ListObject(std::vector<Value> v);
  const std::vector<Value> items;
  bool isGroup = false; ///< a tuple of groupby: its parts are called grouper and list
};

/// Insertion order, as in Python. 1, 1.0 and true are one key.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> items;
  /// Index of |key| (which must be hashable) or -1.
  int64_t find(const Value &key) const;
  int64_t find(std::string_view key) const;
  void set(const Value &key, Value value);

private:
  void grow();
  template <typename Same> int64_t probe(uint64_t hash, Same same) const;
  std::vector<int32_t> table; ///< open addressing once there are more than a few
};

struct RangeObject : Object {
  int64_t start, stop, step, size;
};

enum class ViewKind : uint8_t { keys, values, items };
struct ViewObject : Object {
  Value dict;
  ViewKind view;
};

struct NamespaceObject : Object {
  DictObject attributes;
};

/// A mutable dict while it is being made; becomes a Value.
Value makeDict(std::shared_ptr<DictObject> dict);

/// Lists, dicts and what contains them have no hash. Sees tuples through.
bool isHashable(const Value &v);
uint64_t hashOf(const Value &v);
/// Equality of what can be a key: no lists or dicts inside.
bool equalKeys(const Value &a, const Value &b);
/// -1, 0, 1, or 2 when one is NaN.
int compareNumbers(const Value &a, const Value &b);

/// How Python prints a float: shortest digits that read back the same.
std::string formatReal(double d);
/// Python's name of the type, for messages.
const char *typeName(const Value &v);

} // namespace lathe::jinja
