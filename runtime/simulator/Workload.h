//===- Workload.h - made-up requests ------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/scheduler/Scheduler.h"
#include <cstdint>
#include <string>
#include <vector>

namespace lathe::runtime {

/// Random numbers that are the same with every standard library.
class SimRandom {
public:
  explicit SimRandom(uint64_t seed) : state(seed) {}
  uint64_t next(); ///< splitmix64
  uint64_t below(uint64_t end) { return next() % end; }
  double uniform(); ///< in (0, 1)
  double exponential(double mean);
  double normal();
  /// A log-normal length with this mean, and standard deviation |spread| of its logarithm, clipped to low..high.
  uint32_t length(double mean, double spread, uint32_t low, uint32_t high);

private:
  uint64_t state;
};

/// A request, when it comes, and what the model will do with it.
struct SimRequest {
  double arrival = 0;
  ScheduledRequest spec;         ///< the id is set by the simulator: 1 + index
  std::vector<uint32_t> outputs; ///< [choices] tokens after which the model stops
  uint32_t tag = 0;              ///< 1 + the group whose prefix it has, 0: none
  double abortAfter = 0;         ///< seconds from arrival until the client goes; 0: it stays
};

/// A stream of requests. Each workload is a function of its parameters alone.
struct WorkloadOptions {
  uint32_t requests = 1000;
  double rate = 0;       ///< arrivals a second (Poisson); 0: all at time 0
  double burstiness = 1; ///< variance of the gaps between arrivals: of a gamma distribution with this shape; 1: Poisson
  double promptMean = 230, outputMean = 270, spread = 0.9;
  uint32_t promptMax = 2000, outputMax = 1000;
  uint32_t groups = 0; ///< not 0: requests come in groups, one after the other, that share a prefix
  uint32_t sharedTokens = 2048;
  double hotShare = 0;   ///< not 0: of requests that belong to a group, the rest being cold
  double abortShare = 0; ///< of clients that go after a random part of their answer
  uint32_t choices = 1;
  bool sayMaxTokens = true; ///< clients send max_tokens (= their length); else none
  uint32_t tenants = 1;     ///< named t0, t1, ... in turn
  double ttftTarget = 0, tpotTarget = 0;
  uint64_t seed = 1;
};
std::vector<SimRequest> makeWorkload(const WorkloadOptions &options);

} // namespace lathe::runtime
