//===- Scalars.cpp - arithmetic and conversions of single elements ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lathe::ops {
using namespace mlir;

static bool isSmallFloat(Type t) { return isa<FloatType>(t) && t.getIntOrFloatBitWidth() <= 8; }

Type storageType(Type t) {
  MLIRContext *c = t.getContext();
  if (t.isBF16()) return IntegerType::get(c, 16);
  if (isSmallFloat(t)) return IntegerType::get(c, 8);
  if (auto i = dyn_cast<IntegerType>(t)) return IntegerType::get(c, std::max(8u, i.getWidth()));
  return t;
}
Type computeType(Type t) {
  MLIRContext *c = t.getContext();
  if (isa<FloatType>(t)) return t.isF64() ? t : Type(Float32Type::get(c));
  if (t.isInteger(1)) return t;
  return storageType(t);
}

Value Scalars::constant(double x) const {
  if (floating) return arith::ConstantOp::create(b, loc, b.getFloatAttr(compute, x));
  return arith::ConstantOp::create(b, loc, b.getIntegerAttr(compute, APInt(compute.getIntOrFloatBitWidth(), uint64_t(int64_t(x)), false, true)));
}
Value Scalars::add(Value x, Value y) const {
  return floating ? Value(arith::AddFOp::create(b, loc, x, y)) : Value(arith::AddIOp::create(b, loc, x, y));
}
Value Scalars::sub(Value x, Value y) const {
  return floating ? Value(arith::SubFOp::create(b, loc, x, y)) : Value(arith::SubIOp::create(b, loc, x, y));
}
Value Scalars::mul(Value x, Value y) const {
  return floating ? Value(arith::MulFOp::create(b, loc, x, y)) : Value(arith::MulIOp::create(b, loc, x, y));
}

/// A divisor that cannot trap: 0 and (for signed types) -1 become 1.
static Value safeDivisor(const Scalars &s, Value y) {
  Value zero = s.equal(y, s.constant(0));
  if (!s.isUnsigned) zero = arith::OrIOp::create(s.b, s.loc, zero, s.equal(y, s.constant(-1)));
  return s.select(zero, s.constant(1), y);
}
Value Scalars::div(Value x, Value y) const {
  if (floating) return arith::DivFOp::create(b, loc, x, y);
  Value q = safeDivisor(*this, y);
  Value r = isUnsigned ? Value(arith::DivUIOp::create(b, loc, x, q)) : Value(arith::DivSIOp::create(b, loc, x, q));
  if (!isUnsigned) r = select(equal(y, constant(-1)), sub(constant(0), x), r);
  return select(equal(y, constant(0)), constant(0), r);
}
Value Scalars::rem(Value x, Value y) const {
  if (floating) return arith::RemFOp::create(b, loc, x, y);
  Value q = safeDivisor(*this, y);
  Value r = isUnsigned ? Value(arith::RemUIOp::create(b, loc, x, q)) : Value(arith::RemSIOp::create(b, loc, x, q));
  return r;
}
Value Scalars::mod(Value x, Value y) const {
  Value r = rem(x, y), zero = constant(0);
  if (isUnsigned) return r;
  Value differ = arith::XOrIOp::create(b, loc, less(r, zero), less(y, zero));
  Value fix = arith::AndIOp::create(b, loc, differ, arith::XOrIOp::create(b, loc, equal(r, zero), arith::ConstantIntOp::create(b, loc, 1, 1)));
  return select(fix, add(r, y), r);
}
Value Scalars::max(Value x, Value y) const {
  if (floating) return arith::MaximumFOp::create(b, loc, x, y);
  return isUnsigned ? Value(arith::MaxUIOp::create(b, loc, x, y)) : Value(arith::MaxSIOp::create(b, loc, x, y));
}
Value Scalars::min(Value x, Value y) const {
  if (floating) return arith::MinimumFOp::create(b, loc, x, y);
  return isUnsigned ? Value(arith::MinUIOp::create(b, loc, x, y)) : Value(arith::MinSIOp::create(b, loc, x, y));
}
Value Scalars::abs(Value x) const {
  if (floating) return math::AbsFOp::create(b, loc, x);
  return isUnsigned ? x : select(less(x, constant(0)), neg(x), x);
}
Value Scalars::less(Value x, Value y) const {
  if (floating) return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, y);
  return arith::CmpIOp::create(b, loc, isUnsigned ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt, x, y);
}
Value Scalars::lessEqual(Value x, Value y) const {
  if (floating) return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLE, x, y);
  return arith::CmpIOp::create(b, loc, isUnsigned ? arith::CmpIPredicate::ule : arith::CmpIPredicate::sle, x, y);
}
Value Scalars::equal(Value x, Value y) const {
  if (floating) return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x, y);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y);
}
Value Scalars::lowest() const {
  if (floating) return constant(-std::numeric_limits<double>::infinity());
  unsigned w = compute.getIntOrFloatBitWidth();
  APInt v = isUnsigned ? APInt::getZero(w) : APInt::getSignedMinValue(w);
  return arith::ConstantOp::create(b, loc, b.getIntegerAttr(compute, v));
}
Value Scalars::highest() const {
  if (floating) return constant(std::numeric_limits<double>::infinity());
  unsigned w = compute.getIntOrFloatBitWidth();
  APInt v = isUnsigned ? APInt::getMaxValue(w) : APInt::getSignedMaxValue(w);
  return arith::ConstantOp::create(b, loc, b.getIntegerAttr(compute, v));
}
Value Scalars::sigmoid(Value x) const {
  Value e = exp(neg(abs(x))); // of a number that is not positive
  Value small = div(e, add(constant(1), e)), large = div(constant(1), add(constant(1), e));
  return select(less(x, constant(0)), small, large);
}

Value Lower::widen(Value v, Type element) const {
  if (isBool(element)) return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, v, arith::ConstantIntOp::create(b, loc, 0, 8));
  if (element.isBF16()) {
    Value wide = arith::ExtUIOp::create(b, loc, b.getI32Type(), v);
    Value shifted = arith::ShLIOp::create(b, loc, wide, arith::ConstantIntOp::create(b, loc, 16, 32));
    return arith::BitcastOp::create(b, loc, b.getF32Type(), shifted);
  }
  if (element.isF16()) return arith::ExtFOp::create(b, loc, b.getF32Type(), v);
  if (isSmallFloat(element)) {
    // All values at once: at most 256.
    const llvm::fltSemantics &semantics = cast<FloatType>(element).getFloatSemantics();
    unsigned bits = element.getIntOrFloatBitWidth();
    SmallVector<float> table;
    for (unsigned code = 0; code < (1u << bits); ++code) {
      llvm::APFloat value(semantics, APInt(bits, code));
      bool lossy;
      value.convert(llvm::APFloat::IEEEsingle(), llvm::APFloat::rmNearestTiesToEven, &lossy);
      table.push_back(value.convertToFloat());
    }
    auto type = RankedTensorType::get({int64_t(table.size())}, b.getF32Type());
    Value constant = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<float>(table)));
    Value at = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v);
    return tensor::ExtractOp::create(b, loc, constant, at);
  }
  return v;
}

/// float32 to a format of 8 bits or fewer: round to nearest even, then what the format does at its ends.
static Value encodeSmall(OpBuilder &b, Location loc, Value x, FloatType to, bool saturate) {
  auto c = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 32).getResult(); };
  auto cmp = [&](arith::CmpIPredicate p, Value l, Value r) -> Value { return arith::CmpIOp::create(b, loc, p, l, r); };
  auto sel = [&](Value k, Value l, Value r) -> Value { return arith::SelectOp::create(b, loc, k, l, r); };
  using P = arith::CmpIPredicate;
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), x);
  Value a = arith::AndIOp::create(b, loc, bits, c(0x7fffffff));
  Value isNaN = cmp(P::ugt, a, c(0x7f800000)), isInf = cmp(P::eq, a, c(0x7f800000));
  if (isa<Float8E8M0FNUType>(to)) { // exponents only: rounded up in magnitude to a power of two (the default round_mode)
    Value up = arith::ShRUIOp::create(b, loc, arith::AddIOp::create(b, loc, a, c(0x7fffff)), c(23));
    Value most = sel(cmp(P::ugt, up, c(254)), c(saturate ? 254 : 255), up);
    return arith::TruncIOp::create(b, loc, b.getI8Type(), sel(isNaN, c(255), sel(isInf, c(saturate ? 254 : 255), most)));
  }
  bool e5 = isa<Float8E5M2Type, Float8E5M2FNUZType>(to), uz = isa<Float8E4M3FNUZType, Float8E5M2FNUZType>(to), f4 = isa<Float4E2M1FNType>(to);
  int m = e5 ? 2 : f4 ? 1 : 3, width = f4 ? 4 : 8;
  int bias = f4 ? 1 : (e5 ? 15 : 7) + uz;
  int largest = f4 ? 7 : uz ? 0x7f : e5 ? 0x7b : 0x7e;
  int nan = f4 ? 0 : uz ? 0x80 : 0x7f, over = f4 ? 7 : uz ? 0x80 : e5 ? 0x7c : 0x7f;
  int shift = 23 - m;
  Value odd = arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, a, c(shift)), c(1));
  Value rounded = arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, a, c((1 << (shift - 1)) - 1)), odd);
  Value normal = arith::SubIOp::create(b, loc, arith::ShRUIOp::create(b, loc, rounded, c(shift)), c((127 - bias) << m));
  // Below the smallest normal number the unit in the last place is fixed: adding 2^23 units rounds there.
  int unit = 127 + 1 - bias - m + 23;
  Value magic = arith::BitcastOp::create(b, loc, b.getF32Type(), c(unit << 23));
  Value magnitude = arith::BitcastOp::create(b, loc, b.getF32Type(), a);
  Value sum = arith::AddFOp::create(b, loc, magnitude, magic);
  Value denormal = arith::SubIOp::create(b, loc, arith::BitcastOp::create(b, loc, b.getI32Type(), sum), c(unit << 23));
  Value code = sel(cmp(P::ult, a, c((127 + 1 - bias) << 23)), denormal, normal);
  Value beyond = arith::OrIOp::create(b, loc, cmp(P::ugt, code, c(largest)), isInf);
  code = sel(beyond, c(saturate ? largest : over), code);
  Value sign = arith::ShLIOp::create(b, loc, arith::ShRUIOp::create(b, loc, bits, c(31)), c(width - 1));
  if (uz) {
    Value unsignedCode = arith::OrIOp::create(b, loc, cmp(P::eq, code, c(0)), cmp(P::eq, code, c(0x80)));
    sign = sel(unsignedCode, c(0), sign);
  }
  code = arith::OrIOp::create(b, loc, code, sign);
  Value nanCode = uz || f4 ? c(nan) : Value(arith::OrIOp::create(b, loc, c(nan), sign));
  return arith::TruncIOp::create(b, loc, b.getI8Type(), sel(isNaN, nanCode, code));
}

Value Lower::narrow(Value v, Type element) const {
  if (isBool(element)) return arith::ExtUIOp::create(b, loc, b.getI8Type(), v);
  if (element.isF16()) return arith::TruncFOp::create(b, loc, b.getF16Type(), v);
  if (isSmallFloat(element)) return encodeSmall(b, loc, v, cast<FloatType>(element), false); // a value of the type, infinities too
  if (!element.isBF16()) return v;
  auto c = [&](int64_t x) { return arith::ConstantIntOp::create(b, loc, x, 32).getResult(); };
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), v);
  Value high = arith::ShRUIOp::create(b, loc, bits, c(16));
  Value odd = arith::AndIOp::create(b, loc, high, c(1));
  Value rounded = arith::ShRUIOp::create(b, loc, arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, bits, c(0x7fff)), odd), c(16));
  Value isNaN = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, v, v);
  Value quiet = arith::OrIOp::create(b, loc, high, c(0x40));
  return arith::TruncIOp::create(b, loc, b.getI16Type(), arith::SelectOp::create(b, loc, isNaN, quiet, rounded));
}

Value Lower::convert(Value x, Type from, Type to, bool saturate) const {
  if (from == to) return x;
  Type target = computeType(to);
  Scalars source = scalars(from);
  if (isBool(to)) {
    if (!source.floating) return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, x, source.constant(0));
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, x, source.constant(0));
  }
  if (isFloat(to)) {
    Value y = x;
    if (source.floating) {
      if (x.getType() == target) y = x;
      else if (target.isF64()) y = arith::ExtFOp::create(b, loc, target, x);
      else y = arith::TruncFOp::create(b, loc, target, x);
    } else {
      y = source.isUnsigned ? Value(arith::UIToFPOp::create(b, loc, target, x)) : Value(arith::SIToFPOp::create(b, loc, target, x));
    }
    if (isSmallFloat(to)) return widen(encodeSmall(b, loc, y, cast<FloatType>(to), saturate), to);
    return y;
  }
  auto wanted = cast<IntegerType>(to);
  unsigned width = target.getIntOrFloatBitWidth();
  Value y;
  if (source.floating) {
    // Over 64 bits: what is out of range wraps instead of being undefined. NaN gives 0.
    Value ordered = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, x, x);
    Value number = arith::SelectOp::create(b, loc, ordered, x, source.constant(0));
    if (wanted.isUnsigned() && wanted.getWidth() == 64) {
      Value big = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, number, source.constant(9223372036854775808.0));
      Value offset = source.select(big, source.sub(number, source.constant(9223372036854775808.0)), number);
      Value part = arith::FPToSIOp::create(b, loc, b.getI64Type(), offset);
      Value top = arith::ConstantIntOp::create(b, loc, INT64_MIN, 64);
      return arith::SelectOp::create(b, loc, big, arith::XOrIOp::create(b, loc, part, top), part);
    }
    y = arith::FPToSIOp::create(b, loc, b.getI64Type(), number);
    if (width < 64) y = arith::TruncIOp::create(b, loc, target, y);
  } else {
    unsigned have = x.getType().getIntOrFloatBitWidth();
    if (have == width) y = x;
    else if (have > width) y = arith::TruncIOp::create(b, loc, target, x);
    else y = source.isUnsigned ? Value(arith::ExtUIOp::create(b, loc, target, x)) : Value(arith::ExtSIOp::create(b, loc, target, x));
  }
  if (wanted.getWidth() < 8) { // wraps to the bits that there are
    Value shift = arith::ConstantIntOp::create(b, loc, 8 - wanted.getWidth(), 8);
    y = arith::ShLIOp::create(b, loc, y, shift);
    y = wanted.isUnsigned() ? Value(arith::ShRUIOp::create(b, loc, y, shift)) : Value(arith::ShRSIOp::create(b, loc, y, shift));
  }
  return y;
}

} // namespace lathe::ops
