//===- Parser.cpp - statements ----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Parser.h"
#include "ParserImpl.h"

namespace lathe::jinja {

using Names = std::initializer_list<const char *>;

bool Parser::fail(int line, const std::string &what) {
  if (error.ok()) error = syntaxError(line, what);
  return false;
}

bool Parser::unsupported(int line, const std::string &what) {
  if (error.ok()) error = makeError(StatusCode::unsupported, "template line %d: %s", line, what.c_str());
  return false;
}

std::string Parser::found() const {
  const Token &t = peek();
  switch (t.kind) {
  case TokenKind::end:
    return "the end of the template";
  case TokenKind::data:
    return "text";
  case TokenKind::variableBegin:
    return "'{{'";
  case TokenKind::variableEnd:
    return "'}}'";
  case TokenKind::blockBegin:
    return "'{%'";
  case TokenKind::blockEnd:
    return "'%}'";
  case TokenKind::string:
    return "a string";
  default:
    return "'" + t.text + "'";
  }
}

bool Parser::expectOp(const char *op) {
  if (!peek().isOp(op)) return fail(peek().line, std::string("expected '") + op + "', found " + found());
  ++at;
  return true;
}

bool Parser::expectName(const char *name) {
  if (!peek().isName(name)) return fail(peek().line, std::string("expected '") + name + "', found " + found());
  ++at;
  return true;
}

bool Parser::expectKind(TokenKind kind, const char *what) {
  if (peek().kind != kind) return fail(peek().line, std::string("expected ") + what + ", found " + found());
  ++at;
  return true;
}

static bool isOneOf(const Token &t, Names names) {
  for (const char *name : names)
    if (t.isName(name)) return true;
  return false;
}

/// Text, outputs and tags up to a tag named in |ends| (or the end of the template when there are
/// none); the end tag's name is the current token afterwards.
bool Parser::parseBody(Block &body, Names ends) {
  while (true) {
    const Token &t = peek();
    switch (t.kind) {
    case TokenKind::data: {
      auto stmt = newStmt(StmtKind::text, t.line);
      stmt->text = t.text;
      body.push_back(std::move(stmt));
      ++at;
      break;
    }
    case TokenKind::variableBegin: {
      auto stmt = newStmt(StmtKind::output, t.line);
      ++at;
      ExprPtr value;
      if (!parseTuple(value) || !expectKind(TokenKind::variableEnd, "'}}'")) return false;
      stmt->exprs.push_back(std::move(value));
      body.push_back(std::move(stmt));
      break;
    }
    case TokenKind::blockBegin: {
      ++at;
      if (isOneOf(peek(), ends)) return true;
      StmtPtr stmt;
      if (!parseStatement(stmt)) return false;
      body.push_back(std::move(stmt));
      if (!expectKind(TokenKind::blockEnd, "'%}'")) return false;
      break;
    }
    default:
      if (ends.size() == 0) return true;
      std::string list;
      for (const char *name : ends)
        list += std::string(list.empty() ? "'" : ", '") + name + "'";
      return fail(t.line, "expected the tag " + list + ", found the end of the template");
    }
  }
}

/// The rest of a tag and its body. Leaves the end tag's name as the current token.
bool Parser::parseBlockUntil(Block &body, Names ends) {
  if (peek().isOp(":")) ++at;
  if (!expectKind(TokenKind::blockEnd, "'%}'")) return false;
  Nest nest(*this);
  return nest.ok && parseBody(body, ends);
}

bool Parser::parseStatement(StmtPtr &out) {
  const Token &t = peek();
  if (t.kind != TokenKind::name) return fail(t.line, "expected the name of a tag, found " + found());
  const std::string &name = t.text;
  if (name == "if") return parseIf(out);
  if (name == "for") return parseFor(out);
  if (name == "set") return parseSet(out);
  if (name == "macro") return parseMacro(out);
  if (name == "call") return parseCall(out);
  if (name == "filter") return parseFilterBlock(out);
  if (name == "with") return parseWith(out);
  if (name == "print") return parsePrint(out);
  if (name == "generation") {
    out = newStmt(StmtKind::generation, t.line);
    ++at;
    out->function = std::make_unique<Function>();
    if (!parseBlockUntil(out->function->body, {"endgeneration"})) return false;
    ++at;
    return true;
  }
  if (name == "break" || name == "continue") {
    out = newStmt(name == "break" ? StmtKind::breakLoop : StmtKind::continueLoop, t.line);
    ++at;
    return true;
  }
  for (const char *other : {"extends", "block", "include", "import", "from", "autoescape"})
    if (name == other) return unsupported(t.line, "tag '" + name + "'; a chat template stands alone");
  return fail(t.line, "unknown tag '" + name + "'");
}

bool Parser::parseIf(StmtPtr &out) {
  out = newStmt(StmtKind::ifElse, peek().line);
  while (true) {
    ++at; // if or elif
    ExprPtr test;
    if (!parseTuple(test, false)) return false;
    out->exprs.push_back(std::move(test));
    out->blocks.emplace_back();
    if (!parseBlockUntil(out->blocks.back(), {"elif", "else", "endif"})) return false;
    if (peek().isName("elif")) continue;
    bool isElse = peek().isName("else");
    ++at;
    if (!isElse) return true;
    out->blocks.emplace_back();
    if (!parseBlockUntil(out->blocks.back(), {"endif"})) return false;
    ++at;
    return true;
  }
}

bool Parser::parseFor(StmtPtr &out) {
  out = newStmt(StmtKind::forLoop, peek().line);
  size_t targetAt = ++at;
  ExprPtr target, iterable, test;
  if (!parseTarget(target, true, false, "in")) return false;
  // The filter of a loop has its own scope, so it needs its own copy of the target.
  size_t behind = at;
  at = targetAt;
  if (!parseTarget(out->testTarget, true, false, "in")) return false;
  at = behind;
  if (!expectName("in") || !parseTuple(iterable, false, "recursive")) return false;
  out->targets.push_back(std::move(target));
  out->exprs.push_back(std::move(iterable));
  if (peek().isName("if")) {
    ++at;
    if (!parseExpression(test)) return false;
    out->exprs.push_back(std::move(test));
  }
  if (peek().isName("recursive")) {
    ++at;
    out->recursive = true;
    out->function = std::make_unique<Function>();
  }
  out->blocks.resize(2);
  if (!parseBlockUntil(out->blocks[0], {"endfor", "else"})) return false;
  bool isElse = peek().isName("else");
  ++at;
  if (!isElse) return true;
  if (!parseBlockUntil(out->blocks[1], {"endfor"})) return false;
  ++at;
  return true;
}

bool Parser::parseSet(StmtPtr &out) {
  int line = peek().line;
  ++at;
  ExprPtr target, value;
  if (!parseTarget(target, true, true)) return false;
  if (peek().isOp("=")) {
    ++at;
    out = newStmt(StmtKind::set, line);
    if (!parseTuple(value)) return false;
    out->targets.push_back(std::move(target));
    out->exprs.push_back(std::move(value));
    return true;
  }
  out = newStmt(StmtKind::setBlock, line);
  out->targets.push_back(std::move(target));
  if (!parseFilters(value, false)) return false;
  if (value) out->exprs.push_back(std::move(value));
  out->blocks.emplace_back();
  if (!parseBlockUntil(out->blocks[0], {"endset"})) return false;
  ++at;
  return true;
}

bool Parser::parseSignature(Function &function) {
  if (!expectOp("(")) return false;
  while (!peek().isOp(")")) {
    if (!function.parameters.empty() && !expectOp(",")) return false;
    ExprPtr parameter, value;
    if (!parseTarget(parameter, false, false)) return false;
    for (const std::string &other : function.parameters)
      if (other == parameter->name) return fail(parameter->line, "parameter '" + other + "' occurs twice");
    function.parameters.push_back(parameter->name);
    if (peek().isOp("=")) {
      ++at;
      if (!parseExpression(value)) return false;
      function.defaults.push_back(std::move(value));
    } else if (!function.defaults.empty()) {
      return fail(parameter->line, "parameter '" + parameter->name + "' without a default follows one with a default");
    }
  }
  ++at;
  return true;
}

bool Parser::parseMacro(StmtPtr &out) {
  out = newStmt(StmtKind::macro, peek().line);
  ++at;
  ExprPtr name;
  if (!parseTarget(name, false, false)) return false;
  out->function = std::make_unique<Function>();
  out->function->name = out->text = name->name;
  if (!parseSignature(*out->function) || !parseBlockUntil(out->function->body, {"endmacro"})) return false;
  ++at;
  return true;
}

bool Parser::parseCall(StmtPtr &out) {
  out = newStmt(StmtKind::call, peek().line);
  ++at;
  out->function = std::make_unique<Function>();
  out->function->name = "caller";
  if (peek().isOp("(") && !parseSignature(*out->function)) return false;
  ExprPtr call;
  if (!parseExpression(call)) return false;
  if (call->kind != ExprKind::call) return fail(out->line, "expected a call in the tag 'call'");
  out->exprs.push_back(std::move(call));
  if (!parseBlockUntil(out->function->body, {"endcall"})) return false;
  ++at;
  return true;
}

bool Parser::parseFilterBlock(StmtPtr &out) {
  out = newStmt(StmtKind::filterBlock, peek().line);
  ++at;
  ExprPtr filter;
  if (!parseFilters(filter, true)) return false;
  out->exprs.push_back(std::move(filter));
  out->blocks.emplace_back();
  if (!parseBlockUntil(out->blocks[0], {"endfilter"})) return false;
  ++at;
  return true;
}

bool Parser::parseWith(StmtPtr &out) {
  out = newStmt(StmtKind::with, peek().line);
  ++at;
  while (peek().kind != TokenKind::blockEnd) {
    ExprPtr target, value;
    if (!out->targets.empty() && !expectOp(",")) return false;
    if (!parseTarget(target, true, false) || !expectOp("=") || !parseExpression(value)) return false;
    out->targets.push_back(std::move(target));
    out->exprs.push_back(std::move(value));
  }
  out->blocks.emplace_back();
  if (!parseBlockUntil(out->blocks[0], {"endwith"})) return false;
  ++at;
  return true;
}

bool Parser::parsePrint(StmtPtr &out) {
  out = newStmt(StmtKind::output, peek().line);
  ++at;
  while (peek().kind != TokenKind::blockEnd) {
    ExprPtr value;
    if (!out->exprs.empty() && !expectOp(",")) return false;
    if (!parseExpression(value)) return false;
    out->exprs.push_back(std::move(value));
  }
  return true;
}

Status parseProgram(std::string_view source, Program &program) {
  auto tokens = tokenize(source);
  if (!tokens.ok()) return tokens.status();
  Parser parser(*std::move(tokens));
  if (!parser.parseBody(program.main.body, {})) return parser.error;
  return Status();
}

} // namespace lathe::jinja
