//===- AttentionScene.h - a filled KV cache and the rows that read it --*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "RowTesting.h"
#include <numeric>

namespace lathe::codegen::test {

/// One batch: lengths of the sequences after the step, and how many rows of each the step has. |trees|: the rows behind a
/// sequence's first one are a draft tree on it, of random shape.
struct Batch {
  std::vector<std::pair<int64_t, int64_t>> sequences;
  bool trees = false;
};

struct Scene {
  AttentionParams p;
  model::Cache cache;
  StepData step{0};
  std::vector<float> q;
  int64_t rows = 0;

  Scene(AttentionParams params, const Batch &batch, uint32_t seed) : p(params) {
    Random random(seed);
    cache.page = p.page, cache.heads = p.kvHeads, cache.keyDim = p.headDim, cache.valueDim = p.valueDim, cache.k = p.k,
    cache.v = p.v;
    int64_t longest = 0, blocks = 3;
    for (auto [length, count] : batch.sequences) {
      longest = std::max(longest, length);
      blocks += (length + p.page - 1) / p.page;
      rows += count;
    }
    cache.shape(blocks);
    step = StepData(rows);
    step.tableStride = uint32_t((longest + p.page - 1) / p.page + 1);
    step.table.assign(batch.sequences.size() * step.tableStride, -1);
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t row = 0, next = 0;
    std::vector<float> key(static_cast<size_t>(p.headDim)), value(static_cast<size_t>(p.valueDim));
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      auto [length, count] = batch.sequences[s];
      int64_t oldest = p.window ? std::max<int64_t>(0, length - count + 1 - p.window) : 0; // what the first row sees
      for (int64_t b = oldest / p.page; b < (length + p.page - 1) / p.page; ++b)
        step.table[s * step.tableStride + size_t(b)] = order[size_t(next++)];
      for (int64_t j = oldest; j < length; ++j) {
        fillNormal(random, key.data(), p.headDim, 2.0f);
        fillNormal(random, value.data(), p.valueDim);
        for (int64_t h = 0; h < p.kvHeads; ++h) {
          std::shuffle(key.begin(), key.end(), random);
          cache.append(step.table[s * step.tableStride + size_t(j / p.page)], h, j, key.data(), value.data());
        }
      }
      for (int64_t i = 0; i < count; ++i, ++row) {
        step.sequence[size_t(row)] = int32_t(s);
        step.slot[size_t(row)] = int32_t(length - count + i);
        if (!batch.trees) continue;
        // Deep and wide by turns.
        int64_t back = random() % 2 ? 1 : 1 + int64_t(random() % uint32_t(std::max<int64_t>(i, 1)));
        step.parent.push_back(i ? int32_t(row - back) : -1);
      }
    }
    q.resize(size_t(rows * p.qStride));
    fillNormal(random, q.data(), int64_t(q.size()));
  }

  /// The slots of what row |r| sees, and of what is left of its window.
  std::vector<int64_t> history(int64_t r) const {
    std::vector<int64_t> up;
    for (; !step.parent.empty() && step.parent[size_t(r)] >= 0; r = step.parent[size_t(r)])
      up.push_back(step.slot[size_t(r)]);
    std::vector<int64_t> all(size_t(step.slot[size_t(r)] + 1));
    std::iota(all.begin(), all.end(), 0);
    all.insert(all.end(), up.rbegin(), up.rend());
    return all;
  }

  void expectedRow(int64_t r, float *out) {
    for (int64_t h = 0; h < p.qHeads; ++h)
      model::attention(p, q.data() + r * p.qStride + h * p.headDim, cache,
                       step.table.data() + step.sequence[size_t(r)] * int64_t(step.tableStride),
                       h / (p.qHeads / p.kvHeads), history(r), out + h * p.valueDim);
  }
};

inline AttentionParams shape(int64_t qHeads, int64_t kvHeads, int64_t dim, int64_t valueDim, KVFormat k, KVFormat v,
                      int64_t page) {
  AttentionParams p;
  p.qHeads = qHeads, p.kvHeads = kvHeads, p.headDim = dim, p.valueDim = valueDim, p.k = k, p.v = v, p.page = page;
  p.scale = 1.0f / std::sqrt(float(dim));
  model::Cache c;
  c.page = page, c.heads = kvHeads, c.keyDim = dim, c.valueDim = valueDim, c.k = k, c.v = v;
  c.shape(0);
  p.headStride = c.headStride, p.blockStride = c.blockStride;
  p.qStride = rowStride(qHeads * dim) + 16, p.outStride = rowStride(qHeads * valueDim);
  p.maxChunks = 8;
  return p;
}

} // namespace lathe::codegen::test
