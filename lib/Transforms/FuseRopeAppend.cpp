//===- FuseRopeAppend.cpp - rotation of q and k, their norms, and the append ----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMFUSEROPEAPPENDPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

/// A rotated and perhaps normed value and the ops that make it.
struct Chain {
  RopeOp rope;
  RmsNormOp norm;
  explicit Chain(Value v) {
    rope = v.getDefiningOp<RopeOp>();
    if (rope) norm = rope.getInput().getDefiningOp<RmsNormOp>();
  }
};

struct FuseRopeAppendPass : lathe::impl::LLMFuseRopeAppendPassBase<FuseRopeAppendPass> {
  void runOnOperation() override {
    SmallVector<KVAppendOp> appends;
    getOperation().walk([&](KVAppendOp op) {
      if (!op->getParentOfType<FusedOp>()) appends.push_back(op);
    });
    for (KVAppendOp append : appends) {
      if (const char *why = tryFuse(append))
        missed(append, "llm-fuse-rope-append", why);
      else
        ++numFused;
    }
  }

  /// Null when fused, else why not.
  static const char *tryFuse(KVAppendOp append) {
    AttentionOp attention;
    for (Operation *user : append->getUsers())
      if (auto op = dyn_cast<AttentionOp>(user); op && op.getGroup() == append.getGroup() && op.getLayer() == append.getLayer()) {
        if (attention) return "the layer has several attentions";
        attention = op;
      }
    if (!attention) return "no attention reads the layer from this append";
    Chain q(attention.getQuery()), k(append.getKey());
    if (!q.rope || !k.rope) return "q or k is not rotated";
    if (!q.rope->hasOneUse() || !k.rope->hasOneUse()) return "a rotated value has other uses";
    if (q.rope.getAngles() != k.rope.getAngles() || q.rope.getInterleaved() != k.rope.getInterleaved()) return "q and k are rotated differently";
    if (bool(q.norm) != bool(k.norm)) return "only one of q and k has a norm";
    SmallVector<Operation *> ops = {q.rope, k.rope, append};
    if (q.norm) {
      if (q.norm.getEps() != k.norm.getEps() || !q.norm->hasOneUse() || !k.norm->hasOneUse()) return "the norms of q and k differ or have other uses";
      ops = {q.norm, q.rope, k.norm, k.rope, append};
    }
    // q is rotated in place.
    Value source = q.norm ? q.norm.getInput() : q.rope.getInput();
    if (!source.hasOneUse()) return "the query has other uses";
    // The append may stand before the rotation of q: all ops meet at the later one.
    if (append->isBeforeInBlock(q.rope)) append->moveAfter(q.rope);
    if (!canFuse(ops)) return "a result is used before all inputs exist";
    fuse("rope_append", ops);
    return nullptr;
  }
};

} // namespace
