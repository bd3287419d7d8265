//===- Tokenizer.h - tokenizers of model files --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Makes a TokenizerSpec from the metadata of a GGUF file, or from tokenizer.json and the small files
// that lie beside it. Plain C++, no MLIR.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/TokenizerSpec.h"
#include "lathe/base/Status.h"
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe {

namespace gguf {
class File;
}

struct ImportedTokenizer {
  TokenizerSpec spec;
  /// Jinja source; empty when the model has none.
  std::string chatTemplate;
  /// Further templates by name ("tool_use", "rag").
  std::vector<std::pair<std::string, std::string>> namedTemplates;
  /// Text of bos and eos, for templates.
  std::string bosText, eosText;
  /// What a user should know ("no pre-tokenizer is named, ...").
  std::vector<std::string> warnings;
};

/// From GGUF metadata (tokenizer.ggml.*). Errors: notFound and invalidArgument name the key,
/// unsupported names the model kind or pre-tokenizer and lists those supported.
Result<ImportedTokenizer> importTokenizer(const gguf::File &file);

/// Texts of the files of a Hugging Face model directory; empty: there is none.
struct TokenizerFiles {
  std::string_view tokenizer;        ///< tokenizer.json; required
  std::string_view config;           ///< tokenizer_config.json
  std::string_view specialTokens;    ///< special_tokens_map.json
  std::string_view generationConfig; ///< generation_config.json
  std::string_view modelConfig;      ///< config.json (eos_token_id)
  std::string_view chatTemplate;     ///< chat_template.jinja
};
/// Errors: invalidArgument (says which file and field), unsupported (names the step or model).
Result<ImportedTokenizer> importTokenizer(const TokenizerFiles &files);
/// Reads those files from |directory|. notFound without tokenizer.json.
Result<ImportedTokenizer> importTokenizerDirectory(const std::string &directory);

/// The splits that a name of tokenizer.ggml.pre stands for, and what goes with it.
struct NamedPreTokenizer {
  std::vector<const char *> patterns; ///< each isolates its matches, one after the other
  bool ignoreMerges = false;
  bool addBos = false; ///< unless the file says
};
/// nullptr when unknown.
const NamedPreTokenizer *findPreTokenizer(std::string_view name);
/// All names, sorted, separated by commas.
std::string preTokenizerNames();

} // namespace lathe
