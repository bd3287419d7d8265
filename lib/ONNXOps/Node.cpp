//===- Node.cpp ---------------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/Node.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace lathe::ops {
using namespace mlir;

int64_t NodeView::integer(StringRef attribute, int64_t otherwise) const {
  if (!attributes) return otherwise;
  auto a = dyn_cast_if_present<IntegerAttr>(attributes.get(attribute));
  return a ? (a.getType().isUnsignedInteger() ? int64_t(a.getValue().getZExtValue()) : a.getValue().getSExtValue()) : otherwise;
}
double NodeView::real(StringRef attribute, double otherwise) const {
  if (!attributes) return otherwise;
  auto a = dyn_cast_if_present<FloatAttr>(attributes.get(attribute));
  return a ? a.getValueAsDouble() : otherwise;
}
StringRef NodeView::string(StringRef attribute, StringRef otherwise) const {
  if (!attributes) return otherwise;
  auto a = dyn_cast_if_present<StringAttr>(attributes.get(attribute));
  return a ? a.getValue() : otherwise;
}
std::optional<SmallVector<int64_t>> NodeView::integers(StringRef attribute) const {
  Attribute a = attributes ? attributes.get(attribute) : Attribute();
  if (auto array = dyn_cast_if_present<DenseI64ArrayAttr>(a)) return SmallVector<int64_t>(array.asArrayRef());
  SmallVector<int64_t> values;
  if (auto elements = dyn_cast_if_present<DenseIntElementsAttr>(a)) {
    for (const APInt &v : elements.getValues<APInt>())
      values.push_back(v.getSExtValue());
    return values;
  }
  auto array = dyn_cast_if_present<ArrayAttr>(a);
  if (!array) return std::nullopt;
  for (Attribute v : array) {
    auto number = dyn_cast<IntegerAttr>(v);
    if (!number) return std::nullopt;
    values.push_back(number.getValue().getSExtValue());
  }
  return values;
}
std::optional<SmallVector<double>> NodeView::reals(StringRef attribute) const {
  Attribute a = attributes ? attributes.get(attribute) : Attribute();
  SmallVector<double> values;
  if (auto array = dyn_cast_if_present<DenseF32ArrayAttr>(a)) {
    for (float v : array.asArrayRef())
      values.push_back(v);
    return values;
  }
  auto array = dyn_cast_if_present<ArrayAttr>(a);
  if (!array) return std::nullopt;
  for (Attribute v : array) {
    auto number = dyn_cast<FloatAttr>(v);
    if (!number) return std::nullopt;
    values.push_back(number.getValueAsDouble());
  }
  return values;
}

std::string NodeView::where() const {
  std::string in = domain.empty() || domain == "ai.onnx" ? "" : domain + " ";
  return "node '" + name + "' (" + op + ", " + in + "opset " + std::to_string(version) + ")";
}
LogicalResult NodeView::error(const Twine &expected, const Twine &found) const {
  return emitError(loc) << where() << ": expected " << expected << ", found " << found;
}

std::string elementText(Type element) {
  if (auto i = dyn_cast<IntegerType>(element)) {
    if (i.getWidth() == 1) return "bool";
    return (i.isUnsigned() ? "uint" : "int") + std::to_string(i.getWidth());
  }
  return llvm::TypeSwitch<Type, std::string>(element)
      .Case([](Float16Type) { return "float16"; })
      .Case([](BFloat16Type) { return "bfloat16"; })
      .Case([](Float32Type) { return "float"; })
      .Case([](Float64Type) { return "double"; })
      .Case([](Float8E4M3FNType) { return "float8e4m3fn"; })
      .Case([](Float8E4M3FNUZType) { return "float8e4m3fnuz"; })
      .Case([](Float8E5M2Type) { return "float8e5m2"; })
      .Case([](Float8E5M2FNUZType) { return "float8e5m2fnuz"; })
      .Case([](Float4E2M1FNType) { return "float4e2m1"; })
      .Case([](Float8E8M0FNUType) { return "float8e8m0"; })
      .Default([](Type t) {
        std::string text;
        llvm::raw_string_ostream(text) << t;
        return text;
      });
}
std::string typeText(Type type) {
  auto tensor = dyn_cast_if_present<RankedTensorType>(type);
  if (!tensor) return type ? "a value of type " + elementText(type) : "nothing";
  std::string text = elementText(tensor.getElementType()) + "[";
  for (auto [i, n] : llvm::enumerate(tensor.getShape()))
    text += (i ? "," : "") + (ShapedType::isDynamic(n) ? std::string("?") : std::to_string(n));
  return text + "]";
}

} // namespace lathe::ops
