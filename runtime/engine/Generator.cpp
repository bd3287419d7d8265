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
  case FinishReason::failed:
    return "failed";
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

/// Samples for one request from the logits of its last token, or, with |largest|, from what Executable::choice() says of them; marks it done when that
/// ends it.
void takeToken(Engine &engine, Sampler &sampler, const GenerateRequest &request, GenerateResult &result,
                 Active &state, std::span<const float> row, bool largest) {
  uint32_t length = engine.length(request.sequence);
  Sample sample;
  Status status = largest ? sampler.take(row[0], row[1], length, sample)
                          : sampler.sample(row, request.sampling, state.history, length, {}, request.sampling.choice, sample);
  if (!status.ok()) {
    result.reason = FinishReason::failed;
    result.error = std::move(status);
    state.done = true;
    return;
  }
  if (std::find(request.stopTokens.begin(), request.stopTokens.end(), sample.token) != request.stopTokens.end()) {
    result.reason = FinishReason::stop;
    result.stopToken = sample.token;
    state.done = true;
    return;
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
}

Status check(const Engine &engine, const GenerateRequest &r) {
  auto vocabulary = static_cast<int32_t>(engine.program().vocabulary);
  LATHE_RETURN_IF_ERROR(r.sampling.validate(vocabulary));
  if (r.prompt.empty()) return makeError(StatusCode::invalidArgument, "expected a prompt of at least one token");
  if (r.prompt.size() > engine.contextTokens())
    return makeError(StatusCode::invalidArgument, "the prompt has %zu tokens, the context holds %u", r.prompt.size(),
                     engine.contextTokens());
  for (size_t i = 0; i < r.prompt.size(); ++i)
    if (r.prompt[i] < 0 || r.prompt[i] >= vocabulary)
      return makeError(StatusCode::invalidArgument, "token %zu: expected an id in 0..%d, found %d", i, vocabulary - 1,
                       r.prompt[i]);
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
    results[i] = {};
    active[i].request = i;
    if (Status wrong = check(engine, r); !wrong.ok()) {
      results[i].reason = FinishReason::failed;
      results[i].error = std::move(wrong);
      active[i].done = true;
      continue;
    }
    for (int32_t token : r.prompt)
      active[i].history.addPrompt(token);
    if (r.maxTokens == 0) {
      active[i].done = true;
      continue;
    }
    results[i].ids.reserve(std::min<size_t>(r.maxTokens, engine.contextTokens()));
  }
  auto begin = Clock::now();
  std::vector<size_t> owner; // of each item of |work|
  for (size_t i = 0; i < requests.size(); ++i) {
    if (results[i].reason == FinishReason::failed) continue;
    results[i].cachedTokens = engine.keepPrefix(requests[i].sequence, requests[i].prompt);
    std::span<const int32_t> rest = requests[i].prompt.subspan(results[i].cachedTokens);
    times.promptTokens += rest.size();
    work.push_back({requests[i].sequence, rest, active[i].done ? OutputRows::none : OutputRows::last});
    owner.push_back(i);
  }
  bool largest = false;
  RowSink sink = [&](size_t w, size_t, std::span<const float> row) {
    Active &state = active[owner[w]];
    ++times.newTokens;
    takeToken(engine, sampler, requests[state.request], results[state.request], state, row, largest);
    return Status();
  };
  // No logits where all samples of a step are their largest.
  auto forward = [&] {
    largest = engine.program().choicesStride && std::all_of(active.begin(), active.end(), [&](const Active &state) {
                return state.done || Sampler::takesLargest(requests[state.request].sampling, state.history);
              });
    return largest ? engine.forward(work, nullptr, nullptr, sink) : engine.forward(work, sink);
  };
  if (!work.empty()) LATHE_RETURN_IF_ERROR(forward());
  times.promptSeconds += secondsSince(begin);

  begin = Clock::now();
  while (true) {
    std::erase_if(active, [](const Active &state) { return state.done; });
    if (active.empty()) break;
    work.clear();
    owner.clear();
    for (size_t a = 0; a < active.size(); ++a) {
      work.push_back({requests[active[a].request].sequence, {&active[a].next, 1}, OutputRows::last});
      owner.push_back(a);
    }
    Status status = forward();
    if (status.code() == StatusCode::cancelled) { // what there is of the answers is theirs
      for (const Active &state : active)
        results[state.request].reason = FinishReason::cancelled;
      break;
    }
    LATHE_RETURN_IF_ERROR(status);
    ++times.steps;
  }
  times.decodeSeconds += secondsSince(begin);
  return Status();
}

} // namespace lathe::runtime
