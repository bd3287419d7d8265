//===- RequestEngineTest.cpp - the engine's thread and its callers --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "EngineTesting.h"
#include "FaultyDevice.h"
#include "runtime/engine/KVBudget.h"
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <sys/resource.h>
#include <thread>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

std::unique_ptr<RequestEngine> makeEngine(RequestEngineOptions options, Device *device = nullptr,
                                          EngineObserver *observer = nullptr) {
  options.threads = 1;
  options.memoryBudget = uint64_t(1) << 30;
  auto engine = RequestEngine::create(loadToy("request-engine-test.lathe"), nullptr, options, device, observer);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

} // namespace

TEST(RequestEngine, AnswersManyCallersAtOnce) {
  auto engine = makeEngine({.maxSequences = 6, .stepTokens = 20});
  constexpr int callers = 4, each = 20;
  std::vector<std::thread> threads;
  for (int c = 0; c < callers; ++c)
    threads.emplace_back([&, c] {
      for (int i = 0; i < each; ++i) {
        Request r = greedy({c, i, 7, 7}, static_cast<uint32_t>(1 + (c * 5 + i) % 15));
        auto ear = std::make_shared<Recorder>();
        auto id = engine->submit(r, ear);
        ASSERT_TRUE(id.ok()) << id.status().message();
        ear->wait();
        EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
        EXPECT_GE(ear->usage.totalSeconds, ear->usage.ttftSeconds);
        EXPECT_GE(ear->usage.ttftSeconds, ear->usage.queueSeconds);
      }
    });
  for (auto &t : threads)
    t.join();
  EXPECT_TRUE(engine->waitIdle(10));
  EngineStats stats = engine->stats();
  EXPECT_EQ(stats.endedLength, uint64_t(callers * each));
  EXPECT_EQ(stats.kvBlocksUsed, 0u);
  EXPECT_EQ(stats.waiting, 0u);
  EXPECT_GT(stats.weightBytes, 0u);
}

TEST(RequestEngine, TenThousandAbortsLeaveNoBlockInUse) {
  auto engine = makeEngine({.maxSequences = 16,
                            .kvTokens = 1024,
                            .savedKvBytes = 1 << 16,
                            .stepTokens = 48,
                            .maxQueued = 64,
                            .checkInvariants = true});
  std::atomic<int> aborts{0}, finished{0};
  class Quiet : public RequestListener {
  public:
    explicit Quiet(std::atomic<int> &count) : count(count) {}
    void piece(uint32_t, const Sample &, std::string_view) override {
      if (leave && --leave == 0 && cancel) cancel();
    }
    void choiceDone(uint32_t, EndReason, std::string_view, int32_t) override {}
    void finished(const RequestUsage &, const Status &) override { ++count; }
    std::atomic<int> &count;
    int leave = 0; ///< tokens after which it cancels itself
    std::function<void()> cancel;
  };
  constexpr int callers = 2, each = 5000;
  std::atomic<int> accepted{0};
  std::vector<std::thread> threads;
  for (int c = 0; c < callers; ++c)
    threads.emplace_back([&, c] {
      std::mt19937 random(static_cast<uint32_t>(c));
      std::vector<RequestId> open;
      for (int i = 0; i < each;) {
        Request r = greedy(std::vector<int32_t>(1 + random() % 60, static_cast<int32_t>(random() % 5)), 40);
        r.choices = 1 + random() % 3;
        auto ear = std::make_shared<Quiet>(finished);
        auto id = engine->submit(std::move(r), ear);
        if (!id.ok()) {
          EXPECT_EQ(id.status().code(), StatusCode::resourceExhausted);
          std::this_thread::yield();
        } else {
          ++accepted;
          open.push_back(*id);
        }
        while (!open.empty() && (random() % 3 == 0 || !id.ok())) {
          size_t which = random() % open.size();
          engine->cancel(open[which]);
          open.erase(open.begin() + static_cast<long>(which));
          ++aborts;
          ++i;
        }
      }
      for (RequestId id : open)
        engine->cancel(id);
    });
  for (auto &t : threads)
    t.join();
  EXPECT_TRUE(engine->waitIdle(60));
  EXPECT_GE(aborts, callers * each);
  EXPECT_EQ(finished, accepted);
  EngineStats stats = engine->stats();
  EXPECT_EQ(stats.kvBlocksUsed, 0u);
  EXPECT_EQ(stats.savedKvBytes, 0u);
  EXPECT_EQ(stats.running + stats.waiting + stats.preempted, 0u);
  EXPECT_GT(stats.endedCancelled, 0u);
  EXPECT_TRUE(engine->broken().ok()) << engine->broken().message(); // after every step
}

TEST(RequestEngine, TheQueueIsBounded) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  auto engine = makeEngine({.maxSequences = 1, .maxQueued = 3, .maxQueuedTokens = 8}, &device);
  device.hold();
  std::vector<std::shared_ptr<Recorder>> ears;
  auto submit = [&](size_t prompt) {
    ears.push_back(std::make_shared<Recorder>());
    return engine->submit(greedy(std::vector<int32_t>(prompt, 1), 3), ears.back());
  };
  ASSERT_TRUE(submit(2).ok());
  device.waitHeld(); // the first runs, and its step lasts
  ASSERT_TRUE(submit(2).ok());
  ASSERT_TRUE(submit(2).ok());
  EXPECT_EQ(submit(5).status().code(), StatusCode::resourceExhausted); // tokens
  ASSERT_TRUE(submit(2).ok());
  auto refused = submit(1);
  EXPECT_EQ(refused.status().message(), "3 requests are waiting, which is the limit");
  EXPECT_GE(engine->retryAfter(), 1);
  EXPECT_EQ(engine->stats().waiting, 3u);
  EXPECT_EQ(engine->stats().rejectedQueue, 2u);
  device.release();
  EXPECT_TRUE(engine->waitIdle(10));
  EXPECT_TRUE(submit(1).ok());
  EXPECT_TRUE(engine->waitIdle(10));
}

// The refusal does not wait for a step: one is being held until all have been refused.
TEST(RequestEngine, ATargetThatCannotBeMetIsRefusedAtOnce) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  auto engine = makeEngine({.maxSequences = 1, .policy = SchedulingPolicy::deadline, .measureSteps = false}, &device);
  device.hold();
  auto ear = std::make_shared<Recorder>();
  ASSERT_TRUE(engine->submit(greedy({1, 2}, 3), ear).ok());
  device.waitHeld();
  Request hopeless = greedy(std::vector<int32_t>(100, 1), 3);
  hopeless.ttftTarget = 1e-3; // a row takes half a millisecond until steps have been seen
  for (int i = 0; i < 20; ++i) {
    auto refused = engine->submit(hopeless, std::make_shared<Recorder>());
    EXPECT_GE(engine->retryAfter(), 1);
    EXPECT_EQ(refused.status().code(), StatusCode::resourceExhausted);
    EXPECT_NE(refused.status().message().find("the request's target is 0.001 s"), std::string::npos);
  }
  EXPECT_EQ(engine->stats().rejectedDeadline, 20u);
  hopeless.ttftTarget = 1000;
  EXPECT_TRUE(engine->submit(hopeless, std::make_shared<Recorder>()).ok());
  EXPECT_FALSE(ear->isFinished);
  device.release();
  EXPECT_TRUE(engine->waitIdle(10));
}

// What a copy takes is measured at start, and slow ones mean that preempted sequences are computed again.
TEST(RequestEngine, SlowCopiesAreNotWorthIt) {
  EXPECT_EQ(makeEngine({})->limits().saveBytesPerSecond, 0); // nothing is saved
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  device.saveSeconds = 0.02; // a hundred times what these rows take to be computed again, also where something pauses
  auto engine = makeEngine({.maxSequences = 8, .kvTokens = 256, .savedKvBytes = 1 << 20, .stepTokens = 32, .prefixCache = false}, &device);
  double fast = makeEngine({.savedKvBytes = 1 << 20})->limits().saveBytesPerSecond;
  EXPECT_GT(engine->limits().saveBytesPerSecond, 0);
  EXPECT_LT(engine->limits().saveBytesPerSecond, 2e6); // a block there and back is less than 20 KB
  EXPECT_GT(fast, engine->limits().saveBytesPerSecond);
  std::vector<std::shared_ptr<Recorder>> ears;
  for (int i = 0; i < 8; ++i) {
    ears.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(engine->submit(greedy({i, 2 * i, 7}, 90), ears.back()).ok());
  }
  EXPECT_TRUE(engine->waitIdle(60));
  EXPECT_GT(engine->stats().preemptedRecompute, 0u);
  EXPECT_EQ(engine->stats().preemptedSave, 0u);
}

// What history costs is measured several times, but not beyond the time for it, half a second: here one step takes all of that.
TEST(RequestEngine, SlowHistoryIsMeasuredOnce) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  device.behindSeconds = 0.6;
  // Not at all where something pauses during the steps before: then again.
  for (int i = 0; i < 4 && !device.behind; ++i)
    makeEngine({}, &device);
  EXPECT_EQ(device.behind, 1);
}

TEST(RequestEngine, DrainingRefusesAndFinishes) {
  auto engine = makeEngine({});
  auto ear = std::make_shared<Recorder>();
  ASSERT_TRUE(engine->submit(greedy({1, 2}, 100), ear).ok());
  engine->drain();
  auto late = engine->submit(greedy({1, 2}, 1), std::make_shared<Recorder>());
  EXPECT_EQ(late.status().code(), StatusCode::failedPrecondition);
  EXPECT_EQ(late.status().message(), "the engine is shutting down and takes no requests");
  EXPECT_TRUE(engine->waitIdle(20));
  EXPECT_EQ(ear->choices[0].reason, EndReason::length);
}

TEST(RequestEngine, TheDestructorCancels) {
  std::vector<std::shared_ptr<Recorder>> ears;
  {
    auto engine = makeEngine({.maxSequences = 2});
    for (int i = 0; i < 6; ++i) {
      ears.push_back(std::make_shared<Recorder>());
      ASSERT_TRUE(engine->submit(greedy({1, 2, i}, 240), ears.back()).ok());
    }
  }
  int cancelled = 0;
  for (auto &ear : ears) {
    EXPECT_TRUE(ear->isFinished);
    cancelled += ear->choices[0].reason == EndReason::cancelled;
  }
  EXPECT_GT(cancelled, 0);
}

TEST(RequestEngine, AListenerMayCancel) {
  auto engine = makeEngine({});
  auto ear = std::make_shared<Recorder>();
  std::atomic<RequestId> id{0};
  ear->onPiece = [&] {
    if (RequestId known = id) engine->cancel(known);
  };
  auto made = engine->submit(greedy({1, 2}, 250), ear);
  ASSERT_TRUE(made.ok());
  id = *made;
  ear->wait();
  // The id may have come too late for the answer's few tokens; then it ended by itself.
  EXPECT_TRUE(ear->choices[0].reason == EndReason::cancelled || ear->choices[0].tokens.size() == 250);
}

TEST(RequestEngine, SeedsThatNobodyGaveAreReported) {
  auto engine = makeEngine({});
  Request r = greedy({1, 2, 3}, 20);
  r.sampling.temperature = 1;
  auto first = std::make_shared<Recorder>(), second = std::make_shared<Recorder>(),
       again = std::make_shared<Recorder>();
  ASSERT_TRUE(engine->submit(r, first).ok());
  ASSERT_TRUE(engine->submit(r, second).ok());
  first->wait();
  second->wait();
  EXPECT_NE(first->seed, second->seed);
  r.hasSeed = true;
  r.sampling.seed = first->seed;
  ASSERT_TRUE(engine->submit(r, again).ok());
  again->wait();
  EXPECT_EQ(again->choices[0].ids(), first->choices[0].ids());
  EXPECT_EQ(engine->submit(r, nullptr).status().message(), "expected a listener");
  EXPECT_EQ(engine->submit(greedy({}, 1), first).status().message(), "prompt: expected at least one token");
}

TEST(RequestEngine, ObserversSeeEveryStepAndEnd) {
  class Counter : public EngineObserver {
  public:
    void step(uint32_t n, double) override { rows += n; }
    void firstToken(const std::string &tenant, double) override { firsts += tenant == "t"; }
    void tokenGap(const std::string &, double) override { ++gaps; }
    void requestDone(const std::string &, EndReason reason, const RequestUsage &usage) override {
      done += reason == EndReason::length;
      tokens += usage.newTokens;
    }
    uint64_t rows = 0, firsts = 0, gaps = 0, done = 0, tokens = 0;
  } counter;
  {
    auto engine = makeEngine({}, nullptr, &counter);
    for (int i = 0; i < 3; ++i) {
      Request r = greedy({1, 2, i}, 5);
      r.tenant = "t";
      ASSERT_TRUE(engine->submit(std::move(r), std::make_shared<Recorder>()).ok());
    }
    EXPECT_TRUE(engine->waitIdle(10));
  }
  EXPECT_EQ(counter.firsts, 3u);
  EXPECT_EQ(counter.gaps, 12u);
  EXPECT_EQ(counter.done, 3u);
  EXPECT_EQ(counter.tokens, 15u);
  EXPECT_EQ(counter.rows, 3u * 7);
}

TEST(RequestEngine, IdleUsesNoTime) {
  auto engine = makeEngine({});
  ASSERT_TRUE(engine->submit(greedy({1}, 2), std::make_shared<Recorder>()).ok());
  EXPECT_TRUE(engine->waitIdle(10));
  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  getrusage(RUSAGE_SELF, &after);
  // A sleeping thread is switched to no more often than something wakes it.
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 20);
}

TEST(KVBudget, ReadsWhatTheSystemSays) {
  EXPECT_EQ(parseMemAvailable("MemTotal:  100 kB\nMemAvailable:   2048 kB\nBuffers: 1 kB\n"), uint64_t(2048) * 1024);
  EXPECT_EQ(parseMemAvailable("MemAvailable: 0 kB\n"), 0u);
  EXPECT_EQ(parseMemAvailable("nothing"), std::nullopt);
  EXPECT_EQ(parseMemAvailable("MemAvailable:"), std::nullopt);
  EXPECT_EQ(groupLeavesFree("max\n", "100\n", ""), UINT64_MAX);
  EXPECT_EQ(groupLeavesFree("", "", ""), UINT64_MAX);
  EXPECT_EQ(groupLeavesFree("1000\n", "400\n", ""), 600u);
  EXPECT_EQ(groupLeavesFree("1000\n", "1000\n", ""), 0u);
  EXPECT_EQ(groupLeavesFree("1000\n", "4000\n", ""), 0u);
  // Files that were read are dropped when memory is wanted.
  EXPECT_EQ(groupLeavesFree("1000\n", "1000\n", "anon 200\ninactive_anon 20\nactive_file 50\ninactive_file 700\n"), 700u);
  EXPECT_EQ(groupLeavesFree("1000\n", "1000\n", "inactive_file 7\ntotal_inactive_anon 3\ntotal_inactive_file 600\n"), 600u);
  EXPECT_EQ(groupLeavesFree("1000\n", "400\n", "inactive_file 500\n"), 1000u); // read a moment later
  EXPECT_EQ(defaultBudget(std::nullopt), 0u); // no limit
  EXPECT_EQ(defaultBudget(0), 1u);            // nothing fits
  EXPECT_EQ(defaultBudget(1000), 500u);
  EXPECT_GT(availableMemory().value_or(0), uint64_t(1) << 20);
}

TEST(KVBudget, TheTightestControlGroupCounts) {
  std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "lathe-memory-test";
  std::filesystem::remove_all(root);
  auto write = [&](const std::string &file, const std::string &text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  const std::string meminfo = "MemAvailable: 1000 kB\n";
  auto available = [&](const std::string &groups) { return availableMemory(meminfo, groups, root); };
  EXPECT_EQ(available("0::/a/b\n"), 1024000u); // no file says anything
  // Version 2: the group and those above it.
  write("a/b/memory.max", "max\n");
  write("a/b/memory.current", "400000\n");
  write("a/memory.max", "900000\n");
  write("a/memory.current", "500000\n");
  EXPECT_EQ(available("0::/a/b\n"), 400000u);
  EXPECT_EQ(available("0::/\n"), 1024000u);
  write("memory.max", "700000\n");
  write("memory.current", "600000\n");
  EXPECT_EQ(available("0::/a/b\n"), 100000u);
  EXPECT_EQ(available("0::/\n"), 100000u);
  // Full, of what cannot be dropped: nothing is left, which is not the same as nothing known.
  write("memory.current", "700000\n");
  EXPECT_EQ(available("0::/a/b\n"), 0u);
  write("memory.stat", "anon 500000\ninactive_file 200000\n");
  EXPECT_EQ(available("0::/a/b\n"), 200000u);
  // Version 1.
  write("memory/job/memory.limit_in_bytes", "300000\n");
  write("memory/job/memory.usage_in_bytes", "50000\n");
  EXPECT_EQ(available("5:memory:/job\n4:cpu,cpuacct:/job\n"), 250000u);
  EXPECT_EQ(available("4:cpu,cpuacct:/job\n"), 1024000u);
  EXPECT_EQ(availableMemory("", "", root), std::nullopt);
  std::filesystem::remove_all(root);
}

// Prompts that no toy model takes.
TEST(RequestCheckLimits, ScoresOfAPromptAreBounded) {
  Program program;
  program.vocabulary = 100;
  EngineLimits limits;
  limits.contextTokens = 200000;
  limits.maxSequences = 5;
  RequestCheck check(program, limits, false);
  Request r;
  r.prompt.assign(maxPromptScores / 20, 1);
  r.promptLogprobs = 20;
  EXPECT_TRUE(check(r).ok()) << check(r).message();
  r.prompt.assign(maxPromptScores / 20 + 1, 1);
  EXPECT_EQ(check(r).message(), "prompt_logprobs: expected at most 1048576 values for a prompt, found 1048580");
  r.promptLogprobs = 19;
  EXPECT_TRUE(check(r).ok());
  r.choices = 6;
  EXPECT_EQ(check(r).message(), "n: expected 1 to 5, found 6");
}
