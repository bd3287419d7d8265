//===- ExecApproximate.cpp - ex2, lg2, rcp, rsqrt, sin, cos, tanh ----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The hardware's approximations are not specified beyond an error bound. Here each result is the exact
// one (from float64) rounded toward zero to as many bits as keep it inside the bound that the PTX ISA
// states for the instruction: deterministic, never equal to the correctly rounded value by design, and
// exact where the exact value has few bits (powers of two, zero, infinity).
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Numerics.h"

namespace lathe::emulator {
namespace {

/// |value| toward zero to |bits| significant bits.
double truncateBits(double value, int bits) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  double unit = std::ldexp(1.0, exponent - bits);
  return std::trunc(value / unit) * unit;
}
/// Toward zero to a multiple of 2^-|bits|: an absolute bound.
double truncateFixed(double value, int bits) { return std::isfinite(value) ? std::ldexp(std::trunc(std::ldexp(value, bits)), -bits) : value; }

enum class Curve { ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh };

template <Curve F> double exact(double x) {
  switch (F) {
  case Curve::ex2: return std::exp2(x);
  case Curve::lg2: return std::log2(x);
  case Curve::rcp: return 1.0 / x;
  case Curve::rsqrt: return 1.0 / std::sqrt(x);
  case Curve::sqrt: return std::sqrt(x);
  case Curve::sin: return std::sin(x);
  case Curve::cos: return std::cos(x);
  case Curve::tanh: return std::tanh(x);
  }
}
/// Bounds of the PTX ISA: ex2 2^-22.5 relative (so 24 bits truncated), lg2 2^-22 absolute or relative, rcp and
/// sqrt 1 ulp, rsqrt 2^-22.9 relative, sin and cos 2^-20.9 absolute in [-pi, pi], tanh 2^-11 relative.
template <Curve F> float approximate(float x) {
  double value = exact<F>(x);
  switch (F) {
  case Curve::lg2: value = std::fabs(value) < 1 ? truncateFixed(value, 23) : truncateBits(value, 24); break;
  case Curve::sin:
  case Curve::cos: value = truncateFixed(value, 22); break;
  case Curve::tanh: value = truncateBits(value, 12); break;
  default: value = truncateBits(value, 24); break;
  }
  return canonical(roundToFloat(value, Rounding::zero));
}

template <Curve F, bool Flush> void approximateOp(Warp &warp, const Inst &inst, uint32_t mask) {
  float *d = warp.reg<float>(inst.d);
  const float *a = warp.reg<float>(inst.s[0]);
  eachLane(mask, [&](unsigned lane) {
    float result = approximate<F>(Flush ? flush(a[lane]) : a[lane]);
    d[lane] = Flush ? flush(result) : result;
  });
}
/// f16 and bf16 forms: 2^-9.9 (ex2, f16), 2^-10.987 (tanh, f16), 2^-8 (bf16): truncation to the format itself.
template <Curve F, bool Bfloat, bool Pair> void halfOp(Warp &warp, const Inst &inst, uint32_t mask) {
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  const uint32_t *a = warp.reg<uint32_t>(inst.s[0]);
  eachLane(mask, [&](unsigned lane) {
    auto one = [](uint32_t bits) {
      uint16_t half = static_cast<uint16_t>(bits);
      return encode(exact<F>(Bfloat ? bfloatToFloat(half) : halfToFloat(half)), Bfloat ? kBfloat : kHalf, Rounding::nearest, false);
    };
    d[lane] = Pair ? one(a[lane]) | one(a[lane] >> 16) << 16 : one(a[lane]);
  });
}

template <bool Flush, bool Full> void divideOp(Warp &warp, const Inst &inst, uint32_t mask) {
  float *d = warp.reg<float>(inst.d);
  const float *a = warp.reg<float>(inst.s[0]), *b = warp.reg<float>(inst.s[1]);
  eachLane(mask, [&](unsigned lane) {
    float x = Flush ? flush(a[lane]) : a[lane], y = Flush ? flush(b[lane]) : b[lane];
    double value = double(x) / y;
    // div.approx: for 2^126 < |y| < 2^128 the result is 0 (a's NaN and infinity give NaN).
    if (!Full && std::fabs(y) > 0x1p126f && std::isfinite(y)) value = std::isinf(x) ? NAN : value * 0;
    float result = canonical(roundToFloat(truncateBits(value, 24), Rounding::zero));
    d[lane] = Flush ? flush(result) : result;
  });
}

template <Curve F> void addFunction(OpTable &table, const char *name, unsigned capability = 0) {
  table.add((std::string(name) + ".approx.f32").c_str(), approximateOp<F, false>, "f=f", OpClass::floating, capability);
  table.add((std::string(name) + ".approx.ftz.f32").c_str(), approximateOp<F, true>, "f=f", OpClass::floating, capability);
}

} // namespace

void addApproximateOps(OpTable &table) {
  addFunction<Curve::ex2>(table, "ex2");
  addFunction<Curve::lg2>(table, "lg2");
  addFunction<Curve::rcp>(table, "rcp");
  addFunction<Curve::rsqrt>(table, "rsqrt");
  addFunction<Curve::sqrt>(table, "sqrt");
  addFunction<Curve::sin>(table, "sin");
  addFunction<Curve::cos>(table, "cos");
  table.add("tanh.approx.f32", approximateOp<Curve::tanh, false>, "f=f", OpClass::floating, 75);
  auto add = [&](const char *name, Handler run, const char *signature, unsigned capability) { table.add(name, run, signature, OpClass::floating, capability); };
  add("ex2.approx.f16", halfOp<Curve::ex2, false, false>, "h=h", 75);
  add("ex2.approx.f16x2", halfOp<Curve::ex2, false, true>, "r=r", 75);
  add("ex2.approx.ftz.bf16", halfOp<Curve::ex2, true, false>, "h=h", 90);
  add("ex2.approx.ftz.bf16x2", halfOp<Curve::ex2, true, true>, "r=r", 90);
  add("tanh.approx.f16", halfOp<Curve::tanh, false, false>, "h=h", 75);
  add("tanh.approx.f16x2", halfOp<Curve::tanh, false, true>, "r=r", 75);
  add("tanh.approx.bf16", halfOp<Curve::tanh, true, false>, "h=h", 90);
  add("tanh.approx.bf16x2", halfOp<Curve::tanh, true, true>, "r=r", 90);
  add("div.approx.f32", divideOp<false, false>, "f=ff", 0);
  add("div.approx.ftz.f32", divideOp<true, false>, "f=ff", 0);
  add("div.full.f32", divideOp<false, true>, "f=ff", 0);
  add("div.full.ftz.f32", divideOp<true, true>, "f=ff", 0);
  add("rsqrt.approx.f64", LATHE_UNARY(double, double, 1.0 / std::sqrt(a)), "d=d", 0);
}

} // namespace lathe::emulator
