//===- MatmulDot.cpp - exact integer dot products ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "X86/Matmul.h"
#include "llvm/Support/MathExtras.h"

namespace lathe::codegen {

Value MatmulEmitter::dot(const Codes &codes, int q0, int q1, llvm::function_ref<Value(int)> x, Value negSum, int64_t bias) {
  bool correct = w.zero && !signedCodes();
  Value start = !correct ? Value() : negSum ? e.shl(negSum, llvm::Log2_64(uint64_t(w.zero))) : e.splatI(e.vi, bias * w.zero);
  if (e.target.hasVnni()) {
    Value acc = start ? start : e.splatI(e.vi, 0);
    for (int q = q0; q < q1; ++q)
      acc = e.intrinsic("llvm.x86.avx512.vpdpbusd.512", e.vi, {acc, codes[q], e.bitcast(e.vb, e.splat(x(q)))});
    return acc;
  }
  // AVX2, two halves of 8 rows. vpmaddubsw adds two u8 * s8 products into 16 bits; with b-bit codes several
  // of its results fit before vpmaddwd has to widen them. Activations are in -127 .. 127.
  VectorType v8 = e.vec(32, e.i8), v16 = e.vec(16, e.i16), v32 = e.vec(8, e.i32);
  int bits = (w.plane4 ? 4 : 0) + (w.plane2 ? 2 : 0) + (w.plane1 ? 1 : 0);
  int room = signedCodes() ? 1 : std::max(1, 32767 / (((1 << bits) - 1) * 127 * 2));
  Value ones = e.splatI(v16, 1), sum[2], part[2];
  for (int q = q0, n = 0; q < q1; ++q) {
    Value xq = e.bitcast(v8, e.splat(v32, x(q)));
    bool widen = ++n == room || q + 1 == q1;
    if (widen) n = 0;
    for (int h = 0; h < 2; ++h) {
      Value c = codes[2 * q + h], pair;
      if (signedCodes()) { // |c| <= 128 as unsigned times sign(c) * x: at most 2 * 128 * 127, no saturation
        Value magnitude = arith::MaxSIOp::create(e.b, e.loc, c, e.sub(e.splatI(v8, 0), c));
        pair = e.intrinsic("llvm.x86.avx2.pmadd.ub.sw", v16, {magnitude, e.intrinsic("llvm.x86.avx2.psign.b", v8, {xq, c})});
      } else
        pair = e.intrinsic("llvm.x86.avx2.pmadd.ub.sw", v16, {c, xq});
      part[h] = part[h] ? e.add(part[h], pair) : pair;
      if (!widen) continue;
      Value wide = e.intrinsic("llvm.x86.avx2.pmadd.wd", v32, {part[h], ones});
      sum[h] = sum[h] ? e.add(sum[h], wide) : wide;
      part[h] = Value();
    }
  }
  Value acc = e.concat(sum[0], sum[1]);
  return start ? e.add(acc, start) : acc;
}

} // namespace lathe::codegen
