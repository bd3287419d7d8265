//===- RequestCheck.cpp - what a request may ask for ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/EngineCore.h"
#include <algorithm>
#include <cinttypes>
#include <cmath>

namespace lathe::runtime {
namespace {

// A request may not take memory or time out of proportion to its prompt.
constexpr size_t maxStops = 64, maxStopBytes = 16 << 10, maxNameBytes = 1024, maxStopTokens = 4096;

template <typename... Args> Status wrong(const char *format, Args... args) {
  if constexpr (sizeof...(args) == 0)
    return Status(StatusCode::invalidArgument, format);
  else
    return makeError(StatusCode::invalidArgument, format, args...);
}

Status seconds(const char *field, double value) {
  if (value >= 0 && std::isfinite(value)) return Status();
  return wrong("%s: expected seconds >= 0, found %g", field, value);
}

} // namespace

Status RequestCheck::operator()(const Request &r) const {
  auto vocabulary = static_cast<int32_t>(program.vocabulary);
  if (r.prompt.empty()) return wrong("prompt: expected at least one token");
  if (r.prompt.size() > limits.contextTokens)
    return wrong("prompt: %zu tokens, the context holds %u", r.prompt.size(), limits.contextTokens);
  for (size_t i = 0; i < r.prompt.size(); ++i)
    if (r.prompt[i] < 0 || r.prompt[i] >= vocabulary)
      return wrong("prompt: token %zu: expected an id in 0..%d, found %d", i, vocabulary - 1, r.prompt[i]);
  uint32_t mostChoices = std::min(limits.maxSequences, 128u);
  if (r.choices < 1 || r.choices > mostChoices) return wrong("n: expected 1 to %u, found %u", mostChoices, r.choices);
  if (r.choices > 1 && r.maxTokens == 0) return wrong("n: expected 1 when max_tokens is 0, found %u", r.choices);
  LATHE_RETURN_IF_ERROR(r.sampling.validate(vocabulary));
  if (r.sampling.logitBias.size() > program.vocabulary)
    return wrong("logit_bias: expected at most %u entries, found %zu", program.vocabulary, r.sampling.logitBias.size());
  if (r.stopTokens.size() > maxStopTokens || r.sampling.stopTokenIds.size() > maxStopTokens)
    return wrong("stop_token_ids: expected at most %zu tokens, found %zu", maxStopTokens,
                 std::max(r.stopTokens.size(), r.sampling.stopTokenIds.size()));
  for (int32_t token : r.stopTokens)
    if (token < 0 || token >= vocabulary)
      return wrong("stop_token_ids: expected token ids below %d, found %d", vocabulary, token);
  size_t stopBytes = 0;
  for (const std::string &stop : r.stops)
    stopBytes += stop.size();
  if (r.stops.size() > maxStops)
    return wrong("stop: expected at most %zu strings, found %zu", maxStops, r.stops.size());
  if (stopBytes > maxStopBytes)
    return wrong("stop: expected at most %zu bytes in all, found %zu", maxStopBytes, stopBytes);
  if (stopBytes && !text) return wrong("stop: the model has no tokenizer, so there is no text to find it in");
  if (r.promptLogprobs < -1 || r.promptLogprobs > vocabulary)
    return wrong("prompt_logprobs: expected -1 to %d, found %d", vocabulary, r.promptLogprobs);
  uint64_t scores = r.promptLogprobs > 0 ? uint64_t(r.promptLogprobs) * r.prompt.size() : 0;
  if (scores > maxPromptScores)
    return wrong("prompt_logprobs: expected at most %" PRIu64 " values for a prompt, found %" PRIu64, maxPromptScores,
                 scores);
  if (r.tenant.size() > maxNameBytes || r.cacheSalt.size() > maxNameBytes)
    return wrong("%s: expected at most %zu bytes, found %zu", r.tenant.size() > maxNameBytes ? "tenant" : "cache_salt",
                 maxNameBytes, std::max(r.tenant.size(), r.cacheSalt.size()));
  if (r.kind == RequestKind::generate && limits.generalGraph && r.speculate.value_or(Speculation::off) != Speculation::off)
    return Status(StatusCode::unsupported, "speculate: expected off, because the model is a general graph, whose one cache has no KV blocks to draft with");
  if (r.kind == RequestKind::generate && r.speculate)
    if (Status can = checkDrafts(program, *r.speculate); !can.ok()) return makeError(can.code(), "speculate: %s", can.message().c_str());
  LATHE_RETURN_IF_ERROR(seconds("deadline", r.deadline));
  LATHE_RETURN_IF_ERROR(seconds("ttft_target", r.ttftTarget));
  LATHE_RETURN_IF_ERROR(seconds("tpot_target", r.tpotTarget));
  if (r.kind == RequestKind::embedding) {
    if (r.choices != 1) return wrong("n: an embedding has one choice, found %u", r.choices);
    if (r.promptLogprobs >= 0) return wrong("prompt_logprobs: an embedding has none");
    if (!program.embeddingStride)
      return makeError(StatusCode::unsupported,
                       "the artifact has no 'embed' entry: its model does not end in a norm and "
                       "a linear, or an older compiler made it; compile it again");
  }
  return Status();
}

} // namespace lathe::runtime
