//===- Ropes.cpp - frequencies behind cosines and sines ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Assemble.h"
#include <cmath>
#include <cstdio>

namespace lathe::raise {
namespace {

constexpr double ulpOfOne = 1.1920928955078125e-07;
constexpr int tolerance = 4; ///< ulp

/// Distance of two floats of one sign in units of the larger one's last place.
double ulps(double a, double b) {
  if (a == b) return 0;
  double larger = std::max(std::fabs(a), std::fabs(b));
  int exponent;
  std::frexp(larger, &exponent);
  return std::fabs(a - b) / std::ldexp(1.0, exponent - 24);
}

class Fitter {
public:
  explicit Fitter(const RopeParts &parts) : parts(parts), count(static_cast<size_t>(parts.rotated / 2)) {}
  bool observe();
  /// All that was seen follows from |rope|.
  bool explains(const Rope &rope) const;
  std::vector<double> frequencies; ///< as measured
  double factor = 1;
  bool exact = false; ///< measured from angles

private:
  bool explainsRow(const Rope &rope, double position, const double *c, const double *s) const;
  const RopeParts &parts;
  size_t count;
};

bool Fitter::observe() {
  // The smallest position above 0: angles below half a turn, and at 1 the frequencies themselves.
  const Observation *best = nullptr;
  int64_t row = 0, position = INT64_MAX;
  for (const Observation &o : parts.seen)
    for (int64_t s = 0; s < o.cosines.tokens; ++s)
      if (int64_t p = o.past + s; p > 0 && p < position) best = &o, row = s, position = p;
  if (!best || best->cosines.columns != static_cast<int64_t>(count) || best->sines.columns != static_cast<int64_t>(count)) return false;
  exact = !best->cosines.angles.empty();
  if (!exact && position != 1) return false;
  for (size_t k = 0; k < count; ++k) {
    size_t at = static_cast<size_t>(row) * count + k;
    double c = best->cosines.values[at], s = best->sines.values[at];
    if (k == 0) factor = std::sqrt(c * c + s * s);
    frequencies.push_back(exact ? best->cosines.angles[at] / static_cast<double>(position) : std::atan2(s, c));
    if (!(frequencies.back() > 0) || !std::isfinite(frequencies.back())) return false;
  }
  if (std::fabs(factor - 1) < 4 * ulpOfOne) factor = 1;
  return factor > 0;
}

bool Fitter::explainsRow(const Rope &rope, double position, const double *c, const double *s) const {
  for (size_t k = 0; k < count; ++k) {
    float angle = static_cast<float>(position) * static_cast<float>(rope.inverseFrequencies[k]);
    // The frequency, and so the angle, may be off by so many ulp, and the value itself.
    double scale = rope.attentionFactor, allowed = tolerance * ulpOfOne * (1 + angle) * scale;
    if (std::fabs(c[k] - std::cos(double(angle)) * scale) > allowed) return false;
    if (std::fabs(s[k] - std::sin(double(angle)) * scale) > allowed) return false;
  }
  return true;
}

bool Fitter::explains(const Rope &rope) const {
  if (rope.inverseFrequencies.size() != count) return false;
  for (const Observation &o : parts.seen) {
    if (o.cosines.columns != static_cast<int64_t>(count) || o.sines.columns != static_cast<int64_t>(count)) return false;
    for (int64_t row = 0; row < o.cosines.tokens; ++row) {
      size_t at = static_cast<size_t>(row) * count;
      auto position = static_cast<double>(o.past + row);
      if (o.cosines.angles.empty()) {
        if (!explainsRow(rope, position, &o.cosines.values[at], &o.sines.values[at])) return false;
        continue;
      }
      for (size_t k = 0; k < count; ++k) {
        double angle = o.cosines.angles[at + k], scale = rope.attentionFactor;
        float expected = static_cast<float>(position) * static_cast<float>(rope.inverseFrequencies[k]);
        if (ulps(angle, expected) > tolerance || o.sines.angles.empty() || o.sines.angles[at + k] != angle) return false;
        if (std::fabs(o.cosines.values[at + k] - std::cos(angle) * scale) > tolerance * ulpOfOne * scale) return false;
        if (std::fabs(o.sines.values[at + k] - std::sin(angle) * scale) > tolerance * ulpOfOne * scale) return false;
      }
    }
  }
  // Every row of a stored table, not only those that the runs read.
  const Observation &first = parts.seen[0];
  if (!first.cosines.cache) return true;
  if (!first.sines.cache || first.sines.cache->shape != first.cosines.cache->shape) return false;
  for (int64_t p = 0; p < first.cosines.cache->shape[0]; ++p) {
    size_t at = static_cast<size_t>(p) * count;
    if (!explainsRow(rope, static_cast<double>(p), &first.cosines.cache->f[at], &first.sines.cache->f[at])) return false;
  }
  return true;
}

/// |value| to six significant digits: bases are round numbers.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.5e", value);
  return std::strtod(text, nullptr);
}

} // namespace

std::string fitRopes(Parts &parts, const std::vector<Rope> &hints, std::vector<std::string> &remarks) {
  ModelConfig &config = parts.config;
  std::vector<int> hintOf;
  for (auto &seen : parts.ropes) {
    Fitter fitter(seen);
    std::string name = "rotary embedding " + std::to_string(config.ropes.size());
    bool found = false;
    int fromHint = -1;
    for (size_t k = 0; k < hints.size() && !found; ++k)
      if (fitter.explains(hints[k])) {
        config.ropes.push_back(hints[k]);
        fromHint = static_cast<int>(k);
        found = true;
        remarks.push_back(name + ": the values are those of config.json's " + hints[k].kind + " formula within " + std::to_string(tolerance) + " ulp and became it");
      }
    hintOf.push_back(fromHint);
    if (found) continue;
    if (!fitter.observe()) return name + ": cosines and sines do not come from one frequency for every pair";
    // The plain formula, with or without one factor for all positions.
    auto n = static_cast<double>(seen.rotated);
    size_t last = fitter.frequencies.size() - 1;
    for (double stretch : {1.0, 1 / rounded(1 / fitter.frequencies[0])}) {
      RopeParameters p;
      p.kind = stretch == 1 ? "default" : "linear";
      p.factor = 1 / stretch;
      p.rotarySize = seen.rotated;
      p.attentionFactor = fitter.factor == 1 ? 0 : fitter.factor;
      p.theta = last ? rounded(std::pow(fitter.frequencies[last] / stretch, -n / (2.0 * static_cast<double>(last)))) : 10000;
      auto rope = makeRope(p, config.maxSequence);
      if (!rope.ok() || !fitter.explains(*rope)) continue;
      char theta[32];
      std::snprintf(theta, sizeof(theta), "%g", p.theta);
      remarks.push_back(name + ": the values are those of the " + p.kind + " formula with base " + theta + " within " + std::to_string(tolerance) + " ulp and became it");
      config.ropes.push_back(*std::move(rope));
      found = true;
      break;
    }
    if (found) continue;
    Rope table{"table", {}, fitter.factor};
    for (double f : fitter.frequencies)
      table.inverseFrequencies.push_back(static_cast<float>(f));
    if (!fitter.exact || !fitter.explains(table)) return name + ": no formula gives its cosines and sines, and they are not computed from frequencies in the graph";
    remarks.push_back(name + ": no known formula gives the frequencies; they stay as they are");
    config.ropes.push_back(std::move(table));
  }
  // In the configuration's order, so that equal models are equal modules.
  bool all = !hintOf.empty() && hintOf.size() == hints.size();
  for (int k : hintOf)
    all &= k >= 0 && llvm::count(hintOf, k) == 1;
  if (all) {
    config.ropes = hints;
    for (LayerConfig &layer : config.layers)
      if (layer.rope >= 0) layer.rope = hintOf[static_cast<size_t>(layer.rope)];
  }
  return "";
}

} // namespace lathe::raise
