//===- Pipeline.cpp - the phases configure and fuse -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void lathe::buildConfigurePhase(OpPassManager &pm, const LLMPipelineOptions &options) {
  if (!options.quantize.empty()) {
    LLMQuantizePassOptions quantize;
    quantize.type = options.quantize;
    quantize.asymmetric = options.asymmetric;
    for (const std::string &pattern : options.skip) quantize.skip.push_back(pattern);
    pm.addPass(createLLMQuantizePass(quantize));
  }
  LLMSetActivationsPassOptions activations;
  activations.format = options.activations;
  pm.addNestedPass<func::FuncOp>(createLLMSetActivationsPass(activations));
  LLMSetKVPassOptions kv;
  kv.key = options.key;
  kv.value = options.value;
  pm.addPass(createLLMSetKVPass(kv));
  LLMPageKVPassOptions page;
  page.page = options.page;
  pm.addPass(createLLMPageKVPass(page));
  // One llm.angles a step, one llm.weight a param.
  pm.addNestedPass<func::FuncOp>(createCSEPass());
}

void lathe::buildFusePhase(OpPassManager &pm, const LLMPipelineOptions &options) {
  if (options.merge) {
    LLMMergeLinearsPassOptions merge;
    merge.glu = !options.fuse;
    pm.addPass(createLLMMergeLinearsPass(merge));
  }
  if (!options.fuse) return;
  OpPassManager &functions = pm.nest<func::FuncOp>();
  functions.addPass(createLLMFuseGluPass());
  functions.addPass(createLLMFuseActivatePass());
  functions.addPass(createLLMFuseResidualPass());
  // Before the norms: a head norm belongs to its rotation.
  functions.addPass(createLLMFuseRopeAppendPass());
  functions.addPass(createLLMFuseAttentionQuantizePass());
  functions.addPass(createLLMFuseNormPass());
  functions.addPass(createLLMFuseHeadPass());
}

void lathe::registerLLMPipeline() {
  PassPipelineRegistration<LLMPipelineOptions>("llm-pipeline", "configure and fuse an imported module",
                                               [](OpPassManager &pm, const LLMPipelineOptions &options) {
                                                 buildConfigurePhase(pm, options);
                                                 buildFusePhase(pm, options);
                                               });
}
