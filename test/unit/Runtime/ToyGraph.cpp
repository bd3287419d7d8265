//===- ToyGraph.cpp - "compiled code" of a tiny general graph -----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include "lathe/artifact/Graph.h"

using namespace lathe;
using namespace lathe::test;

namespace {

/// A tensor as it lies in memory, of the rank that the reader knows.
struct Tensor {
  void *allocated;
  uint8_t *data;
  int64_t offset;
  int64_t words[8]; ///< sizes, then strides
};

void give(Tensor *&at, void *data, const int64_t *sizes, int rank) {
  auto *words = reinterpret_cast<int64_t *>(at);
  words[0] = words[1] = reinterpret_cast<int64_t>(data);
  words[2] = 0;
  int64_t stride = 1;
  for (int k = rank; k-- > 0; stride *= sizes[k]) {
    words[3 + k] = sizes[k];
    words[3 + rank + k] = stride;
  }
  at = reinterpret_cast<Tensor *>(words + 3 + 2 * rank);
}

} // namespace

extern "C" {

extern const int64_t lathe_graph_interface[];
const int64_t lathe_graph_interface[] = {34, 5, 2, /*tokens*/ 8, 2, -1, -1, /*mask*/ 4, 2, 1, -1, /*past*/ 4, 4, -1, 2, -1, 4, /*embedding*/ 4, 2, 50, 8, /*mode*/ 4, 1, 1,
                                         /*logits*/ 4, 3, -1, -1, 50, /*present*/ 4, 4, -1, 2, -1, 4};

/// Inputs: tokens, mask, past, embedding (which is the head too), mode. Results: logits, present. A row of the cache is a token's
/// embedding; a logit is a decaying sum of them, so that order, gaps and what is left over from another sequence show.
void lathe_graph(const LatheGraphCall *call) {
  auto in = [&](int i) -> const Tensor & { return *static_cast<const Tensor *>(call->inputs[i]); };
  const auto *tokens = reinterpret_cast<const int64_t *>(in(0).data);
  const auto *mask = reinterpret_cast<const int32_t *>(in(1).data);
  const auto *past = reinterpret_cast<const float *>(in(2).data), *embedding = reinterpret_cast<const float *>(in(3).data);
  auto mode = static_cast<ToyGraphMode>(*reinterpret_cast<const int32_t *>(in(4).data));
  int64_t n = in(0).words[1], done = in(2).words[2], total = done + n;
  auto memory = [&](int64_t elements) { return static_cast<float *>(call->allocate(call->context, static_cast<uint64_t>(elements) * 4)); };
  float *scratch = memory(16); // left behind by the calls that fail
  if (mode == ToyGraphMode::hungry) memory(int64_t(1) << 50);
  if (mode == ToyGraphMode::nameless) call->fail(call->context, 7);
  for (int64_t i = 0; i < n; ++i)
    if (tokens[i] == toyGraphBadToken) call->fail(call->context, 0);

  float *present = memory(8 * total), *logits = memory(toyVocabulary * n);
  int64_t seen = 0;
  for (int64_t j = 0; j < total; ++j)
    seen += mask[j];
  if (seen != total) call->fail(call->context, 1);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t j = 0; j < total; ++j)
      for (int64_t d = 0; d < 4; ++d)
        present[(h * total + j) * 4 + d] = j < done ? past[(h * done + j) * 4 + d] : embedding[tokens[j - done] * 8 + h * 4 + d];
  for (int64_t i = 0; i < n; ++i) {
    for (int k = 0; k < 8; ++k)
      scratch[k] = 0;
    for (int64_t j = 0; j <= done + i; ++j)
      for (int k = 0; k < 8; ++k)
        scratch[k] = scratch[k] * 0.75f + present[(k / 4 * total + j) * 4 + k % 4];
    for (int v = 0; v < toyVocabulary; ++v) {
      float sum = 0;
      for (int k = 0; k < 8; ++k)
        sum = sum + embedding[v * 8 + k] * scratch[k];
      logits[i * toyVocabulary + v] = sum;
    }
  }
  call->release(call->context, scratch);
  auto *at = static_cast<Tensor *>(call->results);
  bool last = mode == ToyGraphMode::lastRow, stuck = mode == ToyGraphMode::stuck;
  const int64_t logitSizes[] = {1, last ? 1 : n, toyVocabulary}, cacheSizes[] = {1, 2, stuck ? done : total, 4};
  give(at, logits, logitSizes, 3);
  if (last) static_cast<Tensor *>(call->results)->offset = (n - 1) * toyVocabulary;
  give(at, stuck ? in(2).data : mode == ToyGraphMode::borrowed ? in(3).data : reinterpret_cast<uint8_t *>(present), cacheSizes, 4);
}

} // extern "C"
