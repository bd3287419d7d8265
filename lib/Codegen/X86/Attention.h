//===- Attention.h - the core of paged attention -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One chunk of one KV head for a tile of queries; the forms (whole, split) are loops around it.
//===----------------------------------------------------------------------===//
#pragma once
#include "RowTools.h"

namespace lathe::codegen {

/// A tile of queries and how many groups of 16 tokens its score loop keeps in registers.
struct QueryTile {
  int64_t queries, groups;
};

/// Byte offsets in the scratch of a thread.
struct AttentionScratch {
  int64_t maxQueries; ///< of an item
  int64_t q;          ///< f32 [query][headDim]
  int64_t from, to;   ///< i32 [query]: place of the first visible entry and the end
  int64_t limit;      ///< i32 [query]: places before it are slots, those from it on are ancestors in a draft tree
  int64_t path;       ///< i32 [row][maxTreeSlots]: slots of the ancestors and of the row itself
  int64_t scores;     ///< f32 [query of a tile][scoreStride]
  int64_t scoreStride;
  int64_t treeScores; ///< float of a query's scores from which on those of a draft tree's slots stand
  int64_t chunkMax, chunkSum; ///< f32 [query of a tile]
  int64_t chunkOut;           ///< f32 [query of a tile][rowStride(valueDim)]
  int64_t max, sum, out;      ///< running state of every query of the item
  int64_t bytes;
};
AttentionScratch attentionScratch(const AttentionParams &p);

/// The pieces of a head's values and where each is kept in scratch and partials: there they do not overlap, as sums
/// that live in memory must not be added to twice.
struct OutPiece {
  int64_t at, width, kept;
};
SmallVector<OutPiece> outPieces(const AttentionParams &p);

/// Floats of one (row, query head, chunk) of partials.
int64_t partialFloats(const AttentionParams &p);

struct AttentionCore : Emitter {
  const AttentionParams &p;
  AttentionScratch s;
  int64_t heads;    ///< query heads of a KV head
  int64_t outLanes; ///< rowStride(valueDim)
  QueryTile big, small;

  AttentionCore(ModuleOp module, StringRef symbol, const AttentionParams &p, X86Target target);

  /// The cache of one sequence and KV head. An entry's place in a row's history is its position; it is also its slot,
  /// except for a tree row's ancestors behind the root (LatheStep.parent).
  struct History {
    Value table; ///< block table of the sequence
    Value base;  ///< KV base of the layer plus the head's offset
    Value treeFrom = {}, treeTo = {}; ///< slots of all such ancestors; set by loadQueries()
  };
  History history(Value kvBase, Value sequence, Value kvHead);

  /// The keys that are read after this chunk's values: entries from .. to-1 of another chunk or head; none if to <=
  /// from.
  struct Next {
    History h;
    Value from, to;
  };

  /// Copies the queries of rows |r0| .. |r1| - 1 into the scratch and notes what they see. Returns {first place, end}
  /// of all.
  std::pair<Value, Value> loadQueries(Value q, Value r0, Value r1, Value kvHead, History &h);
  /// Places that a row sees, from .. to - 1; those before |limit| are slots.
  struct Visible {
    Value from, to, limit;
  };
  Visible visible(Value row);

  /// With |next| the chunk is read once and from memory: its values are prefetched while the keys are read, then the
  /// next keys. Scores, softmax and weighted values of the chunk at |c0| for |n| (a Value <= tile) queries from |t| on;
  /// |done|(i, query) is called for each query that sees something, its results being at chunkMax/Sum/Out of the i-th
  /// place in the tile.
  void chunk(const QueryTile &tile, const History &h, Value t, Value n, Value c0, const Next *next,
             llvm::function_ref<void(Value i, Value query)> done);

  Value floatAt(int64_t offset, Value index) { return at(gepc(scratch, offset), index, 4); }
  /// The slots of the ancestors of |query|'s row in a draft tree, from the place |limit| on.
  Value pathOf(Value query) { return at(gepc(scratch, s.path), divc(query, heads), maxTreeSlots * 4); }
  Value rangeAt(int64_t offset, Value query) { return sext(i64, ld(i32, floatAt(offset, query), 0, 4)); }
  /// O * (1 / L) into the output of |row|; |out| has all pieces of one query head (|head| an i64).
  void finishHead(Value out, Value row, Value head, ArrayRef<Value> o, Value sum);

private:
  Value parentOf(Value parents, Value row) { return sext(i64, ld(i32, at(parents, row, 4), 0, 4)); }
  Value planeOf(const History &h, Value token);
  /// The values of a group of 16 tokens.
  Value valuesOf(Value plane, Value inPage);
  void scores(const QueryTile &tile, const History &h, Value q, Value c0, Value from, Value to, bool prefetchValues);
  void softmax(Value i, Value c0, Value from, Value to);
  /// Entries of a history that are no slots: entry |limit| + k of it has slot path[k].
  struct Path {
    Value slots, limit;
  };
  /// chunkOut of |count| queries at place |i| += p * v for tokens from .. to-1, in order; |ragged|: few tokens, little
  /// code; |path|: tokens of a draft tree (ragged).
  void values(int64_t count, const History &h, Value i, Value c0, Value from, Value to, const Next *next, bool ragged,
              const Path *path = nullptr);
};

} // namespace lathe::codegen
