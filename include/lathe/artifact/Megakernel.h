//===- Megakernel.h - what a megakernel reads -----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A megakernel (docs/ptx.md, "Megakernel") does launches one after the other. Its arguments: a table, its counter and the step. The table is a
// MegakernelTable, then a record for each launch, megakernelRecordBytes() apart. Written by the runtime when a program is made ready, read by the device.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>

namespace lathe {

struct MegakernelTable {
  uint32_t launches = 0;
  uint32_t reserved[3] = {};
};

/// A launch; |arguments| follow: device addresses, without the step's.
struct MegakernelRecord {
  /// What a launch's blocks are counted by.
  enum Rows : uint32_t { one = 0, ofStep = 1, ofOutput = 2 };
  uint32_t body = 0;     ///< number in Megakernel.bodies
  Rows rows = one;
  uint32_t count = 0;    ///< blocks = count * ceil(rows / rowsPerBlock); below 2^31
  uint32_t rowsPerBlock = 1;
  uint32_t barrier = 1;  ///< the next launch waits for this one
  uint32_t reserved[3] = {};
};
static_assert(sizeof(MegakernelTable) == 16 && sizeof(MegakernelRecord) == 32);

/// |maxArgs|: Megakernel.maxArgs.
constexpr uint64_t megakernelRecordBytes(uint64_t maxArgs) { return sizeof(MegakernelRecord) + (maxArgs + 1) / 2 * 16; }

/// The counter, 8 bytes, starts at 0; each barrier adds 1 for each block, and nothing else changes it.
inline constexpr uint64_t megakernelCounterBytes = 128; ///< apart, so that no two share a line of the cache

} // namespace lathe
