//===- FeatureRowsTest.cpp - which features of a sequence are kept ----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/FeatureRows.h"
#include <gtest/gtest.h>
#include <random>
#include <vector>

using namespace lathe::runtime;

namespace {

/// What is kept, as a list that forgets from the front.
struct Model {
  std::vector<uint32_t> positions;
  bool put(uint32_t position, uint32_t most) {
    if (!positions.empty() && position <= positions.back()) return false;
    if (!positions.empty() && position != positions.back() + 1) positions.clear();
    positions.push_back(position);
    if (positions.size() > most) positions.erase(positions.begin());
    return true;
  }
};

TEST(FeatureRows, KeepWhatFollowsTheLastToken) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    uint32_t width = 1 + rng() % 5, most = 1 + rng() % 20, at = 0;
    FeatureRows rows, other;
    Model model;
    EXPECT_FALSE(rows.holds(0));
    for (int i = 0; i < 100; ++i) {
      // Goes on; now and then comes back to earlier tokens (a preemption), or leaves some out (a prefix hit).
      if (rng() % 10 == 0) at = rng() % 10 ? at - std::min<uint32_t>(at, rng() % 30) : at + rng() % 30;
      float *to = rows.put(at, width, most);
      ASSERT_EQ(to != nullptr, model.put(at, most));
      if (to) std::fill_n(to, width, static_cast<float>(at));
      ++at;
      const FeatureRows *seen = &rows;
      if (i % 7 == 0) other.copy(rows), seen = &other; // of a sequence that forks
      for (uint32_t p = 0; p < at + 3; ++p) {
        bool held = std::find(model.positions.begin(), model.positions.end(), p) != model.positions.end();
        ASSERT_EQ(seen->holds(p), held) << p;
        if (!held) continue;
        ASSERT_EQ(seen->row(p).size(), width);
        ASSERT_EQ(seen->row(p)[width - 1], static_cast<float>(p));
      }
      ASSERT_EQ(rows.begin(), model.positions.front());
      ASSERT_EQ(rows.end(), model.positions.back() + 1);
    }
  }
}

TEST(FeatureRows, TakeNoMoreThanTheirShare) {
  EXPECT_EQ(FeatureRows::mostRows(576, 8192), (4u << 20) / (576 * 4));
  EXPECT_EQ(FeatureRows::mostRows(576, 100), 100u);
  EXPECT_EQ(FeatureRows::mostRows(1 << 20, 8192), 16u);
  EXPECT_EQ(FeatureRows::mostRows(0, 0), 1u);
}

} // namespace
