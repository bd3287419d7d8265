//===- ExecAtomic.cpp - atom, red, fence, membar ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Lanes of a warp take effect in the order of their numbers, warps in the order in which they run.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Numerics.h"
#include "runtime/device/emulator/Race.h"
#include <algorithm>

namespace lathe::emulator {
namespace {

enum AtomicOp : uint32_t { add, min, max, inc, dec, exch, cas, band, bor, bxor };
constexpr std::pair<const char *, uint32_t> kAtomicOps[] = {{"add", add}, {"min", min}, {"max", max}, {"inc", inc}, {"dec", dec}, {"exch", exch}, {"cas", cas}, {"and", band}, {"or", bor}, {"xor", bxor}};
enum Order : uint32_t { relaxed = 1, acquire = 2, release = 4 };

template <typename T> T applyInteger(uint32_t op, T old, T value, T other) {
  switch (op) {
  case add: return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(value));
  case min: return std::min(old, value);
  case max: return std::max(old, value);
  case inc: return old >= value ? 0 : old + 1;
  case dec: return old == 0 || old > value ? value : old - 1;
  case exch: return value;
  case cas: return old == value ? other : old;
  case band: return old & value;
  case bor: return old | value;
  default: return old ^ value;
  }
}
float addFlush(float a, float b) { return canonical(flush(flush(a) + flush(b))); }

uint64_t apply(Type type, uint32_t op, uint64_t old, uint64_t value, uint64_t other, bool shared) {
  auto half = [&](auto toFloat, auto toBits) {
    auto one = [&](unsigned shift) {
      auto a = static_cast<uint16_t>(old >> shift), b = static_cast<uint16_t>(value >> shift);
      double x = toFloat(a), y = toFloat(b);
      uint64_t result = op == add ? toBits(x + y) : op == min ? ((x < y || y != y) ? a : b) : ((x > y || y != y) ? a : b);
      return result << shift;
    };
    return typeBits(type) == 32 ? one(0) | one(16) : one(0);
  };
  switch (type) {
  case Type::s32: return static_cast<uint32_t>(applyInteger<int32_t>(op, static_cast<int32_t>(old), static_cast<int32_t>(value), static_cast<int32_t>(other)));
  case Type::u32:
  case Type::b32: return applyInteger<uint32_t>(op, static_cast<uint32_t>(old), static_cast<uint32_t>(value), static_cast<uint32_t>(other));
  case Type::s64: return static_cast<uint64_t>(applyInteger<int64_t>(op, static_cast<int64_t>(old), static_cast<int64_t>(value), static_cast<int64_t>(other)));
  case Type::u64:
  case Type::b64: return applyInteger<uint64_t>(op, old, value, other);
  case Type::b16: return applyInteger<uint16_t>(op, static_cast<uint16_t>(old), static_cast<uint16_t>(value), static_cast<uint16_t>(other));
  case Type::f32: {
    // Global float atomics flush subnormals, shared ones do not (PTX ISA, atom).
    float a = std::bit_cast<float>(static_cast<uint32_t>(old)), b = std::bit_cast<float>(static_cast<uint32_t>(value));
    return std::bit_cast<uint32_t>(shared ? canonical(a + b) : addFlush(a, b));
  }
  case Type::f64: return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(value));
  case Type::f16:
  case Type::f16x2: return half([](uint16_t bits) { return halfToFloat(bits); }, [](double result) { return doubleToHalf(result); });
  case Type::bf16:
  case Type::bf16x2: return half([](uint16_t bits) { return bfloatToFloat(bits); }, [](double result) { return doubleToBfloat(result); });
  default: return old;
  }
}

// imm = op | type << 8 | order << 16 | elements << 24; bytes: of an element
void atomic(Warp &warp, const Inst &inst, uint32_t mask) {
  Access where;
  uint64_t before = warp.block->events;
  if (!access(warp, inst, mask, inst.space, inst.bytes * inst.vector, 2, where)) return;
  const uint32_t op = inst.imm & 0xff, order = inst.imm >> 16 & 0xff;
  const Type type = static_cast<Type>(inst.imm >> 8 & 0xff);
  RaceDetector *race = warp.block->race;
  bool wide = inst.bytes == 8, changed = false;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  eachLane(mask, [&](unsigned lane) {
    uint64_t address = where.shared ? sharedOffset(where.address[lane]) : where.address[lane];
    if (race && order) {
      if (order & acquire) race->acquire(warp, where.shared, address);
      else race->relaxedRead(warp, where.shared, address);
      if (order & release) race->release(warp, where.shared, address);
      else race->relaxedWrite(warp, where.shared, address);
    }
    for (unsigned element = 0; element < inst.vector; ++element) {
      auto value = [&](uint32_t slot) { return wide ? warp.reg<uint64_t>(slot)[lane] : warp.reg<uint32_t>(slot)[lane]; };
      uint64_t old = 0, given = value(slots[element]), other = inst.s[1] == kNoSlot ? 0 : value(inst.s[1]);
      uint8_t *host = where.host[lane] + element * inst.bytes;
      std::memcpy(&old, host, inst.bytes);
      uint64_t now = apply(type, op, old, given, other, where.shared);
      changed |= std::memcmp(host, &now, inst.bytes) != 0;
      std::memcpy(host, &now, inst.bytes);
      if (inst.d != kNoSlot) {
        uint32_t target = inst.vector == 1 ? inst.d : slots[inst.vector + element];
        if (wide) warp.reg<uint64_t>(target)[lane] = old;
        else warp.reg<uint32_t>(target)[lane] = static_cast<uint32_t>(old);
      }
    }
  });
  if (!changed) { // a failed compare-and-swap or a reading exchange is a poll
    warp.block->events = before;
    if (inst.d != kNoSlot) notePoll(warp, inst);
  }
}

Status decodeAtomic(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  bool returns = mods.mnemonic() == "atom";
  std::string_view order = mods.takeAny({"relaxed", "acquire", "release", "acq_rel"});
  mods.takeAny({"cta", "cluster", "gpu", "sys"});
  std::string_view space = mods.takeAny({"global", "shared", "shared::cta", "shared::cluster"});
  inst.space = space.empty() ? Space::generic : space == "global" ? Space::global : Space::shared;
  mods.take("noftz");
  bool hinted = mods.take("L2::cache_hint");
  std::string_view vector = mods.takeAny({"v2", "v4", "v8"});
  uint32_t op = UINT32_MAX;
  for (auto [name, code] : kAtomicOps)
    if (op == UINT32_MAX && mods.take(name)) op = code;
  Type type = mods.takeType();
  if (op == UINT32_MAX || type == Type::none) return decoder.error("expected an operation and a type");
  bool floating = isFloat(type);
  if (floating && op != add && !(typeBits(type) <= 32 && type != Type::f32 && (op == min || op == max))) return decoder.error("the operation is not defined for .%s", typeName(type));
  if (typeBits(type) < 16 || typeBits(type) > 64) return decoder.error("an atomic on .%s is not modelled", typeName(type));
  if (typeBits(type) == 16 && type != Type::f16 && type != Type::bf16 && op != cas) return decoder.error("an atomic on .%s is not modelled", typeName(type));
  if (!vector.empty()) LATHE_RETURN_IF_ERROR(decoder.require(90, "a vector atomic"));
  if (type == Type::bf16 || type == Type::bf16x2) LATHE_RETURN_IF_ERROR(decoder.require(90, "an atomic on bf16"));
  if (op == cas && !returns) return decoder.error("red has no cas");
  inst.vector = vector.empty() ? 1 : static_cast<uint8_t>(vector[1] - '0');
  inst.bytes = static_cast<uint8_t>(typeBits(type) / 8);
  if (inst.bytes * inst.vector > 16) return decoder.error("a vector atomic takes at most 16 bytes");
  uint32_t bits = order == "acquire" ? acquire : order == "release" ? release : order == "acq_rel" ? acquire | release : relaxed;
  inst.imm = op | static_cast<uint32_t>(type) << 8 | bits << 16;
  inst.run = atomic;
  size_t base = returns ? 1 : 0, values = op == cas ? 2 : 1;
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, base + 1 + values + hinted, base + 1 + values + hinted));
  if (inst.space != Space::shared) decoder.result().ordersBlocks = true;
  decoder.noteGranule(inst.space, inst.bytes * inst.vector);
  LATHE_RETURN_IF_ERROR(decoder.address(text.operands[base], inst, 0));
  Type held = inst.bytes == 8 ? Type::b64 : inst.bytes == 4 ? Type::b32 : Type::b16;
  const Operand &value = text.operands[base + 1];
  size_t parts = value.kind == Operand::Kind::vector ? value.parts.size() : 1;
  if (parts != inst.vector) return decoder.error("expected %u elements, found %zu", inst.vector, parts);
  LATHE_RETURN_IF_ERROR(decoder.sources(value, held, inst));
  if (op == cas) LATHE_RETURN_IF_ERROR(decoder.source(text.operands[base + 2], held, inst.s[1]));
  if (returns) {
    const Operand &target = text.operands[0];
    if (inst.vector == 1) return decoder.dest(target, held, inst.d);
    LATHE_RETURN_IF_ERROR(decoder.dests(target, held, inst));
    inst.d = 0;
  }
  return {};
}

void fenceOp(Warp &warp, const Inst &inst, uint32_t mask) {
  if (warp.block->race) warp.block->race->fence(warp);
}
/// fence.proxy.async: what this warp stored to shared memory is visible to bulk copies and wgmma.
void proxyFence(Warp &warp, const Inst &inst, uint32_t mask) {
  Block &block = *warp.block;
  if (block.race) block.race->fence(warp);
  for (size_t offset = 0; offset < block.proxyWriter.size(); ++offset)
    if (block.proxyWriter[offset] == warp.id + 1) {
      block.proxyWriter[offset] = 0;
      block.shadow[offset] &= static_cast<uint8_t>(~kGeneric);
    }
}

Status decodeFence(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 2));
  inst.run = fenceOp;
  if (mods.take("mbarrier_init")) {
    LATHE_RETURN_IF_ERROR(decoder.require(90, "fence.mbarrier_init"));
    mods.take("release");
    mods.take("cluster");
    return {};
  }
  if (mods.take("proxy")) {
    mods.takeAny({"alias"});
    if (mods.take("tensormap::generic")) { // after a tensor map was written by a kernel
      mods.takeAny({"acquire", "release"});
      mods.takeAny({"cta", "cluster", "gpu", "sys"});
      return {};
    }
    bool async = mods.take("async"), global = mods.take("async.global");
    (void)global;
    mods.takeAny({"global", "shared::cta", "shared::cluster", "shared"});
    if (async) {
      LATHE_RETURN_IF_ERROR(decoder.require(90, "fence.proxy.async"));
      inst.run = proxyFence;
    }
    return {};
  }
  mods.takeAny({"sc", "acq_rel", "acquire", "release"});
  mods.takeAny({"cta", "cluster", "gpu", "sys", "gl"});
  mods.takeAny({"sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
  return {};
}

} // namespace

void addAtomicOps(OpTable &table) {
  table.family("atom", decodeAtomic, OpClass::atomic);
  table.family("red", decodeAtomic, OpClass::atomic);
  table.family("fence", decodeFence, OpClass::barrier, 70);
  table.family("membar", decodeFence, OpClass::barrier);
}

} // namespace lathe::emulator
