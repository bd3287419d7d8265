//===- Wrapper.cpp - the C entry of a general graph ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "General/Wrapper.h"
#include "lathe/artifact/Graph.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include <cstddef>

namespace lathe::codegen {
using namespace mlir;
namespace {

class Entry {
public:
  explicit Entry(ModuleOp m) : module(m), b(m.getContext()), loc(m.getLoc()) {}
  LogicalResult build(ArrayRef<int64_t> interface);

private:
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
    Value address = LLVM::AddressOfOp::create(b, loc, pointer, "lathe_graph_call");
    Value call = LLVM::LoadOp::create(b, loc, pointer, address);
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

LogicalResult Entry::build(ArrayRef<int64_t> interface) {
  pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto graph = module.lookupSymbol<LLVM::LLVMFuncOp>("_mlir_ciface_graph");
  if (!graph) return module.emitError() << "expected a function 'graph' with a C interface";
  for (auto fn : module.getOps<LLVM::LLVMFuncOp>())
    if (!fn.isExternal()) fn.setLinkage(LLVM::Linkage::Internal);
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

LogicalResult addGraphEntry(ModuleOp module, ArrayRef<int64_t> interface) { return Entry(module).build(interface); }

} // namespace lathe::codegen
