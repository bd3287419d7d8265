//===- RunLinear.cpp - embeddings, linears, norms ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Run.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {

/// The layout of |x| without its last axis, when that axis is all features in order.
bool GraphRun::fullFeatures(const Abstract &x, Layout &rows) {
  if (x.is != Abstract::term || x.layout.empty() || !isInner(x.layout.back(), terms.width(x.id))) return false;
  rows = x.layout;
  rows.pop_back();
  return true;
}

/// The layout of indices: [batch, step] or [step], with axes of one element around them, or both in one axis.
bool GraphRun::tokenRows(ArrayRef<int64_t> shape, Layout &layout) const {
  layout.assign(shape.size(), Axis());
  int found = 0;
  for (size_t k = shape.size(); k-- > 0;) {
    if (shape[k] == 1) continue;
    if (found == 0 && shape[k] == sizes.step && sizes.step != 1) layout[k] = {{Dim::step, sizes.step}}, found = 1;
    else if (found <= 1 && shape[k] == sizes.batch) layout[k] = {{Dim::batch, sizes.batch}}, found = 2;
    else if (found == 0 && shape[k] == sizes.batch * sizes.step) layout[k] = {{Dim::batch, sizes.batch}, {Dim::step, sizes.step}}, found = 2;
    else return false;
  }
  return true;
}

bool GraphRun::linears(NodeOp op, In in, Out out) {
  StringRef name = op.getOpType();
  bool standard = op.getDomain().empty();
  if (standard && name == "Gather" && in[0]->is == Abstract::weight) {
    const Abstract &table = *in[0];
    Weight w;
    if (op.getInt("axis", 0) != 0 || !matrixOf(table, true, w)) return refuse("a lookup that is not of rows of a matrix");
    Layout layout;
    if (!tokenRows(in[1]->shape, layout)) return refuse("indices of an unexpected shape");
    layout.push_back({{Dim::feature, w.columns, 1}});
    if (in[1]->is == Abstract::tokens) {
      out[0] = term(terms.leaf(Kind::embed, w.columns, 0, w), layout);
      return true;
    }
    if (in[1]->known && isPositions(*in[1]->known, in[1]->shape)) {
      out[0] = term(terms.leaf(Kind::positions, w.columns, 0, w), layout);
      return true;
    }
    return refuse("a lookup of a weight by something else than tokens or positions");
  }
  bool fused = op.getDomain() == "com.microsoft" && name == "FusedMatMul";
  if ((standard && (name == "MatMul" || name == "Gemm")) || fused) {
    const Abstract &x = *in[0], &y = *in[1];
    double alpha = name == "MatMul" ? 1 : op.getFloat("alpha", 1);
    bool transA = name != "MatMul" && op.getInt("transA", 0), transB = name != "MatMul" && op.getInt("transB", 0);
    if (fused && (op.getInt("transBatchA", 0) || op.getInt("transBatchB", 0))) return refuse("transposes batches");
    if (x.is == Abstract::term && y.is == Abstract::term && name != "Gemm") {
      Abstract a = x, b = y;
      for (auto [side, trans] : {std::pair(&a, transA), std::pair(&b, transB)})
        if (trans && side->layout.size() >= 2) {
          std::swap(side->layout[side->layout.size() - 1], side->layout[side->layout.size() - 2]);
          side->shape = shapeOf(side->layout);
        }
      if (!product(a, b, out[0])) return true;
      if (alpha != 1) out[0] = term(terms.scale(out[0].id, alpha), out[0].layout);
      return true;
    }
    Layout rows;
    Weight w;
    if (!fullFeatures(x, rows) || transA || alpha != 1) return refuse("a product of something else than rows of tokens");
    if (!matrixOf(y, transB, w)) return refuse("a product with something else than a weight");
    if (w.columns != terms.width(x.id)) return refuse("a weight for " + std::to_string(w.columns) + " features, found " + std::to_string(terms.width(x.id)));
    TermId id = terms.linear(x.id, w);
    if (name == "Gemm" && in.size() > 2 && in[2]->is != Abstract::absent) {
      Weight bias;
      if (op.getFloat("beta", 1) != 1 || !vectorOf(*in[2], bias) || bias.rows != w.rows) return refuse("a bias that is not a vector of weights");
      id = terms.linear(x.id, w, bias);
    }
    rows.push_back({{Dim::feature, w.rows, 1}});
    out[0] = term(id, rows, x.type);
    return true;
  }
  // Means over features.
  if (standard && name == "ReduceMean" && in[0]->is == Abstract::term) {
    const Abstract &x = *in[0];
    SmallVector<const Known *> numbers;
    for (const Abstract *v : in)
      numbers.push_back(v->known.get());
    Shape axes = integersOf(op, numbers, 1, "axes");
    auto rank = static_cast<int64_t>(x.shape.size());
    if (axes.size() != 1 || failed(axisOf(axes[0], rank))) return refuse("a mean over something else than one axis");
    int64_t axis = *axisOf(axes[0], rank), size = x.shape[axis];
    if (!isInner(x.layout[axis], size) || terms.width(x.id) % size) return refuse("a mean over an axis of " + layoutText(x.layout) + " that is not of features");
    Layout layout = rescaled(x.layout, size, 1);
    layout[axis] = {};
    if (!op.getInt("keepdims", 1)) layout.erase(layout.begin() + axis);
    out[0] = term(terms.mean(x.id, size), layout, x.type);
    return true;
  }
  return false;
}

bool GraphRun::norms(NodeOp op, In in, Out out) {
  StringRef name = op.getOpType();
  bool contrib = op.getDomain() == "com.microsoft";
  auto normed = [&](const Abstract &x, const Abstract &scale, const Abstract *shift, bool layer, double eps) {
    Weight w, b;
    if (x.is != Abstract::term || !vectorOf(scale, w)) return refuse("a norm whose scale is not a vector of weights"), false;
    if (shift && shift->is != Abstract::absent && !vectorOf(*shift, b)) return refuse("a norm whose bias is not a vector of weights"), false;
    if (!isInner(x.layout.back(), w.rows) || (b && b.rows != w.rows)) return refuse("a norm over something else than the last axis, " + layoutText(x.layout)), false;
    if (!layer && b) return refuse("a root mean square norm with a bias"), false;
    out[0] = term(layer ? terms.layerNorm(x.id, w, b, eps) : terms.rmsNorm(x.id, w, eps), x.layout, x.type);
    return true;
  };
  auto axisIsLast = [&]() {
    int64_t axis = op.getInt("axis", -1);
    return axis == -1 || axis + 1 == static_cast<int64_t>(in[0]->shape.size());
  };
  double eps = op.getFloat("epsilon", 1e-5);
  if (name == "RMSNormalization" || name == "SimplifiedLayerNormalization" || (!contrib && name == "LayerNormalization")) {
    if (!axisIsLast()) return refuse("a norm over more than the last axis");
    normed(*in[0], *in[1], in.size() > 2 ? in[2] : nullptr, name == "LayerNormalization", eps);
    return true;
  }
  if (contrib && (name == "SkipSimplifiedLayerNormalization" || name == "SkipLayerNormalization")) {
    bool layer = name == "SkipLayerNormalization";
    eps = op.getFloat("epsilon", 1e-12);
    Abstract sum;
    if (in[0]->is != Abstract::term || in[1]->is != Abstract::term) return refuse("a sum of something else than tokens' values");
    unsigned biasAt = layer ? 4 : 3;
    bool biased = in.size() > biasAt && in[biasAt]->is != Abstract::absent;
    Abstract parts[] = {*in[0], *in[1]};
    // An optimizer takes the bias of the linear before it.
    for (Abstract &part : parts)
      if (const Term &made = terms[part.id]; biased && made.kind == Kind::linear && !made.bias) {
        Abstract whole;
        termNumber("Add", part, *in[biasAt], false, whole);
        if (!why.empty()) return true;
        part = whole;
        biased = false;
      }
    termTerm("Add", parts[0], parts[1], sum);
    if (!why.empty()) return true;
    if (biased) {
      Abstract shifted;
      termNumber("Add", sum, *in[biasAt], false, shifted);
      if (!why.empty()) return true;
      sum = shifted;
    }
    normed(sum, *in[2], layer && in.size() > 3 ? in[3] : nullptr, layer, eps);
    if (why.empty() && out.size() > 3) out[3] = sum;
    return true;
  }
  if (!contrib || in[0]->is != Abstract::term) return false;
  // Activations of the contrib domain.
  const Abstract &x = *in[0];
  auto activated = [&](StringRef kind, TermId id) {
    out[0] = term(terms.activation(kind, id), x.layout, x.type);
    return true;
  };
  if (name == "Gelu") return activated("gelu_erf", x.id);
  if (name == "QuickGelu") {
    if (std::fabs(op.getFloat("alpha", 1.702) - 1) > 1e-6) return refuse("a QuickGelu that is not silu (alpha 1)");
    return activated("silu", x.id);
  }
  if (name == "FastGelu" || name == "BiasGelu") {
    TermId id = x.id;
    if (in.size() > 1 && in[1]->is != Abstract::absent) {
      Abstract sum;
      termNumber("Add", x, *in[1], false, sum);
      if (!why.empty()) return true;
      id = sum.id;
    }
    return activated(name == "FastGelu" ? "gelu_tanh" : "gelu_erf", id);
  }
  return false;
}

} // namespace lathe::raise
