//===- Outline.cpp - loops of a general graph become kernels ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "General/Outline.h"
#include "lathe/artifact/Graph.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace lathe::codegen {
using namespace mlir;

std::string kernelName(size_t i) { return "lathe_graph_kernel_" + std::to_string(i); }

namespace {

/// PTX allows 4 KiB of parameters.
constexpr int64_t mostWords = 4096 / 8;

bool isScalar(Type t) { return t.isIndex() || (t.isIntOrFloat() && t.getIntOrFloatBitWidth() <= 64); }

/// Words that a value takes in a launch: a memref is two pointers, an offset, sizes and strides.
int64_t wordsOf(Type t) {
  auto m = dyn_cast<MemRefType>(t);
  return m ? 3 + 2 * m.getRank() : 1;
}

/// The value in 64 bits, and back.
Value widen(OpBuilder &b, Location loc, Value v) {
  Type t = v.getType(), i64 = b.getI64Type();
  if (isa<MemRefType>(t) || t == i64) return v;
  if (t.isIndex()) return arith::IndexCastOp::create(b, loc, i64, v);
  if (isa<FloatType>(t)) v = arith::BitcastOp::create(b, loc, b.getIntegerType(t.getIntOrFloatBitWidth()), v);
  return v.getType() == i64 ? v : arith::ExtUIOp::create(b, loc, i64, v).getResult();
}
Value narrow(OpBuilder &b, Location loc, Value v, Type t) {
  if (v.getType() == t) return v;
  if (t.isIndex()) return arith::IndexCastOp::create(b, loc, t, v);
  auto integer = b.getIntegerType(t.getIntOrFloatBitWidth());
  if (v.getType() != integer) v = arith::TruncIOp::create(b, loc, integer, v);
  return t == integer ? v : arith::BitcastOp::create(b, loc, t, v).getResult();
}

class Outliner {
public:
  explicit Outliner(ModuleOp m) : host(m), b(m.getContext()) {
    kernels.module = ModuleOp::create(m.getLoc());
    m.getContext()->loadDialect<NVVM::NVVMDialect, LLVM::LLVMDialect>();
  }
  GraphKernels run() {
    for (auto f : llvm::to_vector(host.getOps<func::FuncOp>()))
      if (!f.isExternal() && f.getSymName() == "graph") visit(f.getBody());
    return std::move(kernels);
  }

private:
  void visit(Region &region) {
    for (Block &block : region)
      for (Operation &op : llvm::make_early_inc_range(block)) {
        if (isa<scf::ParallelOp, scf::ForOp>(op) && outline(&op)) continue;
        for (Region &inner : op.getRegions())
          visit(inner);
      }
  }

  /// Whether threads of a GPU can do it: arithmetic, loops, and elements of memory that is there.
  static bool runsOnDevice(Operation *op) {
    WalkResult result = op->walk([](Operation *o) -> WalkResult {
      if (auto call = dyn_cast<func::CallOp>(o)) return call.getCallee() == "lathe_graph_fail" ? WalkResult::advance() : WalkResult::interrupt();
      if (isa<memref::LoadOp, memref::StoreOp, memref::DimOp, memref::SubViewOp, memref::CastOp, memref::ReinterpretCastOp, memref::ExtractStridedMetadataOp>(o)) return WalkResult::advance();
      bool plain = isa<arith::ArithDialect, math::MathDialect, scf::SCFDialect, ub::UBDialect>(o->getDialect());
      return plain && llvm::all_of(o->getResultTypes(), [](Type t) { return isScalar(t); }) ? WalkResult::advance() : WalkResult::interrupt();
    });
    return !result.wasInterrupted();
  }

  /// Constants are no operands: they are made where they are used.
  bool outline(Operation *op) {
    auto parallel = dyn_cast<scf::ParallelOp>(op);
    if (parallel) {
      auto all = [](ValueRange values, int64_t n) { return llvm::all_of(values, [&](Value v) { return isConstantIntValue(v, n); }); };
      if (!all(parallel.getLowerBound(), 0) || !all(parallel.getStep(), 1) || parallel.getNumReductions()) return false;
    }
    op->walk([&](memref::GetGlobalOp g) { g->moveBefore(op); });
    if (!runsOnDevice(op)) return false;
    llvm::SetVector<Value> used;
    getUsedValuesDefinedAbove(op->getRegions(), used);
    used.insert(op->operand_begin(), op->operand_end());
    SmallVector<Value> captured, constants;
    int64_t words = 2 + op->getNumResults() * 5;
    for (Value v : used) {
      if (matchPattern(v, m_Constant())) {
        constants.push_back(v);
        continue;
      }
      if (!isa<MemRefType>(v.getType()) && !isScalar(v.getType())) return false;
      captured.push_back(v);
      words += wordsOf(v.getType());
    }
    if (words > mostWords) return false;

    // The host's side: the count, the arguments, and what comes back in memory.
    Location loc = op->getLoc();
    b.setInsertionPoint(op);
    Value items = arith::ConstantIndexOp::create(b, loc, 1);
    if (parallel)
      for (Value n : parallel.getUpperBound())
        items = arith::MulIOp::create(b, loc, items, n);
    SmallVector<Value> arguments{widen(b, loc, items)}, results;
    for (Value v : captured)
      arguments.push_back(widen(b, loc, v));
    for (Type t : op->getResultTypes())
      results.push_back(memref::AllocOp::create(b, loc, MemRefType::get({1}, t)));
    llvm::append_range(arguments, results);

    bool checked = false;
    op->walk([&](func::CallOp) { checked = true; });
    size_t index = add(build(op, parallel, captured, constants, arguments), checked);
    func::CallOp::create(b, loc, kernelName(index), TypeRange{}, arguments);
    for (auto [memory, result] : llvm::zip(results, op->getResults())) {
      Value zero = arith::ConstantIndexOp::create(b, loc, 0);
      result.replaceAllUsesWith(memref::LoadOp::create(b, loc, memory, zero));
      memref::DeallocOp::create(b, loc, memory);
    }
    op->erase();
    return true;
  }

  /// The kernel as a function without a module.
  func::FuncOp build(Operation *op, scf::ParallelOp parallel, ArrayRef<Value> captured, ArrayRef<Value> constants, ArrayRef<Value> arguments) {
    OpBuilder k(b.getContext());
    Location loc = k.getUnknownLoc(); // equal nests are equal, wherever they come from
    SmallVector<Type> types;
    for (Value v : arguments)
      types.push_back(v.getType());
    types.push_back(k.getI64Type());
    auto f = func::FuncOp::create(k, loc, "kernel", k.getFunctionType(types, {}));
    Block *entry = f.addEntryBlock();
    k.setInsertionPointToStart(entry);
    auto wide = [&](Value v) { return arith::ExtUIOp::create(k, loc, k.getI64Type(), v).getResult(); };
    Value block = wide(NVVM::BlockIdXOp::create(k, loc, k.getI32Type())), thread = wide(NVVM::ThreadIdXOp::create(k, loc, k.getI32Type()));
    Value threads = arith::ConstantIntOp::create(k, loc, graphBlockThreads, 64);
    Value item = arith::AddIOp::create(k, loc, arith::MulIOp::create(k, loc, block, threads), thread);
    Value inside = arith::CmpIOp::create(k, loc, arith::CmpIPredicate::ult, item, entry->getArgument(0));
    auto guard = scf::IfOp::create(k, loc, inside, false);
    func::ReturnOp::create(k, loc);
    k.setInsertionPoint(guard.thenYield());

    IRMapping map;
    for (Value v : constants)
      map.map(v, k.clone(*v.getDefiningOp())->getResult(cast<OpResult>(v).getResultNumber()));
    for (auto [i, v] : llvm::enumerate(captured))
      map.map(v, narrow(k, loc, entry->getArgument(i + 1), v.getType()));
    if (parallel) {
      // The last dimension is the fastest, so that neighbouring threads have neighbouring elements.
      Value rest = arith::IndexCastOp::create(k, loc, k.getIndexType(), item);
      auto indices = parallel.getInductionVars();
      for (size_t d = indices.size(); d-- > 0;) {
        Value n = map.lookup(parallel.getUpperBound()[d]);
        map.map(indices[d], d ? arith::RemUIOp::create(k, loc, rest, n).getResult() : rest);
        if (d) rest = arith::DivUIOp::create(k, loc, rest, n);
      }
      for (Operation &o : parallel.getBody()->without_terminator())
        k.clone(o, map);
    } else {
      Operation *loop = k.clone(*op, map);
      Value zero = loop->getNumResults() ? arith::ConstantIndexOp::create(k, loc, 0).getResult() : Value();
      for (auto [i, r] : llvm::enumerate(loop->getResults()))
        memref::StoreOp::create(k, loc, r, entry->getArgument(1 + captured.size() + i), zero);
    }
    f->walk([&](Operation *o) { o->setLoc(loc); });
    // A thread whose check fails ends: what it would do next is not to be done.
    Value status = entry->getArguments().back();
    f->walk([&](func::CallOp call) {
      k.setInsertionPoint(call);
      Value number = arith::AddIOp::create(k, loc, call.getOperand(0), arith::ConstantIntOp::create(k, loc, 1, 64));
      LLVM::StoreOp::create(k, loc, number, LLVM::IntToPtrOp::create(k, loc, LLVM::LLVMPointerType::get(k.getContext(), 1), status));
      LLVM::CallIntrinsicOp::create(k, loc, k.getStringAttr("llvm.nvvm.exit"), ValueRange());
      call.erase();
    });
    return f;
  }

  /// Its index: that of an equal one, or a new one with a function in both modules.
  size_t add(func::FuncOp f, bool checked) {
    std::string text;
    llvm::raw_string_ostream(text) << *f.getOperation();
    auto [it, inserted] = known.try_emplace(text, kernels.names.size());
    if (!inserted) {
      f.erase();
      return it->second;
    }
    std::string name = kernelName(it->second);
    f.setName(name);
    kernels.module->push_back(f);
    kernels.names.push_back(name);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(host.getBody());
    auto stub = func::FuncOp::create(b, host.getLoc(), name, b.getFunctionType(f.getArgumentTypes().drop_back(), {}));
    stub.setPrivate();
    if (checked) stub->setAttr("lathe.checked", b.getUnitAttr());
    return it->second;
  }

  ModuleOp host;
  OpBuilder b;
  GraphKernels kernels;
  llvm::StringMap<size_t> known;
};

} // namespace

GraphKernels outlineKernels(ModuleOp module) { return Outliner(module).run(); }

} // namespace lathe::codegen
