//===- Program.h - a pattern as a list of instructions ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "CodeSet.h"
#include "lathe/base/Status.h"
#include <string_view>

namespace lathe::pattern {

/// Instructions of a nondeterministic automaton. `split` prefers x over y.
enum class Op : uint8_t {
  consume,  ///< a character of set x, then the next instruction
  split,    ///< x, or else y
  jump,     ///< x
  match,    ///< done
  nextIn,   ///< holds when a character of set x follows
  nextNot,  ///< holds when no character of set x follows; true at the end
  ahead,    ///< holds when lookahead x matches here
  notAhead, ///< and when it does not
  lineStart,
  textStart,
  wordEdge,
  notWordEdge,
};
struct Instruction {
  Op op;
  uint32_t x = 0, y = 0;
};

/// |code| of the pattern and of its lookaheads; each starts at its entry.
struct Program {
  std::vector<Instruction> code;
  std::vector<CodeSet> sets;
  std::vector<uint32_t> lookaheads; ///< entries
  bool needsPrevious = false;       ///< any of ^ \A \b \B
};

inline constexpr size_t maxSource = 1 << 16, maxInstructions = 20000, maxDepth = 100, maxLookaheads = 3;

/// Errors: see Pattern::compile.
Result<Program> parse(std::string_view source);

} // namespace lathe::pattern
