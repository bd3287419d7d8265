//===- Reduce.cpp - reductions of the llm dialect ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Reduce/Reduce.h"
#include "dialects/LLM/LLM.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Reducer/ReductionPatternInterface.h"

using namespace mlir;
using namespace lathe::llm;

namespace {

/// An op becomes an operand of its result's type.
struct Bypass : RewritePattern {
  Bypass(MLIRContext *context, unsigned operand) : RewritePattern(MatchAnyOpTypeTag(), 1, context), operand(operand) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isa_and_present<LLMDialect>(op->getDialect()) || op->getNumResults() != 1) return failure();
    if (operand >= op->getNumOperands() || op->getOperand(operand).getType() != op->getResult(0).getType()) return failure();
    rewriter.replaceOp(op, op->getOperand(operand));
    return success();
  }
  unsigned operand;
};

/// llm.fused becomes the ops of its body.
struct InlineFused : OpRewritePattern<FusedOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(FusedOp op, PatternRewriter &rewriter) const override {
    Block &body = op.getBody().front();
    SmallVector<Value> results(cast<YieldOp>(body.getTerminator()).getValues());
    IRMapping map;
    map.map(body.getArguments(), op.getInputs());
    for (Operation &inner : body.without_terminator()) rewriter.clone(inner, map);
    for (Value &result : results) result = map.lookupOrDefault(result);
    rewriter.replaceOp(op, results);
    return success();
  }
};

struct LLMReductions : DialectReductionPatternInterface {
  explicit LLMReductions(Dialect *dialect) : DialectReductionPatternInterface(dialect) {}
  void populateReductionPatterns(RewritePatternSet &patterns) const override {
    patterns.add<InlineFused>(patterns.getContext());
    for (unsigned operand : {0u, 1u}) patterns.add<Bypass>(patterns.getContext(), operand);
  }
};

} // namespace

void lathe::registerReductions(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, LLMDialect *dialect) { dialect->addInterfaces<LLMReductions>(); });
}
