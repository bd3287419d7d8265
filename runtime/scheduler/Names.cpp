//===- Names.cpp - enumerations as text -----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/StepPlan.h"
#include <iterator>
#include <string>

namespace lathe::runtime {

const char *toString(EndReason reason) {
  static const char *const names[] = {"stop", "length", "cancelled", "timeout", "failed", "rejected"};
  return names[static_cast<size_t>(reason)];
}

static const char *const policyNames[] = {"fcfs", "priority", "fair", "deadline"};
const char *toString(SchedulingPolicy policy) { return policyNames[static_cast<size_t>(policy)]; }

Result<SchedulingPolicy> parsePolicy(std::string_view name) {
  for (size_t i = 0; i < std::size(policyNames); ++i)
    if (name == policyNames[i]) return static_cast<SchedulingPolicy>(i);
  return makeError(StatusCode::invalidArgument, "unknown policy '%s', expected fcfs, priority, fair or deadline",
                   std::string(name.substr(0, 64)).c_str());
}

const char *toString(PreemptionMode mode) {
  static const char *const names[] = {"automatic", "recompute", "save"};
  return names[static_cast<size_t>(mode)];
}

const char *toString(Reason reason) {
  static const char *const names[] = {"decode",           "prefill",
                                      "prefill-chunk",    "prefill-contended",
                                      "admit-first",      "admit-hit",
                                      "admit-again",      "admit-restored",
                                      "admit-guarded",    "admit-next",
                                      "wait-rows",        "wait-blocks",
                                      "wait-headroom",    "wait-budget",
                                      "wait-prefix",      "wait-preempted",
                                      "wait-tpot",        "preempt-blocks",
                                      "preempt-priority", "end-stop",
                                      "end-length",       "end-cancelled",
                                      "end-timeout",      "end-failed",
                                      "reject-ttft",      "reject-tpot",
                                      "reject-queue",     "reject-tokens",
                                      "reject-invalid",   "none"};
  static_assert(std::size(names) == reasonCount);
  return names[static_cast<size_t>(reason)];
}

} // namespace lathe::runtime
