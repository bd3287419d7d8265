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
  if (seen[bucket] >= 4) scaled = std::min(scaled, 1.25 * mean[bucket]);
  double weight = seen[bucket] < 8 ? 1.0 / (seen[bucket] + 1) : 1.0 / 8;
  mean[bucket] += weight * (scaled - mean[bucket]);
  if (seen[bucket] < 8) ++seen[bucket];
  when[bucket] = ++steps;
  smooth();
}

std::array<uint64_t, StepCostModel::stateSize> StepCostModel::state() const {
  std::array<uint64_t, stateSize> numbers{};
  numbers[0] = std::bit_cast<uint64_t>(fixed);
  numbers[1] = std::bit_cast<uint64_t>(perRow);
  numbers[2] = std::bit_cast<uint64_t>(historyWeight);
  numbers[3] = steps;
  for (uint32_t b = 0; b < bucketCount; ++b) {
    numbers[4 + 3 * b] = std::bit_cast<uint64_t>(mean[b]);
    numbers[5 + 3 * b] = seen[b];
    numbers[6 + 3 * b] = when[b];
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
  steps = numbers[3];
  for (uint32_t b = 0; b < bucketCount; ++b) {
    mean[b] = positive(numbers[4 + 3 * b]);
    seen[b] = mean[b] > 0 ? static_cast<uint32_t>(std::min<uint64_t>(numbers[5 + 3 * b], 8)) : 0;
    when[b] = std::min(numbers[6 + 3 * b], steps);
  }
  smooth();
}

void StepCostModel::smooth() {
  // Nothing falls with more rows: seen buckets whose means do become one, weighted (pool adjacent violators). Half of a
  // bucket's weight is gone when 32 steps of other buckets have passed.
  struct Pool {
    double mean, weight;
    uint32_t count;
  };
  std::array<Pool, bucketCount> pools;
  uint32_t poolCount = 0;
  for (uint32_t b = 0; b < bucketCount; ++b) {
    if (!seen[b]) continue;
    Pool pool{mean[b], seen[b] * std::exp2(-static_cast<double>(steps - when[b]) / 32) + 1e-9, 1};
    for (; poolCount && pools[poolCount - 1].mean > pool.mean; --poolCount) {
      const Pool &before = pools[poolCount - 1];
      double weight = before.weight + pool.weight;
      pool = {(before.mean * before.weight + pool.mean * pool.weight) / weight, weight, before.count + pool.count};
    }
    pools[poolCount++] = pool;
  }
  std::array<double, bucketCount> rising{}; // of seen buckets
  uint32_t next = 0, left = poolCount ? pools[0].count : 0;
  for (uint32_t b = 0; b < bucketCount; ++b) {
    if (!seen[b]) continue;
    if (!left) left = pools[++next].count;
    --left;
    rising[b] = pools[next].mean;
  }
  // Unseen buckets keep the prior's distances to the nearest seen bucket.
  auto prior = [&](uint32_t b) { return fixed + perRow * bucketRows(b); };
  int32_t below = -1;
  for (uint32_t b = 0; b < bucketCount; ++b) {
    if (seen[b]) {
      value[b] = rising[b];
      below = static_cast<int32_t>(b);
      continue;
    }
    uint32_t above = b;
    while (above < bucketCount && !seen[above])
      ++above;
    if (below >= 0 && above < bucketCount) {
      uint32_t lowBucket = static_cast<uint32_t>(below);
      double low = bucketRows(lowBucket), high = bucketRows(above);
      value[b] = rising[lowBucket] + (rising[above] - rising[lowBucket]) * (bucketRows(b) - low) / (high - low);
    } else if (below >= 0) {
      auto near = static_cast<uint32_t>(below);
      value[b] = rising[near] * prior(b) / prior(near);
    } else if (above < bucketCount) {
      value[b] = rising[above] * prior(b) / prior(above);
    } else {
      value[b] = prior(b);
    }
  }
  for (uint32_t b = 1; b < bucketCount; ++b) // rounding
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
