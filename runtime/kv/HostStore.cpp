//===- HostStore.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/kv/KVCache.h"
#include <algorithm>

namespace lathe::runtime {

HostStore::HostStore(const Program &program, uint64_t budgetBytes) : limit(budgetBytes) {
  for (const KVGroup &group : std::span(program.kvGroups).first(program.stepGroups())) {
    Group g;
    g.bytes = std::max<uint64_t>(1, group.blockBytes);
    g.total = static_cast<uint32_t>(std::min<uint64_t>(limit / g.bytes, 1u << 20));
    g.released.reserve(g.total);
    groups.push_back(std::move(g));
  }
}

int64_t HostStore::allocate(uint32_t group) {
  Group &g = groups[group];
  if (limit - used < g.bytes || (g.released.empty() && g.fresh == g.total)) return -1;
  used += g.bytes;
  if (g.released.empty()) return g.fresh++;
  uint32_t slot = g.released.back();
  g.released.pop_back();
  return slot;
}

void HostStore::release(uint32_t group, uint32_t slot) {
  groups[group].released.push_back(slot);
  used -= groups[group].bytes;
}

} // namespace lathe::runtime
