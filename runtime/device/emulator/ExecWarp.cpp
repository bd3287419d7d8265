//===- ExecWarp.cpp - shfl, vote, match, redux, elect ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The interpreter runs these when all lanes of the member mask have arrived (Flow::warpSync; the mask's
// slot is Inst.target).
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Race.h"
#include <algorithm>

namespace lathe::emulator {
namespace {

enum Shuffle : uint32_t { up, down, bfly, idx };

void shuffle(Warp &warp, const Inst &inst, uint32_t mask) {
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  const uint32_t *a = warp.reg<uint32_t>(inst.s[0]), *b = warp.reg<uint32_t>(inst.s[1]), *c = warp.reg<uint32_t>(inst.s[2]);
  uint32_t out[32], valid = 0;
  bool good = true;
  eachLane(mask, [&](unsigned lane) {
    // PTX ISA, shfl.sync: c holds the clamp (bits 0..4) and the segment mask (bits 8..12).
    uint32_t segment = c[lane] >> 8 & 31, clamp = c[lane] & 31, by = b[lane] & 31;
    uint32_t highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment, from = 0;
    bool inRange = false;
    switch (inst.imm) {
    case up:
      from = lane - by;
      inRange = static_cast<int32_t>(from) >= static_cast<int32_t>(highest);
      break;
    case down:
      from = lane + by;
      inRange = from <= highest;
      break;
    case bfly:
      from = lane ^ by;
      inRange = from <= highest;
      break;
    default:
      from = lowest | (by & ~segment);
      inRange = from <= highest;
      break;
    }
    if (!inRange) from = lane;
    if (!(mask >> from & 1)) {
      if (good) failf(warp, inst, static_cast<int>(lane), "reads from lane %u, which does not take part", from);
      good = false;
      return;
    }
    out[lane] = a[from];
    valid |= uint32_t(inRange) << lane;
  });
  if (!good) return;
  eachLane(mask, [&](unsigned lane) { d[lane] = out[lane]; });
  if (inst.d2 != kNoSlot) storePredicate(warp, inst.d2, mask, valid);
}

Status decodeShuffle(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("sync")) return decoder.error("shfl without .sync is not modelled");
  std::string_view mode = mods.takeAny({"up", "down", "bfly", "idx"});
  inst.imm = mode == "up" ? up : mode == "down" ? down : mode == "bfly" ? bfly : idx;
  if (mode.empty() || !mods.take("b32")) return decoder.error("expected .up, .down, .bfly or .idx and .b32");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 5, 5));
  for (unsigned index = 0; index < 3; ++index)
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[index + 1], Type::b32, inst.s[index]));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[4], Type::b32, inst.target));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::b32, inst.d));
  if (text.operands[0].hasPair) LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0].parts.back(), Type::pred, inst.d2));
  inst.flow = Flow::warpSync;
  inst.run = shuffle;
  return {};
}

/// Lanes that share a member mask, one group after the other.
template <typename F> void eachGroup(Warp &warp, const Inst &inst, uint32_t mask, F &&body) {
  const uint32_t *member = warp.reg<uint32_t>(inst.target);
  for (uint32_t left = mask; left;) {
    uint32_t group = member[__builtin_ctz(left)] & left;
    body(group);
    left &= ~group;
  }
}

void vote(Warp &warp, const Inst &inst, uint32_t mask) {
  uint32_t predicate = warp.predicates[inst.s[0]];
  eachGroup(warp, inst, mask, [&](uint32_t group) {
    uint32_t on = predicate & group;
    if (inst.imm == 3) eachLane(group, [&](unsigned lane) { warp.reg<uint32_t>(inst.d)[lane] = on; });
    else storePredicate(warp, inst.d, group, (inst.imm == 0 ? on == group : inst.imm == 1 ? on != 0 : on == 0 || on == group) ? ~0u : 0);
  });
}
Status decodeVote(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("sync")) return decoder.error("vote without .sync is not modelled");
  std::string_view mode = mods.takeAny({"all", "any", "uni", "ballot"});
  if (mode.empty()) return decoder.error("expected .all, .any, .uni or .ballot");
  inst.imm = mode == "all" ? 0 : mode == "any" ? 1 : mode == "uni" ? 2 : 3;
  Type type = mods.takeType();
  if (type != (mode == "ballot" ? Type::b32 : Type::pred)) return decoder.error("expected .%s", mode == "ballot" ? "b32" : "pred");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 3, 3));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::pred, inst.s[0]));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[2], Type::b32, inst.target));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], type, inst.d));
  inst.flow = Flow::warpSync;
  inst.run = vote;
  return {};
}

template <typename T> void match(Warp &warp, const Inst &inst, uint32_t mask) {
  const T *a = warp.reg<T>(inst.s[0]);
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  eachGroup(warp, inst, mask, [&](uint32_t group) {
    uint32_t result[32], all = 0;
    eachLane(group, [&](unsigned lane) {
      uint32_t equal = 0;
      eachLane(group, [&](unsigned other) { equal |= uint32_t(a[other] == a[lane]) << other; });
      result[lane] = inst.imm ? (equal == group ? group : 0) : equal;
      all |= uint32_t(equal == group) << lane;
    });
    eachLane(group, [&](unsigned lane) { d[lane] = result[lane]; });
    if (inst.d2 != kNoSlot) storePredicate(warp, inst.d2, group, all);
  });
}
Status decodeMatch(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  std::string_view mode = mods.takeAny({"any", "all"});
  Type type = mods.has("b64") ? Type::b64 : Type::b32;
  if (mode.empty() || !mods.take("sync") || mods.takeType() == Type::none) return decoder.error("expected .any or .all, .sync and a type");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 3, 3));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], type, inst.s[0]));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[2], Type::b32, inst.target));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::b32, inst.d));
  if (text.operands[0].hasPair) LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0].parts.back(), Type::pred, inst.d2));
  inst.imm = mode == "all";
  inst.flow = Flow::warpSync;
  inst.run = type == Type::b64 ? match<uint64_t> : match<uint32_t>;
  return {};
}

void reduce(Warp &warp, const Inst &inst, uint32_t mask) {
  const uint32_t *a = warp.reg<uint32_t>(inst.s[0]);
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  eachGroup(warp, inst, mask, [&](uint32_t group) {
    uint32_t value = a[__builtin_ctz(group)];
    eachLane(group & (group - 1), [&](unsigned lane) {
      uint32_t other = a[lane];
      switch (inst.imm) {
      case 0: value += other; break;
      case 1: value = std::min(value, other); break;
      case 2: value = std::max(value, other); break;
      case 3: value = static_cast<uint32_t>(std::min(static_cast<int32_t>(value), static_cast<int32_t>(other))); break;
      case 4: value = static_cast<uint32_t>(std::max(static_cast<int32_t>(value), static_cast<int32_t>(other))); break;
      case 5: value &= other; break;
      case 6: value |= other; break;
      case 7: value ^= other; break;
      default: {
        float x = std::bit_cast<float>(value), y = std::bit_cast<float>(other);
        value = std::bit_cast<uint32_t>(inst.imm == 8 ? std::fmin(x, y) : std::fmax(x, y));
      }
      }
    });
    eachLane(group, [&](unsigned lane) { d[lane] = value; });
  });
}
Status decodeRedux(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("sync")) return decoder.error("expected .sync");
  std::string_view op = mods.takeAny({"add", "min", "max", "and", "or", "xor"});
  Type type = mods.takeType();
  if (op.empty() || (type != Type::u32 && type != Type::s32 && type != Type::b32 && type != Type::f32)) return decoder.error("expected an operation and a 32-bit type");
  if (type == Type::f32) LATHE_RETURN_IF_ERROR(decoder.require(100, "redux.sync.f32"));
  bool negative = type == Type::s32;
  inst.imm = op == "add" ? 0 : op == "min" ? (negative ? 3 : 1) : op == "max" ? (negative ? 4 : 2) : op == "and" ? 5 : op == "or" ? 6 : 7;
  if (type == Type::f32) inst.imm = op == "min" ? 8 : 9;
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 3, 3));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::b32, inst.s[0]));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[2], Type::b32, inst.target));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::b32, inst.d));
  inst.flow = Flow::warpSync;
  inst.run = reduce;
  return {};
}

Status decodeElect(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("sync")) return decoder.error("expected .sync");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  const Operand &target = text.operands[0];
  if (!target.hasPair) return decoder.error("expected a register and a predicate");
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::b32, inst.target));
  LATHE_RETURN_IF_ERROR(decoder.dest(target, Type::b32, inst.d));
  LATHE_RETURN_IF_ERROR(decoder.dest(target.parts.back(), Type::pred, inst.d2));
  inst.flow = Flow::warpSync;
  inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
    uint32_t leader = static_cast<uint32_t>(__builtin_ctz(mask));
    eachLane(mask, [&](unsigned lane) { warp.reg<uint32_t>(inst.d)[lane] = leader; });
    storePredicate(warp, inst.d2, mask, 1u << leader);
  };
  return {};
}

Status decodeActiveMask(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("b32")) return decoder.error("expected .b32");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::b32, inst.d));
  inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
    eachLane(mask, [&](unsigned lane) { warp.reg<uint32_t>(inst.d)[lane] = mask; });
  };
  return {};
}

} // namespace

void addWarpOps(OpTable &table) {
  table.family("shfl", decodeShuffle, OpClass::warp);
  table.family("vote", decodeVote, OpClass::warp);
  table.family("match", decodeMatch, OpClass::warp, 70);
  table.family("redux", decodeRedux, OpClass::warp, 80);
  table.family("elect", decodeElect, OpClass::warp, 90);
  table.family("activemask", decodeActiveMask, OpClass::warp);
}

} // namespace lathe::emulator
