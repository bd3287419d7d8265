//===- Calls.cpp - calling things -------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include "Strftime.h"
#include <cmath>

namespace lathe::jinja {

bool Renderer::bind(const char *function, Args &args, std::initializer_list<const char *> names, size_t required,
                    std::vector<Value> &out) {
  out.assign(names.size(), Value());
  if (args.positional.size() > names.size())
    return fail("%s takes at most %zu arguments, found %zu", function, names.size(), args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i)
    out[i] = args.positional[i];
  for (auto &[name, value] : args.keyword) {
    size_t at = 0;
    while (at < names.size() && name != names.begin()[at])
      ++at;
    if (at == names.size()) return fail("%s has no argument '%s'", function, name.c_str());
    if (!out[at].isMissing()) return fail("argument '%s' of %s is given twice", name.c_str(), function);
    out[at] = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (out[i].isMissing()) return fail("%s needs the argument '%s'", function, names.begin()[i]);
  return true;
}

bool Renderer::needInt(const char *what, const Value &v, int64_t &out) {
  if (!v.isInteger()) return fail("%s: expected an integer, found %s", what, typeName(v));
  out = v.asInt();
  return true;
}

bool Renderer::needText(const char *what, const Value &v, std::string &out) {
  if (!v.is(Kind::string)) return fail("%s: expected a string, found %s", what, typeName(v));
  out = v.text();
  return true;
}

bool Renderer::call(const Value &callee, Args &args, Value &out) {
  switch (callee.kind()) {
  case Kind::macro: {
    Value keep = callee; // the call may replace the variable that holds the macro
    return callMacro(keep.as<MacroObject>(), args, out);
  }
  case Kind::method:
    return callMethod(callee.as<MethodObject>(), args, out);
  case Kind::function:
    return callGlobal(callee.as<GlobalObject>().which, args, out);
  case Kind::loop: {
    Value keep = callee;
    LoopObject &loop = keep.as<LoopObject>();
    if (!loop.recurse) return fail("a loop must be marked 'recursive' to be called");
    std::vector<Value> a;
    return bind("loop", args, {"iterable"}, 1, a) &&
           recurseLoop(*loop.recurse, loop.closure, a[0], loop.depth0 + 1, out);
  }
  case Kind::joiner: {
    std::vector<Value> a;
    if (!bind("joiner", args, {}, 0, a)) return false;
    JoinerObject &joiner = callee.as<JoinerObject>();
    out = joiner.used ? joiner.separator : Value::string("");
    joiner.used = true;
    return true;
  }
  case Kind::undefined:
    return fail("cannot call an undefined value%s%s", callee.ref() ? ": " : "",
                callee.ref() ? callee.as<StringObject>().text.c_str() : "");
  default:
    return fail("a %s cannot be called", typeName(callee));
  }
}

/// dict(...) and namespace(...): a mapping or pairs, then named values.
static bool fillDict(Renderer &r, const char *what, Args &args, DictObject &dict) {
  if (args.positional.size() > 1)
    return r.fail("%s takes at most 1 argument without a name, found %zu", what, args.positional.size());
  for (const Value &from : args.positional) {
    if (from.is(Kind::dict)) {
      for (const auto &[key, value] : from.as<DictObject>().items)
        dict.set(key, value);
      continue;
    }
    // An undefined value is an empty list elsewhere; here it is asked for keys first.
    if (from.is(Kind::undefined))
      return r.fail("%s: expected a mapping or pairs, found an undefined value%s%s", what, from.ref() ? ": " : "", from.ref() ? from.as<StringObject>().text.c_str() : "");
    std::vector<Value> pairs;
    if (!r.collect(from, pairs)) return false;
    for (const Value &pair : pairs) {
      std::vector<Value> parts;
      if (!r.collect(pair, parts)) return false;
      if (parts.size() != 2) return r.fail("%s: expected pairs, found %zu values", what, parts.size());
      if (!r.needHashable(parts[0])) return false;
      dict.set(parts[0], parts[1]);
    }
  }
  for (const auto &[name, value] : args.keyword)
    dict.set(Value::string(name), value);
  return r.tick(dict.items.size() / 4) && r.checkDepth(dict.depth);
}

bool Renderer::callGlobal(Global which, Args &args, Value &out) {
  std::vector<Value> a;
  switch (which) {
  case Global::range: {
    if (!args.keyword.empty() || args.positional.empty() || args.positional.size() > 3)
      return fail("range takes 1 to 3 arguments without names");
    int64_t bounds[3] = {0, 0, 1};
    size_t n = args.positional.size();
    for (size_t i = 0; i < n; ++i)
      if (!needInt("range", args.positional[i], bounds[n == 1 ? 1 : i])) return false;
    if (bounds[2] == 0) return fail("the step of a range is 0");
    for (int64_t b : bounds)
      if (b > int64_t(1) << 40 || b < -(int64_t(1) << 40)) return exhausted("the bounds of a range are over 2^40");
    auto range = std::make_shared<RangeObject>();
    range->start = bounds[0];
    range->stop = bounds[1];
    range->step = bounds[2];
    int64_t span = bounds[2] > 0 ? bounds[1] - bounds[0] : bounds[0] - bounds[1];
    range->size = span > 0 ? (span - 1) / std::abs(bounds[2]) + 1 : 0;
    if (range->size > options.maxRange)
      return exhausted("a range of %lld elements, at most %lld are allowed", static_cast<long long>(range->size),
                       static_cast<long long>(options.maxRange));
    out = Value::object(Kind::range, std::move(range));
    return true;
  }
  case Global::dict: {
    auto dict = std::make_shared<DictObject>();
    return fillDict(*this, "dict", args, *dict) && makeDict(std::move(dict), out);
  }
  case Global::space: {
    auto space = std::make_shared<NamespaceObject>();
    space->charge(sizeof(NamespaceObject));
    if (!fillDict(*this, "namespace", args, space->attributes)) return false;
    spaces.push_back(space);
    out = Value::object(Kind::space, std::move(space));
    return true;
  }
  case Global::cycler: {
    if (!args.keyword.empty() || args.positional.empty()) return fail("cycler needs one or more items without names");
    auto cycler = std::make_shared<CyclerObject>();
    cycler->charge(sizeof(CyclerObject) + args.positional.size() * sizeof(Value));
    cycler->items = args.positional;
    for (const Value &v : cycler->items)
      cycler->depth = std::max<int>(cycler->depth, v.depth() + 1);
    out = Value::object(Kind::cycler, std::move(cycler));
    return checkDepth(out.depth());
  }
  case Global::joiner: {
    if (!bind("joiner", args, {"sep"}, 0, a)) return false;
    auto joiner = std::make_shared<JoinerObject>();
    joiner->charge(sizeof(JoinerObject));
    joiner->separator = a[0].isMissing() ? Value::string(", ") : a[0];
    joiner->depth = static_cast<uint16_t>(joiner->separator.depth() + 1);
    out = Value::object(Kind::joiner, std::move(joiner));
    return checkDepth(out.depth());
  }
  case Global::raise: {
    std::string message;
    if (!bind("raise_exception", args, {"message"}, 1, a) || !toText(a[0], message)) return false;
    return raise(std::move(message));
  }
  case Global::strftime: {
    std::string format;
    if (!bind("strftime_now", args, {"format"}, 1, a) || !needText("strftime_now", a[0], format)) return false;
    return makeString(formatTime(options.now, format), out);
  }
  case Global::lipsum:
    return unsupported("lipsum() makes random text, which a chat template has no use for");
  }
  return false;
}

/// list.index and the like: the position of a value, -1 without one.
static bool indexOf(Renderer &r, const std::vector<Value> &items, Args &args, int64_t &out) {
  std::vector<Value> a;
  if (!r.bind("index", args, {"value", "start", "stop"}, 1, a)) return false;
  int64_t n = static_cast<int64_t>(items.size()), bounds[2] = {0, n};
  for (int i = 0; i < 2; ++i) {
    if (a[i + 1].isMissing()) continue;
    if (!r.needInt("index", a[i + 1], bounds[i])) return false;
    if (bounds[i] < 0) bounds[i] = bounds[i] < -n ? 0 : bounds[i] + n;
  }
  for (int64_t i = bounds[0]; i < std::min(bounds[1], n); ++i) {
    bool same = items[i].identical(a[0]);
    if (!r.tick() || (!same && !r.equal(items[i], a[0], same))) return false;
    if (same) {
      out = i;
      return true;
    }
  }
  out = -1;
  return true;
}

bool Renderer::callMethod(const MethodObject &method, Args &args, Value &out) {
  const Value self = method.self;
  const std::string name = method.name;
  std::vector<Value> a;
  switch (self.kind()) {
  case Kind::string:
    return stringMethod(self, name, args, out);
  case Kind::dict: {
    DictObject &dict = self.as<DictObject>();
    if (!args.keyword.empty()) return fail("%s takes no named arguments", name.c_str());
    if (name == "get") {
      if (!bind("get", args, {"key", "default"}, 1, a) || !needHashable(a[0])) return false;
      int64_t at = dict.find(a[0]);
      out = at >= 0 ? dict.items[at].second : a[1].isMissing() ? Value::none() : a[1];
      return true;
    }
    if (name == "fromkeys") {
      std::vector<Value> keys;
      if (!bind("fromkeys", args, {"keys", "value"}, 1, a) || !collect(a[0], keys)) return false;
      auto made = std::make_shared<DictObject>();
      for (const Value &key : keys) {
        if (!needHashable(key)) return false;
        made->set(key, a[1].isMissing() ? Value::none() : a[1]);
      }
      return makeDict(std::move(made), out);
    }
    if (!bind(name.c_str(), args, {}, 0, a)) return false;
    if (name == "copy") {
      out = self;
      return true;
    }
    auto view = std::make_shared<ViewObject>();
    view->dict = self;
    view->view = name == "keys" ? ViewKind::keys : name == "values" ? ViewKind::values : ViewKind::items;
    view->depth = static_cast<uint16_t>(self.depth() + 1);
    out = Value::object(Kind::view, std::move(view));
    return checkDepth(out.depth());
  }
  case Kind::list:
  case Kind::tuple:
  case Kind::range: {
    std::vector<Value> items;
    if (!collect(self, items)) return false;
    if (name == "copy" && self.is(Kind::list)) {
      out = self;
      return bind("copy", args, {}, 0, a);
    }
    int64_t at = 0;
    if (name == "index") {
      if (!indexOf(*this, items, args, at)) return false;
      if (at < 0) return fail("index: the value is not in the %s", typeName(self));
      out = Value::integer(at);
      return true;
    }
    if (!bind("count", args, {"value"}, 1, a)) return false;
    for (const Value &item : items) {
      bool same = item.identical(a[0]);
      if (!tick() || (!same && !equal(item, a[0], same))) return false;
      at += same;
    }
    out = Value::integer(at);
    return true;
  }
  case Kind::loop: {
    LoopObject &loop = self.as<LoopObject>();
    if (!args.keyword.empty()) return fail("%s takes no named arguments", name.c_str());
    if (name == "cycle") {
      if (args.positional.empty()) return fail("cycle needs one or more arguments");
      out = args.positional[loop.index0 % args.positional.size()];
      return true;
    }
    Value now;
    bool same = false;
    if (!makeList(args.positional, now, Kind::tuple)) return false;
    if (!loop.lastChanged.isMissing() && !equal(loop.lastChanged, now, same)) return false;
    loop.lastChanged = now;
    out = Value::boolean(!same);
    return true;
  }
  case Kind::cycler: {
    CyclerObject &cycler = self.as<CyclerObject>();
    if (!bind(name.c_str(), args, {}, 0, a)) return false;
    if (name == "reset") {
      cycler.at = 0;
      out = Value::none();
    } else {
      out = cycler.items[cycler.at];
      cycler.at = (cycler.at + 1) % cycler.items.size();
    }
    return true;
  }
  case Kind::boolean:
  case Kind::integer:
    if (!bind(name.c_str(), args, {}, 0, a)) return false;
    if (name == "conjugate")
      out = Value::integer(self.asInt());
    else if (name == "bit_length" || name == "bit_count") {
      uint64_t magnitude = self.asInt() < 0 ? 0 - static_cast<uint64_t>(self.asInt()) : self.asInt();
      out = Value::integer(name == "bit_count" ? __builtin_popcountll(magnitude)
                                               : (magnitude ? 64 - __builtin_clzll(magnitude) : 0));
    } else {
      break;
    }
    return true;
  case Kind::real:
    if (!bind(name.c_str(), args, {}, 0, a)) return false;
    if (name == "conjugate")
      out = self;
    else if (name == "is_integer")
      out = Value::boolean(std::isfinite(self.asReal()) && self.asReal() == std::floor(self.asReal()));
    else
      break;
    return true;
  default:
    break;
  }
  return unsupported("method '%s' of %s", name.c_str(), typeName(self));
}

} // namespace lathe::jinja
