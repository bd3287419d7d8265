//===- Step.h - the interface between compiled code and its caller -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One step runs T token rows of S sequences ("ragged batch"): prefill chunks, decode and verify are
// the same function. Emitters read these structs by offset, the runtime fills them; both include
// this file and nothing else of each other. Plain C layout, no dependencies.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstddef>
#include <cstdint>

namespace lathe {

/// State of one step. Versioned by |size|: fields are only ever appended.
struct LatheStep {
  uint32_t size;     ///< sizeof(LatheStep) of the caller
  uint32_t rows;     ///< T, 1 .. Program.maxRows
  uint32_t sequences; ///< S
  uint32_t outRows;  ///< rows for which the "head" entry computes logits in this call
  const int32_t *token;    ///< [rows] token id, in 0 .. vocabulary-1
  const int32_t *position; ///< [rows] position of the token, from 0
  const int32_t *slot;     ///< [rows] index of the row's KV entry in its sequence (= position for a chain)
  const int32_t *sequence; ///< [rows] which sequence, in 0 .. sequences-1
  const int32_t *parent;   ///< [rows] row that precedes this one in a draft tree, -1 for a chain; null: all -1
  const int32_t *adapter;  ///< [rows] LoRA adapter, -1 for none; null: all -1
  const float *const *embedding; ///< [rows] embedding row instead of a token, or null entries; null: none
  const int32_t *outRow;   ///< [outRows] index of a row of this step
  /// [KV groups] block table of a group: int32 [sequences][tableStride[group]], entry b = block that
  /// holds slots b*pageTokens .. (b+1)*pageTokens-1. Entries left of a window may be -1.
  const int32_t *const *blockTable;
  const uint32_t *tableStride; ///< [KV groups]
  const uint32_t *bitmask;     ///< [outRows][ceil(vocabulary/32)] allowed tokens, or null
};

/// A compiled kernel.
///
/// |args|: the launch's resolved base addresses (arena buffers, weights, KV pools), in the order
/// of its Arg list. The kernel does items begin, begin + stride, ... below end. |scratch| is
/// private to the thread, 64-byte aligned, of Program.scratchBytes. No state survives a call.
using LatheKernelFn = void (*)(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride,
                               uint8_t *scratch);

} // namespace lathe
