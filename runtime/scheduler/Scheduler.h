//===- Scheduler.h - which rows run next --------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A pure state machine: events in, decisions out. It has no clock (times are arguments, seconds from any origin, never
// falling), no thread, no I/O, and knows requests as tokens, lengths, tenants, priorities and times.
// The same events with the same times give the same decisions (docs/engine.md, "Replay").
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include "runtime/scheduler/CostModel.h"
#include "runtime/scheduler/StepPlan.h"
#include <memory>
#include <string>
#include <string_view>

namespace lathe::runtime {

struct SchedulerOptions {
  uint32_t maxSequences = 64; ///< rows of the block tables: choices running at once
  uint32_t contextTokens = 0; ///< of one sequence
  uint32_t stepTokens = 256;  ///< rows of a step at most
  uint32_t maxResults =
      0; ///< result rows of a step at most; 0: no limit. Only pieces that want all rows are cut for it
  uint32_t maxQueued = 256;     ///< waiting requests; preempted ones do not count
  uint64_t maxQueuedTokens = 0; ///< prompt tokens of waiting requests; 0: no limit
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  PreemptionMode preemption = PreemptionMode::automatic;
  bool prefixCache = true;
  std::string model;               ///< identity of the weights and the KV format, part of the prefix key
  uint64_t savedKvBytes = 0;       ///< host memory for saved blocks; 0: preemption recomputes
  double saveBytesPerSecond = 4e9; ///< of a copy between device and host, for the choice between save and recompute; engines measure it
  double itlTarget = 0; ///< seconds between tokens of running sequences while prompts run; 0: docs/engine.md, "Chunks"
  double agingSeconds = 10;   ///< priority policy: so much waiting is worth one priority level
  uint32_t maxPassedOver = 8; ///< admission passes that may admit another request before the first in order
  double defaultTtft = 10;    ///< deadline policy: order of requests without a target
  StepCostModel cost;         ///< to start with; learns from every commit
  bool learnCost = true;
  bool freeDrafts = false; ///< a row of a draft counts as free: all that have room are taken
};

/// What a request is to the scheduler.
struct ScheduledRequest {
  RequestId id = 0;
  std::vector<int32_t> prompt; ///< 1 .. contextTokens tokens
  uint32_t choices = 1;        ///< 1 .. maxSequences
  uint32_t maxTokens =
      UINT32_MAX; ///< new tokens of each choice; 0: it ends with the prompt (embeddings, prompt scores)
  /// Prompt rows whose results are wanted, beside the last one of a request that generates.
  enum class PromptRows : uint8_t { none, last, all } promptRows = PromptRows::none;
  std::string tenant, cacheSalt, adapter; ///< of the prefix key; the tenant also of fair shares
  int32_t priority = 0;                   ///< lower first
  double deadline = 0;                    ///< seconds after arrival at which it ends with `timeout`; 0: none
  double ttftTarget = 0, tpotTarget = 0;  ///< seconds; 0: none
};

/// Gauges and counters. Counters run from creation.
struct SchedulerStats {
  uint32_t running = 0;   ///< choices that have a row
  uint32_t waiting = 0;   ///< requests never admitted
  uint32_t preempted = 0; ///< choices that wait to run again
  uint64_t waitingTokens = 0;
  uint64_t kvBlocks = 0, kvBlocksUsed = 0, kvBlocksCached = 0; ///< over all groups
  uint64_t savedBytes = 0;
  BlockTimes kvTimes;
  uint64_t steps = 0, rows = 0, promptRows = 0, newTokens = 0;
  uint64_t recomputedRows = 0;               ///< rows that had been computed before a preemption
  uint64_t prefixQueried = 0, prefixHit = 0; ///< prompt tokens of first admissions
  uint64_t preemptedRecompute = 0, preemptedSave = 0;
  uint64_t rejectedQueue = 0, rejectedDeadline = 0;
  uint64_t reasons[reasonCount] = {}; ///< decisions by reason
};

/// What a thread other than the engine's needs to refuse a request at once. A copy, no references.
struct AdmissionForecast {
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  uint32_t waiting = 0, maxQueued = 0;
  uint64_t waitingTokens = 0, maxQueuedTokens = 0;
  double backlogSeconds = 0; ///< until what is inside has its first tokens
  double secondsPerRow = 0;  ///< of a prompt
  double drainSeconds = 0;   ///< expected until one queue place is free
  double secondsAlone = 0;   ///< of a step with one sequence: no time per token is shorter
  /// Refuses with resourceExhausted what add() would refuse now; |why|, if given, gets the reason.
  Status check(uint64_t promptTokens, double ttftTarget, double tpotTarget, Reason *why = nullptr) const;
  /// Whole seconds, at least 1, after which a refused request has a chance.
  double retryAfter() const;
};

/// Receives the trace: whole lines, with their newline. Called on the scheduler's thread, in add(), plan(), ...
class TraceSink {
public:
  virtual ~TraceSink() = default;
  virtual void write(std::string_view lines) = 0;
};

/// One thread at a time. Calls between plan() with rows and its commit() or rollback() are limited to const ones.
class Scheduler {
public:
  /// |program| says the KV groups (nothing else of it is read); |blocks| the blocks of each group. Errors:
  /// invalidArgument (a limit is 0, a group without pages), resourceExhausted (the blocks do not hold one context).
  /// |trace|, if given, must outlive the scheduler.
  static Result<std::unique_ptr<Scheduler>> create(const Program &program, std::span<const uint32_t> blocks,
                                                   const SchedulerOptions &options, TraceSink *trace = nullptr);
  virtual ~Scheduler() = default;

  // Events.

  /// Queues a request. Errors, with nothing done: invalidArgument (names the field), resourceExhausted (queue full, or
  /// deadline policy: a target cannot be met); |why|, if given, gets the reason.
  virtual Status add(double now, ScheduledRequest request, Reason *why = nullptr) = 0;
  /// Ends what is left of a request; its blocks are free on return, and the next plan lists the ends. False: unknown
  /// id.
  virtual bool cancel(double now, RequestId id, EndReason reason = EndReason::cancelled) = 0;
  /// The same for one choice.
  virtual bool cancelChoice(double now, RequestId id, uint32_t choice, EndReason reason) = 0;

  /// Draft tokens that may be verified in the next step, behind the last token of a running choice, and of each the
  /// chance that it and all that lead to it are right, never rising. Without |parents| they are a chain; with them a tree, each
  /// the index of an earlier token or -1. The plan takes as many as pay for their rows (docs/speculation.md), if any, or with freeDrafts
  /// as many as there is room for; without
  /// a plan that takes them they are forgotten. Ignored when draftRoom() is 0; beyond it they are cut.
  virtual void propose(RequestId id, uint32_t choice, std::span<const int32_t> tokens,
                       std::span<const float> chances, std::span<const int8_t> parents = {}) = 0;
  /// Drafts that propose() takes at most: 0 unless the choice decodes next and lacks nothing but its next token.
  virtual uint32_t draftRoom(RequestId id, uint32_t choice) const = 0;
  /// The choice's row in the block tables, under the same condition; UINT32_MAX: none.
  virtual uint32_t decodingRow(RequestId id, uint32_t choice) const = 0;
  /// Choices that decode next, with or without drafts.
  virtual uint32_t decodingChoices() const = 0;
  /// Whether any number of drafts would pay in the next step if nearly all of them were right (with freeDrafts: whether there is room for one). When not,
  /// drafting is a waste.
  virtual bool draftsMayPay() const = 0;

  /// Decides one step and reserves all its blocks. A plan with rows must be followed by commit() or rollback(). Without
  /// rows its other lists still count.
  virtual const StepPlan &plan(double now) = 0;
  /// The step ran: |results| has an entry for each piece, in order; the device worked |seconds|. A piece with drafts has a
  /// result for each token that the engine took: one more than the drafts that were right, or fewer when the choice ended.
  /// Keeps the slots of what was right and gives back the rest. Appends tokens,
  /// publishes full pages to the prefix cache, forks choices, finds ends by length, frees what ended. Returns the
  /// choices that ended in this step, those the engine named included; valid until the next call that is not const.
  virtual std::span<const PlannedEnd> commit(double now, double seconds, std::span<const PieceResult> results) = 0;
  /// The step did not run, or its device failed: reserved blocks go back and no sequence has moved. Restores and saves
  /// of the plan count as not done: sequences that were to be restored or saved by this plan will be computed again.
  /// The caller then cancels
  /// (`failed`) the requests it gives up.
  virtual void rollback(double now) = 0;
  /// Empties the prefix cache: blocks without an owner become free, others are published no more.
  virtual void clearPrefixCache(double now) = 0;

  // State.

  virtual bool idle() const = 0; ///< no request inside
  virtual SchedulerStats stats() const = 0;
  virtual AdmissionForecast forecast() const = 0;
  virtual const StepCostModel &cost() const = 0;
  /// Test hook: steps are expected to cost this from now on.
  virtual void assumeCost(const StepCostModel &cost) = 0;
  /// Block tables for LatheStep, and the blocks to poison in tests.
  virtual KVCache &kv() = 0;
  /// Every invariant of docs/engine.md over the whole state; ok, or the first one that is broken. Slow (tests, idle).
  virtual Status checkInvariants() const = 0;
};

} // namespace lathe::runtime
