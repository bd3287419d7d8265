//===- KVCache.h - which block holds which tokens -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Book-keeping of the paged KV cache: block numbers and tables. The bytes are the device's.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include "lathe/base/Status.h"
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lathe::runtime {

/// Free blocks 0 .. count-1 of one KV group: a stack, allocated once.
class BlockPool {
public:
  explicit BlockPool(uint32_t count);
  /// The next free block, or -1. O(1).
  int32_t allocate();
  void release(int32_t block);
  uint32_t available() const { return static_cast<uint32_t>(freeBlocks.size()); }
  uint32_t total() const { return count; }
  /// Puts the free blocks in a random order: the placement of tokens must not show in any result (a test hook).
  void shuffle(uint64_t seed);
  std::span<const int32_t> freeList() const { return freeBlocks; }

private:
  uint32_t count;
  std::vector<int32_t> freeBlocks;
};

/// Sizes of a cache, before any memory is taken.
struct KVShape {
  uint32_t maxSequences = 1;
  uint32_t contextTokens = 0; ///< of one sequence
  uint64_t kvTokens = 0;      ///< of all sequences together; 0: contextTokens * maxSequences
  uint32_t stepRows = 1;      ///< rows a step may add
};

/// Blocks that each KV group of |program| needs. A window group needs the blocks under its window and
/// those a step adds, for each sequence.
std::vector<uint32_t> kvBlocksFor(const Program &program, const KVShape &shape);

/// Block tables of up to maxSequences sequences over one pool per group. All memory is allocated at
/// construction. One thread at a time.
class KVCache {
public:
  KVCache(const Program &program, const KVShape &shape, std::span<const uint32_t> blocks);

  /// Gives |sequence| blocks for the slots below |length| that it lacks, in every group, from its first
  /// token still kept: all of them or, with resourceExhausted, none.
  Status reserve(uint32_t sequence, uint32_t length);
  /// Frees the blocks of window groups that a token at position |next| or later cannot see.
  void trim(uint32_t sequence, uint32_t next);
  /// Frees the blocks that hold only slots at or beyond |length|. False, and nothing done, when a window group has
  /// already freed blocks that a token at |length| needs.
  bool truncate(uint32_t sequence, uint32_t length);
  void release(uint32_t sequence);

  /// For LatheStep: [group] tables of int32 [maxSequences][stride], and strides.
  const int32_t *const *tables() const { return tablePointers.data(); }
  const uint32_t *strides() const { return tableStrides.data(); }
  uint32_t sequences() const { return shape.maxSequences; }

  BlockPool &pool(uint32_t group) { return pools[group]; }
  uint32_t groups() const { return static_cast<uint32_t>(pools.size()); }
  /// Tokens that a new sequence could hold now (capped at contextTokens).
  uint32_t availableTokens() const;
  /// Blocks released since the last call, as (group, block): for tests that overwrite free memory. Recorded only after
  /// recordReleases(true).
  void recordReleases(bool on) { recording = on; }
  std::vector<std::pair<uint32_t, int32_t>> takeReleased() { return std::exchange(released, {}); }

private:
  struct Group {
    uint32_t page = 16, window = 0; ///< window 0: full attention
  };
  struct Range {
    uint32_t first = 0, end = 0; ///< blocks held
  };
  int32_t *row(uint32_t group, uint32_t sequence) {
    return tableData[group].data() + uint64_t(sequence) * tableStrides[group];
  }
  void freeBlock(uint32_t group, int32_t &entry);

  KVShape shape;
  std::vector<Group> groupInfo;
  std::vector<BlockPool> pools;
  std::vector<std::vector<int32_t>> tableData;
  std::vector<const int32_t *> tablePointers;
  std::vector<uint32_t> tableStrides;
  std::vector<Range> ranges; ///< [sequence][group]
  bool recording = false;
  std::vector<std::pair<uint32_t, int32_t>> released;
};

} // namespace lathe::runtime
