//===- BlockPool.h - the blocks of one KV group -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/kv/BlockTimes.h"
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lathe::runtime {

/// Blocks 0 .. count-1 of one KV group. Each is in one state: *owned* (one or more owners), *cached* (no owner, named
/// by an entry of the prefix cache, free to take), or *free*. All memory is taken at construction; every operation is
/// O(1).
class BlockPool {
public:
  explicit BlockPool(uint32_t count);

  /// A block with one owner: a free one, else the cached one released longest ago, whose entry() the caller must clear
  /// (it still names the cache entry that has lost the block). -1: all blocks are owned.
  int32_t allocate();
  /// One owner more; a cached block becomes owned.
  void share(int32_t block);
  /// One owner less. The last one leaves the block free, or cached if it has an entry: then it is the last to be taken.
  void release(int32_t block);
  /// Names the cache entry of an owned block, or -1. A cached block whose entry is cleared becomes free.
  void setEntry(int32_t block, int32_t entry);

  int32_t entry(int32_t block) const { return blocks[static_cast<size_t>(block)].entry; }
  uint32_t owners(int32_t block) const { return blocks[static_cast<size_t>(block)].owners; }
  uint32_t available() const { return freeCount() + cachedCount(); } ///< free or cached: what allocate() can give
  uint32_t freeCount() const { return static_cast<uint32_t>(freeBlocks.size()); }
  uint32_t cachedCount() const { return cached; }
  uint32_t total() const { return static_cast<uint32_t>(blocks.size()); }
  /// The time of what happens from now on, in seconds from any origin.
  void setTime(double seconds) { now = seconds; }
  const BlockTimes &times() const { return durations; }
  /// Puts the free blocks in a random order: the placement of tokens must not show in any result (a test hook).
  void shuffle(uint64_t seed);
  std::span<const int32_t> freeList() const { return freeBlocks; }
  /// Cached blocks, the next to be taken first: walk from firstCached() by nextCached() until -1.
  int32_t firstCached() const { return head; }
  int32_t nextCached(int32_t block) const { return blocks[static_cast<size_t>(block)].next; }

private:
  struct Block {
    uint32_t owners = 0;
    int32_t entry = -1;
    int32_t next = -1, previous = -1; ///< in the list of cached blocks
    double taken = 0, released = 0;   ///< when
  };
  void unlink(int32_t block);
  std::vector<Block> blocks;
  std::vector<int32_t> freeBlocks; ///< a stack: what was used last is warm in the caches of the processor
  int32_t head = -1, tail = -1;
  uint32_t cached = 0;
  double now = 0;
  BlockTimes durations;
};

} // namespace lathe::runtime
