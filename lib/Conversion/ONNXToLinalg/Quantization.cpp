//===- Quantization.cpp - quantized tensors in and out ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"

namespace lathe::ops {
using namespace mlir;
namespace {

/// Where the scale of an element lies.
Index scaleIndex(Lower &l, const TensorValue &scale, ArrayRef<Dim> i, int64_t axis) {
  if (scale.rank() == 0) return {};
  int64_t block = l.node.integer("block_size", 0);
  if (scale.rank() == 1 && !(block && i.size() == 1)) return {scale.shape[0].is(1) ? Dim(0) : i[axis]};
  Index at(i.begin(), i.end());
  at[axis] = l.d.floorDiv(i[axis], block);
  return at;
}
/// The zero point's: of the scale's rank, or one for all as the scale is.
Index zeroIndex(Lower &l, const Index &scale) { return l.in[2].rank() == int64_t(scale.size()) ? scale : Index(l.in[2].rank(), Dim(0)); }

FailureOr<int64_t> quantizedAxis(Lower &l) {
  if (l.in[1].rank() == 0 || l.in[0].rank() == 0 || (l.in[1].rank() == 1 && l.in[1].shape[0].is(1) && l.in[0].rank() != 1)) return int64_t(0);
  return l.types.axis(l.in[0].rank(), 1);
}

/// The number |x| (float) as quantized type |to|: rounded to even, moved by the zero point, cut to the range.
Value quantized(Lower &l, Value x, Value zero, Type from, Type to, bool saturate) {
  Scalars s = l.scalars(from);
  if (isFloat(to)) {
    if (zero) x = s.add(x, zero);
    return l.convert(x, from, to, saturate);
  }
  auto integer = cast<IntegerType>(to);
  double low = integer.isUnsigned() ? 0 : -std::ldexp(1, integer.getWidth() - 1), high = std::ldexp(1, integer.getWidth() - !integer.isUnsigned()) - 1;
  x = math::RoundEvenOp::create(l.b, l.loc, x);
  if (zero) x = s.add(x, zero);
  x = s.min(s.max(x, s.constant(low)), s.constant(high));
  return l.convert(x, from, to);
}

LogicalResult quantizeLinear(Lower &l) {
  auto axis = quantizedAxis(l);
  if (failed(axis)) return failure();
  // The scale's type sets the precision of the division.
  int64_t precision = l.node.integer("precision", 0);
  Type wide = precision ? elementType(l.b.getContext(), precision) : l.element(1);
  if (!wide || !isFloat(wide) || wide.getIntOrFloatBitWidth() < 16) wide = l.b.getF32Type();
  Scalars s = l.scalars(wide);
  bool saturate = l.node.integer("saturate", 1);
  l.result([&](ArrayRef<Dim> i) {
    Index at = scaleIndex(l, l.in[1], i, *axis);
    Value x = l.convert(l.get(l.in[0], i), l.element(0), wide), scale = l.convert(l.get(l.in[1], at), l.element(1), wide);
    Value q = s.div(x, scale);
    if (!wide.isF64()) q = l.widen(l.narrow(q, wide), wide); // rounded as the division's type
    Value zero = l.has(2) ? l.convert(l.get(l.in[2], zeroIndex(l, at)), l.element(2), l.b.getF32Type()) : Value();
    return quantized(l, l.convert(q, wide, l.b.getF32Type()), zero, l.b.getF32Type(), l.resultElement(), saturate);
  });
  return success();
}
LogicalResult dequantizeLinear(Lower &l) {
  auto axis = quantizedAxis(l);
  if (failed(axis)) return failure();
  Type wide = l.b.getF32Type();
  Scalars s = l.scalars(wide);
  l.result([&](ArrayRef<Dim> i) {
    Index at = scaleIndex(l, l.in[1], i, *axis);
    Value x = l.convert(l.get(l.in[0], i), l.element(0), wide);
    if (l.has(2)) x = s.sub(x, l.convert(l.get(l.in[2], zeroIndex(l, at)), l.element(2), wide));
    return l.convert(s.mul(x, l.convert(l.get(l.in[1], at), l.element(1), wide)), wide, l.resultElement());
  });
  return success();
}
LogicalResult dynamicQuantize(Lower &l) {
  const TensorValue &x = l.in[0];
  Type f32 = l.b.getF32Type(), u8 = l.resultElement();
  Scalars s = l.scalars(f32);
  Index from(x.rank(), Dim(0));
  // The range holds 0.
  Value most = l.foldAll(from, x.shape, s.constant(0), [&](ArrayRef<Dim> i, Value so) { return s.max(so, l.get(x, i)); });
  Value least = l.foldAll(from, x.shape, s.constant(0), [&](ArrayRef<Dim> i, Value so) { return s.min(so, l.get(x, i)); });
  Value scale = s.div(s.sub(most, least), s.constant(255));
  Value zero = s.div(s.neg(least), scale);
  zero = math::RoundEvenOp::create(l.b, l.loc, s.min(s.max(zero, s.constant(0)), s.constant(255)));
  l.result([&](ArrayRef<Dim> i) { return quantized(l, s.div(l.get(x, i), scale), zero, f32, u8, true); });
  l.result([&](ArrayRef<Dim>) { return scale; });
  l.result([&](ArrayRef<Dim>) { return l.convert(zero, f32, u8); });
  return success();
}

/// Code |k| of a row of packed bytes, low bits first.
Value packedCode(Lower &l, const TensorValue &bytes, const std::function<Index(Dim byte)> &at, Dim k, int64_t bits) {
  int64_t each = 8 / bits;
  Type i8 = l.b.getI8Type();
  Dim byte = l.d.floorDiv(k, each);
  Value code = l.get(bytes, at(byte));
  if (each == 1) return code;
  Dim shift = l.d.mul(l.d.sub(k, l.d.mul(byte, each)), bits);
  Value amount = arith::IndexCastOp::create(l.b, l.loc, i8, l.d.value(shift));
  Value moved = arith::ShRUIOp::create(l.b, l.loc, code, amount);
  return arith::AndIOp::create(l.b, l.loc, moved, arith::ConstantIntOp::create(l.b, l.loc, (1 << bits) - 1, 8));
}

/// com.microsoft MatMulNBits: the weight is dequantized once a call, [K, N], then multiplied.
LogicalResult matMulNBits(Lower &l) {
  const DimMath &d = l.d;
  int64_t k = l.node.integer("K", 0), n = l.node.integer("N", 0), bits = l.node.integer("bits", 4), block = l.node.integer("block_size", 32);
  int64_t blocks = (k + block - 1) / block, blob = block * bits / 8;
  Type f32 = l.b.getF32Type(), u8 = l.element(1);
  Scalars s = l.scalars(f32);
  TensorValue bytes = l.reshape(l.in[1], {Dim(n), Dim(blocks), Dim(blob)}), scales = l.reshape(l.in[2], {Dim(n), Dim(blocks)});
  TensorValue zeros;
  bool floatZeros = l.has(3) && isFloat(l.element(3));
  if (l.has(3)) zeros = l.reshape(l.in[3], {Dim(n), floatZeros ? Dim(blocks) : Dim((blocks * bits + 7) / 8)});
  TensorValue weight = l.generate(f32, {Dim(n), Dim(k)}, [&](ArrayRef<Dim> i) {
    Dim at = d.floorDiv(i[1], block), inside = d.sub(i[1], d.mul(at, block));
    Value code = l.convert(packedCode(l, bytes, [&](Dim byte) { return Index{i[0], at, byte}; }, inside, bits), u8, f32);
    Value zero = s.constant(double(1 << (bits - 1)));
    if (zeros) zero = floatZeros ? l.convert(l.get(zeros, {i[0], at}), zeros.element, f32) : l.convert(packedCode(l, zeros, [&](Dim byte) { return Index{i[0], byte}; }, at, bits), u8, f32);
    return s.mul(s.sub(code, zero), l.convert(l.get(scales, {i[0], at}), scales.element, f32));
  });
  const TensorValue &x = l.in[0];
  Dim rows = d.product(ArrayRef<Dim>(x.shape).drop_back());
  TensorValue product = l.matmul(l.reshape(x, {rows, Dim(k)}), weight, f32, true);
  TensorValue shaped = l.reshape(product, l.shape());
  l.result([&](ArrayRef<Dim> i) {
    Value v = l.get(shaped, i);
    if (l.has(5)) v = s.add(v, l.convert(l.get(l.in[5], {i.back()}), l.element(5), f32));
    return l.convert(v, f32, l.resultElement());
  });
  return success();
}

LogicalResult gatherBlockQuantized(Lower &l) {
  const DimMath &d = l.d;
  int64_t bits = l.node.integer("bits", 4), block = l.node.integer("block_size", 128), rank = l.in[0].rank();
  auto gather = l.types.axis(rank, 0, "gather_axis"), quantize = l.types.axis(rank, 1, "quantize_axis");
  if (failed(gather) || failed(quantize)) return failure();
  const TensorValue &x = l.in[0], &indices = l.in[1], &scales = l.in[2];
  bool packed = x.element.isUnsignedInteger(8);
  Type f32 = l.b.getF32Type();
  Scalars s = l.scalars(f32);
  l.result([&](ArrayRef<Dim> i) {
    Index from(i.begin(), i.begin() + *gather);
    Dim extent = *gather == rank - 1 && packed ? d.mul(x.shape[*gather], 8 / bits) : x.shape[*gather];
    Dim chosen = d.wrap(l.getIndex(indices, i.slice(*gather, indices.rank())), extent);
    l.check(d.both(d.less(-1, chosen), d.less(chosen, extent)), "indices within the extent of the axis");
    from.push_back(chosen);
    from.append(i.begin() + *gather + indices.rank(), i.end());
    Index group(from);
    group[*quantize] = d.floorDiv(from[*quantize], block);
    auto code = [&](const TensorValue &t, ArrayRef<Dim> at) {
      if (!packed) return l.convert(l.get(t, at), t.element, f32);
      return l.convert(packedCode(l, t, [&](Dim byte) {
        Index index(at.begin(), at.end());
        index.back() = byte;
        return index;
      }, at.back(), bits), t.element, f32);
    };
    // Packed codes have the middle as their zero point; typed ones have 0.
    Value zero = l.has(3) ? code(l.in[3], group) : s.constant(packed ? double(1 << (bits - 1)) : 0);
    return l.convert(s.mul(s.sub(code(x, from), zero), l.convert(l.get(scales, group), scales.element, f32)), f32, l.resultElement());
  });
  return success();
}

} // namespace

ArrayRef<LowerEntry> quantizationLowerings() {
  static const char *ms = "com.microsoft";
  static const LowerEntry table[] = {
      {"", "QuantizeLinear", quantizeLinear}, {"", "DequantizeLinear", dequantizeLinear}, {"", "DynamicQuantizeLinear", dynamicQuantize},
      {ms, "MatMulNBits", matMulNBits}, {ms, "GatherBlockQuantized", gatherBlockQuantized},
  };
  return table;
}

} // namespace lathe::ops
