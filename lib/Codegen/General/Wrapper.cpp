//===- Wrapper.cpp - the C entry of a general graph ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "General/Wrapper.h"
#include "General/Outline.h"
#include "lathe/artifact/Graph.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include <cstddef>

namespace lathe::codegen {
using namespace mlir;
namespace {

class Entry {
public:
  explicit Entry(ModuleOp m) : module(m), b(m.getContext()), loc(m.getLoc()) {}
  LogicalResult build(ArrayRef<int64_t> interface, bool device);

private:
  /// The struct of the running call.
  Value current() { return LLVM::LoadOp::create(b, loc, pointer, LLVM::AddressOfOp::create(b, loc, pointer, "lathe_graph_call")); }
  LogicalResult reachDevice();
  void launchKernel(LLVM::LLVMFuncOp stub, int64_t index);

  /// A field of the current call.
  Value field(Value call, Type type, size_t offset) {
    Value at = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), call, ArrayRef<LLVM::GEPArg>{int32_t(offset)});
    return LLVM::LoadOp::create(b, loc, type, at);
  }
  /// Gives |name|, if the module uses it, a body that calls the callback at |offset| with the same arguments.
  void callBack(StringRef name, size_t offset) {
    auto fn = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
    if (!fn || !fn.isExternal()) return;
    fn.setLinkage(LLVM::Linkage::Internal);
    OpBuilder::InsertionGuard guard(b);
    Block *body = fn.addEntryBlock(b);
    b.setInsertionPointToStart(body);
    Value call = current();
    SmallVector<Value> operands{field(call, pointer, offset), field(call, pointer, offsetof(LatheGraphCall, context))};
    operands.append(body->args_begin(), body->args_end());
    SmallVector<Type> inputs{pointer};
    llvm::append_range(inputs, fn.getFunctionType().getParams());
    auto type = LLVM::LLVMFunctionType::get(fn.getFunctionType().getReturnType(), inputs);
    auto made = LLVM::CallOp::create(b, loc, type, operands);
    LLVM::ReturnOp::create(b, loc, made.getResults());
  }

  ModuleOp module;
  OpBuilder b;
  Location loc;
  Type pointer;
};

/// Whether |address| is on the stack of the function.
bool onStack(Value address) {
  while (auto gep = address.getDefiningOp<LLVM::GEPOp>())
    address = gep.getBase();
  return address.getDefiningOp<LLVM::AllocaOp>() != nullptr;
}

/// Every access of tensors becomes a call of one of the functions lathe_device_*.
LogicalResult Entry::reachDevice() {
  Type i64 = b.getI64Type(), nothing = LLVM::LLVMVoidType::get(b.getContext());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  auto declare = [&](StringRef name, Type result, ArrayRef<Type> inputs) { return LLVM::LLVMFuncOp::create(b, loc, name, LLVM::LLVMFunctionType::get(result, inputs)); };
  auto read = declare("lathe_device_read", i64, {pointer, i64}), write = declare("lathe_device_write", nothing, {pointer, i64, i64});
  auto copy = declare("lathe_device_copy", nothing, {pointer, pointer, i64}), constant = declare("lathe_device_constant", pointer, {pointer, i64});
  DataLayout layout(module);
  auto number = [&](int64_t n) { return LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(n)).getResult(); };
  SmallVector<Operation *> accesses;
  for (auto fn : module.getOps<LLVM::LLVMFuncOp>())
    if (fn.getSymName() != "_mlir_ciface_graph") // which reads the call's own structs
      fn.walk([&](Operation *op) { accesses.push_back(op); });
  for (Operation *op : accesses) {
    b.setInsertionPoint(op);
    if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
      if (onStack(load.getAddr())) continue;
      Type type = load.getType();
      unsigned bits = unsigned(layout.getTypeSizeInBits(type).getFixedValue());
      if (bits > 64) return op->emitError() << "expected an element of at most 64 bits, found " << type;
      Value x = LLVM::CallOp::create(b, loc, read, ValueRange{load.getAddr(), number(llvm::divideCeil(bits, 8))}).getResult();
      Type integer = b.getIntegerType(bits);
      if (bits < 64) x = LLVM::TruncOp::create(b, loc, integer, x);
      if (isa<LLVM::LLVMPointerType>(type)) x = LLVM::IntToPtrOp::create(b, loc, type, x);
      else if (type != integer) x = LLVM::BitcastOp::create(b, loc, type, x);
      load.replaceAllUsesWith(x);
      op->erase();
    } else if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
      if (onStack(store.getAddr())) continue;
      Value x = store.getValue();
      unsigned bits = unsigned(layout.getTypeSizeInBits(x.getType()).getFixedValue());
      if (bits > 64) return op->emitError() << "expected an element of at most 64 bits, found " << x.getType();
      Type integer = b.getIntegerType(bits);
      if (isa<LLVM::LLVMPointerType>(x.getType())) x = LLVM::PtrToIntOp::create(b, loc, integer, x);
      else if (x.getType() != integer) x = LLVM::BitcastOp::create(b, loc, integer, x);
      if (bits < 64) x = LLVM::ZExtOp::create(b, loc, i64, x);
      LLVM::CallOp::create(b, loc, write, ValueRange{store.getAddr(), number(llvm::divideCeil(bits, 8)), x});
      op->erase();
    } else if (auto move = dyn_cast<LLVM::MemcpyOp>(op)) {
      LLVM::CallOp::create(b, loc, copy, ValueRange{move.getDst(), move.getSrc(), move.getLen()});
      op->erase();
    } else if (auto address = dyn_cast<LLVM::AddressOfOp>(op)) {
      auto global = module.lookupSymbol<LLVM::GlobalOp>(address.getGlobalName());
      if (!global) continue;
      b.setInsertionPointAfter(op);
      auto made = LLVM::CallOp::create(b, loc, constant, ValueRange{address, number(int64_t(layout.getTypeSize(global.getGlobalType()).getFixedValue()))});
      address.getResult().replaceAllUsesExcept(made.getResult(), made);
    } else if (isa<LLVM::MemsetOp, LLVM::MemmoveOp>(op)) {
      return op->emitError() << "expected no such access of a GPU's memory";
    }
  }
  callBack("lathe_device_read", offsetof(LatheGraphCall, read));
  callBack("lathe_device_write", offsetof(LatheGraphCall, write));
  callBack("lathe_device_copy", offsetof(LatheGraphCall, copy));
  callBack("lathe_device_constant", offsetof(LatheGraphCall, constant));
  for (int64_t i = 0; auto stub = module.lookupSymbol<LLVM::LLVMFuncOp>(kernelName(size_t(i))); ++i)
    launchKernel(stub, i);
  return success();
}

/// Gives |stub| a body that launches kernel |index| with its arguments as words in memory. The first is the number of items.
void Entry::launchKernel(LLVM::LLVMFuncOp stub, int64_t index) {
  bool checked = stub->hasAttr("lathe.checked");
  stub->removeAttr("lathe.checked");
  stub.setLinkage(LLVM::Linkage::Internal);
  OpBuilder::InsertionGuard guard(b);
  Block *body = stub.addEntryBlock(b);
  b.setInsertionPointToStart(body);
  Type i64 = b.getI64Type();
  auto number = [&](int64_t n) { return LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(n)).getResult(); };
  int64_t count = body->getNumArguments();
  Value words = LLVM::AllocaOp::create(b, loc, pointer, i64, number(count), 8);
  for (auto [i, argument] : llvm::enumerate(body->getArguments())) {
    Value at = LLVM::GEPOp::create(b, loc, pointer, i64, words, ArrayRef<LLVM::GEPArg>{int32_t(i)});
    LLVM::StoreOp::create(b, loc, argument, at); // words and pointers alike
  }
  Value call = current();
  SmallVector<Value> operands{field(call, pointer, offsetof(LatheGraphCall, launch)), field(call, pointer, offsetof(LatheGraphCall, context)), number(index), number(checked),
                              body->getArgument(0), words, number(count)};
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), {pointer, i64, i64, i64, pointer, i64});
  LLVM::CallOp::create(b, loc, type, operands);
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

LogicalResult Entry::build(ArrayRef<int64_t> interface, bool device) {
  pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto graph = module.lookupSymbol<LLVM::LLVMFuncOp>("_mlir_ciface_graph");
  if (!graph) return module.emitError() << "expected a function 'graph' with a C interface";
  for (auto fn : module.getOps<LLVM::LLVMFuncOp>())
    if (!fn.isExternal()) fn.setLinkage(LLVM::Linkage::Internal);
  if (device && failed(reachDevice())) return failure();
  b.setInsertionPointToEnd(module.getBody());
  LLVM::GlobalOp::create(b, loc, pointer, false, LLVM::Linkage::Internal, "lathe_graph_call", Attribute(), 8)
      .getInitializerRegion()
      .emplaceBlock();
  {
    auto global = module.lookupSymbol<LLVM::GlobalOp>("lathe_graph_call");
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&global.getInitializerRegion().front());
    LLVM::ReturnOp::create(b, loc, ValueRange{LLVM::ZeroOp::create(b, loc, pointer)});
  }
  SmallVector<int64_t> words{int64_t(interface.size())};
  llvm::append_range(words, interface);
  auto wordsType = LLVM::LLVMArrayType::get(b.getI64Type(), words.size());
  LLVM::GlobalOp::create(b, loc, wordsType, true, LLVM::Linkage::External, graphInterfaceSymbol, b.getI64TensorAttr(words), 8);
  callBack("_mlir_memref_to_llvm_alloc", offsetof(LatheGraphCall, allocate));
  callBack("_mlir_memref_to_llvm_free", offsetof(LatheGraphCall, release));
  callBack("lathe_graph_fail", offsetof(LatheGraphCall, fail));

  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), {pointer});
  auto entry = LLVM::LLVMFuncOp::create(b, loc, "lathe_graph", type);
  Block *body = entry.addEntryBlock(b);
  b.setInsertionPointToStart(body);
  Value call = body->getArgument(0);
  LLVM::StoreOp::create(b, loc, call, LLVM::AddressOfOp::create(b, loc, pointer, "lathe_graph_call"));
  Value inputs = field(call, pointer, offsetof(LatheGraphCall, inputs));
  // The C interface takes pointers only: the results' place first, if there is one.
  unsigned parameters = graph.getFunctionType().getNumParams();
  bool hasResults = graph->hasAttr("lathe.results");
  SmallVector<Value> arguments;
  if (hasResults) arguments.push_back(field(call, pointer, offsetof(LatheGraphCall, results)));
  for (unsigned i = 0; arguments.size() < parameters; ++i)
    arguments.push_back(field(inputs, pointer, size_t(i) * 8));
  LLVM::CallOp::create(b, loc, graph, arguments);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  return success();
}

} // namespace

SmallVector<int64_t> graphInterface(FunctionType type) {
  SmallVector<int64_t> words{type.getNumInputs(), type.getNumResults()};
  for (TypeRange types : {TypeRange(type.getInputs()), TypeRange(type.getResults())})
    for (Type t : types) {
      auto tensor = cast<RankedTensorType>(t);
      words.push_back(llvm::divideCeil(tensor.getElementTypeBitWidth(), 8));
      words.push_back(tensor.getRank());
      for (int64_t n : tensor.getShape())
        words.push_back(ShapedType::isDynamic(n) ? -1 : n);
    }
  return words;
}

LogicalResult addGraphEntry(ModuleOp module, ArrayRef<int64_t> interface, bool device) { return Entry(module).build(interface, device); }

} // namespace lathe::codegen
