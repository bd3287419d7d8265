//===- NoAllocationTest.cpp - a steady step takes nothing of the heap -----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "../CountAllocations.h"
#include "runtime/scheduler/Scheduler.h"
#include <cstdio>

using namespace lathe;
using namespace lathe::runtime;

namespace {
struct Null : TraceSink {
  void write(std::string_view) override {}
};
} // namespace

// Prompts in chunks, a fork, then 300 steps of decoding through pages, windows, copies on write and the prefix cache,
// with a queue that has to wait, traced: no allocation between the first step and the last.
int main() {
  int failures = 0;
  for (SchedulingPolicy policy :
       {SchedulingPolicy::fcfs, SchedulingPolicy::priority, SchedulingPolicy::fair, SchedulingPolicy::deadline}) {
    Program program;
    program.kvGroups = {{0, 0, 16, 1, 64}, {1, 40, 16, 1, 64}};
    SchedulerOptions o;
    o.maxSequences = 8;
    o.contextTokens = 512;
    o.stepTokens = 64;
    o.policy = policy;
    const uint32_t blocks[] = {8 * 32, 8 * 8};
    Null sink;
    auto scheduler = Scheduler::create(program, blocks, o, &sink);
    if (!scheduler.ok()) return 1;
    for (uint64_t id = 1; id <= 40; ++id) {
      ScheduledRequest r;
      r.id = id;
      for (uint64_t t = 0; t < 100; ++t)
        r.prompt.push_back(static_cast<int32_t>(t * (1 + id % 3)));
      r.choices = id == 2 ? 3 : 1;
      r.tenant = id % 2 ? "a" : "b";
      if (!(*scheduler)->add(0, std::move(r)).ok()) return 1;
    }
    ChoiceResult samples[64];
    PieceResult results[64];
    double now = 0;
    uint64_t rows = 0;
    allocations = 0;
    counting = true;
    for (int step = 0; step < 330; ++step) {
      const StepPlan &plan = (*scheduler)->plan(now);
      size_t used = 0;
      for (size_t i = 0; i < plan.pieces.size(); ++i) {
        for (uint32_t s = 0; s < plan.pieces[i].samples; ++s)
          samples[used + s] = {step + int(s), false, EndReason::stop};
        results[i] = {{samples + used, plan.pieces[i].samples}, false};
        used += plan.pieces[i].samples;
      }
      rows += plan.rows;
      (*scheduler)->commit(now += 0.01, 0.01, {results, plan.pieces.size()});
    }
    counting = false;
    SchedulerStats stats = (*scheduler)->stats();
    std::printf("%s: %llu rows, %u running, %u waiting, %d allocations\n", toString(policy), (unsigned long long)rows,
                stats.running, stats.waiting, allocations.load());
    failures += allocations != 0 || stats.running < 7 || stats.waiting < 20;
  }
  return failures ? 1 : 0;
}
