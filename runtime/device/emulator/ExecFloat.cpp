//===- ExecFloat.cpp - float32 and float64 arithmetic ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Floating Point Instructions": IEEE 754 results; .ftz flushes subnormal inputs and results.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include <algorithm>
#include <xmmintrin.h>

namespace lathe::emulator {
namespace {

float minimum(float a, float b) { return a != a ? b : b != b ? a : (a == b ? (std::signbit(a) ? a : b) : (a < b ? a : b)); }
float maximum(float a, float b) { return a != a ? b : b != b ? a : (a == b ? (std::signbit(a) ? b : a) : (a > b ? a : b)); }
float clampUnit(float value) { return value != value ? 0.0f : std::min(std::max(value, 0.0f), 1.0f); }

enum class FloatOp { add, sub, mul, fma, div, rcp, sqrt };
template <FloatOp Op, typename T> T compute(T a, T b, T c) {
  switch (Op) {
  case FloatOp::add: return a + b;
  case FloatOp::sub: return a - b;
  case FloatOp::mul: return a * b;
  case FloatOp::fma: return __builtin_elementwise_fma(a, b, c);
  case FloatOp::div: return a / b;
  case FloatOp::rcp: return T(1) / a;
  case FloatOp::sqrt: return __builtin_elementwise_sqrt(a);
  }
}

template <FloatOp Op, bool Flush, bool Saturate> void floatOp(Warp &warp, const Inst &inst, uint32_t mask) {
  float *d = warp.reg<float>(inst.d);
  const float *a = warp.reg<float>(inst.s[0]);
  const float *b = inst.s[1] == kNoSlot ? a : warp.reg<float>(inst.s[1]);
  const float *c = inst.s[2] == kNoSlot ? a : warp.reg<float>(inst.s[2]);
  forLanes(mask, [=](unsigned lane) {
    float x = a[lane], y = b[lane], z = c[lane];
    if (Flush) x = flush(x), y = flush(y), z = flush(z);
    float result = compute<Op, float>(x, y, z);
    if (Flush) result = flush(result);
    if (Saturate) result = clampUnit(result);
    d[lane] = canonical(result);
  });
}
template <FloatOp Op> void doubleOp(Warp &warp, const Inst &inst, uint32_t mask) {
  double *d = warp.reg<double>(inst.d);
  const double *a = warp.reg<double>(inst.s[0]);
  const double *b = inst.s[1] == kNoSlot ? a : warp.reg<double>(inst.s[1]);
  const double *c = inst.s[2] == kNoSlot ? a : warp.reg<double>(inst.s[2]);
  forLanes(mask, [=](unsigned lane) { d[lane] = compute<Op, double>(a[lane], b[lane], c[lane]); });
}

// The other rounding modes set the control register of SSE around one lane at a time. The empty asm keeps the
// compiler from moving the arithmetic out.
template <FloatOp Op, typename T> [[gnu::noinline]] void roundedLane(unsigned mode, const T *a, const T *b, const T *c, T *d) {
  unsigned saved = _mm_getcsr();
  _mm_setcsr((saved & ~0x6000u) | mode << 13);
  T x = *a, y = *b, z = *c;
  asm volatile("" : "+x"(x), "+x"(y), "+x"(z));
  T result = compute<Op, T>(x, y, z);
  asm volatile("" : "+x"(result));
  _mm_setcsr(saved);
  *d = result;
}
template <FloatOp Op, typename T, bool Flush> void roundedOp(Warp &warp, const Inst &inst, uint32_t mask) {
  T *d = warp.reg<T>(inst.d);
  const T *a = warp.reg<T>(inst.s[0]);
  const T *b = inst.s[1] == kNoSlot ? a : warp.reg<T>(inst.s[1]);
  const T *c = inst.s[2] == kNoSlot ? a : warp.reg<T>(inst.s[2]);
  eachLane(mask, [&](unsigned lane) {
    T x = a[lane], y = b[lane], z = c[lane], result;
    if constexpr (Flush) x = flush(x), y = flush(y), z = flush(z);
    roundedLane<Op, T>(inst.imm, &x, &y, &z, &result);
    if constexpr (Flush) result = flush(result);
    if constexpr (sizeof(T) == 4) result = canonical(result);
    d[lane] = result;
  });
}

template <FloatOp Op> void addArithmetic(OpTable &table, const char *name, const char *single, const char *dbl) {
  std::string base(name);
  auto add = [&](const char *suffix, Handler run, const char *signature) { table.add((base + suffix).c_str(), run, signature, OpClass::floating); };
  add(".f32", floatOp<Op, false, false>, single);
  add(".ftz.f32", floatOp<Op, true, false>, single);
  add(".sat.f32", floatOp<Op, false, true>, single);
  add(".ftz.sat.f32", floatOp<Op, true, true>, single);
  add(".f64", doubleOp<Op>, dbl);
}

/// op{.rz,.rm,.rp}{.ftz}.f32 / .f64
template <FloatOp Op> Status decodeRounded(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  std::string_view mode = mods.takeAny({"rz", "rm", "rp"});
  if (mode.empty()) return decoder.error("unknown instruction, or a combination of modifiers that is not modelled");
  inst.imm = mode == "rm" ? 1 : mode == "rp" ? 2 : 3; // as in MXCSR
  bool flushes = mods.take("ftz");
  Type type = mods.takeType();
  if (type != Type::f32 && type != Type::f64) return decoder.error("expected .f32 or .f64");
  if (type == Type::f64) inst.run = roundedOp<Op, double, false>;
  else inst.run = flushes ? roundedOp<Op, float, true> : roundedOp<Op, float, false>;
  size_t sources = Op == FloatOp::fma ? 3 : Op == FloatOp::rcp || Op == FloatOp::sqrt ? 1 : 2;
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, sources + 1, sources + 1));
  for (size_t index = 0; index < sources; ++index)
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[index + 1], type, inst.s[index]));
  return decoder.dest(text.operands[0], type, inst.d);
}
/// The mnemonics add, sub and mad are shared with the integers' carry forms.
template <FloatOp Op, FamilyDecoder Other> Status decodeEither(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (mods.has("f32") || mods.has("f64")) return decodeRounded<Op>(decoder, text, mods, inst);
  return Other(decoder, text, mods, inst);
}

/// copysign: the sign of a, the magnitude of b.
void copySign(Warp &warp, const Inst &inst, uint32_t mask) {
  binary<uint32_t, uint32_t>(warp, inst, mask, [](uint32_t a, uint32_t b) { return (a & 0x80000000u) | (b & 0x7fffffffu); });
}

FamilyDecoder carryAdd, carrySub, carryMad;
Status otherAdd(Decoder &d, const Instruction &t, Modifiers &m, Inst &i) { return carryAdd(d, t, m, i); }
Status otherSub(Decoder &d, const Instruction &t, Modifiers &m, Inst &i) { return carrySub(d, t, m, i); }
Status otherMad(Decoder &d, const Instruction &t, Modifiers &m, Inst &i) { return carryMad(d, t, m, i); }

} // namespace

void addFloatOps(OpTable &table) {
  addArithmetic<FloatOp::add>(table, "add", "f=ff", "d=dd");
  addArithmetic<FloatOp::sub>(table, "sub", "f=ff", "d=dd");
  addArithmetic<FloatOp::mul>(table, "mul", "f=ff", "d=dd");
  addArithmetic<FloatOp::fma>(table, "fma", "f=fff", "d=ddd");
  addArithmetic<FloatOp::fma>(table, "mad", "f=fff", "d=ddd");
  addArithmetic<FloatOp::div>(table, "div", "f=ff", "d=dd");
  addArithmetic<FloatOp::rcp>(table, "rcp", "f=f", "d=d");
  addArithmetic<FloatOp::sqrt>(table, "sqrt", "f=f", "d=d");
  carryAdd = table.families.at("add").decode;
  carrySub = table.families.at("sub").decode;
  carryMad = table.families.at("mad").decode;
  table.families.erase("add");
  table.families.erase("sub");
  table.families.erase("mad");
  table.family("add", decodeEither<FloatOp::add, otherAdd>, OpClass::floating);
  table.family("sub", decodeEither<FloatOp::sub, otherSub>, OpClass::floating);
  table.family("mad", decodeEither<FloatOp::fma, otherMad>, OpClass::floating);
  table.family("mul", decodeRounded<FloatOp::mul>, OpClass::floating);
  table.family("fma", decodeRounded<FloatOp::fma>, OpClass::floating);
  table.family("div", decodeRounded<FloatOp::div>, OpClass::floating);
  table.family("rcp", decodeRounded<FloatOp::rcp>, OpClass::floating);
  table.family("sqrt", decodeRounded<FloatOp::sqrt>, OpClass::floating);

  auto add = [&](const char *name, Handler run, const char *signature, unsigned capability = 0) { table.add(name, run, signature, OpClass::floating, capability); };
  add("min.f32", LATHE_BINARY(float, float, canonical(minimum(a, b))), "f=ff");
  add("max.f32", LATHE_BINARY(float, float, canonical(maximum(a, b))), "f=ff");
  add("min.ftz.f32", LATHE_BINARY(float, float, canonical(minimum(flush(a), flush(b)))), "f=ff");
  add("max.ftz.f32", LATHE_BINARY(float, float, canonical(maximum(flush(a), flush(b)))), "f=ff");
  add("min.NaN.f32", LATHE_BINARY(float, float, a != a || b != b ? canonical(a + b) : minimum(a, b)), "f=ff", 80);
  add("max.NaN.f32", LATHE_BINARY(float, float, a != a || b != b ? canonical(a + b) : maximum(a, b)), "f=ff", 80);
  add("min.ftz.NaN.f32", LATHE_BINARY(float, float, a != a || b != b ? canonical(a + b) : minimum(flush(a), flush(b))), "f=ff", 80);
  add("max.ftz.NaN.f32", LATHE_BINARY(float, float, a != a || b != b ? canonical(a + b) : maximum(flush(a), flush(b))), "f=ff", 80);
  add("neg.f32", LATHE_UNARY(uint32_t, uint32_t, a ^ 0x80000000u), "f=f");
  add("abs.f32", LATHE_UNARY(uint32_t, uint32_t, a & 0x7fffffffu), "f=f");
  add("neg.ftz.f32", LATHE_UNARY(float, float, -flush(a)), "f=f");
  add("abs.ftz.f32", LATHE_UNARY(float, float, std::fabs(flush(a))), "f=f");
  add("copysign.f32", copySign, "f=ff");
  add("min.f64", LATHE_BINARY(double, double, std::fmin(a, b)), "d=dd");
  add("max.f64", LATHE_BINARY(double, double, std::fmax(a, b)), "d=dd");
  add("copysign.f64", LATHE_BINARY(uint64_t, uint64_t, (a & 1ull << 63) | (b & ~(1ull << 63))), "d=dd"); // the sign is the first operand's
  add("neg.f64", LATHE_UNARY(double, double, -a), "d=d");
  add("abs.f64", LATHE_UNARY(double, double, std::fabs(a)), "d=d");
  // Two floats in 64 bits (sm_100).
  auto pair = [&](const char *name, Handler run, const char *signature) { add(name, run, signature, 100); };
#define LATHE_PAIR(E)                                                                                                  \
  [](Warp &warp, const Inst &inst, uint32_t mask) {                                                                   \
    float *d = warp.reg<float>(inst.d);                                                                               \
    const float *x = warp.reg<float>(inst.s[0]), *y = warp.reg<float>(inst.s[1]);                                     \
    [[maybe_unused]] const float *z = inst.s[2] == kNoSlot ? x : warp.reg<float>(inst.s[2]);                          \
    eachLane(mask, [&](unsigned lane) {                                                                               \
      for (unsigned half = 2 * lane; half < 2 * lane + 2; ++half) {                                                   \
        float a = x[half], b = y[half];                                                                               \
        [[maybe_unused]] float c = z[half];                                                                           \
        d[half] = canonical(E);                                                                                       \
      }                                                                                                               \
    });                                                                                                               \
  }
  pair("add.f32x2", LATHE_PAIR(a + b), "q=qq");
  pair("mul.f32x2", LATHE_PAIR(a * b), "q=qq");
  pair("sub.f32x2", LATHE_PAIR(a - b), "q=qq");
  pair("fma.f32x2", LATHE_PAIR(std::fma(a, b, c)), "q=qqq");
#undef LATHE_PAIR
  add("testp.finite.f32", [](Warp &warp, const Inst &inst, uint32_t mask) {
    uint32_t bits = 0;
    eachLane(mask, [&](unsigned lane) { bits |= uint32_t(std::isfinite(warp.reg<float>(inst.s[0])[lane])) << lane; });
    storePredicate(warp, inst.d, mask, bits);
  }, "p=f");
  add("testp.infinite.f32", [](Warp &warp, const Inst &inst, uint32_t mask) {
    uint32_t bits = 0;
    eachLane(mask, [&](unsigned lane) { bits |= uint32_t(std::isinf(warp.reg<float>(inst.s[0])[lane])) << lane; });
    storePredicate(warp, inst.d, mask, bits);
  }, "p=f");
}

} // namespace lathe::emulator
