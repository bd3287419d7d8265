//===- EvaluateArithmetic.cpp - elementwise operators, reductions -----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Known.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {

static Status misfit(const char *what) { return Status(StatusCode::invalidArgument, what); }
static std::vector<Known> one(Known value) {
  std::vector<Known> out;
  out.push_back(std::move(value));
  return out;
}

using Unary = double (*)(double);
static Unary unaryOf(StringRef name) {
  return llvm::StringSwitch<Unary>(name)
      .Case("Neg", [](double x) { return -x; })
      .Case("Abs", [](double x) { return std::fabs(x); })
      .Case("Sqrt", [](double x) { return std::sqrt(x); })
      .Case("Reciprocal", [](double x) { return 1 / x; })
      .Case("Exp", [](double x) { return std::exp(x); })
      .Case("Log", [](double x) { return std::log(x); })
      .Case("Cos", [](double x) { return std::cos(x); })
      .Case("Sin", [](double x) { return std::sin(x); })
      .Case("Floor", [](double x) { return std::floor(x); })
      .Case("Ceil", [](double x) { return std::ceil(x); })
      .Case("Round", [](double x) { return std::nearbyint(x); })
      .Case("Sign", [](double x) { return double((x > 0) - (x < 0)); })
      .Case("Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); })
      .Case("Tanh", [](double x) { return std::tanh(x); })
      .Case("Erf", [](double x) { return std::erf(x); })
      .Case("Not", [](double x) { return double(x == 0); })
      .Case("IsNaN", [](double x) { return double(std::isnan(x)); })
      .Case("IsInf", [](double x) { return double(std::isinf(x)); })
      .Default(nullptr);
}

using Binary = double (*)(double, double);
static Binary comparisonOf(StringRef name) {
  return llvm::StringSwitch<Binary>(name)
      .Case("Equal", [](double a, double b) { return double(a == b); })
      .Case("Less", [](double a, double b) { return double(a < b); })
      .Case("LessOrEqual", [](double a, double b) { return double(a <= b); })
      .Case("Greater", [](double a, double b) { return double(a > b); })
      .Case("GreaterOrEqual", [](double a, double b) { return double(a >= b); })
      .Case("And", [](double a, double b) { return double(a && b); })
      .Case("Or", [](double a, double b) { return double(a || b); })
      .Case("Xor", [](double a, double b) { return double((a != 0) != (b != 0)); })
      .Default(nullptr);
}
static Binary binaryOf(StringRef name) {
  return llvm::StringSwitch<Binary>(name)
      .Case("Add", [](double a, double b) { return a + b; })
      .Case("Sub", [](double a, double b) { return a - b; })
      .Case("Mul", [](double a, double b) { return a * b; })
      .Case("Div", [](double a, double b) { return a / b; })
      .Case("Pow", [](double a, double b) { return std::pow(a, b); })
      .Case("Min", [](double a, double b) { return std::fmin(a, b); })
      .Case("Max", [](double a, double b) { return std::fmax(a, b); })
      .Default(nullptr);
}
/// Integers, exactly; false for a division by zero.
static bool integerOf(StringRef name, bool fmod, int64_t a, int64_t b, int64_t &out) {
  auto wrap = [&](uint64_t v) { out = static_cast<int64_t>(v); };
  if (name == "Add") wrap(uint64_t(a) + uint64_t(b));
  else if (name == "Sub") wrap(uint64_t(a) - uint64_t(b));
  else if (name == "Mul") wrap(uint64_t(a) * uint64_t(b));
  else if (name == "Min") out = std::min(a, b);
  else if (name == "Max") out = std::max(a, b);
  else if (name == "Pow") out = static_cast<int64_t>(std::pow(double(a), double(b)));
  else if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  else if (name == "Div") out = a / b;
  else { // Mod has the divisor's sign, fmod the dividend's
    out = a % b;
    if (!fmod && out && (out < 0) != (b < 0)) out += b;
  }
  return true;
}

static Result<std::vector<Known>> binary(NodeOp op, const Known &a, const Known &b) {
  StringRef name = op.getOpType();
  auto shape = broadcast(a.shape, b.shape);
  if (failed(shape)) return misfit("shapes do not fit");
  if (elementsOf(*shape) > maxKnownElements) return misfit("too many elements");
  Shape s = broadcastStrides(a.shape, *shape), t = broadcastStrides(b.shape, *shape);
  if (Binary compare = comparisonOf(name)) {
    Known out = Known::make(DataType::boolean, *shape);
    forEachIndex(*shape, {s, t}, [&](int64_t flat, ArrayRef<int64_t> at) {
      // Integers beyond 2^53 compare as integers.
      if (!a.isFloat() && !b.isFloat() && name != "And" && name != "Or" && name != "Xor") {
        int64_t x = a.i[at[0]], y = b.i[at[1]];
        out.i[flat] = compare(x < y ? 0 : x == y ? 1 : 2, 1) != 0;
      } else {
        out.i[flat] = compare(a.number(at[0]), b.number(at[1])) != 0;
      }
    });
    return one(std::move(out));
  }
  Known out = Known::make(a.type, *shape);
  bool ok = true;
  if (a.isFloat()) {
    Binary function = name == "Mod" ? Binary([](double x, double y) { return std::fmod(x, y); }) : binaryOf(name);
    if (!function || (name == "Mod" && !op.getInt("fmod", 0))) return misfit("not defined for floats");
    forEachIndex(*shape, {s, t}, [&](int64_t flat, ArrayRef<int64_t> at) { out.f[flat] = roundTo(out.type, function(a.f[at[0]], b.number(at[1]))); });
  } else {
    bool fmod = op.getInt("fmod", 0);
    forEachIndex(*shape, {s, t}, [&](int64_t flat, ArrayRef<int64_t> at) {
      int64_t other = b.isFloat() ? static_cast<int64_t>(b.f[at[1]]) : b.i[at[1]];
      ok &= integerOf(name, fmod, a.i[at[0]], other, out.i[flat]);
    });
  }
  if (!ok) return misfit("division by zero");
  return one(std::move(out));
}

Result<std::vector<Known>> evaluateArithmetic(NodeOp op, Inputs inputs) {
  StringRef name = op.getOpType();
  if (Unary function = unaryOf(name)) {
    const Known &x = *inputs[0];
    bool logical = name == "Not" || name == "IsNaN" || name == "IsInf";
    Known out = Known::make(logical ? DataType::boolean : x.type, x.shape);
    for (int64_t k = 0, n = x.elements(); k < n; ++k)
      out.set(k, function(x.number(k)));
    if (name == "Cos" || name == "Sin") {
      Known angles = x;
      angles.angles = nullptr;
      out.angles = std::make_shared<Known>(std::move(angles));
    }
    return one(std::move(out));
  }
  if (name == "Cast" || name == "CastLike") {
    const Known &x = *inputs[0];
    DataType type = name == "Cast" ? static_cast<DataType>(op.getInt("to", 0)) : inputs[1]->type;
    if (!onnx::dataTypeBits(type)) return misfit("the type is not supported");
    if (type == x.type) return one(x);
    Known out = Known::make(type, x.shape);
    for (int64_t k = 0, n = x.elements(); k < n; ++k) {
      if (!out.isFloat() && !x.isFloat()) out.i[k] = type == DataType::boolean ? x.i[k] != 0 : x.i[k];
      else out.set(k, x.number(k));
    }
    return one(std::move(out));
  }
  if (comparisonOf(name) || binaryOf(name) || name == "Mod") {
    if (inputs.size() == 1) return one(*inputs[0]);
    auto out = binary(op, *inputs[0], *inputs[1]);
    for (size_t k = 2; k < inputs.size() && out.ok(); ++k)
      out = binary(op, (*out)[0], *inputs[k]);
    return out;
  }
  return Status(StatusCode::notFound, "");
}

static Result<std::vector<Known>> matmul(const Known &a, const Known &b) {
  if (a.shape.size() < 2 || b.shape.size() < 2 || !a.isFloat() || !b.isFloat()) return misfit("expected matrices of floats");
  int64_t rows = a.shape[a.shape.size() - 2], inner = a.shape.back(), columns = b.shape.back();
  if (b.shape[b.shape.size() - 2] != inner) return misfit("inner sizes differ");
  auto batch = broadcast(ArrayRef(a.shape).drop_back(2), ArrayRef(b.shape).drop_back(2));
  if (failed(batch)) return misfit("shapes do not fit");
  Shape shape = *batch;
  shape.append({rows, columns});
  if (elementsOf(shape) > maxKnownElements || elementsOf(shape) * std::max<int64_t>(inner, 1) > 16 * maxKnownElements) return misfit("too many elements");
  Known out = Known::make(a.type, shape);
  Shape s = broadcastStrides(ArrayRef(a.shape).drop_back(2), *batch), t = broadcastStrides(ArrayRef(b.shape).drop_back(2), *batch);
  forEachIndex(*batch, {s, t}, [&](int64_t flat, ArrayRef<int64_t> at) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum = roundTo(out.type, sum + roundTo(out.type, a.f[at[0] * rows * inner + r * inner + k] * b.f[at[1] * inner * columns + k * columns + c]));
        out.f[(flat * rows + r) * columns + c] = sum;
      }
  });
  return one(std::move(out));
}

Result<std::vector<Known>> evaluateReduction(NodeOp op, Inputs inputs) {
  StringRef name = op.getOpType();
  if (name == "MatMul") return matmul(*inputs[0], *inputs[1]);
  if (!name.consume_front("Reduce")) return Status(StatusCode::notFound, "");
  if (name != "Sum" && name != "Mean" && name != "Max" && name != "Min" && name != "Prod") return Status(StatusCode::notFound, "");
  const Known &x = *inputs[0];
  Shape axes = integersOf(op, inputs, 1, "axes");
  if (axes.empty()) {
    if (op.getInt("noop_with_empty_axes", 0)) return one(x);
    for (size_t k = 0; k < x.shape.size(); ++k)
      axes.push_back(static_cast<int64_t>(k));
  }
  llvm::SmallVector<bool> reduced(x.shape.size(), false);
  for (int64_t axis : axes) {
    auto at = axisOf(axis, static_cast<int64_t>(x.shape.size()));
    if (failed(at)) return misfit("an axis is out of range");
    reduced[*at] = true;
  }
  Shape kept, shape;
  int64_t count = 1;
  for (size_t k = 0; k < x.shape.size(); ++k) {
    kept.push_back(reduced[k] ? 1 : x.shape[k]);
    if (reduced[k]) count *= x.shape[k];
    if (!reduced[k] || op.getInt("keepdims", 1)) shape.push_back(kept.back());
  }
  Known out = Known::make(x.type, kept);
  std::vector<double> sums(out.elements(), name == "Prod" ? 1 : name == "Max" ? -INFINITY : name == "Min" ? INFINITY : 0);
  Shape all(x.shape), to = broadcastStrides(kept, x.shape);
  forEachIndex(all, {to}, [&](int64_t flat, ArrayRef<int64_t> at) {
    double &sum = sums[at[0]], value = x.number(flat);
    sum = name == "Prod" ? sum * value : name == "Max" ? std::fmax(sum, value) : name == "Min" ? std::fmin(sum, value) : sum + value;
  });
  for (auto [k, sum] : llvm::enumerate(sums))
    out.set(static_cast<int64_t>(k), name == "Mean" ? sum / double(count) : sum);
  out.shape = shape;
  return one(std::move(out));
}

static bool keepsAngles(StringRef name) {
  return llvm::is_contained({"Identity", "Reshape", "Flatten", "Unsqueeze", "Squeeze", "Transpose", "Expand", "Tile", "Slice", "Split", "Gather", "Cast"}, name);
}

static Result<std::vector<Known>> run(NodeOp op, Inputs inputs) {
  for (auto family : {evaluateMovement, evaluateIndexing, evaluateArithmetic, evaluateReduction}) {
    auto out = family(op, inputs);
    if (out.ok() || out.status().code() != StatusCode::notFound) return out;
  }
  return Status(StatusCode::unsupported, "not an operator that raising runs");
}

Result<std::vector<Known>> evaluate(NodeOp op, Inputs inputs) {
  if (!op.getDomain().empty()) return Status(StatusCode::unsupported, "not an operator that raising runs");
  for (unsigned k = 0; k < inputs.size(); ++k)
    if (!inputs[k] && op.input(k)) return Status(StatusCode::unsupported, "an input is not known");
  auto out = run(op, inputs);
  if (!out.ok()) return out;
  // Cosines stay cosines of moved angles.
  StringRef name = op.getOpType();
  if (keepsAngles(name) && inputs[0]->angles) {
    SmallVector<const Known *> moved(inputs.begin(), inputs.end());
    moved[0] = inputs[0]->angles.get();
    auto angles = run(op, moved);
    for (size_t k = 0; k < out->size(); ++k)
      (*out)[k].angles = angles.ok() ? std::make_shared<const Known>(std::move((*angles)[k])) : nullptr;
  } else if (name == "Concat" && llvm::all_of(inputs, [](const Known *in) { return in->angles != nullptr; })) {
    SmallVector<const Known *> moved;
    for (const Known *in : inputs)
      moved.push_back(in->angles.get());
    auto angles = run(op, moved);
    if (angles.ok()) (*out)[0].angles = std::make_shared<const Known>(std::move((*angles)[0]));
  } else if ((name == "Mul" || name == "Div") && inputs[0]->angles && inputs[1]->elements() == 1) {
    (*out)[0].angles = inputs[0]->angles;
  } else if (name == "Mul" && inputs[1]->angles && inputs[0]->elements() == 1) {
    (*out)[0].angles = inputs[1]->angles;
  }
  return out;
}

} // namespace lathe::raise
