//===- RowTools.h - ragged vectors and cache formats ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What the row kernels and attention share above Emitter: widths that are no multiple of 16, the KV
// cache's layout and storage formats, and parameter checks.
//===----------------------------------------------------------------------===//
#pragma once
#include "Common/Emitter.h"
#include "llvm/ADT/Twine.h"

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

int64_t elementBytes(KVFormat f);
/// Bytes of K or V of one head in one block: int8 has its page of f32 scales behind the elements.
int64_t cachePlaneBytes(int64_t page, int64_t dim, KVFormat f);
/// |n| elements at p + offset, widened to f32. |scale| multiplies int8 (a vector or, broadcast, one value).
Value loadStored(Emitter &e, Value p, int64_t offset, int64_t n, KVFormat f, Value scale = {}, unsigned align = 1);
/// f32 lanes as elements of |f|; int8 takes values that are already scaled.
Value toStored(Emitter &e, Value x, KVFormat f);

/// Writes row |item| of |rows| into activations of |k|: |value|(bytes, offset, n) is n (at most 16) values from element
/// bytes / 4 + offset of the row on. Quantizes 16 groups at a time, so that their maxima and sums become vectors.
void storeRow(Emitter &e, Value out, int64_t k, ActFormat format, bool halves, Value item, Value rows,
              llvm::function_ref<Value(Value bytes, int64_t offset, int64_t n)> value);

/// f(g) of an MLP.
Value activate(Emitter &e, Activation a, Value g);

/// Reports |message| on the module and fails.
LogicalResult refuse(ModuleOp module, StringRef symbol, const Twine &message);

LogicalResult checkHeadSize(ModuleOp module, StringRef symbol, int64_t size);
/// The shape of a KV cache as kernels address it; fails with a diagnostic when strides cannot hold it.
LogicalResult checkCache(ModuleOp module, StringRef symbol, int64_t kvHeads, int64_t headDim, int64_t valueDim,
                         KVFormat k, KVFormat v, int64_t page, int64_t blockStride, int64_t headStride);

} // namespace lathe::codegen
