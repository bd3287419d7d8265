//===- BlockTimes.h - how long cached KV blocks live --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace lathe::runtime {

/// Counts of durations by upper bound, in seconds; the last count is of what lies above all bounds.
struct DurationCounts {
  static constexpr std::array<double, 14> bounds = {.001, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 1800, 3600};
  std::array<uint64_t, bounds.size() + 1> counts{};
  double sum = 0;
  void add(double seconds) {
    size_t at = 0;
    while (at < bounds.size() && seconds > bounds[at])
      ++at;
    ++counts[at];
    sum += seconds;
  }
  DurationCounts &operator+=(const DurationCounts &other) {
    for (size_t i = 0; i < counts.size(); ++i)
      counts[i] += other.counts[i];
    sum += other.sum;
    return *this;
  }
};

/// Of blocks of the prefix cache. Eviction: a new owner takes the block for other tokens.
struct BlockTimes {
  DurationCounts lifetime;        ///< from being taken to eviction
  DurationCounts idleBeforeEvict; ///< from the last owner's release to eviction
  DurationCounts reuseGap;        ///< from the last owner's release to the next hit
  BlockTimes &operator+=(const BlockTimes &other) {
    lifetime += other.lifetime;
    idleBeforeEvict += other.idleBeforeEvict;
    reuseGap += other.reuseGap;
    return *this;
  }
};

} // namespace lathe::runtime
