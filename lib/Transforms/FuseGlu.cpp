//===- FuseGlu.cpp - gate, up and their product as one linear ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMFUSEGLUPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct FuseGluPass : lathe::impl::LLMFuseGluPassBase<FuseGluPass> {
  void runOnOperation() override {
    SmallVector<GluOp> glus;
    getOperation().walk([&](GluOp op) {
      if (!op->getParentOfType<FusedOp>()) glus.push_back(op);
    });
    for (GluOp glu : glus) {
      auto gate = glu.getGate().getDefiningOp<LinearOp>(), up = glu.getUp().getDefiningOp<LinearOp>();
      auto quantize = onlyUser<QuantizeOp>(glu.getResult());
      if (const char *why = decline(glu, gate, up, quantize)) {
        missed(glu, "llm-fuse-glu", why);
        continue;
      }
      Operation *ops[] = {gate, up, glu, quantize};
      if (!canFuse(ops)) continue; // a block of its own for one of them
      fuse("glu_linear", ops);
      ++numFused;
    }
  }

  static const char *decline(GluOp glu, LinearOp gate, LinearOp up, QuantizeOp quantize) {
    if (!gate || !up || gate == up) return "gate and up are not results of two linears";
    if (!quantize) return "the result is not used by one quantize only";
    if (!gate->hasOneUse() || !up->hasOneUse()) return "gate or up has other uses";
    if (gate.getInput() != up.getInput()) return "gate and up have different inputs";
    if (gate.getWeights().size() != 1 || up.getWeights().size() != 1) return "gate or up has several weights";
    if (gate.getBias() || up.getBias()) return "gate or up has a bias";
    if (gate.getWeights()[0].getType() != up.getWeights()[0].getType()) return "the weights of gate and up differ in storage";
    if (glu.getKind() == Activation::gelu_erf || glu.getKind() == Activation::relu) return "no epilogue for this activation";
    return nullptr;
  }
};

} // namespace
