//===- Types.h - result types of ONNX operators --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Type and shape inference of every operator that general code is generated for. The same functions give the compiled
// code its run-time shapes (Dim.h). Nothing here trusts the graph: a node that breaks the operator's rules gets an error
// with node name, operator, opset, what was expected and what was found.
//===----------------------------------------------------------------------===//
#pragma once
#include "ONNXOps/Dim.h"
#include "ONNXOps/Node.h"
#include "lathe/ONNX/Numbers.h"
#include "mlir/IR/BuiltinTypes.h"
#include <functional>

namespace lathe::ops {

/// What a type function is given, and where it puts its results.
class TypeContext {
public:
  TypeContext(const NodeView &n, DimMath math, unsigned resultCount) : node(n), d(math), wanted(resultCount) {}

  const NodeView &node;
  DimMath d;
  unsigned wanted; ///< results of the node
  struct Operand {
    mlir::Type element; ///< null: the optional input is absent
    Dims shape;
  };
  llvm::SmallVector<Operand> operands;
  /// The elements of integer input |i| if their number is known: as numbers if the input is constant, otherwise unknown or values.
  std::function<std::optional<Dims>(unsigned i)> elements;
  /// Called for a condition that only the run can tell.
  std::function<void(Dim condition, const std::string &expected)> runtimeCheck;
  llvm::SmallVector<Operand> results;
  bool unsupported = false; ///< the error says what Lathe does not cover, not that the graph is wrong

  bool has(unsigned i) const { return i < operands.size() && operands[i].element; }
  mlir::Type element(unsigned i) const { return operands[i].element; }
  const Dims &shape(unsigned i) const { return operands[i].shape; }
  int64_t rank(unsigned i) const { return int64_t(operands[i].shape.size()); }
  void result(mlir::Type element, Dims shape) { results.push_back({element, std::move(shape)}); }
  std::string describe(unsigned i) const;

  /// Holds now, or is checked when the code runs.
  mlir::LogicalResult require(Dim condition, const llvm::Twine &expected, const llvm::Twine &found);
  /// The list that older opsets give as |attribute| and newer ones as input |i|; an empty list where there is neither (|given| says).
  mlir::FailureOr<Dims> list(llvm::StringRef attribute, unsigned i, bool *given = nullptr);
  mlir::FailureOr<Dims> ints(unsigned i, const char *what);
  /// attribute |name| (default |otherwise|) as an axis of 0 .. rank-1 (or rank with |end|)
  mlir::FailureOr<int64_t> axis(int64_t rank, int64_t otherwise, const char *name = "axis", bool end = false);
  mlir::FailureOr<Dims> broadcast(llvm::ArrayRef<unsigned> inputs);
};

/// For every dimension whether |axes| (negative ones count from the end) name it.
Dims axisFlags(const DimMath &d, llvm::ArrayRef<Dim> axes, int64_t rank);
/// The entries of |list| whose flag is 0; there are |count|.
Dims withoutFlagged(const DimMath &d, llvm::ArrayRef<Dim> list, llvm::ArrayRef<Dim> flags, int64_t count);
/// The reverse: flagged places hold |fill|, the others the entries of |list| in order.
Dims insertFlagged(const DimMath &d, llvm::ArrayRef<Dim> list, llvm::ArrayRef<Dim> flags, Dim fill);

/// First element and step of every dimension of Slice's data input, for inputs and attributes of all opsets.
struct SliceSpec {
  Dims start, step, size;
};
mlir::FailureOr<SliceSpec> sliceSpec(TypeContext &c);
struct PadSpec {
  Dims before, after;
};
mlir::FailureOr<PadSpec> padSpec(TypeContext &c);
/// Terms of Einsum's equation: a number per index letter; ellipsis dimensions get numbers of their own.
struct EinsumSpec {
  llvm::SmallVector<llvm::SmallVector<int>> inputs;
  llvm::SmallVector<int> output;
  int indices = 0;
};
mlir::FailureOr<EinsumSpec> einsumSpec(TypeContext &c);
/// Shapes of the attention operators (ai.onnx Attention; com.microsoft MultiHeadAttention, GroupQueryAttention).
struct AttentionSpec {
  Dim batch, queries, keys, past, total;
  int64_t heads = 0, kvHeads = 0;
  Dim headSize, valueSize;
  bool query3d = false, keys3d = false, values3d = false; ///< [batch, sequence, heads * size]
  bool packed = false; ///< queries, keys and values are one input, in this order
};
mlir::FailureOr<AttentionSpec> attentionSpec(TypeContext &c);
/// com.microsoft Attention: rows of |hidden| features, one product for queries, keys and values; the past and the present are [2, batch, heads, sequence, size].
struct SelfAttentionSpec {
  Dim batch, queries, past, total, hidden, headSize;
  int64_t heads = 0;
};
mlir::FailureOr<SelfAttentionSpec> selfAttentionSpec(TypeContext &c);

using TypeFn = mlir::LogicalResult (*)(TypeContext &);

/// The type function of an operator; null if general code does not cover it.
TypeFn typeFunction(llvm::StringRef domain, llvm::StringRef op);
/// All of them, as (domain, operator), sorted.
std::vector<std::pair<std::string, std::string>> coveredOperators();
/// Checks arity and element types, then runs the type function.
mlir::LogicalResult inferTypes(TypeContext &c);

/// Element type from TensorProto.DataType; null for strings, complex numbers and integers of 2 bits.
mlir::Type elementType(mlir::MLIRContext *context, int64_t onnxType);

bool isFloat(mlir::Type element);
bool isBool(mlir::Type element);
bool isUnsigned(mlir::Type element);
/// Integers of any width, not bool.
bool isInt(mlir::Type element);

} // namespace lathe::ops
