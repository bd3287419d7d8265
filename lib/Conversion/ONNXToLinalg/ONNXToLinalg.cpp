//===- ONNXToLinalg.cpp - the pass onnx-to-linalg --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Graph.h"
#include "lathe/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lathe {
#define GEN_PASS_DEF_ONNXTOLINALGPASS
#include "lathe/Conversion/Passes.h.inc"
} // namespace lathe

namespace lathe::ops {
using namespace mlir;
namespace {

struct ONNXToLinalgPass : public lathe::impl::ONNXToLinalgPassBase<ONNXToLinalgPass> {
  using ONNXToLinalgPassBase::ONNXToLinalgPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto main = module.lookupSymbol<func::FuncOp>("main");
    if (!main || main.isExternal()) {
      module.emitError() << "expected a function 'main' with an onnx graph";
      return signalPassFailure();
    }
    if (failed(lower(module, main))) signalPassFailure();
  }

  /// A type that memory can hold: ranked, of numbers.
  static FailureOr<RankedTensorType> stored(Location loc, Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.getElementType().isIntOrFloat()) {
      emitError(loc) << "expected a tensor of numbers with a known rank, found " << type;
      return failure();
    }
    return RankedTensorType::get(tensor.getShape(), storageType(tensor.getElementType()));
  }

  LogicalResult lower(ModuleOp module, func::FuncOp main) {
    OpBuilder b(module.getContext());
    b.setInsertionPointToEnd(module.getBody());
    Location loc = main.getLoc();
    auto fail = func::FuncOp::create(b, loc, "lathe_graph_fail", b.getFunctionType({b.getI64Type()}, {}));
    fail.setPrivate();

    // Arguments: those of the graph, then the weights in the order of their first use.
    SmallVector<Type> inputs;
    SmallVector<DictionaryAttr> attributes;
    for (BlockArgument a : main.getArguments()) {
      auto type = stored(a.getLoc(), a.getType());
      if (failed(type)) return failure();
      inputs.push_back(*type);
      NamedAttrList list(main.getArgAttrDict(a.getArgNumber()));
      list.set("lathe.type", TypeAttr::get(a.getType()));
      list.set("bufferization.writable", b.getBoolAttr(false));
      attributes.push_back(list.getDictionary(b.getContext()));
    }
    llvm::MapVector<StringAttr, SmallVector<onnx::WeightOp>> weights;
    main.walk([&](onnx::WeightOp w) { weights[w.getParamAttr().getAttr()].push_back(w); });
    for (auto &[name, uses] : weights) {
      auto param = module.lookupSymbol<onnx::ParamOp>(name);
      auto type = param ? stored(param.getLoc(), param.getType()) : FailureOr<RankedTensorType>();
      if (failed(type)) return failure();
      inputs.push_back(*type);
      NamedAttrList list;
      list.set("lathe.weight", name);
      list.set("lathe.value", param.getValue());
      list.set("lathe.type", TypeAttr::get(param.getType()));
      list.set("bufferization.writable", b.getBoolAttr(false));
      attributes.push_back(list.getDictionary(b.getContext()));
    }

    auto graph = func::FuncOp::create(b, loc, "graph", b.getFunctionType(inputs, {}));
    Block *entry = graph.addEntryBlock();
    b.setInsertionPointToStart(entry);
    GraphLowering lowering(b, module);
    NodeView nobody{"", "", "", 1, {}, loc};
    TypeContext none(nobody, DimMath(b, loc), 0);
    Lower l(b, none);
    auto bind = [&](Value from, Value argument, Type type) { lowering.map(from, {argument, cast<RankedTensorType>(type).getElementType(), l.dims(argument)}); };
    for (BlockArgument a : main.getArguments())
      bind(a, entry->getArgument(a.getArgNumber()), a.getType());
    unsigned next = main.getNumArguments();
    for (auto &[name, uses] : weights) {
      for (onnx::WeightOp w : uses)
        bind(w.getResult(), entry->getArgument(next), w.getResult().getType());
      ++next;
    }
    Block &body = main.getBody().front();
    if (failed(lowering.block(body))) return failure();
    SmallVector<Value> results;
    SmallVector<Type> types, meanings;
    for (Value v : body.getTerminator()->getOperands()) {
      TensorValue t = lowering.lookup(v);
      if (!t) return emitError(v.getLoc()) << "expected a tensor as result of the graph";
      results.push_back(t.value);
      types.push_back(t.value.getType());
      meanings.push_back(RankedTensorType::get(cast<RankedTensorType>(t.value.getType()).getShape(), t.element));
    }
    func::ReturnOp::create(b, loc, results);
    graph.setType(b.getFunctionType(inputs, types));
    graph.setAllArgAttrs(attributes);
    for (unsigned i = 0; i < types.size(); ++i) {
      NamedAttrList list(main.getResultAttrDict(i));
      list.set("lathe.type", TypeAttr::get(meanings[i]));
      graph.setResultAttrs(i, list.getDictionary(b.getContext()));
    }
    SmallVector<StringRef> texts(lowering.checks().begin(), lowering.checks().end());
    module->setAttr("lathe.checks", b.getStrArrayAttr(texts));
    numChecks += texts.size();
    main.erase();
    for (auto param : llvm::make_early_inc_range(module.getOps<onnx::ParamOp>()))
      param.erase();
    return success();
  }
};

} // namespace
} // namespace lathe::ops
