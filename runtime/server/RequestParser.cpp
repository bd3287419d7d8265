//===- RequestParser.cpp - from JSON to a checked request ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Fields.h"
#include <algorithm>
#include <charconv>

namespace lathe::server {
namespace {

void readSampling(Fields &f, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  r.sampling = model.defaults;
  r.sampling.logprobs = -1;
  auto set = [](float &to, std::optional<double> from) {
    if (from) to = static_cast<float>(*from);
  };
  set(r.sampling.temperature, f.number("temperature", 0, 100));
  set(r.sampling.topP, f.number("top_p", 0, 1));
  if (r.sampling.topP <= 0) f.fail("top_p", "expected a number above 0 and at most 1, found 0");
  set(r.sampling.minP, f.number("min_p", 0, 1));
  set(r.sampling.repetitionPenalty, f.number("repetition_penalty", 0.01, 100));
  set(r.sampling.presencePenalty, f.number("presence_penalty", -2, 2));
  set(r.sampling.frequencyPenalty, f.number("frequency_penalty", -2, 2));
  if (auto k = f.integer("top_k", -1, INT32_MAX)) r.sampling.topK = static_cast<int32_t>(*k);

  if (const Json *seed = f.find("seed")) {
    r.hasSeed = true;
    if (seed->is_number_unsigned()) r.sampling.seed = seed->get<uint64_t>();
    else if (seed->is_number_integer()) r.sampling.seed = static_cast<uint64_t>(seed->get<int64_t>());
    else f.fail("seed", "expected a whole number of 64 bits, found " + shown(*seed));
  }

  if (const Json *bias = f.find("logit_bias")) {
    if (!bias->is_object() || bias->size() > limits.maxBiases)
      return f.fail("logit_bias", "expected an object of at most " + std::to_string(limits.maxBiases) +
                                      " token ids, found " +
                                      (bias->is_object() ? std::to_string(bias->size()) : shown(*bias)));
    for (auto &[id, amount] : bias->items()) {
      uint32_t token = 0;
      auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token);
      if (error != std::errc() || end != id.data() + id.size() || token >= model.vocabulary)
        return f.fail("logit_bias", "expected token ids in 0.." + std::to_string(model.vocabulary - 1) + ", found " +
                                        shown(Json(id)));
      double value = amount.is_number() ? amount.get<double>() : 1e9;
      if (!(value >= -100 && value <= 100))
        return f.fail("logit_bias", "expected amounts in -100..100, found " + shown(amount));
      r.sampling.logitBias.emplace_back(static_cast<int32_t>(token), static_cast<float>(value));
    }
  }
}

void readStops(Fields &f, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  if (const Json *stop = f.find("stop")) {
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    if (list.size() > limits.maxStops)
      f.fail("stop",
             "expected at most " + std::to_string(limits.maxStops) + " strings, found " + std::to_string(list.size()));
    for (const Json &item : list) {
      if (!item.is_string() || item.get_ref<const std::string &>().empty()) {
        if (stop->is_string()) break; // "" asks for nothing
        f.fail("stop", "expected strings that are not empty, found " + shown(item));
      } else if (item.get_ref<const std::string &>().size() > limits.maxStopBytes) {
        f.fail("stop", "expected at most " + std::to_string(limits.maxStopBytes) + " bytes a string, found " +
                           std::to_string(item.get_ref<const std::string &>().size()));
      } else {
        r.stops.push_back(item.get<std::string>());
      }
      if (!f.ok()) return;
    }
    if (!r.stops.empty() && !model.text) f.fail("stop", "the model has no tokenizer, and so no text to look into");
  }
  if (const Json *ids = f.find("stop_token_ids"))
    readIds(f, "stop_token_ids", *ids, model.vocabulary, limits.maxStopTokens, r.stopTokens);
  r.includeStop = f.boolean("include_stop_str_in_output", false);
  r.ignoreEnd = f.boolean("ignore_eos", false);
  r.keepSpecial = !f.boolean("skip_special_tokens", true);
}

void readLogprobs(Fields &f, const ApiLimits &limits, ApiRequest &r) {
  int64_t most = limits.maxLogprobs;
  if (r.endpoint == Endpoint::chat) {
    r.logprobs = f.boolean("logprobs", false);
    auto top = f.integer("top_logprobs", 0, most);
    if (top && *top && !r.logprobs) f.fail("top_logprobs", "expected 'logprobs': true with it");
    if (r.logprobs) r.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  } else if (const Json *given = f.find("logprobs"); given && *given != false) {
    if (auto top = f.integer("logprobs", 0, most)) {
      r.logprobs = true;
      r.sampling.logprobs = static_cast<int32_t>(*top);
    }
  }
  if (auto prompt = f.integer("prompt_logprobs", -1, most)) r.promptLogprobs = static_cast<int32_t>(*prompt);
  if (r.promptLogprobs >= 0 && r.stream) f.fail("prompt_logprobs", "expected 'stream': false with it");
}

void readSpeculation(Fields &f, ApiRequest &r) {
  if (auto method = f.text("speculate", 16)) {
    auto parsed = runtime::parseSpeculation(*method);
    if (parsed.ok())
      r.speculate = *parsed;
    else
      f.fail("speculate", parsed.status().message());
  }
  if (auto rule = f.text("draft_acceptance", 16)) {
    auto parsed = parseAcceptance(*rule);
    if (parsed.ok())
      r.acceptance = *parsed;
    else
      f.fail("draft_acceptance", parsed.status().message());
  }
}

/// What counts for whom, under the policies that look at it.
void readScheduling(Fields &f, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  if (auto priority = f.integer("priority", INT32_MIN, INT32_MAX)) {
    r.priority = static_cast<int32_t>(*priority);
    r.hasPriority = true;
  }
  if (auto salt = f.text("cache_salt", limits.maxSaltBytes)) r.cacheSalt = *salt;
  auto target = [&](const char *name, double served) {
    auto given = f.number(name, 1, 1e9);
    if (!given) return served;
    char own[32];
    std::snprintf(own, sizeof own, "%g", served * 1e3);
    if (*given / 1e3 < served) // who is in a greater hurry goes first: where the operator set a target, that is the limit
      f.fail(name, std::string("expected at least the server's own target, ") + own + ", found " + shown(*f.find(name)));
    return *given / 1e3;
  };
  r.ttftTarget = target("ttft_target_ms", model.ttftTarget);
  r.tpotTarget = target("tpot_target_ms", model.tpotTarget);
}

void readGeneration(Fields &f, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  r.stream = f.boolean("stream", false);
  if (const Json *options = f.find("stream_options")) {
    if (!options->is_object()) f.fail("stream_options", "expected an object, found " + shown(*options));
    else if (!r.stream && !options->empty()) f.fail("stream_options", "expected 'stream': true with it");
    else {
      Fields inner(*options);
      r.includeUsage = inner.boolean("include_usage", false);
      if (inner.boolean("continuous_usage_stats", false))
        inner.fail("continuous_usage_stats", "not supported: usage comes at the end");
      if (auto error = inner.takeError()) f.fail("stream_options." + error->param, error->message);
    }
  }
  readSampling(f, model, limits, r);
  readStops(f, model, limits, r);
  readLogprobs(f, limits, r);
  if (auto n = f.integer("n", 1, limits.maxChoices)) r.choices = static_cast<uint32_t>(*n);
  // What a client leaves out is given by OpenAI: 16 tokens for a completion, what fits for a chat.
  bool isChat = r.endpoint == Endpoint::chat;
  int64_t least = isChat ? 1 : 0;
  if (auto most = f.integer("max_tokens", least, UINT32_MAX)) r.maxTokens = static_cast<uint32_t>(*most);
  if (auto most = f.integer("max_completion_tokens", least, UINT32_MAX)) r.maxTokens = static_cast<uint32_t>(*most);
  r.defaultMaxTokens = !isChat ? 16 : model.defaultMaxTokens ? model.defaultMaxTokens : UINT32_MAX;
  if (auto least = f.integer("min_tokens", 0, INT32_MAX)) r.sampling.minTokens = static_cast<int32_t>(*least);
  if (uint32_t most = r.maxTokens.value_or(r.defaultMaxTokens); static_cast<uint32_t>(r.sampling.minTokens) > most)
    f.fail("min_tokens", "expected at most max_tokens, which is " + std::to_string(most) + ", found " +
                             std::to_string(r.sampling.minTokens));
  readScheduling(f, model, limits, r);
  readSpeculation(f, r);
  checkNeutralFields(f, r.endpoint);
}

/// A string, a list of strings, token ids, or a list of lists of token ids.
void readPrompts(Fields &f, const char *name, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  const Json *given = f.find(name);
  auto expected = [&](const Json *found) {
    f.fail(name, "expected a string, a list of strings, token ids or a list of lists of token ids, found " +
                     (found ? shown(*found) : std::string("none")));
  };
  if (!given) return expected(nullptr);
  auto addText = [&](const Json &text) {
    if (!model.text) return f.fail(name, "the model has no tokenizer; give token ids");
    r.prompts.push_back({text.get<std::string>(), {}, false});
  };
  auto addIds = [&](const Json &ids) {
    Prompt prompt;
    prompt.isIds = true;
    if (readIds(f, name, ids, model.vocabulary, model.contextTokens, prompt.ids)) r.prompts.push_back(std::move(prompt));
  };
  if (given->is_string()) return addText(*given);
  if (!given->is_array() || given->empty()) return expected(given);
  if (given->front().is_number()) return addIds(*given);
  if (given->size() > limits.maxPrompts)
    return f.fail(name, "expected at most " + std::to_string(limits.maxPrompts) + " prompts, found " +
                            std::to_string(given->size()));
  for (const Json &item : *given) {
    if (!f.ok()) return;
    if (item.is_string()) addText(item);
    else if (item.is_array()) addIds(item);
    else return expected(&item);
  }
}

void readCompletion(Fields &f, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  readPrompts(f, "prompt", model, limits, r);
  r.addSpecial = f.boolean("add_special_tokens", true);
  readGeneration(f, model, limits, r);
  r.echo = f.boolean("echo", false);
  if (auto best = f.integer("best_of", 1, limits.maxChoices); best && *best != r.choices)
    f.fail("best_of", "expected the same as n, which is " + std::to_string(r.choices) + ", found " + std::to_string(*best));
  if (r.prompts.size() * r.choices > limits.maxPrompts)
    f.fail("n", "expected at most " + std::to_string(limits.maxPrompts) + " choices over all prompts, found " +
                    std::to_string(r.prompts.size() * r.choices));
}

void readEmbeddings(Fields &f, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  readPrompts(f, "input", model, limits, r);
  r.addSpecial = f.boolean("add_special_tokens", true);
  if (auto format = f.text("encoding_format", 16)) {
    r.base64 = *format == "base64";
    if (!r.base64 && *format != "float") f.fail("encoding_format", "expected float or base64, found " + shown(Json(*format)));
  }
  if (auto size = f.integer("dimensions", 1, UINT32_MAX); size && *size != model.hiddenSize)
    f.fail("dimensions", "expected " + std::to_string(model.hiddenSize) + ", the only size of this model, found " +
                             std::to_string(*size));
  r.pooling = model.pooling;
  if (auto pooling = f.text("pooling", 16)) {
    r.pooling = *pooling == "mean" ? runtime::Pooling::mean : runtime::Pooling::last;
    if (*pooling != "mean" && *pooling != "last") f.fail("pooling", "expected last or mean, found " + shown(Json(*pooling)));
  }
  r.normalize = f.boolean("normalize", false);
  readScheduling(f, model, limits, r);
  readSpeculation(f, r); // there is nothing to draft; a client that always sends it is right all the same
  checkNeutralFields(f, r.endpoint);
}

void readTokenize(Fields &f, const ServedModel &model, const ApiLimits &limits, ApiRequest &r) {
  if (!model.text) return f.fail("model", "the model has no tokenizer");
  r.tokenStrings = f.boolean("return_token_strs", false);
  if (f.find("messages")) return readConversation(f, model, limits, r);
  auto text = f.text("prompt", SIZE_MAX);
  if (!text) return f.fail("prompt", "expected a string, or messages");
  r.prompts.push_back({*text, {}, false});
  r.addSpecial = f.boolean("add_special_tokens", true);
}

void readDetokenize(Fields &f, const ServedModel &model, ApiRequest &r) {
  if (!model.text) return f.fail("model", "the model has no tokenizer");
  const Json *ids = f.find("tokens");
  Prompt prompt;
  prompt.isIds = true;
  if (!ids) return f.fail("tokens", "expected a list of token ids, found none");
  constexpr size_t most = 1u << 20;
  if (readIds(f, "tokens", *ids, model.vocabulary, most, prompt.ids)) r.prompts.push_back(std::move(prompt));
}

} // namespace

std::optional<ApiError> readModelName(const Json &body, std::optional<std::string> &name) {
  Fields fields(body);
  name = fields.text("model", 1024);
  return fields.takeError();
}

std::optional<ApiError> parseRequest(Endpoint endpoint, const Json &body, const ServedModel &model,
                                     const ApiLimits &limits, ApiRequest &request) {
  request = ApiRequest();
  request.endpoint = endpoint;
  Fields fields(body);
  (void)fields.find("model");
  switch (endpoint) {
  case Endpoint::chat:
    readConversation(fields, model, limits, request);
    readGeneration(fields, model, limits, request);
    if (fields.boolean("echo", false)) fields.fail("echo", "expected false: only /v1/completions repeats the prompt");
    break;
  case Endpoint::completions:
    readCompletion(fields, model, limits, request);
    break;
  case Endpoint::embeddings:
    readEmbeddings(fields, model, limits, request);
    break;
  case Endpoint::tokenize:
    readTokenize(fields, model, limits, request);
    break;
  case Endpoint::detokenize:
    readDetokenize(fields, model, request);
    break;
  }
  request.ignored = fields.unknown();
  return fields.takeError();
}

} // namespace lathe::server
