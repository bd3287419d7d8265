//===- EvaluateIndexing.cpp - gathers, ranges, masks -----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Known.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {

static Status misfit(const char *what) { return Status(StatusCode::invalidArgument, what); }
static std::vector<Known> one(Known value) {
  std::vector<Known> out;
  out.push_back(std::move(value));
  return out;
}
static void copyElement(const Known &from, int64_t source, Known &to, int64_t target) {
  if (from.isFloat()) to.f[target] = from.f[source];
  else to.i[target] = from.i[source];
}

static Result<std::vector<Known>> gather(NodeOp op, const Known &x, const Known &index) {
  auto axis = axisOf(op.getInt("axis", 0), static_cast<int64_t>(x.shape.size()));
  if (failed(axis)) return misfit("the axis is out of range");
  ArrayRef<int64_t> before = ArrayRef(x.shape).take_front(*axis), after = ArrayRef(x.shape).drop_front(*axis + 1);
  Shape shape(before);
  shape.append(index.shape.begin(), index.shape.end());
  shape.append(after.begin(), after.end());
  if (elementsOf(shape) > maxKnownElements) return misfit("too many elements");
  Known out = Known::make(x.type, shape);
  int64_t inner = elementsOf(after), size = x.shape[*axis], to = 0;
  for (int64_t o = 0; o < elementsOf(before); ++o)
    for (int64_t at : index.i) {
      if (at < 0) at += size;
      if (at < 0 || at >= size) return misfit("an index is out of range");
      for (int64_t k = 0; k < inner; ++k)
        copyElement(x, (o * size + at) * inner + k, out, to++);
    }
  return one(std::move(out));
}

/// Flat position of the tuple at |tuple| of |depth| indices into |shape|, in elements; -1 out of range.
static int64_t position(ArrayRef<int64_t> shape, const int64_t *tuple, int64_t depth) {
  int64_t at = 0;
  for (int64_t d = 0; d < depth; ++d) {
    int64_t index = tuple[d] < 0 ? tuple[d] + shape[d] : tuple[d];
    if (index < 0 || index >= shape[d]) return -1;
    at = at * shape[d] + index;
  }
  return at * elementsOf(shape.drop_front(depth));
}

static Result<std::vector<Known>> gatherND(NodeOp op, const Known &x, const Known &index) {
  if (op.getInt("batch_dims", 0) || index.shape.empty()) return misfit("batch dimensions are not supported");
  int64_t depth = index.shape.back();
  if (depth < 1 || depth > static_cast<int64_t>(x.shape.size())) return misfit("indices do not fit");
  Shape shape(ArrayRef(index.shape).drop_back());
  auto rest = ArrayRef(x.shape).drop_front(depth);
  shape.append(rest.begin(), rest.end());
  Known out = Known::make(x.type, shape);
  int64_t inner = elementsOf(rest), count = index.elements() / depth;
  for (int64_t n = 0; n < count; ++n) {
    int64_t at = position(x.shape, index.i.data() + n * depth, depth);
    if (at < 0) return misfit("an index is out of range");
    for (int64_t k = 0; k < inner; ++k)
      copyElement(x, at + k, out, n * inner + k);
  }
  return one(std::move(out));
}

static Result<std::vector<Known>> scatterND(NodeOp op, const Known &x, const Known &index, const Known &updates) {
  if (op.getString("reduction", "none") != "none" || index.shape.empty()) return misfit("reductions are not supported");
  int64_t depth = index.shape.back();
  if (depth < 1 || depth > static_cast<int64_t>(x.shape.size())) return misfit("indices do not fit");
  int64_t inner = elementsOf(ArrayRef(x.shape).drop_front(depth)), count = index.elements() / depth;
  if (updates.elements() != count * inner || updates.isFloat() != x.isFloat()) return misfit("updates do not fit");
  Known out = x;
  out.angles = nullptr;
  for (int64_t n = 0; n < count; ++n) {
    int64_t at = position(x.shape, index.i.data() + n * depth, depth);
    if (at < 0) return misfit("an index is out of range");
    for (int64_t k = 0; k < inner; ++k)
      copyElement(updates, n * inner + k, out, at + k);
  }
  return one(std::move(out));
}

static Result<std::vector<Known>> where(const Known &condition, const Known &a, const Known &b) {
  auto shape = broadcast(a.shape, b.shape);
  if (succeeded(shape)) shape = broadcast(condition.shape, *shape);
  if (failed(shape) || a.isFloat() != b.isFloat()) return misfit("shapes do not fit");
  if (elementsOf(*shape) > maxKnownElements) return misfit("too many elements");
  Known out = Known::make(a.type, *shape);
  Shape c = broadcastStrides(condition.shape, *shape), s = broadcastStrides(a.shape, *shape), t = broadcastStrides(b.shape, *shape);
  forEachIndex(*shape, {c, s, t}, [&](int64_t flat, ArrayRef<int64_t> at) {
    if (condition.number(at[0])) copyElement(a, at[1], out, flat);
    else copyElement(b, at[2], out, flat);
  });
  return one(std::move(out));
}

static Result<std::vector<Known>> trilu(NodeOp op, const Known &x, const Known *k) {
  if (x.shape.size() < 2) return misfit("expected a matrix");
  int64_t rows = x.shape[x.shape.size() - 2], columns = x.shape.back(), diagonal = k ? k->i[0] : 0;
  bool upper = op.getInt("upper", 1);
  Known out = x;
  out.angles = nullptr;
  for (int64_t n = 0, e = x.elements(); n < e; ++n) {
    int64_t column = n % columns, row = n / columns % rows;
    if (upper ? column - row < diagonal : column - row > diagonal) out.set(n, 0);
  }
  return one(std::move(out));
}

Result<std::vector<Known>> evaluateIndexing(NodeOp op, Inputs inputs) {
  StringRef name = op.getOpType();
  if (name == "Gather") return gather(op, *inputs[0], *inputs[1]);
  if (name == "GatherND") return gatherND(op, *inputs[0], *inputs[1]);
  if (name == "ScatterND") return scatterND(op, *inputs[0], *inputs[1], *inputs[2]);
  if (name == "Where") return where(*inputs[0], *inputs[1], *inputs[2]);
  if (name == "Trilu") return trilu(op, *inputs[0], inputs.size() > 1 ? inputs[1] : nullptr);
  if (name == "Range") {
    for (const Known *in : inputs)
      if (in->elements() != 1) return misfit("expected scalars");
    double start = inputs[0]->number(0), limit = inputs[1]->number(0), step = inputs[2]->number(0);
    double count = step ? std::max(0.0, std::ceil((limit - start) / step)) : -1;
    if (!(count >= 0 && count <= maxKnownElements)) return misfit("start, limit and delta do not fit");
    Known out = Known::make(inputs[0]->type, {static_cast<int64_t>(count)});
    for (int64_t k = 0; k < static_cast<int64_t>(count); ++k)
      out.set(k, start + static_cast<double>(k) * step);
    return one(std::move(out));
  }
  if (name == "ConstantOfShape") {
    Shape shape(inputs[0]->i.begin(), inputs[0]->i.end());
    for (int64_t size : shape)
      if (size < 0 || size > maxKnownElements) return misfit("the shape does not fit");
    if (elementsOf(shape) > maxKnownElements) return misfit("too many elements");
    auto value = dyn_cast_or_null<ElementsAttr>(op.getNodeAttr("value"));
    Known element = value ? fromElements(value) : Known::make(DataType::float32, {1});
    Known out = Known::make(element.type, shape);
    if (element.elements() == 1)
      for (int64_t k = 0, n = out.elements(); k < n; ++k)
        copyElement(element, 0, out, k);
    return one(std::move(out));
  }
  if (name == "CumSum") {
    const Known &x = *inputs[0];
    auto axis = axisOf(inputs[1]->i.empty() ? 0 : inputs[1]->i[0], static_cast<int64_t>(x.shape.size()));
    if (failed(axis) || op.getInt("exclusive", 0) || op.getInt("reverse", 0)) return misfit("only a plain sum along an axis is supported");
    Known out = x;
    out.angles = nullptr;
    int64_t inner = elementsOf(ArrayRef(x.shape).drop_front(*axis + 1)), size = x.shape[*axis];
    for (int64_t k = 0, n = x.elements(); k < n; ++k)
      if (k / inner % size) out.set(k, out.number(k - inner) + out.number(k));
    return one(std::move(out));
  }
  return Status(StatusCode::notFound, "");
}

} // namespace lathe::raise
