//===- FakeEngine.h - an engine that says what it is told to -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The test double of RequestEngine: tokens, errors, waits and a full queue by script, on a thread of its own, with the
// real engine's order of events.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/RequestEngine.h"
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lathe::test {

/// What one request gets. The defaults answer "Hello world" in three tokens.
struct Script {
  struct Token {
    int32_t id;
    std::string text;
  };
  std::vector<Token> tokens = {{1, "Hel"}, {2, "lo"}, {3, " world"}};
  runtime::EndReason reason = runtime::EndReason::stop;
  std::string stopText;
  int32_t stopToken = -1;
  uint32_t cachedTokens = 0;
  double secondsBefore = 0, secondsBetween = 0; ///< waits, ended by cancel() at once
  uint64_t repeat = 1;  ///< how often the tokens come
  Status refuse;        ///< of submit()
  Status fail;          ///< after the tokens: every choice ends with `failed`
  std::vector<float> embedding = {3, 4, 0};
};

class FakeEngine final : public runtime::RequestEngine {
public:
  using Choose = std::function<Script(const runtime::Request &)>;
  explicit FakeEngine(Choose choose = [](const runtime::Request &) { return Script(); });
  ~FakeEngine() override;

  Result<runtime::RequestId> submit(runtime::Request request, std::shared_ptr<runtime::RequestListener> listener) override;
  void cancel(runtime::RequestId id) override;
  void drain() override {}
  bool idle() const override { return running == 0; }
  bool waitIdle(double seconds) override;
  runtime::EngineStats stats() const override;
  runtime::EngineLimits limits() const override;
  double retryAfter() const override { return 7; }
  void clearPrefixCache() override {}

  /// What has been submitted so far.
  std::vector<runtime::Request> seen() const;
  runtime::EngineLimits bounds; ///< what limits() says
  mutable std::mutex gate; ///< stats() waits for it: who holds it holds the worker that asks for /metrics
  std::atomic<uint64_t> running{0}, cancelled{0}, tokensSaid{0};
  mutable std::atomic<uint64_t> asked{0}; ///< stats(), before the gate

private:
  struct Job {
    runtime::RequestId id;
    runtime::Request request;
    std::shared_ptr<runtime::RequestListener> listener;
    Script script;
    std::atomic<bool> stop{false};
    std::thread thread;
  };
  void speak(Job &job);
  bool wait(Job &job, double seconds);
  Choose choose;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Job>> jobs;
  std::vector<runtime::Request> log;
  runtime::RequestId next = 1;
};

} // namespace lathe::test
