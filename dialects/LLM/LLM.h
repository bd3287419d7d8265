//===- LLM.h - the llm dialect -------------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Packing.h"
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

/// What the module says about a group's layer; null when out of range (the verifier excludes it).
KVGroupOp lookupGroup(mlir::Operation *from, mlir::FlatSymbolRefAttr group);
KVLayerAttr lookupLayer(KVGroupOp group, int64_t layer);

} // namespace lathe::llm
