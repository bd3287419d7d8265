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

/// A megakernel for a bucket, and what it is for: buckets of equal bodies share one.
struct BucketMegakernel {
  std::string symbol;
  uint32_t entry = 0, bucket = 0;
  std::vector<std::string> bodies;
  BlockShape shape;
  uint32_t maxArgs = 0;
  uint32_t launches = 0, pieces = 0; ///< of the bucket; what is left to launch
};
struct GpuCode {
  std::string ptx, cubin; ///< |cubin| is empty where there is no ptxas
  std::vector<std::string> complaints; ///< of ptxas (nvptx::complaints)
  int kernels = 0;
  std::string chip;
  std::vector<BucketMegakernel> megakernels;
};
/// |op|, a plan made for any GPU, with the kernels and launches that |variant|'s chip takes instead (nvptx::onChip), or, with |megakernel|, that fit into megakernels
/// (nvptx::asBody).
Result<mlir::OwningOpRef<plan::ProgramOp>> planForChip(plan::ProgramOp op, artifact::Variant variant, bool megakernel);
/// Emits the kernels of a plan made for GPUs, and with |megakernel| one more for each bucket of few rows.
Result<GpuCode> buildGpuCode(plan::ProgramOp op, artifact::Variant variant, bool megakernel, unsigned threads);
/// Adds the megakernels of |code| to the program of the same plan.
void addMegakernels(Program &program, const GpuCode &code);

} // namespace lathe
