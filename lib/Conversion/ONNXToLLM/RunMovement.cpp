//===- RunMovement.cpp - operators that move elements -----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Run.h"

using namespace mlir;

namespace lathe::raise {

static std::string axisText(int64_t axis, int64_t rank, int64_t last) {
  return "expected an axis from " + std::to_string(-rank) + " to " + std::to_string(last) + ", found " + std::to_string(axis);
}

static std::string targetText(ArrayRef<int64_t> from, const Known &target) {
  return "expected a shape of the " + std::to_string(elementsOf(from)) + " elements of " + shapeText(from) + ", found " + shapeText(target.i);
}

/// What depends on shapes alone.
bool GraphRun::shapes(NodeOp op, In in, Out out) {
  if (!op.getDomain().empty()) return false;
  if (op.getOpType() == "Shape") {
    auto rank = static_cast<int64_t>(in[0]->shape.size());
    onnx::AxisRange range = onnx::shapeRange(op.getInt("start", 0), op.getInt("end", rank), rank);
    out[0] = known(Known::integers(ArrayRef(in[0]->shape).slice(range.begin, range.count)));
    return true;
  }
  if (op.getOpType() == "Size") {
    out[0] = known(Known::integers({elementsOf(in[0]->shape)}, true));
    return true;
  }
  return false;
}

bool GraphRun::sliceAxis(const Abstract &x, int64_t axis, int64_t begin, int64_t end, Abstract &out) {
  int64_t size = x.shape[axis];
  if (begin == 0 && end == size) {
    out = x;
    return true;
  }
  if (begin >= end) { // nothing: what is left of a head that is rotated as a whole
    Shape shape = x.shape;
    shape[axis] = 0;
    out = known(Known::make(x.type, shape));
    return true;
  }
  const Axis &at = x.layout[axis];
  if (at.size() == 1 && at[0].dim == Dim::step && size == sizes.step && size > 1 && begin == size - 1 && end == size) {
    Layout layout = x.layout;
    layout[axis] = Axis();
    out = term(terms.lastRow(x.id), layout, x.type);
    return true;
  }
  if (at.size() != 1 || at[0].dim != Dim::feature) {
    refuse("cuts an axis of " + layoutText(x.layout) + " that is not of features");
    return false;
  }
  int64_t stride = at[0].stride, group = size * stride, next = (end - begin) * stride;
  Layout layout = rescaled(x.layout, group, next);
  layout[axis] = {{Dim::feature, end - begin, stride}};
  out = term(terms.slice(x.id, group, begin * stride, end * stride), layout, x.type);
  return true;
}

bool GraphRun::concat(In in, int64_t axis, Abstract &out) {
  auto rank = in[0]->shape.size();
  for (const Abstract *x : in)
    if (x->is != Abstract::term || x->layout.size() != rank) {
      refuse("joins tokens' values with something else");
      return false;
    }
  // The past and this step: the cache.
  const Axis &first = in[0]->layout[axis];
  bool past = in.size() == 2 && terms[in[0]->id].kind == Kind::past && first.size() <= 1 && in[1]->layout[axis].size() <= 1 &&
              sizeOf(first) == sizes.past && sizeOf(in[1]->layout[axis]) == sizes.step && (first.empty() || first[0].dim == Dim::past) &&
              (in[1]->layout[axis].empty() || in[1]->layout[axis][0].dim == Dim::step);
  if (past) {
    Layout layout = in[0]->layout, other = in[1]->layout;
    layout[axis] = other[axis] = {{Dim::total, sizes.total()}};
    if (layout != other || terms.width(in[0]->id) != terms.width(in[1]->id)) {
      refuse("the past is laid out as " + layoutText(in[0]->layout) + ", this step as " + layoutText(in[1]->layout));
      return false;
    }
    out = term(terms.history(in[1]->id, terms[in[0]->id].a), layout, in[0]->type);
    return true;
  }
  // Features: groups one after the other.
  int64_t stride = 0, total = 0;
  SmallVector<TermId> parts;
  SmallVector<int64_t> widths;
  for (const Abstract *x : in) {
    const Axis &at = x->layout[axis];
    if (at.size() > 1 || (at.size() == 1 && at[0].dim != Dim::feature)) {
      refuse("joins " + layoutText(in[0]->layout) + " and " + layoutText(in[in.size() - 1]->layout) + " along an axis that is not of features");
      return false;
    }
    if (at.size() == 1) {
      if (stride && stride != at[0].stride) return refuse("joins features that lie apart"), false;
      stride = at[0].stride;
    }
    total += x->shape[axis];
  }
  if (!stride) stride = 1;
  Layout layout;
  for (const Abstract *x : in) {
    parts.push_back(x->id);
    int64_t size = x->shape[axis];
    widths.push_back(size * stride);
    Layout own = rescaled(x->layout, size * stride, total * stride);
    own[axis] = {{Dim::feature, total, stride}};
    normalize(own);
    if (parts.size() == 1) layout = own;
    else if (own != layout) {
      refuse("joins " + layoutText(layout) + " and " + layoutText(own));
      return false;
    }
  }
  out = term(terms.concat(parts, widths), layout, in[0]->type);
  return true;
}

bool GraphRun::movement(NodeOp op, In in, Out out) {
  if (!op.getDomain().empty() || in.empty()) return false;
  StringRef name = op.getOpType();
  const Abstract &x = *in[0];
  SmallVector<const Known *> numbers;
  for (const Abstract *v : in)
    numbers.push_back(v->known.get());
  const bool casts = name == "Cast" || (name == "CastLike" && in.size() == 2);
  const auto to = name == "CastLike" && casts ? in[1]->type : static_cast<DataType>(op.getInt("to", 0)); // of casts
  auto needs = [&](unsigned k) { return k >= in.size() || in[k]->is == Abstract::absent || in[k]->known; };
  auto given = [&](unsigned k) { return k < in.size() && in[k]->known; }; // an input may be absent that the operator cannot do without

  if (x.is == Abstract::tokens) {
    if (name == "Identity" || casts) {
      DataType type = casts ? to : x.type;
      bool wide = type == DataType::int64 || type == DataType::int32 || type == DataType::uint64 || type == DataType::uint32;
      if (!wide && type != x.type) return refuse("turns tokens into " + onnx::dataTypeName(type));
      out[0] = x;
      out[0].type = type;
      return true;
    }
    if ((name == "Reshape" || name == "Unsqueeze" || name == "Squeeze") && in.size() > 1 && in[1]->known) {
      // Only what gives the same matrix again is followed.
      if (name == "Reshape") {
        auto shape = reshapedShape(op, x.shape, *in[1]->known);
        if (failed(shape)) return refuse(targetText(x.shape, *in[1]->known));
        out[0] = x;
        out[0].shape = *shape;
        return true;
      }
    }
    return false;
  }

  if (x.is == Abstract::weight) {
    // A matrix may be transposed; other moves must leave the order of the elements as it is.
    auto rank = x.shape.size();
    if (casts && onnx::isFloat(to) && onnx::isFloat(x.type) && !keepsValues(x.type, to)) return refuse("rounds a weight to " + onnx::dataTypeName(to));
    if (name == "Identity" || (casts && keepsValues(x.type, to))) {
      out[0] = x;
      if (casts) out[0].type = to;
      if (casts && x.known) {
        auto cast = evaluate(op, numbers);
        if (cast.ok()) out[0].known = std::make_shared<const Known>(std::move((*cast)[0]));
      }
      return true;
    }
    Shape order(op.getInts("perm"));
    bool swap = name == "Transpose" && rank == 2 && (order.empty() || order == Shape{1, 0});
    Shape shape = x.shape;
    if (swap) std::swap(shape[0], shape[1]);
    else if (name == "Reshape" && given(1)) {
      auto target = reshapedShape(op, x.shape, *in[1]->known);
      if (failed(target)) return false;
      shape = *target;
      if (!onnx::isFloat(x.type) && !x.swapped) { // codes: their order in memory is all that counts
        out[0] = x;
        out[0].shape = shape;
        out[0].known = nullptr;
        return true;
      }
    } else if (name == "Unsqueeze" || name == "Squeeze") {
      if (!x.known) return false;
      auto moved = evaluate(op, numbers);
      if (!moved.ok()) return false;
      shape = (*moved)[0].shape;
    } else return false;
    auto core = [](ArrayRef<int64_t> s) {
      Shape c;
      for (int64_t n : s)
        if (n != 1) c.push_back(n);
      return c;
    };
    if (!swap && core(shape) != core(x.shape)) return false;
    Known values;
    // Numbers that may be a table are followed; a large matrix is a linear's.
    bool follow = x.known && (!swap || x.known->elements() <= 65536);
    if (follow) {
      auto moved = evaluate(op, numbers);
      if (!moved.ok()) return false;
      values = std::move((*moved)[0]);
    }
    out[0] = x;
    out[0].shape = shape;
    out[0].swapped = x.swapped != swap;
    out[0].known = follow ? std::make_shared<const Known>(std::move(values)) : nullptr;
    return true;
  }
  if (x.is == Abstract::number && x.of && name == "Identity") {
    out[0] = x;
    return true;
  }
  if (x.is != Abstract::term) return false;

  auto rank = static_cast<int64_t>(x.shape.size());
  if (name == "Identity" || name == "Dropout") {
    if (name == "Dropout" && in.size() > 2 && in[2]->is != Abstract::absent && !(in[2]->known && in[2]->known->uniform() && in[2]->known->number(0) == 0))
      return refuse("drops values of tokens: expected a training_mode that is false");
    out[0] = x;
    return true;
  }
  if (casts) {
    if (!onnx::isFloat(to)) return terms[x.id].kind == Kind::unary && terms[x.id].name == "isnan" ? (out[0] = x, true) : refuse("turns values of tokens into integers");
    if (!keepsValues(x.type, to)) return refuse("rounds values of tokens to " + onnx::dataTypeName(to) + ", which is not the type of the graph's weights");
    out[0] = x;
    out[0].type = to;
    return true;
  }
  if (name == "Reshape" || name == "Flatten") {
    Shape shape;
    if (name == "Flatten") {
      int64_t given = op.getInt("axis", 1), axis = given < 0 ? given + rank : given;
      if (axis < 0 || axis > rank) return refuse(axisText(given, rank, rank));
      shape = {elementsOf(ArrayRef(x.shape).take_front(axis)), elementsOf(ArrayRef(x.shape).drop_front(axis))};
    } else {
      if (!given(1)) return refuse("the target shape depends on the tokens");
      auto target = reshapedShape(op, x.shape, *in[1]->known);
      if (failed(target)) return refuse(targetText(x.shape, *in[1]->known));
      shape = *target;
    }
    auto layout = reshaped(x.layout, shape);
    if (failed(layout)) return refuse("a shape that mixes tokens and features of " + layoutText(x.layout));
    out[0] = term(x.id, *layout, x.type);
    return true;
  }
  if (name == "Transpose") {
    Shape order(op.getInts("perm"));
    if (order.empty())
      for (int64_t k = rank; k-- > 0;)
        order.push_back(k);
    auto misfit = [&]() { return refuse("expected a permutation of " + Twine(rank) + " axes, found " + shapeText(order)); };
    Layout layout;
    SmallVector<bool> taken(rank, false);
    for (int64_t axis : order) {
      if (axis < 0 || axis >= rank || taken[axis]) return misfit();
      taken[axis] = true;
      layout.push_back(x.layout[axis]);
    }
    if (static_cast<int64_t>(layout.size()) != rank) return misfit();
    out[0] = term(x.id, layout, x.type);
    return true;
  }
  if (name == "Unsqueeze" || name == "Squeeze") {
    if (!needs(1)) return refuse("axes depend on the tokens");
    Shape axes = integersOf(op, numbers, 1, "axes");
    bool add = name == "Unsqueeze";
    int64_t all = rank + (add ? static_cast<int64_t>(axes.size()) : 0);
    SmallVector<bool> marked(all, false);
    for (int64_t axis : axes) {
      auto at = axisOf(axis, all);
      if (failed(at)) return refuse(axisText(axis, all, all - 1));
      marked[*at] = true;
    }
    Layout layout;
    int64_t next = 0;
    for (int64_t k = 0; k < all; ++k) {
      if (add) {
        layout.push_back(marked[k] || next >= rank ? Axis() : x.layout[next]);
        next += !marked[k];
      } else if (axes.empty() ? x.shape[k] != 1 : !marked[k]) {
        layout.push_back(x.layout[k]);
      } else if (x.shape[k] != 1) {
        return refuse("squeezes an axis of more than one element");
      }
    }
    out[0] = term(x.id, layout, x.type);
    return true;
  }
  if (name == "Expand" || name == "Tile") {
    if (!given(1)) return refuse("the target shape depends on the tokens");
    Shape wanted(in[1]->known->i.begin(), in[1]->known->i.end());
    if (name == "Tile") {
      if (wanted.size() != x.shape.size()) return refuse("expected repeats of " + Twine(rank) + " axes, found " + Twine(wanted.size()));
      for (size_t k = 0; k < wanted.size(); ++k) {
        if (wanted[k] != 1 && x.shape[k] != 1) return refuse("repeats an axis of more than one element");
        wanted[k] *= x.shape[k];
      }
    }
    auto shape = onnx::broadcastShape(x.shape, wanted);
    if (failed(shape)) return refuse("expected a shape that " + shapeText(x.shape) + " broadcasts with, found " + shapeText(wanted));
    Layout layout = padded(x.layout, shape->size());
    for (size_t k = 0; k < shape->size(); ++k)
      if (sizeOf(layout[k]) != (*shape)[k]) layout[k] = {{Dim::copies, (*shape)[k]}};
    out[0] = term(x.id, layout, x.type);
    return true;
  }
  if (name == "Slice") {
    for (unsigned k = 1; k < in.size(); ++k)
      if (!needs(k)) return refuse("bounds depend on the tokens");
    auto ranges = sliceRanges(op, x.shape, numbers);
    if (failed(ranges))
      return refuse("expected as many starts, ends, axes below " + Twine(rank) + " and steps other than 0, found " + shapeText(integersOf(op, numbers, 1, "starts")) + ", " +
                    shapeText(integersOf(op, numbers, 2, "ends")) + ", " + shapeText(integersOf(op, numbers, 3, "axes")) + " and " + shapeText(integersOf(op, numbers, 4, "")));
    Abstract current = x;
    SmallVector<bool> cut(rank, false);
    for (auto [axis, range] : *ranges) {
      if (cut[axis]) return refuse("cuts axis " + std::to_string(axis) + " twice");
      cut[axis] = true;
      if (current.is == Abstract::number) { // nothing is left already
        Shape shape = current.shape;
        shape[axis] = range.count;
        current = known(Known::make(current.type, shape));
        continue;
      }
      if (range.step == 1) {
        if (!sliceAxis(current, axis, range.begin, range.end, current)) return true;
        continue;
      }
      // Every second element: the last axis as pairs.
      int64_t size = current.shape[axis];
      if (range.step < 1 || size % range.step || range.begin >= range.step || range.end <= size - range.step + range.begin)
        return refuse("a step that does not divide the axis");
      Shape split = current.shape;
      split[axis] = size / range.step;
      split.insert(split.begin() + axis + 1, range.step);
      auto layout = reshaped(current.layout, split);
      if (failed(layout)) return refuse("steps over an axis that is not of features");
      Abstract pairs = term(current.id, *layout, current.type), one;
      if (!sliceAxis(pairs, axis + 1, range.begin, range.begin + 1, one)) return true;
      one.layout.erase(one.layout.begin() + axis + 1);
      current = term(one.id, one.layout, one.type);
    }
    out[0] = current;
    return true;
  }
  if (name == "Split") {
    auto axis = axisOf(op.getInt("axis", 0), rank);
    if (failed(axis)) return refuse(axisText(op.getInt("axis", 0), rank, rank - 1));
    if (!needs(1)) return refuse("the sizes of the parts depend on the tokens");
    auto parts = splitSizes(op, x.shape[*axis], numbers);
    if (failed(parts))
      return refuse("expected " + Twine(op.getOutputs().size()) + " parts of " + Twine(x.shape[*axis]) + " together, found " + shapeText(integersOf(op, numbers, 1, "split")));
    int64_t begin = 0;
    for (auto [k, size] : llvm::enumerate(*parts)) {
      if (!sliceAxis(x, *axis, begin, begin + size, out[k])) return true;
      begin += size;
    }
    return true;
  }
  if (name == "Gather" && in[1]->known && in[1]->known->elements() == 1) {
    auto axis = axisOf(op.getInt("axis", 0), rank);
    if (failed(axis)) return refuse(axisText(op.getInt("axis", 0), rank, rank - 1));
    if (in[1]->known->isFloat()) return refuse("expected an index of integers, found " + onnx::dataTypeName(in[1]->known->type));
    int64_t given = in[1]->known->i[0], size = x.shape[*axis], at = given < 0 ? given + size : given;
    if (at < 0 || at >= size) return refuse("expected an index from " + Twine(-size) + " to " + Twine(size - 1) + ", found " + Twine(given));
    Abstract part;
    if (!sliceAxis(x, *axis, at, at + 1, part)) return true;
    Layout layout = part.layout;
    layout.erase(layout.begin() + *axis);
    for (size_t k = 0; k < in[1]->shape.size(); ++k)
      layout.insert(layout.begin() + *axis, Axis());
    out[0] = term(part.id, layout, x.type);
    return true;
  }
  return false;
}

/// TensorScatter of this step's tokens into a cache of fixed length.
bool GraphRun::scatter(NodeOp op, In in, Out out) {
  if (!op.getDomain().empty() || op.getOpType() != "TensorScatter") return false;
  const Abstract &cache = *in[0], &update = *in[1];
  if (cache.is != Abstract::term || terms[cache.id].kind != Kind::past || cache.layout.size() != 4 || update.is != Abstract::term) return refuse("writes into something else than a past");
  if (op.getString("mode", "linear") != "linear") return refuse("a circular cache");
  auto axis = axisOf(op.getInt("axis", -2), 4);
  if (failed(axis) || *axis != 2) return refuse("a cache whose tokens are not on axis 2");
  // Without indices it writes at the beginning.
  bool follows = in.size() > 2 && in[2]->known && llvm::all_of(in[2]->known->i, [&](int64_t at) { return at == sizes.past; });
  if (!follows) return refuse("writes at another place than behind the past");
  Layout layout = cache.layout, own = update.layout, step = cache.layout;
  layout[2] = {{Dim::total, sizes.total()}};
  step[2] = {{Dim::step, sizes.step}};
  normalize(step);
  if (own != step || terms.width(cache.id) != terms.width(update.id)) return refuse("the past is laid out as " + layoutText(cache.layout) + ", this step as " + layoutText(own));
  out[0] = term(terms.history(update.id, terms[cache.id].a), layout, cache.type);
  return true;
}

/// Concat: the first input may be a number, so that it has a function of its own.
bool GraphRun::joins(NodeOp op, In in, Out out) {
  if (!op.getDomain().empty() || op.getOpType() != "Concat" || llvm::none_of(in, [](const Abstract *x) { return x->is == Abstract::term; })) return false;
  {
    const Abstract &x = **llvm::find_if(in, [](const Abstract *x) { return x->is == Abstract::term; });
    auto rank = static_cast<int64_t>(x.shape.size());
    auto axis = axisOf(op.getInt("axis", 0), rank);
    if (failed(axis)) return refuse(axisText(op.getInt("axis", 0), rank, rank - 1));
    // A cache starts as an empty tensor.
    SmallVector<Abstract *> parts;
    for (Abstract *part : in)
      if (!part->known || part->known->elements()) parts.push_back(part);
    if (parts.size() == 1) out[0] = *parts[0];
    else concat(parts, *axis, out[0]);
    return true;
  }
}

} // namespace lathe::raise
