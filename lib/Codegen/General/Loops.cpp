//===- Loops.cpp - loops of a general graph become functions ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "General/Loops.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace lathe::codegen {
using namespace mlir;

const char graphLoop[] = "lathe_graph_loop_";

namespace {

class LoopOutliner {
public:
  explicit LoopOutliner(ModuleOp m) : module(m), b(m.getContext()) {}
  size_t run() {
    if (auto graph = module.lookupSymbol<func::FuncOp>("graph"); graph && !graph.isExternal()) visit(graph.getBody());
    return known.size();
  }

private:
  void visit(Region &region) {
    for (Block &block : region)
      for (Operation &op : llvm::make_early_inc_range(block)) {
        if (auto loop = dyn_cast<scf::ForOp>(op)) outline(loop);
        else
          for (Region &inner : op.getRegions())
            visit(inner);
      }
  }

  /// Constants are no operands: they are made where they are used.
  void outline(scf::ForOp loop) {
    llvm::SetVector<Value> used;
    used.insert(loop->operand_begin(), loop->operand_end());
    getUsedValuesDefinedAbove(loop->getRegions(), used);
    SmallVector<Value> captured;
    SmallVector<Operation *> constants;
    for (Value v : used) {
      if (matchPattern(v, m_Constant())) constants.push_back(v.getDefiningOp());
      else captured.push_back(v);
    }
    func::FuncOp function = build(loop, captured, constants);
    b.setInsertionPoint(loop);
    auto call = func::CallOp::create(b, loop.getLoc(), function, captured);
    loop->replaceAllUsesWith(call);
    loop->erase();
  }

  /// The function of |loop|: an equal one, or a new one.
  func::FuncOp build(scf::ForOp loop, ArrayRef<Value> captured, ArrayRef<Operation *> constants) {
    OpBuilder k(b.getContext());
    Location loc = k.getUnknownLoc(); // equal nests are equal, wherever they come from
    auto function = func::FuncOp::create(k, loc, "loop", k.getFunctionType(TypeRange(ValueRange(captured)), loop.getResultTypes()));
    function.setPrivate();
    k.setInsertionPointToStart(function.addEntryBlock());
    IRMapping map;
    for (Operation *constant : constants)
      k.clone(*constant, map);
    map.map(captured, function.getArguments());
    Operation *copy = k.clone(*loop, map);
    func::ReturnOp::create(k, loc, copy->getResults());
    function->walk([&](Operation *o) { o->setLoc(loc); });
    std::string text;
    llvm::raw_string_ostream(text) << *function.getOperation();
    auto [it, inserted] = known.try_emplace(text, function);
    if (!inserted) {
      function.erase();
      return it->second;
    }
    function.setName(graphLoop + std::to_string(known.size() - 1));
    module.push_back(function);
    return function;
  }

  ModuleOp module;
  OpBuilder b;
  llvm::StringMap<func::FuncOp> known;
};

} // namespace

size_t outlineLoops(ModuleOp module) { return LoopOutliner(module).run(); }

} // namespace lathe::codegen
