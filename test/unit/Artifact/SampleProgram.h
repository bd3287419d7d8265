//===- SampleProgram.h - a small valid program for tests ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"

namespace lathe::test {

inline constexpr uint64_t sampleWeightBytes = 4096;

/// Uses every argument, item and share kind once; valid with sampleWeightBytes of weights.
inline Program sampleProgram() {
  Program p;
  p.maxRows = 8;
  p.maxOutRows = 4;
  p.maxSeq = 128;
  p.vocabulary = 50;
  p.hiddenSize = 24;
  p.arenaBytes = 8192;
  p.scratchBytes = 256;
  p.logitsOffset = 0;
  p.logitsStride = 64;
  p.hiddenOffset = 4096;
  p.hiddenStride = 32;
  p.kernels = {"embed", "attend"};
  p.names = {"token_embd", "blk.0.attn"};
  p.args = {{ArgKind::arena, 0, 4096}, {ArgKind::weight, 0, 64}, {ArgKind::kv, 1, 16}};
  p.launches.resize(3);
  p.launches[0] = {0, 0, 2, ItemKind::perRow, ShareKind::contiguous, 1, 1, 1, 0, 100, 200, 300, 400, 500, Arithmetic::f32};
  p.launches[1] = {1, 0, 3, ItemKind::perRowChunk, ShareKind::interleaved, 16, 2, 1, 1, 0, 7, 8, 9, 10, Arithmetic::int8};
  p.launches[2] = {0, 1, 1, ItemKind::perOutRow, ShareKind::contiguous, 1, 4, 0, 0, 1, 2, 3, 4, 5, Arithmetic::bf16};
  p.entries = {{"step", {{1, 0, 1}, {8, 0, 2}}}, {"head", {{4, 2, 1}}}};
  p.kvGroups = {{0, 0, 16, 2, 1024}, {1, 32, 32, 1, 512}};
  p.kvPlanes = {{0, 2, 0, 512, 512, 8, 32, 2}, {0, 2, 256, 512, 256, 1, 0, 16}, {1, 1, 0, 0, 256, 1, 0, 16}};
  return p;
}

} // namespace lathe::test
