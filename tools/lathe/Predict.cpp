//===- Predict.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Predict.h"
#include <algorithm>
#include <cmath>

namespace lathe::tool {

Figures workOf(const Launch &l, double rows, double rowsOfSequence, double entries, const MachineLimits &limits, double fromCache) {
  // Rows of one sequence that an item takes together read their history once; of a split form's items (whose itemRows are
  // tokens of history) so many do.
  double together = l.itemKind == ItemKind::perRowBlock ? l.itemRows : l.itemKind == ItemKind::perRowChunk ? 12 : 1;
  double shared = std::min(together, rowsOfSequence);
  Figures f;
  f.launches = 1;
  f.bytes = static_cast<double>(l.weightBytes) + static_cast<double>(l.bytesPerRow) * rows +
            static_cast<double>(l.bytesPerEntry) * entries / shared;
  f.macs = static_cast<double>(l.macsPerRow) * rows + static_cast<double>(l.macsPerEntry) * entries;
  double rate = l.arithmetic == Arithmetic::f32    ? limits.floatMacsPerSecond
                : l.arithmetic == Arithmetic::bf16 ? limits.bf16MacsPerSecond
                : rows >= 16                         ? limits.int8TileGroupMacsPerSecond
                                                     : limits.int8GroupMacsPerSecond;
  // Weights and history come from memory while the instructions run, but not without a stall where both take as long: the larger one
  // when they are far apart, 1.4 times as long when they are equal. Activations come from other threads' caches and wait for nothing else.
  double activations = static_cast<double>(l.bytesPerRow) * rows;
  f.memory = (f.bytes - activations) / limits.readBytesPerSecond;
  f.compute = fromCache > 0 ? fromCache : f.macs / rate;
  f.exchange = activations / limits.exchangeBytesPerSecond;
  f.predicted = std::hypot(f.memory, f.compute) + f.exchange + limits.barrierSeconds;
  return f;
}

/// One run of |entry|, in its narrowest bucket for |bucketRows|.
static double predictEntry(const Program &p, const char *name, uint64_t bucketRows, double rows, double rowsOfSequence,
                           double entries, const MachineLimits &limits) {
  double seconds = 0;
  for (const Entry &entry : p.entries) {
    if (entry.name != name) continue;
    for (const Bucket &bucket : entry.buckets) {
      if (bucket.maxRows < bucketRows) continue;
      for (uint32_t i = 0; i < bucket.launchCount; ++i)
        seconds += workOf(p.launches[bucket.firstLaunch + i], rows, rowsOfSequence, entries, limits).predicted;
      break;
    }
  }
  return seconds;
}

double predictSeconds(const Program &p, uint64_t tokens, uint64_t batch, uint64_t depth, const MachineLimits &limits, bool greedy) {
  double seconds = 0;
  uint64_t all = tokens * batch;
  for (uint64_t done = 0; done < all; done += p.maxRows) {
    uint64_t rows = std::min<uint64_t>(p.maxRows, all - done);
    // Sequences are fed one after the other, so a row in the middle of its sequence sees half of its tokens.
    double middle = static_cast<double>(done) + static_cast<double>(rows) / 2;
    double inSequence =
        tokens > p.maxRows ? std::min<double>(middle, static_cast<double>(tokens)) : static_cast<double>(tokens) / 2;
    double entries = static_cast<double>(rows) * (static_cast<double>(depth) + inSequence);
    seconds += predictEntry(p, "step", rows, static_cast<double>(rows), static_cast<double>(std::min(tokens, rows)),
                            entries, limits);
  }
  for (uint64_t done = 0; done < batch; done += p.maxOutRows) {
    uint64_t rows = std::min<uint64_t>(p.maxOutRows, batch - done);
    seconds += predictEntry(p, greedy ? "head_choices" : "head", rows, static_cast<double>(rows), 1, 0, limits);
  }
  return seconds;
}

} // namespace lathe::tool
