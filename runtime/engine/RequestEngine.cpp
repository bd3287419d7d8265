//===- RequestEngine.cpp - the engine's thread and its inbox --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/RequestEngine.h"
#include "runtime/engine/EngineCore.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>

namespace lathe::runtime {
namespace {

std::atomic<RequestId> nextId{1};

class ThreadedEngine final : public RequestEngine {
public:
  explicit ThreadedEngine(std::unique_ptr<EngineCore> made)
      : core(std::move(made)), check(core->check()), limit(core->limits()) {
    std::random_device random;
    seeds.seed((uint64_t(random()) << 32) | random());
    core->onPlan = [this] { publish(); };
    publish();
    thread = std::thread([this] { loop(); });
  }

  ~ThreadedEngine() override {
    {
      std::lock_guard lock(mutex);
      stopping = draining = true;
    }
    wake.notify_one();
    thread.join();
  }

  Result<RequestId> submit(Request request, std::shared_ptr<RequestListener> listener) override {
    if (!listener) return Status(StatusCode::invalidArgument, "expected a listener");
    LATHE_RETURN_IF_ERROR(check(request));
    uint64_t tokens = request.prompt.size();
    RequestId id = nextId.fetch_add(1, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex);
      if (draining) return Status(StatusCode::failedPrecondition, "the engine is shutting down and takes no requests");
      Reason why = Reason::none;
      if (Status full = room(tokens, request, why); !full.ok()) {
        ++(why == Reason::rejectTtft || why == Reason::rejectTpot ? refusedTargets : refused);
        return full;
      }
      if (!request.hasSeed) request.sampling.seed = seeds() >> 11; // exact in JSON's doubles
      waiting += 1;
      waitingTokens += tokens;
      ++inside;
      inbox.push_back({id, std::move(request), std::move(listener), core->now()});
    }
    wake.notify_one();
    return id;
  }

  void cancel(RequestId id) override {
    {
      std::lock_guard lock(mutex);
      cancels.push_back(id);
    }
    wake.notify_one();
  }

  void drain() override {
    std::lock_guard lock(mutex);
    draining = true;
  }

  bool idle() const override {
    std::lock_guard lock(mutex);
    return inside == 0;
  }

  bool waitIdle(double seconds) override {
    std::unique_lock lock(mutex);
    return idleChanged.wait_for(lock, std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)),
                                [&] { return inside == 0; });
  }

  EngineStats stats() const override {
    std::lock_guard lock(mutex);
    EngineStats out = snapshot;
    out.waiting = waiting;
    out.waitingTokens = waitingTokens;
    out.rejectedQueue += refused;
    out.rejectedDeadline += refusedTargets;
    return out;
  }

  Status broken() const override {
    std::lock_guard lock(mutex);
    return invariant;
  }

  EngineLimits limits() const override { return limit; }

  double retryAfter() const override {
    std::lock_guard lock(mutex);
    return forecast.retryAfter();
  }

  void clearPrefixCache() override {
    {
      std::lock_guard lock(mutex);
      clearing = true;
    }
    wake.notify_one();
  }

private:
  struct Submission {
    RequestId id;
    Request request;
    std::shared_ptr<RequestListener> listener;
    double arrival;
  };

  /// What is in the inbox counts as waiting. Under the lock.
  Status room(uint64_t tokens, const Request &request, Reason &why) const {
    why = Reason::rejectQueue;
    if (waiting >= limit.maxQueued)
      return makeError(StatusCode::resourceExhausted, "%u requests are waiting, which is the limit", waiting);
    AdmissionForecast seen = forecast;
    seen.waiting = waiting;
    seen.waitingTokens = waitingTokens;
    return seen.check(tokens, request.ttftTarget, request.tpotTarget, &why);
  }

  void publish() {
    EngineStats stats = core->stats();
    AdmissionForecast ahead = core->forecast();
    std::lock_guard lock(mutex);
    if (stats.broken && invariant.ok()) {
      invariant = core->broken();
      std::fprintf(stderr, "lathe: error: an invariant of the engine does not hold: %s\n", invariant.message().c_str());
    }
    snapshot = stats;
    forecast = ahead;
    waiting = core->waiting();
    waitingTokens = core->waitingTokens();
    for (const Submission &s : inbox) {
      ++waiting;
      waitingTokens += s.request.prompt.size();
    }
    inside = core->inside() + inbox.size();
    if (inside == 0) idleChanged.notify_all();
  }

  void loop() {
    bool busy = false;
    while (true) {
      bool clear = false;
      {
        std::unique_lock lock(mutex);
        auto something = [&] { return stopping || clearing || !inbox.empty() || !cancels.empty(); };
        if (!busy && !something() && core->idle()) {
          lock.unlock();
          bool more = core->warmMemory(); // one block: whoever comes meanwhile does not wait for more
          lock.lock();
          if (more) continue;
        }
        if (!busy && !something()) {
          double until = core->wakeAt() - core->now();
          if (core->idle() || !(until < 1e8))
            wake.wait(lock, something);
          else if (until > 0)
            wake.wait_for(lock, std::chrono::duration<double>(until), something);
        }
        if (stopping) break;
        taken.swap(inbox);
        takenCancels.swap(cancels);
        clear = std::exchange(clearing, false);
      }
      if (clear) core->clearPrefixCache();
      for (Submission &s : taken)
        core->add(s.id, std::move(s.request), std::move(s.listener), s.arrival);
      taken.clear();
      for (RequestId id : takenCancels)
        core->cancel(id);
      takenCancels.clear();
      busy = core->step();
      publish();
    }
    for (Submission &s : inbox) // nobody submits any more
      core->add(s.id, std::move(s.request), std::move(s.listener), s.arrival);
    inbox.clear();
    core->cancelAll();
    while (!core->idle() && core->step()) {
    }
    publish();
  }

  std::unique_ptr<EngineCore> core; ///< of the thread; its clock, checks and limits are everybody's
  const RequestCheck &check;
  const EngineLimits limit;
  mutable std::mutex mutex;
  std::condition_variable wake, idleChanged;
  // Under the mutex.
  std::vector<Submission> inbox;
  std::vector<RequestId> cancels;
  std::mt19937_64 seeds;
  bool stopping = false, draining = false, clearing = false;
  uint32_t waiting = 0;
  uint64_t waitingTokens = 0, refused = 0, refusedTargets = 0;
  size_t inside = 0;
  EngineStats snapshot;
  Status invariant; ///< the first that does not hold
  AdmissionForecast forecast;
  // Of the thread.
  std::vector<Submission> taken;
  std::vector<RequestId> takenCancels;
  std::thread thread;
};

} // namespace

Result<std::unique_ptr<RequestEngine>> RequestEngine::create(std::shared_ptr<LoadedArtifact> artifact,
                                                             std::shared_ptr<const TextModel> text,
                                                             const RequestEngineOptions &options, Device *device,
                                                             EngineObserver *observer) {
  LATHE_ASSIGN_OR_RETURN(auto core,
                         EngineCore::create(std::move(artifact), std::move(text), options, device, observer, {}));
  return std::unique_ptr<RequestEngine>(std::make_unique<ThreadedEngine>(std::move(core)));
}

} // namespace lathe::runtime
