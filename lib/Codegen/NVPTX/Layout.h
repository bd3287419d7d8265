//===- Layout.h - activation buffers of GPU kernels -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Blocks of 8 rows, the n of mma.sync: block b holds rows 8b .. 8b+7. G = ceil(K / 32). Planes at fixed offsets in a block:
//   values   [G][8][32]: int8 (int8, int8z), e4m3, bf16 or f32. A group is the B operand of one tile, back to back.
//   scale    f32 [G][8]         (int8, int8z, e4m3)
//   isum     int32 [G][H][8]    (int8, int8z): negated sums, as on x86
//   fsum     f32 [G][H][8]      (all but f32 and e4m3; bf16: sums of the rounded values, docs/exactness.md "GPU")
//   offset   f32 [G][8]         (int8z)
// bf16 on a chip with wgmma: the 64 bytes of a row lie as wgmma's shared-memory operand with a swizzle of 64 bytes wants them, so that a group is copied as
// it is. Piece c of 16 bytes is at c xor (row / 2 mod 4); piece 2s + h has of step s (16 k) the elements i = 2h, 2h + 1 of t = 0..3, side by side:
// k = 16s + 4t + (i xor t). Lane (., t) of an A operand has these k: its codes are one word, and its loads of float weights from shared memory hit all banks. e4m3 there: k in order, with a swizzle of 32 bytes: piece c is at c xor (row / 4).
// H = 1: the whole group; H = 3: whole, first, second half. Rows beyond the step's hold stale data. Plain C++.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Layout.h"

namespace lathe::codegen::nvptx {

inline constexpr int64_t actBlockRows = 8;
/// Whether products with activations of |f| are summed in the hardware's own way (docs/exactness.md, "GPU"); the others have x86's bits.
constexpr bool sumsInHardware(ActFormat f) { return f == ActFormat::bf16 || f == ActFormat::e4m3; }

struct ActLayout {
  int64_t groups = 0, sums = 1, elementBytes = 4;
  int64_t scale = 0, isum = 0, fsum = 0, offset = 0;
  int64_t blockBytes = 0;
};

constexpr ActLayout actLayout(int64_t k, ActFormat format, bool halves) {
  ActLayout l;
  int64_t g = l.groups = (k + 31) / 32;
  l.sums = halves && format != ActFormat::e4m3 ? 3 : 1; // e4m3 has scales only
  bool ints = isInt8(format), bytes = ints || format == ActFormat::e4m3;
  l.elementBytes = bytes ? 1 : format == ActFormat::bf16 ? 2 : 4;
  int64_t at = g * actBlockRows * 32 * l.elementBytes;
  l.scale = at;
  if (bytes) at += g * actBlockRows * 4;
  l.isum = at;
  if (ints) at += g * l.sums * actBlockRows * 4;
  l.fsum = at;
  if (format != ActFormat::f32 && format != ActFormat::e4m3) at += g * l.sums * actBlockRows * 4;
  l.offset = at;
  if (format == ActFormat::int8z) at += g * actBlockRows * 4;
  l.blockBytes = (at + 63) / 64 * 64;
  return l;
}

/// Rows that mma.sync reads at a time, at most: buffers hold whole tiles of it. The larger ones of wgmma end where the buffer does.
inline constexpr int64_t largestRowTile = 32;

/// Bytes of the buffer for up to |rows| rows.
constexpr int64_t actBytes(int64_t rows, int64_t k, ActFormat format, bool halves) {
  return (rows + largestRowTile - 1) / largestRowTile * (largestRowTile / actBlockRows) * actLayout(k, format, halves).blockBytes;
}

} // namespace lathe::codegen::nvptx
