//===- TextModel.h - the words around a program -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/artifact/Loader.h"
#include "runtime/sampling/Sampler.h"
#include "runtime/template/Template.h"
#include "runtime/tokenizer/Tokenizer.h"
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lathe::runtime {

struct ChatOptions {
  bool addGenerationPrompt = true;
  bool parseSpecial = false;    ///< control tokens in messages become tokens; off: they stay text
  nlohmann::ordered_json extra; ///< an object: more variables for the template (tools, enable_thinking, ...)
};

/// Tokenizer, chat template and sampling defaults of an artifact. Immutable, safe for several threads.
class TextModel {
public:
  /// A chat template that does not parse is an error of render() alone: plain prompts need none.
  /// Errors: notFound (the artifact has no tokenizer), those of TokenizerSpec and the GENERATION section.
  static Result<TextModel> create(const LoadedArtifact &artifact);

  const Tokenizer &tokenizer() const { return words; }
  bool hasTemplate() const { return chat.has_value(); }
  /// Why the artifact's chat template cannot be used; ok when it can, or when there is none.
  const Status &templateError() const { return chatError; }
  /// What the model's authors recommend; temperature 0 (the likeliest token) when they say nothing.
  const SamplingParams &samplingDefaults() const { return defaults; }
  /// Tokens that end a generation.
  const std::vector<int32_t> &stopTokens() const { return stops; }

  /// Tokens of a plain prompt, with what the tokenizer puts around a text.
  std::vector<int32_t> encode(std::string_view text, bool parseSpecial = false) const {
    return words.encode(text, {true, parseSpecial});
  }
  /// Messages from JSON text: an array of objects, at most 64 levels deep. Errors: invalidArgument.
  static Result<nlohmann::ordered_json> parseMessages(std::string_view text);

  /// The text the template makes of |messages|, an array of {"role": ..., "content": ...}. Errors: failedPrecondition
  /// without a template, templateError(), those of Template::render.
  Result<std::string> render(const nlohmann::ordered_json &messages, const ChatOptions &options) const;
  /// The tokens of a conversation.
  Result<std::vector<int32_t>> encodeChat(const nlohmann::ordered_json &messages, const ChatOptions &options) const;

private:
  explicit TextModel(Tokenizer tokenizer) : words(std::move(tokenizer)) {}
  Status readGeneration(std::string_view json);
  std::string mark(const std::string &text) const;
  nlohmann::ordered_json markAll(const nlohmann::ordered_json &value, int depth) const;

  Tokenizer words;
  std::optional<Template> chat;
  Status chatError;
  SamplingParams defaults;
  std::vector<int32_t> stops;
  std::vector<std::string> specials; ///< texts of control tokens, longest first
};

} // namespace lathe::runtime
