//===- ExecWgmma.cpp - wgmma.mma_async (sm_90a) ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". Each of the four warps computes its 16
// rows of D. Matrix descriptor: address / 16 in bits 0..13, leading offset / 16 in 16..29, stride
// offset / 16 in 32..45, swizzle in 62..63. Lazy mode: a product is computed when its group is waited
// for; until then its registers are poisoned and its tiles must not change.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Async.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/MatrixMath.h"
#include "runtime/device/emulator/Numerics.h"
#include "runtime/device/emulator/Race.h"

namespace lathe::emulator {
namespace {

constexpr unsigned kRowBytes = 32; ///< of K in one instruction

// imm: N | flags; imm2: type A | type B << 8.
enum Flag : uint32_t { aFromRegisters = 1u << 16, negateA = 1u << 17, negateB = 1u << 18, transposeA = 1u << 19, transposeB = 1u << 20, halfD = 1u << 21, integerD = 1u << 22, saturate = 1u << 23 };

struct Descriptor {
  uint32_t start, leading, stride, swizzle;
  explicit Descriptor(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3fff) << 4), leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4), stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4),
        swizzle(static_cast<uint32_t>(bits >> 62)) {}
  /// Bytes of a row of the swizzled pattern; 16 without.
  uint32_t span() const { return swizzle == 1 ? 128 : swizzle == 2 ? 64 : swizzle == 3 ? 32 : 16; }
  uint32_t mix(uint32_t address) const {
    switch (swizzle) {
    case 1: return address ^ (address >> 3 & 0x70);
    case 2: return address ^ (address >> 3 & 0x30);
    case 3: return address ^ (address >> 3 & 0x10);
    default: return address;
    }
  }
  /// Shared address of the 16 bytes at byte |k| (0 or 16) of row |row|, K contiguous.
  uint32_t rowChunk(unsigned row, unsigned k) const {
    if (swizzle == 0) return start + row / 8 * stride + row % 8 * 16 + k / 16 * leading;
    return mix(start + row / 8 * stride + row % 8 * span() + k);
  }
  /// Shared address of the 8 two-byte elements from |row| (a multiple of 8) on, at index |k|; rows contiguous.
  uint32_t columnChunk(unsigned row, unsigned k) const {
    if (swizzle == 0) return start + row / 8 * stride + k / 8 * leading + k % 8 * 16;
    unsigned perSpan = span() / 2;
    return mix(start + row / perSpan * leading + k / 8 * stride + k % 8 * span() + row % perSpan * 2);
  }
};

/// Offsets of the pieces of |rows| rows of an operand.
void addChunks(std::vector<uint32_t> &chunks, const Descriptor &descriptor, unsigned first, unsigned rows, bool transposed) {
  if (transposed) {
    for (unsigned row = first; row < first + rows; row += 8)
      for (unsigned k = 0; k < 16; ++k)
        chunks.push_back(descriptor.columnChunk(row, k) - kSharedBase);
  } else {
    for (unsigned row = first; row < first + rows; ++row)
      for (unsigned k = 0; k < kRowBytes; k += 16)
        chunks.push_back(descriptor.rowChunk(row, k) - kSharedBase);
  }
}

struct Tile {
  std::vector<float> values;     ///< rows x K
  std::vector<int32_t> integers;
};
/// Row-major values of |rows| rows of an operand.
void loadTile(const Block &block, const Descriptor &descriptor, unsigned first, unsigned rows, bool transposed, Type type, Tile &tile) {
  const unsigned bytes = typeBits(type) / 8, depth = kRowBytes / bytes;
  const bool integer = !isFloat(type);
  tile.values.resize(integer ? 0 : rows * depth);
  tile.integers.resize(integer ? rows * depth : 0);
  auto put = [&](unsigned index, const uint8_t *source) {
    uint32_t bits = 0;
    std::memcpy(&bits, source, bytes);
    if (integer) tile.integers[index] = type == Type::s8 ? static_cast<int8_t>(bits) : static_cast<int32_t>(bits);
    else tile.values[index] = matrixElement(bits, type);
  };
  if (transposed) {
    for (unsigned row = 0; row < rows; row += 8)
      for (unsigned k = 0; k < depth; ++k) {
        const uint8_t *chunk = block.shared + (descriptor.columnChunk(first + row, k) - kSharedBase);
        for (unsigned element = 0; element < 8; ++element)
          put((row + element) * depth + k, chunk + 2 * element);
      }
  } else {
    for (unsigned row = 0; row < rows; ++row)
      for (unsigned k = 0; k < kRowBytes; k += 16) {
        const uint8_t *chunk = block.shared + (descriptor.rowChunk(first + row, k) - kSharedBase);
        for (unsigned element = 0; element < 16 / bytes; ++element)
          put(row * depth + k / bytes + element, chunk + element * bytes);
      }
  }
}

uint32_t *accumulator(Warp &warp, uint32_t slot) {
  auto held = warp.accumulators.find(slot);
  return held == warp.accumulators.end() ? warp.reg<uint32_t>(slot) : held->second.data();
}

void compute(Warp &warp, const MatrixOp &op) {
  const Inst &inst = *op.inst;
  Block &block = *warp.block;
  const uint32_t *d = &block.program->operands[inst.extra];
  const unsigned columns = inst.imm & 0xffff;
  const Type typeA = static_cast<Type>(inst.imm2 & 0xff), typeB = static_cast<Type>(inst.imm2 >> 8 & 0xff);
  const unsigned bytes = typeBits(typeA) / 8, depth = kRowBytes / bytes;
  const bool integer = inst.imm & integerD, half = inst.imm & halfD;
  static thread_local Tile a, b;
  static thread_local std::vector<float> transposed, row;
  static thread_local std::vector<int32_t> transposedIntegers, rowIntegers;
  if (inst.imm & aFromRegisters) {
    a.values.resize(16 * depth);
    a.integers.resize(16 * depth);
    const unsigned perRegister = 4 / bytes;
    for (unsigned reg = 0; reg < 4; ++reg)
      for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned e = 0; e < perRegister; ++e) {
          unsigned at = (lane / 4 + 8 * (reg & 1)) * depth + (lane % 4) * perRegister + reg / 2 * 4 * perRegister + e;
          uint32_t bits = op.a[reg * 32 + lane] >> (8 * bytes * e) & (bytes == 4 ? ~0u : (1u << (8 * bytes)) - 1);
          if (integer) a.integers[at] = typeA == Type::s8 ? static_cast<int8_t>(bits) : static_cast<int32_t>(bits);
          else a.values[at] = matrixElement(bits, typeA);
        }
  } else {
    loadTile(block, Descriptor(op.descA), warp.id % 4 * 16, 16, inst.imm & transposeA, typeA, a);
  }
  loadTile(block, Descriptor(op.descB), 0, columns, inst.imm & transposeB, typeB, b);
  if (inst.imm & negateA)
    for (float &value : a.values)
      value = -value;
  if (integer) {
    transposedIntegers.resize(depth * columns);
    rowIntegers.resize(columns);
    for (unsigned n = 0; n < columns; ++n)
      for (unsigned k = 0; k < depth; ++k)
        transposedIntegers[k * columns + n] = b.integers[n * depth + k];
  } else {
    transposed.resize(depth * columns);
    row.resize(columns);
    const float sign = inst.imm & negateB ? -1.0f : 1.0f;
    for (unsigned n = 0; n < columns; ++n)
      for (unsigned k = 0; k < depth; ++k)
        transposed[k * columns + n] = sign * b.values[n * depth + k];
  }
  const MatrixArithmetic arithmetic = arithmeticOf(MatrixFamily::wgmma, typeA);
  for (unsigned r = 0; r < 16; ++r) {
    auto place = [&](unsigned n, unsigned &lane, unsigned &which) {
      lane = (r & 7) * 4 + n % 8 / 2;
      which = half ? n / 8 * 2 + (r >> 3) : n / 8 * 4 + 2 * (r >> 3) + (n & 1);
    };
    for (unsigned n = 0; n < columns; ++n) {
      unsigned lane, which;
      place(n, lane, which);
      uint32_t bits = op.scaleD ? accumulator(warp, d[which])[lane] : 0;
      if (integer) rowIntegers[n] = static_cast<int32_t>(bits);
      else row[n] = half ? halfToFloat(static_cast<uint16_t>(bits >> (16 * (n & 1)))) : std::bit_cast<float>(bits);
    }
    if (integer) multiplyRowInteger(&a.integers[r * depth], transposedIntegers.data(), rowIntegers.data(), depth, columns, inst.imm & saturate);
    else multiplyRow(&a.values[r * depth], transposed.data(), row.data(), depth, columns, arithmetic);
    for (unsigned n = 0; n < columns; ++n) {
      unsigned lane, which;
      place(n, lane, which);
      uint32_t &word = accumulator(warp, d[which])[lane];
      if (integer) word = static_cast<uint32_t>(rowIntegers[n]);
      else if (!half) word = std::bit_cast<uint32_t>(row[n]);
      else word = (word & (n & 1 ? 0xffffu : 0xffff0000u)) | static_cast<uint32_t>(floatToHalf(row[n])) << (16 * (n & 1));
    }
  }
}

void matrixAsync(Warp &warp, const Inst &inst, uint32_t mask) {
  Block &block = *warp.block;
  if (mask != ~0u) return failf(warp, inst, -1, "divergent: an .aligned warp instruction with lanes 0x%08x only", mask);
  if (warp.id / 4 * 4 + 4 > block.warps.size()) return fail(warp, inst, "wgmma needs a whole warpgroup: four warps");
  if (warp.matrixDirty) return fail(warp, inst, "missing wgmma.fence: registers of matrix products were written after the last one");
  const uint32_t *operands = &block.program->operands[inst.extra];
  const unsigned columns = inst.imm & 0xffff, registers = inst.imm & halfD ? columns / 4 : columns / 2;
  MatrixOp op;
  op.inst = &inst;
  op.scaleD = warp.predicates[inst.s[2]] & 1;
  if (inst.imm & aFromRegisters) {
    for (unsigned reg = 0; reg < 4; ++reg)
      op.a.insert(op.a.end(), warp.reg<uint32_t>(operands[registers + reg]), warp.reg<uint32_t>(operands[registers + reg]) + 32);
  } else {
    op.descA = warp.reg<uint64_t>(inst.s[0])[0];
    addChunks(op.chunks, Descriptor(op.descA), warp.id % 4 * 16, 16, inst.imm & transposeA);
  }
  op.descB = warp.reg<uint64_t>(inst.s[1])[0];
  addChunks(op.chunks, Descriptor(op.descB), 0, columns, inst.imm & transposeB);
  for (uint32_t chunk : op.chunks) {
    if (!checkProxyRead(warp, inst, block, chunk, 16, -1)) return;
    if (block.race && !block.race->asyncAccess(warp, inst, block, chunk, 16, false)) return;
  }
  ++block.events;
  const auto &watched = block.program->watchedSlots;
  for (unsigned reg = 0; reg < registers; ++reg) {
    uint32_t slot = operands[reg];
    if (op.scaleD && !warp.accumulators.count(slot) && block.launch->options->checkRegisters)
      for (size_t index = 0; index < block.program->asyncWatched; ++index)
        if (watched[index] == slot && ~warp.defined[index]) return fail(warp, inst, "register " + block.program->watchedNames[index] + " is read before it is written");
  }
  if (block.launch->options->mode == AsyncMode::eager) {
    compute(warp, op);
    for (unsigned reg = 0; reg < registers; ++reg)
      setDefined(warp, operands[reg], ~0u, true);
    return;
  }
  for (unsigned reg = 0; reg < registers; ++reg) {
    uint32_t slot = operands[reg], *values = warp.reg<uint32_t>(slot);
    auto [entry, inserted] = warp.accumulators.try_emplace(slot);
    if (!inserted) continue;
    entry->second.assign(values, values + 32);
    std::fill(values, values + 32, ~0u);
    setDefined(warp, slot, ~0u, false);
  }
  for (uint32_t chunk : op.chunks)
    for (unsigned byte = 0; byte < 16; ++byte)
      block.shadow[chunk + byte] |= kPendingRead;
  warp.openMatrix.push_back(std::move(op));
}

void commitMatrix(Warp &warp, const Inst &inst, uint32_t mask) {
  ++warp.matrixCommitted;
  ++warp.block->events;
  if (warp.block->launch->options->mode == AsyncMode::eager) return;
  warp.matrixGroups.push_back(std::move(warp.openMatrix));
  warp.openMatrix.clear();
}
void waitMatrix(Warp &warp, const Inst &inst, uint32_t mask) {
  if (mask != ~0u) return failf(warp, inst, -1, "divergent: an .aligned warp instruction with lanes 0x%08x only", mask);
  Block &block = *warp.block;
  const uint64_t target = warp.matrixCommitted > inst.imm ? warp.matrixCommitted - inst.imm : 0;
  // A product is the whole warpgroup's: it is complete when all four warps have issued it, and then it has read its tiles for all.
  const uint32_t first = warp.id / 4 * 4;
  for (uint32_t id = first; id < first + 4 && id < block.warps.size(); ++id)
    if (!block.warps[id].done() && block.warps[id].matrixCommitted < target) {
      warp.yield = warp.retry = true;
      return;
    }
  bool any = false;
  for (uint32_t id = first; id < first + 4 && id < block.warps.size(); ++id) {
    Warp &other = block.warps[id];
    uint64_t ordinal = other.matrixCommitted - other.matrixGroups.size();
    for (auto &group : other.matrixGroups) {
      if (ordinal++ >= target) break;
      for (MatrixOp &op : group) {
        if (op.computed) continue;
        compute(other, op);
        op.computed = any = true;
        for (uint32_t chunk : op.chunks)
          for (unsigned byte = 0; byte < 16; ++byte)
            block.shadow[chunk + byte] &= static_cast<uint8_t>(~kPendingRead);
        op.chunks.clear();
      }
    }
  }
  bool released = false;
  while (warp.matrixGroups.size() > inst.imm) {
    warp.matrixGroups.pop_front();
    released = true;
  }
  if (any) {
    ++block.events;
    refreshPendingReads(block);
  }
  if (!released) return;
  // Registers that no product in flight owns any more get their values back.
  std::vector<uint32_t> owned;
  auto own = [&](const std::vector<MatrixOp> &group) {
    for (const MatrixOp &op : group) {
      const unsigned columns = op.inst->imm & 0xffff, registers = op.inst->imm & halfD ? columns / 4 : columns / 2;
      const uint32_t *slots = &block.program->operands[op.inst->extra];
      owned.insert(owned.end(), slots, slots + registers);
    }
  };
  for (const auto &group : warp.matrixGroups)
    own(group);
  own(warp.openMatrix);
  for (auto entry = warp.accumulators.begin(); entry != warp.accumulators.end();) {
    if (std::find(owned.begin(), owned.end(), entry->first) != owned.end()) {
      ++entry;
      continue;
    }
    std::copy(entry->second.begin(), entry->second.end(), warp.reg<uint32_t>(entry->first));
    setDefined(warp, entry->first, ~0u, true);
    entry = warp.accumulators.erase(entry);
  }
}

Status decodeWgmma(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  LATHE_RETURN_IF_ERROR(decoder.requireFeature(90, "wgmma"));
  decoder.result().usesAsyncProxy = true;
  if (mods.take("fence") || mods.take("commit_group") || mods.take("wait_group")) {
    bool fence = mods.has("fence"), wait = mods.has("wait_group");
    if (!mods.take("sync") || !mods.take("aligned")) return decoder.error("expected .sync.aligned");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, wait ? 1 : 0, wait ? 1 : 0));
    if (wait) {
      int64_t keep = 0;
      LATHE_RETURN_IF_ERROR(decoder.immediate(text.operands[0], keep));
      if (keep < 0 || keep > 7) return decoder.error("expected 0 to 7 groups");
      inst.imm = static_cast<uint32_t>(keep);
    }
    inst.run = wait ? waitMatrix : fence ? [](Warp &warp, const Inst &, uint32_t) { warp.matrixDirty = false; } : commitMatrix;
    return {};
  }
  if (!mods.take("mma_async") || !mods.take("sync") || !mods.take("aligned")) return decoder.error("expected .mma_async.sync.aligned");
  if (mods.take("sp")) return decoder.error("sparse products are not modelled");
  bool saturates = mods.take("satfinite");
  // m64nNkK
  std::string_view shape = mods.takeNext();
  unsigned n = 0, k = 0;
  if (std::sscanf(std::string(shape).c_str(), "m64n%uk%u", &n, &k) != 2 || n < 8 || n > 256 || n % 8) return decoder.error("shape '%.*s' is not modelled", static_cast<int>(shape.size()), shape.data());
  Type d = mods.takeType(), a = mods.takeType(), b = mods.takeType();
  bool fp8A = a == Type::e4m3 || a == Type::e5m2, fp8B = b == Type::e4m3 || b == Type::e5m2;
  bool integer = (a == Type::s8 || a == Type::u8) && (b == Type::s8 || b == Type::u8);
  if (!integer && !(fp8A && fp8B) && !(a == b && (a == Type::f16 || a == Type::bf16 || a == Type::tf32))) return decoder.error("A and B of .%s and .%s are not modelled", typeName(a), typeName(b));
  if (integer ? d != Type::s32 : d != Type::f32 && !(d == Type::f16 && (a == Type::f16 || fp8A))) return decoder.error("D of .%s is not modelled for A of .%s", typeName(d), typeName(a));
  if (k * typeBits(a) != 8 * kRowBytes) return decoder.error("shape '%.*s' does not fit .%s", static_cast<int>(shape.size()), shape.data(), typeName(a));
  bool half = d == Type::f16;
  unsigned registers = half ? n / 4 : n / 2;
  const auto &operands = text.operands;
  if (operands.size() < 4) return decoder.error("expected at least 4 operands");
  bool fromRegisters = operands[1].kind == Operand::Kind::vector;
  bool transposes = a == Type::f16 || a == Type::bf16;
  size_t count = integer ? 4 : 6 + (transposes ? (fromRegisters ? 1 : 2) : 0);
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, count, count));
  if (operands[0].kind != Operand::Kind::vector || operands[0].parts.size() != registers) return decoder.error("expected %u registers for D", registers);
  inst.imm = n | (fromRegisters ? aFromRegisters : 0) | (half ? halfD : 0) | (integer ? integerD : 0) | (saturates ? saturate : 0);
  inst.imm2 = static_cast<uint32_t>(a) | static_cast<uint32_t>(b) << 8;
  LATHE_RETURN_IF_ERROR(decoder.source(operands[2], Type::b64, inst.s[1]));
  LATHE_RETURN_IF_ERROR(decoder.source(operands[3], Type::pred, inst.s[2]));
  if (!integer) {
    static constexpr uint32_t flags[] = {negateA, negateB, transposeA, transposeB};
    for (size_t index = 4; index < count; ++index) {
      int64_t value = 0;
      LATHE_RETURN_IF_ERROR(decoder.immediate(operands[index], value));
      size_t which = index - 4;
      if (which == 2 && fromRegisters) which = 3;
      if (which < 2 ? value != 1 && value != -1 : value != 0 && value != 1) return decoder.error("operand %zu is out of range", index);
      if (which < 2 ? value == -1 : value == 1) inst.imm |= flags[which];
    }
  }
  std::vector<uint32_t> slots;
  if (fromRegisters) {
    if (operands[1].parts.size() != 4) return decoder.error("expected 4 registers for A");
    for (const Operand &part : operands[1].parts) {
      uint32_t slot = kNoSlot;
      LATHE_RETURN_IF_ERROR(decoder.source(part, Type::b32, slot));
      slots.push_back(slot);
      decoder.watch(slot);
    }
  } else {
    LATHE_RETURN_IF_ERROR(decoder.source(operands[1], Type::b64, inst.s[0]));
  }
  // The accumulators are looked after while running: with scale-d false they need no value.
  Program &program = decoder.result();
  inst.extra = static_cast<uint32_t>(program.operands.size());
  for (const Operand &part : operands[0].parts) {
    uint32_t slot = kNoSlot;
    LATHE_RETURN_IF_ERROR(decoder.quietSlot(part, slot));
    program.operands.push_back(slot);
    decoder.watch(slot);
  }
  program.operands.insert(program.operands.end(), slots.begin(), slots.end());
  inst.extraCount = static_cast<uint32_t>(program.operands.size()) - inst.extra;
  inst.run = matrixAsync;
  return {};
}

} // namespace

void addWgmmaOps(OpTable &table) { table.family("wgmma", decodeWgmma, OpClass::matrix); }

} // namespace lathe::emulator
