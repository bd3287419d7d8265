//===- NgramIndex.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/NgramIndex.h"
#include <algorithm>
#include <bit>

namespace lathe::runtime {

uint64_t NgramIndex::bytesFor(uint32_t tokens) {
  return uint64_t(std::bit_ceil(std::clamp(tokens, 64u, 1u << 24))) * (longest - shortest + 1) * sizeof(uint32_t);
}

NgramIndex::NgramIndex(uint32_t tokens) {
  mask = std::bit_ceil(std::clamp(tokens, 64u, 1u << 24)) - 1;
  for (uint32_t n = shortest; n <= longest; ++n)
    tables[n].resize(size_t(mask) + 1);
}

void NgramIndex::append(std::span<const int32_t> text, uint32_t end) {
  taken = end;
  uint64_t hash = 0;
  for (uint32_t n = 1; n <= longest && n <= end; ++n) {
    hash = (hash ^ (static_cast<uint32_t>(text[end - n]) + 1)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
    if (n < shortest) continue;
    uint32_t &entry = tables[n][hash & mask];
    earlier[n] = entry;
    entry = end;
  }
}

NgramIndex::Match NgramIndex::match(std::span<const int32_t> text) const {
  for (uint32_t n = std::min(longest, taken); n >= shortest; --n) {
    uint32_t at = earlier[n], length = 0;
    if (!at || at >= taken) continue;
    while (length < std::min(at, 32u) && text[at - 1 - length] == text[taken - 1 - length])
      ++length;
    if (length >= n) return {at, length};
  }
  return {};
}

} // namespace lathe::runtime
