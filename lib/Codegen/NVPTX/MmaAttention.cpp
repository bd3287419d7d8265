//===- MmaAttention.cpp - paged attention on mma.sync --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Queries are columns: the heads of one KV head's group, for one row or for several rows of one sequence. Keys, and then values, are the A operand,
// so neither the columns beside a query nor how many rows a block has enter its bits. Prompts, single rows and drafts are one order of
// operations (docs/exactness.md, "GPU"). A chunk goes through three phases: scores (a warp has places), softmax (a warp has queries), values
// (a warp has dimensions, and walks the places in order).
//
// Entries are read from global memory as they lie there: K has 16 tokens innermost, V its dimensions, and which token or dimension is which row of a
// fragment is free, so a lane's part of an operand is a few wide loads and byte permutations. Each entry is read by one warp of the block.
//===----------------------------------------------------------------------===//
#include "NVPTX/AttentionRows.h"
#include "NVPTX/Kernels.h"

namespace lathe::codegen::nvptx {
namespace {

constexpr int64_t warpCount = 4, blockThreads = 32 * warpCount;
constexpr int64_t sharedLimit = 48 << 10;

/// What a block works on.
struct Tile {
  int64_t heads = 0;   ///< query heads of one KV head; 0: none fits
  int64_t columns = 0; ///< n tiles of 8 queries, at most
  int64_t rows = 0;    ///< rows of one sequence, at most
  int64_t small = 0;   ///< n tiles of a single row
};
int64_t scoreFloats(const AttentionParams &p) { // of a query; the same memory holds the whole form's results
  return llvm::alignTo(std::max(p.chunk, p.form == AttentionParams::whole ? p.valueDim : 0), 32);
}
int64_t keySteps(const AttentionParams &p) { return (p.headDim + 15) / 16; }
constexpr int64_t statBytes = 32, infoBytes = 16;
int64_t sharedBytes(const AttentionParams &p, int64_t columns, int64_t rows) {
  return columns * (32 * scoreFloats(p) + 512 * keySteps(p) + 8 * statBytes) + 4 * p.chunk + 128 + infoBytes * (rows + 2);
}
Tile tileOf(const AttentionParams &p) {
  // Single rows want many blocks on a multiprocessor, prompts want every load of K and V to serve many queries: as many as no chip spills registers
  // for (NvptxPtxasTest). With heads of 128 three tiles spill on sm_90a and sm_120a, with heads of 64 four do on sm_120a.
  int64_t group = p.qHeads / p.kvHeads, most = p.form == AttentionParams::split ? 2 : p.headDim > 64 ? 2 : 3;
  for (int64_t n = most; n > 0; --n)
    for (int64_t heads = std::min(group, 8 * n); heads > 0; --heads) {
      int64_t rows = 8 * n / heads, columns = (rows * heads + 7) / 8;
      if (group % heads || sharedBytes(p, columns, rows) > sharedLimit) continue;
      return {heads, columns, rows, (heads + 7) / 8};
    }
  return {};
}

struct MmaAttention : AttentionRows {
  const Tile tile;
  const int64_t steps; ///< of 16 dimensions, for scores
  /// Whether scores and values go through mma.sync on f16; else on bf16. e4m3 is exact in f16, and there is an instruction that makes it so; but a
  /// probability times the scale of e4m3 values may be too small for f16.
  const bool halfKeys, halfValues;
  int64_t lanesDims;   ///< dimensions of V that a lane loads at once: 2 or 4
  int64_t pieces, mine; ///< pieces of 8 * lanesDims dimensions, and those of a warp
  Value scores, queries, valueScales, stats, info; ///< shared
  Value g, t;                             ///< the lane's place in fragments
  int64_t n = 0;                          ///< n tiles of the body being emitted

  MmaAttention(ModuleOp m, StringRef symbol, const AttentionParams &p, const Chip &chip)
      : AttentionRows(m, symbol, p, chip, blockThreads, {Use::in, Use::in, Use::inout}, tileOf(p).heads), tile(tileOf(p)), steps(keySteps(p)),
        halfKeys(p.k == KVFormat::f16 || p.k == KVFormat::e4m3), halfValues(p.v == KVFormat::f16) {
    auto cost = [&](int64_t w) { return w * ((p.valueDim + 8 * w * warpCount - 1) / (8 * w * warpCount)); };
    lanesDims = p.valueDim % 4 == 0 && cost(4) <= cost(2) ? 4 : 2;
    pieces = (p.valueDim + 8 * lanesDims - 1) / (8 * lanesDims);
    mine = (pieces + warpCount - 1) / warpCount;
    g = fragmentRow(), t = fragmentColumn();
  }

  //===-- rows -----------------------------------------------------------------------------------===//
  enum { From, To, Limit };
  Value infoOf(Value i, int64_t field) { return sext(i64, ld(i32, at(info, i, infoBytes), 4 * field, 4)); }
  /// Of the block's rows together. They stand in shared memory, too: registers are scarce.
  enum { First, Count, MinFrom, MaxFrom, MaxTo, TreeStart, Common, Head, wholeFields };
  Value ofBlock(int64_t field) { return sext(i64, ld(i32, info, infoBytes * tile.rows + 4 * field, 4)); }
  Value first() { return ofBlock(First); }
  Value count() { return ofBlock(Count); }
  Value minFrom() { return ofBlock(MinFrom); }
  Value maxFrom() { return ofBlock(MaxFrom); }
  Value maxTo() { return ofBlock(MaxTo); }
  Value treeStart() { return ofBlock(TreeStart); } ///< the first place that is no slot for some row
  Value common() { return ofBlock(Common); }       ///< places below are slots and seen by all
  Value rowOf(Value query) { return divc(query, heads); }
  Value headOf(Value query) { return add(ofBlock(Head), remc(query, heads)); }
  Value queryCount() { return mulc(count(), heads); }

  /// Runs |body| when the block's row is the last of its run: rows of one sequence, side by side, in one tile of tile.rows rows.
  void forRun(Value row, llvm::function_ref<void()> body) {
    Value rows = rowCount(false), next = addc(row, 1);
    auto sequence = [&](Value r) { return stepInt(offsetof(LatheStep, sequence), r); };
    auto same = [&](Value a, Value b) { return cmp(arith::CmpIPredicate::eq, sequence(a), sequence(b)); };
    Value no = ci(i1, 0), inner = andi(ltS(next, rows), cmp(arith::CmpIPredicate::ne, remc(next, tile.rows), c(0)));
    Value goesOn = ifElse(inner, i1, [&] { return Values{same(next, row)}; }, [&] { return Values{no}; })[0];
    when(eq(zext(i64, goesOn), 0), [&] {
      Value first = whileLoop(
          {row},
          [&](ValueRange x) {
            return ifElse(
                cmp(arith::CmpIPredicate::ne, remc(x[0], tile.rows), c(0)), i1, [&] { return Values{same(addc(x[0], -1), row)}; }, [&] { return Values{no}; })[0];
          },
          [&](ValueRange x) { return Values{addc(x[0], -1)}; })[0];
      Value count = addc(sub(row, first), 1);
      info = sharedMemory(infoBytes * tile.rows + 4 * wholeFields);
      when(ltS(tid, count), [&] {
        Visible v = visibleTo(add(first, tid));
        Value to = at(info, tid, infoBytes);
        // A fourth one, since LLVM loads them together.
        for (auto [i, x] : llvm::enumerate(Values{v.from, v.to, v.limit, c(0)})) st(trunc(i32, x), to, 4 * int64_t(i), 4);
      });
      barrier();
      when(eq(tid, 0), [&] {
        Value far = c(INT32_MAX);
        Values all = loop(c(0), count, 1, {far, c(0), c(0), far, far}, [&](Value i, ValueRange x) {
          Value from = infoOf(i, From), to = infoOf(i, To), limit = infoOf(i, Limit);
          return Values{mins(x[0], from), maxs(x[1], from), maxs(x[2], to), mins(x[3], select(ltS(limit, to), limit, far)), mins(x[4], mins(to, limit))};
        });
        Values fields{first, count, all[0], all[1], all[2], mins(all[3], all[2]), all[4], head0};
        for (auto [i, x] : llvm::enumerate(fields)) st(trunc(i32, x), info, infoBytes * tile.rows + 4 * int64_t(i), 4);
      });
      barrier();
      openCache(row);
      body();
    });
  }
  /// The part of row |i|'s history in the chunk at |c0|.
  std::pair<Value, Value> range(Value i, Value c0) { return {maxs(infoOf(i, From), c0), mins(infoOf(i, To), addc(c0, p.chunk))}; }
  /// The slot of a place that row |i| sees.
  Value slotOf(Value i, Value place) {
    return ifElse(
        ltS(place, infoOf(i, Limit)), i64, [&] { return Values{place}; },
        [&] {
          Value parents = stepPtr(offsetof(LatheStep, parent));
          Value up = loop(c(0), sub(addc(infoOf(i, To), -1), place), 1, {add(first(), i)},
                          [&](Value, ValueRange x) { return Values{sext(i64, ld(i32, at(parents, x[0], 4), 0, 4))}; })[0];
          return Values{stepInt(offsetof(LatheStep, slot), up)};
        })[0];
  }

  void allocate() {
    scores = sharedMemory(tile.columns * 32 * scoreFloats(p));
    queries = sharedMemory(tile.columns * 512 * steps);
    stats = sharedMemory(tile.columns * 8 * statBytes);
    if (isByte(p.v)) valueScales = sharedMemory(4 * p.chunk + 128);
  }
  enum Stat { Max, Sum, OldMax, OldSum, Old, Fresh, Scale };
  Value stat(Value query, Stat s) { return gepc(at(stats, query, statBytes), 4 * s); }
  Value getStat(Value query, Stat s) { return ld(f32, stat(query, s), 0, 4); }
  void setStat(Value query, Stat s, Value v) { st(v, stat(query, s), 0, 4); }

  //===-- operands -------------------------------------------------------------------------------===//
  Value maskPair(Value w, uint32_t mask, uint32_t set = 0) {
    Value v = andc(w, int32_t(mask));
    return set ? ori(v, ci(i32, int32_t(set))) : v;
  }
  /// Byte |i| of |x| and of |y|, which are e4m3, as f16 or bf16, exactly: x in the low half.
  Value e4m3ToPair(Value x, Value y, int64_t i, bool half) {
    if (half) return bitcastPair(i32, e4m3ToHalf(trunc(i16, permute(x, y, i | (4 + i) << 4))));
    return e4m3ToBf16(permute(x, y, i << 4 | (4 + i) << 12));
  }
  /// Byte |i| of |x| and of |y| as bf16, exactly: x in the low half.
  Value bytesToPair(Value x, Value y, int64_t i) {
    Value w = permute(x, y, i | i << 4 | (4 + i) << 8 | (4 + i) << 12);
    // q = (128 + its low 7 bits) - 128 - (q < 0 ? 128 : 0); both terms are bf16 values: -128 is 0xc300, -256 is 0xc380.
    Value low = maskPair(w, 0x007f007f, 0x43004300), sign = maskPair(w, 0x00800080, 0xc300c300);
    Type pair = vec(2, bf16);
    Value one = bitcastPair(pair, ci(i32, 0x3f803f80));
    return bitcastPair(i32, fma(bitcastPair(pair, low), one, bitcastPair(pair, sign)));
  }
  /// What four loads hold ([k][word], words of two 16-bit or four 8-bit rows), as A operand of rows 2 m and 2 m + 1 of the lane.
  Values operand(const SmallVector<Values> &w, int64_t m, KVFormat f, bool half) {
    Values a;
    for (int64_t k = 0; k < 4; k += 2)
      for (int64_t r = 0; r < 2; ++r)
        a.push_back(f == KVFormat::int8   ? bytesToPair(w[k][m / 2], w[k + 1][m / 2], 2 * (m % 2) + r)
                    : f == KVFormat::e4m3 ? e4m3ToPair(w[k][m / 2], w[k + 1][m / 2], 2 * (m % 2) + r, half)
                                          : permute(w[k][m], w[k + 1][m], r ? 0x7632 : 0x5410));
    return a;
  }
  /// |rows| elements side by side.
  Values loadWords(Value p, int64_t offset, KVFormat f, int64_t rows) {
    const int64_t bytes = rows * elementBytes(f), words = bytes / 4;
    if (bytes == 2) return {zext(i32, ld(i16, p, offset, 2))};
    if (bytes == 4) return {ld(i32, p, offset, 4)};
    Value v = ld(vec(words, i32), p, offset, unsigned(bytes));
    Values all;
    for (int64_t i = 0; i < words; ++i) all.push_back(elementOf(v, i));
    return all;
  }
  /// {first, second} rounded to f16 (|half|) or bf16, first in the low half.
  Value roundPair(bool half, Value first, Value second) {
    return bitcastPair(i32, intrinsic(half ? "llvm.nvvm.ff2f16x2.rn" : "llvm.nvvm.ff2bf16x2.rn", vec(2, half ? f16 : bf16), {second, first}));
  }
  /// A pair of float32 as two pairs whose sum they nearly are.
  Values splitPair(bool half, Value first, Value second) {
    Value high = roundPair(half, first, second), a, b;
    if (half) {
      Value v = bitcastPair(vec(2, f16), high);
      a = ext(elementOf(v, 0)), b = ext(elementOf(v, 1));
    } else {
      a = bitcast(f32, shl(high, 16)), b = bitcast(f32, maskPair(high, 0xffff0000));
    }
    return {high, roundPair(half, fsub(first, a), fsub(second, b))};
  }
  /// acc + a * b for both parts of b: |parts| are {high, low, high, low} words.
  Values multiply(bool half, const Values &a, const Values &parts, Values acc) {
    for (int64_t part = 0; part < 2; ++part) {
      Values b{parts[part], parts[2 + part]};
      if (!half) {
        acc = mma("m16n8k16.row.col.bf16", a, b, acc);
        continue;
      }
      Values ha, hb;
      for (Value v : a) ha.push_back(bitcastPair(vec(2, f16), v));
      for (Value v : b) hb.push_back(bitcastPair(vec(2, f16), v));
      acc = mma("m16n8k16.row.col.f32.f32", ha, hb, acc);
    }
    return acc;
  }
  Values loadFour(Value p) {
    Value v = ld(vec(4, i32), p, 0, 16);
    return {elementOf(v, 0), elementOf(v, 1), elementOf(v, 2), elementOf(v, 3)};
  }
  void storeFour(ArrayRef<Value> v, Value p) { st(vector::FromElementsOp::create(b, loc, vec(4, v[0].getType()), v), p, 0, 16); }

  /// Where the four scores from place c0 + 4 * |quad| on of a query are. Neighbours are moved about so that neither the stores of the scores nor the
  /// loads of the probabilities meet in a bank: |query8| is the query's number modulo 8.
  Value quadAt(Value query, Value query8, Value quad) {
    return gep(at(scores, query, 4 * scoreFloats(p)), shl(xori(quad, swizzle(query8)), 4));
  }
  Value swizzle(Value query8) {
    Value middle = andc(query8, 2);
    return ori(shl(andc(xori(query8, shru(query8, 2)), 1), 2), ori(middle, shru(middle, 1)));
  }

  //===-- queries --------------------------------------------------------------------------------===//
  /// The lane's column |u| (0 or 1) of n tile |tile|.
  Value column(int64_t tile, int64_t u) { return addc(shl(t, 1), 8 * tile + u); }

  /// q as B operands, in two parts: [step][n tile][lane] of four words. Lane (g, t) has dimensions 16 step + t + 0, 4, 8, 12 of query 8 tile + g, so that
  /// one load of keys meets four rows that lie side by side.
  void loadQueries() {
    auto place = [&](Value query) { return at(at(arg(0), add(first(), rowOf(query)), p.qStride * 4), headOf(query), p.headDim * 4); };
    auto guarded = [&](Value q, Value d) { return p.headDim % 16 ? ldfGuarded(q, d, p.headDim) : ldf(q, d); };
    // f16 has few exponents: the query is divided by the power of two at its largest element, exactly.
    const bool scaled = halfKeys;
    eachWarp(queryCount(), [&](Value query) {
      Value factor = cf(p.scale);
      if (scaled) {
        Value q = place(query);
        Value most = loop(lane, c(p.headDim), 32, {cf(0)}, [&](Value d, ValueRange now) { return Values{fmax(now[0], fabs(ldf(q, d)))}; })[0];
        Value exponent = andc(bitcast(i32, warpMax(most)), 0x7f800000);
        exponent = maxs(mins(exponent, ci(i32, 0x7e000000)), ci(i32, 0x01000000));
        when(eq(lane32, 0), [&] { setStat(query, Fresh, bitcast(f32, sub(ci(i32, 0x7f000000), exponent))); });
        factor = fmul(bitcast(f32, exponent), factor);
      }
      when(eq(lane32, 0), [&] { setStat(query, Scale, factor); });
    });
    if (scaled) barrier();
    eachThread(c(steps * n * 32), [&](Value i) {
      Value l = andc(i, 31), rest = shru(i, 5), query = add(shl(remc(rest, n), 3), shru(l, 2)), d0 = add(shl(divc(rest, n), 4), andc(l, 3));
      Values words = ifElse(
          ltS(query, queryCount()), SmallVector<Type>(4, i32),
          [&] {
            Value q = place(query);
            Values x;
            for (int64_t e = 0; e < 4; ++e) {
              x.push_back(guarded(q, addc(d0, 4 * e)));
              if (scaled) x.back() = fmul(x.back(), getStat(query, Fresh));
            }
            Values lo = splitPair(halfKeys, x[0], x[1]), hi = splitPair(halfKeys, x[2], x[3]);
            return Values{lo[0], lo[1], hi[0], hi[1]};
          },
          [&] { return Values(4, ci(i32, 0)); });
      storeFour(words, gep(queries, shl(i, 4)));
    });
  }
  Values queryPart(int64_t step, int64_t tile) { return loadFour(gepc(gep(queries, shl(lane, 4)), (step * n + tile) * 512)); }

  //===-- scores ---------------------------------------------------------------------------------===//
  /// The sum over all dimensions for the lane's pairs of tokens, [pair][n tile][4]. |words|(step, e): what lies at dimension 16 step + 4 e + t.
  SmallVector<Values> scoreSums(int64_t pairs, llvm::function_ref<Values(int64_t step, int64_t e)> words) {
    SmallVector<Values> acc(pairs * n, Values(4, cf(0)));
    for (int64_t s = 0; s < steps; ++s) {
      SmallVector<Values> w;
      for (int64_t e = 0; e < 4; ++e) w.push_back(words(s, e));
      SmallVector<Values> a;
      for (int64_t m = 0; m < pairs; ++m) a.push_back(operand(w, m, p.k, halfKeys));
      for (int64_t j = 0; j < n; ++j) {
        Values q = queryPart(s, j);
        for (int64_t m = 0; m < pairs; ++m) acc[m * n + j] = multiply(halfKeys, a[m], q, acc[m * n + j]);
      }
    }
    return acc;
  }
  /// Address of dimension 16 step + 4 e + t, as one of the lane's and an offset; a dimension beyond the head (whose query is 0) is its last one.
  std::pair<Value, int64_t> dimension(Value keys, int64_t step, int64_t e) {
    const int64_t stride = 16 * elementBytes(p.k), d = 16 * step + 4 * e;
    if (d + 4 <= p.headDim) return {at(keys, t, stride), d * stride};
    return {at(keys, mins(addc(t, d), c(p.headDim - 1)), stride), 0};
  }

  /// Scores of the chunk's places from |lo| to |hi| - 1 for all queries: a warp has 32 or 64 places at a time, a lane 4 or 8 of them. What lies beyond a
  /// row's history in its last group of 16 is computed and not looked at.
  void plainScores(Value c0, Value lo, Value hi) {
    const int64_t kb = elementBytes(p.k), wide = p.chunk >= 64 * warpCount, tokens = wide ? 8 : 4, pairs = tokens / 2, size = 8 * tokens, log = wide ? 6 : 5;
    Value lowest = shru(minFrom(), 4), highest = shru(addc(treeStart(), -1), 4);
    loop(add(shru(sub(lo, c0), log), warp), shru(addc(sub(hi, c0), size - 1), log), warpCount, [&](Value unit) {
      Value offset = add(shl(unit, log), mulc(g, tokens)), place = add(c0, offset); // of the lane's first token
      Value group = mins(maxs(shru(place, 4), lowest), highest), slot = shl(group, 4), inner = andc(place, 16 - tokens);
      Value block = plane(slot), inPage = remc(slot, p.page);
      Value keys = gep(at(block, shru(inPage, 4), p.headDim * 16 * kb), mulc(inner, kb));
      SmallVector<Values> acc = scoreSums(pairs, [&](int64_t step, int64_t e) {
        auto [d, offset] = dimension(keys, step, e);
        return loadWords(d, offset, p.k, tokens);
      });
      auto scalesAt = [&](int64_t offset, int64_t quad) {
        Value v = ld(vec(4, f32), at(block, add(inPage, inner), 4), offset + 16 * quad, 16);
        return Values{elementOf(v, 0), elementOf(v, 1), elementOf(v, 2), elementOf(v, 3)};
      };
      for (int64_t k = 0; k < tokens / 4; ++k) {
        Value quad = addc(shru(offset, 2), k);
        Values scale;
        if (isByte(p.k)) scale = scalesAt(p.page * p.headDim, k);
        for (int64_t j = 0; j < n; ++j)
          for (int64_t u = 0; u < 2; ++u) {
            const Values &low = acc[2 * k * n + j], &high = acc[(2 * k + 1) * n + j];
            Values four{low[u], low[2 + u], high[u], high[2 + u]};
            for (int64_t i = 0; i < 4 && !scale.empty(); ++i) four[i] = fmul(four[i], scale[i]);
            storeFour(four, quadAt(column(j, u), addc(shl(t, 1), u), quad));
          }
        if (isByte(p.v))
          when(eq(t, 0), [&] { storeFour(scalesAt(cachePlaneBytes(p.page, p.headDim, p.k) + p.page * p.valueDim, k), gep(valueScales, shl(quad, 4))); });
      }
    });
  }

  Value scoreAt(Value query, Value index) { return gep(quadAt(query, andc(query, 7), shru(index, 2)), shl(andc(index, 3), 2)); }

  /// Scores of places that belong to a draft tree: row by row, since each has a path of its own.
  void treeScores(Value c0, Value hi) {
    const int64_t kb = elementBytes(p.k);
    barrier(); // plainScores() has written something there
    loop(c(0), count(), 1, [&](Value i) {
      Value limit = infoOf(i, Limit), to = infoOf(i, To), from = infoOf(i, From), lo = maxs(limit, c0);
      Value start = shl(shru(sub(lo, c0), 4), 4);
      loop(add(start, shl(warp, 4)), sub(mins(to, hi), c0), 16 * warpCount, [&](Value at16) {
        Values slots, keys, scale, places;
        for (int64_t r = 0; r < 2; ++r) {
          Value place = add(add(c0, at16), addc(shl(g, 1), r));
          places.push_back(place);
          Value slot = slotOf(i, mins(maxs(place, from), addc(to, -1))), block = plane(slot), inPage = remc(slot, p.page);
          keys.push_back(gep(at(block, shru(inPage, 4), p.headDim * 16 * kb), mulc(andc(inPage, 15), kb)));
          if (isByte(p.k)) scale.push_back(ld(f32, at(block, inPage, 4), p.page * p.headDim, 4));
        }
        syncWarp(); // paths are of different lengths
        SmallVector<Values> acc = scoreSums(1, [&](int64_t step, int64_t e) {
          Values parts;
          for (Value key : keys) {
            auto [d, offset] = dimension(key, step, e);
            parts.push_back(zext(i32, ld(isByte(p.k) ? i8 : i16, d, offset, unsigned(kb))));
          }
          return Values{ori(parts[0], shl(parts[1], 8 * kb))};
        });
        for (int64_t j = 0; j < n; ++j)
          for (int64_t k = 0; k < 4; ++k) {
            Value query = column(j, k % 2), place = places[k / 2];
            Value ok = andi(andi(leS(limit, place), ltS(place, to)), cmp(arith::CmpIPredicate::eq, rowOf(query), i));
            when(ok, [&] { st(scale.empty() ? acc[j][k] : fmul(acc[j][k], scale[k / 2]), scoreAt(query, sub(place, c0)), 0, 4); });
          }
      });
    });
  }

  //===-- softmax --------------------------------------------------------------------------------===//
  Value capped(Value s, Value factor) {
    Value x = fmul(s, factor);
    return p.softcap != 0.0f ? fmul(cf(p.softcap), tanha(fmul(x, cf(1.0f / p.softcap)))) : x;
  }
  Value warpSum(Value l) { return butterfly(l, 16, [&](Value x, Value y) { return fadd(x, y); }); }
  Values pairOf(Value at, int64_t offset = 0) {
    Value v = ld(vec(2, f32), at, offset, 8);
    return {elementOf(v, 0), elementOf(v, 1)};
  }
  void storePair(ValueRange v, Value at, int64_t offset = 0) { st(vector::FromElementsOp::create(b, loc, vec(2, v[0].getType()), v), at, offset, 8); }
  struct Softmax {
    Value max, sum;
  };

  /// Scores become probabilities (times V's scale) in two parts: the word of a pair of places, high parts, then low parts. |begin| .. |end|: the places
  /// that the values' phase reads, as offsets in the chunk. A lane has places 2 lane and 2 lane + 1 of every 64, and adds them up in order.
  /// |keep|(query, row, m, l, visible).
  void softmax(Value c0, Value begin, Value end, llvm::function_ref<void(Value query, Value row, Value m, Value l, Value visible)> keep) {
    const bool unrolled = p.chunk % 64 == 0 && p.chunk <= 512;
    Value start = add(andc(begin, -64), shl(lane, 1));
    start = select(ltS(start, begin), addc(start, 64), start);
    eachWarp(c(8 * n), [&](Value query) {
      when(leS(queryCount(), query), [&] {
        loop(start, end, 64, [&](Value j) { storePair(Values(2, ci(i32, 0)), pairAt(query, j)); });
      });
      when(ltS(query, queryCount()), [&] {
        Value row = rowOf(query), factor = getStat(query, Scale);
        auto [from, to] = range(row, c0);
        Value lo = sub(from, c0), hi = sub(to, c0);
        auto general = [&] {
          Softmax y = maskedSoftmax(c0, query, row, factor, lo, hi, start, end);
          return Values{y.max, y.sum};
        };
        Values y;
        if (unrolled) {
          Value all = andi(andi(eq(lo, 0), eq(hi, p.chunk)), leS(addc(c0, p.chunk), infoOf(row, Limit)));
          y = ifElse(
              all, {f32, f32},
              [&] {
                Softmax y = wholeSoftmax(query, factor);
                return Values{y.max, y.sum};
              },
              general);
        } else {
          y = general();
        }
        when(eq(lane32, 0), [&] { keep(query, row, y[0], y[1], ltS(lo, hi)); });
      });
    });
  }
  Value pairAt(Value query, Value j) { return gep(quadAt(query, andc(query, 7), shru(j, 2)), shl(andc(j, 2), 2)); }

  /// All places of the chunk are seen.
  Softmax wholeSoftmax(Value query, Value factor) {
    Value at = pairAt(query, shl(lane, 1)), m = cf(-INFINITY), sum = cf(0);
    SmallVector<Values> s;
    for (int64_t j = 0; j < p.chunk; j += 64) {
      Values pair = pairOf(at, 4 * j);
      for (Value &x : pair) x = capped(x, factor), m = fmax(m, x);
      s.push_back(pair);
    }
    Value largest = warpMax(m);
    for (auto [k, pair] : llvm::enumerate(s)) {
      for (Value &x : pair) x = expa(fsub(x, largest)), sum = fadd(sum, x);
      if (isByte(p.v)) {
        Values scale = pairOf(gep(valueScales, shl(lane, 3)), 256 * int64_t(k));
        for (int64_t i = 0; i < 2; ++i) pair[i] = fmul(pair[i], scale[i]);
      }
      storePair(splitPair(halfValues, pair[0], pair[1]), at, 256 * int64_t(k));
    }
    return {largest, warpSum(sum)};
  }

  Softmax maskedSoftmax(Value c0, Value query, Value row, Value factor, Value lo, Value hi, Value start, Value end) {
    auto visible = [&](Value j) { return andi(leS(lo, j), ltS(j, hi)); };
    Value m = loop(start, end, 64, {cf(-INFINITY)}, [&](Value j, ValueRange now) {
      Value at = pairAt(query, j), most = now[0];
      Values s = pairOf(at);
      for (int64_t k = 0; k < 2; ++k) {
        s[k] = capped(s[k], factor);
        most = fmax(most, select(visible(addc(j, k)), s[k], cf(-INFINITY)));
      }
      storePair(s, at);
      return Values{most};
    })[0];
    Value largest = warpMax(m);
    Value sum = loop(start, end, 64, {cf(0)}, [&](Value j, ValueRange now) {
      Value at = pairAt(query, j), sum = now[0];
      Values w = pairOf(at);
      for (int64_t k = 0; k < 2; ++k) {
        Value seen = visible(addc(j, k)), x = select(seen, fsub(w[k], largest), cf(0));
        w[k] = select(seen, expa(x), cf(0));
        sum = fadd(sum, w[k]);
      }
      if (isByte(p.v)) {
        // Places of a draft tree are not where the scores' phase looked.
        Values scale = ifElse(
            ltS(add(c0, addc(j, 1)), infoOf(row, Limit)), {f32, f32}, [&] { return pairOf(gep(valueScales, shl(j, 2))); },
            [&] {
              Values v;
              for (int64_t k = 0; k < 2; ++k) {
                Value slot = slotOf(row, mins(maxs(add(c0, addc(j, k)), infoOf(row, From)), addc(infoOf(row, To), -1)));
                v.push_back(ldf(gepc(plane(slot), cachePlaneBytes(p.page, p.headDim, p.k) + p.page * p.valueDim), remc(slot, p.page)));
              }
              return v;
            });
        for (int64_t k = 0; k < 2; ++k) w[k] = select(visible(addc(j, k)), fmul(w[k], scale[k]), cf(0));
      }
      storePair(splitPair(halfValues, w[0], w[1]), at);
      return Values{sum};
    })[0];
    return {largest, warpSum(sum)};
  }

  //===-- values ---------------------------------------------------------------------------------===//
  int64_t perPiece() const { return lanesDims / 2 * n; } ///< accumulators of a piece: [pair of dimensions][n tile]
  int64_t sums() const { return mine * perPiece() * 4; }
  SmallVector<Type> sumTypes() { return SmallVector<Type>(sums(), f32); }
  /// The lane's first dimension in its |i|-th piece, not beyond the last that can be loaded.
  Value dims(int64_t i) {
    Value d = mulc(add(shl(addc(warp, i * warpCount), 3), g), lanesDims);
    return p.valueDim % (8 * lanesDims * warpCount) ? mins(d, c(p.valueDim - lanesDims)) : d;
  }
  bool whole(int64_t i) const { return (i + 1) * warpCount <= pieces; } ///< every warp has an |i|-th piece

  /// acc + the values of 16 places, whose probabilities |quad|(n tile) says where to find. |words|(dims, e): those of place 4 t + e;
  /// |take|(n tile, old, new).
  Values valueStep(llvm::function_ref<Value(int64_t tile)> quad, ValueRange now, llvm::function_ref<Values(Value d, int64_t e)> words,
                   llvm::function_ref<Values(int64_t tile, ValueRange old, llvm::function_ref<Values()> make)> take) {
    Values acc(now.begin(), now.end());
    SmallVector<Values> probabilities;
    for (int64_t k = 0; k < n; ++k) probabilities.push_back(loadFour(quad(k)));
    for (int64_t i = 0; i < mine; ++i) {
      auto piece = [&] {
        Values next;
        Value d = dims(i);
        SmallVector<Values> w;
        for (int64_t e = 0; e < 4; ++e) w.push_back(words(d, e));
        for (int64_t m = 0; m < lanesDims / 2; ++m) {
          Values a = operand(w, m, p.v, halfValues);
          for (int64_t k = 0; k < n; ++k) {
            ValueRange old = ValueRange(acc).slice(((i * lanesDims / 2 + m) * n + k) * 4, 4);
            next.append(take(k, old, [&] { return multiply(halfValues, a, probabilities[k], Values(old.begin(), old.end())); }));
          }
        }
        return next;
      };
      int64_t from = i * perPiece() * 4, size = perPiece() * 4;
      Values next = whole(i) ? piece()
                             : ifElse(lt(addc(warp, i * warpCount), pieces), SmallVector<Type>(size, f32), piece,
                                      [&] { return Values(acc.begin() + from, acc.begin() + from + size); });
      std::copy(next.begin(), next.end(), acc.begin() + from);
    }
    return acc;
  }
  Value valuesAt(Value slot) {
    return gepc(at(plane(slot), remc(slot, p.page), p.valueDim * elementBytes(p.v)), cachePlaneBytes(p.page, p.headDim, p.k));
  }
  /// Steps of 16 places that a block table entry, or the places themselves, allow to be addressed together.
  int64_t stepsAtOnce() const {
    for (int64_t size : {64, 32})
      if (p.chunk % size == 0 && (p.page % size == 0 || size % p.page == 0)) return size / 16;
    return 1;
  }
  /// |count| steps from offset |j| on, a multiple of 16 |count|, that all rows see and that are slots.
  Values commonSteps(Value c0, Value j, int64_t count, ValueRange now) {
    const int64_t vb = elementBytes(p.v), rowBytes = p.valueDim * vb;
    Value place = add(c0, j), entries = at(table, divc(place, p.page), 4), inPage = p.page > 16 * count ? remc(place, p.page) : c(0);
    Value inBlock = gepc(at(at(base, shl(t, 2), rowBytes), inPage, rowBytes), cachePlaneBytes(p.page, p.headDim, p.k));
    Values acc(now.begin(), now.end());
    for (int64_t k = 0; k < count; ++k) {
      Value block = sext(i64, ld(i32, entries, 4 * (16 * k / p.page), 4)), values = at(inBlock, block, p.blockStride);
      const int64_t first = 16 * k % p.page;
      Value x = swizzle(g), quad = count > 1 ? add(shru(j, 2), xori(addc(t, 4 * k), x)) : xori(add(shru(j, 2), t), x);
      acc = valueStep([&](int64_t tile) { return gepc(gep(at(scores, g, 4 * scoreFloats(p)), shl(quad, 4)), 8 * tile * 4 * scoreFloats(p)); }, acc,
                      [&](Value d, int64_t e) { return loadWords(at(values, d, vb), (first + e) * rowBytes, p.v, lanesDims); },
                      [&](int64_t, ValueRange, llvm::function_ref<Values()> make) { return make(); });
    }
    return acc;
  }
  /// 16 places that not all rows see, or that are other slots for each: row by row. A value that a row does not see never meets its sums, not
  /// even times 0: it may be infinite.
  Values edgeStep(Value c0, Value j, ValueRange now) {
    const int64_t vb = elementBytes(p.v);
    return loop(c(0), count(), 1, Values(now.begin(), now.end()), [&](Value i, ValueRange carried) {
      auto [lo, hi] = range(i, c0);
      Value place = add(c0, j), some = andi(ltS(lo, addc(place, 16)), ltS(place, hi)), q0 = mulc(i, heads), q1 = addc(q0, heads);
      return ifElse(
          some, sumTypes(),
          [&] {
            Values values, seen;
            for (int64_t e = 0; e < 4; ++e) {
              Value at4 = add(place, addc(shl(t, 2), e));
              seen.push_back(andi(leS(lo, at4), ltS(at4, hi)));
              values.push_back(valuesAt(slotOf(i, mins(maxs(at4, lo), addc(hi, -1)))));
            }
            syncWarp();
            Value quad = add(shru(j, 2), t);
            return valueStep(
                [&](int64_t tile) { return quadAt(addc(g, 8 * tile), g, quad); }, carried,
                [&](Value d, int64_t e) {
                  Values w = loadWords(at(values[e], d, vb), 0, p.v, lanesDims);
                  for (Value &v : w) v = select(seen[e], v, ci(i32, 0));
                  return w;
                },
                [&](int64_t k, ValueRange old, llvm::function_ref<Values()> make) {
                  return ifElse(
                      andi(ltS(q0, c(8 * k + 8)), ltS(c(8 * k), q1)), SmallVector<Type>(4, f32),
                      [&] {
                        Values y = make();
                        for (int64_t v = 0; v < 4; ++v) {
                          Value query = column(k, v % 2);
                          y[v] = select(andi(leS(q0, query), ltS(query, q1)), y[v], old[v]);
                        }
                        return y;
                      },
                      [&] { return Values(old.begin(), old.end()); });
                });
          },
          [&] { return Values(carried.begin(), carried.end()); });
    });
  }
  /// The weighted values of offsets |begin| .. |end| of the chunk.
  Values weigh(Value c0, Value begin, Value end) {
    auto up = [&](Value v) { return shl(shru(addc(v, 15), 4), 4); };
    Value a = mins(maxs(up(sub(maxs(maxFrom(), c0), c0)), begin), end), z = shl(shru(maxs(sub(mins(common(), addc(c0, p.chunk)), c0), c(0)), 4), 4);
    z = mins(maxs(z, a), end);
    auto edges = [&](Value from, Value to, Values acc) { return loop(from, to, 16, acc, [&](Value j, ValueRange x) { return edgeStep(c0, j, x); }); };
    Values acc(sums(), cf(0));
    if (p.window) acc = edges(begin, a, acc);
    // Several steps at a time where they can be: their loads do not wait for each other, and share addresses.
    auto steps16 = [&](Value from, Value to, int64_t count) {
      acc = loop(from, to, 16 * count, acc, [&](Value j, ValueRange x) { return commonSteps(c0, j, count, x); });
    };
    if (const int64_t many = stepsAtOnce(); many > 1) {
      Value up = andc(addc(a, 16 * many - 1), -16 * many), down = andc(z, -16 * many);
      Value from = mins(up, z), to = maxs(from, down);
      if (p.window) steps16(a, from, 1);
      steps16(from, to, many);
      steps16(to, z, 1);
    } else {
      steps16(a, z, 1);
    }
    return edges(z, end, acc);
  }

  //===-- a chunk --------------------------------------------------------------------------------===//
  using Keep = llvm::function_ref<void(Value query, Value row, Value m, Value l, Value visible)>;
  Values chunk(Value c0, Keep keep) {
    Value lo = maxs(minFrom(), c0), hi = mins(maxTo(), addc(c0, p.chunk));
    plainScores(c0, lo, hi);
    when(ltS(treeStart(), hi), [&] { treeScores(c0, hi); });
    barrier();
    Value begin = shl(shru(sub(lo, c0), 4), 4), end = shl(shru(addc(sub(hi, c0), 15), 4), 4);
    softmax(c0, begin, end, keep);
    barrier();
    return weigh(c0, begin, end);
  }
  /// |body|(accumulator, query, dimension) for the lane's accumulators that exist, two dimensions side by side: acc and acc + 2.
  void eachPair(llvm::function_ref<void(int64_t acc, Value query, Value d)> body) {
    for (int64_t i = 0; i < mine; ++i)
      for (int64_t m = 0; m < lanesDims / 2; ++m) {
        Value d = addc(mulc(add(shl(addc(warp, i * warpCount), 3), g), lanesDims), 2 * m);
        for (int64_t k = 0; k < n; ++k)
          for (int64_t u = 0; u < 2; ++u) {
            Value query = column(k, u);
            when(andi(ltS(query, queryCount()), lt(d, p.valueDim)), [&] { body(((i * lanesDims / 2 + m) * n + k) * 4 + u, query, d); });
          }
      }
  }

  void splitBody(Value chunkIndex) {
    Value c0 = mulc(chunkIndex, p.chunk);
    loadQueries();
    barrier();
    auto to = [&](Value query) { return partial(arg(2), add(first(), rowOf(query)), headOf(query), chunkIndex); };
    Values o = chunk(c0, [&](Value query, Value, Value m, Value l, Value visible) {
      when(visible, [&] {
        Value at = to(query);
        st(m, at, 0, 4);
        st(l, at, 4, 4);
      });
    });
    eachPair([&](int64_t i, Value query, Value d) {
      auto [lo, hi] = range(rowOf(query), c0);
      when(ltS(lo, hi), [&] { storePair({o[i], o[i + 2]}, gep(to(query), shl(addc(d, 16), 2))); });
    });
  }

  void wholeBody() {
    loadQueries();
    barrier();
    Value start = mulc(divc(minFrom(), p.chunk), p.chunk);
    const float skip = -2, only = -1; // instead of a weight of the sums so far: this chunk has nothing for the row; there were none
    Values all = loop(start, maxTo(), c(p.chunk), Values(sums(), cf(0)), [&](Value c0, ValueRange now) {
      Values o = chunk(c0, [&](Value query, Value row, Value m, Value l, Value visible) {
        Value isFirst = leS(c0, infoOf(row, From));
        Values next = ifElse(
            isFirst, SmallVector<Type>(4, f32), [&] { return Values{m, l, cf(only), cf(1)}; },
            [&] {
              Value M = getStat(query, OldMax), L = getStat(query, OldSum), most = fmax(M, m), old = expa(fsub(M, most)), fresh = expa(fsub(m, most));
              return Values{most, fma(l, fresh, fmul(L, old)), old, fresh};
            });
        setStat(query, Old, select(visible, next[2], cf(skip)));
        setStat(query, Fresh, next[3]);
        when(visible, [&] {
          setStat(query, OldMax, next[0]);
          setStat(query, OldSum, next[1]);
        });
      });
      Values merged(now.begin(), now.end());
      for (int64_t k = 0; k < n; ++k)
        for (int64_t u = 0; u < 2; ++u) {
          Value query = mins(column(k, u), addc(queryCount(), -1)), old = getStat(query, Old), fresh = getStat(query, Fresh);
          Value skipped = fcmp(arith::CmpFPredicate::OEQ, old, cf(skip)), alone = fcmp(arith::CmpFPredicate::OEQ, old, cf(only));
          for (int64_t m = 0; m < mine * lanesDims / 2; ++m)
            for (int64_t r = 0; r < 2; ++r) {
              int64_t i = (m * n + k) * 4 + 2 * r + u;
              merged[i] = select(skipped, now[i], select(alone, o[i], fma(o[i], fresh, fmul(now[i], old))));
            }
        }
      barrier();
      return merged;
    });
    auto place = [&](Value query, Value d) { return gep(at(scores, query, 4 * scoreFloats(p)), shl(d, 2)); };
    eachPair([&](int64_t i, Value query, Value d) { storePair({all[i], all[i + 2]}, place(query, d)); });
    barrier();
    auto value = [&](Value query, Value d) { return fmul(ld(f32, place(query, d), 0, 4), fdiv(cf(1), getStat(query, OldSum))); };
    if (!p.quantize) {
      eachThread(mulc(queryCount(), p.valueDim), [&](Value i) {
        Value query = divc(i, p.valueDim), d = remc(i, p.valueDim);
        stf(value(query, d), at(at(arg(2), add(first(), rowOf(query)), p.outStride * 4), headOf(query), p.valueDim * 4), d);
      });
      return;
    }
    const int64_t groups = p.valueDim / 32;
    ActLayout l = actLayout(p.qHeads * p.valueDim, p.act, p.halves);
    eachWarp(mulc(queryCount(), groups), [&](Value i) {
      Value query = divc(i, groups), group = remc(i, groups);
      storeGroup(arg(2), l, p.act, add(first(), rowOf(query)), add(mulc(headOf(query), groups), group), value(query, add(shl(group, 5), lane)));
    });
  }

  /// |body| for as many n tiles as the block's rows fill: those of one row, or all.
  void sized(llvm::function_ref<void()> body) {
    if (tile.small == tile.columns) {
      n = tile.columns;
      return body();
    }
    Value few = leS(queryCount(), c(8 * tile.small));
    when(few, [&] { n = tile.small, body(); });
    when(ltS(c(8 * tile.small), queryCount()), [&] { n = tile.columns, body(); });
  }

  void emit() {
    allocate();
    setHeads(remc(block, headBlocks()));
    Value rest = divc(block, headBlocks());
    if (p.form == AttentionParams::whole) return forRun(rest, [&] { sized([&] { wholeBody(); }); });
    Value chunkIndex = remc(rest, p.maxChunks), c0 = mulc(chunkIndex, p.chunk);
    forRun(divc(rest, p.maxChunks), [&] {
      when(andi(ltS(c0, maxTo()), ltS(minFrom(), addc(c0, p.chunk))), [&] { sized([&] { splitBody(chunkIndex); }); });
    });
  }
};

} // namespace

bool hasMmaAttention(KVFormat f) { return f != KVFormat::f32; }

LogicalResult emitMmaAttention(ModuleOp module, StringRef symbol, const MmaAttentionParams &p, const Chip &chip) {
  if (p.form == AttentionParams::combine) return emitAttention(module, symbol, p, chip);
  if (failed(checkAttention(module, symbol, p))) return failure();
  if (!hasMmaAttention(p.k) || !hasMmaAttention(p.v)) return refuse(module, symbol, "unsupported: mma.sync over keys or values in f32");
  if (!tileOf(p).heads)
    return refuse(module, symbol, "unsupported: a head with chunks of " + Twine(p.chunk) + " needs " + Twine(sharedBytes(p, 1, 8)) +
                                      " bytes of shared memory, expected at most " + Twine(sharedLimit));
  MmaAttention e(module, symbol, p, chip);
  e.emit();
  e.finish();
  return success();
}

LaunchShape launchShape(const MmaAttentionParams &p) {
  if (p.form == AttentionParams::combine) return launchShape(static_cast<const AttentionParams &>(p));
  LaunchShape s;
  s.threads = blockThreads;
  s.count = p.qHeads / std::max<int64_t>(tileOf(p).heads, 1) * (p.form == AttentionParams::split ? p.maxChunks : 1);
  return s;
}

} // namespace lathe::codegen::nvptx
