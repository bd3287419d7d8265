//===- Request.h - what a client asks for, checked -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/RequestEngine.h"
#include "runtime/server/Error.h"
#include "runtime/server/Options.h"
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lathe::server {

/// Bodies are parsed into maps: looking a name up stays cheap however many a client sends.
using Json = nlohmann::json;

enum class Endpoint { chat, completions, embeddings, tokenize, detokenize };

/// Text or token ids.
struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
  bool isIds = false;
};

struct ApiRequest {
  Endpoint endpoint = Endpoint::chat;
  std::vector<Prompt> prompts;     ///< all but conversations; at least one
  nlohmann::ordered_json messages; ///< of a conversation: [{"role", "content", ...}], content always a string
  runtime::ChatOptions chat;
  bool conversation = false; ///< messages instead of prompts
  bool addSpecial = true;    ///< the tokenizer's own tokens around a text prompt

  bool stream = false, includeUsage = false;
  SamplingParams sampling;
  bool hasSeed = false;
  uint32_t choices = 1;
  std::optional<uint32_t> maxTokens; ///< as the client gave it
  uint32_t defaultMaxTokens = UINT32_MAX; ///< otherwise; cut to what fits
  std::vector<std::string> stops;
  std::vector<int32_t> stopTokens;
  bool includeStop = false, ignoreEnd = false, keepSpecial = false;
  bool logprobs = false; ///< the answer carries them; how many: sampling.logprobs
  int32_t promptLogprobs = -1;
  bool echo = false;
  int32_t priority = 0;
  bool hasPriority = false;
  double ttftTarget = 0, tpotTarget = 0; ///< seconds; 0: none
  std::string cacheSalt;
  std::optional<runtime::Speculation> speculate;
  Acceptance acceptance = Acceptance::exact;

  // Embeddings.
  runtime::Pooling pooling = runtime::Pooling::last;
  bool base64 = false, normalize = false;

  bool tokenStrings = false; ///< of /tokenize

  std::vector<std::string> ignored; ///< names of fields that mean nothing here
};

/// Parses a body: one JSON object, at most |maxDepth| levels deep, valid UTF-8. Errors: 400 with the byte offset.
std::optional<ApiError> parseBody(std::string_view text, uint32_t maxDepth, Json &body);

/// The `model` of a body: null when there is none. Errors: 400.
std::optional<ApiError> readModelName(const Json &body, std::optional<std::string> &name);

/// Checks |body| for |endpoint| of |model| and fills |request|. Nothing is tokenized here. Errors: 400 naming the field.
std::optional<ApiError> parseRequest(Endpoint endpoint, const Json &body, const ServedModel &model,
                                     const ApiLimits &limits, ApiRequest &request);

/// Tokens of a conversation, by the model's template. Error: 400 template_error.
std::optional<ApiError> chatTokens(const ApiRequest &request, const ServedModel &model, std::vector<int32_t> &ids);

/// Makes the engine's requests, one for each prompt: tokenizes, renders the conversation, checks lengths. What comes from
/// the key (tenant, priority) and the deadline are left to the caller. Errors: 400.
std::optional<ApiError> prepare(const ApiRequest &request, const ServedModel &model,
                                std::vector<runtime::Request> &prepared);

} // namespace lathe::server
