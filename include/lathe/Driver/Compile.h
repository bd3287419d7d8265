//===- Compile.h - `lathe compile` as a function --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Driver/Driver.h"
#include "llvm/ADT/StringRef.h"

namespace lathe {

struct CompileRequest {
  std::string model;     ///< .gguf, .onnx, directory of either HuggingFace or ONNX files, .mlir
  std::string output;    ///< empty: beside the working directory, the model's name with .lathe
  std::string tokenizer; ///< directory or file that replaces the model's own; empty: none
  std::string target = "x86";
  Phase from = Phase::import; ///< for .mlir
  Phase to = Phase::package;
  CompileOptions options;
  /// (what, done, all); all = 0: a phase begins.
  std::function<void(llvm::StringRef, uint64_t, uint64_t)> progress;
};

struct CompileResult {
  std::string output;
  std::string text; ///< the module, when request.to is before Phase::package
  double seconds = 0;
  PackageReport package;
  std::vector<std::string> warnings; ///< what the user should know of the artifact
};

/// Errors of MLIR passes are printed as diagnostics before the Status comes back. The artifact appears whole or not at all.
Result<CompileResult> compileModel(const CompileRequest &request);

/// "x86", "native", names of code variants and of GPUs ("sm_80"), separated by commas.
Result<std::vector<artifact::Variant>> parseTarget(const std::string &target);

} // namespace lathe
