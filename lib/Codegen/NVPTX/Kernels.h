//===- Kernels.h - the emitters of GPU kernels ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The families and parameters of include/lathe/Codegen/Kernels.h, for one chip. A kernel takes one global pointer per
// argument (in the order given there), then a pointer to the step: LatheStep with device pointers. Rows f32, angles,
// KV pools and partials are laid out as on x86, activations as Layout.h says, weights as in the file. Block |i| does item |i|;
// a block beyond the step's items must not be launched. Emitters fail with a diagnostic on the module.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/Capabilities.h"
#include "NVPTX/Layout.h"
#include "lathe/Codegen/Params.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe::codegen::nvptx {

/// How a kernel is launched: blocks = |count| times what |items| says of the step (Program.h).
struct LaunchShape {
  int64_t threads = 128;
  int64_t sharedBytes = 0; ///< dynamic
  ItemKind items = ItemKind::perRow;
  int64_t count = 1, itemRows = 1;
};

/// |wgmma|: by wgmma (sm_90a) instead of mma.sync, with row tiles of up to 128 and bf16 activations. |rowTile|: rows that one block computes, 8, 16 or 32 (wgmma: to 128). It decides speed only: rows are the n of an mma, so no row's bits depend
/// on it. |kSegments|: parts of K, of one warp each, 1, 2, 4 or 8 (mma.sync with gateUp at most 4, with another activation format than bf16
/// 1); it is part of the order of sums (docs/exactness.md, "GPU").
struct MmaParams : MatmulParams {
  int64_t rowTile = 8;
  int64_t kSegments = 1;
  bool wgmma = false;
};
template <typename V>
void visitFields(MmaParams &p, V &&v) {
  visitFields(static_cast<MatmulParams &>(p), v);
  v("row_tile", p.rowTile);
  v("k_segments", p.kSegments);
  v("wgmma", p.wgmma);
}

/// Attention whose products go through mma.sync (docs/exactness.md, "GPU"), for K and V that hasMmaAttention().
struct MmaAttentionParams : AttentionParams {};
template <typename V>
void visitFields(MmaAttentionParams &p, V &&v) {
  visitFields(static_cast<AttentionParams &>(p), v);
}
/// Whether mma.sync can read entries of this format.
bool hasMmaAttention(KVFormat format);

/// The segments of K for a weight of this shape: the fewest that give a large GPU enough warps, each with 8 groups of 32 at least.
int64_t segmentsOfK(const MatmulParams &p);

/// |p|, planned for any GPU, as |chip| does it in a step of up to |bucketRows| rows: by mma.sync, or by wgmma where the chip has it and the weight's shape lets it. Only the
/// shape decides, so all kernels that compute rows of one weight on one chip are of one family.
MmaParams onChip(MmaParams p, const Chip &chip, int64_t bucketRows);

/// |p|, planned for any GPU, for a file with megakernels: by mma.sync, with as many segments of K as their blocks have room for. The same for every bucket.
MmaParams asBody(MmaParams p);

LaunchShape launchShape(const MmaParams &p);
LaunchShape launchShape(const NormParams &p);
LaunchShape launchShape(const QuantizeParams &p);
LaunchShape launchShape(const ActivationParams &p);
LaunchShape launchShape(const GatherParams &p);
LaunchShape launchShape(const AnglesParams &p);
LaunchShape launchShape(const RopeAppendParams &p);
LaunchShape launchShape(const AttentionParams &p);
LaunchShape launchShape(const ArgmaxParams &p);
LaunchShape launchShape(const MmaAttentionParams &p);
LaunchShape launchShape(const SoftcapParams &p);
LaunchShape launchShape(const LoopsParams &p);

using mlir::LogicalResult;
using mlir::ModuleOp;
using llvm::StringRef;
LogicalResult emitMatmul(ModuleOp module, StringRef symbol, const MmaParams &p, const Chip &chip);
LogicalResult emitNorm(ModuleOp module, StringRef symbol, const NormParams &p, const Chip &chip);
LogicalResult emitQuantize(ModuleOp module, StringRef symbol, const QuantizeParams &p, const Chip &chip);
LogicalResult emitActivation(ModuleOp module, StringRef symbol, const ActivationParams &p, const Chip &chip);
LogicalResult emitGather(ModuleOp module, StringRef symbol, const GatherParams &p, const Chip &chip);
LogicalResult emitAngles(ModuleOp module, StringRef symbol, const AnglesParams &p, const Chip &chip);
LogicalResult emitRopeAppend(ModuleOp module, StringRef symbol, const RopeAppendParams &p, const Chip &chip);
LogicalResult emitAttention(ModuleOp module, StringRef symbol, const AttentionParams &p, const Chip &chip);
LogicalResult emitArgmax(ModuleOp module, StringRef symbol, const ArgmaxParams &p, const Chip &chip);
LogicalResult emitMmaAttention(ModuleOp module, StringRef symbol, const MmaAttentionParams &p, const Chip &chip);
LogicalResult emitSoftcap(ModuleOp module, StringRef symbol, const SoftcapParams &p, const Chip &chip);
/// |body| as for x86's emitLoops.
LogicalResult emitLoops(ModuleOp module, StringRef symbol, const LoopsParams &p, mlir::Region *body, const Chip &chip);

} // namespace lathe::codegen::nvptx
