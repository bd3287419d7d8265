//===- RowTools.h - ragged vectors and cache formats ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What the row kernels and attention share above Emitter: widths that are no multiple of 16.
//===----------------------------------------------------------------------===//
#pragma once
#include "Common/KernelTools.h"

namespace lathe::codegen {

/// |width| lanes (a power of two, at most 16) at element |at|.
struct Piece {
  int64_t at, width;
};
/// Covers 0 .. n-1: vectors of 16, the last one shifted left so that it overlaps; below 16, powers of two. Work on
/// overlapping lanes is done twice with the same result, so pieces suit lane-wise work that reads before it writes.
SmallVector<Piece> pieces(int64_t n);

/// 16 lanes, the first |n| from p + offset, the others zero; n in 1..16.
Value loadLanes(Emitter &e, Value p, int64_t offset, int64_t n);
void storeLanes(Emitter &e, Value v, Value p, int64_t offset, int64_t n);
/// <16 x i1>, true below |n|.
Value laneMask(Emitter &e, int64_t n);

/// Writes row |item| of |rows| into activations of |k|: |value|(bytes, offset, n) is n (at most 16) values from element
/// bytes / 4 + offset of the row on. Quantizes 16 groups at a time, so that their maxima and sums become vectors.
void storeRow(Emitter &e, Value out, int64_t k, ActFormat format, bool halves, Value item, Value rows,
              llvm::function_ref<Value(Value bytes, int64_t offset, int64_t n)> value);

} // namespace lathe::codegen
