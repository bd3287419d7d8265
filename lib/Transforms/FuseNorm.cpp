//===- FuseNorm.cpp - norm + quantize, norm + add ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMFUSENORMPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct FuseNormPass : lathe::impl::LLMFuseNormPassBase<FuseNormPass> {
  void runOnOperation() override {
    SmallVector<Operation *> norms;
    getOperation().walk([&](Operation *op) {
      if (isa<RmsNormOp, LayerNormOp>(op) && !op->getParentOfType<FusedOp>()) norms.push_back(op);
    });
    for (Operation *norm : norms) {
      auto rms = dyn_cast<RmsNormOp>(norm);
      if (rms && rms.getHeads() != 1) {
        missed(norm, "llm-fuse-norm", "a head norm");
        continue;
      }
      Operation *next = onlyUser<QuantizeOp>(norm->getResult(0));
      if (!next && rms) next = onlyUser<AddOp>(norm->getResult(0));
      if (!next) {
        missed(norm, "llm-fuse-norm", "the result is not used by one quantize or addition only");
        continue;
      }
      fuse("norm", {norm, next});
      ++numFused;
    }
  }
};

} // namespace
