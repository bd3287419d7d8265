//===- EngineCore.cpp - requests in, steps, ends --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/EngineCore.h"
#include "lathe/artifact/Hash.h"
#include "runtime/engine/KVBudget.h"
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <limits>

namespace lathe::runtime {
namespace {

double steadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Appends the scheduler's trace to a file.
class FileTrace : public TraceSink {
public:
  explicit FileTrace(FILE *file) : file(file) {}
  ~FileTrace() override { std::fclose(file); }
  void write(std::string_view lines) override { std::fwrite(lines.data(), 1, lines.size(), file); }

private:
  FILE *file;
};

// Rows of a step that the engine asks for if nobody says: prompts run at nearly full speed, and a step stays short.
constexpr uint32_t defaultStepTokens = 256;
/// Likeliest tokens that most requests keep below; more cost an allocation now and then.
constexpr size_t usualLogprobs = 20;
/// What measuring steps may cost at start.
constexpr double measureSeconds = 0.25;
// Rows and tokens before them of the step that says what history costs.
constexpr uint32_t historyRows = 16, measuredHistory = 1024;
constexpr int mostMeasures = 6, historyMeasures = 3;
/// Laws of drafts, for rejection sampling; but a whole draft's at least.
constexpr uint64_t mostLawBytes = uint64_t(32) << 20;
/// KV memory that is touched ahead of its use while there is nothing to run.
constexpr uint64_t warmBytes = uint64_t(256) << 20;

} // namespace

EngineCore::~EngineCore() = default;

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::shared_ptr<LoadedArtifact> artifact,
                                                       std::shared_ptr<const TextModel> text,
                                                       const RequestEngineOptions &options, Device *device,
                                                       EngineObserver *observer, Clock clock) {
  std::unique_ptr<EngineCore> core(new EngineCore());
  LATHE_RETURN_IF_ERROR(core->open(std::move(artifact), std::move(text), options, device, observer, std::move(clock)));
  return core;
}

Status EngineCore::open(std::shared_ptr<LoadedArtifact> loaded, std::shared_ptr<const TextModel> words,
                        const RequestEngineOptions &o, Device *onDevice, EngineObserver *watcher, Clock time) {
  artifact = std::move(loaded);
  text = std::move(words);
  observer = watcher;
  clock = time ? std::move(time) : Clock(steadySeconds);
  poison = o.poisonFreeBlocks;
  checkAlways = o.checkInvariants;
  speculate = o.speculate;
  const Program &p = artifact->program();
  limit.generalGraph = artifact->graph() != nullptr;
  // Its cache is no blocks: nothing can be shared, saved, copied or taken back piecewise.
  if (limit.generalGraph && (speculate != Speculation::off || o.savedKvBytes))
    return makeError(StatusCode::unsupported, "this artifact holds a general graph, whose one cache has no KV blocks: expected no %s, which need a model raised to llm ops",
                     o.savedKvBytes ? "saved KV blocks" : "drafts");
  LATHE_RETURN_IF_ERROR(checkDrafts(p, o.speculate));
  LATHE_RETURN_IF_ERROR(checkSequences(*artifact, o.contextTokens, o.maxSequences));
  if (o.maxQueued == 0)
    return makeError(StatusCode::invalidArgument, "expected a queue of at least 1 request: each passes through it");

  limit.contextTokens = o.contextTokens ? o.contextTokens : p.maxSeq;
  limit.maxSequences = o.maxSequences;
  limit.maxQueued = o.maxQueued;
  limit.maxQueuedTokens = o.maxQueuedTokens;
  limit.savedKvBytes = o.savedKvBytes;
  limit.stepTokens = std::min(o.stepTokens ? o.stepTokens : defaultStepTokens, p.maxRows);
  limit.stepTokens = std::max(limit.stepTokens, std::min(limit.maxSequences, p.maxRows)); // a token for each sequence
  KVShape shape{limit.maxSequences, limit.contextTokens, o.kvTokens, limit.stepTokens, p.draftMaxSeq > 0};
  uint64_t budget = o.memoryBudget ? o.memoryBudget : defaultBudget(availableMemory());
  uint64_t draftBytes = draftingBytes(asksProgramOnly(speculate) ? Speculation::draft : speculate, limit.maxSequences, limit.contextTokens);
  if (p.draftInputStride && speculate != Speculation::off) {
    uint32_t rows = goesOnFromItself(p.draftMethod) ? FeatureRows::mostRows(p.draftFeatureSize(), limit.contextTokens) : 1;
    draftBytes += uint64_t(limit.maxSequences) * rows * p.draftFeatureSize() * sizeof(float);
  }
  if (p.draftMaxSeq) { // whatever the default is, requests may ask for it
    uint64_t each = uint64_t(p.vocabulary) * sizeof(float), wanted = uint64_t(limit.maxSequences) * maxDraftTokens;
    lawCapacity = static_cast<uint32_t>(std::min(wanted, std::max<uint64_t>(mostLawBytes / each, maxDraftTokens)));
    laws = std::make_unique_for_overwrite<float[]>(size_t(lawCapacity) * p.vocabulary);
    draftBytes += lawCapacity * each;
    if (goesOnFromItself(p.draftMethod)) draftBytes += limit.maxSequences * DraftTree::bytes(p.hiddenSize);
  }
  if (budget && draftBytes >= budget)
    return makeError(StatusCode::resourceExhausted,
                     "drafting '%s' for %u sequences of %u tokens takes %llu MB: expected a larger memory budget, found %llu MB", toString(speculate),
                     limit.maxSequences, limit.contextTokens, static_cast<unsigned long long>(draftBytes >> 20), static_cast<unsigned long long>(budget >> 20));
  LATHE_RETURN_IF_ERROR(fitBudget(p, budget ? budget - draftBytes : 0, shape));
  std::vector<uint32_t> blocks = kvBlocksFor(p, shape);
  ExecutableOptions prepare{o.threads, o.pin, blocks};
  blocks.resize(p.stepGroups()); // the scheduler's
  DraftBlocks draftBlocks = draftBlocksFor(p, limit.maxSequences);
  for (size_t g = 0; g < draftBlocks.tails.size(); ++g)
    prepare.kvBlocks[g] += draftBlocks.tails[g];
  if (!onDevice) onDevice = (ownDevice = makeCpuDevice()).get();
  LATHE_ASSIGN_OR_RETURN(device, StepDevice::create(artifact, *onDevice, prepare, limit.stepTokens, o.savedKvBytes));
  limit.threads = device->executable().threads();
  limit.memoryBytes = device->executable().memoryBytes() + draftBytes;
  limit.kvTokens = uint64_t(limit.contextTokens) * limit.maxSequences;
  for (size_t g = 0; g < blocks.size(); ++g)
    if (p.kvGroups[g].kind == 0)
      limit.kvTokens = std::min(limit.kvTokens, uint64_t(blocks[g]) * p.kvGroups[g].pageTokens);

  if (!o.tracePath.empty()) {
    FILE *file = std::fopen(o.tracePath.c_str(), "w");
    if (!file) return makeError(StatusCode::notFound, "cannot write the trace '%s'", o.tracePath.c_str());
    trace = std::make_unique<FileTrace>(file);
  }
  SchedulerOptions s;
  s.maxSequences = limit.maxSequences;
  s.contextTokens = limit.contextTokens;
  s.stepTokens = limit.stepTokens;
  s.maxQueued = o.maxQueued;
  s.maxQueuedTokens = o.maxQueuedTokens;
  s.policy = o.policy;
  s.preemption = o.preemption;
  s.prefixCache = o.prefixCache && !limit.generalGraph;
  s.model = artifact::toHex(artifact->view().contentHash());
  s.savedKvBytes = o.savedKvBytes;
  s.itlTarget = o.itlTarget;
  s.learnCost = o.measureSteps;
  s.freeDrafts = freeDrafts = o.freeDrafts;
  measureCost = o.measureSteps;
  if (measureCost) LATHE_RETURN_IF_ERROR(measureSteps(s.cost, EntryKind::step));
  if (measureCost && o.savedKvBytes) {
    LATHE_ASSIGN_OR_RETURN(limit.saveBytesPerSecond, device->measureTransfer());
    if (limit.saveBytesPerSecond > 0) s.saveBytesPerSecond = limit.saveBytesPerSecond;
  }
  LATHE_ASSIGN_OR_RETURN(scheduler, Scheduler::create(p, blocks, s, trace.get()));
  if (p.draftMaxSeq) {
    if (measureCost) LATHE_RETURN_IF_ERROR(measureSteps(draftCost, EntryKind::draft));
    featureRows = FeatureRows::mostRows(p.draftFeatureSize(), limit.contextTokens);
    drafts = std::make_unique<DraftProgram>(*device, p, shape, prepare.kvBlocks, draftBlocks, poison);
    candidates.resize(limit.maxSequences);
    for (Candidate &c : candidates) {
      c.sample.top.reserve(usualLogprobs);
      if (p.kvPlanes.empty()) continue;
      if (goesOnFromItself(p.draftMethod)) c.grown = std::make_unique<DraftTree>(p.hiddenSize);
      if (p.draftMethod == DraftMethod::medusa) c.grown = std::make_unique<DraftTree>(0); // of one run: no rows go on
    }
    treeNodes.reserve(maxDraftTokens);
    alive.reserve(limit.maxSequences);
    draftPieces.reserve(limit.maxSequences);
  }
  checker = std::make_unique<RequestCheck>(p, limit, text != nullptr);

  KVCache &cache = scheduler->kv();
  for (uint32_t g = 0; g < cache.groups(); ++g)
    limit.pageTokens = std::max(limit.pageTokens, cache.page(g));
  limit.prefixCache = cache.prefixCache() != nullptr;
  if (o.shuffleBlocks)
    for (uint32_t g = 0; g < cache.groups(); ++g)
      cache.pool(g).shuffle(o.shuffleBlocks + g);
  if (poison) {
    cache.recordReleases(true);
    for (uint32_t g = 0; g < cache.groups(); ++g)
      for (int32_t block : cache.pool(g).freeList())
        LATHE_RETURN_IF_ERROR(device->executable().fillBlock(g, static_cast<uint32_t>(block), 0xff));
    if (drafts) LATHE_RETURN_IF_ERROR(drafts->poisonAll());
  }
  // All that a step needs.
  resultRows.reserve(limit.stepTokens);
  origins.reserve(limit.stepTokens);
  size_t most = size_t(limit.stepTokens) + limit.maxSequences;
  choiceResults.reserve(most);
  verified.reserve(most);
  for (auto *list : {&pieceRows, &firstChoice})
    list->reserve(most);
  runnable.reserve(size_t(p.maxOutRows) + limit.maxSequences);
  drafting.reserve(limit.maxSequences);
  pieceResults.reserve(most);
  jobs.resize(size_t(p.maxOutRows) + limit.maxSequences);
  for (Job &job : jobs)
    job.result.top.reserve(usualLogprobs); // whoever it is used for next
  team = ThreadTeam::acquire();
  team->grow(limit.threads);
  for (unsigned t = 0; t < limit.threads; ++t)
    samplers.push_back(std::make_unique<Sampler>(static_cast<int32_t>(p.vocabulary)));
  if (!p.draftTokens.empty()) spread.assign(samplers.size(), std::vector<float>(p.vocabulary, -std::numeric_limits<float>::infinity()));
  vector.resize(p.hiddenSize);
  return Status();
}

/// Feeds the cost model with steps (or runs of the draft) of 1, 4, 16, ... rows, until the time for it is used up, and with what history costs.
Status EngineCore::measureSteps(StepCostModel &cost, EntryKind kind) {
  LATHE_RETURN_IF_ERROR(device->measure(1, 0, kind).status()); // brings weights and code into memory
  double spent = 0, last = 0, alone = 0, single = 0;
  uint32_t most = 0;
  uint32_t widest = std::min(limit.stepTokens, device->positions(kind)); // more rows are not run by measure()
  for (uint32_t rows = 1; rows <= widest; rows *= 4) {
    if (spent + 4 * last > measureSeconds) break;
    double fastest = std::numeric_limits<double>::infinity();
    // Rows together are never slower than one after the other: what says so was disturbed, and is asked again.
    auto plausible = [&] { return rows == 1 || fastest <= 1.2 * rows * single; };
    for (int i = 0; i < 2 || (i < mostMeasures && !plausible()); ++i) {
      LATHE_ASSIGN_OR_RETURN(last, device->measure(rows, 0, kind));
      fastest = std::min(fastest, last);
      spent += last;
    }
    if (rows == 1) single = fastest;
    cost.observe(rows, plausible() ? fastest : rows * single);
    if (rows <= historyRows) most = rows, alone = fastest;
  }
  uint32_t page = 1, history = std::min(measuredHistory, device->positions(kind) - std::min(device->positions(kind), most));
  for (const KVGroup &group : artifact->program().kvGroups)
    page = std::max(page, group.pageTokens);
  history -= history % page;
  // A general graph sees only a history that was computed.
  if (limit.generalGraph || !most || history < page || spent + 4 * alone > 2 * measureSeconds) return Status();
  // One that is disturbed would make prompts' chunks half as long for good; but where one takes long, it must do.
  double behind = std::numeric_limits<double>::infinity();
  for (int i = 0; i == 0 || (i < historyMeasures && spent + last <= 2 * measureSeconds); ++i) {
    LATHE_ASSIGN_OR_RETURN(last, device->measure(most, history, kind));
    behind = std::min(behind, last);
    spent += last;
  }
  cost.setHistoryWeight(std::clamp((behind / alone - 1) / history, 0.0, 1.0 / 64));
  return Status();
}

bool EngineCore::warmMemory() {
  if (poison || limit.generalGraph) return false; // free blocks have their content; no blocks
  const KVCache &cache = scheduler->kv();
  const auto &groups = artifact->program().kvGroups;
  touched.resize(cache.groups());
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    const BlockPool &pool = cache.pool(g);
    touched[g].resize(pool.total());
    std::span<const int32_t> free = pool.freeList(); // a stack: the last is the next
    uint64_t most = warmBytes / cache.groups() / std::max<uint64_t>(1, groups[g].blockBytes);
    for (size_t i = 0; i < std::min<uint64_t>(free.size(), most); ++i) {
      auto block = static_cast<size_t>(free[free.size() - 1 - i]);
      if (touched[g][block]) continue;
      touched[g][block] = true;
      return device->executable().fillBlock(g, static_cast<uint32_t>(block), 0).ok();
    }
  }
  return false;
}

EngineCore::Active *EngineCore::find(RequestId id) {
  auto it = requests.find(id);
  return it == requests.end() ? nullptr : it->second.get();
}

void EngineCore::add(RequestId id, Request request, std::shared_ptr<RequestListener> listener, double arrival) {
  auto made = std::make_unique<Active>();
  Active &a = *made;
  a.id = id;
  a.listener = std::move(listener);
  a.arrival = arrival;
  a.request = std::move(request);
  Request &r = a.request;
  SamplingParams &p = r.sampling;
  // One list of end tokens: for the sampler, which holds them back until min_tokens, and for takeToken().
  p.stopTokenIds.insert(p.stopTokenIds.end(), r.stopTokens.begin(), r.stopTokens.end());
  if (text && !r.ignoreEnd)
    p.stopTokenIds.insert(p.stopTokenIds.end(), text->stopTokens().begin(), text->stopTokens().end());
  std::sort(p.stopTokenIds.begin(), p.stopTokenIds.end());
  p.stopTokenIds.erase(std::unique(p.stopTokenIds.begin(), p.stopTokenIds.end()), p.stopTokenIds.end());
  a.usage.promptTokens = static_cast<uint32_t>(r.prompt.size());
  bool generates = r.kind == RequestKind::generate;
  a.keepsHistory =
      generates && (p.repetitionPenalty != 1 || p.presencePenalty != 0 || p.frequencyPenalty != 0 || p.minTokens > 0);
  a.speculate = generates ? r.speculate.value_or(speculate) : Speculation::off;
  Speculation asked = a.speculate;
  if (asksProgramOnly(asked)) a.speculate = Speculation::draft;
  if (drafts && a.speculate != Speculation::off) {
    a.draftSampling = p;
    a.draftSampling.logprobs = 0;
    planTrees(a, asked);
  }
  AnswerTextOptions textOptions{r.stops, r.includeStop, r.keepSpecial, r.continues, static_cast<uint32_t>(p.minTokens)};
  a.choices.reserve(r.choices);
  for (uint32_t c = 0; c < r.choices; ++c) {
    Choice &choice = a.choices.emplace_back(text ? &text->tokenizer() : nullptr, textOptions);
    if (!a.keepsHistory) continue;
    uint64_t fresh = std::min<uint64_t>(r.maxTokens, limit.contextTokens);
    choice.history.reserve(std::min<uint64_t>(r.prompt.size() + fresh, artifact->program().vocabulary));
    for (int32_t token : r.prompt)
      choice.history.addPrompt(token);
  }
  if (r.promptLogprobs >= 0) {
    a.scores.resize(r.prompt.size());
    for (size_t i = 0; i < a.scores.size(); ++i)
      a.scores[i] = {r.prompt[i], std::numeric_limits<float>::quiet_NaN(), {}};
  }
  if (!generates) a.pooled.resize(artifact->program().hiddenSize);

  double now = clock(), waited = std::max(0.0, now - arrival);
  ScheduledRequest s;
  s.id = id;
  s.prompt = r.prompt;
  s.choices = r.choices;
  s.maxTokens = generates ? r.maxTokens : 0;
  using Rows = ScheduledRequest::PromptRows;
  if (generates)
    s.promptRows = r.promptLogprobs >= 0 ? Rows::all : Rows::none;
  else
    s.promptRows = r.pooling == Pooling::mean ? Rows::all : Rows::last;
  s.tenant = r.tenant;
  s.cacheSalt = r.cacheSalt;
  s.priority = r.priority;
  // The scheduler's times begin now. What was used up on the way here is not given again.
  auto left = [&](double seconds) { return seconds > 0 ? std::max(seconds - waited, 1e-9) : 0; };
  s.deadline = left(r.deadline);
  s.ttftTarget = left(r.ttftTarget);
  s.tpotTarget = r.tpotTarget;
  a.listener->accepted(p.seed);
  Reason refusal = Reason::none;
  Status added = scheduler->add(now, std::move(s), &refusal);
  requests.emplace(id, std::move(made));
  ++neverRan;
  neverRanTokens += a.usage.promptTokens;
  if (added.ok()) return;
  a.error = std::move(added);
  const uint32_t choices = r.choices; // the last end() frees the request
  for (uint32_t c = 0; c < choices; ++c)
    end({id, c, EndReason::rejected, refusal, c + 1 == choices});
}

void EngineCore::cancel(RequestId id) {
  if (find(id)) scheduler->cancel(clock(), id, EndReason::cancelled);
}

void EngineCore::cancelAll() {
  for (auto &[id, active] : requests)
    scheduler->cancel(clock(), id, EndReason::cancelled);
}

EngineStats EngineCore::stats() const {
  EngineStats out = counters;
  SchedulerStats s = scheduler->stats();
  out.weightBytes = device->weightBytes();
  out.running = s.running;
  out.waiting = s.waiting;
  out.preempted = s.preempted;
  out.waitingTokens = s.waitingTokens;
  out.kvBlocks = s.kvBlocks;
  out.kvBlocksUsed = s.kvBlocksUsed;
  out.kvBlocksCached = s.kvBlocksCached;
  if (drafts) out.draftBlocksUsed = drafts->blocksUsed();
  out.savedKvBytes = s.savedBytes;
  out.kvTimes = s.kvTimes;
  out.steps = s.steps;
  out.rows = s.rows;
  out.prefixQueried = s.prefixQueried;
  out.prefixHit = s.prefixHit;
  out.preemptedRecompute = s.preemptedRecompute;
  out.preemptedSave = s.preemptedSave;
  out.preemptedBlocks = s.reasons[static_cast<size_t>(Reason::preemptBlocks)];
  out.preemptedPriority = s.reasons[static_cast<size_t>(Reason::preemptPriority)];
  out.broken = !invariant.ok();
  out.rejectedQueue += s.rejectedQueue;
  out.rejectedDeadline += s.rejectedDeadline;
  return out;
}

void EngineCore::end(const PlannedEnd &ended) {
  Active *a = find(ended.request);
  if (!a || ended.choice >= a->choices.size()) return;
  Choice &choice = a->choices[ended.choice];
  EndReason reason = ended.end;
  if (ended.reason == Reason::rejectTpot && a->error.ok())
    a->error = makeError(StatusCode::resourceExhausted, "the time per token cannot be met: expected %g seconds", a->request.tpotTarget);
  bool embedded =
      a->request.kind == RequestKind::embedding && (reason == EndReason::length || reason == EndReason::stop);
  if (!choice.done) {
    choice.done = true;
    if (choice.drafter) {
      if (reason == EndReason::stop || reason == EndReason::length) choice.drafter->finish();
      if (drafts) drafts->forget({a->id, ended.choice});
      choice.drafter.reset();
      std::erase_if(drafting, [&](const Drafting &d) { return d.request == a && d.choice == ended.choice; });
    }
    switch (reason) {
    case EndReason::stop:
      ++counters.endedStop;
      break;
    case EndReason::length:
      ++counters.endedLength;
      break;
    case EndReason::cancelled:
      ++counters.endedCancelled;
      break;
    case EndReason::timeout:
      ++counters.endedTimeout;
      break;
    case EndReason::failed:
      ++counters.endedFailed;
      break;
    case EndReason::rejected: // counted where it is decided
      break;
    }
    if (embedded) {
      double scale = a->request.pooling == Pooling::mean ? 1.0 / std::max(1u, a->pooledRows) : 1.0;
      for (size_t d = 0; d < vector.size(); ++d)
        vector[d] = static_cast<float>(a->pooled[d] * scale);
      a->listener->embedding(vector);
    } else {
      if (a->request.kind == RequestKind::generate && !choice.text.stopped())
        if (std::string_view rest = choice.text.finish(); !rest.empty())
          a->listener->piece(ended.choice, Sample(), rest);
      if (choice.text.stopped()) reason = EndReason::stop; // the last bytes may complete a stop string
      a->listener->choiceDone(ended.choice, reason, choice.text.stopText(), choice.stopToken);
    }
  }
  if (ended.last) finish(*a, reason);
}

void EngineCore::finish(Active &a, EndReason reason) {
  a.usage.totalSeconds = clock() - a.arrival;
  if (!a.admitted) {
    --neverRan;
    neverRanTokens -= a.usage.promptTokens;
    a.usage.queueSeconds = a.usage.totalSeconds;
  }
  if (a.error.ok())
    for (Choice &choice : a.choices)
      if (!choice.error.ok() && a.error.ok()) a.error = std::move(choice.error);
  if (a.error.ok() && reason == EndReason::rejected)
    a.error = makeError(StatusCode::resourceExhausted, "the time to the first token cannot be met: expected %g seconds",
                        a.request.ttftTarget);
  if (a.error.ok() && reason == EndReason::failed) a.error = Status(StatusCode::internal, "the request failed");
  a.listener->finished(a.usage, a.error);
  if (observer) observer->requestDone(a.request.tenant, reason, a.usage);
  requests.erase(RequestId(a.id)); // |a| is gone with it
}

} // namespace lathe::runtime
