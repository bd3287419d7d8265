//===- FuseHead.cpp - the head's second form --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMFUSEHEADPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct FuseHeadPass : lathe::impl::LLMFuseHeadPassBase<FuseHeadPass> {
  using Base = lathe::impl::LLMFuseHeadPassBase<FuseHeadPass>;
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (step.getSymName() != "step" || step.isDeclaration()) return;
    if (!step.getBody().hasOneBlock()) {
      missed(step, "llm-fuse-head", "the step has several blocks");
      return;
    }
    auto ret = cast<func::ReturnOp>(step.getBody().front().getTerminator());
    // Rows that a draft takes may stand between the two.
    auto type = RankedTensorType::get({ShapedType::kDynamic, 2}, OpBuilder(ret).getF32Type());
    auto rows = ret.getNumOperands() >= 2 ? dyn_cast<RankedTensorType>(ret.getOperand(0).getType()) : RankedTensorType();
    if (!rows || rows.getRank() != 2 || !isa<KVType>(ret.getOperands().back().getType()) || ret.getOperand(1).getType() == type) {
      missed(ret, "llm-fuse-head", "the step does not return logits and a cache");
      return;
    }
    Value logits = ret.getOperand(0);
    auto linear = logits.getDefiningOp<LinearOp>();
    if (const char *why = decline(linear, logits)) {
      missed(ret, "llm-fuse-head", why);
      return;
    }
    OpBuilder b(ret);
    Location loc = derivedLoc(logits, ".argmax");
    Operation *copy = epilogue ? b.clone(*linear) : nullptr;
    auto argmax = ArgmaxOp::create(b, loc, type, copy ? copy->getResult(0) : logits);
    ret->insertOperands(1, argmax.getResult());
    step.setFunctionType(b.getFunctionType(step.getArgumentTypes(), ret.getOperandTypes()));
    if (copy) fuse("argmax_linear", {copy, argmax});
    ++numFused;
  }

  const char *decline(LinearOp linear, Value logits) {
    if (epilogue && !linear) return "the logits are not the result of a linear";
    if (epilogue && linear.getWeights().size() != 1) return "the linear has several weights";
    if (widthOf(logits) > maxArgmaxWidth) return "the logits are wider than float32 counts";
    return nullptr;
  }
};

} // namespace
