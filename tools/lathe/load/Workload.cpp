//===- Workload.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Workload.h"
#include <algorithm>
#include <cmath>
#include <numbers>

namespace lathe::load {

uint64_t Random::bits() { // SplitMix64 (Steele, Lea, Flood 2014)
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double Random::uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
uint64_t Random::below(uint64_t bound) { return static_cast<uint64_t>(uniform() * static_cast<double>(bound)); }
double Random::exponential() { return -std::log(uniform()); }
double Random::normal() {
  double u = uniform(), v = uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

double Random::gamma(double shape) { // Marsaglia and Tsang 2000
  if (shape < 1) return gamma(shape + 1) * std::pow(uniform(), 1 / shape);
  double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    double x = normal(), v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    if (std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

namespace {

uint32_t draw(Random &random, const Lengths &lengths) {
  double value = lengths.mean;
  // The mean of a log-normal is exp(mu + sigma^2 / 2).
  if (lengths.sigma > 0)
    value = std::exp(std::log(lengths.mean) - lengths.sigma * lengths.sigma / 2 + lengths.sigma * random.normal());
  return static_cast<uint32_t>(std::clamp(std::round(value), 1.0, static_cast<double>(lengths.most)));
}

std::vector<int32_t> ids(Random &random, uint32_t count, uint32_t vocabulary) {
  std::vector<int32_t> out(count);
  for (int32_t &id : out)
    id = static_cast<int32_t>(random.below(vocabulary));
  return out;
}

} // namespace

std::vector<PlannedRequest> planWorkload(const WorkloadOptions &o) {
  // A stream of numbers for each purpose: changing one option leaves the rest of the run as it was.
  Random arrivals(o.seed * 8 + 1), lengths(o.seed * 8 + 2), words(o.seed * 8 + 3), manners(o.seed * 8 + 4),
      prefixes(o.seed * 8 + 5);
  std::vector<std::vector<int32_t>> prefix;
  for (uint32_t g = 0; g < std::max(1u, o.groups); ++g)
    prefix.push_back(ids(prefixes, o.sharedPrefix, o.vocabulary));
  std::vector<PlannedRequest> plan(o.requests);
  double time = 0;
  for (PlannedRequest &r : plan) {
    if (o.rate > 0) {
      time += arrivals.gamma(o.burstiness) / (o.burstiness * o.rate);
      r.arrival = time;
    }
    const std::vector<int32_t> &own = prefix[words.below(prefix.size())];
    for (uint32_t t = 0; t < o.turns; ++t) {
      PlannedTurn turn;
      uint32_t input = draw(lengths, o.input);
      turn.outputTokens = draw(lengths, o.output);
      if (t == 0) turn.prompt = own;
      std::vector<int32_t> rest = ids(words, input, o.vocabulary);
      turn.prompt.insert(turn.prompt.end(), rest.begin(), rest.end());
      turn.think = t ? o.thinkSeconds * manners.exponential() : 0;
      r.turns.push_back(std::move(turn));
    }
    double manner = manners.uniform(), when = manners.uniform();
    if (manner < o.abortShare) r.abortAfter = 1 + static_cast<uint32_t>(when * r.turns[0].outputTokens);
    else r.slow = manner < o.abortShare + o.slowShare;
  }
  return plan;
}

std::string wordsOf(const std::vector<int32_t> &ids) {
  static constexpr const char *words[] = {"time", "water", "house", "light", "road", "stone", "paper", "music",
                                          "green", "small", "north", "quick", "early", "bread", "river", "cloud"};
  std::string text;
  for (int32_t id : ids)
    text += (text.empty() ? "" : " ") + std::string(words[static_cast<uint32_t>(id) % std::size(words)]);
  return text;
}

} // namespace lathe::load
