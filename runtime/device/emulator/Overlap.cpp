//===- Overlap.cpp - launches that may run at the same time ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Overlap.h"

namespace lathe::emulator {

void OverlapCheck::reset() {
  now = Note();
  names.clear();
  pages.clear();
  lastPage = ~0ull;
}

void OverlapCheck::begin(std::string_view kernel, bool programmatic) {
  if (!programmatic) reset();
  const Note before = now;
  names.emplace_back(kernel);
  now = Note();
  now.number = static_cast<uint32_t>(names.size());
  now.startFrom = now.lateFrom = now.lateTo = now.number; // none
  if (now.number == 1) return;
  // The launch before may run, and with it what may run beside that one: all of it if dependents could go before it had waited.
  const bool lateEmpty = before.lateFrom >= before.lateTo;
  now.startFrom = before.early || !before.waited ? before.startFrom : lateEmpty ? before.number : before.lateFrom;
  // When this one has waited the launch before has ended. If that one had waited for its own, they have, too.
  if (before.waited ? !lateEmpty : before.startFrom < before.number) {
    now.lateFrom = before.waited ? before.lateFrom : before.startFrom;
    now.lateTo = before.waited ? before.lateTo : before.number;
  }
}

OverlapCheck::Cell *OverlapCheck::pageOf(uint64_t address) {
  const uint64_t page = address / pageBytes;
  if (page != lastPage) {
    auto &cells = pages[page];
    if (!cells) cells = std::make_unique<Cell[]>(pageBytes / granule);
    lastPage = page;
    lastCells = cells.get();
  }
  return lastCells;
}

bool OverlapCheck::access(Warp &warp, const Inst &inst, unsigned lane, uint64_t address, uint64_t bytes, bool write, bool nonCoherent) {
  const bool late = warp.waited >> lane & 1;
  const uint32_t from = late ? now.lateFrom : now.startFrom, to = late ? now.lateTo : now.number;
  for (uint64_t at = address / granule * granule; at < address + bytes; at += granule) {
    Cell &cell = pageOf(at)[at % pageBytes / granule];
    const uint32_t writer = cell.writer == now.number ? cell.writerBefore : cell.writer, reader = cell.reader == now.number ? cell.readerBefore : cell.reader;
    const bool meetsWrite = writer >= from && writer < to, meetsRead = write && reader >= from && reader < to;
    if (writer && meetsWrite) {
      failf(warp, inst, static_cast<int>(lane), "missing griddepcontrol.wait: this %s of global address 0x%llx and the write by kernel '%s', launched before, which may still run, are not ordered",
            write ? "write" : "read", static_cast<unsigned long long>(at), names[writer - 1].c_str());
      return false;
    }
    if (reader && meetsRead) {
      failf(warp, inst, static_cast<int>(lane), "missing griddepcontrol.wait: this write of global address 0x%llx and the read by kernel '%s', launched before, which may still run, are not ordered",
            static_cast<unsigned long long>(at), names[reader - 1].c_str());
      return false;
    }
    // Waiting is not enough: the read-only path is for memory that nothing writes while the kernel runs, and it runs from its start.
    if (nonCoherent && writer && writer >= now.startFrom) {
      failf(warp, inst, static_cast<int>(lane), "ld.global.nc of global address 0x%llx, which kernel '%s', launched before, may write while this one runs", static_cast<unsigned long long>(at),
            names[writer - 1].c_str());
      return false;
    }
    uint32_t &last = write ? cell.writer : cell.reader;
    if (last == now.number) continue;
    (write ? cell.writerBefore : cell.readerBefore) = last;
    last = now.number;
  }
  return true;
}

void OverlapCheck::wait(Warp &warp, uint32_t mask) {
  warp.waited |= mask;
  now.waited = true;
}
void OverlapCheck::launchDependents(const Warp &warp, uint32_t mask) { now.early |= (warp.waited & mask) != mask; }
void OverlapCheck::end(const Warp &warp) { now.early |= warp.waited == 0; }

} // namespace lathe::emulator
