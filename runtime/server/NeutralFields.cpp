//===- NeutralFields.cpp - fields that must not change the result ----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Clients send many fields at values that ask for nothing. Those pass. A value that would change the answer is refused
// with a 400, since an answer that silently leaves it out is worse than none.
//===----------------------------------------------------------------------===//
#include "runtime/server/Fields.h"
#include <initializer_list>

namespace lathe::server {
namespace {

constexpr unsigned chat = 1, completions = 2, embeddings = 4;
constexpr unsigned generation = chat | completions, everywhere = generation | embeddings;

enum class Neutral {
  anything, ///< changes nothing at any value
  nothing,  ///< null, false, "", [] or {}
  values,   ///< one of |allowed|, or nothing
};

struct Rule {
  const char *name;
  unsigned endpoints;
  Neutral neutral;
  std::initializer_list<Json> allowed;
};

bool isNothing(const Json &value) {
  return value.is_null() || value == false || (value.is_string() && value.get_ref<const std::string &>().empty()) ||
         (value.is_structured() && value.empty());
}

} // namespace

void checkNeutralFields(Fields &fields, Endpoint endpoint) {
  static const Rule rules[] = {
      // For records, billing and safety systems.
      {"user", everywhere, Neutral::anything, {}},
      {"metadata", generation, Neutral::anything, {}},
      {"service_tier", generation, Neutral::anything, {}},
      {"safety_identifier", generation, Neutral::anything, {}},
      {"prompt_cache_key", generation, Neutral::anything, {}},
      {"prompt_cache_retention", generation, Neutral::anything, {}},
      {"request_id", everywhere, Neutral::anything, {}},
      // Hints about speed.
      {"prediction", chat, Neutral::anything, {}},
      {"parallel_tool_calls", chat, Neutral::anything, {}},
      {"store", generation, Neutral::nothing, {}},
      // Tools and structured output.
      {"tools", generation, Neutral::nothing, {}},
      {"tool_choice", generation, Neutral::values, {"none", "auto"}},
      {"functions", chat, Neutral::nothing, {}},
      {"function_call", chat, Neutral::values, {"none", "auto"}},
      {"response_format", generation, Neutral::values, {{{"type", "text"}}}},
      {"structured_outputs", generation, Neutral::nothing, {}},
      {"guided_json", generation, Neutral::nothing, {}},
      {"guided_regex", generation, Neutral::nothing, {}},
      {"guided_choice", generation, Neutral::nothing, {}},
      {"guided_grammar", generation, Neutral::nothing, {}},
      {"grammar", generation, Neutral::nothing, {}},
      // Other kinds of input and output.
      {"modalities", chat, Neutral::values, {Json::array({"text"})}},
      {"audio", chat, Neutral::nothing, {}},
      {"web_search_options", chat, Neutral::nothing, {}},
      {"documents", chat, Neutral::nothing, {}},
      {"reasoning_effort", chat, Neutral::nothing, {}},
      {"verbosity", chat, Neutral::values, {"medium"}},
      {"mm_processor_kwargs", generation, Neutral::nothing, {}},
      {"suffix", completions, Neutral::nothing, {}},
      // Other ways to choose tokens.
      {"use_beam_search", generation, Neutral::nothing, {}},
      {"length_penalty", generation, Neutral::values, {1}},
      {"early_stopping", generation, Neutral::nothing, {}},
      {"allowed_token_ids", generation, Neutral::nothing, {}},
      {"bad_words", generation, Neutral::nothing, {}},
      {"logits_processors", generation, Neutral::nothing, {}},
      {"typical_p", generation, Neutral::values, {1}},
      {"mirostat", generation, Neutral::values, {0}},
      {"truncate_prompt_tokens", everywhere, Neutral::nothing, {}},
      {"spaces_between_special_tokens", generation, Neutral::values, {true}},
      {"return_tokens_as_token_ids", generation, Neutral::nothing, {}},
      {"return_token_ids", generation, Neutral::nothing, {}},
      {"continue_final_message", chat, Neutral::nothing, {}},
      {"kv_transfer_params", generation, Neutral::nothing, {}},
      {"vllm_xargs", generation, Neutral::nothing, {}},
  };
  unsigned here = endpoint == Endpoint::chat ? chat : endpoint == Endpoint::completions ? completions : embeddings;
  for (const Rule &rule : rules) {
    if (!(rule.endpoints & here)) continue;
    const Json *value = fields.find(rule.name);
    if (!value || rule.neutral == Neutral::anything || (rule.neutral == Neutral::nothing && isNothing(*value))) continue;
    bool fits = false;
    if (rule.neutral == Neutral::values) {
      fits = value->is_structured() && value->empty();
      for (const Json &allowed : rule.allowed)
        fits |= *value == allowed;
    }
    if (!fits) fields.fail(rule.name, "not supported, and leaving it out would change the result; found " + shown(*value));
  }
}

} // namespace lathe::server
