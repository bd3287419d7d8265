//===- Generator.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/Generator.h"
#include <algorithm>
#include <chrono>

namespace lathe::runtime {

const char *toString(FinishReason reason) {
  switch (reason) {
  case FinishReason::stop:
    return "stop";
  case FinishReason::length:
    return "length";
  case FinishReason::cancelled:
    return "cancelled";
  }
  return "unknown";
}

namespace {

using Clock = std::chrono::steady_clock;
double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Active {
  size_t request = 0;
  TokenHistory history;
  int32_t next = -1; ///< sampled, not yet in the sequence
  bool done = false;
};

/// Samples for one request from the logits of its last token; marks it done when that ends it.
Status takeToken(Engine &engine, Sampler &sampler, const GenerateRequest &request, GenerateResult &result,
                 Active &state, std::span<const float> logits) {
  uint32_t length = engine.length(request.sequence);
  LATHE_ASSIGN_OR_RETURN(Sample sample, sampler.sample(logits, request.sampling, state.history, length));
  if (std::find(request.stopTokens.begin(), request.stopTokens.end(), sample.token) != request.stopTokens.end()) {
    result.reason = FinishReason::stop;
    result.stopToken = sample.token;
    state.done = true;
    return Status();
  }
  state.next = sample.token;
  state.history.addOutput(sample.token);
  result.ids.push_back(sample.token);
  if (request.onToken && !request.onToken(sample)) {
    result.reason = FinishReason::cancelled;
    state.done = true;
  } else if (result.ids.size() >= request.maxTokens || length >= engine.contextTokens()) {
    result.reason = FinishReason::length; // no room for this token's KV entry, so none after it
    state.done = true;
  }
  return Status();
}

} // namespace

Status generate(Engine &engine, std::span<const GenerateRequest> requests, std::span<GenerateResult> results,
                GenerateTimings *timings) {
  GenerateTimings unused;
  GenerateTimings &times = timings ? *timings : unused;
  Sampler sampler(static_cast<int32_t>(engine.program().vocabulary));
  std::vector<Active> active(requests.size());
  std::vector<Work> work;
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerateRequest &r = requests[i];
    LATHE_RETURN_IF_ERROR(r.sampling.validate(static_cast<int32_t>(engine.program().vocabulary)));
    if (r.prompt.empty()) return makeError(StatusCode::invalidArgument, "expected a prompt of at least one token");
    if (r.prompt.size() > engine.contextTokens())
      return makeError(StatusCode::invalidArgument, "the prompt has %zu tokens, the context holds %u", r.prompt.size(),
                       engine.contextTokens());
    results[i] = {};
    active[i].request = i;
    for (int32_t token : r.prompt)
      active[i].history.addPrompt(token);
    if (r.maxTokens == 0) {
      active[i].done = true;
      continue;
    }
    results[i].ids.reserve(std::min<size_t>(r.maxTokens, engine.contextTokens()));
  }
  auto begin = Clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    results[i].cachedTokens = engine.keepPrefix(requests[i].sequence, requests[i].prompt);
    std::span<const int32_t> rest = requests[i].prompt.subspan(results[i].cachedTokens);
    times.promptTokens += rest.size();
    work.push_back({requests[i].sequence, rest, active[i].done ? OutputRows::none : OutputRows::last});
  }
  RowSink sink = [&](size_t w, size_t, std::span<const float> logits) {
    Active &state = active[w];
    ++times.newTokens;
    return takeToken(engine, sampler, requests[state.request], results[state.request], state, logits);
  };
  LATHE_RETURN_IF_ERROR(engine.forward(work, sink));
  times.promptSeconds += secondsSince(begin);

  begin = Clock::now();
  while (true) {
    std::erase_if(active, [](const Active &state) { return state.done; });
    if (active.empty()) break;
    work.clear();
    for (const Active &state : active)
      work.push_back({requests[state.request].sequence, {&state.next, 1}, OutputRows::last});
    LATHE_RETURN_IF_ERROR(engine.forward(work, sink));
    ++times.steps;
  }
  times.decodeSeconds += secondsSince(begin);
  return Status();
}

} // namespace lathe::runtime
