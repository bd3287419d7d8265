//===- Argmax.cpp - the largest value of a row and its index -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common/Largest.h"
#include "RowTools.h"

namespace lathe::codegen {

LogicalResult emitArgmax(ModuleOp module, StringRef symbol, const ArgmaxParams &p, X86Target target) {
  if (failed(checkArgmax(module, symbol, p))) return failure();
  Emitter e(module, symbol, target);
  Value lanes = e.i2f(e.iota(16));
  e.items([&](Value item) {
    Value x = e.at(e.arg(0), item, p.inStride * 4);
    auto indexes = [&](Value column, int64_t n) {
      if (!p.pairs) return e.fadd(e.splat(e.i2f(e.trunc(e.i32, column))), lanes);
      Value from = e.gepc(e.at(x, column, 4), p.width * 4);
      return n == 16 ? e.ld(e.vf, from, 0, 4) : loadLanes(e, from, 0, n);
    };
    Largest best = Largest::none(e, lanes);
    int64_t whole = p.width / 16 * 16;
    if (whole) {
      Values carried = e.loop(e.c(0), e.c(whole), e.c(16), {best.value, best.index}, [&](Value column, ValueRange now) {
        Largest next = Largest{now[0], now[1]}.with(e, e.ld(e.vf, e.at(x, column, 4), 0, 4), indexes(column, 16));
        return Values{next.value, next.index};
      });
      best = {carried[0], carried[1]};
    }
    if (int64_t tail = p.width - whole) {
      Value v = e.select(laneMask(e, tail), loadLanes(e, x, whole * 4, tail), Largest::none(e, lanes).value);
      best = best.with(e, v, indexes(e.c(whole), tail));
    }
    best = best.ofLanes(e);
    Value out = e.at(e.arg(1), item, p.outStride * 4);
    e.st(e.splatF(e.vf, 0), out, 0, 64);
    e.st(best.index, out, 0, 4);
    e.st(best.value, out, 4, 4);
  });
  e.finish();
  return success();
}

KernelCost cost(const ArgmaxParams &p) { return {0, 0, uint64_t(p.width) * (p.pairs ? 8 : 4) + 8}; }

} // namespace lathe::codegen
