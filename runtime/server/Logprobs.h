//===- Logprobs.h - log probabilities in the API's three shapes ----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/server/Request.h"
#include <span>

namespace lathe::server {

/// The bytes of a token as it stands in a text; its number where the model has no tokenizer.
std::string tokenText(const ServedModel &model, int32_t id);

/// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}
std::string chatLogprobs(const ServedModel &model, const std::vector<Sample> &tokens);

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: lists of equal length. Offsets count characters.
class CompletionLogprobs {
public:
  CompletionLogprobs(const ServedModel &model, int32_t most, uint64_t offset = 0)
      : model(model), most(most), at(offset) {}
  void add(const std::vector<Sample> &tokens);
  /// A prompt's; the first token has none.
  void add(const std::vector<runtime::PromptLogprob> &tokens);
  uint64_t offset() const { return at; }
  std::string object() const;

private:
  void add(int32_t token, float logprob, std::span<const TokenLogprob> top);
  const ServedModel &model;
  int32_t most;
  uint64_t at;
  std::string names, logprobs, tops, offsets;
};

/// vLLM's list: null for the first token, then for each {"ID": {"logprob", "rank", "decoded_token"}}. The rank is null for a
/// prompt token that is not among the likeliest.
std::string promptLogprobs(const ServedModel &model, const std::vector<runtime::PromptLogprob> &tokens, int32_t most);

/// Little-endian float32 values.
std::string base64(const std::vector<float> &values);

} // namespace lathe::server
