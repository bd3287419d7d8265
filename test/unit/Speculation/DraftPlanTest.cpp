//===- DraftPlanTest.cpp - which drafts get rows --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/Scheduler.h"
#include "runtime/speculation/Types.h"
#include <gtest/gtest.h>
#include <limits>

using namespace lathe;
using namespace lathe::runtime;

namespace {

class DraftPlanTest : public testing::Test {
protected:
  /// A step of n rows takes fixed + n * perRow seconds.
  void make(double fixed, double perRow, uint32_t contextTokens = 100, uint32_t blocks = 40, uint32_t stepTokens = 64) {
    program.kvGroups = {{0, 0, 8, 1, 8}};
    SchedulerOptions o;
    o.maxSequences = 8;
    o.contextTokens = contextTokens;
    o.stepTokens = stepTokens;
    o.cost = StepCostModel(fixed, perRow);
    o.learnCost = false;
    o.freeDrafts = freeDrafts;
    uint32_t count[] = {blocks};
    auto made = Scheduler::create(program, count, o);
    ASSERT_TRUE(made.ok()) << made.status().message();
    scheduler = std::move(*made);
  }
  void start(RequestId id, uint32_t prompt = 4, uint32_t most = 50) {
    ScheduledRequest r;
    r.id = id;
    r.prompt.assign(prompt, 1);
    r.maxTokens = most;
    ASSERT_TRUE(scheduler->add(time, r).ok());
    run();
  }
  /// One step; each piece's rows say 1, 1, 1 ...
  StepPlan run() {
    StepPlan plan = scheduler->plan(time += 0.01);
    std::vector<std::vector<ChoiceResult>> results;
    std::vector<PieceResult> pieces;
    for (const StepPiece &p : plan.pieces) {
      auto &r = results.emplace_back();
      for (uint32_t i = 0; i < std::max(p.samples, p.drafts + 1); ++i) {
        r.push_back({1, false, EndReason::stop});
        if (i < p.drafts && p.ids[i + 1] != 1) break;
      }
    }
    for (auto &r : results)
      pieces.push_back({r, false});
    if (plan.rows) scheduler->commit(time, 0.01, pieces);
    EXPECT_TRUE(scheduler->checkInvariants().ok()) << scheduler->checkInvariants().message();
    return plan;
  }
  void propose(RequestId id, std::vector<float> chances, int32_t token = 1) {
    scheduler->propose(id, 0, std::vector<int32_t>(chances.size(), token), chances);
  }

  Program program;
  std::unique_ptr<Scheduler> scheduler;
  bool freeDrafts = false;
  double time = 0;
};

} // namespace

TEST_F(DraftPlanTest, TakesAsManyAsMakeTheMostOfASecond) {
  make(1.0, 0.1); // a row costs a tenth of the step that reads the weights
  start(1);
  EXPECT_TRUE(scheduler->draftsMayPay());
  propose(1, {0.9f, 0.8f, 0.7f, 0.05f, 0.04f});
  // Tokens a second: 1/1.1, 1.9/1.2, 2.7/1.3, 3.4/1.4, 3.45/1.5.
  StepPlan plan = run();
  ASSERT_EQ(plan.pieces.size(), 1u);
  EXPECT_EQ(plan.pieces[0].drafts, 3u);
  EXPECT_EQ(plan.pieces[0].tokens, 4u);
  EXPECT_EQ(plan.pieces[0].resultFrom, 0u);
  EXPECT_EQ(plan.results, 4u);
  EXPECT_EQ(scheduler->stats().newTokens, 1u + 4u);
  EXPECT_EQ(run().pieces[0].drafts, 0u); // forgotten with the step
}

TEST_F(DraftPlanTest, AFullBatchTakesNone) {
  make(0.1, 1.0); // rows cost what they cost alone
  for (RequestId id = 1; id <= 8; ++id)
    start(id);
  EXPECT_FALSE(scheduler->draftsMayPay());
  for (RequestId id = 1; id <= 8; ++id)
    propose(id, {0.95f, 0.9f});
  for (const StepPiece &p : run().pieces)
    EXPECT_EQ(p.drafts, 0u);
}

TEST_F(DraftPlanTest, FreeDraftsAreTakenWhateverRowsCost) {
  freeDrafts = true;
  make(0.1, 1.0, 100, 60, 20); // rows cost what they cost alone
  for (RequestId id = 1; id <= 8; ++id)
    start(id);
  EXPECT_TRUE(scheduler->draftsMayPay());
  for (RequestId id = 1; id <= 3; ++id)
    propose(id, {0.9f, 0.001f, 0});
  StepPlan plan = run();
  EXPECT_EQ(plan.rows, 8u + 3 * 3);
  for (const StepPiece &p : plan.pieces)
    EXPECT_EQ(p.drafts, p.request <= 3 ? 3u : 0u);
  for (RequestId id = 1; id <= 8; ++id) // the step has 12 rows more
    propose(id, {0.9f, 0.8f, 0.001f});
  plan = run();
  EXPECT_EQ(plan.rows, 20u);
  for (const StepPiece &p : plan.pieces)
    EXPECT_EQ(p.drafts, p.request <= 4 ? 2u : 1u); // the likeliest first
  make(0.1, 1.0, 100, 60, 8); // a step without a row to spare
  for (RequestId id = 1; id <= 8; ++id)
    start(id);
  for (int i = 0; i < 20 && scheduler->decodingChoices() < 8; ++i)
    run();
  EXPECT_EQ(scheduler->decodingChoices(), 8u);
  EXPECT_FALSE(scheduler->draftsMayPay());
}

TEST_F(DraftPlanTest, TheRowsOfTheBatchCount) {
  // The same draft pays for one sequence and not for six: beyond them the machine is used up.
  make(5.0, 0.1);
  scheduler = nullptr;
  SchedulerOptions o;
  o.maxSequences = 8, o.contextTokens = 100, o.stepTokens = 64, o.learnCost = false;
  for (uint32_t rows : {1, 2, 3, 4, 6})
    for (int i = 0; i < 8; ++i)
      o.cost.observe(rows, 1.0);
  for (uint32_t rows : {8, 12, 16, 24, 32})
    for (int i = 0; i < 8; ++i)
      o.cost.observe(rows, rows / 4.0);
  uint32_t blocks[] = {60};
  scheduler = std::move(*Scheduler::create(program, blocks, o));
  start(1);
  propose(1, {0.5f, 0.4f});
  EXPECT_EQ(run().pieces[0].drafts, 2u);
  for (RequestId id = 2; id <= 6; ++id)
    start(id);
  propose(1, {0.5f, 0.4f});
  for (const StepPiece &p : run().pieces)
    EXPECT_EQ(p.drafts, 0u);
}

TEST_F(DraftPlanTest, TheBestDraftsOfAllSequencesAreTaken) {
  make(1.0, 0.1, 100, 60, 6);
  start(1), start(2), start(3);
  propose(1, {0.9f, 0.3f, 0.3f});
  propose(2, {0.8f, 0.7f, 0.2f});
  StepPlan plan = run();
  EXPECT_EQ(plan.rows, 6u);
  for (const StepPiece &p : plan.pieces)
    EXPECT_EQ(p.drafts, p.request == 1 ? 1u : p.request == 2 ? 2u : 0u);
}

TEST_F(DraftPlanTest, RoomEndsWithTheAnswerAndTheContext) {
  make(1.0, 0.01, 24, 12);
  start(1, 4, 6);
  EXPECT_EQ(scheduler->draftRoom(1, 0), 4u); // one token is out, the last of six comes from the last draft's row
  start(2, 20, 50);
  EXPECT_EQ(scheduler->draftRoom(2, 0), 3u); // 21 of 24 tokens are known
  propose(2, {1, 1, 1, 1, 1, 1});
  StepPlan plan = run();
  EXPECT_EQ(plan.pieces.back().drafts, 3u);
  EXPECT_EQ(scheduler->draftRoom(2, 0), 0u); // its context is full: it has ended
  EXPECT_EQ(scheduler->draftRoom(7, 0), 0u);
  EXPECT_EQ(scheduler->draftRoom(1, 1), 0u);
  propose(7, {1.0f});
  EXPECT_EQ(run().pieces.size(), 1u);
}

TEST_F(DraftPlanTest, DraftsTakeNoPromisedBlockAndGiveBackTheirs) {
  make(1.0, 0.001, 64, 8);
  start(1, 7, 60);
  auto used = [&] { return scheduler->stats().kvBlocksUsed; };
  EXPECT_EQ(used(), 1u);
  propose(1, std::vector<float>(16, 1.0f), 2); // all wrong
  StepPlan plan = run();
  EXPECT_EQ(plan.pieces[0].drafts, 16u);
  EXPECT_EQ(used(), 1u); // the slots of 16 rejected rows went back
  // Of 7 blocks one sequence has 5 and another is promised 2: nothing is spare, so drafts end with the second block.
  make(1.0, 0.001, 56, 7);
  start(2, 33, 3);
  start(1, 7, 40);
  propose(1, std::vector<float>(16, 1.0f), 2);
  plan = run();
  ASSERT_EQ(plan.pieces.size(), 2u);
  EXPECT_EQ(plan.pieces[1].request, 1u);
  EXPECT_EQ(plan.pieces[1].drafts, 8u);
}

TEST_F(DraftPlanTest, ChancesThatAreNoneCountAsHopeless) {
  make(1.0, 0.1);
  start(1);
  propose(1, {0.9f, std::numeric_limits<float>::quiet_NaN(), 5.0f, -1.0f});
  EXPECT_EQ(run().pieces[0].drafts, 1u);
}

TEST_F(DraftPlanTest, AResultThatIsNotItsDraftEndsTheRound) {
  make(1.0, 0.01);
  start(1);
  propose(1, {1, 1, 1});
  const StepPlan &plan = scheduler->plan(time += 0.01);
  ASSERT_EQ(plan.pieces[0].drafts, 3u);
  ChoiceResult results[] = {{1, false, EndReason::stop}, {9, false, EndReason::stop}, {1, false, EndReason::stop}};
  PieceResult piece{results, false};
  scheduler->commit(time, 0.01, {&piece, 1});
  EXPECT_TRUE(scheduler->checkInvariants().ok());
  EXPECT_EQ(scheduler->stats().newTokens, 3u); // the first, the accepted one, and the 9 in place of the second draft
}
