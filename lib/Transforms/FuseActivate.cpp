//===- FuseActivate.cpp - an activation and the rounding of its result ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMFUSEACTIVATEPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct FuseActivatePass : lathe::impl::LLMFuseActivatePassBase<FuseActivatePass> {
  void runOnOperation() override {
    SmallVector<Operation *> activations;
    getOperation().walk([&](Operation *op) {
      if (isa<GluOp, ActivationOp>(op) && !op->getParentOfType<FusedOp>()) activations.push_back(op);
    });
    for (Operation *op : activations) {
      auto quantize = onlyUser<QuantizeOp>(op->getResult(0));
      if (!quantize) {
        missed(op, "llm-fuse-activate", "the result is not used by one quantize only");
        continue;
      }
      fuse("activate", {op, quantize});
      ++numFused;
    }
  }
};

} // namespace
