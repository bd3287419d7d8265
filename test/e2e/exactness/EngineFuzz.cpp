//===- EngineFuzz.cpp - many requests at once, each as if alone --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   EngineFuzz [--device D] [--context N] [--prompt N] [--new N] [--requests N] [--save 1] SEED SCHEDULES ARTIFACT...
//
// --save 1: every engine is short of KV memory and saves what it preempts; without a save in the end the run fails.
// The artifacts are one model compiled with different pages. A pool of requests is answered first, each alone, by the
// single-caller engine on one thread. Then every schedule draws an engine (page, KV size, rows of a step, policy, kind of
// preemption, prefix cache, placement) and a sequence of events (arrivals, aborts, deadlines), all from its own seed, and every
// request's tokens and log-probabilities must have the bits of its answer alone, which was sampled from logits; a schedule of greedy requests takes what
// the head says of them. The engine's
// invariants are checked after every step, and no block may be left in use at the end. Schedule k of seed S is
// schedule 0 of seed S + k, which is what a failure prints.
//===----------------------------------------------------------------------===//
#include "TestDevice.h"
#include "runtime/engine/Engine.h"
#include "runtime/engine/EngineCore.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

using namespace lathe;
using namespace lathe::runtime;

namespace {

using Rng = std::mt19937_64;
int pick(Rng &rng, int low, int high) { return low + int(rng() % uint64_t(high - low + 1)); }
bool chance(Rng &rng, int percent) { return pick(rng, 1, 100) <= percent; }

std::unique_ptr<Device> device; ///< what all engines run on

struct Limits {
  int context = 144, prompt = 96, fresh = 48, requests = 48, save = 0;
};

struct Answer {
  std::vector<Sample> tokens;
  bool stopped = false;
};

struct PoolEntry {
  Request request;
  std::vector<Answer> answers;   ///< one a choice
  std::vector<Sample> scores;    ///< of prompt tokens 1 .., if asked for
  std::vector<float> embedding;  ///< if it is one
};

bool sameBits(float a, float b) { return std::memcmp(&a, &b, 4) == 0; }
bool same(const Sample &a, const Sample &b) {
  if (a.token != b.token || !sameBits(a.logprob, b.logprob) || a.top.size() != b.top.size()) return false;
  for (size_t i = 0; i < a.top.size(); ++i)
    if (a.top[i].token != b.top[i].token || !sameBits(a.top[i].logprob, b.top[i].logprob)) return false;
  return true;
}

void die(const std::string &text) {
  std::fprintf(stderr, "error: %s\n", text.c_str());
  std::exit(2);
}
void check(const Status &status) {
  if (!status.ok()) die(status.message());
}

/// What one request heard.
class Ear : public RequestListener {
public:
  explicit Ear(const PoolEntry &entry) : entry(entry), choices(entry.request.choices) {}
  void accepted(uint64_t seed) override {
    if (seed != entry.request.sampling.seed) complain("another seed");
  }
  void promptDone(std::span<const PromptLogprob> scores) override {
    promptTold = true;
    if (scores.size() != entry.request.prompt.size()) return complain("the number of prompt scores");
    for (size_t i = 1; i < scores.size(); ++i)
      if (!same({scores[i].token, scores[i].logprob, scores[i].top}, entry.scores[i - 1]))
        return complain("the score of prompt token " + std::to_string(i));
  }
  void piece(uint32_t choice, const Sample &sample, std::string_view) override {
    auto &c = choices.at(choice);
    const auto &want = entry.answers[choice].tokens;
    if (c.done) return complain("a token after the end");
    if (c.seen >= want.size()) return complain("more tokens than alone");
    if (!same(sample, want[c.seen]))
      return complain("token " + std::to_string(c.seen) + " of choice " + std::to_string(choice) + ": expected " +
                      std::to_string(want[c.seen].token) + ", found " + std::to_string(sample.token));
    ++c.seen;
  }
  void choiceDone(uint32_t choice, EndReason reason, std::string_view, int32_t) override {
    auto &c = choices.at(choice);
    if (c.done) return complain("a choice ended twice");
    c.done = true;
    ++ends[toString(reason)];
    bool whole = reason == EndReason::stop || reason == EndReason::length;
    const Answer &answer = entry.answers[choice];
    if (reason == EndReason::failed) return complain("it failed");
    if (whole && (c.seen != answer.tokens.size() || (reason == EndReason::stop) != answer.stopped))
      complain("an end with " + std::to_string(c.seen) + " of " + std::to_string(answer.tokens.size()) + " tokens, " +
               toString(reason));
  }
  void embedding(std::span<const float> values) override {
    choices[0].done = true;
    ++ends["embedding"];
    if (values.size() != entry.embedding.size() ||
        std::memcmp(values.data(), entry.embedding.data(), values.size_bytes()) != 0)
      complain("the embedding");
  }
  void finished(const RequestUsage &usage, const Status &error) override {
    finishedTimes++;
    cached = usage.cachedTokens;
    preemptions = usage.preemptions;
    for (auto &c : choices)
      if (!c.done) complain("finished before a choice");
    if (!error.ok() && error.code() != StatusCode::resourceExhausted) complain(error.message());
  }
  void complain(const std::string &what) {
    if (complaint.empty()) complaint = what;
  }

  const PoolEntry &entry;
  struct Seen {
    size_t seen = 0;
    bool done = false;
  };
  std::vector<Seen> choices;
  std::map<std::string, int> ends;
  std::string complaint;
  int finishedTimes = 0;
  uint32_t cached = 0, preemptions = 0;
  bool promptTold = false;
};

/// Requests that share prefixes in groups; what they ask for covers the sampler.
std::vector<PoolEntry> makePool(Rng &rng, const Limits &limits, const Program &program) {
  auto vocabulary = static_cast<int>(program.vocabulary);
  std::vector<PoolEntry> pool(static_cast<size_t>(limits.requests));
  for (size_t i = 0; i < pool.size(); ++i) {
    Request &r = pool[i].request;
    int length = chance(rng, 15) ? pick(rng, 1, 5) : pick(rng, limits.prompt / 6 + 1, limits.prompt);
    for (int t = 0; t < length; ++t)
      r.prompt.push_back(pick(rng, 0, vocabulary - 1));
    if (i % 4) { // a group of four shares a beginning
      const auto &first = pool[i / 4 * 4].request.prompt;
      size_t shared = std::min(r.prompt.size(), first.size()) * size_t(pick(rng, 40, 100)) / 100;
      std::copy_n(first.begin(), shared, r.prompt.begin());
    }
    r.hasSeed = true;
    if (chance(rng, 8) && program.embeddingStride) {
      r.kind = RequestKind::embedding;
      r.pooling = chance(rng, 50) ? Pooling::mean : Pooling::last;
      continue;
    }
    r.maxTokens = chance(rng, 5) ? 0 : static_cast<uint32_t>(pick(rng, 1, limits.fresh));
    if (limits.save) r.maxTokens = std::max(r.maxTokens, static_cast<uint32_t>(limits.fresh) / 2);
    r.choices = r.maxTokens && chance(rng, 25) ? uint32_t(pick(rng, 2, 4)) : 1;
    SamplingParams &p = r.sampling;
    p.temperature = r.choices == 1 && chance(rng, 50) ? 0.0f : 0.5f + 0.1f * float(pick(rng, 0, 10));
    p.seed = rng() >> 11;
    if (chance(rng, 30)) p.topK = pick(rng, 1, 50);
    if (chance(rng, 30)) p.topP = 0.5f + 0.05f * float(pick(rng, 0, 9));
    if (chance(rng, 20)) p.minP = 0.02f;
    if (chance(rng, 20)) p.frequencyPenalty = 0.4f, p.repetitionPenalty = 1.2f;
    if (chance(rng, 20)) p.logitBias = {{pick(rng, 0, vocabulary - 1), 5.0f}};
    if (chance(rng, 60)) p.logprobs = pick(rng, 0, 3);
    if (chance(rng, 30)) {
      for (int s = 0; s < std::min(vocabulary / 8, 4000); ++s)
        r.stopTokens.push_back(pick(rng, 0, vocabulary - 1));
      if (chance(rng, 50)) p.minTokens = pick(rng, 1, 8);
    }
    if (chance(rng, 15)) r.promptLogprobs = pick(rng, 0, 2);
  }
  return pool;
}

/// The answer of the single-caller engine, one thread, this request alone.
void answerAlone(Engine &engine, PoolEntry &entry, uint32_t context) {
  const Request &r = entry.request;
  Sampler sampler(static_cast<int32_t>(engine.program().vocabulary));
  SamplingParams p = r.sampling;
  p.stopTokenIds = r.stopTokens;
  for (uint32_t c = 0; c < r.choices; ++c) {
    p.choice = c;
    auto sequence = engine.open();
    check(sequence.status());
    Answer answer;
    TokenHistory history;
    for (int32_t t : r.prompt)
      history.addPrompt(t);
    Work work{*sequence, r.prompt, OutputRows::all};
    bool done = r.kind == RequestKind::embedding || r.maxTokens == 0;
    int32_t next = -1;
    auto take = [&](std::span<const float> row) -> Status {
      LATHE_ASSIGN_OR_RETURN(Sample sample, sampler.sample(row, p, history, engine.length(*sequence)));
      if (std::find(r.stopTokens.begin(), r.stopTokens.end(), sample.token) != r.stopTokens.end()) {
        answer.stopped = done = true;
        return Status();
      }
      history.addOutput(next = sample.token);
      answer.tokens.push_back(sample);
      done = answer.tokens.size() >= r.maxTokens || engine.length(*sequence) >= context;
      return Status();
    };
    check(engine.forward({&work, 1}, [&](size_t, size_t token, std::span<const float> row) -> Status {
      if (token + 1 < r.prompt.size()) {
        if (r.promptLogprobs < 0 || c > 0) return Status();
        Sample score;
        LATHE_RETURN_IF_ERROR(sampler.score(row, r.prompt[token + 1], r.promptLogprobs, uint32_t(token + 1), score));
        entry.scores.push_back(score);
        return Status();
      }
      return done ? Status() : take(row);
    }));
    while (!done) {
      Work one{*sequence, {&next, 1}, OutputRows::last};
      check(engine.forward({&one, 1}, [&](size_t, size_t, std::span<const float> row) { return take(row); }));
    }
    engine.close(*sequence);
    entry.answers.push_back(std::move(answer));
  }
}

struct Totals {
  uint64_t requests = 0, tokens = 0, steps = 0, rows = 0, cached = 0, recomputed = 0, saved = 0, forks = 0, cancels = 0, drafted = 0, accepted = 0, draftedByProgram = 0, acceptedByProgram = 0, trees = 0, choiceSteps = 0;
  std::map<std::string, int> ends;
};

class Schedule {
public:
  Schedule(uint64_t seed, const Limits &limits, const std::vector<PoolEntry> &pool) : rng(seed), limits(limits), pool(pool) {}

  RequestEngineOptions options(const Program &program) {
    RequestEngineOptions o;
    o.threads = chance(rng, 10) ? uint32_t(pick(rng, 2, 3)) : 1;
    o.contextTokens = uint32_t(limits.context);
    o.maxSequences = uint32_t(chance(rng, 60) ? 4 : pick(rng, 5, 12));
    // From little more than one context, so that growth preempts, to plenty.
    o.kvTokens = uint64_t(limits.context) * uint64_t(chance(rng, 60) ? pick(rng, 100, 180) : pick(rng, 100, 600)) / 100;
    o.memoryBudget = uint64_t(1) << 40;
    o.stepTokens = uint32_t(chance(rng, 50) ? pick(rng, 1, 24) : pick(rng, 8, 128));
    o.savedKvBytes = chance(rng, 50) ? 0 : program.kvGroups[0].blockBytes * uint64_t(pick(rng, 1, 40));
    const PreemptionMode modes[] = {PreemptionMode::automatic, PreemptionMode::recompute, PreemptionMode::save};
    o.preemption = modes[rng() % 3];
    if (limits.save) { // the memory of one context and a bit for many sequences: their growth preempts
      o.maxSequences = 8;
      o.kvTokens = uint64_t(limits.context) * uint64_t(pick(rng, 110, 150)) / 100;
      o.savedKvBytes = program.kvGroups[0].blockBytes * 1000;
      o.preemption = PreemptionMode::save;
    }
    const SchedulingPolicy policies[] = {SchedulingPolicy::fcfs, SchedulingPolicy::priority, SchedulingPolicy::fair,
                                         SchedulingPolicy::deadline};
    o.policy = policies[rng() % 4];
    o.prefixCache = !chance(rng, 25);
    o.speculate = chance(rng, 50) ? Speculation::off : chance(rng, 50) ? Speculation::automatic : chance(rng, 50) ? Speculation::ngram : chance(rng, 50) ? Speculation::suffix : Speculation::suffixTree;
    if (program.draftMaxSeq && chance(rng, 70)) o.speculate = Speculation::draft;
    o.freeDrafts = chance(rng, 30);
    o.itlTarget = chance(rng, 50) ? 0 : 1e-3 * pick(rng, 1, 40);
    o.maxQueued = 1000;
    o.shuffleBlocks = rng() | 1;
    o.poisonFreeBlocks = true;
    o.checkInvariants = true;
    o.measureSteps = false;
    return o;
  }

  /// Empty, or what went wrong.
  std::string run(std::shared_ptr<LoadedArtifact> artifact, Totals &totals) {
    RequestEngineOptions o = options(artifact->program());
    double time = 0;
    auto made = EngineCore::create(artifact, nullptr, o, device.get(), nullptr, [&time] { return time += 1e-4; });
    if (!made.ok()) return made.status().message();
    EngineCore &core = **made;
    // Some of the groups of the pool, so that prefixes come again.
    size_t groups = pool.size() / 4, firstGroup = rng() % groups, span = 1 + rng() % 4;
    int arrivals = limits.save ? 16 : pick(rng, 1, 20), cancelPercent = chance(rng, 50) ? 0 : pick(rng, 1, 12);
    bool deadlines = chance(rng, 30);
    std::vector<std::unique_ptr<Ear>> ears;
    // Half of the schedules that speculate get drafts that are often right, which a random model's text is too wild for.
    bool program = artifact->program().draftMaxSeq && chance(rng, 80);
    core.draftAlways = program && chance(rng, 70);
    if (!program && chance(rng, 50))
      core.onDraft = [&](RequestId id, uint32_t choice, uint32_t seen, uint32_t most, Draft &draft) {
        const auto &want = ears[id - 1]->entry.answers[choice].tokens;
        int wrongAt = pick(rng, 0, 9);
        draft.count = uint32_t(pick(rng, 0, int(most)));
        draft.tree = chance(rng, 50);
        int8_t right = -1;
        for (uint32_t i = 0, k = seen; draft.tree && i < draft.count; ++i) { // the answer is one path of several
          bool follows = chance(rng, 60) && k < want.size();
          draft.tokens[i] = follows ? want[k++].token : int32_t(rng() % artifact->program().vocabulary);
          draft.parent[i] = follows ? std::exchange(right, int8_t(i)) : int8_t(pick(rng, -1, int(i) - 1));
          draft.chance[i] = 1.0f;
        }
        if (draft.tree) return;
        for (uint32_t i = 0; i < draft.count; ++i) {
          bool right = int(i) != wrongAt && seen + i < want.size();
          draft.tokens[i] = right ? want[seen + i].token : int32_t(rng() % artifact->program().vocabulary);
          draft.chance[i] = chance(rng, 50) ? 1.0f : 0.7f;
        }
      };
    // A step whose rows are all greedy needs no logits.
    std::vector<const PoolEntry *> greedy;
    for (const PoolEntry &entry : pool)
      if (entry.request.kind == RequestKind::generate && entry.request.choices == 1 && Sampler::takesLargest(entry.request.sampling, {})) greedy.push_back(&entry);
    const bool onlyGreedy = !greedy.empty() && chance(rng, 25);
    std::vector<RequestId> inside;
    RequestId next = 1;
    int steps = 0, idleSteps = 0;
    while (arrivals > 0 || !core.idle()) {
      while (arrivals > 0 && (limits.save || chance(rng, 40) || core.idle())) { // in save mode all at once
        const PoolEntry &entry = onlyGreedy && !chance(rng, 5) ? *greedy[rng() % greedy.size()] : pool[(firstGroup + rng() % span) % groups * 4 + rng() % 4];
        Request r = entry.request;
        r.tenant = std::string(chance(rng, 25) ? rng() % 3 : 0, 't');
        r.cacheSalt = chance(rng, 10) ? "s" : "";
        r.priority = pick(rng, -2, 2);
        if (chance(rng, 20)) r.speculate = chance(rng, 50) ? Speculation::off : Speculation::automatic;
        if (artifact->program().draftMaxSeq && chance(rng, 30)) r.speculate = Speculation::draft;
        if (deadlines && chance(rng, 30)) r.deadline = 1e-3 * pick(rng, 1, 60);
        if (o.policy == SchedulingPolicy::deadline && chance(rng, 50)) r.ttftTarget = 1e-2 * pick(rng, 1, 100);
        check(core.check()(r));
        ears.push_back(std::make_unique<Ear>(entry));
        totals.forks += r.choices > 1;
        core.add(next, std::move(r), std::shared_ptr<RequestListener>(ears.back().get(), [](RequestListener *) {}), core.now());
        inside.push_back(next++);
        --arrivals;
      }
      if (cancelPercent && chance(rng, cancelPercent)) {
        core.cancel(inside[rng() % inside.size()]);
        ++totals.cancels;
      }
      if (chance(rng, 1)) core.clearPrefixCache();
      bool ran = core.step();
      if (!core.broken().ok()) return "after step " + std::to_string(steps) + ": " + core.broken().message();
      for (size_t i = 0; i < ears.size(); ++i)
        if (!ears[i]->complaint.empty()) return "request " + std::to_string(i + 1) + ": " + ears[i]->complaint;
      idleSteps = ran ? 0 : idleSteps + 1;
      if (!ran && !core.idle()) {
        if (idleSteps > 3 && arrivals == 0 && !(core.wakeAt() < 1e9))
          return "nothing runs and nothing will: " + std::to_string(core.inside()) + " requests are inside";
        if (core.wakeAt() < 1e9) time = std::max(time, core.wakeAt());
      }
      if (++steps > 20000) return "no end in sight after 20000 steps";
    }
    EngineStats stats = core.stats();
    if (stats.kvBlocksUsed) return std::to_string(stats.kvBlocksUsed) + " blocks are in use when all requests have ended";
    if (stats.draftBlocksUsed) return std::to_string(stats.draftBlocksUsed) + " blocks of drafts are in use when all requests have ended";
    if (stats.savedKvBytes) return std::to_string(stats.savedKvBytes) + " bytes are saved when all requests have ended";
    for (auto &ear : ears) {
      if (ear->finishedTimes != 1) return "a request finished " + std::to_string(ear->finishedTimes) + " times";
      totals.cached += ear->cached;
      for (auto &[name, n] : ear->ends)
        totals.ends[name] += n;
    }
    const SpeculationStats &s = stats.speculation;
    const uint64_t drafted = s.draftedAll(), accepted = s.acceptedAll();
    for (uint32_t source = 0; source < draftSources; ++source) {
      const auto &draftedAt = s.draftedAt[source], &acceptedAt = s.acceptedAt[source];
      uint64_t draftedHere = 0, acceptedHere = 0;
      for (uint32_t i = 0; i < maxDraftTokens; ++i) {
        draftedHere += draftedAt[i], acceptedHere += acceptedAt[i];
        if (acceptedAt[i] > draftedAt[i] || (i && acceptedAt[i] > acceptedAt[i - 1])) return "more drafts accepted than drafted, or than before, at " + std::to_string(i);
      }
      if (draftedHere != s.drafted[source] || acceptedHere != s.accepted[source]) return "the counters of speculation disagree";
    }
    if (s.emitted != accepted + s.rounds) return "the counters of speculation disagree";
    totals.draftedByProgram += s.drafted[size_t(DraftSource::program)];
    totals.acceptedByProgram += s.accepted[size_t(DraftSource::program)];
    totals.trees += s.programTrees;
    totals.drafted += drafted;
    totals.accepted += accepted;
    totals.requests += ears.size();
    totals.tokens += stats.newTokens;
    totals.steps += stats.steps;
    totals.rows += stats.rows;
    totals.choiceSteps += stats.choiceSteps;
    totals.recomputed += stats.preemptedRecompute;
    totals.saved += stats.preemptedSave;
    return "";
  }

private:
  Rng rng;
  const Limits &limits;
  const std::vector<PoolEntry> &pool;
};

} // namespace

int main(int argc, char **argv) {
  Limits limits;
  std::string deviceName = "cpu", expected;
  int at = 1;
  for (; at + 1 < argc && std::strncmp(argv[at], "--", 2) == 0; at += 2) {
    std::string name = argv[at];
    if (name == "--device") {
      deviceName = argv[at + 1];
      continue;
    }
    if (name == "--expect") {
      expected = argv[at + 1];
      continue;
    }
    int *value = name == "--context" ? &limits.context : name == "--prompt" ? &limits.prompt : name == "--new" ? &limits.fresh : name == "--requests" ? &limits.requests : name == "--save" ? &limits.save : nullptr;
    if (!value) die("unknown option '" + name + "'");
    *value = std::atoi(argv[at + 1]);
  }
  device = namedDevice(deviceName);
  limits.requests = std::max(4, limits.requests / 4 * 4);
  if (argc - at < 3) die("usage: EngineFuzz [--device D] [--expect recomputed,saved,cached,forks,cancels,trees,accepted,program] [--context N] [--prompt N] [--new N] [--requests N] [--save 1] SEED SCHEDULES ARTIFACT...");
  uint64_t seed = std::strtoull(argv[at], nullptr, 10);
  uint64_t schedules = std::strtoull(argv[at + 1], nullptr, 10);
  std::vector<std::shared_ptr<LoadedArtifact>> artifacts;
  for (int i = at + 2; i < argc; ++i) {
    auto loaded = LoadedArtifact::load(argv[i], loadFor(*device));
    check(loaded.status());
    artifacts.push_back(*loaded);
  }

  Rng poolRng(7);
  std::vector<PoolEntry> pool = makePool(poolRng, limits, artifacts[0]->program());
  {
    EngineOptions alone;
    alone.threads = 1;
    alone.contextTokens = uint32_t(limits.context);
    auto engine = Engine::create(artifacts[0], alone, device.get());
    check(engine.status());
    for (PoolEntry &entry : pool)
      answerAlone(**engine, entry, uint32_t(limits.context));
  }
  { // Embeddings alone: the same engine with nothing else in it.
    for (PoolEntry &entry : pool) {
      if (entry.request.kind != RequestKind::embedding) continue;
      class Keep : public RequestListener {
      public:
        explicit Keep(std::vector<float> &out) : out(out) {}
        void piece(uint32_t, const Sample &, std::string_view) override {}
        void choiceDone(uint32_t, EndReason, std::string_view, int32_t) override {}
        void embedding(std::span<const float> values) override { out.assign(values.begin(), values.end()); }
        void finished(const RequestUsage &, const Status &error) override { check(error); }
        std::vector<float> &out;
      };
      RequestEngineOptions o;
      o.threads = 1;
      o.contextTokens = uint32_t(limits.context);
      o.maxSequences = 1;
      o.memoryBudget = uint64_t(1) << 40;
      o.measureSteps = false;
      auto core = EngineCore::create(artifacts[0], nullptr, o, device.get(), nullptr, {});
      check(core.status());
      (*core)->add(1, entry.request, std::make_shared<Keep>(entry.embedding), 0);
      while (!(*core)->idle())
        (*core)->step();
    }
  }

  Totals totals;
  for (uint64_t k = 0; k < schedules; ++k) {
    Schedule schedule(seed + k, limits, pool);
    auto &artifact = artifacts[(seed + k) % artifacts.size()];
    std::string wrong = schedule.run(artifact, totals);
    if (wrong.empty()) continue;
    std::fprintf(stderr, "error: schedule %llu: %s\nreplay: %s --device %s --context %d --prompt %d --new %d --requests %d --save %d %llu 1", (unsigned long long)k, wrong.c_str(), argv[0], deviceName.c_str(),
                 limits.context, limits.prompt, limits.fresh, limits.requests, limits.save, (unsigned long long)(seed + k));
    for (int i = at + 2; i < argc; ++i)
      std::fprintf(stderr, " %s", argv[i]);
    std::fprintf(stderr, "\n");
    return 1;
  }
  std::printf("engine: %llu schedules, %llu requests (%llu with several choices), %llu tokens bit-equal, %llu steps of %.1f rows (%llu without logits), %llu cached prompt tokens, "
              "preemptions %llu recomputed %llu saved, %llu cancels, %llu drafts %llu accepted, by the draft program %llu and %llu (%llu trees); ends",
              (unsigned long long)schedules, (unsigned long long)totals.requests, (unsigned long long)totals.forks, (unsigned long long)totals.tokens,
              (unsigned long long)totals.steps, double(totals.rows) / double(std::max<uint64_t>(1, totals.steps)), (unsigned long long)totals.choiceSteps, (unsigned long long)totals.cached,
              (unsigned long long)totals.recomputed, (unsigned long long)totals.saved, (unsigned long long)totals.cancels, (unsigned long long)totals.drafted,
              (unsigned long long)totals.accepted, (unsigned long long)totals.draftedByProgram, (unsigned long long)totals.acceptedByProgram, (unsigned long long)totals.trees);
  for (auto &[name, n] : totals.ends)
    std::printf(" %s x%d", name.c_str(), n);
  std::printf("\n");
  if (schedules >= 100 && artifacts[0]->program().choicesStride && !totals.choiceSteps) {
    std::fprintf(stderr, "error: every step of %llu schedules wrote logits: the head's other form was not tested\n", (unsigned long long)schedules);
    return 1;
  }
  DraftMethod method = artifacts[0]->program().draftMethod;
  bool draftsTrees = method == DraftMethod::medusa || method == DraftMethod::eagle2 || method == DraftMethod::eagle3;
  // What was to be shown must have happened; in a few schedules not all of it does, and who runs them says what.
  for (auto [name, count] : {std::pair{"recomputed", totals.recomputed}, {"saved", totals.saved}, {"cached", totals.cached}, {"forks", totals.forks}, {"cancels", totals.cancels}, {"trees", totals.trees}, {"accepted", totals.accepted}, {"program", totals.acceptedByProgram}})
    if (!count && ((schedules >= 100 && (draftsTrees || std::strcmp(name, "trees") != 0) && (artifacts[0]->program().draftMaxSeq || std::strcmp(name, "program") != 0)) || expected.find(name) != std::string::npos)) {
      std::fprintf(stderr, "error: none '%s' in %llu schedules\n", name, (unsigned long long)schedules);
      return 1;
    }
  if (limits.save && !totals.saved) {
    std::fprintf(stderr, "error: nothing was saved in %llu schedules\n", (unsigned long long)schedules);
    return 1;
  }
  return 0;
}
