//===- Quantize.cpp - round weights to a smaller storage --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"
#include "lathe/weights/Storage.h"
#include "llvm/Support/Regex.h"

namespace lathe {
#define GEN_PASS_DEF_LLMQUANTIZEPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct QuantizePass : lathe::impl::LLMQuantizePassBase<QuantizePass> {
  using LLMQuantizePassBase::LLMQuantizePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::optional<Storage> storage = parseType();
    if (!storage) {
      module.emitError() << "llm-quantize: expected type int8, int4-g32, int4-g64, int4-g128, e4m3, q8_0, q4_0, f16 or bf16"
                         << (asymmetric ? " (asymmetric: an int4 type)" : "") << ", found '" << type << "'";
      return signalPassFailure();
    }
    SmallVector<llvm::Regex> leave;
    for (const std::string &pattern : skip) {
      std::string error;
      if (!leave.emplace_back(pattern).isValid(error)) {
        module.emitError() << "llm-quantize: skip '" << pattern << "': " << error;
        return signalPassFailure();
      }
    }
    // Types of values change below: look at who reads a param first.
    llvm::DenseMap<StringAttr, SmallVector<WeightOp>> readers;
    llvm::DenseSet<StringAttr> linear, other;
    module.walk([&](WeightOp op) {
      StringAttr name = op.getParamAttr().getAttr();
      readers[name].push_back(op);
      for (OpOperand &use : op->getUses()) {
        if (isa<LinearOp>(use.getOwner()))
          linear.insert(name);
        else if (!isa<EmbedOp>(use.getOwner()))
          other.insert(name);
      }
    });
    for (ParamOp param : module.getOps<ParamOp>()) {
      StringAttr name = param.getSymNameAttr();
      if (!linear.contains(name) || cast<RankedTensorType>(param.getType()).getRank() != 2) continue;
      if (const char *why = decline(param, *storage, other.contains(name), leave)) {
        missed(param, "llm-quantize", why);
        ++numLeft;
        continue;
      }
      auto old = cast<RankedTensorType>(param.getType());
      auto rounded = RankedTensorType::get(old.getShape(), elementType(&getContext(), *storage));
      param.setValueAttr(RoundAttr::get(&getContext(), param.getValue(), *storage));
      param.setTypeAttr(TypeAttr::get(rounded));
      for (WeightOp reader : readers[name]) reader.getResult().setType(rounded);
      ++numRounded;
    }
  }

  std::optional<Storage> parseType() const {
    StringRef text = type;
    if (text.starts_with("int4-g"))
      return symbolizeStorage((asymmetric ? "int4z_g" : "int4_g") + text.drop_front(6).str());
    if (asymmetric || !llvm::is_contained({"int8", "e4m3", "q8_0", "q4_0", "f16", "bf16"}, text)) return std::nullopt;
    return symbolizeStorage(text);
  }

  static const char *decline(ParamOp param, Storage storage, bool otherReaders, ArrayRef<llvm::Regex> leave) {
    if (llvm::any_of(leave, [&](const llvm::Regex &regex) { return regex.match(param.getSymName()); })) return "named by skip";
    if (otherReaders) return "read by ops other than linears and embeddings";
    int64_t columns = cast<RankedTensorType>(param.getType()).getShape()[1];
    lathe::StorageType now = storageType(storageOf(param.getType())), then = storageType(storage);
    if (lathe::rowBytes(then, columns) >= lathe::rowBytes(now, columns)) return "not larger than the type asked for";
    if (columns % lathe::storageInfo(then).blockElements) return "rows do not divide into the type's groups";
    return nullptr;
  }
};

} // namespace
