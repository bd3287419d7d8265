//===- Reduction.cpp - sums, extremes and what runs along an axis -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <cmath>

namespace lathe::interp {
namespace {

using onnx::DataType;

std::vector<bool> chosenAxes(Evaluation &e, bool &none) {
  const Array &x = e.a(0);
  std::vector<int64_t> axes;
  if (auto list = e.node.integers("axes")) axes.assign(list->begin(), list->end());
  else if (e.has(1)) axes = e.ints(1);
  none = axes.empty() && e.node.integer("noop_with_empty_axes", 0);
  std::vector<bool> chosen(x.shape.size(), axes.empty() && !none);
  for (int64_t a : axes)
    chosen[size_t(a < 0 ? a + x.rank() : a)] = true;
  return chosen;
}

Status reduce(Evaluation &e) {
  bool none;
  std::vector<bool> chosen = chosenAxes(e, none);
  const Array &x = e.a(0);
  const std::string &op = e.node.op;
  // Results are visited with all dimensions kept.
  Sizes kept = x.shape, line;
  for (size_t k = 0; k < chosen.size(); ++k)
    if (chosen[k]) kept[k] = 1;
  for (size_t k = 0; k < chosen.size(); ++k)
    line.push_back(chosen[k] ? x.shape[k] : 1);
  int64_t place = 0;
  forEach(kept, [&](const Sizes &start) {
    std::vector<int64_t> members;
    forEach(line, [&](const Sizes &step) {
      Sizes at(start);
      for (size_t k = 0; k < at.size(); ++k)
        at[k] += step[k];
      members.push_back(placeOf(x.shape, at));
    });
    Array &out = e.out[0];
    if (!x.floating() && (op == "ReduceSum" || op == "ReduceProd" || op == "ReduceMax" || op == "ReduceMin" || op == "ReduceL1" || op == "ReduceSumSquare" || op == "ReduceMean")) {
      bool isUnsigned = x.isUnsigned();
      bool extreme = op == "ReduceMax" || op == "ReduceMin";
      int64_t sum = op == "ReduceProd";
      if (extreme && members.empty()) {
        int bits = x.type == DataType::boolean ? 1 : onnxfile::dataTypeBits(x.type);
        bool largest = op == "ReduceMin";
        sum = isUnsigned || bits == 1 ? (largest ? -1 : 0) : largest ? INT64_MAX >> (64 - bits) : INT64_MIN >> (64 - bits);
      }
      for (size_t m = 0; m < members.size(); ++m) {
        int64_t v = x.i[size_t(members[m])];
        if (extreme) {
          bool less = isUnsigned ? uint64_t(v) < uint64_t(sum) : v < sum, more = isUnsigned ? uint64_t(v) > uint64_t(sum) : v > sum;
          if (m == 0 || (op == "ReduceMax" ? more : less)) sum = v;
        } else if (op == "ReduceProd") {
          sum = times(sum, v);
        } else {
          sum = plus(sum, op == "ReduceL1" && v < 0 && !isUnsigned ? minus(0, v) : op == "ReduceSumSquare" ? times(v, v) : v);
        }
      }
      if (op == "ReduceMean" && !members.empty()) sum = isUnsigned ? int64_t(uint64_t(sum) / members.size()) : sum / int64_t(members.size());
      out.putInt(place++, sum);
      return;
    }
    double most = -INFINITY, least = INFINITY, sum = op == "ReduceProd" ? 1 : 0;
    for (int64_t m : members) {
      double v = x.number(m);
      most = std::isnan(v) || v > most ? v : most;
      least = std::isnan(v) || v < least ? v : least;
    }
    double shift = std::isfinite(most) ? most : 0;
    for (int64_t m : members) {
      double v = x.number(m);
      if (op == "ReduceProd") sum *= v;
      else if (op == "ReduceL1") sum += std::abs(v);
      else if (op == "ReduceL2" || op == "ReduceSumSquare") sum += v * v;
      else if (op == "ReduceLogSumExp") sum += std::exp(v - shift);
      else sum += v;
    }
    if (op == "ReduceMean") sum /= double(members.size());
    if (op == "ReduceL2") sum = std::sqrt(sum);
    if (op == "ReduceLogSum") sum = std::log(sum);
    if (op == "ReduceLogSumExp") sum = std::log(sum) + shift;
    if (op == "ReduceMax") sum = most;
    if (op == "ReduceMin") sum = least;
    if (out.floating()) out.put(place++, sum);
    else out.putInt(place++, truncated(sum));
  });
  return Status();
}

/// Calls fn(place of element 0, distance, count) for every line along |axis|.
void lines(const Sizes &shape, int64_t axis, const std::function<void(int64_t, int64_t, int64_t)> &fn) {
  int64_t inner = 1, outer = 1, n = shape.empty() ? 1 : shape[size_t(axis)];
  for (size_t k = 0; k < shape.size(); ++k) {
    if (int64_t(k) > axis) inner *= shape[k];
    if (int64_t(k) < axis) outer *= shape[k];
  }
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i)
      fn(o * n * inner + i, inner, n);
}

Status argReduce(Evaluation &e) {
  const Array &x = e.a(0);
  int64_t axis = e.node.integer("axis", 0);
  if (axis < 0) axis += x.rank();
  bool largest = e.node.op == "ArgMax", last = e.node.integer("select_last_index", 0);
  int64_t place = 0;
  lines(x.shape, axis, [&](int64_t start, int64_t distance, int64_t n) {
    int64_t best = 0;
    for (int64_t k = 1; k < n; ++k) {
      double v = x.number(start + k * distance), b = x.number(start + best * distance);
      if ((largest ? v > b : v < b) || (last && v == b)) best = k;
    }
    e.out[0].i[size_t(place++)] = best;
  });
  return Status();
}

Status softmax(Evaluation &e) {
  const Array &x = e.a(0);
  bool flat = e.node.version < 13;
  int64_t axis = e.node.integer("axis", flat ? 1 : -1);
  if (axis < 0) axis += x.rank();
  Sizes shape = x.shape;
  if (flat) { // all dimensions from the axis on are one
    int64_t n = 1;
    while (int64_t(shape.size()) > axis) {
      n *= shape.back();
      shape.pop_back();
    }
    shape.push_back(n);
  }
  lines(shape, axis, [&](int64_t start, int64_t distance, int64_t n) {
    double most = -INFINITY, sum = 0;
    int64_t first = -1;
    for (int64_t k = 0; k < n; ++k)
      if (x.f[size_t(start + k * distance)] > most || first < 0) {
        most = x.f[size_t(start + k * distance)];
        first = k;
      }
    for (int64_t k = 0; k < n; ++k)
      sum += std::exp(x.f[size_t(start + k * distance)] - most);
    for (int64_t k = 0; k < n; ++k) {
      double v = x.f[size_t(start + k * distance)] - most;
      e.out[0].put(start + k * distance, e.node.op == "Softmax" ? std::exp(v) / sum : e.node.op == "LogSoftmax" ? v - std::log(sum) : k == first);
    }
  });
  return Status();
}

Status cumulative(Evaluation &e) {
  const Array &x = e.a(0);
  int64_t axis = e.a(1).i[0];
  if (axis < 0) axis += x.rank();
  bool exclusive = e.node.integer("exclusive", 0), reverse = e.node.integer("reverse", 0), product = e.node.op == "CumProd";
  lines(x.shape, axis, [&](int64_t start, int64_t distance, int64_t n) {
    double f = product;
    int64_t i = product;
    for (int64_t s = 0; s < n; ++s) {
      int64_t k = start + (reverse ? n - 1 - s : s) * distance;
      if (exclusive && x.floating()) e.out[0].put(k, f);
      else if (exclusive) e.out[0].putInt(k, i);
      if (x.floating()) f = product ? f * x.f[size_t(k)] : f + x.f[size_t(k)];
      else i = product ? times(i, x.i[size_t(k)]) : plus(i, x.i[size_t(k)]);
      if (!exclusive && x.floating()) e.out[0].put(k, f);
      else if (!exclusive) e.out[0].putInt(k, i);
    }
  });
  return Status();
}

Status lpNorm(Evaluation &e) {
  const Array &x = e.a(0);
  int64_t axis = e.node.integer("axis", -1), p = e.node.integer("p", 2);
  if (p != 1 && p != 2) return e.bad("a p of 1 or 2", std::to_string(p));
  if (axis < -x.rank() || axis >= x.rank()) return e.bad("an axis within the rank", std::to_string(axis));
  lines(x.shape, axis < 0 ? axis + x.rank() : axis, [&](int64_t start, int64_t distance, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      double v = x.f[size_t(start + k * distance)];
      sum += p == 1 ? std::abs(v) : v * v;
    }
    if (p == 2) sum = std::sqrt(sum);
    for (int64_t k = 0; k < n; ++k)
      e.out[0].put(start + k * distance, sum == 0 ? 0 : x.f[size_t(start + k * distance)] / sum);
  });
  return Status();
}

} // namespace

llvm::ArrayRef<EvalEntry> reductionEvaluations() {
  static const EvalEntry table[] = {
      {"", "ReduceSum", reduce}, {"", "ReduceMean", reduce}, {"", "ReduceMax", reduce}, {"", "ReduceMin", reduce}, {"", "ReduceProd", reduce},
      {"", "ReduceL1", reduce}, {"", "ReduceL2", reduce}, {"", "ReduceLogSum", reduce}, {"", "ReduceLogSumExp", reduce}, {"", "ReduceSumSquare", reduce},
      {"", "ArgMax", argReduce}, {"", "ArgMin", argReduce}, {"", "Softmax", softmax}, {"", "LogSoftmax", softmax}, {"", "Hardmax", softmax},
      {"", "CumSum", cumulative}, {"", "CumProd", cumulative}, {"", "LpNormalization", lpNorm}};
  return table;
}

} // namespace lathe::interp
