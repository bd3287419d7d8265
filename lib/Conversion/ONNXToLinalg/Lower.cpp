//===- Lower.cpp - building blocks of the general lowering --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lathe::ops {
using namespace mlir;

TensorValue Lower::generate(Type element, const Dims &shape, const ElementFn &fn) const {
  RankedTensorType type = tensorType(element, shape);
  SmallVector<Value> extents;
  for (auto [n, s] : llvm::zip(shape, type.getShape()))
    if (ShapedType::isDynamic(s)) extents.push_back(d.value(n));
  auto op = tensor::GenerateOp::create(b, loc, type, extents, [&](OpBuilder &, Location, ValueRange) {});
  OpBuilder::InsertionGuard guard(b);
  Block *body = &op.getRegion().front();
  b.setInsertionPointToEnd(body);
  Index index;
  for (Value i : body->getArguments())
    index.push_back(Dim(i));
  Value x = fn(index);
  tensor::YieldOp::create(b, loc, narrow(x, element));
  return {op.getResult(), element, shape};
}

RankedTensorType Lower::tensorType(Type element, const Dims &shape) const {
  SmallVector<int64_t> extents;
  for (Dim n : shape)
    extents.push_back(n.known ? *n.known : ShapedType::kDynamic);
  return RankedTensorType::get(extents, storageType(element));
}

SmallVector<Value> Lower::values(ArrayRef<Dim> list) const {
  SmallVector<Value> all;
  for (Dim x : list)
    all.push_back(d.value(x));
  return all;
}

Dims Lower::dims(Value tensor) const {
  Dims shape;
  for (auto [k, n] : llvm::enumerate(cast<RankedTensorType>(tensor.getType()).getShape()))
    shape.push_back(ShapedType::isDynamic(n) ? Dim(Value(tensor::DimOp::create(b, loc, tensor, int64_t(k)))) : Dim(n));
  return shape;
}

Value Lower::get(const TensorValue &t, ArrayRef<Dim> index) const {
  return widen(tensor::ExtractOp::create(b, loc, t.value, values(index)), t.element);
}

Value Lower::getBroadcast(const TensorValue &t, ArrayRef<Dim> index) const {
  Index own;
  size_t skip = index.size() - t.shape.size();
  for (auto [k, n] : llvm::enumerate(t.shape))
    own.push_back(n.is(1) ? Dim(0) : n.known ? index[skip + k] : d.select(d.equal(n, 1), 0, index[skip + k]));
  return get(t, own);
}

Dim Lower::getIndex(const TensorValue &t, ArrayRef<Dim> index) const {
  Value x = tensor::ExtractOp::create(b, loc, t.value, values(index));
  if (isUnsigned(t.element)) return Dim(Value(arith::IndexCastUIOp::create(b, loc, b.getIndexType(), x)));
  return Dim(Value(arith::IndexCastOp::create(b, loc, b.getIndexType(), x)));
}

Value Lower::bit(Dim condition) const {
  if (condition.known) return arith::ConstantIntOp::create(b, loc, *condition.known != 0, 1);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, condition.value, d.value(0));
}
Dim Lower::dim(Value i1) const { return Dim(Value(arith::IndexCastUIOp::create(b, loc, b.getIndexType(), i1))); }

SmallVector<Value> Lower::loop(Dim from, Dim to, ValueRange init, const ReduceFn &fn) const {
  auto op = scf::ForOp::create(b, loc, d.value(from), d.value(to), d.value(1), init, [&](OpBuilder &inner, Location where, Value i, ValueRange sums) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(inner.getInsertionBlock());
    SmallVector<Value> next = fn(Dim(i), sums);
    scf::YieldOp::create(b, loc, next);
  });
  return SmallVector<Value>(op.getResults());
}

Value Lower::fold(Dim from, Dim to, Value init, const std::function<Value(Dim, Value)> &fn) const {
  return loop(from, to, init, [&](Dim i, ValueRange sums) { return SmallVector<Value>{fn(i, sums[0])}; })[0];
}

Value Lower::foldAll(ArrayRef<Dim> from, ArrayRef<Dim> to, Value init, const std::function<Value(ArrayRef<Dim>, Value)> &fn) const {
  Index index;
  std::function<Value(size_t, Value)> nest = [&](size_t k, Value sum) -> Value {
    if (k == from.size()) return fn(index, sum);
    return fold(from[k], to[k], sum, [&](Dim i, Value s) {
      index.push_back(i);
      Value next = nest(k + 1, s);
      index.pop_back();
      return next;
    });
  };
  return nest(0, init);
}

Value Lower::choose(Value condition, const std::function<Value()> &yes, const std::function<Value()> &no) const {
  OpBuilder::InsertionGuard guard(b);
  // The type is known only when one branch is built.
  auto branch = [&](const std::function<Value()> &fn) {
    return [&, fn](OpBuilder &inner, Location) {
      OpBuilder::InsertionGuard innerGuard(b);
      b.setInsertionPointToEnd(inner.getInsertionBlock());
      Value x = fn();
      scf::YieldOp::create(b, loc, x);
    };
  };
  auto op = scf::IfOp::create(b, loc, condition, branch(yes), branch(no));
  return op.getResult(0);
}

TensorValue Lower::empty(Type element, const Dims &shape) const {
  RankedTensorType type = tensorType(element, shape);
  SmallVector<Value> extents;
  for (Dim n : shape)
    if (!n.known) extents.push_back(n.value);
  return {tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType(), extents), element, shape};
}
Value Lower::insert(Value tensor, Value stored, ArrayRef<Dim> index) const { return tensor::InsertOp::create(b, loc, stored, tensor, values(index)); }

TensorValue Lower::reshape(const TensorValue &t, const Dims &shape) const {
  RankedTensorType to = tensorType(t.element, shape);
  if (to == t.value.getType() && to.hasStaticShape()) return {t.value, t.element, shape};
  Value extents;
  if (shape.empty()) {
    // Rank 0 needs no extents; an empty list of them cannot be made from elements.
    extents = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{0}, b.getIndexType());
  } else {
    extents = tensor::FromElementsOp::create(b, loc, RankedTensorType::get({int64_t(shape.size())}, b.getIndexType()), values(shape));
  }
  return {tensor::ReshapeOp::create(b, loc, to, t.value, extents), t.element, shape};
}

TensorValue Lower::broadcast(const TensorValue &t, const Dims &shape) const {
  return generate(t.element, shape, [&](ArrayRef<Dim> index) { return getBroadcast(t, index); });
}
TensorValue Lower::cast(const TensorValue &t, Type element) const {
  if (t.element == element) return t;
  return generate(element, t.shape, [&](ArrayRef<Dim> index) { return convert(get(t, index), t.element, element); });
}

TensorValue Lower::matmul(const TensorValue &x, const TensorValue &y, Type element, bool transposed) const {
  int64_t batch = x.rank() - 2;
  Dims shape(x.shape.begin(), x.shape.end() - 1);
  shape.push_back(transposed ? y.shape[batch] : y.shape[batch + 1]);
  // The sum is kept in float for narrower floats: a type of its own in memory.
  Type sum = isFloat(element) && !element.isF64() ? Type(b.getF32Type()) : element;
  Scalars s = scalars(sum);
  TensorValue out = empty(sum, shape);
  Value zero = narrow(s.constant(0), sum);
  Value filled = linalg::FillOp::create(b, loc, zero, out.value).getResult(0);
  // Loops: batch.., m, k, n: the innermost walks rows of y and of the result (or of x and y, transposed: m, n, k).
  MLIRContext *c = b.getContext();
  SmallVector<AffineExpr> xs, ys, zs;
  for (int64_t k = 0; k < batch; ++k) {
    AffineExpr e = getAffineDimExpr(k, c);
    xs.push_back(e);
    ys.push_back(e);
    zs.push_back(e);
  }
  AffineExpr m = getAffineDimExpr(batch, c), k = getAffineDimExpr(batch + (transposed ? 2 : 1), c), n = getAffineDimExpr(batch + (transposed ? 1 : 2), c);
  xs.append({m, k});
  if (transposed) ys.append({n, k});
  else ys.append({k, n});
  zs.append({m, n});
  SmallVector<AffineMap> maps;
  for (auto *list : {&xs, &ys, &zs})
    maps.push_back(AffineMap::get(batch + 3, 0, *list, c));
  SmallVector<utils::IteratorType> kinds(batch + 3, utils::IteratorType::parallel);
  kinds[batch + (transposed ? 2 : 1)] = utils::IteratorType::reduction;
  auto op = linalg::GenericOp::create(b, loc, filled.getType(), ValueRange{x.value, y.value}, ValueRange{filled}, maps, kinds, [&](OpBuilder &inner, Location, ValueRange args) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(inner.getInsertionBlock());
    Value p = convert(widen(args[0], x.element), x.element, sum), q = convert(widen(args[1], y.element), y.element, sum);
    Value total = s.add(widen(args[2], sum), s.mul(p, q));
    linalg::YieldOp::create(b, loc, narrow(total, sum));
  });
  return {op.getResult(0), sum, shape};
}

TensorValue Lower::softmaxLast(const TensorValue &x, bool guard) const {
  Scalars s = scalars(x.element);
  Dims rows(x.shape.begin(), x.shape.end() - 1);
  Dim n = x.shape.back();
  auto at = [](ArrayRef<Dim> row, Dim i) {
    Index index(row.begin(), row.end());
    index.push_back(i);
    return index;
  };
  TensorValue most = generate(x.element, rows, [&](ArrayRef<Dim> row) {
    Value m = fold(0, n, s.lowest(), [&](Dim i, Value best) { return s.max(best, get(x, at(row, i))); });
    // exp(-inf - -inf) would be NaN
    return guard ? s.select(s.equal(m, s.lowest()), s.constant(0), m) : m;
  });
  TensorValue powers = generate(x.element, x.shape, [&](ArrayRef<Dim> index) { return s.exp(s.sub(get(x, index), get(most, index.drop_back()))); });
  TensorValue sums = generate(x.element, rows, [&](ArrayRef<Dim> row) {
    Value sum = fold(0, n, s.constant(0), [&](Dim i, Value so) { return s.add(so, get(powers, at(row, i))); });
    return guard ? s.select(s.equal(sum, s.constant(0)), s.constant(1), sum) : sum;
  });
  return generate(x.element, x.shape, [&](ArrayRef<Dim> index) { return s.div(get(powers, index), get(sums, index.drop_back())); });
}

LowerFn lowerFunction(StringRef domain, StringRef op) {
  if (domain == "ai.onnx") domain = "";
  for (auto table : {elementwiseLowerings(), reductionLowerings(), movementLowerings(), indexingLowerings(), productLowerings(), networkLowerings(),
                     attentionLowerings(), quantizationLowerings()})
    for (const LowerEntry &e : table)
      if (domain == e.domain && op == e.op) return e.fn;
  return nullptr;
}

} // namespace lathe::ops
