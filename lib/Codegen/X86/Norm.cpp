//===- Norm.cpp - RMSNorm and LayerNorm of rows ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One row an item: a pass for the statistics (two for LayerNorm), then one that normalises and either
// stores rows or quantizes groups of 32 straight into the activation planes.
//===----------------------------------------------------------------------===//
#include "RowTools.h"

namespace lathe::codegen {
namespace {

struct Norm : Emitter {
  const NormParams &p;
  Norm(ModuleOp m, StringRef symbol, const NormParams &p, X86Target t) : Emitter(m, symbol, t), p(p) {}

  /// Carries one vector over the row; lanes beyond k are not touched.
  Value reduce(Value x, llvm::function_ref<Value(Value acc, Value v)> f) {
    Value acc = splatF(vf, 0);
    int64_t whole = p.k / 16 * 16, tail = p.k % 16;
    if (whole)
      acc =
          loop(c(0), c(whole * 4), 64, acc, [&](Value i, ValueRange a) { return Values{f(a[0], ldv(gep(x, i)))}; })[0];
    if (tail) acc = select(laneMask(*this, tail), f(acc, loadLanes(*this, x, whole * 4, tail)), acc);
    return treeAdd(acc);
  }

  void row(Value item) {
    Value xRow = p.outRows ? stepInt(offsetof(LatheStep, outRow), item) : item;
    Value x = at(arg(0), xRow, p.inStride * 4), w = arg(1), bias = p.bias ? arg(3) : Value();
    Value invK = cf(float(1.0 / double(p.k))), mean;
    if (p.layerNorm) mean = splat(fmul(reduce(x, [&](Value a, Value v) { return fadd(a, v); }), invK));
    Value ss = reduce(x, [&](Value a, Value v) {
      Value d = mean ? fsub(v, mean) : v;
      return fma(d, d, a);
    });
    Value r = splat(fdiv(cf(1), sqrt(fadd(fmul(ss, invK), cf(p.eps)))));

    // n lanes of the result at element |offset| beyond p; the lanes above n are zero.
    auto normalise = [&](Value xp, Value wp, Value bp, int64_t offset, int64_t n) {
      Value v = loadLanes(*this, xp, offset * 4, n), wv = loadLanes(*this, wp, offset * 4, n);
      if (mean) v = fsub(v, mean);
      v = fmul(v, r);
      if (bias)
        v = fma(v, wv, loadLanes(*this, bp, offset * 4, n));
      else
        v = fmul(v, wv);
      return n < 16 ? select(laneMask(*this, n), v, splatF(vf, 0)) : v;
    };
    auto shifted = [&](Value base, Value bytes) { return base ? gep(base, bytes) : Value(); };

    if (p.out == NormParams::Out::rows) {
      Value out = at(arg(2), item, p.outStride * 4);
      Value res = p.postScaleResidual ? at(arg(p.bias ? 4 : 3), item, p.outStride * 4) : Value();
      auto put = [&](Value v, Value o, Value rp, int64_t offset, int64_t n) {
        if (rp) v = fadd(loadLanes(*this, rp, offset * 4, n), v);
        // Whole rows keep their padding zero.
        storeLanes(*this, v, o, offset * 4, rowStride(p.k) <= p.outStride ? 16 : n);
      };
      int64_t whole = p.k / 16 * 16, tail = p.k % 16;
      if (whole)
        loop(c(0), c(whole * 4), 64, [&](Value i) {
          put(normalise(gep(x, i), gep(w, i), shifted(bias, i), 0, 16), gep(out, i), shifted(res, i), 0, 16);
        });
      if (tail) put(normalise(x, w, bias, whole, tail), out, res, whole, tail);
      return;
    }
    storeRow(*this, arg(2), p.k, p.act, p.halves, item, rowCount(p.outRows), [&](Value bytes, int64_t offset, int64_t n) {
      return normalise(gep(x, bytes), gep(w, bytes), shifted(bias, bytes), offset, n);
    });
  }
};

} // namespace

LogicalResult emitNorm(ModuleOp module, StringRef symbol, const NormParams &p, X86Target target) {
  if (p.k < 1 || p.inStride < p.k)
    return refuse(module, symbol,
                  "expected 1 <= k <= inStride, found k = " + Twine(p.k) + ", inStride = " + Twine(p.inStride));
  if (p.out == NormParams::Out::rows && p.outStride < p.k)
    return refuse(module, symbol, "expected outStride of at least " + Twine(p.k) + ", found " + Twine(p.outStride));
  if (p.postScaleResidual && p.out != NormParams::Out::rows)
    return refuse(module, symbol, "a residual needs row output");
  Norm e(module, symbol, p, target);
  e.items([&](Value item) { e.row(item); });
  e.finish();
  return success();
}

KernelCost cost(const NormParams &p) {
  uint64_t out = p.out == NormParams::Out::rows ? (p.postScaleResidual ? 8 : 4) : isInt8(p.act) ? 1 : 4;
  return {uint64_t(p.k) * (p.bias ? 8 : 4), 0, uint64_t(p.k) * (4 + out)};
}

} // namespace lathe::codegen
