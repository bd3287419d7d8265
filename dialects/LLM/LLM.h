//===- LLM.h - the llm dialect -------------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Packing.h"
#include "lathe/weights/WeightRows.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/LLM/LLMDialect.h.inc"
#include "dialects/LLM/LLMEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/LLM/LLMTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/LLM/LLMAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/LLM/LLMOps.h.inc"

namespace lathe::llm {

/// Rows that llm.argmax takes: every index below is exact as a float32.
inline constexpr int64_t maxArgmaxWidth = int64_t(1) << 24;

/// Storage and shape of a weight tensor type ([rows, k] or [k]).
Storage storageOf(mlir::Type tensor);
inline StorageType storageType(Storage s) { return static_cast<StorageType>(s); }
/// The element type that stands for |s|: f32, f16, bf16 or !llm.q<s>.
mlir::Type elementType(mlir::MLIRContext *context, Storage s);

/// Shape and storage of a weight expression (LLMAttrs.td), or failure with a message.
struct ExpressionType {
  llvm::SmallVector<int64_t> shape;
  Storage storage;
};
mlir::FailureOr<ExpressionType> inferExpression(mlir::Attribute expression,
                                                llvm::function_ref<mlir::InFlightDiagnostic()> emitError);

/// The matrix of a #llm.nbits; |open| gives a mapped file by its path.
template <typename Open>
Result<NBitsMatrix> nbitsMatrix(NBitsAttr a, Open open) {
  NBitsMatrix matrix;
  matrix.name = a.getName().str();
  matrix.rows = a.getShape()[0], matrix.columns = a.getShape()[1];
  matrix.bits = static_cast<int>(a.getBits()), matrix.block = a.getBlock();
  matrix.scaleStorage = storageType(a.getScaleStorage());
  matrix.codesOffset = a.getCodesOffset(), matrix.scalesOffset = a.getScalesOffset(), matrix.zerosOffset = a.getZerosOffset();
  LATHE_ASSIGN_OR_RETURN(matrix.codes, open(a.getCodes().str()));
  LATHE_ASSIGN_OR_RETURN(matrix.scales, open(a.getScales().str()));
  if (!a.getZeros().empty()) {
    LATHE_ASSIGN_OR_RETURN(matrix.zeros, open(a.getZeros().str()));
  }
  return matrix;
}

/// The matrix of a #llm.qdq that inferExpression accepts.
template <typename Open>
Result<QDQMatrix> qdqMatrix(QDQAttr a, Open open) {
  using Code = QDQMatrix::Code;
  QDQMatrix matrix;
  matrix.name = a.getName().str();
  matrix.rows = a.getShape()[0], matrix.columns = a.getShape()[1];
  matrix.code = a.getCode() == "int8" ? Code::int8 : a.getCode() == "uint8" ? Code::uint8 : a.getCode() == "int4" ? Code::int4 : Code::uint4;
  matrix.transposed = a.getRowAxis() == 1;
  matrix.block[0] = a.getBlock()[0], matrix.block[1] = a.getBlock()[1];
  matrix.scaleStorage = storageType(a.getScaleStorage()), matrix.target = storageType(a.getStorage());
  matrix.codesOffset = a.getCodesOffset(), matrix.scalesOffset = a.getScalesOffset(), matrix.zerosOffset = a.getZerosOffset();
  LATHE_ASSIGN_OR_RETURN(matrix.codes, open(a.getCodes().str()));
  if (a.getScales().empty()) {
    matrix.scaleValues.assign(a.getScaleValues().asArrayRef().begin(), a.getScaleValues().asArrayRef().end());
  } else {
    LATHE_ASSIGN_OR_RETURN(matrix.scales, open(a.getScales().str()));
  }
  if (a.getZeros().empty()) {
    matrix.zeroValues.assign(a.getZeroValues().asArrayRef().begin(), a.getZeroValues().asArrayRef().end());
  } else {
    LATHE_ASSIGN_OR_RETURN(matrix.zeros, open(a.getZeros().str()));
  }
  return matrix;
}

/// The matrix of a #llm.scaled that inferExpression accepts.
template <typename Open>
Result<ScaledMatrix> scaledMatrix(ScaledAttr a, Open open) {
  ScaledMatrix matrix;
  matrix.name = a.getName().str();
  matrix.rows = a.getShape()[0], matrix.columns = a.getShape()[1];
  matrix.perRow = a.getPerRow(), matrix.scaleStorage = storageType(a.getScaleStorage());
  matrix.codesOffset = a.getCodesOffset(), matrix.scalesOffset = a.getScalesOffset();
  LATHE_ASSIGN_OR_RETURN(matrix.codes, open(a.getCodes().str()));
  LATHE_ASSIGN_OR_RETURN(matrix.scales, open(a.getScales().str()));
  return matrix;
}

/// What the module says about a group's layer; null when out of range (the verifier excludes it).
KVGroupOp lookupGroup(mlir::Operation *from, mlir::FlatSymbolRefAttr group);
KVLayerAttr lookupLayer(KVGroupOp group, int64_t layer);

} // namespace lathe::llm
