//===- General.h - general graphs to machine code ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What onnx-to-linalg leaves (func @graph over tensors) becomes one object with the symbol lathe_graph
// (lathe/artifact/Graph.h): one-shot bufferization, loops, LLVM. No fast-math flag is set. The code calls functions of
// libm and memcpy, memset and memmove of libc, nothing else; docs/onnx-operators.md lists them.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Kernels.h"
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <vector>

namespace lathe::codegen {

/// Registers what the lowering of general graphs needs of upstream's dialects.
void registerGeneralDialects(mlir::DialectRegistry &registry);

/// Lowers |module| (which is consumed) and compiles it; linkGraph makes a shared object of it.
Result<std::string> compileGraph(mlir::ModuleOp module, X86Target target);

/// A graph for a GPU: loops are kernels, and |object| is what the host does between them (docs/onnx-operators.md, "On a GPU").
struct GpuGraph {
  std::string object; ///< lathe_graph for x86-64 with AVX2; it calls the second half of LatheGraphCall
  std::string ptx;
  std::vector<std::string> kernels; ///< by the number that a launch has; blocks of graphBlockThreads
};
/// The same for |variant|, a GPU. Errors: unsupported (an instruction that the chip lacks), internal.
Result<GpuGraph> compileGraphForGpu(mlir::ModuleOp module, artifact::Variant variant);

/// A shared object that needs libm and libc.
Result<std::string> linkGraph(const std::string &object);

} // namespace lathe::codegen
