//===- Response.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Response.h"
#include "runtime/server/JsonText.h"
#include "runtime/server/Logprobs.h"

namespace lathe::server {
using namespace runtime;

namespace {

const char *finishReason(EndReason reason) { return reason == EndReason::length ? "length" : "stop"; }

/// As vLLM has it: the stop string or the request's own stop token that ended the choice.
std::string stopReason(const ApiRequest &request, const ChoiceState &choice) {
  if (!choice.stopText.empty()) return jsonString(choice.stopText);
  for (int32_t own : request.stopTokens)
    if (own == choice.stopToken) return std::to_string(own);
  return "null";
}

std::string ending(const ApiRequest &request, const PromptState &prompt, const ChoiceState &choice) {
  return "\"finish_reason\":\"" + std::string(finishReason(choice.reason)) +
         "\",\"stop_reason\":" + stopReason(request, choice) + ",\"seed\":" + std::to_string(prompt.seed);
}

std::string usageObject(const std::vector<PromptState> &prompts, bool embeddings = false) {
  uint64_t in = 0, out = 0, cached = 0, drafted = 0, accepted = 0;
  for (const PromptState &p : prompts) {
    in += p.usage.promptTokens;
    out += p.usage.newTokens;
    cached += p.usage.cachedTokens;
    drafted += p.usage.draftedTokens;
    accepted += p.usage.acceptedTokens;
  }
  std::string text = "{\"prompt_tokens\":" + std::to_string(in);
  if (!embeddings) text += ",\"completion_tokens\":" + std::to_string(out);
  if (drafted)
    text += ",\"completion_tokens_details\":{\"accepted_prediction_tokens\":" + std::to_string(accepted) +
            ",\"rejected_prediction_tokens\":" + std::to_string(drafted - accepted) + "}";
  return text + ",\"total_tokens\":" + std::to_string(in + (embeddings ? 0 : out)) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":" + std::to_string(cached) + "}}";
}

std::string common(const AnswerHead &head, const char *object, const ServedModel &model) {
  return "{\"id\":" + jsonString(head.id) + ",\"object\":\"" + object + "\",\"created\":" + std::to_string(head.created) +
         ",\"model\":" + jsonString(model.name) + ",\"system_fingerprint\":" + jsonString(model.fingerprint);
}

/// The text of a prompt, as a completion repeats it.
std::string promptText(const ApiRequest &request, const ServedModel &model, const PromptState &prompt, size_t at) {
  if (!request.prompts[at].isIds) return request.prompts[at].text;
  return model.text ? model.text->tokenizer().decode(prompt.tokens, request.keepSpecial) : "";
}

std::string choiceObject(const ApiRequest &request, const ServedModel &model, const PromptState &prompt, size_t at,
                         const ChoiceState &choice, size_t index) {
  std::string text = "{\"index\":" + std::to_string(index);
  if (request.endpoint == Endpoint::chat) {
    text += ",\"message\":{\"role\":\"assistant\",\"content\":" + jsonString(choice.text) + ",\"refusal\":null},\"logprobs\":";
    text += request.logprobs ? chatLogprobs(model, choice.tokens) : "null";
  } else {
    text += ",\"text\":" + jsonString(request.echo ? promptText(request, model, prompt, at) + choice.text : choice.text);
    text += ",\"logprobs\":";
    if (request.logprobs) {
      CompletionLogprobs logprobs(model, request.sampling.logprobs);
      if (request.echo) logprobs.add(prompt.logprobs);
      logprobs.add(choice.tokens);
      text += logprobs.object();
    } else {
      text += "null";
    }
    if (request.promptLogprobs >= 0)
      text += ",\"prompt_logprobs\":" + promptLogprobs(model, prompt.logprobs, request.promptLogprobs);
  }
  return text + "," + ending(request, prompt, choice) + "}";
}

} // namespace

std::string answerBody(const AnswerHead &head, const ApiRequest &request, const ServedModel &model,
                       const std::vector<PromptState> &prompts) {
  bool chat = request.endpoint == Endpoint::chat;
  std::string body = common(head, chat ? "chat.completion" : "text_completion", model) + ",\"choices\":[";
  size_t index = 0;
  for (size_t at = 0; at < prompts.size(); ++at)
    for (const ChoiceState &choice : prompts[at].choices) {
      if (index) body += ',';
      body += choiceObject(request, model, prompts[at], at, choice, index++);
    }
  body += "],\"usage\":" + usageObject(prompts);
  if (chat && request.promptLogprobs >= 0)
    body += ",\"prompt_logprobs\":" + promptLogprobs(model, prompts[0].logprobs, request.promptLogprobs);
  return body + "}";
}

ChunkWriter::ChunkWriter(const AnswerHead &head, const ApiRequest &request, const ServedModel &model)
    : request(request), model(model) {
  prefix = "data: " + common(head, request.endpoint == Endpoint::chat ? "chat.completion.chunk" : "text_completion", model) +
           ",\"choices\":[";
}

std::string ChunkWriter::chunk(const std::string &choices, const std::string &usage) const {
  std::string text = prefix + choices + "]";
  // With include_usage every chunk has the member, and it is null but in the last.
  if (request.includeUsage) text += ",\"usage\":" + usage;
  return text + "}\n\n";
}

std::string ChunkWriter::first(const PromptState &prompt, ChoiceState &choice, uint32_t index) {
  std::string out = "{\"index\":" + std::to_string(index);
  if (request.endpoint == Endpoint::chat)
    return chunk(out + ",\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,"
                          "\"finish_reason\":null}", "null");
  if (!request.echo) return "";
  std::string logprobs = "null";
  if (request.logprobs) {
    CompletionLogprobs list(model, request.sampling.logprobs);
    list.add(prompt.logprobs);
    choice.offset = list.offset();
    logprobs = list.object();
  }
  return chunk(out + ",\"text\":" + jsonString(promptText(request, model, prompt, index / request.choices)) +
                   ",\"logprobs\":" + logprobs + ",\"finish_reason\":null}", "null");
}

std::string ChunkWriter::piece(ChoiceState &choice, uint32_t index, const Sample &sample, std::string_view text) {
  bool withToken = request.logprobs && sample.token >= 0;
  if (text.empty() && !withToken) return ""; // held back, or half a character
  std::string out = "{\"index\":" + std::to_string(index);
  if (request.endpoint == Endpoint::chat) {
    out += ",\"delta\":{\"content\":" + jsonString(text) + "},\"logprobs\":" +
           (withToken ? chatLogprobs(model, {sample}) : "null");
  } else {
    std::string logprobs = "null";
    if (withToken) {
      CompletionLogprobs list(model, request.sampling.logprobs, choice.offset);
      list.add(std::vector<Sample>{sample});
      choice.offset = list.offset();
      logprobs = list.object();
    }
    out += ",\"text\":" + jsonString(text) + ",\"logprobs\":" + logprobs;
  }
  return chunk(out + ",\"finish_reason\":null}", "null");
}

std::string ChunkWriter::last(const PromptState &prompt, const ChoiceState &choice, uint32_t index) {
  std::string out = "{\"index\":" + std::to_string(index);
  out += request.endpoint == Endpoint::chat ? ",\"delta\":{}" : ",\"text\":\"\"";
  return chunk(out + ",\"logprobs\":null," + ending(request, prompt, choice) + "}", "null");
}

std::string ChunkWriter::usage(const std::vector<PromptState> &prompts) {
  return request.includeUsage ? chunk("", usageObject(prompts)) : "";
}

std::string ChunkWriter::error(const ApiError &error) { return "data: " + errorBody(error) + "\n\n"; }

std::string embeddingsBody(const ApiRequest &request, const ServedModel &model,
                           const std::vector<PromptState> &prompts) {
  std::string body = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<float> values = prompts[i].embedding;
    if (request.normalize) {
      double sum = 0;
      for (float v : values)
        sum += static_cast<double>(v) * v;
      double scale = sum > 0 ? 1 / std::sqrt(sum) : 0;
      for (float &v : values)
        v = static_cast<float>(v * scale);
    }
    body += std::string(i ? "," : "") + "{\"object\":\"embedding\",\"index\":" + std::to_string(i) + ",\"embedding\":";
    if (request.base64) {
      body += '"' + base64(values) + '"';
    } else {
      body += '[';
      for (size_t at = 0; at < values.size(); ++at)
        body += (at ? "," : "") + decimal(values[at]);
      body += ']';
    }
    body += '}';
  }
  return body + "],\"model\":" + jsonString(model.name) + ",\"usage\":" + usageObject(prompts, true) +
         ",\"system_fingerprint\":" + jsonString(model.fingerprint) + "}";
}

std::string tokenizeBody(const ApiRequest &request, const ServedModel &model, const std::vector<int32_t> &ids) {
  std::string body = "{\"count\":" + std::to_string(ids.size()) +
                     ",\"max_model_len\":" + std::to_string(model.contextTokens) + ",\"tokens\":[";
  for (size_t i = 0; i < ids.size(); ++i)
    body += (i ? "," : "") + std::to_string(ids[i]);
  body += "],\"token_strs\":";
  if (!request.tokenStrings) return body + "null}";
  body += '[';
  for (size_t i = 0; i < ids.size(); ++i)
    body += (i ? "," : "") + jsonString(model.text->tokenizer().tokenToPiece(ids[i], true));
  return body + "]}";
}

std::string detokenizeBody(const ServedModel &model, const std::vector<int32_t> &ids) {
  return "{\"prompt\":" + jsonString(model.text->tokenizer().decode(ids, true)) + "}";
}

std::string modelBody(const ServedModel &model, int64_t created) {
  return "{\"id\":" + jsonString(model.name) + ",\"object\":\"model\",\"created\":" + std::to_string(created) +
         ",\"owned_by\":\"lathe\",\"root\":" + jsonString(model.path) +
         ",\"parent\":null,\"max_model_len\":" + std::to_string(model.contextTokens) +
         ",\"vocab_size\":" + std::to_string(model.vocabulary) +
         (model.engine && model.engine->limits().generalGraph ? ",\"general_graph\":{\"sequences\":1,\"cache\":\"contiguous\",\"exact_tokens\":false}" : "") + "}";
}

std::string modelsBody(const std::vector<ServedModel> &models, int64_t created) {
  std::string body = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < models.size(); ++i)
    body += (i ? "," : "") + modelBody(models[i], created);
  return body + "]}";
}

} // namespace lathe::server
