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

} // namespace lathe::ops
