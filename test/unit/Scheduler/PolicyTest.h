//===- PolicyTest.h - simulated loads for tests of policies -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The production scheduler and KV manager; only the device is a function from rows to seconds. LATHE_FULL=1 makes the
// workloads ten times as large and adds the longest.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/simulator/Simulator.h"
#include <cstdlib>
#include <gtest/gtest.h>
#include <span>
#include <utility>

namespace lathe::runtime::test {

inline bool full() { return std::getenv("LATHE_FULL") != nullptr; }

inline SimOptions base(uint32_t sequences, uint64_t kvTokens, uint32_t context = 4096) {
  SimOptions o;
  o.scheduler.maxSequences = sequences;
  o.scheduler.contextTokens = context;
  o.scheduler.stepTokens = 256;
  o.scheduler.maxQueued = 1u << 20;
  o.kvTokens = kvTokens;
  o.noise = 0.03;
  o.checkEvery = full() ? 1000 : 50;
  return o;
}

inline SimReport mustRun(std::span<const SimRequest> requests, const SimOptions &options) {
  auto report = simulate(requests, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? std::move(*report) : SimReport();
}

/// What one request alone would do.
inline uint64_t totalOutputs(std::span<const SimRequest> requests) {
  uint64_t sum = 0;
  for (const SimRequest &r : requests)
    for (uint32_t n : r.outputs)
      sum += n;
  return sum;
}

inline void expectAllAnswered(std::span<const SimRequest> requests, const SimReport &report) {
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(report.outcomes[i].state, SimOutcome::State::ended) << i;
    uint32_t tokens = 0;
    for (uint32_t n : requests[i].outputs)
      tokens += n;
    ASSERT_EQ(report.outcomes[i].tokens, tokens) << i;
  }
}

} // namespace lathe::runtime::test
