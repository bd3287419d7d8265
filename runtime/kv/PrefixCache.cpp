//===- PrefixCache.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/kv/PrefixCache.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace lathe::runtime {

// Serials of name spaces have this bit, those of entries have not.
static constexpr PrefixCache::Serial spaceBit = 1ull << 63;

std::string PrefixKey::encode() const {
  std::string bytes;
  const std::pair<char, std::string_view> fields[] = {{'t', tenant}, {'s', salt}, {'a', adapter}, {'m', model}};
  for (auto [type, value] : fields) {
    bytes += type;
    for (unsigned shift = 0; shift < 64; shift += 8)
      bytes += static_cast<char>(uint64_t(value.size()) >> shift);
    bytes += value;
  }
  return bytes;
}

PrefixCache::PrefixCache(uint32_t pageTokens, std::span<const uint32_t> blocksPerEntry, uint32_t maxEntries,
                         uint64_t mask)
    : page(pageTokens), hashMask(mask) {
  for (uint32_t count : blocksPerEntry) {
    offsets.push_back(stride);
    stride += count;
  }
  entries.resize(maxEntries);
  tokens.resize(uint64_t(maxEntries) * page);
  blocks.assign(uint64_t(maxEntries) * stride, -1);
  table.resize(std::bit_ceil(std::max(16u, maxEntries + maxEntries / 2))); // at most two thirds full
  tableMask = static_cast<uint32_t>(table.size() - 1);
  for (uint32_t i = maxEntries; i-- > 0; freeEntry = static_cast<int32_t>(i))
    entries[i].next = freeEntry;
}

PrefixCache::Serial PrefixCache::acquireNamespace(const PrefixKey &key) {
  std::string bytes = key.encode();
  auto found = byKey.find(bytes);
  if (found == byKey.end()) {
    found = byKey.emplace(std::move(bytes), Namespace{nextSerial++ | spaceBit, 0}).first;
    bySerial.emplace(found->second.serial, found);
  }
  ++found->second.users;
  return found->second.serial;
}

void PrefixCache::releaseNamespace(Serial space) {
  auto found = bySerial.find(space);
  if (found == bySerial.end() || --found->second->second.users) return;
  byKey.erase(found->second);
  bySerial.erase(found);
}

/// 8 bytes of each are folded by a 64 x 64 -> 128 bit product, as in wyhash. Equality is decided by comparison.
static uint64_t fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t PrefixCache::start(Serial space) { return fold(space ^ 0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u); }

uint64_t PrefixCache::hash(uint64_t parentHash, const int32_t *page_) const {
  // Four tokens a product, the products independent of each other and of the parent; where one stands counts.
  uint64_t sum = 0, place = 0xa0761d6478bd642fu;
  uint32_t i = 0;
  for (; i + 4 <= page; i += 4, place += 0xe7037ed1a0b428dbu) {
    uint64_t two[2];
    std::memcpy(two, page_ + i, 16);
    sum += fold(two[0] ^ place, two[1] ^ 0x8ebc6af09c88c6e3u);
  }
  for (; i < page; ++i, place += 0xe7037ed1a0b428dbu)
    sum += fold(static_cast<uint32_t>(page_[i]) ^ place, 0x8ebc6af09c88c6e3u);
  return fold(parentHash ^ sum, 0xd6e8feb86659fd93u);
}

int32_t PrefixCache::find(Serial parent, uint64_t hash, const int32_t *page_) const {
  auto tag = static_cast<uint32_t>(hash & hashMask);
  for (uint32_t at = tag & tableMask; table[at].entry >= 0; at = (at + 1) & tableMask) {
    if (table[at].tag != tag) continue;
    auto i = static_cast<size_t>(table[at].entry);
    if (entries[i].parent == parent && !std::memcmp(&tokens[i * page], page_, page * sizeof(int32_t)))
      return table[at].entry;
  }
  return -1;
}

int32_t PrefixCache::insert(Serial parent, uint64_t hash, const int32_t *page_) {
  int32_t index = freeEntry;
  if (index < 0) return -1;
  if (parent & spaceBit) {
    auto space = bySerial.find(parent);
    if (space == bySerial.end()) return -1;
    ++space->second->second.users;
  }
  auto tag = static_cast<uint32_t>(hash & hashMask);
  uint32_t at = tag & tableMask;
  while (table[at].entry >= 0)
    at = (at + 1) & tableMask;
  table[at] = {index, tag};
  Entry &e = entries[static_cast<size_t>(index)];
  freeEntry = e.next;
  e = {parent, nextSerial++, -1, tag, 0};
  std::memcpy(&tokens[static_cast<size_t>(index) * page], page_, page * sizeof(int32_t));
  ++used;
  return index;
}

void PrefixCache::setBlock(int32_t entry, uint32_t group, uint32_t index, int32_t block) {
  int32_t &place = blocks[slot(entry, group) + index];
  entries[static_cast<size_t>(entry)].held += (block >= 0 ? 1u : 0u) - (place >= 0 ? 1u : 0u);
  place = block;
}

void PrefixCache::erase(int32_t entry) {
  Entry &e = entries[static_cast<size_t>(entry)];
  uint32_t hole = e.tag & tableMask;
  while (table[hole].entry != entry)
    hole = (hole + 1) & tableMask;
  // What follows moves up, unless it would stand before the place it belongs to.
  for (uint32_t at = (hole + 1) & tableMask; table[at].entry >= 0; at = (at + 1) & tableMask)
    if (((at - table[at].tag) & tableMask) >= ((at - hole) & tableMask)) {
      table[hole] = table[at];
      hole = at;
    }
  table[hole] = {};
  if (e.parent & spaceBit) releaseNamespace(e.parent);
  e = {0, 0, freeEntry, 0, 0};
  freeEntry = entry;
  --used;
}

} // namespace lathe::runtime
