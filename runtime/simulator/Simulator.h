//===- Simulator.h - the scheduler on a simulated clock -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The scheduler and the KV manager as they serve, with a device that only takes time. One thread, no clock: the same
// input gives the same report.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/simulator/Workload.h"
#include <functional>
#include <span>

namespace lathe::runtime {

/// Seconds of a step by its rows: points, linear between them and beyond the last two.
class StepTimes {
public:
  /// |fixed| seconds a step and |perRow| a row. The default has the shape of SmolLM2-135M (Q4_1) on two Zen 4 cores.
  explicit StepTimes(double fixed = 2.6e-3, double perRow = 0.55e-3)
      : points{{0, fixed}, {1000, fixed + 1000 * perRow}} {}
  /// Lines "ROWS SECONDS" in rising order, '#' begins a comment. Error: dataLoss, naming the line.
  static Result<StepTimes> parse(std::string_view text);
  double seconds(double rows) const;

private:
  std::vector<std::pair<double, double>> points;
};

struct SimOptions {
  SchedulerOptions scheduler;
  Program program;       ///< KV groups; empty: one full attention group of 16-token pages and 23 KiB a token
  uint64_t kvTokens = 0; ///< KV cache; 0: maxSequences contexts
  StepTimes times;
  double historyWeight = 0; ///< rows that a token weighs that a row attends to, for |times|
  double noise = 0; ///< standard deviation of a step's time, as a share of it
  /// Other programs take a processor away: so often a second of steps, for an exponential time with this mean.
  double stallsPerSecond = 0, stallSeconds = 0;
  uint64_t seed = 1;
  double restoreSecondsPerBlock = 0; ///< a transfer of a block between device and host adds to the step
  uint32_t checkEvery = 0; ///< not 0: invariants after every so many events; the run ends at the first broken one
  TraceSink *trace = nullptr;
  /// Called after each commit, with the time.
  std::function<void(const Scheduler &, const StepPlan &, double)> afterStep;
  /// Called for every new token: request index, choice, time.
  std::function<void(size_t, uint32_t, double)> onToken;
  std::function<void(size_t, double)> onAdmitted; ///< first admission of a request
};

/// Of one request.
struct SimOutcome {
  enum class State { waiting, refused, ended } state = State::waiting;
  EndReason end = EndReason::stop;
  double queued = -1, firstToken = -1, lastToken = -1; ///< times; -1: never
  double longestGap = 0;
  uint32_t tokens = 0, cached = 0, preemptions = 0;
  /// Seconds a token after the first, mean over the answer.
  double tpot() const { return tokens > 1 ? (lastToken - firstToken) / (tokens - 1) : 0; }
};

struct SimReport {
  std::vector<SimOutcome> outcomes; ///< [request]
  std::vector<double> ttft, gaps;   ///< sorted; of all requests that had a token
  double seconds = 0;               ///< until the last event
  double busySeconds = 0;
  uint64_t promptTokens = 0; ///< of requests that were admitted
  double occupancy = 0;      ///< running sequences over maxSequences, mean over the busy time while requests wait
  uint32_t maxRunning = 0, maxPreemptions = 0;
  SchedulerStats stats;
  double percentile(const std::vector<double> &sorted, double p) const;
  /// Requests that met both targets (0: no target), a second.
  double goodput(std::span<const SimRequest> requests) const;
};

/// Error: what Scheduler::create() says, or internal: an invariant, or a plan without progress.
Result<SimReport> simulate(std::span<const SimRequest> requests, const SimOptions &options);

} // namespace lathe::runtime
