//===- Reduction.cpp - sums, extremes and what runs along an axis -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lathe::ops {
using namespace mlir;
namespace {

/// Which elements of input 0 one element of a reduction's result is made of.
struct ReducedAxes {
  Dims flags;
  bool keep = true, none = false;
  /// Folds over them; |body| gets the input index.
  Value fold(Lower &l, const TensorValue &t, ArrayRef<Dim> out, Value init, const std::function<Value(ArrayRef<Dim>, Value)> &body) const {
    Dims own = keep ? Dims(out.begin(), out.end()) : insertFlagged(l.d, out, flags, 0);
    Index index(own);
    std::function<Value(size_t, Value)> nest = [&](size_t k, Value sum) -> Value {
      if (k == flags.size()) return body(index, sum);
      if (flags[k].is(0)) {
        index[k] = own[k];
        return nest(k + 1, sum);
      }
      Dim from = l.d.select(flags[k], 0, own[k]), to = l.d.select(flags[k], t.shape[k], l.d.add(own[k], 1));
      return l.fold(from, to, sum, [&](Dim i, Value s) {
        index[k] = i;
        return nest(k + 1, s);
      });
    };
    return nest(0, init);
  }
  /// How many they are.
  Dim count(Lower &l, const TensorValue &t) const {
    Dim n(1);
    for (auto [flag, extent] : llvm::zip(flags, t.shape))
      n = l.d.mul(n, l.d.select(flag, extent, 1));
    return n;
  }
};
FailureOr<ReducedAxes> reducedAxes(Lower &l) {
  auto axes = l.types.list("axes", 1);
  if (failed(axes)) return failure();
  ReducedAxes r;
  int64_t rank = l.in[0].rank();
  r.keep = l.node.integer("keepdims", 1);
  if (axes->empty()) {
    r.none = l.node.integer("noop_with_empty_axes", 0);
    r.flags.assign(rank, Dim(r.none ? 0 : 1));
    if (r.none) r.keep = true;
  } else {
    r.flags = axisFlags(l.d, *axes, rank);
  }
  return r;
}

LogicalResult reduce(Lower &l) {
  auto axes = reducedAxes(l);
  if (failed(axes)) return failure();
  StringRef op = l.node.op;
  const TensorValue &x = l.in[0];
  // Integers: roots and logarithms by way of double.
  bool transcendental = op == "ReduceL2" || op.starts_with("ReduceLog");
  Type element = x.element, sum = element;
  if (transcendental && !isFloat(element)) sum = l.b.getF64Type();
  Scalars s = l.scalars(sum);
  auto load = [&](ArrayRef<Dim> i) { return l.convert(l.get(x, i), element, sum); };
  // The largest exponent first, so that no exp overflows.
  TensorValue most;
  if (op == "ReduceLogSumExp")
    most = l.generate(sum, l.shape(), [&](ArrayRef<Dim> out) {
      Value m = axes->fold(l, x, out, s.lowest(), [&](ArrayRef<Dim> i, Value best) { return s.max(best, load(i)); });
      Value finite = s.less(s.abs(m), s.highest());
      return s.select(finite, m, s.constant(0));
    });
  l.result([&](ArrayRef<Dim> out) -> Value {
    if (isBool(element)) { // ReduceMax and ReduceMin: any and all
      bool any = op == "ReduceMax";
      return axes->fold(l, x, out, l.bit(!any), [&](ArrayRef<Dim> i, Value so) -> Value {
        if (any) return arith::OrIOp::create(l.b, l.loc, so, l.get(x, i));
        return arith::AndIOp::create(l.b, l.loc, so, l.get(x, i));
      });
    }
    Value init = op == "ReduceMax" ? s.lowest() : op == "ReduceMin" ? s.highest() : s.constant(op == "ReduceProd");
    Value total = axes->fold(l, x, out, init, [&](ArrayRef<Dim> i, Value so) {
      Value v = load(i);
      if (op == "ReduceMax") return s.max(so, v);
      if (op == "ReduceMin") return s.min(so, v);
      if (op == "ReduceProd") return s.mul(so, v);
      if (op == "ReduceL1") v = s.abs(v);
      if (op == "ReduceL2" || op == "ReduceSumSquare") v = s.mul(v, v);
      if (op == "ReduceLogSumExp") v = s.exp(s.sub(v, l.get(most, out)));
      return s.add(so, v);
    });
    if (op == "ReduceMean") {
      Value n = l.d.value(axes->count(l, x));
      Value bits = arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), n);
      total = s.div(total, l.convert(bits, l.b.getI64Type(), sum));
    }
    if (op == "ReduceL2") total = s.sqrt(total);
    if (op == "ReduceLogSum" || op == "ReduceLogSumExp") total = s.log(total);
    if (op == "ReduceLogSumExp") total = s.add(total, l.get(most, out));
    return l.convert(total, sum, element);
  });
  return success();
}

LogicalResult argReduce(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axis = l.types.axis(x.rank(), 0);
  if (failed(axis)) return failure();
  bool largest = l.node.op == "ArgMax", last = l.node.integer("select_last_index", 0), keep = l.node.integer("keepdims", 1);
  Scalars s = l.scalars(x.element);
  l.result([&](ArrayRef<Dim> out) -> Value {
    Index index(out.begin(), out.end());
    if (!keep) index.insert(index.begin() + *axis, Dim(0));
    index[*axis] = 0;
    Value first = l.get(x, index);
    Value place = arith::ConstantIntOp::create(l.b, l.loc, 0, 64);
    return l.loop(1, x.shape[*axis], {first, place}, [&](Dim i, ValueRange best) -> SmallVector<Value> {
      Index at(index);
      at[*axis] = i;
      Value v = l.get(x, at);
      Value better = largest ? s.less(best[0], v) : s.less(v, best[0]);
      if (last) better = arith::OrIOp::create(l.b, l.loc, better, s.equal(v, best[0]));
      Value here = arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), l.d.value(i));
      return {s.select(better, v, best[0]), s.select(better, here, best[1])};
    })[1];
  });
  return success();
}

/// Softmax, LogSoftmax and Hardmax: before opset 13 over all dimensions from the axis on.
LogicalResult softmax(Lower &l) {
  const TensorValue &x = l.in[0];
  bool flat = l.node.version < 13;
  auto axis = l.types.axis(x.rank(), flat ? 1 : -1);
  if (failed(axis)) return failure();
  ReducedAxes axes;
  for (int64_t k = 0; k < x.rank(); ++k)
    axes.flags.push_back(Dim(k == *axis || (flat && k > *axis)));
  Dims rows;
  for (auto [k, n] : llvm::enumerate(x.shape))
    rows.push_back(axes.flags[k].is(1) ? Dim(1) : n);
  Type sum = x.element.isF64() ? x.element : Type(l.b.getF32Type());
  Scalars f = l.scalars(sum);
  auto load = [&](ArrayRef<Dim> i) { return l.get(x, i); };
  auto row = [&](ArrayRef<Dim> i) {
    Index r(i.begin(), i.end());
    for (auto [k, flag] : llvm::enumerate(axes.flags))
      if (flag.is(1)) r[k] = 0;
    return r;
  };
  TensorValue most = l.generate(sum, rows, [&](ArrayRef<Dim> out) {
    return axes.fold(l, x, out, f.lowest(), [&](ArrayRef<Dim> i, Value best) { return f.max(best, load(i)); });
  });
  if (l.node.op == "Hardmax") {
    // The first of equal maxima.
    l.result([&](ArrayRef<Dim> i) {
      Value m = l.get(most, row(i));
      Value hit = f.equal(load(i), m);
      Value before = l.fold(0, i[*axis], l.bit(0), [&](Dim k, Value so) -> Value {
        Index at(i.begin(), i.end());
        at[*axis] = k;
        return arith::OrIOp::create(l.b, l.loc, so, f.equal(load(at), m));
      });
      Value chosen = arith::AndIOp::create(l.b, l.loc, hit, arith::XOrIOp::create(l.b, l.loc, before, l.bit(1)));
      return f.select(chosen, f.constant(1), f.constant(0));
    });
    return success();
  }
  bool logarithm = l.node.op == "LogSoftmax";
  auto power = [&](ArrayRef<Dim> i) { return f.exp(f.sub(load(i), l.get(most, row(i)))); };
  TensorValue powers = logarithm ? TensorValue() : l.generate(sum, x.shape, power);
  TensorValue sums = l.generate(sum, rows, [&](ArrayRef<Dim> out) {
    return axes.fold(l, x, out, f.constant(0), [&](ArrayRef<Dim> i, Value so) { return f.add(so, logarithm ? power(i) : l.get(powers, i)); });
  });
  l.result([&](ArrayRef<Dim> i) {
    if (logarithm) return f.sub(f.sub(load(i), l.get(most, row(i))), f.log(l.get(sums, row(i))));
    return f.div(l.get(powers, i), l.get(sums, row(i)));
  });
  return success();
}

/// CumSum and CumProd: one pass along the axis for every line.
LogicalResult cumulative(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axes = l.types.ints(1, "axis");
  if (failed(axes)) return failure();
  bool exclusive = l.node.integer("exclusive", 0), reverse = l.node.integer("reverse", 0), product = l.node.op == "CumProd";
  Scalars s = l.scalars(x.element);
  Dims flags = axisFlags(l.d, *axes, x.rank());
  // Each element folds its own prefix: exact for any axis, and the lines are short where graphs use it.
  l.result([&](ArrayRef<Dim> i) {
    Dim at(0), extent(0);
    for (auto [k, flag] : llvm::enumerate(flags)) {
      at = l.d.select(flag, i[k], at);
      extent = l.d.select(flag, x.shape[k], extent);
    }
    Dim from = reverse ? l.d.add(at, exclusive) : Dim(0), to = reverse ? extent : l.d.add(at, exclusive ? 0 : 1);
    return l.fold(from, to, s.constant(product), [&](Dim k, Value so) {
      Index index;
      for (auto [place, flag] : llvm::enumerate(flags))
        index.push_back(l.d.select(flag, k, i[place]));
      Value v = l.get(x, index);
      return product ? s.mul(so, v) : s.add(so, v);
    });
  });
  return success();
}

} // namespace

ArrayRef<LowerEntry> reductionLowerings() {
  static const LowerEntry table[] = {
      {"", "ReduceSum", reduce}, {"", "ReduceMean", reduce}, {"", "ReduceMax", reduce}, {"", "ReduceMin", reduce}, {"", "ReduceProd", reduce},
      {"", "ReduceL1", reduce}, {"", "ReduceL2", reduce}, {"", "ReduceLogSum", reduce}, {"", "ReduceLogSumExp", reduce}, {"", "ReduceSumSquare", reduce},
      {"", "ArgMax", argReduce}, {"", "ArgMin", argReduce},
      {"", "Softmax", softmax}, {"", "LogSoftmax", softmax}, {"", "Hardmax", softmax},
      {"", "CumSum", cumulative}, {"", "CumProd", cumulative},
  };
  return table;
}

} // namespace lathe::ops
