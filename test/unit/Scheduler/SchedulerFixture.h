//===- SchedulerFixture.h - a scheduler driven by hand ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/scheduler/Scheduler.h"
#include <gtest/gtest.h>

namespace lathe::test {
using namespace lathe::runtime;

struct Trace : TraceSink {
  std::string text;
  void write(std::string_view lines) override { text += lines; }
};

/// One group of 4-token pages of 8 bytes. Steps take 10 ms of a clock that only it moves; every sampled token is 7.
struct Fixture {
  explicit Fixture(SchedulerOptions o = {}, uint32_t blocks = 64, TraceSink *sink = nullptr) {
    program.kvGroups = {{0, 0, 4, 1, 8}};
    if (!o.contextTokens) o.contextTokens = 64;
    const uint32_t counts[] = {blocks};
    auto made = Scheduler::create(program, counts, o, sink);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) scheduler = std::move(*made);
  }
  static ScheduledRequest request(RequestId id, uint32_t prompt, uint32_t maxTokens = 8) {
    ScheduledRequest r;
    r.id = id;
    for (uint32_t t = 0; t < prompt; ++t)
      r.prompt.push_back(static_cast<int32_t>(t + 100 * id));
    r.maxTokens = maxTokens;
    return r;
  }
  const StepPlan &plan() { return scheduler->plan(now += 0.01); }
  std::span<const PlannedEnd> commit(const StepPlan &plan) {
    choices.assign(64, {7, false, EndReason::stop});
    std::vector<PieceResult> results;
    for (const StepPiece &p : plan.pieces)
      results.push_back({{choices.data(), p.samples}, false});
    return scheduler->commit(now += 0.01, 0.01, results);
  }
  Program program;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<ChoiceResult> choices;
  double now = 0;
};

} // namespace lathe::test
