//===- EngineDrafts.cpp - who drafts, and how far -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Before a plan: drafts that are looked up cost nothing; those of the draft program cost runs, which are made only as long as
// tokens a second are expected to rise (docs/speculation.md, "Length by cost").
//===----------------------------------------------------------------------===//
#include "runtime/engine/EngineCore.h"
#include <algorithm>
#include <cmath>

namespace lathe::runtime {

// Drafting must make this much more of a second. The plan is content with less, for it spends rows only: runs of the draft are lost when
// the estimates of two costs and of the chances were too hopeful.
static constexpr double leastGain = 1.1;
// What trying a draft program that is not expected to pay may cost, as a share of the time.
static constexpr double tryShare = 0.02;
// Rows that a run of the draft may always have to catch up with.
static constexpr uint32_t leastCatchUp = 16;

Status checkDrafts(const Program &program, Speculation method) {
  if (method == Speculation::draft && !program.draftMaxSeq) return Status(StatusCode::unsupported, noDraftProgram);
  DraftMethod there = program.draftMethod;
  bool layer = there == DraftMethod::eagle || there == DraftMethod::eagle2; // of one format
  bool wrong = (method == Speculation::medusa && there != DraftMethod::medusa) || (method == Speculation::eagle3 && there != DraftMethod::eagle3) ||
               ((method == Speculation::eagle || method == Speculation::eagle2) && !layer);
  if (!wrong) return Status();
  return makeError(StatusCode::unsupported, "the artifact has %s; compile it with '--speculate %s --speculate-weights DIR'",
                   program.draftMaxSeq ? "a draft program of another kind" : method == Speculation::medusa ? "no Medusa heads" : "no EAGLE layer", toString(method));
}

/// Whether the row that a draft over rows of the step begins with is not there: a step failed, or the sequence came back in another way.
bool EngineCore::lacksRow(const Choice &choice, uint32_t known) const {
  const Program &p = artifact->program();
  if (goesOnFromItself(p.draftMethod)) return known < 2 || !choice.features.holds(known - 2);
  return p.draftInputStride && choice.rowOf != known;
}

/// Drafts for the sequences that decode next.
void EngineCore::propose() {
  if (drafting.empty() || !(draftAlways || scheduler->draftsMayPay())) return;
  candidateCount = 0;
  lawsTaken = 0;
  // While prompts are computed, or are about to be, the rows are theirs.
  bool asksProgram = drafts && !onDraft;
  if (asksProgram && draftsCost()) {
    SchedulerStats now = scheduler->stats();
    asksProgram = now.running == scheduler->decodingChoices() && (now.waiting + now.preempted == 0 || now.running == limit.maxSequences);
  }
  for (const Drafting &d : drafting) {
    Active &a = *d.request;
    uint32_t room = scheduler->draftRoom(a.id, d.choice);
    if (!room) continue;
    Choice &choice = a.choices[d.choice];
    choice.lawCount = 0;
    testDraft.tree = false;
    if (onDraft) onDraft(a.id, d.choice, choice.tokens, room, testDraft);
    const Draft &draft = onDraft ? testDraft : choice.drafter->propose(room);
    if (asksProgram && (a.speculate == Speculation::draft || a.speculate == Speculation::automatic)) {
      auto known = static_cast<uint32_t>(choice.drafter->tokens().size());
      room = std::min(room, drafts->positions() - std::min(drafts->positions(), known));
      if (room && !lacksRow(choice, known) && choice.drafter->programReady()) {
        Candidate &c = candidates[candidateCount++];
        c.request = &a;
        c.choice = d.choice;
        c.row = scheduler->decodingRow(a.id, d.choice);
        c.room = room;
        c.known = known;
        c.earliest = drafts->overFeatures() ? choice.features.begin() + 1 : 0;
        continue;
      }
    }
    offer(a, d.choice, draft);
  }
  if (candidateCount) draftByProgram();
}

void EngineCore::offer(const Active &a, uint32_t choice, const Draft &draft) {
  if (draft.count)
    scheduler->propose(a.id, choice, std::span(draft.tokens).first(draft.count), std::span(draft.chance).first(draft.count), draft.parents());
}

/// Of rows that decode behind as much history as the candidates have on average. Where drafts are free a step takes one unit of time, and they none.
double EngineCore::stepSeconds(uint32_t rows) const {
  if (freeDrafts) return 1;
  const StepCostModel &cost = scheduler->cost();
  return cost.seconds(cost.work(rows, rows * meanHistory));
}
double EngineCore::draftSeconds(uint32_t rows) const { return freeDrafts ? 0 : draftCost.seconds(draftCost.work(rows, rows * meanHistory)); }

/// Orders the candidates by what is expected of them and returns how many the program drafts for: those, with the length, that make the
/// most tokens a second of the runs and the step. What was looked up for one is an advantage of not asking for it.
uint32_t EngineCore::chooseCandidates() {
  auto begin = candidates.begin(), end = begin + candidateCount;
  meanHistory = 0;
  for (auto c = begin; c != end; ++c) {
    const Drafter &drafter = *c->request->choices[c->choice].drafter;
    float chance = 1;
    for (uint32_t place = 0; place < maxDraftTokens; ++place) {
      chance *= drafter.programChance(place);
      c->expected[place] = (place ? c->expected[place - 1] : 0) + (place < c->room ? chance : 0);
    }
    c->lookedUp = drafter.programDraft().expected();
    meanHistory += static_cast<double>(c->known) / candidateCount;
  }
  std::sort(begin, end, [](const Candidate &x, const Candidate &y) {
    float a = x.expected[1] - x.lookedUp, b = y.expected[1] - y.lookedUp;
    return a != b ? a > b : x.row < y.row;
  });
  auto most = std::min({candidateCount, drafts->maxSequences(), artifact->program().maxOutRows});
  if (draftAlways) return most;
  uint32_t decoding = std::max(1u, scheduler->decodingChoices()), best = 0, heads = drafts->heads();
  double gain[maxDraftTokens] = {}, bestRate = (freeDrafts ? 1 : leastGain) * decoding / stepSeconds(decoding);
  for (uint32_t n = 1; n <= most; ++n)
    for (uint32_t k = 1; k <= std::min(maxDraftTokens, drafts->most()); ++k) {
      const Candidate &c = candidates[n - 1];
      gain[k - 1] += static_cast<double>(c.expected[k - 1] - c.lookedUp);
      double seconds = stepSeconds(decoding + n * k) + (k + heads - 1) / heads * draftSeconds(n);
      double rate = (decoding + gain[k - 1]) / seconds;
      if (rate > bestRate) bestRate = rate, best = n;
    }
  // Of the others, those whose turn it is to be tried are.
  for (uint32_t i = best; i < candidateCount && best < most; ++i) {
    Candidate &c = candidates[i];
    uint32_t lag = drafts->lag(c.row, {c.request->id, c.choice}, c.known, c.earliest);
    double cost = draftSeconds(lag) + 2 * draftSeconds(1) + stepSeconds(decoding + 2) - stepSeconds(decoding);
    if (!c.request->choices[c.choice].drafter->programDeclined(candidateCount * cost / (tryShare * stepSeconds(decoding)))) continue;
    std::swap(c, candidates[best++]);
  }
  return best;
}

/// Runs the draft program for candidates, a token of each a run.
void EngineCore::draftByProgram() {
  uint32_t chosen = chooseCandidates();
  for (uint32_t i = chosen; i < candidateCount; ++i)
    offer(*candidates[i].request, candidates[i].choice, candidates[i].request->choices[candidates[i].choice].drafter->programDraft());
  if (!chosen) return;
  uint32_t decoding = std::max(1u, scheduler->decodingChoices()), rowsLeft = artifact->program().maxRows;
  // Catching up may hold the others up for the time of a step.
  if (draftsCost()) rowsLeft = std::min(rowsLeft, std::max(leastCatchUp + chosen, draftCost.rowsWithin(stepSeconds(decoding), rowsLeft)));
  Status status;
  draftPieces.clear();
  alive.clear();
  for (uint32_t i = 0; i < chosen; ++i) {
    Candidate &c = candidates[i];
    Drafter &drafter = *c.request->choices[c.choice].drafter;
    std::span<const int32_t> text = drafter.tokens();
    uint32_t computed = drafts->begin(c.row, {c.request->id, c.choice}, text, c.earliest);
    // A window group has blocks for the window and the rows of a step, drafts included.
    uint32_t rows = std::min({c.known - computed, rowsLeft, limit.stepTokens - std::min(limit.stepTokens - 1, maxDraftTokens)});
    bool caughtUp = computed + rows == c.known;
    c.added = 0;
    c.tree = c.request->draftTrees && c.grown && c.room > 1 && (!drafts->goesOn() || c.known + DraftTree::mostRows <= std::min(drafts->positions(), limit.contextTokens));
    uint32_t slots = c.tree ? std::max(c.room, DraftTree::mostRows) : c.room;
    if (c.request->request.acceptance == Acceptance::rejection) {
      c.room = std::min(c.room, std::min(lawCapacity, mostLaws) - lawsTaken);
      c.request->choices[c.choice].firstLaw = lawsTaken;
      lawsTaken += std::min(c.room, drafts->most());
    }
    if (!rows || !c.room || !drafts->reserve(c.row, caughtUp ? c.known + slots : computed + rows)) {
      offer(*c.request, c.choice, drafter.programDraft());
      continue;
    }
    if (status.ok()) status = drafts->shareWith(c.row, c.known, scheduler->kv());
    rowsLeft -= rows;
    draftPieces.push_back({c.row, computed, text.subspan(computed, rows), caughtUp ? 1u : 0u, c.request->choices[c.choice].row, &c.request->choices[c.choice].features, nullptr});
    if (caughtUp) {
      if (c.tree) c.grown->begin(text.back());
      alive.push_back(i);
      drafter.beginProgram();
    } else {
      offer(*c.request, c.choice, drafter.programDraft());
    }
  }
  double spent = 0;
  while (status.ok() && !draftPieces.empty()) {
    double before = clock();
    uint32_t made = 0;
    double work = 0;
    for (const DraftProgram::Piece &piece : draftPieces) {
      auto rows = static_cast<uint32_t>(piece.tokens.size());
      counters.speculation.programRows += rows;
      work += draftCost.work(rows, StepCostModel::historyOf(piece.first, rows));
    }
    status = drafts->run(draftPieces, scheduler->kv());
    counters.busySeconds += clock() - before;
    ++counters.speculation.programRuns;
    if (!status.ok()) break;
    // Heads say one token behind the other; what else drafts, one a run.
    uint32_t results = 0;
    for (uint32_t i : alive) {
      Candidate &c = candidates[i];
      c.result = results;
      results += c.results = c.tree ? c.grown->freshRows() : 1;
    }
    for (uint32_t head = 0; head < drafts->heads(); ++head) {
      sampleDrafts(head);
      std::erase_if(alive, [&](uint32_t i) { return !takeDraft(candidates[i]); });
    }
    // Who goes on; and whether all of them do.
    double gain = 0, next = 0;
    if (!drafts->goesOn()) alive.clear();
    for (uint32_t i = 0; i < chosen; ++i) {
      const Candidate &c = candidates[i];
      if (!c.added) continue;
      const Draft &draft = c.request->choices[c.choice].drafter->programDraft();
      auto [count, expected] = c.tree ? payingNodes(draft, decoding) : std::pair(draft.count, static_cast<double>(draft.expected()));
      made += count;
      gain += expected;
    }
    draftPieces.clear();
    uint32_t more = 0; // rows of the next run; each draft that goes on is expected to be a row of the step longer
    results = 0;
    std::erase_if(alive, [&](uint32_t i) {
      Candidate &c = candidates[i];
      const Drafter &drafter = *c.request->choices[c.choice].drafter;
      const Draft &draft = drafter.programDraft();
      const auto rows = static_cast<uint32_t>(c.tree ? c.grown->tokens().size() : 1), wanted = c.tree ? c.grown->freshRows() : 1;
      if (more + rows > artifact->program().maxRows || results + wanted > artifact->program().maxOutRows) return true; // its draft ends here
      more += rows;
      results += wanted;
      if (c.tree) {
        for (uint32_t r = 0; r < wanted; ++r) next += static_cast<double>(c.grown->chanceOf(r) * drafter.programChance(c.grown->depthOf(r)));
        draftPieces.push_back({c.row, c.known - 1, c.grown->tokens(), wanted, {}, &c.request->choices[c.choice].features, c.grown.get()});
        return false;
      }
      next += static_cast<double>(draft.chance[draft.count - 1] * drafter.programChance(draft.count));
      draftPieces.push_back({c.row, c.known + draft.count - 1, std::span(draft.tokens).subspan(draft.count - 1, 1), 1, drafts->overFeatures() ? drafts->own(c.result) : std::span<const float>(), nullptr, nullptr});
      return false;
    });
    double seconds = clock() - before;
    if (measureCost) draftCost.observe(work, seconds);
    if (!freeDrafts) spent += seconds;
    double now = (decoding + gain) / (stepSeconds(decoding + made) + spent);
    double then = (decoding + gain + next) / (stepSeconds(decoding + made + static_cast<uint32_t>(alive.size())) + spent + draftSeconds(std::max(1u, more)));
    if (!draftAlways && !(then > now)) break;
  }
  for (uint32_t i = 0; i < chosen; ++i) {
    Candidate &c = candidates[i];
    Choice &choice = c.request->choices[c.choice];
    const Draft &draft = choice.drafter->programDraft();
    if (c.request->keepsHistory && !c.tree)
      for (uint32_t d = c.added; d-- > 0;)
        choice.history.removeOutput(draft.tokens[d]);
    if (!status.ok()) {
      drafts->forget({c.request->id, c.choice});
      continue;
    }
    if (!c.added) {
      offer(*c.request, c.choice, choice.drafter->endProgram());
      continue;
    }
    if (c.request->request.acceptance == Acceptance::rejection) choice.lawCount = draft.count;
    drafts->guessed(c.row, std::span(draft.tokens).first(draft.count));
    offer(*c.request, c.choice, draft);
  }
  drafts->endRound();
}

/// Logits of a reduced vocabulary as those of the model's, where the tokens that it lacks are impossible; others as they are.
const float *EngineCore::spreadLogits(const float *logits, unsigned thread) {
  const std::vector<uint32_t> &tokens = artifact->program().draftTokens;
  if (tokens.empty()) return logits;
  float *all = spread[thread].data();
  for (size_t i = 0; i < tokens.size(); ++i)
    all[tokens[i]] = logits[i];
  return all;
}

/// The draft's choice for each sequence that is alive, with the parameters, counts and noise of the model's own.
void EngineCore::sampleDrafts(uint32_t head) {
  auto vocabulary = artifact->program().vocabulary;
  for (uint32_t i : alive)
    if (!candidates[i].tree) candidates[i].logits = drafts->logits(candidates[i].result, head).data();
  auto run = [this, vocabulary, head](uint32_t i, unsigned thread) {
    Candidate &c = candidates[i];
    Choice &choice = c.request->choices[c.choice];
    if (c.tree) return growTree(c, head, thread);
    Sampler &sampler = *samplers[thread];
    c.logits = spreadLogits(c.logits, thread);
    c.status = sampler.sample({c.logits, vocabulary}, c.request->draftSampling, choice.history, c.known + c.added, {}, c.choice, c.sample);
    if (c.request->request.acceptance != Acceptance::rejection || !c.status.ok()) return;
    std::vector<double> &law = sampler.lawBuffer();
    c.status = sampler.law({c.logits, vocabulary}, c.request->draftSampling, choice.history, c.known + c.added, law);
    if (c.status.ok()) std::copy(law.begin(), law.end(), lawOf(choice, c.added).begin());
  };
  auto threads = static_cast<unsigned>(std::min(samplers.size(), alive.size()));
  if (threads < 2) {
    for (uint32_t i : alive)
      run(i, 0);
    return;
  }
  struct Context {
    EngineCore *core;
    decltype(run) *each;
  } context{this, &run};
  team->run(
      threads, false,
      [](void *self, unsigned thread, unsigned n, FlagBarrier &) {
        auto &x = *static_cast<Context *>(self);
        for (size_t j = thread; j < x.core->alive.size(); j += n)
          (*x.each)(x.core->alive[j], thread);
      },
      &context);
}

/// Takes what was sampled for |c| into its draft, or what its tree has now. False: the draft ends.
bool EngineCore::takeDraft(Candidate &c) {
  Choice &choice = c.request->choices[c.choice];
  if (c.tree) {
    c.grown->best(c.room, treeNodes);
    c.added = choice.drafter->putProgramTree(treeNodes, draftAlways);
    return c.grown->advance();
  }
  const SamplingParams &p = c.request->request.sampling;
  int32_t token = c.sample.token;
  // Rejection sampling keeps the law only if it does not depend on what was drawn whether that is a draft.
  bool blind = c.request->request.acceptance == Acceptance::rejection;
  // Nothing follows an end, and the model finds it itself.
  if (!c.status.ok() || (!blind && std::binary_search(p.stopTokenIds.begin(), p.stopTokenIds.end(), token))) return false;
  float share = draftAlways || blind ? 1.0f : std::exp(c.sample.logprob);
  if (!choice.drafter->putProgram(token, share, draftAlways)) return false;
  if (c.request->keepsHistory) choice.history.addOutput(token);
  return ++c.added < c.room;
}

} // namespace lathe::runtime
