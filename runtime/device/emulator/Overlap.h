//===- Overlap.h - launches that may run at the same time ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Programmatic dependent launch: a launch may start when every block of the one before it has ended or executed
// griddepcontrol.launch_dependents, and griddepcontrol.wait returns when the launches before have ended and their memory is there. The
// emulator runs launches one after the other and keeps, for each 4 bytes of global memory that kernels may write, who last wrote and read
// them: an access to what a launch that may still run writes, or a write to what it reads, is an error, in every mode.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Machine.h"

namespace lathe::emulator {

/// The launches since the last one that nothing overlaps. One launch runs at a time, on one host thread.
class OverlapCheck {
public:
  /// Opens a launch of |kernel|. |programmatic|: it may start before the launch before it has ended.
  void begin(std::string_view kernel, bool programmatic);
  /// Nothing runs any more: the host has waited.
  void reset();

  /// One lane's access. |nonCoherent|: through the read-only path. Returns false after it has reported an error.
  bool access(Warp &warp, const Inst &inst, unsigned lane, uint64_t address, uint64_t bytes, bool write, bool nonCoherent = false);
  void wait(Warp &warp, uint32_t mask);
  void launchDependents(const Warp &warp, uint32_t mask);
  /// The warp ends.
  void end(const Warp &warp);

private:
  struct Cell {
    uint32_t writer = 0, writerBefore = 0, reader = 0, readerBefore = 0; ///< numbers of launches; 0: none. ..Before: another than the one before the comma
  };
  static constexpr uint64_t pageBytes = 4096, granule = 4;
  /// What is known of a launch. Others may run beside it: |startFrom| .. number - 1 before it has waited, |lateFrom| .. |lateTo| - 1 after it has.
  struct Note {
    uint32_t number = 0, startFrom = 0, lateFrom = 0, lateTo = 0;
    bool waited = false; ///< some thread
    bool early = false;  ///< some thread let dependents go, or ended, before it had waited
  };
  Cell *pageOf(uint64_t address);

  Note now;
  std::vector<std::string> names; ///< of launches 1 ..
  std::unordered_map<uint64_t, std::unique_ptr<Cell[]>> pages;
  uint64_t lastPage = ~0ull;
  Cell *lastCells = nullptr;
};

} // namespace lathe::emulator
