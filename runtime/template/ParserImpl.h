//===- ParserImpl.h - the parser's insides ------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Lexer.h"
#include "Parser.h"
#include <initializer_list>

namespace lathe::jinja {

/// Recursive descent. Every parse function returns false once an error is recorded.
class Parser {
public:
  explicit Parser(std::vector<Token> t) : tokens(std::move(t)) {}
  bool parseBody(Block &body, std::initializer_list<const char *> ends);
  Status error;

private:
  /// Counts the nesting for as long as it lives.
  struct Nest {
    explicit Nest(Parser &p) : parser(p), ok(++p.nesting <= maxNesting) {
      if (!ok && p.error.ok())
        p.error = makeError(StatusCode::resourceExhausted, "template line %d: nested more than %d deep", p.peek().line,
                            maxNesting);
    }
    ~Nest() { --parser.nesting; }
    Parser &parser;
    bool ok;
  };

  const Token &peek(size_t ahead = 0) const { return tokens[std::min(at + ahead, tokens.size() - 1)]; }
  bool fail(int line, const std::string &what);
  bool unsupported(int line, const std::string &what);
  std::string found() const;
  bool expectOp(const char *op);
  bool expectName(const char *name);
  bool expectKind(TokenKind kind, const char *what);

  // Statements: Parser.cpp
  bool parseBlockUntil(Block &body, std::initializer_list<const char *> ends);
  bool parseStatement(StmtPtr &out);
  bool parseIf(StmtPtr &out);
  bool parseFor(StmtPtr &out);
  bool parseSet(StmtPtr &out);
  bool parseSignature(Function &function);
  bool parseMacro(StmtPtr &out);
  bool parseCall(StmtPtr &out);
  bool parseFilterBlock(StmtPtr &out);
  bool parseWith(StmtPtr &out);
  bool parsePrint(StmtPtr &out);

  // Expressions: ParseExpr.cpp
  bool parseTarget(ExprPtr &out, bool withTuple, bool withSpace, const char *end = nullptr);
  /// |end|: a name that ends the tuple too. |simplified|: elements are targets.
  bool parseTuple(ExprPtr &out, bool withConditional = true, const char *end = nullptr, bool inBrackets = false,
                  bool simplified = false, bool withSpace = false);
  bool parseExpression(ExprPtr &out, bool withConditional = true);
  bool parseConditional(ExprPtr &out);
  bool parseOr(ExprPtr &out);
  bool parseAnd(ExprPtr &out);
  bool parseNot(ExprPtr &out);
  bool parseCompare(ExprPtr &out);
  bool parseSum(ExprPtr &out);
  bool parseConcat(ExprPtr &out);
  bool parseProduct(ExprPtr &out);
  bool parsePower(ExprPtr &out);
  bool parseUnary(ExprPtr &out, bool withFilter = true);
  bool parsePrimary(ExprPtr &out, bool withSpace = false);
  bool parsePostfix(ExprPtr &out);
  bool parseFilterChain(ExprPtr &out);
  /// "| a | b(1)" around |out|, which may be null; |inlineStart|: the first has no bar.
  bool parseFilters(ExprPtr &out, bool inlineStart);
  bool parseTest(ExprPtr &out);
  bool parseSubscript(ExprPtr &out);
  bool parseSubscribed(ExprPtr &base, ExprPtr &out, bool &isSlice);
  bool parseCallArgs(CallArgs &args, int line);
  bool parseList(ExprPtr &out);
  bool parseDict(ExprPtr &out);
  using Level = bool (Parser::*)(ExprPtr &);
  bool parseChain(ExprPtr &out, Level operand, ExprKind kind, std::initializer_list<std::pair<const char *, Op>> ops);

  StmtPtr newStmt(StmtKind kind, int line);
  ExprPtr newExpr(ExprKind kind, int line);
  /// Sets the depth of |e| from its parts; false when it is too deep.
  bool finish(Expr &e);

  std::vector<Token> tokens;
  size_t at = 0;
  int nesting = 0;
};

} // namespace lathe::jinja
