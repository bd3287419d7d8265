//===- Predict.h - the time that a step should take ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Limits.h"
#include "lathe/artifact/Program.h"

namespace lathe::tool {

/// What launches do in a step, and the seconds it takes: |measured| the median, |fastest| the shortest.
struct Figures {
  uint64_t launches = 0;
  double bytes = 0, macs = 0, memory = 0, compute = 0, exchange = 0, predicted = 0, measured = 0, fastest = 0;
};

/// Launch |l| in a step of |rows| rows, |rowsOfSequence| of each sequence, that see |entries| KV entries together. |fromCache|: its seconds without
/// waiting for weights (KernelProbe), or 0 for those of the limits.
Figures workOf(const Launch &l, double rows, double rowsOfSequence, double entries, const MachineLimits &limits, double fromCache = 0);

/// Predicted seconds of feeding |tokens| tokens to each of |batch| sequences that hold |depth| tokens, in steps as wide
/// as the program allows, with logits of the last row of each sequence, or with |greedy| their largest.
double predictSeconds(const Program &program, uint64_t tokens, uint64_t batch, uint64_t depth,
                      const MachineLimits &limits, bool greedy = false);

} // namespace lathe::tool
