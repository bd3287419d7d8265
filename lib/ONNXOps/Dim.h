//===- Dim.h - extents that are numbers, IR values or unknown ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The shape functions of ONNX operators are written once, over `Dim`. Without a builder they infer types: what is not a
// number stays unknown. With a builder they are the run-time shape computation of the compiled code: what is not a number
// becomes arithmetic on `index` values. Numbers are folded in both, so the two cannot disagree.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/Builders.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace lathe::ops {

/// An integer of a shape computation; booleans are 0 and 1.
struct Dim {
  Dim() = default; ///< unknown
  Dim(int64_t number) : known(number) {}
  explicit Dim(mlir::Value indexValue) : value(indexValue) {}
  std::optional<int64_t> known;
  mlir::Value value; ///< of type index, if not known
  bool is(int64_t number) const { return known == number; }
};
using Dims = llvm::SmallVector<Dim>;

/// Arithmetic on Dims, folding what is known. A division by 0 gives 0; floorDiv rounds towards negative infinity, ceilDiv towards positive.
class DimMath {
public:
  DimMath() = default;
  DimMath(mlir::OpBuilder &b, mlir::Location where) : builder(&b), loc(where) {}
  bool emits() const { return builder != nullptr; }
  mlir::OpBuilder &b() const { return *builder; }

  Dim add(Dim x, Dim y) const;
  Dim sub(Dim x, Dim y) const;
  Dim mul(Dim x, Dim y) const;
  Dim floorDiv(Dim x, Dim y) const;
  Dim ceilDiv(Dim x, Dim y) const;
  Dim min(Dim x, Dim y) const;
  Dim max(Dim x, Dim y) const;
  Dim less(Dim x, Dim y) const;
  Dim equal(Dim x, Dim y) const;
  Dim both(Dim x, Dim y) const;
  Dim either(Dim x, Dim y) const;
  Dim negate(Dim x) const { return equal(x, 0); }
  Dim select(Dim condition, Dim x, Dim y) const;
  Dim product(llvm::ArrayRef<Dim> dims) const;
  /// |list|[|position|], for a position that may be a value.
  Dim pick(llvm::ArrayRef<Dim> list, Dim position) const;
  /// x < 0 ? x + extent : x
  Dim wrap(Dim x, Dim extent) const { return select(less(x, 0), add(x, extent), x); }
  /// The index value of a Dim; only with a builder and for a Dim that is not unknown.
  mlir::Value value(Dim x) const;

private:
  mlir::OpBuilder *builder = nullptr;
  std::optional<mlir::Location> loc;
};

} // namespace lathe::ops
