//===- Async.h - mbarriers and asynchronous engines --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Machine.h"

namespace lathe::emulator {

/// The mbarrier at |offset| of |home|'s shared memory; nullptr after a failure.
MBarrier *findBarrier(Warp &warp, const Inst &inst, Block &home, uint64_t offset, int lane);
/// |count| arrivals. Completes the phase when it was the last and no bytes are outstanding.
void arriveBarrier(Warp &warp, const Inst &inst, Block &home, MBarrier &barrier, int64_t count, int lane);
/// Changes the number of outstanding bytes.
void transactBarrier(Block &home, MBarrier &barrier, int64_t bytes);

Status decodeBulk(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst);

/// Checks that the asynchronous proxy may read [offset, offset + bytes): written, fenced, not about to be written.
bool checkProxyRead(Warp &warp, const Inst &inst, Block &block, uint64_t offset, uint64_t bytes, int lane);
/// Sets kPendingRead again for all that is still in flight, after some reads have ended.
void refreshPendingReads(Block &block);

} // namespace lathe::emulator
