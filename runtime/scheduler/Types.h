//===- Types.h - words that engine, scheduler and server share ----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <string_view>

namespace lathe::runtime {

/// Never 0, never used again in the life of the process.
using RequestId = uint64_t;

/// Why a choice ended.
enum class EndReason : uint8_t {
  stop,      ///< a stop token or a stop string
  length,    ///< maxTokens, or the context is full
  cancelled, ///< cancel()
  timeout,   ///< the request's deadline passed
  failed,    ///< an error of this request
  rejected,  ///< the deadline policy foresees that the targets cannot be met; no token was computed
};
const char *toString(EndReason reason);

enum class SchedulingPolicy : uint8_t { fcfs, priority, fair, deadline };
const char *toString(SchedulingPolicy policy);
/// Error: invalidArgument, naming the policies there are.
Result<SchedulingPolicy> parsePolicy(std::string_view name);

enum class PreemptionMode : uint8_t { automatic, recompute, save };
const char *toString(PreemptionMode mode);

} // namespace lathe::runtime
