//===- Plan.cpp - one step's decisions ------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Running sequences first, then prompts that are under way, then admissions. Every piece is reserved as it is decided,
// so what stands in the plan can run.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/SchedulerImpl.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe::runtime {

static constexpr double never = std::numeric_limits<double>::infinity();
// Prefixes shorter than this are not worth waiting for (the threshold of SGLang's in-batch rule).
static constexpr uint32_t awaitTokens = 32;
// The cost model is a mean, the promise is about the slowest hundredth: fewer than one in a hundred shall be late, since what is
// counted of the past is few. But the expected step is at least the target over (1 + mostRoom), or prompts would hardly get on,
// and at most over (1 + leastRoom): however punctual a machine was, the expectation of a longer step may be wrong.
static constexpr double lateShare = 0.007, mostRoom = 0.5, leastRoom = 0.1;
// Nor may that room take more than half of a prompt's pace. Where the first row of a prompt alone takes what is left (another tile
// of the kernels), smaller chunks do not keep the bound, and a prompt of a row a step takes a minute.
static constexpr double leastPace = 0.5;
// Prompts that may lengthen a step at the same time, each by the time of a decode-only one.
static constexpr double maxPacedPrompts = 4;
// And so much less together: a step that is expected at exactly the bound passes it every second time.
static constexpr double paceMargin = 0.15;
// Prefix comparisons of one pass; what was compared once is remembered.
static constexpr uint32_t maxFreshChecks = 32;

// Blocks that are promised.

/// Blocks of |group| that |forks| forks and their origin may take, beside the origin's own, until each has emitted a
/// page: a copy of the partly filled block each, and for the forks those of a page.
uint32_t SchedulerImpl::forkBlocks(uint32_t forks, uint32_t group) const {
  return forks ? forks * (1 + (page + cache.page(group) - 1) / cache.page(group)) + 1 : 0;
}

uint32_t SchedulerImpl::blocksFor(uint32_t tokens, uint32_t group) const {
  uint32_t size = cache.page(group);
  return std::min((tokens + size - 1) / size, windowCap[group]);
}

/// Blocks of |group| that |row| may still take and nobody else may.
uint32_t SchedulerImpl::outstandingOf(const Row &row, uint32_t index, uint32_t group) const {
  if (row.reserved) return 0; // counted by the row it forks from
  uint32_t open = forkBlocks(row.forks, group);
  if (row.computed >= row.promise) return open;
  uint32_t lacking = cache.lacking(index, group, row.computed, row.promise);
  if (windowCap[group] != none) {
    auto [first, end] = cache.held(index, group);
    lacking = std::min(lacking, windowCap[group] - std::min(windowCap[group], end - first));
  }
  return open + lacking;
}

void SchedulerImpl::countOutstanding() {
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    outstanding[g] = 0;
    for (uint32_t index : active)
      outstanding[g] += outstandingOf(rows[index], index, g);
  }
}

uint32_t SchedulerImpl::spare(uint32_t group) const {
  uint64_t available = cache.pool(group).available();
  return available > outstanding[group] ? static_cast<uint32_t>(available - outstanding[group]) : 0;
}

bool SchedulerImpl::extendRow(uint32_t index, uint32_t tokens) {
  Row &row = rows[index];
  for (uint32_t g = 0; g < cache.groups(); ++g)
    outstanding[g] -= outstandingOf(row, index, g);
  bool done = cache.extend(index, row.computed, row.computed + tokens);
  for (uint32_t g = 0; g < cache.groups(); ++g)
    outstanding[g] += outstandingOf(row, index, g);
  return done;
}

// Chunks.

/// The longest step that running sequences, whose own rows are |work|, should see while prompts are computed.
double SchedulerImpl::contentionTarget(uint32_t sequences, double work) const {
  double target = never;
  if (options.policy == SchedulingPolicy::deadline) target = tightestTpot();
  if (target == never) target = options.itlTarget;
  if (!(target > 0)) {
    // Each prompt may add the time of one decode-only step, so that one alone at most doubles it and several do not
    // queue up behind the pace of a few: with a fixed pace, prompts that come as fast as answers end would keep most
    // sequences waiting for their first token. A few early sequences must not hold up the many of a burst either.
    sequences = std::max(1u, sequences);
    auto prompts = static_cast<double>(active.size() - std::min<size_t>(active.size(), sequences)) +
                   static_cast<double>(std::min<size_t>(waitingItems, freeRows.size()));
    double pace = std::max({1.0, std::min(prompts, maxPacedPrompts), prompts / sequences});
    // And five for the prompts of a tenant beside whom another floods: most of what waits longer is the flood's.
    if (promptBesideFlood()) pace = std::max(pace, 5.0);
    target = options.cost.seconds(work) * (1 + pace - paceMargin);
  }
  double longest = target / (1 + leastRoom);
  double learned = std::clamp(lateness.longestWithin(target, lateShare), target / (1 + mostRoom), longest);
  return std::min(longest, std::max(learned, options.cost.seconds(work + rowsAtLeastPace(longest, work))));
}

/// Work of prompts, beside |work| of running sequences, with which they get on at leastPace of the pace of steps of |longest|
/// seconds.
double SchedulerImpl::rowsAtLeastPace(double longest, double work) const {
  double most = options.cost.rowsWithin(longest, options.stepTokens) - work;
  if (!(most > 0)) return 0;
  // leastPace of the rows is enough, and a little less is too, since shorter steps come more often: so on, downwards.
  double rows = leastPace * most, seconds = options.cost.seconds(work + most);
  for (int i = 0; i < 4; ++i)
    rows = leastPace * most * options.cost.seconds(work + rows) / seconds;
  return std::ceil(work + rows) - work;
}

double SchedulerImpl::tightestTpot() const {
  // One that a sequence alone would miss is nobody's bound: it cannot be kept by holding the others back.
  double target = never, least = options.cost.seconds(1);
  for (uint32_t index : active)
    if (double tpot = requests[rows[index].request].spec.tpotTarget; tpot >= least) target = std::min(target, tpot);
  return target;
}

void SchedulerImpl::setPrefillLimit() {
  prefillLeft = never;
  promptPlanned = false;
  if (!(contended = decoders > 0)) return;
  double decodes = 0;
  for (const StepPiece &piece : current.pieces)
    decodes += workOf(piece);
  prefillLeft = options.cost.rowsWithin(contentionTarget(decoders, decodes), StepCostModel::maxRows) - decodes;
}

/// Tokens of a prompt, |first| of which are computed and |rest| are not, that the step has room for. If nothing is
/// planned for any prompt yet it is one at least: whatever the target, prompts get on.
uint32_t SchedulerImpl::chunkOf(uint32_t rest, uint32_t first) const {
  uint32_t most = std::min(rest, budget);
  if (!contended) return most;
  uint32_t chunk = options.cost.chunkWithin(prefillLeft, first, most);
  return chunk || promptPlanned ? chunk : std::min(most, 1u);
}

double SchedulerImpl::prefillSecondsPerRow() const {
  uint32_t running = 0;
  for (uint32_t index : active)
    running += rows[index].known - rows[index].computed == 1;
  uint32_t chunk = options.stepTokens;
  if (running) {
    uint32_t fit = options.cost.rowsWithin(contentionTarget(running, running), options.stepTokens);
    chunk = fit > running ? fit - running : 1;
  }
  return options.cost.seconds(running + chunk) / chunk;
}

// Pieces.

void SchedulerImpl::addPiece(uint32_t index, uint32_t tokens, Reason reason) {
  Row &row = rows[index];
  RequestState &r = requests[row.request];
  StepPiece piece;
  piece.request = r.spec.id;
  piece.choice = row.choice;
  piece.row = index;
  piece.first = row.computed;
  piece.tokens = tokens;
  piece.resultFrom = tokens;
  piece.ids = tokensOf(index) + row.computed;
  piece.reason = reason;
  uint32_t prompt = promptLength(row), end = row.computed + tokens;
  bool last = end == row.known;
  if (last && r.spec.maxTokens) {
    piece.samples = r.forked ? 1 : r.spec.choices;
    piece.resultFrom = tokens - 1;
  }
  if (!r.forked) {
    piece.promptDone = end == prompt;
    if (r.spec.promptRows == ScheduledRequest::PromptRows::all)
      piece.resultFrom = std::min(piece.resultFrom, std::max(r.delivered, row.computed) - row.computed);
    else if (r.spec.promptRows == ScheduledRequest::PromptRows::last && piece.promptDone)
      piece.resultFrom = tokens - 1;
  }
  row.piece = static_cast<uint32_t>(current.pieces.size());
  current.pieces.push_back(piece);
  current.rows += tokens;
  budget -= tokens;
  ++counters.reasons[static_cast<size_t>(reason)];
}

void SchedulerImpl::planDecodes() {
  uint32_t waiting = 0; // prompts under way
  for (uint32_t index : active) {
    const Row &row = rows[index];
    if (row.known - row.computed == 1)
      ++decoders;
    else
      ++waiting;
  }
  uint32_t limit = waiting && budget > 1 ? budget - 1 : budget;
  auto count = static_cast<uint32_t>(active.size());
  // More sequences than rows: they take turns.
  uint32_t start = decoders > limit && count ? rotation % count : 0, planned = 0;
  for (uint32_t i = 0; i < count; ++i)
    prefilling.push_back(active[(start + i) % count]); // preemption changes |active|
  for (uint32_t index : prefilling) {
    if (planned == limit) break;
    Row &row = rows[index];
    if (row.request == none || row.known - row.computed != 1 || row.reserved) continue;
    bool gone = false;
    while (!gone) {
      bool fits = true;
      for (uint32_t g = 0; g < cache.groups(); ++g)
        fits &= row.computed < row.promise || cache.lacking(index, g, row.computed, row.computed + 1) <= spare(g);
      if (fits && extendRow(index, 1)) break;
      uint32_t other = victim(nullptr);
      if (other == none) { // only promised sequences are left: it waits for the end of one
        gone = true;
        break;
      }
      gone = other == index;
      preempt(other, Reason::preemptBlocks);
    }
    if (gone) continue;
    addPiece(index, 1, Reason::decode);
    ++planned;
  }
  if (start || decoders > limit) rotation = (start + planned) % std::max<uint32_t>(1, count);
  prefilling.clear();
}

void SchedulerImpl::planPrefills() {
  for (uint32_t index : active)
    if (rows[index].known - rows[index].computed > 1) prefilling.push_back(index);
  if (options.policy != SchedulingPolicy::fcfs && !prefilling.empty()) {
    std::sort(prefilling.begin(), prefilling.end(), [&](uint32_t a, uint32_t b) {
      return rows[a].tag != rows[b].tag ? rows[a].tag < rows[b].tag : rows[a].admitted < rows[b].admitted;
    });
    // What waits and is more urgent than every prompt under way goes first.
    admitWaiting(rows[prefilling.front()].tag);
  }
  for (uint32_t index : prefilling) {
    Row &row = rows[index];
    if (row.request == none || row.piece != none) continue; // preempted just now
    uint32_t rest = row.known - row.computed, tokens = chunkOf(rest, row.computed);
    const RequestState &r = requests[row.request];
    if (options.maxResults && r.spec.promptRows == ScheduledRequest::PromptRows::all)
      tokens = std::min(tokens, std::max(1u, options.maxResults - std::min(options.maxResults, current.results)));
    if (!tokens) break;
    if (!extendRow(index, tokens)) continue;
    current.results += r.spec.promptRows == ScheduledRequest::PromptRows::all ? tokens : 0;
    addPiece(index, tokens,
             tokens == rest ? Reason::prefill
             : contended    ? Reason::prefillContended
                            : Reason::prefillChunk);
    prefillLeft -= workOf(current.pieces.back());
    promptPlanned = true;
  }
  prefilling.clear();
}

// Preemption.

bool SchedulerImpl::eligible(const Row &row) const {
  if (row.request == none || row.reserved || row.restored) return false;
  const Choice &choice = requests[row.request].choices[row.choice];
  // Between two preemptions a sequence emits at least a block of tokens.
  return choice.preemptions < maxPreemptions && (choice.preemptions == 0 || row.sinceAdmission >= page);
}

/// Whether |row| may be preempted for |waiting|, which has a better priority also after what both have aged: what was admitted
/// because it had waited long is not thrown out by what came since.
bool SchedulerImpl::makesWayFor(const RequestState &waiting, const Row &row) const {
  if (!eligible(row)) return false;
  const RequestState &r = requests[row.request];
  return r.spec.priority > waiting.spec.priority && r.key > waiting.key;
}

/// Least computed first, the newest of equals; under the priority policy of those only whose priority, aged, is the worst or within half
/// a level of it. |waiting|: only rows that make way for it.
uint32_t SchedulerImpl::victim(const RequestState *waiting) const {
  bool byPriority = options.policy == SchedulingPolicy::priority;
  auto mayGo = [&](const Row &row) { return waiting ? makesWayFor(*waiting, row) : eligible(row); };
  double worst = -never;
  for (uint32_t index : active)
    if (byPriority && mayGo(rows[index])) worst = std::max(worst, requests[rows[index].request].key);
  uint32_t best = none;
  for (uint32_t index : active) {
    const Row &row = rows[index];
    if (!mayGo(row) || (byPriority && requests[row.request].key < worst - 0.5)) continue;
    if (best != none && (row.computed > rows[best].computed ||
                         (row.computed == rows[best].computed && row.admitted < rows[best].admitted)))
      continue;
    best = index;
  }
  return best;
}

/// What |tokens| computed again would add to later steps. They ride along with running sequences in chunks; each costs more than
/// the one before it, for it attends to more: the mean of the first and the last stands for all.
double SchedulerImpl::recomputeSeconds(uint32_t tokens) const {
  uint32_t others = std::max(1u, decoders), chunk = options.stepTokens;
  uint32_t fit = options.cost.rowsWithin(contentionTarget(others, others), chunk);
  if (decoders) chunk = fit > others ? fit - others : 1;
  chunk = std::min(chunk, tokens);
  auto added = [&](uint32_t first) {
    return options.cost.seconds(others + options.cost.work(chunk, StepCostModel::historyOf(first, chunk))) - options.cost.seconds(others);
  };
  return (added(0) + added(tokens - chunk)) / 2 * tokens / chunk;
}

void SchedulerImpl::preempt(uint32_t index, Reason reason) {
  Row &row = rows[index];
  uint32_t request = row.request, choiceIndex = row.choice;
  RequestState &r = requests[request];
  Choice &choice = r.choices[choiceIndex];
  if (row.piece != none) { // the plan has it already
    StepPiece &piece = current.pieces[row.piece];
    current.rows -= piece.tokens;
    budget += piece.tokens;
    piece.tokens = 0;
    row.piece = none;
  }
  cache.rollback(index, row.computed);
  ++choice.preemptions;
  choice.highWater = std::max(choice.highWater, row.computed);
  choice.generated = row.generated;
  choice.kept.assign(tokensOf(index), tokensOf(index) + row.known);
  // The cost of either way: rows that ride along in later steps, or two copies of its blocks.
  bool save = options.preemption != PreemptionMode::recompute && row.computed > 0 && store.budget() > 0;
  if (save && options.preemption == PreemptionMode::automatic) {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < cache.groups(); ++g) {
      auto [first, end] = cache.held(index, g);
      bytes += store.blockBytes(g) * (end - first);
    }
    save = 2 * static_cast<double>(bytes) / options.saveBytesPerSecond < recomputeSeconds(row.computed);
  }
  choice.hasSaved = save && cache.save(index, row.computed, store, choice.saved, current.saves);
  if (!choice.hasSaved) cache.release(index);
  ++(choice.hasSaved ? counters.preemptedSave : counters.preemptedRecompute);
  ++counters.reasons[static_cast<size_t>(reason)];
  current.preempted.push_back({r.spec.id, choiceIndex, index, choice.hasSaved, row.computed, reason});
  freeReserved(r);
  freeRow(index);
  enqueue(request, choiceIndex, false);
  if (reason == Reason::preemptBlocks) {
    preemptedNow = true;
    headroomRatio = std::min(2.0, headroomRatio + 0.25);
  }
  countOutstanding();
}

// Admission.

/// Tokens that the running sequences are expected to add beyond what is promised to them.
double SchedulerImpl::expectedGrowth() const {
  double sum = 0;
  for (uint32_t index : active) {
    const Row &row = rows[index];
    double most = std::min<double>(requests[row.request].spec.maxTokens, options.contextTokens);
    double rest = std::max(meanOutput - row.generated, meanOutput / 4);
    rest = std::min(rest, most - row.generated) - (row.promise > row.known ? row.promise - row.known : 0);
    sum += std::max(0.0, rest) * (1 + row.forks);
  }
  return sum;
}

/// Free blocks of |group| that a request takes with |promise| tokens, |hit| of them in the prefix cache.
uint32_t SchedulerImpl::blocksNeeded(uint32_t g, uint32_t hit, uint32_t promise, uint32_t forks) const {
  uint32_t held = std::min(hit / cache.page(g),
                           cache.window(g) ? 0u : hit); // of a window group count all: its shared blocks go soon
  uint32_t need = blocksFor(promise, g);
  return need - std::min(need, held) + (active.empty() ? 0 : forkBlocks(forks, g));
}

Reason SchedulerImpl::roomFor(uint32_t rowsNeeded, uint32_t hit, uint32_t promise, uint32_t forks) const {
  if (freeRows.size() < rowsNeeded) return Reason::waitRows;
  bool alone = active.empty();
  double growth = alone ? 0 : headroomRatio * expectedGrowth();
  Reason why = Reason::none;
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    uint32_t need = blocksNeeded(g, hit, promise, forks);
    if (need > spare(g)) return Reason::waitBlocks;
    auto headroom = static_cast<uint64_t>(windowCap[g] == none ? std::ceil(growth / cache.page(g)) : 0);
    if (need + headroom > spare(g)) why = Reason::waitHeadroom;
  }
  return why;
}

/// Whether the sequence that computes a prefix of |r| is still at it. Cheap: asked of each waiting request in a pass.
bool SchedulerImpl::stillAwaits(RequestState &r) {
  if (r.awaitRow == none) return false;
  const Row &row = rows[r.awaitRow];
  if (row.request != none && row.admitted == r.awaitAdmitted && row.computed < r.awaitTokens &&
      r.passedOver < options.maxPassedOver) {
    // It waits as long as the other gets on; passes without progress are counted.
    if (row.computed == r.awaitSeen && row.piece == none) ++r.passedOver;
    r.awaitSeen = row.computed;
    return true;
  }
  r.awaitRow = none;
  return false;
}

/// Whether a running sequence computes a prefix of |r| that is longer than its |hit|.
bool SchedulerImpl::awaitsPrefix(RequestState &r, uint32_t hit) {
  if (r.passedOver >= options.maxPassedOver || freshChecks >= maxFreshChecks) return false;
  ++freshChecks;
  auto prompt = static_cast<uint32_t>(r.spec.prompt.size());
  for (uint32_t index : active) {
    const Row &row = rows[index];
    const RequestState &other = requests[row.request];
    uint32_t most = std::min(prompt - 1, promptLength(row)) / page * page;
    if (row.computed >= most || other.space != r.space || most <= hit + awaitTokens) continue;
    const int32_t *ids = tokensOf(index), *own = r.spec.prompt.data();
    if (ids[0] != own[0]) continue;
    auto common = static_cast<uint32_t>(std::mismatch(own, own + most, ids).first - own) / page * page;
    if (row.computed >= common || common <= hit + awaitTokens) continue;
    r.awaitRow = index;
    r.awaitAdmitted = row.admitted;
    r.awaitTokens = common;
    r.awaitSeen = row.computed;
    ++r.passedOver; // this pass; then those without progress
    return true;
  }
  return false;
}

bool SchedulerImpl::hopeless(const RequestState &r, uint32_t prompt) const {
  if (options.policy != SchedulingPolicy::deadline || r.admitted || !(r.spec.ttftTarget > 0)) return false;
  return clock + prompt * prefillSecondsPerRow() > r.arrival + r.spec.ttftTarget;
}

/// Whether |r| might find rows and blocks if all made way that can. Blocks that they share count for each of them, so it may still be too
/// little; but nobody is stopped where it is plain that it would be in vain.
bool SchedulerImpl::canMakeRoom(const RequestState &r, uint32_t rowsNeeded, uint32_t hit, uint32_t promise, uint32_t forks) const {
  size_t found = freeRows.size();
  for (uint32_t index : active)
    if (const RequestState &other = requests[rows[index].request]; makesWayFor(r, rows[index])) found += other.forked ? 1 : other.spec.choices;
  if (found < rowsNeeded) return false;
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    uint64_t blocks = spare(g);
    for (uint32_t index : active) {
      if (!makesWayFor(r, rows[index])) continue;
      auto [first, end] = cache.held(index, g);
      blocks += end - first + outstandingOf(rows[index], index, g);
    }
    if (blocks < blocksNeeded(g, hit, promise, forks)) return false;
  }
  return true;
}

/// Frees rows or blocks for a request of a better priority.
bool SchedulerImpl::makeRoom(const RequestState &r, uint32_t rowsNeeded, uint32_t hit, uint32_t promise, uint32_t forks, Reason why) {
  if (options.policy != SchedulingPolicy::priority || (why != Reason::waitRows && why != Reason::waitBlocks))
    return false;
  uint32_t other = victim(&r);
  if (other == none || !canMakeRoom(r, rowsNeeded, hit, promise, forks)) return false;
  preempt(other, Reason::preemptPriority);
  return true;
}

/// Deadline policy: one decoding sequence more must miss neither the tightest time per token inside nor its own. Nobody is held back by
/// others' targets for longer than until its first token is due, and who asks for too much holds nobody back.
bool SchedulerImpl::waitsForTpot(const RequestState &r, const Choice &choice, Outcome &outcome) {
  if (options.policy != SchedulingPolicy::deadline || !decoders) return false;
  double step = options.cost.seconds(static_cast<double>(active.size()) + 2) / 0.9;
  bool due = clock > r.key;
  outcome = Outcome::stop;
  if (step > tightestTpot() && !due) return true;
  if (!(r.spec.tpotTarget > 0) || step <= r.spec.tpotTarget || choice.generated) return false;
  outcome = due ? Outcome::removed : Outcome::skipped;
  return true;
}

SchedulerImpl::Outcome SchedulerImpl::admit(const Item &item) {
  // The slots of requests do not move while a plan is made.
  RequestState &r = requests[item.request];
  Choice &choice = r.choices[item.choice];
  bool whole = !r.forked, again = choice.preemptions > 0;
  uint32_t rowsNeeded = whole ? r.spec.choices : 1, forks = whole ? r.spec.choices - 1 : 0;
  auto prompt = static_cast<uint32_t>(r.spec.prompt.size());
  const std::vector<int32_t> &tokens = again ? choice.kept : r.spec.prompt;
  auto known = static_cast<uint32_t>(tokens.size());
  if (hopeless(r, prompt)) {
    ++counters.rejectedDeadline;
    endRequest(item.request, EndReason::rejected, Reason::rejectTtft, current.ended);
    return Outcome::removed;
  }
  if (!chunkOf(1, 0)) return headWait = Reason::waitBudget, Outcome::stop;
  if (stillAwaits(r)) return headWait = Reason::waitPrefix, Outcome::skipped;
  if (Outcome outcome; waitsForTpot(r, choice, outcome)) {
    if (outcome != Outcome::removed) return headWait = Reason::waitTpot, outcome;
    ++counters.rejectedDeadline;
    endRequest(item.request, EndReason::rejected, Reason::rejectTpot, current.ended);
    return outcome;
  }
  if (lastRowsKept(r, rowsNeeded)) return headWait = Reason::waitRows, Outcome::stop;
  bool guarded = choice.preemptions >= maxPreemptions;
  uint32_t most = std::min(options.contextTokens, prompt + std::min(r.spec.maxTokens, options.contextTokens));
  uint32_t promise = guarded ? most : std::min(most, known + page);
  promise = std::max(promise, std::min(known, options.contextTokens));
  bool restore = choice.hasSaved;
  // Results of prompt rows that were not handed out yet have to be computed.
  bool allRows = r.spec.promptRows == ScheduledRequest::PromptRows::all && r.delivered < prompt;
  uint32_t limit = allRows ? std::min(r.delivered, known - 1) : known - 1, hit = 0;
  if (!restore && cache.prefixCache()) {
    hit = cache.match(r.space, tokens, limit);
    if (!again && !allRows && awaitsPrefix(r, hit)) return headWait = Reason::waitPrefix, Outcome::skipped;
  }
  while (true) {
    Reason why = roomFor(rowsNeeded, hit, promise, forks);
    if (why == Reason::none) break;
    if (makeRoom(r, rowsNeeded, hit, promise, forks, why)) continue;
    return headWait = why, Outcome::stop;
  }
  bool alone = active.empty();
  // From here on the row is the sequence's; on failure everything goes back.
  uint32_t index = takeRow(item.request, item.choice, false);
  active.push_back(index);
  Row &row = rows[index];
  row.known = known;
  row.generated = choice.generated;
  row.promise = promise;
  row.forks = alone ? 0 : forks;
  row.admitted = ++admissions;
  // Fair: the counter before the prompt is charged, a start tag; else the tenant's next would be behind the flood's
  // again.
  row.tag = options.policy == SchedulingPolicy::fair ? static_cast<double>(tenants[r.tenant].counter) : r.key;
  std::copy(tokens.begin(), tokens.end(), tokensOf(index));
  bool fits = true;
  if (restore) {
    fits = cache.restore(index, choice.saved, current.restores);
    row.computed = fits ? choice.saved.length : 0;
  } else {
    row.computed = cache.adopt(index, r.space, tokens, limit);
  }
  countOutstanding();
  for (uint32_t g = 0; g < cache.groups() && fits && !alone; ++g)
    fits = outstanding[g] <= cache.pool(g).available(); // blocks of the hit may have been counted as free
  uint32_t rest = known - row.computed, chunk = std::max(1u, chunkOf(rest, row.computed));
  if (allRows && options.maxResults)
    chunk = std::min(chunk, std::max(1u, options.maxResults - std::min(options.maxResults, current.results)));
  if (fits) fits = extendRow(index, chunk);
  if (!fits) {
    cache.release(index);
    freeRow(index);
    choice.state = Choice::State::waiting;
    --admissions;
    countOutstanding();
    return headWait = Reason::waitBlocks, Outcome::stop;
  }
  dequeue(item.request, item.choice);
  if (restore) row.restored = true;
  for (uint32_t c = 1; c <= forks; ++c)
    takeRow(item.request, c, true);
  bool first = !r.admitted;
  if (first) {
    --waitingRequests;
    waitingTokens -= prompt;
    counters.prefixQueried += prompt;
    counters.prefixHit += row.computed;
    if (options.policy == SchedulingPolicy::fair) tenants[r.tenant].counter += prompt;
    r.admitted = true;
  }
  choice.kept = {};
  Reason reason = guarded                          ? Reason::admitGuarded
                  : restore                        ? Reason::admitRestored
                  : again                          ? Reason::admitAgain
                  : headWait == Reason::waitPrefix || headWait == Reason::waitTpot ? Reason::admitNext
                  : row.computed                   ? Reason::admitHit
                                                   : Reason::admitFirst;
  ++counters.reasons[static_cast<size_t>(reason)];
  current.admitted.push_back({r.spec.id, item.choice, index, row.computed, first, reason});
  if (allRows) current.results += chunk;
  addPiece(index, chunk,
           rest == 1 && again ? Reason::decode
           : chunk == rest    ? Reason::prefill
           : contended        ? Reason::prefillContended
                              : Reason::prefillChunk);
  if (rest > 1) {
    prefillLeft -= workOf(current.pieces.back());
    promptPlanned = true;
  }
  headroomRatio = std::max(0.25, headroomRatio * 0.98);
  return Outcome::admitted;
}

/// Fair policy: tenants that are inside or were within a minute.
void SchedulerImpl::countTenants() {
  auto active = [&](const Tenant &t) { return t.inside || (t.lastInside > 0 && t.lastInside + 60 > clock); };
  activeTenants = 0;
  for (const Tenant &t : tenants)
    activeTenants += active(t);
  tenantBelowShare = flooded = false;
  for (const Tenant &t : tenants) {
    tenantBelowShare |= active(t) && t.rows < rowShare();
    flooded |= floods(t);
  }
}

/// More of its requests wait than could run if it were alone.
bool SchedulerImpl::floods(const Tenant &t) const { return t.queue.size() > options.maxSequences; }

uint32_t SchedulerImpl::rowShare() const { return std::max(1u, options.maxSequences / std::max(1u, activeTenants)); }

/// Fair policy: while one tenant floods, a prompt of another is under way or waits.
bool SchedulerImpl::promptBesideFlood() const {
  if (options.policy != SchedulingPolicy::fair || !flooded) return false;
  for (const Tenant &t : tenants)
    if (!t.queue.empty() && !floods(t)) return true;
  for (uint32_t index : active)
    if (rows[index].known - rows[index].computed > 1 && !floods(tenants[requests[rows[index].request].tenant]))
      return true;
  return false;
}

/// Fair policy: the last sixteenth of the rows is kept for tenants that have less than their share of them, so that a
/// flood does not make the others wait for the end of its answers.
bool SchedulerImpl::lastRowsKept(const RequestState &r, uint32_t rowsNeeded) const {
  if (options.policy != SchedulingPolicy::fair || !tenantBelowShare) return false;
  uint32_t kept = std::max(1u, options.maxSequences / 16);
  return tenants[r.tenant].rows + rowsNeeded > rowShare() && freeRows.size() < rowsNeeded + kept &&
         freeRows.size() < options.maxSequences; // alone nothing is kept from anybody
}

/// One pass over the waiting requests in the policy's order, of a key (fair: a tenant's counter) below |limit|.
void SchedulerImpl::admitWaiting(double limit) {
  headWait = Reason::none;
  if (!waitingItems) return;
  if (preemptedNow) {
    headWait = Reason::waitPreempted;
    return;
  }
  while (true) {
    uint32_t tenant = 0;
    if (options.policy == SchedulingPolicy::fair) { // the tenant that has been served least
      tenant = none;
      for (uint32_t t = 0; t < tenants.size(); ++t)
        if (!tenants[t].queue.empty() && (tenant == none || tenants[t].counter < tenants[tenant].counter)) tenant = t;
      if (tenant == none || !(static_cast<double>(tenants[tenant].counter) < limit)) return;
    }
    bool took = false;
    for (size_t i = 0; i < tenants[tenant].queue.size();) {
      Item item = tenants[tenant].queue[i];
      if (options.policy != SchedulingPolicy::fair && !(item.key < limit)) return;
      size_t preempted = current.preempted.size();
      Outcome outcome = admit(item);
      if (outcome == Outcome::stop) return;
      if (outcome == Outcome::skipped) {
        ++i;
        continue;
      }
      took = true; // it has left the queue
      if (options.policy == SchedulingPolicy::fair || current.preempted.size() > preempted) break; // the order changed
    }
    // All that this tenant has waits for prefixes. Passing to the next one would let the served-least fall behind.
    if (!took) return;
  }
}

// The plan.

void SchedulerImpl::expire() {
  if (clock < nextDeadline) return;
  nextDeadline = never;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    RequestState &r = requests[i];
    if (!r.left || !(r.spec.deadline > 0)) continue;
    if (r.arrival + r.spec.deadline <= clock)
      endRequest(i, EndReason::timeout, Reason::endTimeout, current.ended);
    else
      nextDeadline = std::min(nextDeadline, r.arrival + r.spec.deadline);
  }
}

const StepPlan &SchedulerImpl::plan(double now) {
  if (inFlight) return current;
  now = advance(now);
  current.rows = current.results = 0;
  current.ended.clear();
  current.ended.swap(ended);
  for (auto *list : {&current.saves, &current.restores})
    list->clear();
  current.preempted.clear();
  current.admitted.clear();
  current.copies.clear();
  current.pieces.clear();
  preemptedNow = false;
  budget = options.stepTokens;
  decoders = freshChecks = 0;
  headWait = Reason::none;
  expire();
  if (options.policy == SchedulingPolicy::fair) countTenants();
  countOutstanding();
  planDecodes();
  setPrefillLimit();
  planPrefills();
  admitWaiting(never);
  if (!current.rows && !active.empty()) {
    // Sequences hold what each other needs (a window group whose shared blocks could not be counted): one makes way.
    uint32_t least = active.back();
    for (uint32_t index : active)
      if (rows[index].computed < rows[least].computed) least = index;
    if (active.size() > 1) preempt(least, Reason::preemptBlocks);
    budget = options.stepTokens;
    decoders = 0;
    current.pieces.clear();
    planDecodes();
    setPrefillLimit();
    planPrefills();
  }
  if (!current.rows && active.empty() && waitingItems) { // all that ran has made way: something new may start
    preemptedNow = false;
    admitWaiting(never);
  }
  if (headWait != Reason::none) ++counters.reasons[static_cast<size_t>(headWait)];
  if (proposals) planDrafts();
  std::erase_if(current.pieces, [](const StepPiece &piece) { return piece.tokens == 0; });
  current.results = 0;
  for (size_t i = 0; i < current.pieces.size(); ++i) {
    rows[current.pieces[i].row].piece = static_cast<uint32_t>(i);
    current.results += current.pieces[i].tokens - current.pieces[i].resultFrom;
  }
  current.copies.assign(cache.pendingCopies().begin(), cache.pendingCopies().end());
  inFlight = current.rows > 0;
  if (inFlight) ++current.step;
  current.wakeAt = current.rows ? now : nextDeadline;
  if (trace) trace.plan(now, current), inFlight ? void() : trace.flush();
  return current;
}

} // namespace lathe::runtime
