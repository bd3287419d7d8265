//===- Kernel.cpp - the kernel dialect --------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/Kernel/Kernel.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lathe;
using namespace lathe::kernel;

#include "dialects/Kernel/KernelDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/Kernel/KernelTypes.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/Kernel/KernelOps.cpp.inc"

void KernelDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Kernel/KernelOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Kernel/KernelTypes.cpp.inc"
      >();
}

LogicalResult MatmulOp::verify() {
  if (getWeights().empty() || getWeights().size() != getColumns().size())
    return emitOpError() << "expected one column offset for each weight, found " << getWeights().size() << " weights and "
                         << getColumns().size() << " offsets";
  if (getGlu() && getWeights().size() != 1) return emitOpError() << "expected one interleaved weight with glu, found " << getWeights().size();
  if (getArgmax() && (getWeights().size() != 1 || getGlu() || getResidual()))
    return emitOpError() << "expected one weight and neither glu nor residual with argmax, found " << getWeights().size() << " weights";
  if (bool(getGlu()) != isa<ActType>(getResult().getType()))
    return emitOpError() << "expected activations as the result exactly with glu, found " << getResult().getType();
  return success();
}

LogicalResult ArgmaxOp::verify() {
  auto in = getInput().getType(), out = getResult().getType();
  if (out.getWidth() != 2 || out.getOut() != in.getOut()) return emitOpError() << "expected a result of width 2 over the input's rows, found " << out;
  if (getPairs() && in.getWidth() % 2) return emitOpError() << "expected as many indexes as values, found a width of " << in.getWidth();
  return success();
}

LogicalResult ViewOp::verify() {
  auto in = getInput().getType(), out = getResult().getType();
  int64_t begin = getBegin();
  if (begin < 0 || begin + out.getWidth() > in.getStride())
    return emitOpError() << "columns " << begin << " .. " << begin + out.getWidth() << " are outside a stride of " << in.getStride();
  if (in.getStride() != out.getStride() || in.getOut() != out.getOut())
    return emitOpError() << "expected the input's stride " << in.getStride() << ", found " << out.getStride();
  return success();
}

LogicalResult LoopsOp::verify() {
  Block &block = getBody().front();
  if (block.getNumArguments() != getInputs().size() || !llvm::all_of(block.getArgumentTypes(), [](Type t) { return t.isF32(); }))
    return emitOpError() << "expected one f32 body argument for each of " << getInputs().size() << " inputs";
  for (Value input : getInputs())
    if (cast<RowsType>(input.getType()).getWidth() != getResult().getType().getWidth())
      return emitOpError() << "expected inputs of width " << getResult().getType().getWidth() << ", found " << input.getType();
  return success();
}

/// Stored as bytes, with a page of float32 scales behind them.
static bool isByte(llm::KVFormat format) { return format == llm::KVFormat::int8 || format == llm::KVFormat::e4m3; }

static int64_t kvBytes(llm::KVFormat format, int64_t page, int64_t size) {
  switch (format) {
  case llm::KVFormat::f32: return page * size * 4;
  case llm::KVFormat::f16: case llm::KVFormat::bf16: return page * size * 2;
  case llm::KVFormat::int8: case llm::KVFormat::e4m3: return page * size + page * 4;
  }
  return 0;
}

KVGeometry lathe::kernel::kvGeometry(llm::KVGroupOp group, int64_t layer) {
  KVGeometry g;
  int64_t page = group.getPage(), at = 0;
  for (auto [i, attr] : llvm::enumerate(group.getLayers())) {
    auto kv = cast<llm::KVLayerAttr>(attr);
    int64_t head = llvm::alignTo(kvBytes(group.getKey(), page, kv.getKeySize()) + kvBytes(group.getValue(), page, kv.getValueSize()), 64);
    if (int64_t(i) == layer) {
      g.layerOffset = at;
      g.headStride = head;
    }
    at += kv.getHeads() * head;
  }
  g.blockStride = at;
  return g;
}

llvm::SmallVector<int64_t> lathe::kernel::kvPlanes(llm::KVGroupOp group) {
  llvm::SmallVector<int64_t> out;
  int64_t page = group.getPage();
  for (auto [i, attr] : llvm::enumerate(group.getLayers())) {
    auto kv = cast<llm::KVLayerAttr>(attr);
    KVGeometry g = kvGeometry(group, i);
    auto add = [&](int64_t offset, int64_t pieces, int64_t bytes) {
      bool strided = pieces > 1; // K: the dimension outside, 16 tokens inside
      out.append({kv.getHeads(), g.layerOffset + offset, g.headStride, 16 * pieces * bytes, pieces, strided ? 16 * bytes : 0, bytes});
    };
    auto element = [](llm::KVFormat f) { return kvBytes(f, 16, 1) / 16 - (isByte(f) ? 4 : 0); };
    int64_t key = element(group.getKey()), value = element(group.getValue()), keyPlane = kvBytes(group.getKey(), page, kv.getKeySize());
    add(0, kv.getKeySize(), key);
    if (isByte(group.getKey())) add(page * kv.getKeySize(), 1, 4);
    add(keyPlane, 1, kv.getValueSize() * value);
    if (isByte(group.getValue())) add(keyPlane + page * kv.getValueSize(), 1, 4);
  }
  return out;
}
