//===- LogitCheckTest.cpp - a wrong choice is caught ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "test/e2e/exactness/LogitCheck.h"
#include <gtest/gtest.h>
#include <vector>

using lathe::test::LogitCheck;

namespace {

// Limits of 1 %: the largest logit of all rows is 20, so each may be 0.2 away.
const std::vector<float> high{20, 10, 0, -5}, low{1, 1.3f, 0.5f, 0};

TEST(LogitCheck, EqualRowsPass) {
  LogitCheck check(1e-2);
  check.add(high, high), check.add(low, low);
  EXPECT_TRUE(check.passes());
  EXPECT_EQ(check.error(), 0);
  EXPECT_EQ(check.rows, 2u);
  EXPECT_EQ(check.decided, 2u);
}

TEST(LogitCheck, AWrongChoiceIsCaughtThoughEveryLogitIsWithinTheLimit) {
  LogitCheck check(1e-2);
  check.add(high, high);
  check.add(low, std::vector<float>{1.17f, 1.12f, 0.5f, 0}); // 0.17 and 0.18 away; the reference's first two are 0.3 apart, 0.013 are allowed
  EXPECT_LT(check.error(), 1e-2);
  EXPECT_EQ(check.unequal, 1u);
  EXPECT_FALSE(check.passes());
}

TEST(LogitCheck, ChoicesTheReferenceLeavesOpenMayDiffer) {
  LogitCheck check(1e-2);
  const std::vector<float> close{10, 9.95f, 0}; // 0.05 apart, 0.1 are allowed
  check.add(close, std::vector<float>{9.96f, 9.97f, 0});
  EXPECT_TRUE(check.passes());
  EXPECT_EQ(check.decided, 0u); // who asks can tell that nothing was compared
}

TEST(LogitCheck, LogitsBeyondTheLimitFail) {
  for (float wrong : {10.3f, NAN, INFINITY}) {
    LogitCheck check(1e-2);
    check.add(high, std::vector<float>{20, wrong, 0, -5});
    EXPECT_FALSE(check.passes()) << wrong;
  }
}

} // namespace
