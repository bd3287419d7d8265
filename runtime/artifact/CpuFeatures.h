//===- CpuFeatures.h - which code variants this processor runs ----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include "lathe/base/Status.h"
#include <span>
#include <string>

namespace lathe::runtime {

/// What matters of cpuid (and of what the operating system saves).
struct CpuFeatures {
  bool avx2 = false;       ///< AVX2, FMA and F16C
  bool avx512vnni = false; ///< F, BW, DQ, VL, CD and VNNI
  bool avx512bf16 = false; ///< the above and BF16
  bool amx = false;        ///< the above, AMX-TILE and AMX-INT8, and the system's leave to use tiles
  /// Asks the system for that leave where the processor has tiles.
  static CpuFeatures detect();
  bool runs(artifact::Variant variant) const;
};

/// The variant to use: the best of |present| that |cpu| runs, or the one that |wanted| names
/// ("avx2", "avx512" = the best AVX-512 variant, "avx512vnni", "avx512bf16", "amx"; empty: best of all).
/// Errors: invalidArgument (unknown name), notFound (not in the artifact), failedPrecondition (this processor cannot run it).
Result<artifact::Variant> chooseVariant(std::span<const artifact::Variant> present, const CpuFeatures &cpu,
                                        const std::string &wanted);

} // namespace lathe::runtime
