//===- RunElementwise.cpp - arithmetic on tokens' values --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Run.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {

/// A weight that is a vector along the last axis: [n], [1, n], ...
bool GraphRun::vectorOf(const Abstract &w, Weight &out) {
  if (!w.of || w.of.bits || w.of.qdq) return false;
  if (w.shape.empty() || elementsOf(w.shape) != w.shape.back()) return false;
  out = w.of;
  out.rows = w.shape.back();
  out.columns = 0;
  return true;
}

/// A matrix as a linear's weight [out, in]. |transposed|: the value is used as [out, in] itself.
bool GraphRun::matrixOf(const Abstract &w, bool transposed, Weight &out) {
  if (!w.of || w.of.plusOne || w.shape.size() != 2) return false;
  out = w.of;
  out.rows = w.shape[transposed ? 0 : 1];
  out.columns = w.shape[transposed ? 1 : 0];
  out.transpose = w.swapped == transposed;
  return true;
}

bool GraphRun::isPositions(const Known &value, ArrayRef<int64_t> shape) const {
  if (value.isFloat() || shape.empty() || value.elements() % sizes.step || value.shape.back() != sizes.step) return false;
  for (int64_t k = 0, n = value.elements(); k < n; ++k)
    if (value.i[k] != sizes.past + k % sizes.step) return false;
  return true;
}

/// Numbers that differ by token and by position in a group, the last axis: cosines and sines.
FailureOr<int> GraphRun::tableOf(const Known &value, const Layout &layout, ArrayRef<int64_t> shape) {
  auto rank = shape.size();
  if (rank < 2 || value.shape.empty()) return failure();
  if (auto both = onnx::broadcastShape(value.shape, shape); failed(both) || *both != Shape(shape)) return failure();
  int64_t columns = value.shape.back();
  if (!isInner(layout[rank - 1], columns) || columns < 1) return failure();
  Shape strides = onnx::broadcastStrides(value.shape, rank);
  int64_t step = 0;
  for (size_t k = 0; k + 1 < rank; ++k) {
    if (!strides[k]) continue;
    const Axis &axis = layout[k];
    if (axis.size() == 1 && axis[0].dim == Dim::step) step = strides[k];
    else if (axis.size() != 1 || axis[0].dim != Dim::batch) return failure();
    else // every sequence of the batch has the same positions
      for (int64_t b = 1; b < shape[k]; ++b)
        for (int64_t n = 0; n < strides[k]; ++n)
          if (value.number(b * strides[k] + n) != value.number(n)) return failure();
  }
  if (!step && sizes.step != 1) return failure();
  Table table{sizes.step, columns, {}, {}};
  for (int64_t s = 0; s < sizes.step; ++s)
    for (int64_t k = 0; k < columns; ++k) {
      table.values.push_back(value.number(s * step + k));
      if (value.angles) table.angles.push_back(value.angles->number(s * step + k));
    }
  return terms.intern(std::move(table));
}

/// x op number, where number broadcasts into x's shape.
bool GraphRun::termNumber(StringRef name, const Abstract &x, const Abstract &y, bool reversed, Abstract &out) {
  auto shape = onnx::broadcastShape(x.shape, y.shape);
  if (failed(shape)) return refuse("expected shapes that broadcast, found " + shapeText(x.shape) + " and " + shapeText(y.shape));
  Layout layout = padded(x.layout, shape->size());
  if (shapeOf(layout) != *shape) return refuse("broadcasts values of tokens");
  auto result = [&](TermId id) {
    out = term(id, layout, x.type);
    return true;
  };
  TermId id = x.id;
  bool scores = terms.isScores(id);
  // A vector of weights along the features.
  Weight vector;
  if (!scores && vectorOf(y, vector) && vector.rows > 1 && isInner(layout.back(), vector.rows)) {
    if (name == "Mul") return result(terms.mulWeight(id, vector));
    if (name == "Add") return result(terms.addWeight(id, vector));
    return refuse("a weight in a place that no layer has");
  }
  if (!y.known) return refuse("a weight of " + std::to_string(elementsOf(y.shape)) + " elements in a place that no layer has");
  const Known &number = *y.known;
  if (number.uniform()) {
    double c = number.number(0);
    if (name == "Mul") return result(terms.scale(id, c));
    if (name == "Add" && scores) return c == 0 ? result(id) : maskScores(x, number, false, -INFINITY, out);
    if (name == "Add") return result(terms.addNumber(id, c));
    if (name == "Sub") return reversed ? result(terms.addNumber(terms.unary("neg", id), c)) : result(terms.addNumber(id, -c));
    if (name == "Div") return reversed ? result(terms.scale(terms.unary("reciprocal", id), c)) : result(terms.scale(id, 1 / c));
    if (name == "Pow" && !reversed) return result(terms.unary("pow", id, c));
    return refuse("a constant in a place that no layer has");
  }
  if (scores && name == "Add") return maskScores(x, number, false, -INFINITY, out);
  auto table = tableOf(number, layout, *shape);
  if (failed(table)) return refuse("numbers that are neither a constant, a mask nor a table by position");
  if (name == "Mul") return result(terms.mulTable(id, *table));
  return refuse("a table by position in a place that no layer has");
}

bool GraphRun::termTerm(StringRef name, const Abstract &x, const Abstract &y, Abstract &out) {
  auto shape = onnx::broadcastShape(x.shape, y.shape);
  if (failed(shape)) return refuse("expected shapes that broadcast, found " + shapeText(x.shape) + " and " + shapeText(y.shape));
  Layout a = padded(x.layout, shape->size()), b = padded(y.layout, shape->size());
  auto result = [&](TermId id, const Layout &layout) {
    out = term(id, layout, x.type);
    return true;
  };
  TermId p = x.id, q = y.id;
  if (name == "Sub") q = terms.unary("neg", q);
  if (name == "Div") q = terms.unary("reciprocal", q);
  bool sum = name == "Add" || name == "Sub";
  if (!sum && name != "Mul" && name != "Div") return refuse("not an operation of a layer");
  // Positions are the same for every sequence.
  auto withoutBatch = [](Layout layout) {
    for (Axis &axis : layout)
      llvm::erase_if(axis, [](const Atom &atom) { return atom.dim == Dim::batch; });
    return layout;
  };
  if (terms[q].kind == Kind::positions && b == withoutBatch(a)) b = a;
  if (terms[p].kind == Kind::positions && a == withoutBatch(b)) a = b;
  if (a == b && terms.width(p) == terms.width(q)) return result(sum ? terms.add(p, q) : terms.mul(p, q), a);
  // One value for a group of the other's features.
  for (int swap = 0; swap < 2; ++swap) {
    int64_t wide = terms.width(p), narrow = terms.width(q);
    if (shapeOf(a) == *shape && narrow && wide > narrow && wide % narrow == 0) {
      int64_t group = wide / narrow;
      Layout expected;
      for (const Axis &axis : a) {
        Axis reduced;
        for (const Atom &atom : axis) {
          if (atom.dim != Dim::feature) reduced.push_back(atom);
          else if (atom.stride >= group) reduced.push_back({atom.dim, atom.size, atom.stride / group});
        }
        expected.push_back(reduced);
      }
      if (expected == b) return result(sum ? terms.addGroup(p, q, group) : terms.mulGroup(p, q, group), a);
    }
    if (name == "Div") break;
    std::swap(p, q);
    std::swap(a, b);
  }
  return refuse("combines " + layoutText(x.layout) + " with " + layoutText(y.layout));
}

bool GraphRun::binary(NodeOp op, const Abstract &x, const Abstract &y, Abstract &out) {
  StringRef name = op.getOpType();
  if (x.is == Abstract::term && y.is == Abstract::term) return termTerm(name, x, y, out);
  if (x.is == Abstract::term) return termNumber(name, x, y, false, out);
  if (y.is == Abstract::term) return termNumber(name, y, x, true, out);
  return refuse("an input that is neither a number nor a value of tokens");
}

bool GraphRun::elementwise(NodeOp op, In in, Out out) {
  if (!op.getDomain().empty()) return false;
  StringRef name = op.getOpType();
  if (name == "Add" || name == "Sub" || name == "Mul" || name == "Div" || name == "Pow") return binary(op, *in[0], *in[1], out[0]);
  if (in.empty()) return false;
  const Abstract &x = *in[0];
  if (name == "Where") {
    const Abstract &a = *in[1], &b = *in[2];
    auto uniform = [](const Abstract &v, double least, double most) {
      return v.known && v.known->uniform() && v.known->number(0) >= least && v.known->number(0) <= most;
    };
    // A mask: scores where it holds, very small where not (or the other way round).
    if (x.known && a.is == Abstract::term && terms.isScores(a.id) && uniform(b, -INFINITY, -1000)) return maskScores(a, *x.known, true, b.known->number(0), out[0]);
    if (x.known && b.is == Abstract::term && terms.isScores(b.id) && uniform(a, -INFINITY, -1000)) {
      Known inverse = *x.known;
      for (int64_t &bit : inverse.i)
        bit = !bit;
      return maskScores(b, inverse, true, a.known->number(0), out[0]);
    }
    // A guard against rows that see nothing: no row of a step is one.
    if (x.is == Abstract::term && terms[x.id].kind == Kind::unary && terms[x.id].name == "isnan" && b.is == Abstract::term &&
        terms[x.id].in[0] == b.id && terms[b.id].kind == Kind::probabilities && uniform(a, 0, 0)) {
      out[0] = b;
      return true;
    }
    // A condition that is a number says which.
    if (x.known && x.known->elements() > 0 && x.known->uniform()) {
      const Abstract &taken = x.known->number(0) ? a : b;
      auto values = onnx::broadcastShape(a.shape, b.shape);
      auto whole = succeeded(values) ? onnx::broadcastShape(x.shape, *values) : values;
      if (taken.is == Abstract::term && succeeded(whole) && Shape(*whole) == taken.shape) {
        out[0] = taken;
        return true;
      }
    }
    return refuse("a choice that is neither a causal mask nor a guard of a softmax");
  }
  if (x.is != Abstract::term) return false;
  auto result = [&](TermId id) {
    out[0] = term(id, x.layout, x.type);
    return true;
  };
  if (name == "Softmax") {
    auto axis = axisOf(op.getInt("axis", op.getVersion() < 13 ? 1 : -1), static_cast<int64_t>(x.shape.size()));
    if (failed(axis) || *axis + 1 != static_cast<int64_t>(x.shape.size()) || !terms.isScores(x.id)) return refuse("a softmax that is not over attention scores");
    Axis total = {{Dim::total, sizes.total()}}; // the keys, not the queries of a transposed matrix
    if (x.layout.back() != total) return refuse("a softmax over another axis than the keys of " + layoutText(x.layout));
    if (terms[x.id].kind == Kind::capped) return refuse("a tanh of scores without a cap");
    if (terms[x.id].a < 0 && sizes.step > 1) return refuse("attention without a causal mask");
    return result(terms.softmax(x.id));
  }
  const std::pair<const char *, const char *> unary[] = {{"Neg", "neg"}, {"Sigmoid", "sigmoid"}, {"Tanh", "tanh"}, {"Erf", "erf"}, {"Sqrt", "sqrt"},
                                                        {"Reciprocal", "reciprocal"}, {"Exp", "exp"}, {"IsNaN", "isnan"}, {"Relu", "relu"}};
  for (auto [operation, own] : unary)
    if (name == operation) return result(terms.unary(own, x.id));
  if (name == "Gelu") {
    StringRef kind = op.getString("approximate", "none");
    return result(terms.activation(kind == "tanh" ? "gelu_tanh" : "gelu_erf", x.id));
  }
  if (name == "Swish") {
    double alpha = op.getFloat("alpha", 1);
    if (alpha != 1) return refuse("a Swish with alpha " + std::to_string(alpha));
    return result(terms.activation("silu", x.id));
  }
  if (name == "SwiGLU") {
    if (op.getFloat("alpha", 1) != 1 || in[1]->is != Abstract::term) return refuse("a SwiGLU of something else than two linears");
    Abstract gate = term(terms.activation("silu", x.id), x.layout, x.type);
    return termTerm("Mul", gate, *in[1], out[0]);
  }
  return false;
}

} // namespace lathe::raise
