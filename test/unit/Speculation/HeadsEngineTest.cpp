//===- HeadsEngineTest.cpp - drafts over the step's hidden rows -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A device that watches what the draft is given: every row must be, bit for bit, the hidden row of the toy model, computed directly, of some
// request at the place before the draft's token. What the heads then say is right or wrong; the answers are those that requests get alone.
//===----------------------------------------------------------------------===//
#include "EngineTesting.h"
#include "ForwardingExecutable.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

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
  /// Hidden rows by their token and the token's position: those that a draft for the next position may be given.
  std::map<std::pair<int32_t, int32_t>, std::set<std::vector<float>>> allowed;
  uint64_t right = 0, wrong = 0;
  bool failing = false;

private:
  class Watched : public ForwardingExecutable {
  public:
    Watched(WatchingDevice &device, std::unique_ptr<Executable> inner) : ForwardingExecutable(std::move(inner)), device(device) {}
    Result<Ticket> submit(EntryKind entry, const LatheStep &step) override {
      for (uint32_t r = 0; entry == EntryKind::draft && r < step.rows; ++r) {
        auto found = device.allowed.find({step.token[r], step.position[r]});
        bool known = found != device.allowed.end() && found->second.count(rows[r]);
        ++(known ? device.right : device.wrong);
      }
      return inner->submit(entry, step);
    }
    Status wait(Ticket ticket) override {
      if (device.failing) return Status(StatusCode::internal, "the device is on fire");
      return inner->wait(ticket);
    }
    Status setDraftInput(uint32_t row, std::span<const float> values) override {
      rows[row].assign(values.begin(), values.end());
      return inner->setDraftInput(row, values);
    }

  private:
    WatchingDevice &device;
    std::map<uint32_t, std::vector<float>> rows;
  };
  Device &real;
};

class HeadsTest : public testing::Test {
protected:
  void make(RequestEngineOptions options) {
    toy.heads = 3;
    artifact = loadToy("heads-test.lathe", toy);
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
      for (size_t t = 0; t + 1 < text.size(); ++t) // the row of token t goes with token t + 1
        device.allowed[{text[t + 1], static_cast<int32_t>(t) + 1}].insert(rows[t]);
    }
    core->add(next++, request, ear, core->now());
    return ear;
  }
  void run() {
    for (int most = 5000; !core->idle() && most > 0; --most) {
      core->step();
      ASSERT_TRUE(core->broken().ok()) << core->broken().message();
    }
    EXPECT_TRUE(core->idle());
    EXPECT_EQ(core->stats().kvBlocksUsed, 0u);
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

  ToyOptions toy;
  std::unique_ptr<Device> cpu = makeCpuDevice();
  WatchingDevice device{*cpu};
  std::shared_ptr<LoadedArtifact> artifact;
  std::unique_ptr<EngineCore> core;
  RequestId next = 1;
  double time = 0;
};

TEST_F(HeadsTest, TheyAreGivenTheRowsOfTheirSequences) {
  uint64_t preemptions = 0, cached = 0;
  for (PreemptionMode mode : {PreemptionMode::recompute, PreemptionMode::save})
    for (uint32_t contexts : {1u, 3u}) {
      make({.maxSequences = 6, .kvTokens = 256 * contexts, .savedKvBytes = 1 << 20, .stepTokens = 40, .preemption = mode, .speculate = Speculation::medusa, .freeDrafts = contexts == 3});
      std::vector<Request> requests;
      std::vector<std::shared_ptr<Recorder>> ears;
      for (int i = 0; i < 20; ++i) {
        requests.push_back(request(i, static_cast<uint32_t>(40 + i * 7 % 60)));
        requests.back().choices = i % 4 == 1 ? 3 : 1;
        if (i % 4 == 2) requests.back().speculate = Speculation::off;
        if (i % 5 == 3) requests.back().speculate = Speculation::automatic; // with drafts that are looked up, in trees of one chain
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
      EXPECT_GT(s.accepted[static_cast<size_t>(DraftSource::program)], 50u);
      EXPECT_EQ(s.draftedAt[static_cast<size_t>(DraftSource::program)][3], 0u); // there are three heads
      if (contexts == 3) EXPECT_GT(s.programTrees, 50u);
      preemptions += stats.preemptedSave + stats.preemptedRecompute;
      cached += stats.prefixHit;
    }
  EXPECT_EQ(device.wrong, 0u);
  EXPECT_GT(device.right, 500u);
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(cached, 0u);
}

TEST_F(HeadsTest, RowsBehindLookedUpDraftsAreTheLastRightOnes) {
  make({.speculate = Speculation::automatic});
  // Drafts from elsewhere, chains and trees, right and wrong, between rounds of the heads.
  Request r = request(2, 120);
  auto want = aloneSamples(r);
  uint32_t step = 0;
  auto drafts = [&](RequestId, uint32_t, uint32_t seen, uint32_t most, Draft &draft) {
    draft.count = std::min(most, 4u);
    draft.tree = step % 4 < 2;
    for (uint32_t i = 0; i < draft.count; ++i) {
      bool truth = draft.tree ? i % 2 == 1 : i < 2;
      uint32_t at = seen + (draft.tree ? i / 2 : i);
      draft.tokens[i] = truth && at < want.size() ? want[at].token : static_cast<int32_t>(40 + i);
      draft.parent[i] = static_cast<int8_t>(draft.tree ? (i < 2 ? -1 : 1) : static_cast<int32_t>(i) - 1);
      draft.chance[i] = 1;
    }
  };
  auto ear = add(r);
  for (; !core->idle(); ++step) {
    core->onDraft = step % 2 ? decltype(core->onDraft)(drafts) : nullptr;
    core->step();
  }
  EXPECT_TRUE(sameSamples(ear->choices[0].tokens, want));
  EXPECT_EQ(device.wrong, 0u);
  EXPECT_GT(device.right, 10u);
}

// Each head of the toy says what its own head does behind the row, so a tree is made of the likeliest tokens there, whatever leads to a place.
TEST_F(HeadsTest, TreesAreOfTheLikeliestOfEachHead) {
  const std::string trace = testing::TempDir() + "heads-test.trace";
  make({.speculate = Speculation::medusa, .freeDrafts = true, .tracePath = trace});
  std::map<RequestId, std::vector<int32_t>> texts;
  std::vector<std::shared_ptr<Recorder>> ears;
  for (int i = 0; i < 6; ++i) {
    Request r = greedy({3 + i, 1, 4 * i}, 50);
    if (i % 2) r.sampling.presencePenalty = 0.01f; // too little to change an order, but heads are asked for each path
    auto &text = texts[next] = r.prompt;
    for (const Sample &s : aloneSamples(r)) text.push_back(s.token);
    ears.push_back(add(r));
    run();
    EXPECT_TRUE(sameSamples(ears.back()->choices[0].tokens, aloneSamples(r)));
  }
  EXPECT_GT(core->stats().speculation.programTrees, 100u);
  core.reset();
  std::map<RequestId, std::vector<int64_t>> drafts;
  uint64_t trees = 0, seconds = 0;
  std::ifstream in(trace);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line.substr(1));
    uint64_t id = 0, choice = 0, row = 0, first = 0;
    fields >> id >> choice >> row; // of a draft the third is its length
    if (line[0] == 'D') {
      auto &values = drafts[id] = {static_cast<int64_t>(row)};
      for (int64_t v; fields >> v;) values.push_back(v);
    }
    if (line[0] != 'p' || !drafts.count(id)) continue;
    fields >> first;
    std::vector<int64_t> draft = std::exchange(drafts[id], {});
    drafts.erase(id);
    auto count = static_cast<size_t>(draft[0]);
    if (draft.size() == 3) continue; // with room for one token it is no tree
    ASSERT_EQ(draft.size(), 1 + 3 * count); // tokens with their chances, and parents
    std::vector<int32_t> text(texts[id].begin(), texts[id].begin() + static_cast<ptrdiff_t>(first)), order(toyVocabulary);
    std::vector<float> logits = toyLogits(toy, text).back();
    for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int32_t>(t);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
    std::map<int64_t, std::vector<int32_t>> followers;
    std::vector<uint32_t> depth;
    for (size_t i = 0; i < count; ++i) {
      int64_t parent = draft[1 + 2 * count + i];
      ASSERT_LT(parent, static_cast<int64_t>(i));
      followers[parent].push_back(static_cast<int32_t>(draft[1 + 2 * i]));
      depth.push_back(parent < 0 ? 1 : depth[static_cast<size_t>(parent)] + 1);
      EXPECT_LE(depth.back(), 3u); // there are three heads
      auto chanceOf = [&](size_t node) { return std::bit_cast<float>(static_cast<uint32_t>(draft[2 + 2 * node])); };
      if (i) EXPECT_LE(chanceOf(i), chanceOf(i - 1));
    }
    for (auto &[parent, tokens] : followers) { // the likeliest so many of the head, whichever come first
      ASSERT_LE(tokens.size(), 4u);
      std::vector<int32_t> want(order.begin(), order.begin() + static_cast<ptrdiff_t>(tokens.size()));
      EXPECT_EQ(tokens[0], want[0]);
      std::sort(tokens.begin(), tokens.end()), std::sort(want.begin(), want.end());
      EXPECT_EQ(tokens, want) << line;
      seconds += tokens.size() > 1;
    }
    ++trees;
  }
  EXPECT_GT(trees, 100u);
  EXPECT_GT(seconds, 100u);
}

TEST_F(HeadsTest, AFailedStepEndsItsRequestsAlone) {
  make({.speculate = Speculation::medusa});
  auto lost = add(request(2, 60));
  for (int i = 0; i < 10; ++i) core->step();
  device.failing = true;
  core->step();
  device.failing = false;
  Request r = request(4, 60);
  auto ear = add(r);
  run();
  EXPECT_TRUE(sameSamples(ear->choices[0].tokens, aloneSamples(r)));
  EXPECT_EQ(device.wrong, 0u);
}

/// Tokens of |tokens| places from a fixed prompt, by every seed below |runs|.
class LawTest : public HeadsTest {
protected:
  std::map<std::vector<int32_t>, int> counts(Acceptance rule, int runs, uint32_t tokens) {
    std::map<std::vector<int32_t>, int> seen;
    std::vector<std::shared_ptr<Recorder>> ears;
    for (int i = 0; i < runs; ++i) {
      Request r = greedy({1, 2, 3}, tokens);
      r.hasSeed = true;
      r.sampling.seed = static_cast<uint64_t>(i);
      r.sampling.temperature = 1.5f;
      r.sampling.topK = 3;
      r.acceptance = rule;
      ears.push_back(std::make_shared<Recorder>(1));
      core->add(next++, r, ears.back(), core->now());
      if (i % 2) run();
    }
    run();
    for (auto &ear : ears) {
      std::vector<int32_t> said;
      for (const Sample &s : ear->choices[0].tokens) said.push_back(s.token);
      ++seen[said];
    }
    return seen;
  }
  /// The probability of each answer, from the toy model computed directly.
  std::map<std::vector<int32_t>, double> law(uint32_t tokens) {
    std::map<std::vector<int32_t>, double> now{{{}, 1.0}};
    for (uint32_t t = 0; t < tokens; ++t) {
      std::map<std::vector<int32_t>, double> next;
      for (auto &[said, p] : now) {
        std::vector<int32_t> text{1, 2, 3};
        text.insert(text.end(), said.begin(), said.end());
        std::vector<float> logits = toyLogits(toy, text).back();
        std::vector<int32_t> order(logits.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
        std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
        double sum = 0;
        for (int k = 0; k < 3; ++k) sum += std::exp((logits[order[k]] - logits[order[0]]) / 1.5);
        for (int k = 0; k < 3; ++k) {
          auto longer = said;
          longer.push_back(order[k]);
          next[longer] = p * std::exp((logits[order[k]] - logits[order[0]]) / 1.5) / sum;
        }
      }
      now = next;
    }
    return now;
  }
};

TEST_F(LawTest, RejectionKeepsItAndTypicalDoesNot) {
  constexpr int runs = 6000;
  constexpr uint32_t tokens = 4;
  auto want = law(tokens);
  auto chiPerCell = [&](const std::map<std::vector<int32_t>, int> &seen) {
    double chi = 0, rest = runs, restExpected = runs;
    int cells = 0;
    for (auto &[said, p] : want) {
      if (p * runs < 10) continue;
      auto it = seen.find(said);
      double n = it == seen.end() ? 0 : it->second;
      chi += (n - p * runs) * (n - p * runs) / (p * runs);
      rest -= n, restExpected -= p * runs;
      ++cells;
    }
    if (restExpected > 10) chi += (rest - restExpected) * (rest - restExpected) / restExpected;
    return chi / cells;
  };
  std::map<Acceptance, double> found;
  uint64_t acceptedOf[3] = {};
  for (Acceptance rule : {Acceptance::exact, Acceptance::rejection, Acceptance::typical}) {
    make({.maxSequences = 2, .stepTokens = 64, .prefixCache = false, .speculate = Speculation::medusa});
    core->check();
    device.allowed.clear(), device.wrong = 0;
    found[rule] = chiPerCell(counts(rule, runs, tokens));
    const SpeculationStats s = core->stats().speculation;
    EXPECT_GT(s.draftedAll(), 3000u);
    acceptedOf[static_cast<size_t>(rule)] = s.acceptedAll();
    EXPECT_EQ(s.emitted, s.acceptedAll() + s.rounds);
  }
  // 81 answers: the mean of a chi-square by its degrees of freedom is 1, and 1.6 of 40 or more is less likely than 0.01.
  EXPECT_LT(found[Acceptance::exact], 1.6);
  EXPECT_LT(found[Acceptance::rejection], 1.6);
  EXPECT_GT(found[Acceptance::typical], 3.0);
  EXPECT_GE(acceptedOf[1], acceptedOf[0] * 9 / 10);
  EXPECT_GT(acceptedOf[2], acceptedOf[1]);
}

// Trees whose first places have two guesses each, the second likeliest first: of siblings the first that is not refused counts, and what is refused is out of the law.
TEST_F(LawTest, RejectionKeepsItInTrees) {
  constexpr int runs = 12000;
  constexpr uint32_t tokens = 6; // after the first there is room for a whole tree
  auto want = law(tokens);
  make({.maxSequences = 2, .stepTokens = 64, .prefixCache = false, .speculate = Speculation::ngram});
  device.allowed.clear();
  std::map<std::vector<int32_t>, std::vector<int32_t>> orders; // [text] the three likeliest
  auto orderOf = [&](const std::vector<int32_t> &text) -> const std::vector<int32_t> & {
    auto [at, fresh] = orders.try_emplace(text);
    if (!fresh) return at->second;
    std::vector<float> logits = toyLogits(toy, text).back();
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::partial_sort(order.begin(), order.begin() + 3, order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    order.resize(3);
    return at->second = order;
  };
  std::map<RequestId, std::shared_ptr<Recorder>> ears;
  core->onDraft = [&](RequestId id, uint32_t, uint32_t, uint32_t most, Draft &draft) {
    std::vector<int32_t> text{1, 2, 3};
    for (const Sample &s : ears.at(id)->choices[0].tokens) text.push_back(s.token);
    draft.tree = true;
    draft.count = std::min<uint32_t>(most, 4);
    auto put = [&](uint32_t i, int32_t token, int8_t parent) { draft.tokens[i] = token, draft.parent[i] = parent, draft.chance[i] = 1; };
    const std::vector<int32_t> first = orderOf(text);
    put(0, first[1], -1);
    put(1, first[0], -1);
    text.push_back(first[1]);
    const std::vector<int32_t> second = orderOf(text);
    put(2, second[2], 0);
    put(3, second[0], 0);
  };
  std::map<std::vector<int32_t>, int> seen;
  for (int i = 0; i < runs; ++i) {
    Request r = greedy({1, 2, 3}, tokens);
    r.hasSeed = true;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.temperature = 1.5f;
    r.sampling.topK = 3;
    r.acceptance = Acceptance::rejection;
    auto ear = ears[next] = std::make_shared<Recorder>(1);
    core->add(next++, r, ear, core->now());
    run();
    std::vector<int32_t> said;
    for (const Sample &s : ear->choices[0].tokens) said.push_back(s.token);
    ++seen[said];
    ears.erase(next - 1);
  }
  double chi = 0;
  int cells = 0, inside = 0;
  for (auto &[said, p] : want) {
    int n = seen.contains(said) ? seen[said] : 0;
    inside += n;
    if (p * runs < 10) continue;
    chi += (n - p * runs) * (n - p * runs) / (p * runs);
    ++cells;
  }
  EXPECT_EQ(inside, runs); // nothing that the law lacks
  EXPECT_GT(cells, 100);
  EXPECT_LT(chi / cells, 1.4); // of 100 or more, less likely than 0.01
  const SpeculationStats s = core->stats().speculation;
  EXPECT_GT(s.acceptedAll(), static_cast<uint64_t>(runs));
  EXPECT_EQ(s.emitted, s.acceptedAll() + s.rounds);
}

TEST_F(LawTest, ADraftThatIsTheModelIsAlwaysAccepted) {
  toy.draft = true;
  auto own = loadToy("own-test.lathe", toy);
  uint64_t drafted = 0;
  // The last time with room for few laws: sequences that find none draft nothing, and no law that is missing or another's refuses a draft.
  for (auto [rule, laws] : {std::pair(Acceptance::exact, UINT32_MAX), {Acceptance::typical, UINT32_MAX}, {Acceptance::rejection, UINT32_MAX}, {Acceptance::rejection, 5u}}) {
    RequestEngineOptions o;
    o.threads = 1, o.memoryBudget = uint64_t(1) << 30, o.measureSteps = false, o.speculate = Speculation::draft;
    auto made = EngineCore::create(own, nullptr, o, nullptr, nullptr, [this] { return time += 1e-4; });
    ASSERT_TRUE(made.ok());
    core = *std::move(made);
    core->draftAlways = true;
    core->mostLaws = laws;
    for (int i = 0; i < 8; ++i) {
      Request r = request(i, 40);
      r.acceptance = rule;
      core->add(static_cast<RequestId>(i + 1), r, std::make_shared<Recorder>(1), core->now());
    }
    run();
    const SpeculationStats s = core->stats().speculation;
    EXPECT_GT(s.draftedAll(), 100u);
    if (rule != Acceptance::typical) EXPECT_EQ(s.acceptedAll(), s.draftedAll()) << toString(rule);
    if (laws == 5) EXPECT_LT(s.draftedAll(), drafted);
    drafted = s.draftedAll();
  }
}

TEST_F(HeadsTest, AreAskedForByNameWhereTheyAre) {
  make({});
  Request r = greedy({1, 2, 3}, 30);
  for (Speculation method : {Speculation::medusa, Speculation::draft}) {
    r.speculate = method;
    EXPECT_TRUE(core->check()(r).ok());
  }
  std::vector<float> row(toyWidth + 1);
  auto executable = cpu->prepare(artifact, {1, false, {4, 4}});
  ASSERT_TRUE(executable.ok());
  EXPECT_EQ((*executable)->setDraftInput(0, row).message(), "row 0 of a draft's input: expected 8 floats in rows below 64, found 9");
  EXPECT_EQ((*executable)->setDraftInput(64, std::span(row).first(8)).message(), "row 64 of a draft's input: expected 8 floats in rows below 64, found 8");
  r.speculate = Speculation::medusa;
  auto asks = [&](const ToyOptions &options) {
    auto other = loadToy("headless-test.lathe", options);
    RequestEngineOptions o;
    o.speculate = Speculation::medusa;
    auto made = EngineCore::create(other, nullptr, o, nullptr, nullptr, nullptr);
    EXPECT_FALSE(made.ok());
    o.speculate = Speculation::off;
    auto plain = EngineCore::create(other, nullptr, o, nullptr, nullptr, nullptr);
    EXPECT_EQ((*plain)->check()(r).message(), "speculate: " + made.status().message());
    return made.status().message();
  };
  EXPECT_EQ(asks({}), "the artifact has no Medusa heads; compile it with '--speculate medusa --speculate-weights DIR'");
  for (Speculation method : {Speculation::eagle, Speculation::eagle2, Speculation::eagle3}) {
    r.speculate = method;
    EXPECT_EQ(core->check()(r).message(), std::string("speculate: the artifact has a draft program of another kind; compile it with '--speculate ") + toString(method) + " --speculate-weights DIR'");
  }
  EXPECT_EQ(checkDrafts(Program(), Speculation::eagle2).message(), "the artifact has no EAGLE layer; compile it with '--speculate eagle2 --speculate-weights DIR'");
  r.speculate = Speculation::medusa;
  ToyOptions model;
  model.draft = true;
  EXPECT_EQ(asks(model), "the artifact has a draft program of another kind; compile it with '--speculate medusa --speculate-weights DIR'");
}

} // namespace
