//===- ExecConvert.cpp - cvt -----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Data Movement and Conversion Instructions: cvt". Conversions that kernels use in inner
// loops have an executor of their own; every other combination goes through float64 or 64-bit integers.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Numerics.h"
#include <algorithm>

namespace lathe::emulator {
namespace {

struct Conversion {
  Type to, from;
  Rounding rounding;
  bool integral;   ///< round to an integer (rni and so on, also float to float)
  bool saturate, flush, relu;
  unsigned toBits; ///< of the register
  bool fromWide;
};
// Packed into Inst: imm = to | from << 8 | rounding << 16 | flags << 20, imm2 = bits of the register.
uint32_t pack(const Conversion &c) {
  return static_cast<uint32_t>(c.to) | static_cast<uint32_t>(c.from) << 8 | static_cast<uint32_t>(c.rounding) << 16 | uint32_t(c.integral) << 20 | uint32_t(c.saturate) << 21 | uint32_t(c.flush) << 22 | uint32_t(c.relu) << 23 | uint32_t(c.fromWide) << 24;
}
Conversion unpack(const Inst &inst) {
  uint32_t word = inst.imm;
  return {static_cast<Type>(word & 0xff), static_cast<Type>(word >> 8 & 0xff), static_cast<Rounding>(word >> 16 & 15), bool(word >> 20 & 1), bool(word >> 21 & 1), bool(word >> 22 & 1), bool(word >> 23 & 1), inst.imm2, bool(word >> 24 & 1)};
}

double roundIntegral(double value, Rounding rounding) {
  switch (rounding) {
  case Rounding::zero: return std::trunc(value);
  case Rounding::down: return std::floor(value);
  case Rounding::up: return std::ceil(value);
  default: return std::nearbyint(value);
  }
}

double floatOf(uint64_t bits, Type type) {
  switch (type) {
  case Type::f16: return halfToFloat(static_cast<uint16_t>(bits));
  case Type::bf16: return bfloatToFloat(static_cast<uint16_t>(bits));
  case Type::f32:
  case Type::tf32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
  case Type::e4m3: return e4m3ToFloat(static_cast<uint8_t>(bits));
  case Type::e5m2: return e5m2ToFloat(static_cast<uint8_t>(bits));
  default: return std::bit_cast<double>(bits);
  }
}
uint64_t floatBits(double value, Type type, Rounding rounding, bool saturate) {
  switch (type) {
  case Type::f16: return encode(value, kHalf, rounding, saturate);
  case Type::bf16: return encode(value, kBfloat, rounding, saturate);
  case Type::e4m3: return encode(value, kE4m3, rounding, saturate);
  case Type::e5m2: return encode(value, kE5m2, rounding, saturate);
  case Type::f32: return std::bit_cast<uint32_t>(canonical(roundToFloat(value, rounding)));
  case Type::tf32: return encode(value, Format{8, 10, true}, rounding, saturate) << 13;
  default: return std::bit_cast<uint64_t>(value);
  }
}
int64_t integerOf(uint64_t bits, Type type) {
  switch (type) {
  case Type::s8: return static_cast<int8_t>(bits);
  case Type::s16: return static_cast<int16_t>(bits);
  case Type::s32: return static_cast<int32_t>(bits);
  case Type::u8:
  case Type::b8: return static_cast<uint8_t>(bits);
  case Type::u16:
  case Type::b16: return static_cast<uint16_t>(bits);
  case Type::u32:
  case Type::b32: return static_cast<uint32_t>(bits);
  default: return static_cast<int64_t>(bits);
  }
}
/// |value|, an integer of |from|, as |to| cut or saturated, extended to 64 bits.
uint64_t integerTo(int64_t value, Type from, Type to, bool saturate) {
  unsigned bits = typeBits(to);
  if (saturate) {
    bool big = from == Type::u64 && value < 0;
    if (isSigned(to)) {
      int64_t most = bits == 64 ? INT64_MAX : (int64_t(1) << (bits - 1)) - 1;
      value = big ? most : std::clamp<int64_t>(value, -most - 1, most);
    } else {
      if (!big && value < 0) value = 0;
      uint64_t most = bits == 64 ? UINT64_MAX : (uint64_t(1) << bits) - 1;
      value = static_cast<int64_t>(std::min(static_cast<uint64_t>(value), most));
    }
  }
  if (bits == 64) return static_cast<uint64_t>(value);
  uint64_t low = static_cast<uint64_t>(value) & ((uint64_t(1) << bits) - 1);
  if (isSigned(to) && low >> (bits - 1) & 1) low |= ~uint64_t(0) << bits;
  return low;
}
/// Float to integer clamps; NaN gives 0 (and the largest negative number for 64 bits gives 0x8000...).
uint64_t floatToInteger(double value, Type to, Rounding rounding) {
  if (value != value) return typeBits(to) == 64 ? uint64_t(1) << 63 : 0;
  value = roundIntegral(value, rounding);
  unsigned bits = typeBits(to);
  if (isSigned(to)) {
    double most = std::ldexp(1.0, static_cast<int>(bits) - 1);
    int64_t top = bits == 64 ? INT64_MAX : (int64_t(1) << (bits - 1)) - 1;
    if (value >= most) return static_cast<uint64_t>(top);
    if (value < -most) return static_cast<uint64_t>(-top - 1);
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  if (value <= 0) return 0;
  if (value >= std::ldexp(1.0, static_cast<int>(bits))) return bits == 64 ? UINT64_MAX : (uint64_t(1) << bits) - 1;
  return static_cast<uint64_t>(value);
}

void convertAny(Warp &warp, const Inst &inst, uint32_t mask) {
  Conversion c = unpack(inst);
  eachLane(mask, [&](unsigned lane) {
    uint64_t in = c.fromWide ? warp.reg<uint64_t>(inst.s[0])[lane] : warp.reg<uint32_t>(inst.s[0])[lane], out;
    if (isFloat(c.from)) {
      double value = floatOf(in, c.from);
      if (c.flush && c.from == Type::f32) value = flush(static_cast<float>(value));
      if (isFloat(c.to)) {
        if (c.integral) value = roundIntegral(value, c.rounding);
        if (c.relu && value <= 0) value = 0;
        bool unit = c.saturate && (c.to == Type::f32 || c.to == Type::f64 || c.to == Type::f16 || c.to == Type::bf16) && !c.relu;
        if (unit && !c.integral && inst.extra) value = value != value ? 0 : std::clamp(value, 0.0, 1.0); // .sat
        out = floatBits(value, c.to, c.rounding, c.saturate && !inst.extra);
        if (c.flush && c.to == Type::f32) out = std::bit_cast<uint32_t>(flush(std::bit_cast<float>(static_cast<uint32_t>(out))));
      } else {
        out = floatToInteger(value, c.to, c.rounding);
        if (value != value && c.to == Type::s64 && c.from != Type::f64) out = uint64_t(1) << 63;
      }
    } else if (isFloat(c.to)) {
      int64_t value = integerOf(in, c.from);
      // 64-bit integers have more bits than a double: round to odd first.
      bool big = c.from == Type::u64 && value < 0;
      double wide = big ? static_cast<double>(static_cast<uint64_t>(value)) : static_cast<double>(value);
      if (c.to != Type::f64 && typeBits(c.from) == 64) {
        uint64_t magnitude = big || value >= 0 ? static_cast<uint64_t>(value) : 0 - static_cast<uint64_t>(value);
        int shift = 64 - std::countl_zero(magnitude | 1) - 53;
        if (shift > 0) {
          bool sticky = magnitude & ((uint64_t(1) << shift) - 1);
          wide = std::ldexp(static_cast<double>((magnitude >> shift) | sticky), shift);
          if (!big && value < 0) wide = -wide;
        }
      }
      out = floatBits(wide, c.to, c.rounding, false);
    } else {
      out = integerTo(integerOf(in, c.from), c.from, c.to, c.saturate);
    }
    if (c.toBits == 64) warp.reg<uint64_t>(inst.d)[lane] = out;
    else warp.reg<uint32_t>(inst.d)[lane] = static_cast<uint32_t>(c.toBits == 16 ? out & 0xffff : out);
  });
}

/// Two values in one register: cvt.rn.f16x2.f32 d, high, low and the fp8 forms. Packed source: f16x2 <- e4m3x2 and back.
void convertPair(Warp &warp, const Inst &inst, uint32_t mask) {
  Conversion c = unpack(inst);
  auto element = [](Type type) {
    switch (type) {
    case Type::f16x2: return Type::f16;
    case Type::bf16x2: return Type::bf16;
    case Type::e4m3x2: return Type::e4m3;
    case Type::e5m2x2: return Type::e5m2;
    default: return type;
    }
  };
  Type to = element(c.to), from = element(c.from);
  unsigned shift = typeBits(from), width = typeBits(to);
  bool packed = from != c.from;
  const uint32_t *a = warp.reg<uint32_t>(inst.s[0]), *b = packed ? a : warp.reg<uint32_t>(inst.s[1]);
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  eachLane(mask, [&](unsigned lane) {
    uint32_t in[2] = {packed ? a[lane] : b[lane], packed ? a[lane] >> shift : a[lane]}, out = 0; // low, high
    for (unsigned half = 0; half < 2; ++half) {
      double value = floatOf(in[half], from);
      if (c.relu && value <= 0) value = 0;
      out |= static_cast<uint32_t>(floatBits(value, to, c.rounding, c.saturate)) << (half * width);
    }
    d[lane] = out;
  });
}
template <bool Bfloat> void floatsToPair(Warp &warp, const Inst &inst, uint32_t mask) {
  const float *high = warp.reg<float>(inst.s[0]), *low = warp.reg<float>(inst.s[1]);
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  forLanes(mask, [=](unsigned lane) {
    uint16_t l = Bfloat ? floatToBfloat(low[lane]) : floatToHalf(low[lane]), h = Bfloat ? floatToBfloat(high[lane]) : floatToHalf(high[lane]);
    d[lane] = static_cast<uint32_t>(h) << 16 | l;
  });
}

/// The executors of inner loops; nullptr: none.
Handler fast(const Conversion &c, bool toWide) {
  using enum Type;
  const bool nearest = c.rounding == Rounding::nearest && !c.integral;
  if (c.saturate || c.relu || c.flush) return nullptr;
  auto is = [&](Type to, Type from) { return c.to == to && c.from == from; };
  if (toWide == (typeBits(c.to) == 64) && c.fromWide == (typeBits(c.from) == 64)) {
    if (is(f32, f16)) return LATHE_UNARY(float, uint16_t, canonical(halfToFloat(a)));
    if (is(f32, bf16)) return LATHE_UNARY(float, uint16_t, canonical(bfloatToFloat(a)));
    if (is(f16, f32) && nearest) return LATHE_UNARY(uint16_t, float, floatToHalf(a));
    if (is(bf16, f32) && nearest) return LATHE_UNARY(uint16_t, float, floatToBfloat(a));
    if (is(f32, s32) && nearest) return LATHE_UNARY(float, int32_t, static_cast<float>(a));
    if (is(f32, u32) && nearest) return LATHE_UNARY(float, uint32_t, static_cast<float>(a));
    if (is(f32, s16) && nearest) return LATHE_UNARY(float, int16_t, static_cast<float>(a));
    if (is(f32, u16) && nearest) return LATHE_UNARY(float, uint16_t, static_cast<float>(a));
    if (is(f32, s8) && nearest) return LATHE_UNARY(float, int8_t, static_cast<float>(a));
    if (is(f32, u8) && nearest) return LATHE_UNARY(float, uint8_t, static_cast<float>(a));
    if (is(u64, u32) || is(s64, u32)) return LATHE_UNARY(uint64_t, uint32_t, a);
    if (is(s64, s32) || is(u64, s32)) return LATHE_UNARY(int64_t, int32_t, a);
    if (is(u64, u16) || is(s64, u16)) return LATHE_UNARY(uint64_t, uint16_t, a);
    if ((c.to == u32 || c.to == s32) && (c.from == u64 || c.from == s64)) return LATHE_UNARY(uint32_t, uint64_t, static_cast<uint32_t>(a));
  }
  if (!toWide && !c.fromWide) {
    if (c.toBits == 32 && (c.to == u32 || c.to == s32)) {
      if (c.from == u16) return LATHE_UNARY(uint32_t, uint16_t, a);
      if (c.from == s16) return LATHE_UNARY(int32_t, int16_t, a);
      if (c.from == u8) return LATHE_UNARY(uint32_t, uint8_t, a);
      if (c.from == s8) return LATHE_UNARY(int32_t, int8_t, a);
      if (c.from == u32 || c.from == s32) return LATHE_UNARY(uint32_t, uint32_t, a);
    }
    if (c.toBits == 16 && (c.to == u16 || c.to == s16) && (c.from == u32 || c.from == s32 || c.from == u16 || c.from == s16)) return LATHE_UNARY(uint16_t, uint32_t, static_cast<uint16_t>(a));
    if (is(s32, f32) && c.integral && (c.rounding == Rounding::nearest || c.rounding == Rounding::zero)) {
      auto clamp = [](float rounded, float a) -> int32_t { return a != a ? 0 : rounded >= 0x1p31f ? INT32_MAX : rounded < -0x1p31f ? INT32_MIN : static_cast<int32_t>(rounded); };
      static constexpr auto clampOf = clamp;
      if (c.rounding == Rounding::nearest) return [](Warp &warp, const Inst &inst, uint32_t mask) { unary<int32_t, float>(warp, inst, mask, [](float a) { return clampOf(__builtin_elementwise_roundeven(a), a); }); };
      return [](Warp &warp, const Inst &inst, uint32_t mask) { unary<int32_t, float>(warp, inst, mask, [](float a) { return clampOf(__builtin_elementwise_trunc(a), a); }); };
    }
  }
  return nullptr;
}

Status decodeConvert(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  Conversion c{};
  if (mods.take("pack")) { // cvt.pack.sat.type.s32 d, a, b{, c}
    if (!mods.take("sat")) return decoder.error("expected .sat");
    Type to = mods.takeType(), from = mods.takeType();
    if (from == Type::b32) from = mods.takeType();
    (void)from;
    bool bytes = typeBits(to) == 8;
    if (to != Type::s8 && to != Type::u8 && to != Type::s16 && to != Type::u16) return decoder.error("cvt.pack to .%s is not modelled", typeName(to));
    if (!mods.rest().empty()) mods.take("b32");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, bytes ? 4 : 3, bytes ? 4 : 3));
    for (size_t index = 1; index < text.operands.size(); ++index)
      LATHE_RETURN_IF_ERROR(decoder.source(text.operands[index], Type::b32, inst.s[index - 1]));
    LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], Type::b32, inst.d));
    inst.imm = static_cast<uint32_t>(to);
    inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
      Type to = static_cast<Type>(inst.imm);
      unsigned bits = typeBits(to);
      eachLane(mask, [&](unsigned lane) {
        auto value = [&](unsigned source) { return static_cast<uint32_t>(integerTo(warp.reg<int32_t>(inst.s[source])[lane], Type::s32, to, true)) & ((1u << bits) - 1); };
        uint32_t out = value(0) << bits | value(1);
        if (bits == 8) out |= warp.reg<uint32_t>(inst.s[2])[lane] << 16;
        warp.reg<uint32_t>(inst.d)[lane] = out;
      });
    };
    return {};
  }
  std::string_view rounding = mods.takeAny({"rni", "rzi", "rmi", "rpi", "rn", "rz", "rm", "rp", "rna"});
  c.integral = rounding.size() == 3 && rounding != "rna";
  if (!rounding.empty()) c.rounding = rounding == "rna" ? Rounding::away : rounding[1] == 'z' ? Rounding::zero : rounding[1] == 'm' ? Rounding::down : rounding[1] == 'p' ? Rounding::up : Rounding::nearest;
  c.relu = mods.take("relu");
  c.flush = mods.take("ftz");
  bool saturate = mods.take("sat"), finite = mods.take("satfinite");
  c.saturate = saturate || finite;
  c.to = mods.takeType();
  c.from = mods.takeType();
  if (c.to == Type::none || c.from == Type::none || c.to == Type::pred || c.from == Type::pred) return decoder.error("expected the types of a conversion");
  auto isPair = [](Type type) { return type == Type::f16x2 || type == Type::bf16x2 || type == Type::e4m3x2 || type == Type::e5m2x2; };
  auto isFp8 = [](Type type) { return type == Type::e4m3x2 || type == Type::e5m2x2; };
  if (isFp8(c.to) || isFp8(c.from)) LATHE_RETURN_IF_ERROR(decoder.require(89, "an fp8 conversion"));
  if (c.to == Type::bf16 || c.to == Type::bf16x2 || c.to == Type::tf32) LATHE_RETURN_IF_ERROR(decoder.require(80, "the conversion"));
  if (isPair(c.to)) {
    bool packed = isPair(c.from);
    if (rounding.empty()) return decoder.error("expected a rounding modifier such as .rn");
    if (isFp8(c.to) && !finite) return decoder.error("a conversion to fp8 needs .satfinite");
    if (packed && isFp8(c.to) == isFp8(c.from)) return decoder.error("conversion from .%s to .%s is not modelled", typeName(c.from), typeName(c.to));
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, packed ? 2 : 3, packed ? 2 : 3));
    Type sourceType = packed ? (typeBits(c.from) == 16 ? Type::b16 : Type::b32) : Type::f32;
    if (!packed && c.from != Type::f32) return decoder.error("conversion from .%s to .%s is not modelled", typeName(c.from), typeName(c.to));
    for (unsigned index = 0; index < (packed ? 1u : 2u); ++index)
      LATHE_RETURN_IF_ERROR(decoder.source(text.operands[index + 1], sourceType, inst.s[index]));
    LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], typeBits(c.to) == 16 ? Type::b16 : Type::b32, inst.d));
    inst.imm = pack(c);
    inst.run = convertPair;
    bool plain = !c.relu && !c.saturate && c.rounding == Rounding::nearest && !packed;
    if (plain && c.to == Type::f16x2) inst.run = floatsToPair<false>;
    if (plain && c.to == Type::bf16x2) inst.run = floatsToPair<true>;
    return {};
  }
  if (isPair(c.from) || c.from == Type::e4m3 || c.to == Type::e4m3 || c.from == Type::e5m2 || c.to == Type::e5m2 || typeBits(c.to) > 64 || typeBits(c.from) > 64)
    return decoder.error("conversion from .%s to .%s is not modelled", typeName(c.from), typeName(c.to));
  bool needs = isFloat(c.to) ? (isFloat(c.from) ? typeBits(c.to) < typeBits(c.from) || c.to == Type::tf32 : true) : isFloat(c.from);
  if (needs && rounding.empty()) return decoder.error("the conversion needs a rounding modifier");
  if (isFloat(c.from) && !isFloat(c.to) && !c.integral) return decoder.error("a conversion to an integer needs .rni, .rzi, .rmi or .rpi");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  bool toWide = false;
  LATHE_RETURN_IF_ERROR(decoder.sourceRelaxed(text.operands[1], c.from, inst.s[0], c.fromWide));
  LATHE_RETURN_IF_ERROR(decoder.destRelaxed(text.operands[0], c.to, inst.d, toWide));
  c.toBits = decoder.registerBits(text.operands[0]);
  if (c.toBits == 0) c.toBits = typeBits(c.to) <= 32 ? 32 : 64;
  inst.imm = pack(c);
  inst.imm2 = c.toBits;
  inst.extra = saturate && isFloat(c.to);
  inst.run = fast(c, toWide);
  if (!inst.run) inst.run = convertAny;
  return {};
}

} // namespace

void addConvertOps(OpTable &table) { table.family("cvt", decodeConvert, OpClass::convert); }

} // namespace lathe::emulator
