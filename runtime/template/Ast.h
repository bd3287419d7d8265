//===- Ast.h - a parsed template ----------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Made by the parser, completed by the resolver (which gives every name its slot), then immutable.
//
// Variables follow Jinja2's scoping, which is decided before anything runs: a function (the template
// itself, a macro, a call block, a recursive loop) has one array of slots for all scopes in it; a
// scope fills its slots when it is entered and empties them when it is left.
//===----------------------------------------------------------------------===//
#pragma once
#include "Value.h"
#include <memory>
#include <string>
#include <vector>

namespace lathe::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// A variable: |hops| functions outwards, |slot| in there.
struct Slot {
  int hops = 0;
  int slot = -1;
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star, starStar;
};

enum class ExprKind : uint8_t {
  constant,
  name,      ///< name, slot
  attribute, ///< children[0].name
  item,      ///< children[0][children[1]]
  slice,     ///< children[0][children[1]:children[2]:children[3]], each may be null
  call,      ///< children[0](args)
  filter,    ///< children[0] | name(args); no child: the body of a filter block
  test,      ///< children[0] is name(args)
  binary,    ///< children[0] op[0] children[1] op[1] children[2] ..., from the left
  concat,    ///< children joined by ~
  compare,   ///< children[0] op[0] children[1] op[1] ..., as Python chains them
  logicAnd,  ///< children, from the left
  logicOr,
  logicNot,
  negate,
  plus,
  conditional, ///< children[0] if children[1] else children[2], which may be null
  list,
  tuple,
  dict,      ///< key, value, key, value, ...
  spaceAttr, ///< assignment target name.attr: slot of the namespace, name = attribute, text = variable
};

enum class Op : uint8_t { add, sub, mul, div, floorDiv, mod, pow, eq, ne, lt, le, gt, ge, in, notIn };

struct Expr {
  ExprKind kind;
  bool known = true; ///< filter or test: exists
  int line = 0;
  int depth = 1;
  Value constant;
  std::string name, text;
  Slot slot;
  int id = -1; ///< filter or test: index in its table
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  CallArgs args;
};

/// How a scope fills one of its slots.
struct Load {
  enum Action : uint8_t { resolve, alias, clear } action;
  int slot;
  std::string name; ///< resolve: in the context
  Slot from;        ///< alias
};
struct Scope {
  std::vector<Load> loads;
  std::vector<int> slots; ///< emptied when the scope is left
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

struct Function {
  int slots = 0;
  std::string name;
  std::vector<std::string> parameters;
  std::vector<int> parameterSlots;
  std::vector<ExprPtr> defaults;                          ///< of the last parameters
  int callerSlot = -1, kwargsSlot = -1, varargsSlot = -1; ///< -1: not used in the body
  bool explicitCaller = false;
  Scope scope;
  Block body;
};

enum class StmtKind : uint8_t {
  text,
  output, ///< exprs
  ifElse, ///< exprs[i] -> blocks[i]; one more block is the else
  forLoop,
  set,         ///< target = exprs[0]
  setBlock,    ///< target = blocks[0], filtered by exprs[0] if any
  macro,       ///< function, slot
  call,        ///< exprs[0] is the call, function the block
  generation,  ///< function
  filterBlock, ///< exprs[0] applied to blocks[0]
  with,        ///< targets = exprs, blocks[0]
  breakLoop,
  continueLoop,
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  std::string text;
  std::vector<ExprPtr> exprs;
  std::vector<Block> blocks;
  std::vector<ExprPtr> targets;
  Scope scope;
  std::unique_ptr<Function> function; ///< macro, call, generation; recursive loop
  Slot slot;
  // forLoop: targets[0] in exprs[0] if exprs[1]; blocks[0], blocks[1] is the else
  bool recursive = false;
  int loopSlot = -1; ///< of `loop`, -1 when the body does not look at it
  Scope elseScope, testScope;
  ExprPtr testTarget; ///< the target again, in the scope of the test
};

struct Program {
  Function main;
};

} // namespace lathe::jinja
