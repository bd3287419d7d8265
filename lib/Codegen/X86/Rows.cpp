//===- Rows.cpp - quantize, activation, softcap ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "RowTools.h"

namespace lathe::codegen {

static LogicalResult checkRow(ModuleOp module, StringRef symbol, int64_t k, int64_t stride) {
  if (k < 1 || stride < k)
    return refuse(module, symbol,
                  "expected 1 <= k <= inStride, found k = " + Twine(k) + ", inStride = " + Twine(stride));
  return success();
}

LogicalResult emitQuantize(ModuleOp module, StringRef symbol, const QuantizeParams &p, X86Target target) {
  if (failed(checkRow(module, symbol, p.k, p.inStride))) return failure();
  Emitter e(module, symbol, target);
  e.items([&](Value item) {
    Value x = e.at(e.arg(0), item, p.inStride * 4);
    storeRow(e, e.arg(1), p.k, p.act, p.halves, item, e.rowCount(p.outRows),
                [&](Value bytes, int64_t offset, int64_t n) { return loadLanes(e, e.gep(x, bytes), offset * 4, n); });
  });
  e.finish();
  return success();
}

LogicalResult emitActivation(ModuleOp module, StringRef symbol, const ActivationParams &p, X86Target target) {
  if (failed(checkRow(module, symbol, p.k, p.inStride))) return failure();
  Emitter e(module, symbol, target);
  e.items([&](Value item) {
    Value gate = e.at(e.arg(0), item, p.inStride * 4), up = p.up ? e.at(e.arg(1), item, p.inStride * 4) : Value();
    storeRow(e, e.arg(p.up ? 2 : 1), p.k, p.act, p.halves, item, e.rowCount(false),
                [&](Value bytes, int64_t offset, int64_t n) {
                  Value v = activate(e, p.activation, loadLanes(e, e.gep(gate, bytes), offset * 4, n));
                  return up ? e.fmul(v, loadLanes(e, e.gep(up, bytes), offset * 4, n)) : v;
                });
  });
  e.finish();
  return success();
}

LogicalResult emitSoftcap(ModuleOp module, StringRef symbol, const SoftcapParams &p, X86Target target) {
  if (failed(checkRow(module, symbol, p.n, p.stride))) return failure();
  if (!(p.cap > 0)) return refuse(module, symbol, "expected a positive cap");
  Emitter e(module, symbol, target);
  e.items([&](Value item) {
    Value x = e.at(e.arg(0), item, p.stride * 4);
    auto cap = [&](Value v) { return e.fmul(e.constLike(v, p.cap), e.tanha(e.fmul(v, e.constLike(v, 1.0f / p.cap)))); };
    int64_t whole = p.n / 16 * 16;
    if (whole)
      e.loop(e.c(0), e.c(whole * 4), 64, [&](Value i) {
        Value at = e.gep(x, i);
        e.st(cap(e.ld(e.vf, at, 0, 4)), at, 0, 4);
      });
    if (int64_t tail = p.n - whole) storeLanes(e, cap(loadLanes(e, x, whole * 4, tail)), x, whole * 4, tail);
  });
  e.finish();
  return success();
}

KernelCost cost(const QuantizeParams &p) { return {0, 0, uint64_t(p.k) * (isInt8(p.act) ? 5 : 8)}; }
KernelCost cost(const ActivationParams &p) {
  return {0, 0, uint64_t(p.k) * ((p.up ? 8 : 4) + (isInt8(p.act) ? 1 : 4))};
}
KernelCost cost(const SoftcapParams &p) { return {0, 0, uint64_t(p.n) * 8}; }

} // namespace lathe::codegen
