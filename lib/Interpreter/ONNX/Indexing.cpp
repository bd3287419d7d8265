//===- Indexing.cpp - gather, scatter and data-dependent sizes --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::interp {
namespace {

/// Index |i| within |n|; |status| tells when it is not.
int64_t within(Evaluation &e, int64_t i, int64_t n, Status &status) {
  if (i >= -n && i < n) return i < 0 ? i + n : i;
  if (status.ok()) status = e.bad("indices within the extent of the axis", std::to_string(i) + " of " + std::to_string(n));
  return -1;
}

Status gather(Evaluation &e) {
  const Array &x = e.a(0), &indices = e.a(1);
  int64_t axis = e.node.integer("axis", 0), place = 0;
  if (axis < 0) axis += x.rank();
  Status status;
  forEach(e.out[0].shape, [&](const Sizes &i) {
    Sizes from(i.begin(), i.begin() + axis), at(i.begin() + axis, i.begin() + axis + indices.rank());
    int64_t chosen = within(e, indices.i[size_t(placeOf(indices.shape, at))], x.shape[size_t(axis)], status);
    if (chosen < 0) return;
    from.push_back(chosen);
    from.insert(from.end(), i.begin() + axis + indices.rank(), i.end());
    e.out[0].copy(place++, x, placeOf(x.shape, from));
  });
  return status;
}
Status gatherElements(Evaluation &e) {
  const Array &x = e.a(0), &indices = e.a(1);
  int64_t axis = e.node.integer("axis", 0), place = 0;
  if (axis < 0) axis += x.rank();
  Status status;
  forEach(indices.shape, [&](const Sizes &i) {
    Sizes from(i);
    from[size_t(axis)] = within(e, indices.i[size_t(place)], x.shape[size_t(axis)], status);
    if (from[size_t(axis)] >= 0) e.out[0].copy(place, x, placeOf(x.shape, from));
    ++place;
  });
  return status;
}
Status gatherND(Evaluation &e) {
  const Array &x = e.a(0), &indices = e.a(1);
  int64_t batch = e.node.integer("batch_dims", 0), q = indices.rank(), tuple = indices.shape.back(), place = 0;
  for (int64_t k = 0; k < batch; ++k)
    if (indices.shape[size_t(k)] != x.shape[size_t(k)]) return e.bad("equal batch dimensions", e.types.describe(1));
  Status status;
  forEach(e.out[0].shape, [&](const Sizes &i) {
    Sizes from(i.begin(), i.begin() + batch), at(i.begin(), i.begin() + q - 1);
    at.push_back(0);
    for (int64_t k = 0; k < tuple; ++k) {
      at.back() = k;
      from.push_back(within(e, indices.i[size_t(placeOf(indices.shape, at))], x.shape[size_t(batch + k)], status));
      if (from.back() < 0) return;
    }
    from.insert(from.end(), i.begin() + q - 1, i.end());
    e.out[0].copy(place++, x, placeOf(x.shape, from));
  });
  return status;
}

void combine(Array &out, int64_t to, const Array &updates, int64_t from, llvm::StringRef how) {
  if (how == "none") return out.copy(to, updates, from);
  if (out.floating()) {
    double x = out.f[size_t(to)], y = updates.f[size_t(from)];
    out.put(to, how == "add" ? x + y : how == "mul" ? x * y : how == "max" ? std::max(x, y) : std::min(x, y));
  } else {
    int64_t x = out.i[size_t(to)], y = updates.i[size_t(from)];
    bool less = out.isUnsigned() ? uint64_t(x) < uint64_t(y) : x < y;
    out.putInt(to, how == "add" ? plus(x, y) : how == "mul" ? times(x, y) : (how == "max") == less ? y : x);
  }
}
Status checkReduction(Evaluation &e) {
  llvm::StringRef how = e.node.string("reduction", "none");
  if (how == "none" || how == "add" || how == "mul" || how == "max" || how == "min") return Status();
  return e.bad("reduction none, add, mul, max or min on numbers", "'" + how.str() + "'");
}
Status scatterElements(Evaluation &e) {
  LATHE_RETURN_IF_ERROR(checkReduction(e));
  const Array &x = e.a(0), &indices = e.a(1);
  int64_t axis = e.node.integer("axis", 0), place = 0;
  if (axis < 0) axis += x.rank();
  for (int64_t k = 0; k < x.rank(); ++k)
    if (k != axis && indices.shape[size_t(k)] > x.shape[size_t(k)]) return e.bad("indices no larger than the data beside the axis", e.types.describe(1));
  e.out[0] = x;
  Status status;
  forEach(indices.shape, [&](const Sizes &i) {
    Sizes to(i);
    to[size_t(axis)] = within(e, indices.i[size_t(place)], x.shape[size_t(axis)], status);
    if (to[size_t(axis)] >= 0) combine(e.out[0], placeOf(x.shape, to), e.a(2), place, e.node.string("reduction", "none"));
    ++place;
  });
  return status;
}
Status scatterND(Evaluation &e) {
  LATHE_RETURN_IF_ERROR(checkReduction(e));
  const Array &x = e.a(0), &indices = e.a(1);
  int64_t q = indices.rank(), tuple = indices.shape.back(), place = 0;
  e.out[0] = x;
  Status status;
  forEach(e.a(2).shape, [&](const Sizes &i) {
    Sizes to, at(i.begin(), i.begin() + q - 1);
    at.push_back(0);
    for (int64_t k = 0; k < tuple; ++k) {
      at.back() = k;
      to.push_back(within(e, indices.i[size_t(placeOf(indices.shape, at))], x.shape[size_t(k)], status));
      if (to.back() < 0) return;
    }
    to.insert(to.end(), i.begin() + q - 1, i.end());
    combine(e.out[0], placeOf(x.shape, to), e.a(2), place++, e.node.string("reduction", "none"));
  });
  return status;
}
Status tensorScatter(Evaluation &e) {
  const Array &x = e.a(0), &update = e.a(1);
  llvm::StringRef mode = e.node.string("mode", "linear");
  if (mode != "linear" && mode != "circular") return e.bad("mode linear or circular", "'" + mode.str() + "'");
  int64_t axis = e.node.integer("axis", -2), place = 0;
  if (axis < 0) axis += x.rank();
  e.out[0] = x;
  Status status;
  forEach(update.shape, [&](const Sizes &i) {
    Sizes to(i);
    int64_t n = x.shape[size_t(axis)], at = plus(i[size_t(axis)], e.has(2) ? e.a(2).i[size_t(i[0])] : 0);
    if (mode == "circular" && n) at = (at % n + n) % n;
    if (at < 0 || at >= n) {
      if (status.ok()) status = e.bad("an update within the cache", std::to_string(at) + " of " + std::to_string(n));
    } else {
      to[size_t(axis)] = at;
      e.out[0].copy(placeOf(x.shape, to), update, place);
    }
    ++place;
  });
  return status;
}
Status nonZero(Evaluation &e) {
  const Array &x = e.a(0);
  std::vector<Sizes> hits;
  int64_t place = 0;
  forEach(x.shape, [&](const Sizes &i) {
    if (x.number(place++) != 0) hits.push_back(i);
  });
  auto n = int64_t(hits.size());
  e.out[0] = makeArray(onnx::DataType::int64, {x.rank(), n});
  for (int64_t k = 0; k < n; ++k)
    for (int64_t d = 0; d < x.rank(); ++d)
      e.out[0].i[size_t(d * n + k)] = hits[size_t(k)][size_t(d)];
  return Status();
}
Status compress(Evaluation &e) {
  Array x = e.a(0);
  int64_t axis = e.node.integer("axis", 0);
  if (!e.node.has("axis")) x.shape = {x.count()};
  if (axis < 0) axis += x.rank();
  std::vector<int64_t> kept;
  for (int64_t k = 0; k < std::min(x.shape[size_t(axis)], e.a(1).count()); ++k)
    if (e.a(1).i[size_t(k)]) kept.push_back(k);
  Sizes shape = x.shape;
  shape[size_t(axis)] = int64_t(kept.size());
  e.out[0] = makeArray(x.type, shape);
  int64_t place = 0;
  forEach(shape, [&](const Sizes &i) {
    Sizes from(i);
    from[size_t(axis)] = kept[size_t(i[size_t(axis)])];
    e.out[0].copy(place++, x, placeOf(x.shape, from));
  });
  return Status();
}
Status topK(Evaluation &e) {
  const Array &x = e.a(0);
  int64_t axis = e.node.integer("axis", -1);
  if (axis < 0) axis += x.rank();
  bool largest = e.node.integer("largest", 1);
  Sizes lines = x.shape;
  lines[size_t(axis)] = 1;
  forEach(lines, [&](const Sizes &start) {
    std::vector<int64_t> order(size_t(x.shape[size_t(axis)]));
    std::iota(order.begin(), order.end(), 0);
    auto at = [&](int64_t k) {
      Sizes i(start);
      i[size_t(axis)] = k;
      return placeOf(x.shape, i);
    };
    llvm::stable_sort(order, [&](int64_t p, int64_t q) {
      if (x.floating()) return largest ? x.f[size_t(at(p))] > x.f[size_t(at(q))] : x.f[size_t(at(p))] < x.f[size_t(at(q))];
      int64_t a = x.i[size_t(at(p))], b = x.i[size_t(at(q))];
      if (x.isUnsigned()) return largest ? uint64_t(a) > uint64_t(b) : uint64_t(a) < uint64_t(b);
      return largest ? a > b : a < b;
    });
    for (int64_t k = 0; k < e.out[0].shape[size_t(axis)]; ++k) {
      Sizes to(start);
      to[size_t(axis)] = k;
      int64_t place = placeOf(e.out[0].shape, to);
      e.out[0].copy(place, x, at(order[size_t(k)]));
      e.out[1].i[size_t(place)] = order[size_t(k)];
    }
  });
  return Status();
}
Status oneHot(Evaluation &e) {
  const Array &indices = e.a(0);
  int64_t axis = e.node.integer("axis", -1), rank = indices.rank() + 1;
  if (axis < 0) axis += rank;
  double asked = e.a(1).number(0);
  if (!(asked >= 0 && asked <= double(1 << 28))) return e.bad("a depth of 0 to 2^28", std::to_string(asked));
  auto depth = int64_t(asked);
  if (depth && indices.count() > e.most / depth) return e.bad("a result of at most " + std::to_string(e.most) + " elements", "more");
  Sizes shape = indices.shape;
  shape.insert(shape.begin() + axis, depth);
  e.out[0] = makeArray(e.out[0].type, shape);
  int64_t place = 0;
  forEach(shape, [&](const Sizes &i) {
    Sizes at(i);
    at.erase(at.begin() + axis);
    int64_t hot = truncated(indices.number(placeOf(indices.shape, at)));
    if (hot < 0) hot += depth;
    e.out[0].copy(place++, e.a(2), i[size_t(axis)] == hot);
  });
  return Status();
}

} // namespace

llvm::ArrayRef<EvalEntry> indexingEvaluations() {
  static const EvalEntry table[] = {
      {"", "Gather", gather}, {"", "GatherElements", gatherElements}, {"", "GatherND", gatherND}, {"", "ScatterElements", scatterElements},
      {"", "Scatter", scatterElements}, {"", "ScatterND", scatterND}, {"", "TensorScatter", tensorScatter}, {"", "NonZero", nonZero},
      {"", "Compress", compress}, {"", "TopK", topK}, {"", "OneHot", oneHot}};
  return table;
}

} // namespace lathe::interp
