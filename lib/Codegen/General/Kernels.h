//===- Kernels.h - kernels of a general graph to PTX ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include <string>

namespace mlir {
class OpPassManager;
}

namespace lathe::codegen {

/// What lowers loops over memory to the LLVM dialect. On the |host| functions of libm and generic names of malloc and free are called.
void addLoweringToLLVM(mlir::OpPassManager &pm, bool host);

/// Lowers the functions that outlineKernels() made (changed in place) to PTX for |variant|, a GPU. What PTX has no instruction for (exp, sin, fmod, ...) is
/// computed in double by DeviceMath.c, which is linked in. Errors: those of nvptx::lowerToPtx().
Result<std::string> graphKernelsToPtx(mlir::ModuleOp kernels, artifact::Variant variant);

} // namespace lathe::codegen
