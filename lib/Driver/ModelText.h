//===- ModelText.h - what goes beside the module --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Driver/Driver.h"

namespace lathe {

/// Tokenizer, chat template, generation defaults and metadata of the model at |path|; |tokenizer| (a directory or a .gguf)
/// replaces the model's own when not empty. A .mlir module without |tokenizer| has none.
Status readModelText(const std::string &path, const std::string &tokenizer, mlir::ModuleOp module, const CompileOptions &options, ModelText &text);

} // namespace lathe
