//===- SpeculationEngineTest.cpp - speculation changes no token -----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The toy model computed directly is the oracle: whatever is drafted, right or wrong, the engine must say the same.
//===----------------------------------------------------------------------===//
#include "EngineTesting.h"
#include "FaultyDevice.h"
#include "runtime/device/Trees.h"
#include <map>
#include <random>
#include <utility>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

class SpeculationTest : public testing::Test {
protected:
  void make(RequestEngineOptions options = {}, Device *device = nullptr, const ToyOptions &toy = {}) {
    artifact = loadToy("speculation-test.lathe", toy);
    if (toy.words) {
      auto made = TextModel::create(*artifact);
      ASSERT_TRUE(made.ok());
      text = std::make_shared<TextModel>(*std::move(made));
    }
    options.threads = std::max(1u, options.threads);
    options.memoryBudget = uint64_t(1) << 30;
    options.poisonFreeBlocks = options.checkInvariants = true;
    options.measureSteps = false;
    if (options.speculate == Speculation::off) options.speculate = Speculation::automatic;
    auto made = EngineCore::create(artifact, text, options, device, nullptr, [this] { return time += 1e-4; });
    ASSERT_TRUE(made.ok()) << made.status().message();
    core = *std::move(made);
    truth.clear();
    next = 1;
  }
  std::shared_ptr<Recorder> add(const Request &request) {
    auto ear = std::make_shared<Recorder>(request.choices);
    Status status = core->check()(request);
    EXPECT_TRUE(status.ok()) << status.message();
    auto &answers = truth[next];
    for (uint32_t c = 0; c < request.choices; ++c)
      answers.push_back(aloneSamples(request, c));
    core->add(next++, request, ear, core->now());
    return ear;
  }
  /// Drafts the truth, but for every |wrongEvery|th token; never wrong: 0.
  void draftTruth(uint32_t wrongEvery) {
    core->onDraft = [this, wrongEvery](RequestId id, uint32_t choice, uint32_t seen, uint32_t most, Draft &draft) {
      const auto &want = truth[id][choice];
      draft.count = std::min<uint32_t>(most, 1 + static_cast<uint32_t>(rng() % 10));
      for (uint32_t i = 0; i < draft.count; ++i) {
        int32_t token = seen + i < want.size() ? want[seen + i].token : 0;
        if (wrongEvery && rng() % wrongEvery == 0) token = (token + 1) % toyVocabulary;
        draft.tokens[i] = token;
        draft.chance[i] = 1;
      }
    };
  }
  /// Drafts trees in which the truth is one path of several.
  void draftTrees() {
    core->onDraft = [this](RequestId id, uint32_t choice, uint32_t seen, uint32_t most, Draft &draft) {
      const auto &want = truth[id][choice];
      draft.tree = true;
      draft.count = std::min<uint32_t>(most, 1 + static_cast<uint32_t>(rng() % maxDraftTokens));
      int8_t right = -1;
      for (uint32_t i = 0, k = seen; i < draft.count; ++i) {
        draft.chance[i] = 1;
        if (rng() % 2 && k < want.size()) {
          draft.tokens[i] = want[k++].token;
          draft.parent[i] = std::exchange(right, static_cast<int8_t>(i));
        } else {
          draft.tokens[i] = static_cast<int32_t>(rng() % toyVocabulary);
          draft.parent[i] = static_cast<int8_t>(static_cast<int32_t>(rng() % (i + 1)) - 1);
        }
      }
    };
  }
  void run(int most = 5000) {
    while (!core->idle() && most-- > 0) {
      core->step();
      ASSERT_TRUE(core->broken().ok()) << core->broken().message();
    }
    EXPECT_TRUE(core->idle());
    EXPECT_EQ(core->stats().kvBlocksUsed, 0u);
  }
  static Request sampled(int i, uint32_t tokens) {
    Request r = greedy({}, tokens);
    for (int t = 0; t < 1 + i * 7 % 40; ++t)
      r.prompt.push_back((i / 3 * 11 + t * 5) % toyVocabulary);
    r.hasSeed = true;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.temperature = i % 3 ? 0.7f + 0.3f * static_cast<float>(i % 2) : 0;
    r.sampling.topP = i % 4 ? 1 : 0.9f;
    if (i % 2) r.sampling.frequencyPenalty = 0.6f, r.sampling.repetitionPenalty = 1.3f;
    if (i % 5 == 0) r.sampling.presencePenalty = 0.4f;
    if (i % 5 == 1) r.sampling.logitBias = {{7, 2.0f}};
    if (i % 5 == 2) r.sampling.minTokens = 12, r.stopTokens = {3, 9, 14, 20, 33};
    r.sampling.logprobs = i % 4;
    return r;
  }

  /// Runs 24 requests that come while others run, and compares each answer with the one it gets alone. Returns who heard them.
  std::vector<std::shared_ptr<Recorder>> manySayWhatTheySayAlone() {
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Recorder>> ears;
    for (int i = 0; i < 24; ++i) {
      requests.push_back(sampled(i, static_cast<uint32_t>(1 + i * 5 % 60)));
      ears.push_back(add(requests.back()));
      if (i % 3 == 0) core->step();
    }
    run();
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_TRUE(sameSamples(ears[i]->choices[0].tokens, aloneSamples(requests[i]))) << i;
    return ears;
  }

  std::shared_ptr<LoadedArtifact> artifact;
  std::shared_ptr<TextModel> text;
  std::unique_ptr<EngineCore> core;
  std::map<RequestId, std::vector<std::vector<Sample>>> truth;
  std::mt19937 rng{11};
  RequestId next = 1;
  double time = 0;
};

void reconcile(const SpeculationStats &s) {
  for (uint32_t source = 0; source < draftSources; ++source) {
    EXPECT_EQ(std::accumulate(s.draftedAt[source].begin(), s.draftedAt[source].end(), uint64_t(0)), s.drafted[source]);
    EXPECT_EQ(std::accumulate(s.acceptedAt[source].begin(), s.acceptedAt[source].end(), uint64_t(0)), s.accepted[source]);
  }
  EXPECT_EQ(s.emitted, s.acceptedAll() + s.rounds);
}

} // namespace

TEST_F(SpeculationTest, RightAndWrongDraftsGiveTheTokensOfThePlainRun) {
  for (uint32_t wrongEvery : {0u, 1u, 2u, 5u}) {
    for (unsigned threads : {1u, 3u}) {
      ToyOptions toy;
      toy.maxOutRows = wrongEvery == 5 ? 3 : 8; // a round's results may be cut into slices
      make({.threads = threads, .maxSequences = 6, .stepTokens = 30}, nullptr, toy);
      draftTruth(wrongEvery);
      SCOPED_TRACE("one wrong of " + std::to_string(wrongEvery));
      auto ears = manySayWhatTheySayAlone();
      EngineStats stats = core->stats();
      reconcile(stats.speculation);
      EXPECT_GT(stats.speculation.rounds, 50u);
      if (wrongEvery == 0) EXPECT_GE(stats.speculation.acceptedAll() * 10, stats.speculation.draftedAll() * 9);
      if (wrongEvery == 1) EXPECT_EQ(stats.speculation.acceptedAll(), 0u);
      if (wrongEvery == 2) EXPECT_GT(stats.speculation.acceptedAll(), 0u);
      // The usage adds up to the counters.
      uint64_t drafted = 0, accepted = 0;
      for (auto &ear : ears)
        drafted += ear->usage.draftedTokens, accepted += ear->usage.acceptedTokens;
      EXPECT_EQ(drafted, stats.speculation.draftedAll());
      EXPECT_EQ(accepted, stats.speculation.acceptedAll());
    }
  }
}

TEST_F(SpeculationTest, AcceptedDraftsSaveSteps) {
  make({.stepTokens = 32});
  Request r = greedy({1, 2, 3}, 60);
  r.speculate = Speculation::off;
  add(r);
  run();
  uint64_t plain = core->stats().steps;
  draftTruth(0);
  r.speculate = Speculation::ngram;
  auto ear = add(r);
  run();
  EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
  EXPECT_LT(core->stats().steps - plain, plain / 3);
}

TEST_F(SpeculationTest, ChoicesSpeculateEachOnItsOwn) {
  make({.maxSequences = 8});
  draftTruth(3);
  Request r = greedy({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, 40);
  r.choices = 5;
  r.hasSeed = true;
  r.sampling.temperature = 1.2f;
  r.sampling.presencePenalty = 0.5f;
  auto ear = add(r);
  run();
  for (uint32_t c = 0; c < 5; ++c)
    EXPECT_TRUE(sameSamples(ear->choices[c].tokens, aloneSamples(r, c))) << c;
  EXPECT_GT(core->stats().speculation.acceptedAll(), 0u);
}

TEST_F(SpeculationTest, TheDraftersThemselvesChangeNothing) {
  for (Speculation method : {Speculation::ngram, Speculation::suffix, Speculation::automatic}) {
    make({.maxSequences = 4, .speculate = method});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Recorder>> ears;
    for (int i = 0; i < 8; ++i) {
      Request r = sampled(i, 150);
      r.stopTokens.clear();
      if (i % 2 == 0) r.sampling = {}, r.sampling.temperature = 0, r.sampling.logitBias = {{5, 30.0f}, {6, 30.0f}, {8, 29.5f}};
      r.prompt.resize(std::min<size_t>(r.prompt.size(), 40));
      requests.push_back(r);
      ears.push_back(add(r));
    }
    run();
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_TRUE(sameSamples(ears[i]->choices[0].tokens, aloneSamples(requests[i]))) << toString(method) << " " << i;
    reconcile(core->stats().speculation);
    EXPECT_GT(core->stats().speculation.acceptedAll(), 20u) << toString(method); // three tokens repeat themselves
  }
}

TEST_F(SpeculationTest, ThePrefixCacheHoldsNoRejectedRow) {
  make({.maxSequences = 2, .stepTokens = 64});
  draftTruth(2);
  Request r = greedy({1, 2, 3, 4, 5, 6, 7, 8, 9}, 120);
  auto first = add(r);
  run();
  ASSERT_GT(core->stats().speculation.draftedAll(), core->stats().speculation.acceptedAll());
  core->onDraft = nullptr;
  // What it said is the prompt of the next one, which takes its blocks.
  Request again = r;
  for (int32_t id : first->choices[0].ids())
    again.prompt.push_back(id);
  again.maxTokens = 20;
  again.speculate = Speculation::off;
  auto second = add(again);
  run();
  EXPECT_GE(second->usage.cachedTokens, 96u);
  EXPECT_TRUE(sameSamples(second->choices[0].tokens, aloneSamples(again)));
}

TEST_F(SpeculationTest, ARejectedRoundLeavesTheStateOfThePlainRun) {
  // Engines without drafts, with chains that are all wrong, and with trees of which one path is right: for each number of tokens said, tables of the same
  // length and KV entries of the same bytes.
  Request r = sampled(5, 60);
  using State = std::pair<std::vector<std::pair<uint32_t, uint32_t>>, std::vector<uint8_t>>;
  std::map<size_t, State> said[3];
  for (int kind = 0; kind < 3; ++kind) {
    make({.maxSequences = 1});
    if (kind == 1) draftTruth(1);
    if (kind == 2) draftTrees();
    r.speculate = kind ? Speculation::ngram : Speculation::off;
    auto ear = add(r);
    const Program &program = artifact->program();
    for (size_t seen = 0; !core->idle();) {
      core->step();
      if (ear->choices[0].tokens.size() == seen || core->idle()) continue;
      seen = ear->choices[0].tokens.size();
      State &state = said[kind][seen];
      const KVCache &kv = core->kv();
      for (uint32_t g = 0; g < kv.groups(); ++g) {
        auto [first, end] = kv.held(0, g);
        state.first.emplace_back(first, end);
        const uint32_t page = program.kvGroups[g].pageTokens, computed = static_cast<uint32_t>(r.prompt.size() + seen) - 1; // the last token has no entry yet
        for (uint32_t b = first; b < end; ++b) {
          std::vector<uint8_t> block(program.kvGroups[g].blockBytes), written(block.size());
          ASSERT_TRUE(core->executable().saveBlock(g, static_cast<uint32_t>(kv.tables()[g][b]), block).ok());
          for (uint32_t t = 0; t < page && b * page + t < computed; ++t)
            copyEntry(program, g, written.data(), t, block.data(), t);
          state.second.insert(state.second.end(), written.begin(), written.end());
        }
      }
    }
    EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
    EXPECT_EQ(core->stats().speculation.rounds > 5, kind > 0);
    EXPECT_EQ(core->stats().speculation.acceptedAll() > 5, kind == 2);
    EXPECT_GT(said[kind].size(), kind == 2 ? 5u : 50u);
    for (auto &[tokens, state] : said[kind]) {
      ASSERT_TRUE(said[0].contains(tokens));
      EXPECT_EQ(state.first, said[0][tokens].first) << tokens;
      EXPECT_EQ(state.second, said[0][tokens].second) << tokens;
    }
  }
}

TEST_F(SpeculationTest, AFullBatchAsksNobody) {
  ToyOptions toy;
  toy.draft = true; // a draft program as well as what is looked up
  // Where rows cost what they cost alone, even drafts that are always right win nothing; where a step costs the same with any number of rows, they do.
  for (bool full : {true, false}) {
    make({.maxSequences = 8}, nullptr, toy);
    core->assumeCost(full ? StepCostModel(0, 0.01) : StepCostModel(0.01, 0));
    for (int i = 0; i < 8; ++i) {
      Request r = sampled(5 * i, 90);
      r.ignoreEnd = true;
      add(r);
    }
    while (core->state().decodingChoices() < 8) core->step();
    uint32_t asked = 0;
    core->onDraft = [&](RequestId, uint32_t, uint32_t, uint32_t, Draft &draft) { ++asked, draft.count = 0; };
    for (int i = 0; i < 10; ++i) core->step();
    EXPECT_EQ(core->state().decodingChoices(), 8u);
    EXPECT_EQ(asked > 0, !full);
    core->onDraft = nullptr; // drafters, and the program
    const SpeculationStats before = core->stats().speculation;
    for (int i = 0; i < 4; ++i) core->step();
    const SpeculationStats after = core->stats().speculation;
    if (full) {
      EXPECT_EQ(core->state().decodingChoices(), 8u);
      EXPECT_EQ(after.programRuns, before.programRuns);
      EXPECT_EQ(after.draftedAll(), 0u);
    } else {
      EXPECT_GT(after.programRuns + after.draftedAll(), before.programRuns + before.draftedAll());
    }
    run();
  }
}

TEST_F(SpeculationTest, AStopStringEndsARoundInItsMiddle) {
  ToyOptions toy;
  toy.words = true;
  make({}, nullptr, toy);
  Request r = greedy({1, 2, 3}, 40);
  r.ignoreEnd = true;
  auto whole = add(r);
  run();
  const std::string all = whole->choices[0].text;
  ASSERT_GT(all.size(), 20u);
  draftTruth(0);
  for (size_t at = 3; at + 3 < all.size(); at += 2) {
    r.stops = {all.substr(at, 2)};
    r.speculate = Speculation::off;
    auto plain = add(r);
    run();
    r.speculate = Speculation::ngram;
    auto ear = add(r);
    truth[next - 1] = truth[1]; // the oracle knows of no stop strings: drafts go on past the end
    run();
    EXPECT_EQ(ear->choices[0].text, plain->choices[0].text) << at;
    EXPECT_EQ(ear->choices[0].stopText, plain->choices[0].stopText) << at;
    EXPECT_EQ(ear->choices[0].reason, plain->choices[0].reason) << at;
    EXPECT_EQ(ear->choices[0].ids(), plain->choices[0].ids()) << at;
    EXPECT_EQ(ear->usage.newTokens, plain->usage.newTokens) << at;
  }
  reconcile(core->stats().speculation);
}

TEST_F(SpeculationTest, AStopTokenAmongTheDraftsEndsTheAnswer) {
  make({});
  Request r = greedy({4, 5}, 50);
  auto whole = aloneSamples(r);
  r.stopTokens = {whole[20].token};
  size_t end = 0;
  while (whole[end].token != r.stopTokens[0])
    ++end;
  core->onDraft = [&](RequestId, uint32_t, uint32_t seen, uint32_t most, Draft &draft) {
    draft.count = std::min<uint32_t>(most, 12);
    for (uint32_t i = 0; i < draft.count; ++i)
      draft.tokens[i] = seen + i < whole.size() ? whole[seen + i].token : 0, draft.chance[i] = 1;
  };
  auto ear = add(r);
  run();
  EXPECT_EQ(ear->choices[0].tokens.size(), end);
  EXPECT_EQ(ear->choices[0].stopToken, r.stopTokens[0]);
  EXPECT_EQ(ear->choices[0].reason, EndReason::stop);
}

TEST_F(SpeculationTest, DraftersAreCountedInTheBudget) {
  auto open = [&](Speculation method, uint64_t budget) {
    RequestEngineOptions o;
    o.threads = 1;
    o.maxSequences = 2;
    o.contextTokens = 128;
    o.measureSteps = false;
    o.memoryBudget = budget;
    o.speculate = method;
    auto made = EngineCore::create(loadToy("speculation-test.lathe"), nullptr, o, nullptr, nullptr, {});
    return made.ok() ? std::to_string((*made)->limits().memoryBytes) : made.status().message();
  };
  uint64_t budget = uint64_t(1) << 30;
  EXPECT_EQ(std::stoull(open(Speculation::suffix, budget)) - std::stoull(open(Speculation::off, budget)), draftingBytes(Speculation::suffix, 2, 128));
  EXPECT_EQ(open(Speculation::suffix, 1 << 20).substr(0, 54), "drafting 'suffix' for 2 sequences of 128 tokens takes ");
}

TEST_F(SpeculationTest, TreesGiveTheTokensOfThePlainRun) {
  for (unsigned threads : {1u, 3u}) {
    ToyOptions toy;
    toy.maxOutRows = threads == 1 ? 3 : 8; // a round's results may be cut into slices
    make({.threads = threads, .maxSequences = 6, .kvTokens = 420, .stepTokens = 40}, nullptr, toy);
    draftTrees();
    manySayWhatTheySayAlone();
    const SpeculationStats &s = core->stats().speculation;
    EXPECT_GT(s.acceptedAll(), 100u);
    EXPECT_GT(s.draftedAll(), s.acceptedAll());
    reconcile(s);
  }
}

TEST_F(SpeculationTest, PreemptionAndAbortInTheMiddle) {
  for (PreemptionMode mode : {PreemptionMode::recompute, PreemptionMode::save}) {
    uint64_t preemptions = 0, accepted = 0;
    for (uint32_t wrongEvery : {1u, 3u, 6u}) { // all wrong: sequences grow together, as without drafts
      make({.maxSequences = 8,
            .kvTokens = 256,
            .savedKvBytes = 1 << 20,
            .stepTokens = 32,
            .preemption = mode,
            .prefixCache = false});
      draftTruth(wrongEvery);
      std::vector<Request> requests;
      std::vector<std::shared_ptr<Recorder>> ears;
      for (int i = 0; i < 8; ++i) {
        requests.push_back(sampled(i, 90));
        requests.back().prompt = {i, 2 * i, 7};
        requests.back().stopTokens.clear();
        ears.push_back(add(requests.back()));
      }
      for (int i = 0; i < 12; ++i)
        core->step();
      core->cancel(2);
      run();
      for (size_t i = 0; i < requests.size(); ++i)
        if (i != 1) EXPECT_TRUE(sameSamples(ears[i]->choices[0].tokens, aloneSamples(requests[i]))) << i;
      EXPECT_EQ(ears[1]->choices[0].reason, EndReason::cancelled);
      EngineStats stats = core->stats();
      preemptions += mode == PreemptionMode::save ? stats.preemptedSave : stats.preemptedRecompute;
      accepted += stats.speculation.acceptedAll();
    }
    EXPECT_GT(preemptions, 0u) << toString(mode);
    EXPECT_GT(accepted, 0u) << toString(mode);
  }
}

TEST_F(SpeculationTest, AFailedStepEndsItsRequestsAndCountsNoRound) {
  auto real = makeCpuDevice();
  FaultyDevice faulty(*real);
  make({}, &faulty);
  draftTruth(0);
  Request r = greedy({1, 2, 3}, 60);
  auto ear = add(r);
  core->step(), core->step();
  uint64_t rounds = core->stats().speculation.rounds;
  faulty.failing = true;
  core->step();
  faulty.failing = false;
  run();
  EXPECT_EQ(ear->choices[0].reason, EndReason::failed);
  EXPECT_EQ(core->stats().speculation.rounds, rounds);
  auto other = add(r);
  run();
  EXPECT_TRUE(sameSamples(other->choices[0].tokens, aloneSamples(r)));
  // NaN logits in the middle of a round: what came before them stands.
  auto broken = add(r);
  core->step(), core->step();
  faulty.poisonedRow = 1;
  core->step();
  faulty.poisonedRow = -1;
  run();
  EXPECT_EQ(broken->choices[0].reason, EndReason::failed);
  std::vector<Sample> want = aloneSamples(r);
  want.resize(broken->choices[0].tokens.size());
  EXPECT_TRUE(sameSamples(broken->choices[0].tokens, want));
  reconcile(core->stats().speculation);
}

TEST_F(SpeculationTest, ARequestSaysWhetherItSpeculates) {
  make({});
  draftTruth(0);
  Request r = greedy({1, 2, 3}, 30);
  r.speculate = Speculation::off;
  auto ear = add(r);
  run();
  EXPECT_EQ(ear->usage.draftedTokens, 0u);
  EXPECT_EQ(core->stats().speculation.rounds, 0u);
  r.speculate.reset();
  ear = add(r);
  run();
  EXPECT_GT(ear->usage.acceptedTokens, 10u);
}

TEST_F(SpeculationTest, AProgramThatIsTheModelItselfIsAlwaysRight) {
  ToyOptions toy;
  toy.draft = true;
  for (PreemptionMode mode : {PreemptionMode::recompute, PreemptionMode::save}) {
    uint64_t preemptions = 0;
    for (uint32_t contexts : {1u, 3u}) {
      make({.maxSequences = 6, .kvTokens = 256 * contexts, .savedKvBytes = 1 << 20, .stepTokens = 40, .preemption = mode, .speculate = Speculation::draft},
           nullptr, toy);
      core->draftAlways = true;
      std::vector<Request> requests;
      std::vector<std::shared_ptr<Recorder>> ears;
      for (int i = 0; i < 20; ++i) {
        requests.push_back(sampled(i, static_cast<uint32_t>(40 + i * 7 % 60)));
        requests.back().choices = i % 4 == 1 ? 3 : 1;
        if (i % 4 == 2) requests.back().speculate = Speculation::off; // grows slowly, so that others run into it
        ears.push_back(add(requests.back()));
        if (i % 3 == 0) core->step();
      }
      core->step(), core->step();
      core->cancel(2);
      run();
      for (size_t i = 0; i < requests.size(); ++i)
        for (uint32_t c = 0; c < requests[i].choices; ++c)
          if (i != 1) EXPECT_TRUE(sameSamples(ears[i]->choices[c].tokens, aloneSamples(requests[i], c))) << i << " " << c;
      EngineStats stats = core->stats();
      reconcile(stats.speculation);
      EXPECT_GT(stats.speculation.draftedAll(), 200u);
      EXPECT_EQ(stats.speculation.acceptedAll(), stats.speculation.draftedAll());
      EXPECT_EQ(stats.speculation.draftedAll(), stats.speculation.drafted[static_cast<size_t>(DraftSource::program)]);
      EXPECT_GT(stats.speculation.programRuns, 20u);
      preemptions += mode == PreemptionMode::save ? stats.preemptedSave : stats.preemptedRecompute;
    }
    EXPECT_GT(preemptions, 0u) << toString(mode);
  }
}

TEST_F(SpeculationTest, FreeDraftsAreVerifiedWhateverTheyCost) {
  ToyOptions toy;
  toy.draft = true;
  Request r = sampled(0, 60);
  for (bool free : {false, true}) {
    make({.speculate = Speculation::draft, .freeDrafts = free}, nullptr, toy);
    auto ear = add(r);
    run();
    EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
    // By the costs of the options a run of the draft takes as long as a step, and is only tried now and then, with two tokens.
    const SpeculationStats &s = core->stats().speculation;
    EXPECT_EQ(s.drafted[static_cast<size_t>(DraftSource::program)] > 40, free) << s.draftedAll();
    EXPECT_EQ(s.draftedAt[static_cast<size_t>(DraftSource::program)][5] > 0, free);
  }
  // What was looked up, too: of drafts without a chance the plan takes none, unless they are free.
  for (bool free : {false, true}) {
    make({.freeDrafts = free});
    core->onDraft = [this](RequestId id, uint32_t choice, uint32_t seen, uint32_t most, Draft &draft) {
      for (draft.count = 0; draft.count < most && seen + draft.count < truth[id][choice].size(); ++draft.count)
        draft.tokens[draft.count] = truth[id][choice][seen + draft.count].token, draft.chance[draft.count] = 0;
    };
    auto ear = add(r);
    run();
    EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
    const SpeculationStats &s = core->stats().speculation;
    EXPECT_EQ(s.draftedAll() > 40, free);
    EXPECT_EQ(s.acceptedAll(), s.draftedAll());
  }
}

TEST_F(SpeculationTest, AProgramThatFailsCostsItsDraftsAlone) {
  auto real = makeCpuDevice();
  FaultyDevice faulty(*real);
  ToyOptions toy;
  toy.draft = true;
  make({.speculate = Speculation::draft}, &faulty, toy);
  core->draftAlways = true;
  Request r = sampled(4, 60);
  auto ear = add(r);
  for (int i = 0; i < 12 && !core->idle(); ++i) {
    faulty.failingDrafts = i % 4 == 1;
    faulty.poisonedDrafts = i % 4 == 2;
    core->step();
  }
  faulty.failingDrafts = faulty.poisonedDrafts = false;
  run();
  EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
  reconcile(core->stats().speculation);
}

TEST_F(SpeculationTest, DraftsOfAProgramNeedOne) {
  make({});
  Request r = greedy({1, 2, 3}, 30);
  r.speculate = Speculation::draft;
  Request embedding = r;
  embedding.kind = RequestKind::embedding;
  EXPECT_EQ(core->check()(embedding).message().find("speculate"), std::string::npos); // nothing to draft for, so it does no harm
  EXPECT_EQ(core->check()(r).message(), "speculate: the artifact has no draft program; compile it with '--speculate draft:MODEL', 'layerskip:LAYERS', 'medusa' or 'eagle'");
  RequestEngineOptions o;
  o.speculate = Speculation::draft;
  auto made = EngineCore::create(artifact, nullptr, o, nullptr, nullptr, nullptr);
  EXPECT_EQ(made.status().message(), "the artifact has no draft program; compile it with '--speculate draft:MODEL', 'layerskip:LAYERS', 'medusa' or 'eagle'");
}
