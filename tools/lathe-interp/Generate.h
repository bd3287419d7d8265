//===- Generate.h - tokens from the interpreter, drafted or not ----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Interpreter/Interpreter.h"
#include "mlir/IR/BuiltinOps.h"

struct GenerateOptions {
  int64_t tokens = 0;  ///< new ones of each sequence
  int64_t drafts = 0;  ///< at most so many places behind the last token are guessed by `@draft` and verified in one step; 0: none
  int64_t choices = 1; ///< of the first place so many guesses, the likeliest first: more than one make a tree
};

struct Generated {
  std::vector<int64_t> tokens;
  int64_t rounds = 0, drafts = 0, right = 0; ///< steps with drafts; drafts that were verified; those of them that the step said too
};

/// Goes on with each sequence, of one token at least, by the largest value of `@step`, in steps of its own: what speculation means, in plain loops (docs/speculation.md, "Data flow"). A round
/// asks `@draft` of |module|, which llm-speculate added, runs the step over the last token and the drafts as rows with parents, and takes drafts as long as they are
/// what the step says. So the tokens are those without drafts, whatever `@draft` says. Reports what is missing, as a diagnostic or on stderr.
mlir::FailureOr<std::vector<Generated>> generate(mlir::ModuleOp module, const lathe::llm::InterpreterOptions &options, const std::vector<std::vector<int64_t>> &sequences,
                                                 const GenerateOptions &how);
