//===- ExecHalf.cpp - f16, bf16 and their pairs ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Half Precision Floating-Point Instructions". Sums and products of two f16 or bf16 values
// are computed in float32 or float64, wide enough that the one rounding to 16 bits is the right one.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Numerics.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace lathe::emulator {
namespace {

enum class HalfOp { add, sub, mul, fma, fmaRelu, min, max, minNaN, maxNaN, neg, abs };

template <bool Bfloat> float widen(uint16_t bits) { return Bfloat ? bfloatToFloat(bits) : halfToFloat(bits); }
template <bool Bfloat> uint16_t narrow(double value) { return Bfloat ? doubleToBfloat(value) : doubleToHalf(value); }
template <bool Bfloat> uint16_t narrowFloat(float value) { return Bfloat ? floatToBfloat(value) : floatToHalf(value); }

template <HalfOp Op, bool Bfloat> inline uint16_t compute(uint16_t x, uint16_t y, uint16_t z) {
  constexpr uint16_t kNaN = 0x7fff;
  float a = widen<Bfloat>(x), b = widen<Bfloat>(y);
  switch (Op) {
  // Two bf16 exponents may lie further apart than float32 has bits, so bf16 sums go through float64.
  case HalfOp::add: return Bfloat ? narrow<Bfloat>(double(a) + b) : narrowFloat<Bfloat>(a + b);
  case HalfOp::sub: return Bfloat ? narrow<Bfloat>(double(a) - b) : narrowFloat<Bfloat>(a - b);
  case HalfOp::mul: return narrowFloat<Bfloat>(a * b);
  case HalfOp::fma: return narrow<Bfloat>(std::fma(double(a), double(b), double(widen<Bfloat>(z))));
  case HalfOp::fmaRelu: {
    double value = std::fma(double(a), double(b), double(widen<Bfloat>(z)));
    return value != value ? kNaN : value <= 0 ? 0 : narrow<Bfloat>(value);
  }
  case HalfOp::min:
  case HalfOp::max:
  case HalfOp::minNaN:
  case HalfOp::maxNaN: {
    bool smaller = Op == HalfOp::min || Op == HalfOp::minNaN;
    if (a != a && b != b) return kNaN;
    if (a != a || b != b) return Op == HalfOp::minNaN || Op == HalfOp::maxNaN ? kNaN : a != a ? y : x;
    if (a == b) return (x >> 15 != 0) == smaller ? x : y; // -0 is below +0
    return (a < b) == smaller ? x : y;
  }
  case HalfOp::neg: return x ^ 0x8000;
  case HalfOp::abs: return x & 0x7fff;
  }
}
inline uint16_t flushHalf(uint16_t bits) { return bits & 0x7c00 ? bits : bits & 0x8000; }
inline uint16_t clampHalf(uint16_t bits) { return (bits & 0x7fff) > 0x7c00 || bits >> 15 ? 0 : std::min<uint16_t>(bits, 0x3c00); }

template <HalfOp Op, bool Bfloat, bool Pair, bool Flush, bool Saturate> void halfOp(Warp &warp, const Inst &inst, uint32_t mask) {
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  const uint32_t *a = warp.reg<uint32_t>(inst.s[0]);
  const uint32_t *b = inst.s[1] == kNoSlot ? a : warp.reg<uint32_t>(inst.s[1]);
  const uint32_t *c = inst.s[2] == kNoSlot ? a : warp.reg<uint32_t>(inst.s[2]);
  auto one = [](uint32_t x, uint32_t y, uint32_t z) -> uint32_t {
    uint16_t p = static_cast<uint16_t>(x), q = static_cast<uint16_t>(y), r = static_cast<uint16_t>(z);
    if (Flush) p = flushHalf(p), q = flushHalf(q), r = flushHalf(r);
    uint16_t result = compute<Op, Bfloat>(p, q, r);
    if (Flush) result = flushHalf(result);
    if (Saturate) result = clampHalf(result);
    return result;
  };
  forLanes(mask, [=](unsigned lane) {
    uint32_t low = one(a[lane], b[lane], c[lane]);
    d[lane] = Pair ? low | one(a[lane] >> 16, b[lane] >> 16, c[lane] >> 16) << 16 : low;
  });
}

/// "Mixed Precision Floating-Point Instructions": factors, or the first summand, of 16 bits, the rest and the result float32, rounded once. Infinities and NaN as of
/// float32's own operations.
template <HalfOp Op, bool Bfloat, bool Saturate> void mixedOp(Warp &warp, const Inst &inst, uint32_t mask) {
  float *d = warp.reg<float>(inst.d);
  const uint32_t *a = warp.reg<uint32_t>(inst.s[0]);
  const uint32_t *b = warp.reg<uint32_t>(inst.s[1]);
  const uint32_t *c = Op == HalfOp::fma ? warp.reg<uint32_t>(inst.s[2]) : b;
  forLanes(mask, [=](unsigned lane) {
    float x = widen<Bfloat>(static_cast<uint16_t>(a[lane])), last = std::bit_cast<float>(c[lane]), result;
    if (Op == HalfOp::fma) result = std::fma(x, widen<Bfloat>(static_cast<uint16_t>(b[lane])), last);
    else result = Op == HalfOp::sub ? x - last : x + last;
    if (Saturate) result = result > 0 ? std::min(result, 1.0f) : 0; // NaN too
    d[lane] = canonical(result);
  });
}
template <HalfOp Op> void addMixed(OpTable &table, const char *name) {
  std::string base(name);
  auto add = [&](const char *suffix, Handler run) { table.add((base + suffix).c_str(), run, Op == HalfOp::fma ? "f=hhf" : "f=hf", OpClass::floating, 100); };
  add(".f32.f16", mixedOp<Op, false, false>);
  add(".f32.bf16", mixedOp<Op, true, false>);
  add(".sat.f32.f16", mixedOp<Op, false, true>);
  add(".sat.f32.bf16", mixedOp<Op, true, true>);
}

template <HalfOp Op> void addOp(OpTable &table, const char *name, unsigned sources, unsigned capability = 53, unsigned bfloatCapability = 90) {
  static constexpr const char *wide[] = {"", "r=r", "r=rr", "r=rrr"};
  static constexpr const char *narrow[] = {"", "h=h", "h=hh", "h=hhh"};
  std::string base(name);
  auto add = [&](const char *suffix, Handler run, bool pair, unsigned minimum) { table.add((base + suffix).c_str(), run, pair ? wide[sources] : narrow[sources], OpClass::floating, minimum); };
  add(".f16", halfOp<Op, false, false, false, false>, false, capability);
  add(".f16x2", halfOp<Op, false, true, false, false>, true, capability);
  add(".ftz.f16", halfOp<Op, false, false, true, false>, false, capability);
  add(".ftz.f16x2", halfOp<Op, false, true, true, false>, true, capability);
  if (Op == HalfOp::add || Op == HalfOp::sub || Op == HalfOp::mul || Op == HalfOp::fma) {
    add(".sat.f16", halfOp<Op, false, false, false, true>, false, capability);
    add(".sat.f16x2", halfOp<Op, false, true, false, true>, true, capability);
  }
  add(".bf16", halfOp<Op, true, false, false, false>, false, bfloatCapability);
  add(".bf16x2", halfOp<Op, true, true, false, false>, true, bfloatCapability);
}

} // namespace

void addHalfOps(OpTable &table) {
  addOp<HalfOp::add>(table, "add", 2);
  addOp<HalfOp::sub>(table, "sub", 2);
  addOp<HalfOp::mul>(table, "mul", 2);
  addOp<HalfOp::fma>(table, "fma", 3, 53, 80);
  addOp<HalfOp::fmaRelu>(table, "fma.relu", 3, 80, 80);
  addOp<HalfOp::min>(table, "min", 2, 80, 80);
  addOp<HalfOp::max>(table, "max", 2, 80, 80);
  addOp<HalfOp::minNaN>(table, "min.NaN", 2, 80, 80);
  addOp<HalfOp::maxNaN>(table, "max.NaN", 2, 80, 80);
  addMixed<HalfOp::add>(table, "add");
  addMixed<HalfOp::sub>(table, "sub");
  addMixed<HalfOp::fma>(table, "fma");
  addOp<HalfOp::neg>(table, "neg", 1, 53, 80);
  addOp<HalfOp::abs>(table, "abs", 1, 53, 80);
}

} // namespace lathe::emulator
