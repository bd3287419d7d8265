//===- Workload.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/simulator/Workload.h"
#include <algorithm>
#include <cmath>

namespace lathe::runtime {

uint64_t SimRandom::next() {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double SimRandom::uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
double SimRandom::exponential(double mean) { return -mean * std::log(uniform()); }
double SimRandom::normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }

uint32_t SimRandom::length(double mean, double spread, uint32_t low, uint32_t high) {
  double value = std::exp(std::log(mean) - spread * spread / 2 + spread * normal());
  return static_cast<uint32_t>(std::clamp(value, static_cast<double>(low), static_cast<double>(high)));
}

/// Gamma with this shape and mean (Marsaglia and Tsang 2000; a shape below 1 by the power of a uniform number).
static double gammaGap(SimRandom &random, double shape, double mean) {
  if (shape == 1) return random.exponential(mean);
  double k = shape < 1 ? shape + 1 : shape, d = k - 1.0 / 3, c = 1 / std::sqrt(9 * d), value;
  while (true) {
    double x = random.normal(), v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    if (std::log(random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      value = d * v;
      break;
    }
  }
  if (shape < 1) value *= std::pow(random.uniform(), 1 / shape);
  return value * mean / shape;
}

std::vector<SimRequest> makeWorkload(const WorkloadOptions &o) {
  SimRandom random(o.seed);
  std::vector<SimRequest> requests(o.requests);
  double now = 0;
  auto fill = [&](std::vector<int32_t> &tokens, uint32_t count, SimRandom &source) {
    for (uint32_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<int32_t>(source.below(32000)));
  };
  for (uint32_t i = 0; i < o.requests; ++i) {
    SimRequest &r = requests[i];
    r.arrival = now;
    if (o.rate > 0) now += gammaGap(random, o.burstiness, 1 / o.rate);
    uint32_t own = random.length(o.promptMean, o.spread, 1, o.promptMax);
    bool hot = o.groups && (o.hotShare <= 0 || random.uniform() < o.hotShare);
    if (hot) {
      uint64_t group = uint64_t(i) * o.groups / o.requests;
      r.tag = static_cast<uint32_t>(group) + 1;
      SimRandom shared(o.seed * 1000003 + group + 17);
      fill(r.spec.prompt, o.sharedTokens, shared);
    } else if (o.groups) {
      own += o.sharedTokens;
    }
    fill(r.spec.prompt, own, random);
    r.spec.choices = o.choices;
    for (uint32_t c = 0; c < o.choices; ++c)
      r.outputs.push_back(random.length(o.outputMean, o.spread, 1, o.outputMax));
    if (o.sayMaxTokens) r.spec.maxTokens = *std::max_element(r.outputs.begin(), r.outputs.end());
    r.spec.tenant = "t" + std::to_string(i % std::max(1u, o.tenants));
    r.spec.ttftTarget = o.ttftTarget;
    r.spec.tpotTarget = o.tpotTarget;
    if (random.uniform() < o.abortShare) r.abortAfter = random.exponential(2);
  }
  return requests;
}

} // namespace lathe::runtime
