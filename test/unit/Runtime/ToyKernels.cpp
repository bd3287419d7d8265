//===- ToyKernels.cpp - "compiled code" of the toy model ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include "lathe/artifact/Step.h"

using namespace lathe;
using namespace lathe::test;

namespace {
float *rowOf(uint8_t *base, int64_t row) { return reinterpret_cast<float *>(base) + row * toyStride; }
} // namespace

extern "C" {

/// args: x, embedding
void toy_embed(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride, uint8_t *) {
  for (int64_t r = begin; r < end; r += stride) {
    const float *e = reinterpret_cast<const float *>(args[1]) + step->token[r] * toyWidth;
    float scale = 1.0f + 0.01f * static_cast<float>(step->position[r]);
    for (int d = 0; d < toyWidth; ++d)
      rowOf(args[0], r)[d] = e[d] * scale;
  }
}

/// args: x, KV pool, params, index of the group (one byte of weights)
void toy_append(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride, uint8_t *) {
  const auto &params = *reinterpret_cast<const ToyParams *>(args[2]);
  int g = *args[3];
  for (int64_t r = begin; r < end; r += stride) {
    const int32_t *table = step->blockTable[g] + step->sequence[r] * step->tableStride[g];
    int32_t slot = step->slot[r], block = table[slot / params.page[g]];
    auto *kv = reinterpret_cast<float *>(args[1] + static_cast<int64_t>(block) * params.blockBytes[g]);
    for (int d = 0; d < toyWidth; ++d)
      kv[slot % params.page[g] * toyWidth + d] = rowOf(args[0], r)[d];
  }
}

/// args: x, KV pool, params, index of the group, out. Uses scratch, as real attention does.
void toy_attend(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride,
                uint8_t *scratch) {
  const auto &params = *reinterpret_cast<const ToyParams *>(args[2]);
  int g = *args[3];
  auto *sum = reinterpret_cast<float *>(scratch);
  for (int64_t r = begin; r < end; r += stride) {
    const int32_t *table = step->blockTable[g] + step->sequence[r] * step->tableStride[g];
    // In a draft tree the places behind the root are those of the row's ancestors.
    int32_t path[maxTreeSlots], depth = 0;
    auto root = static_cast<int32_t>(r);
    for (; step->parent && step->parent[root] >= 0; root = step->parent[root])
      path[depth++] = step->slot[root];
    int32_t limit = step->slot[root], last = limit + depth, first = params.window[g] ? last + 1 - params.window[g] : 0;
    for (int d = 0; d < toyWidth; ++d)
      sum[d] = 0;
    for (int32_t j = first < 0 ? 0 : first; j <= last; ++j) {
      int32_t slot = j <= limit ? j : path[last - j];
      const auto *kv = reinterpret_cast<const float *>(args[1] + static_cast<int64_t>(table[slot / params.page[g]]) *
                                                                     params.blockBytes[g]);
      for (int d = 0; d < toyWidth; ++d)
        sum[d] = sum[d] * 0.75f + kv[slot % params.page[g] * toyWidth + d];
    }
    for (int d = 0; d < toyWidth; ++d)
      rowOf(args[4], r)[d] = rowOf(args[0], r)[d] + sum[(d + 1) % toyWidth];
  }
}

/// args: rows of [own | features], embedding, own. What a layer over features makes of them: exactly toyOwn().
void toy_feature(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride, uint8_t *) {
  for (int64_t r = begin; r < end; r += stride) {
    const float *e = reinterpret_cast<const float *>(args[1]) + step->token[r] * toyWidth, *in = rowOf(args[0], r);
    for (int d = 0; d < toyWidth; ++d)
      rowOf(args[2], r)[d] = 0.5f * (in[d] + in[toyWidth + d]) + e[d];
  }
}

/// args: hidden, head weights, logits. An item is a tile of the vocabulary.
void toy_head(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride, uint8_t *) {
  for (int64_t t = begin; t < end; t += stride)
    for (uint32_t i = 0; i < step->outRows; ++i)
      for (int64_t v = t * toyTile; v < (t + 1) * toyTile && v < toyVocabulary; ++v) {
        const float *w = reinterpret_cast<const float *>(args[1]) + v * toyWidth;
        const float *x = rowOf(args[0], step->outRow[i]);
        float sum = 0;
        for (int d = 0; d < toyWidth; ++d)
          sum = sum + w[d] * x[d];
        reinterpret_cast<float *>(args[2])[i * 64 + v] = sum;
      }
}

/// args: logits, choices: the first of the largest, and what it is. NaN and infinity are larger than anything.
void toy_largest(uint8_t *const *args, const LatheStep *, int64_t begin, int64_t end, int64_t stride, uint8_t *) {
  for (int64_t i = begin; i < end; i += stride) {
    const float *x = reinterpret_cast<const float *>(args[0]) + i * 64;
    int best = 0;
    for (int v = 1; v < toyVocabulary && x[best] - x[best] == 0; ++v)
      if (!(x[v] <= x[best])) best = v;
    reinterpret_cast<float *>(args[1])[i * 16] = static_cast<float>(best);
    reinterpret_cast<float *>(args[1])[i * 16 + 1] = x[best];
  }
}

/// args: hidden, out
void toy_norm(uint8_t *const *args, const LatheStep *step, int64_t begin, int64_t end, int64_t stride, uint8_t *) {
  for (int64_t i = begin; i < end; i += stride) {
    const float *x = rowOf(args[0], step->outRow[i]);
    float sum = 0;
    for (int d = 0; d < toyWidth; ++d)
      sum = sum + x[d] * x[d];
    for (int d = 0; d < toyWidth; ++d)
      rowOf(args[1], i)[d] = x[d] / (1.0f + sum);
  }
}

/// args: int32 counters. Adds 1 to the counter of each item it is given.
void toy_probe(uint8_t *const *args, const LatheStep *, int64_t begin, int64_t end, int64_t stride, uint8_t *) {
  for (int64_t i = begin; i < end; i += stride)
    ++reinterpret_cast<int32_t *>(args[0])[i];
}
}
