//===- JsonFuzzer.cpp - hostile tokenizer.json ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "../../../runtime/tokenizer/Tokenizer.h"
#include "lathe/import/Tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace lathe;
  // A zero byte ends tokenizer.json; the rest stands for the small files beside it.
  std::string_view text(reinterpret_cast<const char *>(data), size);
  TokenizerFiles files;
  size_t cut = text.find('\0');
  files.tokenizer = text.substr(0, cut);
  if (cut != std::string_view::npos) files.config = files.generationConfig = files.specialTokens = text.substr(cut + 1);
  auto imported = importTokenizer(files);
  if (!imported.ok()) return 0;
  auto tokenizer = Tokenizer::create(std::move(imported->spec));
  if (!tokenizer.ok()) return 0;
  tokenizer->decode(tokenizer->encode("Hello  w\xc3\xb6rld \xe4\xb8\xad 123\n'll \xff", {true, true}));
  return 0;
}
