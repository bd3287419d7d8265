//===- ExecCopy.cpp - cp.async and its groups ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Lazy mode: the bytes are written when their lane waits for their group; until then, reading or
// writing them is an error. Eager mode: they are written when the copy is issued.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Async.h"
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Overlap.h"
#include "runtime/device/emulator/Race.h"

namespace lathe::emulator {
namespace {

bool lazy(const Warp &warp) { return warp.block->launch->options->mode == AsyncMode::lazy; }

/// Writes the bytes of one copy. False after a failure.
bool land(Warp &warp, const Inst &inst, const AsyncCopy &copy) {
  Block &block = *warp.block;
  uint8_t *target = block.shared + copy.target;
  if (copy.copied) {
    auto source = block.launch->memory->resolve(copy.source, copy.copied, false);
    if (!source.ok()) {
      fail(warp, inst, source.status().message(), static_cast<int>(copy.lane));
      return false;
    }
    std::memcpy(target, *source, copy.copied);
  }
  std::memset(target + copy.copied, 0, copy.bytes - copy.copied);
  uint8_t *shadow = block.shadow + copy.target;
  for (uint32_t byte = 0; byte < copy.bytes; ++byte)
    shadow[byte] = static_cast<uint8_t>((shadow[byte] & ~kPendingWrite) | kWritten | (block.proxyWriter.empty() ? 0 : kGeneric));
  if (!block.proxyWriter.empty()) std::memset(&block.proxyWriter[copy.target], static_cast<int>(warp.id + 1), copy.bytes);
  ++block.events;
  if (block.race) return block.race->access(warp, inst, copy.lane, true, copy.target, copy.bytes, true, false);
  return true;
}

void copyAsync(Warp &warp, const Inst &inst, uint32_t mask) {
  Block &block = *warp.block;
  uint64_t target[32];
  const uint64_t *source = warp.reg<uint64_t>(inst.s[1]);
  laneAddresses(warp, inst, mask, target);
  countShared(warp, mask, target, inst.bytes);
  uint32_t reading = 0;
  eachLane(mask, [&](unsigned lane) {
    if (block.failed) return;
    uint32_t copied = inst.bytes;
    if (inst.s[2] != kNoSlot) copied = std::min<uint32_t>(copied, warp.reg<uint32_t>(inst.s[2])[lane]);
    if (inst.s[3] != kNoSlot && (warp.predicates[inst.s[3]] >> lane & 1)) copied = 0; // ignore-src
    uint64_t address = source[lane] & kWindowMask;
    if (target[lane] % inst.bytes || address % inst.bytes) return failf(warp, inst, static_cast<int>(lane), "misaligned copy of %u bytes from 0x%llx to shared 0x%llx", inst.bytes, static_cast<unsigned long long>(address), static_cast<unsigned long long>(target[lane] & kWindowMask));
    uint64_t offset = sharedOffset(target[lane]);
    if (!sharedRange(warp, inst, block, offset, inst.bytes, static_cast<int>(lane))) return;
    if (copied) {
      auto bytes = block.launch->memory->resolve(address, copied, false);
      if (!bytes.ok()) return fail(warp, inst, bytes.status().message(), static_cast<int>(lane));
      reading |= 1u << lane;
      if (block.race && !block.race->access(warp, inst, lane, false, address, copied, false, false)) return;
      if (!checkOverlap(warp, inst, lane, address, copied, false)) return;
    }
    uint8_t any = 0;
    for (uint32_t byte = 0; byte < inst.bytes; ++byte)
      any |= block.shadow[offset + byte];
    if (any & (kPendingWrite | kPendingRead | kBarrierObject)) return failf(warp, inst, static_cast<int>(lane), "copy to shared offset %u, which %s", static_cast<unsigned>(offset), any & kPendingRead ? "an asynchronous operation still reads" : any & kPendingWrite ? "another copy in flight will write" : "holds an mbarrier");
    AsyncCopy copy{address, static_cast<uint32_t>(offset), inst.bytes, copied, lane};
    if (lazy(warp)) {
      for (uint32_t byte = 0; byte < inst.bytes; ++byte)
        block.shadow[offset + byte] |= kPendingWrite;
      warp.openCopies.push_back(copy);
    } else {
      land(warp, inst, copy);
    }
  });
  if (reading && !block.failed) countGlobal(warp, reading, source, inst.bytes, 0);
  ++block.events;
}

void commit(Warp &warp, const Inst &inst, uint32_t mask) {
  CopyGroup group;
  group.lanes = mask;
  auto mine = [&](const AsyncCopy &copy) { return mask >> copy.lane & 1; };
  for (const AsyncCopy &copy : warp.openCopies)
    if (mine(copy)) group.copies.push_back(copy);
  std::erase_if(warp.openCopies, mine);
  if (lazy(warp)) warp.copyGroups.push_back(std::move(group));
}

/// Lands all but the latest |keep| groups of each lane.
void waitGroups(Warp &warp, const Inst &inst, uint32_t mask, uint32_t keep) {
  uint32_t seen[32] = {};
  for (size_t index = warp.copyGroups.size(); index-- > 0;) {
    CopyGroup &group = warp.copyGroups[index];
    uint32_t landing = 0;
    eachLane(group.lanes & mask, [&](unsigned lane) {
      if (seen[lane]++ >= keep) landing |= 1u << lane;
    });
    if (!landing) continue;
    for (const AsyncCopy &copy : group.copies)
      if ((landing >> copy.lane & 1) && !land(warp, inst, copy)) return;
    std::erase_if(group.copies, [&](const AsyncCopy &copy) { return landing >> copy.lane & 1; });
    group.lanes &= ~landing;
  }
  std::erase_if(warp.copyGroups, [](const CopyGroup &group) { return group.lanes == 0; });
}
void waitAll(Warp &warp, const Inst &inst, uint32_t mask) {
  commit(warp, inst, mask);
  waitGroups(warp, inst, mask, 0);
}

/// cp.async.mbarrier.arrive: the copies of the lane complete, then it arrives. They complete here at once.
void arriveAfterCopies(Warp &warp, const Inst &inst, uint32_t mask) {
  waitAll(warp, inst, mask);
  if (warp.block->failed) return;
  uint64_t address[32];
  laneAddresses(warp, inst, mask, address);
  eachLane(mask, [&](unsigned lane) {
    if (warp.block->failed) return;
    MBarrier *barrier = findBarrier(warp, inst, *warp.block, sharedOffset(address[lane]), static_cast<int>(lane));
    if (!barrier) return;
    if (!inst.imm) ++barrier->pending;
    if (warp.block->race) warp.block->race->mbarrierArrive(warp, *warp.block, static_cast<uint32_t>(sharedOffset(address[lane])));
    arriveBarrier(warp, inst, *warp.block, *barrier, 1, static_cast<int>(lane));
  });
}

} // namespace

Status decodeCopyAsync(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  LATHE_RETURN_IF_ERROR(decoder.require(80, "cp.async"));
  if (mods.take("commit_group")) {
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 0));
    inst.run = commit;
    return {};
  }
  if (mods.take("wait_all")) {
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 0));
    inst.run = waitAll;
    return {};
  }
  if (mods.take("wait_group")) {
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
    int64_t keep = 0;
    LATHE_RETURN_IF_ERROR(decoder.immediate(text.operands[0], keep));
    if (keep < 0) return decoder.error("expected a number of groups");
    inst.imm = static_cast<uint32_t>(std::min<int64_t>(keep, UINT32_MAX));
    inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) { waitGroups(warp, inst, mask, inst.imm); };
    return {};
  }
  if (mods.take("mbarrier")) {
    if (!mods.take("arrive")) return decoder.error("expected .arrive");
    inst.imm = mods.take("noinc");
    mods.takeAny({"shared", "shared::cta"});
    if (!mods.take("b64")) return decoder.error("expected .b64");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
    inst.run = arriveAfterCopies;
    return decoder.address(text.operands[0], inst, 0);
  }
  bool all = mods.take("ca"), global = mods.take("cg");
  if (mods.takeAny({"shared", "shared::cta"}).empty() || !mods.take("global") || all == global) return decoder.error("expected .ca or .cg and .shared.global");
  bool hinted = mods.take("L2::cache_hint");
  mods.takeAny({"L2::64B", "L2::128B", "L2::256B"});
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 3, 5));
  LATHE_RETURN_IF_ERROR(decoder.addressValue(text.operands[1], inst.s[1]));
  LATHE_RETURN_IF_ERROR(decoder.address(text.operands[0], inst, 0));
  int64_t bytes = 0;
  LATHE_RETURN_IF_ERROR(decoder.immediate(text.operands[2], bytes));
  if (bytes != 16 && (global || (bytes != 4 && bytes != 8))) return decoder.error("a copy has 16 bytes, with .ca also 4 or 8; found %lld", static_cast<long long>(bytes));
  inst.bytes = static_cast<uint8_t>(bytes);
  size_t next = 3, end = text.operands.size() - hinted;
  if (next < end) {
    // The source size, or a predicate that says to ignore the source.
    Operand operand = text.operands[next];
    if (decoder.registerBits(operand) == 1) LATHE_RETURN_IF_ERROR(decoder.source(operand, Type::pred, inst.s[3]));
    else LATHE_RETURN_IF_ERROR(decoder.source(operand, Type::u32, inst.s[2]));
    ++next;
  }
  if (next != end) return decoder.error("expected %zu operands, found %zu", next + hinted, text.operands.size());
  inst.run = copyAsync;
  return {};
}

void addCopyOps(OpTable &table) {
  table.family("cp", [](Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) -> Status {
    if (mods.take("reduce")) return decoder.error("cp.reduce is not modelled");
    if (!mods.take("async")) return decoder.error("expected .async");
    if (mods.take("bulk")) return decodeBulk(decoder, text, mods, inst);
    return decodeCopyAsync(decoder, text, mods, inst);
  }, OpClass::async);
}

} // namespace lathe::emulator
