//===- KVCache.h - the interpreter's KV cache ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every group has a block table per sequence. A block holds the entries of some tokens for all layers of
// the group. Page 0 (contiguous) uses private blocks in order; a paged group draws blocks in a scattered
// order from a pool, and window groups give blocks back, so that a wrong lookup shows. Entries that
// nobody wrote are NaN.
//===----------------------------------------------------------------------===//
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace lathe::interp {

struct KVLayerShape {
  int64_t keyWidth, valueWidth;
};

template <typename Real>
class KVGroupCache {
public:
  KVGroupCache(int64_t page, int64_t window, std::vector<KVLayerShape> shapes)
      : paged(page > 0), tokens(page > 0 ? page : 256), window(window), layers(std::move(shapes)) {
    for (const KVLayerShape &layer : layers) {
      offsets.push_back(blockSize);
      blockSize += tokens * (layer.keyWidth + layer.valueWidth);
    }
  }

  /// The K row of an entry, null when its block is gone or was never made.
  const Real *key(int64_t sequence, int64_t layer, int64_t slot) const { return find(sequence, layer, slot, false); }
  const Real *value(int64_t sequence, int64_t layer, int64_t slot) const { return find(sequence, layer, slot, true); }
  /// Makes the block of an entry if need be; K row first, V row second.
  std::pair<Real *, Real *> entry(int64_t sequence, int64_t layer, int64_t slot) {
    std::vector<int64_t> &table = tables[sequence];
    size_t index = slot / tokens;
    if (table.size() <= index) table.resize(index + 1, -1);
    if (table[index] < 0) table[index] = allocate();
    return {const_cast<Real *>(key(sequence, layer, slot)), const_cast<Real *>(value(sequence, layer, slot))};
  }
  /// A paged window group forgets the blocks that no row after |slot| can see.
  void release(int64_t sequence, int64_t slot) {
    if (!paged || window == 0) return;
    std::vector<int64_t> &table = tables[sequence];
    for (size_t i = 0; i < table.size() && int64_t(i + 1) * tokens <= slot + 2 - window; ++i)
      if (table[i] >= 0) {
        blocks[table[i]].assign(blockSize, Real(NAN));
        free.push_back(std::exchange(table[i], -1));
      }
  }

private:
  const Real *find(int64_t sequence, int64_t layer, int64_t slot, bool value) const {
    auto table = tables.find(sequence);
    size_t index = slot / tokens;
    if (table == tables.end() || index >= table->second.size() || table->second[index] < 0) return nullptr;
    const KVLayerShape &shape = layers[layer];
    const Real *base = blocks[table->second[index]].data() + offsets[layer];
    return value ? base + tokens * shape.keyWidth + slot % tokens * shape.valueWidth : base + slot % tokens * shape.keyWidth;
  }
  int64_t allocate() {
    if (free.empty() || !paged) {
      int64_t more = paged ? 8 : 1, old = blocks.size();
      blocks.resize(old + more, std::vector<Real>(blockSize, Real(NAN)));
      if (!paged) return old;
      // 0 3 6 1 4 7 2 5: neighbours in time are not neighbours in the pool.
      for (int64_t i = more - 1; i >= 0; --i) free.push_back(old + i * 3 % more);
    }
    int64_t block = free.back();
    free.pop_back();
    return block;
  }

  bool paged;
  int64_t tokens, window, blockSize = 0;
  std::vector<KVLayerShape> layers;
  std::vector<int64_t> offsets; ///< of a layer in a block
  std::vector<std::vector<Real>> blocks;
  std::vector<int64_t> free;
  std::map<int64_t, std::vector<int64_t>> tables; ///< sequence -> blocks, -1: none
};

} // namespace lathe::interp
