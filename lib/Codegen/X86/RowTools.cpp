//===- RowTools.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "RowTools.h"

namespace lathe::codegen {

SmallVector<Piece> pieces(int64_t n) {
  SmallVector<Piece> r;
  if (n >= 16) {
    for (int64_t at = 0; at + 16 <= n; at += 16)
      r.push_back({at, 16});
    if (n % 16) r.push_back({n - 16, 16});
    return r;
  }
  for (int64_t at = 0, width = 8; width; width /= 2)
    if (n & width) {
      r.push_back({at, width});
      at += width;
    }
  return r;
}

Value laneMask(Emitter &e, int64_t n) {
  SmallVector<bool> bits(16);
  for (int64_t i = 0; i < 16; ++i)
    bits[i] = i < n;
  return arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(e.vec(16, e.i1), ArrayRef<bool>(bits)));
}

Value loadLanes(Emitter &e, Value p, int64_t offset, int64_t n) {
  if (n == 16) return e.ld(e.vf, p, offset, 4);
  return LLVM::MaskedLoadOp::create(e.b, e.loc, e.vf, e.gepc(p, offset), laneMask(e, n), e.splatF(e.vf, 0), 4);
}

void storeLanes(Emitter &e, Value v, Value p, int64_t offset, int64_t n) {
  if (n == 16) return e.st(v, p, offset, 4);
  LLVM::MaskedStoreOp::create(e.b, e.loc, v, e.gepc(p, offset), laneMask(e, n), 4);
}

int64_t elementBytes(KVFormat f) { return f == KVFormat::f32 ? 4 : f == KVFormat::int8 ? 1 : 2; }

int64_t cachePlaneBytes(int64_t page, int64_t dim, KVFormat f) {
  return page * dim * elementBytes(f) + (f == KVFormat::int8 ? page * 4 : 0);
}

Value loadStored(Emitter &e, Value p, int64_t offset, int64_t n, KVFormat f, Value scale, unsigned align) {
  switch (f) {
  case KVFormat::f32:
    return e.ld(e.vec(n, e.f32), p, offset, align);
  case KVFormat::f16:
    return e.ext(e.ld(e.vec(n, e.f16), p, offset, align));
  case KVFormat::bf16:
    return e.fromBf16Bits(e.ld(e.vec(n, e.i16), p, offset, align));
  case KVFormat::int8:
    break;
  }
  Value x = e.i2f(e.sext(e.i32, e.ld(e.vec(n, e.i8), p, offset, align)));
  return e.fmul(x, scale);
}

Value toStored(Emitter &e, Value x, KVFormat f) {
  switch (f) {
  case KVFormat::f32:
    return x;
  case KVFormat::f16:
    return e.truncF(e.f16, x);
  case KVFormat::bf16:
    return e.bf16Bits(x);
  case KVFormat::int8:
    break;
  }
  return e.trunc(e.i8, e.roundToInt(x));
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
