//===- RunAttention.cpp - attention written as products ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Run.h"
#include <cmath>
#include <numeric>

using namespace mlir;

namespace lathe::raise {

bool GraphRun::windowOf(const Known &mask, const Layout &layout, bool boolean, int64_t &window, double &least) {
  Shape shape = shapeOf(layout);
  auto rank = shape.size();
  if (rank < 2 || failed(onnx::broadcastShape(mask.shape, shape)) || *onnx::broadcastShape(mask.shape, shape) != shape) return refuse("a mask of another shape than the scores"), false;
  Shape strides = onnx::broadcastStrides(mask.shape, rank);
  bool fits = sizeOf(layout[rank - 1]) == sizes.total() && sizeOf(layout[rank - 2]) == sizes.step;
  if (!fits) return refuse("a mask of scores laid out as " + layoutText(layout)), false;
  // All sequences and heads see the same.
  Shape outer(ArrayRef(shape).drop_back(2));
  int64_t seen = 0, longest = 0; // the window, and the longest row that sees everything
  bool restricted = false, good = true, plain = true;
  onnx::forEach(outer, [&](ArrayRef<int64_t> index) {
    int64_t start = std::inner_product(index.begin(), index.end(), strides.begin(), int64_t(0));
    for (int64_t s = 0; s < sizes.step && good; ++s) {
      int64_t position = sizes.past + s, first = -1;
      for (int64_t t = 0; t < sizes.total() && good; ++t) {
        double value = mask.number(start + s * strides[rank - 2] + t * strides[rank - 1]);
        bool visible = boolean ? value != 0 : !(value <= -1000);
        if (!boolean && visible && value != 0) plain = false;
        if (!boolean && !visible) least = std::max(least, value);
        if (visible && first < 0) first = t;
        // From the first visible entry to the row's own position, and nothing behind it.
        good = visible == (first >= 0 && t <= position);
      }
      if (first < 0) good = false;
      if (first > 0) {
        int64_t width = position + 1 - first;
        good = good && (!restricted || seen == width);
        restricted = true;
        seen = width;
      } else {
        longest = std::max(longest, position + 1);
      }
    }
  });
  if (!plain) return refuse("scores get a bias that is no mask"), false;
  if (!good || (restricted && longest > seen)) return refuse("a mask that is neither causal nor causal with a window"), false;
  window = restricted ? seen : 0;
  return true;
}

bool GraphRun::maskScores(const Abstract &scores, const Known &mask, bool boolean, double hidden, Abstract &out) {
  if (terms[scores.id].kind != Kind::scores) return refuse("a mask between a tanh and its cap");
  int64_t window = 0;
  if (!windowOf(mask, scores.layout, boolean, window, hidden)) return true;
  out = term(terms.masked(scores.id, window, hidden), scores.layout, scores.type);
  return true;
}

/// Batch atoms must agree; the rest of both layouts' leading axes in order, copies where y is one element wide.
static bool headAtoms(const Layout &x, const Layout &y, SmallVectorImpl<Atom> &xs, SmallVectorImpl<Atom> &ys) {
  for (size_t k = 0; k + 2 < x.size(); ++k) {
    Axis a = x[k], b = y[k];
    auto batch = [](Axis &axis) {
      bool found = !axis.empty() && axis[0].dim == Dim::batch;
      if (found) axis.erase(axis.begin());
      return found;
    };
    if (batch(a) != batch(b)) return false;
    if (b.empty() && !a.empty()) b.push_back({Dim::copies, sizeOf(a)});
    xs.append(a.begin(), a.end());
    ys.append(b.begin(), b.end());
  }
  Layout merged = {Axis(xs.begin(), xs.end()), Axis(ys.begin(), ys.end())};
  normalize(merged);
  xs.assign(merged[0].begin(), merged[0].end());
  ys.assign(merged[1].begin(), merged[1].end());
  return true;
}

/// The query heads (stride |xs|) against KV heads (stride |ys|), each used by |heads| / |kvHeads| query heads in a row.
static bool headsFit(ArrayRef<Atom> xs, int64_t xStride, ArrayRef<Atom> ys, int64_t yStride, int64_t heads, int64_t kvHeads) {
  SmallVector<Atom> a, b;
  if (heads > 1) a.push_back({Dim::feature, heads, xStride});
  if (kvHeads > 1) b.push_back({Dim::feature, kvHeads, yStride});
  if (heads > kvHeads) b.push_back({Dim::copies, heads / kvHeads});
  return heads % kvHeads == 0 && xs == ArrayRef<Atom>(a) && ys == ArrayRef<Atom>(b);
}

bool GraphRun::product(const Abstract &x, const Abstract &y, Abstract &out) {
  size_t rank = std::max(x.layout.size(), y.layout.size());
  Layout a = padded(x.layout, rank), b = padded(y.layout, rank);
  if (rank < 3) return refuse("a product of two values of tokens that is not attention"), false;
  const Term &left = terms[x.id];
  TermId keys = y.id;
  while (terms[keys].kind == Kind::scale)
    keys = terms[keys].in[0];
  if (terms[keys].kind != Kind::history) return refuse("attention to keys or values that are not the past's and this step's, " + layoutText(y.layout)), false;
  Axis total = {{Dim::total, sizes.total()}}, step;
  if (sizes.step > 1) step = {{Dim::step, sizes.step}};
  SmallVector<Atom> xs, ys;
  if (!headAtoms(a, b, xs, ys)) return refuse("heads laid out as " + layoutText(x.layout) + " and " + layoutText(y.layout)), false;
  int64_t width = terms.width(x.id), kvWidth = terms.width(y.id);
  if (left.kind == Kind::probabilities) {
    int64_t size = sizeOf(b[rank - 1]), heads = width;
    bool fits = a[rank - 1] == total && a[rank - 2] == step && b[rank - 2] == total && isInner(b[rank - 1], size) && kvWidth % size == 0 &&
                headsFit(xs, 1, ys, size, heads, kvWidth / size);
    if (!fits) return refuse("a sum of values laid out as " + layoutText(x.layout) + " and " + layoutText(y.layout)), false;
    Layout layout = a;
    layout.pop_back();
    layout = rescaled(layout, 1, size);
    layout.push_back({{Dim::feature, size, 1}});
    out = term(terms.attend(x.id, y.id, size), layout, x.type);
    return true;
  }
  int64_t size = sizeOf(a[rank - 1]);
  bool fits = size > 0 && width % size == 0 && kvWidth % size == 0 && isInner(a[rank - 1], size) && a[rank - 2] == step && isInner(b[rank - 2], size) &&
              b[rank - 1] == total && headsFit(xs, size, ys, size, width / size, kvWidth / size);
  if (!fits) return refuse("scores of queries and keys laid out as " + layoutText(x.layout) + " and " + layoutText(y.layout)), false;
  Layout layout = a;
  layout.pop_back();
  for (Axis &axis : layout)
    for (Atom &atom : axis)
      if (atom.dim == Dim::feature) atom.stride /= size;
  layout.push_back(total);
  out = term(terms.scores(x.id, y.id, width / size, size), layout, x.type);
  return true;
}

} // namespace lathe::raise
