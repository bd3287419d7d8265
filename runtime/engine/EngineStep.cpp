//===- EngineStep.cpp - one step as a transaction -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/EngineCore.h"
#include "runtime/device/Trees.h"
#include <algorithm>
#include <cmath>

namespace lathe::runtime {

bool EngineCore::step() {
  double start = clock();
  propose();
  double drafted = clock();
  counters.drafterSeconds += drafted - start;
  const StepPlan &plan = scheduler->plan(drafted);
  counters.schedulerSeconds += clock() - drafted;
  begin(plan);
  if (onPlan) onPlan();
  Status status = device->transfer(plan, scheduler->kv(), poison);
  wake = plan.wakeAt;
  if (!plan.rows) {
    bool changed = !plan.ended.empty() || !plan.preempted.empty();
    if (!status.ok()) giveUp(plan, status); // what was to be saved is lost
    checkState();
    return changed;
  }
  deviceSeconds = samplerSeconds = 0;
  if (status.ok()) status = compute(plan);
  if (status.ok()) status = keepPaths(plan);
  if (status.ok()) keepRows(plan);
  counters.busySeconds += deviceSeconds;
  counters.samplerSeconds += samplerSeconds;
  if (!status.ok()) {
    giveUp(plan, status);
    checkState();
    return true;
  }
  double done = clock(); // a step's cost is what comes after drafting
  uint32_t rows = plan.rows;
  countDrafts(plan);
  auto ended = scheduler->commit(done, done - drafted, pieceResults);
  counters.schedulerSeconds += clock() - done;
  for (const PlannedEnd &e : ended)
    end(e);
  if (observer) observer->step(rows, done - start);
  checkState();
  return true;
}

/// Tells what the plan decided without the device.
void EngineCore::begin(const StepPlan &plan) {
  double now = clock();
  for (const PlannedEnd &e : plan.ended)
    end(e);
  for (const PlannedPreemption &p : plan.preempted)
    if (Active *a = find(p.request)) ++a->usage.preemptions;
  for (const PlannedAdmission &admission : plan.admitted) {
    Active *a = find(admission.request);
    if (!a || a->admitted) continue;
    a->admitted = true;
    --neverRan;
    neverRanTokens -= a->usage.promptTokens;
    a->usage.queueSeconds = now - a->arrival;
    a->usage.cachedTokens = admission.cachedTokens;
  }
}

Status EngineCore::compute(const StepPlan &plan) {
  pieceRows.clear();
  firstChoice.clear();
  pieceResults.clear();
  verified.assign(plan.pieces.size(), {});
  uint32_t rows = 0, choices = 0;
  bool logits = false, embeddings = false;
  for (const StepPiece &piece : plan.pieces) {
    pieceRows.push_back(rows);
    firstChoice.push_back(choices);
    rows += piece.tokens;
    choices += piece.samples + piece.drafts;
    if (piece.resultFrom >= piece.tokens) continue;
    Active *a = find(piece.request);
    (a && a->request.kind == RequestKind::embedding ? embeddings : logits) = true;
  }
  choiceResults.assign(choices, {});
  for (size_t i = 0; i < plan.pieces.size(); ++i)
    pieceResults.push_back({std::span(choiceResults).subspan(firstChoice[i], plan.pieces[i].samples), false});
  double before = clock();
  Status ran = device->run(plan, scheduler->kv());
  deviceSeconds += clock() - before;
  LATHE_RETURN_IF_ERROR(ran);
  bool largest = logits && choicesSuffice(plan);
  counters.choiceSteps += largest;
  if (logits) LATHE_RETURN_IF_ERROR(slices(plan, largest ? EntryKind::headChoices : EntryKind::head));
  if (embeddings) LATHE_RETURN_IF_ERROR(slices(plan, EntryKind::embed));
  for (const StepPiece &piece : plan.pieces)
    if (Active *a = piece.promptDone ? find(piece.request) : nullptr) tellPrompt(*a);
  return Status();
}

/// Whether every row of logits that the step is to give would only be asked for its largest. One row that needs more makes the head write logits for all, since
/// two runs of it would read its weights twice.
bool EngineCore::choicesSuffice(const StepPlan &plan) {
  if (!artifact->program().choicesStride) return false;
  for (const StepPiece &piece : plan.pieces) {
    Active *a = find(piece.request);
    if (!a || a->request.kind == RequestKind::embedding || piece.resultFrom >= piece.tokens) continue;
    if (a->request.promptLogprobs >= 0 && piece.first + piece.resultFrom + 1 < a->request.prompt.size()) return false;
    if (piece.drafts && a->request.acceptance != Acceptance::exact) return false;
    for (uint32_t k = 0; k < piece.samples; ++k)
      if (!Sampler::takesLargest(a->request.sampling, a->choices[piece.samples > 1 ? k : piece.choice].history)) return false;
  }
  return true;
}

/// Results of one kind, a slice at a time, each used before the next takes its place.
Status EngineCore::slices(const StepPlan &plan, EntryKind kind) {
  resultRows.clear();
  origins.clear();
  for (uint32_t i = 0; i < plan.pieces.size(); ++i) {
    const StepPiece &piece = plan.pieces[i];
    Active *a = find(piece.request);
    if (!a || (a->request.kind == RequestKind::embedding) != (kind == EntryKind::embed)) continue;
    for (uint32_t t = piece.resultFrom; t < piece.tokens; ++t) {
      resultRows.push_back(static_cast<int32_t>(pieceRows[i] + t));
      origins.push_back({i, t});
    }
  }
  for (size_t first = 0; first < resultRows.size();) {
    double before = clock();
    auto count = device->results(kind, resultRows, first);
    double computed = clock();
    deviceSeconds += computed - before;
    LATHE_RETURN_IF_ERROR(count.status());
    jobCount = 0;
    for (uint32_t i = 0; i < *count; ++i)
      addJobs(plan, origins[first + i].piece, origins[first + i].token, device->result(kind, i).data(), kind == EntryKind::headChoices);
    runJobs();
    for (size_t j = 0; j < jobCount; ++j)
      take(jobs[j]);
    samplerSeconds += clock() - computed;
    first += *count;
  }
  return Status();
}

void EngineCore::addJobs(const StepPlan &plan, uint32_t index, uint32_t token, const float *row, bool largest) {
  const StepPiece &piece = plan.pieces[index];
  Active *a = find(piece.request);
  auto add = [&](Job::Kind kind, uint32_t choice, uint32_t slot) {
    if (jobCount == jobs.size()) jobs.emplace_back();
    Job &job = jobs[jobCount++];
    job.kind = kind;
    job.request = a;
    job.piece = index;
    job.choice = choice;
    job.slot = slot;
    job.position = piece.first + (piece.parents ? piece.place(token) : token);
    job.row = row;
    job.largest = largest;
    job.status = Status();
  };
  if (a->request.kind == RequestKind::embedding) return add(Job::pool, 0, 0);
  if (a->request.promptLogprobs >= 0 && piece.first + token + 1 < a->request.prompt.size()) add(Job::score, 0, 0);
  if (piece.drafts) {
    // One job for the rows of a piece that lie in this slice: what is sampled from one decides whether the next counts.
    Job *first = jobCount ? &jobs[jobCount - 1] : nullptr;
    if (first && first->kind == Job::follow && first->piece == index) first -= first->results;
    if (first && first->kind == Job::verify && first->piece == index) {
      uint32_t distance = ++first->rows - 1;
      add(Job::follow, piece.choice, firstChoice[index] + token);
      jobs[jobCount - 1].results = distance;
      return;
    }
    add(Job::verify, piece.choice, firstChoice[index] + token);
    Job &job = jobs[jobCount - 1];
    job.firstRow = token;
    job.rows = 1;
    job.drafts = &piece;
    return;
  }
  if (token + 1 < piece.tokens) return;
  for (uint32_t k = 0; k < piece.samples; ++k)
    add(Job::sample, piece.samples > 1 ? k : piece.choice, firstChoice[index] + k);
}

void EngineCore::runJobs() {
  // The cost of a job, in logits looked at; the noise of a draw is worth eight, the exponential of a score four.
  uint64_t cost = 0, vocabulary = artifact->program().vocabulary;
  runnable.clear();
  for (uint32_t j = 0; j < jobCount; ++j) {
    if (jobs[j].kind == Job::follow) continue;
    runnable.push_back(j);
    if (jobs[j].kind != Job::pool && !jobs[j].largest)
      cost += vocabulary * (jobs[j].kind == Job::score ? 4 : jobs[j].request->request.sampling.temperature > 0 ? 8 : 1);
  }
  auto threads = static_cast<unsigned>(std::min<uint64_t>(samplers.size(), runnable.size()));
  constexpr uint64_t worthWaking = 200'000; // about 50 us of work
  if (threads < 2 || cost < worthWaking) {
    for (uint32_t j : runnable)
      runJob(jobs[j], *samplers[0]);
    return;
  }
  team->run(
      threads, false,
      [](void *self, unsigned thread, unsigned n, FlagBarrier &) {
        auto &core = *static_cast<EngineCore *>(self);
        for (size_t j = thread; j < core.runnable.size(); j += n)
          core.runJob(core.jobs[core.runnable[j]], *core.samplers[thread]);
      },
      this);
}

/// The token that the row of |at| says, for choice number |index| of its request.
Status EngineCore::sampleRow(const Job &at, const Choice &choice, uint32_t index, Sampler &sampler, Sample &out) {
  if (at.largest) return sampler.take(at.row[0], at.row[1], at.position + 1, out);
  return sampler.sample({at.row, artifact->program().vocabulary}, at.request->request.sampling, choice.history, at.position + 1, {}, index, out);
}

/// May run on any thread: writes the job (and of a verify job its results and, meanwhile, its choice's history) alone.
void EngineCore::runJob(Job &job, Sampler &sampler) {
  const Active &a = *job.request;
  if (job.kind == Job::score)
    job.status = sampler.score({job.row, artifact->program().vocabulary}, a.request.prompt[job.position + 1], a.request.promptLogprobs, job.position + 1,
                               job.result);
  else if (job.kind == Job::sample)
    job.status = sampleRow(job, a.choices[job.choice], job.choice, sampler, job.result);
  else if (job.kind == Job::verify)
    runVerify(job, sampler);
}

/// What follows row |row| of a piece with drafts. Exact: the target's own choice.
void EngineCore::decide(Job &at, const Job &job, uint32_t row, Sampler &sampler) {
  const Active &a = *job.request;
  const Choice &choice = a.choices[job.choice];
  const SamplingParams &p = a.request.sampling;
  // Read below only for what choicesSuffice() refuses, so the row is not a choice() then.
  std::span<const float> logits(at.row, artifact->program().vocabulary);
  std::array<int32_t, maxDraftTokens> behind; // drafts that may follow
  uint32_t count = 0, first = 0;
  const StepPiece &piece = *job.drafts;
  for (uint32_t d = row; a.request.acceptance != Acceptance::exact && d < piece.drafts; ++d)
    if (piece.parentOf(static_cast<int32_t>(d)) == static_cast<int32_t>(row) - 1) {
      if (!count) first = d;
      behind[count++] = piece.ids[piece.tokens - piece.drafts + d];
    }
  Decision decision;
  if (count) {
    std::vector<double> &law = sampler.lawBuffer();
    at.status = sampler.law(logits, p, choice.history, at.position + 1, law);
    if (!at.status.ok()) return;
    std::span<const int32_t> drafts(behind.data(), count);
    std::span<const float> q;
    if (first < choice.lawCount) q = lawOf(choice, first);
    decision = a.request.acceptance == Acceptance::typical ? acceptTypical(law, drafts)
                                                           : acceptByRejection(law, drafts, q, {p.seed, job.choice, at.position + 1});
  }
  if (decision.token < 0) {
    at.status = sampleRow(at, choice, job.choice, sampler, at.result);
    return;
  }
  at.result.token = decision.token;
  at.result.logprob = 0;
  at.result.top.clear();
  at.status = p.logprobs >= 0 ? sampler.score(logits, decision.token, p.logprobs, at.position + 1, at.result) : Status();
}

/// The target's own choice at each row, with the noise and the counts that the position has without drafts, as long as it is
/// a draft behind that row. The history is as before when it returns.
void EngineCore::runVerify(Job &job, Sampler &sampler) {
  Active &a = *job.request;
  TokenHistory &history = a.choices[job.choice].history;
  const StepPiece &piece = *job.drafts;
  Job *jobsHere = &job;
  uint32_t row = verified[job.piece].nextRow, added = 0;
  job.results = 0;
  // (In an earlier slice no draft was right, or the path goes on in a later one.)
  auto here = [&] { return row >= job.firstRow && row - job.firstRow < job.rows; };
  while (here()) {
    Job &at = jobsHere[row - job.firstRow];
    decide(at, job, row, sampler);
    job.path[job.results++] = static_cast<uint8_t>(row);
    int32_t next = at.status.ok() ? piece.next(static_cast<int32_t>(row) - 1, at.result.token) : -1;
    row = next < 0 ? UINT32_MAX : static_cast<uint32_t>(next) + 1;
    if (!a.keepsHistory || !here()) continue;
    history.addOutput(at.result.token);
    ++added;
  }
  job.nextRow = row;
  while (added)
    history.removeOutput(jobsHere[job.path[--added] - job.firstRow].result.token);
}

void EngineCore::takeVerified(Job &job, Active &a, Choice &choice) {
  Job *jobsHere = &job;
  Verified &so = verified[job.piece];
  if (!job.results) return;
  so.nextRow = job.nextRow;
  for (uint32_t i = 0; i < job.results; ++i) {
    Job &at = jobsHere[job.path[i] - job.firstRow];
    at.slot = firstChoice[job.piece] + so.taken++;
    takeToken(at, a, choice);
    if (!choiceResults[at.slot].ended) continue;
    so.nextRow = UINT32_MAX; // what was sampled behind the end is nobody's
    break;
  }
  pieceResults[job.piece].choices = std::span(choiceResults).subspan(firstChoice[job.piece], so.taken);
}

/// Of each tree the entries of the path that was right move together.
Status EngineCore::keepPaths(const StepPlan &plan) {
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    const StepPiece &piece = plan.pieces[i];
    if (!piece.parents || pieceResults[i].failed) continue;
    std::array<uint8_t, maxDraftTokens> path;
    uint32_t count = 0;
    int32_t at = -1;
    for (const ChoiceResult &result : pieceResults[i].choices) {
      if (count == piece.drafts || (at = piece.next(at, result.token)) < 0) break;
      path[count++] = static_cast<uint8_t>(at);
    }
    LATHE_RETURN_IF_ERROR(device->keepPath(piece, std::span(path).first(count), scheduler->kv()));
  }
  return Status();
}

/// Of each sequence that the draft over rows may be asked for: the row that its last token was sampled from. The device has it until its next run of rows.
void EngineCore::keepRows(const StepPlan &plan) {
  if (!artifact->program().draftInputStride) return;
  if (goesOnFromItself(artifact->program().draftMethod)) return keepFeatures(plan);
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    const StepPiece &piece = plan.pieces[i];
    Active *a = find(piece.request);
    std::span<const ChoiceResult> results = pieceResults[i].choices;
    bool asks = a && (a->speculate == Speculation::draft || a->speculate == Speculation::automatic);
    if (!asks || pieceResults[i].failed || results.empty()) continue;
    // The last row whose token counts: behind drafts that were right, one for each token but the last.
    uint32_t row = piece.tokens - piece.drafts - 1, position = piece.first + row;
    int32_t at = -1;
    for (size_t t = 0; piece.drafts && t + 1 < results.size() && (at = piece.next(at, results[t].token)) >= 0; ++t)
      row = piece.tokens - piece.drafts + static_cast<uint32_t>(at), ++position;
    std::span<const float> values;
    for (size_t k = 0; k < (piece.samples > 1 ? results.size() : 1); ++k) {
      Choice &choice = a->choices[piece.samples > 1 ? k : piece.choice];
      if (!choice.drafter) continue;
      if (values.empty()) values = {device->executable().hidden(pieceRows[i] + row), artifact->program().draftInputSize}; // a GPU copies it
      choice.row.assign(values.begin(), values.end());
      choice.rowOf = position + 2;
    }
  }
}

/// The same for a draft over features: of all rows that the step computed, drafts only as far as they were right.
void EngineCore::keepFeatures(const StepPlan &plan) {
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    const StepPiece &piece = plan.pieces[i];
    Active *a = find(piece.request);
    bool asks = a && (a->speculate == Speculation::draft || a->speculate == Speculation::automatic);
    if (!asks || pieceResults[i].failed || piece.choice >= a->choices.size()) continue;
    Choice &choice = a->choices[piece.choice];
    uint32_t known = piece.tokens - piece.drafts, position = piece.first + known;
    for (uint32_t r = known - std::min(known, featureRows); r < known; ++r)
      keepFeature(choice, piece.first + r, pieceRows[i] + r);
    std::span<const ChoiceResult> results = pieceResults[i].choices;
    int32_t at = -1;
    for (size_t t = 0; piece.drafts && t + 1 < results.size() && (at = piece.next(at, results[t].token)) >= 0; ++t)
      keepFeature(choice, position++, pieceRows[i] + known + static_cast<uint32_t>(at));
    for (uint32_t k = 0; piece.samples > 1 && k < a->choices.size(); ++k)
      if (k != piece.choice) a->choices[k].features.copy(choice.features);
  }
}

void EngineCore::keepFeature(Choice &choice, uint32_t position, uint32_t row) {
  const Program &p = artifact->program();
  float *to = choice.features.put(position, p.draftFeatureSize(), featureRows);
  if (!to) return;
  if (p.draftFeatures.empty()) std::copy_n(device->executable().hidden(row), p.hiddenSize, to);
  for (uint32_t f = 0; f < p.draftFeatures.size(); ++f)
    std::copy_n(device->executable().feature(f, row), p.hiddenSize, to + size_t(f) * p.hiddenSize);
}

/// Counts the drafts of a step that ran, and lets the drafters learn.
void EngineCore::countDrafts(const StepPlan &plan) {
  SpeculationStats &s = counters.speculation;
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    const StepPiece &piece = plan.pieces[i];
    Active *a = piece.drafts ? find(piece.request) : nullptr;
    if (!a || pieceResults[i].failed || piece.choice >= a->choices.size()) continue;
    auto emitted = static_cast<uint32_t>(pieceResults[i].choices.size());
    uint32_t accepted = emitted - 1;
    Drafter *drafter = a->choices[piece.choice].drafter.get();
    auto source = static_cast<size_t>(drafter ? drafter->source() : DraftSource::ngram);
    ++s.rounds;
    s.emitted += emitted;
    s.drafted[source] += piece.drafts;
    s.accepted[source] += accepted;
    uint32_t right = 0; // a bit a draft
    int32_t at = -1;
    for (uint32_t t = 0; t < accepted && (at = piece.next(at, pieceResults[i].choices[t].token)) >= 0; ++t)
      right |= 1u << at;
    bool tree = false;
    for (uint32_t d = 0; d < piece.drafts; ++d) {
      tree |= piece.parentOf(static_cast<int32_t>(d)) != static_cast<int32_t>(d) - 1;
      uint32_t place = piece.depth(static_cast<int32_t>(d)) - 1;
      ++s.draftedAt[source][place];
      s.acceptedAt[source][place] += right >> d & 1;
    }
    s.programTrees += tree && source == static_cast<size_t>(DraftSource::program);
    a->usage.draftedTokens += piece.drafts;
    a->usage.acceptedTokens += accepted;
    // An end in the middle says nothing of the drafts behind it.
    if (drafter && !pieceResults[i].choices.back().ended) drafter->verified(piece.drafts, right);
  }
}

void EngineCore::take(Job &job) {
  Active &a = *job.request;
  PieceResult &piece = pieceResults[job.piece];
  if (piece.failed || job.kind == Job::follow) return;
  auto fail = [&](Status error) {
    countCorrupted(a, error);
    if (a.error.ok()) a.error = std::move(error);
    piece.failed = true;
  };
  if (job.kind == Job::pool) {
    bool mean = a.request.pooling == Pooling::mean;
    if (mean && job.position != a.pooledRows) return; // computed again after a preemption
    for (size_t d = 0; d < a.pooled.size(); ++d) {
      if (!std::isfinite(job.row[d]))
        return fail(makeError(StatusCode::internal, "hidden state at position %u: value %zu is %f", job.position, d,
                              static_cast<double>(job.row[d])));
      a.pooled[d] = (mean ? a.pooled[d] : 0.0) + static_cast<double>(job.row[d]);
    }
    ++a.pooledRows;
  } else if (job.kind == Job::score) {
    if (!job.status.ok()) return fail(std::move(job.status));
    PromptLogprob &score = a.scores[job.position + 1];
    score.logprob = job.result.logprob;
    score.top.assign(job.result.top.begin(), job.result.top.end());
  } else {
    Choice &choice = a.choices[job.choice];
    tellPrompt(a);
    if (job.kind == Job::verify)
      takeVerified(job, a, choice);
    else
      takeToken(job, a, choice);
  }
}

void EngineCore::takeToken(Job &job, Active &a, Choice &choice) {
  ChoiceResult &out = choiceResults[job.slot];
  auto endWith = [&](EndReason reason) {
    out.ended = true;
    out.reason = reason;
  };
  if (!job.status.ok()) {
    countCorrupted(a, job.status);
    choice.error = std::move(job.status);
    return endWith(EndReason::failed);
  }
  const SamplingParams &p = a.request.sampling;
  int32_t token = job.result.token;
  if (std::binary_search(p.stopTokenIds.begin(), p.stopTokenIds.end(), token)) {
    choice.stopToken = token;
    return endWith(EndReason::stop);
  }
  out.token = token;
  if (a.keepsHistory) choice.history.addOutput(token);
  double now = clock();
  if (a.usage.newTokens == 0) {
    a.usage.ttftSeconds = now - a.arrival;
    if (observer) observer->firstToken(a.request.tenant, a.usage.ttftSeconds);
  }
  if (choice.tokens++ > 0 && observer) observer->tokenGap(a.request.tenant, now - choice.lastToken);
  choice.lastToken = now;
  ++a.usage.newTokens;
  a.usage.longestTokens = std::max(a.usage.longestTokens, choice.tokens);
  ++counters.newTokens;
  std::string_view shown = choice.text.push(token);
  a.listener->piece(job.choice, job.result, shown);
  if (choice.text.stopped()) return endWith(EndReason::stop);
  if (a.speculate == Speculation::off) return;
  if (!choice.drafter) {
    uint32_t fresh = std::min(a.request.maxTokens, limit.contextTokens);
    // A program that does not say where its KV entries lie can verify chains only.
    bool chain = a.speculate == Speculation::suffixTree && !knowsTrees(artifact->program());
    // Only who looks into a tenant's answers keeps them from being forgotten.
    bool looks = a.speculate != Speculation::ngram && a.speculate != Speculation::draft;
    choice.drafter = std::make_unique<Drafter>(chain ? Speculation::suffix : a.speculate, a.request.prompt, fresh, sharedDrafts,
                                               looks ? sharedDrafts.suffixesOf(a.request.tenant, a.request.cacheSalt) : nullptr);
    drafting.push_back({&a, job.choice});
    if (artifact->program().draftMethod == DraftMethod::medusa) choice.row.reserve(artifact->program().draftInputSize);
  }
  choice.drafter->push(token);
}

/// Once a request. Of what a row may be refused for only numbers that are not finite are the engine's own fault.
void EngineCore::countCorrupted(Active &a, const Status &error) {
  if (error.code() != StatusCode::internal || a.corrupted) return;
  a.corrupted = true;
  ++counters.corrupted;
}

/// Once a request, when its prompt is computed.
void EngineCore::tellPrompt(Active &a) {
  if (a.promptTold) return;
  a.promptTold = true;
  counters.promptTokens += a.usage.promptTokens;
  if (a.request.promptLogprobs >= 0) a.listener->promptDone(a.scores);
}

/// The step did not happen: all of its requests end, the engine goes on.
void EngineCore::giveUp(const StepPlan &plan, const Status &error) {
  double now = clock();
  std::vector<RequestId> lost;
  for (const StepPiece &piece : plan.pieces)
    lost.push_back(piece.request);
  if (!plan.rows)
    for (const PlannedPreemption &p : plan.preempted)
      if (p.saved) lost.push_back(p.request);
  if (plan.rows) scheduler->rollback(now);
  for (RequestId id : lost) {
    Active *a = find(id);
    if (!a) continue;
    if (a->error.ok()) a->error = error;
    scheduler->cancel(now, id, EndReason::failed);
  }
}

void EngineCore::checkState() {
  // An engine that is never idle is looked at too, though seldom: with many blocks it takes milliseconds.
  if (!invariant.ok() || !(checkAlways || requests.empty() || ++sinceCheck >= stepsBetweenChecks)) return;
  sinceCheck = 0;
  invariant = scheduler->checkInvariants();
}

} // namespace lathe::runtime
