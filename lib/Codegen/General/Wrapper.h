//===- Wrapper.h - the C entry of a general graph ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace lathe::codegen {

/// What `lathe_graph_interface` says of functions of type |type| (tensors of known rank), without the word for its length (lathe/artifact/Graph.h).
llvm::SmallVector<int64_t> graphInterface(mlir::FunctionType type);

/// |module| is in the LLVM dialect and has `_mlir_ciface_graph`. Adds `lathe_graph`, its |interface|, and bodies for the functions that allocate,
/// release and fail, which call back through the call's struct. With |device| tensors are in a GPU's memory: what the functions read, write and copy there goes
/// through the struct as well, but for memory on their stack, and functions that stand for kernels launch them (Outline.h).
mlir::LogicalResult addGraphEntry(mlir::ModuleOp module, llvm::ArrayRef<int64_t> interface, bool device);

} // namespace lathe::codegen
