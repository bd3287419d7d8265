//===- JsonText.h - writing JSON ----------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lathe::server {

/// |text| as a JSON string; bytes that are not UTF-8 become U+FFFD.
inline std::string jsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The shortest decimal number that reads back as |value|; null for NaN. A logarithm of 0 becomes -9999, as in OpenAI's
/// answers: JSON has no infinity.
inline std::string decimal(float value) {
  if (std::isnan(value)) return "null";
  if (std::isinf(value)) return value < 0 ? "-9999.0" : "9999.0";
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

} // namespace lathe::server
