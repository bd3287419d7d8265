//===- Outline.h - loops of a general graph become kernels ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

namespace lathe::codegen {

/// Kernels of a graph: functions over memrefs in a module of their own, by index.
struct GraphKernels {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<std::string> names;
};
/// The name of the function that stands for kernel |i| in the host's module.
std::string kernelName(size_t i);

/// |module| holds `func @graph` over buffers, with loops (scf) instead of linalg ops. Every outermost loop nest that neither allocates nor hands memory on becomes
/// a kernel, and a call of a function without a body, `lathe_graph_kernel_N(items, arguments...)`: a scf.parallel with one item for each of its iterations, a
/// scf.for, whose iterations have an order, with one item for all. Equal nests (of equal layers) are one kernel. What is left stays the host's, in the same order.
///
/// A kernel is func.func @lathe_graph_kernel_N(%items: i64, memrefs..., i64..., %status: i64): scalars are 64 bits wide, so that a launch is a list of
/// words. A failed check stores its number + 1 at %status and ends the thread.
///
///   scf.parallel (%i) = (%c0) to (%n) step (%c1) {          %items = arith.index_cast %n : index to i64
///     %x = memref.load %a[%i] : memref<?xf32>        ->     call @lathe_graph_kernel_0(%items, %a, %b) : (i64, memref<?xf32>, memref<?xf32>) -> ()
///     memref.store %x, %b[%i] : memref<?xf32>
///     scf.reduce
///   }
GraphKernels outlineKernels(mlir::ModuleOp module);

} // namespace lathe::codegen
