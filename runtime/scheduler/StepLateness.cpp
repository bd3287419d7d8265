//===- StepLateness.cpp ---------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/StepLateness.h"
#include <algorithm>
#include <cmath>

namespace lathe::runtime {

static constexpr double keep = 1 - 1.0 / 512;
// Buckets begin at 0.1 ms, 0.125 ms, ..., 3.6 s; the last has no end.
static constexpr double shortest = 1e-4, growth = 1.25;

static constexpr auto begins = [] {
  std::array<double, 48> values{};
  double at = shortest;
  for (double &value : values) {
    value = at;
    at *= growth;
  }
  return values;
}();

uint32_t StepLateness::bucketOf(double late) {
  uint32_t bucket = 0;
  while (bucket + 1 < bucketCount && late >= begins[bucket + 1])
    ++bucket;
  return bucket;
}

void StepLateness::observe(double expected, double seconds) {
  static_assert(begins.size() == bucketCount);
  if (!(expected > 0) || !(seconds > 0) || !std::isfinite(expected) || !std::isfinite(seconds)) return;
  exposure = exposure * keep + expected;
  for (double &count : counts)
    count *= keep;
  double late = seconds - expected;
  if (late >= shortest) counts[bucketOf(late)] += 1;
  double sum = 0;
  for (uint32_t b = bucketCount; b-- > 0;)
    orLater[b] = sum += counts[b];
}

double StepLateness::share(double expected, double late) const {
  if (!(exposure > 0)) return 0;
  late = std::max(late, shortest);
  uint32_t bucket = bucketOf(late);
  // Within a bucket they lie evenly.
  double earlier = std::min((late / begins[bucket] - 1) / (growth - 1), 1.0) * counts[bucket];
  return (orLater[bucket] - earlier) * expected / exposure;
}

double StepLateness::longestWithin(double bound, double most) const {
  double low = 0, high = bound; // what is longer is late more often and has less time to be late
  for (int i = 0; i < 24; ++i) {
    double middle = (low + high) / 2;
    (share(middle, bound - middle) <= most ? low : high) = middle;
  }
  return low;
}

} // namespace lathe::runtime
