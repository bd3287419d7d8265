//===- Workload.h - what a load test sends -------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lathe::load {

/// Random numbers that are the same everywhere for one seed; the distributions of <random> are not.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t bits();
  double uniform(); ///< in (0, 1)
  double normal();  ///< mean 0, deviation 1
  double exponential() ;          ///< mean 1
  double gamma(double shape);     ///< mean |shape|
  uint64_t below(uint64_t bound); ///< in 0..bound-1

private:
  uint64_t state;
};

struct Lengths {
  double mean = 128;  ///< tokens
  double sigma = 0;   ///< of the logarithm; 0: always the mean
  uint32_t most = 1u << 20;
};

struct WorkloadOptions {
  uint64_t seed = 1;
  uint32_t requests = 100; ///< conversations, with several turns
  double rate = 0;         ///< conversations a second; 0: the next begins when one ends (closed loop)
  double burstiness = 1;   ///< shape of the gamma distribution of gaps: 1 Poisson, less: bursts, more: even
  Lengths input, output;
  uint32_t vocabulary = 1000; ///< ids of prompts are below it
  uint32_t sharedPrefix = 0;  ///< tokens that all prompts of a group begin with
  uint32_t groups = 1;
  uint32_t turns = 1;
  double thinkSeconds = 0;    ///< mean pause between two turns
  double abortShare = 0;      ///< of requests that leave before the end
  double slowShare = 0;       ///< of requests that read slowly
};

struct PlannedTurn {
  std::vector<int32_t> prompt; ///< token ids; in a chat each stands for a word
  uint32_t outputTokens = 1;
  double think = 0; ///< seconds before it
};

struct PlannedRequest {
  double arrival = 0; ///< seconds from the start; 0 in a closed loop
  std::vector<PlannedTurn> turns;
  uint32_t abortAfter = 0; ///< pieces after which the client leaves; 0: it stays
  bool slow = false;
};

/// All requests of a run: a pure function of the options.
std::vector<PlannedRequest> planWorkload(const WorkloadOptions &options);

/// Prompt tokens as words of a chat.
std::string wordsOf(const std::vector<int32_t> &ids);

} // namespace lathe::load
