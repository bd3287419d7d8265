//===- EngineTesting.h - requests and what they heard -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "ToyArtifact.h"
#include "runtime/engine/EngineCore.h"
#include <algorithm>
#include <condition_variable>
#include <gtest/gtest.h>
#include <mutex>

namespace lathe::test {

/// Keeps what a request hears, and checks the order in which it comes. Waiting is thread-safe.
class Recorder : public runtime::RequestListener {
public:
  struct Choice {
    std::vector<Sample> tokens;
    std::string text, stopText;
    int32_t stopToken = -1;
    runtime::EndReason reason = runtime::EndReason::failed;
    bool done = false;
    std::vector<int32_t> ids() const {
      std::vector<int32_t> out;
      for (const Sample &s : tokens)
        out.push_back(s.token);
      return out;
    }
  };
  explicit Recorder(uint32_t choices = 1) : choices(choices) {}

  void accepted(uint64_t value) override {
    EXPECT_FALSE(acceptedOnce);
    acceptedOnce = true;
    seed = value;
  }
  void promptDone(std::span<const runtime::PromptLogprob> values) override {
    EXPECT_TRUE(choices[0].tokens.empty());
    scores.assign(values.begin(), values.end());
  }
  void piece(uint32_t choice, const Sample &sample, std::string_view text) override {
    EXPECT_TRUE(acceptedOnce);
    Choice &c = choices.at(choice);
    EXPECT_FALSE(c.done);
    if (sample.token >= 0) c.tokens.push_back(sample);
    c.text += text;
    if (onPiece) onPiece();
  }
  void choiceDone(uint32_t choice, runtime::EndReason reason, std::string_view stopText, int32_t stopToken) override {
    Choice &c = choices.at(choice);
    EXPECT_FALSE(c.done);
    c.done = true;
    c.reason = reason;
    c.stopText = stopText;
    c.stopToken = stopToken;
  }
  void embedding(std::span<const float> values) override { vector.assign(values.begin(), values.end()); }
  void finished(const runtime::RequestUsage &used, const Status &status) override {
    std::lock_guard lock(mutex);
    EXPECT_FALSE(isFinished);
    usage = used;
    error = status;
    isFinished = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return isFinished; }));
  }

  std::vector<Choice> choices;
  std::vector<runtime::PromptLogprob> scores;
  std::vector<float> vector;
  runtime::RequestUsage usage;
  Status error;
  uint64_t seed = 0;
  bool acceptedOnce = false, isFinished = false;
  std::function<void()> onPiece;

private:
  std::mutex mutex;
  std::condition_variable changed;
};

inline std::shared_ptr<runtime::LoadedArtifact> loadToy(const std::string &path, const ToyOptions &toy = {}) {
  EXPECT_TRUE(writeToyArtifact(path, toy).ok());
  auto loaded = runtime::LoadedArtifact::load(path);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return *loaded;
}

inline runtime::Request greedy(std::vector<int32_t> prompt, uint32_t tokens) {
  runtime::Request r;
  r.prompt = std::move(prompt);
  r.maxTokens = tokens;
  r.sampling.temperature = 0;
  return r;
}

/// Tokens after a prompt, by the model computed directly and a sampler of its own.
inline std::vector<Sample> aloneSamples(const runtime::Request &r, uint32_t choice = 0, const ToyOptions &toy = {}) {
  Sampler sampler(toyVocabulary);
  SamplingParams p = r.sampling;
  p.choice = choice;
  p.stopTokenIds = r.stopTokens;
  TokenHistory history;
  for (int32_t t : r.prompt)
    history.addPrompt(t);
  std::vector<int32_t> tokens = r.prompt;
  std::vector<Sample> out;
  while (out.size() < r.maxTokens) {
    auto sample = sampler.sample(toyLogits(toy, tokens).back(), p, history, static_cast<uint32_t>(tokens.size()));
    EXPECT_TRUE(sample.ok()) << sample.status().message();
    if (!sample.ok() || std::count(r.stopTokens.begin(), r.stopTokens.end(), sample->token)) break;
    out.push_back(*sample);
    tokens.push_back(sample->token);
    history.addOutput(sample->token);
  }
  return out;
}

inline bool sameSamples(const std::vector<Sample> &a, const std::vector<Sample> &b) {
  auto same = [](const Sample &x, const Sample &y) {
    auto sameTop = [](const TokenLogprob &u, const TokenLogprob &v) {
      return u.token == v.token && u.logprob == v.logprob;
    };
    return x.token == y.token && x.logprob == y.logprob &&
           std::equal(x.top.begin(), x.top.end(), y.top.begin(), y.top.end(), sameTop);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

} // namespace lathe::test
