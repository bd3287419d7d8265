//===- EngineCore.h - the serving engine without its thread -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Requests in, one transactional step a call, events out (docs/engine.md, "One step"). RequestEngine drives it
// with a thread and a clock; tests drive it by hand, with a clock of their own, so that a schedule can be repeated.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/cpu/ThreadTeam.h"
#include "runtime/engine/DraftProgram.h"
#include "runtime/engine/RequestEngine.h"
#include "runtime/engine/StepDevice.h"
#include "runtime/scheduler/Scheduler.h"
#include "runtime/speculation/Drafter.h"
#include "runtime/text/AnswerText.h"
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace lathe::runtime {

/// What who asks for drafts of a program gets where there is none.
inline constexpr const char *noDraftProgram =
    "the artifact has no draft program; compile it with '--speculate draft:MODEL', 'layerskip:LAYERS', 'medusa' or 'eagle'";

/// Whether |program| can draft by |method|. Error: unsupported, saying what to compile.
Status checkDrafts(const Program &program, Speculation method);

/// Checks requests against an engine's limits. Immutable, thread-safe.
class RequestCheck {
public:
  RequestCheck(const Program &program, const EngineLimits &limits, bool text)
      : program(program), limits(limits), text(text) {}
  /// Error: invalidArgument or unsupported; the message begins with the name of the field, as clients write it.
  Status operator()(const Request &request) const;

private:
  const Program &program;
  EngineLimits limits;
  bool text;
};

/// One thread at a time.
class EngineCore {
public:
  /// Seconds from any origin, never falling.
  using Clock = std::function<double()>;

  /// As RequestEngine::create. |clock| null: the system's steady clock.
  static Result<std::unique_ptr<EngineCore>> create(std::shared_ptr<LoadedArtifact> artifact,
                                                    std::shared_ptr<const TextModel> text,
                                                    const RequestEngineOptions &options, Device *device,
                                                    EngineObserver *observer, Clock clock);
  ~EngineCore();

  /// Takes a request that has passed check(); |arrival| on the core's clock. What goes wrong from here on, the listener
  /// hears.
  void add(RequestId id, Request request, std::shared_ptr<RequestListener> listener, double arrival);
  void cancel(RequestId id);
  /// Ends every request.
  void cancelAll();
  /// One step. False: there was nothing to run; wakeAt() says when that may change by itself.
  bool step();
  /// With nothing to run: touches the memory of one free block that steps would touch for the first time soon, which costs
  /// milliseconds where the machine is a virtual one. False: there is none.
  bool warmMemory();
  void clearPrefixCache() { scheduler->clearPrefixCache(clock()); }

  /// Called in step() between the plan and the device's work, when admitted requests wait no longer.
  std::function<void()> onPlan;
  /// Test hook: drafts for the choice of a request that speculates, which has emitted |tokens|, instead of its drafter's.
  std::function<void(RequestId id, uint32_t choice, uint32_t tokens, uint32_t most, Draft &draft)> onDraft;
  /// Test hook: the draft program drafts as much as there is room for, whether it pays or not.
  bool draftAlways = false;
  uint32_t mostLaws = UINT32_MAX; ///< tests: of a round; fewer than fit

  void assumeCost(const StepCostModel &cost) { scheduler->assumeCost(cost); } ///< tests
  Executable &executable() { return device->executable(); }                   ///< tests: what blocks hold

  bool idle() const { return requests.empty(); }
  size_t inside() const { return requests.size(); }
  uint32_t waiting() const { return neverRan; } ///< requests not yet admitted
  uint64_t waitingTokens() const { return neverRanTokens; }
  double wakeAt() const { return wake; }
  double now() const { return clock(); }
  EngineStats stats() const;
  AdmissionForecast forecast() const { return scheduler->forecast(); }
  const EngineLimits &limits() const { return limit; }
  const RequestCheck &check() const { return *checker; }
  /// The first invariant found broken, by the checks of RequestEngineOptions::checkInvariants; ok: none.
  const Status &broken() const { return invariant; }
  const Scheduler &state() const { return *scheduler; }
  KVCache &kv() { return scheduler->kv(); }

private:
  struct Choice {
    Choice(const Tokenizer *tokenizer, AnswerTextOptions options) : text(tokenizer, std::move(options)) {}
    AnswerText text;
    TokenHistory history; ///< kept only if the request's parameters look at it
    uint32_t tokens = 0;
    int32_t stopToken = -1;
    double lastToken = 0; ///< when it came
    Status error;
    bool done = false;
    std::unique_ptr<Drafter> drafter; ///< from the first token on, if the request speculates
    /// For a draft that takes rows of the step: that of the token before the last one, if the sequence had |rowOf| tokens then. A row depends on
    /// tokens alone (P1), so it is right whatever became of the sequence's KV meanwhile.
    std::vector<float> row;
    uint32_t rowOf = 0;
    FeatureRows features; ///< the same for a draft over features, of all tokens that steps computed lately
    /// Rejection sampling: the laws that the program's drafts of this round were drawn from are EngineCore::laws from |firstLaw| on.
    uint32_t firstLaw = 0, lawCount = 0;
  };
  struct Active {
    RequestId id = 0;
    Request request;
    std::shared_ptr<RequestListener> listener;
    std::vector<Choice> choices;
    std::vector<PromptLogprob> scores; ///< one a prompt token, if asked for
    std::vector<double> pooled;        ///< sum or last row of the hidden states
    uint32_t pooledRows = 0;           ///< prompt rows that are in |pooled|
    RequestUsage usage;
    double arrival = 0;
    bool keepsHistory = false, admitted = false, promptTold = false, corrupted = false;
    Speculation speculate = Speculation::off;
    bool draftTrees = false; ///< the draft program's drafts for it are trees
    SamplingParams draftSampling; ///< of drafts: the request's, and the token's probability
    Status error; ///< of the whole request
  };
  /// Something to be computed from one result row.
  struct Job {
    enum Kind : uint8_t {
      sample,
      score,
      pool,
      verify, ///< rows of a piece with drafts, as long as the drafts are right
      follow, ///< keeps a result of the verify job before it
    } kind = sample;
    Active *request = nullptr;
    uint32_t piece = 0, choice = 0, slot = 0; ///< slot: in choiceResults
    uint32_t position = 0;                    ///< of the row's token
    const float *row = nullptr;
    bool largest = false; ///< |row| is Executable::choice(), not logits
    const StepPiece *drafts = nullptr;     ///< verify: the piece
    uint32_t firstRow = 0, rows = 1;       ///< verify: rows of the piece, in this job and those after it
    uint32_t results = 0, nextRow = 0;     ///< verify: rows sampled; the row that decides next, UINT32_MAX: none
    std::array<uint8_t, maxDraftTokens + 1> path; ///< verify: the rows sampled
    Sample result;
    Status status;
  };

  EngineCore() = default;
  Status open(std::shared_ptr<LoadedArtifact> artifact, std::shared_ptr<const TextModel> text,
              const RequestEngineOptions &options, Device *device, EngineObserver *observer, Clock clock);
  Status measureSteps(StepCostModel &cost, EntryKind kind);
  Active *find(RequestId id);
  // Parts of a step.
  void propose();
  void offer(const Active &active, uint32_t choice, const Draft &draft);
  uint32_t chooseCandidates();
  void draftByProgram();
  const float *spreadLogits(const float *logits, unsigned thread);
  void sampleDrafts(uint32_t head);
  void begin(const StepPlan &plan);
  Status compute(const StepPlan &plan);
  bool choicesSuffice(const StepPlan &plan);
  Status slices(const StepPlan &plan, EntryKind kind);
  void addJobs(const StepPlan &plan, uint32_t piece, uint32_t token, const float *row, bool largest);
  void runJobs();
  void runJob(Job &job, Sampler &sampler);
  Status sampleRow(const Job &at, const Choice &choice, uint32_t index, Sampler &sampler, Sample &out);
  void runVerify(Job &job, Sampler &sampler);
  void decide(Job &at, const Job &job, uint32_t row, Sampler &sampler);
  void take(Job &job);
  void takeVerified(Job &job, Active &active, Choice &choice);
  void takeToken(Job &job, Active &active, Choice &choice);
  Status keepPaths(const StepPlan &plan);
  void keepRows(const StepPlan &plan);
  void keepFeatures(const StepPlan &plan);
  void keepFeature(Choice &choice, uint32_t position, uint32_t row);
  bool lacksRow(const Choice &choice, uint32_t known) const;
  void countDrafts(const StepPlan &plan);
  void tellPrompt(Active &active);
  void countCorrupted(Active &active, const Status &error);
  void giveUp(const StepPlan &plan, const Status &error);
  void end(const PlannedEnd &ended);
  void finish(Active &active, EndReason reason);
  void checkState();

  std::shared_ptr<LoadedArtifact> artifact;
  std::shared_ptr<const TextModel> text;
  std::unique_ptr<Device> ownDevice;
  std::unique_ptr<StepDevice> device;
  std::unique_ptr<TraceSink> trace;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<RequestCheck> checker;
  EngineObserver *observer = nullptr;
  Clock clock;
  EngineLimits limit;
  bool poison = false, checkAlways = false;
  static constexpr uint32_t stepsBetweenChecks = 1000;
  uint32_t sinceCheck = 0; ///< steps
  std::vector<std::vector<bool>> touched; ///< [group][block] by warmMemory()
  Status invariant;

  std::unordered_map<RequestId, std::unique_ptr<Active>> requests;
  uint32_t neverRan = 0;
  uint64_t neverRanTokens = 0;
  double wake = 0;
  EngineStats counters; ///< those that the scheduler does not keep

  // The step; memory of create().
  std::vector<int32_t> resultRows; ///< of one kind
  struct Origin {
    uint32_t piece, token;
  };
  std::vector<Origin> origins; ///< of resultRows
  std::vector<ChoiceResult> choiceResults;
  std::vector<PieceResult> pieceResults;
  std::vector<uint32_t> pieceRows;   ///< first row of each piece
  std::vector<uint32_t> firstChoice; ///< of each piece, in choiceResults
  std::vector<Job> jobs;
  size_t jobCount = 0;
  std::vector<uint32_t> runnable; ///< jobs that are not results of others
  struct Verified {
    uint32_t taken = 0, nextRow = 0; ///< results; the row that decides next, UINT32_MAX: none
  };
  std::vector<Verified> verified; ///< [piece] with drafts
  SharedDrafts sharedDrafts;
  struct Drafting {
    Active *request;
    uint32_t choice;
  };
  std::vector<Drafting> drafting; ///< choices with a drafter
  Draft testDraft;
  /// A choice that the draft program may draft for in this step.
  struct Candidate {
    Active *request = nullptr;
    uint32_t choice = 0, row = 0, room = 0;
    uint32_t known = 0; ///< tokens of the sequence
    uint32_t earliest = 0; ///< of a draft over features: the first token that it can compute
    uint32_t added = 0; ///< tokens drafted
    uint32_t result = 0, results = 1; ///< rows of the draft's logits
    bool tree = false;                ///< it is drafted a tree, which is |grown|
    std::unique_ptr<DraftTree> grown; ///< null: the program drafts chains only
    float lookedUp = 0; ///< tokens that are expected of a draft that costs nothing
    std::array<float, maxDraftTokens> expected{}; ///< [k - 1]: of k tokens of the program
    const float *logits = nullptr;
    Sample sample;
    Status status;
  };
  bool takeDraft(Candidate &candidate);
  void planTrees(Active &active, Speculation asked);
  void growTree(Candidate &candidate, uint32_t head, unsigned thread);
  std::pair<uint32_t, double> payingNodes(const Draft &draft, uint32_t decoding) const;
  std::vector<TreeNode> treeNodes;
  std::unique_ptr<DraftProgram> drafts; ///< null: the artifact has none
  uint32_t featureRows = 0; ///< of a choice, at most
  /// Rejection sampling: the laws of a round's drafts, [lawCapacity][vocabulary]. Part of the memory budget; who finds it full drafts nothing by the
  /// program in that round, which changes no law.
  std::unique_ptr<float[]> laws;
  uint32_t lawCapacity = 0, lawsTaken = 0;
  std::span<float> lawOf(const Choice &choice, uint32_t place) const {
    size_t vocabulary = artifact->program().vocabulary;
    return {laws.get() + (choice.firstLaw + place) * vocabulary, vocabulary};
  }
  StepCostModel draftCost;              ///< of its runs, by rows, sampling included
  bool freeDrafts = false;
  bool measureCost = true;
  double meanHistory = 0; ///< tokens that a candidate has
  double stepSeconds(uint32_t rows) const;
  double draftSeconds(uint32_t rows) const;
  bool draftsCost() const { return !(draftAlways || freeDrafts); }
  std::vector<Candidate> candidates; ///< the first candidateCount
  uint32_t candidateCount = 0;
  std::vector<uint32_t> alive; ///< candidates whose draft goes on
  std::vector<DraftProgram::Piece> draftPieces;
  Speculation speculate = Speculation::off;
  std::shared_ptr<ThreadTeam> team;               ///< of the process: it samples while the device rests
  std::vector<std::unique_ptr<Sampler>> samplers; ///< one a thread
  std::vector<std::vector<float>> spread;         ///< one a thread: logits of a reduced vocabulary among -inf
  std::vector<float> vector;                      ///< an embedding
  double deviceSeconds = 0, samplerSeconds = 0;
};

} // namespace lathe::runtime
