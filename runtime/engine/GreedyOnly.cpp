//===- GreedyOnly.cpp - stands in while runtime/sampling has no sampler --===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Temperature 0 only. Not built once runtime/sampling/Sampler.cpp exists.
//===----------------------------------------------------------------------===//
#include "runtime/sampling/Sampler.h"
#include <algorithm>

namespace lathe {

Status SamplingParams::validate(int32_t) const {
  if (temperature == 0) return Status();
  return Status(StatusCode::unsupported, "sampling is not built in yet: expected temperature 0");
}
void TokenHistory::addPrompt(int32_t) {}
void TokenHistory::addOutput(int32_t) {}
Sampler::Sampler(int32_t vocabSize) : vocabSize(vocabSize) {}
Result<Sample> Sampler::sample(std::span<const float> logits, const SamplingParams &, const TokenHistory &, uint32_t,
                               std::span<const uint32_t>) {
  logits = logits.first(static_cast<size_t>(vocabSize));
  Sample s;
  s.token = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  return s;
}

} // namespace lathe
