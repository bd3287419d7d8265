//===- Json.h - JSON of a model's directory, read with limits ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace lathe {

struct JsonLimits {
  size_t maxBytes = size_t(64) << 20;
  unsigned maxDepth = 32;
};

/// Parses |text|. invalidArgument: not JSON (with the byte offset), larger or nested deeper than
/// |limits|, or an object with the same key twice. Callers check types before get<>().
Result<nlohmann::json> parseJson(std::string_view text, const JsonLimits &limits = {});

} // namespace lathe
