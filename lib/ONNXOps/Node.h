//===- Node.h - one operator of a graph, as its semantics see it ---*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What type inference, interpreter and lowering share of an ONNX node: its name, opset version and attributes.
// Semantics: https://onnx.ai/onnx/operators and onnxruntime's docs/ContribOperators.md (domain com.microsoft).
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include <optional>
#include <string>

namespace lathe::ops {

/// Attributes have the forms of onnx.op: integer, float, string, and arrays of them.
struct NodeView {
  std::string name, op, domain;
  int64_t version = 1; ///< of the operator set that the model imports for the domain
  mlir::DictionaryAttr attributes;
  mlir::Location loc;

  bool has(llvm::StringRef attribute) const { return attributes && attributes.get(attribute); }
  int64_t integer(llvm::StringRef attribute, int64_t otherwise) const;
  double real(llvm::StringRef attribute, double otherwise) const;
  llvm::StringRef string(llvm::StringRef attribute, llvm::StringRef otherwise) const;
  /// nullopt: no such attribute.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef attribute) const;
  std::optional<llvm::SmallVector<double>> reals(llvm::StringRef attribute) const;

  /// "node '/model/layers.0/Add' (Add, opset 18)"; the domain is named unless it is ai.onnx.
  std::string where() const;
  /// Reports "WHERE: expected EXPECTED, found FOUND" and fails.
  mlir::LogicalResult error(const llvm::Twine &expected, const llvm::Twine &found) const;
};

/// "f32[2,?]" in the words of ONNX: "float[2,?]".
std::string typeText(mlir::Type type);
/// The ONNX name of an element type: "float", "uint8", "bool".
std::string elementText(mlir::Type element);

} // namespace lathe::ops
