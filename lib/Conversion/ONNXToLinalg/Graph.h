//===- Graph.h - lowering of a whole onnx function -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "ONNXToLinalg/Lower.h"
#include "ONNXOps/View.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lathe::ops {

/// Lowers the body of an onnx function into the function at the builder's insertion point.
class GraphLowering {
public:
  GraphLowering(mlir::OpBuilder &builder, mlir::ModuleOp module) : b(builder), target(module) {}
  /// The tensor that stands for |value| from now on.
  void map(mlir::Value value, TensorValue tensor) { values[value] = std::move(tensor); }
  TensorValue lookup(mlir::Value value) const { return values.lookup(value); }
  /// Lowers all ops of |block| but its terminator.
  mlir::LogicalResult block(mlir::Block &block);
  /// What a failed check means: text |i| belongs to lathe_graph_fail(i).
  const std::vector<std::string> &checks() const { return texts; }

private:
  mlir::LogicalResult node(onnx::NodeOp op);
  mlir::LogicalResult conditional(onnx::NodeOp op, const NodeView &view);
  std::optional<Dims> elementsOf(mlir::Value value, const TensorValue &t);
  std::optional<Dims> foldElements(onnx::NodeOp op, const NodeView &view);
  void check(const DimMath &d, mlir::Location loc, Dim condition, const std::string &text);

  mlir::OpBuilder &b;
  mlir::ModuleOp target;
  llvm::DenseMap<mlir::Value, TensorValue> values;
  /// Elements of small integer tensors that shape computations use.
  llvm::DenseMap<mlir::Value, Dims> elements;
  std::vector<std::string> texts;
};

/// The constant as a constant of the storage type.
mlir::DenseElementsAttr storedConstant(mlir::ElementsAttr value);

} // namespace lathe::ops
