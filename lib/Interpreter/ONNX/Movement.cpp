//===- Movement.cpp - operators that move elements or make shapes ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <cmath>

namespace lathe::interp {
namespace {

int64_t wrapped(int64_t x, int64_t n) { return x < 0 ? x + n : x; }
/// Result element |index| comes from source(index).
void pull(Array &out, const Array &from, const std::function<int64_t(const Sizes &)> &source) {
  int64_t place = 0;
  forEach(out.shape, [&](const Sizes &index) { out.copy(place++, from, source(index)); });
}

Status reshape(Evaluation &e) {
  e.out[0].f = e.a(0).f;
  e.out[0].i = e.a(0).i;
  return Status();
}
Status transpose(Evaluation &e) {
  auto perm = e.node.integers("perm");
  int64_t rank = e.a(0).rank();
  pull(e.out[0], e.a(0), [&](const Sizes &index) {
    Sizes from(index.size());
    for (int64_t k = 0; k < rank; ++k)
      from[size_t(perm ? (*perm)[size_t(k)] : rank - 1 - k)] = index[size_t(k)];
    return placeOf(e.a(0).shape, from);
  });
  return Status();
}
Status expand(Evaluation &e) {
  pull(e.out[0], e.a(0), [&](const Sizes &index) { return broadcastPlace(e.a(0).shape, index); });
  return Status();
}
Status tile(Evaluation &e) {
  pull(e.out[0], e.a(0), [&](const Sizes &index) {
    Sizes from(index);
    for (size_t k = 0; k < from.size(); ++k)
      from[k] %= e.a(0).shape[k];
    return placeOf(e.a(0).shape, from);
  });
  return Status();
}
Status concat(Evaluation &e) {
  auto axis = size_t(wrapped(e.node.integer("axis", 0), e.a(0).rank()));
  int64_t place = 0;
  LATHE_RETURN_IF_ERROR(e.work(double(e.out[0].count()) * double(e.in.size())));
  forEach(e.out[0].shape, [&](const Sizes &index) {
    Sizes from(index);
    size_t k = 0;
    while (from[axis] >= e.a(k).shape[axis])
      from[axis] -= e.a(k++).shape[axis];
    e.out[0].copy(place++, e.a(k), placeOf(e.a(k).shape, from));
  });
  return Status();
}
Status split(Evaluation &e) {
  auto axis = size_t(wrapped(e.node.integer("axis", 0), e.a(0).rank()));
  int64_t start = 0;
  for (Array &out : e.out) {
    pull(out, e.a(0), [&](const Sizes &index) {
      Sizes from(index);
      from[axis] += start;
      return placeOf(e.a(0).shape, from);
    });
    start += out.shape[axis];
  }
  return Status();
}
Status slice(Evaluation &e) {
  const Array &x = e.a(0);
  auto list = [&](const char *name, size_t k) -> std::vector<int64_t> {
    if (auto v = e.node.integers(name)) return {v->begin(), v->end()};
    return e.has(k) ? e.ints(k) : std::vector<int64_t>();
  };
  auto starts = list("starts", 1), ends = list("ends", 2), axes = list("axes", 3), steps = list("steps", 4);
  std::vector<onnx::AxisRange> ranges;
  for (int64_t size : x.shape)
    ranges.push_back({0, size, 1, size});
  for (size_t k = 0; k < starts.size(); ++k) {
    auto axis = size_t(axes.empty() ? int64_t(k) : wrapped(axes[k], x.rank()));
    ranges[axis] = onnx::rangeOf(starts[k], ends[k], steps.empty() ? 1 : steps[k], x.shape[axis]);
  }
  pull(e.out[0], x, [&](const Sizes &index) {
    Sizes from(index);
    for (size_t k = 0; k < from.size(); ++k)
      from[k] = ranges[k].begin + index[k] * ranges[k].step;
    return placeOf(x.shape, from);
  });
  return Status();
}
Status pad(Evaluation &e) {
  const Array &x = e.a(0);
  std::vector<int64_t> pads, axes;
  if (auto v = e.node.integers("pads")) pads.assign(v->begin(), v->end());
  else pads = e.ints(1);
  if (e.has(3)) axes = e.ints(3);
  else
    for (int64_t k = 0; k < x.rank(); ++k)
      axes.push_back(k);
  Sizes before(x.shape.size(), 0);
  for (size_t k = 0; k < axes.size(); ++k)
    before[size_t(wrapped(axes[k], x.rank()))] = pads[k];
  llvm::StringRef mode = e.node.string("mode", "constant");
  int64_t place = 0;
  forEach(e.out[0].shape, [&](const Sizes &index) {
    Sizes from(index);
    bool inside = true;
    for (size_t k = 0; k < from.size(); ++k) {
      int64_t n = x.shape[k], at = minus(index[k], before[k]);
      if (mode == "constant") {
        inside &= at >= 0 && at < n;
      } else if (mode == "edge") {
        at = std::clamp<int64_t>(at, 0, n - 1);
      } else if (mode == "wrap") {
        at = (at % n + n) % n;
      } else if (n == 1) {
        at = 0;
      } else {
        int64_t period = 2 * (n - 1); // the edge is not repeated
        at = (at % period + period) % period;
        at = std::min(at, period - at);
      }
      from[k] = at;
    }
    if (inside) {
      e.out[0].copy(place, x, placeOf(x.shape, from));
    } else if (e.has(2)) {
      e.out[0].copy(place, e.a(2), 0);
    } else if (x.floating()) {
      e.out[0].put(place, e.node.real("value", 0));
    }
    ++place;
  });
  return Status();
}
Status range(Evaluation &e) {
  Array &out = e.out[0];
  if (out.floating()) {
    double n = std::ceil((e.a(1).f[0] - e.a(0).f[0]) / e.a(2).f[0]);
    if (!(n <= double(e.most))) return e.bad("a range of at most " + std::to_string(e.most) + " elements", std::to_string(n));
    out = makeArray(out.type, {int64_t(std::max(n, 0.0))});
  }
  for (int64_t k = 0; k < out.count(); ++k) {
    if (out.floating()) out.put(k, e.a(0).f[0] + double(k) * e.a(2).f[0]);
    else out.putInt(k, plus(e.a(0).i[0], times(k, e.a(2).i[0])));
  }
  return Status();
}
Status shapeOf(Evaluation &e) {
  int64_t rank = e.a(0).rank(), begin = onnx::shapeRange(e.node.integer("start", 0), e.node.integer("end", rank), rank).begin;
  for (int64_t k = 0; k < e.out[0].count(); ++k)
    e.out[0].i[size_t(k)] = e.a(0).shape[size_t(begin + k)];
  return Status();
}
Status sizeOf(Evaluation &e) {
  e.out[0].i[0] = e.a(0).count();
  return Status();
}
Status constantOfShape(Evaluation &e) {
  auto value = llvm::dyn_cast_if_present<mlir::DenseElementsAttr>(e.node.attributes ? e.node.attributes.get("value") : mlir::Attribute());
  if (!value) return Status();
  if (value.getNumElements() != 1) return e.bad("attribute 'value' of one element", std::to_string(value.getNumElements()));
  if (e.out[0].floating()) {
    llvm::APFloat x = *value.getValues<llvm::APFloat>().begin();
    bool lossy;
    x.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
    std::fill(e.out[0].f.begin(), e.out[0].f.end(), x.convertToDouble());
  } else {
    llvm::APInt x = *value.getValues<llvm::APInt>().begin();
    std::fill(e.out[0].i.begin(), e.out[0].i.end(), wrapTo(e.out[0].type, e.out[0].isUnsigned() ? int64_t(x.getZExtValue()) : x.getSExtValue()));
  }
  return Status();
}
Status trilu(Evaluation &e) {
  const Array &x = e.a(0);
  int64_t k = e.has(1) ? e.a(1).i[0] : 0, place = 0;
  bool upper = e.node.integer("upper", 1);
  forEach(x.shape, [&](const Sizes &index) {
    int64_t row = index[index.size() - 2], column = index.back();
    if (upper ? column - row >= k : column - row <= k) e.out[0].copy(place, x, place);
    ++place;
  });
  return Status();
}
Status eyeLike(Evaluation &e) {
  Array &out = e.out[0];
  for (int64_t row = 0; row < out.shape[0]; ++row) {
    int64_t column = plus(row, e.node.integer("k", 0));
    if (column < 0 || column >= out.shape[1]) continue;
    if (out.floating()) out.put(row * out.shape[1] + column, 1);
    else out.putInt(row * out.shape[1] + column, 1);
  }
  return Status();
}
Status depthToSpace(Evaluation &e) {
  const Array &x = e.a(0);
  int64_t b = e.node.integer("blocksize", 1);
  bool crd = e.node.string("mode", "DCR") == "CRD", to = e.node.op == "DepthToSpace";
  const Sizes &deep = to ? x.shape : e.out[0].shape, &flat = to ? e.out[0].shape : x.shape;
  int64_t c = flat[1];
  forEach(flat, [&](const Sizes &i) {
    int64_t block = (i[2] % b) * b + i[3] % b;
    int64_t channel = crd ? i[1] * b * b + block : block * c + i[1];
    int64_t p = placeOf(deep, {i[0], channel, i[2] / b, i[3] / b}), q = placeOf(flat, i);
    e.out[0].copy(to ? q : p, x, to ? p : q);
  });
  return Status();
}
Status reverseSequence(Evaluation &e) {
  const Array &x = e.a(0);
  auto batch = size_t(e.node.integer("batch_axis", 1)), time = size_t(e.node.integer("time_axis", 0));
  for (int64_t n : e.a(1).i)
    if (n < 0 || n > x.shape[time]) return e.bad("lengths within the time axis", std::to_string(n));
  pull(e.out[0], x, [&](const Sizes &index) {
    Sizes from(index);
    int64_t n = e.a(1).i[size_t(index[batch])];
    if (index[time] < n) from[time] = n - 1 - index[time];
    return placeOf(x.shape, from);
  });
  return Status();
}

} // namespace

llvm::ArrayRef<EvalEntry> movementEvaluations() {
  static const EvalEntry table[] = {
      {"", "Reshape", reshape}, {"", "Flatten", reshape}, {"", "Squeeze", reshape}, {"", "Unsqueeze", reshape}, {"", "Transpose", transpose},
      {"", "Expand", expand}, {"", "Tile", tile}, {"", "Concat", concat}, {"", "Split", split}, {"", "Slice", slice}, {"", "Pad", pad}, {"", "Range", range},
      {"", "Shape", shapeOf}, {"", "Size", sizeOf}, {"", "ConstantOfShape", constantOfShape}, {"", "Trilu", trilu}, {"", "EyeLike", eyeLike},
      {"", "DepthToSpace", depthToSpace}, {"", "SpaceToDepth", depthToSpace}, {"", "ReverseSequence", reverseSequence}};
  return table;
}

} // namespace lathe::interp
