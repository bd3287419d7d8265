//===- TokenHistory.cpp - how often tokens occurred -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Sampler.h"

namespace lathe {

TokenHistory::Entry &TokenHistory::entryOf(int32_t token) {
  auto slotFor = [&](int32_t t) {
    size_t mask = table.size() - 1, at = static_cast<uint32_t>(t) * 0x9E3779B1u & mask;
    while (table[at] >= 0 && list[table[at]].token != t)
      at = (at + 1) & mask;
    return at;
  };
  if (list.size() * 2 >= table.size()) {
    table.assign(table.empty() ? 64 : table.size() * 2, -1);
    for (size_t i = 0; i < list.size(); ++i)
      table[slotFor(list[i].token)] = static_cast<int32_t>(i);
  }
  size_t slot = slotFor(token);
  if (table[slot] < 0) {
    table[slot] = static_cast<int32_t>(list.size());
    list.push_back({token, 0, 0});
  }
  return list[table[slot]];
}

void TokenHistory::addPrompt(int32_t token) { ++entryOf(token).inPrompt; }

void TokenHistory::addOutput(int32_t token) {
  ++entryOf(token).inOutput;
  ++outputs;
}

void TokenHistory::removeOutput(int32_t token) {
  Entry &entry = entryOf(token);
  if (entry.inOutput == 0) return;
  --entry.inOutput;
  --outputs;
}

} // namespace lathe
