//===- ExecMbarrier.cpp - mbarrier objects ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "mbarrier". A phase completes when no arrivals are pending and no bytes are outstanding. The
// 8 bytes in shared memory hold nothing: touching them with anything but mbarrier instructions fails.
// The state that arrive returns is the phase in the upper half and the pending count in the lower.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Async.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Race.h"

namespace lathe::emulator {

MBarrier *findBarrier(Warp &warp, const Inst &inst, Block &home, uint64_t offset, int lane) {
  if (!sharedRange(warp, inst, home, offset, 8, lane)) return nullptr;
  if (offset % 8) {
    failf(warp, inst, lane, "misaligned mbarrier at shared offset %u", static_cast<unsigned>(offset));
    return nullptr;
  }
  auto found = home.mbarriers.find(static_cast<uint32_t>(offset));
  if (found == home.mbarriers.end()) {
    failf(warp, inst, lane, "no initialised mbarrier at shared offset %u", static_cast<unsigned>(offset));
    return nullptr;
  }
  return &found->second;
}

static void completeIfDone(Block &home, MBarrier &barrier) {
  ++home.events;
  if (barrier.pending != 0 || barrier.tx != 0) return;
  barrier.pending = barrier.count;
  ++barrier.phase;
}

void arriveBarrier(Warp &warp, const Inst &inst, Block &home, MBarrier &barrier, int64_t count, int lane) {
  if (count > barrier.pending) return failf(warp, inst, lane, "%lld arrivals at an mbarrier that expects %lld more", static_cast<long long>(count), static_cast<long long>(barrier.pending));
  barrier.pending -= count;
  completeIfDone(home, barrier);
}
void transactBarrier(Block &home, MBarrier &barrier, int64_t bytes) {
  barrier.tx += bytes;
  completeIfDone(home, barrier);
}

namespace {

enum Kind : uint32_t { init, inval, arrive, arriveDrop, expectTx, completeTx, testWait, pendingCount };
// imm: kind | parity << 8 | expect_tx << 9 | poll << 10; s[0]: address, s[1]: count, state, parity or bytes.

void mbarrier(Warp &warp, const Inst &inst, uint32_t mask) {
  uint64_t address[32];
  laneAddresses(warp, inst, mask, address);
  const uint32_t kind = inst.imm & 0xff;
  const bool parity = inst.imm >> 8 & 1, expects = inst.imm >> 9 & 1;
  bool polled = false;
  eachLane(mask, [&](unsigned lane) {
    if (warp.block->failed) return;
    Block *home = sharedHome(warp, address[lane]);
    if (!home) return fail(warp, inst, "address of a block that the cluster does not have", static_cast<int>(lane));
    uint64_t offset = sharedOffset(address[lane]);
    const int at = static_cast<int>(lane);
    uint32_t value = inst.s[1] == kNoSlot || kind == testWait ? 1 : warp.reg<uint32_t>(inst.s[1])[lane];
    if (kind == init) {
      if (!sharedRange(warp, inst, *home, offset, 8, at)) return;
      if (offset % 8) return failf(warp, inst, at, "misaligned mbarrier at shared offset %u", static_cast<unsigned>(offset));
      if (value == 0 || value > 0xfffff) return failf(warp, inst, at, "expected an arrival count of 1 to 1048575, found %u", value);
      for (unsigned byte = 0; byte < 8; ++byte) {
        if (home->shadow[offset + byte] & (kPendingWrite | kPendingRead)) return failf(warp, inst, at, "mbarrier at shared offset %u, which an asynchronous operation uses", static_cast<unsigned>(offset));
        home->shadow[offset + byte] = kBarrierObject | kWritten;
      }
      home->mbarriers[static_cast<uint32_t>(offset)] = MBarrier{value, value, 0, 0};
      ++home->events;
      if (home->race) home->race->access(warp, inst, lane, true, offset, 8, true, false);
      return;
    }
    MBarrier *barrier = findBarrier(warp, inst, *home, offset, at);
    if (!barrier) return;
    // The object's initialisation must be ordered before its use.
    if (home->race && kind != inval && !home->race->access(warp, inst, lane, true, offset, 8, false, true)) return;
    switch (kind) {
    case inval:
      home->mbarriers.erase(static_cast<uint32_t>(offset));
      std::memset(home->shadow + offset, 0, 8);
      return;
    case expectTx: return transactBarrier(*home, *barrier, value);
    case completeTx: return transactBarrier(*home, *barrier, -static_cast<int64_t>(value));
    case arrive:
    case arriveDrop: {
      uint64_t state = barrier->phase << 32 | static_cast<uint64_t>(barrier->pending);
      if (home->race) home->race->mbarrierArrive(warp, *home, static_cast<uint32_t>(offset));
      if (kind == arriveDrop) {
        if (barrier->count <= (expects ? 1 : value)) barrier->count = 0;
        else barrier->count -= expects ? 1 : value;
      }
      if (expects) barrier->tx += value;
      arriveBarrier(warp, inst, *home, *barrier, expects ? 1 : value, at);
      if (inst.d != kNoSlot) warp.reg<uint64_t>(inst.d)[lane] = state;
      return;
    }
    default: {
      bool done;
      if (parity) done = (barrier->phase & 1) != (warp.reg<uint32_t>(inst.s[1])[lane] & 1);
      else done = barrier->phase != warp.reg<uint64_t>(inst.s[1])[lane] >> 32;
      storePredicate(warp, inst.d, 1u << lane, done ? ~0u : 0);
      if (done && home->race) home->race->mbarrierWait(warp, *home, static_cast<uint32_t>(offset));
      polled |= !done;
      return;
    }
    }
  });
  if (polled && !warp.block->failed) notePoll(warp, inst);
}

Status decodeMbarrier(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  uint32_t kind;
  if (mods.take("init")) kind = init;
  else if (mods.take("inval")) kind = inval;
  else if (mods.take("arrive_drop")) kind = arriveDrop;
  else if (mods.take("arrive")) kind = arrive;
  else if (mods.take("expect_tx")) kind = expectTx;
  else if (mods.take("complete_tx")) kind = completeTx;
  else if (mods.take("test_wait") || mods.take("try_wait")) kind = testWait;
  else if (mods.take("pending_count")) kind = pendingCount;
  else return decoder.error("the operation is not modelled");
  bool hinted = mods.has("try_wait");
  if (hinted) LATHE_RETURN_IF_ERROR(decoder.require(90, "mbarrier.try_wait"));
  if (kind == pendingCount) {
    mods.take("b64");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::b64, inst.s[0]));
    LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::b32, inst.d));
    inst.run = LATHE_UNARY(uint32_t, uint64_t, static_cast<uint32_t>(a));
    return {};
  }
  bool expects = (kind == arrive || kind == arriveDrop) && mods.take("expect_tx");
  bool parity = kind == testWait && mods.take("parity");
  mods.take("noComplete");
  mods.takeAny({"release", "acquire", "relaxed"});
  mods.takeAny({"cta", "cluster"});
  std::string_view space = mods.takeAny({"shared", "shared::cta", "shared::cluster"});
  (void)space;
  if (!mods.take("b64")) return decoder.error("expected .b64");
  if (expects || kind == expectTx) LATHE_RETURN_IF_ERROR(decoder.require(90, "expect_tx"));
  inst.imm = kind | uint32_t(parity) << 8 | uint32_t(expects) << 9;
  inst.run = mbarrier;
  const auto &operands = text.operands;
  switch (kind) {
  case init:
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
    LATHE_RETURN_IF_ERROR(decoder.address(operands[0], inst, 0));
    return decoder.source(operands[1], Type::u32, inst.s[1]);
  case inval:
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
    return decoder.address(operands[0], inst, 0);
  case expectTx:
  case completeTx:
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
    LATHE_RETURN_IF_ERROR(decoder.address(operands[0], inst, 0));
    return decoder.source(operands[1], Type::u32, inst.s[1]);
  case testWait:
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 3, 4));
    LATHE_RETURN_IF_ERROR(decoder.address(operands[1], inst, 0));
    LATHE_RETURN_IF_ERROR(decoder.source(operands[2], parity ? Type::u32 : Type::b64, inst.s[1]));
    if (operands.size() == 4) {
      uint32_t hint = kNoSlot; // how long to suspend
      LATHE_RETURN_IF_ERROR(decoder.source(operands[3], Type::u32, hint));
    }
    return decoder.dest(operands[0], Type::pred, inst.d);
  default: {
    // The result may be left out: mbarrier.arrive.shared.b64 _, [a];  or with .shared::cluster no result at all.
    size_t first = !operands.empty() && operands[0].kind == Operand::Kind::address ? 0 : 1;
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, first + 1, first + 2));
    LATHE_RETURN_IF_ERROR(decoder.address(operands[first], inst, 0));
    if (operands.size() == first + 2) LATHE_RETURN_IF_ERROR(decoder.source(operands[first + 1], Type::u32, inst.s[1]));
    else if (expects) return decoder.error("expected a number of bytes");
    if (first) return decoder.dest(operands[0], Type::b64, inst.d);
    return {};
  }
  }
}

} // namespace

void addMbarrierOps(OpTable &table) { table.family("mbarrier", decodeMbarrier, OpClass::async, 80); }

} // namespace lathe::emulator
