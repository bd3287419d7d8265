//===- Megakernel.h - many launches in one kernel --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A persistent kernel that does the launches of a step one after the other, with a barrier of the whole grid where one needs the one before
// (docs/ptx.md, "Megakernel"). Bodies are the kernels' own emitters: in a module of bodies they make functions of a block's number
// instead of kernels (GpuEmitter.h), which LLVM inlines where the megakernel calls them.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/Kernels.h"
#include "NVPTX/Lower.h"
#include <memory>

namespace lathe::codegen::nvptx {

/// How a megakernel is launched: as many blocks as the chip keeps at a time, at most.
struct MegakernelShape {
  int64_t threads = 0, sharedBytes = 0; ///< dynamic
  int64_t maxArgs = 0;                  ///< of a record of its table (lathe/artifact/Megakernel.h), without the step
};

/// Whether a kernel of |family| with blocks of |threads| threads can be a body.
bool canBeBody(StringRef family, int64_t threads);

/// Emits a kernel |symbol| with the jobs' kernels as bodies, in this order. Its arguments: table, counter, step. Fails with a diagnostic when a body fails or has more
/// threads or shared memory than fit.
LogicalResult emitMegakernel(ModuleOp module, StringRef symbol, llvm::ArrayRef<PtxJob> bodies, const Chip &chip, MegakernelShape &shape);

/// The same as a job for buildPtx(); |shape| is known when it has run.
PtxJob megakernelJob(std::string symbol, std::vector<PtxJob> bodies, std::shared_ptr<MegakernelShape> shape);

} // namespace lathe::codegen::nvptx
