//===- Completion.h - text after a prompt -------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/Generator.h"
#include "runtime/text/TextModel.h"
#include <functional>
#include <string>
#include <vector>

namespace lathe::runtime {

struct CompletionRequest {
  SequenceId sequence = 0;
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  uint32_t maxTokens = UINT32_MAX;
  std::vector<std::string> stops; ///< strings that end the answer and are not part of it
  bool ignoreEnd = false;         ///< go on after the model's end tokens
  bool keepSpecial = false;       ///< show control tokens
  bool continues = true;          ///< the answer goes on a text (drops no leading space)
  /// Called for each token, with the text that may be shown now: whole characters that cannot be part of a stop string
  /// any more, perhaps none. What is held back comes last, with the id -1. False ends the answer.
  std::function<bool(int32_t id, std::string_view text)> onPiece;
};

struct Completion {
  std::string text;
  std::vector<int32_t> ids;
  FinishReason reason = FinishReason::length;
  uint32_t cachedTokens = 0;
  Status error; ///< of this request alone, when the reason is `failed`
};

/// Generates and decodes for all |requests| together. Without |text| (null) there are only ids, and neither end tokens
/// nor stop strings. Errors of one request are in its Completion, as in generate().
Result<std::vector<Completion>> complete(Engine &engine, const TextModel *text,
                                         std::span<const CompletionRequest> requests,
                                         GenerateTimings *timings = nullptr);

} // namespace lathe::runtime
