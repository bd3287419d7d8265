//===- Package.h - the parts of packaging -----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/Plan/Plan.h"
#include "lathe/artifact/Format.h"
#include "lathe/artifact/Program.h"
#include "lathe/base/Status.h"

namespace lathe {

/// The PROGRAM section of a plan.
Program buildProgram(plan::ProgramOp op, uint64_t scratch);

struct GpuCode {
  std::string ptx, cubin; ///< |cubin| is empty where there is no ptxas
  int kernels = 0;
};
/// Emits the kernels of a plan made for GPUs.
Result<GpuCode> buildGpuCode(plan::ProgramOp op, artifact::Variant variant, unsigned threads);

} // namespace lathe
