//===- QueueTest.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "../../../runtime/tokenizer/CandidateQueue.h"
#include <gtest/gtest.h>
#include <random>

using namespace lathe::tokenizer;

/// The lists for long words give what the heap for short ones gives.
TEST(CandidateQueue, BothKindsGiveTheSameOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    CandidateQueue small, large;
    small.start(40, 10);
    large.start(40, 100000);
    uint32_t rising = 0;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 3 != 0) {
        uint32_t left = random() % 2 ? rising++ : random() % 1000;
        Candidate candidate{static_cast<uint32_t>(random() % 40), left, 0, static_cast<uint32_t>(step)};
        small.push(candidate);
        large.push(candidate);
      } else {
        Candidate a{}, b{};
        bool some = small.pop(a);
        ASSERT_EQ(some, large.pop(b));
        if (some) ASSERT_EQ(std::pair(a.order, a.left), std::pair(b.order, b.left));
      }
    }
  }
}
