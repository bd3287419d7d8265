//===- StopMatcherTest.cpp ------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "sampling/StopMatcher.h"
#include <gtest/gtest.h>
#include <random>

using namespace lathe;

namespace {

struct Expected {
  std::string text;
  int32_t stop = -1;
};

/// The definition, by trying every end: the first byte at which some stop string ends.
Expected bruteForce(const std::string &text, const std::vector<std::string> &stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int32_t best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      size_t n = stops[i].size();
      if (n == 0 || n > end || text.compare(end - n, n, stops[i]) != 0) continue;
      if (best < 0 || n > stops[best].size()) best = static_cast<int32_t>(i);
    }
    if (best >= 0) return {text.substr(0, end - (include ? 0 : stops[best].size())), best};
  }
  return {text, -1};
}

size_t longestHeld(const std::string &text, const std::vector<std::string> &stops) {
  size_t longest = 0;
  for (const std::string &stop : stops)
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n)
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) longest = std::max(longest, n);
  return longest;
}

TEST(StopMatcher, AgreesWithBruteForceHoweverTheTextIsCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    auto word = [&](int most) {
      std::string s(random() % (most + 1), 'a');
      for (char &c : s)
        c = static_cast<char>('a' + random() % 2);
      return s;
    };
    std::vector<std::string> stops(random() % 4);
    for (std::string &stop : stops)
      stop = word(6);
    std::string text = word(40);
    bool include = random() % 2;
    Expected expected = bruteForce(text, stops, include);
    StopMatcher matcher(stops, include);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      size_t n = random() % 5;
      shown += matcher.push(std::string_view(text).substr(at, n));
      at = std::min(text.size(), at + n);
      if (!matcher.stopped()) {
        EXPECT_EQ(shown.size() + longestHeld(text.substr(0, at), stops), at) << text;
      }
    }
    shown += matcher.finish();
    EXPECT_EQ(shown, expected.text);
    EXPECT_EQ(matcher.stopIndex(), expected.stop);
  }
}

TEST(StopMatcher, SaysNothingAfterTheStop) {
  StopMatcher matcher({"</s>"});
  EXPECT_EQ(matcher.push("one <"), "one ");
  EXPECT_EQ(matcher.push("/s> two"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("three"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, PassesTextThroughWithoutStops) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.push("a</"), "a</");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_FALSE(matcher.stopped());
}

} // namespace
