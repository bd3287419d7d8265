//===- Eval.cpp - expressions -----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Renderer.h"

namespace lathe::jinja {

bool Renderer::eval(const Expr &e, Value &out) {
  if (++evals > maxEvalDepth) return exhausted("expressions and calls nested more than %d deep", maxEvalDepth);
  line = e.line;
  // Expressions count little, but an endless one must not be free.
  if (++evaluations % 32 == 0 && !tick()) return false;
  bool ok;
  switch (e.kind) {
  case ExprKind::constant:
    out = e.constant, ok = true;
    break;
  case ExprKind::name:
    ok = evalName(e, out);
    break;
  case ExprKind::call:
    ok = evalCall(e, nullptr, out);
    break;
  case ExprKind::filter:
    ok = evalFilter(e, nullptr, out);
    break;
  case ExprKind::test:
    ok = evalTest(e, out);
    break;
  case ExprKind::binary:
    ok = evalBinary(e, out);
    break;
  case ExprKind::concat:
    ok = evalConcat(e, out);
    break;
  case ExprKind::compare:
    ok = evalCompare(e, out);
    break;
  case ExprKind::list:
  case ExprKind::tuple:
    ok = evalItems(e, out);
    break;
  case ExprKind::dict:
    ok = evalDict(e, out);
    break;
  case ExprKind::slice:
    ok = evalSlice(e, out);
    break;
  default:
    ok = evalSmall(e, out);
  }
  --evals;
  return ok;
}

bool Renderer::evalName(const Expr &e, Value &out) {
  out = slotAt(e.slot);
  if (out.isMissing()) out = Value::undefined("'" + e.name + "' is not set");
  return true;
}

bool Renderer::evalSmall(const Expr &e, Value &out) {
  Value a, b;
  bool yes;
  switch (e.kind) {
  case ExprKind::attribute:
    return eval(*e.children[0], a) && getAttr(a, e.name, out);
  case ExprKind::item:
    return eval(*e.children[0], a) && eval(*e.children[1], b) && getItem(a, b, out);
  case ExprKind::logicAnd:
  case ExprKind::logicOr:
    for (const ExprPtr &child : e.children) {
      if (!eval(*child, out) || !truth(out, yes)) return false;
      if (yes == (e.kind == ExprKind::logicOr)) return true;
    }
    return true;
  case ExprKind::logicNot:
    if (!eval(*e.children[0], a) || !truth(a, yes)) return false;
    out = Value::boolean(!yes);
    return true;
  case ExprKind::negate:
    return eval(*e.children[0], a) && negate(a, out);
  case ExprKind::plus:
    if (!eval(*e.children[0], a)) return false;
    if (!a.isNumber()) return fail("'+' does not work on %s", typeName(a));
    out = a.is(Kind::boolean) ? Value::integer(a.asInt()) : a;
    return true;
  case ExprKind::conditional:
    if (!eval(*e.children[1], a) || !truth(a, yes)) return false;
    if (yes) return eval(*e.children[0], out);
    if (e.children[2]) return eval(*e.children[2], out);
    out = Value::undefined("the condition is false and there is no else");
    return true;
  default:
    return fail("this expression is no value");
  }
}

bool Renderer::evalBinary(const Expr &e, Value &out) {
  Value left;
  if (!eval(*e.children[0], left)) return false;
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right, result;
    if (!eval(*e.children[i + 1], right)) return false;
    if (!binary(e.ops[i], left, right, result)) return false;
    left = std::move(result);
  }
  out = std::move(left);
  return true;
}

bool Renderer::evalConcat(const Expr &e, Value &out) {
  std::string text;
  for (const ExprPtr &child : e.children) {
    Value part;
    if (!eval(*child, part) || !toText(part, text)) return false;
  }
  return makeString(std::move(text), out);
}

bool Renderer::evalCompare(const Expr &e, Value &out) {
  Value left;
  if (!eval(*e.children[0], left)) return false;
  bool yes = true;
  for (size_t i = 0; i < e.ops.size() && yes; ++i) {
    Value right;
    if (!eval(*e.children[i + 1], right) || !compare(e.ops[i], left, right, yes)) return false;
    left = std::move(right);
  }
  out = Value::boolean(yes);
  return true;
}

bool Renderer::evalItems(const Expr &e, Value &out) {
  std::vector<Value> items(e.children.size());
  for (size_t i = 0; i < items.size(); ++i)
    if (!eval(*e.children[i], items[i])) return false;
  return makeList(std::move(items), out, e.kind == ExprKind::tuple ? Kind::tuple : Kind::list);
}

bool Renderer::evalDict(const Expr &e, Value &out) {
  auto dict = std::make_shared<DictObject>();
  for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
    Value key, value;
    if (!eval(*e.children[i], key) || !eval(*e.children[i + 1], value) || !needHashable(key)) return false;
    dict->set(key, std::move(value));
  }
  return makeDict(std::move(dict), out);
}

bool Renderer::evalSlice(const Expr &e, Value &out) {
  Value object, bounds[3];
  if (!eval(*e.children[0], object)) return false;
  for (int i = 0; i < 3; ++i) {
    bounds[i] = Value::none();
    if (e.children[i + 1] && !eval(*e.children[i + 1], bounds[i])) return false;
  }
  return getSlice(object, bounds[0], bounds[1], bounds[2], out);
}

bool Renderer::evalArgs(const CallArgs &args, Args &out) {
  for (const ExprPtr &e : args.positional) {
    out.positional.emplace_back();
    if (!eval(*e, out.positional.back())) return false;
  }
  if (args.star) {
    Value rest;
    std::vector<Value> items;
    if (!eval(*args.star, rest) || !collect(rest, items)) return false;
    out.positional.insert(out.positional.end(), items.begin(), items.end());
  }
  for (const auto &[name, e] : args.keyword) {
    out.keyword.emplace_back(name, Value());
    if (!eval(*e, out.keyword.back().second)) return false;
  }
  if (args.starStar) {
    Value rest;
    if (!eval(*args.starStar, rest)) return false;
    if (!rest.is(Kind::dict)) return fail("expected a dict behind '**', found %s", typeName(rest));
    for (const auto &[key, value] : rest.as<DictObject>().items) {
      if (!key.is(Kind::string)) return fail("expected strings as keys behind '**', found %s", typeName(key));
      for (const auto &other : out.keyword)
        if (!tick(0) || other.first == key.text()) return fail("argument '%s' is given twice", key.text().c_str());
      if (!tick(1 + out.keyword.size() / 16)) return false;
      out.keyword.emplace_back(key.text(), value);
    }
  }
  return true;
}

bool Renderer::evalCall(const Expr &e, const Value *caller, Value &out) {
  Value callee;
  Args args;
  if (!eval(*e.children[0], callee) || !evalArgs(e.args, args)) return false;
  if (caller) args.keyword.emplace_back("caller", *caller);
  line = e.line;
  return tick() && call(callee, args, out);
}

bool Renderer::evalFilter(const Expr &e, const Value *body, Value &out) {
  Value in;
  if (e.children.empty())
    in = *body;
  else if (e.children[0]->kind == ExprKind::filter && body ? !evalFilter(*e.children[0], body, in)
                                                           : !eval(*e.children[0], in))
    return false;
  if (!e.known) return fail("unknown filter '%s'", e.name.c_str());
  Args args;
  if (!evalArgs(e.args, args)) return false;
  line = e.line;
  size_t bytes = in.is(Kind::string) ? in.text().size() : 0;
  return tick() && tickBytes(bytes) && applyFilter(e.id, in, args, out);
}

bool Renderer::evalTest(const Expr &e, Value &out) {
  Value in;
  Args args;
  if (!eval(*e.children[0], in)) return false;
  if (!e.known) return fail("unknown test '%s'", e.name.c_str());
  if (!evalArgs(e.args, args)) return false;
  line = e.line;
  bool yes;
  if (!applyTest(e.id, in, args, yes)) return false;
  out = Value::boolean(yes);
  return true;
}

} // namespace lathe::jinja
