//===- FakeEngine.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "FakeEngine.h"
#include <cmath>

namespace lathe::test {
using namespace runtime;

FakeEngine::FakeEngine(Choose choose) : choose(std::move(choose)) {
  bounds.kvTokens = 1024;
  bounds.contextTokens = 256;
  bounds.maxSequences = 64;
  bounds.maxQueued = 256;
  bounds.threads = 1;
}

FakeEngine::~FakeEngine() {
  for (auto &job : jobs)
    job->stop = true;
  changed.notify_all();
  for (auto &job : jobs)
    job->thread.join();
}

Result<RequestId> FakeEngine::submit(Request request, std::shared_ptr<RequestListener> listener) {
  Script script = choose(request);
  if (!script.refuse.ok()) return script.refuse;
  std::lock_guard lock(mutex);
  log.push_back(request);
  auto job = std::make_unique<Job>();
  job->id = next++;
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->script = std::move(script);
  ++running;
  job->thread = std::thread([this, raw = job.get()] { speak(*raw); });
  jobs.push_back(std::move(job));
  return jobs.back()->id;
}

void FakeEngine::cancel(RequestId id) {
  std::lock_guard lock(mutex);
  for (auto &job : jobs)
    if (job->id == id) job->stop = true;
  changed.notify_all();
}

bool FakeEngine::wait(Job &job, double seconds) {
  if (seconds <= 0) return !job.stop;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return job.stop.load(); });
  return !job.stop;
}

void FakeEngine::speak(Job &job) {
  const Request &r = job.request;
  const Script &s = job.script;
  RequestListener &to = *job.listener;
  RequestUsage usage;
  usage.promptTokens = static_cast<uint32_t>(r.prompt.size());
  usage.cachedTokens = s.cachedTokens;
  to.accepted(r.hasSeed ? r.sampling.seed : 77);
  bool going = wait(job, s.secondsBefore);
  auto likeliest = [](int32_t most, int32_t token) {
    std::vector<TokenLogprob> top;
    for (int32_t i = 0; i < most; ++i)
      top.push_back({token + i, -0.5f - static_cast<float>(i)});
    return top;
  };
  if (r.kind == RequestKind::embedding) {
    if (going) to.embedding(s.embedding);
  } else {
    std::vector<PromptLogprob> logprobs;
    if (r.promptLogprobs >= 0)
      for (size_t i = 0; i < r.prompt.size(); ++i)
        logprobs.push_back({r.prompt[i], i ? -0.25f : std::nanf(""), i ? likeliest(r.promptLogprobs, r.prompt[i]) : std::vector<TokenLogprob>()});
    if (going) to.promptDone(logprobs);
    uint64_t count = std::min<uint64_t>(s.tokens.size() * s.repeat, r.maxTokens);
    uint64_t said = 0;
    for (; going && said < count; ++said) {
      if (said) going = wait(job, s.secondsBetween);
      if (!going) break;
      const Script::Token &token = s.tokens[said % s.tokens.size()];
      for (uint32_t choice = 0; choice < r.choices; ++choice) {
        Sample sample;
        sample.token = token.id;
        if (r.sampling.logprobs >= 0) {
          sample.logprob = -0.5f;
          sample.top = likeliest(r.sampling.logprobs, token.id);
        }
        to.piece(choice, sample, token.text);
        ++usage.newTokens;
        ++tokensSaid;
      }
      going = !job.stop;
    }
    bool cut = going && said == r.maxTokens && said < s.tokens.size() * s.repeat;
    EndReason reason = !s.fail.ok() ? EndReason::failed : !going ? EndReason::cancelled : cut ? EndReason::length : s.reason;
    for (uint32_t choice = 0; choice < r.choices; ++choice)
      to.choiceDone(choice, reason, reason == EndReason::stop ? s.stopText : "", reason == EndReason::stop ? s.stopToken : -1);
  }
  if (!going) ++cancelled;
  to.finished(usage, s.fail);
  job.listener = nullptr;
  --running;
  std::lock_guard lock(mutex);
  changed.notify_all();
}

bool FakeEngine::waitIdle(double seconds) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return running == 0; });
}

EngineStats FakeEngine::stats() const {
  ++asked;
  std::lock_guard pass(gate);
  EngineStats stats;
  stats.running = static_cast<uint32_t>(running.load());
  stats.kvBlocks = 100;
  stats.kvBlocksUsed = 25;
  stats.newTokens = tokensSaid;
  stats.weightBytes = 1000;
  stats.preemptedSave = 2;
  stats.preemptedRecompute = 1;
  return stats;
}

EngineLimits FakeEngine::limits() const { return bounds; }

std::vector<Request> FakeEngine::seen() const {
  std::lock_guard lock(mutex);
  return log;
}

} // namespace lathe::test
