//===- MergeScales.cpp - a pass that lives outside Lathe's tree -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Two llm.scale in a row are one when that changes no bit: a product with a power of two is exact, so that it may be
// taken before or after the other product is rounded.
//
//   Before: %a = llm.scale %x by 3.0 : tensor<?x4xf32>        After: %b = llm.scale %x by 1.5 : tensor<?x4xf32>
//           %b = llm.scale %a by 0.5 : tensor<?x4xf32>
//===----------------------------------------------------------------------===//
#include "dialects/LLM/LLM.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include <cmath>
#include <optional>

using namespace mlir;
using lathe::llm::ScaleOp;

namespace {

bool isPowerOfTwo(float factor) {
  int exponent;
  return std::isnormal(factor) && std::fabs(std::frexp(factor, &exponent)) == 0.5f;
}

/// The one factor for |first| and then |second|, if it gives the same bits for all rows whose values stay in float32's
/// normal range.
std::optional<float> mergedFactor(float first, float second) {
  if (!isPowerOfTwo(first) && !isPowerOfTwo(second)) return std::nullopt;
  float both = first * second;
  // Out of the normal range the product of the factors itself is rounded.
  return std::isnormal(both) ? std::optional(both) : std::nullopt;
}

struct MergeScales : OpRewritePattern<ScaleOp> {
  MergeScales(MLIRContext *context, Pass::Statistic &merged) : OpRewritePattern(context), merged(merged) {}

  LogicalResult matchAndRewrite(ScaleOp op, PatternRewriter &rewriter) const override {
    auto first = op.getInput().getDefiningOp<ScaleOp>();
    if (!first) return rewriter.notifyMatchFailure(op, "the input is no llm.scale");
    // With another user the first scale stays, and nothing is won.
    if (!first->hasOneUse()) return rewriter.notifyMatchFailure(op, "the first llm.scale has other users");
    auto factor = mergedFactor(first.getFactor().convertToFloat(), op.getFactor().convertToFloat());
    if (!factor) return rewriter.notifyMatchFailure(op, "one product would round otherwise than two");
    Location both = rewriter.getFusedLoc({first.getLoc(), op.getLoc()});
    rewriter.replaceOp(op, ScaleOp::create(rewriter, both, op.getType(), first.getInput(), llvm::APFloat(*factor)));
    ++merged;
    return success();
  }

  Pass::Statistic &merged;
};

struct MergeScalesPass : PassWrapper<MergeScalesPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MergeScalesPass)

  MergeScalesPass() = default;
  MergeScalesPass(const MergeScalesPass &other) : PassWrapper(other) {}

  StringRef getArgument() const override { return "example-merge-scales"; }
  StringRef getDescription() const override { return "Merge two scales in a row where that changes no bit"; }

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<MergeScales>(&getContext(), numMerged);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns)))) return signalPassFailure();
  }

  Statistic numMerged{this, "merged", "scales that went into another one"};
};

} // namespace

/// What `lathe-opt --load-pass-plugin` asks for.
extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "MergeScales", "0.1", [] { PassRegistration<MergeScalesPass>(); }};
}
