//===- Activations.cpp - quantization into the activation planes ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common/KernelTools.h"

namespace lathe::codegen {

ActivationRow activationRow(Emitter &e, Value buffer, const ActivationLayout &l, ActFormat format, Value row, Value rows) {
  Value block = e.shru(row, 4), r = e.andc(row, 15), left = e.sub(rows, e.shl(block, 4)), at = e.c(0), first = at, mb = at;
  for (int64_t size : partSizes) {
    Value some = e.leS(e.c(partFrom(format, size)), left), taken = e.select(some, e.c(size), e.c(0)), end = e.add(at, taken);
    Value here = e.andi(e.leS(at, r), e.ltS(r, end));
    mb = e.select(here, e.c(size), mb), first = e.select(here, at, first);
    at = end, left = e.sub(left, taken);
  }
  return {e.at(buffer, block, l.blockBytes), mb, e.sub(r, first), e.mulc(first, l.groups)};
}

void storeActivations(Emitter &e, const ActivationLayout &l, ActFormat format, const ActivationRow &at, Value g, Value x0, Value x1) {
  Value index = at.place(e, g);
  if (e.target.packsBf16(format)) {
    Value p = e.at(at.block, index, 64);
    e.st(e.bf16Bits(x0), p, 0, 32);
    e.st(e.bf16Bits(x1), p, 32, 32);
    return;
  }
  if (format == ActFormat::e4m3) { // rounded to what the codes of a GPU and their scale stand for
    Value amax = e.treeMax(e.fmax(e.fabs(x0), e.fabs(x1))), some = e.fcmp(arith::CmpFPredicate::OGE, amax, e.cf(1e-30f));
    Value scale = e.splat(e.fmul(amax, e.cf(1.0f / 448))), inv = e.splat(e.select(some, e.fdiv(e.cf(448), amax), e.cf(0)));
    for (Value *x : {&x0, &x1}) *x = e.fmul(fromE4m3(e, e.zext(e.i32, toStored(e, e.fmul(*x, inv), KVFormat::e4m3)), 0), scale);
  }
  if (!isInt8(format)) {
    Value p = e.at(at.block, index, 128);
    bool round = format == ActFormat::bf16;
    e.st(round ? e.roundBf16(x0) : x0, p, 0, 64);
    e.st(round ? e.roundBf16(x1) : x1, p, 64, 64);
    return;
  }
  Value scale, offset, q0, q1;
  if (format == ActFormat::int8) {
    Value amax = e.treeMax(e.fmax(e.fabs(x0), e.fabs(x1)));
    scale = e.fmul(amax, e.cf(1.0f / 127));
    Value some = e.fcmp(arith::CmpFPredicate::OGE, amax, e.cf(1e-30f));
    Value inv = e.splat(e.select(some, e.fdiv(e.cf(127), amax), e.cf(0)));
    q0 = e.roundToInt(e.fmul(x0, inv));
    q1 = e.roundToInt(e.fmul(x1, inv));
  } else {
    Value lo = e.treeMin(e.fmin(x0, x1)), hi = e.treeMax(e.fmax(x0, x1));
    offset = e.fadd(e.roundBf16(e.fmul(e.fadd(hi, lo), e.cf(0.5f))), e.cf(0)); // never -0: min and max do not order zeros
    scale = e.fmax(e.fmul(e.fsub(hi, lo), e.cf(1.0f / 254)), e.cf(1e-30f));
    Value inv = e.splat(e.fdiv(e.cf(1), scale)), off = e.splat(offset);
    auto quantize = [&](Value x) {
      Value v = e.fmul(e.fsub(x, off), inv);
      return e.roundToInt(e.fmin(e.fmax(v, e.constLike(v, -127)), e.constLike(v, 127)));
    };
    q0 = quantize(x0);
    q1 = quantize(x1);
  }
  Value q = e.at(at.block, index, 32);
  e.st(e.trunc(e.i8, q0), q, 0, 16);
  e.st(e.trunc(e.i8, q1), q, 16, 16);
  Value index4 = e.shl(index, 2), planes = e.gep(at.block, index4);
  e.st(scale, planes, l.scale, 4);
  // Sums: the whole group, then its halves.
  Values sums{e.treeAddI(e.add(q0, q1))};
  if (l.sums == 3) {
    sums.push_back(e.treeAddI(q0));
    sums.push_back(e.treeAddI(q1));
  }
  Value sumAt = l.sums == 1 ? planes : e.gep(at.block, e.shl(at.place(e, g, l.sums), 2));
  for (auto [h, sum] : llvm::enumerate(sums)) {
    Value p = h == 0 ? sumAt : e.gep(sumAt, e.mulc(at.mb, 4 * int64_t(h)));
    e.st(e.sub(e.ci(e.i32, 0), sum), p, l.isum, 4);
    Value f = offset ? e.fma(scale, e.i2f(sum), e.fmul(e.cf(h == 0 ? 32 : 16), offset)) : e.fmul(scale, e.i2f(sum));
    e.st(f, p, l.fsum, 4);
  }
  if (offset) e.st(offset, planes, l.offset, 4);
}

} // namespace lathe::codegen
