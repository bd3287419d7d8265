//===- ModelText.h - what goes beside the module --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Driver/Driver.h"

namespace lathe {

/// Tokenizer, chat template, generation defaults and metadata of the model at |path|; |tokenizer| (a directory, its tokenizer.json or a GGUF file)
/// replaces the model's own when not empty. A .mlir module without |tokenizer| has none.
Status readModelText(const std::string &path, const std::string &tokenizer, mlir::ModuleOp module, const CompileOptions &options, ModelText &text);

/// Compares the tokenizer of |text|, which |source| names, with a model of |vocabulary| tokens. Errors: invalidArgument when its vocabulary has larger ids, which
/// prompts would be made of. Added tokens beyond the model's exist (of images, for one) and are a warning; fewer tokens than the model's are padding.
Status checkVocabulary(const ModelText &text, int64_t vocabulary, const std::string &source, std::vector<std::string> &warnings);

} // namespace lathe
