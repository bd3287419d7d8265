//===- Array.h - tensors of the onnx interpreter -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "ONNXOps/Types.h"
#include "lathe/ONNX/Numbers.h"
#include <functional>

namespace lathe::interp {

using Sizes = std::vector<int64_t>;
using onnx::broadcastPlace;
using onnx::castTo;
using onnx::forEach;
using onnx::placeOf;
using onnx::roundTo;
using onnx::wrapTo;

/// Values of float types as double, of all others as 64-bit integers (uint64 by its bits, bool 0 or 1).
struct Array {
  onnx::DataType type = onnx::DataType::undefined;
  Sizes shape;
  std::vector<double> f;
  std::vector<int64_t> i;

  bool floating() const { return onnx::isFloat(type); }
  bool isUnsigned() const { return onnx::isUnsigned(type); }
  int64_t count() const;
  int64_t rank() const { return int64_t(shape.size()); }
  /// Element |k| as double, whatever the type.
  double number(int64_t k) const { return floating() ? f[size_t(k)] : isUnsigned() ? double(uint64_t(i[size_t(k)])) : double(i[size_t(k)]); }
  /// Stores |x| rounded, or |n| wrapped, to the type.
  void put(int64_t k, double x);
  void putInt(int64_t k, int64_t n);
  void copy(int64_t k, const Array &from, int64_t j) {
    if (floating()) f[size_t(k)] = from.f[size_t(j)];
    else i[size_t(k)] = from.i[size_t(j)];
  }
};

/// Whole numbers as ONNX Runtime adds and multiplies them: modulo 2^64. A graph's numbers are anybody's.
inline int64_t plus(int64_t x, int64_t y) { return int64_t(uint64_t(x) + uint64_t(y)); }
inline int64_t minus(int64_t x, int64_t y) { return int64_t(uint64_t(x) - uint64_t(y)); }
inline int64_t times(int64_t x, int64_t y) { return int64_t(uint64_t(x) * uint64_t(y)); }
/// |x| without its fraction, up to 2^64 (by its bits); 0 for NaN and INT64_MIN for what no integer of 64 bits is.
int64_t truncated(double x);

Array makeArray(onnx::DataType type, Sizes shape);

/// Errors: unsupported (no numbers), invalidArgument (as many bytes as the shape says are expected).
Result<Array> fromHost(const onnx::HostTensor &t);
onnx::HostTensor toHost(const Array &a);

/// One node's run. Result arrays are made with the inferred shapes; the function fills them.
struct Evaluation {
  const ops::NodeView &node;
  ops::TypeContext &types;
  std::vector<const Array *> in; ///< null: absent
  std::vector<Array> out;
  int64_t most; ///< elements that a result may have, also one whose size depends on data
  bool has(size_t k) const { return k < in.size() && in[k]; }
  const Array &a(size_t k) const { return *in[k]; }
  std::vector<int64_t> ints(size_t k) const { return in[k]->i; }
  Status bad(const std::string &expected, const std::string &found) const;
  /// invalidArgument if |steps| are out of all proportion to the elements that a result may have.
  Status work(double steps) const;
};
using EvalFn = Status (*)(Evaluation &);
struct EvalEntry {
  const char *domain, *op;
  EvalFn fn;
};
llvm::ArrayRef<EvalEntry> elementwiseEvaluations();
llvm::ArrayRef<EvalEntry> reductionEvaluations();
llvm::ArrayRef<EvalEntry> movementEvaluations();
llvm::ArrayRef<EvalEntry> indexingEvaluations();
llvm::ArrayRef<EvalEntry> networkEvaluations();
llvm::ArrayRef<EvalEntry> attentionEvaluations();
llvm::ArrayRef<EvalEntry> quantizationEvaluations();

} // namespace lathe::interp
