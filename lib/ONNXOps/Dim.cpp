//===- Dim.cpp --------------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/Dim.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

namespace lathe::ops {
using namespace mlir;

Value DimMath::value(Dim x) const {
  if (x.known) return arith::ConstantIndexOp::create(*builder, *loc, *x.known);
  return x.value;
}

/// Applies |fold| to numbers, |emit| to values.
template <typename Fold, typename Emit>
static Dim apply(const DimMath &m, Dim x, Dim y, Fold fold, Emit emit) {
  if (x.known && y.known) return Dim(int64_t(fold(*x.known, *y.known)));
  if (!m.emits()) return Dim();
  Value a = m.value(x), b = m.value(y);
  return a && b ? Dim(Value(emit(a, b))) : Dim();
}

static int64_t wrapAdd(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }

Dim DimMath::add(Dim x, Dim y) const {
  if (x.is(0)) return y;
  if (y.is(0)) return x;
  return apply(*this, x, y, wrapAdd, [&](Value a, Value c) { return arith::AddIOp::create(*builder, *loc, a, c); });
}
Dim DimMath::sub(Dim x, Dim y) const {
  if (y.is(0)) return x;
  return apply(*this, x, y, [](int64_t a, int64_t c) { return int64_t(uint64_t(a) - uint64_t(c)); },
               [&](Value a, Value c) { return arith::SubIOp::create(*builder, *loc, a, c); });
}
Dim DimMath::mul(Dim x, Dim y) const {
  if (x.is(1) || y.is(0)) return y;
  if (y.is(1) || x.is(0)) return x;
  return apply(*this, x, y, [](int64_t a, int64_t c) { return int64_t(uint64_t(a) * uint64_t(c)); },
               [&](Value a, Value c) { return arith::MulIOp::create(*builder, *loc, a, c); });
}
/// A division that cannot trap: numbers and values give 0 for a divisor of 0, and -x (which wraps) for one of -1.
template <typename Op, typename Fold>
static Dim divide(const DimMath &m, OpBuilder *builder, std::optional<Location> loc, Dim x, Dim y, Fold fold) {
  if (y.is(1)) return x;
  if (y.is(0)) return Dim(0);
  if (y.is(-1)) return m.sub(0, x);
  return apply(m, x, y, fold, [&](Value a, Value c) -> Value {
    if (y.known) return Op::create(*builder, *loc, a, c);
    auto equals = [&](int64_t n) -> Value { return arith::CmpIOp::create(*builder, *loc, arith::CmpIPredicate::eq, c, m.value(n)); };
    Value zero = equals(0), minus = equals(-1);
    Value traps = arith::OrIOp::create(*builder, *loc, zero, minus);
    Value safe = arith::SelectOp::create(*builder, *loc, traps, m.value(1), c);
    Value quotient = Op::create(*builder, *loc, a, safe);
    Value negated = arith::SubIOp::create(*builder, *loc, m.value(0), a);
    Value signedQuotient = arith::SelectOp::create(*builder, *loc, minus, negated, quotient);
    return arith::SelectOp::create(*builder, *loc, zero, m.value(0), signedQuotient);
  });
}
Dim DimMath::floorDiv(Dim x, Dim y) const {
  return divide<arith::FloorDivSIOp>(*this, builder, loc, x, y, [](int64_t a, int64_t c) { return llvm::divideFloorSigned(a, c); });
}
Dim DimMath::ceilDiv(Dim x, Dim y) const {
  return divide<arith::CeilDivSIOp>(*this, builder, loc, x, y, [](int64_t a, int64_t c) { return llvm::divideCeilSigned(a, c); });
}
Dim DimMath::min(Dim x, Dim y) const {
  return apply(*this, x, y, [](int64_t a, int64_t c) { return std::min(a, c); },
               [&](Value a, Value c) { return arith::MinSIOp::create(*builder, *loc, a, c); });
}
Dim DimMath::max(Dim x, Dim y) const {
  return apply(*this, x, y, [](int64_t a, int64_t c) { return std::max(a, c); },
               [&](Value a, Value c) { return arith::MaxSIOp::create(*builder, *loc, a, c); });
}

static Value compare(const DimMath &m, Location loc, arith::CmpIPredicate p, Value a, Value c) {
  Value bit = arith::CmpIOp::create(m.b(), loc, p, a, c);
  return arith::IndexCastUIOp::create(m.b(), loc, m.b().getIndexType(), bit);
}
Dim DimMath::less(Dim x, Dim y) const {
  return apply(*this, x, y, [](int64_t a, int64_t c) { return a < c; },
               [&](Value a, Value c) { return compare(*this, *loc, arith::CmpIPredicate::slt, a, c); });
}
Dim DimMath::equal(Dim x, Dim y) const {
  if (x.value && x.value == y.value) return Dim(1);
  return apply(*this, x, y, [](int64_t a, int64_t c) { return a == c; },
               [&](Value a, Value c) { return compare(*this, *loc, arith::CmpIPredicate::eq, a, c); });
}
Dim DimMath::both(Dim x, Dim y) const { return mul(x, y); }
Dim DimMath::either(Dim x, Dim y) const {
  if (x.is(1) || y.is(1)) return Dim(1);
  if (x.is(0)) return y;
  if (y.is(0)) return x;
  return max(x, y);
}
Dim DimMath::select(Dim condition, Dim x, Dim y) const {
  if (condition.known) return *condition.known ? x : y;
  if (x.known && y.known && *x.known == *y.known) return x;
  if (!builder || !condition.value) return Dim();
  Value a = value(x), c = value(y);
  if (!a || !c) return Dim();
  Value bit = arith::CmpIOp::create(*builder, *loc, arith::CmpIPredicate::ne, condition.value, value(0));
  return Dim(Value(arith::SelectOp::create(*builder, *loc, bit, a, c)));
}
Dim DimMath::product(llvm::ArrayRef<Dim> dims) const {
  Dim all(1);
  for (Dim d : dims)
    all = mul(all, d);
  return all;
}
Dim DimMath::pick(llvm::ArrayRef<Dim> list, Dim position) const {
  if (list.empty()) return Dim(0);
  Dim result = list.front();
  for (size_t i = 1; i < list.size(); ++i)
    result = select(equal(position, int64_t(i)), list[i], result);
  return result;
}

} // namespace lathe::ops
