//===- Pack.h - weights into their packed layout -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The layout is include/lathe/artifact/Packing.h. Rows and columns of padding get codes of value zero
// and zero scales.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/weights/WeightRows.h"
#include <functional>

namespace lathe {

/// Packs tiles first .. first + count - 1 (of 16 rows each) of a matrix to |out|, which has
/// count * packedTileBytes(). Thread-safe: callers may pack different tiles at once.
Status packTiles(const WeightRows &weight, int64_t first, int64_t count, uint8_t *out);

struct PackOptions {
  int threads = 1;
  /// Upper bound of the buffer, at least one tile a thread is always used.
  size_t bufferBytes = size_t(8) << 20;
};

/// Packs a matrix and hands the bytes to |sink| in order, piece by piece; memory is the buffer
/// only. Files' pages are dropped afterwards. Errors: those of the sink, of encodeRow, dataLoss.
Status packWeight(const WeightRows &weight, const PackOptions &options,
                  const std::function<Status(std::span<const uint8_t>)> &sink);

/// The values of a packed weight, [rows][columns]: the oracle of packing and of the kernels' loads.
/// |packed| has packedBytes().
std::vector<float> unpackWeight(StorageType storage, int64_t rows, int64_t columns, std::span<const uint8_t> packed);

} // namespace lathe
