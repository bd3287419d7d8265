//===- KVTest.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/kv/KVCache.h"
#include <gtest/gtest.h>
#include <random>
#include <set>

using namespace lathe;
using namespace lathe::runtime;

namespace {
Program twoGroups() {
  Program p;
  p.kvGroups = {{0, 0, 16, 1, 64}, {1, 24, 8, 1, 64}};
  return p;
}
} // namespace

TEST(KV, Sizes) {
  Program p = twoGroups();
  EXPECT_EQ(kvBlocksFor(p, {1, 100, 0, 4}), (std::vector<uint32_t>{7, 5}));
  EXPECT_EQ(kvBlocksFor(p, {3, 100, 0, 4}), (std::vector<uint32_t>{21, 15}));
  EXPECT_EQ(kvBlocksFor(p, {3, 100, 160, 4}), (std::vector<uint32_t>{13, 15}));
  EXPECT_EQ(kvBlocksFor(p, {1, 10, 0, 4}), (std::vector<uint32_t>{1, 2}));
}

TEST(KV, WindowGroupsFreeWhatNobodySees) {
  Program p = twoGroups();
  KVShape shape{1, 400, 0, 4};
  auto blocks = kvBlocksFor(p, shape);
  KVCache kv(p, shape, blocks);
  for (uint32_t n = 0; n < 400; n += 4) {
    ASSERT_TRUE(kv.reserve(0, n + 4).ok()) << n;
    for (uint32_t j = n + 1 > 24 ? n + 1 - 24 : 0; j < n + 4; ++j)
      ASSERT_GE(kv.tables()[1][j / 8], 0) << n << " " << j;
    kv.trim(0, n + 4);
  }
  EXPECT_EQ(kv.tables()[1][0], -1);
  EXPECT_EQ(kv.pool(0).available(), 0u);
  EXPECT_NE(kv.reserve(0, 401).message().find("expected at most 400 tokens in a sequence, found 401"),
            std::string::npos);
  EXPECT_TRUE(kv.truncate(0, 399));
  EXPECT_FALSE(kv.truncate(0, 100)); // what token 100 would see is gone
  EXPECT_FALSE(kv.truncate(0, 0));
  kv.release(0);
  EXPECT_EQ(kv.pool(0).available(), blocks[0]);
  EXPECT_EQ(kv.pool(1).available(), blocks[1]);
}

TEST(KV, ReserveIsAllOrNothing) {
  Program p = twoGroups();
  KVShape shape{2, 64, 0, 64};
  const uint32_t blocks[] = {5, 3};
  KVCache kv(p, shape, blocks);
  EXPECT_EQ(kv.reserve(0, 40).message(), "the KV cache is full: expected 5 free blocks of 8 tokens, found 3");
  EXPECT_EQ(kv.pool(0).available(), 5u);
  EXPECT_TRUE(kv.reserve(0, 24).ok());
  EXPECT_EQ(kv.availableTokens(), 0u);
  EXPECT_FALSE(kv.reserve(1, 1).ok());
  kv.release(0);
  EXPECT_TRUE(kv.reserve(1, 1).ok());
}

TEST(KV, RandomUseKeepsEveryBlockWithOneOwner) {
  Program p = twoGroups();
  KVShape shape{4, 200, 300, 16};
  auto blocks = kvBlocksFor(p, shape);
  KVCache kv(p, shape, blocks);
  kv.pool(0).shuffle(3);
  std::mt19937 random(1);
  uint32_t length[4] = {};
  for (int i = 0; i < 20000; ++i) {
    uint32_t s = random() % 4;
    switch (random() % 8) {
    case 0:
      kv.release(s);
      length[s] = 0;
      break;
    case 1:
      if (uint32_t to = random() % (length[s] + 1); kv.truncate(s, to)) length[s] = to;
      break;
    default:
      uint32_t to = std::min(200u, length[s] + 1 + static_cast<uint32_t>(random() % 16));
      if (kv.reserve(s, to).ok()) kv.trim(s, length[s] = to);
    }
    for (uint32_t g = 0; g < 2; ++g) {
      std::set<int32_t> owned(kv.pool(g).freeList().begin(), kv.pool(g).freeList().end());
      ASSERT_EQ(owned.size(), kv.pool(g).available());
      uint32_t page = p.kvGroups[g].pageTokens;
      size_t held = 0;
      for (uint32_t q = 0; q < 4; ++q)
        for (uint32_t b = 0; b < (length[q] + page - 1) / page; ++b) {
          int32_t block = kv.tables()[g][q * kv.strides()[g] + b];
          bool needed = g == 0 || (b + 1) * page + 24 > length[q] + 1;
          ASSERT_TRUE(block >= 0 || !needed);
          if (block < 0) continue;
          ++held;
          ASSERT_TRUE(owned.insert(block).second);
        }
      ASSERT_EQ(held + kv.pool(g).available(), blocks[g]);
    }
  }
}
