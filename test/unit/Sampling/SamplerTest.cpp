//===- SamplerTest.cpp - against the formula --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "sampling/Sampler.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>

using namespace lathe;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

std::vector<float> randomLogits(int n, uint32_t seed, float spread = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float &v : x)
    v = normal(random);
  return x;
}

/// The law by its definition, in float64 and with a full sort.
std::vector<double> law(const std::vector<float> &logits, const SamplingParams &p, const TokenHistory &h,
                        const std::vector<uint32_t> &allowed = {}) {
  size_t n = logits.size();
  std::vector<double> x(logits.begin(), logits.end());
  for (size_t i = 0; i < n && !allowed.empty(); ++i)
    if (!(allowed[i / 32] >> (i % 32) & 1)) x[i] = -INFINITY;
  if (h.outputTokens() < p.minTokens)
    for (int32_t t : p.stopTokenIds)
      x[t] = -INFINITY;
  for (auto [t, b] : p.logitBias)
    x[t] += b;
  for (const auto &e : h.entries()) {
    if (e.inPrompt + e.inOutput > 0)
      x[e.token] = x[e.token] > 0 ? x[e.token] / p.repetitionPenalty : x[e.token] * p.repetitionPenalty;
    x[e.token] -= double(p.frequencyPenalty) * e.inOutput + (e.inOutput > 0 ? p.presencePenalty : 0);
  }
  double top = *std::max_element(x.begin(), x.end());
  std::vector<double> w(n);
  for (size_t i = 0; i < n; ++i)
    w[i] = std::exp((x[i] - top) / p.temperature);
  for (double &v : w)
    if (v < p.minP) v = 0;
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return w[a] != w[b] ? w[a] > w[b] : a < b; });
  if (p.topK > 0)
    for (size_t i = p.topK; i < n; ++i)
      w[order[i]] = 0;
  double total = std::accumulate(w.begin(), w.end(), 0.0), sum = 0;
  for (int i : order) {
    if (p.topP < 1 && sum >= p.topP * total) w[i] = 0;
    sum += w[i];
  }
  total = std::accumulate(w.begin(), w.end(), 0.0);
  for (double &v : w)
    v /= total;
  return w;
}

TokenHistory someHistory(int vocab) {
  TokenHistory h;
  for (int t : {0, 3, 3, 7})
    h.addPrompt(t % vocab);
  for (int t : {3, 5, 5, 5, 9, 11})
    h.addOutput(t % vocab);
  return h;
}

TEST(Sampler, FollowsTheLawInEveryCell) {
  constexpr int vocab = 32, draws = 8000;
  Sampler sampler(vocab);
  std::vector<float> logits = randomLogits(vocab, 5);
  logits[4] = -inf;
  logits[6] = logits[8]; // equals
  uint32_t position = 0;
  for (float temperature : {0.4f, 1.0f, 1.7f})
    for (int topK : {0, 5})
      for (float topP : {1.0f, 0.8f})
        for (float minP : {0.0f, 0.08f})
          for (int extra : {0, 1}) {
            SamplingParams p;
            p.temperature = temperature;
            p.topK = topK;
            p.topP = topP;
            p.minP = minP;
            p.seed = 1234;
            TokenHistory history;
            std::vector<uint32_t> allowed;
            if (extra) {
              history = someHistory(vocab);
              p.repetitionPenalty = 1.3f;
              p.presencePenalty = 0.4f;
              p.frequencyPenalty = 0.3f;
              p.logitBias = {{2, 1.5f}, {10, -2.0f}};
              p.minTokens = 10;
              p.stopTokenIds = {1};
              allowed = {0xFFFFFFFEu & ~(1u << 12)};
            }
            ASSERT_TRUE(p.validate(vocab).ok());
            std::vector<double> expected = law(logits, p, history, allowed), said;
            ASSERT_TRUE(sampler.law(logits, p, history, 0, said, allowed).ok());
            ASSERT_EQ(said.size(), size_t(vocab));
            for (int t = 0; t < vocab; ++t) EXPECT_NEAR(said[t], expected[t], 1e-6) << t;
            std::vector<int> counts(vocab);
            for (int i = 0; i < draws; ++i) {
              auto s = sampler.sample(logits, p, history, position++, allowed);
              ASSERT_TRUE(s.ok());
              ++counts[s->token];
            }
            double chi = 0, cells = -1;
            for (int t = 0; t < vocab; ++t) {
              double e = expected[t] * draws;
              if (expected[t] == 0) EXPECT_EQ(counts[t], 0) << t;
              if (e < 1) continue;
              chi += (counts[t] - e) * (counts[t] - e) / e;
              ++cells;
            }
            // About 4 standard deviations: fixed seeds make this one draw for ever.
            EXPECT_LT(chi, cells + 4 * std::sqrt(2 * cells) + 8)
                << temperature << ' ' << topK << ' ' << topP << ' ' << minP << ' ' << extra;
          }
}

TEST(Sampler, KeepsExactlyTheTokensOfTheLaw) {
  // With every noise equal in law, what is drawn over many positions is the kept set.
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    int vocab = 5 + static_cast<int>(random() % 40);
    Sampler sampler(vocab);
    std::vector<float> logits = randomLogits(vocab, random(), round % 3 ? 1.0f : 0.05f);
    for (float &v : logits)
      v = std::round(v * 4) / 4; // many equals
    SamplingParams p;
    p.temperature = 0.7f;
    p.topK = random() % 2 ? 1 + static_cast<int>(random() % vocab) : 0;
    p.topP = random() % 2 ? 0.3f + 0.6f * static_cast<float>(random() % 100) / 100 : 1;
    p.minP = random() % 2 ? 0.3f : 0;
    std::vector<double> expected = law(logits, p, {});
    std::vector<bool> seen(vocab);
    for (uint32_t i = 0; i < 3000; ++i)
      seen[sampler.sample(logits, p, {}, i)->token] = true;
    for (int t = 0; t < vocab; ++t) {
      if (expected[t] == 0) EXPECT_FALSE(seen[t]) << round << ' ' << t;
      if (expected[t] > 0.01) EXPECT_TRUE(seen[t]) << round << ' ' << t;
    }
  }
}

TEST(Sampler, TakesTheLargestOfScoreAndNoise) {
  for (int vocab : {1, 3, 17, 255, 257, 1000, 262144}) {
    Sampler sampler(vocab);
    for (int kind = 0; kind < 3; ++kind) {
      std::vector<float> logits = kind == 0 ? std::vector<float>(vocab, 0.5f) : randomLogits(vocab, vocab, 3.0f * kind);
      if (vocab > 3) logits[2] = -inf;
      SamplingParams p;
      p.temperature = 0.8f;
      p.seed = 77;
      for (uint32_t position = 0; position < (vocab > 1000 ? 2 : 50); ++position) {
        int best = -1;
        double record = 0;
        for (int t = 0; t < vocab; ++t) {
          if (logits[t] == -inf) continue;
          double value = double(logits[t]) * (1.0 / double(0.8f)) + gumbelNoise(77, 0, position, t, DrawPurpose::token);
          if (best < 0 || value > record) best = t, record = value;
        }
        EXPECT_EQ(sampler.sample(logits, p, {}, position)->token, best) << vocab << ' ' << kind;
        // A cut that keeps all goes another way to the same token.
        SamplingParams q = p;
        q.minP = 1e-30f;
        q.topK = vocab - 1 > 0 ? vocab - 1 : 0;
        if (kind > 0 || vocab < 3) continue;
        EXPECT_GE(sampler.sample(logits, q, {}, position)->token, 0);
      }
    }
  }
}

TEST(Sampler, AGreedyTokenIsTheFirstLargest) {
  Sampler sampler(600);
  SamplingParams p;
  p.temperature = 0;
  std::vector<float> logits(600, -1);
  logits[301] = logits[599] = 3;
  EXPECT_EQ(sampler.sample(logits, p, {}, 0)->token, 301);
  p.temperature = 1e-6f;
  EXPECT_EQ(sampler.sample(logits, p, {}, 0)->token, 301);
  p.temperature = 1;
  p.topK = 1;
  EXPECT_EQ(sampler.sample(logits, p, {}, 0)->token, 301);
  p.temperature = 0;
  p.logitBias = {{7, 10.0f}};
  EXPECT_EQ(sampler.sample(logits, p, {}, 0)->token, 7);
}

TEST(Sampler, IsAPureFunctionOfItsArguments) {
  std::vector<float> logits = randomLogits(500, 9);
  Sampler a(500), b(500);
  SamplingParams p, other;
  p.topP = 0.9f;
  p.seed = 5;
  other.topK = 3;
  for (uint32_t position = 0; position < 200; ++position) {
    int32_t first = a.sample(logits, p, {}, position)->token;
    (void)b.sample(randomLogits(500, position), other, someHistory(500), position * 7);
    EXPECT_EQ(b.sample(logits, p, {}, position)->token, first);
  }
  int differ = 0;
  SamplingParams q = p;
  q.choice = 1;
  for (uint32_t position = 0; position < 200; ++position)
    differ += a.sample(logits, p, {}, position)->token != a.sample(logits, q, {}, position)->token;
  EXPECT_GT(differ, 60);
}

// What a seed gives may not change between versions or machines.
TEST(Sampler, KeepsItsTokens) {
  std::vector<float> logits(1000);
  for (int i = 0; i < 1000; ++i)
    logits[i] = static_cast<float>((i * 7919) % 1000) / 128;
  Sampler sampler(1000);
  SamplingParams p;
  p.seed = 42;
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < 6; ++i)
    tokens.push_back(sampler.sample(logits, p, {}, i)->token);
  p.topP = 0.5f;
  p.topK = 40;
  for (uint32_t i = 0; i < 6; ++i)
    tokens.push_back(sampler.sample(logits, p, {}, i)->token);
  EXPECT_EQ(tokens, (std::vector<int32_t>{336, 198, 149, 791, 865, 741, 642, 889, 247, 210, 247, 963}));
}

TEST(Sampler, ReportsLogprobsOfTheRawLaw) {
  constexpr int vocab = 333;
  std::vector<float> logits = randomLogits(vocab, 11);
  logits[100] = logits[200] = 9;
  logits[5] = -inf;
  Sampler sampler(vocab);
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = 4;
  p.logitBias = {{5, 1.0f}, {100, -50.0f}};
  auto s = sampler.sample(logits, p, {}, 0);
  ASSERT_TRUE(s.ok());
  double total = 0;
  for (float v : logits)
    total += std::exp(double(v));
  EXPECT_EQ(s->token, 200);
  EXPECT_FLOAT_EQ(s->logprob, float(9 - std::log(total)));
  ASSERT_EQ(s->top.size(), 4u);
  EXPECT_EQ(s->top[0].token, 100);
  EXPECT_EQ(s->top[1].token, 200);
  for (const TokenLogprob &t : s->top)
    EXPECT_FLOAT_EQ(t.logprob, float(logits[t.token] - std::log(total)));
  EXPECT_GE(s->top[2].logprob, s->top[3].logprob);
  p.logprobs = vocab;
  EXPECT_EQ(sampler.sample(logits, p, {}, 0)->top.back().token, 5);
  p.logprobs = 0;
  EXPECT_TRUE(sampler.sample(logits, p, {}, 0)->top.empty());
}

/// Where the head says the largest logit, take() stands for sample(): the same token, the same words about a damaged row.
TEST(Sampler, TakesWhatTheHeadSaysOfARow) {
  constexpr int n = 40;
  Sampler sampler(n);
  std::mt19937 rng(5);
  int faults = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    SamplingParams p;
    TokenHistory history;
    p.temperature = rng() % 3 ? 0.0f : 1.0f;
    if (rng() % 4 == 0) p.topK = 1;
    if (rng() % 4 == 0) p.topP = 0.5f, p.minP = 0.1f;
    if (rng() % 8 == 0) p.logprobs = 0;
    if (rng() % 8 == 0) p.logitBias = {{3, 1.0f}};
    if (rng() % 8 == 0) p.frequencyPenalty = 1;
    if (rng() % 4 == 0) p.minTokens = 2, p.stopTokenIds = {7};
    for (uint32_t k = rng() % 4; k > 0; --k)
      history.addOutput(9);
    std::vector<float> logits(n);
    for (float &x : logits)
      x = float(int(rng() % 9) - 4);
    if (rng() % 10 == 0) logits[rng() % n] = NAN;
    if (rng() % 10 == 0) logits[rng() % n] = inf;
    if (rng() % 10 == 0) std::fill(logits.begin(), logits.end(), -inf);
    bool free = (p.temperature == 0 || p.topK == 1) && p.logprobs < 0 && p.logitBias.empty() && p.frequencyPenalty == 0 && (p.minTokens == 0 || history.outputTokens() >= 2);
    ASSERT_EQ(Sampler::takesLargest(p, history), free);
    if (!free) continue;
    size_t at = 0;
    while (at < n && logits[at] < inf)
      ++at;
    if (at == n) at = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
    Sample taken;
    Status status = sampler.take(float(at), logits[at], 5, taken);
    auto sampled = sampler.sample(logits, p, history, 5);
    ASSERT_EQ(status.message(), sampled.status().message());
    faults += !status.ok();
    if (status.ok()) {
      ASSERT_EQ(taken.token, sampled->token);
      ASSERT_EQ(taken.logprob, sampled->logprob);
    }
  }
  EXPECT_GT(faults, 50);
  Sample out;
  for (float token : {-1.0f, float(n), NAN})
    EXPECT_EQ(sampler.take(token, 1, 5, out).message().substr(0, 51), "sampler: expected a token below 40 at position 5, f");
}

TEST(Sampler, FaultsStayWithTheirRequest) {
  Sampler sampler(40);
  std::vector<float> logits(40, 1.0f);
  SamplingParams p;
  logits[33] = NAN;
  EXPECT_EQ(sampler.sample(logits, p, {}, 6).status().message(), "logits at position 6: token 33 has nan");
  EXPECT_EQ(sampler.sample(logits, p, {}, 6).status().code(), StatusCode::internal);
  logits[33] = inf;
  EXPECT_EQ(sampler.sample(logits, p, {}, 6).status().message(), "logits at position 6: token 33 has inf");
  logits[33] = 1;
  EXPECT_TRUE(sampler.sample(logits, p, {}, 6).ok());
  std::vector<uint32_t> none(2);
  EXPECT_EQ(sampler.sample(logits, p, {}, 7, none).status().message(), "no token may be chosen at position 7");
  EXPECT_EQ(sampler.sample(logits, p, {}, 7, none).status().code(), StatusCode::failedPrecondition);
  EXPECT_EQ(sampler.sample(logits, p, {}, 7, std::vector<uint32_t>(1, 1)).status().message(),
            "sampler: expected a mask of 2 words, found 1");
  EXPECT_EQ(sampler.sample(std::vector<float>(3), p, {}, 7).status().message(), "sampler: expected 40 logits, found 3");
  std::fill(logits.begin(), logits.end(), -inf);
  EXPECT_EQ(sampler.sample(logits, p, {}, 8).status().message(), "no token may be chosen at position 8");
  logits[0] = 3e38f;
  p.repetitionPenalty = 0.1f;
  EXPECT_EQ(sampler.sample(logits, p, someHistory(40), 8).status().message(),
            "repetition_penalty: 0.1 makes a logit at position 8 overflow");
}

TEST(SamplingParams, SayWhatIsOutOfRange) {
  auto message = [](auto change) {
    SamplingParams p;
    change(p);
    return p.validate(100).message();
  };
  using P = SamplingParams;
  EXPECT_EQ(message([](P &) {}), "");
  EXPECT_EQ(message([](P &p) { p.temperature = -1; }), "temperature: expected a number >= 0, found -1");
  EXPECT_EQ(message([](P &p) { p.temperature = NAN; }), "temperature: expected a number >= 0, found nan");
  EXPECT_EQ(message([](P &p) { p.topK = -2; }), "top_k: expected -1, 0 or a positive number, found -2");
  EXPECT_EQ(message([](P &p) { p.topP = 0; }), "top_p: expected a number in (0, 1], found 0");
  EXPECT_EQ(message([](P &p) { p.minP = 2; }), "min_p: expected a number in [0, 1], found 2");
  EXPECT_EQ(message([](P &p) { p.repetitionPenalty = 0; }), "repetition_penalty: expected a number > 0, found 0");
  EXPECT_EQ(message([](P &p) { p.presencePenalty = 3; }), "presence_penalty: expected a number in [-2, 2], found 3");
  EXPECT_EQ(message([](P &p) { p.frequencyPenalty = -3; }),
            "frequency_penalty: expected a number in [-2, 2], found -3");
  EXPECT_EQ(message([](P &p) { p.minTokens = -1; }), "min_tokens: expected a number >= 0, found -1");
  EXPECT_EQ(message([](P &p) { p.logprobs = 101; }), "logprobs: expected -1 to 100, found 101");
  EXPECT_EQ(message([](P &p) { p.logitBias = {{100, 0}}; }), "logit_bias: expected token ids below 100, found 100");
  EXPECT_EQ(message([](P &p) { p.logitBias = {{1, 101}}; }), "logit_bias: expected numbers in [-100, 100], found 101");
  EXPECT_EQ(message([](P &p) { p.stopTokenIds = {-1}; }), "stop_token_ids: expected token ids below 100, found -1");
}

TEST(TokenHistory, CountsAndForgets) {
  TokenHistory h;
  std::mt19937 random(4);
  std::vector<int> prompt(3000), output(3000), order;
  for (int i = 0; i < 5000; ++i) {
    int t = static_cast<int>(random() % 3000);
    if (random() % 2)
      h.addPrompt(t), ++prompt[t];
    else
      h.addOutput(t), ++output[t], order.push_back(t);
  }
  for (int i = 0; i < 500; ++i) {
    h.removeOutput(order.back());
    --output[order.back()];
    order.pop_back();
  }
  EXPECT_EQ(h.outputTokens(), static_cast<int>(order.size()));
  std::vector<int> p(3000), o(3000);
  for (const auto &e : h.entries())
    p[e.token] += e.inPrompt, o[e.token] += e.inOutput;
  EXPECT_EQ(p, prompt);
  EXPECT_EQ(o, output);
  h.removeOutput(2999999);
  EXPECT_EQ(h.outputTokens(), static_cast<int>(order.size()));
}

} // namespace
