//===- Bisect.h - the first op whose values differ ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Interpreter/Interpreter.h"
#include <optional>

namespace lathe::llm {

struct BisectOptions {
  InterpreterOptions interpreter;
  double tolerance = 1e-4; ///< largest relative root mean square difference of a value that counts as equal
  int64_t chunk = 0;       ///< tokens of a sequence a step; 0: all at once
};

/// A value that both modules compute, differently.
struct Difference {
  std::string name; ///< of its location: "layers.3.q"
  std::string op;   ///< in the second module: "llm.linear"
  mlir::Location first, second;
  double error;     ///< relative root mean square difference
  int64_t row;      ///< the worst row of the batch
  int64_t column;   ///< the worst column of that row
  double expected, found;
};

struct BisectReport {
  int64_t compared = 0, unmatched = 0; ///< values of the second module with and without a counterpart
  double worst = 0;                    ///< largest error of all compared values up to the difference
  std::optional<Difference> difference;
};

/// Runs |sequences| through both modules, and names the first value of the second that differs. Values are matched
/// by name of location, op and order of occurrence: passes keep the NameLoc of a value, inside llm.fused too, and
/// the llm.columns that replaces a merged linear counts as that linear. Keeps all values of the first module for one
/// step in memory. Fails (with diagnostics) when a module cannot be run.
mlir::FailureOr<BisectReport> bisect(mlir::ModuleOp first, mlir::ModuleOp second, const std::vector<std::vector<int64_t>> &sequences,
                                     const BisectOptions &options = {});

} // namespace lathe::llm
