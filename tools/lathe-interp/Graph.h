//===- Graph.h - graphs of onnx ops on token sequences -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Interpreter/Interpreter.h"
#include "mlir/IR/BuiltinOps.h"

/// Runs `func @main` of |module| for each sequence with a cache of its own, |chunk| tokens a step (0: all): a row of the result 'logits' for every
/// token, or for the last alone. Inputs are known by name: those with 'input_ids', 'position' or 'mask' in it, and pasts, which a result
/// 'present...' of the same end becomes. Reports what does not fit.
mlir::FailureOr<std::vector<lathe::llm::RowValues>> runGraph(mlir::ModuleOp module, const std::vector<std::vector<int64_t>> &sequences, int64_t chunk, bool last);
