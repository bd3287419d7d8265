//===- Megakernels.h - which launches of a step are one -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// From Program.megakernels to the tables that a device reads (lathe/artifact/Megakernel.h). No driver, no device.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include <cstdint>
#include <span>
#include <vector>

namespace lathe::runtime {

/// Launches of a bucket that are started as one: those of a megakernel, or a single one by itself.
struct LaunchPiece {
  uint32_t first = 0, count = 1; ///< in Program.launches
  bool together = false;         ///< by the megakernel
  uint64_t table = 0;            ///< its table: bytes into the tables
};
struct MegakernelBucket {
  const Bucket *bucket = nullptr;
  uint32_t megakernel = 0; ///< index into Program.megakernels
  std::vector<LaunchPiece> pieces;
};

/// Cuts the launches of every bucket that has a megakernel into pieces and appends their tables, 16-byte aligned, to |tables|. |addresses|: of
/// Program.args on the device. A launch that has no body, or more blocks than a record holds, is a piece of its own; so is one between such. The program has been validated.
std::vector<MegakernelBucket> planMegakernels(const Program &program, std::span<const uint64_t> addresses, std::vector<uint8_t> &tables);

} // namespace lathe::runtime
