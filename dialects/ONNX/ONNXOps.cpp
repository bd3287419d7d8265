//===- ONNXOps.cpp - verifiers and accessors -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/ONNX/ONNX.h"
#include "lathe/ONNX/Operators.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace lathe::onnx;

#define GET_OP_CLASSES
#include "dialects/ONNX/ONNXOps.cpp.inc"

int64_t NodeOp::getInt(StringRef name, int64_t fallback) {
  auto value = dyn_cast_or_null<IntegerAttr>(getNodeAttr(name));
  return value ? value.getInt() : fallback;
}
double NodeOp::getFloat(StringRef name, double fallback) {
  auto value = dyn_cast_or_null<FloatAttr>(getNodeAttr(name));
  return value ? value.getValueAsDouble() : fallback;
}
StringRef NodeOp::getString(StringRef name, StringRef fallback) {
  auto value = dyn_cast_or_null<StringAttr>(getNodeAttr(name));
  return value ? value.getValue() : fallback;
}
ArrayRef<int64_t> NodeOp::getInts(StringRef name) {
  auto value = dyn_cast_or_null<DenseI64ArrayAttr>(getNodeAttr(name));
  return value ? value.asArrayRef() : ArrayRef<int64_t>();
}
Value NodeOp::input(unsigned i) {
  if (i >= getInputs().size() || isa<NoneType>(getInputs()[i].getType())) return Value();
  return getInputs()[i];
}

void NodeOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  // Two draws of a random number are not one.
  StringRef op = getOpType();
  if (op.starts_with("Random") || op == "Bernoulli" || op == "Multinomial" || op == "Dropout")
    effects.emplace_back(MemoryEffects::Write::get());
}

static bool fits(AttributeSchema::Kind kind, Attribute value) {
  switch (kind) {
  case AttributeSchema::number: return isa<FloatAttr>(value);
  case AttributeSchema::integer: return isa<IntegerAttr>(value);
  case AttributeSchema::string: return isa<StringAttr>(value);
  case AttributeSchema::tensor: return isa<ElementsAttr>(value);
  case AttributeSchema::numbers: return isa<DenseF32ArrayAttr>(value);
  case AttributeSchema::integers: return isa<DenseI64ArrayAttr>(value);
  case AttributeSchema::strings: return isa<ArrayAttr>(value);
  default: return false;
  }
}

static const char *kindText(AttributeSchema::Kind kind) {
  switch (kind) {
  case AttributeSchema::number: return "a float";
  case AttributeSchema::integer: return "an integer";
  case AttributeSchema::string: return "a string";
  case AttributeSchema::tensor: return "a tensor";
  case AttributeSchema::graph: return "a subgraph";
  case AttributeSchema::numbers: return "a list of floats";
  case AttributeSchema::integers: return "a list of integers";
  case AttributeSchema::strings: return "a list of strings";
  default: return "no value that the dialect holds";
  }
}

/// Attributes that say yes or no. What a runtime makes of another number is its own affair (some ask for 1, some for anything but 0), so there is none.
static bool isFlag(StringRef attribute) {
  return llvm::is_contained({"causal", "do_rotary", "interleaved", "is_causal", "is_packed_batching", "rotary_interleaved", "unidirectional"}, attribute);
}

LogicalResult NodeOp::verify() {
  auto found = findOperator(getDomain(), getOpType(), getVersion());
  if (!found.ok()) return emitOpError() << "'" << getOpType() << "': " << found.status().message();
  const Operator &op = **found;
  if (op.since != static_cast<int64_t>(getVersion()))
    return emitOpError() << "'" << getOpType() << "': expected the version that operator set " << op.since << " introduced, found " << getVersion();
  auto check = [&](const char *what, size_t count, int fewest, int most) -> LogicalResult {
    if (count >= static_cast<size_t>(fewest) && (most < 0 || count <= static_cast<size_t>(most))) return success();
    auto diagnostic = emitOpError() << "'" << getOpType() << "': expected " << fewest;
    if (most < 0) diagnostic << " or more";
    else if (most != fewest) diagnostic << " to " << most;
    return diagnostic << " " << what << ", found " << count;
  };
  if (failed(check("inputs", getInputs().size(), op.minInputs, op.maxInputs))) return failure();
  if (failed(check("outputs", getOutputs().size(), op.minOutputs, op.maxOutputs))) return failure();
  auto graphs = op.graphs();
  if (getBodies().size() != graphs.size())
    return emitOpError() << "'" << getOpType() << "': expected " << graphs.size() << " subgraphs, found " << getBodies().size();
  for (Region &body : getBodies())
    if (!body.hasOneBlock() || !isa<YieldOp>(body.front().back()))
      return emitOpError() << "'" << getOpType() << "': expected subgraphs of one block that ends in onnx.yield";
  for (NamedAttribute entry : getAttrs()) {
    const AttributeSchema *schema = op.attribute(entry.getName().getValue());
    if (!schema) return emitOpError() << "'" << getOpType() << "': attribute '" << entry.getName().getValue() << "' is not known to version " << op.since;
    if (!fits(schema->kind, entry.getValue()))
      return emitOpError() << "'" << getOpType() << "': attribute '" << entry.getName().getValue() << "': expected " << kindText(schema->kind) << ", found " << entry.getValue();
    auto number = dyn_cast<IntegerAttr>(entry.getValue());
    if (number && isFlag(entry.getName().getValue()) && number.getValue().ugt(1))
      return emitOpError() << "'" << getOpType() << "': attribute '" << entry.getName().getValue() << "': expected 0 or 1, found " << number.getValue().getSExtValue();
  }
  for (const AttributeSchema &schema : op.attributes)
    if (schema.required && schema.kind != AttributeSchema::graph && schema.kind != AttributeSchema::other && !getAttrs().contains(schema.name))
      return emitOpError() << "'" << getOpType() << "': expected an attribute '" << schema.name << "'";
  return success();
}

LogicalResult ParamOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape()) return emitOpError() << "expected a tensor of known sizes, found " << getType();
  if (auto elements = dyn_cast<ElementsAttr>(getValue())) {
    if (elements.getShapedType() != type) return emitOpError() << "expected a value of type " << type << ", found " << elements.getShapedType();
    return success();
  }
  auto file = dyn_cast<FileAttr>(getValue());
  if (!file) return emitOpError() << "expected #onnx.file or a dense value, found " << getValue();
  int64_t bits = dataTypeBits(dataType(type.getElementType())), bytes = (type.getNumElements() * bits + 7) / 8;
  if (!bits || file.getOffset() < 0 || file.getBytes() != bytes)
    return emitOpError() << "expected " << bytes << " bytes of " << type << " at a positive offset, found " << file.getBytes() << " at " << file.getOffset();
  return success();
}

LogicalResult WeightOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto param = symbols.lookupNearestSymbolFrom<ParamOp>(*this, getParamAttr());
  if (!param) return emitOpError() << "expected an onnx.param named " << getParamAttr();
  if (param.getType() != getType()) return emitOpError() << "expected type " << param.getType() << " of " << getParamAttr() << ", found " << getType();
  return success();
}
