//===- KVCache.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/kv/KVCache.h"
#include <algorithm>

namespace lathe::runtime {

static uint32_t ceilDiv(uint64_t a, uint32_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

std::vector<uint32_t> kvBlocksFor(const Program &program, const KVShape &shape) {
  std::vector<uint32_t> blocks;
  for (const KVGroup &group : program.kvGroups) {
    uint64_t perSequence = ceilDiv(shape.contextTokens, group.pageTokens);
    uint64_t total = perSequence * shape.maxSequences;
    // Tokens may be spread over all sequences, each with a partly filled last block.
    if (shape.kvTokens) total = std::min(total, shape.kvTokens / group.pageTokens + std::max(1u, shape.maxSequences));
    if (group.kind == 1) {
      uint64_t seen = uint64_t(ceilDiv(uint64_t(group.window) + shape.stepRows, group.pageTokens)) + 1;
      total = std::min(total, seen * shape.maxSequences);
    }
    if (group.draft && !shape.drafts) total = 1;
    blocks.push_back(static_cast<uint32_t>(std::clamp<uint64_t>(total, 1, 1u << 30)));
  }
  return blocks;
}

KVCache::KVCache(std::span<const KVGroup> kvGroups, const KVShape &newShape, std::span<const uint32_t> blocks)
    : shape(newShape) {
  for (size_t g = 0; g < kvGroups.size(); ++g) {
    const KVGroup &group = kvGroups[g];
    groupInfo.push_back({group.pageTokens, group.kind == 1 ? group.window : 0});
    pools.emplace_back(blocks[g]);
    tableStrides.push_back(std::max(1u, ceilDiv(shape.contextTokens, group.pageTokens)));
    tableData.emplace_back(uint64_t(shape.maxSequences) * tableStrides.back(), -1);
  }
  for (auto &table : tableData)
    tablePointers.push_back(table.data());
  ranges.resize(uint64_t(shape.maxSequences) * pools.size());
  chains.resize(shape.maxSequences);
  // One step copies at most the partly filled block of each sequence.
  copies.reserve(ranges.size());
  copyOwners.reserve(ranges.size());
}

Status KVCache::reserve(uint32_t sequence, uint32_t length) {
  if (length > shape.contextTokens)
    return makeError(StatusCode::resourceExhausted, "expected at most %u tokens in a sequence, found %u",
                     shape.contextTokens, length);
  Range *held = &ranges[uint64_t(sequence) * pools.size()];
  for (uint32_t g = 0; g < pools.size(); ++g) {
    uint32_t end = ceilDiv(length, groupInfo[g].page), more = end > held[g].end ? end - held[g].end : 0;
    if (more > pools[g].available())
      return makeError(StatusCode::resourceExhausted,
                       "the KV cache is full: expected %u free blocks of %u tokens, found %u", more, groupInfo[g].page,
                       pools[g].available());
  }
  for (uint32_t g = 0; g < pools.size(); ++g) {
    int32_t *table = row(g, sequence);
    for (uint32_t end = ceilDiv(length, groupInfo[g].page); held[g].end < end; ++held[g].end)
      table[held[g].end] = take(g);
  }
  return Status();
}

int32_t KVCache::take(uint32_t group) {
  int32_t block = pools[group].allocate();
  if (block >= 0 && pools[group].entry(block) >= 0) {
    unpublish(group, block);
    if (recording) released.emplace_back(group, block);
  }
  return block;
}

void KVCache::drop(uint32_t group, int32_t block) {
  pools[group].release(block);
  if (recording && pools[group].owners(block) == 0 && pools[group].entry(block) < 0)
    released.emplace_back(group, block);
}

void KVCache::freeBlock(uint32_t group, int32_t &entry) {
  drop(group, entry);
  entry = -1;
}

void KVCache::trim(uint32_t sequence, uint32_t next) {
  for (uint32_t g = 0; g < pools.size(); ++g) {
    if (!groupInfo[g].window || next + 1 <= groupInfo[g].window) continue;
    Range &held = ranges[uint64_t(sequence) * pools.size() + g];
    uint32_t firstSeen = next + 1 - groupInfo[g].window; // a token sees itself and window - 1 before it
    for (; held.first < held.end && (held.first + 1) * groupInfo[g].page <= firstSeen; ++held.first)
      freeBlock(g, row(g, sequence)[held.first]);
  }
}

bool KVCache::truncate(uint32_t sequence, uint32_t length) {
  Range *held = &ranges[uint64_t(sequence) * pools.size()];
  for (uint32_t g = 0; g < pools.size(); ++g) {
    uint32_t window = groupInfo[g].window;
    uint32_t firstSeen = window && length + 1 > window ? length + 1 - window : 0;
    if (held[g].first * groupInfo[g].page > firstSeen) return false;
  }
  for (uint32_t g = 0; g < pools.size(); ++g)
    for (uint32_t keep = ceilDiv(length, groupInfo[g].page); held[g].end > std::max(keep, held[g].first);)
      freeBlock(g, row(g, sequence)[--held[g].end]);
  if (prefixes && uint64_t(chains[sequence].pages) * prefixes->pageTokens() > length) chains[sequence] = {};
  return true;
}

void KVCache::release(uint32_t sequence) {
  for (uint32_t g = 0; g < pools.size(); ++g) {
    Range &held = ranges[uint64_t(sequence) * pools.size() + g];
    while (held.end > held.first)
      freeBlock(g, row(g, sequence)[--held.end]);
    held = {};
  }
  chains[sequence] = {};
}

uint32_t KVCache::availableTokens() const {
  uint64_t tokens = shape.contextTokens;
  for (uint32_t g = 0; g < pools.size(); ++g) {
    uint64_t fits = uint64_t(pools[g].available()) * groupInfo[g].page;
    uint64_t enough = uint64_t(groupInfo[g].window) + shape.stepRows + groupInfo[g].page;
    if (!groupInfo[g].window || fits < enough) tokens = std::min(tokens, fits);
  }
  return static_cast<uint32_t>(tokens);
}

} // namespace lathe::runtime
