//===- LLMOps.cpp - verifiers and folders ----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/LLM/LLM.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lathe::llm;

#define GET_OP_CLASSES
#include "dialects/LLM/LLMOps.cpp.inc"

static int64_t width(Value v) { return cast<RankedTensorType>(v.getType()).getShape().back(); }
static int64_t height(Value v) { return cast<RankedTensorType>(v.getType()).getShape().front(); }

LogicalResult ParamOp::verify() {
  auto declared = cast<RankedTensorType>(getType());
  auto type = inferExpression(getValue(), [&] { return emitOpError(); });
  if (failed(type)) return failure();
  if (ArrayRef(type->shape) != declared.getShape() || type->storage != storageOf(declared)) {
    auto found = RankedTensorType::get(type->shape, elementType(getContext(), type->storage));
    return emitOpError() << "expected an expression of type " << declared << ", found " << found;
  }
  return success();
}

LogicalResult KVGroupOp::verify() {
  for (auto [i, attr] : llvm::enumerate(getLayers())) {
    auto layer = dyn_cast<KVLayerAttr>(attr);
    if (!layer) return emitOpError() << "expected #llm.kv_layer for layer " << i << ", found " << attr;
    if (layer.getHeads() <= 0 || layer.getKeySize() <= 0 || layer.getValueSize() <= 0)
      return emitOpError() << "layer " << i << ": expected positive head count and sizes, found " << layer;
  }
  if (getLayers().empty()) return emitOpError() << "expected at least one layer";
  if (int64_t(getWindow()) < 0) return emitOpError() << "expected a window of at least 0, found " << int64_t(getWindow());
  if (int64_t(getPage()) < 0 || getPage() % 16) return emitOpError() << "expected a page of a multiple of 16 tokens or 0, found " << int64_t(getPage());
  return success();
}

LogicalResult WeightOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto param = symbols.lookupNearestSymbolFrom<ParamOp>(*this, getParamAttr());
  if (!param) return emitOpError() << "expected a param named " << getParamAttr();
  if (param.getType() != getType()) {
    auto diagnostic = emitOpError() << "expected type " << param.getType() << " of " << getParamAttr() << ", found " << getType();
    diagnostic.attachNote(param.getLoc()) << "declared here";
    return diagnostic;
  }
  return success();
}

LogicalResult EmbedOp::verify() {
  if (width(getWeight()) != width(getResult()))
    return emitOpError() << "expected a result of width " << width(getWeight()) << ", found " << width(getResult());
  return success();
}

LogicalResult LinearOp::verify() {
  if (getWeights().empty()) return emitOpError() << "expected at least one weight";
  int64_t rows = 0;
  for (auto [i, weight] : llvm::enumerate(getWeights())) {
    if (width(weight) != width(getInput()))
      return emitOpError() << "weight " << i << ": expected rows of " << width(getInput()) << " elements as the input's, found " << width(weight);
    rows += height(weight);
  }
  if (rows != width(getResult()))
    return emitOpError() << "expected a result of width " << rows << " (the weights' rows), found " << width(getResult());
  if (getBias() && width(getBias()) != rows)
    return emitOpError() << "expected a bias of " << rows << " elements, found " << width(getBias());
  return success();
}

OpFoldResult ScaleOp::fold(FoldAdaptor) { return getFactor().convertToFloat() == 1.0f ? OpFoldResult(getInput()) : OpFoldResult(); }

OpFoldResult ColumnsOp::fold(FoldAdaptor) {
  return getBegin() == 0 && getInput().getType() == getType() ? OpFoldResult(getInput()) : OpFoldResult();
}

LogicalResult SoftcapOp::verify() {
  if (!(getCap().convertToFloat() > 0)) return emitOpError() << "expected a positive cap, found " << getCap().convertToFloat();
  return success();
}

LogicalResult RmsNormOp::verify() {
  if (int64_t(getHeads()) <= 0 || width(getInput()) != int64_t(getHeads()) * width(getWeight()))
    return emitOpError() << "expected " << getHeads() << " parts of " << width(getWeight()) << " elements (the weight's), found rows of " << width(getInput());
  return success();
}

LogicalResult LayerNormOp::verify() {
  if (width(getInput()) != width(getWeight()))
    return emitOpError() << "expected weight and bias of " << width(getInput()) << " elements, found " << width(getWeight());
  return success();
}

LogicalResult ColumnsOp::verify() {
  int64_t begin = getBegin(), end = begin + width(getResult());
  if (begin < 0 || end > width(getInput()))
    return emitOpError() << "columns " << begin << " .. " << end << " are outside a width of " << width(getInput());
  return success();
}

LogicalResult ArgmaxOp::verify() {
  if (width(getInput()) < 1 || width(getInput()) > maxArgmaxWidth)
    return emitOpError() << "expected rows of 1 to " << maxArgmaxWidth << " elements, found " << width(getInput());
  if (width(getResult()) != 2) return emitOpError() << "expected a result of width 2 (index, element), found " << width(getResult());
  return success();
}

LogicalResult AnglesOp::verify() {
  if (width(getResult()) != 2 * width(getFrequencies()))
    return emitOpError() << "expected " << 2 * width(getFrequencies()) << " columns for " << width(getFrequencies()) << " frequencies, found " << width(getResult());
  return success();
}

LogicalResult RopeOp::verify() {
  if (int64_t(getHeads()) <= 0 || width(getInput()) % getHeads())
    return emitOpError() << "expected rows that divide into " << getHeads() << " heads, found a width of " << width(getInput());
  if (width(getAngles()) % 2 || width(getAngles()) > width(getInput()) / int64_t(getHeads()))
    return emitOpError() << "expected at most " << width(getInput()) / int64_t(getHeads()) << " angle columns (the head size), found " << width(getAngles());
  return success();
}

/// Finds the layer that an op names, or reports.
static FailureOr<KVLayerAttr> verifyLayer(Operation *op, FlatSymbolRefAttr name, int64_t index, SymbolTableCollection &symbols) {
  auto group = symbols.lookupNearestSymbolFrom<KVGroupOp>(op, name);
  if (!group) return op->emitOpError() << "expected a kv_group named " << name;
  KVLayerAttr layer = lookupLayer(group, index);
  if (!layer) {
    auto diagnostic = op->emitOpError() << "expected a layer below " << group.getLayers().size() << ", found " << index;
    diagnostic.attachNote(group.getLoc()) << "group declared here";
    return diagnostic;
  }
  return layer;
}

LogicalResult KVAppendOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto layer = verifyLayer(*this, getGroupAttr(), int64_t(getLayer()), symbols);
  if (failed(layer)) return failure();
  int64_t k = layer->getHeads() * layer->getKeySize(), v = layer->getHeads() * layer->getValueSize();
  if (width(getKey()) != k || width(getValue()) != v)
    return emitOpError() << "expected keys of width " << k << " and values of width " << v << ", found " << width(getKey()) << " and " << width(getValue());
  return success();
}

LogicalResult AttentionOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto layer = verifyLayer(*this, getGroupAttr(), int64_t(getLayer()), symbols);
  if (failed(layer)) return failure();
  int64_t heads = getHeads();
  if (heads <= 0 || heads % layer->getHeads())
    return emitOpError() << "expected a multiple of " << layer->getHeads() << " KV heads, found " << heads << " query heads";
  if (width(getQuery()) != heads * layer->getKeySize() || width(getResult()) != heads * layer->getValueSize())
    return emitOpError() << "expected queries of width " << heads * layer->getKeySize() << " and a result of width "
                         << heads * layer->getValueSize() << ", found " << width(getQuery()) << " and " << width(getResult());
  return success();
}

LogicalResult FusedOp::verify() {
  Block &block = getBody().front();
  if (block.getArgumentTypes() != getInputs().getTypes()) return emitOpError() << "expected body arguments of the inputs' types";
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || yield.getValues().getTypes() != getResultTypes()) return emitOpError() << "expected the body to yield the results' types";
  return success();
}
