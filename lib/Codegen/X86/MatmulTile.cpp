//===- MatmulTile.cpp - the K loop of a tile --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One accumulator per output, groups of 32 k in order; see docs/exactness.md, "Matmul". The numbered
// steps are those of that page.
//===----------------------------------------------------------------------===//
#include "Common/KernelTools.h"
#include "X86/Matmul.h"
#include "llvm/Support/MathExtras.h"

namespace lathe::codegen {

Value MatmulEmitter::scaled(Value idot, const Scales &s, int64_t half, Value before) {
  Value f = e.i2f(idot);
  return half ? e.fma(f, s.ws[1], before) : w.scaleK ? e.fmul(f, s.ws[0]) : f;
}

Value MatmulEmitter::added(Value product, const Scales &s, Value wsum, const GroupAddress &at, int64_t mb, int64_t r, Value acc) {
  Value y = e.fma(product, e.ldSplat(at.meta, a.scale + r * 4), acc); // 4
  for (size_t h = 0; h < s.m.size(); ++h)                             // 5
    y = e.fma(s.m[h], e.ldSplat(at.sums, a.fsum + ((w.subK == 16 ? 1 + int64_t(h) : 0) * mb + r) * 4), y);
  return wsum ? e.fma(wsum, e.ldSplat(at.meta, a.offset + r * 4), y) : y; // 6
}

void MatmulEmitter::intGroup(ArrayRef<Codes> codes, ArrayRef<Scales> s, const GroupAddress &at, Sums &acc) {
  const bool halves = w.subK == 16, offsets = p.act == ActFormat::int8z;
  const int64_t parts = halves ? 2 : 1, quads = 8 / parts, T = int64_t(codes.size()), mb = acc.mb;
  // Sums of |rows| rows over the halves of a group, scaled: steps 1 to 3. [row][tile].
  auto scaledSums = [&](int64_t rows, llvm::function_ref<Value(int64_t, int)> x,
                        llvm::function_ref<Value(int64_t, int64_t)> start) {
    Values out(rows * T);
    for (int64_t h = 0; h < parts; ++h) {
      Values d = dots(codes, h * quads, (h + 1) * quads, rows, x, [&](int64_t r) { return start(r, h); });
      for (int64_t i = 0; i < rows * T; ++i)
        out[i] = scaled(d[i], s[i % T], h, out[i]);
    }
    return out;
  };
  const bool correct = w.zero && !signedCodes();
  Values wsum; // step 6: the same for all rows
  if (offsets) {
    Value one = e.ci(e.i32, 0x01010101), zeros = e.splatI(e.vi, correct ? -32 / parts * w.zero : 0);
    wsum = scaledSums(1, [&](int64_t, int) { return one; }, [&](int64_t, int64_t) { return zeros; });
  }
  // zero times the negated sums of all rows at once, through scratch: one shift instead of one a row.
  if (correct)
    for (int64_t h = 0; h < parts; ++h) {
      Value sums = e.ld(e.vec(mb, e.i32), at.sums, a.isum + (halves ? 1 + h : 0) * mb * 4, 4);
      e.stVolatile(e.shl(sums, llvm::Log2_64(uint64_t(w.zero))), e.scratch, startsAt + 64 * h, 4);
    }
  const int64_t together = std::min(mb, rowsTogether(mb));
  for (int64_t first = 0; first < mb; first += together) {
    Values product = scaledSums(
        together, [&](int64_t r, int q) { return e.ld(e.i32, at.x, (first + r) * 32 + q * 4, 4); },
        [&](int64_t r, int64_t h) {
          return correct ? e.ldSplatI(e.scratch, startsAt + 64 * h + 4 * (first + r)) : e.splatI(e.vi, 0);
        });
    for (int64_t i = 0; i < together; ++i)
      for (int64_t t = 0; t < T; ++t)
        acc(t, first + i) = added(product[i * T + t], s[t], offsets ? wsum[t] : Value(), at, mb, first + i, acc(t, first + i));
  }
}

void MatmulEmitter::floatGroup(ArrayRef<Value> groups, ArrayRef<Scales> s, const GroupAddress &at, Sums &acc) {
  const int64_t T = int64_t(groups.size()), mb = acc.mb;
  // The order of VDPBF16PS, so that all variants give its bits (but for sums below 2^-126, which are zero there).
  const bool oddFirst = (p.type == StorageType::bf16 || w.e4m3) && p.act == ActFormat::bf16;
  auto multiply = [&](ArrayRef<Value> v, Value x, int64_t i) {
    for (int64_t r = 0; r < mb; ++r) {
      Value xr = broadcast(x, r, i);
      for (int64_t t = 0; t < T; ++t)
        acc(t, r) = e.fma(v[t], xr, acc(t, r));
    }
  };
  // A loop over k, four at a time: 32 times 16 rows unrolled would only cost compile time.
  auto loopOverK = [&](llvm::function_ref<Value(int64_t tile, Value k, int64_t i)> load) {
    acc.values = e.loop(e.c(0), e.c(32), 4, acc.values, [&](Value k, ValueRange carried) {
      acc.values.assign(carried.begin(), carried.end());
      Value x = e.at(at.x, k, packed() ? 2 : 4);
      for (int64_t n = 0; n < 4; ++n) {
        int64_t i = oddFirst ? n ^ 1 : n;
        Values v;
        for (int64_t t = 0; t < T; ++t)
          v.push_back(load(t, k, i));
        multiply(v, x, i);
      }
      return acc.values;
    });
  };
  if (w.floatBytes)
    return loopOverK([&](int64_t t, Value k, int64_t i) {
      Value row = e.at(groups[t], k, 16 * w.floatBytes);
      if (p.type == StorageType::f32) return e.ld(e.vf, row, i * 64, 64);
      if (p.type == StorageType::f16) return e.ext(e.ld(e.vh, row, i * 32, 32));
      return e.fromBf16Bits(e.ld(e.vec(16, e.i16), row, i * 32, 32));
    });
  if (w.e4m3) return loopOverK([&](int64_t t, Value k, int64_t i) { return floatOfByte(groups[t], k, i); });
  SmallVector<Codes> c;
  Value levels = levelTable();
  for (Value g : groups)
    if (!levels) c.push_back(codes(g));
  Values quads(T);
  // code - zero of k, as float.
  auto level = [&](int64_t t, int k) {
    if (levels) { // vpermps looks at the low four bits of each lane only
      if (k % 4 == 0) quads[t] = e.ld(e.vi, groups[t], k % 16 * 16, 32);
      return e.intrinsic("llvm.x86.avx512.permvar.sf.512", e.vf, {levels, e.shru(quads[t], 8 * (k % 4) + k / 16 * 4)});
    }
    if (k % 4 == 0) quads[t] = quad(c[t], k / 4);
    Value code;
    if (signedCodes())
      code = e.shrs(e.shl(quads[t], 24 - 8 * (k % 4)), 24);
    else {
      code = e.shru(quads[t], 8 * (k % 4));
      if (k % 4 != 3) code = e.andc(code, 255);
      if (w.zero) code = e.sub(code, e.splatI(e.vi, w.zero));
    }
    return e.i2f(code);
  };
  auto dequantized = [&](int64_t t, int k) {
    int h = w.subK == 16 ? k / 16 : 0;
    Value v = e.fmul(level(t, k), s[t].ws[h]);
    return s[t].m.empty() ? v : e.fadd(v, s[t].m[h]);
  };
  Value values = e.gepc(e.scratch, dequantizedAt);
  for (int k = 0; k < 32; ++k) {
    Values v;
    for (int64_t t = 0; t < T; ++t)
      v.push_back(dequantized(t, k));
    if (mb <= 2)
      multiply(v, at.x, k);
    else
      for (int64_t t = 0; t < T; ++t)
        e.st(v[t], values, dequantizedBytes * t + 64 * k, 64);
  }
  if (mb > 2)
    loopOverK([&](int64_t t, Value k, int64_t i) {
      return e.ld(e.vf, e.at(values, k, 64), dequantizedBytes * t + 64 * i, 64);
    });
}

Value MatmulEmitter::floatOfByte(Value group, Value k, int64_t i) { return fromE4m3(e, e.ld(e.vi, e.at(group, k, 16), 0, 64), i); }

void MatmulEmitter::bf16Group(ArrayRef<Value> groups, const GroupAddress &at, Sums &acc) {
  const int64_t T = int64_t(groups.size()), mb = acc.mb;
  VectorType words = e.vec(32, e.i16), pairs = e.vec(32, e.bf16);
  SmallVector<int64_t> interleaved; // 16 outputs of k, 16 of k + 1 -> both k of an output side by side
  for (int64_t i = 0; i < 32; ++i)
    interleaved.push_back(i / 2 + i % 2 * 16);
  acc.values = e.loop(e.c(0), e.c(32), 4, acc.values, [&](Value k, ValueRange carried) {
    acc.values.assign(carried.begin(), carried.end());
    Value x = e.at(at.x, k, 2);
    for (int64_t i = 0; i < 4; i += 2) {
      Values weights;
      for (Value g : groups) {
        if (w.e4m3) { // exact in the upper halves of float32
          Value first = e.bitcast(e.vi, floatOfByte(g, k, i)), second = e.bitcast(e.vi, floatOfByte(g, k, i + 1));
          weights.push_back(e.bitcast(pairs, e.ori(e.shru(first, 16), second)));
          continue;
        }
        Value both = e.ld(words, e.at(g, k, 32), i * 32, 64);
        weights.push_back(e.bitcast(pairs, e.shuffle(both, both, interleaved)));
      }
      for (int64_t r = 0; r < mb; ++r) {
        Value xr = e.bitcast(pairs, e.ldSplatI(x, r * 64 + 2 * i));
        for (int64_t t = 0; t < T; ++t)
          acc(t, r) = e.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", e.vf, {acc(t, r), weights[t], xr});
      }
    }
    return acc.values;
  });
}

void MatmulEmitter::group(ArrayRef<Value> codesAt, ArrayRef<Scales> s, const GroupAddress &at, Sums &acc) {
  if (packed() && (p.type == StorageType::bf16 || w.e4m3)) return bf16Group(codesAt, at, acc);
  if (!isInt8(p.act)) return floatGroup(codesAt, s, at, acc);
  SmallVector<Codes> c;
  for (Value g : codesAt)
    c.push_back(codes(g));
  intGroup(c, s, at, acc);
}

void MatmulEmitter::prefetchShare(Value from, int64_t mb, Emitter::Cache into) {
  for (int64_t line = 0; line < w.blockBytes / (w.blockK / 32); line += 64)
    e.prefetch(from, prefetchBytes(mb) + line, into);
}

void MatmulEmitter::tiles(ArrayRef<Value> weights, Value activations, Value before, int64_t mb,
                          llvm::function_ref<void(llvm::function_ref<Value(int64_t, int64_t)>)> done) {
  const bool ints = isInt8(p.act);
  const int64_t T = int64_t(weights.size()), perBlock = w.blockK / 32, blocks = a.groups / perBlock,
                rest = a.groups % perBlock;
  const int64_t xBytes = ints ? 32 : packed() ? 64 : 128;
  Values rowScales;
  if (w.rowScale)
    for (Value tile : weights)
      rowScales.push_back(e.ld(e.vf, tile, packedTileBytes(p.type, p.k) - 64, 64));

  const GroupAddress part{e.at(activations, before, a.groups * xBytes), e.at(activations, before, a.groups * 4),
                          e.at(activations, before, a.groups * 4 * a.sums)};
  auto address = [&](Value g) {
    return GroupAddress{e.at(part.x, g, mb * xBytes), e.at(part.meta, g, 4 * mb), e.at(part.sums, g, 4 * mb * a.sums)};
  };
  if (tiled(mb)) {
    Values sums = tileSums(weights.front(), address);
    return done([&](int64_t, int64_t r) { return scalesSums() ? e.fmul(sums[r], rowScales.front()) : sums[r]; });
  }
  // A group's share of the block's bytes, codes or not, so that a tile is fetched in the order of its addresses. The
  // out-of-order window alone does not reach the next weights over a body of several rows. Then into L2, which leaves L1's
  // few fill buffers to the loads (Zen 4, 2, 4 and 8 rows: 1.05 to 1.10 times the tokens of the 1B shape, 1.1 of the
  // 135M one). One row's short body (1.10) and the long one of 16 rows (1.04) are faster with L1, but for packed bf16:
  // 76 -> 113 billion multiply-adds a second at 16 rows, 96 % of what VDPBF16PS can do.
  const auto into = mb > 1 && (mb < 16 || packed()) ? Emitter::Cache::l2 : Emitter::Cache::l1;
  auto prefetch = [&](Value from) { prefetchShare(from, mb, into); };
  // |count| groups of block |i|.
  auto block = [&](Value i, int64_t count, Sums &acc) {
    Values at;
    for (Value tile : weights)
      at.push_back(e.at(tile, i, w.blockBytes));
    Value g = e.mulc(i, perBlock);
    if (perBlock == 2 && ints) { // unrolled
      for (int64_t j = 0; j < count; ++j) {
        Values codesAt;
        SmallVector<Scales> s;
        for (Value b : at) {
          codesAt.push_back(e.gepc(b, j * w.groupBytes));
          prefetch(e.gepc(b, j * w.blockBytes / perBlock));
          s.push_back(scales(blockScales(b, j), Value(), Value()));
        }
        group(codesAt, s, address(e.addc(g, j)), acc);
      }
      return;
    }
    SmallVector<BlockScales> bs; // one d for the block
    for (Value b : at)
      bs.push_back(blockScales(b, 0));
    acc.values = e.loop(e.c(0), e.c(count), 1, acc.values, [&](Value j, ValueRange carried) {
      acc.values.assign(carried.begin(), carried.end());
      Values codesAt;
      SmallVector<Scales> s;
      for (int64_t t = 0; t < T; ++t) {
        codesAt.push_back(e.at(at[t], j, w.groupBytes));
        prefetch(e.at(at[t], j, w.blockBytes / perBlock));
        if (!ints && w.rowScale) {
          s.push_back({{rowScales[t]}, {}});
          continue;
        }
        s.push_back(groupScales(at[t], j, bs[t]));
      }
      group(codesAt, s, address(e.add(g, j)), acc);
      return acc.values;
    });
  };
  Sums acc{mb, Values(T * mb, e.splatF(e.vf, 0))};
  if (blocks)
    acc.values = e.loop(e.c(0), e.c(blocks), 1, acc.values, [&](Value i, ValueRange carried) {
      acc.values.assign(carried.begin(), carried.end());
      block(i, perBlock, acc);
      return acc.values;
    });
  if (rest) block(e.c(blocks), rest, acc);
  done([&](int64_t t, int64_t r) { return scalesSums() ? e.fmul(acc(t, r), rowScales[t]) : acc(t, r); });
}

} // namespace lathe::codegen
