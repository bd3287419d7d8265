//===- Elementwise.cpp - operators on single elements ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <cmath>

namespace lathe::interp {
namespace {

using onnx::DataType;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double geluErf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double geluTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
/// The constant as the operator has it: a float attribute.
double attribute(const Evaluation &e, const char *name, double otherwise) { return e.node.real(name, double(float(otherwise))); }

double function(const Evaluation &e, double x) {
  const std::string &op = e.node.op;
  static const std::pair<const char *, double (*)(double)> plain[] = {
      {"Exp", std::exp}, {"Log", std::log}, {"Sin", std::sin}, {"Cos", std::cos}, {"Tan", std::tan}, {"Asin", std::asin}, {"Acos", std::acos}, {"Atan", std::atan},
      {"Sinh", std::sinh}, {"Cosh", std::cosh}, {"Tanh", std::tanh}, {"Asinh", std::asinh}, {"Acosh", std::acosh}, {"Atanh", std::atanh}, {"Erf", std::erf},
      {"Sqrt", std::sqrt}, {"Ceil", std::ceil}, {"Floor", std::floor}, {"Round", std::nearbyint}, {"Sigmoid", sigmoid}, {"Softplus", softplus}};
  for (auto [name, fn] : plain)
    if (op == name) return fn(x);
  if (op == "Reciprocal") return 1 / x;
  if (op == "Softsign") return x / (1 + std::abs(x));
  if (op == "Elu") return x > 0 ? x : attribute(e, "alpha", 1) * std::expm1(x);
  if (op == "Selu") return attribute(e, "gamma", 1.05070102214813232421875) * (x > 0 ? x : attribute(e, "alpha", 1.67326319217681884765625) * std::expm1(x));
  if (op == "Celu") return x > 0 ? x : attribute(e, "alpha", 1) * std::expm1(x / attribute(e, "alpha", 1));
  if (op == "LeakyRelu") return x < 0 ? attribute(e, "alpha", 0.01) * x : x;
  if (op == "ThresholdedRelu") return x > attribute(e, "alpha", 1) ? x : 0;
  if (op == "HardSigmoid") return std::max(0.0, std::min(1.0, attribute(e, "alpha", 0.2) * x + attribute(e, "beta", 0.5)));
  if (op == "HardSwish") return x * std::max(0.0, std::min(1.0, x / 6 + 0.5));
  if (op == "Mish") return x * std::tanh(softplus(x));
  if (op == "Swish") return x * sigmoid(attribute(e, "alpha", 1) * x);
  if (op == "QuickGelu") return x * sigmoid(attribute(e, "alpha", 1.702) * x);
  if (op == "Gelu") return e.node.string("approximate", "none") == "tanh" ? geluTanh(x) : geluErf(x);
  return x;
}
Status floatUnary(Evaluation &e) {
  for (int64_t k = 0; k < e.out[0].count(); ++k) {
    double y = function(e, e.a(0).number(k));
    if (e.out[0].floating()) e.out[0].put(k, y);
    else e.out[0].putInt(k, truncated(y));
  }
  return Status();
}
Status numberUnary(Evaluation &e) {
  const Array &x = e.a(0);
  const std::string &op = e.node.op;
  double lambd = attribute(e, "lambd", 0.5), bias = attribute(e, "bias", 0);
  for (int64_t k = 0; k < x.count(); ++k) {
    if (op == "Shrink") {
      double v = x.number(k), y = v < -lambd ? v + bias : v > lambd ? v - bias : 0;
      if (x.floating()) e.out[0].put(k, y);
      else e.out[0].putInt(k, truncated(y));
    } else if (x.floating()) {
      double v = x.f[size_t(k)];
      double y = op == "Abs" ? std::abs(v) : op == "Neg" ? -v : op == "Relu" ? (v > 0 || std::isnan(v) ? v : 0) : v > 0 ? 1 : v < 0 ? -1 : v;
      e.out[0].put(k, y);
    } else {
      int64_t v = x.i[size_t(k)];
      bool negative = v < 0 && !x.isUnsigned();
      int64_t y = op == "Abs" ? (negative ? minus(0, v) : v) : op == "Neg" ? minus(0, v) : op == "Relu" ? (negative ? 0 : v) : negative ? -1 : v != 0;
      e.out[0].putInt(k, y);
    }
  }
  return Status();
}
Status bits(Evaluation &e) {
  const Array &x = e.a(0);
  const std::string &op = e.node.op;
  bool negative = e.node.integer("detect_negative", 1), positive = e.node.integer("detect_positive", 1);
  for (int64_t k = 0; k < x.count(); ++k) {
    if (op == "Not") e.out[0].i[size_t(k)] = !x.i[size_t(k)];
    else if (op == "BitwiseNot") e.out[0].putInt(k, ~x.i[size_t(k)]);
    else if (op == "IsNaN") e.out[0].i[size_t(k)] = std::isnan(x.f[size_t(k)]);
    else e.out[0].i[size_t(k)] = std::isinf(x.f[size_t(k)]) && (x.f[size_t(k)] > 0 ? positive : negative);
  }
  return Status();
}

double fmodLike(double x, double y, bool c) {
  double r = std::fmod(x, y);
  return !c && r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
double floatBinary(const Evaluation &e, double x, double y) {
  const std::string &op = e.node.op;
  if (op == "Add" || op == "Sum" || op == "Mean") return x + y;
  if (op == "Sub") return x - y;
  if (op == "Mul") return x * y;
  if (op == "Div") return x / y;
  if (op == "Mod") return fmodLike(x, y, e.node.integer("fmod", 0));
  if (op == "PRelu") return x < 0 ? x * y : x;
  if (op == "Max") return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
  if (op == "Min") return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y);
  return std::pow(x, y);
}
int64_t intBinary(const Evaluation &e, int64_t x, int64_t y, bool isUnsigned, int width) {
  const std::string &op = e.node.op;
  auto ux = uint64_t(x), uy = uint64_t(y);
  bool lower = isUnsigned ? ux < uy : x < y;
  if (op == "Add") return plus(x, y);
  if (op == "Sub") return minus(x, y);
  if (op == "Mul") return times(x, y);
  if (op == "Div") return y == 0 ? 0 : isUnsigned ? int64_t(ux / uy) : y == -1 ? minus(0, x) : x / y;
  if (op == "Mod") {
    if (y == 0 || (!isUnsigned && y == -1)) return 0;
    if (isUnsigned) return int64_t(ux % uy);
    int64_t r = x % y;
    return !e.node.integer("fmod", 0) && r && (r < 0) != (y < 0) ? r + y : r;
  }
  if (op == "And" || op == "BitwiseAnd") return x & y;
  if (op == "Or" || op == "BitwiseOr") return x | y;
  if (op == "Xor" || op == "BitwiseXor") return x ^ y;
  if (op == "Max") return lower ? y : x;
  if (op == "Min") return lower ? x : y;
  if (op == "PRelu") return !isUnsigned && x < 0 ? times(x, y) : x;
  if (op == "BitShift") {
    bool left = e.node.string("direction", "") == "LEFT", inside = uy < uint64_t(width);
    if (left) return inside ? int64_t(ux << uy) : 0;
    if (!inside) return !isUnsigned && x < 0 ? -1 : 0;
    return isUnsigned ? int64_t(ux >> uy) : x >> y;
  }
  return truncated(std::pow(double(x), double(y)));
}
Status binary(Evaluation &e) {
  if (e.node.op == "BitShift" && e.node.string("direction", "") != "LEFT" && e.node.string("direction", "") != "RIGHT") return e.bad("attribute 'direction' LEFT or RIGHT", "'" + e.node.string("direction", "").str() + "'");
  Array &out = e.out[0];
  LATHE_RETURN_IF_ERROR(e.work(double(out.count()) * double(e.in.size())));
  int64_t place = 0;
  forEach(out.shape, [&](const Sizes &index) {
    int64_t p = broadcastPlace(e.a(0).shape, index);
    const Array &first = e.a(0);
    double f = first.floating() ? first.f[size_t(p)] : 0;
    int64_t i = first.floating() ? 0 : first.i[size_t(p)];
    for (size_t k = 1; k < e.in.size(); ++k) {
      const Array &y = e.a(k);
      int64_t q = broadcastPlace(y.shape, index);
      if (first.floating()) f = floatBinary(e, f, y.number(q));
      else if (y.floating()) i = truncated(std::pow(first.number(p), y.f[size_t(q)])); // Pow
      else i = intBinary(e, i, y.i[size_t(q)], first.isUnsigned(), onnxfile::dataTypeBits(first.type));
    }
    if (e.node.op == "Mean") f /= double(e.in.size());
    if (first.floating()) out.put(place++, f);
    else out.putInt(place++, i);
  });
  return Status();
}
Status compare(Evaluation &e) {
  const std::string &op = e.node.op;
  const Array &x = e.a(0), &y = e.a(1);
  int64_t place = 0;
  forEach(e.out[0].shape, [&](const Sizes &index) {
    int64_t p = broadcastPlace(x.shape, index), q = broadcastPlace(y.shape, index);
    bool less, equal;
    if (x.floating()) {
      less = x.f[size_t(p)] < y.f[size_t(q)];
      equal = x.f[size_t(p)] == y.f[size_t(q)];
      if (std::isnan(x.f[size_t(p)]) || std::isnan(y.f[size_t(q)])) {
        e.out[0].i[size_t(place++)] = 0;
        return;
      }
    } else {
      less = x.isUnsigned() ? uint64_t(x.i[size_t(p)]) < uint64_t(y.i[size_t(q)]) : x.i[size_t(p)] < y.i[size_t(q)];
      equal = x.i[size_t(p)] == y.i[size_t(q)];
    }
    bool yes = op == "Equal" ? equal : op == "Less" ? less : op == "LessOrEqual" ? less || equal : op == "Greater" ? !less && !equal : !less;
    e.out[0].i[size_t(place++)] = yes;
  });
  return Status();
}
Status where(Evaluation &e) {
  int64_t place = 0;
  forEach(e.out[0].shape, [&](const Sizes &index) {
    const Array &from = e.a(e.a(0).i[size_t(broadcastPlace(e.a(0).shape, index))] ? 1 : 2);
    e.out[0].copy(place++, from, broadcastPlace(from.shape, index));
  });
  return Status();
}
Status clip(Evaluation &e) {
  const Array &x = e.a(0);
  for (size_t k : {1u, 2u})
    if (e.has(k) && e.a(k).count() != 1) return e.bad("a scalar bound", e.types.describe(unsigned(k)));
  for (int64_t k = 0; k < x.count(); ++k) {
    if (x.floating()) {
      double v = x.f[size_t(k)];
      if (e.has(1) || e.node.has("min")) {
        double low = e.has(1) ? e.a(1).f[0] : e.node.real("min", 0);
        if (v < low) v = low;
      }
      if (e.has(2) || e.node.has("max")) {
        double high = e.has(2) ? e.a(2).f[0] : e.node.real("max", 0);
        if (v > high) v = high;
      }
      e.out[0].put(k, v);
      continue;
    }
    int64_t v = x.i[size_t(k)];
    auto less = [&](int64_t p, int64_t q) { return x.isUnsigned() ? uint64_t(p) < uint64_t(q) : p < q; };
    if (e.has(1) && less(v, e.a(1).i[0])) v = e.a(1).i[0];
    if (e.has(2) && less(e.a(2).i[0], v)) v = e.a(2).i[0];
    e.out[0].putInt(k, v);
  }
  return Status();
}
Status cast(Evaluation &e) {
  const Array &x = e.a(0);
  Array &out = e.out[0];
  bool saturate = e.node.integer("saturate", 1);
  if (out.type == DataType::float8e8m0 && e.node.string("round_mode", "up") != "up") return e.bad("round_mode 'up'", "'" + e.node.string("round_mode", "up").str() + "'");
  for (int64_t k = 0; k < x.count(); ++k) {
    if (out.floating()) {
      out.f[size_t(k)] = castTo(out.type, x.number(k), saturate);
    } else if (!x.floating()) {
      out.i[size_t(k)] = wrapTo(out.type, x.i[size_t(k)]);
    } else if (out.type == DataType::boolean) {
      out.i[size_t(k)] = x.f[size_t(k)] != 0;
    } else {
      out.i[size_t(k)] = wrapTo(out.type, truncated(x.f[size_t(k)]));
    }
  }
  return Status();
}
Status bitCast(Evaluation &e) {
  onnx::HostTensor t = toHost(e.a(0));
  t.type = e.out[0].type;
  LATHE_ASSIGN_OR_RETURN(e.out[0], fromHost(t));
  return Status();
}
Status identity(Evaluation &e) {
  e.out[0] = e.a(0);
  if (e.out.size() > 1) std::fill(e.out[1].i.begin(), e.out[1].i.end(), 1);
  return Status();
}
Status biasedGelu(Evaluation &e) {
  int64_t place = 0;
  forEach(e.out[0].shape, [&](const Sizes &index) {
    double x = e.a(0).f[size_t(place)];
    if (e.has(1)) x += e.a(1).f[size_t(broadcastPlace(e.a(1).shape, index))];
    e.out[0].put(place++, e.node.op == "FastGelu" ? geluTanh(x) : geluErf(x));
  });
  return Status();
}
Status swiglu(Evaluation &e) {
  for (int64_t k = 0; k < e.out[0].count(); ++k)
    e.out[0].put(k, e.a(0).f[size_t(k)] * sigmoid(attribute(e, "alpha", 1) * e.a(0).f[size_t(k)]) * e.a(1).f[size_t(k)]);
  return Status();
}

} // namespace

llvm::ArrayRef<EvalEntry> elementwiseEvaluations() {
  static const std::vector<EvalEntry> table = [] {
    std::vector<EvalEntry> t;
    auto add = [&](EvalFn fn, std::initializer_list<const char *> names, const char *domain = "") {
      for (const char *name : names)
        t.push_back({domain, name, fn});
    };
    add(floatUnary, {"Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sqrt", "Ceil", "Floor", "Round",
                     "Sigmoid", "Softplus", "Reciprocal", "Softsign", "Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "HardSwish", "Mish", "Swish", "Gelu"});
    add(floatUnary, {"Gelu", "QuickGelu"}, "com.microsoft");
    add(biasedGelu, {"BiasGelu", "FastGelu"}, "com.microsoft");
    add(numberUnary, {"Abs", "Neg", "Relu", "Sign", "Shrink"});
    add(bits, {"Not", "BitwiseNot", "IsNaN", "IsInf"});
    add(binary, {"Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "PRelu", "Max", "Min", "Sum", "Mean"});
    add(compare, {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"});
    add(where, {"Where"});
    add(clip, {"Clip"});
    add(cast, {"Cast", "CastLike"});
    add(bitCast, {"BitCast"});
    add(identity, {"Identity", "Dropout"});
    add(swiglu, {"SwiGLU"});
    return t;
  }();
  return table;
}

} // namespace lathe::interp
