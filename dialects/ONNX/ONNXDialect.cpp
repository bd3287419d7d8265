//===- ONNXDialect.cpp - types and attributes ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/ONNX/ONNX.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lathe::onnx;

#include "dialects/ONNX/ONNXDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/ONNX/ONNXTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/ONNX/ONNXAttrs.cpp.inc"

void ONNXDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/ONNX/ONNXTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/ONNX/ONNXAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/ONNX/ONNXOps.cpp.inc"
      >();
}

namespace lathe::onnx {

Type elementType(MLIRContext *context, DataType type) {
  Builder b(context);
  switch (type) {
  case DataType::float32: return b.getF32Type();
  case DataType::float64: return b.getF64Type();
  case DataType::float16: return b.getF16Type();
  case DataType::bfloat16: return b.getBF16Type();
  case DataType::int8: return b.getIntegerType(8);
  case DataType::int16: return b.getIntegerType(16);
  case DataType::int32: return b.getIntegerType(32);
  case DataType::int64: return b.getIntegerType(64);
  case DataType::int4: return b.getIntegerType(4);
  case DataType::uint8: return b.getIntegerType(8, false);
  case DataType::uint16: return b.getIntegerType(16, false);
  case DataType::uint32: return b.getIntegerType(32, false);
  case DataType::uint64: return b.getIntegerType(64, false);
  case DataType::uint4: return b.getIntegerType(4, false);
  case DataType::boolean: return b.getI1Type();
  case DataType::float8e4m3fn: return Float8E4M3FNType::get(context);
  case DataType::float8e4m3fnuz: return Float8E4M3FNUZType::get(context);
  case DataType::float8e5m2: return Float8E5M2Type::get(context);
  case DataType::float8e5m2fnuz: return Float8E5M2FNUZType::get(context);
  case DataType::float4e2m1: return Float4E2M1FNType::get(context);
  case DataType::float8e8m0: return Float8E8M0FNUType::get(context);
  case DataType::string: return StringType::get(context);
  case DataType::undefined: return AnyType::get(context);
  default: return Type();
  }
}

DataType dataType(Type element) {
  for (int number = 1; number <= static_cast<int>(DataType::int2); ++number)
    if (elementType(element.getContext(), static_cast<DataType>(number)) == element) return static_cast<DataType>(number);
  return DataType::undefined;
}

} // namespace lathe::onnx
