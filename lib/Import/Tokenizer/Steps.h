//===- Steps.h - steps of tokenizer.json --------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/Tokenizer.h"
#include <nlohmann/json.hpp>

namespace lathe::tokenizerimport {
using Json = nlohmann::json;

/// Members of an object with a type; the fallback when missing or null. A wrong type is an error that
/// names |where| and the key.
Result<std::string> textOf(const Json &object, const char *key, const char *where);
Result<std::string> textOr(const Json &object, const char *key, std::string fallback, const char *where);
Result<bool> flagOr(const Json &object, const char *key, bool fallback, const char *where);
Result<int64_t> integerOf(const Json &object, const char *key, const char *where);
/// The member, or nullptr when missing or null.
const Json *memberOf(const Json &object, const char *key);

/// Reads the parts of tokenizer.json that are lists of steps into |out|.
Status readNormalizer(const Json &step, TokenizerSpec &spec);
Status readPreTokenizer(const Json &step, ImportedTokenizer &out);
Status readDecoder(const Json &step, ImportedTokenizer &out);
Status readPostProcessor(const Json &step, TokenizerSpec &spec);

} // namespace lathe::tokenizerimport
