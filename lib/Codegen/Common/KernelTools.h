//===- KernelTools.h - cache formats, activation functions, checks -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What the kernels of all targets share above Emitter: the KV cache's layout and storage formats, the functions of an
// MLP, and parameter checks.
//===----------------------------------------------------------------------===//
#pragma once
#include "Common/Emitter.h"
#include "llvm/ADT/Twine.h"

namespace lathe::codegen {

int64_t elementBytes(KVFormat f);
/// Bytes of K or V of one head in one block: formats of bytes have their page of f32 scales behind the elements.
int64_t cachePlaneBytes(int64_t page, int64_t dim, KVFormat f);
/// |n| elements at p + offset, widened to f32. |scale| multiplies bytes (a vector or, broadcast, one value).
Value loadStored(Emitter &e, Value p, int64_t offset, int64_t n, KVFormat f, Value scale = {}, unsigned align = 1);
/// f32 lanes as elements of |f|; formats of bytes take values that are already scaled.
Value toStored(Emitter &e, Value x, KVFormat f);

/// Byte |i| of 32-bit lanes, an e4m3 number that is not NaN, as float32: exact.
Value fromE4m3(Emitter &e, Value words, int64_t i);

/// f(g) of an MLP.
Value activate(Emitter &e, Activation a, Value g);

/// {cosine, sine} of float32 angles (a scalar or lanes), computed in float64 as docs/exactness.md says, times |factor|.
std::pair<Value, Value> cosSin(Emitter &e, Value angle, float factor);

/// Reports |message| on the module and fails.
LogicalResult refuse(ModuleOp module, StringRef symbol, const Twine &message);

LogicalResult checkHeadSize(ModuleOp module, StringRef symbol, int64_t size);
/// The shape of a KV cache as kernels address it; fails with a diagnostic when strides cannot hold it.
LogicalResult checkCache(ModuleOp module, StringRef symbol, int64_t kvHeads, int64_t headDim, int64_t valueDim,
                         KVFormat k, KVFormat v, int64_t page, int64_t blockStride, int64_t headStride);

} // namespace lathe::codegen
