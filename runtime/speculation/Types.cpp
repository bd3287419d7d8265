//===- Types.cpp ----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/Types.h"
#include <iterator>
#include <string>

namespace lathe::runtime {

static const char *const methodNames[] = {"off", "auto", "draft", "ngram", "suffix", "suffix-tree", "medusa", "eagle", "eagle2", "eagle3"};
const char *toString(Speculation method) { return methodNames[static_cast<size_t>(method)]; }

Result<Speculation> parseSpeculation(std::string_view name) {
  for (size_t i = 0; i < std::size(methodNames); ++i)
    if (name == methodNames[i]) return static_cast<Speculation>(i);
  if (name == "layerskip") return Speculation::draft; // as `lathe compile` calls the program that the first layers are
  return makeError(StatusCode::invalidArgument, "expected off, auto, draft, layerskip, ngram, suffix, suffix-tree, medusa, eagle, eagle2 or eagle3, found '%s'",
                   std::string(name.substr(0, 64)).c_str());
}

const char *toString(DraftSource source) {
  static const char *const names[draftSources] = {"ngram", "copy", "suffix", "shared", "draft"};
  return names[static_cast<size_t>(source)];
}

} // namespace lathe::runtime
