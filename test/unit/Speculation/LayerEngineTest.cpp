//===- LayerEngineTest.cpp - drafts over features and their own rows --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A device that watches what the draft is given. A row of features must be, bit for bit, the hidden row of the toy model, computed directly, of some
// request at the place before the draft's token; a row of the draft's own must be what the draft makes, computed directly, of the row that it goes on from: its
// parent in a tree, and in a chain one of the run before. The answers are those that requests get alone.
//===----------------------------------------------------------------------===//
#include "EngineTesting.h"
#include "ForwardingExecutable.h"
#include <algorithm>
#include <map>
#include <set>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

class WatchingDevice : public Device {
public:
  explicit WatchingDevice(Device &real) : real(real) {}
  const char *name() const override { return "watching"; }
  Result<std::unique_ptr<Executable>> prepare(std::shared_ptr<LoadedArtifact> artifact, const ExecutableOptions &options) override {
    LATHE_ASSIGN_OR_RETURN(auto inner, real.prepare(std::move(artifact), options));
    return std::unique_ptr<Executable>(std::make_unique<Watched>(*this, std::move(inner)));
  }
  ToyOptions toy;
  std::map<int32_t, std::set<std::vector<float>>> features; ///< [token] of the tokens before it
  uint64_t ofStep = 0, ofOwn = 0, inTrees = 0, wrong = 0;

private:
  class Watched : public ForwardingExecutable {
  public:
    Watched(WatchingDevice &device, std::unique_ptr<Executable> inner) : ForwardingExecutable(std::move(inner)), device(device) {}
    Result<Ticket> submit(EntryKind entry, const LatheStep &step) override {
      if (entry == EntryKind::draft) watch(step);
      return inner->submit(entry, step);
    }
    void watch(const LatheStep &step) {
      std::set<std::vector<float>> made;
      for (uint32_t r = 0; r < step.rows; ++r) {
        const std::vector<float> own(rows[r].begin(), rows[r].begin() + toyWidth), feature(rows[r].begin() + toyWidth, rows[r].end()), none(toyWidth, 0.0f);
        int32_t parent = step.parent ? step.parent[r] : -1;
        made.insert(toyOwn(device.toy, step.token[r], rows[r]));
        bool right;
        if (parent >= 0) {
          right = feature == none && own == toyOwn(device.toy, step.token[parent], rows[static_cast<uint32_t>(parent)]);
          right &= step.position[r] == step.position[parent] + 1 && step.slot[r] > step.slot[parent];
          ++device.inTrees;
        } else if (feature == none) {
          right = left.count(own);
          ++device.ofOwn;
        } else {
          right = own == none && device.features[step.token[r]].count(feature);
          ++device.ofStep;
        }
        device.wrong += !right;
      }
      left = std::move(made);
    }
    Status setDraftInput(uint32_t row, std::span<const float> values) override {
      rows[row].assign(values.begin(), values.end());
      return inner->setDraftInput(row, values);
    }

  private:
    WatchingDevice &device;
    std::map<uint32_t, std::vector<float>> rows;
    std::set<std::vector<float>> left; ///< own rows of the run before
  };
  Device &real;
};

class LayerTest : public testing::Test {
protected:
  void make(RequestEngineOptions options) {
    device.toy = toy;
    artifact = loadToy("layer-test.lathe", toy);
    options.threads = 1;
    options.memoryBudget = uint64_t(1) << 30;
    options.poisonFreeBlocks = options.checkInvariants = true;
    options.measureSteps = false;
    auto made = EngineCore::create(artifact, nullptr, options, &device, nullptr, [this] { return time += 1e-4; });
    ASSERT_TRUE(made.ok()) << made.status().message();
    core = *std::move(made);
    core->draftAlways = true;
    next = 1;
  }
  std::shared_ptr<Recorder> add(const Request &request) {
    auto ear = std::make_shared<Recorder>(request.choices);
    EXPECT_TRUE(core->check()(request).ok()) << core->check()(request).message();
    for (uint32_t c = 0; c < request.choices; ++c) {
      std::vector<int32_t> text = request.prompt;
      for (const Sample &sample : aloneSamples(request, c)) text.push_back(sample.token);
      auto rows = toyHidden(toy, text);
      for (size_t t = 0; t + 1 < text.size(); ++t) device.features[text[t + 1]].insert(rows[t]);
    }
    core->add(next++, request, ear, core->now());
    return ear;
  }
  void run() {
    for (int most = 8000; !core->idle() && most > 0; --most) {
      core->step();
      ASSERT_TRUE(core->broken().ok()) << core->broken().message();
    }
    EXPECT_TRUE(core->idle());
    EXPECT_EQ(core->stats().kvBlocksUsed, 0u);
    EXPECT_EQ(core->stats().draftBlocksUsed, 0u);
  }
  static Request request(int i, uint32_t tokens) {
    Request r = greedy({}, tokens);
    for (int t = 0; t < 1 + i * 7 % 40; ++t) r.prompt.push_back((i / 3 * 11 + t * 5) % toyVocabulary);
    r.hasSeed = true;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.temperature = i % 3 ? 0.7f + 0.3f * static_cast<float>(i % 2) : 0;
    if (i % 2) r.sampling.frequencyPenalty = 0.1f;
    if (i % 2 == 0) r.sampling.logitBias = {{5, 30.0f}, {6, 29.0f}}; // says little else: drafts are right
    return r;
  }

  ToyOptions toy{.layer = true};
  std::unique_ptr<Device> cpu = makeCpuDevice();
  WatchingDevice device{*cpu};
  std::shared_ptr<LoadedArtifact> artifact;
  std::unique_ptr<EngineCore> core;
  RequestId next = 1;
  double time = 0;
};

TEST_F(LayerTest, IsGivenFeaturesOfItsSequencesAndRowsOfItsOwn) {
  uint64_t preemptions = 0, cached = 0, trees = 0, accepted = 0;
  for (Speculation method : {Speculation::eagle, Speculation::eagle2})
    for (PreemptionMode mode : {PreemptionMode::recompute, PreemptionMode::save})
      for (uint32_t contexts : {1u, 3u}) {
        make({.maxSequences = 6, .kvTokens = 256 * contexts, .savedKvBytes = 1 << 20, .stepTokens = 40, .preemption = mode, .speculate = method});
        const uint64_t before = device.inTrees;
        std::vector<Request> requests;
        std::vector<std::shared_ptr<Recorder>> ears;
        for (int i = 0; i < 20; ++i) {
          requests.push_back(request(i, static_cast<uint32_t>(40 + i * 7 % 60)));
          requests.back().choices = i % 4 == 1 ? 3 : 1;
          if (i % 4 == 2) requests.back().speculate = Speculation::off;
          if (i % 5 == 3) requests.back().speculate = Speculation::automatic; // with drafts that are looked up
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
        const SpeculationStats &s = stats.speculation;
        EXPECT_EQ(s.emitted, s.acceptedAll() + s.rounds);
        EXPECT_GT(s.drafted[static_cast<size_t>(DraftSource::program)], 200u);
        accepted += s.accepted[static_cast<size_t>(DraftSource::program)];
        preemptions += stats.preemptedSave + stats.preemptedRecompute;
        cached += stats.prefixHit;
        trees += method == Speculation::eagle2 ? device.inTrees - before : 0;
      }
  EXPECT_EQ(device.wrong, 0u);
  EXPECT_GT(device.ofStep, 500u);
  EXPECT_GT(device.ofOwn, 500u);
  EXPECT_GT(trees, 1000u);
  EXPECT_GT(accepted, 100u);
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(cached, 0u);
}

TEST_F(LayerTest, OtherRulesOfAcceptanceDraftToo) {
  make({.speculate = Speculation::eagle2});
  uint64_t trees = 0;
  for (Acceptance rule : {Acceptance::rejection, Acceptance::typical}) {
    trees = device.inTrees;
    for (int i = 0; i < 6; ++i) {
      Request r = request(3 * i, 60); // at temperature 0 all rules say the same
      r.acceptance = rule;
      auto ear = add(r);
      run();
      EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
    }
    if (rule == Acceptance::rejection) EXPECT_EQ(device.inTrees, trees); // chains
  }
  EXPECT_GT(device.inTrees, trees);
  EXPECT_EQ(device.wrong, 0u);
}

TEST_F(LayerTest, CountsItsMemory) {
  auto bytes = [&](Speculation method, const ToyOptions &options) {
    auto made = EngineCore::create(loadToy("layer-memory.lathe", options), nullptr, {.threads = 1, .maxSequences = 3, .memoryBudget = uint64_t(1) << 30, .speculate = method}, nullptr, nullptr, nullptr);
    EXPECT_TRUE(made.ok());
    return (*made)->limits().memoryBytes;
  };
  // Features of three sequences: 256 tokens of 8 floats; and the tokens of the draft's text.
  EXPECT_EQ(bytes(Speculation::eagle2, toy) - bytes(Speculation::off, toy), 3u * 256 * 8 * 4 + 3u * 256 * 4 + 3u * sizeof(Drafter));
}

} // namespace
