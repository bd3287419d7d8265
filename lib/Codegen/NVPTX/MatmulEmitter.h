//===- MatmulEmitter.h - what every matmul of a GPU does -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A warp and a tile of 16 weight rows: reading a group of 32 k from memory of any kind as A operands, and what becomes of
// the accumulators, whose layout is the same in mma.sync and wgmma.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/Dequantize.h"
#include "NVPTX/Kernels.h"

namespace lathe::codegen::nvptx {

struct MatmulEmitter : GpuEmitter {
  const MmaParams &p;
  ActLayout a;
  Dequantizer q;
  const PackedLayout &w;
  int64_t tokens; ///< tiles of 8 rows
  Value rows, rowBlock;

  static SmallVector<Use> uses(const MmaParams &p) {
    SmallVector<Use> u{Use::in, Use::constant, Use::inout};
    if (p.bias) u.push_back(Use::constant);
    if (p.residual) u.push_back(Use::inout);
    return u;
  }
  /// |unitTiles|: tiles of 16 weight rows that a block computes, or |share| blocks with a part of K each. A prompt's blocks read the weights over and
  /// over; only steps of few rows wait for each of them.
  static std::optional<Ahead> ahead(ModuleOp m, const MmaParams &p, int64_t unitTiles, int64_t share) {
    if (p.rowTile > 16 && !isForBodies(m)) return std::nullopt;
    const int64_t tileBytes = packedTileBytes(p.type, p.k), tiles = (p.n + 15) / 16;
    return Ahead{1, (tiles + unitTiles - 1) / unitTiles, unitTiles * tileBytes, tiles * tileBytes, share};
  }
  MatmulEmitter(ModuleOp m, StringRef symbol, const MmaParams &p, const Chip &chip, int64_t threads, int64_t unitTiles, int64_t share = 1)
      : GpuEmitter(m, symbol, chip, threads, uses(p), ahead(m, p, unitTiles, share)), p(p), a(actLayout(p.k, p.act, p.halves)), q(*this, p.type), w(q.w), tokens(p.rowTile / actBlockRows) {
    rows = rowCount(p.outRows);
  }

  //===-- one group of 32 k ----------------------------------------------------------------------===//
  /// What a group needs from memory, loaded ahead of its arithmetic.
  struct Group {
    Dequantizer::Raw raw;
    Dequantizer::Scales scales;
    Values floats;         ///< float types: [k of 8][row of the pair] as f32
    SmallVector<Values> x; ///< [token tile]: B operands
    SmallVector<Values> meta; ///< [token tile]: pairs (for the lane's two tokens) of scale, isum.., fsum.., offset
  };

  Value tokenBlock(Value x, int64_t n) { return gepc(x, n * a.blockBytes); }
  Values pairAt(Value p, Type t) {
    Value v = ld(vec(2, t), p, 0, 8);
    return {elementOf(v, 0), elementOf(v, 1)};
  }

  /// Group |j| of the block at |blockAt|.
  Group loadWeights(Value blockAt, Value j) {
    Group r;
    Value group = gep(blockAt, mulc(j, w.groupBytes));
    if (w.floatBytes)
      loadFloats(group, r);
    else {
      r.raw = q.load(group);
      r.scales = q.scales(blockAt, j);
    }
    return r;
  }

  Group load(Value blockAt, Value j, Value g, Value x) {
    Group r = loadWeights(blockAt, j);
    Value token = fragmentRow(), t = fragmentColumn();
    Value at = mulc(add(shl(add(shl(g, 3), token), 5), shl(t, 2)), a.elementBytes);
    for (int64_t n = 0; n < tokens; ++n) {
      Value base = gep(tokenBlock(x, n), at);
      Values b;
      if (a.elementBytes == 1) {
        if (p.act == ActFormat::e4m3 && wgmmaOrder()) // the pieces of rows 4 .. 7 are exchanged
          for (Value turn = shl(shru(token, 2), 4); int64_t piece : {0, 16}) b.push_back(ld(i32, gep(base, xori(turn, c(piece))), 0, 4));
        else
          b = {ld(i32, base, 0, 4), ld(i32, base, 16, 4)};
      } else if (wgmmaOrder()) { // a word of each of the four pieces of the row, which Layout.h says the places of
        Value row = gep(tokenBlock(x, n), shl(add(shl(g, 3), token), 6)), turn = andc(shru(token, 1), 3);
        for (int64_t piece = 0; piece < 4; ++piece) b.push_back(ld(i32, gep(row, add(shl(xori(turn, c(piece)), 4), shl(t, 2))), 0, 4));
      } else {
        for (int64_t h = 0; h < 2; ++h)
          for (Value v : pairAt(gepc(base, 32 * h), i32)) b.push_back(v);
      }
      r.x.push_back(b);
      r.meta.push_back(loadMeta(tokenBlock(x, n), g, t));
    }
    return r;
  }

  bool usesHalves() const { return w.subK == 16; }
  int64_t parts() const { return usesHalves() ? 2 : 1; }
  /// Index of the sum of part |h| among the layout's sums.
  int64_t sumOf(int64_t h) const { return usesHalves() ? 1 + h : 0; }

  Values loadMeta(Value x, Value g, Value t) {
    Values m;
    auto plane = [&](int64_t offset, int64_t sums, int64_t h, Type type) {
      Value index = add(shl(sums == 1 ? g : addc(mulc(g, sums), h), 3), shl(t, 1));
      m.append(pairAt(gepc(gep(x, shl(index, 2)), offset), type));
    };
    if (a.elementBytes == 1) {
      plane(a.scale, 1, 0, f32);
      if (w.zero && !q.signedCodes())
        for (int64_t h = 0; h < parts(); ++h) plane(a.isum, a.sums, sumOf(h), i32);
    }
    if (w.min)
      for (int64_t h = 0; h < parts(); ++h) plane(a.fsum, a.sums, sumOf(h), f32);
    if (p.act == ActFormat::int8z) plane(a.offset, 1, 0, f32);
    return m;
  }

  void loadFloats(Value group, Group &r) {
    Value at = mulc(add(shl(fragmentColumn(), 6), shl(fragmentRow(), 1)), w.floatBytes); // (4t * 16 + 2g) elements
    Value base = gep(group, at);
    for (int64_t i = 0; i < 8; ++i) {
      int64_t offset = (i < 4 ? 0 : 16) * 16 * w.floatBytes;
      if (wgmmaOrder())
        base = gep(gep(group, at), mulc(xori(fragmentColumn(), c(i % 4)), 16 * w.floatBytes)); // k = 4t + (i xor t): all banks of shared memory
      else
        offset += i % 4 * 16 * w.floatBytes;
      if (p.type == StorageType::bf16) {
        r.floats.push_back(ld(i32, base, offset, 4)); // both rows
        continue;
      }
      Type t = p.type == StorageType::f32 ? f32 : f16;
      Value v = ld(vec(2, t), base, offset, unsigned(2 * w.floatBytes));
      for (int64_t row = 0; row < 2; ++row) {
        Value f = elementOf(v, row);
        r.floats.push_back(t == f32 ? f : ext(f));
      }
    }
  }

  /// The bf16 parts of float weights, most significant first, as A operands of the two k16 steps: [part][step][4].
  SmallVector<SmallVector<Values>> floatParts(const Group &r) {
    SmallVector<SmallVector<Values>> out;
    auto steps = [&](llvm::function_ref<Values(int64_t k)> pairOf) { // {row 2g, row 2g + 1} of (k, k + 1)
      SmallVector<Values> s;
      for (int64_t step = 0; step < 2; ++step) {
        Values lo = pairOf(4 * step), hi = pairOf(4 * step + 2);
        s.push_back({lo[0], lo[1], hi[0], hi[1]});
      }
      return s;
    };
    if (p.type == StorageType::bf16) {
      out.push_back(steps([&](int64_t k) {
        return Values{permute(r.floats[k], r.floats[k + 1], 0x5410), permute(r.floats[k], r.floats[k + 1], 0x7632)};
      }));
      return out;
    }
    Values rest = r.floats;
    for (int64_t part = 0, n = p.type == StorageType::f32 ? 3 : 2; part < n; ++part) {
      Values top;
      for (Value &v : rest) {
        Value bits = andc(bitcast(i32, v), int32_t(0xffff0000));
        top.push_back(bits);
        v = fsub(v, bitcast(f32, bits)); // exact
      }
      out.push_back(steps([&](int64_t k) {
        return Values{permute(top[2 * k], top[2 * k + 2], 0x7632), permute(top[2 * k + 1], top[2 * k + 3], 0x7632)};
      }));
    }
    return out;
  }

  /// The lane's two row scales (int8 weights).
  Values rowScales(Value tile) {
    return pairAt(gep(gepc(tile, packedTileBytes(p.type, p.k) - 64), shl(fragmentRow(), 3)), f32);
  }
  void storeTile(Value tile, ValueRange y) {
    Value n0 = add(shl(tile, 4), shl(fragmentRow(), 1));
    bool pad = p.outStride >= rowStride(p.n); // all 16 rows of the last tile have a place
    for (int64_t n = 0; n < tokens; ++n)
      for (int64_t u = 0; u < 2; ++u) {
        Value row = addc(add(mulc(rowBlock, p.rowTile), shl(fragmentColumn(), 1)), 8 * n + u);
        when(ltS(row, rows), [&] {
          for (int64_t r = 0; r < 2; ++r) {
            Value column = addc(n0, r);
            auto put = [&] { store(y[4 * n + 2 * r + u], row, column); };
            if (pad || p.n % 16 == 0)
              put();
            else
              when(lt(column, p.n), put);
          }
        });
      }
  }

  /// Epilogue of one output.
  void store(Value v, Value row, Value column) {
    Value offset = shl(add(mulc(row, p.outStride), column), 2);
    if (p.bias) v = fadd(v, ldf(arg(3), column));
    if (p.residual) v = fadd(ld(f32, gep(arg(p.bias ? 4 : 3), offset), 0, 4), v);
    st(v, gep(arg(2), offset), 0, 4);
  }

  //===-- 32 gates and 32 ups of a unit become a group of the next matmul's activations ------------===//
  /// Floats of a token in shared memory. Eight bytes of a lane are stored at once: those of a half warp hit all banks.
  static constexpr int64_t gateStride = 68;
  /// Puts the accumulators of tile |slot| of the unit (0..3) to |sums|.
  void putGates(Value sums, Value slot, ValueRange y) {
    Value n0 = add(shl(slot, 4), shl(fragmentRow(), 1)), t0 = shl(fragmentColumn(), 1);
    for (int64_t n = 0; n < tokens; ++n)
      for (int64_t u = 0; u < 2; ++u) {
        Value both = vector::FromElementsOp::create(b, loc, vec(2, f32), ValueRange{y[4 * n + u], y[4 * n + 2 + u]});
        st(both, gep(sums, shl(add(mulc(addc(t0, 8 * n + u), gateStride), n0), 2)), 0, 8);
      }
  }
  /// Writes group |unit| of the outputs: tokens |first|, |first| + |step|, ...; whole warps.
  void storeGates(Value sums, Value unit, Value first, int64_t step) {
    ActLayout out = actLayout(p.n / 2, p.outAct, p.outHalves);
    loop(first, c(p.rowTile), step, [&](Value token) {
      Value row = add(mulc(rowBlock, p.rowTile), token), at = add(mulc(token, gateStride), lane);
      when(ltS(row, rows), [&] {
        Value gate = ldf(sums, at), up = ldf(sums, addc(at, 32));
        storeGroup(arg(2), out, p.outAct, row, unit, fmul(activate(*this, p.activation, gate), up));
      });
    });
  }
};

} // namespace lathe::codegen::nvptx
