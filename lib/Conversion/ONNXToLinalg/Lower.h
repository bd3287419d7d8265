//===- Lower.h - building blocks of the general lowering -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// An operator becomes tensor.generate (each result element says how it is computed), linalg.generic for products of
// matrices, and scf.for over tensors where results are written in an order of their own. Elements in memory have a
// storage type: bool and types below 8 bits are bytes, bfloat16 and the 8-bit floats are their bits; arithmetic is
// done in a compute type: float for all narrower floats, i1 for bool.
//===----------------------------------------------------------------------===//
#pragma once
#include "ONNXOps/Types.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <functional>

namespace lathe::ops {

/// How an element lies in memory, and what arithmetic sees.
mlir::Type storageType(mlir::Type element);
mlir::Type computeType(mlir::Type element);

/// A tensor value: storage-typed, with the ONNX element type that says what it means.
struct TensorValue {
  mlir::Value value; ///< null: absent
  mlir::Type element;
  Dims shape;
  explicit operator bool() const { return bool(value); }
  int64_t rank() const { return int64_t(shape.size()); }
};

using Index = llvm::SmallVector<Dim>;

/// Scalar arithmetic on compute-typed values of one ONNX element type.
class Scalars {
public:
  Scalars(mlir::OpBuilder &builder, mlir::Location where, mlir::Type elementType)
      : b(builder), loc(where), element(elementType), compute(computeType(elementType)), floating(isFloat(elementType)), isUnsigned(ops::isUnsigned(elementType) || isBool(elementType)) {}
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type element, compute;
  bool floating, isUnsigned;

  mlir::Value constant(double x) const;
  mlir::Value add(mlir::Value x, mlir::Value y) const;
  mlir::Value sub(mlir::Value x, mlir::Value y) const;
  mlir::Value mul(mlir::Value x, mlir::Value y) const;
  /// Integers: towards zero; a division by 0 gives 0.
  mlir::Value div(mlir::Value x, mlir::Value y) const;
  /// C's remainder, or with the divisor's sign.
  mlir::Value rem(mlir::Value x, mlir::Value y) const;
  mlir::Value mod(mlir::Value x, mlir::Value y) const;
  /// NaN if one is.
  mlir::Value max(mlir::Value x, mlir::Value y) const;
  mlir::Value min(mlir::Value x, mlir::Value y) const;
  mlir::Value neg(mlir::Value x) const { return floating ? mlir::Value(mlir::arith::NegFOp::create(b, loc, x)) : sub(constant(0), x); }
  mlir::Value abs(mlir::Value x) const;
  mlir::Value less(mlir::Value x, mlir::Value y) const;
  mlir::Value lessEqual(mlir::Value x, mlir::Value y) const;
  mlir::Value equal(mlir::Value x, mlir::Value y) const;
  mlir::Value select(mlir::Value c, mlir::Value x, mlir::Value y) const { return mlir::arith::SelectOp::create(b, loc, c, x, y); }
  /// Smallest and largest value: infinities for floats.
  mlir::Value lowest() const;
  mlir::Value highest() const;
  template <typename Op>
  mlir::Value math(mlir::Value x) const {
    return Op::create(b, loc, x);
  }
  mlir::Value exp(mlir::Value x) const { return math<mlir::math::ExpOp>(x); }
  mlir::Value log(mlir::Value x) const { return math<mlir::math::LogOp>(x); }
  mlir::Value sqrt(mlir::Value x) const { return math<mlir::math::SqrtOp>(x); }
  mlir::Value tanh(mlir::Value x) const { return math<mlir::math::TanhOp>(x); }
  mlir::Value erf(mlir::Value x) const { return math<mlir::math::ErfOp>(x); }
  /// 1 / (1 + exp(-x)), without overflow.
  mlir::Value sigmoid(mlir::Value x) const;
};

/// The lowering of one node.
class Lower {
public:
  Lower(mlir::OpBuilder &builder, TypeContext &typeContext) : b(builder), loc(typeContext.node.loc), types(typeContext), node(typeContext.node), d(typeContext.d) {}
  mlir::OpBuilder &b;
  mlir::Location loc;
  TypeContext &types; ///< its results are inferred
  const NodeView &node;
  DimMath d;
  llvm::SmallVector<TensorValue> in;
  llvm::SmallVector<TensorValue> out; ///< what the lowering appends

  bool has(unsigned i) const { return i < in.size() && in[i]; }
  mlir::Type element(unsigned i) const { return in[i].element; }
  /// Shape and element type of result |i|.
  const Dims &shape(unsigned i = 0) const { return types.results[i].shape; }
  mlir::Type resultElement(unsigned i = 0) const { return types.results[i].element; }
  Scalars scalars(mlir::Type element) const { return Scalars(b, loc, element); }

  // Elements.
  mlir::Value get(const TensorValue &t, llvm::ArrayRef<Dim> index) const;
  /// |t| broadcast to the rank of |index| (numpy's rule).
  mlir::Value getBroadcast(const TensorValue &t, llvm::ArrayRef<Dim> index) const;
  /// An integer element as an index.
  Dim getIndex(const TensorValue &t, llvm::ArrayRef<Dim> index) const;
  mlir::Value widen(mlir::Value stored, mlir::Type element) const;
  mlir::Value narrow(mlir::Value computed, mlir::Type element) const;
  /// ONNX Cast of a compute-typed value; |saturate| is about 8-bit floats.
  mlir::Value convert(mlir::Value x, mlir::Type from, mlir::Type to, bool saturate = true) const;
  mlir::Value bit(Dim condition) const; ///< as i1
  Dim dim(mlir::Value i1) const;

  // Loops and tensors.
  using ElementFn = std::function<mlir::Value(llvm::ArrayRef<Dim> index)>;
  TensorValue generate(mlir::Type element, const Dims &shape, const ElementFn &fn) const;
  void result(const ElementFn &fn) { out.push_back(generate(resultElement(out.size()), shape(out.size()), fn)); }
  using ReduceFn = std::function<llvm::SmallVector<mlir::Value>(Dim i, mlir::ValueRange sums)>;
  llvm::SmallVector<mlir::Value> loop(Dim from, Dim to, mlir::ValueRange init, const ReduceFn &fn) const;
  /// One carried value.
  mlir::Value fold(Dim from, Dim to, mlir::Value init, const std::function<mlir::Value(Dim i, mlir::Value sum)> &fn) const;
  /// Loops over a whole index space, the first dimension outermost.
  mlir::Value foldAll(llvm::ArrayRef<Dim> from, llvm::ArrayRef<Dim> to, mlir::Value init, const std::function<mlir::Value(llvm::ArrayRef<Dim> index, mlir::Value sum)> &fn) const;
  mlir::Value choose(mlir::Value condition, const std::function<mlir::Value()> &yes, const std::function<mlir::Value()> &no) const;
  /// A tensor to be written by insert().
  TensorValue empty(mlir::Type element, const Dims &shape) const;
  mlir::Value insert(mlir::Value tensor, mlir::Value stored, llvm::ArrayRef<Dim> index) const;
  TensorValue reshape(const TensorValue &t, const Dims &shape) const;
  /// Elements as they are, in a new tensor of |shape|.
  TensorValue broadcast(const TensorValue &t, const Dims &shape) const;
  TensorValue cast(const TensorValue &t, mlir::Type element) const;
  /// A scalar of one element in |t|.
  mlir::Value scalar(const TensorValue &t) const { return get(t, Index(t.rank(), Dim(0))); }
  mlir::RankedTensorType tensorType(mlir::Type element, const Dims &shape) const;
  Dims dims(mlir::Value tensor) const;
  mlir::Value constantIndex(int64_t i) const { return mlir::arith::ConstantIndexOp::create(b, loc, i); }
  mlir::SmallVector<mlir::Value> values(llvm::ArrayRef<Dim> list) const;

  /// The run ends with an error that says |expected| unless |condition| holds.
  void check(Dim condition, const std::string &expected) const { (void)types.require(condition, expected, "another value"); }

  // Shared by several operators.
  /// a [.., m, k] times b [.., k, n] (with |transposed|: [.., n, k]), equal leading dimensions; the result has computeType(element).
  TensorValue matmul(const TensorValue &a, const TensorValue &b, mlir::Type element, bool transposed = false) const;
  /// Probabilities along the last dimension; rows of -inf give zeros if |guard|.
  TensorValue softmaxLast(const TensorValue &x, bool guard) const;
};

using LowerFn = mlir::LogicalResult (*)(Lower &);
/// Null for an operator without a lowering.
LowerFn lowerFunction(llvm::StringRef domain, llvm::StringRef op);

// The tables, one per file.
struct LowerEntry {
  const char *domain, *op;
  LowerFn fn;
};
llvm::ArrayRef<LowerEntry> elementwiseLowerings();
llvm::ArrayRef<LowerEntry> reductionLowerings();
llvm::ArrayRef<LowerEntry> movementLowerings();
llvm::ArrayRef<LowerEntry> indexingLowerings();
llvm::ArrayRef<LowerEntry> productLowerings();
llvm::ArrayRef<LowerEntry> networkLowerings();
llvm::ArrayRef<LowerEntry> attentionLowerings();
llvm::ArrayRef<LowerEntry> quantizationLowerings();

} // namespace lathe::ops
