//===- Parser.h - tokens to a template ----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Ast.h"
#include "lathe/base/Status.h"
#include <string_view>

namespace lathe::jinja {

/// Parses |source| (valid UTF-8) without resolving names.
Status parseProgram(std::string_view source, Program &program);

/// Gives every name its slot and checks what Jinja2 checks when it compiles: filters, tests, break.
Status resolveProgram(Program &program);

/// Index of a filter or test by name, -1 if there is none.
int findFilter(std::string_view name);
int findTest(std::string_view name);

/// Deepest nesting of tags and of brackets in a source, and of nodes in an expression.
constexpr int maxNesting = 100;
constexpr int maxExprDepth = 200;

} // namespace lathe::jinja
