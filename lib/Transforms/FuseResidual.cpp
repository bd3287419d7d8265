//===- FuseResidual.cpp - the sum of a residual in the linear that made its half ----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMFUSERESIDUALPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct FuseResidualPass : lathe::impl::LLMFuseResidualPassBase<FuseResidualPass> {
  void runOnOperation() override {
    SmallVector<LinearOp> linears;
    getOperation().walk([&](LinearOp op) {
      if (!op->getParentOfType<FusedOp>()) linears.push_back(op);
    });
    for (LinearOp linear : linears) {
      auto add = onlyUser<AddOp>(linear.getResult());
      if (!add) continue;
      if (linear.getWeights().size() != 1) {
        missed(linear, "llm-fuse-residual", "the linear has several weights");
        continue;
      }
      fuse("residual_linear", {linear, add});
      ++numFused;
    }
  }
};

} // namespace
