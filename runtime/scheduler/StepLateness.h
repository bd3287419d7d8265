//===- StepLateness.h - how much later than expected steps come ---*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <array>
#include <cstdint>

namespace lathe::runtime {

/// How often steps are late by how much. What makes them late (other programs, the host of a virtual machine) strikes by
/// the clock and not by the step, and takes its time whatever the step has to do: so lateness is seconds, and it is counted per
/// second of expected time. Steps of one length tell about those of another. A step counts half when 355 others
/// have come after it. Deterministic. No heap memory. One thread at a time.
class StepLateness {
public:
  /// A step that was expected to take |expected| seconds took |seconds|. Ignored unless both are positive and finite.
  void observe(double expected, double seconds);
  /// The share of steps, expected to take |expected| seconds, that come more than |late| seconds later; 0 until steps have been
  /// seen, and above 1 when they are late several times. Lateness below 0.1 ms counts as 0.1 ms.
  double share(double expected, double late) const;
  /// The longest expected time of steps of which the share |most| takes more than |bound| seconds.
  double longestWithin(double bound, double most) const;

private:
  static constexpr uint32_t bucketCount = 48;
  static uint32_t bucketOf(double late);
  double exposure = 0;                       ///< expected seconds observed
  std::array<double, bucketCount> counts{};  ///< steps, by how late they were
  std::array<double, bucketCount> orLater{}; ///< sum of the bucket and those above it
};

} // namespace lathe::runtime
