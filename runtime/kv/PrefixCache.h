//===- PrefixCache.h - which blocks hold which prefix -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A hash chain over full pages of tokens: the key of an entry is (its parent entry, the page's tokens), the parent of a
// first page is a name space. Tokens and parent are compared, never only hashed; a name space is compared byte by byte.
// The hash of an entry is a function of its parent's hash and its tokens, so those of a whole prompt can be computed
// before any entry is looked at, and the memory they lead to fetched ahead.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::runtime {

/// Who may share KV blocks. Encoded with a type byte and a length before each field, so that no two keys that differ in
/// any field have the same bytes.
struct PrefixKey {
  std::string_view tenant, salt, adapter, model;
  std::string encode() const;
};

/// Knows entries, not pools: KVCache keeps the blocks' states. Memory is taken at construction, but for name spaces.
class PrefixCache {
public:
  using Serial = uint64_t; ///< names an entry or a name space for ever: never used twice; 0: none

  /// |pageTokens| of an entry; |blocksPerEntry[g]| of KV group g. |hashMask| (a test hook) leaves only these bits of
  /// each hash: with 0 every key collides.
  PrefixCache(uint32_t pageTokens, std::span<const uint32_t> blocksPerEntry, uint32_t maxEntries,
              uint64_t hashMask = ~0ull);

  /// The serial of a name space, made if new; each acquire needs a release. Allocates when it is new.
  Serial acquireNamespace(const PrefixKey &key);
  void releaseNamespace(Serial space);

  /// The hash that the first pages of a name space go on from.
  static uint64_t start(Serial space);
  /// The hash of the entry of |tokens| (one page) whose parent has |parentHash|.
  uint64_t hash(uint64_t parentHash, const int32_t *tokens) const;
  /// Fetches what find() with this hash looks at first.
  void prefetch(uint64_t hash) const { __builtin_prefetch(&table[hash & hashMask & tableMask]); }
  /// The entry of |tokens| (one page) after |parent|, or -1. |hash|: hash(that of |parent|, |tokens|).
  int32_t find(Serial parent, uint64_t hash, const int32_t *tokens) const;
  /// Makes the entry, which is not there, without blocks. -1: all entries are in use.
  int32_t insert(Serial parent, uint64_t hash, const int32_t *tokens);
  Serial serial(int32_t entry) const { return entries[static_cast<size_t>(entry)].serial; }
  /// The entry if it still is the one with this serial.
  bool alive(int32_t entry, Serial serial) const { return entries[static_cast<size_t>(entry)].serial == serial; }
  /// Block |index| of the page in |group|, -1 if the cache has it not.
  int32_t block(int32_t entry, uint32_t group, uint32_t index) const { return blocks[slot(entry, group) + index]; }
  void setBlock(int32_t entry, uint32_t group, uint32_t index, int32_t block);
  /// Blocks that the entry has, over all groups.
  uint32_t held(int32_t entry) const { return entries[static_cast<size_t>(entry)].held; }
  /// Forgets an entry that has no blocks. Entries after it are found no more (their parent's serial is gone for good).
  void erase(int32_t entry);

  uint32_t pageTokens() const { return page; }
  uint32_t size() const { return used; }
  uint32_t capacity() const { return static_cast<uint32_t>(entries.size()); }
  size_t namespaces() const { return byKey.size(); }

private:
  struct Entry {
    Serial parent = 0, serial = 0;
    int32_t next = -1; ///< in the free list
    uint32_t tag = 0, held = 0;
  };
  /// Of a table with linear probing. The tag is the low half of the hash: it says where the entry belongs, and most
  /// misses without a look at the entry.
  struct Place {
    int32_t entry = -1;
    uint32_t tag = 0;
  };
  struct Namespace {
    Serial serial;
    uint32_t users;
  };
  size_t slot(int32_t entry, uint32_t group) const { return static_cast<size_t>(entry) * stride + offsets[group]; }

  uint32_t page, stride = 0, used = 0;
  uint64_t hashMask;
  std::vector<uint32_t> offsets;
  std::vector<Entry> entries;
  std::vector<int32_t> tokens; ///< [entry][page]
  std::vector<int32_t> blocks; ///< [entry][stride]
  std::vector<Place> table;
  uint32_t tableMask = 0;
  int32_t freeEntry = -1;
  Serial nextSerial = 1;
  std::map<std::string, Namespace, std::less<>> byKey;
  std::map<Serial, std::map<std::string, Namespace, std::less<>>::iterator> bySerial;
};

} // namespace lathe::runtime
