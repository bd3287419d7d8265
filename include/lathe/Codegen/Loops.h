//===- Loops.h - elementwise bodies over rows -----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Params.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe::codegen {

/// |body| is the region of a kernel.loops op, or null for a copy. Fails with a diagnostic at an op it has no vector form for.
mlir::LogicalResult emitLoops(mlir::ModuleOp module, llvm::StringRef symbol, const LoopsParams &p, mlir::Region *body, X86Target target);

} // namespace lathe::codegen
