//===- PatternFuzzer.cpp - hostile patterns -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/base/Pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  size_t cut = text.find('\0');
  auto pattern = lathe::Pattern::compile(text.substr(0, cut));
  if (!pattern.ok()) return 0;
  std::vector<lathe::Pattern::Match> matches;
  std::string_view subject = cut == std::string_view::npos ? text : text.substr(cut + 1);
  pattern->findAll(subject, matches);
  size_t at = 0;
  for (const auto &match : matches) { // in order, inside, apart
    if (match.first < at || match.last < match.first || match.last > subject.size()) __builtin_trap();
    at = match.last;
  }
  return 0;
}
