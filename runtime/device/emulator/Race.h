//===- Race.h - a happens-before check of memory accesses --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Two accesses to a byte race when they come from different warps (or different lanes of a warp), one
// of them writes, not both are atomic, and no chain of barriers, release and acquire operations or
// mbarrier phases orders them. Clocks are kept per warp, as in FastTrack (Flanagan and Freund, 2009);
// clocks of other blocks only where something was acquired from them.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Machine.h"

namespace lathe::emulator {

/// Clocks of the warps of some blocks.
class VectorClock {
public:
  uint32_t of(uint64_t block, uint32_t warp) const;
  void set(uint64_t block, uint32_t warp, uint32_t value);
  void join(const VectorClock &other);

private:
  std::unordered_map<uint64_t, std::vector<uint32_t>> clocks;
};

/// One per launch; blocks run on one host thread while races are checked.
class RaceDetector {
public:
  explicit RaceDetector(const Program &program) : program(program) {}

  void startBlock(Block &block);
  void endBlock(Block &block);

  /// One lane's access. |address|: generic for global memory, offset for shared memory of |block|.
  /// Returns false after it has reported a race.
  bool access(Warp &warp, const Inst &inst, unsigned lane, bool shared, uint64_t address, unsigned bytes, bool write, bool atomic);
  /// An asynchronous engine's access, ordered after |clock|'s warp at its issue.
  bool asyncAccess(Warp &warp, const Inst &inst, Block &block, uint64_t offset, uint64_t bytes, bool write);

  void warpBarrier(Warp &warp);
  void barrierArrive(Warp &warp, uint32_t id);
  void barrierComplete(Block &block, uint32_t id);
  void clusterComplete(const std::vector<Block *> &blocks);
  /// fence / membar: atomics and plain stores after it publish what came before.
  void fence(Warp &warp);
  void release(Warp &warp, bool shared, uint64_t address);
  void acquire(Warp &warp, bool shared, uint64_t address);
  /// A relaxed store or atomic to, or load from, a location: with a fence beside it, it orders.
  void relaxedWrite(Warp &warp, bool shared, uint64_t address);
  void relaxedRead(Warp &warp, bool shared, uint64_t address);
  void mbarrierArrive(Warp &warp, Block &home, uint32_t offset);
  void mbarrierWait(Warp &warp, Block &home, uint32_t offset);

private:
  struct Stamp {
    uint64_t block = 0;
    uint32_t clock = 0, syncs = 0; ///< the warp's clock; its bar.warp.sync count
    uint32_t inst = 0;             ///< index in Program.infos
    uint16_t warp = 0;
    uint8_t lane = 0;
    bool atomic = false, set = false;
  };
  struct Cell {
    Stamp write;
    std::vector<Stamp> reads; ///< since the write, one per warp
  };
  struct WarpClock {
    VectorClock clock;
    VectorClock fenced;   ///< what the last fence of this warp published
    VectorClock observed; ///< what relaxed reads have seen, acquired by the next fence
    bool hasFence = false, hasObserved = false;
    uint32_t own = 1, syncs = 0;
  };
  struct Sync {
    VectorClock clock;
    bool set = false;
  };
  using CellMap = std::unordered_map<uint64_t, Cell>;

  WarpClock &clockOf(const Warp &warp);
  bool ordered(const WarpClock &now, const Warp &warp, unsigned lane, const Stamp &before) const;
  bool report(Warp &warp, const Inst &inst, unsigned lane, bool shared, uint64_t address, const Stamp &before, bool write, bool wroteBefore);
  Sync &syncOf(const Block *block, uint64_t address);
  void publish(WarpClock &now, const Warp &warp, Sync &sync, const VectorClock &clock);

  const Program &program;
  std::unordered_map<const Block *, std::vector<WarpClock>> warps;
  std::unordered_map<const Block *, CellMap> sharedCells;
  CellMap globalCells;
  std::unordered_map<const Block *, std::unordered_map<uint64_t, Sync>> sharedSync;
  std::unordered_map<uint64_t, Sync> globalSync;
  std::unordered_map<const Block *, std::array<VectorClock, 16>> barriers;
};

} // namespace lathe::emulator
