//===- GpuExecutable.h - a launch plan on a GpuDriver ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/Device.h"
#include "runtime/device/gpu/GpuDriver.h"

namespace lathe::runtime {

/// Uploads the weights, loads the code of the artifact's chosen chip (LoadOptions::gpu) and allocates arena, KV pools and
/// step state; or, for a general graph, see GraphExecutable.h. Errors: failedPrecondition when the artifact was loaded for the CPU or the driver does not run its chip.
Result<std::unique_ptr<Executable>> prepareOnGpu(std::unique_ptr<GpuDriver> driver, std::shared_ptr<LoadedArtifact> artifact,
                                                 const ExecutableOptions &options);

} // namespace lathe::runtime
