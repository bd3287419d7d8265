//===- EngineCoreTest.cpp - requests, step by step ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "EngineTesting.h"
#include "FaultyDevice.h"
#include <cmath>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

class EngineCoreTest : public testing::Test {
protected:
  void make(RequestEngineOptions options = {}, Device *device = nullptr, const ToyOptions &toy = {}) {
    artifact = loadToy("engine-core-test.lathe", toy);
    if (toy.words) {
      auto made = TextModel::create(*artifact);
      ASSERT_TRUE(made.ok());
      text = std::make_shared<TextModel>(*std::move(made));
    }
    if (!options.threads) options.threads = 1;
    options.memoryBudget = uint64_t(1) << 30;
    options.poisonFreeBlocks = true;
    options.checkInvariants = checkEachStep;
    options.measureSteps = false;
    auto made = EngineCore::create(artifact, text, options, device, nullptr, [this] { return time += 1e-4; });
    ASSERT_TRUE(made.ok()) << made.status().message();
    core = *std::move(made);
    next = 1;
  }
  std::shared_ptr<Recorder> add(const Request &request) {
    auto ear = std::make_shared<Recorder>(request.choices);
    Status status = core->check()(request);
    EXPECT_TRUE(status.ok()) << status.message();
    core->add(next++, request, ear, core->now());
    return ear;
  }
  void run(int most = 2000) {
    while (!core->idle() && most-- > 0) {
      core->step();
      EXPECT_TRUE(core->broken().ok()) << core->broken().message();
    }
    EXPECT_TRUE(core->idle());
    EXPECT_EQ(core->stats().kvBlocksUsed, 0u);
  }
  std::string refusal(const Request &request) { return core->check()(request).message(); }

  std::shared_ptr<LoadedArtifact> artifact;
  std::shared_ptr<TextModel> text;
  std::unique_ptr<EngineCore> core;
  RequestId next = 1;
  double time = 0;
  bool checkEachStep = true;
};

} // namespace

TEST_F(EngineCoreTest, ManyRequestsEqualTheModelComputedDirectly) {
  make({.maxSequences = 6, .stepTokens = 13});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Recorder>> ears;
  for (int i = 0; i < 20; ++i) {
    Request r = greedy({}, static_cast<uint32_t>(1 + i % 9));
    for (int t = 0; t < 1 + i * 7 % 40; ++t)
      r.prompt.push_back((i / 3 * 11 + t * 5) % toyVocabulary); // threes share a beginning
    r.hasSeed = true;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.temperature = i % 2 ? 0.9f : 0;
    r.sampling.frequencyPenalty = i % 5 ? 0 : 0.5f;
    r.sampling.logprobs = i % 4;
    requests.push_back(r);
    ears.push_back(add(r));
    if (i % 3 == 0) core->step();
  }
  run();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(sameSamples(ears[i]->choices[0].tokens, aloneSamples(requests[i]))) << i;
    EXPECT_EQ(ears[i]->choices[0].reason, EndReason::length);
    EXPECT_EQ(ears[i]->usage.promptTokens, requests[i].prompt.size());
    EXPECT_EQ(ears[i]->usage.newTokens, requests[i].maxTokens);
    EXPECT_TRUE(ears[i]->error.ok());
    EXPECT_EQ(ears[i]->seed, i);
  }
  EngineStats stats = core->stats();
  EXPECT_EQ(stats.endedLength, 20u);
  EXPECT_GT(stats.busySeconds, 0);
}

TEST_F(EngineCoreTest, ChoicesShareThePromptAndDrawTheirOwn) {
  make({.maxSequences = 8});
  Request r = greedy({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, 20);
  r.choices = 5;
  r.hasSeed = true;
  r.sampling.temperature = 1.2f;
  r.sampling.presencePenalty = 0.5f;
  auto ear = add(r);
  run();
  for (uint32_t c = 0; c < 5; ++c)
    EXPECT_TRUE(sameSamples(ear->choices[c].tokens, aloneSamples(r, c))) << c;
  EXPECT_NE(ear->choices[0].ids(), ear->choices[1].ids());
  EXPECT_EQ(ear->usage.newTokens, 100u);
  EXPECT_EQ(ear->usage.longestTokens, 20u);
  EXPECT_EQ(core->stats().rows, 18u + 5 * 19);
}

TEST_F(EngineCoreTest, AHitOfThePrefixCacheShowsInNoBit) {
  make({.stepTokens = 64});
  Request r = greedy({}, 10);
  for (int t = 0; t < 70; ++t)
    r.prompt.push_back(t * 3 % toyVocabulary);
  r.sampling.logprobs = 2;
  auto cold = add(r);
  run();
  auto warm = add(r);
  run();
  EXPECT_EQ(cold->usage.cachedTokens, 0u);
  EXPECT_EQ(warm->usage.cachedTokens, 64u); // whole pages of 32
  EXPECT_TRUE(sameSamples(warm->choices[0].tokens, cold->choices[0].tokens));
  EXPECT_TRUE(sameSamples(warm->choices[0].tokens, aloneSamples(r)));
  Request other = r;
  other.tenant = "b";
  auto stranger = add(other);
  run();
  EXPECT_EQ(stranger->usage.cachedTokens, 0u);
  core->clearPrefixCache();
  auto cleared = add(r);
  run();
  EXPECT_EQ(cleared->usage.cachedTokens, 0u);
}

TEST_F(EngineCoreTest, FreeMemoryIsTouchedOnceAndNothingElse) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  artifact = loadToy("engine-core-test.lathe");
  RequestEngineOptions o{.threads = 1, .maxSequences = 2, .checkInvariants = true, .measureSteps = false};
  auto made = EngineCore::create(artifact, nullptr, o, &device, nullptr, [this] { return time += 1e-4; });
  ASSERT_TRUE(made.ok()) << made.status().message();
  core = *std::move(made);
  Request r = greedy({}, 10);
  for (int t = 0; t < 70; ++t)
    r.prompt.push_back(t * 5 % toyVocabulary);
  auto cold = add(r);
  run();
  uint64_t cached = core->stats().kvBlocksCached, all = core->stats().kvBlocks;
  EXPECT_GT(cached, 0u);
  while (core->warmMemory()) {
  }
  EXPECT_EQ(device.filled.size(), all - cached);
  for (auto &[block, times] : device.filled)
    EXPECT_EQ(times, 1);
  auto warm = add(r); // what the cache holds is as it was
  run();
  EXPECT_EQ(warm->usage.cachedTokens, 64u);
  EXPECT_TRUE(sameSamples(warm->choices[0].tokens, aloneSamples(r)));
}

TEST_F(EngineCoreTest, StopsAndLimits) {
  make();
  Request r = greedy({3, 1, 4}, 30);
  auto all = aloneSamples(r);
  r.stopTokens = {all[6].token};
  size_t first = 0;
  while (all[first].token != r.stopTokens[0])
    ++first;
  auto stopped = add(r);
  r.sampling.minTokens = 12;
  auto later = add(r);
  Request none = greedy({3, 1, 4}, 0), full = greedy(std::vector<int32_t>(250, 2), 1000);
  auto nothing = add(none), toTheEnd = add(full);
  run();
  EXPECT_EQ(stopped->choices[0].reason, EndReason::stop);
  EXPECT_EQ(stopped->choices[0].stopToken, r.stopTokens[0]);
  EXPECT_EQ(stopped->choices[0].tokens.size(), first);
  EXPECT_GE(later->choices[0].tokens.size(), 12u);
  EXPECT_TRUE(sameSamples(later->choices[0].tokens, aloneSamples(r)));
  EXPECT_EQ(nothing->choices[0].reason, EndReason::length);
  EXPECT_TRUE(nothing->choices[0].tokens.empty());
  EXPECT_EQ(toTheEnd->choices[0].reason, EndReason::length);
  EXPECT_EQ(toTheEnd->choices[0].tokens.size(), 7u); // the last needs no place of its own
}

TEST_F(EngineCoreTest, TextAndStopStrings) {
  ToyOptions toy;
  toy.words = true;
  make({.maxSequences = 4}, nullptr, toy);
  Request r = greedy(text->encode("say a"), 30);
  r.ignoreEnd = true;
  auto whole = add(r);
  run();
  std::string all = whole->choices[0].text, stop = all.substr(9, 3);
  ASSERT_EQ(whole->choices[0].tokens.size(), 30u);
  size_t at = all.find(stop);
  r.stops = {"no such text", stop};
  auto cut = add(r);
  r.includeStop = true;
  auto kept = add(r);
  r.includeStop = false;
  r.sampling.minTokens = 29;
  auto held = add(r);
  r.sampling.minTokens = 0;
  r.stops = {all.substr(all.size() - 2) + "never"}; // is held back to the end, and comes then
  auto flushed = add(r);
  run();
  EXPECT_EQ(cut->choices[0].text, all.substr(0, at));
  EXPECT_EQ(cut->choices[0].reason, EndReason::stop);
  EXPECT_EQ(cut->choices[0].stopText, stop);
  EXPECT_EQ(kept->choices[0].text, all.substr(0, at + stop.size()));
  EXPECT_EQ(held->choices[0].tokens.size(), 30u);
  EXPECT_EQ(flushed->choices[0].text, all);
  EXPECT_EQ(flushed->choices[0].reason, EndReason::length);
}

TEST_F(EngineCoreTest, PromptScoresInAnySlices) {
  for (uint32_t step : {5u, 64u}) {
    make({.maxSequences = 3, .stepTokens = step}); // 8 rows of logits at most in one go
    Request r = greedy({}, 3);
    for (int t = 0; t < 41; ++t)
      r.prompt.push_back(t * t % toyVocabulary);
    r.promptLogprobs = 2;
    auto ear = add(r);
    r.maxTokens = 0;
    auto scoresOnly = add(r);
    run();
    auto logits = toyLogits({}, r.prompt);
    ASSERT_EQ(ear->scores.size(), r.prompt.size());
    EXPECT_TRUE(std::isnan(ear->scores[0].logprob));
    for (size_t i = 1; i < r.prompt.size(); ++i) {
      double sum = 0, top = *std::max_element(logits[i - 1].begin(), logits[i - 1].end());
      for (float x : logits[i - 1])
        sum += std::exp(double(x) - top);
      double expected = double(logits[i - 1][static_cast<size_t>(r.prompt[i])]) - top - std::log(sum);
      EXPECT_NEAR(ear->scores[i].logprob, expected, 1e-5) << i;
      ASSERT_EQ(ear->scores[i].top.size(), 2u);
      EXPECT_GE(ear->scores[i].top[0].logprob, ear->scores[i].top[1].logprob);
      EXPECT_EQ(ear->scores[i].token, r.prompt[i]);
      EXPECT_EQ(scoresOnly->scores[i].logprob, ear->scores[i].logprob);
    }
    EXPECT_EQ(ear->choices[0].tokens.size(), 3u);
    EXPECT_EQ(scoresOnly->choices[0].reason, EndReason::length);
  }
}

TEST_F(EngineCoreTest, EmbeddingsArePooledHiddenStates) {
  make({.maxSequences = 3, .stepTokens = 7});
  Request r;
  r.kind = RequestKind::embedding;
  for (int t = 0; t < 30; ++t)
    r.prompt.push_back(t * 7 % toyVocabulary);
  auto last = add(r);
  r.pooling = Pooling::mean;
  auto mean = add(r);
  auto company = add(greedy({1, 2, 3}, 20));
  run();
  auto rows = toyEmbeddings({}, r.prompt);
  EXPECT_EQ(last->vector, rows.back());
  ASSERT_EQ(mean->vector.size(), size_t(toyWidth));
  for (size_t d = 0; d < toyWidth; ++d) {
    double sum = 0;
    for (auto &row : rows)
      sum += static_cast<double>(row[d]);
    EXPECT_EQ(mean->vector[d], static_cast<float>(sum * (1.0 / 30)));
  }
  EXPECT_FALSE(last->choices[0].done);
  EXPECT_EQ(last->usage.newTokens, 0u);
  EXPECT_EQ(company->choices[0].tokens.size(), 20u);
}

TEST_F(EngineCoreTest, CancellingAtAnyPointFreesEverything) {
  for (int when = 0; when < 12; ++when) {
    make({.maxSequences = 3, .kvTokens = 300, .stepTokens = 16});
    Request r = greedy(std::vector<int32_t>(60, 3), 20);
    r.choices = 2;
    auto cut = add(r), whole = add(greedy({1, 2, 3}, 30));
    for (int i = 0; i < when; ++i)
      core->step();
    core->cancel(1);
    core->cancel(99);
    core->step();
    EXPECT_TRUE(cut->isFinished) << "within one step";
    EXPECT_EQ(cut->choices[0].reason, EndReason::cancelled);
    EXPECT_EQ(cut->choices[1].reason, EndReason::cancelled);
    EXPECT_TRUE(cut->error.ok());
    run();
    EXPECT_TRUE(sameSamples(whole->choices[0].tokens, aloneSamples(greedy({1, 2, 3}, 30))));
  }
}

TEST_F(EngineCoreTest, DeadlinesEndWithTimeout) {
  make();
  Request r = greedy({1, 2, 3}, 200);
  r.deadline = 0.02;
  auto late = add(r);
  run();
  EXPECT_EQ(late->choices[0].reason, EndReason::timeout);
  EXPECT_GT(late->choices[0].tokens.size(), 0u);
  EXPECT_LT(late->choices[0].tokens.size(), 200u);
  EXPECT_EQ(core->stats().endedTimeout, 1u);
}

TEST_F(EngineCoreTest, PreemptionOfBothKindsShowsInNoBit) {
  for (PreemptionMode mode : {PreemptionMode::recompute, PreemptionMode::save}) {
    make({.maxSequences = 8,
          .kvTokens = 256,
          .savedKvBytes = 1 << 20,
          .stepTokens = 32,
          .preemption = mode,
          .prefixCache = false});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Recorder>> ears;
    for (int i = 0; i < 8; ++i) {
      requests.push_back(greedy({i, 2 * i, 7}, 90));
      requests.back().sampling.logprobs = 1;
      ears.push_back(add(requests.back()));
    }
    run(20000);
    uint32_t preempted = 0;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(sameSamples(ears[i]->choices[0].tokens, aloneSamples(requests[i]))) << i;
      preempted += ears[i]->usage.preemptions;
    }
    EngineStats stats = core->stats();
    EXPECT_GT(preempted, 0u);
    EXPECT_GT(mode == PreemptionMode::save ? stats.preemptedSave : stats.preemptedRecompute, 0u);
    EXPECT_EQ(stats.preemptedBlocks, stats.preemptedSave + stats.preemptedRecompute);
    EXPECT_EQ(stats.preemptedPriority, 0u);
    EXPECT_EQ(stats.savedKvBytes, 0u);
  }
}

TEST_F(EngineCoreTest, AnErrorOfOneRequestIsItsOwn) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  make({.maxSequences = 4}, &device);
  Request bad = greedy({1, 2, 3}, 50);
  bad.sampling.repetitionPenalty = 1e-39f;
  auto failed = add(bad);
  auto good = add(greedy({1, 2, 3}, 50));
  run();
  EXPECT_EQ(failed->choices[0].reason, EndReason::failed);
  EXPECT_NE(failed->error.message().find("repetition_penalty: 1e-39 makes a logit at position"), std::string::npos);
  EXPECT_TRUE(good->error.ok()) << good->error.message();
  EXPECT_TRUE(sameSamples(good->choices[0].tokens, aloneSamples(greedy({1, 2, 3}, 50))));
  EXPECT_EQ(core->stats().endedFailed, 1u);

  device.poisonedRow = 1; // of the logits: the second request's
  auto first = add(greedy({1, 2, 3}, 5)), second = add(greedy({4, 5}, 5));
  run();
  EXPECT_TRUE(sameSamples(first->choices[0].tokens, aloneSamples(greedy({1, 2, 3}, 5))));
  EXPECT_EQ(second->choices[0].reason, EndReason::failed);
  EXPECT_EQ(second->error.message(), "logits at position 2: token 0 has nan");
  EXPECT_EQ(core->stats().corrupted, 1u); // and not the request whose own penalty was at fault
}

TEST_F(EngineCoreTest, ABrokenInvariantIsTold) {
  make();
  auto ear = add(greedy({1, 2, 3}, 5));
  run();
  EXPECT_FALSE(core->stats().broken);
  core->kv().pool(0).allocate(); // a block that no table names
  add(greedy({1, 2, 3}, 5));
  while (!core->idle())
    core->step();
  EXPECT_TRUE(core->stats().broken);
  EXPECT_NE(core->broken().message(), "");
}

TEST_F(EngineCoreTest, AnEngineThatIsNeverIdleIsCheckedToo) {
  checkEachStep = false;
  make({.maxSequences = 2});
  core->kv().pool(0).allocate(); // a block that no table names
  uint32_t added = 0;
  for (int steps = 0; steps < 1005; ++steps) {
    while (core->inside() < 2)
      add(greedy({1, 2, 3}, 100 + 37 * (added++ % 3))); // never two that end together
    core->step();
    if (steps == 990) EXPECT_FALSE(core->stats().broken);
  }
  EXPECT_TRUE(core->stats().broken);
}

TEST_F(EngineCoreTest, ADeviceErrorRollsTheStepBack) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  make({.maxSequences = 3}, &device);
  Request r = greedy({1, 2, 3}, 40);
  auto inTheStep = add(r);
  core->step();
  core->step();
  device.failing = true;
  core->step();
  device.failing = false;
  auto after = add(r);
  run();
  EXPECT_EQ(inTheStep->choices[0].reason, EndReason::failed);
  EXPECT_EQ(inTheStep->choices[0].tokens.size(), 2u);
  EXPECT_EQ(inTheStep->error.message(), "the device is on fire");
  EXPECT_TRUE(sameSamples(after->choices[0].tokens, aloneSamples(r)));
}

TEST_F(EngineCoreTest, AFailedSaveEndsWhatItWasFor) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  make({.maxSequences = 8,
        .kvTokens = 256,
        .savedKvBytes = 1 << 20,
        .stepTokens = 32,
        .preemption = PreemptionMode::save,
        .prefixCache = false},
       &device);
  device.failingSaves = true;
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Recorder>> ears;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(greedy({i, 2 * i, 7}, 90));
    ears.push_back(add(requests.back()));
  }
  run(20000);
  int failed = 0;
  for (size_t i = 0; i < 8; ++i) {
    if (ears[i]->choices[0].reason == EndReason::failed) {
      EXPECT_EQ(ears[i]->error.message(), "the device cannot read");
      ++failed;
      continue;
    }
    EXPECT_TRUE(sameSamples(ears[i]->choices[0].tokens, aloneSamples(requests[i]))) << i;
  }
  EXPECT_GT(failed, 0);
  device.failingSaves = false;
  auto after = add(requests[0]);
  run();
  EXPECT_TRUE(sameSamples(after->choices[0].tokens, aloneSamples(requests[0])));
}

TEST_F(EngineCoreTest, AnEmbeddingThatIsNotFiniteFails) {
  auto cpu = makeCpuDevice();
  FaultyDevice device(*cpu);
  make({}, &device);
  device.poisonedRow = 0;
  Request r;
  r.kind = RequestKind::embedding;
  r.prompt = {1, 2, 3};
  auto ear = add(r);
  run();
  EXPECT_EQ(ear->choices[0].reason, EndReason::failed);
  EXPECT_EQ(ear->error.message().substr(0, 41), "hidden state at position 2: value 0 is na");
  EXPECT_TRUE(ear->vector.empty());
}

TEST_F(EngineCoreTest, LogitsAreComputedWhereARowNeedsThem) {
  make({.maxSequences = 4});
  auto alone = add(greedy({1, 2, 3}, 10));
  run();
  uint64_t steps = core->stats().steps;
  EXPECT_EQ(core->stats().choiceSteps, steps);
  EXPECT_TRUE(sameSamples(alone->choices[0].tokens, aloneSamples(greedy({1, 2, 3}, 10))));
  // Each of these needs logits at every step; a greedy request in their company gets them too.
  std::vector<Request> needy(6, greedy({4, 5, 6}, 10));
  needy[0].sampling.logprobs = 1;
  needy[1].sampling.temperature = 1;
  needy[2].sampling.frequencyPenalty = 0.5f;
  needy[3].sampling.logitBias = {{3, 0.25f}};
  needy[4].promptLogprobs = 0; // of the prompt only
  needy[5].sampling.minTokens = 4; // as long as end tokens are held back
  needy[5].stopTokens = {48};
  const uint64_t most[] = {0, 0, 0, 0, 9, 6};
  for (size_t i = 0; i < needy.size(); ++i) {
    SCOPED_TRACE(i);
    uint64_t before = core->stats().choiceSteps;
    auto company = add(greedy({1, 2, 3}, 10)), ear = add(needy[i]);
    run();
    EXPECT_EQ(core->stats().choiceSteps - before, most[i]);
    EXPECT_TRUE(sameSamples(company->choices[0].tokens, aloneSamples(greedy({1, 2, 3}, 10))));
    EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(needy[i])));
  }
}

TEST_F(EngineCoreTest, AProgramWithoutTheEntryHasNoEmbeddings) {
  Program p = toyProgram({});
  std::erase_if(p.entries, [](const Entry &e) { return e.name == "embed"; });
  p.embeddingStride = 0;
  auto writer = artifact::ArtifactWriter::create("engine-core-test-embed.lathe");
  ASSERT_TRUE(addToySections(*writer, {}, p).ok());
  ASSERT_TRUE(writer->finish().ok());
  auto loaded = LoadedArtifact::load("engine-core-test-embed.lathe");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  auto without = EngineCore::create(*loaded, nullptr, {.threads = 1, .memoryBudget = 1 << 30, .measureSteps = false},
                                    nullptr, nullptr, {});
  ASSERT_TRUE(without.ok()) << without.status().message();
  Request r = greedy({1, 2, 3}, 1);
  EXPECT_TRUE((*without)->check()(r).ok());
  r.kind = RequestKind::embedding;
  EXPECT_EQ((*without)->check()(r).code(), StatusCode::unsupported);
  EXPECT_EQ((*without)->check()(r).message(),
            "the artifact has no 'embed' entry: its model does not end in a norm and a linear, or an older "
            "compiler made it; compile it again");
  auto device = makeCpuDevice();
  ExecutableOptions options;
  options.threads = 1;
  options.kvBlocks = {1, 1};
  auto program = device->prepare(*loaded, options);
  ASSERT_TRUE(program.ok());
  LatheStep step{};
  step.size = sizeof step;
  step.outRows = 1;
  EXPECT_EQ((*program)->submit(EntryKind::embed, step).status().message(), "the program has no entry 'embed'");
}

TEST_F(EngineCoreTest, WrongRequestsNameTheField) {
  make({.contextTokens = 100, .maxSequences = 4});
  auto with = [&](auto &&change) {
    Request r = greedy({1, 2}, 4);
    change(r);
    return refusal(r);
  };
  EXPECT_EQ(with([](Request &) {}), "");
  EXPECT_EQ(with([](Request &r) { r.prompt.clear(); }), "prompt: expected at least one token");
  EXPECT_EQ(with([](Request &r) { r.prompt.assign(101, 1); }), "prompt: 101 tokens, the context holds 100");
  EXPECT_EQ(with([](Request &r) { r.prompt[1] = 50; }), "prompt: token 1: expected an id in 0..49, found 50");
  EXPECT_EQ(with([](Request &r) { r.choices = 5; }), "n: expected 1 to 4, found 5");
  EXPECT_EQ(with([](Request &r) { r.choices = 2, r.maxTokens = 0; }), "n: expected 1 when max_tokens is 0, found 2");
  EXPECT_EQ(with([](Request &r) { r.sampling.topP = 0; }), "top_p: expected a number in (0, 1], found 0");
  EXPECT_EQ(with([](Request &r) {
              r.sampling.logitBias = {{-1, 1.0f}};
            }),
            "logit_bias: expected token ids below 50, found -1");
  EXPECT_EQ(with([](Request &r) {
              r.sampling.logitBias.assign(51, {1, 1.0f});
            }),
            "logit_bias: expected at most 50 entries, found 51");
  EXPECT_EQ(with([](Request &r) { r.stopTokens = {50}; }), "stop_token_ids: expected token ids below 50, found 50");
  EXPECT_EQ(with([](Request &r) { r.stopTokens.assign(5000, 1); }),
            "stop_token_ids: expected at most 4096 tokens, found 5000");
  EXPECT_EQ(with([](Request &r) { r.stops = {"x"}; }),
            "stop: the model has no tokenizer, so there is no text to find it in");
  EXPECT_EQ(with([](Request &r) { r.stops.assign(65, ""); }), "stop: expected at most 64 strings, found 65");
  EXPECT_EQ(with([](Request &r) { r.stops = {std::string(20000, 'x')}; }),
            "stop: expected at most 16384 bytes in all, found 20000");
  EXPECT_EQ(with([](Request &r) { r.promptLogprobs = 51; }), "prompt_logprobs: expected -1 to 50, found 51");
  EXPECT_EQ(with([](Request &r) { r.tenant.assign(2000, 'x'); }), "tenant: expected at most 1024 bytes, found 2000");
  EXPECT_EQ(with([](Request &r) { r.cacheSalt.assign(2000, 'x'); }),
            "cache_salt: expected at most 1024 bytes, found 2000");
  EXPECT_EQ(with([](Request &r) { r.deadline = -1; }), "deadline: expected seconds >= 0, found -1");
  EXPECT_EQ(with([](Request &r) { r.ttftTarget = INFINITY; }), "ttft_target: expected seconds >= 0, found inf");
  EXPECT_EQ(with([](Request &r) { r.tpotTarget = NAN; }).substr(0, 34), "tpot_target: expected seconds >= 0");
  auto embedding = [&](auto &&change) {
    return with([&](Request &r) {
      r.kind = RequestKind::embedding;
      change(r);
    });
  };
  EXPECT_EQ(embedding([](Request &) {}), "");
  EXPECT_EQ(embedding([](Request &r) { r.choices = 2; }), "n: an embedding has one choice, found 2");
  EXPECT_EQ(embedding([](Request &r) { r.promptLogprobs = 0; }), "prompt_logprobs: an embedding has none");
}

TEST_F(EngineCoreTest, WrongOptions) {
  auto toy = loadToy("engine-core-test.lathe");
  auto message = [&](const RequestEngineOptions &o) {
    return EngineCore::create(toy, nullptr, o, nullptr, nullptr, {}).status().message();
  };
  EXPECT_EQ(message({.contextTokens = 1000}),
            "expected a context of at most 256 tokens, found 1000; compile with '--max-seq 1000'");
  EXPECT_EQ(message({.maxSequences = 0}), "expected 1 to 4096 sequences, found 0");
  EXPECT_EQ(message({.maxQueued = 0}), "expected a queue of at least 1 request: each passes through it");
  EXPECT_NE(message({.memoryBudget = 20000}).find("the longest that fits has"), std::string::npos);
  EXPECT_NE(message({.tracePath = "no/such/folder/trace"}).find("the trace 'no/such/folder/trace'"), std::string::npos);
}
