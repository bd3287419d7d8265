//===- Kernel.h - the kernel dialect --------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/LLM/LLM.h"

#include "dialects/Kernel/KernelDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/Kernel/KernelTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/Kernel/KernelOps.h.inc"

namespace lathe::kernel {
/// Where the heads of one layer lie in a block of its KV group (docs/kernels.md, "KV pool").
struct KVGeometry {
  int64_t layerOffset = 0; ///< bytes from the start of a block
  int64_t headStride = 0;  ///< bytes from one KV head to the next
  int64_t blockStride = 0; ///< bytes of a block: all layers
};
KVGeometry kvGeometry(llm::KVGroupOp group, int64_t layer);

/// Numbers of one lathe::KVPlane: heads, offset, headStride, groupBytes, pieces, pieceStride, bytes.
constexpr size_t kvPlaneNumbers = 7;
/// The planes of all layers of a group, one after the other.
llvm::SmallVector<int64_t> kvPlanes(llm::KVGroupOp group);
} // namespace lathe::kernel
