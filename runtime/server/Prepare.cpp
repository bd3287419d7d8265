//===- Prepare.cpp - from a checked request to the engine's ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Request.h"
#include <algorithm>

namespace lathe::server {
namespace {

using runtime::RequestKind;

ApiError tooLong(const char *field, size_t prompt, uint64_t wanted, uint32_t context) {
  ApiError e = badField(field, "");
  e.code = "context_length_exceeded";
  e.message = "the context holds " + std::to_string(context) + " tokens; the prompt has " + std::to_string(prompt);
  if (wanted) e.message += " and " + std::to_string(wanted) + " are to be generated";
  return e;
}

std::optional<ApiError> tokensOf(const ApiRequest &r, const ServedModel &model, const char *field, const Prompt *prompt,
                                 std::vector<int32_t> &ids) {
  if (!prompt) return chatTokens(r, model, ids);
  ids = prompt->isIds ? prompt->ids : model.text->tokenizer().encode(prompt->text, {r.addSpecial, false});
  return std::nullopt;
}

} // namespace

std::optional<ApiError> chatTokens(const ApiRequest &r, const ServedModel &model, std::vector<int32_t> &ids) {
  auto encoded = model.text->encodeChat(r.messages, r.chat);
  if (!encoded.ok()) {
    ApiError e = fromStatus(encoded.status());
    if (e.status == 400 || e.status == 429) { // a limit of the template is the request's own fault
      e = badField("messages", encoded.status().message());
      e.code = "template_error";
    }
    return e;
  }
  ids = *std::move(encoded);
  return std::nullopt;
}

std::optional<ApiError> prepare(const ApiRequest &r, const ServedModel &model,
                                std::vector<runtime::Request> &prepared) {
  bool embedding = r.endpoint == Endpoint::embeddings;
  const char *field = r.conversation ? "messages" : embedding ? "input" : "prompt";
  runtime::Request base;
  base.kind = embedding ? RequestKind::embedding : RequestKind::generate;
  base.sampling = r.sampling;
  base.hasSeed = r.hasSeed;
  base.choices = r.choices;
  base.stopTokens = r.stopTokens;
  base.stops = r.stops;
  base.includeStop = r.includeStop;
  base.ignoreEnd = r.ignoreEnd;
  base.keepSpecial = r.keepSpecial;
  base.continues = !r.conversation;
  base.promptLogprobs = r.promptLogprobs;
  if (r.echo && r.logprobs) base.promptLogprobs = std::max(r.promptLogprobs, r.sampling.logprobs);
  base.pooling = r.pooling;
  base.priority = r.priority;
  base.ttftTarget = r.ttftTarget;
  base.tpotTarget = r.tpotTarget;
  base.cacheSalt = r.cacheSalt;
  base.speculate = r.speculate;
  base.acceptance = r.acceptance;

  size_t count = r.conversation ? 1 : r.prompts.size();
  for (size_t i = 0; i < count; ++i) {
    runtime::Request one = base;
    if (auto error = tokensOf(r, model, field, r.conversation ? nullptr : &r.prompts[i], one.prompt)) return error;
    if (one.prompt.empty()) return badField(field, "expected at least one token, found none");
    size_t length = one.prompt.size();
    if (length > model.contextTokens || (!embedding && length == model.contextTokens && r.maxTokens != 0u))
      return tooLong(field, length, 0, model.contextTokens);
    if (!embedding) {
      uint32_t room = model.contextTokens - static_cast<uint32_t>(length);
      // A default is cut to what fits; a number that the client chose is not.
      if (r.maxTokens && *r.maxTokens > room) return tooLong("max_tokens", length, *r.maxTokens, model.contextTokens);
      one.maxTokens = std::min(r.maxTokens.value_or(r.defaultMaxTokens), room);
    }
    prepared.push_back(std::move(one));
  }
  return std::nullopt;
}

} // namespace lathe::server
