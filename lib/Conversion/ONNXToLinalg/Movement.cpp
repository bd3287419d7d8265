//===- Movement.cpp - operators that move elements or make shapes -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lathe::ops {
using namespace mlir;
namespace {

LogicalResult reshape(Lower &l) {
  l.out.push_back(l.reshape(l.in[0], l.shape()));
  return success();
}

LogicalResult transpose(Lower &l) {
  const TensorValue &x = l.in[0];
  auto perm = l.node.integers("perm");
  l.result([&](ArrayRef<Dim> i) {
    Index from(x.rank());
    for (int64_t k = 0; k < x.rank(); ++k)
      from[perm ? (*perm)[k] : x.rank() - 1 - k] = i[k];
    return l.get(x, from);
  });
  return success();
}
LogicalResult expand(Lower &l) {
  l.out.push_back(l.broadcast(l.in[0], l.shape()));
  return success();
}
Dim remainder(Lower &l, Dim x, Dim n) { return l.d.sub(x, l.d.mul(l.d.floorDiv(x, n), n)); }

LogicalResult tile(Lower &l) {
  const TensorValue &x = l.in[0];
  l.result([&](ArrayRef<Dim> i) {
    Index from;
    for (auto [k, n] : llvm::enumerate(x.shape))
      from.push_back(n.is(1) ? Dim(0) : remainder(l, i[k], n));
    return l.get(x, from);
  });
  return success();
}

/// Writes every input into its place: one pass over the data.
LogicalResult concat(Lower &l) {
  auto axis = l.types.axis(l.in[0].rank(), 0);
  if (failed(axis)) return failure();
  Value all = l.empty(l.resultElement(), l.shape()).value;
  Dim at(0);
  for (const TensorValue &x : l.in) {
    if (x.shape[*axis].is(0)) continue; // nothing to insert, at a place that may be the end
    SmallVector<OpFoldResult> offsets, sizes, strides;
    auto fold = [&](Dim n) -> OpFoldResult { return n.known ? OpFoldResult(l.b.getIndexAttr(*n.known)) : OpFoldResult(n.value); };
    for (int64_t k = 0; k < x.rank(); ++k) {
      offsets.push_back(fold(k == *axis ? at : Dim(0)));
      sizes.push_back(fold(x.shape[k]));
      strides.push_back(l.b.getIndexAttr(1));
    }
    all = tensor::InsertSliceOp::create(l.b, l.loc, x.value, all, offsets, sizes, strides);
    at = l.d.add(at, x.shape[*axis]);
  }
  l.out.push_back({all, l.resultElement(), l.shape()});
  return success();
}
LogicalResult split(Lower &l) {
  const TensorValue &x = l.in[0];
  auto axis = l.types.axis(x.rank(), 0);
  if (failed(axis)) return failure();
  Dim at(0);
  for (unsigned k = 0; k < l.types.wanted; ++k) {
    l.result([&](ArrayRef<Dim> i) {
      Index from(i.begin(), i.end());
      from[*axis] = l.d.add(i[*axis], at);
      return l.get(x, from);
    });
    at = l.d.add(at, l.shape(k)[*axis]);
  }
  return success();
}
LogicalResult slice(Lower &l) {
  const TensorValue &x = l.in[0];
  auto spec = sliceSpec(l.types);
  if (failed(spec)) return failure();
  l.result([&](ArrayRef<Dim> i) {
    Index from;
    for (int64_t k = 0; k < x.rank(); ++k)
      from.push_back(l.d.add(spec->start[k], l.d.mul(i[k], spec->step[k])));
    return l.get(x, from);
  });
  return success();
}
LogicalResult pad(Lower &l) {
  const TensorValue &x = l.in[0];
  auto spec = padSpec(l.types);
  if (failed(spec)) return failure();
  StringRef mode = l.node.string("mode", "constant");
  Scalars s = l.scalars(x.element);
  l.result([&](ArrayRef<Dim> i) {
    Index from;
    Dim inside(1);
    for (int64_t k = 0; k < x.rank(); ++k) {
      Dim at = l.d.sub(i[k], spec->before[k]), n = x.shape[k], last = l.d.sub(n, 1);
      Dim ok = l.d.both(l.d.less(-1, at), l.d.less(at, n));
      if (mode == "constant") {
        inside = l.d.both(inside, ok);
        from.push_back(l.d.select(ok, at, 0));
      } else if (mode == "edge") {
        from.push_back(l.d.max(l.d.min(at, last), 0));
      } else if (mode == "wrap") {
        from.push_back(remainder(l, at, n));
      } else { // reflect, the edge not repeated: a period of 2 (n - 1)
        Dim period = l.d.max(l.d.mul(last, 2), 1);
        Dim r = remainder(l, at, period);
        from.push_back(l.d.min(r, l.d.sub(period, r)));
      }
    }
    if (mode != "constant") return l.get(x, from);
    Value fill = l.has(2) ? l.scalar(l.in[2]) : isBool(x.element) ? l.bit(0) : s.constant(l.node.real("value", 0));
    if (inside.is(1)) return l.get(x, from);
    return l.choose(l.bit(inside), [&] { return l.get(x, from); }, [&] { return fill; });
  });
  return success();
}

LogicalResult range(Lower &l) {
  Type element = l.element(0);
  Scalars s = l.scalars(element);
  Value start = l.scalar(l.in[0]), limit = l.scalar(l.in[1]), delta = l.scalar(l.in[2]);
  if (isFloat(element)) {
    Type wide = l.b.getF64Type();
    Scalars f = l.scalars(wide);
    Value distance = s.sub(limit, start);
    Value n = math::CeilOp::create(l.b, l.loc, f.div(l.convert(distance, element, wide), l.convert(delta, element, wide)));
    n = arith::MaximumFOp::create(l.b, l.loc, n, f.constant(0));
    // A length that no memory holds (or NaN) is an error, not a wrapped number.
    l.check(l.dim(f.less(n, f.constant(1e15))), "a range of finite length");
    Value count = l.convert(n, wide, l.b.getI64Type());
    l.types.results[0].shape[0] = Dim(Value(arith::IndexCastOp::create(l.b, l.loc, l.b.getIndexType(), count)));
  }
  l.result([&](ArrayRef<Dim> i) {
    Value n = arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), l.d.value(i[0]));
    return s.add(start, s.mul(l.convert(n, l.b.getI64Type(), element), delta));
  });
  return success();
}
LogicalResult shapeOf(Lower &l) {
  const TensorValue &x = l.in[0];
  auto [start, end, step, n] = onnx::shapeRange(l.node.integer("start", 0), l.node.integer("end", x.rank()), x.rank());
  if (n == 0) {
    l.out.push_back(l.empty(l.resultElement(), l.shape()));
    return success();
  }
  SmallVector<Value> numbers;
  for (int64_t k = 0; k < n; ++k)
    numbers.push_back(arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), l.d.value(x.shape[start + k])));
  l.out.push_back({tensor::FromElementsOp::create(l.b, l.loc, l.tensorType(l.resultElement(), l.shape()), numbers), l.resultElement(), l.shape()});
  return success();
}
LogicalResult sizeOf(Lower &l) {
  Value n = l.d.value(l.d.product(l.in[0].shape));
  l.result([&](ArrayRef<Dim>) -> Value { return arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), n); });
  return success();
}
LogicalResult constantOfShape(Lower &l) {
  Scalars s = l.scalars(l.resultElement());
  double number = 0;
  if (auto value = dyn_cast_if_present<DenseElementsAttr>(l.node.attributes.get("value"))) {
    if (value.getNumElements() != 1) return l.node.error("attribute 'value' of one element", Twine(value.getNumElements()));
    if (isFloat(value.getElementType())) {
      APFloat x = *value.getValues<APFloat>().begin();
      bool lossy;
      x.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
      number = x.convertToDouble();
    } else {
      APInt x = *value.getValues<APInt>().begin();
      Value c = arith::ConstantOp::create(l.b, l.loc, l.b.getIntegerAttr(s.compute, x.zextOrTrunc(s.compute.getIntOrFloatBitWidth())));
      l.result([&](ArrayRef<Dim>) { return c; });
      return success();
    }
  }
  l.result([&](ArrayRef<Dim>) { return s.constant(number); });
  return success();
}
LogicalResult trilu(Lower &l) {
  const TensorValue &x = l.in[0];
  bool upper = l.node.integer("upper", 1);
  Scalars s = l.scalars(x.element);
  Dim k(0);
  if (l.has(1)) {
    auto list = l.types.ints(1, "k");
    if (failed(list)) return failure();
    if (list->size() != 1) return l.node.error("one k", Twine(list->size()));
    k = (*list)[0];
  }
  l.result([&](ArrayRef<Dim> i) {
    Dim row = i[i.size() - 2], column = i.back();
    Dim diagonal = l.d.add(row, k);
    Dim kept = upper ? l.d.negate(l.d.less(column, diagonal)) : l.d.negate(l.d.less(diagonal, column));
    Value zero = isBool(x.element) ? l.bit(0) : s.constant(0);
    return s.select(l.bit(kept), l.get(x, i), zero);
  });
  return success();
}
LogicalResult eyeLike(Lower &l) {
  Scalars s = l.scalars(l.resultElement());
  int64_t k = l.node.integer("k", 0);
  l.result([&](ArrayRef<Dim> i) {
    Value on = l.bit(l.d.equal(l.d.add(i[0], k), i[1]));
    return isBool(l.resultElement()) ? on : s.select(on, s.constant(1), s.constant(0));
  });
  return success();
}
LogicalResult depthToSpace(Lower &l) {
  const TensorValue &x = l.in[0];
  int64_t block = l.node.integer("blocksize", 1);
  bool crd = l.node.string("mode", "DCR") == "CRD", to = l.node.op == "DepthToSpace";
  l.result([&](ArrayRef<Dim> i) {
    if (to) {
      Dim channels = l.shape()[1];
      Dim y = l.d.floorDiv(i[2], block), u = remainder(l, i[2], block), z = l.d.floorDiv(i[3], block), v = remainder(l, i[3], block);
      Dim place = l.d.add(l.d.mul(u, block), v);
      Dim channel = crd ? l.d.add(l.d.mul(i[1], block * block), place) : l.d.add(l.d.mul(place, channels), i[1]);
      return l.get(x, {i[0], channel, y, z});
    }
    Dim channels = x.shape[1];
    Dim place = l.d.floorDiv(i[1], channels), channel = remainder(l, i[1], channels);
    if (crd) {
      place = remainder(l, i[1], block * block);
      channel = l.d.floorDiv(i[1], block * block);
    }
    Dim u = l.d.floorDiv(place, block), v = remainder(l, place, block);
    return l.get(x, {i[0], channel, l.d.add(l.d.mul(i[2], block), u), l.d.add(l.d.mul(i[3], block), v)});
  });
  return success();
}
LogicalResult reverseSequence(Lower &l) {
  const TensorValue &x = l.in[0];
  int64_t batch = l.node.integer("batch_axis", 1), time = l.node.integer("time_axis", 0);
  l.result([&](ArrayRef<Dim> i) {
    Dim n = l.getIndex(l.in[1], {i[batch]});
    Index from(i.begin(), i.end());
    Dim back = l.d.sub(l.d.sub(n, 1), i[time]);
    from[time] = l.d.select(l.d.both(l.d.less(i[time], n), l.d.less(n, l.d.add(x.shape[time], 1))), back, i[time]);
    return l.get(x, from);
  });
  return success();
}

} // namespace

ArrayRef<LowerEntry> movementLowerings() {
  static const LowerEntry table[] = {
      {"", "Reshape", reshape}, {"", "Flatten", reshape}, {"", "Squeeze", reshape}, {"", "Unsqueeze", reshape},
      {"", "Transpose", transpose}, {"", "Expand", expand}, {"", "Tile", tile}, {"", "Concat", concat}, {"", "Split", split},
      {"", "Slice", slice}, {"", "Pad", pad}, {"", "Range", range}, {"", "Shape", shapeOf}, {"", "Size", sizeOf},
      {"", "ConstantOfShape", constantOfShape}, {"", "Trilu", trilu}, {"", "EyeLike", eyeLike},
      {"", "DepthToSpace", depthToSpace}, {"", "SpaceToDepth", depthToSpace}, {"", "ReverseSequence", reverseSequence},
  };
  return table;
}

} // namespace lathe::ops
