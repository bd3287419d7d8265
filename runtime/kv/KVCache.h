//===- KVCache.h - which block holds which tokens -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Book-keeping of the paged KV cache: block numbers and tables. The bytes are the device's.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include "lathe/base/Status.h"
#include "runtime/kv/BlockPool.h"
#include "runtime/kv/PrefixCache.h"
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lathe::runtime {

/// Sizes of a cache, before any memory is taken.
struct KVShape {
  uint32_t maxSequences = 1;
  uint32_t contextTokens = 0; ///< of one sequence
  uint64_t kvTokens = 0;      ///< of all sequences together; 0: contextTokens * maxSequences
  uint32_t stepRows = 1;      ///< rows a step may add
  bool drafts = false;        ///< the draft program will run: its groups hold the same tokens
};

/// Blocks that each KV group of |program| needs. A window group needs the blocks under its window and
/// those a step adds, for each sequence. A draft program's own groups get one block unless |shape| says that it runs.
std::vector<uint32_t> kvBlocksFor(const Program &program, const KVShape &shape);

/// A block to be copied on the device before the step writes: block |to| must hold the bytes of |from|.
struct KVCopy {
  uint32_t group;
  int32_t from, to;
};

/// A block of |group| that goes to, or comes from, slot |slot| of the group's part of the host store.
struct KVTransfer {
  uint32_t group;
  int32_t block;
  uint32_t slot;
};

/// Slots for saved blocks of the step's groups in host memory: which are in use, within a budget of bytes over all groups. The memory itself
/// is the engine's: slots of group g are numbered from 0 to below slots(g), KVGroup.blockBytes each.
class HostStore {
public:
  HostStore(const Program &program, uint64_t budgetBytes);
  /// Slots that group |group| could have if it had the whole budget (at most 2^20).
  uint32_t slots(uint32_t group) const { return groups[group].total; }
  uint64_t bytesUsed() const { return used; }
  uint64_t budget() const { return limit; }
  /// A slot, or -1 when the budget or the group's slots are used up.
  int64_t allocate(uint32_t group);
  void release(uint32_t group, uint32_t slot);
  uint64_t blockBytes(uint32_t group) const { return groups[group].bytes; }

private:
  struct Group {
    uint64_t bytes = 0;
    uint32_t total = 0, fresh = 0; ///< slots from |fresh| on were never used
    std::vector<uint32_t> released;
  };
  std::vector<Group> groups;
  uint64_t limit = 0, used = 0;
};

/// What a preempted sequence left in host memory.
struct SavedSequence {
  uint32_t length = 0; ///< tokens
  struct Block {
    uint32_t group, index, slot; ///< index: place in the group's table
  };
  std::vector<Block> blocks;
};

/// Block tables of up to maxSequences sequences over one pool per group, with shared blocks and a prefix cache. All
/// memory is allocated at construction. One thread at a time.
///
/// A block may have several owners (fork, prefix hits) and may be published: then nothing writes into it. Whoever is
/// about to write a slot calls extend(), which gives the sequence a block of its own there.
class KVCache {
public:
  /// Over |groups|, with |blocks| of each.
  KVCache(std::span<const KVGroup> groups, const KVShape &shape, std::span<const uint32_t> blocks);
  /// Over the groups that the step appends to.
  KVCache(const Program &program, const KVShape &shape, std::span<const uint32_t> blocks)
      : KVCache(std::span(program.kvGroups).first(program.stepGroups()), shape, blocks) {}

  // One owner a block: what a single caller needs.

  /// Gives |sequence| blocks for the slots below |length| that it lacks, in every group, from its first
  /// token still kept: all of them or, with resourceExhausted, none.
  Status reserve(uint32_t sequence, uint32_t length);
  /// Frees the blocks of window groups that a token at position |next| or later cannot see.
  void trim(uint32_t sequence, uint32_t next);
  /// Frees the blocks that hold only slots at or beyond |length|. False, and nothing done, when a window group has
  /// already freed blocks that a token at |length| needs.
  bool truncate(uint32_t sequence, uint32_t length);
  /// Gives back all blocks, the last ones first, so that the cached tails of prefixes are taken before their heads.
  void release(uint32_t sequence);

  // Shared blocks.

  /// Blocks of |group| that extend(sequence, first, end) would take.
  uint32_t lacking(uint32_t sequence, uint32_t group, uint32_t first, uint32_t end) const;
  /// Makes slots first .. end-1 writable: blocks it lacks are allocated, shared ones among them replaced by copies.
  /// |first| is the sequence's length. False, and nothing done, if blocks are missing. The copies are kept in
  /// pendingCopies(), with the originals held, until commitCopies() (they were made) or rollback().
  bool extend(uint32_t sequence, uint32_t first, uint32_t end);
  std::span<const KVCopy> pendingCopies() const { return copies; }
  void commitCopies();
  /// Undoes all extend() since the last commitCopies() for |sequence|, whose length is |length|.
  void rollback(uint32_t sequence, uint32_t length);
  /// |child|, an empty sequence, shares all blocks of |parent|.
  void fork(uint32_t parent, uint32_t child);

  // Prefixes.

  /// Turns the prefix cache on, before the first use. False: pages of the groups do not divide each other, or there is
  /// no group. |hashMask|: see PrefixCache.
  bool enablePrefixCache(uint64_t hashMask = ~0ull);
  PrefixCache *prefixCache() { return prefixes.get(); }
  const PrefixCache *prefixCache() const { return prefixes.get(); }
  /// Tokens of |tokens| whose blocks the cache has, at most |limit|: whole pages; of a window group the blocks under
  /// the window of the next token.
  uint32_t match(PrefixCache::Serial space, std::span<const int32_t> tokens, uint32_t limit) const;
  /// Gives the blocks of match() to |sequence|, which is empty; returns the tokens.
  uint32_t adopt(uint32_t sequence, PrefixCache::Serial space, std::span<const int32_t> tokens, uint32_t limit);
  /// Publishes the full pages of |tokens|, the first of the sequence and all computed, that are not yet. A window
  /// group's blocks that were freed before are not in it.
  void publish(uint32_t sequence, PrefixCache::Serial space, std::span<const int32_t> tokens);
  void clearPrefixes();

  // Host memory.

  /// Takes slots for all blocks that |sequence|, of |length| tokens, holds, lists the transfers, and releases the
  /// sequence; its blocks keep their bytes until the step's own transfers. False, and nothing done: no room in the
  /// store.
  bool save(uint32_t sequence, uint32_t length, HostStore &store, SavedSequence &saved,
            std::vector<KVTransfer> &transfers);
  /// Blocks of |group| that restore() takes.
  static uint32_t restoring(const SavedSequence &saved, uint32_t group);
  /// Gives |sequence|, which is empty, blocks for what was saved, and lists the transfers. The slots stay the saved
  /// sequence's until dropSaved(). False, and nothing done: blocks are missing.
  bool restore(uint32_t sequence, const SavedSequence &saved, std::vector<KVTransfer> &transfers);
  static void dropSaved(SavedSequence &saved, HostStore &store);

  /// For LatheStep: [group] tables of int32 [maxSequences][stride], and strides.
  const int32_t *const *tables() const { return tablePointers.data(); }
  const uint32_t *strides() const { return tableStrides.data(); }
  uint32_t sequences() const { return shape.maxSequences; }

  BlockPool &pool(uint32_t group) { return pools[group]; }
  const BlockPool &pool(uint32_t group) const { return pools[group]; }
  uint32_t groups() const { return static_cast<uint32_t>(pools.size()); }
  uint32_t page(uint32_t group) const { return groupInfo[group].page; }
  uint32_t window(uint32_t group) const { return groupInfo[group].window; } ///< 0: full attention
  /// Blocks that |sequence| holds in |group|: table entries first .. end-1.
  std::pair<uint32_t, uint32_t> held(uint32_t sequence, uint32_t group) const {
    const Range &range = ranges[uint64_t(sequence) * pools.size() + group];
    return {range.first, range.end};
  }
  /// The time of what happens from now on, for times().
  void setTime(double seconds) {
    for (BlockPool &pool : pools)
      pool.setTime(seconds);
  }
  /// Over all groups.
  BlockTimes times() const {
    BlockTimes sum;
    for (const BlockPool &pool : pools)
      sum += pool.times();
    return sum;
  }
  /// Tokens that a new sequence could hold now (capped at contextTokens).
  uint32_t availableTokens() const;
  /// Blocks whose bytes nobody may read any more, since the last call, as (group, block): for tests that overwrite free
  /// memory. Those that became free, and cached ones that were taken; some may have a new owner that has written
  /// nothing yet. Recorded only after recordReleases(true).
  void recordReleases(bool on) { recording = on; }
  std::vector<std::pair<uint32_t, int32_t>> takeReleased() { return std::exchange(released, {}); }
  /// Owners of all blocks counted over tables and pending copies, states, entries: ok or the first contradiction.
  Status check() const;

private:
  struct Group {
    uint32_t page = 16, window = 0; ///< window 0: full attention
  };
  struct Range {
    uint32_t first = 0, end = 0; ///< blocks held
  };
  /// How far a sequence's pages are published.
  struct Chain {
    uint32_t pages = 0;
    int32_t entry = -1; ///< of the last one
    PrefixCache::Serial serial = 0;
    uint64_t hash = 0;
  };
  struct Pending {
    uint32_t sequence, index;
  };
  int32_t *row(uint32_t group, uint32_t sequence) {
    return tableData[group].data() + uint64_t(sequence) * tableStrides[group];
  }
  const int32_t *row(uint32_t group, uint32_t sequence) const {
    return tableData[group].data() + uint64_t(sequence) * tableStrides[group];
  }
  int32_t take(uint32_t group);
  void drop(uint32_t group, int32_t block);
  void freeBlock(uint32_t group, int32_t &entry);
  void unpublish(uint32_t group, int32_t block);
  void forget(uint32_t group, int32_t block);
  uint32_t walk(PrefixCache::Serial space, std::span<const int32_t> tokens, uint32_t limit, int32_t *entries,
                uint64_t &hash) const;

  KVShape shape;
  std::vector<Group> groupInfo;
  std::vector<BlockPool> pools;
  std::vector<std::vector<int32_t>> tableData;
  std::vector<const int32_t *> tablePointers;
  std::vector<uint32_t> tableStrides;
  std::vector<Range> ranges; ///< [sequence][group]
  std::vector<Chain> chains; ///< [sequence]
  std::unique_ptr<PrefixCache> prefixes;
  std::vector<uint32_t> perEntry;          ///< [group] blocks of a prefix page
  mutable std::vector<int32_t> path;       ///< entries of the walk
  mutable std::vector<uint32_t> runLength; ///< [group] blocks present without a gap up to here
  std::vector<KVCopy> copies;
  std::vector<Pending> copyOwners; ///< of copies
  bool recording = false;
  std::vector<std::pair<uint32_t, int32_t>> released;
};

} // namespace lathe::runtime
