//===- KVSharingTest.cpp - forks, prefixes, name spaces -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/kv/KVCache.h"
#include <gtest/gtest.h>
#include <numeric>

using namespace lathe;
using namespace lathe::runtime;

namespace {
std::vector<int32_t> iota(size_t n, int32_t first = 0) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}
struct Cache {
  explicit Cache(std::vector<KVGroup> groups, std::vector<uint32_t> blocks, uint32_t sequences = 4,
                 uint32_t context = 64) {
    program.kvGroups = groups;
    kv = std::make_unique<KVCache>(program, KVShape{sequences, context, 0, 16}, blocks);
    on = kv->enablePrefixCache();
  }
  /// Computes |tokens| in |sequence|, publishes, trims.
  void fill(uint32_t sequence, PrefixCache::Serial space, const std::vector<int32_t> &tokens, uint32_t from = 0) {
    ASSERT_TRUE(kv->extend(sequence, from, static_cast<uint32_t>(tokens.size())));
    kv->commitCopies();
    kv->publish(sequence, space, tokens);
    kv->trim(sequence, static_cast<uint32_t>(tokens.size()));
  }
  Program program;
  std::unique_ptr<KVCache> kv;
  bool on = false;
};
} // namespace

TEST(KVSharing, ForksCopyOnlyTheBlockTheyWrite) {
  Cache c({{0, 0, 4, 1, 8}}, {8});
  KVCache &kv = *c.kv;
  ASSERT_TRUE(kv.extend(0, 0, 6)); // one full, one half filled
  kv.fork(0, 1);
  kv.fork(0, 2);
  EXPECT_EQ(kv.pool(0).available(), 6u);
  EXPECT_EQ(kv.lacking(1, 0, 6, 7), 1u);
  ASSERT_TRUE(kv.extend(1, 6, 7));
  ASSERT_EQ(kv.pendingCopies().size(), 1u);
  EXPECT_EQ(kv.pendingCopies()[0].from, kv.tables()[0][1]);
  EXPECT_EQ(kv.pendingCopies()[0].to, kv.tables()[0][kv.strides()[0] + 1]);
  EXPECT_EQ(kv.tables()[0][0], kv.tables()[0][kv.strides()[0]]); // the full block stays shared
  kv.release(0);
  kv.release(2);
  EXPECT_EQ(kv.pool(0).available(), 5u); // what is to be copied is held
  kv.commitCopies();
  EXPECT_EQ(kv.pool(0).available(), 6u);
  EXPECT_TRUE(kv.check().ok());
}

TEST(KVSharing, RollbackGivesBackCopiesAndBlocks) {
  Cache c({{0, 0, 4, 1, 8}}, {8});
  KVCache &kv = *c.kv;
  ASSERT_TRUE(kv.extend(0, 0, 6));
  kv.fork(0, 1);
  int32_t before = kv.tables()[0][1];
  ASSERT_TRUE(kv.extend(1, 6, 12));
  EXPECT_EQ(kv.pool(0).available(), 4u);
  kv.rollback(1, 6);
  EXPECT_EQ(kv.pool(0).available(), 6u);
  EXPECT_EQ(kv.tables()[0][kv.strides()[0] + 1], before);
  EXPECT_TRUE(kv.pendingCopies().empty());
  EXPECT_TRUE(kv.check().ok());
}

TEST(KVSharing, PrefixesAreFullPagesShortOfTheLimit) {
  Cache c({{0, 0, 4, 1, 8}}, {16});
  KVCache &kv = *c.kv;
  auto space = kv.prefixCache()->acquireNamespace({});
  auto tokens = iota(11);
  c.fill(0, space, tokens);
  EXPECT_EQ(kv.match(space, tokens, 10), 8u);
  EXPECT_EQ(kv.match(space, iota(8), 7), 4u); // the last token is always computed
  auto other = tokens;
  other[5] = 99;
  EXPECT_EQ(kv.match(space, other, 10), 4u);
  EXPECT_EQ(kv.adopt(1, space, other, 10), 4u);
  EXPECT_EQ(kv.tables()[0][kv.strides()[0]], kv.tables()[0][0]);
  c.fill(1, space, other, 4);
  EXPECT_EQ(kv.match(space, other, 10), 8u);
  kv.release(0);
  kv.release(1);
  EXPECT_EQ(kv.pool(0).available(), 16u);
  EXPECT_EQ(kv.pool(0).cachedCount(), 3u);
  kv.clearPrefixes();
  EXPECT_EQ(kv.pool(0).freeCount(), 16u);
  EXPECT_EQ(kv.match(space, tokens, 10), 0u);
}

TEST(KVSharing, TailsAreTakenFirst) {
  Cache c({{0, 0, 4, 1, 8}}, {4});
  KVCache &kv = *c.kv;
  auto space = kv.prefixCache()->acquireNamespace({});
  auto tokens = iota(16);
  c.fill(0, space, tokens);
  kv.release(0);
  for (uint32_t left = 16; left > 0; left -= 4) {
    EXPECT_EQ(kv.match(space, tokens, 16), left);
    ASSERT_TRUE(kv.extend(1, 16 - left, 16 - left + 4));
  }
  EXPECT_TRUE(kv.check().ok());
}

TEST(KVSharing, EveryFieldOfTheKeyKeepsPrefixesApart) {
  Cache c({{0, 0, 4, 1, 8}}, {16});
  KVCache &kv = *c.kv;
  PrefixCache &p = *kv.prefixCache();
  auto tokens = iota(8);
  auto space = p.acquireNamespace({"tenant", "salt", "adapter-1f", "model-2e"});
  c.fill(0, space, tokens);
  EXPECT_EQ(p.acquireNamespace({"tenant", "salt", "adapter-1f", "model-2e"}), space);
  const PrefixKey others[] = {
      {"tenant2", "salt", "adapter-1f", "model-2e"}, {"tenant", "", "adapter-1f", "model-2e"},
      {"tenant", "salt", "adapter-20", "model-2e"},  {"tenant", "salt", "adapter-1f", "model-2f"},
      {"tenants", "alt", "adapter-1f", "model-2e"}, // the same letters, cut elsewhere
      {"", "tenantsalt", "adapter-1f", "model-2e"},  {"salt", "tenant", "adapter-1f", "model-2e"},
      {"tenant", "salt", "model-2e", "adapter-1f"},
  };
  for (const PrefixKey &key : others) {
    auto other = p.acquireNamespace(key);
    EXPECT_NE(other, space);
    EXPECT_EQ(kv.match(other, tokens, 8), 0u);
    p.releaseNamespace(other);
  }
  EXPECT_EQ(p.namespaces(), 1u); // those without users and pages are gone
  p.releaseNamespace(space);
  p.releaseNamespace(space);
  EXPECT_EQ(p.namespaces(), 1u); // it has pages
  kv.release(0);
  EXPECT_EQ(kv.match(p.acquireNamespace({"tenant", "salt", "adapter-1f", "model-2e"}), tokens, 8), 8u);
  p.releaseNamespace(space);
  kv.clearPrefixes();
  EXPECT_EQ(p.namespaces(), 0u);
}

TEST(KVSharing, TimesOfCachedBlocks) {
  Cache c({{0, 0, 4, 1, 8}}, {4});
  KVCache &kv = *c.kv;
  auto space = kv.prefixCache()->acquireNamespace({});
  kv.setTime(1);
  c.fill(0, space, iota(8)); // two blocks, published
  kv.setTime(2);
  kv.release(0);
  kv.setTime(6);
  ASSERT_EQ(kv.adopt(1, space, iota(8), 4), 4u); // the first one again
  kv.setTime(7);
  kv.release(1);
  EXPECT_EQ(kv.times().reuseGap.sum, 4);
  EXPECT_EQ(kv.times().lifetime.sum, 0);
  kv.setTime(11);
  ASSERT_TRUE(kv.extend(2, 0, 12)); // the two free blocks, and the one let go at 2
  BlockTimes times = kv.times();
  EXPECT_EQ(times.lifetime.sum, 10);
  EXPECT_EQ(times.idleBeforeEvict.sum, 9);
  uint64_t evicted = 0;
  for (uint64_t count : times.lifetime.counts)
    evicted += count;
  EXPECT_EQ(evicted, 1u);
  EXPECT_EQ(times.idleBeforeEvict.counts[7], 1u); // above 5 s, at most 10 s
  EXPECT_TRUE(kv.check().ok());
}

TEST(KVSharing, AWindowGroupNeedsOnlyWhatTheNextTokenSees) {
  Cache c({{0, 0, 4, 1, 8}, {1, 6, 4, 1, 8}}, {16, 16});
  KVCache &kv = *c.kv;
  auto space = kv.prefixCache()->acquireNamespace({});
  auto tokens = iota(24);
  for (uint32_t n = 4; n <= 24; n += 4)
    c.fill(0, space, iota(n), n - 4);
  kv.release(0);
  EXPECT_EQ(kv.match(space, tokens, 23), 20u);
  ASSERT_EQ(kv.adopt(1, space, tokens, 23), 20u);
  EXPECT_EQ(kv.tables()[1][kv.strides()[1] + 2], -1); // tokens 8 .. 11 are left of the window of token 20
  EXPECT_GE(kv.tables()[1][kv.strides()[1] + 3], 0);
  EXPECT_GE(kv.tables()[0][kv.strides()[0]], 0);
  EXPECT_TRUE(kv.check().ok());
  // A page computed in one chunk longer than the window was freed before it could be published.
  Cache once({{1, 6, 4, 1, 8}}, {16});
  auto all = once.kv->prefixCache()->acquireNamespace({});
  ASSERT_TRUE(once.kv->extend(0, 0, 24));
  once.kv->trim(0, 24);
  once.kv->publish(0, all, tokens);
  once.kv->release(0);
  EXPECT_EQ(once.kv->match(all, tokens, 24), 0u);
  EXPECT_TRUE(once.kv->check().ok());
}

TEST(KVSharing, ATakenWindowBlockShortensTheHit) {
  Cache c({{0, 0, 4, 1, 8}, {1, 6, 4, 1, 8}}, {16, 6});
  KVCache &kv = *c.kv;
  auto space = kv.prefixCache()->acquireNamespace({});
  auto tokens = iota(24);
  for (uint32_t n = 4; n <= 24; n += 4)
    c.fill(0, space, iota(n), n - 4);
  kv.release(0);
  ASSERT_TRUE(kv.extend(1, 0, 4));           // takes the window block let go first: of tokens 0 .. 3
  EXPECT_EQ(kv.match(space, tokens, 8), 0u); // token 4 would see it, and so would token 8
  EXPECT_EQ(kv.match(space, tokens, 12), 12u);
  EXPECT_EQ(kv.match(space, tokens, 23), 20u);
  EXPECT_TRUE(kv.check().ok());
}

TEST(KVSharing, PagesThatDoNotDivideHaveNoPrefixCache) {
  EXPECT_FALSE(Cache({{0, 0, 16, 1, 8}, {1, 24, 6, 1, 8}}, {8, 8}).on);
  EXPECT_TRUE(Cache({{0, 0, 16, 1, 8}, {1, 24, 8, 1, 8}}, {8, 8}).on);
}

TEST(KVSharing, WritingIntoAPublishedPageTakesItOutOfTheCache) {
  Cache c({{0, 0, 4, 1, 8}}, {8});
  KVCache &kv = *c.kv;
  auto space = kv.prefixCache()->acquireNamespace({});
  auto tokens = iota(8);
  c.fill(0, space, tokens);
  ASSERT_TRUE(kv.truncate(0, 6));
  ASSERT_TRUE(kv.extend(0, 6, 8));
  EXPECT_EQ(kv.match(space, tokens, 8), 4u);
  auto other = tokens;
  other[7] = 70;
  kv.publish(0, space, other);
  EXPECT_EQ(kv.match(space, other, 8), 8u);
  EXPECT_TRUE(kv.check().ok());
}

TEST(KVSharing, SavedSequencesKeepTheBudget) {
  Cache c({{0, 0, 4, 1, 100}}, {8});
  HostStore store(c.program, 250);
  EXPECT_EQ(store.slots(0), 2u);
  SavedSequence saved, more;
  std::vector<KVTransfer> transfers;
  ASSERT_TRUE(c.kv->extend(0, 0, 8) && c.kv->extend(1, 0, 4));
  ASSERT_TRUE(c.kv->save(0, 8, store, saved, transfers));
  EXPECT_EQ(store.bytesUsed(), 200u);
  EXPECT_FALSE(c.kv->save(1, 4, store, more, transfers));
  EXPECT_EQ(transfers.size(), 2u);
  EXPECT_EQ(c.kv->pool(0).available(), 7u);
  transfers.clear();
  ASSERT_TRUE(c.kv->restore(2, saved, transfers));
  EXPECT_EQ(transfers.size(), 2u);
  KVCache::dropSaved(saved, store);
  EXPECT_EQ(store.bytesUsed(), 0u);
  ASSERT_TRUE(c.kv->save(1, 4, store, more, transfers));
}
