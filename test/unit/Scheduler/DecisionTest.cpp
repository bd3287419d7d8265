//===- DecisionTest.cpp - who makes way, how, and whose turn it is --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "SchedulerFixture.h"
#include <algorithm>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

struct Running {
  uint32_t prompt;
  int32_t priority = 0;
};

/// The first request (from 1, in order of arrival) that is preempted when three run whose answers do not fit together.
RequestId firstVictim(SchedulingPolicy policy, std::initializer_list<Running> list) {
  SchedulerOptions o;
  o.policy = policy;
  o.maxSequences = 4;
  Fixture f(o, 20);
  RequestId id = 0;
  for (const Running &r : list) {
    ScheduledRequest request = Fixture::request(++id, r.prompt, 12);
    request.priority = r.priority;
    EXPECT_TRUE(f.scheduler->add(0, std::move(request)).ok());
  }
  uint32_t most = 0;
  for (int i = 0; i < 100; ++i) {
    const StepPlan &plan = f.plan();
    most = std::max(most, f.scheduler->stats().running + static_cast<uint32_t>(plan.preempted.size()));
    if (!plan.preempted.empty()) {
      EXPECT_EQ(most, 3u);
      EXPECT_EQ(plan.preempted[0].reason, Reason::preemptBlocks);
      return plan.preempted[0].request;
    }
    f.commit(plan);
  }
  ADD_FAILURE() << "nobody was preempted";
  return 0;
}

/// Whether a sequence of |tokens| is saved when it is preempted, and not computed again.
bool saves(uint32_t tokens, double bytesPerSecond, const StepCostModel &cost, PreemptionMode mode = PreemptionMode::automatic) {
  SchedulerOptions o;
  o.policy = SchedulingPolicy::priority;
  o.maxSequences = 1;
  o.contextTokens = 512;
  o.stepTokens = 512;
  o.preemption = mode;
  o.savedKvBytes = 1 << 20;
  o.saveBytesPerSecond = bytesPerSecond;
  o.cost = cost;
  o.learnCost = false;
  Fixture f(o, 256);
  ScheduledRequest low = Fixture::request(1, tokens, 400), high = Fixture::request(2, 4);
  low.priority = 9, high.priority = -9;
  EXPECT_TRUE(f.scheduler->add(f.now, std::move(low)).ok());
  f.commit(f.plan());
  EXPECT_TRUE(f.scheduler->add(f.now, std::move(high)).ok());
  const StepPlan &plan = f.plan();
  EXPECT_EQ(plan.preempted.size(), 1u);
  if (plan.preempted.empty()) return false;
  EXPECT_EQ(plan.preempted[0].tokens, tokens);
  EXPECT_EQ(plan.saves.empty(), !plan.preempted[0].saved);
  return plan.preempted[0].saved;
}

} // namespace

TEST(Victim, TheLeastComputedMakesWay) {
  EXPECT_EQ(firstVictim(SchedulingPolicy::fcfs, {{12}, {16}, {24}}), 1u);
  EXPECT_EQ(firstVictim(SchedulingPolicy::fcfs, {{24}, {12}, {16}}), 2u);
  EXPECT_EQ(firstVictim(SchedulingPolicy::fcfs, {{24}, {16}, {12}}), 3u);
  EXPECT_EQ(firstVictim(SchedulingPolicy::fair, {{24}, {12}, {16}}), 2u);
}

TEST(Victim, TheNewestOfEquals) { EXPECT_EQ(firstVictim(SchedulingPolicy::fcfs, {{16}, {16}, {16}}), 3u); }

TEST(Victim, TheWorstPriorityWhateverItsLength) {
  EXPECT_EQ(firstVictim(SchedulingPolicy::priority, {{24, 5}, {12, 0}, {16, 1}}), 1u);
  EXPECT_EQ(firstVictim(SchedulingPolicy::priority, {{12, 0}, {16, 1}, {24, 5}}), 3u);
  EXPECT_EQ(firstVictim(SchedulingPolicy::priority, {{24, 5}, {12, 5}, {16, 1}}), 2u); // of equals the least computed
  EXPECT_EQ(firstVictim(SchedulingPolicy::fcfs, {{24, 5}, {12, 0}, {16, 1}}), 2u);     // which other policies do not ask
}

// Who was let in because it had waited long is not thrown out by who came since.
TEST(Victim, AgeCountsThere) {
  for (double aging : {1.0, 1e6}) {
    SchedulerOptions o;
    o.policy = SchedulingPolicy::priority;
    o.maxSequences = 1;
    o.agingSeconds = aging;
    Fixture f(o);
    ScheduledRequest old = Fixture::request(1, 4, 40), better = Fixture::request(2, 4, 4);
    old.priority = 3, better.priority = 0;
    ASSERT_TRUE(f.scheduler->add(0, std::move(old)).ok());
    f.now = 5; // worth 5 levels, or none
    f.commit(f.plan());
    ASSERT_TRUE(f.scheduler->add(f.now, std::move(better)).ok());
    EXPECT_EQ(f.plan().preempted.size(), aging == 1 ? 0u : 1u) << aging;
  }
}

// Nobody is stopped for who does not get in all the same.
TEST(Victim, NotInVain) {
  for (uint32_t choices : {3u, 2u}) { // rows
    SchedulerOptions o;
    o.policy = SchedulingPolicy::priority;
    o.maxSequences = 4;
    Fixture f(o);
    for (RequestId id = 1; id <= 4; ++id) {
      ScheduledRequest r = Fixture::request(id, 4, 40);
      r.priority = id <= 2 ? -1 : 5;
      ASSERT_TRUE(f.scheduler->add(f.now, std::move(r)).ok());
    }
    f.commit(f.plan());
    ScheduledRequest r = Fixture::request(5, 4);
    r.choices = choices;
    ASSERT_TRUE(f.scheduler->add(f.now, std::move(r)).ok());
    EXPECT_EQ(f.plan().preempted.size(), choices == 3 ? 0u : 2u);
  }
  for (uint32_t prompt : {24u, 16u}) { // blocks: 2 are free, the worse one has 4, and 7 or 5 are needed
    SchedulerOptions o;
    o.policy = SchedulingPolicy::priority;
    o.maxSequences = 4;
    Fixture f(o, 16);
    for (RequestId id = 1; id <= 2; ++id) {
      ScheduledRequest r = Fixture::request(id, id == 1 ? 36 : 12, 8);
      r.priority = id == 1 ? -1 : 5;
      ASSERT_TRUE(f.scheduler->add(f.now, std::move(r)).ok());
    }
    f.commit(f.plan());
    ASSERT_TRUE(f.scheduler->add(f.now, Fixture::request(3, prompt, 8)).ok());
    EXPECT_EQ(f.plan().preempted.size(), prompt == 24 ? 0u : 1u);
  }
}

// A block of 4 tokens has 8 bytes, so L tokens cost 2 x 8 x L / 4 bytes there and back.
TEST(SaveOrRecompute, LengthAndRateDecide) {
  // As many rows as 32 ride along for nearly nothing, then each takes a millisecond.
  StepCostModel flat(10e-3, 1e-5);
  for (int i = 0; i < 8; ++i) {
    for (uint32_t rows : {1u, 4u, 16u, 32u})
      flat.observe(rows, 10e-3 + 1e-5 * rows);
    for (uint32_t rows : {64u, 128u, 256u})
      flat.observe(rows, 10e-3 + 1e-3 * (rows - 32));
  }
  EXPECT_FALSE(saves(16, 4e4, flat)); // 1.6 ms of copies against next to nothing
  EXPECT_TRUE(saves(200, 4e4, flat)); // 20 ms against 37 ms, in chunks of 38 rows beside the other
  EXPECT_FALSE(saves(16, 2e3, flat)); // slow copies
  EXPECT_FALSE(saves(200, 2e3, flat));
  EXPECT_TRUE(saves(16, 2e7, flat)); // fast ones
  EXPECT_TRUE(saves(200, 2e7, flat));
}

TEST(SaveOrRecompute, WhatHistoryCostsCounts) {
  StepCostModel plain(1e-3, 1e-3), withHistory = plain; // a millisecond a row ...
  withHistory.setHistoryWeight(1.0 / 64);               // ... and behind 64 tokens two
  constexpr double rate = 2.7e3;                        // 1.5 ms of copies a token
  EXPECT_FALSE(saves(20, rate, withHistory));
  EXPECT_TRUE(saves(400, rate, withHistory));
  EXPECT_FALSE(saves(400, rate, plain));
}

TEST(SaveOrRecompute, WhoSaysSoDecides) {
  StepCostModel cost(1e-3, 1e-3);
  EXPECT_TRUE(saves(100, 1e-3, cost, PreemptionMode::save));
  EXPECT_FALSE(saves(100, 1e12, cost, PreemptionMode::recompute));
  EXPECT_TRUE(saves(100, 1e12, cost));
}

// VTC: who was away saves nothing up. Requests of 4 + 1 tokens, one at a time.
TEST(Fair, WhoReturnsIsLifted) {
  for (bool queueEmpty : {false, true}) {
    SchedulerOptions o;
    o.policy = SchedulingPolicy::fair;
    o.maxSequences = 1;
    o.maxQueued = 10000;
    Fixture f(o);
    std::string order;                     // of admissions
    std::vector<char> tenants(1);          // [request]
    auto send = [&](char tenant, int count) {
      for (; count > 0; --count) {
        ScheduledRequest r = Fixture::request(tenants.size(), 4, 1);
        r.tenant = std::string(1, tenant);
        tenants.push_back(tenant);
        EXPECT_TRUE(f.scheduler->add(f.now, std::move(r)).ok());
      }
    };
    auto step = [&] {
      const StepPlan &plan = f.plan();
      for (const PlannedAdmission &a : plan.admitted)
        order += tenants[a.request];
      if (plan.rows) f.commit(plan);
    };
    send('b', 1); // known before, and away for long
    send('a', 2000);
    while (order.size() < (queueEmpty ? 2001u : 1990u))
      step();
    order.clear();
    send('b', 50);
    send('a', 50);
    while (order.size() < 40)
      step();
    auto of = [&](char who) { return std::count(order.begin(), order.end(), who); };
    EXPECT_LE(std::abs(of('a') - of('b')), 2) << order;
    EXPECT_EQ(order.find("aaa"), std::string::npos) << order; // in turns
    EXPECT_EQ(order.find("bbb"), std::string::npos) << order;
  }
}
