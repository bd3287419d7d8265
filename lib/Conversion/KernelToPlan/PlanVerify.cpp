//===- PlanVerify.cpp - a second opinion on the memory plan ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/Plan/Plan.h"
#include "lathe/Conversion/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_PLANVERIFYPASS
#include "lathe/Conversion/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe;

namespace {

struct PlanVerifyPass : lathe::impl::PlanVerifyPassBase<PlanVerifyPass> {
  void runOnOperation() override {
    auto programs = getOperation().getOps<plan::ProgramOp>();
    if (programs.empty()) {
      getOperation().emitError() << "expected a plan.program";
      return signalPassFailure();
    }
    if (failed(check(*programs.begin()))) signalPassFailure();
  }

  LogicalResult check(plan::ProgramOp program) {
    auto buffers = llvm::to_vector(program.getOps<plan::BufferOp>());
    int64_t peak = 0;
    for (auto [i, x] : llvm::enumerate(buffers)) {
      int64_t xo = x.getOffset(), xb = x.getBytes(), xf = x.getFirst(), xl = x.getLast();
      if (xo < 0 || xb <= 0 || xf > xl || xo % 64) return x.emitError() << "expected an aligned offset, a positive size and a lifetime, found " << xo << ", " << xb << ", " << xf << " to " << xl;
      peak = std::max(peak, xo + xb);
      for (auto y : ArrayRef(buffers).drop_front(i + 1)) {
        ++numPairs;
        int64_t yo = y.getOffset(), yb = y.getBytes(), yf = y.getFirst(), yl = y.getLast();
        bool live = xf <= yl && yf <= xl, overlap = xo < yo + yb && yo < xo + xb;
        if (!live || !overlap) continue;
        auto diagnostic = x.emitError() << "buffer '" << x.getSymName() << "' overlaps live buffer '" << y.getSymName() << "'";
        diagnostic.attachNote(y.getLoc()) << "at " << yo << ", " << yb << " bytes, live " << yf << " to " << yl;
        return diagnostic;
      }
    }
    if (peak != int64_t(program.getArenaBytes()))
      return program.emitError() << "expected an arena of " << peak << " bytes (the largest end of a buffer), found " << program.getArenaBytes();
    int64_t hiddenEnd = program.getHiddenOffset() + program.getHiddenStride() * 4 * program.getMaxRows();
    int64_t logitsEnd = program.getLogitsOffset() + program.getLogitsStride() * 4 * program.getMaxOutRows();
    int64_t embeddingEnd = program.getEmbeddingOffset().value_or(0) + program.getEmbeddingStride().value_or(0) * 4 * program.getMaxOutRows();
    if (embeddingEnd > peak) return program.emitError() << "embeddings end at " << embeddingEnd << ", outside the arena of " << peak << " bytes";
    int64_t choicesEnd = program.getChoicesOffset().value_or(0) + program.getChoicesStride().value_or(0) * 4 * program.getMaxOutRows();
    if (choicesEnd > peak) return program.emitError() << "choices end at " << choicesEnd << ", outside the arena of " << peak << " bytes";
    int64_t inputEnd = program.getDraftInputOffset().value_or(0) + program.getDraftInputStride().value_or(0) * 4 * program.getMaxRows();
    if (inputEnd > peak) return program.emitError() << "rows of the draft end at " << inputEnd << ", outside the arena of " << peak << " bytes";
    SmallVector<int64_t> rowsAt(program.getDraftFeatures().value_or(ArrayRef<int64_t>()));
    if (program.getDraftOwnOffset()) rowsAt.push_back(*program.getDraftOwnOffset());
    for (int64_t at : rowsAt) hiddenEnd = std::max<int64_t>(hiddenEnd, at + program.getHiddenStride() * 4 * program.getMaxRows());
    for (int64_t at : program.getDraftMoreLogits().value_or(ArrayRef<int64_t>()))
      logitsEnd = std::max<int64_t>(logitsEnd, at + program.getDraftLogitsStride().value_or(0) * 4 * program.getMaxOutRows());
    if (hiddenEnd > peak || logitsEnd > peak) return program.emitError() << "results end at " << std::max(hiddenEnd, logitsEnd) << ", outside the arena of " << peak << " bytes";
    SymbolTable symbols(program);
    WalkResult result = program.walk([&](plan::LaunchOp launch) -> WalkResult {
      if (!symbols.lookup<plan::KernelOp>(launch.getKernel())) return launch.emitError() << "expected a kernel named " << launch.getKernelAttr();
      if (launch.getArgs().size() != launch.getOffsets().size())
        return launch.emitError() << "expected one offset for each of " << launch.getArgs().size() << " arguments, found " << launch.getOffsets().size();
      for (auto [attr, offset] : llvm::zip(launch.getArgs(), launch.getOffsets())) {
        auto name = dyn_cast<FlatSymbolRefAttr>(attr);
        Operation *target = name ? symbols.lookup(name.getValue()) : nullptr;
        if (!target) return launch.emitError() << "expected a buffer, weight or KV group, found " << attr;
        int64_t bytes = 0, time = launch.getTime();
        if (auto buffer = dyn_cast<plan::BufferOp>(target)) {
          bytes = buffer.getBytes();
          if (time < int64_t(buffer.getFirst()) || time > int64_t(buffer.getLast())) {
            auto diagnostic = launch.emitError() << "uses buffer '" << buffer.getSymName() << "' at time " << time << ", outside its lifetime";
            diagnostic.attachNote(buffer.getLoc()) << "live " << buffer.getFirst() << " to " << buffer.getLast();
            return diagnostic;
          }
        } else if (auto weight = dyn_cast<plan::WeightOp>(target)) {
          bytes = weight.getBytes();
        } else if (auto kv = dyn_cast<plan::KVGroupOp>(target)) {
          bytes = kv.getBlockBytes();
        }
        if (offset < 0 || offset >= bytes) return launch.emitError() << "offset " << offset << " is outside the " << bytes << " bytes of " << attr;
      }
      return WalkResult::advance();
    });
    return failure(result.wasInterrupted());
  }
};

} // namespace
