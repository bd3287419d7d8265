//===- RequestEngine.h - many requests on one program -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Continuous batching: requests enter and leave at every step and never disturb each other's tokens
// (docs/engine.md has the data flow). Requests may be submitted and cancelled from any thread; events
// are delivered on the engine's own thread.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include "runtime/device/Device.h"
#include "runtime/sampling/Acceptance.h"
#include "runtime/sampling/Sampler.h"
#include "runtime/kv/BlockTimes.h"
#include "runtime/scheduler/Types.h" // RequestId, EndReason, SchedulingPolicy, PreemptionMode
#include "runtime/speculation/Types.h"
#include "runtime/text/TextModel.h"
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::runtime {

enum class RequestKind {
  generate,  ///< tokens after a prompt
  embedding, ///< the prompt's hidden states after the last norm, pooled
};

/// How the hidden states of a prompt become one vector (as sentence-transformers names it).
enum class Pooling { last, mean };

/// What a client asks for. Token ids and parameters are validated by submit(); nothing here is trusted.
struct Request {
  RequestKind kind = RequestKind::generate;
  std::vector<int32_t> prompt; ///< token ids, at least one
  SamplingParams sampling;     ///< sampling.choice is set by the engine
  bool hasSeed = false;        ///< off: the engine draws one, and reports it in the `accepted` event
  uint32_t choices = 1;        ///< n; they share the prompt's KV blocks
  uint32_t maxTokens = UINT32_MAX;
  std::vector<int32_t> stopTokens; ///< end a choice and are not part of its text
  std::vector<std::string> stops;  ///< stop strings
  bool includeStop = false;        ///< a stop string stays in the text
  bool ignoreEnd = false;          ///< go on after the model's end tokens
  bool keepSpecial = false;        ///< show control tokens
  bool continues = true;           ///< the answer goes on a text (drops no leading space)
  int32_t promptLogprobs = -1;     ///< for each prompt token, so many likeliest tokens at its place; -1: none
  Pooling pooling = Pooling::last;
  std::optional<Speculation> speculate; ///< who drafts; none: RequestEngineOptions::speculate. Changes no token unless |acceptance| does
  Acceptance acceptance = Acceptance::exact; ///< of drafts; another than exact changes tokens, typical also their law

  /// Scheduling.
  std::string tenant;    ///< fair shares and the prefix cache are kept apart by it; "" is a tenant as any other
  std::string cacheSalt; ///< narrows the prefix cache further
  int32_t priority = 0;  ///< lower first, as in vLLM
  double deadline = 0;   ///< seconds from submission until the request is ended with `timeout`; 0: none
  double ttftTarget = 0; ///< seconds, for the deadline policy; 0: none
  double tpotTarget = 0; ///< seconds a token, for the deadline policy; 0: none
};

struct PromptLogprob {
  int32_t token;
  float logprob;                 ///< NaN for the first token, which nothing precedes
  std::vector<TokenLogprob> top; ///< best first
};

/// Tokens of one request.
struct RequestUsage {
  uint32_t promptTokens = 0;
  uint32_t cachedTokens = 0; ///< of the prompt, found in the prefix cache
  uint32_t newTokens = 0;    ///< over all choices
  uint32_t longestTokens = 0; ///< new tokens of the choice that has most
  uint32_t preemptions = 0;
  uint32_t draftedTokens = 0, acceptedTokens = 0; ///< of speculation
  double queueSeconds = 0; ///< submission until first scheduled
  double ttftSeconds = 0;  ///< submission until the first token
  double totalSeconds = 0;
};

/// Receives what happens to one request. Called on the engine's thread, in order; must return at once (it may not block,
/// take locks that a blocked thread may hold, or call the engine, except cancel()). After finished() nothing comes.
class RequestListener {
public:
  virtual ~RequestListener() = default;
  /// First of all: the seed that reproduces the request.
  virtual void accepted(uint64_t seed) { (void)seed; }
  virtual void promptDone(std::span<const PromptLogprob> logprobs) { (void)logprobs; }
  /// A token of |choice|, and the text that may be shown now: whole characters that cannot be part of a stop string any
  /// more, perhaps none. Text that was held back comes with a sample of token -1.
  virtual void piece(uint32_t choice, const Sample &sample, std::string_view text) = 0;
  /// |stopText|: the stop string that ended it, or empty; |stopToken|: the stop token, or -1.
  virtual void choiceDone(uint32_t choice, EndReason reason, std::string_view stopText, int32_t stopToken) = 0;
  /// Of an embedding request that was not cut short, instead of choiceDone(): not normalised.
  virtual void embedding(std::span<const float> values) { (void)values; }
  /// Last of all. |error| is ok unless the reason of some choice is `failed` or `rejected`.
  virtual void finished(const RequestUsage &usage, const Status &error) = 0;
};

struct RequestEngineOptions {
  unsigned threads = 0;          ///< 0: one per available core (affinity and CPU quota)
  bool pin = false;              ///< bind threads to cores
  uint32_t contextTokens = 0;    ///< of one sequence; 0: as many as the model was compiled for
  uint32_t maxSequences = 64;    ///< running at once
  uint64_t kvTokens = 0;         ///< KV cache, in tokens; 0: what memoryBudget allows, at most maxSequences contexts
  uint64_t memoryBudget = 0;     ///< bytes for KV cache, arena and scratch; 0: half of what the control group leaves free
  uint64_t savedKvBytes = 0;     ///< host memory for saved KV blocks; 0: none, preemption recomputes
  uint32_t stepTokens = 0;       ///< rows of a step; 0: 256. At most the program's rows, at least one a sequence
  uint32_t maxQueued = 256;      ///< waiting requests; one more is refused with resourceExhausted
  uint64_t maxQueuedTokens = 0;  ///< prompt tokens waiting; 0: no limit
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  PreemptionMode preemption = PreemptionMode::automatic;
  bool prefixCache = true;
  Speculation speculate = Speculation::off; ///< of requests that do not say
  bool freeDrafts = false;       ///< rows and runs of drafts count as free: whatever drafters propose is verified, if there is room
  double itlTarget = 0;          ///< seconds between tokens that chunked prefill aims to keep; 0: docs/engine.md, Chunks
  std::string tracePath = {};    ///< not empty: decisions are written here for `lathe replay`
  uint64_t shuffleBlocks = 0;    ///< test hook: not 0 places blocks at random
  bool poisonFreeBlocks = false; ///< test hook: free KV blocks hold NaN
  bool checkInvariants = false;  ///< test hook: full check after every step, not only when idle
  bool measureSteps = true;      ///< off (a test hook): decisions do not depend on how fast this machine is at start
};

/// A snapshot of gauges and counters, all since the start (docs/serving.md names the metrics made of it).
struct EngineStats {
  uint32_t running = 0, waiting = 0, preempted = 0;
  uint64_t waitingTokens = 0;
  uint64_t kvBlocks = 0, kvBlocksUsed = 0, kvBlocksCached = 0; ///< cached: in the prefix cache and free to take
  uint64_t draftBlocksUsed = 0; ///< of the draft program's own KV groups
  uint64_t savedKvBytes = 0;
  BlockTimes kvTimes;
  uint64_t steps = 0, rows = 0, promptTokens = 0, newTokens = 0;
  uint64_t choiceSteps = 0; ///< whose rows needed the largest logit only, so that no logits were written
  uint64_t prefixQueried = 0, prefixHit = 0; ///< tokens
  uint64_t preemptedRecompute = 0, preemptedSave = 0; ///< by what it costs later, ...
  uint64_t preemptedBlocks = 0, preemptedPriority = 0; ///< ... and by reason: for want of blocks, for a better priority
  uint64_t rejectedQueue = 0, rejectedDeadline = 0;
  uint64_t endedStop = 0, endedLength = 0, endedCancelled = 0, endedTimeout = 0, endedFailed = 0; ///< choices
  uint64_t corrupted = 0; ///< requests that met logits or hidden states that are not finite
  uint64_t weightBytes = 0; ///< read by all steps
  double busySeconds = 0;   ///< the device worked
  double schedulerSeconds = 0, samplerSeconds = 0;
  SpeculationStats speculation;
  double drafterSeconds = 0;
  bool broken = false; ///< an invariant does not hold: RequestEngine::broken() says which
};

/// Histograms are fed per event; the engine calls this on its own thread.
class EngineObserver {
public:
  virtual ~EngineObserver() = default;
  virtual void step(uint32_t rows, double seconds) = 0;
  virtual void firstToken(const std::string &tenant, double seconds) = 0;
  virtual void tokenGap(const std::string &tenant, double seconds) = 0;
  virtual void requestDone(const std::string &tenant, EndReason reason, const RequestUsage &usage) = 0;
};

/// Values of `prompt_logprobs` that one request may ask for: so many a token, times its tokens.
constexpr uint64_t maxPromptScores = 1 << 20;

/// Limits in force, for the lines a server prints at start.
struct EngineLimits {
  uint64_t kvTokens = 0;
  uint32_t contextTokens = 0, maxSequences = 0, stepTokens = 0, maxQueued = 0;
  uint64_t maxQueuedTokens = 0; ///< 0: no limit
  uint64_t memoryBytes = 0, savedKvBytes = 0;
  double saveBytesPerSecond = 0; ///< of copies of KV blocks between device and host, measured; 0: it was not
  unsigned threads = 0;
  uint32_t pageTokens = 0; ///< of the prefix cache: the largest page
  bool prefixCache = false;
  bool generalGraph = false; ///< one sequence at a time in a contiguous cache; exact tokens are not promised
};

class RequestEngine {
public:
  /// |text| may be null: then there are neither texts, stop strings nor end tokens. Starts the engine's thread.
  /// Errors: invalidArgument, resourceExhausted (a budget that cannot hold one context names the longest that fits).
  static Result<std::unique_ptr<RequestEngine>> create(std::shared_ptr<LoadedArtifact> artifact,
                                                       std::shared_ptr<const TextModel> text,
                                                       const RequestEngineOptions &options, Device *device = nullptr,
                                                       EngineObserver *observer = nullptr);
  /// Ends every request with `cancelled` and joins the thread.
  virtual ~RequestEngine() = default;

  /// Checks and queues a request. Thread-safe; does not wait for a step. Errors, all before any event:
  /// invalidArgument (the message names the field), resourceExhausted (queue full, or the deadline policy
  /// foresees that the target cannot be met: retryAfter() says when to try again), failedPrecondition (draining).
  virtual Result<RequestId> submit(Request request, std::shared_ptr<RequestListener> listener) = 0;
  /// Ends a request within one step; unknown or ended ids are ignored. Thread-safe, callable from a listener.
  virtual void cancel(RequestId id) = 0;
  /// Refuses new requests from now on; the ones inside go on. Thread-safe.
  virtual void drain() = 0;
  /// No request is inside. Thread-safe.
  virtual bool idle() const = 0;
  /// Blocks until idle() or until |seconds| have passed; returns idle().
  virtual bool waitIdle(double seconds) = 0;

  virtual EngineStats stats() const = 0; ///< thread-safe
  /// The first invariant that was found broken, by the check of each idle moment (and after every step, if the options
  /// say so); ok: none. A bug of the engine's own. Thread-safe.
  virtual Status broken() const { return Status(); }
  virtual EngineLimits limits() const = 0;
  /// Seconds after which a refused request should be tried again. Thread-safe.
  virtual double retryAfter() const = 0;
  /// Empties the prefix cache, between two steps.
  virtual void clearPrefixCache() = 0;
};

} // namespace lathe::runtime
