//===- SchedulerImpl.h - the scheduler's state --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/scheduler/Scheduler.h"
#include "runtime/scheduler/StepLateness.h"
#include "runtime/scheduler/TraceWriter.h"
#include "runtime/speculation/Types.h"
#include <unordered_map>

namespace lathe::runtime {

/// One preemption more, and a sequence is admitted only with all the blocks it can ever need.
constexpr uint32_t maxPreemptions = 3;

class SchedulerImpl final : public Scheduler {
public:
  SchedulerImpl(const Program &program, std::span<const uint32_t> blocks, const SchedulerOptions &options,
                TraceSink *sink);
  ~SchedulerImpl() override { trace.flush(); }

  Status add(double now, ScheduledRequest request, Reason *why) override;
  bool cancel(double now, RequestId id, EndReason reason) override;
  bool cancelChoice(double now, RequestId id, uint32_t choice, EndReason reason) override;
  void propose(RequestId id, uint32_t choice, std::span<const int32_t> tokens, std::span<const float> chances, std::span<const int8_t> parents) override;
  uint32_t draftRoom(RequestId id, uint32_t choice) const override;
  bool draftsMayPay() const override;
  uint32_t decodingRow(RequestId id, uint32_t choice) const override { return rowOf(id, choice); }
  uint32_t decodingChoices() const override;
  const StepPlan &plan(double now) override;
  std::span<const PlannedEnd> commit(double now, double seconds, std::span<const PieceResult> results) override;
  void rollback(double now) override;
  void clearPrefixCache(double now) override;
  bool idle() const override { return byId.empty(); }
  SchedulerStats stats() const override;
  AdmissionForecast forecast() const override;
  const StepCostModel &cost() const override { return options.cost; }
  void assumeCost(const StepCostModel &cost) override { options.cost = cost; }
  KVCache &kv() override { return cache; }
  Status checkInvariants() const override;

private:
  static constexpr uint32_t none = UINT32_MAX;

  /// Of one choice; what a running one needs at every step is in its Row.
  struct Choice {
    enum class State : uint8_t { waiting, reserved, running, ended } state = State::waiting;
    uint32_t row = none;
    uint32_t generated = 0, preemptions = 0;
    uint32_t highWater = 0;    ///< tokens that had been computed before a preemption
    std::vector<int32_t> kept; ///< all tokens, while preempted
    SavedSequence saved;
    bool hasSaved = false;
  };
  struct RequestState {
    ScheduledRequest spec;
    uint64_t order = 0; ///< of arrival
    double arrival = 0, key = 0;
    PrefixCache::Serial space = 0;
    uint32_t tenant = 0, left = 0; ///< choices not ended
    bool forked = false;           ///< the prompt is done: each choice is a sequence of its own
    bool admitted = false;         ///< at least once
    uint32_t delivered = 0;        ///< prompt rows whose results were handed out
    uint32_t passedOver = 0;
    uint32_t awaitRow = none; ///< the row that computes its prefix, ...
    uint64_t awaitAdmitted = 0;
    uint32_t awaitTokens = 0, awaitSeen = 0; ///< ... up to here; how far it was when last looked at
    std::vector<Choice> choices;
  };
  struct Row {
    uint32_t request = none, choice = 0;
    bool reserved = false; ///< kept for a fork
    bool restored = false; ///< by the plan in flight
    bool saved = false;
    uint32_t computed = 0, known = 0, generated = 0, sinceAdmission = 0;
    uint32_t promise = 0;  ///< tokens whose blocks nobody else may take
    uint32_t forks = 0;    ///< sequences that will fork from it, with blocks promised to them
    uint32_t piece = none; ///< in the plan in flight
    uint32_t drafts = 0;   ///< proposed: tokens behind |known| ones
    bool draftTree = false; ///< they are one
    uint64_t admitted = 0;
    double tag = 0; ///< what the policy orders prompts under way by: lower first
  };
  struct Item {
    double key;
    uint64_t order;
    uint32_t request, choice;
    bool operator<(const Item &other) const {
      if (key != other.key) return key < other.key;
      if (order != other.order) return order < other.order;
      return choice < other.choice;
    }
  };
  struct Tenant {
    std::string name;
    uint64_t counter = 0;          ///< of VTC: 1 x input + 2 x output tokens, lifted on return
    uint32_t inside = 0, rows = 0; ///< requests; rows that they hold
    double lastInside = 0;
    std::vector<Item> queue; ///< sorted
  };

  // Requests and queues (Scheduler.cpp).
  double advance(double now);
  Status validate(const ScheduledRequest &request, Reason &why) const;
  uint32_t tenantOf(const std::string &name);
  void enqueue(uint32_t request, uint32_t choice, bool arrival);
  void dequeue(uint32_t request, uint32_t choice);
  void endChoice(uint32_t request, uint32_t choice, EndReason end, Reason reason, std::vector<PlannedEnd> &list);
  void endRequest(uint32_t request, EndReason end, Reason reason, std::vector<PlannedEnd> &list);
  void freeRow(uint32_t row);
  void freeReserved(RequestState &request);
  uint32_t takeRow(uint32_t request, uint32_t choice, bool reserved);
  bool cancelChecked(double now, RequestId id, uint32_t choice, EndReason reason);
  void takeSample(uint32_t row, const ChoiceResult &result);
  void takeVerified(uint32_t row, std::span<const ChoiceResult> results);
  std::vector<Item> &queueOf(uint32_t tenant) {
    return tenants[options.policy == SchedulingPolicy::fair ? tenant : 0].queue;
  }

  // Drafts (Drafts.cpp).
  uint32_t rowOf(RequestId id, uint32_t choice) const;
  void planDrafts();
  bool addDrafts(uint32_t row, uint32_t count);

  // Planning (Plan.cpp).
  enum class Outcome { admitted, removed, skipped, stop };
  void planDecodes();
  void planPrefills();
  void admitWaiting(double limit);
  Outcome admit(const Item &item);
  void countTenants();
  uint32_t rowShare() const;
  bool promptBesideFlood() const;
  bool floods(const Tenant &tenant) const;
  bool lastRowsKept(const RequestState &request, uint32_t rowsNeeded) const;
  bool makesWayFor(const RequestState &request, const Row &row) const;
  bool canMakeRoom(const RequestState &request, uint32_t rowsNeeded, uint32_t hit, uint32_t promise, uint32_t forks) const;
  bool makeRoom(const RequestState &request, uint32_t rowsNeeded, uint32_t hit, uint32_t promise, uint32_t forks, Reason why);
  bool waitsForTpot(const RequestState &request, const Choice &choice, Outcome &outcome);
  uint32_t blocksNeeded(uint32_t group, uint32_t hit, uint32_t promise, uint32_t forks) const;
  Reason roomFor(uint32_t rowsNeeded, uint32_t hit, uint32_t promise, uint32_t forks) const;
  bool awaitsPrefix(RequestState &request, uint32_t hit);
  bool stillAwaits(RequestState &request);
  void preempt(uint32_t row, Reason reason);
  uint32_t victim(const RequestState *waiting) const;
  bool eligible(const Row &row) const;
  void addPiece(uint32_t row, uint32_t tokens, Reason reason);
  bool extendRow(uint32_t row, uint32_t tokens);
  uint32_t outstandingOf(const Row &row, uint32_t rowIndex, uint32_t group) const;
  uint32_t forkBlocks(uint32_t forks, uint32_t group) const;
  void countOutstanding();
  uint32_t spare(uint32_t group) const;
  uint32_t blocksFor(uint32_t tokens, uint32_t group) const;
  double contentionTarget(uint32_t sequences, double work) const;
  double rowsAtLeastPace(double longest, double work) const;
  double tightestTpot() const;
  void setPrefillLimit();
  void learnCost(double seconds);
  double workOf(const StepPiece &piece) const {
    return options.cost.work(piece.tokens, StepCostModel::historyOf(piece.first, piece.tokens));
  }
  uint32_t chunkOf(uint32_t rest, uint32_t first) const;
  double expectedGrowth() const;
  void expire();
  bool hopeless(const RequestState &request, uint32_t rows) const;
  double prefillSecondsPerRow() const;
  double recomputeSeconds(uint32_t tokens) const;
  uint32_t promptLength(const Row &row) const {
    return static_cast<uint32_t>(requests[row.request].spec.prompt.size());
  }
  int32_t *tokensOf(uint32_t row) { return rowTokens.get() + uint64_t(row) * tokenStride; }
  const int32_t *tokensOf(uint32_t row) const { return rowTokens.get() + uint64_t(row) * tokenStride; }

  SchedulerOptions options;
  KVCache cache;
  HostStore store;
  TraceWriter trace;
  uint32_t page = 1, tokenStride = 1; ///< the largest page
  std::vector<uint32_t> windowCap;    ///< [group] blocks that a sequence holds at most; of full attention no limit

  std::vector<RequestState> requests; ///< slots
  std::vector<uint32_t> freeRequests;
  std::unordered_map<RequestId, uint32_t> byId;
  std::vector<Tenant> tenants;
  std::unordered_map<std::string, uint32_t> tenantIds;
  uint64_t lastLeftCounter = 0; ///< counter of the tenant that was the last to leave the queue
  uint64_t arrivals = 0, admissions = 0;
  uint32_t waitingItems = 0, waitingRequests = 0;
  uint64_t waitingTokens = 0;
  double clock = 0, nextDeadline = 0;

  std::vector<Row> rows;
  std::vector<uint32_t> freeRows;       ///< a stack
  std::vector<uint32_t> active;         ///< rows of running choices, in order of admission
  std::unique_ptr<int32_t[]> rowTokens; ///< [row][tokenStride]

  // The plan in flight.
  StepPlan current;
  std::vector<PlannedEnd> ended;     ///< since the last plan
  std::vector<PlannedEnd> committed; ///< by the last commit
  bool inFlight = false, preemptedNow = false;
  std::vector<uint64_t> outstanding; ///< [group] promised and not yet held
  std::vector<uint32_t> prefilling;  ///< rows
  struct DraftRow {
    float chance;
    uint32_t row, depth;
  };
  std::vector<DraftRow> draftRows;        ///< candidates of the plan
  std::unique_ptr<float[]> draftChances;  ///< [row][maxDraftTokens]
  std::unique_ptr<int8_t[]> draftParents; ///< [row][maxDraftTokens], of trees
  uint32_t proposals = 0;                 ///< rows with drafts
  uint32_t budget = 0, decoders = 0, rotation = 0;
  double prefillLeft = 0; ///< work (StepCostModel) that prompts may still bring
  bool contended = false, promptPlanned = false;
  Reason headWait = Reason::none;
  uint32_t freshChecks = 0, activeTenants = 0;
  bool tenantBelowShare = false, flooded = false; ///< fair policy

  // Estimates.
  double meanOutput = 128;    ///< tokens of a choice
  StepLateness lateness;      ///< of steps with running sequences
  double headroomRatio = 0.5; ///< of the expected growth that admission keeps free
  SchedulerStats counters;
};

} // namespace lathe::runtime
