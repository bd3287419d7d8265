//===- GraphEngineTest.cpp - a general graph in the serving engine ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "EngineTesting.h"

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

const std::string path = "graph-engine-test.lathe";

Result<std::unique_ptr<EngineCore>> make(RequestEngineOptions options, ToyGraphMode mode = ToyGraphMode::whole) {
  EXPECT_TRUE(writeToyGraph(path, mode).ok());
  auto artifact = LoadedArtifact::load(path);
  EXPECT_TRUE(artifact.ok()) << artifact.status().message();
  options.memoryBudget = uint64_t(1) << 30;
  options.checkInvariants = true;
  return EngineCore::create(*artifact, nullptr, options, nullptr, nullptr, {});
}

std::vector<int32_t> likeliest(std::vector<int32_t> tokens, uint32_t count) {
  std::vector<int32_t> out;
  for (; count; --count) {
    auto row = toyGraphLogits(tokens).back();
    out.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    tokens.push_back(out.back());
  }
  return out;
}

} // namespace

TEST(GraphEngine, ServesOneSequenceAfterTheOther) {
  auto core = make({.maxSequences = 1, .stepTokens = 5});
  ASSERT_TRUE(core.ok()) << core.status().message();
  EXPECT_TRUE((*core)->limits().generalGraph);
  EXPECT_FALSE((*core)->limits().prefixCache);
  // Prompts with a common beginning: nothing of the first may be taken for the second.
  std::vector<std::vector<int32_t>> prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, {9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19}, {4, 4}};
  std::vector<std::shared_ptr<Recorder>> ears;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request r = greedy(prompts[i], 6);
    ASSERT_TRUE((*core)->check()(r).ok());
    ears.push_back(std::make_shared<Recorder>());
    (*core)->add(i + 1, r, ears.back(), (*core)->now());
  }
  for (int most = 400; !(*core)->idle() && most > 0; --most)
    (*core)->step();
  EXPECT_TRUE((*core)->broken().ok()) << (*core)->broken().message();
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_TRUE(ears[i]->error.ok()) << ears[i]->error.message();
    EXPECT_EQ(ears[i]->choices[0].ids(), likeliest(prompts[i], 6)) << i;
    EXPECT_EQ(ears[i]->usage.cachedTokens, 0u);
  }
}

TEST(GraphEngine, AFailedRequestLeavesTheNextAlone) {
  auto core = make({.maxSequences = 1, .stepTokens = 5});
  ASSERT_TRUE(core.ok()) << core.status().message();
  std::vector<std::shared_ptr<Recorder>> ears;
  for (const auto &prompt : {std::vector<int32_t>{1, 2, toyGraphBadToken}, {3, 4}}) {
    ears.push_back(std::make_shared<Recorder>());
    (*core)->add(ears.size(), greedy(prompt, 3), ears.back(), (*core)->now());
  }
  for (int most = 100; !(*core)->idle() && most > 0; --most)
    (*core)->step();
  EXPECT_EQ(ears[0]->error.message(), "node 'embed': a bad token");
  EXPECT_EQ(ears[1]->choices[0].ids(), likeliest({3, 4}, 3));
}

TEST(GraphEngine, WhatNeedsBlocksIsRefused) {
  auto message = [](RequestEngineOptions options) { return make(options).status().message(); };
  EXPECT_EQ(message({.maxSequences = 2}), "this artifact holds a general graph, which serves one sequence at a time: expected 1 sequence, found 2");
  EXPECT_EQ(message({.maxSequences = 1, .speculate = Speculation::ngram}),
            "this artifact holds a general graph, whose one cache has no KV blocks: expected no drafts, which need a model raised to llm ops");
  EXPECT_EQ(message({.maxSequences = 1, .savedKvBytes = 1 << 20}),
            "this artifact holds a general graph, whose one cache has no KV blocks: expected no saved KV blocks, which need a model raised to llm ops");
  auto core = make({.maxSequences = 1});
  ASSERT_TRUE(core.ok());
  Request r = greedy({1}, 1);
  r.speculate = Speculation::automatic;
  EXPECT_EQ((*core)->check()(r).message(), "speculate: expected off, because the model is a general graph, whose one cache has no KV blocks to draft with");
  r = greedy({1}, 1);
  r.choices = 2;
  EXPECT_EQ((*core)->check()(r).message(), "n: expected 1 to 1, found 2");
  r = greedy({1}, 1);
  r.kind = RequestKind::embedding;
  EXPECT_EQ((*core)->check()(r).code(), StatusCode::unsupported);
}
