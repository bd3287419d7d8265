//===- MatmulDot.cpp - exact integer dot products ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "X86/Matmul.h"

namespace lathe::codegen {

Values MatmulEmitter::dots(ArrayRef<Codes> codes, int q0, int q1, int64_t rows,
                           llvm::function_ref<Value(int64_t, int)> x, llvm::function_ref<Value(int64_t)> start) {
  const int64_t T = int64_t(codes.size());
  Values out;
  if (e.target.hasVnni()) {
    for (int64_t r = 0; r < rows; ++r)
      out.append(T, start(r));
    // Chains of all rows side by side in program order: each is 8 dependent instructions long, and the scheduler sees
    // only some rows ahead. Tiles innermost: a broadcast is used by all of them at once and does not stay live.
    for (int q = q0; q < q1; ++q)
      for (int64_t r = 0; r < rows; ++r) {
        Value xq = e.bitcast(e.vb, e.splat(x(r, q)));
        for (int64_t t = 0; t < T; ++t)
          out[r * T + t] = e.intrinsic("llvm.x86.avx512.vpdpbusd.512", e.vi, {out[r * T + t], codes[t][q], xq});
      }
    return out;
  }
  // AVX2: halves of 8 outputs. vpmaddubsw adds two u8 * s8 products into 16 bits; with b-bit codes several of its
  // results fit before vpmaddwd has to widen them. Activations are in -127 .. 127. Quads outermost: the sums of all
  // rows stay in registers while each code is loaded once.
  VectorType v8 = e.vec(32, e.i8), v16 = e.vec(16, e.i16), v32 = e.vec(8, e.i32);
  int bits = (w.plane4 ? 4 : 0) + (w.plane2 ? 2 : 0) + (w.plane1 ? 1 : 0);
  int room = signedCodes() ? 1 : std::max(1, 32767 / (((1 << bits) - 1) * 127 * 2));
  Value ones = e.splatI(v16, 1);
  Values sum(rows * T * 2), part(rows * T * 2);
  for (int q = q0, n = 0; q < q1; ++q) {
    bool widen = ++n == room || q + 1 == q1;
    if (widen) n = 0;
    for (int64_t r = 0; r < rows; ++r) {
      Value xq = e.bitcast(v8, e.splat(v32, x(r, q)));
      for (int64_t i = 0; i < 2 * T; ++i) {
        Value c = codes[i / 2][2 * q + i % 2], pair;
        if (signedCodes()) { // |c| <= 128 as unsigned times sign(c) * x: at most 2 * 128 * 127, no saturation
          Value magnitude = arith::MaxSIOp::create(e.b, e.loc, c, e.sub(e.splatI(v8, 0), c));
          pair = e.intrinsic("llvm.x86.avx2.pmadd.ub.sw", v16,
                             {magnitude, e.intrinsic("llvm.x86.avx2.psign.b", v8, {xq, c})});
        } else
          pair = e.intrinsic("llvm.x86.avx2.pmadd.ub.sw", v16, {c, xq});
        Value &p = part[r * 2 * T + i], &s = sum[r * 2 * T + i];
        p = p ? e.add(p, pair) : pair;
        if (!widen) continue;
        Value wide = e.intrinsic("llvm.x86.avx2.pmadd.wd", v32, {p, ones});
        s = s ? e.add(s, wide) : wide;
        p = Value();
      }
    }
  }
  for (int64_t i = 0; i < rows * T; ++i) {
    Value v = e.concat(sum[2 * i], sum[2 * i + 1]);
    out.push_back(w.zero && !signedCodes() ? e.add(v, start(i / T)) : v);
  }
  return out;
}

} // namespace lathe::codegen
