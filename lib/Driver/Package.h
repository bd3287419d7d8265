//===- Package.h - the parts of packaging -----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/Plan/Plan.h"
#include "lathe/artifact/Format.h"
#include "lathe/artifact/Program.h"
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace lathe {

/// The PROGRAM section of a plan.
Program buildProgram(plan::ProgramOp op, uint64_t scratch);

/// What emitters of every target say of a kernel whose parameters or family they do not take.
Status misfit(plan::KernelOp op);
Status unknownFamily(plan::KernelOp op);

/// A kernel with its body as text, and back in another context: jobs run in contexts of their own. Null if it does not parse.
std::string bodyText(plan::KernelOp op);
mlir::OwningOpRef<mlir::ModuleOp> parseBody(llvm::StringRef text, mlir::MLIRContext *context);

struct GpuCode {
  std::string ptx, cubin; ///< |cubin| is empty where there is no ptxas
  int kernels = 0;
};
/// |op|, a plan made for any GPU, with the kernels and launches that |variant|'s chip takes instead (nvptx::onChip).
Result<mlir::OwningOpRef<plan::ProgramOp>> planForChip(plan::ProgramOp op, artifact::Variant variant);
/// Emits the kernels of a plan made for GPUs.
Result<GpuCode> buildGpuCode(plan::ProgramOp op, artifact::Variant variant, unsigned threads);

} // namespace lathe
