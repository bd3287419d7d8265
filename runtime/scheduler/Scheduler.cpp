//===- Scheduler.cpp - requests, queues, commit ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/SchedulerImpl.h"
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <limits>

namespace lathe::runtime {

static constexpr double never = std::numeric_limits<double>::infinity();

static KVShape shapeOf(const SchedulerOptions &options) {
  return {options.maxSequences, options.contextTokens, 0, options.stepTokens};
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(const Program &program, std::span<const uint32_t> blocks,
                                                     const SchedulerOptions &options, TraceSink *trace) {
  auto bad = [](const char *name, uint64_t low, uint64_t high, uint64_t found) {
    return makeError(StatusCode::invalidArgument, "%s: expected %" PRIu64 " to %" PRIu64 ", found %" PRIu64, name, low,
                     high, found);
  };
  if (options.maxSequences < 1 || options.maxSequences > 4096) return bad("sequences", 1, 4096, options.maxSequences);
  if (options.contextTokens < 1 || options.contextTokens > 1u << 24)
    return bad("context tokens", 1, 1u << 24, options.contextTokens);
  if (options.stepTokens < 1 || options.stepTokens > StepCostModel::maxRows)
    return bad("step tokens", 1, StepCostModel::maxRows, options.stepTokens);
  const size_t groups = program.stepGroups();
  if (!groups || blocks.size() != groups) return bad("KV groups", 1, groups, blocks.size());
  if (!(options.agingSeconds > 0) || !(options.defaultTtft > 0) || !(options.saveBytesPerSecond > 0) ||
      !(options.itlTarget >= 0))
    return makeError(StatusCode::invalidArgument, "expected positive seconds and rates in the scheduler's options");
  KVShape one = shapeOf(options);
  one.maxSequences = 1;
  for (const KVGroup &group : std::span(program.kvGroups).first(groups))
    if (!group.pageTokens || group.pageTokens > 4096)
      return bad("tokens of a KV page", 1, 4096, group.pageTokens);
    else if (group.kind == 1 && (!group.window || group.window > 1u << 24))
      return bad("tokens of a window", 1, 1u << 24, group.window);
  std::vector<uint32_t> needed = kvBlocksFor(program, one);
  for (size_t g = 0; g < blocks.size(); ++g)
    if (blocks[g] < needed[g])
      return makeError(StatusCode::resourceExhausted,
                       "KV group %zu: expected at least %u blocks, for one sequence of %u tokens, found %u", g,
                       needed[g], options.contextTokens, blocks[g]);
  return std::unique_ptr<Scheduler>(new SchedulerImpl(program, blocks, options, trace));
}

SchedulerImpl::SchedulerImpl(const Program &program, std::span<const uint32_t> blocks, const SchedulerOptions &o,
                             TraceSink *sink)
    : options(o), cache(program, shapeOf(o), blocks), store(program, o.savedKvBytes), trace(sink) {
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    page = std::max(page, cache.page(g));
    uint32_t seen = (cache.window(g) + options.stepTokens + cache.page(g) - 1) / cache.page(g) + 1;
    windowCap.push_back(cache.window(g) ? seen : none);
  }
  if (options.prefixCache) options.prefixCache = cache.enablePrefixCache();
  tokenStride = options.contextTokens + 1;
  rowTokens.reset(new int32_t[uint64_t(options.maxSequences) * tokenStride]); // pages are touched when used
  rows.resize(options.maxSequences);
  for (uint32_t r = options.maxSequences; r-- > 0;)
    freeRows.push_back(r);
  for (std::vector<uint32_t> *list : {&active, &prefilling})
    list->reserve(options.maxSequences);
  draftRows.reserve(uint64_t(options.maxSequences) * maxDraftTokens);
  draftChances.reset(new float[uint64_t(options.maxSequences) * maxDraftTokens]);
  draftParents.reset(new int8_t[uint64_t(options.maxSequences) * maxDraftTokens]);
  outstanding.resize(cache.groups());
  current.pieces.reserve(options.maxSequences);
  current.copies.reserve(uint64_t(options.maxSequences) * cache.groups());
  current.admitted.reserve(options.maxSequences);
  current.preempted.reserve(options.maxSequences);
  current.ended.reserve(options.maxSequences);
  ended.reserve(options.maxSequences);
  committed.reserve(options.maxSequences);
  if (options.policy != SchedulingPolicy::fair) tenants.emplace_back();
  nextDeadline = never;
  if (trace) trace.header(program, blocks, o), trace.flush();
}

double SchedulerImpl::advance(double now) {
  if (now > clock) cache.setTime(clock = now);
  return clock;
}

// Events.

Status SchedulerImpl::validate(const ScheduledRequest &r, Reason &why) const {
  why = Reason::rejectInvalid;
  auto bad = [](const char *field, const char *expected, double found) {
    return makeError(StatusCode::invalidArgument, "%s: expected %s, found %g", field, expected, found);
  };
  if (!r.id || byId.count(r.id)) return bad("id", "a new one, not 0", static_cast<double>(r.id));
  if (r.prompt.empty()) return bad("prompt", "at least one token", 0);
  if (r.prompt.size() > options.contextTokens)
    return makeError(StatusCode::invalidArgument, "prompt: the context holds %u tokens, found %zu",
                     options.contextTokens, r.prompt.size());
  if (r.choices < 1 || r.choices > options.maxSequences)
    return makeError(StatusCode::invalidArgument, "choices: expected 1 to %u, found %u", options.maxSequences,
                     r.choices);
  if (!r.maxTokens && r.choices > 1) return bad("choices", "1 of a request that generates nothing", r.choices);
  for (auto [name, value] :
       {std::pair{"deadline", r.deadline}, {"TTFT target", r.ttftTarget}, {"TPOT target", r.tpotTarget}})
    if (!(value >= 0) || !std::isfinite(value)) return bad(name, "seconds, at least 0", value);
  why = Reason::none;
  return forecast().check(r.prompt.size(), r.ttftTarget, r.tpotTarget, &why);
}

uint32_t SchedulerImpl::tenantOf(const std::string &name) {
  if (options.policy != SchedulingPolicy::fair) return 0;
  auto [found, isNew] = tenantIds.try_emplace(name, static_cast<uint32_t>(tenants.size()));
  if (!isNew) return found->second;
  // Names come from clients' keys, but memory must not depend on that: beyond 4096 a tenant without requests makes
  // place.
  if (tenants.size() >= 4096)
    for (uint32_t t = 0; t < tenants.size(); ++t)
      if (!tenants[t].inside) {
        tenantIds.erase(tenants[t].name);
        tenants[t] = {};
        tenants[t].name = name;
        return tenantIds[name] = t;
      }
  tenants.emplace_back().name = name;
  return found->second;
}

Status SchedulerImpl::add(double now, ScheduledRequest request, Reason *why) {
  now = advance(now);
  Reason refusal = Reason::none;
  Status status = validate(request, refusal);
  if (trace) trace.add(now, request, refusal);
  if (why) *why = refusal;
  if (!status.ok()) {
    ++counters.reasons[static_cast<size_t>(refusal)];
    counters.rejectedDeadline += refusal == Reason::rejectTtft || refusal == Reason::rejectTpot;
    counters.rejectedQueue += refusal == Reason::rejectQueue || refusal == Reason::rejectTokens;
    return status;
  }
  uint32_t index;
  if (freeRequests.empty()) {
    index = static_cast<uint32_t>(requests.size());
    requests.emplace_back();
  } else {
    index = freeRequests.back();
    freeRequests.pop_back();
    requests[index] = {};
  }
  RequestState &r = requests[index];
  r.spec = std::move(request);
  r.order = ++arrivals;
  r.arrival = now;
  r.left = r.spec.choices;
  r.choices.resize(r.spec.choices);
  r.tenant = tenantOf(r.spec.tenant);
  ++tenants[r.tenant].inside;
  if (options.policy == SchedulingPolicy::priority)
    r.key = r.spec.priority + now / options.agingSeconds; // all age at the same rate, so the order never changes
  if (options.policy == SchedulingPolicy::deadline)
    r.key = now + (r.spec.ttftTarget > 0 ? r.spec.ttftTarget : options.defaultTtft);
  if (PrefixCache *prefixes = cache.prefixCache())
    r.space = prefixes->acquireNamespace({r.spec.tenant, r.spec.cacheSalt, r.spec.adapter, options.model});
  if (r.spec.deadline > 0) nextDeadline = std::min(nextDeadline, now + r.spec.deadline);
  byId.emplace(r.spec.id, index);
  ++waitingRequests;
  waitingTokens += r.spec.prompt.size();
  enqueue(index, 0, true);
  return Status();
}

void SchedulerImpl::enqueue(uint32_t request, uint32_t choice, bool arrival) {
  RequestState &r = requests[request];
  std::vector<Item> &queue = queueOf(r.tenant);
  if (arrival && options.policy == SchedulingPolicy::fair && queue.empty()) {
    // VTC: who was away saves nothing up.
    uint64_t lift = UINT64_MAX;
    for (const Tenant &t : tenants)
      if (!t.queue.empty()) lift = std::min(lift, t.counter);
    if (lift == UINT64_MAX) lift = lastLeftCounter;
    tenants[r.tenant].counter = std::max(tenants[r.tenant].counter, lift);
  }
  // Who has sent its first token has its time per token to keep: before everything with a deadline for the first.
  bool started = options.policy == SchedulingPolicy::deadline && r.choices[choice].generated;
  Item item{started ? -never : r.key, r.order, request, choice};
  queue.insert(std::upper_bound(queue.begin(), queue.end(), item), item);
  r.choices[choice].state = Choice::State::waiting;
  ++waitingItems;
}

void SchedulerImpl::dequeue(uint32_t request, uint32_t choice) {
  const RequestState &r = requests[request];
  std::vector<Item> &queue = queueOf(r.tenant);
  bool started = options.policy == SchedulingPolicy::deadline && r.choices[choice].generated;
  Item item{started ? -never : r.key, r.order, request, choice};
  queue.erase(std::lower_bound(queue.begin(), queue.end(), item));
  --waitingItems;
  if (queue.empty() && options.policy == SchedulingPolicy::fair) lastLeftCounter = tenants[r.tenant].counter;
}

uint32_t SchedulerImpl::takeRow(uint32_t request, uint32_t choice, bool reserved) {
  uint32_t row = freeRows.back();
  freeRows.pop_back();
  rows[row] = {};
  rows[row].request = request;
  rows[row].choice = choice;
  rows[row].reserved = reserved;
  ++tenants[requests[request].tenant].rows;
  Choice &c = requests[request].choices[choice];
  c.row = row;
  c.state = reserved ? Choice::State::reserved : Choice::State::running;
  return row;
}

void SchedulerImpl::freeRow(uint32_t row) {
  if (!rows[row].reserved) active.erase(std::find(active.begin(), active.end(), row));
  RequestState &r = requests[rows[row].request];
  r.choices[rows[row].choice].row = none;
  --tenants[r.tenant].rows;
  rows[row] = {};
  freeRows.push_back(row);
}

/// Gives up the rows that wait for forks.
void SchedulerImpl::freeReserved(RequestState &r) {
  for (Choice &c : r.choices)
    if (c.state == Choice::State::reserved) {
      freeRow(c.row);
      c.state = Choice::State::waiting;
    }
}

void SchedulerImpl::endChoice(uint32_t request, uint32_t choice, EndReason end, Reason reason,
                              std::vector<PlannedEnd> &list) {
  RequestState &r = requests[request];
  Choice &c = r.choices[choice];
  if (c.state == Choice::State::ended) return;
  if (c.row != none) {
    Row &row = rows[c.row];
    c.generated = row.generated;
    if (!row.reserved) cache.release(c.row);
    if (!row.reserved) freeReserved(r);
    freeRow(c.row);
  } else if (choice == 0 || r.forked) {
    dequeue(request, choice);
    if (!r.admitted) {
      --waitingRequests;
      waitingTokens -= r.spec.prompt.size();
    }
  }
  KVCache::dropSaved(c.saved, store);
  c.kept = {};
  c.state = Choice::State::ended;
  if (end == EndReason::stop || end == EndReason::length) meanOutput += (c.generated - meanOutput) / 16;
  ++counters.reasons[static_cast<size_t>(reason)];
  list.push_back({r.spec.id, choice, end, reason, --r.left == 0});
  if (r.left) return;
  if (PrefixCache *prefixes = cache.prefixCache()) prefixes->releaseNamespace(r.space);
  --tenants[r.tenant].inside;
  tenants[r.tenant].lastInside = clock;
  byId.erase(r.spec.id);
  r.spec.prompt = {};
  freeRequests.push_back(request);
}

void SchedulerImpl::endRequest(uint32_t request, EndReason end, Reason reason, std::vector<PlannedEnd> &list) {
  auto count = static_cast<uint32_t>(requests[request].choices.size());
  // Choices that wait for their prompt have no place of their own: the first choice, which has it, goes last.
  freeReserved(requests[request]);
  for (uint32_t i = count; i-- > 0;)
    endChoice(request, i, end, reason, list);
}

static Reason reasonOf(EndReason end) {
  switch (end) {
  case EndReason::stop:
    return Reason::endStop;
  case EndReason::length:
    return Reason::endLength;
  case EndReason::cancelled:
    return Reason::endCancelled;
  case EndReason::timeout:
    return Reason::endTimeout;
  case EndReason::failed:
    return Reason::endFailed;
  case EndReason::rejected:
    return Reason::rejectTtft;
  }
  return Reason::none;
}

bool SchedulerImpl::cancelChecked(double now, RequestId id, uint32_t choice, EndReason reason) {
  now = advance(now);
  if (trace) {
    trace.line('C').real(now).number(id).integer(choice == none ? -1 : int64_t(choice));
    trace.number(static_cast<uint64_t>(reason)).end();
  }
  auto found = byId.find(id);
  if (found == byId.end() || inFlight) return false;
  uint32_t request = found->second;
  if (choice == none) {
    endRequest(request, reason, reasonOf(reason), ended);
    return true;
  }
  RequestState &r = requests[request];
  if (choice >= r.choices.size() || r.choices[choice].state == Choice::State::ended) return false;
  if (!r.forked && r.choices.size() > 1) return false; // one prompt serves all: nothing of this choice is its own yet
  endChoice(request, choice, reason, reasonOf(reason), ended);
  return true;
}

bool SchedulerImpl::cancel(double now, RequestId id, EndReason reason) { return cancelChecked(now, id, none, reason); }
bool SchedulerImpl::cancelChoice(double now, RequestId id, uint32_t choice, EndReason reason) {
  return cancelChecked(now, id, choice, reason);
}

void SchedulerImpl::clearPrefixCache(double now) {
  now = advance(now);
  if (trace) trace.line('X').real(now).end();
  cache.clearPrefixes();
}

void SchedulerImpl::takeSample(uint32_t index, const ChoiceResult &result) {
  Row &row = rows[index];
  RequestState &r = requests[row.request];
  if (result.token >= 0 && row.known < tokenStride) {
    tokensOf(index)[row.known++] = result.token;
    ++row.generated;
    ++row.sinceAdmission;
    ++counters.newTokens;
    if (options.policy == SchedulingPolicy::fair) tenants[r.tenant].counter += 2;
  }
  if (result.ended)
    endChoice(row.request, row.choice, result.reason, reasonOf(result.reason), committed);
  else if (result.token < 0)
    endChoice(row.request, row.choice, EndReason::failed, Reason::endFailed, committed);
  else if (row.generated >= r.spec.maxTokens || row.computed >= options.contextTokens)
    endChoice(row.request, row.choice, EndReason::length, Reason::endLength, committed);
}

/// The tokens of a piece with drafts, as if each had come in a step of its own. The drafts that were right are in place.
void SchedulerImpl::takeVerified(uint32_t index, std::span<const ChoiceResult> results) {
  Row &row = rows[index];
  uint32_t before = row.computed - static_cast<uint32_t>(results.size());
  for (size_t i = 0; i < results.size() && row.request != none; ++i) {
    row.computed = before + static_cast<uint32_t>(i) + 1;
    takeSample(index, results[i]);
  }
}

void SchedulerImpl::learnCost(double seconds) {
  double work = 0;
  for (const StepPiece &piece : current.pieces)
    work += workOf(piece);
  // Steps without a prompt teach it too: the first prompt after them finds a machine that is known.
  if (decoders > 0) lateness.observe(options.cost.seconds(work), seconds);
  options.cost.observe(work, seconds);
}

std::span<const PlannedEnd> SchedulerImpl::commit(double now, double seconds, std::span<const PieceResult> results) {
  committed.clear();
  if (!inFlight) return committed;
  now = advance(now);
  if (trace) trace.commit(now, seconds, current.pieces, results);
  inFlight = false;
  cache.commitCopies();
  if (options.learnCost) learnCost(seconds);
  ++counters.steps;
  counters.rows += current.rows;
  for (size_t i = 0; i < current.pieces.size(); ++i) {
    const StepPiece &piece = current.pieces[i];
    Row &row = rows[piece.row];
    if (row.request == none) continue; // a piece before it ended the request as a whole
    RequestState &r = requests[row.request];
    Choice &choice = r.choices[row.choice];
    row.piece = none;
    if (row.restored) KVCache::dropSaved(choice.saved, store);
    choice.hasSaved = choice.hasSaved && !row.restored;
    row.restored = false;
    uint32_t before = row.computed, prompt = promptLength(row);
    static const PieceResult failedResult{{}, true};
    const PieceResult &result = i < results.size() ? results[i] : failedResult;
    auto taken = static_cast<uint32_t>(std::min<size_t>(result.choices.size(), piece.tokens));
    int32_t at = -1;
    for (uint32_t t = 1; piece.drafts && t < taken; ++t)
      if ((at = piece.next(at, result.choices[t - 1].token)) < 0) taken = t; // a draft that was not taken is not right
    for (uint32_t t = 1; piece.parents && t < taken; ++t) // the path of a tree, as a chain
      tokensOf(piece.row)[before + t] = result.choices[t - 1].token;
    row.computed += piece.drafts ? std::max(1u, taken) : piece.tokens;
    if (piece.drafts) cache.truncate(piece.row, row.computed); // before anything is published
    counters.promptRows += std::min(row.computed, prompt) - std::min(before, prompt);
    counters.recomputedRows += std::min(row.computed, choice.highWater) - std::min(before, choice.highWater);
    if (result.failed || result.choices.size() < piece.samples) {
      endRequest(row.request, EndReason::failed, Reason::endFailed, committed);
      continue;
    }
    cache.publish(piece.row, r.space, {tokensOf(piece.row), row.computed});
    cache.trim(piece.row, row.computed);
    if (row.computed <= prompt) r.delivered = std::max(r.delivered, row.computed);
    if (piece.promptDone && !r.spec.maxTokens) {
      endChoice(row.request, row.choice, EndReason::length, Reason::endLength, committed);
    } else if (piece.samples > 1) {
      r.forked = true;
      if (!row.forks) row.promise = 0; // it was admitted alone, without blocks for the others
      row.forks = 0;
      for (uint32_t c = 1; c < piece.samples; ++c) {
        uint32_t child = r.choices[c].row;
        cache.fork(piece.row, child);
        std::memcpy(tokensOf(child), tokensOf(piece.row), row.known * sizeof(int32_t));
        Row &forkRow = rows[child];
        forkRow.reserved = false;
        forkRow.computed = row.computed;
        forkRow.known = row.known;
        forkRow.promise = std::min(row.promise, row.known + page);
        forkRow.admitted = row.admitted;
        r.choices[c].state = Choice::State::running;
        active.insert(std::find(active.begin(), active.end(), piece.row) + c, child);
      }
      uint32_t request = row.request;
      for (uint32_t c = piece.samples; c-- > 0;) // the last first: endings do not move what comes
        if (uint32_t child = requests[request].choices[c].row; child != none) takeSample(child, result.choices[c]);
    } else if (piece.drafts) {
      takeVerified(piece.row, result.choices.first(taken));
    } else if (piece.samples == 1) {
      r.forked = true;
      takeSample(piece.row, result.choices[0]);
    }
  }
  if (trace) trace.ends(committed), trace.flush();
  return committed;
}

void SchedulerImpl::rollback(double now) {
  if (!inFlight) return;
  now = advance(now);
  if (trace) trace.line('R').real(now).end(), trace.flush();
  inFlight = false;
  for (const StepPiece &piece : current.pieces) {
    Row &row = rows[piece.row];
    row.piece = none; // no choice ends between plan and rollback
    if (!row.restored) {
      cache.rollback(piece.row, row.computed);
      continue;
    }
    // Its blocks hold nothing. It waits again, to be computed.
    RequestState &r = requests[row.request];
    Choice &choice = r.choices[row.choice];
    uint32_t request = row.request, index = row.choice;
    choice.kept.assign(tokensOf(piece.row), tokensOf(piece.row) + row.known);
    choice.generated = row.generated;
    cache.release(piece.row);
    KVCache::dropSaved(choice.saved, store);
    choice.hasSaved = false;
    freeReserved(r);
    freeRow(piece.row);
    enqueue(request, index, false);
  }
  cache.commitCopies();
  for (const PlannedPreemption &p : current.preempted) {
    auto found = byId.find(p.request);
    if (!p.saved || found == byId.end()) continue;
    Choice &choice = requests[found->second].choices[p.choice];
    KVCache::dropSaved(choice.saved, store);
    choice.hasSaved = false;
  }
}

// State.

SchedulerStats SchedulerImpl::stats() const {
  SchedulerStats s = counters;
  s.running = static_cast<uint32_t>(active.size());
  s.waiting = waitingRequests;
  s.preempted = waitingItems - waitingRequests;
  s.waitingTokens = waitingTokens;
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    s.kvBlocks += cache.pool(g).total();
    s.kvBlocksUsed += cache.pool(g).total() - cache.pool(g).available();
    s.kvBlocksCached += cache.pool(g).cachedCount();
  }
  s.savedBytes = store.bytesUsed();
  s.kvTimes = cache.times();
  return s;
}

AdmissionForecast SchedulerImpl::forecast() const {
  AdmissionForecast f;
  f.policy = options.policy;
  f.waiting = waitingRequests;
  f.maxQueued = options.maxQueued;
  f.waitingTokens = waitingTokens;
  f.maxQueuedTokens = options.maxQueuedTokens;
  f.secondsPerRow = prefillSecondsPerRow();
  uint64_t backlog = waitingTokens;
  for (uint32_t index : active)
    backlog += rows[index].known - rows[index].computed > 1 ? rows[index].known - rows[index].computed : 0;
  f.backlogSeconds = static_cast<double>(backlog) * f.secondsPerRow;
  f.drainSeconds = f.backlogSeconds / std::max(1u, waitingRequests);
  f.secondsAlone = options.cost.seconds(1);
  return f;
}

Status AdmissionForecast::check(uint64_t promptTokens, double ttftTarget, double tpotTarget, Reason *why) const {
  auto refuse = [&](Reason reason) {
    if (why) *why = reason;
  };
  if (waiting >= maxQueued) {
    refuse(Reason::rejectQueue);
    return makeError(StatusCode::resourceExhausted, "the queue is full: %u requests wait, which is the limit", waiting);
  }
  if (maxQueuedTokens && waiting && waitingTokens + promptTokens > maxQueuedTokens) {
    refuse(Reason::rejectTokens);
    return makeError(StatusCode::resourceExhausted,
                     "the queue is full: expected at most %" PRIu64 " waiting prompt tokens, found %" PRIu64,
                     maxQueuedTokens, waitingTokens + promptTokens);
  }
  double expected = backlogSeconds + static_cast<double>(promptTokens) * secondsPerRow;
  if (policy != SchedulingPolicy::deadline) return Status();
  if (ttftTarget > 0 && expected > ttftTarget) {
    refuse(Reason::rejectTtft);
    return makeError(StatusCode::resourceExhausted,
                     "the first token is expected after %.3f s, the request's target is %.3f s", expected, ttftTarget);
  }
  if (tpotTarget > 0 && secondsAlone > tpotTarget) {
    refuse(Reason::rejectTpot);
    return makeError(StatusCode::resourceExhausted, "a token takes %.4f s at least, the request's target is %.4f s", secondsAlone,
                     tpotTarget);
  }
  return Status();
}

double AdmissionForecast::retryAfter() const {
  double wait = policy == SchedulingPolicy::deadline ? backlogSeconds : drainSeconds;
  return std::max(1.0, std::ceil(std::min(wait, 3600.0)));
}

} // namespace lathe::runtime
