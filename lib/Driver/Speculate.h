//===- Speculate.h - what --speculate asks for ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Driver/Driver.h"

namespace lathe {

/// CompileOptions.speculate, taken apart.
struct SpeculateOption {
  std::string method; ///< of the pass llm-speculate: draft, layerskip, medusa, eagle, eagle2 or eagle3; empty: no draft program
  std::string model;  ///< draft: path of the draft model
  int64_t layers = 0; ///< layerskip
  std::string lookup; ///< ngram, suffix or suffix-tree, which need nothing in the artifact; |method| is empty then
  /// The draft's weights are those of CompileOptions::speculateWeights.
  bool readsWeights() const { return method == "medusa" || method.starts_with("eagle"); }
  /// The pass with its options.
  std::string pass() const;
};
/// "", "draft:MODEL", "layerskip:LAYERS", "medusa", "eagle", "eagle2", "eagle3", "ngram", "suffix" or "suffix-tree". Error: invalidArgument.
Result<SpeculateOption> parseSpeculate(const std::string &text);

/// Imports the draft model and puts it into |module| as `module @draft`, where llm-speculate finds it. Its vocabulary must be that of |text|, the
/// texts of the model it drafts for. Errors: those of importing; invalidArgument with the first difference.
Status addDraftModel(mlir::ModuleOp module, const SpeculateOption &option, const CompileOptions &options, const ModelText &text);

/// Reads the heads or the layer of CompileOptions::speculateWeights and puts them into |module| as `module @draft`, where llm-speculate finds them. Errors: those of
/// importMedusaHeads and importEagle (DraftHeads.h); unsupported when |module| is no model with hidden rows.
Status addDraftHeads(mlir::ModuleOp module, const SpeculateOption &option, const CompileOptions &options);

} // namespace lathe
