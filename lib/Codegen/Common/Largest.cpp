//===- Largest.cpp ----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common/Largest.h"
#include "Common/KernelTools.h"
#include <limits>

namespace lathe::codegen {

static Value atMost(Emitter &e, Value v) { return e.fcmp(arith::CmpFPredicate::OLE, v, e.constLike(v, std::numeric_limits<float>::max())); }

Largest Largest::none(Emitter &e, Value like) { return {e.constLike(like, -std::numeric_limits<double>::infinity()), e.constLike(like, 0)}; }

Largest Largest::with(Emitter &e, Value v, Value at) const {
  // Unordered: a NaN is taken. But nothing after a bad value.
  Value better = e.andi(e.fcmp(arith::CmpFPredicate::UGT, v, value), atMost(e, value));
  return {e.select(better, v, value), e.select(better, at, index)};
}

Largest Largest::merged(Emitter &e, const Largest &other) const {
  auto key = [&](Value v) { return e.select(atMost(e, v), v, e.constLike(v, std::numeric_limits<double>::infinity())); };
  Value mine = key(value), its = key(other.value);
  Value first = e.andi(e.fcmp(arith::CmpFPredicate::OEQ, mine, its), e.fcmp(arith::CmpFPredicate::OLT, other.index, index));
  Value take = e.ori(e.fcmp(arith::CmpFPredicate::OGT, its, mine), first);
  return {e.select(take, other.value, value), e.select(take, other.index, index)};
}

Largest Largest::ofLanes(Emitter &e) const {
  Largest best = *this;
  for (int64_t n = 8; n > 0; n /= 2)
    best = Largest{e.slice(best.value, 0, n), e.slice(best.index, 0, n)}.merged(e, {e.slice(best.value, n, n), e.slice(best.index, n, n)});
  return {e.lane(best.value, 0), e.lane(best.index, 0)};
}

LogicalResult checkArgmax(ModuleOp module, StringRef symbol, const ArgmaxParams &p) {
  if (p.width >= 1 && p.width <= int64_t(1) << 24 && p.inStride >= (p.pairs ? 2 : 1) * p.width && p.outStride >= 16) return success();
  return refuse(module, symbol, "expected a width of 1 to 16777216 in rows of " + Twine(p.inStride) + " and results of at least 16, found " + Twine(p.width) + " and " + Twine(p.outStride));
}

} // namespace lathe::codegen
