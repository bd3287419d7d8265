//===- PolicyOrderTest.cpp - who runs first, on a simulated clock --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "PolicyTest.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <utility>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::runtime::test;

// 1.7: one tenant floods.
TEST(Policy, FairSharesHoldTheBoundAtEveryInstant) {
  WorkloadOptions w;
  w.requests = full() ? 1000 : 400;
  w.rate = 1;
  w.promptMean = 120, w.outputMean = 80, w.promptMax = 500, w.outputMax = 300, w.spread = 0.6;
  auto polite = makeWorkload(w);
  for (SimRequest &r : polite)
    r.spec.tenant = "polite";
  w.requests *= 10, w.rate *= 10, w.seed = 2;
  auto flood = makeWorkload(w);
  for (SimRequest &r : flood)
    r.spec.tenant = "flood";
  std::vector<SimRequest> both = polite;
  both.insert(both.end(), flood.begin(), flood.end());

  SimOptions o = base(32, 32 * 600, 1024);
  SimReport solo = mustRun(polite, o);
  double p99[2];
  for (SchedulingPolicy policy : {SchedulingPolicy::fair, SchedulingPolicy::fcfs}) {
    o.scheduler.policy = policy;
    // Service as the paper counts it, measured from outside, and who has something waiting.
    double service[2] = {}, low = 0, high = 0, worst = 0;
    int waiting[2] = {};
    std::vector<size_t> order(both.size());
    for (size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return both[a].arrival < both[b].arrival; });
    size_t next = 0;
    double limit = 0;
    bool backlogged = false;
    auto tenant = [&](size_t request) { return request < polite.size() ? 0 : 1; };
    auto look = [&](double now) {
      for (; next < order.size() && both[order[next]].arrival <= now; ++next)
        ++waiting[tenant(order[next])];
      bool is = waiting[0] > 0 && waiting[1] > 0;
      double difference = service[0] - service[1];
      if (is && !backlogged) low = high = difference;
      if (is) low = std::min(low, difference), high = std::max(high, difference), worst = std::max(worst, high - low);
      backlogged = is;
    };
    uint32_t longestPrompt = 0;
    for (const SimRequest &r : both)
      longestPrompt = std::max(longestPrompt, static_cast<uint32_t>(r.spec.prompt.size()));
    o.onAdmitted = [&](size_t request, double now) {
      look(now);
      service[tenant(request)] += double(both[request].spec.prompt.size());
      --waiting[tenant(request)];
      look(now);
    };
    o.onToken = [&](size_t request, uint32_t, double now) {
      service[tenant(request)] += 2;
      look(now);
    };
    SimReport report = mustRun(both, o);
    std::vector<double> ttft;
    for (size_t i = 0; i < polite.size(); ++i)
      ttft.push_back(report.outcomes[i].firstToken - both[i].arrival);
    std::sort(ttft.begin(), ttft.end());
    p99[policy == SchedulingPolicy::fcfs] = report.percentile(ttft, 99);
    limit = 2 * std::max<double>(longestPrompt, 2.0 * double(o.kvTokens));
    std::printf(
        "%s: p99 TTFT of the other tenant %.3f s, solo %.3f s (%.2f times); service gap at most %.0f, bound %.0f\n",
        toString(policy), report.percentile(ttft, 99), solo.percentile(solo.ttft, 99),
        report.percentile(ttft, 99) / solo.percentile(solo.ttft, 99), worst, limit);
    if (policy == SchedulingPolicy::fair) {
      EXPECT_LE(worst, limit);
      EXPECT_LE(report.percentile(ttft, 99), 1.5 * solo.percentile(solo.ttft, 99));
    } else {
      EXPECT_GT(worst, limit); // so the bound says something of this load
    }
  }
  EXPECT_GT(p99[1], 5 * p99[0]); // the flood does reach the other under fcfs
}

// 1.7: targets under overload.
TEST(Policy, DeadlinesKeepGoodputUnderOverload) {
  WorkloadOptions w;
  w.requests = full() ? 4000 : 700;
  w.promptMean = 200, w.outputMean = 100, w.spread = 0.7, w.outputMax = 600;
  w.ttftTarget = 1.0, w.tpotTarget = 0.030;
  auto run = [&](double rate, SchedulingPolicy policy) {
    w.rate = rate;
    auto requests = makeWorkload(w);
    SimOptions o = base(64, 0);
    o.scheduler.policy = policy;
    SimReport report = mustRun(requests, o);
    // Of the time of arrivals: the end drains.
    size_t good = static_cast<size_t>(std::lround(report.goodput(requests) * report.seconds));
    return std::pair(double(good) / requests.back().arrival, double(good) / double(requests.size()));
  };
  // The highest rate at which 90 % of the requests meet both targets, with the better policy.
  double capacity = 1, above = 40;
  while (above / capacity > 1.01) {
    double rate = std::sqrt(capacity * above);
    bool meets = run(rate, SchedulingPolicy::fcfs).second >= 0.9 || run(rate, SchedulingPolicy::deadline).second >= 0.9;
    (meets ? capacity : above) = rate;
  }
  auto slo = run(1.3 * capacity, SchedulingPolicy::deadline), fcfs = run(1.3 * capacity, SchedulingPolicy::fcfs);
  std::printf("capacity %.2f requests/s; at 1.3 times: deadline %.2f/s (%.0f %%), fcfs %.2f/s (%.0f %%)\n", capacity,
              slo.first, 100 * slo.first / capacity, fcfs.first, 100 * fcfs.first / capacity);
  EXPECT_GE(slo.first, 0.9 * capacity);
  EXPECT_LT(fcfs.first, 0.5 * capacity);
}

// 1.7: a better priority starts at once, a worse one still gets on.
TEST(Policy, PriorityStartsAtOnceAndAges) {
  WorkloadOptions w;
  w.requests = full() ? 2000 : 300;
  w.promptMean = 300, w.outputMean = 150, w.rate = 6;
  auto requests = makeWorkload(w);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].spec.priority = i % 20 == 7 ? -5 : 5;
    if (i % 20 == 7) requests[i].spec.prompt.resize(std::min<size_t>(requests[i].spec.prompt.size(), 200));
  }
  SimOptions o = base(8, 8 * 1200);
  o.scheduler.policy = SchedulingPolicy::priority;
  o.scheduler.agingSeconds =
      1e6; // a backlog that lasts longer than 10 levels would outrank new ones; aging comes below
  double step = 0;
  double previous = 0;
  o.afterStep = [&](const Scheduler &, const StepPlan &, double now) {
    step = std::max(step, now - previous > 1 ? 0 : now - previous);
    previous = now;
  };
  SimReport report = mustRun(requests, o);
  expectAllAnswered(requests, report);
  double worst = 0, longestLow = 0;
  std::vector<double> waits;
  for (size_t i = 0; i < requests.size(); ++i) {
    double queue = report.outcomes[i].queued - requests[i].arrival;
    if (i % 20 == 7)
      worst = std::max(worst, queue), waits.push_back(queue);
    else
      longestLow = std::max(longestLow, queue);
  }
  std::printf("better priority: started after at most %.1f ms, the longest step took %.1f ms; preemptions %llu; worse "
              "priority: at most %.1f s of %.1f s\n",
              1e3 * worst, 1e3 * step,
              (unsigned long long)report.stats.reasons[static_cast<size_t>(Reason::preemptPriority)], longestLow,
              report.seconds);
  EXPECT_LE(worst, 2 * step);
  EXPECT_LE(report.maxPreemptions, 3u);

  // Aging: under steady better traffic that fills the machine, worse requests wait a bounded time.
  std::vector<SimRequest> mixed = makeWorkload(w);
  for (size_t i = 0; i < mixed.size(); ++i)
    mixed[i].spec.priority = i % 10 == 3 ? 2 : 0;
  o.afterStep = nullptr;
  double low[2], high[2]; // with aging, without
  uint32_t aged = 0, agedPreempted = 0;
  for (int off = 0; off < 2; ++off) {
    o.scheduler.agingSeconds = off ? 1e6 : 2;
    SimReport run = mustRun(mixed, o);
    low[off] = high[off] = 0;
    for (size_t i = 0; i < mixed.size(); ++i) {
      double &place = i % 10 == 3 ? low[off] : high[off];
      double waited = run.outcomes[i].queued - mixed[i].arrival;
      place = std::max(place, waited);
      if (off || i % 10 != 3 || waited <= 2 * 2) continue;
      ++aged; // it ran because it had waited: who came since does not throw it out
      agedPreempted += run.outcomes[i].preemptions > 0;
    }
  }
  std::printf(
      "aging 2 s a level, 2 levels worse: waits at most %.1f s, better %.1f s; without aging %.1f s and %.1f s\n",
      low[0], high[0], low[1], high[1]);
  std::printf("%u of them ran because they had waited long, %u of these were preempted\n", aged, agedPreempted);
  EXPECT_GT(aged, 10u);
  EXPECT_EQ(agedPreempted, 0u);
  // Two levels are 4 s; beyond that it waits as if it were of the better priority.
  EXPECT_LE(low[0], high[0] + 2 * 2 + 1);
  EXPECT_GT(low[1], high[1] + 2 * 2 + 1); // so the bound is the aging's
}

// 1.1 c and d.
TEST(Policy, PagingHoldsMoreSequencesThanReservation) {
  WorkloadOptions w;
  w.requests = full() ? 2000 : 400;
  w.promptMax = 1000;
  auto requests = makeWorkload(w);
  SimOptions o = base(256, 16 * 2048, 2048); // reserved in full: 16 sequences
  o.scheduler.prefixCache = false;
  uint64_t slots = 0, tokens = 0;
  double running = 0, steps = 0;
  o.afterStep = [&](const Scheduler &s, const StepPlan &plan, double) {
    SchedulerStats stats = s.stats();
    if (!stats.waiting) return;
    running += stats.running, ++steps;
    slots += 16 * stats.kvBlocksUsed;
    for (const StepPiece &p : plan.pieces)
      tokens += p.first + p.tokens;
  };
  SimReport report = mustRun(requests, o);
  expectAllAnswered(requests, report);
  std::printf(
      "%.1f sequences at once in the memory of 16 reserved ones, %u at most; %.1f %% of the slots in use are empty\n",
      running / steps, report.maxRunning, 100 - 100 * double(tokens) / double(slots));
  EXPECT_GE(running / steps, 2.5 * 16);
  EXPECT_LE(double(slots - tokens) / double(slots), 0.04);
}

TEST(Policy, ManyRequestsManyAborts) {
  WorkloadOptions w;
  w.requests = full() ? 10000 : 1000;
  w.rate = full() ? 4000 : 500;
  w.promptMean = 120, w.outputMean = 150, w.outputMax = 600;
  w.abortShare = 0.3;
  w.tenants = 7;
  auto requests = makeWorkload(w);
  for (SchedulingPolicy policy :
       {SchedulingPolicy::fcfs, SchedulingPolicy::priority, SchedulingPolicy::fair, SchedulingPolicy::deadline}) {
    SimOptions o = base(full() ? 1000 : 200, full() ? 320000 : 9000, 2048);
    o.scheduler.policy = policy;
    o.scheduler.stepTokens = 2048;
    if (full()) o.scheduler.itlTarget = 5; // rows, not the pace of tokens, are the limit
    o.scheduler.savedKvBytes = 1 << 30;
    SimReport report = mustRun(requests, o);
    std::printf("%s: %u at once, %llu steps, %llu tokens, %llu + %llu preemptions, at most %u each\n", toString(policy),
                report.maxRunning, (unsigned long long)report.stats.steps, (unsigned long long)report.stats.newTokens,
                (unsigned long long)report.stats.preemptedRecompute, (unsigned long long)report.stats.preemptedSave,
                report.maxPreemptions);
    EXPECT_EQ(report.stats.kvBlocksUsed, 0u);
    EXPECT_EQ(report.stats.savedBytes, 0u);
    EXPECT_LE(report.maxPreemptions, 3u);
    if (full()) EXPECT_GE(report.maxRunning, 900u);
  }
}
