//===- Product.cpp - products of matrices -------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"

namespace lathe::ops {
using namespace mlir;
namespace {

/// |t| with the leading dimensions |batch|: as it is where that is known, otherwise a broadcast copy.
TensorValue withBatch(Lower &l, const TensorValue &t, ArrayRef<Dim> batch) {
  Dims shape(batch.begin(), batch.end());
  shape.append(t.shape.end() - 2, t.shape.end());
  bool same = t.shape.size() == shape.size();
  for (size_t k = 0; same && k < shape.size(); ++k)
    same = t.shape[k].known ? shape[k].is(*t.shape[k].known) : t.shape[k].value == shape[k].value;
  return same ? t : l.broadcast(t, shape);
}

LogicalResult product(Lower &l, TensorValue a, TensorValue b, Type element) {
  bool vectorA = a.rank() == 1, vectorB = b.rank() == 1;
  if (vectorA) a = l.reshape(a, {Dim(1), a.shape[0]});
  if (vectorB) b = l.reshape(b, {b.shape[0], Dim(1)});
  Dims batch(l.shape());
  batch.pop_back_n(!vectorA + !vectorB);
  // One matrix for all: the leading dimensions of the other are more rows of it.
  bool rows = b.rank() == 2 && !vectorA;
  TensorValue product;
  if (rows) {
    Dim all = l.d.product(ArrayRef<Dim>(a.shape).drop_back());
    product = l.matmul(l.reshape(a, {all, a.shape.back()}), b, element);
  } else {
    product = l.matmul(withBatch(l, a, batch), withBatch(l, b, batch), element);
  }
  l.out.push_back(l.cast(l.reshape(product, l.shape()), l.resultElement()));
  return success();
}

LogicalResult matmul(Lower &l) { return product(l, l.in[0], l.in[1], l.element(0)); }

LogicalResult matmulInteger(Lower &l) {
  // Zero points: one, or one a row of A and one a column of B.
  Type i32 = l.b.getI32Type();
  Scalars s = l.scalars(i32);
  auto shifted = [&](const TensorValue &t, unsigned zero, bool row) {
    return l.generate(i32, t.shape, [&](ArrayRef<Dim> i) {
      Value v = l.convert(l.get(t, i), t.element, i32);
      if (!l.has(zero)) return v;
      const TensorValue &z = l.in[zero];
      Index at(z.rank(), Dim(0));
      if (z.rank() == 1) at[0] = z.shape[0].is(1) ? Dim(0) : l.d.select(l.d.equal(z.shape[0], 1), 0, !row ? i.back() : t.rank() < 2 ? Dim(0) : i[t.rank() - 2]);
      return s.sub(v, l.convert(l.get(z, at), z.element, i32));
    });
  };
  return product(l, shifted(l.in[0], 2, true), shifted(l.in[1], 3, false), i32);
}

LogicalResult gemm(Lower &l) {
  TensorValue a = l.in[0];
  if (l.node.integer("transA", 0)) a = l.generate(a.element, {a.shape[1], a.shape[0]}, [&](ArrayRef<Dim> i) { return l.get(l.in[0], {i[1], i[0]}); });
  TensorValue p = l.matmul(a, l.in[1], l.element(0), l.node.integer("transB", 0));
  Scalars s = l.scalars(l.element(0));
  double alpha = l.node.real("alpha", 1), beta = l.node.real("beta", 1);
  // Scaling integers is done in double.
  Type scaled = isFloat(l.element(0)) ? l.element(0) : Type(l.b.getF64Type());
  Scalars f = l.scalars(scaled);
  auto times = [&](Value x, double factor) {
    return factor == 1 ? x : l.convert(f.mul(l.convert(x, l.element(0), scaled), f.constant(factor)), scaled, l.element(0));
  };
  l.result([&](ArrayRef<Dim> i) {
    Value x = times(l.get(p, i), alpha);
    return l.has(2) && beta != 0 ? s.add(x, times(l.getBroadcast(l.in[2], i), beta)) : x;
  });
  return success();
}

LogicalResult einsum(Lower &l) {
  auto spec = einsumSpec(l.types);
  if (failed(spec)) return failure();
  Scalars s = l.scalars(l.element(0));
  Dims extents(spec->indices, Dim(1));
  for (auto [k, term] : llvm::enumerate(spec->inputs))
    for (auto [place, index] : llvm::enumerate(term)) {
      Dim n = l.in[k].shape[place];
      if (extents[index].is(1)) extents[index] = n;
      else if (!n.is(1) && n.known) extents[index] = n;
    }
  SmallVector<int> summed;
  for (int index = 0; index < spec->indices; ++index)
    if (!llvm::is_contained(spec->output, index)) summed.push_back(index);
  Dims to;
  for (int index : summed)
    to.push_back(extents[index]);
  l.result([&](ArrayRef<Dim> out) {
    Index all(spec->indices, Dim(0));
    for (auto [k, index] : llvm::enumerate(spec->output))
      all[index] = out[k];
    return l.foldAll(Index(to.size(), Dim(0)), to, s.constant(0), [&](ArrayRef<Dim> sum, Value so) {
      for (auto [k, index] : llvm::enumerate(summed))
        all[index] = sum[k];
      Value p;
      for (auto [k, term] : llvm::enumerate(spec->inputs)) {
        Index at;
        for (auto [place, index] : llvm::enumerate(term))
          at.push_back(l.in[k].shape[place].is(1) ? Dim(0) : all[index]);
        Value v = l.get(l.in[k], at);
        p = p ? s.mul(p, v) : v;
      }
      return s.add(so, p);
    });
  });
  return success();
}

} // namespace

ArrayRef<LowerEntry> productLowerings() {
  static const LowerEntry table[] = {{"", "MatMul", matmul}, {"", "MatMulInteger", matmulInteger}, {"", "Gemm", gemm}, {"", "Einsum", einsum}};
  return table;
}

} // namespace lathe::ops
