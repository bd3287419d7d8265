//===- Quote.h - names from a file, made safe for a message --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <string>
#include <string_view>

namespace lathe {

/// |name| in single quotes, control and non-ASCII bytes as \xNN, cut after 100 bytes: a name read
/// from a hostile file must not be able to write to a terminal or fill a log.
inline std::string quoteName(std::string_view name) {
  static const char hex[] = "0123456789abcdef";
  std::string out = "'";
  for (size_t i = 0; i < name.size(); ++i) {
    if (i == 100) {
      out += "...";
      break;
    }
    auto c = static_cast<unsigned char>(name[i]);
    if (c < 0x20 || c >= 0x7f) {
      out += "\\x";
      out += hex[c >> 4];
      out += hex[c & 15];
    } else {
      out += name[i];
    }
  }
  return out + "'";
}

} // namespace lathe
