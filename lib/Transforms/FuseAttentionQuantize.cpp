//===- FuseAttentionQuantize.cpp - attention and the rounding of its result ----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMFUSEATTENTIONQUANTIZEPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct FuseAttentionQuantizePass : lathe::impl::LLMFuseAttentionQuantizePassBase<FuseAttentionQuantizePass> {
  void runOnOperation() override {
    SmallVector<AttentionOp> attentions;
    getOperation().walk([&](AttentionOp op) {
      if (!op->getParentOfType<FusedOp>()) attentions.push_back(op);
    });
    for (AttentionOp attention : attentions) {
      auto quantize = onlyUser<QuantizeOp>(attention.getResult());
      KVLayerAttr layer = lookupLayer(lookupGroup(attention, attention.getGroupAttr()), attention.getLayer());
      const char *why = !quantize ? "the result is not used by one quantize only"
                        : layer.getValueSize() % 32 ? "a group of the rounding would span two heads"
                                                    : nullptr;
      if (why) {
        missed(attention, "llm-fuse-attention-quantize", why);
        continue;
      }
      fuse("attention", {attention, quantize});
      ++numFused;
    }
  }
};

} // namespace
