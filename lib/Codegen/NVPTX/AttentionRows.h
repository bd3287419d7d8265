//===- AttentionRows.h - what attention kernels know of rows and pages -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/GpuEmitter.h"

namespace lathe::codegen::nvptx {

/// Where rows look, where entries lie and where partial results go: the same for every attention kernel.
struct AttentionRows : GpuEmitter {
  const AttentionParams &p;
  int64_t heads;              ///< query heads that a block does, all of one KV head
  Value head0, kvHead;        ///< the first of them, and their KV head
  Value table, base;          ///< the sequence's block table, and the KV head's place in block 0

  AttentionRows(ModuleOp m, StringRef symbol, const AttentionParams &p, const Chip &chip, int64_t threads, ArrayRef<Use> uses, int64_t heads)
      : GpuEmitter(m, symbol, chip, threads, uses), p(p), heads(heads) {}

  int64_t headBlocks() const { return p.qHeads / heads; }
  void setHeads(Value index) {
    head0 = mulc(index, heads);
    kvHead = divc(head0, p.qHeads / p.kvHeads);
  }

  /// Places that a row sees: from .. to - 1. Those before |limit| are slots, the others belong to the row and its ancestors in a draft tree
  /// (LatheStep.parent).
  struct Visible {
    Value from, to, limit;
  };
  Visible visibleTo(Value row) {
    Value parents = stepPtr(offsetof(LatheStep, parent));
    Values root = ifElse(
        isNull(parents), {i64, i64}, [&] { return Values{row, c(0)}; },
        [&] {
          auto parentOf = [&](Value r) { return sext(i64, ld(i32, at(parents, r, 4), 0, 4)); };
          return whileLoop(
              {row, c(0)}, [&](ValueRange x) { return leS(c(0), parentOf(x[0])); },
              [&](ValueRange x) { return Values{parentOf(x[0]), addc(x[1], 1)}; });
        });
    Visible v;
    v.limit = addc(stepInt(offsetof(LatheStep, slot), root[0]), 1);
    v.to = add(v.limit, root[1]);
    v.from = p.window ? maxs(addc(v.to, -p.window), c(0)) : c(0);
    return v;
  }

  /// The cache of the sequence of |row|; after setHeads(). The pool is argument 1.
  void openCache(Value row) {
    Value sequence = stepInt(offsetof(LatheStep, sequence), row);
    Value first = ld(ptr, stepPtr(offsetof(LatheStep, blockTable)), 8 * int64_t(p.group), 8);
    Value width = zext(i64, ld(i32, stepPtr(offsetof(LatheStep, tableStride)), 4 * int64_t(p.group), 4));
    table = at(first, mul(sequence, width), 4);
    base = at(arg(1), kvHead, p.headStride);
  }
  /// K and V of the KV head in the block that holds |slot|.
  Value plane(Value slot) {
    Value kvBlock = sext(i64, ld(i32, at(table, divc(slot, p.page), 4), 0, 4));
    return at(base, kvBlock, p.blockStride);
  }

  /// Partial results of split attention: {m, l} and, from float 16 on, the values.
  int64_t partialFloats() const { return 16 + rowStride(p.valueDim); }
  Value partial(Value buffer, Value row, Value head, Value chunkIndex) {
    return at(buffer, add(mulc(add(mulc(row, p.qHeads), head), p.maxChunks), chunkIndex), partialFloats() * 4);
  }
};

/// What every attention kernel needs of its parameters; fails with a diagnostic.
LogicalResult checkAttention(ModuleOp module, StringRef symbol, const AttentionParams &p);

} // namespace lathe::codegen::nvptx
