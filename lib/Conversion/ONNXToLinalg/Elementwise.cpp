//===- Elementwise.cpp - operators on single elements -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"

namespace lathe::ops {
using namespace mlir;
namespace {

using Unary = Value (*)(const Lower &, const Scalars &, Value);

template <Unary fn>
LogicalResult unary(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  l.result([&](ArrayRef<Dim> i) { return fn(l, s, l.get(l.in[0], i)); });
  return success();
}
template <typename Op>
Value direct(const Lower &, const Scalars &s, Value x) {
  return Op::create(s.b, s.loc, x);
}

Value geluErf(const Scalars &s, Value x) {
  return s.mul(s.mul(s.constant(0.5), x), s.add(s.constant(1), s.erf(s.mul(x, s.constant(0.70710678118654752440)))));
}
Value geluTanh(const Scalars &s, Value x) {
  Value cube = s.mul(s.mul(x, x), x);
  Value inner = s.mul(s.constant(0.79788456080286535588), s.add(x, s.mul(s.constant(0.044715), cube)));
  return s.mul(s.mul(s.constant(0.5), x), s.add(s.constant(1), s.tanh(inner)));
}
/// log(1 + exp(x)), without overflow
Value softplus(const Scalars &s, Value x) {
  Value e = s.exp(s.neg(s.abs(x)));
  return s.add(s.max(x, s.constant(0)), s.math<math::Log1pOp>(e));
}

LogicalResult elu(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  bool selu = l.node.op == "Selu", celu = l.node.op == "Celu";
  double alpha = l.node.real("alpha", selu ? 1.67326319217681884765625 : 1), gamma = selu ? l.node.real("gamma", 1.05070102214813232421875) : 1;
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.get(l.in[0], i), zero = s.constant(0);
    Value power = s.exp(celu ? s.div(x, s.constant(alpha)) : x);
    Value low = s.mul(s.constant(alpha), s.sub(power, s.constant(1)));
    Value y = s.select(s.less(zero, x), x, low);
    return selu ? s.mul(s.constant(gamma), y) : y;
  });
  return success();
}
/// Activations with numbers as attributes.
LogicalResult activation(Lower &l) {
  StringRef op = l.node.op;
  Scalars s = l.scalars(l.element(0));
  double alpha = l.node.real("alpha", op == "LeakyRelu" ? 0.01 : op == "HardSigmoid" ? 0.2 : op == "QuickGelu" ? 1.702 : 1);
  double beta = l.node.real("beta", 0.5), lambd = l.node.real("lambd", 0.5), bias = l.node.real("bias", 0);
  bool tanh = l.node.string("approximate", "none") == "tanh";
  l.result([&](ArrayRef<Dim> i) -> Value {
    Value x = l.get(l.in[0], i), zero = s.constant(0), a;
    if (op == "Shrink") {
      Scalars f = l.scalars(s.floating ? s.element : Type(l.b.getF64Type()));
      Value y = l.convert(x, s.element, f.element);
      Value low = f.select(f.less(y, f.constant(-lambd)), f.add(y, f.constant(bias)), f.constant(0));
      return l.convert(f.select(f.less(f.constant(lambd), y), f.sub(y, f.constant(bias)), low), f.element, s.element);
    }
    a = s.constant(alpha);
    if (op == "LeakyRelu") return s.select(s.less(x, zero), s.mul(a, x), x);
    if (op == "ThresholdedRelu") return s.select(s.less(a, x), x, zero);
    if (op == "HardSigmoid") return s.max(zero, s.min(s.constant(1), s.add(s.mul(a, x), s.constant(beta))));
    if (op == "HardSwish") return s.mul(x, s.max(zero, s.min(s.constant(1), s.add(s.div(x, s.constant(6)), s.constant(0.5)))));
    if (op == "Swish" || op == "QuickGelu") return s.mul(x, s.sigmoid(s.mul(a, x)));
    if (op == "Mish") return s.mul(x, s.tanh(softplus(s, x)));
    return tanh ? geluTanh(s, x) : geluErf(s, x); // Gelu
  });
  return success();
}
LogicalResult biasedGelu(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  bool tanh = l.node.op == "FastGelu";
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.get(l.in[0], i);
    if (l.has(1)) x = s.add(x, l.getBroadcast(l.in[1], i));
    return tanh ? geluTanh(s, x) : geluErf(s, x);
  });
  return success();
}
LogicalResult swiglu(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.get(l.in[0], i), y = l.get(l.in[1], i);
    return s.mul(s.mul(x, s.sigmoid(s.mul(s.constant(l.node.real("alpha", 1)), x))), y);
  });
  return success();
}

LogicalResult isInf(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  bool negative = l.node.integer("detect_negative", 1), positive = l.node.integer("detect_positive", 1);
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.get(l.in[0], i), no = l.bit(0);
    Value up = positive ? s.equal(x, s.highest()) : no, down = negative ? s.equal(x, s.lowest()) : no;
    return arith::OrIOp::create(l.b, l.loc, up, down);
  });
  return success();
}

using Binary = Value (*)(const Lower &, const Scalars &, Value, Value);
template <Binary fn>
LogicalResult binary(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  l.result([&](ArrayRef<Dim> i) { return fn(l, s, l.getBroadcast(l.in[0], i), l.getBroadcast(l.in[1], i)); });
  return success();
}

LogicalResult power(Lower &l) {
  Type element = l.element(0);
  Type wide = isFloat(element) && !element.isF64() && isFloat(l.element(1)) && !l.element(1).isF64() ? Type(l.b.getF32Type()) : Type(l.b.getF64Type());
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.convert(l.getBroadcast(l.in[0], i), element, wide), y = l.convert(l.getBroadcast(l.in[1], i), l.element(1), wide);
    return l.convert(math::PowFOp::create(l.b, l.loc, x, y), wide, element);
  });
  return success();
}
LogicalResult modulo(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  bool c = l.node.integer("fmod", 0);
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.getBroadcast(l.in[0], i), y = l.getBroadcast(l.in[1], i);
    return c ? s.rem(x, y) : s.mod(x, y);
  });
  return success();
}
LogicalResult bitShift(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  unsigned width = l.element(0).getIntOrFloatBitWidth();
  StringRef direction = l.node.string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") return l.node.error("attribute 'direction' LEFT or RIGHT", "'" + direction + "'");
  l.result([&](ArrayRef<Dim> i) -> Value {
    Value x = l.getBroadcast(l.in[0], i), y = l.getBroadcast(l.in[1], i);
    Value inside = arith::CmpIOp::create(l.b, l.loc, arith::CmpIPredicate::ult, y, s.constant(width));
    Value amount = s.select(inside, y, s.constant(0));
    Value r = direction == "LEFT" ? Value(arith::ShLIOp::create(l.b, l.loc, x, amount))
              : s.isUnsigned      ? Value(arith::ShRUIOp::create(l.b, l.loc, x, amount))
                                  : Value(arith::ShRSIOp::create(l.b, l.loc, x, amount));
    // Everything is shifted out: signs stay on the right.
    Value gone = s.constant(0);
    if (direction == "RIGHT" && !s.isUnsigned) gone = s.select(s.less(x, gone), s.constant(-1), gone);
    return s.select(inside, r, gone);
  });
  return success();
}
LogicalResult prelu(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.get(l.in[0], i);
    return s.select(s.less(x, s.constant(0)), s.mul(l.getBroadcast(l.in[1], i), x), x);
  });
  return success();
}
LogicalResult variadic(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  StringRef op = l.node.op;
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.getBroadcast(l.in[0], i);
    for (size_t k = 1; k < l.in.size(); ++k) {
      Value y = l.getBroadcast(l.in[k], i);
      x = op == "Max" ? s.max(x, y) : op == "Min" ? s.min(x, y) : s.add(x, y);
    }
    return op == "Mean" ? s.div(x, s.constant(double(l.in.size()))) : x;
  });
  return success();
}
LogicalResult where(Lower &l) {
  l.result([&](ArrayRef<Dim> i) -> Value {
    return arith::SelectOp::create(l.b, l.loc, l.getBroadcast(l.in[0], i), l.getBroadcast(l.in[1], i), l.getBroadcast(l.in[2], i));
  });
  return success();
}
LogicalResult clip(Lower &l) {
  Scalars s = l.scalars(l.element(0));
  for (unsigned k : {1u, 2u})
    if (l.has(k) && l.in[k].rank() > 1) return l.node.error("a scalar bound", l.types.describe(k));
  l.result([&](ArrayRef<Dim> i) {
    Value x = l.get(l.in[0], i);
    if (l.has(1)) x = s.max(x, l.scalar(l.in[1]));
    else if (l.node.has("min")) x = s.max(x, s.constant(l.node.real("min", 0)));
    if (l.has(2)) x = s.min(x, l.scalar(l.in[2]));
    else if (l.node.has("max")) x = s.min(x, s.constant(l.node.real("max", 0)));
    return x;
  });
  return success();
}
LogicalResult cast(Lower &l) {
  bool saturate = l.node.integer("saturate", 1);
  StringRef mode = l.node.string("round_mode", "up");
  if (mode != "up" && isa<Float8E8M0FNUType>(l.resultElement())) return l.node.error("round_mode 'up'", "'" + mode + "'");
  l.result([&](ArrayRef<Dim> i) { return l.convert(l.get(l.in[0], i), l.element(0), l.resultElement(), saturate); });
  return success();
}
LogicalResult bitCast(Lower &l) {
  Type from = storageType(l.element(0)), to = storageType(l.resultElement());
  l.result([&](ArrayRef<Dim> i) {
    Value stored = l.narrow(l.get(l.in[0], i), l.element(0));
    if (from != to) stored = arith::BitcastOp::create(l.b, l.loc, to, stored);
    return l.widen(stored, l.resultElement());
  });
  return success();
}
LogicalResult identity(Lower &l) {
  l.out.push_back(l.in[0]);
  return success();
}
LogicalResult dropout(Lower &l) {
  l.out.push_back(l.in[0]);
  if (l.types.wanted > 1) l.out.push_back(l.generate(l.resultElement(1), l.shape(1), [&](ArrayRef<Dim>) { return l.bit(1); }));
  return success();
}

#define UNARY(body) unary<[](const Lower &l, const Scalars &s, Value x) -> Value { (void)l; return body; }>
#define BINARY(body) binary<[](const Lower &l, const Scalars &s, Value x, Value y) -> Value { (void)l; return body; }>

} // namespace

ArrayRef<LowerEntry> elementwiseLowerings() {
  static const char *ms = "com.microsoft";
  static const LowerEntry table[] = {
      {"", "Exp", unary<direct<math::ExpOp>>}, {"", "Log", unary<direct<math::LogOp>>},
      {"", "Sin", unary<direct<math::SinOp>>}, {"", "Cos", unary<direct<math::CosOp>>}, {"", "Tan", unary<direct<math::TanOp>>},
      {"", "Asin", unary<direct<math::AsinOp>>}, {"", "Acos", unary<direct<math::AcosOp>>}, {"", "Atan", unary<direct<math::AtanOp>>},
      {"", "Sinh", unary<direct<math::SinhOp>>}, {"", "Cosh", unary<direct<math::CoshOp>>}, {"", "Tanh", unary<direct<math::TanhOp>>},
      {"", "Asinh", unary<direct<math::AsinhOp>>}, {"", "Acosh", unary<direct<math::AcoshOp>>}, {"", "Atanh", unary<direct<math::AtanhOp>>},
      {"", "Erf", UNARY(s.floating ? s.erf(x) : l.convert(math::ErfOp::create(s.b, s.loc, l.convert(x, s.element, s.b.getF32Type())), s.b.getF32Type(), s.element))},
      {"", "Sqrt", unary<direct<math::SqrtOp>>}, {"", "Ceil", unary<direct<math::CeilOp>>}, {"", "Floor", unary<direct<math::FloorOp>>},
      {"", "Round", unary<direct<math::RoundEvenOp>>},
      {"", "Abs", UNARY(s.abs(x))}, {"", "Neg", UNARY(s.neg(x))}, {"", "Reciprocal", UNARY(s.div(s.constant(1), x))},
      {"", "Sigmoid", UNARY(s.sigmoid(x))}, {"", "Relu", UNARY(s.max(x, s.constant(0)))}, {"", "Softplus", UNARY(softplus(s, x))},
      {"", "Softsign", UNARY(s.div(x, s.add(s.constant(1), s.abs(x))))},
      {"", "Sign", UNARY(s.select(s.less(s.constant(0), x), s.constant(1), s.isUnsigned ? s.constant(0) : s.select(s.less(x, s.constant(0)), s.constant(-1), s.select(s.equal(x, s.constant(0)), s.constant(0), x))))},
      {"", "Not", UNARY(arith::XOrIOp::create(s.b, s.loc, x, l.bit(1)))},
      {"", "BitwiseNot", UNARY(arith::XOrIOp::create(s.b, s.loc, x, s.constant(-1)))},
      {"", "IsNaN", UNARY(arith::CmpFOp::create(s.b, s.loc, arith::CmpFPredicate::UNO, x, x))},
      {"", "IsInf", isInf},
      {"", "Elu", elu}, {"", "Selu", elu}, {"", "Celu", elu},
      {"", "LeakyRelu", activation}, {"", "ThresholdedRelu", activation}, {"", "HardSigmoid", activation}, {"", "HardSwish", activation},
      {"", "Swish", activation}, {"", "Mish", activation}, {"", "Gelu", activation}, {"", "Shrink", activation},
      {ms, "Gelu", activation}, {ms, "QuickGelu", activation}, {ms, "BiasGelu", biasedGelu}, {ms, "FastGelu", biasedGelu},
      {"", "SwiGLU", swiglu},
      {"", "Add", BINARY(s.add(x, y))}, {"", "Sub", BINARY(s.sub(x, y))}, {"", "Mul", BINARY(s.mul(x, y))}, {"", "Div", BINARY(s.div(x, y))},
      {"", "Mod", modulo}, {"", "Pow", power},
      {"", "And", BINARY(arith::AndIOp::create(s.b, s.loc, x, y))}, {"", "Or", BINARY(arith::OrIOp::create(s.b, s.loc, x, y))},
      {"", "Xor", BINARY(arith::XOrIOp::create(s.b, s.loc, x, y))},
      {"", "BitwiseAnd", BINARY(arith::AndIOp::create(s.b, s.loc, x, y))}, {"", "BitwiseOr", BINARY(arith::OrIOp::create(s.b, s.loc, x, y))},
      {"", "BitwiseXor", BINARY(arith::XOrIOp::create(s.b, s.loc, x, y))},
      {"", "BitShift", bitShift},
      {"", "Equal", BINARY(s.equal(x, y))}, {"", "Less", BINARY(s.less(x, y))}, {"", "Greater", BINARY(s.less(y, x))},
      {"", "LessOrEqual", BINARY(s.lessEqual(x, y))}, {"", "GreaterOrEqual", BINARY(s.lessEqual(y, x))},
      {"", "PRelu", prelu},
      {"", "Max", variadic}, {"", "Min", variadic}, {"", "Sum", variadic}, {"", "Mean", variadic},
      {"", "Where", where}, {"", "Clip", clip}, {"", "Cast", cast}, {"", "CastLike", cast}, {"", "BitCast", bitCast},
      {"", "Identity", identity}, {"", "Dropout", dropout},
  };
  return table;
}

} // namespace lathe::ops
