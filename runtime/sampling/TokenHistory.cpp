//===- TokenHistory.cpp - how often tokens occurred -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Sampler.h"

namespace lathe {

size_t TokenHistory::slotOf(int32_t token) const {
  size_t mask = table.size() - 1, at = static_cast<uint32_t>(token) * 0x9E3779B1u & mask;
  while (table[at] >= 0 && list[table[at]].token != token)
    at = (at + 1) & mask;
  return at;
}

void TokenHistory::grow(size_t slots) {
  table.assign(slots, -1);
  for (size_t i = 0; i < list.size(); ++i)
    table[slotOf(list[i].token)] = static_cast<int32_t>(i);
}

void TokenHistory::reserve(size_t distinct) {
  list.reserve(distinct);
  size_t slots = table.empty() ? 64 : table.size();
  while (slots <= distinct * 2)
    slots *= 2;
  if (slots > table.size()) grow(slots);
}

TokenHistory::Entry &TokenHistory::entryOf(int32_t token) {
  if (list.size() * 2 >= table.size()) grow(table.empty() ? 64 : table.size() * 2);
  size_t slot = slotOf(token);
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
