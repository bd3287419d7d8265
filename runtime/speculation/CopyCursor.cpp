//===- CopyCursor.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/CopyCursor.h"
#include <algorithm>

namespace lathe::runtime {

// How much longer a match elsewhere must be before a copy that goes well is given up for it.
static constexpr uint32_t clearlyLonger = 8;

void CopyCursor::push(std::span<const int32_t> text, uint32_t found, uint32_t agreeing) {
  auto last = static_cast<uint32_t>(text.size()) - 1;
  if (copied && text[at] == text[last]) {
    ++at, ++agreed, ++copied;
    if (agreed >= leastCopy) since = 0;
  } else if (copied) {
    if (!since) changed = at;
    // The token may stand near: then something was left out, or what was put in has ended. Of several places the one nearest to what was expected.
    uint32_t end = std::min(changed + window, last), place = end;
    auto distance = [this](uint32_t p) { return p > at ? p - at : at - p; };
    for (uint32_t p = changed; p < end; ++p)
      if (text[p] == text[last] && (place == end || distance(p) < distance(place))) place = p;
    agreed = place < end ? 1 : 0;
    at = std::min(place < end ? place + 1 : at + 1, last);
    if (++since > patience) copied = 0;
  }
  bool elsewhere = agreeing >= 2 * leastCopy && agreeing > agreed + (since ? 0 : clearlyLonger);
  if (agreeing < leastCopy || (copied && !elsewhere)) return;
  at = found;
  agreed = copied = agreeing;
  since = 0;
}

} // namespace lathe::runtime
