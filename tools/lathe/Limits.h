//===- Limits.h - what this machine can do at most ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"

namespace lathe::tool {

/// Measured now, with the threads a step has; other load on the machine lowers them.
struct MachineLimits {
  double readBytesPerSecond = 0; ///< streaming reads of memory far larger than the caches
  double int8MacsPerSecond = 0;  ///< 8-bit dot products in registers, with the instructions of the code variant
  double barrierSeconds = 0;     ///< one barrier of the team
};
/// Takes about half a second.
MachineLimits measureLimits(unsigned threads, artifact::Variant variant);

} // namespace lathe::tool
