//===- TypeFunctions.cpp - result types, operator by operator -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/TypeTable.h"

namespace lathe::ops {
using namespace mlir;

std::string text(Dim n) { return n.known ? std::to_string(*n.known) : "a number of the run"; }

LogicalResult oneElement(TypeContext &c, unsigned i, const Twine &what) { return c.require(c.d.equal(c.d.product(c.shape(i)), 1), what + " of one element", c.describe(i)); }

LogicalResult distinctAxes(TypeContext &c, ArrayRef<Dim> axes, int64_t rank) {
  if (int64_t(axes.size()) > rank) return c.node.error("at most " + Twine(rank) + " axes", Twine(axes.size()));
  SmallVector<Dim> before;
  for (Dim a : axes) {
    if (failed(c.require(c.d.both(c.d.less(-rank - 1, a), c.d.less(a, rank)), "axes of " + Twine(-rank) + " .. " + Twine(rank - 1), text(a)))) return failure();
    Dim place = c.d.wrap(a, rank);
    for (Dim other : before)
      if (failed(c.require(c.d.negate(c.d.equal(other, place)), "axes that differ", text(a) + " twice"))) return failure();
    before.push_back(place);
  }
  return success();
}

LogicalResult oneOrExtent(TypeContext &c, unsigned i, ArrayRef<Dim> extents, const Twine &what) {
  std::string expected = what.str() + " that broadcasts to ";
  for (auto [k, n] : llvm::enumerate(extents))
    expected += (k ? "," : "[") + (n.known ? std::to_string(*n.known) : std::string("?"));
  expected += "]";
  if (c.rank(i) != int64_t(extents.size())) return c.node.error(expected, c.describe(i));
  for (auto [n, extent] : llvm::zip(c.shape(i), extents))
    if (failed(c.require(c.d.either(c.d.equal(n, 1), c.d.equal(n, extent)), expected, c.describe(i)))) return failure();
  return success();
}

LogicalResult bounded(TypeContext &c, ArrayRef<Dim> sizes) {
  constexpr int64_t most = int64_t(1) << 40;
  Dim all(1), fits(1);
  std::string found;
  for (bool known : {true, false}) // numbers first: they need no code
    for (Dim n : sizes) {
      if (n.known.has_value() != known) continue;
      found += (found.empty() ? "" : " times ") + text(n);
      Dim extent = c.d.max(n, 1);
      fits = c.d.both(fits, c.d.negate(c.d.less(c.d.floorDiv(most, all), extent)));
      all = c.d.mul(all, extent);
    }
  return c.require(fits, "a result of at most 2^40 elements", found);
}

LogicalResult broadcastsToFirst(TypeContext &c, unsigned i) {
  auto shape = c.broadcast({0u, i});
  if (failed(shape)) return failure();
  if (shape->size() != c.shape(0).size()) return c.node.error("input " + Twine(i) + " to broadcast to input 0", c.describe(i) + " and " + c.describe(0));
  return success();
}

namespace {

Type i64(TypeContext &c) { return IntegerType::get(c.node.loc.getContext(), 64); }
Type i1(TypeContext &c) { return IntegerType::get(c.node.loc.getContext(), 1); }

LogicalResult same(TypeContext &c) {
  c.result(c.element(0), c.shape(0));
  return success();
}
LogicalResult clip(TypeContext &c) {
  for (unsigned i : {1u, 2u})
    if (c.has(i) && failed(oneElement(c, i, "a bound"))) return failure();
  return same(c);
}
LogicalResult sameShapeBool(TypeContext &c) {
  c.result(i1(c), c.shape(0));
  return success();
}

LogicalResult broadcasting(TypeContext &c, Type element) {
  SmallVector<unsigned> all;
  for (unsigned i = 0; i < c.operands.size(); ++i)
    all.push_back(i);
  auto shape = c.broadcast(all);
  if (failed(shape)) return failure();
  c.result(element, *shape);
  return success();
}
LogicalResult elementwise(TypeContext &c) { return broadcasting(c, c.element(0)); }
LogicalResult comparison(TypeContext &c) { return broadcasting(c, i1(c)); }
LogicalResult where(TypeContext &c) { return broadcasting(c, c.element(1)); }

/// Input 1 must be broadcastable to input 0.
LogicalResult oneWay(TypeContext &c) {
  if (failed(broadcastsToFirst(c, 1))) return failure();
  return same(c);
}

LogicalResult cast(TypeContext &c) {
  Type to = elementType(c.node.loc.getContext(), c.node.integer("to", 0));
  if (!to) {
    c.unsupported = true;
    return c.node.error("attribute 'to' with a numeric element type of 4 bits or more", Twine(c.node.integer("to", 0)));
  }
  c.result(to, c.shape(0));
  return success();
}
LogicalResult castLike(TypeContext &c) {
  c.result(c.element(1), c.shape(0));
  return success();
}
LogicalResult bitCast(TypeContext &c) {
  Type to = elementType(c.node.loc.getContext(), c.node.integer("to", 0));
  auto width = [](Type t) { return isBool(t) ? 8 : t.getIntOrFloatBitWidth(); };
  if (!to || width(to) != width(c.element(0)))
    return c.node.error("attribute 'to' with an element type as wide as " + elementText(c.element(0)), Twine(c.node.integer("to", 0)));
  c.result(to, c.shape(0));
  return success();
}

LogicalResult reduce(TypeContext &c) {
  bool given;
  auto axes = c.list("axes", 1, &given);
  if (failed(axes)) return failure();
  int64_t rank = c.rank(0);
  bool keep = c.node.integer("keepdims", 1);
  if (failed(distinctAxes(c, *axes, rank))) return failure();
  if (axes->empty()) {
    if (c.node.integer("noop_with_empty_axes", 0)) return same(c);
    c.result(c.element(0), keep ? Dims(rank, Dim(1)) : Dims());
    return success();
  }
  Dims flags = axisFlags(c.d, *axes, rank), shape;
  if (keep) {
    for (auto [n, flag] : llvm::zip(c.shape(0), flags))
      shape.push_back(c.d.select(flag, 1, n));
  } else {
    shape = withoutFlagged(c.d, c.shape(0), flags, rank - int64_t(axes->size()));
  }
  c.result(c.element(0), shape);
  return success();
}

LogicalResult argReduce(TypeContext &c) {
  auto axis = c.axis(c.rank(0), 0);
  if (failed(axis)) return failure();
  Dims shape = c.shape(0);
  if (failed(c.require(c.d.less(0, shape[*axis]), "one element or more along axis " + Twine(*axis), c.describe(0)))) return failure();
  if (c.node.integer("keepdims", 1)) shape[*axis] = 1;
  else shape.erase(shape.begin() + *axis);
  c.result(i64(c), shape);
  return success();
}

LogicalResult alongAxis(TypeContext &c) { // Softmax and its kin
  if (failed(c.axis(c.rank(0), c.node.version < 13 ? 1 : -1))) return failure();
  return same(c);
}
LogicalResult cumulative(TypeContext &c) {
  auto axis = c.ints(1, "axis");
  if (failed(axis)) return failure();
  int64_t rank = c.rank(0);
  if (axis->size() != 1) return c.node.error("one axis", Twine(axis->size()));
  Dim a = (*axis)[0];
  if (failed(c.require(c.d.both(c.d.less(-rank - 1, a), c.d.less(a, rank)), "an axis of " + Twine(-rank) + " .. " + Twine(rank - 1), text(a))))
    return failure();
  return same(c);
}

LogicalResult matmulOf(TypeContext &c, unsigned ia, unsigned ib, Type element) {
  Dims a = c.shape(ia), b = c.shape(ib);
  if (a.empty() || b.empty()) return c.node.error("matrices or vectors", c.describe(ia) + " and " + c.describe(ib));
  bool vectorA = a.size() == 1, vectorB = b.size() == 1;
  if (vectorA) a.insert(a.begin(), Dim(1));
  if (vectorB) b.push_back(1);
  Dim k = a.back(), k2 = b[b.size() - 2];
  if (failed(c.require(c.d.equal(k, k2), "equal inner dimensions", c.describe(ia) + " and " + c.describe(ib)))) return failure();
  Dims rows{a[a.size() - 2]}, columns{b.back()};
  // Leading dimensions broadcast.
  int64_t most = std::max(a.size(), b.size()) - 2;
  Dims shape;
  for (int64_t i = 0; i < most; ++i) {
    int64_t ka = i - (most - int64_t(a.size()) + 2), kb = i - (most - int64_t(b.size()) + 2);
    Dim x = ka < 0 ? Dim(1) : a[ka], y = kb < 0 ? Dim(1) : b[kb];
    if (failed(c.require(c.d.either(c.d.equal(x, y), c.d.either(c.d.equal(x, 1), c.d.equal(y, 1))), "leading dimensions that broadcast", c.describe(ia) + " and " + c.describe(ib)))) return failure();
    shape.push_back(x.is(1) || (x.known && y.known) ? (x.is(1) ? y : x) : x.known ? x : y.known && !y.is(1) ? y : c.d.select(c.d.equal(x, 1), y, x));
  }
  if (!vectorA) shape.push_back(rows[0]);
  if (!vectorB) shape.push_back(columns[0]);
  c.result(element, shape);
  return success();
}
LogicalResult matmul(TypeContext &c) { return matmulOf(c, 0, 1, c.element(0)); }
LogicalResult matmulInteger(TypeContext &c) {
  if (failed(matmulOf(c, 0, 1, IntegerType::get(c.node.loc.getContext(), 32)))) return failure();
  // Zero points: one, one a row of A, one a column of B.
  for (unsigned i : {0u, 1u}) {
    if (!c.has(i + 2)) continue;
    Dim many = c.rank(i) < 2 ? Dim(1) : i ? c.shape(1).back() : c.shape(0)[c.rank(0) - 2];
    if (c.rank(i + 2) > 1) return c.node.error("zero points of rank 0 or 1", c.describe(i + 2));
    if (c.rank(i + 2) == 1 && failed(oneOrExtent(c, i + 2, many, i ? "a zero point for each column" : "a zero point for each row"))) return failure();
  }
  return success();
}

LogicalResult gemm(TypeContext &c) {
  if (c.rank(0) != 2 || c.rank(1) != 2) return c.node.error("two matrices", c.describe(0) + " and " + c.describe(1));
  bool ta = c.node.integer("transA", 0), tb = c.node.integer("transB", 0);
  Dim m = c.shape(0)[ta], k = c.shape(0)[!ta], k2 = c.shape(1)[tb], n = c.shape(1)[!tb];
  if (failed(c.require(c.d.equal(k, k2), "equal inner dimensions", c.describe(0) + " and " + c.describe(1)))) return failure();
  if (c.has(2)) {
    if (c.rank(2) > 2) return c.node.error("C to broadcast to the product", c.describe(2));
    Dim extents[] = {m, n};
    for (int64_t i = 0; i < c.rank(2); ++i) {
      Dim x = c.shape(2)[i], to = extents[2 - c.rank(2) + i];
      if (failed(c.require(c.d.either(c.d.equal(x, 1), c.d.equal(x, to)), "C to broadcast to the product", c.describe(2)))) return failure();
    }
  }
  c.result(c.element(0), {m, n});
  return success();
}

LogicalResult einsum(TypeContext &c) {
  auto spec = einsumSpec(c);
  if (failed(spec)) return failure();
  std::vector<std::optional<Dim>> extents(spec->indices);
  for (auto [i, term] : llvm::enumerate(spec->inputs))
    for (auto [k, index] : llvm::enumerate(term)) {
      Dim n = c.shape(i)[k];
      auto &to = extents[index];
      if (!to || to->is(1)) {
        to = n;
        continue;
      }
      if (n.is(1)) continue;
      if (failed(c.require(c.d.equal(*to, n), "equal dimensions for one letter", c.describe(0) + (i ? " and " + c.describe(i) : "")))) return failure();
      if (n.known) to = n;
    }
  Dims shape;
  for (int index : spec->output)
    shape.push_back(extents[index].value_or(Dim(1)));
  if (failed(bounded(c, shape))) return failure();
  c.result(c.element(0), shape);
  return success();
}

LogicalResult reshape(TypeContext &c) {
  auto wanted = c.list("shape", 1);
  if (failed(wanted)) return failure();
  const DimMath &d = c.d;
  bool zeros = c.node.integer("allowzero", 0);
  // -1 takes what is left. A dimension that a 0 copies is on both sides: it may be 0 itself.
  Dims shape, given(c.shape(0));
  Dim others(1), inferred(0);
  for (auto [i, n] : llvm::enumerate(*wanted)) {
    if (failed(c.require(d.less(-2, n), "dimensions of -1 and above", text(n)))) return failure();
    Dim rest = d.equal(n, -1), copies = zeros || int64_t(i) >= c.rank(0) ? Dim(0) : d.equal(n, 0);
    others = d.mul(others, d.select(d.either(rest, copies), 1, n));
    inferred = d.add(inferred, rest);
    if (copies.is(0)) {
      shape.push_back(n);
      continue;
    }
    shape.push_back(d.select(copies, c.shape(0)[i], n));
    given[i] = d.select(copies, 1, given[i]);
  }
  if (failed(c.require(d.less(inferred, 2), "at most one -1 in the shape", text(inferred)))) return failure();
  if (failed(c.require(d.either(d.less(inferred, 1), d.negate(d.equal(others, 0))), "no 0 beside -1 in the shape", "one"))) return failure();
  Dim all = d.product(c.shape(0)), left = d.floorDiv(d.product(given), others);
  for (Dim &n : shape)
    n = d.select(d.equal(n, -1), left, n);
  std::string found;
  for (Dim n : shape)
    found += (found.empty() ? "" : ",") + (n.known ? std::to_string(*n.known) : "?");
  if (failed(bounded(c, shape))) return failure();
  if (failed(c.require(d.equal(d.product(shape), all), "a shape of as many elements as " + c.describe(0), "[" + found + "]"))) return failure();
  c.result(c.element(0), shape);
  return success();
}
LogicalResult flatten(TypeContext &c) {
  auto axis = c.axis(c.rank(0), 1, "axis", true);
  if (failed(axis)) return failure();
  ArrayRef<Dim> shape = c.shape(0);
  c.result(c.element(0), {c.d.product(shape.take_front(*axis)), c.d.product(shape.drop_front(*axis))});
  return success();
}
LogicalResult squeeze(TypeContext &c) {
  bool given;
  auto axes = c.list("axes", 1, &given);
  if (failed(axes)) return failure();
  Dims flags, shape;
  int64_t left;
  if (given) {
    if (failed(distinctAxes(c, *axes, c.rank(0)))) return failure();
    flags = axisFlags(c.d, *axes, c.rank(0));
    left = c.rank(0) - int64_t(axes->size());
    for (auto [n, flag] : llvm::zip(c.shape(0), flags))
      if (failed(c.require(c.d.either(c.d.negate(flag), c.d.equal(n, 1)), "squeezed dimensions of 1", c.describe(0)))) return failure();
  } else {
    left = 0;
    for (Dim n : c.shape(0)) {
      if (!n.known) return c.node.error("axes, or dimensions that are known", c.describe(0));
      flags.push_back(n.is(1));
      left += !n.is(1);
    }
  }
  c.result(c.element(0), withoutFlagged(c.d, c.shape(0), flags, left));
  return success();
}
LogicalResult unsqueeze(TypeContext &c) {
  auto axes = c.list("axes", 1);
  if (failed(axes)) return failure();
  int64_t rank = c.rank(0) + int64_t(axes->size());
  if (rank > onnx::mostAxes) return c.node.error("a result of at most " + Twine(onnx::mostAxes) + " axes", Twine(rank));
  if (failed(distinctAxes(c, *axes, rank))) return failure();
  c.result(c.element(0), insertFlagged(c.d, c.shape(0), axisFlags(c.d, *axes, rank), 1));
  return success();
}
LogicalResult transpose(TypeContext &c) {
  int64_t rank = c.rank(0);
  auto perm = c.node.integers("perm");
  SmallVector<int64_t> p;
  for (int64_t k = 0; k < rank; ++k)
    p.push_back(perm ? (k < int64_t(perm->size()) ? (*perm)[k] : -1) : rank - 1 - k);
  SmallVector<int64_t> sorted(p);
  llvm::sort(sorted);
  for (int64_t k = 0; k < rank; ++k)
    if (sorted[k] != k || (perm && int64_t(perm->size()) != rank)) return c.node.error("attribute 'perm' as a permutation of " + Twine(rank) + " axes", c.describe(0));
  Dims shape;
  for (int64_t k : p)
    shape.push_back(c.shape(0)[k]);
  c.result(c.element(0), shape);
  return success();
}
LogicalResult expand(TypeContext &c) {
  auto wanted = c.ints(1, "shape");
  if (failed(wanted)) return failure();
  for (Dim n : *wanted)
    if (failed(c.require(c.d.less(-1, n), "dimensions of 0 and above", text(n)))) return failure();
  TypeContext::Operand kept = c.operands[1];
  c.operands[1] = {c.element(0), *wanted}; // broadcast with a tensor of that shape
  auto shape = c.broadcast({0u, 1u});
  c.operands[1] = kept;
  if (failed(shape) || failed(bounded(c, *shape))) return failure();
  c.result(c.element(0), *shape);
  return success();
}
LogicalResult tile(TypeContext &c) {
  auto repeats = c.ints(1, "repeats");
  if (failed(repeats)) return failure();
  if (int64_t(repeats->size()) != c.rank(0)) return c.node.error(Twine(c.rank(0)) + " repeats", Twine(repeats->size()));
  Dims shape, factors(c.shape(0));
  factors.append(repeats->begin(), repeats->end());
  for (auto [n, r] : llvm::zip(c.shape(0), *repeats)) {
    if (failed(c.require(c.d.less(-1, r), "repeats of 0 and above", text(r)))) return failure();
    shape.push_back(c.d.mul(n, r));
  }
  if (failed(bounded(c, factors))) return failure();
  c.result(c.element(0), shape);
  return success();
}
LogicalResult concat(TypeContext &c) {
  auto axis = c.axis(c.rank(0), 0);
  if (failed(axis)) return failure();
  Dims shape = c.shape(0);
  for (unsigned i = 1; i < c.operands.size(); ++i) {
    if (c.rank(i) != c.rank(0)) return c.node.error("inputs of one rank", c.describe(0) + " and " + c.describe(i));
    for (int64_t k = 0; k < c.rank(0); ++k) {
      Dim n = c.shape(i)[k];
      if (k == *axis) {
        shape[k] = c.d.add(shape[k], n);
        continue;
      }
      if (failed(c.require(c.d.equal(shape[k], n), "equal dimensions beside axis " + Twine(*axis), c.describe(0) + " and " + c.describe(i)))) return failure();
      if (n.known) shape[k] = n;
    }
  }
  c.result(c.element(0), shape);
  return success();
}
LogicalResult split(TypeContext &c) {
  auto axis = c.axis(c.rank(0), 0);
  if (failed(axis)) return failure();
  bool given;
  auto sizes = c.list("split", 1, &given);
  if (failed(sizes)) return failure();
  Dim extent = c.shape(0)[*axis], part = c.d.ceilDiv(extent, int64_t(c.wanted)), all(0);
  if (given && sizes->size() != c.wanted) return c.node.error(Twine(c.wanted) + " sizes, one for each output", Twine(sizes->size()));
  int64_t parts = c.node.integer("num_outputs", c.wanted);
  if (parts != int64_t(c.wanted)) return c.node.error(Twine(parts) + " outputs as 'num_outputs' says", Twine(c.wanted));
  if (!given && c.node.version < 18 && failed(c.require(c.d.equal(c.d.mul(part, int64_t(c.wanted)), extent), "an extent that " + Twine(c.wanted) + " divides", c.describe(0)))) return failure();
  for (unsigned i = 0; i < c.wanted; ++i) {
    Dims shape = c.shape(0);
    shape[*axis] = given ? (*sizes)[i] : c.d.max(c.d.min(part, c.d.sub(extent, all)), 0);
    if (given && failed(c.require(c.d.both(c.d.less(-1, shape[*axis]), c.d.less(shape[*axis], c.d.add(extent, 1))), "sizes of 0 .. the extent of axis " + Twine(*axis), text(shape[*axis])))) return failure();
    all = c.d.add(all, shape[*axis]);
    c.result(c.element(0), shape);
  }
  return c.require(c.d.equal(all, extent), "sizes that add up to the extent of axis " + Twine(*axis), c.describe(0));
}
LogicalResult slice(TypeContext &c) {
  auto spec = sliceSpec(c);
  if (failed(spec)) return failure();
  c.result(c.element(0), spec->size);
  return success();
}
LogicalResult gather(TypeContext &c) {
  auto axis = c.axis(c.rank(0), 0);
  if (failed(axis)) return failure();
  Dims shape(c.shape(0).begin(), c.shape(0).begin() + *axis);
  shape.append(c.shape(1).begin(), c.shape(1).end());
  shape.append(c.shape(0).begin() + *axis + 1, c.shape(0).end());
  c.result(c.element(0), shape);
  return success();
}
LogicalResult gatherElements(TypeContext &c) {
  auto axis = c.axis(c.rank(0), 0);
  if (failed(axis)) return failure();
  if (c.rank(1) != c.rank(0)) return c.node.error("indices of the data's rank", c.describe(1));
  for (int64_t k = 0; k < c.rank(0); ++k)
    if (k != *axis && failed(c.require(c.d.less(c.shape(1)[k], c.d.add(c.shape(0)[k], 1)), "indices no larger than the data beside the axis", c.describe(1)))) return failure();
  c.result(c.element(0), c.shape(1));
  return success();
}
LogicalResult gatherND(TypeContext &c) {
  int64_t batch = c.node.integer("batch_dims", 0);
  int64_t q = c.rank(1), r = c.rank(0);
  if (q < 1 || !c.shape(1).back().known) return c.node.error("indices with a known last dimension", c.describe(1));
  int64_t tuple = *c.shape(1).back().known;
  if (batch < 0 || batch >= std::min(q, r) || tuple < 1 || batch + tuple > r) return c.node.error("index tuples and 'batch_dims' within the data's rank", c.describe(1) + " and " + Twine(batch));
  for (int64_t k = 0; k < batch; ++k)
    if (failed(c.require(c.d.equal(c.shape(1)[k], c.shape(0)[k]), "equal batch dimensions", c.describe(0) + " and " + c.describe(1)))) return failure();
  Dims shape(c.shape(1).begin(), c.shape(1).end() - 1);
  shape.append(c.shape(0).begin() + batch + tuple, c.shape(0).end());
  c.result(c.element(0), shape);
  return success();
}
LogicalResult scatterElements(TypeContext &c) {
  if (failed(c.axis(c.rank(0), 0))) return failure();
  if (c.rank(1) != c.rank(0) || c.rank(2) != c.rank(0)) return c.node.error("indices and updates of the data's rank", c.describe(1) + " and " + c.describe(2));
  for (int64_t k = 0; k < c.rank(0); ++k)
    if (failed(c.require(c.d.equal(c.shape(1)[k], c.shape(2)[k]), "updates of the indices' shape", c.describe(2)))) return failure();
  return same(c);
}
LogicalResult scatterND(TypeContext &c) {
  int64_t q = c.rank(1), r = c.rank(0);
  if (q < 1 || !c.shape(1).back().known) return c.node.error("indices with a known last dimension", c.describe(1));
  int64_t tuple = *c.shape(1).back().known;
  if (tuple < 1 || tuple > r || c.rank(2) != q - 1 + r - tuple) return c.node.error("updates of shape indices[:-1] + data[" + Twine(tuple) + ":]", c.describe(2));
  for (int64_t k = 0; k < c.rank(2); ++k) {
    Dim n = k < q - 1 ? c.shape(1)[k] : c.shape(0)[k - (q - 1) + tuple];
    if (failed(c.require(c.d.equal(c.shape(2)[k], n), "updates of shape indices[:-1] + data[" + Twine(tuple) + ":]", c.describe(2)))) return failure();
  }
  return same(c);
}
LogicalResult tensorScatter(TypeContext &c) {
  auto axis = c.axis(c.rank(0), -2);
  if (failed(axis)) return failure();
  if (*axis == 0) return c.node.error("an axis that is not the batch", "0");
  if (c.rank(1) != c.rank(0)) return c.node.error("an update of the cache's rank", c.describe(1));
  for (int64_t k = 0; k < c.rank(0); ++k) {
    Dim fits = k == *axis ? c.d.less(c.shape(1)[k], c.d.add(c.shape(0)[k], 1)) : c.d.equal(c.shape(1)[k], c.shape(0)[k]);
    if (failed(c.require(fits, "an update that fits into " + c.describe(0), c.describe(1)))) return failure();
  }
  if (c.has(2) && c.rank(2) != 1) return c.node.error("write indices of rank 1", c.describe(2));
  if (c.has(2) && failed(c.require(c.d.equal(c.shape(2)[0], c.shape(0)[0]), "one write index a batch entry", c.describe(2)))) return failure();
  return same(c);
}
LogicalResult pad(TypeContext &c) {
  auto spec = padSpec(c);
  if (failed(spec)) return failure();
  StringRef mode = c.node.string("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap") return c.node.error("mode constant, reflect, edge or wrap", "'" + mode.str() + "'");
  Dims shape;
  if (c.has(2) && failed(oneElement(c, 2, "a value to pad with"))) return failure();
  if (c.has(2) && c.element(2) != c.element(0)) return c.node.error("a value to pad with of type " + elementText(c.element(0)), c.describe(2));
  for (auto [n, before, after] : llvm::zip(c.shape(0), spec->before, spec->after)) {
    shape.push_back(c.d.max(c.d.add(n, c.d.add(before, after)), 0));
    if (mode != "constant" && failed(c.require(c.d.either(c.d.less(0, n), c.d.equal(shape.back(), 0)), "elements to repeat", c.describe(0)))) return failure();
  }
  if (failed(bounded(c, shape))) return failure();
  c.result(c.element(0), shape);
  return success();
}
LogicalResult range(TypeContext &c) {
  for (unsigned i = 0; i < 3; ++i) {
    if (c.rank(i) > 1) return c.node.error("scalars", c.describe(i));
    if (failed(oneElement(c, i, "scalars"))) return failure();
  }
  Dim n;
  if (isInt(c.element(0))) {
    auto start = c.ints(0, "start"), limit = c.ints(1, "limit"), delta = c.ints(2, "delta");
    if (failed(start) || failed(limit) || failed(delta)) return failure();
    if (start->size() != 1 || limit->size() != 1 || delta->size() != 1) return c.node.error("scalars", c.describe(0));
    if (failed(c.require(c.d.negate(c.d.equal((*delta)[0], 0)), "a delta that is not 0", "0"))) return failure();
    n = c.d.max(c.d.ceilDiv(c.d.sub((*limit)[0], (*start)[0]), (*delta)[0]), 0);
    if (failed(bounded(c, n))) return failure();
  } // a float range has a length that the lowering computes
  c.result(c.element(0), {n});
  return success();
}
LogicalResult shapeOf(TypeContext &c) {
  int64_t rank = c.rank(0);
  c.result(i64(c), {Dim(onnx::shapeRange(c.node.integer("start", 0), c.node.integer("end", rank), rank).count)});
  return success();
}
LogicalResult sizeOf(TypeContext &c) {
  c.result(i64(c), {});
  return success();
}
LogicalResult constantOfShape(TypeContext &c) {
  auto shape = c.ints(0, "shape");
  if (failed(shape)) return failure();
  for (Dim n : *shape)
    if (failed(c.require(c.d.less(-1, n), "dimensions of 0 and above", text(n)))) return failure();
  if (failed(bounded(c, *shape))) return failure();
  Type element = Float32Type::get(c.node.loc.getContext());
  if (auto value = dyn_cast_if_present<ElementsAttr>(c.node.attributes.get("value"))) element = value.getElementType();
  c.result(element, *shape);
  return success();
}
LogicalResult trilu(TypeContext &c) {
  if (c.rank(0) < 2) return c.node.error("a tensor of rank 2 or more", c.describe(0));
  if (c.has(1) && failed(oneElement(c, 1, "k"))) return failure();
  return same(c);
}
LogicalResult eyeLike(TypeContext &c) {
  if (c.rank(0) != 2) return c.node.error("a matrix", c.describe(0));
  Type element = c.node.has("dtype") ? elementType(c.node.loc.getContext(), c.node.integer("dtype", 0)) : c.element(0);
  if (!element) return c.node.error("attribute 'dtype' with a numeric element type", Twine(c.node.integer("dtype", 0)));
  c.result(element, c.shape(0));
  return success();
}
LogicalResult nonZero(TypeContext &c) {
  c.result(i64(c), {Dim(c.rank(0)), Dim()});
  return success();
}
LogicalResult compress(TypeContext &c) {
  Dims shape = c.shape(0);
  if (c.node.has("axis")) {
    auto axis = c.axis(c.rank(0), 0);
    if (failed(axis)) return failure();
    shape[*axis] = Dim();
  } else {
    shape = {Dim()};
  }
  if (c.rank(1) != 1) return c.node.error("a condition of rank 1", c.describe(1));
  c.result(c.element(0), shape);
  return success();
}
LogicalResult topK(TypeContext &c) {
  auto axis = c.axis(c.rank(0), -1);
  if (failed(axis)) return failure();
  auto k = c.ints(1, "k");
  if (failed(k)) return failure();
  if (k->size() != 1) return c.node.error("one k", Twine(k->size()));
  if (failed(c.require(c.d.both(c.d.less(-1, (*k)[0]), c.d.less((*k)[0], c.d.add(c.shape(0)[*axis], 1))), "a k of 0 .. the extent of the axis", text((*k)[0]) + " for " + c.describe(0)))) return failure();
  Dims shape = c.shape(0);
  shape[*axis] = (*k)[0];
  c.result(c.element(0), shape);
  c.result(i64(c), shape);
  return success();
}
LogicalResult oneHot(TypeContext &c) {
  if (c.rank(2) != 1) return c.node.error("values [off, on]", c.describe(2));
  if (failed(c.require(c.d.equal(c.shape(2)[0], 2), "values [off, on]", c.describe(2))) || failed(oneElement(c, 1, "a depth"))) return failure();
  auto axis = c.axis(c.rank(0) + 1, -1);
  if (failed(axis)) return failure();
  Dim depth;
  if (isInt(c.element(1))) {
    auto list = c.ints(1, "depth");
    if (failed(list)) return failure();
    if (list->size() == 1) depth = (*list)[0];
  }
  Dims shape = c.shape(0);
  shape.insert(shape.begin() + *axis, depth);
  if (failed(bounded(c, shape))) return failure();
  c.result(c.element(2), shape);
  return success();
}
LogicalResult depthToSpace(TypeContext &c) {
  int64_t block = c.node.integer("blocksize", 0);
  if (c.rank(0) != 4 || block < 1) return c.node.error("a tensor of rank 4 and a blocksize of 1 or more", c.describe(0) + " and " + Twine(block));
  Dims s = c.shape(0);
  if (failed(c.require(c.d.equal(c.d.mul(c.d.floorDiv(s[1], block * block), block * block), s[1]), "channels that blocksize * blocksize divides", c.describe(0)))) return failure();
  c.result(c.element(0), {s[0], c.d.floorDiv(s[1], block * block), c.d.mul(s[2], block), c.d.mul(s[3], block)});
  return success();
}
LogicalResult spaceToDepth(TypeContext &c) {
  int64_t block = c.node.integer("blocksize", 0);
  if (c.rank(0) != 4 || block < 1) return c.node.error("a tensor of rank 4 and a blocksize of 1 or more", c.describe(0) + " and " + Twine(block));
  Dims s = c.shape(0);
  for (int k : {2, 3})
    if (failed(c.require(c.d.equal(c.d.mul(c.d.floorDiv(s[k], block), block), s[k]), "extents that blocksize divides", c.describe(0)))) return failure();
  c.result(c.element(0), {s[0], c.d.mul(s[1], block * block), c.d.floorDiv(s[2], block), c.d.floorDiv(s[3], block)});
  return success();
}
LogicalResult reverseSequence(TypeContext &c) {
  if (c.rank(0) < 2 || c.rank(1) != 1) return c.node.error("data of rank 2 or more and lengths of rank 1", c.describe(0) + " and " + c.describe(1));
  int64_t batch = c.node.integer("batch_axis", 1), time = c.node.integer("time_axis", 0);
  if (batch + time != 1 || batch * time != 0) return c.node.error("batch and time as axes 0 and 1", Twine(batch) + " and " + Twine(time));
  if (failed(c.require(c.d.equal(c.shape(1)[0], c.shape(0)[batch]), "one length a batch entry", c.describe(1)))) return failure();
  return same(c);
}

} // namespace

const std::vector<TypeEntry> &coreOperators() {
  static const std::vector<TypeEntry> table = [] {
    std::vector<TypeEntry> t;
    auto add = [&](std::initializer_list<const char *> ops, int least, int most, const char *kinds, TypeFn fn) {
      for (const char *op : ops)
        t.push_back({"", op, least, most, kinds, fn});
    };
    add({"Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Sigmoid", "LeakyRelu",
         "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Mish", "Softplus", "Softsign", "ThresholdedRelu", "Gelu", "Swish",
         "Sqrt", "Reciprocal", "Ceil", "Floor", "Round", "LpNormalization", "MeanVarianceNormalization"},
        1, 1, "f", same);
    add({"Abs", "Neg", "Sign", "Relu", "Shrink", "Erf"}, 1, 1, "n", same);
    add({"Identity"}, 1, 1, "a", same);
    add({"Not"}, 1, 1, "b", same);
    add({"BitwiseNot"}, 1, 1, "i", same);
    add({"IsNaN", "IsInf"}, 1, 1, "f", sameShapeBool);
    add({"Add", "Sub", "Mul", "Div", "Mod"}, 2, 2, "n-", elementwise);
    add({"Pow"}, 2, 2, "nn", elementwise);
    add({"And", "Or", "Xor"}, 2, 2, "b-", elementwise);
    add({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"}, 2, 2, "i-", elementwise);
    add({"Equal"}, 2, 2, "a-", comparison);
    add({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"}, 2, 2, "n-", comparison);
    add({"PRelu"}, 2, 2, "n-", oneWay);
    add({"Max", "Min"}, 1, -1, "n-", elementwise);
    add({"Sum", "Mean"}, 1, -1, "f-", elementwise);
    add({"Where"}, 3, 3, "ba-", where);
    add({"Clip"}, 1, 3, "n--", clip);
    add({"Cast"}, 1, 1, "a", cast);
    add({"BitCast"}, 1, 1, "a", bitCast);
    add({"CastLike"}, 2, 2, "aa", castLike);
    add({"ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"}, 1, 2, "ni", reduce);
    add({"ReduceMax", "ReduceMin"}, 1, 2, "ai", reduce);
    add({"ArgMax", "ArgMin"}, 1, 1, "n", argReduce);
    add({"Softmax", "LogSoftmax", "Hardmax"}, 1, 1, "f", alongAxis);
    add({"CumSum", "CumProd"}, 2, 2, "ni", cumulative);
    add({"MatMul"}, 2, 2, "n-", matmul);
    add({"MatMulInteger"}, 2, 4, "iiii", matmulInteger);
    add({"Gemm"}, 2, 3, "n--", gemm);
    add({"Einsum"}, 1, -1, "n-", einsum);
    add({"Reshape"}, 1, 2, "ai", reshape);
    add({"Flatten"}, 1, 1, "a", flatten);
    add({"Squeeze"}, 1, 2, "ai", squeeze);
    add({"Unsqueeze"}, 1, 2, "ai", unsqueeze);
    add({"Transpose"}, 1, 1, "a", transpose);
    add({"Expand"}, 2, 2, "ai", expand);
    add({"Tile"}, 2, 2, "ai", tile);
    add({"Concat"}, 1, -1, "a-", concat);
    add({"Split"}, 1, 2, "ai", split);
    add({"Slice"}, 1, 5, "aiiii", slice);
    add({"Gather"}, 2, 2, "ai", gather);
    add({"GatherElements"}, 2, 2, "ai", gatherElements);
    add({"GatherND"}, 2, 2, "ai", gatherND);
    add({"ScatterElements", "Scatter"}, 3, 3, "aia", scatterElements);
    add({"ScatterND"}, 3, 3, "aia", scatterND);
    add({"TensorScatter"}, 2, 3, "a-i", tensorScatter);
    add({"Pad"}, 1, 4, "aiai", pad);
    add({"Range"}, 3, 3, "n--", range);
    add({"Shape"}, 1, 1, "a", shapeOf);
    add({"Size"}, 1, 1, "a", sizeOf);
    add({"ConstantOfShape"}, 1, 1, "i", constantOfShape);
    add({"Trilu"}, 1, 2, "ai", trilu);
    add({"EyeLike"}, 1, 1, "a", eyeLike);
    add({"NonZero"}, 1, 1, "a", nonZero);
    add({"Compress"}, 2, 2, "ab", compress);
    add({"TopK"}, 2, 2, "ni", topK);
    add({"OneHot"}, 3, 3, "nna", oneHot);
    add({"DepthToSpace"}, 1, 1, "a", depthToSpace);
    add({"SpaceToDepth"}, 1, 1, "a", spaceToDepth);
    add({"ReverseSequence"}, 2, 2, "ai", reverseSequence);
    return t;
  }();
  return table;
}

} // namespace lathe::ops
