//===- Capabilities.h - what each NVIDIA chip can do ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The one table that emitters choose by and that Lower.cpp checks every op against, before LLVM sees it: the NVPTX
// backend aborts on an instruction that its chip lacks. Facts are from the PTX ISA's "Target ISA notes".
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include "mlir/Support/LLVM.h"
#include <cstdint>
#include <optional>

namespace lathe::codegen::nvptx {

/// Instruction groups that not every chip has.
enum class Feature : uint32_t {
  mmaSync = 1u << 0,     ///< mma.sync on f16, bf16, s8 and u8; ldmatrix
  cpAsync = 1u << 1,     ///< cp.async
  redux = 1u << 2,       ///< redux.sync on integers
  fp8 = 1u << 3,         ///< conversions of e4m3 and e5m2, and their mma.sync
  tma = 1u << 4,         ///< cp.async.bulk.tensor, mbarrier transactions
  pdl = 1u << 5,         ///< griddepcontrol (programmatic dependent launch)
  clusters = 1u << 6,
  wgmma = 1u << 7,       ///< this chip only
  setmaxnreg = 1u << 8,  ///< this chip only
  tcgen05 = 1u << 9,     ///< this chip only
  blockScaledMma = 1u << 10, ///< mma.sync with block scales; this chip only
};

/// A chip we make code for. Names with an `a` have features that later chips lack: their code runs on no other.
struct Chip {
  const char *name;           ///< as ptxas and LLVM spell it: "sm_90a"
  artifact::Variant variant;  ///< of its sections in an artifact
  int ptxVersion;             ///< 10 * major + minor: the lowest that has what most kernels use (a driver's JIT limits it); mma.sync of 8-bit floats raises it (Lower.cpp)
  int computeMajor, computeMinor; ///< of the devices that run it
  bool thisChipOnly;          ///< code runs on this compute capability alone, not on later ones
  int sharedBytes;            ///< a block can have, with the opt-in
  uint32_t features;
  bool has(Feature f) const { return features & uint32_t(f); }
};

/// All chips, oldest first.
mlir::ArrayRef<Chip> chips();
/// The chip named |name|, or null.
const Chip *findChip(llvm::StringRef name);
const Chip *findChip(artifact::Variant variant);
const char *featureName(Feature feature);

/// What an LLVM intrinsic ("llvm.nvvm.mma.m16n8k32.row.col.s8") or an op of the nvvm dialect ("nvvm.shfl.sync") needs.
/// nullopt: not in the table, so nobody has looked at which chips have it. Feature(0): every chip of the table.
std::optional<Feature> requiredFeature(llvm::StringRef instruction);

} // namespace lathe::codegen::nvptx
