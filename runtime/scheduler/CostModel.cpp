//===- CostModel.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/CostModel.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace lathe::runtime {

// 1, 2, 3, 4, 6, 8, 12, ..., 65536
uint32_t StepCostModel::bucketRows(uint32_t bucket) {
  if (bucket < 2) return bucket + 1;
  uint32_t power = 1u << (bucket / 2);
  return bucket % 2 ? power * 2 : power + power / 2;
}

StepCostModel::StepCostModel(double fixed, double perRow) : fixed(fixed), perRow(perRow) { smooth(); }

void StepCostModel::observe(double rows, double seconds) {
  if (!(rows > 0) || !(seconds > 0) || !std::isfinite(seconds)) return;
  rows = std::clamp(rows, 1.0, double(maxRows));
  uint32_t bucket = 0; // the nearest
  while (bucket + 1 < bucketCount && bucketRows(bucket) + bucketRows(bucket + 1) <= 2 * rows)
    ++bucket;
  double at = this->seconds(bucketRows(bucket)), here = this->seconds(rows);
  double scaled = here > 0 ? seconds * at / here : seconds; // moved to the bucket's own row count
  if (seen[bucket] >= 4) scaled = std::min(scaled, 2 * mean[bucket]);
  double weight = seen[bucket] < 8 ? 1.0 / (seen[bucket] + 1) : 1.0 / 8;
  mean[bucket] += weight * (scaled - mean[bucket]);
  if (seen[bucket] < 8) ++seen[bucket];
  smooth();
}

std::array<uint64_t, StepCostModel::stateSize> StepCostModel::state() const {
  std::array<uint64_t, stateSize> numbers{};
  numbers[0] = std::bit_cast<uint64_t>(fixed);
  numbers[1] = std::bit_cast<uint64_t>(perRow);
  numbers[2] = std::bit_cast<uint64_t>(historyWeight);
  for (uint32_t b = 0; b < bucketCount; ++b) {
    numbers[3 + 2 * b] = std::bit_cast<uint64_t>(mean[b]);
    numbers[4 + 2 * b] = seen[b];
  }
  return numbers;
}

void StepCostModel::setState(const std::array<uint64_t, stateSize> &numbers) {
  auto positive = [](uint64_t bits) {
    double value = std::bit_cast<double>(bits);
    return std::isfinite(value) && value > 0 ? value : 0;
  };
  fixed = positive(numbers[0]);
  perRow = positive(numbers[1]);
  historyWeight = std::min(positive(numbers[2]), 1.0);
  for (uint32_t b = 0; b < bucketCount; ++b) {
    mean[b] = positive(numbers[3 + 2 * b]);
    seen[b] = mean[b] > 0 ? static_cast<uint32_t>(std::min<uint64_t>(numbers[4 + 2 * b], 8)) : 0;
  }
  smooth();
}

void StepCostModel::smooth() {
  // Unseen buckets keep the prior's distances to the nearest seen bucket; then nothing falls with more rows.
  auto prior = [&](uint32_t b) { return fixed + perRow * bucketRows(b); };
  int32_t below = -1;
  for (uint32_t b = 0; b < bucketCount; ++b) {
    if (seen[b]) {
      value[b] = mean[b];
      below = static_cast<int32_t>(b);
      continue;
    }
    uint32_t above = b;
    while (above < bucketCount && !seen[above])
      ++above;
    if (below >= 0 && above < bucketCount) {
      uint32_t lowBucket = static_cast<uint32_t>(below);
      double low = bucketRows(lowBucket), high = bucketRows(above);
      value[b] = mean[lowBucket] + (mean[above] - mean[lowBucket]) * (bucketRows(b) - low) / (high - low);
    } else if (below >= 0) {
      auto near = static_cast<uint32_t>(below);
      value[b] = mean[near] * prior(b) / prior(near);
    } else if (above < bucketCount) {
      value[b] = mean[above] * prior(b) / prior(above);
    } else {
      value[b] = prior(b);
    }
  }
  for (uint32_t b = 1; b < bucketCount; ++b)
    value[b] = std::max(value[b], value[b - 1]);
}

double StepCostModel::seconds(double rows) const {
  rows = std::clamp(rows, 1.0, double(maxRows));
  uint32_t b = 0;
  while (b + 2 < bucketCount && bucketRows(b + 1) <= rows)
    ++b;
  double low = bucketRows(b), high = bucketRows(b + 1);
  return value[b] + (value[b + 1] - value[b]) * (rows - low) / (high - low);
}

uint32_t StepCostModel::chunkWithin(double most, uint32_t first, uint32_t limit) const {
  uint32_t low = 0, high = limit;
  while (low < high) {
    uint32_t middle = low + (high - low + 1) / 2;
    if (work(middle, historyOf(first, middle)) <= most)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

uint32_t StepCostModel::rowsWithin(double target, uint32_t limit) const {
  limit = std::clamp(limit, 1u, maxRows);
  uint32_t low = 1, high = limit;
  while (low < high) {
    uint32_t middle = low + (high - low + 1) / 2;
    if (seconds(middle) <= target)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

} // namespace lathe::runtime
