//===- SchedulerTest.cpp - single decisions and every refusal -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "SchedulerFixture.h"
#include "runtime/scheduler/Replay.h"
#include "runtime/scheduler/StepLateness.h"
#include "runtime/simulator/Simulator.h"
#include <cmath>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

void expectRefused(const Status &status, StatusCode code, const char *message) {
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), message);
}

} // namespace

TEST(Scheduler, CreateSaysWhatIsWrong) {
  Program program;
  program.kvGroups = {{0, 0, 4, 1, 8}};
  const uint32_t blocks[] = {15};
  auto refused = [&](auto change) {
    SchedulerOptions o;
    o.contextTokens = 64;
    Program p = program;
    change(o, p);
    auto made = Scheduler::create(p, blocks, o);
    return made.ok() ? std::string("made") : made.status().message();
  };
  EXPECT_EQ(refused([](SchedulerOptions &, Program &) {}),
            "KV group 0: expected at least 16 blocks, for one sequence of 64 tokens, found 15");
  EXPECT_EQ(refused([](SchedulerOptions &o, Program &) { o.maxSequences = 0; }),
            "sequences: expected 1 to 4096, found 0");
  EXPECT_EQ(refused([](SchedulerOptions &o, Program &) { o.contextTokens = 0; }),
            "context tokens: expected 1 to 16777216, found 0");
  EXPECT_EQ(refused([](SchedulerOptions &o, Program &) { o.stepTokens = 0; }),
            "step tokens: expected 1 to 65536, found 0");
  EXPECT_EQ(refused([](SchedulerOptions &, Program &p) { p.kvGroups[0].pageTokens = 0; }),
            "tokens of a KV page: expected 1 to 4096, found 0");
  EXPECT_EQ(refused([](SchedulerOptions &, Program &p) { p.kvGroups[0].kind = 1; }),
            "tokens of a window: expected 1 to 16777216, found 0");
  EXPECT_EQ(refused([](SchedulerOptions &, Program &p) { p.kvGroups.clear(); }), "KV groups: expected 1 to 0, found 1");
  EXPECT_EQ(refused([](SchedulerOptions &o, Program &) { o.agingSeconds = 0; }),
            "expected positive seconds and rates in the scheduler's options");
}

TEST(Scheduler, AddNamesTheField) {
  SchedulerOptions o;
  o.maxSequences = 4;
  o.maxQueued = 2;
  o.maxQueuedTokens = 50;
  Fixture f(o);
  auto add = [&](auto change) {
    ScheduledRequest r = Fixture::request(9, 4);
    change(r);
    return f.scheduler->add(0, r);
  };
  using R = ScheduledRequest;
  expectRefused(add([](R &r) { r.id = 0; }), StatusCode::invalidArgument, "id: expected a new one, not 0, found 0");
  expectRefused(add([](R &r) { r.prompt.clear(); }), StatusCode::invalidArgument,
                "prompt: expected at least one token, found 0");
  expectRefused(add([](R &r) { r.prompt.resize(65); }), StatusCode::invalidArgument,
                "prompt: the context holds 64 tokens, found 65");
  expectRefused(add([](R &r) { r.choices = 5; }), StatusCode::invalidArgument, "choices: expected 1 to 4, found 5");
  expectRefused(add([](R &r) { r.choices = 2, r.maxTokens = 0; }), StatusCode::invalidArgument,
                "choices: expected 1 of a request that generates nothing, found 2");
  expectRefused(add([](R &r) { r.deadline = -1; }), StatusCode::invalidArgument,
                "deadline: expected seconds, at least 0, found -1");
  expectRefused(add([](R &r) { r.ttftTarget = NAN; }), StatusCode::invalidArgument,
                "TTFT target: expected seconds, at least 0, found nan");
  EXPECT_TRUE(add([](R &) {}).ok());
  expectRefused(add([](R &) {}), StatusCode::invalidArgument, "id: expected a new one, not 0, found 9");
  expectRefused(add([](R &r) { r.id = 10, r.prompt.resize(60); }), StatusCode::resourceExhausted,
                "the queue is full: expected at most 50 waiting prompt tokens, found 64");
  EXPECT_TRUE(add([](R &r) { r.id = 11; }).ok());
  expectRefused(add([](R &r) { r.id = 12; }), StatusCode::resourceExhausted,
                "the queue is full: 2 requests wait, which is the limit");
  EXPECT_EQ(f.scheduler->stats().rejectedQueue, 2u);
  // Each has its reason, counted and in the trace.
  auto counted = [&](Reason reason) { return f.scheduler->stats().reasons[static_cast<size_t>(reason)]; };
  EXPECT_EQ(counted(Reason::rejectQueue), 1u);
  EXPECT_EQ(counted(Reason::rejectTokens), 1u);
  EXPECT_EQ(counted(Reason::rejectInvalid), 8u);
  Reason why = Reason::none;
  EXPECT_FALSE(f.scheduler->add(0, Fixture::request(13, 4), &why).ok());
  EXPECT_EQ(why, Reason::rejectQueue);
  EXPECT_GE(f.scheduler->forecast().retryAfter(), 1.0);
}

TEST(Scheduler, DeadlinePolicyRefusesAtOnce) {
  SchedulerOptions o;
  o.policy = SchedulingPolicy::deadline;
  o.cost = StepCostModel(0.001, 0.01);
  Fixture f(o);
  ScheduledRequest r = Fixture::request(1, 40);
  r.ttftTarget = 0.1;
  Status status = f.scheduler->add(0, r);
  EXPECT_EQ(status.code(), StatusCode::resourceExhausted);
  EXPECT_NE(status.message().find("the request's target is 0.100 s"), std::string::npos) << status.message();
  EXPECT_EQ(f.scheduler->stats().rejectedDeadline, 1u);
  EXPECT_TRUE(f.scheduler->idle());
  // One that could be met when it came, and cannot any more: rejected before anything is computed.
  r.ttftTarget = 0.6;
  ASSERT_TRUE(f.scheduler->add(0, r).ok());
  const StepPlan &plan = f.scheduler->plan(0.3);
  ASSERT_EQ(plan.ended.size(), 1u);
  EXPECT_EQ(plan.ended[0].end, EndReason::rejected);
  EXPECT_EQ(plan.ended[0].reason, Reason::rejectTtft);
  EXPECT_EQ(plan.rows, 0u);
  EXPECT_TRUE(f.scheduler->idle());
}

// A time per token that cannot be had is nobody else's business.
TEST(Scheduler, TimesPerTokenThatCannotBeMet) {
  SchedulerOptions o;
  o.policy = SchedulingPolicy::deadline;
  o.cost = StepCostModel(0.010, 0.001); // one sequence 11 ms a token
  o.learnCost = false;
  Trace trace;
  Fixture f(o, 64, &trace);
  auto add = [&](RequestId id, double tpot, uint32_t tokens = 40) {
    ScheduledRequest r = Fixture::request(id, 4, tokens);
    r.tpotTarget = tpot;
    return f.scheduler->add(f.now, std::move(r));
  };
  auto step = [&] {
    const StepPlan &plan = f.plan();
    if (plan.rows) f.commit(plan);
  };
  auto runs = [&](RequestId id) { return f.scheduler->decodingRow(id, 0) != UINT32_MAX; };
  Status status = add(1, 0.001);
  EXPECT_EQ(status.code(), StatusCode::resourceExhausted);
  EXPECT_EQ(status.message(), "a token takes 0.0110 s at least, the request's target is 0.0010 s");
  EXPECT_EQ(f.scheduler->stats().rejectedDeadline, 1u);
  ASSERT_TRUE(add(2, 0).ok());
  step();
  step();
  // Possible alone but not beside the other: it waits, and those behind it do not.
  ASSERT_TRUE(add(3, 0.0125).ok());
  ASSERT_TRUE(add(4, 0).ok());
  step();
  step();
  EXPECT_TRUE(runs(2));
  EXPECT_FALSE(runs(3));
  EXPECT_TRUE(runs(4));
  // Until its first token is due.
  f.now += 10;
  const StepPlan &late = f.plan();
  ASSERT_EQ(late.ended.size(), 1u);
  EXPECT_EQ(late.ended[0].request, 3u);
  EXPECT_EQ(late.ended[0].reason, Reason::rejectTpot);
  f.commit(late);
  while (!f.scheduler->idle())
    step();
  // Alone it runs, and others wait for its sake, but not for longer than they may.
  ASSERT_TRUE(add(5, 0.0125, 60).ok());
  step();
  ASSERT_TRUE(add(6, 0).ok());
  step();
  step();
  EXPECT_TRUE(runs(5));
  EXPECT_FALSE(runs(6));
  EXPECT_GT(f.scheduler->stats().reasons[static_cast<size_t>(Reason::waitTpot)], 0u);
  f.now += 10;
  for (int i = 0; i < 6; ++i) // its prompt gets a row a step
    step();
  EXPECT_TRUE(runs(6));
  // One that was possible when it came and is not any more (the machine got slower) holds nobody back.
  f.scheduler->assumeCost(StepCostModel(0.020, 0.001));
  ASSERT_TRUE(add(7, 0).ok());
  step();
  step();
  EXPECT_TRUE(runs(7));
  EXPECT_TRUE(f.scheduler->checkInvariants().ok());
  f.scheduler.reset();
  EXPECT_NE(trace.text.find("\na 0 reject-tpot\n"), std::string::npos);
  EXPECT_NE(trace.text.find(" rejected reject-tpot "), std::string::npos);
}

TEST(Scheduler, PromptThenTokensThenLength) {
  Fixture f;
  ASSERT_TRUE(f.scheduler->add(0, Fixture::request(1, 5, 3)).ok());
  const StepPlan &first = f.plan();
  ASSERT_EQ(first.pieces.size(), 1u);
  EXPECT_EQ(first.pieces[0].tokens, 5u);
  EXPECT_EQ(first.pieces[0].resultFrom, 4u);
  EXPECT_EQ(first.pieces[0].samples, 1u);
  EXPECT_TRUE(first.pieces[0].promptDone);
  EXPECT_EQ(first.admitted[0].reason, Reason::admitFirst);
  EXPECT_TRUE(f.commit(first).empty());
  const StepPlan &second = f.plan();
  EXPECT_EQ(second.pieces[0].first, 5u);
  EXPECT_EQ(second.pieces[0].ids[0], 7);
  EXPECT_EQ(second.pieces[0].reason, Reason::decode);
  f.commit(second);
  auto ends = f.commit(f.plan());
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].end, EndReason::length);
  EXPECT_TRUE(ends[0].last);
  EXPECT_TRUE(f.scheduler->idle());
  EXPECT_TRUE(f.scheduler->checkInvariants().ok());
}

TEST(Scheduler, TheContextIsALengthToo) {
  SchedulerOptions o;
  o.contextTokens = 8;
  Fixture f(o);
  ASSERT_TRUE(f.scheduler->add(0, Fixture::request(1, 6, UINT32_MAX)).ok());
  EXPECT_TRUE(f.commit(f.plan()).empty()); // position 6
  EXPECT_TRUE(f.commit(f.plan()).empty()); // 7
  auto ends = f.commit(f.plan());          // the context is full; its last token is emitted, and has no place
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].end, EndReason::length);
}

TEST(Scheduler, PromptRowsOnly) {
  SchedulerOptions o;
  o.stepTokens = 4;
  o.maxResults = 3;
  Fixture f(o);
  ScheduledRequest r = Fixture::request(1, 7, 0);
  r.promptRows = ScheduledRequest::PromptRows::all;
  ASSERT_TRUE(f.scheduler->add(0, r).ok());
  for (uint32_t expected : {3u, 3u, 1u}) {
    const StepPlan &plan = f.plan();
    ASSERT_EQ(plan.rows, expected);
    EXPECT_EQ(plan.results, expected);
    EXPECT_EQ(plan.pieces[0].samples, 0u);
    EXPECT_EQ(f.commit(plan).size(), expected == 1 ? 1u : 0u);
  }
  EXPECT_TRUE(f.scheduler->idle());
}

TEST(Scheduler, TimeoutsAndCancellationsAreListedOnce) {
  Fixture f;
  ScheduledRequest r = Fixture::request(1, 5);
  r.deadline = 1;
  ASSERT_TRUE(f.scheduler->add(0, r).ok());
  ASSERT_TRUE(f.scheduler->add(0, Fixture::request(2, 5)).ok());
  f.commit(f.plan());
  const StepPlan &late = f.scheduler->plan(f.now = 2);
  ASSERT_EQ(late.ended.size(), 1u);
  EXPECT_EQ(late.ended[0].end, EndReason::timeout);
  EXPECT_EQ(late.rows, 1u);
  f.commit(late);
  EXPECT_TRUE(f.scheduler->cancel(f.now, 2));
  EXPECT_FALSE(f.scheduler->cancel(f.now, 2));
  EXPECT_FALSE(f.scheduler->cancel(f.now, 3));
  EXPECT_EQ(f.scheduler->stats().kvBlocksUsed, 0u);
  EXPECT_EQ(f.plan().ended.size(), 1u);
  EXPECT_EQ(f.plan().ended.size(), 0u);
  EXPECT_TRUE(std::isinf(f.plan().wakeAt));
}

TEST(Scheduler, AFailedPieceEndsItsRequestAlone) {
  Fixture f;
  ScheduledRequest r = Fixture::request(1, 5);
  r.choices = 2;
  ASSERT_TRUE(f.scheduler->add(0, r).ok());
  ASSERT_TRUE(f.scheduler->add(0, Fixture::request(2, 5)).ok());
  f.commit(f.plan());
  const StepPlan &plan = f.plan();
  ASSERT_EQ(plan.pieces.size(), 3u);
  EXPECT_EQ(plan.copies.size(), 2u); // both choices leave the block that they share
  ChoiceResult good{3, false, EndReason::stop};
  const PieceResult results[] = {{{}, true}, {{&good, 1}, false}, {{&good, 1}, false}};
  auto ends = f.scheduler->commit(1, 0.01, results);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].request, 1u);
  EXPECT_EQ(ends[0].end, EndReason::failed);
  EXPECT_EQ(f.scheduler->stats().running, 1u);
  EXPECT_TRUE(f.scheduler->checkInvariants().ok());
}

TEST(Scheduler, RollbackMovesNothing) {
  Fixture f;
  ASSERT_TRUE(f.scheduler->add(0, Fixture::request(1, 5)).ok());
  f.commit(f.plan());
  uint64_t used = f.scheduler->stats().kvBlocksUsed;
  StepPlan before = f.plan();
  f.scheduler->rollback(f.now);
  EXPECT_EQ(f.scheduler->stats().kvBlocksUsed, used);
  const StepPlan &after = f.plan();
  ASSERT_EQ(after.pieces.size(), 1u);
  EXPECT_EQ(after.pieces[0].first, before.pieces[0].first);
  EXPECT_TRUE(f.scheduler->checkInvariants().ok());
}

TEST(Scheduler, AWaitingRequestDefersToTheOneThatComputesItsPrefix) {
  SchedulerOptions o;
  o.stepTokens = 64;
  Fixture f(o);
  ScheduledRequest a = Fixture::request(1, 44), b = a, cold = Fixture::request(3, 4);
  b.id = 2;
  for (const ScheduledRequest &r : {a, b, cold})
    ASSERT_TRUE(f.scheduler->add(0, r).ok());
  const StepPlan &first = f.plan();
  ASSERT_EQ(first.admitted.size(), 2u);
  EXPECT_EQ(first.admitted[1].request, 3u);
  EXPECT_EQ(first.admitted[1].reason, Reason::admitNext);
  f.commit(first);
  const StepPlan &second = f.plan();
  ASSERT_EQ(second.admitted.size(), 1u);
  EXPECT_EQ(second.admitted[0].request, 2u);
  EXPECT_EQ(second.admitted[0].reason, Reason::admitHit);
  EXPECT_EQ(second.admitted[0].cachedTokens, 40u);
}

// The one who computes the prefix gets nothing, because better priorities take every row: whoever waits for it, of a
// better priority still, must not wait with it.
TEST(Scheduler, AWaitForAPrefixThatDoesNotComeEnds) {
  for (uint32_t bound : {8u, 1u << 30}) {
    SchedulerOptions o;
    o.policy = SchedulingPolicy::priority;
    o.agingSeconds = 1e6;
    o.stepTokens = 8;
    o.maxPassedOver = bound;
    Fixture f(o, 256);
    ScheduledRequest first = Fixture::request(1, 56, 1), waits = first;
    first.priority = 5;
    ASSERT_TRUE(f.scheduler->add(f.now, std::move(first)).ok());
    f.commit(f.plan());
    waits.id = 2;
    ASSERT_TRUE(f.scheduler->add(f.now, std::move(waits)).ok());
    uint32_t passes = 0;
    bool admitted = false;
    for (RequestId other = 10; passes < 40 && !admitted; ++passes) {
      if (passes % 4 == 0) { // 56 tokens in steps of 8: there is always one
        ScheduledRequest r = Fixture::request(other++, 56, 1);
        r.priority = 1;
        ASSERT_TRUE(f.scheduler->add(f.now, std::move(r)).ok());
      }
      const StepPlan &plan = f.plan();
      for (const StepPiece &piece : plan.pieces)
        ASSERT_NE(piece.request, 1u);
      for (const PlannedAdmission &a : plan.admitted)
        admitted |= a.request == 2;
      f.commit(plan);
    }
    EXPECT_EQ(admitted, bound == 8) << passes;
    EXPECT_TRUE(bound > 8 || passes <= 9) << passes;
    EXPECT_TRUE(f.scheduler->checkInvariants().ok());
  }
}

TEST(Scheduler, NamesOfPolicies) {
  for (const char *name : {"fcfs", "priority", "fair", "deadline"}) {
    auto policy = parsePolicy(name);
    ASSERT_TRUE(policy.ok());
    EXPECT_STREQ(toString(*policy), name);
  }
  EXPECT_EQ(parsePolicy("lifo").status().message(), "unknown policy 'lifo', expected fcfs, priority, fair or deadline");
  for (uint32_t r = 0; r < reasonCount; ++r)
    EXPECT_GT(std::string_view(toString(static_cast<Reason>(r))).size(), 2u);
}

TEST(Scheduler, TheCostModelLearnsAndNeverFalls) {
  StepCostModel model(0.01, 0.001);
  EXPECT_NEAR(model.seconds(10), 0.02, 1e-9);
  for (int i = 0; i < 50; ++i)
    for (uint32_t rows : {1u, 16u, 100u, 256u})
      model.observe(rows, 0.002 + 0.0005 * rows);
  for (uint32_t rows : {1u, 16u, 60u, 100u, 200u, 256u})
    EXPECT_NEAR(model.seconds(rows), 0.002 + 0.0005 * rows, 0.15 * (0.002 + 0.0005 * rows)) << rows;
  for (uint32_t rows = 2; rows < 70000; rows += 7)
    EXPECT_GE(model.seconds(rows), model.seconds(rows - 1));
  uint32_t fit = model.rowsWithin(0.05, 256);
  EXPECT_LE(model.seconds(fit), 0.05);
  EXPECT_GT(model.seconds(fit + 1), 0.05);
  EXPECT_EQ(model.rowsWithin(1e-9, 256), 1u);
  double before = model.seconds(16);
  model.observe(16, 100); // a pause of the machine
  EXPECT_LT(model.seconds(16), 1.5 * before);
  model.observe(16, NAN);
  model.observe(0, 1);
  EXPECT_TRUE(std::isfinite(model.seconds(16)));
  model.setHistoryWeight(0.001);
  EXPECT_EQ(model.work(3, 1000), 4);
  EXPECT_EQ(StepCostModel::historyOf(10, 2), 23); // 11 and 12 tokens
  uint32_t chunk = model.chunkWithin(100, 2000, 256);
  EXPECT_LE(model.work(chunk, StepCostModel::historyOf(2000, chunk)), 100);
  EXPECT_GT(model.work(chunk + 1, StepCostModel::historyOf(2000, chunk + 1)), 100);
  EXPECT_EQ(model.chunkWithin(2, 2000, 256), 0u);
  EXPECT_EQ(model.chunkWithin(1e9, 2000, 256), 256u);
  StepCostModel copy;
  copy.setState(model.state());
  EXPECT_EQ(copy.seconds(77), model.seconds(77));
  EXPECT_EQ(copy.work(3, 1000), 4);
}

TEST(Scheduler, AFewSlowStepsOfFewerRowsDoNotMakeMoreRowsSlow) {
  StepCostModel model(2e-3, 5e-4);
  for (int i = 0; i < 2; ++i)
    model.observe(12, 0.030); // the machine was busy
  for (int i = 0; i < 60; ++i)
    model.observe(16, 0.010);
  EXPECT_NEAR(model.seconds(16), 0.010, 0.002);
  EXPECT_LE(model.seconds(12), model.seconds(16));
  for (int i = 0; i < 60; ++i) {
    model.observe(24, 0.014);
    model.observe(12, 0.009);
  }
  EXPECT_NEAR(model.seconds(12), 0.009, 0.001);
  EXPECT_NEAR(model.seconds(24), 0.014, 0.001);
  EXPECT_GE(model.seconds(16), model.seconds(12));
  StepCostModel copy;
  copy.setState(model.state());
  copy.observe(12, 0.020);
  model.observe(12, 0.020);
  EXPECT_EQ(copy.seconds(14), model.seconds(14));
}

TEST(StepLateness, CountsBySecondsOfExpectedTime) {
  StepLateness lateness;
  EXPECT_EQ(lateness.share(0.01, 0.001), 0); // nothing is known
  EXPECT_NEAR(lateness.longestWithin(0.03, 0.01), 0.03, 1e-6);
  // Steps of 10 ms; every 20th is 5 ms late: five a second of expected time.
  for (int step = 1; step <= 4000; ++step)
    lateness.observe(0.010, step % 20 ? 0.010 : 0.015);
  EXPECT_NEAR(lateness.share(0.010, 0.003), 0.05, 0.002);
  EXPECT_NEAR(lateness.share(0.020, 0.003), 0.10, 0.004); // twice as long, twice as often
  EXPECT_EQ(lateness.share(0.010, 0.007), 0);
  // One in a hundred may take more than 30 ms: the 5 ms are left free, give or take a bucket. One in five: nothing is.
  double longest = lateness.longestWithin(0.030, 0.01);
  EXPECT_GE(longest, 0.0235);
  EXPECT_LE(longest, 0.0255);
  EXPECT_NEAR(lateness.longestWithin(0.030, 0.2), 0.030, 1e-4);
  // It forgets: 3,000 steps in time.
  for (int step = 0; step < 3000; ++step)
    lateness.observe(0.010, 0.010);
  EXPECT_LT(lateness.share(0.010, 0.003), 0.001);
  // What cannot be is ignored; what takes for ever counts as the longest.
  for (auto [expected, seconds] : {std::pair{0.0, 1.0}, {1.0, 0.0}, {-1.0, 1.0}, {double(NAN), 1.0}, {1.0, double(INFINITY)}})
    lateness.observe(expected, seconds);
  EXPECT_LT(lateness.share(0.010, 0.003), 0.001);
  lateness.observe(0.010, 1e9);
  EXPECT_GT(lateness.share(0.010, 3), 0.001);
}

namespace {

/// Steps beside a prompt of 2,000 tokens, as parts of a decode-only step of the same 8 sequences. The machine takes 1 ms
/// and 0.2 ms a row, a token of history costs 0.001 of a row; every 25th step takes |hiccup| times as long.
std::vector<double> stepsBesideAPrompt(double historyWeight, double hiccup) {
  constexpr uint32_t sequences = 8;
  SchedulerOptions o;
  o.contextTokens = 4096, o.maxSequences = 16, o.stepTokens = 256;
  o.cost = StepCostModel(1e-3, 2e-4);
  o.cost.setHistoryWeight(historyWeight);
  Fixture f(o, 8192);
  for (RequestId id = 1; id <= sequences; ++id)
    EXPECT_TRUE(f.scheduler->add(0, Fixture::request(id, 4, 3000)).ok());
  std::vector<double> contended;
  uint64_t steps = 0;
  auto step = [&] {
    const StepPlan &plan = f.plan();
    double rows = 0, history = 0, decodes = 0, decodeHistory = 0;
    bool prompt = false;
    std::vector<PieceResult> results;
    f.choices.assign(64, {7, false, EndReason::stop});
    for (const StepPiece &piece : plan.pieces) {
      double tokens = StepCostModel::historyOf(piece.first, piece.tokens);
      rows += piece.tokens, history += tokens;
      if (piece.reason == Reason::decode)
        decodes += piece.tokens, decodeHistory += tokens;
      else
        prompt = true;
      results.push_back({{f.choices.data(), piece.samples}, false});
    }
    auto seconds = [](double r, double h) { return 1e-3 + 2e-4 * (r + 1e-3 * h); };
    double took = seconds(rows, history) * (++steps % 25 ? 1 : hiccup);
    if (prompt && decodes == sequences) contended.push_back(took / seconds(decodes, decodeHistory));
    f.scheduler->commit(f.now += took, took, results);
  };
  for (int i = 0; i < 100; ++i)
    step();
  for (RequestId id = 100; id < 104; ++id) { // one after the other
    EXPECT_TRUE(f.scheduler->add(f.now, Fixture::request(id, 2000, 1)).ok());
    size_t before = contended.size();
    do
      step(); // until the prompt is through
    while (contended.size() != std::exchange(before, contended.size()));
  }
  std::sort(contended.begin(), contended.end());
  return contended;
}

} // namespace

TEST(Scheduler, OnePromptAtMostDoublesTheTimeBetweenTokens) {
  auto p99 = [](const std::vector<double> &steps) { return steps[steps.size() * 99 / 100]; };
  std::vector<double> known = stepsBesideAPrompt(1e-3, 1), unknown = stepsBesideAPrompt(0, 1);
  std::vector<double> late = stepsBesideAPrompt(1e-3, 1.3);
  std::printf("slowest hundredth %.2f of a decode-only step, %.2f without knowing what history costs, %.2f with hiccups\n",
              p99(known), p99(unknown), p99(late));
  EXPECT_LE(p99(known), 2.0);
  EXPECT_GT(known[known.size() / 2], 1.6); // and the prompt gets nearly all of its share
  EXPECT_LE(p99(unknown), 2.0);
  EXPECT_LT(known.back() - known[known.size() / 10], unknown.back() - unknown[unknown.size() / 10]); // an even pace
  EXPECT_LE(p99(late), 2.0);               // a margin is learned from steps that are late
  EXPECT_GT(late[late.size() / 2], 1.25);
}

TEST(Replay, SameDecisionsAndTheFirstThatDiffers) {
  Trace trace;
  {
    SchedulerOptions o;
    o.maxSequences = 3;
    Fixture f(o, 20, &trace);
    for (RequestId id = 1; id <= 6; ++id)
      ASSERT_TRUE(f.scheduler->add(0, Fixture::request(id, 10 + 5 * id, 12)).ok());
    for (int step = 0; step < 30; ++step) {
      const StepPlan &plan = f.plan();
      if (plan.rows) step == 9 ? f.scheduler->rollback(f.now) : void(f.commit(plan));
      if (step == 5) f.scheduler->cancel(f.now, 2);
      if (step == 15) f.scheduler->clearPrefixCache(f.now);
    }
  }
  auto same = replayTrace(trace.text);
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_TRUE(same->same) << same->expected << " / " << same->found;
  EXPECT_GT(same->steps, 20u);
  std::string changed = trace.text;
  size_t at = changed.find(" decode\n");
  changed.replace(at, 8, " prefill\n");
  auto different = replayTrace(changed);
  ASSERT_TRUE(different.ok());
  EXPECT_FALSE(different->same);
  EXPECT_NE(different->expected.find("prefill"), std::string::npos);
  EXPECT_NE(different->found.find("decode"), std::string::npos);
  // Cut anywhere, with anything in it: an error or a difference, no crash.
  SimRandom random(4);
  for (int i = 0; i < 300; ++i) {
    std::string broken = trace.text.substr(0, random.below(trace.text.size()));
    for (int n = 0; n < 3 && !broken.empty(); ++n)
      broken[random.below(broken.size())] = static_cast<char>(random.below(128));
    (void)replayTrace(broken).ok();
  }
  EXPECT_EQ(replayTrace("hello").status().message(),
            "expected a trace that begins with 'lathe-trace 5', found 'hello'");
  EXPECT_EQ(replayTrace("lathe-trace 5\nO 1 2 x\n").status().message(),
            "line 2 of the trace cannot be read: 'O 1 2 x'");
  EXPECT_EQ(replayTrace("lathe-trace 5\nG 0 0 4096 8 4294967295\nP 0\n").status().message(),
            "the trace asks for 4294967295 KV blocks and 64 sequences of 0 tokens");
}

TEST(StepTimes, ReadsPoints) {
  auto times = StepTimes::parse("# rows seconds\n1 0.003\n\n16 0.010 # measured\n256 0.130\n");
  ASSERT_TRUE(times.ok()) << times.status().message();
  EXPECT_NEAR(times->seconds(16), 0.010, 1e-12);
  EXPECT_NEAR(times->seconds(136), 0.070, 1e-12);
  EXPECT_NEAR(times->seconds(496), 0.250, 1e-12);
  EXPECT_EQ(StepTimes::parse("1 0.1\n").status().message(),
            "expected step times for at least 2 numbers of rows, found 1");
  EXPECT_EQ(StepTimes::parse("1 0.1\n1 0.2\n").status().message(),
            "line 2 of the step times: expected rising 'ROWS SECONDS', found '1 0.2'");
}
