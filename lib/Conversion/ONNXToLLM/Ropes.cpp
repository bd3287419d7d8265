//===- Ropes.cpp - frequencies behind cosines and sines ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Assemble.h"
#include "lathe/weights/Half.h"
#include <cmath>
#include <cstdio>

namespace lathe::raise {

double grainOf(llvm::ArrayRef<llvm::ArrayRef<double>> lists) {
  bool half = true, brain = true;
  for (llvm::ArrayRef<double> values : lists)
    for (double v : values) {
      auto f = static_cast<float>(v);
      half &= halfToFloat(floatToHalf(f)) == f;
      brain &= bfloatToFloat(floatToBfloat(f)) == f;
      if (!half && !brain) return 0;
    }
  return brain ? std::ldexp(1.0, -8) : half ? std::ldexp(1.0, -11) : 0; // f16 holds most of what bf16 holds
}

namespace {

constexpr int tolerance = ropeTolerance;

/// Distance of two floats of one sign in units of the larger one's last place.
double ulps(double a, double b) {
  if (a == b) return 0;
  double larger = std::max(std::fabs(a), std::fabs(b));
  int exponent;
  std::frexp(larger, &exponent);
  return std::fabs(a - b) / std::ldexp(1.0, exponent - 24);
}

double grainOfParts(const RopeParts &parts, bool sixteenBits) {
  if (!sixteenBits) return 0;
  std::vector<llvm::ArrayRef<double>> lists;
  for (const Observation &o : parts.seen)
    for (const Table *t : {&o.cosines, &o.sines}) {
      lists.push_back(t->values);
      if (t->cache) lists.push_back(t->cache->f);
    }
  return grainOf(lists);
}

class Fitter {
public:
  Fitter(const RopeParts &parts, bool sixteenBits) : grain(grainOfParts(parts, sixteenBits)), parts(parts), count(static_cast<size_t>(parts.rotated / 2)) {}
  bool observe();
  /// All that was seen follows from |rope|.
  bool explains(const Rope &rope) const;
  std::vector<double> frequencies; ///< as measured
  double factor = 1;
  bool exact = false; ///< measured from angles
  const double grain;
  /// The frequency of a pair, from how far it turns in all rows of a stored table. 0: there is none.
  double measured(size_t pair) const;

private:
  /// What may differ from |value|, beside |ulps| of float32.
  double slack(double value) const { return grain * std::fabs(value) + (grain ? std::ldexp(1.0, -24) : 0); }
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
  if (std::fabs(factor - 1) < 4 * ulpOfOne + 1.5 * grain) factor = 1;
  return factor > 0;
}

bool Fitter::explainsRow(const Rope &rope, double position, const double *c, const double *s) const {
  for (size_t k = 0; k < count; ++k) {
    float angle = static_cast<float>(position) * static_cast<float>(rope.inverseFrequencies[k]);
    // The frequency, and so the angle, may be off by so many ulp, and the value itself.
    double scale = rope.attentionFactor, allowed = tolerance * ulpOfOne * (1 + angle) * scale;
    if (std::fabs(c[k] - std::cos(double(angle)) * scale) > allowed + slack(c[k])) return false;
    if (std::fabs(s[k] - std::sin(double(angle)) * scale) > allowed + slack(s[k])) return false;
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
        double c = o.cosines.values[at + k], s = o.sines.values[at + k], allowed = tolerance * ulpOfOne * scale;
        if (std::fabs(c - std::cos(angle) * scale) > allowed + slack(c) || std::fabs(s - std::sin(angle) * scale) > allowed + slack(s)) return false;
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

double Fitter::measured(size_t pair) const {
  const Observation &o = parts.seen[0];
  if (pair >= count || !o.cosines.cache || !o.sines.cache || o.cosines.cache->shape != o.sines.cache->shape) return 0;
  auto turned = [&](int64_t position) {
    size_t at = static_cast<size_t>(position) * count + pair;
    return std::atan2(o.sines.cache->f[at], o.cosines.cache->f[at]);
  };
  int64_t rows = o.cosines.cache->shape[0];
  if (rows < 2) return 0;
  // What is known of the frequency says at each double distance within which turn the angle is.
  double frequency = turned(1);
  for (int64_t p = 2; p < rows; p *= 2)
    frequency += std::remainder(turned(p) - frequency * static_cast<double>(p), 2 * M_PI) / static_cast<double>(p);
  return std::isfinite(frequency) && frequency > 0 ? frequency : 0;
}

/// |value| to |digits| significant digits: bases are round numbers.
double rounded(double value, int digits = 6) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*e", digits - 1, value);
  return std::strtod(text, nullptr);
}

} // namespace

std::string fitRopes(Parts &parts, const std::vector<Rope> &hints, bool sixteenBits, std::vector<std::string> &remarks) {
  ModelConfig &config = parts.config;
  std::vector<int> hintOf;
  for (auto &seen : parts.ropes) {
    Fitter fitter(seen, sixteenBits);
    std::string name = "rotary embedding " + std::to_string(config.ropes.size());
    bool found = false;
    int fromHint = -1;
    for (size_t k = 0; k < hints.size() && !found; ++k)
      if (fitter.explains(hints[k])) {
        config.ropes.push_back(hints[k]);
        fromHint = static_cast<int>(k);
        found = true;
        remarks.push_back(name + ": the values are those of config.json's " + hints[k].kind + " formula" + (fitter.grain ? " within its 16 bits" : " within " + std::to_string(tolerance) + " ulp") + " and became it");
      }
    hintOf.push_back(fromHint);
    if (found) continue;
    // Some rows of a table of 16 bits leave the frequencies open: many bases give them.
    const Table &table = seen.seen[0].cosines;
    if (fitter.grain && !table.cache && table.angles.empty()) return name + ": rows of cosines and sines of 16 bits, which no formula of config.json gives";
    if (!fitter.observe()) return name + ": cosines and sines do not come from one frequency for every pair";
    // The plain formula, with or without one factor for all positions.
    auto n = static_cast<double>(seen.rotated);
    size_t last = fitter.frequencies.size() - 1;
    std::string within = fitter.grain ? " within its 16 bits" : " within " + std::to_string(tolerance) + " ulp";
    auto became = [&](const RopeParameters &p) {
      auto rope = makeRope(p, config.maxSequence);
      if (!rope.ok() || !fitter.explains(*rope)) return false;
      char theta[32];
      std::snprintf(theta, sizeof(theta), "%g", p.theta);
      remarks.push_back(name + ": the values are those of the " + p.kind + " formula with base " + theta + within + " and became it");
      config.ropes.push_back(*std::move(rope));
      return true;
    };
    // Values of 16 bits say less about the frequencies: the base is the roundest number that explains them.
    double base = fitter.exact ? 0 : std::pow(fitter.measured(1), -n / 2);
    for (int digits = 1; fitter.grain && base > 0 && std::isfinite(base) && digits <= 6 && !found; ++digits) {
      RopeParameters p;
      p.rotarySize = seen.rotated;
      p.theta = rounded(base, digits);
      found = became(p);
    }
    if (found) continue;
    for (double stretch : {1.0, 1 / rounded(1 / fitter.frequencies[0])}) {
      RopeParameters p;
      p.kind = stretch == 1 ? "default" : "linear";
      p.factor = 1 / stretch;
      p.rotarySize = seen.rotated;
      p.attentionFactor = fitter.factor == 1 ? 0 : fitter.factor;
      p.theta = last ? rounded(std::pow(fitter.frequencies[last] / stretch, -n / (2.0 * static_cast<double>(last)))) : 10000;
      if ((found = became(p))) break;
    }
    // Llama 3.1 and 3.2, whose GenAI exports have no file that says so.
    for (double factor : {8.0, 32.0}) {
      if (found) break;
      RopeParameters p;
      p.kind = "llama3";
      p.theta = 500000;
      p.rotarySize = seen.rotated;
      p.factor = factor;
      p.originalPositions = 8192;
      found = became(p);
    }
    if (found) continue;
    Rope own;
    own.kind = "table";
    own.attentionFactor = fitter.factor;
    for (double f : fitter.frequencies)
      own.inverseFrequencies.push_back(static_cast<float>(f));
    if (!fitter.exact)
      for (size_t k = 0; k < own.inverseFrequencies.size(); ++k)
        own.inverseFrequencies[k] = static_cast<float>(fitter.measured(k));
    if (!fitter.explains(own)) return name + ": no formula and no frequencies give its cosines and sines";
    remarks.push_back(name + (fitter.exact ? ": no known formula gives the frequencies; they stay as they are" : ": no known formula gives the frequencies; those are taken that give every stored value" + within));
    config.ropes.push_back(std::move(own));
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
