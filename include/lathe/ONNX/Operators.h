//===- Operators.h - the operators that ONNX graphs may use ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Operators are data. A row says what the standard says of one version of an operator: arity and attributes.
// What Lathe can do with an operator (infer its types, run it) is a set of hooks that the file which implements it registers.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <string>
#include <string_view>
#include <vector>

namespace lathe::onnx {

/// Newest operator set of the standard that the table has.
constexpr int64_t newestOpset = 28;

struct AttributeSchema {
  enum Kind { number, integer, string, tensor, graph, numbers, integers, strings, other } kind = integer;
  std::string name;
  bool required = false;
  std::string fallback; ///< text of the default: "-1", "1e-05", "NOTSET"; empty: none
};

struct Operator {
  std::string domain; ///< "" is the standard's
  std::string name;
  int64_t since = 1; ///< first operator set that has this version
  int minInputs = 0, maxInputs = 0, minOutputs = 0, maxOutputs = 0; ///< most: -1 is any number
  bool deprecated = false;
  std::vector<AttributeSchema> attributes;

  const AttributeSchema *attribute(std::string_view name) const;
  /// Attributes that are graphs, in alphabetical order but for If, whose then_branch comes first: regions of onnx.op.
  std::vector<std::string> graphs() const;
};

/// The version of an operator that operator set |opset| of |domain| has. unsupported: the domain, the operator set or
/// the operator is unknown (the message says which is the nearest reason); the caller adds the node.
Result<const Operator *> findOperator(std::string_view domain, std::string_view name, int64_t opset);

} // namespace lathe::onnx
