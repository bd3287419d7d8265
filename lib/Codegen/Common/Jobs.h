//===- Jobs.h - kernels built side by side ---------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>
#include <vector>

namespace lathe::codegen {

/// The steps of a kernel's way, called on any thread: they share nothing but what is theirs to read.
struct JobSteps {
  llvm::function_ref<llvm::StringRef(size_t job)> symbol;
  llvm::function_ref<mlir::LogicalResult(size_t job, mlir::ModuleOp)> emit; ///< fills an empty module
  llvm::function_ref<Result<std::string>(mlir::ModuleOp)> lower;            ///< to an object or a text
};

/// Emits and lowers |count| kernels on |threads| threads (0: all cores), each with an MLIRContext of its own. The results are in
/// the order of the jobs, and the error is that of the first job that fails, whatever the threads did: unsupported with
/// the emitter's diagnostics and |target|, or what |lower| says, at the kernel.
Result<std::vector<std::string>> runJobs(size_t count, unsigned threads, const char *target, const JobSteps &steps);

} // namespace lathe::codegen
