//===- Layout.h - activation buffers between kernels ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Offsets of the activation planes of docs/kernels.md, for emitters, planner and tests. Plain C++.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>

namespace lathe::codegen {

/// What a matmul reads along K. int8: symmetric, groups of 32; int8z: with an offset a group; e4m3: 8-bit floats with a scale a group.
enum class ActFormat { f32, bf16, int8, int8z, e4m3 };
/// How K and V are kept. int8, e4m3: bytes times one float32 scale a token and head.
enum class KVFormat { f32, f16, bf16, int8, e4m3 };

constexpr bool isInt8(ActFormat f) { return f == ActFormat::int8 || f == ActFormat::int8z; }
inline bool isByte(KVFormat f) { return f == KVFormat::int8 || f == KVFormat::e4m3; }
/// What the element of largest magnitude becomes in a format of bytes.
constexpr float byteLimit(KVFormat f) { return f == KVFormat::e4m3 ? 448.0f : 127.0f; }

/// A block of rows is in parts of 16, 8, 4, 2 and 1 rows, each size at most once and the larger first: the rows that one
/// body of a matmul takes. What is left of a block makes a part of |size| from this many rows on, the last of them
/// stale. Integer dot products take nearly as long by rows in a small part as in a large one, but for the smallest, so one
/// row at most is padded. In float32 each part dequantizes the weights again, so there is but one.
constexpr int64_t partFrom(ActFormat f, int64_t size) { return size <= 2 ? size : isInt8(f) ? size - 1 : size / 2 + 1; }
inline constexpr int64_t partSizes[] = {16, 8, 4, 2, 1};

/// |first|: rows of the block before it.
struct RowPart {
  int64_t first = 0, rows = 0;
};
/// The part of row |row| of a block that has |rows| (1..16).
constexpr RowPart rowPart(ActFormat f, int64_t rows, int64_t row) {
  int64_t first = 0;
  for (int64_t size : partSizes) {
    if (rows - first < partFrom(f, size)) continue;
    if (row < first + size) return {first, size};
    first += size;
  }
  return {};
}

/// Byte offsets in one block of up to 16 rows. A plane with H sums a group is `[G][H][mb]` in each part of mb rows; the
/// sums are, in this order, of the whole group and, with H = 3, of its first and second half. Parts follow each other
/// in each plane.
struct ActivationLayout {
  int64_t groups = 0; ///< G = ceil(K / 32)
  int64_t sums = 1;   ///< H
  int64_t scale = 0, isum = 0, fsum = 0, offset = 0;
  int64_t blockBytes = 0;
};

/// |halves|: some consumer has subK 16.
constexpr ActivationLayout activationLayout(int64_t k, ActFormat format, bool halves) {
  ActivationLayout l;
  int64_t g = l.groups = (k + 31) / 32;
  l.sums = halves ? 3 : 1;
  if (!isInt8(format)) { // e4m3: the numbers that the codes stand for
    l.blockBytes = 2048 * g;
    return l;
  }
  l.scale = 512 * g;
  l.isum = l.scale + 64 * g;
  l.fsum = l.isum + 64 * g * l.sums;
  l.offset = l.fsum + 64 * g * l.sums;
  l.blockBytes = l.offset + (format == ActFormat::int8z ? 64 * g : 0);
  return l;
}

/// Bytes of the buffer for up to |rows| rows.
constexpr int64_t activationBytes(int64_t rows, int64_t k, ActFormat format, bool halves) {
  return (rows + 15) / 16 * activationLayout(k, format, halves).blockBytes;
}

/// Row strides are whole vectors.
constexpr int64_t rowStride(int64_t width) { return (width + 15) / 16 * 16; }

/// Outputs of which a matmul with the argmax epilogue says the largest one.
constexpr int64_t argmaxRun = 256;

} // namespace lathe::codegen
