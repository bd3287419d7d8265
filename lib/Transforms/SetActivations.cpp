//===- SetActivations.cpp - how activations enter linears -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMSETACTIVATIONSPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct SetActivationsPass : lathe::impl::LLMSetActivationsPassBase<SetActivationsPass> {
  using LLMSetActivationsPassBase::LLMSetActivationsPassBase;

  void runOnOperation() override {
    std::optional<ActFormat> wanted = symbolizeActFormat(format);
    if (!wanted && format != "auto") {
      getOperation().emitError() << "llm-set-activations: expected format auto, int8, int8z, e4m3, bf16 or f32, found '" << format << "'";
      return signalPassFailure();
    }
    markHead();
    llvm::DenseMap<std::pair<Value, ActFormat>, Value> made; // input and format -> quantized
    getOperation().walk([&](LinearOp linear) {
      if (isa<ActType>(cast<RankedTensorType>(linear.getInput().getType()).getElementType())) return;
      if (linear->getParentOfType<FusedOp>()) return missed(linear, "llm-set-activations", "inside a fused op");
      ActFormat chosen = choose(linear, wanted);
      Value &quantized = made[{linear.getInput(), chosen}];
      // One block: the first linear of an input precedes the others.
      if (!quantized) {
        OpBuilder b(linear);
        auto rows = cast<RankedTensorType>(linear.getInput().getType());
        auto type = RankedTensorType::get(rows.getShape(), ActType::get(&getContext(), chosen));
        quantized = QuantizeOp::create(b, derivedLoc(linear.getInput(), ".quantize"), type, linear.getInput());
        ++numQuantize;
      }
      linear.getInputMutable().assign(quantized);
      ++numLinears;
    });
  }

  ActFormat choose(LinearOp linear, std::optional<ActFormat> wanted) {
    bool integer = false, bf16 = false, floats8 = true;
    for (Value weight : linear.getWeights()) {
      Storage storage = storageOf(weight.getType());
      integer |= !isFloatStorage(storage);
      floats8 &= storage == Storage::e4m3;
      bf16 |= storage == Storage::bf16 || storage == Storage::e4m3;
    }
    if (wanted == ActFormat::e4m3 && !floats8) {
      missed(linear, "llm-set-activations", "e4m3 activations need e4m3 weights");
      return ActFormat::bf16;
    }
    bool wantsInteger = wanted == ActFormat::int8 || wanted == ActFormat::int8z;
    if (wanted && (integer || !wantsInteger)) return *wanted;
    if (wantsInteger) missed(linear, "llm-set-activations", "int8 activations need integer weights");
    if (integer) return head.contains(linear.getInput()) ? ActFormat::int8z : ActFormat::int8;
    return bf16 ? ActFormat::bf16 : ActFormat::f32;
  }

  /// Values that are reached behind llm.select_rows only.
  void markHead() {
    head.clear();
    getOperation().walk([&](Operation *op) {
      auto isRows = [](Value v) {
        auto type = dyn_cast<RankedTensorType>(v.getType());
        return type && type.getRank() == 2 && type.isDynamicDim(0);
      };
      auto rows = llvm::make_filter_range(op->getOperands(), isRows);
      bool behind = isa<SelectRowsOp>(op) || (!rows.empty() && llvm::all_of(rows, [&](Value v) { return head.contains(v); }));
      if (behind) head.insert_range(op->getResults());
    });
  }

  llvm::DenseSet<Value> head;
};

} // namespace
