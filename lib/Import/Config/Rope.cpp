//===- Rope.cpp - inverse frequencies of every kind of RoPE ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/ModelConfig.h"
#include "lathe/import/Quote.h"
#include <algorithm>
#include <cmath>
#include <numbers>

namespace lathe {
namespace {

constexpr double twoPi = 2 * std::numbers::pi;

Status bad(const std::string &what) { return Status(StatusCode::invalidArgument, "RoPE: " + what); }

double yarnScale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

/// Long wavelengths are stretched by the factor, short ones kept, with a ramp in between
/// (Llama 3.1's report).
double llama3(double frequency, const RopeParameters &p) {
  double wavelength = twoPi / frequency;
  if (wavelength < p.originalPositions / p.highFrequencyFactor) return frequency;
  if (wavelength > p.originalPositions / p.lowFrequencyFactor) return frequency / p.factor;
  double smooth =
      (p.originalPositions / wavelength - p.lowFrequencyFactor) / (p.highFrequencyFactor - p.lowFrequencyFactor);
  return (1 - smooth) * frequency / p.factor + smooth * frequency;
}

/// YaRN (Peng et al. 2023): frequencies that turn often over the original length are kept, those that
/// turn little are interpolated, with a ramp over the dimensions between.
struct YarnRamp {
  double low, high;
  explicit YarnRamp(const RopeParameters &p) {
    auto size = static_cast<double>(p.rotarySize);
    auto dimension = [&](double turns) {
      return size * std::log(p.originalPositions / (turns * twoPi)) / (2 * std::log(p.theta));
    };
    low = dimension(p.betaFast);
    high = dimension(p.betaSlow);
    if (p.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, size - 1);
    if (low == high) high += 0.001;
  }
  double interpolated(double i) const { return std::clamp((i - low) / (high - low), 0.0, 1.0); }
};

Status checkParameters(const RopeParameters &p, size_t count) {
  if (p.rotarySize <= 0 || p.rotarySize > 65536)
    return bad("expected a rotated size of 1 to 65536, found " + std::to_string(p.rotarySize));
  if (!(p.theta > 1) || !std::isfinite(p.theta))
    return bad("expected a theta above 1, found " + std::to_string(p.theta));
  if (!(p.factor > 0) || !std::isfinite(p.factor))
    return bad("expected a positive factor, found " + std::to_string(p.factor));
  if (!(p.attentionFactor >= 0) || !std::isfinite(p.attentionFactor))
    return bad("expected a positive attention factor, found " + std::to_string(p.attentionFactor));
  bool needsOriginal = p.kind == "llama3" || p.kind == "yarn" || p.kind == "longrope";
  if (needsOriginal && (!(p.originalPositions > 1) || !std::isfinite(p.originalPositions)))
    return bad(p.kind + " expects original positions above 1, found " + std::to_string(p.originalPositions));
  if (p.kind == "llama3" && !(p.lowFrequencyFactor > 0 && p.highFrequencyFactor > p.lowFrequencyFactor))
    return bad("llama3 expects 0 < low_freq_factor < high_freq_factor, found " + std::to_string(p.lowFrequencyFactor) +
               " and " + std::to_string(p.highFrequencyFactor));
  if (p.kind == "yarn" && !(p.betaSlow > 0 && p.betaFast > 0))
    return bad("yarn expects positive beta_fast and beta_slow, found " + std::to_string(p.betaFast) + " and " +
               std::to_string(p.betaSlow));
  auto checkList = [&](const std::vector<double> &list, const char *what) {
    if (list.size() != count)
      return bad("expected " + std::to_string(count) + " " + what + ", found " + std::to_string(list.size()));
    for (double x : list)
      if (!(x > 0) || !std::isfinite(x)) return bad(std::string("expected positive ") + what);
    return Status();
  };
  if (p.kind == "longrope") {
    LATHE_RETURN_IF_ERROR(checkList(p.shortFactors, "short factors"));
    LATHE_RETURN_IF_ERROR(checkList(p.longFactors, "long factors"));
  }
  if (!p.divisors.empty()) LATHE_RETURN_IF_ERROR(checkList(p.divisors, "frequency divisors"));
  return Status();
}

} // namespace

Result<Rope> makeRope(const RopeParameters &p, int64_t maxSequence) {
  if (p.kind == "dynamic")
    return Status(StatusCode::unsupported,
                  "RoPE kind 'dynamic' is not supported: its frequencies depend on the sequence's length, so that "
                  "earlier tokens would change; supported are default, linear, llama3, yarn, longrope");
  if (p.kind != "default" && p.kind != "linear" && p.kind != "llama3" && p.kind != "yarn" && p.kind != "longrope")
    return Status(StatusCode::unsupported, "RoPE kind " + quoteName(p.kind) +
                                               " is not supported, only default, linear, llama3, yarn, longrope are");
  auto count = static_cast<size_t>(std::max<int64_t>(0, p.rotarySize) + 1) / 2;
  LATHE_RETURN_IF_ERROR(checkParameters(p, count));
  Rope rope;
  rope.kind = p.kind;
  bool isLong = p.kind == "longrope" && static_cast<double>(maxSequence) > p.originalPositions;
  if (p.kind == "longrope") rope.factors = isLong ? "long" : "short";
  for (size_t i = 0; i < count; ++i) {
    double frequency = std::pow(p.theta, -2.0 * static_cast<double>(i) / static_cast<double>(p.rotarySize));
    if (!p.divisors.empty()) frequency /= p.divisors[i];
    if (p.kind == "linear") {
      frequency /= p.factor;
    } else if (p.kind == "llama3") {
      frequency = llama3(frequency, p);
    } else if (p.kind == "yarn") {
      double share = YarnRamp(p).interpolated(static_cast<double>(i));
      frequency = frequency / p.factor * share + frequency * (1 - share);
    } else if (p.kind == "longrope") {
      frequency /= (isLong ? p.longFactors : p.shortFactors)[i];
    }
    rope.inverseFrequencies.push_back(frequency);
  }
  if (p.attentionFactor > 0) {
    rope.attentionFactor = p.attentionFactor;
  } else if (p.kind == "yarn") {
    rope.attentionFactor = p.mscale != 0 && p.mscaleAllDim != 0
                               ? yarnScale(p.factor, p.mscale) / yarnScale(p.factor, p.mscaleAllDim)
                               : yarnScale(p.factor, 1);
  } else if (p.kind == "longrope" && p.factor > 1) {
    rope.attentionFactor = std::sqrt(1 + std::log(p.factor) / std::log(p.originalPositions));
  }
  if (!(rope.attentionFactor > 0) || !std::isfinite(rope.attentionFactor))
    return bad("the attention factor is " + std::to_string(rope.attentionFactor));
  return rope;
}

} // namespace lathe
