//===- KernelTools.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common/KernelTools.h"

namespace lathe::codegen {

int64_t elementBytes(KVFormat f) { return f == KVFormat::f32 ? 4 : isByte(f) ? 1 : 2; }

int64_t cachePlaneBytes(int64_t page, int64_t dim, KVFormat f) {
  return page * dim * elementBytes(f) + (isByte(f) ? page * 4 : 0);
}

Value loadStored(Emitter &e, Value p, int64_t offset, int64_t n, KVFormat f, Value scale, unsigned align) {
  switch (f) {
  case KVFormat::f32:
    return e.ld(e.vec(n, e.f32), p, offset, align);
  case KVFormat::f16:
    return e.ext(e.ld(e.vec(n, e.f16), p, offset, align));
  case KVFormat::bf16:
    return e.fromBf16Bits(e.ld(e.vec(n, e.i16), p, offset, align));
  case KVFormat::e4m3: {
    // Sign, exponent and fraction lie as in a float16 of 1/256 of the value, whose conversion knows subnormal ones, too. The sign's copy in
    // bit 14 goes. 256 and the scale are one product: it is exact.
    Value w = e.shl(e.sext(e.i16, e.ld(e.vec(n, e.i8), p, offset, align)), 7);
    Value x = e.bitcast(e.vec(n, e.f16), e.andc(w, int16_t(0xbfff)));
    return e.fmul(e.ext(x), e.fmul(scale, e.constLike(scale, 256)));
  }
  case KVFormat::int8:
    break;
  }
  Value x = e.i2f(e.sext(e.i32, e.ld(e.vec(n, e.i8), p, offset, align)));
  return e.fmul(x, scale);
}

/// f32 lanes as e4m3: to nearest even, beyond 448 as 448.
static Value e4m3Bits(Emitter &e, Value x) {
  Value most = e.fmin(e.fabs(x), e.constLike(x, 448)), bits = e.bitcast(e.shaped(x, e.i32), most);
  // 3 bits of the fraction stay, and the exponent's bias becomes 7.
  Value odd = e.andc(e.shru(bits, 20), 1), normal = e.addc(e.shru(e.add(e.addc(bits, 0x7ffff), odd), 20), -(120 << 3));
  // Below 2^-6 all steps are 2^-9, as they are at 2^14 in float32.
  Value sum = e.bitcast(e.shaped(x, e.i32), e.fadd(most, e.constLike(x, 16384))), small = e.addc(sum, -0x46800000);
  Value isSmall = e.cmp(arith::CmpIPredicate::slt, bits, e.constLikeI(bits, 0x3c800000));
  Value sign = e.andc(e.shru(e.bitcast(e.shaped(x, e.i32), x), 24), 0x80);
  return e.trunc(e.i8, e.ori(e.select(isSmall, small, normal), sign));
}

Value toStored(Emitter &e, Value x, KVFormat f) {
  switch (f) {
  case KVFormat::f32:
    return x;
  case KVFormat::f16:
    return e.truncF(e.f16, x);
  case KVFormat::bf16:
    return e.bf16Bits(x);
  case KVFormat::e4m3:
    return e4m3Bits(e, x);
  case KVFormat::int8:
    break;
  }
  return e.trunc(e.i8, e.roundToInt(x));
}

Value fromE4m3(Emitter &e, Value words, int64_t i) {
  // With the byte on top and all 4 bits further right, exponent and fraction lie where a float32 of 2^-120 of the value has them, whose product knows
  // subnormal ones, too. The sign's copies go.
  Value bits = e.andc(e.shrs(e.shl(words, 24 - 8 * i), 4), int32_t(0x87f00000)), x = e.bitcast(e.shaped(words, e.f32), bits);
  return e.fmul(x, e.constLike(x, 0x1p120));
}

/// erf by Abramowitz and Stegun 7.1.26 (1.5e-7 absolute), in the order of docs/exactness.md.
static Value erfa(Emitter &e, Value x) {
  auto k = [&](double v) { return e.constLike(x, v); };
  Value a = e.fabs(x), t = e.fdiv(k(1), e.fma(k(0.3275911), a, k(1))), p = k(1.061405429);
  for (double v : {-1.453152027, 1.421413741, -0.284496736, 0.254829592})
    p = e.fma(p, t, k(v));
  Value r = e.fsub(k(1), e.fmul(e.fmul(p, t), e.expa(e.fneg(e.fmul(a, a)))));
  return math::CopySignOp::create(e.b, e.loc, r, x);
}

Value activate(Emitter &e, Activation a, Value g) {
  switch (a) {
  case Activation::silu:
    return e.silu(g);
  case Activation::geluTanh:
    return e.geluTanh(g);
  case Activation::geluErf: {
    Value t = erfa(e, e.fmul(g, e.constLike(g, 0.70710678118654752)));
    return e.fmul(e.fmul(e.constLike(g, 0.5), g), e.fadd(e.constLike(g, 1), t));
  }
  case Activation::relu:
    break;
  }
  Value zero = e.constLike(g, 0);
  return e.select(e.fcmp(arith::CmpFPredicate::OGT, g, zero), g, zero);
}

std::pair<Value, Value> cosSin(Emitter &e, Value angle, float factor) {
  Value a = arith::ExtFOp::create(e.b, e.loc, e.shaped(angle, e.f64), angle);
  auto k = [&](double v) { return e.constLike(a, v); };
  Value q = e.roundEven(e.fmul(a, k(0.63661977236758134308)));
  Value r = e.fma(q, k(-1.57079632673412561417), a);
  r = e.fma(q, k(-6.07710050630396597660e-11), r);
  r = e.fma(q, k(-2.02226624879595063154e-21), r);
  Value z = e.fmul(r, r), s = k(1.58969099521155010221e-10), co = k(-1.13596475577881948265e-11);
  for (double v : {-2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
                   8.33333333332248946124e-03, -1.66666666666666324348e-01})
    s = e.fma(s, z, k(v));
  s = e.fma(e.fmul(r, z), s, r);
  for (double v : {2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
                   -1.38888888888741095749e-03, 4.16666666666666019037e-02})
    co = e.fma(co, z, k(v));
  co = e.fma(e.fmul(z, z), co, e.fma(z, k(-0.5), k(1)));
  // Quarter turns: odd ones swap, then signs.
  Value quarter = e.f2i(e.i32, q);
  auto bit = [&](Value v, int64_t m) { return e.cmp(arith::CmpIPredicate::ne, e.andc(v, m), e.constLikeI(v, 0)); };
  Value odd = bit(quarter, 1), sine = e.select(odd, co, s), cosine = e.select(odd, s, co);
  sine = e.select(bit(quarter, 2), e.fneg(sine), sine);
  cosine = e.select(bit(e.addc(quarter, 1), 2), e.fneg(cosine), cosine);
  auto narrow = [&](Value v) {
    v = e.truncF(e.f32, v);
    return factor == 1.0f ? v : e.fmul(v, e.constLike(v, factor));
  };
  return {narrow(cosine), narrow(sine)};
}

LogicalResult refuse(ModuleOp module, StringRef symbol, const Twine &message) {
  return module.emitError() << "kernel '" << symbol << "': " << message;
}

LogicalResult checkHeadSize(ModuleOp module, StringRef symbol, int64_t size) {
  if (size < 2 || size > 256 || size % 2)
    return refuse(module, symbol, "expected an even head size of 2 to 256, found " + Twine(size));
  return success();
}

LogicalResult checkCache(ModuleOp module, StringRef symbol, int64_t kvHeads, int64_t headDim, int64_t valueDim,
                         KVFormat k, KVFormat v, int64_t page, int64_t blockStride, int64_t headStride) {
  if (failed(checkHeadSize(module, symbol, headDim)) || failed(checkHeadSize(module, symbol, valueDim))) return failure();
  if (kvHeads < 1) return refuse(module, symbol, "expected at least one KV head, found " + Twine(kvHeads));
  if (page < 16 || page > 4096 || page % 16)
    return refuse(module, symbol, "expected a page of 16 to 4096 tokens, a multiple of 16, found " + Twine(page));
  int64_t head = cachePlaneBytes(page, headDim, k) + cachePlaneBytes(page, valueDim, v);
  if (headStride < head || headStride % 64)
    return refuse(module, symbol,
                  "expected a head stride of at least " + Twine(head) + " bytes, a multiple of 64, found " +
                      Twine(headStride));
  if (blockStride < headStride * kvHeads || blockStride % 64)
    return refuse(module, symbol,
                  "expected a block stride of at least " + Twine(headStride * kvHeads) +
                      " bytes, a multiple of 64, found " + Twine(blockStride));
  return success();
}

} // namespace lathe::codegen
