//===- GeneratorTest.cpp --------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/Generator.h"
#include "ToyArtifact.h"
#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <set>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

class GeneratorTest : public testing::Test {
protected:
  void make(const EngineOptions &options) {
    ASSERT_TRUE(writeToyArtifact("generator-test.lathe").ok());
    auto loaded = LoadedArtifact::load("generator-test.lathe");
    ASSERT_TRUE(loaded.ok());
    auto made = Engine::create(*loaded, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    engine = *std::move(made);
  }
  GenerateRequest request(std::span<const int32_t> prompt, uint32_t tokens) {
    GenerateRequest r;
    r.sequence = *engine->open();
    r.prompt = prompt;
    r.maxTokens = tokens;
    r.sampling.temperature = 0;
    return r;
  }
  /// The likeliest tokens after |prompt|, from the model computed directly.
  static std::vector<int32_t> expected(std::vector<int32_t> prompt, size_t tokens) {
    std::vector<int32_t> out;
    for (size_t i = 0; i < tokens; ++i) {
      auto logits = toyLogits({}, prompt).back();
      out.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      prompt.push_back(out.back());
    }
    return out;
  }
  std::unique_ptr<Engine> engine;
};

} // namespace

TEST_F(GeneratorTest, GreedyEqualsTheModelAloneAndInCompany) {
  make({.threads = 2, .maxSequences = 5});
  std::vector<std::vector<int32_t>> prompts = {{1}, {2, 3, 4}, {5, 6}, {7, 8, 9, 10, 11, 12}, {1, 2}};
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    requests.push_back(request(prompts[i], static_cast<uint32_t>(4 + 3 * i)));
  std::vector<GenerateResult> results(5);
  GenerateTimings timings;
  ASSERT_TRUE(generate(*engine, requests, results, &timings).ok());
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(results[i].ids, expected(prompts[i], 4 + 3 * i)) << i;
    EXPECT_EQ(results[i].reason, FinishReason::length);
  }
  EXPECT_EQ(timings.promptTokens, 14u);
  EXPECT_EQ(timings.newTokens, 4u + 7 + 10 + 13 + 16);
  EXPECT_EQ(timings.steps, 15u);
}

TEST_F(GeneratorTest, StopTokensAndCallbacksEnd) {
  make({.threads = 1, .maxSequences = 2});
  std::vector<int32_t> prompt = {3, 1, 4}, all = expected(prompt, 6), stops = {all[3]};
  size_t first = static_cast<size_t>(std::find(all.begin(), all.end(), all[3]) - all.begin());
  GenerateRequest requests[2] = {request(prompt, 50), request(prompt, 50)};
  requests[0].stopTokens = stops;
  int seen = 0;
  requests[1].onToken = [&](const Sample &s) { return s.token == all[static_cast<size_t>(seen)] && ++seen < 2; };
  GenerateResult results[2];
  ASSERT_TRUE(generate(*engine, requests, results).ok());
  EXPECT_EQ(results[0].reason, FinishReason::stop);
  EXPECT_EQ(results[0].stopToken, all[3]);
  EXPECT_EQ(results[0].ids, std::vector<int32_t>(all.begin(), all.begin() + static_cast<long>(first)));
  EXPECT_EQ(results[1].reason, FinishReason::cancelled);
  EXPECT_EQ(results[1].ids.size(), 2u);
}

TEST_F(GeneratorTest, AnswersThatAreCancelledBetweenStepsKeepWhatTheyHave) {
  make({.threads = 1, .maxSequences = 2});
  std::vector<int32_t> prompt = {3, 1, 4}, all = expected(prompt, 6);
  std::atomic<bool> stop{false};
  engine->cancelOn(&stop);
  GenerateRequest requests[2] = {request(prompt, 50), request(prompt, 2)};
  int seen = 0;
  requests[0].onToken = [&](const Sample &) {
    stop = ++seen == 4;
    return true; // nobody asks before the next step
  };
  GenerateResult results[2];
  ASSERT_TRUE(generate(*engine, requests, results).ok());
  EXPECT_EQ(results[0].reason, FinishReason::cancelled);
  EXPECT_EQ(results[0].ids, std::vector<int32_t>(all.begin(), all.begin() + 4));
  EXPECT_EQ(results[1].reason, FinishReason::length);
  // Before the first token there is no answer.
  EXPECT_EQ(generate(*engine, {&requests[1], 1}, {&results[1], 1}).code(), StatusCode::cancelled);
  engine->cancelOn(nullptr);
}

TEST_F(GeneratorTest, AFullContextEndsWithLength) {
  make({.threads = 1, .contextTokens = 20});
  std::vector<int32_t> prompt = {3, 1, 4};
  GenerateRequest r = request(prompt, 1000);
  GenerateResult result;
  ASSERT_TRUE(generate(*engine, {&r, 1}, {&result, 1}).ok());
  EXPECT_EQ(result.reason, FinishReason::length);
  EXPECT_EQ(result.ids, expected(prompt, 18)); // the last one needs no place of its own
  EXPECT_EQ(engine->length(r.sequence), 20u);
}

TEST_F(GeneratorTest, WhatTheSequenceHoldsIsNotComputedAgain) {
  make({.threads = 1});
  std::vector<int32_t> prompt = {3, 1, 4, 1, 5};
  GenerateRequest r = request(prompt, 4);
  GenerateResult result;
  ASSERT_TRUE(generate(*engine, {&r, 1}, {&result, 1}).ok());
  prompt.insert(prompt.end(), result.ids.begin(), result.ids.end());
  prompt.push_back(9);
  r.prompt = prompt;
  GenerateTimings timings;
  ASSERT_TRUE(generate(*engine, {&r, 1}, {&result, 1}, &timings).ok());
  EXPECT_EQ(result.cachedTokens, 8u); // the last sampled token was never computed
  EXPECT_EQ(timings.promptTokens, 2u);
  EXPECT_EQ(result.ids, expected(prompt, 4));
  ASSERT_TRUE(generate(*engine, {&r, 1}, {&result, 1}, &timings).ok()); // the same prompt again
  EXPECT_EQ(result.cachedTokens, prompt.size() - 1);
  EXPECT_EQ(result.ids, expected(prompt, 4));
}

TEST_F(GeneratorTest, SampledTokensAreTheSameAloneAndInCompany) {
  make({.threads = 2, .maxSequences = 8, .chunkRows = 5});
  std::vector<std::vector<int32_t>> prompts;
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 8; ++i) prompts.push_back({i % 3, 7, i % 2});
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request(prompts[static_cast<size_t>(i)], 20));
    SamplingParams &p = requests.back().sampling;
    p.temperature = 0.8f + 0.1f * static_cast<float>(i);
    p.topK = i % 2 ? 20 : 0;
    p.frequencyPenalty = 0.3f;
    p.repetitionPenalty = 1.1f;
    p.seed = static_cast<uint64_t>(i / 2);
  }
  std::vector<GenerateResult> together(8);
  ASSERT_TRUE(generate(*engine, requests, together).ok());
  std::set<std::vector<int32_t>> distinct;
  for (size_t i = 0; i < 8; ++i) {
    engine->truncate(requests[i].sequence, 0);
    GenerateResult alone;
    ASSERT_TRUE(generate(*engine, {&requests[i], 1}, {&alone, 1}).ok());
    EXPECT_EQ(alone.ids, together[i].ids) << i;
    distinct.insert(alone.ids);
  }
  EXPECT_GT(distinct.size(), 6u);
}

TEST_F(GeneratorTest, WrongRequests) {
  make({.threads = 1, .contextTokens = 8});
  std::vector<int32_t> prompt(9, 1);
  GenerateRequest r = request(prompt, 1);
  GenerateResult result;
  auto message = [&] {
    EXPECT_TRUE(generate(*engine, {&r, 1}, {&result, 1}).ok());
    EXPECT_EQ(result.reason, FinishReason::failed);
    return result.error.message();
  };
  EXPECT_EQ(message(), "the prompt has 9 tokens, the context holds 8");
  r.prompt = {};
  EXPECT_EQ(message(), "expected a prompt of at least one token");
  r.prompt = std::span(prompt).first(2);
  prompt[1] = toyVocabulary;
  EXPECT_EQ(message(), "token 1: expected an id in 0..49, found 50");
  prompt[1] = 1;
  r.sampling.topP = 2;
  EXPECT_NE(message().find("found 2"), std::string::npos);
  r.sampling.topP = 1;
  r.maxTokens = 0;
  ASSERT_TRUE(generate(*engine, {&r, 1}, {&result, 1}).ok());
  EXPECT_TRUE(result.ids.empty());
  EXPECT_EQ(engine->length(r.sequence), 2u);
}

TEST_F(GeneratorTest, AnErrorOfOneRequestIsItsOwn) {
  make({.threads = 1, .maxSequences = 4});
  std::vector<int32_t> prompt = {3, 1, 4};
  GenerateRequest requests[4] = {request(prompt, 6), request(prompt, 6), request(prompt, 6), request(prompt, 6)};
  requests[1].sampling.repetitionPenalty = 1e-39f; // the sampler finds that logits overflow
  requests[2].sampling.topP = -1;
  requests[3].prompt = {};
  GenerateResult results[4];
  ASSERT_TRUE(generate(*engine, requests, results).ok());
  EXPECT_EQ(results[0].ids, expected(prompt, 6));
  EXPECT_TRUE(results[0].error.ok());
  EXPECT_EQ(results[1].error.message(), "repetition_penalty: 1e-39 makes a logit at position 3 overflow");
  EXPECT_EQ(results[2].error.message(), "top_p: expected a number in (0, 1], found -1");
  EXPECT_EQ(results[3].error.message(), "expected a prompt of at least one token");
  for (int i = 1; i < 4; ++i)
    EXPECT_EQ(results[i].reason, FinishReason::failed);
}
