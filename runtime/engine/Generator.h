//===- Generator.h - tokens after a prompt ------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/Engine.h"
#include "runtime/sampling/Sampler.h"
#include <functional>
#include <span>
#include <vector>

namespace lathe::runtime {

enum class FinishReason { stop, length, cancelled, failed };
const char *toString(FinishReason reason);

struct GenerateRequest {
  SequenceId sequence = 0; ///< open; what it already holds of |prompt| is not computed again
  std::span<const int32_t> prompt;
  SamplingParams sampling;
  uint32_t maxTokens = UINT32_MAX;
  std::span<const int32_t> stopTokens; ///< end the generation and are not part of the result
  /// Called for each token in order. False ends the generation with the reason `cancelled`, and the token counts.
  /// So does the engine's own flag (Engine::cancelOn) between two steps; before the first token it is an error.
  std::function<bool(const Sample &)> onToken;
};

struct GenerateResult {
  std::vector<int32_t> ids;
  FinishReason reason = FinishReason::length;
  int32_t stopToken = -1;    ///< the stop token that ended it, or -1
  uint32_t cachedTokens = 0; ///< of the prompt, already in the sequence
  Status error;              ///< of this request alone, when the reason is `failed`
};

struct GenerateTimings {
  uint64_t promptTokens = 0; ///< computed, of all requests
  uint64_t newTokens = 0;    ///< sampled, of all requests
  uint64_t steps = 0;        ///< decode steps
  double promptSeconds = 0;  ///< until the first tokens are there
  double decodeSeconds = 0;
};

/// Generates for all |requests| together: their prompts in one ragged batch, then a token of each per step.
/// A context that is full ends a request with the reason `length`. What is wrong with one request ends that one with the
/// reason `failed` and its `error`, and shows in no other: wrong sampling parameters, an empty prompt, one that does
/// not fit the context (both lengths named), a token outside the vocabulary, errors of Sampler::sample (NaN logits).
/// Errors of the call: those of Engine::forward, which all requests share.
Status generate(Engine &engine, std::span<const GenerateRequest> requests, std::span<GenerateResult> results,
                GenerateTimings *timings = nullptr);

} // namespace lathe::runtime
