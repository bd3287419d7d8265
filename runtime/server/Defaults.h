//===- Defaults.h - what a request leaves out ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/server/Options.h"
#include <string_view>

namespace lathe::server {

/// Sets |model|'s defaults from the text of a generation_config.json, as vLLM does: temperature, top_k, top_p, min_p,
/// repetition_penalty and max_new_tokens where they are given, OpenAI's values (temperature 1) where not; do_sample is not
/// looked at. An empty text changes nothing. Errors: dataLoss naming the field.
Status readDefaults(std::string_view text, ServedModel &model);

} // namespace lathe::server
