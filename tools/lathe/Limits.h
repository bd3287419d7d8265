//===- Limits.h - what this machine can do at most ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include <span>
#include <vector>

namespace lathe::tool {

/// Measured now, with the threads a step has; other load on the machine lowers them.
struct MachineLimits {
  double readBytesPerSecond = 0;     ///< streaming reads of memory far larger than the caches
  double int8MacsPerSecond = 0;      ///< 8-bit dot products in registers, with the instructions of the code variant
  double int8GroupMacsPerSecond = 0; ///< the same, scaled and summed in float32 per group of 32, as exactness asks for
  double int8TileGroupMacsPerSecond = 0; ///< the same by tiles of 16 rows, where the variant has them; else as above
  double floatMacsPerSecond = 0;     ///< float32 fma in registers
  double bf16MacsPerSecond = 0;      ///< bfloat16 dot products; float32's where the variant has none
  double barrierSeconds = 0;         ///< one barrier of the team
  double exchangeBytesPerSecond = 0; ///< reading and writing what another thread wrote, as kernels find each other's activations; both counted
};
/// Only the first of them, the best of |rounds| reads of |bytes| (several times the caches); 0 without the memory for it.
double measureRead(unsigned threads, artifact::Variant variant, int rounds, uint64_t bytes = 192 << 20);
/// Reads |parts| once, one after the other, each shared by the threads and with a barrier behind it: |seconds| of each becomes what it took.
void measureReads(unsigned threads, artifact::Variant variant, std::span<const std::span<const uint8_t>> parts, std::span<double> seconds);
/// 0 of none.
double median(std::vector<double> values);
/// Takes about half a second. All zero for a GPU's code.
MachineLimits measureLimits(unsigned threads, artifact::Variant variant);

} // namespace lathe::tool
