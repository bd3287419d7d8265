//===- Indexing.cpp - gather, scatter and data-dependent sizes ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/TypeTable.h"
#include "ONNXToLinalg/Lower.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lathe::ops {
using namespace mlir;
namespace {

/// An index of a tensor as a place within |extent|: negative ones count from the end, others are errors of the run.
Dim place(Lower &l, const TensorValue &indices, ArrayRef<Dim> at, Dim extent) {
  Dim i = l.d.wrap(l.getIndex(indices, at), extent);
  l.check(l.d.both(l.d.less(-1, i), l.d.less(i, extent)), "indices within the extent of the axis");
  return i;
}

LogicalResult gather(Lower &l) {
  const TensorValue &x = l.in[0], &indices = l.in[1];
  auto axis = l.types.axis(x.rank(), 0);
  if (failed(axis)) return failure();
  l.result([&](ArrayRef<Dim> i) {
    Index from(i.begin(), i.begin() + *axis);
    from.push_back(place(l, indices, i.slice(*axis, indices.rank()), x.shape[*axis]));
    from.append(i.begin() + *axis + indices.rank(), i.end());
    return l.get(x, from);
  });
  return success();
}
LogicalResult gatherElements(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axis = l.types.axis(x.rank(), 0);
  if (failed(axis)) return failure();
  l.result([&](ArrayRef<Dim> i) {
    Index from(i.begin(), i.end());
    from[*axis] = place(l, l.in[1], i, x.shape[*axis]);
    return l.get(x, from);
  });
  return success();
}
LogicalResult gatherND(Lower &l) {
  const TensorValue &x = l.in[0], &indices = l.in[1];
  int64_t batch = l.node.integer("batch_dims", 0), q = indices.rank(), tuple = *indices.shape.back().known;
  l.result([&](ArrayRef<Dim> i) {
    Index at(i.begin(), i.begin() + q - 1), from(i.begin(), i.begin() + batch);
    at.push_back(0);
    for (int64_t k = 0; k < tuple; ++k) {
      at.back() = k;
      from.push_back(place(l, indices, at, x.shape[batch + k]));
    }
    from.append(i.begin() + q - 1, i.end());
    return l.get(x, from);
  });
  return success();
}

/// Calls |fn| for every index of |shape|, carrying a tensor.
Value forAll(Lower &l, ArrayRef<Dim> shape, Value tensor, const std::function<Value(ArrayRef<Dim>, Value)> &fn) {
  return l.foldAll(Index(shape.size(), Dim(0)), shape, tensor, fn);
}

/// A copy that may be written.
Value copyOf(Lower &l, const TensorValue &x) { return l.generate(x.element, x.shape, [&](ArrayRef<Dim> i) { return l.get(x, i); }).value; }

FailureOr<std::function<Value(Value, Value)>> combiner(Lower &l) {
  StringRef how = l.node.string("reduction", "none");
  Scalars s = l.scalars(l.element(0));
  if (how == "none") return std::function<Value(Value, Value)>([](Value, Value y) { return y; });
  if (!isBool(l.element(0))) {
    if (how == "add") return std::function<Value(Value, Value)>([=](Value x, Value y) { return s.add(x, y); });
    if (how == "mul") return std::function<Value(Value, Value)>([=](Value x, Value y) { return s.mul(x, y); });
    if (how == "max") return std::function<Value(Value, Value)>([=](Value x, Value y) { return s.max(x, y); });
    if (how == "min") return std::function<Value(Value, Value)>([=](Value x, Value y) { return s.min(x, y); });
  }
  return l.node.error("reduction none, add, mul, max or min on numbers", "'" + how + "'");
}

LogicalResult scatterElements(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axis = l.types.axis(x.rank(), 0);
  auto combine = combiner(l);
  if (failed(axis) || failed(combine)) return failure();
  for (int64_t k = 0; k < x.rank(); ++k)
    if (k != *axis) l.check(l.d.less(l.in[1].shape[k], l.d.add(x.shape[k], 1)), "indices no larger than the data beside the axis");
  bool replaces = l.node.string("reduction", "none") == "none";
  Value all = forAll(l, l.in[1].shape, copyOf(l, x), [&](ArrayRef<Dim> i, Value so) {
    Index to(i.begin(), i.end());
    to[*axis] = place(l, l.in[1], i, x.shape[*axis]);
    Value update = l.get(l.in[2], i);
    if (!replaces) update = (*combine)(l.get({so, x.element, x.shape}, to), update);
    return l.insert(so, l.narrow(update, x.element), to);
  });
  l.out.push_back({all, x.element, x.shape});
  return success();
}
LogicalResult scatterND(Lower &l) {
  const TensorValue &x = l.in[0], &indices = l.in[1];
  auto combine = combiner(l);
  if (failed(combine)) return failure();
  int64_t q = indices.rank(), tuple = *indices.shape.back().known;
  bool replaces = l.node.string("reduction", "none") == "none";
  Value all = forAll(l, l.in[2].shape, copyOf(l, x), [&](ArrayRef<Dim> i, Value so) {
    Index at(i.begin(), i.begin() + q - 1), to;
    at.push_back(0);
    for (int64_t k = 0; k < tuple; ++k) {
      at.back() = k;
      to.push_back(place(l, indices, at, x.shape[k]));
    }
    to.append(i.begin() + q - 1, i.end());
    Value update = l.get(l.in[2], i);
    if (!replaces) update = (*combine)(l.get({so, x.element, x.shape}, to), update);
    return l.insert(so, l.narrow(update, x.element), to);
  });
  l.out.push_back({all, x.element, x.shape});
  return success();
}
LogicalResult tensorScatter(Lower &l) {
  const TensorValue &x = l.in[0], &update = l.in[1];
  auto axis = l.types.axis(x.rank(), -2);
  if (failed(axis)) return failure();
  StringRef mode = l.node.string("mode", "linear");
  if (mode != "linear" && mode != "circular") return l.node.error("mode linear or circular", "'" + mode + "'");
  Value all = forAll(l, update.shape, copyOf(l, x), [&](ArrayRef<Dim> i, Value so) {
    Index to(i.begin(), i.end());
    Dim n = x.shape[*axis];
    if (l.has(2)) to[*axis] = l.d.add(i[*axis], l.getIndex(l.in[2], {i[0]}));
    if (mode == "circular") to[*axis] = l.d.sub(to[*axis], l.d.mul(l.d.floorDiv(to[*axis], n), n));
    l.check(l.d.both(l.d.less(-1, to[*axis]), l.d.less(to[*axis], n)), "an update within the cache");
    return l.insert(so, l.narrow(l.get(update, i), x.element), to);
  });
  l.out.push_back({all, x.element, x.shape});
  return success();
}

Value asI64(Lower &l, Dim i) { return arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), l.d.value(i)); }

LogicalResult nonZero(Lower &l) {
  const TensorValue &x = l.in[0];
  auto hit = [&](ArrayRef<Dim> i) { return l.convert(l.get(x, i), x.element, l.b.getI1Type()); };
  Index zeros(x.rank(), Dim(0));
  Value count = l.foldAll(zeros, x.shape, l.d.value(0), [&](ArrayRef<Dim> i, Value n) { return l.d.value(l.d.add(Dim(n), l.dim(hit(i)))); });
  Dims shape{Dim(x.rank()), Dim(count)};
  TensorValue made = l.empty(l.resultElement(), shape);
  // Two carried values: where the next goes, and the tensor.
  std::function<SmallVector<Value>(size_t, Index &, SmallVector<Value>)> nest = [&](size_t k, Index &index, SmallVector<Value> state) -> SmallVector<Value> {
    if (k < x.shape.size())
      return l.loop(0, x.shape[k], state, [&](Dim i, ValueRange so) {
        index.push_back(i);
        SmallVector<Value> next = nest(k + 1, index, SmallVector<Value>(so));
        index.pop_back();
        return next;
      });
    auto op = scf::IfOp::create(l.b, l.loc, TypeRange{state[0].getType(), state[1].getType()}, hit(index), true);
    {
      OpBuilder::InsertionGuard guard(l.b);
      l.b.setInsertionPointToStart(op.thenBlock());
      Value tensor = state[1];
      for (auto [row, i] : llvm::enumerate(index))
        tensor = l.insert(tensor, asI64(l, i), {Dim(int64_t(row)), Dim(state[0])});
      scf::YieldOp::create(l.b, l.loc, ValueRange{l.d.value(l.d.add(Dim(state[0]), 1)), tensor});
      l.b.setInsertionPointToStart(op.elseBlock());
      scf::YieldOp::create(l.b, l.loc, state);
    }
    return SmallVector<Value>(op.getResults());
  };
  Index index;
  SmallVector<Value> end = nest(0, index, {l.d.value(0), made.value});
  l.out.push_back({end[1], l.resultElement(), shape});
  return success();
}

LogicalResult compress(Lower &l) {
  TensorValue x = l.in[0];
  const TensorValue &condition = l.in[1];
  int64_t axis = 0;
  if (l.node.has("axis")) {
    auto a = l.types.axis(x.rank(), 0);
    if (failed(a)) return failure();
    axis = *a;
  } else {
    x = l.reshape(x, {l.d.product(x.shape)});
  }
  // The entries beyond the condition are dropped; first a list of those that stay.
  Dim n = l.d.min(condition.shape[0], x.shape[axis]);
  Value count = l.fold(0, n, l.d.value(0), [&](Dim i, Value so) { return l.d.value(l.d.add(Dim(so), l.dim(l.get(condition, {i})))); });
  Type i64 = l.b.getI64Type();
  TensorValue list = l.empty(i64, {Dim(count)});
  SmallVector<Value> end = l.loop(0, n, {l.d.value(0), list.value}, [&](Dim i, ValueRange so) -> SmallVector<Value> {
    auto op = scf::IfOp::create(l.b, l.loc, TypeRange{so[0].getType(), so[1].getType()}, l.get(condition, {i}), true);
    OpBuilder::InsertionGuard guard(l.b);
    l.b.setInsertionPointToStart(op.thenBlock());
    Value tensor = l.insert(so[1], asI64(l, i), {Dim(so[0])});
    scf::YieldOp::create(l.b, l.loc, ValueRange{l.d.value(l.d.add(Dim(so[0]), 1)), tensor});
    l.b.setInsertionPointToStart(op.elseBlock());
    scf::YieldOp::create(l.b, l.loc, so);
    return SmallVector<Value>(op.getResults());
  });
  list.value = end[1];
  l.types.results[0].shape = x.shape;
  l.types.results[0].shape[axis] = Dim(count);
  l.result([&](ArrayRef<Dim> i) {
    Index from(i.begin(), i.end());
    from[axis] = l.getIndex(list, {i[axis]});
    return l.get(x, from);
  });
  return success();
}

/// The k-th element is the one that exactly k others come before: larger (or smaller), or equal and earlier.
LogicalResult topK(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axis = l.types.axis(x.rank(), -1);
  if (failed(axis)) return failure();
  bool largest = l.node.integer("largest", 1);
  Scalars s = l.scalars(x.element);
  Dim n = x.shape[*axis], k = l.shape()[*axis];
  Dims lines = x.shape;
  lines[*axis] = 1;
  TensorValue places = l.empty(l.b.getI64Type(), l.shape(1));
  Index full = lines;
  full[*axis] = n;
  Value filled = forAll(l, full, places.value, [&](ArrayRef<Dim> i, Value so) {
    Value v = l.get(x, i);
    Value rank = l.fold(0, n, l.d.value(0), [&](Dim j, Value sum) {
      Index at(i.begin(), i.end());
      at[*axis] = j;
      Value other = l.get(x, at);
      Value ahead = largest ? s.less(v, other) : s.less(other, v);
      Value tie = arith::AndIOp::create(l.b, l.loc, s.equal(v, other), l.bit(l.d.less(j, i[*axis])));
      return l.d.value(l.d.add(Dim(sum), l.dim(arith::OrIOp::create(l.b, l.loc, ahead, tie))));
    });
    return l.choose(l.bit(l.d.less(Dim(rank), k)), [&] {
      Index to(i.begin(), i.end());
      to[*axis] = Dim(rank);
      return l.insert(so, asI64(l, i[*axis]), to);
    }, [&] { return so; });
  });
  places.value = filled;
  l.result([&](ArrayRef<Dim> i) {
    Index from(i.begin(), i.end());
    // NaNs come before nothing: a place they leave empty holds any index.
    from[*axis] = l.d.max(l.d.min(l.getIndex(places, i), l.d.sub(n, 1)), 0);
    return l.get(x, from);
  });
  l.out.push_back(places);
  return success();
}

LogicalResult oneHot(Lower &l) {
  const TensorValue &indices = l.in[0];
  auto axis = l.types.axis(indices.rank() + 1, -1);
  if (failed(axis)) return failure();
  Type i64 = l.b.getI64Type();
  auto integer = [&](Value x, Type from) { return Dim(Value(arith::IndexCastOp::create(l.b, l.loc, l.b.getIndexType(), l.convert(x, from, i64)))); };
  Dim depth = integer(l.scalar(l.in[1]), l.element(1));
  l.check(l.d.less(-1, depth), "a depth of 0 or more");
  if (!l.types.results[0].shape[*axis].known) l.types.results[0].shape[*axis] = depth;
  if (failed(bounded(l.types, l.shape()))) return failure();
  l.result([&](ArrayRef<Dim> i) {
    Index at(i.begin(), i.end());
    at.erase(at.begin() + *axis);
    Dim hot = l.d.wrap(integer(l.get(indices, at), indices.element), depth);
    Dim on = l.d.equal(hot, i[*axis]);
    return l.get(l.in[2], {on});
  });
  return success();
}

} // namespace

ArrayRef<LowerEntry> indexingLowerings() {
  static const LowerEntry table[] = {
      {"", "Gather", gather}, {"", "GatherElements", gatherElements}, {"", "GatherND", gatherND},
      {"", "ScatterElements", scatterElements}, {"", "Scatter", scatterElements}, {"", "ScatterND", scatterND}, {"", "TensorScatter", tensorScatter},
      {"", "NonZero", nonZero}, {"", "Compress", compress}, {"", "TopK", topK}, {"", "OneHot", oneHot},
  };
  return table;
}

} // namespace lathe::ops
