//===- SequenceFilters.cpp - filters of lists and dicts ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// map, select, reject, unique, batch, slice and items give generators, as in Jinja2: nothing is
// computed, and nothing fails, until an element is asked for, and elements come once.
//===----------------------------------------------------------------------===//
#include "Filters.h"
#include "Parser.h"
#include <algorithm>

namespace lathe::jinja {
namespace {

//===--- Attributes named by text: "function.name", 0, "a.0" ---------------===//

using Path = std::vector<Value>;

bool makePath(Renderer &r, const Value &attribute, Path &out) {
  if (attribute.isMissing() || attribute.is(Kind::none)) return true;
  if (!attribute.is(Kind::string)) {
    out.push_back(attribute);
    return attribute.isInteger() || r.fail("expected the name of an attribute, found %s", typeName(attribute));
  }
  const std::string &s = attribute.text();
  for (size_t at = 0; at <= s.size();) {
    size_t end = std::min(s.find('.', at), s.size());
    std::string part = s.substr(at, end - at);
    bool number = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
    out.push_back(number ? Value::integer(std::stoll(part)) : Value::string(part));
    at = end + 1;
  }
  return true;
}

/// |fallback| takes the place of what is undefined, at every step.
bool follow(Renderer &r, const Value &item, const Path &path, Value &out, const Value &fallback = Value()) {
  out = item;
  for (const Value &part : path) {
    Value next;
    if (!r.getItem(out, part, next)) return false;
    out = next.isUndefined() && !fallback.isMissing() && !fallback.is(Kind::none) ? fallback : next;
  }
  return true;
}

Value foldCase(const Value &v) { return v.is(Kind::string) ? Value::string(toLower(v.text())) : v; }

/// The key that sort and the like compare.
bool keyOf(Renderer &r, const Value &item, const Path &path, bool caseSensitive, Value &out) {
  if (!follow(r, item, path, out)) return false;
  if (!caseSensitive && out.is(Kind::string)) {
    if (!r.tickBytes(out.text().size())) return false;
    out = foldCase(out);
  }
  return true;
}

bool flag(Renderer &r, const Value &v, bool &out) { return v.isMissing() || r.truth(v, out); }

//===--- Generators ---------------------------------------------------------===//

using Pull = std::function<bool(Renderer &, Value &, bool &)>;

bool makeGenerator(Renderer &r, int depth, Pull pull, Value &out) {
  auto generator = std::make_shared<GeneratorObject>();
  generator->charge(256);
  generator->depth = static_cast<uint16_t>(depth + 1);
  generator->pull = std::move(pull);
  out = Value::object(Kind::generator, std::move(generator));
  return r.checkDepth(out.depth());
}

bool fromItems(Renderer &r, std::vector<Value> items, Value &out) {
  int depth = 0;
  for (const Value &v : items)
    depth = std::max(depth, v.depth());
  return makeGenerator(
      r, depth,
      [items = std::move(items), at = size_t(0)](Renderer &, Value &item, bool &done) mutable {
        done = at >= items.size();
        if (!done) item = items[at++];
        return true;
      },
      out);
}

/// What map, select and reject do to one element, decided when the first one is asked for.
struct Lazy {
  Value source;
  Args args;
  bool started = false;
  Iterator iterator;
  int id = -1;
  Path path;
  Value fallback;

  int depth() const {
    int depth = source.depth();
    for (const Value &v : args.positional)
      depth = std::max(depth, v.depth());
    for (const auto &v : args.keyword)
      depth = std::max(depth, v.second.depth());
    return depth;
  }
};

bool mapFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  auto lazy = std::make_shared<Lazy>();
  lazy->source = in;
  lazy->args = std::move(args);
  int depth = lazy->depth();
  auto start = [](Renderer &r, Lazy &l) {
    Args &args = l.args;
    bool named = args.positional.empty() && !args.keyword.empty();
    if (named) {
      std::vector<Value> a;
      return r.bind("map", args, {"attribute", "default"}, 1, a) && makePath(r, a[0], l.path) && [&] {
        l.fallback = a[1];
        return true;
      }();
    }
    std::string name;
    if (args.positional.empty()) return r.fail("map needs the name of a filter");
    if (!r.needText("map", args.positional[0], name)) return false;
    l.id = findFilter(name);
    if (l.id < 0) return r.fail("unknown filter '%s'", name.c_str());
    args.positional.erase(args.positional.begin());
    return true;
  };
  return makeGenerator(
      r, depth,
      [lazy, start](Renderer &r, Value &item, bool &done) {
        Lazy &l = *lazy;
        if (!l.started) {
          bool any;
          l.started = true;
          if (!r.truth(l.source, any)) return false;
          if (!any)
            l.source = Value::undefined();
          else if (!start(r, l))
            return false;
          if (!l.iterator.start(r, l.source)) return false;
        }
        Value from;
        if (!r.tick() || !l.iterator.next(r, from, done)) return false;
        if (done) return true;
        if (l.id >= 0) {
          Args copy = l.args;
          return (from.is(Kind::string) ? r.tickBytes(from.text().size()) : true) &&
                 r.applyFilter(l.id, from, copy, item);
        }
        return follow(r, from, l.path, item, l.fallback);
      },
      out);
}

bool chooseFilter(Renderer &r, const Value &in, Args &args, Value &out, bool keep, bool byAttribute) {
  auto lazy = std::make_shared<Lazy>();
  lazy->source = in;
  lazy->args = std::move(args);
  int depth = lazy->depth();
  auto start = [byAttribute](Renderer &r, Lazy &l) {
    std::vector<Value> &given = l.args.positional;
    if (byAttribute) {
      if (given.empty()) return r.fail("selectattr and rejectattr need the name of an attribute");
      if (!makePath(r, given[0], l.path)) return false;
      given.erase(given.begin());
    }
    if (given.empty()) return true;
    std::string name;
    if (!r.needText("select", given[0], name)) return false;
    l.id = findTest(name);
    if (l.id < 0) return r.fail("unknown test '%s'", name.c_str());
    given.erase(given.begin());
    return true;
  };
  return makeGenerator(
      r, depth,
      [lazy, start, keep](Renderer &r, Value &item, bool &done) {
        Lazy &l = *lazy;
        if (!l.started) {
          bool any;
          l.started = true;
          if (!r.truth(l.source, any)) return false;
          if (!any)
            l.source = Value::undefined();
          else if (!start(r, l))
            return false;
          if (!l.iterator.start(r, l.source)) return false;
        }
        while (true) {
          if (!r.tick() || !l.iterator.next(r, item, done)) return false;
          if (done) return true;
          Value value;
          bool yes;
          if (!follow(r, item, l.path, value)) return false;
          Args copy = l.args;
          if (!(l.id >= 0 ? r.applyTest(l.id, value, copy, yes) : r.truth(value, yes))) return false;
          if (yes == keep) return true;
        }
      },
      out);
}

bool selectFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return chooseFilter(r, in, args, out, true, false);
}
bool rejectFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return chooseFilter(r, in, args, out, false, false);
}
bool selectattrFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return chooseFilter(r, in, args, out, true, true);
}
bool rejectattrFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  return chooseFilter(r, in, args, out, false, true);
}

bool uniqueFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  bool caseSensitive = false;
  if (!r.bind("unique", args, {"case_sensitive", "attribute"}, 0, a) || !flag(r, a[0], caseSensitive)) return false;
  struct State {
    Value source;
    Iterator iterator;
    Path path;
    DictObject seen;
    bool started = false;
  };
  auto state = std::make_shared<State>();
  state->source = in;
  if (!makePath(r, a[1], state->path)) return false;
  return makeGenerator(
      r, in.depth(),
      [state, caseSensitive](Renderer &r, Value &item, bool &done) {
        if (!state->started && !state->iterator.start(r, state->source)) return false;
        state->started = true;
        while (true) {
          Value key;
          if (!r.tick() || !state->iterator.next(r, item, done)) return false;
          if (done) return true;
          if (!keyOf(r, item, state->path, caseSensitive, key) || !r.needHashable(key)) return false;
          if (state->seen.find(key) >= 0) continue;
          state->seen.set(key, Value::none());
          return true;
        }
      },
      out);
}

bool batchFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  int64_t size;
  if (!r.bind("batch", args, {"linecount", "fill_with"}, 1, a) || !r.needInt("batch", a[0], size)) return false;
  Value fill = a[1].isMissing() ? Value::none() : a[1];
  struct State {
    Value source;
    Iterator iterator;
    std::vector<Value> row;
    bool started = false, ended = false;
  };
  auto state = std::make_shared<State>();
  state->source = in;
  return makeGenerator(
      r, std::max(in.depth(), fill.depth()) + 1,
      [state, size, fill](Renderer &r, Value &item, bool &done) {
        State &s = *state;
        if (!s.started && !s.iterator.start(r, s.source)) return false;
        s.started = true;
        done = s.ended;
        while (!s.ended) {
          Value next;
          if (!r.tick() || !s.iterator.next(r, next, s.ended)) return false;
          if (s.ended) break;
          bool full = static_cast<int64_t>(s.row.size()) == size;
          if (full && !r.makeList(std::move(s.row), item)) return false;
          if (full) s.row.clear();
          s.row.push_back(std::move(next));
          if (full) return true;
        }
        if (done || s.row.empty()) {
          done = true;
          return true;
        }
        while (!fill.is(Kind::none) && static_cast<int64_t>(s.row.size()) < size) {
          if (!r.tick()) return false;
          s.row.push_back(fill);
        }
        return r.makeList(std::move(s.row), item);
      },
      out);
}

bool sliceFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items, columns;
  int64_t slices;
  if (!r.bind("slice", args, {"slices", "fill_with"}, 1, a) || !r.needInt("slice", a[0], slices)) return false;
  if (slices == 0) return r.fail("division by zero");
  if (!r.collect(in, items) || !r.tick(slices > 0 ? slices : 0)) return false;
  bool filled = !a[1].isMissing() && !a[1].is(Kind::none);
  int64_t n = static_cast<int64_t>(items.size()), each = slices > 0 ? n / slices : 0,
          extra = slices > 0 ? n % slices : 0;
  for (int64_t k = 0, at = 0; k < slices; ++k) {
    int64_t size = each + (k < extra);
    std::vector<Value> column(items.begin() + at, items.begin() + at + size);
    at += size;
    if (filled && k >= extra) column.push_back(a[1]);
    columns.emplace_back();
    if (!r.makeList(std::move(column), columns.back())) return false;
  }
  return fromItems(r, std::move(columns), out);
}

bool itemsFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  if (!r.bind("items", args, {}, 0, a)) return false;
  return makeGenerator(
      r, in.depth() + 1,
      [in, at = size_t(0)](Renderer &r, Value &item, bool &done) mutable {
        done = in.isUndefined();
        if (done) return true;
        if (!in.is(Kind::dict)) return r.fail("items: expected a dict, found %s", typeName(in));
        const auto &items = in.as<DictObject>().items;
        done = at >= items.size();
        if (done) return true;
        item = Value::tuple({items[at].first, items[at].second});
        ++at;
        return true;
      },
      out);
}

//===--- At once ------------------------------------------------------------===//

bool lengthFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  int64_t n;
  if (!r.bind("length", args, {}, 0, a) || !r.length(in, n)) return false;
  out = Value::integer(n);
  return true;
}

bool listFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items;
  return r.bind("list", args, {}, 0, a) && r.collect(in, items) && r.makeList(std::move(items), out);
}

bool firstFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  Iterator it;
  bool done;
  if (!r.bind("first", args, {}, 0, a) || !it.start(r, in) || !it.next(r, out, done)) return false;
  if (done) out = Value::undefined("there is no first item");
  return true;
}

bool lastFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items;
  if (!r.bind("last", args, {}, 0, a)) return false;
  if (in.is(Kind::generator) || in.is(Kind::loop)) return r.fail("a %s has no last item", typeName(in));
  if (in.is(Kind::string) || in.isSequence()) {
    int64_t n;
    if (!r.length(in, n)) return false;
    if (n > 0) return r.getItem(in, Value::integer(n - 1), out);
  } else if (!r.collect(in, items)) {
    return false;
  }
  out = items.empty() ? Value::undefined("there is no last item") : items.back();
  return true;
}

bool reverseFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items;
  if (!r.bind("reverse", args, {}, 0, a)) return false;
  if (in.is(Kind::string)) return r.getSlice(in, Value::none(), Value::none(), Value::integer(-1), out);
  if (!r.collect(in, items)) return false;
  std::reverse(items.begin(), items.end());
  return in.is(Kind::generator) ? r.makeList(std::move(items), out) : fromItems(r, std::move(items), out);
}

bool joinFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string separator, text;
  Path path;
  if (!r.bind("join", args, {"d", "attribute"}, 0, a) || !makePath(r, a[1], path)) return false;
  if (!a[0].isMissing() && !r.toText(a[0], separator)) return false;
  Iterator it;
  if (!it.start(r, in)) return false;
  for (bool first = true, done; true; first = false) {
    Value item, value;
    if (!r.tick() || !it.next(r, item, done)) return false;
    if (done) break;
    if (!first) text += separator;
    if (!follow(r, item, path, value) || !r.toText(value, text)) return false;
  }
  return r.makeString(std::move(text), out);
}

bool sortItems(Renderer &r, std::vector<Value> &items, const Value &attribute, bool caseSensitive, bool reverse) {
  std::vector<Path> paths;
  if (attribute.is(Kind::string)) {
    const std::string &s = attribute.text();
    for (size_t at = 0; at <= s.size();) {
      size_t end = std::min(s.find(',', at), s.size());
      paths.emplace_back();
      if (!makePath(r, Value::string(s.substr(at, end - at)), paths.back())) return false;
      at = end + 1;
    }
  } else {
    paths.emplace_back();
    if (!makePath(r, attribute, paths.back())) return false;
  }
  std::vector<Value> keys;
  for (const Value &item : items) {
    std::vector<Value> parts(paths.size());
    for (size_t i = 0; i < paths.size(); ++i)
      if (!keyOf(r, item, paths[i], caseSensitive, parts[i])) return false;
    keys.emplace_back();
    if (!r.makeList(std::move(parts), keys.back())) return false;
  }
  return r.sortBy(items, keys, reverse);
}

bool sortFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items;
  bool reverse = false, caseSensitive = false;
  if (!r.bind("sort", args, {"reverse", "case_sensitive", "attribute"}, 0, a) || !flag(r, a[0], reverse) ||
      !flag(r, a[1], caseSensitive) || !r.collect(in, items))
    return false;
  return sortItems(r, items, a[2], caseSensitive, reverse) && r.makeList(std::move(items), out);
}

bool dictsortFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items, keys;
  bool caseSensitive = false, reverse = false;
  std::string by = "key";
  if (!r.bind("dictsort", args, {"case_sensitive", "by", "reverse"}, 0, a) || !flag(r, a[0], caseSensitive) ||
      (!a[1].isMissing() && !r.needText("dictsort", a[1], by)) || !flag(r, a[2], reverse))
    return false;
  if (by != "key" && by != "value") return r.fail("dictsort: expected by 'key' or 'value', found '%s'", by.c_str());
  if (!in.is(Kind::dict)) return r.fail("dictsort: expected a dict, found %s", typeName(in));
  for (const auto &[key, value] : in.as<DictObject>().items) {
    items.push_back(Value::tuple({key, value}));
    keys.emplace_back();
    if (!r.tick() || !keyOf(r, by == "key" ? key : value, {}, caseSensitive, keys.back())) return false;
  }
  return r.sortBy(items, keys, reverse) && r.makeList(std::move(items), out);
}

bool groupbyFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items, keys, groups;
  bool caseSensitive = false;
  Path path;
  if (!r.bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1, a) || !flag(r, a[2], caseSensitive) ||
      !makePath(r, a[0], path) || !r.collect(in, items))
    return false;
  auto rawKey = [&](const Value &item, Value &key) { return follow(r, item, path, key, a[1]); };
  for (const Value &item : items) {
    Value key;
    if (!rawKey(item, key)) return false;
    keys.push_back(caseSensitive ? key : foldCase(key));
  }
  if (!r.sortBy(items, keys, false)) return false;
  for (size_t at = 0; at < items.size();) {
    Value key, raw;
    std::vector<Value> group;
    if (!rawKey(items[at], raw)) return false;
    key = caseSensitive ? raw : foldCase(raw);
    while (at < items.size()) {
      Value other;
      bool same;
      if (!rawKey(items[at], other)) return false;
      if (!caseSensitive) other = foldCase(other);
      if (!r.tick() || !r.equal(key, other, same)) return false;
      if (!same && !group.empty()) break;
      group.push_back(items[at++]);
    }
    Value list;
    if (!r.makeList(std::move(group), list)) return false;
    groups.emplace_back();
    if (!r.makeList({raw, list}, groups.back(), Kind::tuple)) return false;
    groups.back().as<ListObject>().isGroup = true;
  }
  return r.makeList(std::move(groups), out);
}

bool extreme(Renderer &r, const char *name, const Value &in, Args &args, Value &out, bool largest) {
  std::vector<Value> a, items;
  bool caseSensitive = false;
  Path path;
  if (!r.bind(name, args, {"case_sensitive", "attribute"}, 0, a) || !flag(r, a[0], caseSensitive) ||
      !r.collect(in, items))
    return false;
  if (items.empty()) {
    out = Value::undefined("there is no item");
    return true;
  }
  if (!makePath(r, a[1], path)) return false;
  Value best;
  for (size_t i = 0; i < items.size(); ++i) {
    Value key;
    bool better = true;
    if (!keyOf(r, items[i], path, caseSensitive, key)) return false;
    if (i > 0 && !(largest ? r.less(best, key, better) : r.less(key, best, better))) return false;
    if (!better) continue;
    best = key;
    out = items[i];
  }
  return true;
}

bool minFilter(Renderer &r, const Value &in, Args &args, Value &out) { return extreme(r, "min", in, args, out, false); }
bool maxFilter(Renderer &r, const Value &in, Args &args, Value &out) { return extreme(r, "max", in, args, out, true); }

bool sumFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a, items;
  Path path;
  if (!r.bind("sum", args, {"attribute", "start"}, 0, a) || !makePath(r, a[0], path) || !r.collect(in, items))
    return false;
  out = a[1].isMissing() ? Value::integer(0) : a[1];
  if (out.is(Kind::string)) return r.fail("sum does not add strings");
  for (const Value &item : items) {
    Value value, total;
    if (!r.tick() || !follow(r, item, path, value) || !r.binary(Op::add, out, value, total)) return false;
    out = std::move(total);
  }
  return true;
}

bool defaultFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  bool boolean = false, yes = true;
  if (!r.bind("default", args, {"default_value", "boolean"}, 0, a) || !flag(r, a[1], boolean)) return false;
  if (boolean && !in.isUndefined() && !r.truth(in, yes)) return false;
  out = in.isUndefined() || !yes ? (a[0].isMissing() ? Value::string("") : a[0]) : in;
  return true;
}

bool attrFilter(Renderer &r, const Value &in, Args &args, Value &out) {
  std::vector<Value> a;
  std::string name;
  return r.bind("attr", args, {"name"}, 1, a) && r.needText("attr", a[0], name) && r.ownAttr(in, name, out);
}

} // namespace

std::span<const FilterEntry> sequenceFilters() {
  static const FilterEntry table[] = {
      {"attr", attrFilter},       {"batch", batchFilter},     {"count", lengthFilter},
      {"d", defaultFilter},       {"default", defaultFilter}, {"dictsort", dictsortFilter},
      {"first", firstFilter},     {"groupby", groupbyFilter}, {"items", itemsFilter},
      {"join", joinFilter},       {"last", lastFilter},       {"length", lengthFilter},
      {"list", listFilter},       {"map", mapFilter},         {"max", maxFilter},
      {"min", minFilter},         {"reject", rejectFilter},   {"rejectattr", rejectattrFilter},
      {"reverse", reverseFilter}, {"select", selectFilter},   {"selectattr", selectattrFilter},
      {"slice", sliceFilter},     {"sort", sortFilter},       {"sum", sumFilter},
      {"unique", uniqueFilter},
  };
  return table;
}

} // namespace lathe::jinja
