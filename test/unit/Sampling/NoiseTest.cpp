//===- NoiseTest.cpp - random numbers without state -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "sampling/Noise.h"
#include "sampling/Sampler.h"
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace lathe;
using namespace lathe::sampling;

namespace {

std::array<uint32_t, 4> words(Block b) { return {b.word[0], b.word[1], b.word[2], b.word[3]}; }

// The known answers that the authors of Philox publish with Random123.
TEST(Noise, PhiloxGivesTheKnownAnswers) {
  EXPECT_EQ(words(philox({{0, 0, 0, 0}}, 0, 0)),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  uint32_t f = 0xffffffff;
  EXPECT_EQ(words(philox({{f, f, f, f}}, f, f)),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0)),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Noise, ExpAndLogAreAccurate) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    double x = -unit * (i % 2 ? 1 : 690);
    EXPECT_NEAR(expOf(x) / std::exp(x), 1, 1e-15) << x;
    double y = std::ldexp(unit + 1e-9, static_cast<int>(random() % 120) - 90);
    EXPECT_NEAR(logOf(y), std::log(y), 4e-16 * std::max(1.0, std::fabs(std::log(y)))) << y;
  }
  EXPECT_EQ(expOf(0), 1);
  EXPECT_EQ(expOf(-701), 0);
  EXPECT_EQ(expOf(-INFINITY), 0);
  EXPECT_EQ(logOf(1), 0);
}

TEST(Noise, GumbelFollowsItsFormula) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    uint64_t bits = random() >> (random() % 64);
    if (i % 2) bits = ~bits;
    long double v = (static_cast<long double>(bits) + 0.5L) * 0x1p-64L;
    long double rest = (static_cast<long double>(~bits) + 0.5L) * 0x1p-64L; // 1 - v, without its rounding
    long double expected = -std::log(v < 0.5L ? -std::log1p(-v) : -std::log(rest));
    EXPECT_NEAR(gumbelOf(bits), static_cast<double>(expected), 3e-15 * std::max(1.0L, std::fabs(expected))) << bits;
    EXPECT_LE(gumbelOf(bits), noiseBound(static_cast<uint32_t>(bits >> 32)));
  }
  EXPECT_TRUE(std::isfinite(gumbelOf(0)));
  EXPECT_TRUE(std::isfinite(gumbelOf(~uint64_t(0))));
}

TEST(Noise, HasTheMomentsOfTheGumbelDistribution) {
  double sum = 0, squares = 0;
  constexpr int n = 400000;
  for (int i = 0; i < n; ++i) {
    double g = gumbelNoise(42, 0, static_cast<uint32_t>(i / 1000), static_cast<uint32_t>(i % 1000), DrawPurpose::token);
    sum += g;
    squares += g * g;
  }
  double mean = sum / n, variance = squares / n - mean * mean;
  EXPECT_NEAR(mean, 0.5772156649, 0.01);
  EXPECT_NEAR(variance, 1.6449340668, 0.02);
}

// The bits are part of what a seed promises: they may not change between versions or machines.
TEST(Noise, KeepsItsBits) {
  uint64_t hash = 0;
  for (uint32_t i = 0; i < 20000; ++i) {
    double g = gumbelNoise(0x0123456789abcdefu + i % 7, i % 3, i, i * 13, DrawPurpose::token);
    hash = (hash ^ std::bit_cast<uint64_t>(g)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  EXPECT_EQ(hash, 2609546741438325411u);
}

TEST(Noise, EveryPartOfTheKeyMatters) {
  double g = gumbelNoise(1, 2, 3, 4, DrawPurpose::token);
  EXPECT_EQ(g, gumbelNoise(1, 2, 3, 4, DrawPurpose::token));
  EXPECT_NE(g, gumbelNoise(1 + (uint64_t(1) << 40), 2, 3, 4, DrawPurpose::token));
  EXPECT_NE(g, gumbelNoise(2, 2, 3, 4, DrawPurpose::token));
  EXPECT_NE(g, gumbelNoise(1, 3, 3, 4, DrawPurpose::token));
  EXPECT_NE(g, gumbelNoise(1, 2, 4, 4, DrawPurpose::token));
  EXPECT_NE(g, gumbelNoise(1, 2, 3, 5, DrawPurpose::token));
  EXPECT_NE(g, gumbelNoise(1, 2, 3, 8, DrawPurpose::token));
  EXPECT_NE(g, gumbelNoise(1, 2, 3, 4, DrawPurpose::acceptance));
}

} // namespace
