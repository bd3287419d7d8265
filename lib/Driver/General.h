//===- General.h - artifacts of general graphs ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Driver/Driver.h"

namespace lathe {

/// What a user is told about an artifact of general code.
extern const char generalWarning[];

/// Compiles `func @main` of onnx ops (the module is consumed) to an artifact whose step is one graph over a contiguous cache. Inputs are known
/// by the names that exporters use: input_ids, attention_mask, position_ids, past_key_values.* with results present.*; the result is logits. For a
/// GPU there are kernels, and code that the host runs between them. |checkTokens| gets the number of tokens that logits have; |warnings| what of |options|
/// does nothing here, and how many positions are assumed when no configuration says it.
/// Errors: unsupported (an operator, or an input that no step can give), those of onnx-to-linalg, of |checkTokens|, of the weights' files, of writing.
Result<PackageReport> packageGeneralGraph(mlir::ModuleOp module, const ModelText &text, const CompileOptions &options, const std::string &path,
                                          llvm::function_ref<Status(int64_t)> checkTokens, std::vector<std::string> &warnings,
                                          const std::function<void(uint64_t, uint64_t)> &progress);

} // namespace lathe
