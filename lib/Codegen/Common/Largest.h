//===- Largest.h - the largest value seen so far --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The order is that of ArgmaxParams: values that are no numbers to choose from (NaN, +infinity) beat all others, so that they are seen behind the
// kernel. Of equal values the lowest index wins, so the result does not depend on the order in which values are met.
//===----------------------------------------------------------------------===//
#pragma once
#include "Common/Emitter.h"

namespace lathe::codegen {

/// (value, index as float32), scalars or vectors of lanes that know nothing of each other.
struct Largest {
  Value value, index;

  /// Before any value, in the shape of |like|: -infinity at 0, which is right where nothing is larger.
  static Largest none(Emitter &e, Value like);
  /// After |v| at |at|, an index larger than those before.
  Largest with(Emitter &e, Value v, Value at) const;
  /// Of this and |other|, which has seen other indexes.
  Largest merged(Emitter &e, const Largest &other) const;
  /// Of all 16 lanes, as scalars.
  Largest ofLanes(Emitter &e) const;
};

/// Refuses, at |symbol|, what no emitter of an argmax takes: an empty row, one wider than float32 counts, strides below what a row and its pair need.
LogicalResult checkArgmax(ModuleOp module, StringRef symbol, const ArgmaxParams &p);

} // namespace lathe::codegen
