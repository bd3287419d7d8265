//===- Replay.h - a trace run again -------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::runtime {

struct ReplayResult {
  uint64_t events = 0, decisions = 0, steps = 0;
  bool same = false;
  uint64_t line = 0;           ///< not same: the first line that differs, from 1
  std::string expected, found; ///< not same: of the trace, of the replay
};

/// Feeds the events of |trace| (docs/engine.md, "Traces") to a scheduler and compares what it decides, line by line.
/// Errors: dataLoss (no trace, or a line that cannot be read: it is named), and what Scheduler::create() says of its
/// options. The text is not trusted.
Result<ReplayResult> replayTrace(std::string_view trace);

} // namespace lathe::runtime
