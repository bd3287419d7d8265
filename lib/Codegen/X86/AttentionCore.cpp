//===- AttentionCore.cpp - scores, softmax, values of a chunk ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A tile's queries may belong to several rows. They share every load of K and V but nothing else: a query's own
// visible range masks its softmax, and tokens that not all queries of the tile see are added query by
// query, so that a row's bits depend on its own history only and no value from outside it is multiplied, not even by 0.
//
// Draft trees: the entries up to the root are slots, as in a chain. Scores of all slots of the tree are computed aside, for
// all queries of the tile at once, and each query takes those of its ancestors to their places; softmax and values
// then go over places. Rows without parents pay a comparison a chunk for it.
//===----------------------------------------------------------------------===//
#include "Attention.h"

namespace lathe::codegen {

static constexpr int64_t maxTile = 12;

AttentionScratch attentionScratch(const AttentionParams &p) {
  AttentionScratch s;
  int64_t at = 0, lanes = rowStride(p.valueDim);
  auto take = [&](int64_t floats) { return std::exchange(at, at + (floats * 4 + 63) / 64 * 64); };
  s.maxQueries = attentionRowBlock(p) * (p.qHeads / p.kvHeads) + maxTile; // a tile may stick out
  s.q = take(s.maxQueries * p.headDim);
  s.from = take(s.maxQueries);
  s.to = take(s.maxQueries);
  s.limit = take(s.maxQueries);
  s.path = take(attentionRowBlock(p) * maxTreeSlots);
  s.treeScores = p.chunk + 8 * 16; // score loops store whole groups
  s.scoreStride = s.treeScores + maxTreeSlots + 2 * 16; // no power of two
  s.scores = take(maxTile * s.scoreStride);
  s.chunkMax = take(maxTile);
  s.chunkSum = take(maxTile);
  s.chunkOut = take(maxTile * lanes);
  s.max = take(s.maxQueries);
  s.sum = take(s.maxQueries);
  s.out = take(s.maxQueries * lanes);
  s.bytes = at;
  return s;
}

SmallVector<OutPiece> outPieces(const AttentionParams &p) {
  SmallVector<OutPiece> r;
  for (Piece e : pieces(p.valueDim))
    r.push_back({e.at, e.width, p.valueDim < 16 ? e.at : 16 * int64_t(r.size())});
  return r;
}

int64_t partialFloats(const AttentionParams &p) { return 16 + rowStride(p.valueDim); }
uint64_t partialsBytes(const AttentionParams &p, int64_t rows) {
  return uint64_t(rows) * p.qHeads * p.maxChunks * partialFloats(p) * 4;
}

AttentionCore::AttentionCore(ModuleOp module, StringRef symbol, const AttentionParams &p, X86Target target)
    : Emitter(module, symbol, target), p(p), s(attentionScratch(p)), heads(p.qHeads / p.kvHeads),
      outLanes(rowStride(p.valueDim)) {
  // Accumulators of a score loop: queries * groups vectors of 16; a vector is two registers of 16 on avx2, one of 32
  // else.
  big = target.has512() ? QueryTile{12, 2} : QueryTile{6, 1};
  int64_t limit = target.has512() ? 8 : 4, n = 1;
  for (int64_t d = 1; d <= limit; ++d)
    if (heads % d == 0) n = d;
  int64_t groups = target.has512() ? (n <= 2 ? 8 : n <= 5 ? 4 : 2) : (n <= 2 ? 2 : 1);
  small = {n, groups};
}

AttentionCore::History AttentionCore::history(Value kvBase, Value sequence, Value kvHead) {
  Value table = ld(ptr, stepPtr(offsetof(LatheStep, blockTable)), 8 * int64_t(p.group), 8);
  Value width = zext(i64, ld(i32, stepPtr(offsetof(LatheStep, tableStride)), 4 * int64_t(p.group), 4));
  return {at(table, mul(sequence, width), 4), at(kvBase, kvHead, p.headStride)};
}

Value AttentionCore::planeOf(const History &h, Value token) {
  Value block = sext(i64, ld(i32, at(h.table, divc(token, p.page), 4), 0, 4));
  return at(h.base, block, p.blockStride);
}

Value AttentionCore::valuesOf(Value plane, Value inPage) {
  int64_t keyBytes = cachePlaneBytes(p.page, p.headDim, p.k);
  return gepc(p.page == 16 ? plane : gep(plane, mulc(inPage, p.valueDim * elementBytes(p.v))), keyBytes);
}

AttentionCore::Visible AttentionCore::visible(Value row) {
  Value parents = stepPtr(offsetof(LatheStep, parent));
  Values root = ifElse(
      isNull(parents), {i64, i64}, [&] { return Values{row, c(0)}; },
      [&] {
        return whileLoop(
            {row, c(0)}, [&](ValueRange x) { return leS(c(0), parentOf(parents, x[0])); },
            [&](ValueRange x) { return Values{parentOf(parents, x[0]), addc(x[1], 1)}; });
      });
  Value limit = addc(stepInt(offsetof(LatheStep, slot), root[0]), 1), to = add(limit, root[1]);
  return {p.window ? maxs(addc(to, -p.window), c(0)) : c(0), to, limit};
}

std::pair<Value, Value> AttentionCore::loadQueries(Value q, Value r0, Value r1, Value kvHead, History &h) {
  Values range = loop(r0, r1, 1, {c(INT32_MAX), c(0), c(INT32_MAX), c(0)}, [&](Value r, ValueRange now) {
    auto [from, to, limit] = visible(r);
    // From the row up to its root, which has no place in the path.
    Value path = at(gepc(scratch, s.path), sub(r, r0), maxTreeSlots * 4);
    Values up = loop(c(0), sub(to, limit), 1, {r, now[2], now[3]}, [&](Value k, ValueRange x) {
      Value slot = stepInt(offsetof(LatheStep, slot), x[0]);
      st(trunc(i32, slot), at(path, sub(addc(sub(to, limit), -1), k), 4), 0, 4);
      return Values{parentOf(stepPtr(offsetof(LatheStep, parent)), x[0]), mins(x[1], slot), maxs(x[2], addc(slot, 1))};
    });
    Value in = at(at(q, r, p.qStride * 4), kvHead, heads * p.headDim * 4);
    loop(c(0), c(heads), 1, [&](Value g) {
      Value query = add(mulc(sub(r, r0), heads), g);
      Value x = at(in, g, p.headDim * 4), y = at(gepc(scratch, s.q), query, p.headDim * 4);
      for (Piece e : pieces(p.headDim))
        st(ld(vec(e.width, f32), x, e.at * 4, 4), y, e.at * 4, 4);
      st(trunc(i32, from), floatAt(s.from, query), 0, 4);
      st(trunc(i32, to), floatAt(s.to, query), 0, 4);
      st(trunc(i32, limit), floatAt(s.limit, query), 0, 4);
    });
    return Values{mins(now[0], from), maxs(now[1], to), up[1], up[2]};
  });
  h.treeFrom = range[2], h.treeTo = range[3];
  return {range[0], range[1]};
}

void AttentionCore::scores(const QueryTile &tile, const History &h, Value q, Value c0, Value from, Value to,
                           bool prefetchValues) {
  int64_t bytes = elementBytes(p.k), nq = tile.queries, ng = tile.groups, dim = p.headDim;
  int64_t unroll = dim % 8 == 0 && nq * ng < 20 ? 8 : dim % 4 == 0 ? 4 : 2;
  Value first = shru(from, 4), end = shru(addc(to, 15), 4), last = addc(end, -1);
  // Cache lines of a group's values, fetched while its keys are read: the table's order defeats the hardware. Into L2: a
  // chunk's values are as large as L1, whose few fill buffers would also be waited for by the keys' loads (decode behind
  // 2,048 tokens on Zen 4: 23 GB/s into L1, 36 into L2, where memory gives 36).
  int64_t lines = (16 * p.valueDim * elementBytes(p.v) + 63) / 64, perStep = (lines * unroll + dim - 1) / dim;
  loop(first, end, ng, [&](Value g) {
    SmallVector<Value> key, value, scale;
    for (int64_t j = 0; j < ng; ++j) {
      Value token = shl(j ? mins(addc(g, j), last) : g, 4), plane = planeOf(h, token);
      Value inPage = remc(token, p.page);
      key.push_back(p.page == 16 ? plane : gep(plane, mulc(inPage, dim * bytes)));
      value.push_back(valuesOf(plane, inPage));
      if (isByte(p.k)) scale.push_back(ld(vf, gep(plane, shl(inPage, 2)), p.page * dim, 4));
    }
    Values acc(nq * ng, splatF(vf, 0));
    acc = loop(c(0), c(dim), unroll, acc, [&](Value d, ValueRange in) {
      Values a(in.begin(), in.end());
      Value kOffset = mulc(d, 16 * bytes), qd = gep(q, shl(d, 2));
      SmallVector<Value> at;
      for (Value k : key)
        at.push_back(gep(k, kOffset));
      for (int64_t j = 0; prefetchValues && j < ng; ++j)
        for (int64_t i = 0; i < perStep; ++i)
          prefetch(gep(value[j], mulc(d, perStep * 64 / unroll)), i * 64, Cache::l2);
      for (int64_t u = 0; u < unroll; ++u) {
        SmallVector<Value> k;
        for (int64_t j = 0; j < ng; ++j)
          k.push_back(loadStored(*this, at[j], u * 16 * bytes, 16, p.k, scale.empty() ? Value() : scale[j], 16));
        for (int64_t i = 0; i < nq; ++i) {
          Value x = ldSplat(qd, (i * dim + u) * 4);
          for (int64_t j = 0; j < ng; ++j)
            a[i * ng + j] = fma(x, k[j], a[i * ng + j]);
        }
      }
      return a;
    });
    Value to = at(gepc(scratch, s.scores), sub(shl(g, 4), c0), 4);
    for (int64_t i = 0; i < nq; ++i)
      for (int64_t j = 0; j < ng; ++j) {
        Value v = fmul(acc[i * ng + j], splatF(vf, p.scale));
        if (p.softcap != 0.0f) v = fmul(splatF(vf, p.softcap), tanha(fmul(v, splatF(vf, 1.0f / p.softcap))));
        st(v, to, (i * s.scoreStride + j * 16) * 4, 64);
      }
  });
}

void AttentionCore::softmax(Value i, Value c0, Value from, Value to) {
  Value row = at(gepc(scratch, s.scores), i, s.scoreStride * 4);
  Value first = shru(from, 4), end = shru(addc(to, 15), 4);
  Value from32 = splat(trunc(i32, from)), count = splat(trunc(i32, sub(to, from))), lanes = iota(16);
  auto seen = [&](Value g) {
    Value token = add(splat(trunc(i32, shl(g, 4))), lanes);
    return cmp(arith::CmpIPredicate::ult, sub(token, from32), count);
  };
  auto place = [&](Value g) { return at(row, sub(shl(g, 4), c0), 4); };
  // Whole groups need no mask; the first and the last one may be partial.
  Value firstWhole = shru(addc(from, 15), 4), endWhole = maxs(shru(to, 4), firstWhole);
  auto groups = [&](Value init, llvm::function_ref<Value(Value now, Value g, bool whole)> body) {
    auto run = [&](Value lo, Value hi, Value init, bool whole) {
      return loop(lo, hi, 1, init, [&](Value g, ValueRange now) { return Values{body(now[0], g, whole)}; })[0];
    };
    return run(endWhole, end, run(firstWhole, endWhole, run(first, firstWhole, init, false), true), false);
  };
  Value low = splatF(vf, -INFINITY);
  Value m = treeMax(groups(low, [&](Value now, Value g, bool whole) {
    Value v = ldv(place(g));
    return fmax(now, whole ? v : select(seen(g), v, low));
  }));
  Value max = splat(m);
  Value sum = treeAdd(groups(splatF(vf, 0), [&](Value now, Value g, bool whole) {
    Value to = place(g), v = ldv(to), ok = whole ? Value() : seen(g);
    Value e = expa(fsub(whole ? v : select(ok, v, max), max));
    if (!whole) e = select(ok, e, splatF(vf, 0));
    st(e, to, 0, 64);
    return fadd(now, e);
  }));
  st(m, floatAt(s.chunkMax, i), 0, 4);
  st(sum, floatAt(s.chunkSum, i), 0, 4);
}

void AttentionCore::values(int64_t count, const History &h, Value i, Value c0, Value from, Value to, const Next *next,
                           bool ragged, const Path *path) {
  SmallVector<OutPiece> all = outPieces(p);
  int64_t bytes = elementBytes(p.v), keyBytes = cachePlaneBytes(p.page, p.headDim, p.k);
  // Queries and pieces of a register block: most accumulators (but no more than hide the latency well) that fit beside
  // the pieces of a token and one weight.
  int64_t registers = target.has512() ? 32 : 16, perVector = target.has512() ? 1 : 2, nq = 1, perBlock = 1, score = 0;
  for (int64_t q = 1; q <= std::min<int64_t>(count, 8); ++q)
    for (int64_t d = 1; d <= std::min<int64_t>(4, all.size()); ++d)
      if (count % q == 0 && (q * d + d) * perVector + 1 <= registers && q * d * perVector + q > score)
        nq = q, perBlock = d, score = q * d * perVector + q;
  int64_t blocks = (int64_t(all.size()) + perBlock - 1) / perBlock;
  perBlock = (int64_t(all.size()) + blocks - 1) / blocks;
  for (int64_t q0 = 0; q0 < count; q0 += nq)
    for (int64_t d0 = 0; d0 < int64_t(all.size()); d0 += perBlock) {
      ArrayRef<OutPiece> part = ArrayRef(all).slice(d0, std::min<int64_t>(perBlock, all.size() - d0));
      Value out = at(gepc(scratch, s.chunkOut + q0 * outLanes * 4), i, outLanes * 4);
      Value weights = at(gepc(scratch, s.scores + q0 * s.scoreStride * 4), i, s.scoreStride * 4);
      Values acc;
      for (int64_t q = 0; q < nq; ++q)
        for (OutPiece e : part)
          acc.push_back(ld(vec(e.width, f32), out, (q * outLanes + e.kept) * 4, 4));
      // |n| tokens from |j| on, all in one group of 16.
      auto step = [&](Value j, int64_t n, ValueRange in) {
        Values a(in.begin(), in.end());
        Value slot = path ? sext(i64, ld(i32, at(path->slots, sub(j, path->limit), 4), 0, 4)) : j;
        Value plane = planeOf(h, slot), inPage = remc(slot, p.page), past = sub(j, c0), weight = at(weights, past, 4);
        Value v = gepc(gep(plane, mulc(inPage, p.valueDim * bytes)), keyBytes);
        if (next && n == 4 && q0 == 0 && d0 == 0) { // a fourth of the lines of the group of keys that comes next
          int64_t lines = (16 * p.headDim * elementBytes(p.k) + 255) / 256;
          Value there = add(next->from, past), some = ltS(there, next->to), token = select(some, there, j);
          History from{select(some, next->h.table, h.table), select(some, next->h.base, h.base)};
          Value keys = planeOf(from, token);
          if (p.page > 16) keys = gep(keys, mulc(shru(remc(token, p.page), 4), 16 * p.headDim * elementBytes(p.k)));
          keys = gep(keys, mulc(andc(j, 15), lines * 16));
          for (int64_t i = 0; i < lines; ++i)
            prefetch(keys, i * 64, Cache::l2);
        }
        for (int64_t u = 0; u < n; ++u) {
          SmallVector<Value> x;
          for (OutPiece e : part) {
            Value scale;
            if (isByte(p.v))
              scale =
                  splat(vec(e.width, f32), ld(f32, at(plane, inPage, 4), keyBytes + p.page * p.valueDim + u * 4, 4));
            x.push_back(loadStored(*this, v, (u * p.valueDim + e.at) * bytes, e.width, p.v, scale, bytes));
          }
          for (int64_t q = 0; q < nq; ++q) {
            Value pw = ld(f32, weight, (q * s.scoreStride + u) * 4, 4);
            for (auto [k, e] : llvm::enumerate(part))
              a[q * part.size() + k] = fma(splat(vec(e.width, f32), pw), x[k], a[q * part.size() + k]);
          }
        }
        return a;
      };
      auto steps = [&](Value lo, Value hi, int64_t n) {
        acc = loop(lo, hi, n, acc, [&](Value j, ValueRange in) { return step(j, n, in); });
      };
      if (ragged) {
        steps(from, to, 1);
      } else { // fours never leave a group
        Value first = mins(andc(addc(from, 3), ~int64_t(3)), to), last = maxs(andc(to, ~int64_t(3)), first);
        steps(from, first, 1);
        steps(first, last, 4);
        steps(last, to, 1);
      }
      for (int64_t q = 0; q < nq; ++q)
        for (auto [k, e] : llvm::enumerate(part))
          st(acc[q * part.size() + k], out, (q * outLanes + e.kept) * 4, 4);
    }
}

void AttentionCore::chunk(const QueryTile &tile, const History &h, Value t, Value n, Value c0, const Next *next,
                          llvm::function_ref<void(Value, Value)> done) {
  Value cEnd = addc(c0, p.chunk);
  // What a query sees of the chunk: places from .. to-1, of which those from |own| on are its ancestors in a tree.
  struct Part {
    Value from, own, to, limit;
  };
  auto partOf = [&](Value query) {
    Value limit = rangeAt(s.limit, query), from = maxs(rangeAt(s.from, query), c0);
    Value to = mins(rangeAt(s.to, query), cEnd);
    return Part{from, mins(to, limit), to, limit};
  };
  // What any and what all queries of the tile see of the chunk's slots; whether any sees places behind them.
  Values r = loop(c(0), n, 1, {cEnd, c0, c0, cEnd, c0, c(0)}, [&](Value i, ValueRange now) {
    Part part = partOf(add(t, i));
    Value ancestors = sub(part.to, maxs(part.from, part.limit));
    return Values{mins(now[0], part.from), maxs(now[1], part.own), maxs(now[2], part.from),
                  mins(now[3], part.own),  maxs(now[4], part.to),  maxs(now[5], ancestors)};
  });
  Value anyFrom = r[0], anyTo = r[1], allFrom = r[2], allTo = maxs(r[3], r[2]), tree = ltS(c(0), r[5]);
  when(ltS(anyFrom, r[4]), [&] {
    auto eachQuery = [&](llvm::function_ref<void(Value i, Value query, const Part &part)> body) {
      loop(c(0), n, 1, [&](Value i) {
        Value query = add(t, i);
        Part part = partOf(query);
        when(ltS(part.from, part.to), [&] { body(i, query, part); });
      });
    };
    auto ancestors = [&](const Part &part, llvm::function_ref<void(Value first)> body) {
      Value first = maxs(part.from, part.limit);
      when(ltS(first, part.to), [&] { body(first); });
    };
    Value q = at(gepc(scratch, s.q), t, p.headDim * 4);
    scores(tile, h, q, c0, anyFrom, anyTo, next);
    when(tree, [&] {
      // As if the chunk began so far before the tree that its scores come where they have room.
      Value from = andc(h.treeFrom, ~int64_t(15));
      scores({tile.queries, 1}, h, q, addc(from, -s.treeScores), from, h.treeTo, false);
      eachQuery([&](Value i, Value query, const Part &part) {
        Value own = at(gepc(scratch, s.scores), i, s.scoreStride * 4), path = pathOf(query);
        ancestors(part, [&](Value first) {
          loop(first, part.to, 1, [&](Value j) {
            Value slot = sext(i64, ld(i32, at(path, sub(j, part.limit), 4), 0, 4));
            Value score = ld(f32, at(own, sub(slot, from), 4), s.treeScores * 4, 4);
            st(score, at(own, sub(j, c0), 4), 0, 4);
          });
        });
      });
    });
    eachQuery([&](Value i, Value, const Part &part) {
      softmax(i, c0, part.from, part.to);
      Value out = at(gepc(scratch, s.chunkOut), i, outLanes * 4);
      for (int64_t d = 0; d < outLanes; d += 16)
        st(splatF(vf, 0), out, d * 4, 64);
      Value left = mins(part.own, allFrom);
      when(ltS(part.from, left), [&] { values(1, h, i, c0, part.from, left, nullptr, true); });
    });
    when(ltS(allFrom, allTo), [&] { values(tile.queries, h, c(0), c0, allFrom, allTo, next, false); });
    eachQuery([&](Value i, Value query, const Part &part) {
      Value right = maxs(part.from, allTo);
      when(ltS(right, part.own), [&] { values(1, h, i, c0, right, part.own, nullptr, true); });
      ancestors(part, [&](Value first) {
        Path path{pathOf(query), part.limit};
        values(1, h, i, c0, first, part.to, nullptr, true, &path);
      });
      done(i, query);
    });
  });
}

void AttentionCore::finishHead(Value out, Value row, Value head, ArrayRef<Value> o, Value sum) {
  Value inv = fdiv(cf(1), sum);
  SmallVector<Value> y;
  for (Value v : o)
    y.push_back(fmul(v, splat(cast<VectorType>(v.getType()), inv)));
  if (!p.quantize) {
    Value to = at(at(out, row, p.outStride * 4), head, p.valueDim * 4);
    for (auto [v, e] : llvm::zip(y, outPieces(p)))
      st(v, to, e.at * 4, 4);
    return;
  }
  ActivationLayout l = activationLayout(p.qHeads * p.valueDim, p.act, p.halves);
  ActivationRow to = activationRow(*this, out, l, p.act, row, rowCount(false));
  for (int64_t g = 0; g < p.valueDim / 32; ++g)
    storeActivations(*this, l, p.act, to, addc(mulc(head, p.valueDim / 32), g), y[2 * g], y[2 * g + 1]);
}

} // namespace lathe::codegen
