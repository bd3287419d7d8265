//===- Passes.h - llm -> llm passes ---------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassOptions.h"
#include <memory>

namespace lathe {
#define GEN_PASS_DECL
#include "lathe/Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "lathe/Transforms/Passes.h.inc"

/// Options of `llm-pipeline`: the phases configure and fuse.
struct LLMPipelineOptions : mlir::PassPipelineOptions<LLMPipelineOptions> {
  Option<std::string> quantize{*this, "quantize", llvm::cl::desc("storage that weights are rounded to; empty: as the file has them"), llvm::cl::init("")};
  Option<bool> asymmetric{*this, "asymmetric", llvm::cl::desc("int4 with a minimum per group"), llvm::cl::init(false)};
  ListOption<std::string> skip{*this, "skip", llvm::cl::desc("regular expressions of weights that quantize leaves")};
  Option<std::string> activations{*this, "activations", llvm::cl::desc("auto, int8, int8z, e4m3, bf16 or f32"), llvm::cl::init("auto")};
  Option<std::string> key{*this, "key", llvm::cl::desc("format of K: f32, f16, bf16 or int8"), llvm::cl::init("f16")};
  Option<std::string> value{*this, "value", llvm::cl::desc("format of V: f32, f16, bf16 or int8"), llvm::cl::init("f16")};
  Option<int64_t> page{*this, "page", llvm::cl::desc("tokens per KV page; 0: not paged"), llvm::cl::init(32)};
  Option<bool> merge{*this, "merge", llvm::cl::desc("merge linears of one input"), llvm::cl::init(true)};
  Option<bool> fuse{*this, "fuse", llvm::cl::desc("make llm.fused ops"), llvm::cl::init(true)};
};

/// quantize, set-activations, set-kv, page-kv, CSE.
void buildConfigurePhase(mlir::OpPassManager &pm, const LLMPipelineOptions &options);
/// merge-linears and the fusions, in the order in which they leave each other the most.
void buildFusePhase(mlir::OpPassManager &pm, const LLMPipelineOptions &options);
/// Registers `llm-pipeline`: both phases.
void registerLLMPipeline();

} // namespace lathe
