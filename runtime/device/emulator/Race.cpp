//===- Race.cpp - a happens-before check of memory accesses ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Race.h"
#include <algorithm>

namespace lathe::emulator {

uint32_t VectorClock::of(uint64_t block, uint32_t warp) const {
  auto found = clocks.find(block);
  return found == clocks.end() || warp >= found->second.size() ? 0 : found->second[warp];
}
void VectorClock::set(uint64_t block, uint32_t warp, uint32_t value) {
  auto &own = clocks[block];
  if (own.size() <= warp) own.resize(warp + 1, 0);
  own[warp] = value;
}
void VectorClock::join(const VectorClock &other) {
  for (const auto &[block, values] : other.clocks) {
    auto &own = clocks[block];
    if (own.size() < values.size()) own.resize(values.size(), 0);
    for (size_t warp = 0; warp < values.size(); ++warp)
      own[warp] = std::max(own[warp], values[warp]);
  }
}

void RaceDetector::startBlock(Block &block) {
  auto &clocks = warps[&block];
  clocks.assign(block.warps.size(), WarpClock());
  for (uint32_t warp = 0; warp < clocks.size(); ++warp)
    clocks[warp].clock.set(block.linear, warp, clocks[warp].own);
  sharedCells[&block].clear();
  sharedSync[&block].clear();
  barriers[&block] = {};
}
void RaceDetector::endBlock(Block &block) {
  warps.erase(&block);
  sharedCells.erase(&block);
  sharedSync.erase(&block);
  barriers.erase(&block);
}

RaceDetector::WarpClock &RaceDetector::clockOf(const Warp &warp) { return warps[warp.block][warp.id]; }

bool RaceDetector::ordered(const WarpClock &now, const Warp &warp, unsigned lane, const Stamp &before) const {
  if (!before.set) return true;
  if (before.block == warp.block->linear && before.warp == warp.id)
    // Lanes of one warp are ordered by bar.warp.sync and by barriers, which raise the clock.
    return before.lane == lane || before.inst == UINT32_MAX || before.syncs < now.syncs || before.clock < now.own;
  return before.clock <= now.clock.of(before.block, before.warp);
}

bool RaceDetector::report(Warp &warp, const Inst &inst, unsigned lane, bool shared, uint64_t address, const Stamp &before, bool write, bool wroteBefore) {
  const InstInfo &other = program.infos[before.inst == UINT32_MAX ? inst.info : before.inst];
  std::string where = before.block == warp.block->linear ? "" : "block " + std::to_string(before.block) + ", ";
  failf(warp, inst, static_cast<int>(lane), "race on %s 0x%llx: this %s and the %s at line %u (%.*s; %swarp %u, lane %u) are not ordered", shared ? "shared offset" : "global address",
        static_cast<unsigned long long>(address), write ? "write" : "read", wroteBefore ? "write" : "read", other.line, static_cast<int>(other.opcode.size()), other.opcode.data(), where.c_str(), before.warp, before.lane);
  return false;
}

bool RaceDetector::access(Warp &warp, const Inst &inst, unsigned lane, bool shared, uint64_t address, unsigned bytes, bool write, bool atomic) {
  WarpClock &now = clockOf(warp);
  CellMap &cells = shared ? sharedCells[warp.block] : globalCells;
  const unsigned granule = shared ? program.sharedGranule : program.globalGranule;
  Stamp stamp{warp.block->linear, now.own, now.syncs, inst.info, static_cast<uint16_t>(warp.id), static_cast<uint8_t>(lane), atomic, true};
  for (uint64_t at = address / granule; at <= (address + bytes - 1) / granule; ++at) {
    Cell &cell = cells[at];
    // Lanes of one instruction that write one place: an unspecified one wins, as when both atomic.
    auto sameInstruction = [&](const Stamp &before) { return before.set && before.inst == inst.info && before.block == stamp.block && before.warp == stamp.warp && before.clock == stamp.clock && before.syncs == stamp.syncs; };
    bool both = atomic && cell.write.atomic;
    if (!both && !ordered(now, warp, lane, cell.write) && !(write && sameInstruction(cell.write))) return report(warp, inst, lane, shared, at * granule, cell.write, write, true);
    if (!write) {
      auto mine = std::find_if(cell.reads.begin(), cell.reads.end(), [&](const Stamp &read) { return read.block == stamp.block && read.warp == stamp.warp && (read.lane == stamp.lane || read.clock < stamp.clock || read.syncs < stamp.syncs); });
      if (mine != cell.reads.end()) *mine = stamp;
      else if (cell.reads.size() < 64) cell.reads.push_back(stamp);
      continue;
    }
    for (const Stamp &read : cell.reads)
      if (!(atomic && read.atomic) && !ordered(now, warp, lane, read)) return report(warp, inst, lane, shared, at * granule, read, true, false);
    cell.reads.clear();
    cell.write = stamp;
  }
  return true;
}

bool RaceDetector::asyncAccess(Warp &warp, const Inst &inst, Block &block, uint64_t offset, uint64_t bytes, bool write) {
  // The issuing warp's clock is the engine's: what the warp knows, the copy comes after.
  if (&block != warp.block) return true;
  WarpClock &now = clockOf(warp);
  CellMap &cells = sharedCells[&block];
  for (uint64_t at = offset / program.sharedGranule; at <= (offset + bytes - 1) / program.sharedGranule; ++at) {
    auto found = cells.find(at);
    if (found == cells.end()) continue;
    Cell &cell = found->second;
    if (cell.write.set && !ordered(now, warp, cell.write.lane, cell.write)) return report(warp, inst, cell.write.lane, true, at * program.sharedGranule, cell.write, write, true);
    if (!write) continue;
    for (const Stamp &read : cell.reads)
      if (!ordered(now, warp, read.lane, read)) return report(warp, inst, read.lane, true, at * program.sharedGranule, read, true, false);
    // The mbarrier that completes the copy orders what follows; a read before it is a missing wait.
    cell.reads.clear();
    cell.write = Stamp();
  }
  return true;
}

void RaceDetector::publish(WarpClock &now, const Warp &warp, Sync &sync, const VectorClock &clock) {
  sync.clock.join(clock);
  sync.set = true;
  now.clock.set(warp.block->linear, warp.id, ++now.own);
}

void RaceDetector::warpBarrier(Warp &warp) { ++clockOf(warp).syncs; }

void RaceDetector::barrierArrive(Warp &warp, uint32_t id) {
  WarpClock &now = clockOf(warp);
  barriers[warp.block][id].join(now.clock);
  now.clock.set(warp.block->linear, warp.id, ++now.own);
}
void RaceDetector::barrierComplete(Block &block, uint32_t id) {
  VectorClock &meeting = barriers[&block][id];
  for (Warp &warp : block.warps)
    for (const Fragment &fragment : warp.fragments)
      if (fragment.state == FragmentState::barrier && fragment.barrier == id) {
        WarpClock &now = clockOf(warp);
        now.clock.join(meeting);
        ++now.syncs;
      }
  meeting = VectorClock();
}
void RaceDetector::clusterComplete(const std::vector<Block *> &blocks) {
  VectorClock all;
  for (Block *block : blocks)
    for (WarpClock &clock : warps[block])
      all.join(clock.clock);
  for (Block *block : blocks)
    for (Warp &warp : block->warps) {
      WarpClock &now = clockOf(warp);
      now.clock.join(all);
      now.clock.set(block->linear, warp.id, ++now.own);
    }
}

void RaceDetector::fence(Warp &warp) {
  WarpClock &now = clockOf(warp);
  if (now.hasObserved) now.clock.join(now.observed);
  now.observed = VectorClock();
  now.hasObserved = false;
  now.fenced = now.clock;
  now.hasFence = true;
  now.clock.set(warp.block->linear, warp.id, ++now.own);
}

RaceDetector::Sync &RaceDetector::syncOf(const Block *block, uint64_t address) { return block ? sharedSync[block][address] : globalSync[address]; }

void RaceDetector::release(Warp &warp, bool shared, uint64_t address) {
  WarpClock &now = clockOf(warp);
  publish(now, warp, syncOf(shared ? warp.block : nullptr, address), now.clock);
}
void RaceDetector::acquire(Warp &warp, bool shared, uint64_t address) {
  Sync &sync = syncOf(shared ? warp.block : nullptr, address);
  if (sync.set) clockOf(warp).clock.join(sync.clock);
}
void RaceDetector::relaxedWrite(Warp &warp, bool shared, uint64_t address) {
  WarpClock &now = clockOf(warp);
  // A release pattern: fence, then a relaxed write.
  if (now.hasFence) publish(now, warp, syncOf(shared ? warp.block : nullptr, address), now.fenced);
}
void RaceDetector::relaxedRead(Warp &warp, bool shared, uint64_t address) {
  // An acquire pattern: relaxed read, then a fence.
  Sync &sync = syncOf(shared ? warp.block : nullptr, address);
  if (!sync.set) return;
  WarpClock &now = clockOf(warp);
  now.observed.join(sync.clock);
  now.hasObserved = true;
}

void RaceDetector::mbarrierArrive(Warp &warp, Block &home, uint32_t offset) {
  WarpClock &now = clockOf(warp);
  publish(now, warp, sharedSync[&home][offset], now.clock);
}
void RaceDetector::mbarrierWait(Warp &warp, Block &home, uint32_t offset) {
  Sync &sync = sharedSync[&home][offset];
  if (sync.set) clockOf(warp).clock.join(sync.clock);
  ++clockOf(warp).syncs;
}

} // namespace lathe::emulator
