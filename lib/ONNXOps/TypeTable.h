//===- TypeTable.h - arity, element kinds and type functions -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "ONNXOps/Types.h"

namespace lathe::ops {

struct TypeEntry {
  const char *domain, *op;
  int least, most; ///< inputs; most -1: any number
  /// A letter per input, the last one for all that follow: a any, n number, f float, i integer, b bool, '-' the element type of the input before.
  const char *kinds;
  TypeFn fn;
};

const std::vector<TypeEntry> &coreOperators();
/// Norms, attention, rotary embedding, quantization: what is more than a tensor primitive; com.microsoft too.
const std::vector<TypeEntry> &networkOperators();

/// The number, or that only the run knows it.
std::string text(Dim n);
/// Input |i| has one element, whatever its rank.
mlir::LogicalResult oneElement(TypeContext &c, unsigned i, const llvm::Twine &what);
/// Each of |axes| is within -rank .. rank-1, and none comes twice.
mlir::LogicalResult distinctAxes(TypeContext &c, llvm::ArrayRef<Dim> axes, int64_t rank);
/// Input |i| has the rank of |extents|, and each of its dimensions is 1 or the extent there.
mlir::LogicalResult oneOrExtent(TypeContext &c, unsigned i, llvm::ArrayRef<Dim> extents, const llvm::Twine &what);
/// The product of |sizes| is at most 2^40: one that wraps would be memory of another size.
mlir::LogicalResult bounded(TypeContext &c, llvm::ArrayRef<Dim> sizes);
/// Input |i| broadcasts to input 0.
mlir::LogicalResult broadcastsToFirst(TypeContext &c, unsigned i);

} // namespace lathe::ops
