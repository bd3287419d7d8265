//===- AnswerText.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/text/AnswerText.h"

namespace lathe::runtime {

AnswerText::AnswerText(const Tokenizer *tokenizer, AnswerTextOptions options)
    : stops(std::move(options.stops), options.includeStop), unchecked(options.minTokens) {
  if (tokenizer) decoder.emplace(*tokenizer, options.keepSpecial, options.continues);
}

std::string_view AnswerText::push(int32_t token) {
  shown.clear();
  if (!decoder || stops.stopped()) return shown;
  decoded.clear();
  decoder->push(token, decoded);
  if (unchecked > 0) {
    --unchecked;
    shown = decoded;
    return shown;
  }
  stops.push(decoded, shown);
  return shown;
}

std::string_view AnswerText::finish() {
  shown.clear();
  if (!decoder || stops.stopped()) return shown;
  decoded.clear();
  decoder->flush(decoded);
  stops.push(decoded, shown);
  if (!stops.stopped()) stops.finish(shown);
  return shown;
}

} // namespace lathe::runtime
