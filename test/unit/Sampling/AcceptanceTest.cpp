//===- AcceptanceTest.cpp - laws of what is said where tokens were drafted ----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Rejection sampling must say tokens with the model's law whatever was drafted: 50,000 or 200,000 draws a case, by chi-square and by total variation
// against the plain sampler's own draws. The numbers of seeds are fixed, so the tests are repeatable.
//===----------------------------------------------------------------------===//
#include "sampling/Acceptance.h"
#include "sampling/Sampler.h"
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace lathe;

namespace {

constexpr int vocabulary = 32;
int draws = 200'000; // of the case that runs

std::vector<float> row(uint32_t seed, float spread) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(vocabulary);
  for (float &v : x)
    v = normal(rng);
  return x;
}

/// What it is expected to be where |draws| tokens come from |p|, and what it hardly ever passes.
double usualVariation(const std::vector<double> &p, double plain) {
  double sum = 0, cells = 0;
  for (double v : p)
    sum += std::sqrt(2 * v * (1 - v) / (3.14159265 * draws)) / 2, cells += v > 0;
  return std::max(sum, plain) * (1 + 2 / std::sqrt(cells));
}

double totalVariation(const std::vector<int> &counts, const std::vector<double> &p) {
  double sum = 0;
  for (int t = 0; t < vocabulary; ++t)
    sum += std::fabs(counts[t] / double(draws) - p[t]);
  return sum / 2;
}

/// The probability of a chi-square as large as that of |counts| (Wilson and Hilferty's approximation); 0 when what cannot be was said.
double chiSquareTail(const std::vector<int> &counts, const std::vector<double> &p) {
  double chi = 0, rest = 0, restCount = 0;
  int cells = 0;
  for (int t = 0; t < vocabulary; ++t) {
    double expected = p[t] * draws;
    if (p[t] == 0 && counts[t]) return 0;
    if (expected < 10) {
      rest += expected, restCount += counts[t];
      continue;
    }
    chi += (counts[t] - expected) * (counts[t] - expected) / expected;
    ++cells;
  }
  if (rest >= 10) chi += (restCount - rest) * (restCount - rest) / rest, ++cells;
  if (cells < 2) return 1;
  double k = cells - 1, z = (std::cbrt(chi / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
  return std::erfc(z / std::sqrt(2.0)) / 2;
}

struct Cell {
  const char *name;
  SamplingParams params;
  int draws;
};
std::vector<Cell> cells() {
  std::vector<Cell> all;
  auto add = [&](const char *name, auto set) {
    SamplingParams p;
    set(p);
    all.push_back({name, p, all.empty() || p.topP < 0.95f ? 200'000 : 50'000});
  };
  add("plain", [](auto &) {});
  add("temperature 0.5", [](auto &p) { p.temperature = 0.5f; });
  add("temperature 1.5, top-k 5", [](auto &p) { p.temperature = 1.5f, p.topK = 5; });
  add("top-p 0.7", [](auto &p) { p.topP = 0.7f; });
  add("min-p 0.1, penalties", [](auto &p) { p.minP = 0.1f, p.repetitionPenalty = 1.3f, p.frequencyPenalty = 0.4f, p.presencePenalty = 0.2f; });
  add("bias, top-k 8, top-p 0.9", [](auto &p) { p.logitBias = {{3, 2.0f}, {4, -50.0f}}, p.topK = 8, p.topP = 0.9f; });
  return all;
}

const TokenHistory &history() {
  static const TokenHistory said = [] {
    TokenHistory h;
    for (int t : {1, 5, 9})
      h.addPrompt(t);
    for (int t : {5, 7, 7, 20})
      h.addOutput(t);
    return h;
  }();
  return said;
}

TEST(AcceptanceTest, TheLawIsWhatIsDrawnFrom) {
  Sampler sampler(vocabulary);
  std::vector<double> p;
  for (const Cell &cell : cells()) {
    std::vector<float> x = row(1, 2);
    draws = 50'000;
    ASSERT_TRUE(sampler.law(x, cell.params, history(), 9, p).ok());
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-12) << cell.name;
    std::vector<int> counts(vocabulary);
    SamplingParams params = cell.params;
    for (params.seed = 0; params.seed < static_cast<uint64_t>(draws); ++params.seed)
      ++counts[sampler.sample(x, params, history(), 9)->token];
    EXPECT_GT(chiSquareTail(counts, p), 0.001) << cell.name;
  }
  SamplingParams greedy;
  greedy.temperature = 0;
  ASSERT_TRUE(sampler.law(row(1, 2), greedy, history(), 9, p).ok());
  auto best = sampler.sample(row(1, 2), greedy, history(), 9)->token;
  for (int t = 0; t < vocabulary; ++t)
    EXPECT_EQ(p[t], t == best);
  std::vector<float> bad = row(1, 2);
  bad[7] = NAN;
  EXPECT_EQ(sampler.law(bad, {}, {}, 3, p).message(), "logits at position 3: token 7 has nan");
}

TEST(AcceptanceTest, RejectionKeepsTheLaw) {
  Sampler sampler(vocabulary);
  std::vector<float> target = row(1, 2);
  std::vector<double> p, q, buffer;
  for (const Cell &cell : cells()) {
    ASSERT_TRUE(sampler.law(target, cell.params, history(), 9, p).ok());
    draws = cell.draws;
    std::vector<int> plain(vocabulary);
    SamplingParams params = cell.params;
    for (params.seed = 0; params.seed < static_cast<uint64_t>(draws); ++params.seed)
      ++plain[sampler.sample(target, params, history(), 9)->token];
    for (int kind = 0; kind < 5; ++kind) { // drafts of a near law, of a far one, of the law itself; one and three chosen without chance
      std::vector<float> draft = kind == 2 ? target : row(2, 1.5f);
      if (kind == 0)
        for (int t = 0; t < vocabulary; ++t)
          draft[t] = target[t] + 0.3f * draft[t];
      ASSERT_TRUE(sampler.law(draft, cell.params, history(), 9, q).ok());
      std::vector<float> drawn(q.begin(), q.end());
      std::vector<int> counts(vocabulary);
      int accepted = 0;
      for (params.seed = 0; params.seed < static_cast<uint64_t>(draws); ++params.seed) {
        std::vector<int32_t> drafts{5, 31, 2};
        if (kind < 3) drafts = {sampler.sample(draft, params, history(), 9)->token};
        if (kind == 3) drafts.resize(1);
        buffer = p;
        Decision d = acceptByRejection(buffer, drafts, kind < 3 ? std::span<const float>(drawn) : std::span<const float>(), {params.seed, 0, 9});
        ASSERT_TRUE(d.token >= 0 && d.token < vocabulary);
        if (d.draft >= 0) EXPECT_EQ(drafts[d.draft], d.token);
        accepted += d.draft >= 0;
        ++counts[d.token];
      }
      EXPECT_GT(chiSquareTail(counts, p), 0.001) << cell.name << ", drafts " << kind;
      EXPECT_LE(totalVariation(counts, p), 1.5 * usualVariation(p, totalVariation(plain, p))) << cell.name << ", drafts " << kind;
      // Accepted with 1 - TV(p, q), or the probability of the drafts.
      double expected = 0;
      for (int t = 0; t < vocabulary; ++t)
        expected += kind < 3 ? std::min(p[t], q[t]) : t == 5 || (kind == 4 && (t == 31 || t == 2)) ? p[t] : 0;
      EXPECT_NEAR(accepted / double(draws), expected, 0.01) << cell.name << ", drafts " << kind;
      if (kind == 2) EXPECT_EQ(accepted, draws) << cell.name;
    }
  }
}

TEST(AcceptanceTest, TypicalTakesWhatIsLikelyEnough) {
  // Entropy of two halves is log 2: the threshold is min(0.09, 0.15).
  std::vector<double> p{0.5, 0.5, 0, 0};
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{1}).draft, 0);
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{2}).draft, -1);
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{2}).token, -1);
  p = {0.89, 0.1, 0.01, 0};
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{1}).token, 1);
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{2, 1, 0}).draft, 1); // the first that passes
  // Of 32 equals each has 1/32, which is above 0.3/32.
  p.assign(32, 1 / 32.0);
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{17}).token, 17);
  p.assign(4, 0);
  p[3] = 1;
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{3}).token, 3);
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{0}).token, -1);
  EXPECT_EQ(acceptTypical(p, std::vector<int32_t>{-1, 99}).token, -1); // no tokens
}

TEST(AcceptanceTest, RulesHaveNames) {
  for (Acceptance rule : {Acceptance::exact, Acceptance::rejection, Acceptance::typical})
    EXPECT_EQ(*parseAcceptance(toString(rule)), rule);
  EXPECT_EQ(parseAcceptance("lax").status().message(), "expected exact, rejection or typical, found 'lax'");
}

} // namespace
