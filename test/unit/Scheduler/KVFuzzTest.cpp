//===- KVFuzzTest.cpp - the KV manager against plain models ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// LATHE_FULL=1: 10^6 operations and 10^6 prefix operations, else a tenth.
//===----------------------------------------------------------------------===//
#include "runtime/kv/KVCache.h"
#include "runtime/simulator/Workload.h"
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace lathe;
using namespace lathe::runtime;

namespace {

uint64_t operations(uint64_t full) { return std::getenv("LATHE_FULL") ? full : full / 10; }

/// What the KV manager should do, said with maps: blocks are identities with owners, a table maps an index to a block.
struct Model {
  struct Block {
    std::multiset<uint32_t> owners;
  };
  std::map<int32_t, Block> blocks;                 ///< owned ones
  std::vector<std::map<uint32_t, int32_t>> tables; ///< [sequence] index to block
  std::vector<uint32_t> length;
};

} // namespace

// allocate, append, fork, truncate, free, abort, save and restore, in one group with and one without a window.
TEST(KVFuzz, RandomOperationsMatchTheModel) {
  Program program;
  program.kvGroups = {{0, 0, 4, 1, 8}, {1, 10, 2, 1, 4}};
  constexpr uint32_t sequences = 12, context = 64;
  const uint32_t counts[] = {60, 70};
  KVCache kv(program, {sequences, context, 0, 8}, counts);
  HostStore store(program, 300);
  SimRandom random(11);
  std::vector<uint32_t> length(sequences, 0);
  std::vector<bool> open(sequences, false);
  std::vector<std::map<uint32_t, int32_t>> tables[2];
  for (auto &t : tables)
    t.resize(sequences);
  std::map<int32_t, uint32_t> owners[2];
  std::vector<SavedSequence> parked;
  std::vector<uint32_t> parkedBlocks;
  const uint32_t page[] = {4, 2}, window[] = {0, 10};
  auto seen = [&](uint32_t g, uint32_t next) { return window[g] && next + 1 > window[g] ? next + 1 - window[g] : 0; };
  auto dropIndex = [&](uint32_t g, uint32_t s, uint32_t index) {
    int32_t block = tables[g][s].at(index);
    tables[g][s].erase(index);
    if (--owners[g][block] == 0) owners[g].erase(block);
  };
  auto releaseAll = [&](uint32_t s) {
    for (uint32_t g = 0; g < 2; ++g)
      while (!tables[g][s].empty())
        dropIndex(g, s, tables[g][s].begin()->first);
    length[s] = 0;
    open[s] = false;
  };
  auto trim = [&](uint32_t s) {
    for (uint32_t g = 0; g < 2; ++g)
      while (!tables[g][s].empty() && (tables[g][s].begin()->first + 1) * page[g] <= seen(g, length[s]))
        dropIndex(g, s, tables[g][s].begin()->first);
  };
  uint64_t total = operations(1000000), refused = 0, copied = 0, savedCount = 0, rolled = 0;
  for (uint64_t n = 0; n < total; ++n) {
    auto s = static_cast<uint32_t>(random.below(sequences));
    switch (random.below(12)) {
    case 0: // free or abort
      kv.release(s);
      releaseAll(s);
      break;
    case 1: { // fork
      auto child = static_cast<uint32_t>(random.below(sequences));
      if (child == s || !open[s] || open[child]) break;
      kv.fork(s, child);
      for (uint32_t g = 0; g < 2; ++g) {
        tables[g][child] = tables[g][s];
        for (auto [index, block] : tables[g][child])
          ++owners[g][block];
      }
      length[child] = length[s];
      open[child] = true;
      break;
    }
    case 2: { // truncate
      auto to = static_cast<uint32_t>(random.below(length[s] + 1));
      bool can = true;
      for (uint32_t g = 0; g < 2; ++g)
        can &= tables[g][s].empty() || tables[g][s].begin()->first * page[g] <= seen(g, to);
      for (uint32_t g = 0; g < 2; ++g) // an empty table says nothing of what was freed
        if (tables[g][s].empty() && length[s]) can = can && kv.held(s, g).first * page[g] <= seen(g, to);
      ASSERT_EQ(kv.truncate(s, to), can) << n;
      if (!can) break;
      for (uint32_t g = 0; g < 2; ++g)
        while (!tables[g][s].empty() && tables[g][s].rbegin()->first * page[g] >= to)
          dropIndex(g, s, tables[g][s].rbegin()->first);
      length[s] = to;
      break;
    }
    case 3: { // preempt by saving
      if (!open[s] || parked.size() > 6) break;
      SavedSequence saved;
      std::vector<KVTransfer> transfers;
      uint64_t bytes = tables[0][s].size() * 8 + tables[1][s].size() * 4;
      bool fits = store.bytesUsed() + bytes <= store.budget();
      ASSERT_EQ(kv.save(s, length[s], store, saved, transfers), fits) << n;
      if (!fits) break;
      ASSERT_EQ(transfers.size(), tables[0][s].size() + tables[1][s].size());
      for (const KVTransfer &t : transfers)
        ASSERT_TRUE(owners[t.group].count(t.block));
      ++savedCount;
      parked.push_back(std::move(saved));
      releaseAll(s);
      break;
    }
    case 4: { // restore
      if (open[s] || parked.empty()) break;
      SavedSequence saved = parked.back();
      std::vector<KVTransfer> transfers;
      bool fits = true;
      for (uint32_t g = 0; g < 2; ++g)
        fits &= KVCache::restoring(saved, g) + owners[g].size() <= counts[g];
      ASSERT_EQ(kv.restore(s, saved, transfers), fits) << n;
      if (!fits) break;
      for (const SavedSequence::Block &b : saved.blocks) {
        int32_t block = kv.tables()[b.group][s * kv.strides()[b.group] + b.index];
        ASSERT_EQ(owners[b.group].count(block), 0u);
        tables[b.group][s][b.index] = block;
        owners[b.group][block] = 1;
      }
      length[s] = saved.length;
      open[s] = true;
      parked.pop_back();
      KVCache::dropSaved(saved, store);
      break;
    }
    default: { // append, committed or rolled back
      uint32_t end = std::min<uint32_t>(context, length[s] + 1 + static_cast<uint32_t>(random.below(8)));
      if (end == length[s]) break;
      bool fits = true;
      std::vector<uint32_t> fresh[2], shared[2];
      for (uint32_t g = 0; g < 2; ++g) {
        uint32_t from = tables[g][s].empty() ? kv.held(s, g).second : 0;
        for (uint32_t index = length[s] / page[g]; index * page[g] < end; ++index) {
          auto found = tables[g][s].find(index);
          if (found == tables[g][s].end()) {
            if (index >= from) fresh[g].push_back(index);
          } else if (owners[g][found->second] > 1) {
            shared[g].push_back(index);
          }
        }
        ASSERT_EQ(kv.lacking(s, g, length[s], end), fresh[g].size() + shared[g].size()) << n;
        fits &= fresh[g].size() + shared[g].size() + owners[g].size() <= counts[g];
      }
      size_t before = kv.pendingCopies().size();
      ASSERT_EQ(before, 0u);
      ASSERT_EQ(kv.extend(s, length[s], end), fits) << n;
      if (!fits) {
        ++refused;
        break;
      }
      ASSERT_EQ(kv.pendingCopies().size(), shared[0].size() + shared[1].size());
      open[s] = true;
      if (random.below(6) == 0) {
        kv.rollback(s, length[s]);
        ++rolled;
        open[s] = length[s] > 0;
        break;
      }
      copied += kv.pendingCopies().size();
      kv.commitCopies();
      for (uint32_t g = 0; g < 2; ++g) {
        auto now = [&](uint32_t index) { return kv.tables()[g][s * kv.strides()[g] + index]; };
        for (uint32_t index : shared[g]) {
          --owners[g][tables[g][s][index]];
          ASSERT_EQ(owners[g].count(now(index)), 0u) << n;
          owners[g][tables[g][s][index] = now(index)] = 1;
        }
        for (uint32_t index : fresh[g]) {
          ASSERT_EQ(owners[g].count(now(index)), 0u) << n;
          owners[g][tables[g][s][index] = now(index)] = 1;
        }
      }
      length[s] = end;
      kv.trim(s, end);
      trim(s);
    }
    }
    // Owned + free = all, tables as the model has them.
    for (uint32_t g = 0; g < 2; ++g) {
      ASSERT_EQ(kv.pool(g).available() + owners[g].size(), counts[g]) << n;
      for (uint32_t q = 0; q < sequences; ++q) {
        auto [first, end] = kv.held(q, g);
        ASSERT_EQ(end - first, tables[g][q].size()) << n;
        for (auto [index, block] : tables[g][q])
          ASSERT_EQ(kv.tables()[g][q * kv.strides()[g] + index], block) << n;
      }
      for (auto [block, count] : owners[g])
        ASSERT_EQ(kv.pool(g).owners(block), count) << n;
    }
    if (n % 500 == 0) ASSERT_TRUE(kv.check().ok()) << kv.check().message();
  }
  std::printf("%llu operations: %llu refused, %llu copies on write, %llu rolled back, %llu saved\n",
              (unsigned long long)total, (unsigned long long)refused, (unsigned long long)copied,
              (unsigned long long)rolled, (unsigned long long)savedCount);
  EXPECT_TRUE(refused && copied && rolled && savedCount);
}

namespace {

/// The prefix cache by brute force: what every block holds, and when it was let go. A path is (name space, tokens).
struct Oracle {
  using Path = std::pair<int, std::vector<int32_t>>;
  struct Held {
    Path path;
    uint64_t released = 0; ///< 0: owned
  };
  std::map<Path, int32_t> published; ///< block of the last page of each path
  std::map<int32_t, Held> byBlock;   ///< published blocks
};

} // namespace

TEST(KVFuzz, PrefixesMatchATrie) {
  for (uint64_t hashMask : {~0ull, 3ull, 0ull}) { // with 0 every key collides: tokens and parents decide
    Program program;
    constexpr uint32_t page = 3, sequences = 6, context = 30, count = 40;
    program.kvGroups = {{0, 0, page, 1, 8}};
    const uint32_t counts[] = {count};
    KVCache kv(program, {sequences, context, 0, 8}, counts);
    ASSERT_TRUE(kv.enablePrefixCache(hashMask));
    SimRandom random(17 + hashMask);
    PrefixCache::Serial spaces[3];
    for (int i = 0; i < 3; ++i)
      spaces[i] = kv.prefixCache()->acquireNamespace({i == 0 ? "a" : "b", i == 2 ? "salt" : "", "", "m"});
    Oracle oracle;
    struct Open {
      int space = -1;
      std::vector<int32_t> tokens;
      std::vector<int32_t> blocks;
    };
    std::vector<Open> open(sequences);
    std::map<int32_t, uint32_t> owners;
    uint64_t clock = 0, hits = 0, evictions = 0, total = operations(1000000) / 3;
    auto path = [](const Open &o, size_t pages) {
      return Oracle::Path{o.space, {o.tokens.begin(), o.tokens.begin() + static_cast<long>(pages * page)}};
    };
    // A block goes to somebody else: its path is gone.
    auto taken = [&](int32_t block) {
      if (auto found = oracle.byBlock.find(block); found != oracle.byBlock.end()) {
        // It must have been the one let go longest ago, and no free block may have been left.
        for (auto &[other, held] : oracle.byBlock)
          if (held.released) ASSERT_GE(held.released, found->second.released);
        ASSERT_NE(found->second.released, 0u);
        ++evictions;
        oracle.published.erase(found->second.path);
        oracle.byBlock.erase(found);
      }
    };
    auto release = [&](Open &o) {
      for (size_t i = o.blocks.size(); i-- > 0;)
        if (--owners[o.blocks[i]] == 0) {
          owners.erase(o.blocks[i]);
          if (auto found = oracle.byBlock.find(o.blocks[i]); found != oracle.byBlock.end())
            found->second.released = ++clock;
        }
      o = {};
    };
    for (uint64_t n = 0; n < total; ++n) {
      auto s = static_cast<uint32_t>(random.below(sequences));
      Open &o = open[s];
      if (random.below(300) == 0) {
        kv.clearPrefixes();
        oracle.published.clear();
        oracle.byBlock.clear();
      } else if (o.space < 0) { // a prompt, of few tokens so that prefixes meet
        o.space = static_cast<int>(random.below(3));
        uint32_t length = 1 + static_cast<uint32_t>(random.below(context));
        for (uint32_t i = 0; i < length; ++i)
          o.tokens.push_back(static_cast<int32_t>(random.below(1 + i % 2)));
        auto limit = static_cast<uint32_t>(o.tokens.size()) - 1;
        uint32_t expected = 0;
        while ((expected + 1) * page <= limit && oracle.published.count(path(o, expected + 1)))
          ++expected;
        ASSERT_EQ(kv.match(spaces[o.space], o.tokens, limit), expected * page) << n;
        ASSERT_EQ(kv.adopt(s, spaces[o.space], o.tokens, limit), expected * page) << n;
        hits += expected;
        for (uint32_t i = 0; i < expected; ++i) {
          int32_t block = kv.tables()[0][s * kv.strides()[0] + i];
          ASSERT_EQ(block, oracle.published.at(path(o, i + 1))) << n;
          ++owners[block];
          oracle.byBlock.at(block).released = 0;
          o.blocks.push_back(block);
        }
        auto length0 = static_cast<uint32_t>(o.tokens.size());
        uint32_t missing = (length0 + page - 1) / page - expected;
        bool fits = owners.size() + missing <= count;
        size_t freeBefore = kv.pool(0).freeCount();
        ASSERT_EQ(kv.extend(s, expected * page, length0), fits) << n;
        if (!fits) {
          kv.release(s);
          release(o);
        } else {
          for (uint32_t i = expected; i < expected + missing; ++i) {
            int32_t block = kv.tables()[0][s * kv.strides()[0] + i];
            if (oracle.byBlock.count(block)) ASSERT_LE(freeBefore, i - expected) << "evicted beside a free block";
            taken(block);
            owners[block] = 1;
            o.blocks.push_back(block);
          }
          // Publishes all full pages whose chain is there.
          kv.publish(s, spaces[o.space], o.tokens);
          for (size_t i = 0; i < o.tokens.size() / page; ++i) {
            if (oracle.published.count(path(o, i + 1))) continue;
            oracle.published[path(o, i + 1)] = o.blocks[i];
            oracle.byBlock[o.blocks[i]] = {path(o, i + 1), 0};
          }
        }
      } else {
        kv.release(s);
        release(o);
      }
      ASSERT_EQ(kv.pool(0).available() + owners.size(), count) << n;
      if (n % 400 == 0) {
        ASSERT_TRUE(kv.check().ok()) << kv.check().message();
        // Every path of the oracle is found, and nothing else: entries are as many as paths.
        for (auto &[p, block] : oracle.published)
          ASSERT_EQ(kv.match(spaces[p.first], p.second, context), p.second.size());
      }
      // A page whose parent was evicted is found no more: the oracle forgets it, as its own search does.
    }
    std::printf("hash mask %llx: %llu operations, %llu pages hit, %llu evicted\n", (unsigned long long)hashMask,
                (unsigned long long)total, (unsigned long long)hits, (unsigned long long)evictions);
    EXPECT_GT(hits, 1000u);
    EXPECT_GT(evictions, 1000u);
  }
}
