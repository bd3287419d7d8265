//===- Acceptance.cpp - which draft tokens count ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Acceptance.h"
#include "Noise.h"
#include "Sampler.h"
#include <algorithm>
#include <iterator>
#include <string>

namespace lathe {

using namespace sampling;

static const char *const acceptanceNames[] = {"exact", "rejection", "typical"};
const char *toString(Acceptance acceptance) { return acceptanceNames[static_cast<size_t>(acceptance)]; }

Result<Acceptance> parseAcceptance(std::string_view name) {
  for (size_t i = 0; i < std::size(acceptanceNames); ++i)
    if (name == acceptanceNames[i]) return static_cast<Acceptance>(i);
  return makeError(StatusCode::invalidArgument, "expected exact, rejection or typical, found '%s'", std::string(name.substr(0, 64)).c_str());
}

// Medusa's constants.
static constexpr double typicalLeast = 0.09, typicalShare = 0.3;

/// A number in (0, 1).
static double uniform(const PlaceSeed &place, DrawPurpose purpose, uint32_t token) {
  NoiseKey key{place.seed, place.choice, place.position, static_cast<uint32_t>(purpose)};
  uint64_t high = key.block(token / 4, 0).word[token % 4], low = key.block(token / 4, 1).word[token % 4];
  return (static_cast<double>(high << 21 | low >> 11) + 0.5) / 9007199254740992.0; // 53 bits
}

/// The token where the running sum of |weights| passes a random share of the whole.
static int32_t draw(std::span<const double> weights, const PlaceSeed &place) {
  double sum = 0, reached = 0;
  for (double w : weights)
    sum += w;
  double target = uniform(place, DrawPurpose::residual, 0) * sum;
  int32_t last = -1;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0)) continue;
    last = static_cast<int32_t>(i);
    reached += weights[i];
    if (reached > target) break;
  }
  return last;
}

Decision acceptByRejection(std::span<double> p, std::span<const int32_t> drafts, std::span<const float> q, const PlaceSeed &place) {
  double left = 0; // of the law, behind the drafts that were refused
  for (double v : p)
    left += v;
  for (size_t i = 0; i < drafts.size(); ++i) {
    auto token = static_cast<size_t>(drafts[i]);
    if (token >= p.size()) continue;
    double u = uniform(place, DrawPurpose::acceptance, static_cast<uint32_t>(token));
    if (!q.empty() && i == 0) {
      auto drawn = static_cast<double>(q[token]);
      if (u * drawn < p[token]) return {0, drafts[0]};
      left = 0;
      for (size_t t = 0; t < p.size(); ++t)
        left += p[t] = std::max(0.0, p[t] - static_cast<double>(q[t]));
      continue;
    }
    if (u * left < p[token]) return {static_cast<int32_t>(i), drafts[i]};
    left -= p[token];
    p[token] = 0;
  }
  return {-1, draw(p, place)};
}

Decision acceptTypical(std::span<const double> p, std::span<const int32_t> drafts) {
  double entropy = 0;
  for (double v : p)
    if (v > 0) entropy -= v * logOf(v);
  double least = std::min(typicalLeast, typicalShare * expOf(-std::max(0.0, entropy)));
  for (size_t i = 0; i < drafts.size(); ++i)
    if (static_cast<size_t>(drafts[i]) < p.size() && p[static_cast<size_t>(drafts[i])] > least) return {static_cast<int32_t>(i), drafts[i]};
  return {};
}

} // namespace lathe
