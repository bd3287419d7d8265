//===- EvaluateMovement.cpp - operators that move elements -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Known.h"
#include <numeric>

using namespace mlir;

namespace lathe::raise {

static Status misfit(const char *what) { return Status(StatusCode::invalidArgument, what); }
static std::vector<Known> one(Known value) {
  std::vector<Known> out;
  out.push_back(std::move(value));
  return out;
}

FailureOr<int64_t> axisOf(int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return failure();
  return axis;
}

Shape integersOf(NodeOp op, Inputs inputs, unsigned input, StringRef attribute) {
  if (input < inputs.size() && inputs[input]) return Shape(inputs[input]->i.begin(), inputs[input]->i.end());
  auto list = op.getInts(attribute);
  return Shape(list.begin(), list.end());
}

FailureOr<Shape> reshapedShape(NodeOp op, ArrayRef<int64_t> from, const Known &target) {
  Shape out(target.i.begin(), target.i.end());
  bool zero = op.getInt("allowzero", 0);
  int64_t known = 1, inferred = -1, all = elementsOf(from);
  for (auto [k, size] : llvm::enumerate(out)) {
    if (size == 0 && !zero) {
      if (k >= from.size()) return failure();
      size = from[k];
    }
    if (size < 0) {
      if (size != -1 || inferred >= 0) return failure();
      inferred = static_cast<int64_t>(k);
    } else if (__builtin_mul_overflow(known, size, &known)) {
      return failure();
    }
  }
  if (inferred >= 0) {
    if (known == 0 || all % known) return failure();
    out[inferred] = all / known;
  } else if (known != all) {
    return failure();
  }
  return out;
}

FailureOr<SmallVector<SliceRange>> sliceRanges(NodeOp op, ArrayRef<int64_t> shape, Inputs inputs) {
  Shape starts = integersOf(op, inputs, 1, "starts"), ends = integersOf(op, inputs, 2, "ends");
  Shape axes = integersOf(op, inputs, 3, "axes"), steps = integersOf(op, inputs, 4, "");
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) return failure();
  SmallVector<SliceRange> out;
  for (size_t k = 0; k < starts.size(); ++k) {
    auto axis = axisOf(axes[k], static_cast<int64_t>(shape.size()));
    if (failed(axis) || steps[k] == 0) return failure();
    int64_t size = shape[*axis], step = steps[k];
    auto clamp = [&](int64_t at, int64_t low, int64_t high) {
      if (at < 0) at = at < -size ? -1 - size : at + size; // far below stays below
      return std::clamp(at, low, high);
    };
    int64_t begin = step > 0 ? clamp(starts[k], 0, size) : clamp(starts[k], -1, size - 1);
    int64_t end = step > 0 ? clamp(ends[k], 0, size) : clamp(ends[k], -1, size - 1);
    out.push_back({*axis, begin, end, step});
  }
  return out;
}

FailureOr<Shape> splitSizes(NodeOp op, int64_t size, Inputs inputs) {
  Shape sizes = integersOf(op, inputs, 1, "split");
  auto parts = static_cast<int64_t>(op.getOutputs().size());
  if (sizes.empty()) {
    int64_t each = (size + parts - 1) / parts;
    for (int64_t k = 0; k < parts; ++k)
      sizes.push_back(std::min(each, size - k * each));
  }
  int64_t sum = 0;
  for (int64_t part : sizes) {
    if (part < 0) return failure();
    sum += part;
  }
  if (sum != size || static_cast<int64_t>(sizes.size()) != parts) return failure();
  return sizes;
}

/// Elements of |from| at |start| plus steps of |strides|.
static Known gatherStrided(const Known &from, ArrayRef<int64_t> shape, int64_t start, ArrayRef<int64_t> strides) {
  Known out = Known::make(from.type, shape);
  forEachIndex(shape, {strides}, [&](int64_t flat, ArrayRef<int64_t> at) {
    if (from.isFloat()) out.f[flat] = from.f[start + at[0]];
    else out.i[flat] = from.i[start + at[0]];
  });
  return out;
}

static Known sliced(const Known &from, ArrayRef<SliceRange> ranges) {
  Shape shape = from.shape, strides = broadcastStrides(from.shape, from.shape);
  int64_t start = 0;
  for (const SliceRange &range : ranges) {
    int64_t length = range.step > 0 ? (range.end - range.begin + range.step - 1) / range.step : (range.begin - range.end - range.step - 1) / -range.step;
    shape[range.axis] = std::max<int64_t>(0, length);
    start += range.begin * strides[range.axis];
    strides[range.axis] *= range.step;
  }
  return gatherStrided(from, shape, start, strides);
}

static Result<Known> concatenated(int64_t axis, Inputs inputs) {
  Known out;
  auto at = axisOf(axis, static_cast<int64_t>(inputs[0]->shape.size()));
  if (failed(at)) return misfit("the axis is out of range");
  Shape shape = inputs[0]->shape;
  shape[*at] = 0;
  for (const Known *in : inputs) {
    Shape other = in->shape;
    if (other.size() != shape.size()) return misfit("ranks differ");
    shape[*at] += other[*at];
    other[*at] = shape[*at];
    if (other != shape) return misfit("shapes do not fit");
  }
  out = Known::make(inputs[0]->type, shape);
  int64_t inner = elementsOf(ArrayRef(shape).drop_front(*at + 1)), outer = elementsOf(ArrayRef(shape).take_front(*at)), begin = 0;
  for (const Known *in : inputs) {
    int64_t width = in->shape[*at] * inner;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < width; ++k) {
        int64_t to = o * shape[*at] * inner + begin + k;
        if (out.isFloat()) out.f[to] = in->f[o * width + k];
        else out.i[to] = in->i[o * width + k];
      }
    begin += width;
  }
  return out;
}

Result<std::vector<Known>> evaluateMovement(NodeOp op, Inputs inputs) {
  StringRef name = op.getOpType();
  const Known *x = inputs.empty() ? nullptr : inputs[0];
  auto withShape = [&](ArrayRef<int64_t> shape) -> Result<std::vector<Known>> {
    if (elementsOf(shape) != x->elements()) return misfit("shapes do not fit");
    Known out = *x;
    out.shape.assign(shape.begin(), shape.end());
    return one(std::move(out));
  };
  if (name == "Identity" || name == "Dropout") return withShape(x->shape);
  if (name == "Reshape") {
    auto shape = reshapedShape(op, x->shape, *inputs[1]);
    if (failed(shape)) return misfit("the target shape does not fit");
    return withShape(*shape);
  }
  if (name == "Flatten") {
    int64_t axis = op.getInt("axis", 1), rank = static_cast<int64_t>(x->shape.size());
    if (axis < 0) axis += rank;
    if (axis < 0 || axis > rank) return misfit("the axis is out of range");
    return withShape({elementsOf(ArrayRef(x->shape).take_front(axis)), elementsOf(ArrayRef(x->shape).drop_front(axis))});
  }
  if (name == "Unsqueeze" || name == "Squeeze") {
    Shape axes = integersOf(op, inputs, 1, "axes");
    bool add = name == "Unsqueeze";
    auto rank = static_cast<int64_t>(x->shape.size() + (add ? axes.size() : 0));
    llvm::SmallVector<bool> marked(rank, false);
    for (int64_t axis : axes) {
      auto at = axisOf(axis, rank);
      if (failed(at)) return misfit("an axis is out of range");
      marked[*at] = true;
    }
    Shape shape;
    if (add) {
      size_t next = 0;
      for (int64_t k = 0; k < rank; ++k)
        shape.push_back(marked[k] ? 1 : next < x->shape.size() ? x->shape[next++] : 1);
    } else {
      for (int64_t k = 0; k < rank; ++k)
        if (axes.empty() ? x->shape[k] != 1 : !marked[k]) shape.push_back(x->shape[k]);
    }
    return withShape(shape);
  }
  if (name == "Transpose") {
    auto rank = x->shape.size();
    Shape order(op.getInts("perm"));
    if (order.empty())
      for (size_t k = 0; k < rank; ++k)
        order.push_back(static_cast<int64_t>(rank - 1 - k));
    if (order.size() != rank) return misfit("the permutation does not fit");
    Shape own = broadcastStrides(x->shape, x->shape), shape, strides;
    for (int64_t axis : order) {
      if (axis < 0 || axis >= static_cast<int64_t>(rank)) return misfit("the permutation does not fit");
      shape.push_back(x->shape[axis]);
      strides.push_back(own[axis]);
    }
    return one(gatherStrided(*x, shape, 0, strides));
  }
  if (name == "Expand") {
    auto shape = broadcast(x->shape, Shape(inputs[1]->i.begin(), inputs[1]->i.end()));
    if (failed(shape) || elementsOf(*shape) > maxKnownElements) return misfit("the target shape does not fit");
    return one(gatherStrided(*x, *shape, 0, broadcastStrides(x->shape, *shape)));
  }
  if (name == "Tile") {
    if (inputs[1]->i.size() != x->shape.size()) return misfit("the repeats do not fit");
    Known out = *x;
    for (size_t axis = 0; axis < x->shape.size(); ++axis) {
      int64_t times = inputs[1]->i[axis];
      if (times < 0 || times * out.elements() > maxKnownElements) return misfit("the repeats do not fit");
      std::vector<const Known *> copies(times, &out);
      if (times == 1) continue;
      if (!times) return misfit("the repeats do not fit");
      auto next = concatenated(static_cast<int64_t>(axis), copies);
      if (!next.ok()) return next.status();
      out = *std::move(next);
    }
    return one(std::move(out));
  }
  if (name == "Concat") {
    auto out = concatenated(op.getInt("axis", 0), inputs);
    if (!out.ok()) return out.status();
    return one(*std::move(out));
  }
  if (name == "Slice") {
    auto ranges = sliceRanges(op, x->shape, inputs);
    if (failed(ranges)) return misfit("starts, ends, axes and steps do not fit");
    return one(sliced(*x, *ranges));
  }
  if (name == "Split") {
    auto axis = axisOf(op.getInt("axis", 0), static_cast<int64_t>(x->shape.size()));
    if (failed(axis)) return misfit("the axis is out of range");
    auto sizes = splitSizes(op, x->shape[*axis], inputs);
    if (failed(sizes)) return misfit("the sizes of the parts do not fit");
    std::vector<Known> out;
    int64_t begin = 0;
    for (int64_t size : *sizes) {
      out.push_back(sliced(*x, {SliceRange{*axis, begin, begin + size, 1}}));
      begin += size;
    }
    return out;
  }
  return Status(StatusCode::notFound, "");
}

} // namespace lathe::raise
