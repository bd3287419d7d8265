//===- ONNX.h - the onnx dialect -----------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/ONNX.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/ONNX/ONNXDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/ONNX/ONNXTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/ONNX/ONNXAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/ONNX/ONNXOps.h.inc"

namespace lathe::onnx {

using onnxfile::DataType;
using onnxfile::dataTypeBits;
using onnxfile::dataTypeName;

/// The MLIR type of an element: int8 is i8, uint8 ui8, bool i1, string !onnx.string. Null for types without one (complex, 2 bits).
mlir::Type elementType(mlir::MLIRContext *context, DataType type);
/// The reverse; undefined for a type that no ONNX tensor has.
DataType dataType(mlir::Type element);

/// Values of at most this many bytes may be constants in the IR.
constexpr int64_t maxConstantBytes = 64 << 10;

} // namespace lathe::onnx
