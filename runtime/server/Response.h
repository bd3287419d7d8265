//===- Response.h - answers in OpenAI's shapes ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/server/Events.h"
#include "runtime/server/Request.h"

namespace lathe::server {

/// One choice so far. |text| and |tokens| are kept only for answers that are not streamed.
struct ChoiceState {
  std::string text;
  std::vector<Sample> tokens; ///< with their logprobs, if asked for
  bool done = false;
  runtime::EndReason reason = runtime::EndReason::stop;
  std::string stopText;
  int32_t stopToken = -1;
  uint64_t offset = 0; ///< characters of the tokens sent so far, for text_offset
};

/// One of the engine's requests so far.
struct PromptState {
  std::vector<int32_t> tokens; ///< of the prompt, kept where the answer repeats them
  std::vector<ChoiceState> choices;
  std::vector<runtime::PromptLogprob> logprobs;
  std::vector<float> embedding;
  uint64_t seed = 0;
  runtime::RequestUsage usage;
  bool finished = false;
};

/// What all objects of one answer have in common.
struct AnswerHead {
  std::string id;
  int64_t created = 0; ///< seconds since 1970
};

/// The whole answer of a request that is not streamed.
std::string answerBody(const AnswerHead &head, const ApiRequest &request, const ServedModel &model,
                       const std::vector<PromptState> &prompts);

/// The events of a stream, each "data: {...}\n\n".
class ChunkWriter {
public:
  ChunkWriter(const AnswerHead &head, const ApiRequest &request, const ServedModel &model);
  /// The role of a chat's choice, or the prompt that a completion repeats: the offsets of |choice| go on behind it.
  std::string first(const PromptState &prompt, ChoiceState &choice, uint32_t index);
  /// Text and the token it came with (|sample.token| -1: none).
  std::string piece(ChoiceState &choice, uint32_t index, const Sample &sample, std::string_view text);
  std::string last(const PromptState &prompt, const ChoiceState &choice, uint32_t index);
  std::string usage(const std::vector<PromptState> &prompts);
  static std::string error(const ApiError &error);
  static std::string done() { return "data: [DONE]\n\n"; }

private:
  std::string chunk(const std::string &choices, const std::string &usage) const;
  const ApiRequest &request;
  const ServedModel &model;
  std::string prefix;
};

std::string embeddingsBody(const ApiRequest &request, const ServedModel &model, const std::vector<PromptState> &prompts);
std::string tokenizeBody(const ApiRequest &request, const ServedModel &model, const std::vector<int32_t> &ids);
std::string detokenizeBody(const ServedModel &model, const std::vector<int32_t> &ids);
/// /v1/models, and one entry of it.
std::string modelsBody(const std::vector<ServedModel> &models, int64_t created);
std::string modelBody(const ServedModel &model, int64_t created);

} // namespace lathe::server
