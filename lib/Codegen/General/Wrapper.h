//===- Wrapper.h - the C entry of a general graph ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"

namespace lathe::codegen {

/// |module| is in the LLVM dialect and has `_mlir_ciface_graph`. Adds `lathe_graph`, and bodies for the functions that allocate, release
/// and fail, which call back through the call's struct.
mlir::LogicalResult addGraphEntry(mlir::ModuleOp module);

} // namespace lathe::codegen
