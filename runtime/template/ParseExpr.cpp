//===- ParseExpr.cpp - expressions ------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// From loose to tight: a if b else c; or; and; not; comparisons; + -; ~; * / // %; **; signs, then
// subscripts and calls; filters and tests.
//===----------------------------------------------------------------------===//
#include "ParserImpl.h"
#include <algorithm>

namespace lathe::jinja {

StmtPtr Parser::newStmt(StmtKind kind, int line) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

ExprPtr Parser::newExpr(ExprKind kind, int line) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  return e;
}

bool Parser::finish(Expr &e) {
  int depth = 0;
  auto see = [&](const ExprPtr &part) {
    if (part) depth = std::max(depth, part->depth);
  };
  for (const ExprPtr &child : e.children)
    see(child);
  for (const ExprPtr &arg : e.args.positional)
    see(arg);
  for (const auto &arg : e.args.keyword)
    see(arg.second);
  see(e.args.star);
  see(e.args.starStar);
  e.depth = depth + 1;
  if (e.depth <= maxExprDepth) return true;
  if (error.ok())
    error = makeError(StatusCode::resourceExhausted, "template line %d: expression nested more than %d deep", e.line,
                      maxExprDepth);
  return false;
}

bool Parser::parseTarget(ExprPtr &out, bool withTuple, bool withSpace, const char *end) {
  if (!withTuple) {
    int line = peek().line;
    if (!expectKind(TokenKind::name, "a name")) return false;
    out = newExpr(ExprKind::name, line);
    out->name = tokens[at - 1].text;
  } else if (!parseTuple(out, true, end, false, true, withSpace)) {
    return false;
  }
  auto assignable = [&](auto &self, const Expr &e) -> bool {
    if (e.kind == ExprKind::spaceAttr) return true;
    if (e.kind == ExprKind::tuple)
      return std::all_of(e.children.begin(), e.children.end(), [&](const ExprPtr &c) { return self(self, *c); });
    if (e.kind != ExprKind::name) return false;
    for (const char *constant : {"true", "false", "none", "True", "False", "None"})
      if (e.name == constant) return false;
    return true;
  };
  return assignable(assignable, *out) || fail(out->line, "cannot assign to this expression");
}

bool Parser::parseTuple(ExprPtr &out, bool withConditional, const char *end, bool inBrackets, bool simplified,
                        bool withSpace) {
  int line = peek().line;
  std::vector<ExprPtr> parts;
  bool isTuple = false;
  while (true) {
    if (!parts.empty() && !expectOp(",")) return false;
    const Token &t = peek();
    if (t.kind == TokenKind::variableEnd || t.kind == TokenKind::blockEnd || t.isOp(")") || (end && t.isName(end)))
      break;
    ExprPtr part;
    if (!(simplified ? parsePrimary(part, withSpace) : parseExpression(part, withConditional))) return false;
    parts.push_back(std::move(part));
    if (!peek().isOp(",")) break;
    isTuple = true;
  }
  if (!isTuple) {
    if (!parts.empty()) {
      out = std::move(parts[0]);
      return true;
    }
    if (!inBrackets) return fail(line, "expected an expression, found " + found());
  }
  out = newExpr(ExprKind::tuple, line);
  out->children = std::move(parts);
  return finish(*out);
}

bool Parser::parseExpression(ExprPtr &out, bool withConditional) {
  Nest nest(*this);
  if (!nest.ok) return false;
  return withConditional ? parseConditional(out) : parseOr(out);
}

bool Parser::parseConditional(ExprPtr &out) {
  if (!parseOr(out)) return false;
  while (peek().isName("if")) {
    ExprPtr e = newExpr(ExprKind::conditional, peek().line);
    ++at;
    ExprPtr test, other;
    if (!parseOr(test)) return false;
    if (peek().isName("else")) {
      ++at;
      Nest nest(*this);
      if (!nest.ok || !parseConditional(other)) return false;
    }
    e->children.push_back(std::move(out));
    e->children.push_back(std::move(test));
    e->children.push_back(std::move(other));
    if (!finish(*e)) return false;
    out = std::move(e);
  }
  return true;
}

bool Parser::parseOr(ExprPtr &out) {
  if (!parseAnd(out) || !peek().isName("or")) return error.ok();
  ExprPtr e = newExpr(ExprKind::logicOr, peek().line);
  e->children.push_back(std::move(out));
  while (peek().isName("or")) {
    ++at;
    ExprPtr right;
    if (!parseAnd(right)) return false;
    e->children.push_back(std::move(right));
  }
  out = std::move(e);
  return finish(*out);
}

bool Parser::parseAnd(ExprPtr &out) {
  if (!parseNot(out) || !peek().isName("and")) return error.ok();
  ExprPtr e = newExpr(ExprKind::logicAnd, peek().line);
  e->children.push_back(std::move(out));
  while (peek().isName("and")) {
    ++at;
    ExprPtr right;
    if (!parseNot(right)) return false;
    e->children.push_back(std::move(right));
  }
  out = std::move(e);
  return finish(*out);
}

bool Parser::parseNot(ExprPtr &out) {
  if (!peek().isName("not")) return parseCompare(out);
  Nest nest(*this);
  if (!nest.ok) return false;
  out = newExpr(ExprKind::logicNot, peek().line);
  ++at;
  ExprPtr operand;
  if (!parseNot(operand)) return false;
  out->children.push_back(std::move(operand));
  return finish(*out);
}

bool Parser::parseCompare(ExprPtr &out) {
  if (!parseSum(out)) return false;
  ExprPtr chain;
  while (true) {
    const Token &t = peek();
    Op op;
    size_t width = 1;
    if (t.isOp("=="))
      op = Op::eq;
    else if (t.isOp("!="))
      op = Op::ne;
    else if (t.isOp("<"))
      op = Op::lt;
    else if (t.isOp("<="))
      op = Op::le;
    else if (t.isOp(">"))
      op = Op::gt;
    else if (t.isOp(">="))
      op = Op::ge;
    else if (t.isName("in"))
      op = Op::in;
    else if (t.isName("not") && peek(1).isName("in"))
      op = Op::notIn, width = 2;
    else
      break;
    if (!chain) {
      chain = newExpr(ExprKind::compare, t.line);
      chain->children.push_back(std::move(out));
    }
    at += width;
    ExprPtr right;
    if (!parseSum(right)) return false;
    chain->ops.push_back(op);
    chain->children.push_back(std::move(right));
  }
  if (!chain) return true;
  out = std::move(chain);
  return finish(*out);
}

/// Operators of one level: a op b op c, one node for all.
bool Parser::parseChain(ExprPtr &out, Level operand, ExprKind kind,
                        std::initializer_list<std::pair<const char *, Op>> ops) {
  if (!(this->*operand)(out)) return false;
  ExprPtr chain;
  while (true) {
    const Token &t = peek();
    auto op = std::find_if(ops.begin(), ops.end(), [&](const auto &o) { return t.isOp(o.first); });
    if (op == ops.end()) break;
    if (!chain) {
      chain = newExpr(kind, t.line);
      chain->children.push_back(std::move(out));
    }
    ++at;
    ExprPtr right;
    if (!(this->*operand)(right)) return false;
    chain->ops.push_back(op->second);
    chain->children.push_back(std::move(right));
  }
  if (!chain) return true;
  out = std::move(chain);
  return finish(*out);
}

bool Parser::parseSum(ExprPtr &out) {
  return parseChain(out, &Parser::parseConcat, ExprKind::binary, {{"+", Op::add}, {"-", Op::sub}});
}
bool Parser::parseConcat(ExprPtr &out) {
  return parseChain(out, &Parser::parseProduct, ExprKind::concat, {{"~", Op::add}});
}
bool Parser::parseProduct(ExprPtr &out) {
  return parseChain(out, &Parser::parsePower, ExprKind::binary,
                    {{"*", Op::mul}, {"/", Op::div}, {"//", Op::floorDiv}, {"%", Op::mod}});
}
bool Parser::parsePower(ExprPtr &out) {
  if (!parseUnary(out)) return false;
  ExprPtr chain;
  while (peek().isOp("**")) {
    if (!chain) {
      chain = newExpr(ExprKind::binary, peek().line);
      chain->children.push_back(std::move(out));
    }
    ++at;
    ExprPtr right;
    if (!parseUnary(right)) return false;
    chain->ops.push_back(Op::pow);
    chain->children.push_back(std::move(right));
  }
  if (!chain) return true;
  out = std::move(chain);
  return finish(*out);
}

bool Parser::parseUnary(ExprPtr &out, bool withFilter) {
  const Token &t = peek();
  if (t.isOp("-") || t.isOp("+")) {
    Nest nest(*this);
    if (!nest.ok) return false;
    out = newExpr(t.isOp("-") ? ExprKind::negate : ExprKind::plus, t.line);
    ++at;
    ExprPtr operand;
    if (!parseUnary(operand, false)) return false;
    out->children.push_back(std::move(operand));
    if (!finish(*out)) return false;
  } else if (!parsePrimary(out)) {
    return false;
  }
  return parsePostfix(out) && (!withFilter || parseFilterChain(out));
}

bool Parser::parsePrimary(ExprPtr &out, bool withSpace) {
  const Token &t = peek();
  auto constant = [&](Value v) {
    out = newExpr(ExprKind::constant, t.line);
    out->constant = std::move(v);
    return true;
  };
  switch (t.kind) {
  case TokenKind::name:
    ++at;
    if (t.text == "true" || t.text == "True") return constant(Value::boolean(true));
    if (t.text == "false" || t.text == "False") return constant(Value::boolean(false));
    if (t.text == "none" || t.text == "None") return constant(Value::none());
    out = newExpr(ExprKind::name, t.line);
    out->name = t.text;
    if (withSpace && peek().isOp(".")) {
      ++at;
      out->kind = ExprKind::spaceAttr;
      out->text = t.text;
      if (!expectKind(TokenKind::name, "a name")) return false;
      out->name = tokens[at - 1].text;
    }
    return true;
  case TokenKind::string: {
    std::string text;
    while (peek().kind == TokenKind::string)
      text += tokens[at++].text;
    return constant(Value::string(std::move(text)));
  }
  case TokenKind::integer:
    ++at;
    return constant(Value::integer(t.integer));
  case TokenKind::real:
    ++at;
    return constant(Value::real(t.real));
  case TokenKind::op:
    if (t.text == "(") {
      ++at;
      Nest nest(*this);
      return nest.ok && parseTuple(out, true, nullptr, true) && expectOp(")");
    }
    if (t.text == "[") return parseList(out);
    if (t.text == "{") return parseDict(out);
    [[fallthrough]];
  default:
    return fail(t.line, "expected an expression, found " + found());
  }
}

bool Parser::parseList(ExprPtr &out) {
  out = newExpr(ExprKind::list, peek().line);
  ++at;
  while (!peek().isOp("]")) {
    if (!out->children.empty() && !expectOp(",")) return false;
    if (peek().isOp("]")) break;
    ExprPtr item;
    if (!parseExpression(item)) return false;
    out->children.push_back(std::move(item));
  }
  ++at;
  return finish(*out);
}

bool Parser::parseDict(ExprPtr &out) {
  out = newExpr(ExprKind::dict, peek().line);
  ++at;
  while (!peek().isOp("}")) {
    if (!out->children.empty() && !expectOp(",")) return false;
    if (peek().isOp("}")) break;
    ExprPtr key, value;
    if (!parseExpression(key) || !expectOp(":") || !parseExpression(value)) return false;
    out->children.push_back(std::move(key));
    out->children.push_back(std::move(value));
  }
  ++at;
  return finish(*out);
}

bool Parser::parsePostfix(ExprPtr &out) {
  while (true) {
    const Token &t = peek();
    if (t.isOp(".") || t.isOp("[")) {
      if (!parseSubscript(out)) return false;
    } else if (t.isOp("(")) {
      ExprPtr e = newExpr(ExprKind::call, t.line);
      if (!parseCallArgs(e->args, t.line)) return false;
      e->children.push_back(std::move(out));
      out = std::move(e);
      if (!finish(*out)) return false;
    } else {
      return true;
    }
  }
}

bool Parser::parseFilterChain(ExprPtr &out) {
  while (true) {
    const Token &t = peek();
    if (t.isOp("|")) {
      if (!parseFilters(out, false)) return false;
    } else if (t.isName("is")) {
      if (!parseTest(out)) return false;
    } else if (t.isOp("(")) {
      ExprPtr e = newExpr(ExprKind::call, t.line);
      if (!parseCallArgs(e->args, t.line)) return false;
      e->children.push_back(std::move(out));
      out = std::move(e);
      if (!finish(*out)) return false;
    } else {
      return true;
    }
  }
}

bool Parser::parseFilters(ExprPtr &out, bool inlineStart) {
  while (peek().isOp("|") || inlineStart) {
    if (!inlineStart) ++at;
    inlineStart = false;
    ExprPtr e = newExpr(ExprKind::filter, peek().line);
    if (!expectKind(TokenKind::name, "the name of a filter")) return false;
    e->name = tokens[at - 1].text;
    while (peek().isOp(".")) {
      ++at;
      if (!expectKind(TokenKind::name, "the name of a filter")) return false;
      e->name += "." + tokens[at - 1].text;
    }
    if (peek().isOp("(") && !parseCallArgs(e->args, e->line)) return false;
    if (out) e->children.push_back(std::move(out));
    out = std::move(e);
    if (!finish(*out)) return false;
  }
  return true;
}

bool Parser::parseTest(ExprPtr &out) {
  ExprPtr e = newExpr(ExprKind::test, peek().line);
  ++at;
  bool negated = peek().isName("not");
  if (negated) ++at;
  if (!expectKind(TokenKind::name, "the name of a test")) return false;
  e->name = tokens[at - 1].text;
  while (peek().isOp(".")) {
    ++at;
    if (!expectKind(TokenKind::name, "the name of a test")) return false;
    e->name += "." + tokens[at - 1].text;
  }
  const Token &t = peek();
  bool begins = t.kind == TokenKind::name || t.kind == TokenKind::string || t.kind == TokenKind::integer ||
                t.kind == TokenKind::real || t.isOp("(") || t.isOp("[") || t.isOp("{");
  if (t.isOp("(")) {
    if (!parseCallArgs(e->args, t.line)) return false;
  } else if (begins && !t.isName("else") && !t.isName("or") && !t.isName("and")) {
    if (t.isName("is")) return fail(t.line, "tests cannot be chained with 'is'");
    ExprPtr arg;
    Nest nest(*this);
    if (!nest.ok || !parsePrimary(arg) || !parsePostfix(arg)) return false;
    e->args.positional.push_back(std::move(arg));
  }
  e->children.push_back(std::move(out));
  out = std::move(e);
  if (!finish(*out)) return false;
  if (!negated) return true;
  ExprPtr no = newExpr(ExprKind::logicNot, out->line);
  no->children.push_back(std::move(out));
  out = std::move(no);
  return finish(*out);
}

bool Parser::parseSubscript(ExprPtr &out) {
  int line = peek().line;
  if (peek().isOp(".")) {
    ++at;
    const Token &t = peek();
    ++at;
    if (t.kind == TokenKind::name) {
      ExprPtr e = newExpr(ExprKind::attribute, line);
      e->name = t.text;
      e->children.push_back(std::move(out));
      out = std::move(e);
      return finish(*out);
    }
    --at;
    if (t.kind != TokenKind::integer) return fail(line, "expected a name or a number behind '.', found " + found());
    ++at;
    ExprPtr e = newExpr(ExprKind::item, line), index = newExpr(ExprKind::constant, line);
    index->constant = Value::integer(t.integer);
    e->children.push_back(std::move(out));
    e->children.push_back(std::move(index));
    out = std::move(e);
    return finish(*out);
  }
  ++at;
  std::vector<ExprPtr> parts;
  bool isSlice = false;
  while (!peek().isOp("]") || parts.empty()) {
    if (!parts.empty() && !expectOp(",")) return false;
    ExprPtr part;
    if (!parseSubscribed(out, part, isSlice)) return false;
    if (isSlice) {
      if (!parts.empty() || peek().isOp(",")) return unsupported(line, "slice within a tuple index");
      if (!expectOp("]")) return false;
      out = std::move(part);
      return finish(*out);
    }
    parts.push_back(std::move(part));
  }
  ++at;
  ExprPtr e = newExpr(ExprKind::item, line), index;
  if (parts.size() == 1) {
    index = std::move(parts[0]);
  } else {
    index = newExpr(ExprKind::tuple, line);
    index->children = std::move(parts);
    if (!finish(*index)) return false;
  }
  e->children.push_back(std::move(out));
  e->children.push_back(std::move(index));
  out = std::move(e);
  return finish(*out);
}

/// An index, or a slice of |base|.
bool Parser::parseSubscribed(ExprPtr &base, ExprPtr &out, bool &isSlice) {
  int line = peek().line;
  ExprPtr bounds[3];
  if (!peek().isOp(":")) {
    if (!parseExpression(bounds[0])) return false;
    if (!peek().isOp(":")) {
      out = std::move(bounds[0]);
      return true;
    }
  }
  isSlice = true;
  for (int i = 1; i < 3 && peek().isOp(":"); ++i) {
    ++at;
    if (!peek().isOp(":") && !peek().isOp("]") && !peek().isOp(",") && !parseExpression(bounds[i])) return false;
  }
  out = newExpr(ExprKind::slice, line);
  out->children.push_back(std::move(base));
  for (ExprPtr &bound : bounds)
    out->children.push_back(std::move(bound));
  return true;
}

bool Parser::parseCallArgs(CallArgs &args, int line) {
  if (!expectOp("(")) return false;
  Nest nest(*this);
  if (!nest.ok) return false;
  const char *order = "arguments are out of order: positional, then *list, named, **dict";
  bool first = true;
  while (!peek().isOp(")")) {
    if (!first && !expectOp(",")) return false;
    first = false;
    if (peek().isOp(")")) break;
    ExprPtr value;
    if (peek().isOp("*")) {
      if (args.star || args.starStar) return fail(line, order);
      ++at;
      if (!parseExpression(args.star)) return false;
    } else if (peek().isOp("**")) {
      if (args.starStar) return fail(line, order);
      ++at;
      if (!parseExpression(args.starStar)) return false;
    } else if (peek().kind == TokenKind::name && peek(1).isOp("=")) {
      if (args.starStar) return fail(line, order);
      std::string key = peek().text;
      for (const auto &other : args.keyword)
        if (other.first == key) return fail(line, "argument '" + key + "' is given twice");
      at += 2;
      if (!parseExpression(value)) return false;
      args.keyword.emplace_back(std::move(key), std::move(value));
    } else {
      if (args.star || args.starStar || !args.keyword.empty()) return fail(line, order);
      if (!parseExpression(value)) return false;
      args.positional.push_back(std::move(value));
    }
  }
  ++at;
  return true;
}

} // namespace lathe::jinja
