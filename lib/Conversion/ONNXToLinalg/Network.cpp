//===- Network.cpp - norms and rotary embedding -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"

namespace lathe::ops {
using namespace mlir;
namespace {

/// LayerNormalization and RMSNormalization over the dimensions from |axis| on, in float (or double).
/// Returns mean and inverse standard deviation, shapes [.., 1, ..]; the mean is absent with |rms|.
std::pair<TensorValue, TensorValue> statistics(Lower &l, const TensorValue &x, int64_t axis, bool rms, double epsilon) {
  Type sum = x.element.isF64() ? x.element : Type(l.b.getF32Type());
  Scalars s = l.scalars(sum);
  Dims shape = x.shape, to;
  for (int64_t k = axis; k < x.rank(); ++k) {
    shape[k] = 1;
    to.push_back(x.shape[k]);
  }
  Index from(to.size(), Dim(0));
  auto at = [&](ArrayRef<Dim> row, ArrayRef<Dim> i) {
    Index index(row.begin(), row.begin() + axis);
    index.append(i.begin(), i.end());
    return index;
  };
  Value n = l.convert(arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), l.d.value(l.d.product(to))), l.b.getI64Type(), sum);
  TensorValue mean;
  if (!rms)
    mean = l.generate(sum, shape, [&](ArrayRef<Dim> row) {
      return s.div(l.foldAll(from, to, s.constant(0), [&](ArrayRef<Dim> i, Value so) { return s.add(so, l.get(x, at(row, i))); }), n);
    });
  TensorValue inverse = l.generate(sum, shape, [&](ArrayRef<Dim> row) {
    Value total = l.foldAll(from, to, s.constant(0), [&](ArrayRef<Dim> i, Value so) {
      Value v = l.get(x, at(row, i));
      if (!rms) v = s.sub(v, l.get(mean, row));
      return s.add(so, s.mul(v, v));
    });
    return s.div(s.constant(1), s.sqrt(s.add(s.div(total, n), s.constant(epsilon))));
  });
  return {mean, inverse};
}

/// The normalized element, rounded to the input's type as the operators' function bodies do.
Value normalized(Lower &l, const TensorValue &x, const TensorValue &mean, const TensorValue &inverse, int64_t axis, ArrayRef<Dim> i) {
  Scalars s = l.scalars(inverse.element);
  Index row(i.begin(), i.end());
  for (size_t k = axis; k < row.size(); ++k)
    row[k] = 0;
  Value v = l.get(x, i);
  if (mean) v = s.sub(v, l.get(mean, row));
  return l.widen(l.narrow(s.mul(v, l.get(inverse, row)), x.element), x.element);
}

LogicalResult norm(Lower &l) {
  bool rms = l.node.op != "LayerNormalization";
  const TensorValue &x = l.in[0];
  auto axis = l.types.axis(x.rank(), -1);
  if (failed(axis)) return failure();
  auto [mean, inverse] = statistics(l, x, *axis, rms, l.node.real("epsilon", 1e-5));
  Type type = l.resultElement();
  Scalars s = l.scalars(type);
  auto m = mean, n = inverse;
  l.result([&](ArrayRef<Dim> i) {
    Value v = l.convert(normalized(l, x, m, n, *axis, i), x.element, type);
    v = s.mul(v, l.convert(l.getBroadcast(l.in[1], i), l.element(1), type));
    if (l.has(2)) v = s.add(v, l.convert(l.getBroadcast(l.in[2], i), l.element(2), type));
    return v;
  });
  if (rms) mean = inverse; // its second result is the inverse deviation
  if (l.types.wanted > 1) l.out.push_back(l.cast(mean, l.resultElement(1)));
  if (l.types.wanted > 2 && !rms) l.out.push_back(l.cast(inverse, l.resultElement(2)));
  return success();
}

/// com.microsoft: the sum of input, skip and bias, normalized. Results: output, mean, inverse deviation, sum.
LogicalResult skipNorm(Lower &l) {
  bool rms = l.node.op == "SkipSimplifiedLayerNormalization";
  const TensorValue &x = l.in[0];
  unsigned bias = rms ? 3 : 4;
  Scalars s = l.scalars(x.element);
  TensorValue sum = l.generate(x.element, x.shape, [&](ArrayRef<Dim> i) {
    Value v = s.add(l.get(x, i), l.getBroadcast(l.in[1], i));
    return l.has(bias) ? s.add(v, l.getBroadcast(l.in[bias], i)) : v;
  });
  int64_t axis = x.rank() - 1;
  auto [mean, inverse] = statistics(l, sum, axis, rms, l.node.real("epsilon", 1e-12));
  auto m = mean, n = inverse;
  l.result([&](ArrayRef<Dim> i) {
    Scalars f = l.scalars(n.element);
    Index row(i.begin(), i.end());
    row.back() = 0;
    Value v = l.get(sum, i);
    if (m) v = f.sub(v, l.get(m, row));
    v = s.mul(f.mul(v, l.get(n, row)), l.getBroadcast(l.in[2], i));
    return !rms && l.has(3) ? s.add(v, l.getBroadcast(l.in[3], i)) : v;
  });
  if (l.types.wanted > 1) l.out.push_back(l.cast(m ? m : n, l.resultElement(1)));
  if (l.types.wanted > 2) l.out.push_back(l.cast(n, l.resultElement(2)));
  if (l.types.wanted > 3) l.out.push_back(sum);
  return success();
}

LogicalResult lpNorm(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axis = l.types.axis(x.rank(), -1);
  if (failed(axis)) return failure();
  int64_t p = l.node.integer("p", 2);
  if (p != 1 && p != 2) return l.node.error("a p of 1 or 2", Twine(p));
  Scalars s = l.scalars(x.element);
  Dims rows = x.shape;
  rows[*axis] = 1;
  TensorValue norms = l.generate(x.element, rows, [&](ArrayRef<Dim> row) {
    Value sum = l.fold(0, x.shape[*axis], s.constant(0), [&](Dim k, Value so) {
      Index i(row.begin(), row.end());
      i[*axis] = k;
      Value v = l.get(x, i);
      return s.add(so, p == 1 ? s.abs(v) : s.mul(v, v));
    });
    return p == 1 ? sum : s.sqrt(sum);
  });
  l.result([&](ArrayRef<Dim> i) {
    Index row(i.begin(), i.end());
    row[*axis] = 0;
    Value n = l.get(norms, row), zero = s.equal(n, s.constant(0));
    return s.select(zero, s.constant(0), s.div(l.get(x, i), n));
  });
  return success();
}

LogicalResult meanVariance(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axes = l.node.integers("axes").value_or(SmallVector<int64_t>{0, 2, 3});
  Scalars s = l.scalars(x.element);
  Dims list;
  for (int64_t a : axes) {
    if (a < -x.rank() || a >= x.rank()) return l.node.error("axes of " + Twine(-x.rank()) + " .. " + Twine(x.rank() - 1), Twine(a));
    list.push_back(a);
  }
  Dims flags = axisFlags(l.d, list, x.rank()), rows = x.shape, to;
  for (auto [k, flag] : llvm::enumerate(flags))
    if (flag.is(1)) {
      rows[k] = 1;
      to.push_back(x.shape[k]);
    }
  Index from(to.size(), Dim(0));
  auto mean = [&](ArrayRef<Dim> row, const std::function<Value(ArrayRef<Dim>)> &term) {
    Value n = l.convert(arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), l.d.value(l.d.product(to))), l.b.getI64Type(), x.element);
    return s.div(l.foldAll(from, to, s.constant(0), [&](ArrayRef<Dim> i, Value so) {
      Index at(row.begin(), row.end());
      size_t next = 0;
      for (auto [k, flag] : llvm::enumerate(flags))
        if (flag.is(1)) at[k] = i[next++];
      return s.add(so, term(at));
    }), n);
  };
  TensorValue means = l.generate(x.element, rows, [&](ArrayRef<Dim> row) { return mean(row, [&](ArrayRef<Dim> i) { return l.get(x, i); }); });
  TensorValue squares = l.generate(x.element, rows, [&](ArrayRef<Dim> row) {
    return mean(row, [&](ArrayRef<Dim> i) {
      Value v = s.sub(l.get(x, i), l.get(means, row));
      return s.mul(v, v);
    });
  });
  l.result([&](ArrayRef<Dim> i) {
    Index row(i.begin(), i.end());
    for (auto [k, flag] : llvm::enumerate(flags))
      if (flag.is(1)) row[k] = 0;
    return s.div(s.sub(l.get(x, i), l.get(means, row)), s.add(s.sqrt(l.get(squares, row)), s.constant(1e-9)));
  });
  return success();
}

LogicalResult rotary(Lower &l) {
  bool contrib = l.node.domain == "com.microsoft";
  const TensorValue &x = l.in[0], &cos = l.in[contrib ? 2 : 1], &sin = l.in[contrib ? 3 : 2];
  unsigned positions = contrib ? 1 : 3;
  const DimMath &d = l.d;
  bool flat = x.rank() == 3, interleaved = l.node.integer("interleaved", 0);
  int64_t heads = l.node.integer("num_heads", 0);
  if (flat && heads <= 0) heads = *x.shape.back().known / (*cos.shape[1].known * 2);
  Dim size = flat ? d.floorDiv(x.shape.back(), heads) : x.shape.back();
  Dim half = cos.shape.back();
  double scale = contrib ? l.node.real("scale", 1) : 1;
  Scalars s = l.scalars(x.element);
  l.result([&](ArrayRef<Dim> i) {
    Dim batch = i[0], token = i[flat ? 1 : 2];
    Dim head = flat ? d.floorDiv(i[2], size) : i[1], k = flat ? d.sub(i[2], d.mul(head, size)) : i[3];
    Dim pair = interleaved ? d.floorDiv(k, 2) : d.select(d.less(k, half), k, d.sub(k, half));
    Dim second = interleaved ? d.sub(k, d.mul(pair, 2)) : d.negate(d.less(k, half));
    auto element = [&](Dim at) {
      return flat ? l.get(x, {batch, token, d.add(d.mul(head, size), at)}) : l.get(x, {batch, head, token, at});
    };
    auto rotate = [&]() -> Value {
      Index at{batch, token, pair};
      if (l.has(positions)) {
        const TensorValue &p = l.in[positions];
        Dim position = p.rank() == 2 ? l.getIndex(p, {p.shape[0].is(1) ? Dim(0) : d.select(d.equal(p.shape[0], 1), 0, batch), token})
                                     : d.add(l.getIndex(p, {Dim(0)}), token);
        l.check(d.both(d.less(-1, position), d.less(position, cos.shape[0])), "position ids within the caches");
        at = {position, pair};
      }
      Value c = l.convert(l.get(cos, at), cos.element, x.element), sn = l.convert(l.get(sin, at), sin.element, x.element);
      Dim firstPlace = interleaved ? d.mul(pair, 2) : pair, secondPlace = interleaved ? d.add(firstPlace, 1) : d.add(pair, half);
      Value a = element(firstPlace), b = element(secondPlace);
      Value real = s.sub(s.mul(c, a), s.mul(sn, b)), imaginary = s.add(s.mul(sn, a), s.mul(c, b));
      Value y = s.select(l.bit(second), imaginary, real);
      return scale == 1 ? y : s.mul(y, s.constant(scale));
    };
    Dim rotated = d.less(k, d.mul(half, 2));
    if (rotated.is(1)) return rotate();
    return l.choose(l.bit(rotated), rotate, [&] { return element(k); });
  });
  return success();
}

} // namespace

ArrayRef<LowerEntry> networkLowerings() {
  static const char *ms = "com.microsoft";
  static const LowerEntry table[] = {
      {"", "LayerNormalization", norm}, {"", "RMSNormalization", norm}, {"", "SimplifiedLayerNormalization", norm}, {ms, "SimplifiedLayerNormalization", norm},
      {ms, "SkipSimplifiedLayerNormalization", skipNorm}, {ms, "SkipLayerNormalization", skipNorm},
      {"", "LpNormalization", lpNorm}, {"", "MeanVarianceNormalization", meanVariance},
      {"", "RotaryEmbedding", rotary}, {ms, "RotaryEmbedding", rotary},
  };
  return table;
}

} // namespace lathe::ops
