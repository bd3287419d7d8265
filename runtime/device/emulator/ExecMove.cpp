//===- ExecMove.cpp - mov, cvta and addresses ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"

namespace lathe::emulator {
namespace {

template <typename T> void copy(Warp &warp, const Inst &inst, uint32_t mask) {
  T *d = warp.reg<T>(inst.d);
  const T *a = warp.reg<T>(inst.s[0]);
  forLanes(mask, [=](unsigned lane) { d[lane] = a[lane]; });
}

/// mov.b32 d, {a, b} and so on: imm = bits of an element.
void packElements(Warp &warp, const Inst &inst, uint32_t mask) {
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  eachLane(mask, [&](unsigned lane) {
    uint64_t value = 0;
    for (uint32_t index = 0; index < inst.extraCount; ++index) {
      uint64_t element = inst.imm == 64 ? warp.reg<uint64_t>(slots[index])[lane] : warp.reg<uint32_t>(slots[index])[lane];
      value |= (element & (inst.imm == 64 ? ~0ull : (1ull << inst.imm) - 1)) << (index * inst.imm);
    }
    if (inst.imm2 == 64) warp.reg<uint64_t>(inst.d)[lane] = value;
    else warp.reg<uint32_t>(inst.d)[lane] = static_cast<uint32_t>(value);
  });
}
void unpackElements(Warp &warp, const Inst &inst, uint32_t mask) {
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  eachLane(mask, [&](unsigned lane) {
    uint64_t value = inst.imm2 == 64 ? warp.reg<uint64_t>(inst.s[0])[lane] : warp.reg<uint32_t>(inst.s[0])[lane];
    for (uint32_t index = 0; index < inst.extraCount; ++index)
      warp.reg<uint32_t>(slots[index])[lane] = static_cast<uint32_t>(value >> (index * inst.imm) & ((1ull << inst.imm) - 1));
  });
}

/// %clock and %globaltimer: instructions of the warp, so that time moves and is the same in every run.
template <typename T> void readClock(Warp &warp, const Inst &inst, uint32_t mask) {
  warp.instructions += 1; // a loop that waits for time to pass must end
  T value = static_cast<T>(warp.instructions * 64);
  eachLane(mask, [&](unsigned lane) { warp.reg<T>(inst.d)[lane] = value; });
}

Type elementType(unsigned bits) { return bits == 64 ? Type::b64 : bits == 32 ? Type::b32 : Type::b16; }

Status decodeMove(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  Type type = mods.takeType();
  unsigned bits = typeBits(type);
  if (type == Type::none || bits == 8 || bits > 64) return decoder.error("mov of .%s is not modelled", typeName(type));
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  const Operand &target = text.operands[0], &from = text.operands[1];
  if (from.kind == Operand::Kind::vector) {
    size_t count = from.parts.size();
    if (count < 2 || bits / count < 8 || bits % count) return decoder.error("%zu elements do not make .%s", count, typeName(type));
    inst.imm = static_cast<uint32_t>(bits / count);
    inst.imm2 = bits == 64 ? 64 : 32;
    // Elements of 8 bits come in 16-bit registers.
    LATHE_RETURN_IF_ERROR(decoder.sources(from, elementType(inst.imm), inst));
    LATHE_RETURN_IF_ERROR(decoder.dest(target, type, inst.d));
    inst.run = packElements;
    return {};
  }
  if (target.kind == Operand::Kind::vector) {
    size_t count = target.parts.size();
    if (count < 2 || bits / count < 8 || bits % count) return decoder.error(".%s does not make %zu elements", typeName(type), count);
    inst.imm = static_cast<uint32_t>(bits / count);
    inst.imm2 = bits == 64 ? 64 : 32;
    LATHE_RETURN_IF_ERROR(decoder.source(from, type, inst.s[0]));
    LATHE_RETURN_IF_ERROR(decoder.dests(target, elementType(inst.imm), inst));
    inst.run = unpackElements;
    return {};
  }
  LATHE_RETURN_IF_ERROR(decoder.dest(target, type, inst.d));
  if (from.kind == Operand::Kind::name && (from.name == "%clock" || from.name == "%clock_hi" || from.name == "%globaltimer_lo" || from.name == "%globaltimer_hi")) {
    if (bits != 32) return decoder.error("expected a 32-bit type");
    inst.run = readClock<uint32_t>;
    return {};
  }
  if (from.kind == Operand::Kind::name && (from.name == "%clock64" || from.name == "%globaltimer")) {
    if (bits != 64) return decoder.error("expected a 64-bit type");
    inst.run = readClock<uint64_t>;
    return {};
  }
  LATHE_RETURN_IF_ERROR(decoder.source(from, type, inst.s[0]));
  if (type == Type::pred) inst.run = opTable().simple.at("mov.pred").run;
  else inst.run = bits == 64 ? copy<uint64_t> : copy<uint32_t>;
  return {};
}

Status decodeCvta(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  bool to = mods.take("to");
  std::string_view space = mods.takeAny({"shared", "shared::cta", "shared::cluster", "global", "local", "const", "param", "param::entry"});
  Type type = mods.takeType();
  if (space.empty() || (type != Type::u64 && type != Type::u32)) return decoder.error("expected a state space and .u64");
  if (type == Type::u32) return decoder.error("32-bit generic addresses are not modelled");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], type, inst.s[0]));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], type, inst.d));
  bool shared = space.substr(0, 6) == "shared", local = space == "local", param = space.substr(0, 5) == "param";
  if (to) inst.run = LATHE_UNARY(uint64_t, uint64_t, a & kWindowMask);
  else if (shared) inst.run = LATHE_UNARY(uint64_t, uint64_t, a | kSharedWindow);
  else if (local) inst.run = LATHE_UNARY(uint64_t, uint64_t, a | kLocalWindow);
  else inst.run = LATHE_UNARY(uint64_t, uint64_t, a);
  // Parameters keep their window: their addresses are generic from the start.
  if (param) inst.run = LATHE_UNARY(uint64_t, uint64_t, a | kParamWindow);
  return {};
}

Status decodeIsSpace(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  std::string_view space = mods.takeAny({"shared", "shared::cta", "shared::cluster", "global", "local", "const", "param", "param::entry"});
  if (space.empty()) return decoder.error("expected a state space");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::u64, inst.s[0]));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::pred, inst.d));
  inst.imm = space.substr(0, 6) == "shared" ? 1 : space == "local" ? 2 : space.substr(0, 5) == "param" ? 3 : 0;
  inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
    uint32_t bits = 0;
    eachLane(mask, [&](unsigned lane) { bits |= uint32_t(warp.reg<uint64_t>(inst.s[0])[lane] >> 60 == inst.imm) << lane; });
    storePredicate(warp, inst.d, mask, bits);
  };
  return {};
}

/// mapa: the address of another block's shared memory in the cluster.
Status decodeMapa(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  bool shared = mods.take("shared::cluster");
  Type type = mods.takeType();
  if (type != Type::u32 && type != Type::u64) return decoder.error("expected .u32 or .u64");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 3, 3));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], type, inst.s[0]));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[2], Type::u32, inst.s[1]));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], type, inst.d));
  decoder.result().usesCluster = true;
  (void)shared;
  inst.imm = typeBits(type);
  inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
    eachLane(mask, [&](unsigned lane) {
      uint32_t rank = warp.reg<uint32_t>(inst.s[1])[lane];
      uint64_t size = warp.block->cluster.empty() ? 1 : warp.block->cluster.size();
      if (rank >= size) return failf(warp, inst, static_cast<int>(lane), "rank %u in a cluster of %u blocks", rank, static_cast<unsigned>(size));
      uint64_t value = inst.imm == 64 ? warp.reg<uint64_t>(inst.s[0])[lane] : warp.reg<uint32_t>(inst.s[0])[lane];
      value = (value & ~(0xffull << kClusterShift)) | uint64_t(rank + 1) << kClusterShift;
      if (inst.imm == 64) warp.reg<uint64_t>(inst.d)[lane] = value;
      else warp.reg<uint32_t>(inst.d)[lane] = static_cast<uint32_t>(value);
    });
  };
  return {};
}

} // namespace

void addMoveOps(OpTable &table) {
  table.family("mov", decodeMove, OpClass::move);
  table.family("cvta", decodeCvta, OpClass::move);
  table.family("isspacep", decodeIsSpace, OpClass::move);
  table.family("mapa", decodeMapa, OpClass::move, 90);
  table.add("lathe.address64", [](Warp &warp, const Inst &inst, uint32_t mask) {
    unary<uint64_t, uint64_t>(warp, inst, mask, [offset = static_cast<uint64_t>(inst.offset)](uint64_t a) { return a + offset; });
  }, "q=q", OpClass::move);
  table.add("lathe.address32", [](Warp &warp, const Inst &inst, uint32_t mask) {
    unary<uint64_t, uint32_t>(warp, inst, mask, [offset = static_cast<uint64_t>(inst.offset)](uint32_t a) { return a + offset; });
  }, "q=r", OpClass::move);
}

} // namespace lathe::emulator
