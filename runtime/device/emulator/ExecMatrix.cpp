//===- ExecMatrix.cpp - mma.sync, ldmatrix, stmatrix, movmatrix ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Fragments as in the PTX ISA, "Matrix Fragments for mma.m16n8k...": with g = lane / 4, t = lane % 4 and
// E elements in a register, register i of A holds row g + 8 * (i % 2), columns E*t + 4*E*(i/2) + 0..E-1;
// of B column g, rows E*t + 4*E*i + 0..E-1; C and D hold rows g and g + 8, columns 2*t and 2*t + 1.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/MatrixMath.h"
#include "runtime/device/emulator/Numerics.h"
#include "runtime/device/emulator/Race.h"

namespace lathe::emulator {
namespace {

struct Shape { uint8_t m, n, k; };

bool fullWarp(Warp &warp, const Inst &inst, uint32_t mask) {
  if (mask == ~0u) return true;
  failf(warp, inst, -1, "divergent: an .aligned warp instruction with lanes 0x%08x only", mask);
  return false;
}

bool isInteger(Type type) { return !isFloat(type); }
/// Bits of an element; s4 and u4 are written as b8 with |four|.
int32_t integerElement(uint32_t bits, bool negative, unsigned width) {
  uint32_t mask = (1u << width) - 1, value = bits & mask;
  return negative && value >> (width - 1) ? static_cast<int32_t>(value | ~mask) : static_cast<int32_t>(value);
}

// imm: k | m << 8 | accumulator f16 << 16 | saturate << 17 | element bits << 20; imm2: type A | type B << 8 | signs << 16.
// Slots: D, then A, B, C.
void multiply(Warp &warp, const Inst &inst, uint32_t mask) {
  if (!fullWarp(warp, inst, mask)) return;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  const unsigned k = inst.imm & 0xff, m = inst.imm >> 8 & 0xff, bits = inst.imm >> 20 & 0x3f;
  const bool half = inst.imm >> 16 & 1, saturate = inst.imm >> 17 & 1;
  const Type typeA = static_cast<Type>(inst.imm2 & 0xff), typeB = static_cast<Type>(inst.imm2 >> 8 & 0xff);
  const unsigned perRegister = 32 / bits, rowsets = m / 8;
  const unsigned registersA = m * k / 32 / perRegister, registersB = 8 * k / 32 / perRegister, registersC = half ? rowsets : 2 * rowsets;
  const uint32_t *d = slots, *a = d + registersC, *b = a + registersA, *c = b + registersB;
  const bool integer = isInteger(typeA);
  float fa[16][64], fb[64][8], fd[16][8];
  int32_t ia[16][64], ib[64][8], id[16][8];
  for (unsigned reg = 0; reg < registersA; ++reg) {
    const uint32_t *values = warp.reg<uint32_t>(a[reg]);
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned e = 0; e < perRegister; ++e) {
        unsigned row = lane / 4 + (m == 16 ? 8 * (reg & 1) : 0), column = (lane % 4) * perRegister + (m == 16 ? reg / 2 : reg) * 4 * perRegister + e;
        uint32_t element = values[lane] >> (e * bits);
        if (integer) ia[row][column] = integerElement(element, inst.imm2 >> 16 & 1, bits);
        else fa[row][column] = matrixElement(bits == 32 ? element : element & ((1u << bits) - 1), typeA);
      }
  }
  for (unsigned reg = 0; reg < registersB; ++reg) {
    const uint32_t *values = warp.reg<uint32_t>(b[reg]);
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned e = 0; e < perRegister; ++e) {
        unsigned row = (lane % 4) * perRegister + reg * 4 * perRegister + e, column = lane / 4;
        uint32_t element = values[lane] >> (e * bits);
        if (integer) ib[row][column] = integerElement(element, inst.imm2 >> 17 & 1, bits);
        else fb[row][column] = matrixElement(bits == 32 ? element : element & ((1u << bits) - 1), typeB);
      }
  }
  for (unsigned reg = 0; reg < registersC; ++reg) {
    const uint32_t *values = warp.reg<uint32_t>(c[reg]);
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned row = lane / 4 + 8 * (half ? reg : reg / 2), column = (lane % 4) * 2 + (half ? 0 : reg & 1);
      if (half) {
        fd[row][column] = halfToFloat(static_cast<uint16_t>(values[lane]));
        fd[row][column + 1] = halfToFloat(static_cast<uint16_t>(values[lane] >> 16));
      } else if (integer) {
        id[row][column] = static_cast<int32_t>(values[lane]);
      } else {
        fd[row][column] = std::bit_cast<float>(values[lane]);
      }
    }
  }
  MatrixArithmetic arithmetic = arithmeticOf(MatrixFamily::mma, typeA);
  for (unsigned row = 0; row < m; ++row) {
    if (integer) multiplyRowInteger(ia[row], ib[0], id[row], k, 8, saturate);
    else multiplyRow(fa[row], fb[0], fd[row], k, 8, arithmetic);
  }
  for (unsigned reg = 0; reg < registersC; ++reg) {
    uint32_t *values = warp.reg<uint32_t>(d[reg]);
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned row = lane / 4 + 8 * (half ? reg : reg / 2), column = (lane % 4) * 2 + (half ? 0 : reg & 1);
      if (half) values[lane] = floatToHalf(fd[row][column]) | static_cast<uint32_t>(floatToHalf(fd[row][column + 1])) << 16;
      else if (integer) values[lane] = static_cast<uint32_t>(id[row][column]);
      else values[lane] = std::bit_cast<uint32_t>(fd[row][column]);
    }
  }
}

/// m8n8k4 f64: A row g column t, B row t column g, C row g columns 2t, 2t+1.
void multiplyDouble(Warp &warp, const Inst &inst, uint32_t mask) {
  if (!fullWarp(warp, inst, mask)) return;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  const double *a = warp.reg<double>(slots[2]), *b = warp.reg<double>(slots[3]);
  double result[2][32];
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned which = 0; which < 2; ++which) {
      unsigned row = lane / 4, column = (lane % 4) * 2 + which;
      double sum = warp.reg<double>(slots[4 + which])[lane];
      for (unsigned k = 0; k < 4; ++k)
        sum = std::fma(a[row * 4 + k], b[column * 4 + k], sum);
      result[which][lane] = sum;
    }
  for (unsigned which = 0; which < 2; ++which)
    std::memcpy(warp.reg<double>(slots[which]), result[which], sizeof(result[which]));
}

Status decodeMultiply(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("sync") || !mods.take("aligned")) return decoder.error("expected .sync.aligned");
  static constexpr std::pair<const char *, Shape> shapes[] = {{"m16n8k4", {16, 8, 4}}, {"m16n8k8", {16, 8, 8}}, {"m16n8k16", {16, 8, 16}}, {"m16n8k32", {16, 8, 32}},
                                                              {"m16n8k64", {16, 8, 64}}, {"m8n8k16", {8, 8, 16}}, {"m8n8k32", {8, 8, 32}}, {"m8n8k4", {8, 8, 4}}};
  const Shape *shape = nullptr;
  for (const auto &[name, value] : shapes)
    if (mods.take(name)) shape = &value;
  if (!shape) return decoder.error("shape is not modelled");
  if (!mods.take("row") || !mods.take("col")) return decoder.error("expected .row.col");
  bool saturate = mods.take("satfinite");
  if (mods.take("kind::f8f6f4")) LATHE_RETURN_IF_ERROR(decoder.require(120, ".kind::f8f6f4"));
  // Types: D, A, B, C. s4 and u4 are no types of registers.
  unsigned bits = 0;
  Type types[4];
  bool negative[2] = {false, false};
  for (unsigned index = 0; index < 4; ++index) {
    if (index == 1 || index == 2) {
      std::string_view four = mods.takeAny({"s4", "u4"});
      if (!four.empty()) {
        types[index] = Type::b8;
        bits = 4;
        negative[index - 1] = four[0] == 's';
        continue;
      }
    }
    types[index] = mods.takeType();
    if (types[index] == Type::none) return decoder.error("expected the types of D, A, B and C");
    if (index == 1 || index == 2) negative[index - 1] = isSigned(types[index]);
  }
  const Type d = types[0], a = types[1], b = types[2], c = types[3];
  if (d != c) return decoder.error("D and C of different types are not modelled");
  if (a == Type::f64) {
    LATHE_RETURN_IF_ERROR(decoder.require(80, "mma of f64"));
    if (shape->m != 8 || shape->k != 4 || b != Type::f64 || d != Type::f64) return decoder.error("shape is not modelled for f64");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 4, 4));
    LATHE_RETURN_IF_ERROR(decoder.dests(text.operands[0], Type::f64, inst));
    for (unsigned index = 1; index < 4; ++index)
      LATHE_RETURN_IF_ERROR(decoder.sources(text.operands[index], Type::f64, inst));
    if (inst.extraCount != 6) return decoder.error("expected 2, 1, 1 and 2 registers");
    inst.run = multiplyDouble;
    return {};
  }
  if (!bits) bits = typeBits(a);
  bool integer = isInteger(a), fp8 = a == Type::e4m3 || a == Type::e5m2;
  if (typeBits(b) != typeBits(a) || isInteger(b) != integer) return decoder.error("A and B of .%s and .%s are not modelled", typeName(a), typeName(b));
  if (!fp8 && !integer && a != b) return decoder.error("A and B of .%s and .%s are not modelled", typeName(a), typeName(b));
  if (a == Type::f32 || (integer && typeBits(a) != 8)) return decoder.error("A of .%s is not modelled", typeName(a));
  if (integer ? d != Type::s32 : d != Type::f32 && !(d == Type::f16 && (a == Type::f16 || fp8))) return decoder.error("D of .%s is not modelled for A of .%s", typeName(d), typeName(a));
  unsigned k = shape->k, m = shape->m;
  bool known = m == 16 ? (k * bits == 256 || k * bits == 128) : (integer && k * bits == 128);
  if (!known) return decoder.error("shape is not modelled for .%s", typeName(a));
  LATHE_RETURN_IF_ERROR(decoder.require(fp8 ? 89 : a == Type::f16 && k == 8 ? 75 : integer && m == 8 ? 75 : 80, "the mma"));
  unsigned perRegister = 32 / bits;
  bool half = d == Type::f16;
  unsigned counts[4] = {half ? m / 8 : m / 4, m * k / 32 / perRegister, 8 * k / 32 / perRegister, half ? m / 8 : m / 4};
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 4, 4));
  inst.extra = static_cast<uint32_t>(decoder.result().operands.size());
  for (unsigned index = 0; index < 4; ++index) {
    const Operand &operand = text.operands[index];
    size_t found = operand.kind == Operand::Kind::vector ? operand.parts.size() : 1;
    if (found != counts[index]) return decoder.error("expected %u registers as operand %u, found %zu", counts[index], index, found);
  }
  // Sources are noted before results: an instruction reads before it writes.
  std::vector<uint32_t> slots;
  for (unsigned index = 1; index < 4; ++index) {
    const Operand &operand = text.operands[index];
    auto one = [&](const Operand &part) {
      uint32_t slot = kNoSlot;
      LATHE_RETURN_IF_ERROR(decoder.source(part, Type::b32, slot));
      slots.push_back(slot);
      return Status();
    };
    if (operand.kind != Operand::Kind::vector) LATHE_RETURN_IF_ERROR(one(operand));
    else
      for (const Operand &part : operand.parts)
        LATHE_RETURN_IF_ERROR(one(part));
  }
  LATHE_RETURN_IF_ERROR(decoder.dests(text.operands[0], Type::b32, inst));
  for (uint32_t slot : slots)
    decoder.result().operands.push_back(slot);
  inst.extraCount += static_cast<uint32_t>(slots.size());
  inst.imm = k | m << 8 | uint32_t(half) << 16 | uint32_t(saturate && integer) << 17 | bits << 20;
  inst.imm2 = static_cast<uint32_t>(a) | static_cast<uint32_t>(b) << 8 | uint32_t(negative[0]) << 16 | uint32_t(negative[1]) << 17;
  inst.run = multiply;
  return {};
}

// --- ldmatrix and stmatrix: lane 8*i + r holds the address of row r of matrix i ---
bool matrixRows(Warp &warp, const Inst &inst, unsigned matrix, int kind, Access &where) {
  // The instruction's address register, read for eight lanes.
  uint32_t lanes = 0xffu << (8 * matrix);
  return access(warp, inst, lanes, Space::shared, 16, kind, where);
}
void loadMatrix(Warp &warp, const Inst &inst, uint32_t mask) {
  if (!fullWarp(warp, inst, mask)) return;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  uint32_t out[4][32];
  for (unsigned matrix = 0; matrix < inst.extraCount; ++matrix) {
    Access where;
    if (!matrixRows(warp, inst, matrix, 0, where)) return;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (inst.imm) {
        uint16_t low, high;
        std::memcpy(&low, where.host[8 * matrix + 2 * (lane % 4)] + 2 * (lane / 4), 2);
        std::memcpy(&high, where.host[8 * matrix + 2 * (lane % 4) + 1] + 2 * (lane / 4), 2);
        out[matrix][lane] = low | static_cast<uint32_t>(high) << 16;
      } else {
        std::memcpy(&out[matrix][lane], where.host[8 * matrix + lane / 4] + 4 * (lane % 4), 4);
      }
    }
  }
  for (unsigned matrix = 0; matrix < inst.extraCount; ++matrix)
    std::memcpy(warp.reg<uint32_t>(slots[matrix]), out[matrix], sizeof(out[matrix]));
}
void storeMatrix(Warp &warp, const Inst &inst, uint32_t mask) {
  if (!fullWarp(warp, inst, mask)) return;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  for (unsigned matrix = 0; matrix < inst.extraCount; ++matrix) {
    Access where;
    if (!matrixRows(warp, inst, matrix, 1, where)) return;
    const uint32_t *values = warp.reg<uint32_t>(slots[matrix]);
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (inst.imm) {
        uint16_t low = static_cast<uint16_t>(values[lane]), high = static_cast<uint16_t>(values[lane] >> 16);
        std::memcpy(where.host[8 * matrix + 2 * (lane % 4)] + 2 * (lane / 4), &low, 2);
        std::memcpy(where.host[8 * matrix + 2 * (lane % 4) + 1] + 2 * (lane / 4), &high, 2);
      } else {
        std::memcpy(where.host[8 * matrix + lane / 4] + 4 * (lane % 4), &values[lane], 4);
      }
    }
  }
}

Status decodeMatrixAccess(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  bool isLoad = mods.mnemonic() == "ldmatrix";
  if (!mods.take("sync") || !mods.take("aligned") || !mods.take("m8n8")) return decoder.error("expected .sync.aligned.m8n8");
  LATHE_RETURN_IF_ERROR(decoder.require(isLoad ? 75 : 90, isLoad ? "ldmatrix" : "stmatrix"));
  std::string_view count = mods.takeAny({"x1", "x2", "x4"});
  inst.imm = mods.take("trans");
  if (mods.takeAny({"shared", "shared::cta"}).empty()) return decoder.error("expected .shared");
  if (!mods.take("b16") || count.empty()) return decoder.error("expected .x1, .x2 or .x4 and .b16");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  LATHE_RETURN_IF_ERROR(decoder.address(text.operands[isLoad ? 1 : 0], inst, 0));
  if (isLoad) LATHE_RETURN_IF_ERROR(decoder.dests(text.operands[0], Type::b32, inst));
  else LATHE_RETURN_IF_ERROR(decoder.sources(text.operands[1], Type::b32, inst));
  if (inst.extraCount != static_cast<uint32_t>(count[1] - '0')) return decoder.error("expected %c registers, found %u", count[1], inst.extraCount);
  decoder.opClass = isLoad ? OpClass::sharedLoad : OpClass::sharedStore;
  inst.run = isLoad ? loadMatrix : storeMatrix;
  return {};
}

Status decodeMoveMatrix(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("sync") || !mods.take("aligned") || !mods.take("m8n8") || !mods.take("trans") || !mods.take("b16")) return decoder.error("expected .sync.aligned.m8n8.trans.b16");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::b32, inst.s[0]));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::b32, inst.d));
  inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
    if (!fullWarp(warp, inst, mask)) return;
    const uint32_t *a = warp.reg<uint32_t>(inst.s[0]);
    uint32_t out[32];
    auto element = [&](unsigned row, unsigned column) { return a[row * 4 + column / 2] >> (16 * (column & 1)) & 0xffff; };
    for (unsigned lane = 0; lane < 32; ++lane)
      out[lane] = element(2 * (lane % 4), lane / 4) | element(2 * (lane % 4) + 1, lane / 4) << 16;
    std::memcpy(warp.reg<uint32_t>(inst.d), out, sizeof(out));
  };
  return {};
}

} // namespace

void addMatrixOps(OpTable &table) {
  table.family("mma", decodeMultiply, OpClass::matrix, 70);
  table.family("ldmatrix", decodeMatrixAccess, OpClass::sharedLoad);
  table.family("stmatrix", decodeMatrixAccess, OpClass::sharedStore);
  table.family("movmatrix", decodeMoveMatrix, OpClass::warp, 75);
}

} // namespace lathe::emulator
