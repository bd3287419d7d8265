//===- ExecWmma.cpp - wmma.load, wmma.store, wmma.mma ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The layout of a wmma fragment is opaque. Here lane l holds the elements l*U .. l*U + U-1 of the
// row-major matrix, U = elements / 32; where the PTX ISA gives a fragment twice as many registers, the
// second half repeats the first.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/MatrixMath.h"
#include "runtime/device/emulator/Numerics.h"

namespace lathe::emulator {
namespace {

struct Shape { const char *name; unsigned m, n, k; };
constexpr Shape kShapes[] = {{"m16n16k16", 16, 16, 16}, {"m32n8k16", 32, 8, 16}, {"m8n32k16", 8, 32, 16}, {"m16n16k8", 16, 16, 8}};

/// Registers of a fragment of |rows| x |columns|, as the PTX ISA lists them.
unsigned fragmentRegisters(char which, const Shape &shape, Type type) {
  unsigned elements = which == 'a' ? shape.m * shape.k : which == 'b' ? shape.k * shape.n : shape.m * shape.n;
  unsigned packed = type == Type::tf32 ? 1 : 32 / std::min(typeBits(type), 32u);
  unsigned registers = std::max(1u, elements / 32 / packed);
  // f16 A and B: always 8 registers.
  if ((which == 'a' || which == 'b') && type == Type::f16) return 8;
  return registers;
}
unsigned elementBytes(Type type) { return typeBits(type) / 8; }

// imm: rows | columns << 8 | column-major << 16 | store << 17 | registers << 20; s[1]: stride.
void moveFragment(Warp &warp, const Inst &inst, uint32_t mask) {
  if (mask != ~0u) return failf(warp, inst, -1, "divergent: an .aligned warp instruction with lanes 0x%08x only", mask);
  const unsigned rows = inst.imm & 0xff, columns = inst.imm >> 8 & 0xff, registers = inst.imm >> 20;
  const bool columnMajor = inst.imm >> 16 & 1, isStore = inst.imm >> 17 & 1;
  const unsigned bytes = inst.bytes, perLane = rows * columns / 32, packed = bytes >= 4 ? 1 : 4 / bytes;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  const uint64_t stride = inst.s[1] == kNoSlot ? (columnMajor ? rows : columns) : warp.reg<uint32_t>(inst.s[1])[0];
  uint32_t values[32][32] = {};
  if (isStore)
    for (unsigned reg = 0; reg < registers; ++reg)
      for (unsigned lane = 0; lane < 32; ++lane)
        values[reg][lane] = warp.reg<uint32_t>(slots[reg])[lane];
  for (unsigned element = 0; element < perLane; ++element) {
    // One element of each lane, at an address of its own.
    uint64_t base[32];
    laneAddresses(warp, inst, mask, base);
    Access where;
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned index = lane * perLane + element, row = index / columns, column = index % columns;
      where.address[lane] = base[0] + (columnMajor ? column * stride + row : row * stride + column) * bytes;
    }
    if (!accessAt(warp, inst, mask, inst.space, bytes, isStore ? 1 : 0, where)) return;
    for (unsigned lane = 0; lane < 32; ++lane) {
      uint32_t bits = 0;
      unsigned reg = element / packed, shift = element % packed * bytes * 8;
      if (isStore) {
        bits = values[reg][lane] >> shift;
        std::memcpy(where.host[lane], &bits, bytes);
      } else {
        std::memcpy(&bits, where.host[lane], bytes);
        values[reg][lane] |= bits << shift;
      }
    }
  }
  if (isStore) return;
  const unsigned unique = std::max(1u, perLane / packed);
  for (unsigned reg = 0; reg < registers; ++reg)
    std::memcpy(warp.reg<uint32_t>(slots[reg]), values[reg % unique], 128);
}

// imm: m | n << 8 | k << 16 | saturate << 24; imm2: types D, A, B, C of a byte each. Column-major operands need nothing:
// fragments are row-major whatever the memory was.
void multiplyFragments(Warp &warp, const Inst &inst, uint32_t mask) {
  if (mask != ~0u) return failf(warp, inst, -1, "divergent: an .aligned warp instruction with lanes 0x%08x only", mask);
  const unsigned m = inst.imm & 0xff, n = inst.imm >> 8 & 0xff, k = inst.imm >> 16 & 0xff;
  const bool saturate = inst.imm >> 24 & 1;
  const Shape shape{"", m, n, k};
  const Type types[4] = {static_cast<Type>(inst.imm2 & 0xff), static_cast<Type>(inst.imm2 >> 8 & 0xff), static_cast<Type>(inst.imm2 >> 16 & 0xff), static_cast<Type>(inst.imm2 >> 24)};
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  const unsigned counts[4] = {fragmentRegisters('d', shape, types[0]), fragmentRegisters('a', shape, types[1]), fragmentRegisters('b', shape, types[2]), fragmentRegisters('c', shape, types[3])};
  const uint32_t *d = slots, *a = d + counts[0], *b = a + counts[1], *c = b + counts[2];
  auto element = [&](const uint32_t *fragment, Type type, unsigned index, unsigned total) {
    unsigned bytes = elementBytes(type), packed = bytes >= 4 ? 1 : 4 / bytes, perLane = total / 32;
    unsigned lane = index / perLane, at = index % perLane;
    uint32_t word = warp.reg<uint32_t>(fragment[at / packed])[lane] >> (at % packed * bytes * 8);
    return bytes == 4 ? word : word & ((1u << (8 * bytes)) - 1);
  };
  const bool integer = !isFloat(types[1]);
  static thread_local std::vector<float> fa, fb, fd;
  static thread_local std::vector<int32_t> ia, ib, id;
  auto gather = [&](const uint32_t *fragment, Type type, unsigned total, std::vector<float> &floats, std::vector<int32_t> &integers) {
    floats.resize(total);
    integers.resize(total);
    for (unsigned index = 0; index < total; ++index) {
      uint32_t bits = element(fragment, type, index, total);
      if (integer) integers[index] = type == Type::s8 ? static_cast<int8_t>(bits) : static_cast<int32_t>(bits);
      else floats[index] = type == Type::f32 ? std::bit_cast<float>(bits) : matrixElement(bits, type);
    }
  };
  gather(a, types[1], m * k, fa, ia);
  gather(b, types[2], k * n, fb, ib);
  gather(c, types[3], m * n, fd, id);
  MatrixArithmetic arithmetic = arithmeticOf(MatrixFamily::wmma, types[1]);
  for (unsigned row = 0; row < m; ++row) {
    if (integer) multiplyRowInteger(&ia[row * k], ib.data(), &id[row * n], k, n, saturate);
    else multiplyRow(&fa[row * k], fb.data(), &fd[row * n], k, n, arithmetic);
  }
  const unsigned total = m * n, perLane = total / 32, bytes = elementBytes(types[0]), packed = bytes >= 4 ? 1 : 2;
  for (unsigned reg = 0; reg < counts[0]; ++reg)
    for (unsigned lane = 0; lane < 32; ++lane) {
      uint32_t word = 0;
      for (unsigned e = 0; e < packed; ++e) {
        unsigned index = lane * perLane + reg * packed + e;
        uint32_t bits = integer ? static_cast<uint32_t>(id[index]) : types[0] == Type::f16 ? floatToHalf(fd[index]) : std::bit_cast<uint32_t>(fd[index]);
        word |= bits << (e * 16);
      }
      warp.reg<uint32_t>(d[reg])[lane] = word;
    }
}

Status decodeWmma(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  LATHE_RETURN_IF_ERROR(decoder.require(70, "wmma"));
  bool isLoad = mods.take("load"), isStore = mods.take("store"), isProduct = mods.take("mma");
  char which = 'd';
  if (isLoad || isStore) {
    std::string_view name = mods.takeAny({"a", "b", "c", "d"});
    if (name.empty()) return decoder.error("expected .a, .b, .c or .d");
    which = name[0];
  } else if (!isProduct) {
    return decoder.error("expected .load, .store or .mma");
  }
  if (!mods.take("sync") || !mods.take("aligned")) return decoder.error("expected .sync.aligned");
  if (isProduct) {
    // .alayout.blayout.shape.types: the layouts describe the memory that the fragments came from.
    for (unsigned index = 0; index < 2; ++index)
      if (mods.takeAny({"row", "col"}).empty()) return decoder.error("expected .row or .col twice");
  }
  const Shape *shape = nullptr;
  bool columnMajor = false;
  if (!isProduct) {
    std::string_view layout = mods.takeAny({"row", "col"});
    if (layout.empty()) return decoder.error("expected .row or .col");
    columnMajor = layout == "col";
  }
  for (const Shape &candidate : kShapes)
    if (mods.take(candidate.name)) shape = &candidate;
  if (!shape) return decoder.error("shape is not modelled");
  if (isProduct) {
    Type types[4];
    std::vector<Type> given;
    bool saturate = mods.take("satfinite");
    for (Type type = mods.takeType(); type != Type::none; type = mods.takeType())
      given.push_back(type);
    // f16: .dtype.ctype, A and B are f16; others name all four.
    if (given.size() == 2) types[0] = given[0], types[1] = types[2] = Type::f16, types[3] = given[1];
    else if (given.size() == 4) std::copy(given.begin(), given.end(), types);
    else return decoder.error("expected two or four types");
    for (Type type : {types[1], types[2]})
      if (type != Type::f16 && type != Type::bf16 && type != Type::tf32 && type != Type::s8 && type != Type::u8) return decoder.error("A or B of .%s is not modelled", typeName(type));
    bool integer = !isFloat(types[1]);
    for (Type type : {types[0], types[3]})
      if (integer ? type != Type::s32 : type != Type::f32 && type != Type::f16) return decoder.error("C or D of .%s is not modelled", typeName(type));
    if (integer != !isFloat(types[2]) || (types[1] == Type::tf32) != (shape->k == 8)) return decoder.error("shape is not modelled for .%s", typeName(types[1]));
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 4, 4));
    std::vector<uint32_t> slots;
    static constexpr char names[] = {'d', 'a', 'b', 'c'};
    for (unsigned index = 0; index < 4; ++index) {
      size_t found = text.operands[index].kind == Operand::Kind::vector ? text.operands[index].parts.size() : 1;
      unsigned expected = fragmentRegisters(names[index], *shape, types[index]);
      if (found != expected) return decoder.error("expected %u registers as operand %u, found %zu", expected, index, found);
    }
    for (unsigned index = 1; index < 4; ++index)
      for (const Operand &part : text.operands[index].kind == Operand::Kind::vector ? text.operands[index].parts : std::vector<Operand>{text.operands[index]}) {
        uint32_t slot = kNoSlot;
        LATHE_RETURN_IF_ERROR(decoder.source(part, Type::b32, slot));
        slots.push_back(slot);
      }
    LATHE_RETURN_IF_ERROR(decoder.dests(text.operands[0], Type::b32, inst));
    for (uint32_t slot : slots)
      decoder.result().operands.push_back(slot);
    inst.extraCount += static_cast<uint32_t>(slots.size());
    inst.imm = shape->m | shape->n << 8 | shape->k << 16 | uint32_t(saturate && integer) << 24;
    inst.imm2 = static_cast<uint32_t>(types[0]) | static_cast<uint32_t>(types[1]) << 8 | static_cast<uint32_t>(types[2]) << 16 | static_cast<uint32_t>(types[3]) << 24;
    inst.run = multiplyFragments;
    return {};
  }
  std::string_view space = mods.takeAny({"global", "shared", "shared::cta"});
  inst.space = space.empty() ? Space::generic : space == "global" ? Space::global : Space::shared;
  Type type = mods.takeType();
  if (type == Type::none || typeBits(type) > 32) return decoder.error("expected the type of an element");
  unsigned rows = which == 'b' ? shape->k : shape->m, columns = which == 'a' ? shape->k : shape->n;
  unsigned registers = fragmentRegisters(which, *shape, type);
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 3));
  const Operand &address = text.operands[isLoad ? 1 : 0], &data = text.operands[isLoad ? 0 : 1];
  LATHE_RETURN_IF_ERROR(decoder.address(address, inst, 0));
  if (text.operands.size() == 3) LATHE_RETURN_IF_ERROR(decoder.source(text.operands[2], Type::u32, inst.s[1]));
  size_t found = data.kind == Operand::Kind::vector ? data.parts.size() : 1;
  if (found != registers) return decoder.error("expected %u registers, found %zu", registers, found);
  if (isLoad) LATHE_RETURN_IF_ERROR(decoder.dests(data, Type::b32, inst));
  else LATHE_RETURN_IF_ERROR(decoder.sources(data, Type::b32, inst));
  inst.bytes = static_cast<uint8_t>(elementBytes(type));
  decoder.noteGranule(inst.space, inst.bytes);
  decoder.opClass = isLoad ? OpClass::load : OpClass::store;
  inst.imm = rows | columns << 8 | uint32_t(columnMajor) << 16 | uint32_t(isStore) << 17 | registers << 20;
  inst.run = moveFragment;
  return {};
}

} // namespace

void addWmmaOps(OpTable &table) { table.family("wmma", decodeWmma, OpClass::matrix); }

} // namespace lathe::emulator
