//===- Utils.h - what the llm passes share --------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/LLM/LLM.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Pass/Pass.h"

namespace lathe::llm {

/// Says at |op| why pass |pass| left it alone. Free when remarks are off.
void missed(mlir::Operation *op, const char *pass, const char *why);

/// True when |ops| (of one block, in order) can become one op where the last one is: nobody else
/// uses their results before that place.
bool canFuse(llvm::ArrayRef<mlir::Operation *> ops);

/// Moves |ops| into a new llm.fused of |kind| where the last one is. Inputs are the operands from outside in order of
/// first use, results what the outside uses in order of definition. Precondition: canFuse.
FusedOp fuse(llvm::StringRef kind, llvm::ArrayRef<mlir::Operation *> ops);

/// The op that uses |value|'s single use if it is an OpTy of the same block, else null.
template <typename OpTy>
OpTy onlyUser(mlir::Value value) {
  if (!value.hasOneUse()) return nullptr;
  auto user = llvm::dyn_cast<OpTy>(*value.user_begin());
  return user && user->getBlock() == value.getParentBlock() ? user : nullptr;
}

/// |name| with "suffix" appended to the NameLoc of |of|'s definition; |of|'s location when it has no name.
mlir::Location derivedLoc(mlir::Value of, llvm::StringRef suffix);

inline int64_t widthOf(mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()).getShape().back(); }
/// Whether a linear's products with weights of |s| are floats, whatever the activations are.
inline bool isFloatStorage(Storage s) { return lathe::packedLayout(storageType(s)).isFloat(); }

} // namespace lathe::llm
