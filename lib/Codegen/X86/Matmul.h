//===- Matmul.h - the parts of the matmul emitter ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Matmul.cpp: row blocks, units, epilogues. MatmulWeights.cpp: codes, scales and mins of a group of 32
// k. MatmulDot.cpp: exact integer dot products per instruction set, MatmulAmx.cpp by AMX's tiles. MatmulTile.cpp: the K loop.
//===----------------------------------------------------------------------===//
#pragma once
#include "Common/Emitter.h"

namespace lathe::codegen {

/// What the parts share while one kernel is emitted.
struct MatmulEmitter {
  Emitter &e;
  const MatmulParams &p;
  PackedLayout w;
  ActivationLayout a;

  MatmulEmitter(Emitter &e, const MatmulParams &p)
      : e(e), p(p), w(packedLayout(p.type)), a(activationLayout(p.k, p.act, p.halves)) {}

  // The kernel's scratch: the four tiles of a gate/up unit, then
  /// a group of dequantized weights of two tiles,
  static constexpr int64_t dequantizedAt = 4 * 16 * 64, dequantizedBytes = 32 * 64;
  /// and what the integer sums of 16 rows start from, two halves.
  static constexpr int64_t startsAt = dequantizedAt + 2 * dequantizedBytes;
  /// AMX: the shapes of its tiles, the codes of eight groups, and the integer sums of 16 rows of two groups, [group][half].
  static constexpr int64_t tileShapesAt = startsAt + 2 * 64, tileCodesAt = tileShapesAt + 64, tileSumsAt = tileCodesAt + 8 * 8 * 64,
                           scratchBytes = tileSumsAt + 2 * 2 * 16 * 64;
  /// Groups that AMX's pipeline needs.
  static constexpr int64_t fewestTileGroups = 4;

  /// Bytes of a vector of codes: one zmm or half of it.
  int64_t width() const { return e.target.has512() ? 64 : 32; }
  int64_t pieces() const { return 64 / width(); }
  /// 8-bit codes on AVX2 are kept signed: vpmaddubsw would saturate on 255 * 127 * 2.
  bool signedCodes() const { return !e.target.hasVnni() && (w.plane8 || w.codebook); }

  /// Codes of a group: vector q * pieces() + piece holds byte 4r + i = code of (row r, k = 4q + i), i8.
  using Codes = Values;
  Codes codes(Value group);
  /// The same for quad |q| as 16 x i32, still packed.
  Value quad(const Codes &codes, int q);

  /// code - zero of the 16 codes of a 4-bit type as 16 x f32, for vpermps; null where there is none.
  Value levelTable();

  /// Scales of a group as 16 x f32: ws and m hold one value, or one per half of 16 k. |m| is what is added
  /// (already negated for K-quants), empty without mins.
  struct Scales {
    Values ws, m;
  };
  /// d and dmin of a block (or of the group |j| of it, when every group has its own).
  struct BlockScales {
    Value d, dmin;
  };
  BlockScales blockScales(Value block, int64_t j);
  Scales scales(const BlockScales &s, Value sub, Value subMin);
  /// Scales of group |j| of |block|, whose own are |ofBlock|.
  Scales groupScales(Value block, Value j, const BlockScales &ofBlock);

  /// start(row) plus the exact int32 sum over quads [q0, q1) of codes times activations, [row][tile]; |x|(row, q) is
  /// the int32 of four activations.
  Values dots(ArrayRef<Codes> codes, int q0, int q1, int64_t rows, llvm::function_ref<Value(int64_t row, int q)> x,
              llvm::function_ref<Value(int64_t row)> start);
  /// Rows whose dot products are interleaved: as many chains as the latency wants and the registers allow.
  int64_t rowsTogether(int64_t mb) const {
    if (!e.target.has512()) return 4;
    return w.subK != 16 ? 8 : mb == 16 ? 2 : 4;
  }

  /// Accumulators, [tile][row].
  struct Sums {
    int64_t mb;
    Values values;
    Value &operator()(int64_t tile, int64_t row) { return values[tile * mb + row]; }
  };

  /// Addresses of a group of a part in each plane of the activations: q (or x), [G][mb] planes, [G][H][mb] planes.
  struct GroupAddress {
    Value x, meta, sums;
  };
  /// Step 3 of docs/exactness.md: the sum |idot| over |half| of a group, scaled, on top of |before| halves.
  Value scaled(Value idot, const Scales &s, int64_t half, Value before);
  /// Steps 4 to 6: |acc| of row |r| of |mb| and one more group. |wsum|: int8z only.
  Value added(Value product, const Scales &s, Value wsum, const GroupAddress &at, int64_t mb, int64_t r, Value acc);
  /// acc += one group, of every tile and row.
  void intGroup(ArrayRef<Codes> codes, ArrayRef<Scales> s, const GroupAddress &at, Sums &acc);
  void floatGroup(ArrayRef<Value> groups, ArrayRef<Scales> s, const GroupAddress &at, Sums &acc);
  /// The same for bf16 and e4m3 weights and packed bf16 activations, two k an instruction.
  void bf16Group(ArrayRef<Value> groups, const GroupAddress &at, Sums &acc);
  /// A weight's k = |k| + i, |i| in 0..3, of the group of e4m3 codes at |group|, as 16 x f32.
  Value floatOfByte(Value group, Value k, int64_t i);
  /// Whether AMX takes the sums of a part of |mb| rows. (Of 8 rows vpdpbusd takes them as fast.)
  bool tiled(int64_t mb) const { return e.target.hasTiles() && isInt8(p.act) && mb == 16 && a.groups >= fewestTileGroups; }
  /// Configures and releases the tiles of this thread, when |rows| have a part for them.
  void useTiles(Value rows);
  void leaveTiles(Value rows);
  /// The K loop of one weight tile by AMX: sums of 16 rows of 16 outputs. Between useTiles() and leaveTiles().
  Values tileSums(Value weights, llvm::function_ref<GroupAddress(Value group)> address);
  /// Whether the row scale multiplies sums instead of weights.
  bool scalesSums() const { return w.rowScale && (isInt8(p.act) || w.e4m3); }
  bool packed() const { return e.target.packsBf16(p.act); }
  /// Value |i| of row |r| of a group in all lanes; |x|: the group's values, or a place in them.
  Value broadcast(Value x, int64_t r, int64_t i) {
    if (!packed()) return e.ldSplat(x, r * 128 + 4 * i);
    return e.bitcast(e.vf, e.splat(e.shl(e.zext(e.i32, e.ld(e.i16, x, r * 64 + 2 * i, 2)), 16)));
  }

  /// How far ahead weights are fetched (measured on Zen 5; two streams of a float kernel want less each. Packed bf16 on
  /// Zen 4, 8 rows: 94 -> 110 billion multiply-adds a second).
  int64_t prefetchBytes(int64_t mb) const { return isInt8(p.act) || (packed() && mb > 4) ? 8192 : 4096; }
  /// Tiles that one body does at once. Float sums are one long dependent chain an output, so small row counts take two
  /// tiles; integer kernels are faster with one stream of weights from memory.
  int64_t tilesAtOnce(int64_t mb) const { return !isInt8(p.act) && mb <= (e.target.has512() ? 4 : 2) ? 2 : 1; }
  /// The K loop of tiles against |mb| rows, a part of the row block at |activations| behind |before| of its rows;
  /// |done|(tile, row) gives y before bias and residual.
  void tiles(ArrayRef<Value> weights, Value activations, Value before, int64_t mb,
             llvm::function_ref<void(llvm::function_ref<Value(int64_t tile, int64_t row)>)> done);

private:
  /// Fetches a group's share of a block's bytes, prefetchBytes(|mb|) behind |from|.
  void prefetchShare(Value from, int64_t mb, Emitter::Cache into);
  void group(ArrayRef<Value> codesAt, ArrayRef<Scales> s, const GroupAddress &at, Sums &acc);
};

} // namespace lathe::codegen
