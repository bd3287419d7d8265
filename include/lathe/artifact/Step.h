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

/// How far behind its root's a tree row's slot may be (see LatheStep.parent).
inline constexpr int32_t maxTreeSlots = 64;

/// State of one step. Versioned by |size|: fields are only ever appended.
struct LatheStep {
  uint32_t size;     ///< sizeof(LatheStep) of the caller
  uint32_t rows;     ///< T, 1 .. Program.maxRows
  uint32_t sequences; ///< S
  uint32_t outRows;  ///< rows for which the "head" entry computes logits in this call
  const int32_t *token;    ///< [rows] token id, in 0 .. vocabulary-1
  const int32_t *position; ///< [rows] position of the token, from 0
  const int32_t *slot;     ///< [rows] index of the row's KV entry in its sequence (= position for a chain; a tree row's is larger or equal)
  const int32_t *sequence; ///< [rows] which sequence, in 0 .. sequences-1
  /// [rows] draft trees; null: all -1. -1: the row's history are the entries 0 .. slot of its sequence. Else an earlier row of
  /// this step and sequence, with a smaller slot: the row's history is its parent's and its own entry. The first ancestor
  /// without a parent is the root; a sequence has one for all its tree rows, and slots are at most maxTreeSlots behind it.
  const int32_t *parent;
  const int32_t *adapter;  ///< [rows] LoRA adapter, -1 for none; null: all -1
  const float *const *embedding; ///< [rows] embedding row instead of a token, or null entries; null: none
  const int32_t *outRow;   ///< [outRows] index of a row of this step
  /// [KV groups] block table of a group: int32 [sequences][tableStride[group]], entry b = block that
  /// holds slots b*pageTokens .. (b+1)*pageTokens-1. Entries left of a window may be -1.
  const int32_t *const *blockTable;
  const uint32_t *tableStride; ///< [KV groups]
  const uint32_t *bitmask;     ///< [outRows][ceil(vocabulary/32)] allowed tokens, or null
  const int32_t *chosenBy;     ///< [rows] the output row of the step before whose choice is the row's token, -1: |token| says it; null: all -1
};

/// A compiled kernel.
///
/// |args|: the launch's resolved base addresses (arena buffers, weights, KV pools), in the order
/// of its Arg list. The kernel does items begin, begin + stride, ... below end. |scratch| is
/// private to the thread, 64-byte aligned, of Program.scratchBytes. No state survives a call.
using LatheKernelFn = void (*)(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride,
                               uint8_t *scratch);

} // namespace lathe
