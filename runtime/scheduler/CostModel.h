//===- CostModel.h - how long a step of n rows takes --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <array>
#include <cstdint>

namespace lathe::runtime {

/// Seconds of a step as a function of its work. Work is counted in rows without history; a token that a row attends to
/// weighs a small part of a row (attention grows with the history, everything else does not). Learned from the steps
/// that ran. Buckets of rows (1, 2, 3, 4, 6, 8, 12,
/// 16, ... 49152, 65536), each an exponential mean with weight 1/8 for the newest; between buckets linear, and never
/// falling with more rows: where the means do, neighbours share one, to which each contributes by how much and how lately
/// it was observed. So a few slow steps of fewer rows, long ago, do not make those of today's load look slow.
/// Deterministic. No heap memory.
class StepCostModel {
public:
  /// Tokens that |rows| consecutive rows behind |first| others attend to, themselves included.
  static double historyOf(uint32_t first, uint32_t rows) { return rows * (first + 0.5 * (rows + 1.0)); }

  static constexpr uint32_t maxRows = 65536;
  /// Until steps have been seen: |fixed| seconds a step and |perRow| a row.
  StepCostModel() : StepCostModel(5e-3, 5e-4) {}
  StepCostModel(double fixed, double perRow);
  /// The work of |rows| rows that attend to |history| tokens, themselves included, all in all.
  double work(double rows, double history) const { return rows + history * historyWeight; }
  /// Rows that a token of history weighs; 0 until it has been measured.
  void setHistoryWeight(double weight) { historyWeight = weight; }
  /// The most rows behind |first| tokens of history whose work is at most |work|.
  uint32_t chunkWithin(double work, uint32_t first, uint32_t limit) const;
  /// A step of |work| took |seconds|. Ignored unless both are positive and finite. A value above 1.25 times the mean of a bucket
  /// that has seen 4 steps counts as that: a machine that paused says nothing of rows, but something of lateness (StepLateness).
  void observe(double work, double seconds);
  double seconds(double work) const;
  /// The most rows, at least 1 and at most |limit|, whose step is expected to take at most |target| seconds.
  uint32_t rowsWithin(double target, uint32_t limit) const;
  /// Seconds per row of long prompts cut into steps of |rows| rows.
  double secondsPerRow(uint32_t rows) const { return seconds(rows) / rows; }

  /// All that it has learned, as numbers, for traces: a model with the same state answers and learns the same.
  static constexpr uint32_t bucketCount = 32;
  static constexpr uint32_t stateSize = 4 + 3 * bucketCount;
  std::array<uint64_t, stateSize> state() const;
  void setState(const std::array<uint64_t, stateSize> &state);

private:
  static uint32_t bucketRows(uint32_t bucket);
  void smooth();
  std::array<double, bucketCount> mean{};   ///< observed
  std::array<uint32_t, bucketCount> seen{}; ///< steps observed, capped
  std::array<uint64_t, bucketCount> when{}; ///< the newest, as a number of steps
  uint64_t steps = 0;                       ///< observed, all in all
  std::array<double, bucketCount> value{};  ///< what seconds() interpolates
  double fixed, perRow, historyWeight = 0;
};

} // namespace lathe::runtime
