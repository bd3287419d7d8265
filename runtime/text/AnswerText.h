//===- AnswerText.h - from the tokens of one answer to its text ---*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/sampling/StopMatcher.h"
#include "runtime/tokenizer/Tokenizer.h"
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::runtime {

struct AnswerTextOptions {
  std::vector<std::string> stops; ///< strings that end the answer; empty ones are ignored
  bool includeStop = false;       ///< the stop string found stays in the text
  bool keepSpecial = false;       ///< show control tokens
  bool continues = true;          ///< the answer goes on a text (drops no leading space)
  uint32_t minTokens = 0;         ///< stop strings are looked for behind the first so many tokens
};

/// Decodes tokens as they come and looks for stop strings. What it returns is whole characters that cannot be part of
/// a stop string any more; all of it together is the answer's text. Allocates nothing once its buffers have grown to
/// the longest piece. Not thread-safe.
class AnswerText {
public:
  /// |tokenizer| may be null: there is no text then. It must outlive this.
  AnswerText(const Tokenizer *tokenizer, AnswerTextOptions options);

  /// Takes the next token. The text is valid until the next call.
  std::string_view push(int32_t token);
  /// The end of the answer: what was held back.
  std::string_view finish();

  /// A stop string was found; there is no text after it.
  bool stopped() const { return stops.stopped(); }
  std::string_view stopText() const { return stops.stopText(); }

private:
  std::optional<StreamDecoder> decoder;
  StopMatcher stops;
  uint32_t unchecked; ///< tokens to come that no stop string may end in
  std::string decoded, shown;
};

} // namespace lathe::runtime
