//===- Network.cpp - products of matrices, norms, rotary embedding -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <cmath>

namespace lathe::interp {
namespace {

/// out[.., r, c] = sum over k of a * b, numpy's rules for ranks; minus zero points if there are.
Status matmul(Evaluation &e) {
  const Array &a = e.a(0), &b = e.a(1);
  Array &out = e.out[0];
  Sizes sa = a.shape, sb = b.shape;
  bool vectorA = sa.size() == 1, vectorB = sb.size() == 1;
  if (vectorA) sa.insert(sa.begin(), 1);
  if (vectorB) sb.push_back(1);
  int64_t m = sa[sa.size() - 2], k = sa.back(), n = sb.back();
  auto zero = [&](size_t input, int64_t at) -> int64_t {
    if (!e.has(input) || e.node.op != "MatMulInteger") return 0;
    return e.a(input).count() == 1 ? e.a(input).i[0] : e.a(input).i[size_t(at)];
  };
  Sizes batch(out.shape.begin(), out.shape.end() - !vectorA - !vectorB);
  double steps = double(m) * double(n) * double(k);
  for (int64_t b : batch)
    steps *= double(b);
  LATHE_RETURN_IF_ERROR(e.work(steps));
  Sizes batchA(sa.begin(), sa.end() - 2), batchB(sb.begin(), sb.end() - 2);
  int64_t place = 0;
  forEach(batch, [&](const Sizes &index) {
    int64_t pa = broadcastPlace(batchA, index) * m * k, pb = broadcastPlace(batchB, index) * k * n;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c) {
        if (a.floating()) {
          double sum = 0;
          for (int64_t q = 0; q < k; ++q)
            sum += a.f[size_t(pa + r * k + q)] * b.f[size_t(pb + q * n + c)];
          out.put(place++, sum);
        } else {
          uint64_t sum = 0;
          for (int64_t q = 0; q < k; ++q)
            sum += uint64_t(a.i[size_t(pa + r * k + q)] - zero(2, r)) * uint64_t(b.i[size_t(pb + q * n + c)] - zero(3, c));
          out.putInt(place++, int64_t(sum));
        }
      }
  });
  return Status();
}
Status gemm(Evaluation &e) {
  const Array &a = e.a(0), &b = e.a(1);
  bool ta = e.node.integer("transA", 0), tb = e.node.integer("transB", 0);
  double alpha = e.node.real("alpha", 1), beta = e.node.real("beta", 1);
  int64_t k = a.shape[ta ? 0 : 1], place = 0;
  LATHE_RETURN_IF_ERROR(e.work(double(e.out[0].count()) * double(k)));
  forEach(e.out[0].shape, [&](const Sizes &i) {
    double sum = 0;
    for (int64_t q = 0; q < k; ++q) {
      int64_t pa = ta ? q * a.shape[1] + i[0] : i[0] * k + q, pb = tb ? i[1] * k + q : q * b.shape[1] + i[1];
      sum += a.number(pa) * b.number(pb);
    }
    sum *= alpha;
    if (e.has(2)) sum += beta * e.a(2).number(broadcastPlace(e.a(2).shape, i));
    if (a.floating()) e.out[0].put(place++, sum);
    else e.out[0].putInt(place++, truncated(sum));
  });
  return Status();
}
Status einsum(Evaluation &e) {
  auto spec = ops::einsumSpec(e.types);
  if (mlir::failed(spec)) return e.bad("an equation", "another");
  Sizes extents(size_t(spec->indices), 1);
  for (size_t k = 0; k < e.in.size(); ++k)
    for (size_t d = 0; d < spec->inputs[k].size(); ++d)
      extents[size_t(spec->inputs[k][d])] = std::max(extents[size_t(spec->inputs[k][d])], e.a(k).shape[d]);
  for (size_t k = 0; k < e.in.size(); ++k)
    for (int64_t n : e.a(k).shape)
      if (n == 0) return Status(); // the results are sums over nothing
  double steps = 16 * double(e.in.size()); // an index of each input for each product
  for (int64_t n : extents)
    steps *= double(n);
  LATHE_RETURN_IF_ERROR(e.work(steps));
  std::vector<double> sums(size_t(e.out[0].count()), 0);
  forEach(extents, [&](const Sizes &i) {
    double product = 1;
    for (size_t k = 0; k < e.in.size(); ++k) {
      Sizes at;
      for (size_t d = 0; d < spec->inputs[k].size(); ++d)
        at.push_back(e.a(k).shape[d] == 1 ? 0 : i[size_t(spec->inputs[k][d])]);
      product *= e.a(k).number(placeOf(e.a(k).shape, at));
    }
    Sizes to;
    for (int index : spec->output)
      to.push_back(i[size_t(index)]);
    sums[size_t(placeOf(e.out[0].shape, to))] += product;
  });
  for (int64_t k = 0; k < e.out[0].count(); ++k) {
    if (e.out[0].floating()) e.out[0].put(k, sums[size_t(k)]);
    else e.out[0].putInt(k, truncated(sums[size_t(k)]));
  }
  return Status();
}

/// LayerNormalization, RMSNormalization and the forms with a sum before (com.microsoft Skip...).
Status norm(Evaluation &e) {
  const std::string &op = e.node.op;
  bool rms = op != "LayerNormalization" && op != "SkipLayerNormalization", skip = op.starts_with("Skip");
  Array x = e.a(0);
  if (skip) {
    size_t bias = rms ? 3 : 4;
    int64_t place = 0;
    forEach(x.shape, [&](const Sizes &i) {
      double v = x.f[size_t(place)] + e.a(1).f[size_t(broadcastPlace(e.a(1).shape, i))];
      if (e.has(bias)) v += e.a(bias).f[size_t(broadcastPlace(e.a(bias).shape, i))];
      x.put(place++, v);
    });
    if (e.out.size() > 3) e.out[3] = x;
  }
  int64_t axis = skip ? -1 : e.node.integer("axis", -1);
  if (axis < 0) axis += x.rank();
  double epsilon = e.node.real("epsilon", skip ? 1e-12 : double(1e-5f));
  int64_t inner = 1;
  for (int64_t k = axis; k < x.rank(); ++k)
    inner *= x.shape[size_t(k)];
  size_t gamma = skip ? 2 : 1, beta = skip ? (rms ? 99 : 3) : (rms ? 99 : 2);
  int64_t place = 0;
  double mean = 0, deviation = 1;
  forEach(x.shape, [&](const Sizes &i) {
    int64_t row = place / inner;
    if (place % inner == 0) {
      mean = deviation = 0;
      for (int64_t k = 0; k < inner && !rms; ++k)
        mean += x.f[size_t(place + k)];
      mean /= double(inner);
      for (int64_t k = 0; k < inner; ++k)
        deviation += (x.f[size_t(place + k)] - mean) * (x.f[size_t(place + k)] - mean);
      deviation = std::sqrt(deviation / double(inner) + epsilon);
      if (e.out.size() > 1) e.out[1].put(row, rms ? 1 / deviation : mean);
      if (e.out.size() > 2) e.out[2].put(row, 1 / deviation);
    }
    double v = (x.f[size_t(place)] - mean) / deviation;
    if (!skip) v = roundTo(x.type, v);
    v *= e.a(gamma).f[size_t(broadcastPlace(e.a(gamma).shape, i))];
    if (e.has(beta)) v += e.a(beta).f[size_t(broadcastPlace(e.a(beta).shape, i))];
    e.out[0].put(place++, v);
  });
  return Status();
}

Status meanVariance(Evaluation &e) {
  const Array &x = e.a(0);
  auto axes = e.node.integers("axes").value_or(llvm::SmallVector<int64_t>{0, 2, 3});
  Sizes rows = x.shape;
  int64_t n = 1;
  for (int64_t a : axes) {
    if (a < -x.rank() || a >= x.rank()) return e.bad("axes within the rank", std::to_string(a));
    auto k = size_t(a < 0 ? a + x.rank() : a);
    n *= rows[k];
    rows[k] = 1;
  }
  std::vector<double> sums(size_t(placeOf(rows, rows)) + 1 + size_t(x.count()), 0), squares(sums.size(), 0);
  int64_t place = 0;
  forEach(x.shape, [&](const Sizes &i) { sums[size_t(broadcastPlace(rows, i))] += x.f[size_t(place++)] / double(n); });
  place = 0;
  forEach(x.shape, [&](const Sizes &i) {
    double v = x.f[size_t(place++)] - sums[size_t(broadcastPlace(rows, i))];
    squares[size_t(broadcastPlace(rows, i))] += v * v / double(n);
  });
  place = 0;
  forEach(x.shape, [&](const Sizes &i) {
    auto row = size_t(broadcastPlace(rows, i));
    e.out[0].put(place, (x.f[size_t(place)] - sums[row]) / (std::sqrt(squares[row]) + 1e-9));
    ++place;
  });
  return Status();
}

Status rotary(Evaluation &e) {
  bool contrib = e.node.domain == "com.microsoft", interleaved = e.node.integer("interleaved", 0);
  const Array &x = e.a(0), &cos = e.a(contrib ? 2 : 1), &sin = e.a(contrib ? 3 : 2);
  size_t positions = contrib ? 1 : 3;
  int64_t half = cos.shape.back(), heads = e.node.integer("num_heads", 0);
  if (x.rank() == 4) heads = x.shape[1]; // which may be none
  else if (heads <= 0) heads = x.shape.back() / (half * 2);
  bool flat = x.rank() == 3;
  int64_t size = flat ? x.shape[2] / heads : x.shape[3], batch = x.shape[0], tokens = flat ? x.shape[1] : x.shape[2];
  double scale = contrib ? e.node.real("scale", 1) : 1;
  e.out[0] = x;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < tokens; ++t) {
      int64_t row = b * tokens + t;
      if (e.has(positions)) {
        const Array &p = e.a(positions);
        row = p.rank() == 2 ? p.i[size_t((p.shape[0] == 1 ? 0 : b) * tokens + t)] : p.i[0] + t;
        if (row < 0 || row >= cos.shape[0]) return e.bad("position ids within the caches", std::to_string(row));
      }
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t k = 0; k < half; ++k) {
          int64_t one = interleaved ? 2 * k : k, two = interleaved ? one + 1 : k + half;
          int64_t base = flat ? ((b * tokens + t) * heads + h) * size : ((b * heads + h) * tokens + t) * size;
          double c = cos.f[size_t(row * half + k)], s = sin.f[size_t(row * half + k)];
          double a = x.f[size_t(base + one)], d = x.f[size_t(base + two)];
          e.out[0].put(base + one, (c * a - s * d) * scale);
          e.out[0].put(base + two, (s * a + c * d) * scale);
        }
    }
  return Status();
}

} // namespace

llvm::ArrayRef<EvalEntry> networkEvaluations() {
  static const char *ms = "com.microsoft";
  static const EvalEntry table[] = {
      {"", "MatMul", matmul}, {"", "MatMulInteger", matmul}, {"", "Gemm", gemm}, {"", "Einsum", einsum},
      {"", "LayerNormalization", norm}, {"", "RMSNormalization", norm}, {"", "SimplifiedLayerNormalization", norm}, {ms, "SimplifiedLayerNormalization", norm},
      {ms, "SkipSimplifiedLayerNormalization", norm}, {ms, "SkipLayerNormalization", norm}, {"", "MeanVarianceNormalization", meanVariance},
      {"", "RotaryEmbedding", rotary}, {ms, "RotaryEmbedding", rotary}};
  return table;
}

} // namespace lathe::interp
