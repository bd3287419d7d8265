//===- SharedBlocks.cpp - copy on write, prefixes, saved sequences --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/kv/KVCache.h"
#include <algorithm>

namespace lathe::runtime {

static uint32_t ceilDiv(uint32_t a, uint32_t b) { return a / b + (a % b != 0); }
/// The first position that a token at |next| sees through |window|.
static uint32_t firstSeen(uint32_t next, uint32_t window) {
  return window && next + 1 > window ? next + 1 - window : 0;
}

// Copy on write.

uint32_t KVCache::lacking(uint32_t sequence, uint32_t group, uint32_t first, uint32_t end) const {
  const Range &range = ranges[uint64_t(sequence) * pools.size() + group];
  uint32_t page = groupInfo[group].page, last = ceilDiv(end, page), count = last > range.end ? last - range.end : 0;
  const int32_t *table = row(group, sequence);
  for (uint32_t b = std::max(first / page, range.first); b < std::min(last, range.end); ++b)
    count += pools[group].owners(table[b]) > 1;
  return count;
}

bool KVCache::extend(uint32_t sequence, uint32_t first, uint32_t end) {
  if (end > shape.contextTokens) return false;
  for (uint32_t g = 0; g < pools.size(); ++g)
    if (lacking(sequence, g, first, end) > pools[g].available()) return false;
  Range *held = &ranges[uint64_t(sequence) * pools.size()];
  for (uint32_t g = 0; g < pools.size(); ++g) {
    int32_t *table = row(g, sequence);
    uint32_t page = groupInfo[g].page, last = ceilDiv(end, page);
    for (uint32_t b = std::max(first / page, held[g].first); b < std::min(last, held[g].end); ++b) {
      if (pools[g].owners(table[b]) > 1) {
        int32_t copy = take(g);
        copies.push_back({g, table[b], copy}); // keeps the reference to the original
        copyOwners.push_back({sequence, b});
        table[b] = copy;
      } else if (pools[g].entry(table[b]) >= 0) {
        unpublish(g, table[b]); // it is about to hold other tokens
      }
    }
    for (; held[g].end < last; ++held[g].end)
      table[held[g].end] = take(g);
  }
  return true;
}

void KVCache::commitCopies() {
  for (const KVCopy &copy : copies)
    drop(copy.group, copy.from);
  copies.clear();
  copyOwners.clear();
}

void KVCache::rollback(uint32_t sequence, uint32_t length) {
  for (size_t i = copies.size(); i-- > 0;) {
    if (copyOwners[i].sequence != sequence) continue;
    int32_t &entry = row(copies[i].group, sequence)[copyOwners[i].index];
    drop(copies[i].group, entry);
    entry = copies[i].from;
    copies.erase(copies.begin() + static_cast<long>(i));
    copyOwners.erase(copyOwners.begin() + static_cast<long>(i));
  }
  truncate(sequence, length);
}

void KVCache::fork(uint32_t parent, uint32_t child) {
  for (uint32_t g = 0; g < pools.size(); ++g) {
    const Range &from = ranges[uint64_t(parent) * pools.size() + g];
    ranges[uint64_t(child) * pools.size() + g] = from;
    const int32_t *source = row(g, parent);
    int32_t *target = row(g, child);
    for (uint32_t b = from.first; b < from.end; ++b)
      pools[g].share(target[b] = source[b]);
  }
  chains[child] = chains[parent];
}

// Prefixes.

bool KVCache::enablePrefixCache(uint64_t hashMask) {
  if (pools.empty()) return false;
  uint32_t page = 0;
  uint64_t entries = 0;
  for (const Group &group : groupInfo)
    page = std::max(page, group.page);
  for (const Group &group : groupInfo)
    if (page % group.page) return false;
  for (uint32_t g = 0; g < pools.size(); ++g) {
    perEntry.push_back(page / groupInfo[g].page);
    entries += pools[g].total();
  }
  prefixes = std::make_unique<PrefixCache>(page, perEntry, static_cast<uint32_t>(std::min<uint64_t>(entries, 1u << 30)),
                                           hashMask);
  path.resize(shape.contextTokens / page + 1);
  runLength.resize(pools.size());
  return true;
}

/// Pages of match(); |entries| gets them, |hash| the hash of the last one.
uint32_t KVCache::walk(PrefixCache::Serial space, std::span<const int32_t> tokens, uint32_t limit, int32_t *entries,
                       uint64_t &hash) const {
  uint32_t page = prefixes->pageTokens(), best = 0;
  uint32_t pages = std::min<uint32_t>({static_cast<uint32_t>(tokens.size()), limit, shape.contextTokens}) / page;
  std::fill(runLength.begin(), runLength.end(), 0);
  PrefixCache::Serial parent = space;
  // Hashes run ahead of the look-ups, which wait for memory. They stay few: most prompts that miss do so early.
  constexpr uint32_t ahead = 8;
  uint64_t hashes[ahead], last = PrefixCache::start(space);
  for (uint32_t p = 0, hashed = 0; p < pages; ++p) {
    for (; hashed < std::min(pages, p + ahead); ++hashed)
      prefixes->prefetch(hashes[hashed % ahead] = last = prefixes->hash(last, tokens.data() + uint64_t(hashed) * page));
    int32_t entry = entries[p] = prefixes->find(parent, hashes[p % ahead], tokens.data() + uint64_t(p) * page);
    if (entry < 0) break;
    parent = prefixes->serial(entry);
    uint32_t length = (p + 1) * page;
    bool usable = true;
    for (uint32_t g = 0; g < pools.size(); ++g) {
      if (!groupInfo[g].window) continue; // an entry lives as long as its full attention blocks
      for (uint32_t i = 0; i < perEntry[g]; ++i)
        runLength[g] = prefixes->block(entry, g, i) < 0 ? 0 : runLength[g] + 1;
      uint32_t needed = length / groupInfo[g].page - firstSeen(length, groupInfo[g].window) / groupInfo[g].page;
      usable &= runLength[g] >= needed;
    }
    if (usable) best = p + 1, hash = hashes[p % ahead];
  }
  return best;
}

uint32_t KVCache::match(PrefixCache::Serial space, std::span<const int32_t> tokens, uint32_t limit) const {
  uint64_t hash = 0;
  return prefixes ? walk(space, tokens, limit, path.data(), hash) * prefixes->pageTokens() : 0;
}

uint32_t KVCache::adopt(uint32_t sequence, PrefixCache::Serial space, std::span<const int32_t> tokens, uint32_t limit) {
  if (!prefixes) return 0;
  uint64_t hash = 0;
  uint32_t pages = walk(space, tokens, limit, path.data(), hash);
  if (!pages) return 0;
  uint32_t length = pages * prefixes->pageTokens();
  for (uint32_t g = 0; g < pools.size(); ++g) {
    Range &held = ranges[uint64_t(sequence) * pools.size() + g];
    held = {firstSeen(length, groupInfo[g].window) / groupInfo[g].page, length / groupInfo[g].page};
    int32_t *table = row(g, sequence);
    for (uint32_t b = held.first; b < held.end; ++b)
      pools[g].share(table[b] = prefixes->block(path[b / perEntry[g]], g, b % perEntry[g]));
  }
  int32_t last = path[pages - 1];
  chains[sequence] = {pages, last, prefixes->serial(last), hash};
  return length;
}

void KVCache::publish(uint32_t sequence, PrefixCache::Serial space, std::span<const int32_t> tokens) {
  if (!prefixes) return;
  uint32_t page = prefixes->pageTokens(), pages = static_cast<uint32_t>(tokens.size()) / page;
  Chain &chain = chains[sequence];
  if (chain.pages >= pages) return;
  // The chain's last entry may have lost its blocks while this sequence owned copies of its own: start again.
  if (chain.pages && !prefixes->alive(chain.entry, chain.serial)) chain = {};
  const Range *held = &ranges[uint64_t(sequence) * pools.size()];
  for (; chain.pages < pages;) {
    PrefixCache::Serial parent = chain.pages ? chain.serial : space;
    uint64_t parentHash = chain.pages ? chain.hash : PrefixCache::start(space);
    const int32_t *ids = tokens.data() + uint64_t(chain.pages) * page;
    uint64_t hash = prefixes->hash(parentHash, ids);
    int32_t entry = prefixes->find(parent, hash, ids);
    if (entry < 0) {
      bool any = false, all = true;
      for (uint32_t g = 0; g < pools.size(); ++g) {
        uint32_t begin = chain.pages * perEntry[g], end = begin + perEntry[g];
        any |= end > held[g].first && begin < held[g].end;
        all &= groupInfo[g].window != 0 || (begin >= held[g].first && end <= held[g].end);
      }
      if (!any || !all || (entry = prefixes->insert(parent, hash, ids)) < 0) return;
    }
    for (uint32_t g = 0; g < pools.size(); ++g)
      for (uint32_t i = 0; i < perEntry[g]; ++i) {
        uint32_t b = chain.pages * perEntry[g] + i;
        if (b < held[g].first || b >= held[g].end || prefixes->block(entry, g, i) >= 0) continue;
        int32_t block = row(g, sequence)[b];
        if (pools[g].entry(block) >= 0) unpublish(g, block); // its old chain is broken: nothing finds it there
        prefixes->setBlock(entry, g, i, block);
        pools[g].setEntry(block, entry);
      }
    chain = {chain.pages + 1, entry, prefixes->serial(entry), hash};
  }
}

void KVCache::unpublish(uint32_t group, int32_t block) {
  int32_t entry = pools[group].entry(block);
  for (uint32_t i = 0; i < perEntry[group]; ++i)
    if (prefixes->block(entry, group, i) == block) prefixes->setBlock(entry, group, i, -1);
  forget(group, block);
  if (groupInfo[group].window && prefixes->held(entry)) return;
  for (uint32_t g = 0; g < pools.size(); ++g) // without its full attention blocks an entry serves nobody
    for (uint32_t i = 0; i < perEntry[g]; ++i)
      if (int32_t other = prefixes->block(entry, g, i); other >= 0) {
        prefixes->setBlock(entry, g, i, -1);
        forget(g, other);
      }
  prefixes->erase(entry);
}

void KVCache::forget(uint32_t group, int32_t block) {
  pools[group].setEntry(block, -1);
  if (recording && pools[group].owners(block) == 0) released.emplace_back(group, block);
}

void KVCache::clearPrefixes() {
  if (!prefixes) return;
  for (uint32_t e = 0; e < prefixes->capacity() && prefixes->size(); ++e) {
    auto entry = static_cast<int32_t>(e);
    if (!prefixes->serial(entry)) continue;
    for (uint32_t g = 0; g < pools.size(); ++g)
      for (uint32_t i = 0; i < perEntry[g]; ++i)
        if (int32_t block = prefixes->block(entry, g, i); block >= 0) {
          prefixes->setBlock(entry, g, i, -1);
          forget(g, block);
        }
    prefixes->erase(entry);
  }
}

// Saved sequences.

bool KVCache::save(uint32_t sequence, uint32_t length, HostStore &store, SavedSequence &saved,
                   std::vector<KVTransfer> &transfers) {
  saved.length = length;
  size_t before = transfers.size();
  for (uint32_t g = 0; g < pools.size(); ++g) {
    auto [first, end] = held(sequence, g);
    for (uint32_t b = first; b < std::min(end, ceilDiv(length, groupInfo[g].page)); ++b) {
      int64_t slot = store.allocate(g);
      if (slot < 0) {
        dropSaved(saved, store);
        transfers.resize(before);
        return false;
      }
      saved.blocks.push_back({g, b, static_cast<uint32_t>(slot)});
      transfers.push_back({g, row(g, sequence)[b], static_cast<uint32_t>(slot)});
    }
  }
  release(sequence);
  return true;
}

uint32_t KVCache::restoring(const SavedSequence &saved, uint32_t group) {
  uint32_t count = 0;
  for (const SavedSequence::Block &block : saved.blocks)
    count += block.group == group;
  return count;
}

bool KVCache::restore(uint32_t sequence, const SavedSequence &saved, std::vector<KVTransfer> &transfers) {
  for (uint32_t g = 0; g < pools.size(); ++g)
    if (restoring(saved, g) > pools[g].available()) return false;
  Range *held = &ranges[uint64_t(sequence) * pools.size()];
  // A window at the border of a page may see nothing before the next token.
  for (uint32_t g = 0; g < pools.size(); ++g)
    held[g].first = held[g].end = saved.length / groupInfo[g].page;
  for (uint32_t g = 0; g < pools.size(); ++g)
    for (const SavedSequence::Block &block : saved.blocks)
      if (block.group == g && block.index < held[g].first) held[g].first = held[g].end = block.index;
  for (const SavedSequence::Block &block : saved.blocks) { // in table order, group by group
    Range &range = held[block.group];
    int32_t target = row(block.group, sequence)[block.index] = take(block.group);
    ++range.end;
    transfers.push_back({block.group, target, block.slot});
  }
  return true;
}

void KVCache::dropSaved(SavedSequence &saved, HostStore &store) {
  for (const SavedSequence::Block &block : saved.blocks)
    store.release(block.group, block.slot);
  saved = {};
}

// Invariants.

Status KVCache::check() const {
  auto broken = [](const char *what, uint32_t group, int64_t block, int64_t expected, int64_t found) {
    return makeError(StatusCode::internal, "KV group %u, block %lld: expected %s %lld, found %lld", group,
                     static_cast<long long>(block), what, static_cast<long long>(expected),
                     static_cast<long long>(found));
  };
  for (uint32_t g = 0; g < pools.size(); ++g) {
    const BlockPool &pool = pools[g];
    std::vector<uint32_t> owners(pool.total()), free(pool.total()), cached(pool.total()), named(pool.total());
    auto inRange = [&](int32_t block) { return block >= 0 && static_cast<uint32_t>(block) < pool.total(); };
    for (uint32_t s = 0; s < shape.maxSequences; ++s) {
      auto [first, end] = held(s, g);
      if (first > end || end > tableStrides[g]) return broken("table end at most", g, -1, tableStrides[g], end);
      for (uint32_t b = 0; b < tableStrides[g]; ++b) {
        int32_t block = row(g, s)[b];
        bool inside = b >= first && b < end;
        if (inside != (block >= 0) || (inside && !inRange(block))) return broken("table entry", g, block, inside, s);
        if (inside) ++owners[static_cast<size_t>(block)];
      }
    }
    for (const KVCopy &copy : copies)
      if (copy.group == g) ++owners[static_cast<size_t>(copy.from)];
    for (int32_t block : pool.freeList()) {
      if (!inRange(block)) return broken("free block below", g, block, pool.total(), block);
      ++free[static_cast<size_t>(block)];
    }
    uint32_t count = 0;
    for (int32_t block = pool.firstCached(); block >= 0 && count <= pool.total();
         block = pool.nextCached(block), ++count)
      ++cached[static_cast<size_t>(block)];
    if (count != pool.cachedCount()) return broken("cached blocks", g, -1, pool.cachedCount(), count);
    if (prefixes)
      for (uint32_t e = 0; e < prefixes->capacity(); ++e)
        for (uint32_t i = 0; i < perEntry[g] && prefixes->serial(static_cast<int32_t>(e)); ++i) {
          int32_t block = prefixes->block(static_cast<int32_t>(e), g, i);
          if (block < 0) {
            if (!groupInfo[g].window) return broken("full attention block of entry", g, block, e, -1);
            continue;
          }
          if (pool.entry(block) != static_cast<int32_t>(e)) return broken("entry", g, block, e, pool.entry(block));
          ++named[static_cast<size_t>(block)];
        }
    for (uint32_t b = 0; b < pool.total(); ++b) {
      auto block = static_cast<int32_t>(b);
      bool published = pool.entry(block) >= 0;
      if (pool.owners(block) != owners[b]) return broken("owners", g, block, owners[b], pool.owners(block));
      if (named[b] != published) return broken("names in the prefix cache", g, block, published, named[b]);
      if (free[b] != (owners[b] == 0 && !published))
        return broken("times in the free list", g, block, !free[b], free[b]);
      if (cached[b] != (owners[b] == 0 && published))
        return broken("times in the cached list", g, block, !cached[b], cached[b]);
    }
  }
  return Status();
}

} // namespace lathe::runtime
