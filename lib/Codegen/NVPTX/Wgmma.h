//===- Wgmma.h - matmuls by wgmma (sm_90a) --------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The part of emitMatmul() and launchShape() for MmaParams::wgmma.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/Kernels.h"

namespace lathe::codegen::nvptx {

/// Where things lie in the dynamic shared memory of a block, and how K is cut. A ring of stages of weights, as they are in the file, and one of
/// stages of activations; a producer warp fills both.
struct WgmmaGeometry {
  int64_t warpgroups = 1;             ///< of consumers, 64 weight rows each
  int64_t cluster = 1;                ///< blocks that share a tile, a segment of K each; 1: a block does all segments, one after the other
  int64_t weightK = 128, tokenK = 128; ///< k of a stage
  int64_t tileBytes = 0;              ///< of one tile of 16 rows in a stage
  int64_t weightStage = 0, tokenStage = 0, metaStage = 0; ///< bytes; meta: the sums of activations for types with a min, scales of e4m3 ones
  int64_t weightStages = 2, tokenStages = 2;
  int64_t tokenAt = 0, weightAt = 0, metaAt = 0, sumAt = 0, barrierAt = 0, bytes = 0;
  int64_t producerThreads = 32;       ///< one warp works; the others are there because registers go from one whole warpgroup to others
  int64_t threads() const { return 128 * warpgroups + producerThreads; }
};
/// K that segments are made of.
inline constexpr int64_t wgmmaRun = 256;

WgmmaGeometry wgmmaGeometry(const MmaParams &p);
LaunchShape wgmmaShape(const MmaParams &p);
LogicalResult verifyWgmma(ModuleOp module, StringRef symbol, const MmaParams &p);
/// |p| has been verified.
LogicalResult emitWgmma(ModuleOp module, StringRef symbol, const MmaParams &p, const Chip &chip);

} // namespace lathe::codegen::nvptx
