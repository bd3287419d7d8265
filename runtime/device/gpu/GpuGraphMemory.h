//===- GpuGraphMemory.h - tensors and kernels of a graph on a GPU --*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/cpu/GraphCall.h"
#include "runtime/device/gpu/GpuDriver.h"

namespace lathe::runtime {

/// Loads |ptx| (or |cubin|, if it is not empty) and runs its |kernels|, by index, on |driver|'s device. Errors: dataLoss, resourceExhausted.
Result<std::unique_ptr<GraphMemory>> makeGpuGraphMemory(std::unique_ptr<GpuDriver> driver, std::string_view ptx, std::span<const uint8_t> cubin,
                                                        const std::vector<std::string> &kernels);

} // namespace lathe::runtime
