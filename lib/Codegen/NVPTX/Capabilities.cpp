//===- Capabilities.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "NVPTX/Capabilities.h"
#include "llvm/ADT/StringRef.h"

namespace lathe::codegen::nvptx {
using artifact::Variant;

static constexpr uint32_t all(std::initializer_list<Feature> features) {
  uint32_t bits = 0;
  for (Feature f : features) bits |= uint32_t(f);
  return bits;
}
static constexpr uint32_t ampere = all({Feature::mmaSync, Feature::cpAsync, Feature::redux});
static constexpr uint32_t ada = ampere | all({Feature::fp8});
static constexpr uint32_t later = ada | all({Feature::tma, Feature::pdl, Feature::clusters, Feature::setmaxnreg});

// sm_80: PTX 7.0 would do for mma.sync and cp.async, but 8.0 is what a CUDA 12.0 driver takes, the oldest we support.
// sm_89: fp8 mma.sync came with 8.4. sm_90a: TMA and wgmma with 8.0. sm_100a, sm_120a: their first versions.
static const Chip table[] = {
    {"sm_80", Variant::sm_80, 80, 8, 0, false, 163 << 10, ampere},
    {"sm_89", Variant::sm_89, 84, 8, 9, false, 99 << 10, ada},
    {"sm_90a", Variant::sm_90a, 80, 9, 0, true, 227 << 10, later | all({Feature::wgmma})},
    {"sm_100a", Variant::sm_100a, 86, 10, 0, true, 227 << 10, later | all({Feature::tcgen05})},
    {"sm_120a", Variant::sm_120a, 87, 12, 0, true, 99 << 10, later | all({Feature::blockScaledMma})},
};

mlir::ArrayRef<Chip> chips() { return table; }

const Chip *findChip(llvm::StringRef name) {
  for (const Chip &c : table)
    if (name == c.name) return &c;
  return nullptr;
}
const Chip *findChip(Variant variant) {
  for (const Chip &c : table)
    if (variant == c.variant) return &c;
  return nullptr;
}

const char *featureName(Feature feature) {
  switch (feature) {
  case Feature::mmaSync: return "mma.sync";
  case Feature::cpAsync: return "cp.async";
  case Feature::redux: return "redux.sync";
  case Feature::fp8: return "8-bit floats";
  case Feature::tma: return "bulk tensor copies";
  case Feature::pdl: return "programmatic dependent launch";
  case Feature::clusters: return "clusters";
  case Feature::wgmma: return "wgmma";
  case Feature::setmaxnreg: return "setmaxnreg";
  case Feature::tcgen05: return "tcgen05";
  case Feature::blockScaledMma: return "block-scaled mma.sync";
  }
  return "no feature";
}

std::optional<Feature> requiredFeature(llvm::StringRef s) {
  s.consume_front("llvm.");
  if (!s.consume_front("nvvm.")) return std::nullopt;
  auto starts = [&](std::initializer_list<const char *> prefixes) {
    return llvm::any_of(prefixes, [&](const char *p) { return s.starts_with(p); });
  };
  if (starts({"wgmma"})) return Feature::wgmma;
  if (starts({"tcgen05"})) return Feature::tcgen05;
  if (starts({"setmaxnreg", "setmaxregister"})) return Feature::setmaxnreg;
  if (starts({"griddepcontrol"})) return Feature::pdl;
  if (starts({"cluster", "barrier.cluster", "mapa", "ld.shared::cluster", "fence.mbarrier_init"})) return Feature::clusters;
  if (starts({"cp.async.bulk", "mbarrier.try_wait", "mbarrier.arrive.expect_tx", "mbarrier.expect", "fence.proxy.async"})) return Feature::tma;
  if (starts({"cp.async"})) return Feature::cpAsync;
  if (starts({"redux"})) return Feature::redux;
  if (starts({"mma.block_scale", "mma.sp.block_scale", "mma.m16n8k64"}) || s.contains("block.scale")) return Feature::blockScaledMma;
  if (starts({"mma", "convert", "e4m3", "e5m2", "ff.to.e"}) && (s.contains("e4m3") || s.contains("e5m2") || s.contains("f8x2"))) return Feature::fp8;
  // The shapes that sm_80 has; others need a look at the ISA first.
  if (starts({"mma.m16n8k16.row.col.", "mma.m16n8k32.row.col.s8", "mma.m16n8k32.row.col.u8", "ldmatrix"})) return Feature::mmaSync;
  if (starts({"read.ptx.sreg.", "barrier0", "barrier", "shfl.sync", "bar.warp.sync", "prmt", "membar", "fence.acq_rel", "vote", "mbarrier", "nanosleep", "exit",
              "ff2bf16x2.rn", "ff2f16x2.rn", "bar.sync", "setp.", "mov.", "bra", "red.release.gpu", "ld.acquire.gpu", "ld.relaxed.gpu", "prefetch.global.L2"})) return Feature(0);
  return std::nullopt;
}

} // namespace lathe::codegen::nvptx
