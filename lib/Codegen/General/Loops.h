//===- Loops.h - loops of a general graph become functions ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"

namespace lathe::codegen {

/// Prefix of the functions' names.
extern const char graphLoop[];

/// |module| holds `func @graph` over buffers, with loops (scf.for) instead of linalg ops. Every outermost loop nest becomes a private function and a call of it; equal
/// nests (of equal layers) are one function. LLVM's analyses of loops take more than twice as long for a function of twice as many loops, so that one function for a
/// whole graph would take minutes where this takes seconds. Returns the number of functions.
///
///   scf.for %i = %c0 to %n step %c1 {                       call @lathe_graph_loop_0(%n, %a, %b) : (index, memref<?xf32>, memref<?xf32>) -> ()
///     %x = memref.load %a[%i] : memref<?xf32>        ->
///     memref.store %x, %b[%i] : memref<?xf32>
///   }
size_t outlineLoops(mlir::ModuleOp module);

} // namespace lathe::codegen
