//===- Attention.cpp - the forms of paged attention --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// whole: an item is a block of rows and a KV head; runs of rows of one sequence walk its history together.
// split: an item is one row's chunk and a KV head, its result a partial; a run of rows of one sequence is done by its
// last row's items, which cover all its chunks, so that a few rows to verify read the history once. combine: a row's
// partials, in order.
//===----------------------------------------------------------------------===//
#include "Attention.h"

namespace lathe::codegen {

int64_t attentionRowBlock(const AttentionParams &p) {
  int64_t heads = p.kvHeads ? std::max<int64_t>(p.qHeads / p.kvHeads, 1) : 1;
  return heads >= 4 ? 12 : heads == 3 ? 16 : 48 / heads; // whole tiles of 12 queries
}

namespace {

struct Attention : AttentionCore {
  using AttentionCore::AttentionCore;

  SmallVector<Value> loadPieces(Value from) {
    SmallVector<Value> v;
    for (OutPiece e : outPieces(p))
      v.push_back(ld(vec(e.width, f32), from, e.kept * 4, 4));
    return v;
  }
  void storePieces(ArrayRef<Value> v, Value to) {
    for (auto [x, e] : llvm::zip(v, outPieces(p)))
      st(x, to, e.kept * 4, 4);
  }

  struct State {
    Value max, sum;
    SmallVector<Value> out;
  };
  /// The combine step of docs/exactness.md.
  State merge(const State &x, const State &y) {
    Value max = fmax(x.max, y.max);
    Value a = expa(fsub(x.max, max)), e = expa(fsub(y.max, max));
    State r{max, fma(y.sum, e, fmul(x.sum, a)), {}};
    for (auto [o, v] : llvm::zip(x.out, y.out)) {
      auto t = cast<VectorType>(v.getType());
      r.out.push_back(fma(v, splat(t, e), fmul(o, splat(t, a))));
    }
    return r;
  }

  void wholeItem(Value item) {
    int64_t block = attentionRowBlock(p);
    Value first = mulc(divc(item, p.kvHeads), block), kvHead = remc(item, p.kvHeads);
    Value end = mins(addc(first, block), rowCount(false)), sequences = stepPtr(offsetof(LatheStep, sequence));
    auto sequenceOf = [&](Value r) { return ld(i32, at(sequences, r, 4), 0, 4); };
    whileLoop(
        {first}, [&](ValueRange now) { return ltS(now[0], end); },
        [&](ValueRange now) {
          Value r0 = now[0], sequence = sequenceOf(r0);
          Value r1 = whileLoop(
              {addc(r0, 1)},
              [&](ValueRange at) {
                Value inside = ltS(at[0], end);
                // The last row again when past the end: no read outside the array.
                Value same = cmp(arith::CmpIPredicate::eq, sequenceOf(mins(at[0], addc(end, -1))), sequence);
                return andi(inside, same);
              },
              [&](ValueRange at) { return Values{addc(at[0], 1)}; })[0];
          run(r0, r1, sext(i64, sequence), kvHead);
          return Values{r1};
        });
  }

  /// All chunks of rows r0 .. r1-1 of one sequence.
  void run(Value r0, Value r1, Value sequence, Value kvHead) {
    History h = history(arg(1), sequence, kvHead);
    auto [from, last] = loadQueries(arg(0), r0, r1, kvHead, h);
    Value to = last;
    Value n = mulc(sub(r1, r0), heads);
    loop(mulc(divc(from, p.chunk), p.chunk), to, p.chunk, [&](Value c0) {
      auto keep = [&](Value i, Value query) {
        State now{ld(f32, floatAt(s.chunkMax, i), 0, 4), ld(f32, floatAt(s.chunkSum, i), 0, 4),
                  loadPieces(at(gepc(scratch, s.chunkOut), i, outLanes * 4))};
        Value max = floatAt(s.max, query), sum = floatAt(s.sum, query),
              out = at(gepc(scratch, s.out), query, outLanes * 4);
        auto put = [&](const State &state) {
          st(state.max, max, 0, 4);
          st(state.sum, sum, 0, 4);
          storePieces(state.out, out);
          return Values();
        };
        ifElse(
            leS(c0, rangeAt(s.from, query)), {}, [&] { return put(now); },
            [&] { return put(merge({ld(f32, max, 0, 4), ld(f32, sum, 0, 4), loadPieces(out)}, now)); });
      };
      tiles(n, h, c0, {h, addc(c0, p.chunk), to}, false, keep);
    });
    loop(c(0), n, 1, [&](Value query) {
      Value row = add(r0, divc(query, heads)), head = add(mulc(kvHead, heads), remc(query, heads));
      finishHead(arg(2), row, head, loadPieces(at(gepc(scratch, s.out), query, outLanes * 4)),
                 ld(f32, floatAt(s.sum, query), 0, 4));
    });
  }

  Value partial(Value base, Value row, Value head, Value chunkIndex) {
    return at(base, add(mulc(add(mulc(row, p.qHeads), head), p.maxChunks), chunkIndex), partialFloats(p) * 4);
  }

  /// A row and the number of items before it.
  struct Place {
    Value row, before;
  };
  Value itemsOf(Value row) { return mulc(addc(divc(stepInt(offsetof(LatheStep, slot), row), p.chunk), 1), p.kvHeads); }
  /// Whether row |row| (> 0) does not go on from the row before it.
  Value startsRun(Value row) {
    auto pair = [&](size_t field) {
      Value at = gep(stepPtr(field), shl(row, 2));
      return std::pair{ld(i32, at, -4, 4), ld(i32, at, 0, 4)};
    };
    auto [s0, s1] = pair(offsetof(LatheStep, sequence));
    auto [t0, t1] = pair(offsetof(LatheStep, slot));
    return ori(cmp(arith::CmpIPredicate::ne, s0, s1), ltS(t1, t0));
  }

  /// Items are numbered over rows, chunks 0 .. slot / chunk of the row, KV heads. Items of a call ascend, so the row of
  /// one is found by walking on from the last one's.
  void splitItems() {
    Value rows = rowCount(false);
    int64_t block = attentionRowBlock(p);
    loop(begin, end, stride, {c(0), c(0)}, [&](Value item, ValueRange now) {
      Values found = whileLoop(
          {now[0], now[1]}, [&](ValueRange x) { return leS(add(x[1], itemsOf(x[0])), item); },
          [&](ValueRange x) { return Values{addc(x[0], 1), add(x[1], itemsOf(x[0]))}; });
      Value row = found[0], after = addc(row, 1);
      // Does the run, or the block that bounds it, end here?
      Value inBlock = andi(ltS(after, rows), cmp(arith::CmpIPredicate::ne, remc(after, block), c(0)));
      Value last = ifElse(inBlock, i1, [&] { return Values{startsRun(after)}; }, [&] { return Values{ci(i1, 1)}; })[0];
      when(last, [&] { splitItem(item, {row, found[1]}, rows); });
      return found;
    });
  }

  void splitItem(Value item, Place place, Value rows) {
    int64_t block = attentionRowBlock(p);
    Value row = place.row, rest = sub(item, place.before), chunkIndex = divc(rest, p.kvHeads),
          kvHead = remc(rest, p.kvHeads);
    Value c0 = mulc(chunkIndex, p.chunk), blockStart = mulc(divc(row, block), block);
    Value r0 = whileLoop(
        {row},
        [&](ValueRange x) {
          return ifElse(
              ltS(blockStart, x[0]), i1, [&] { return Values{xori(startsRun(x[0]), ci(i1, 1))}; },
              [&] { return Values{ci(i1, 0)}; })[0];
        },
        [&](ValueRange x) { return Values{addc(x[0], -1)}; })[0];
    // A chunk left of every window has nothing to add; its place in the partials is not read.
    // (Among the rows of a tree the one that sees furthest back is not known here: none sees further than its root.)
    Value earliest = p.window ? maxs(addc(visible(r0).limit, -p.window), c(0)) : c(0);
    when(ltS(earliest, addc(c0, p.chunk)), [&] {
      History h = history(arg(1), stepInt(offsetof(LatheStep, sequence), row), kvHead);
      loadQueries(arg(0), r0, addc(row, 1), kvHead, h);
      // The next item of this call: another head or chunk of this row or the next.
      Value over = sub(add(rest, stride), itemsOf(row)), moves = leS(c(0), over);
      Value nextRow = select(moves, mins(addc(row, 1), addc(rows, -1)), row);
      Value ahead = select(moves, over, add(rest, stride)), chunkAhead = mulc(divc(ahead, p.kvHeads), p.chunk);
      Value to = select(ltS(add(item, stride), end), mins(visible(nextRow).to, addc(chunkAhead, p.chunk)), c(0));
      History there = history(arg(1), stepInt(offsetof(LatheStep, sequence), nextRow), remc(ahead, p.kvHeads));
      auto keep = [&](Value i, Value query) {
        Value head = add(mulc(kvHead, heads), remc(query, heads));
        Value to = partial(arg(2), add(r0, divc(query, heads)), head, chunkIndex);
        st(ld(f32, floatAt(s.chunkMax, i), 0, 4), to, 0, 4);
        st(ld(f32, floatAt(s.chunkSum, i), 0, 4), to, 4, 4);
        storePieces(loadPieces(at(gepc(scratch, s.chunkOut), i, outLanes * 4)), gepc(to, 64));
      };
      tiles(mulc(sub(addc(row, 1), r0), heads), h, c0, {there, chunkAhead, to}, true, keep);
    });
  }

  /// The chunk at |c0| for |n| queries: large tiles, then small ones. The first tile that runs fetches |next|; large
  /// ones only if |fetch|, as prompts mostly find their keys in the cache.
  void tiles(Value n, const History &h, Value c0, const Next &next, bool fetch,
             llvm::function_ref<void(Value, Value)> done) {
    Value bigEnd = mulc(divc(n, big.queries), big.queries);
    auto ahead = [&](Value t) { return Next{next.h, next.from, select(eq(t, 0), next.to, c(0))}; };
    loop(c(0), bigEnd, big.queries, [&](Value t) {
      Next first = ahead(t);
      chunk(big, h, t, c(big.queries), c0, fetch ? &first : nullptr, done);
    });
    loop(bigEnd, n, small.queries, [&](Value t) {
      Next first = ahead(t);
      chunk(small, h, t, mins(sub(n, t), c(small.queries)), c0, &first, done);
    });
  }

  void combineRow(Value row) {
    auto [from, to, limit] = visible(row);
    Value first = divc(from, p.chunk), last = divc(addc(to, -1), p.chunk);
    loop(c(0), c(p.qHeads), 1, [&](Value head) {
      auto load = [&](Value chunkIndex) {
        Value at = partial(arg(0), row, head, chunkIndex);
        return State{ld(f32, at, 0, 4), ld(f32, at, 4, 4), loadPieces(gepc(at, 64))};
      };
      auto pack = [&](const State &x) {
        Values v{x.max, x.sum};
        v.append(x.out.begin(), x.out.end());
        return v;
      };
      auto unpack = [&](ValueRange v) { return State{v[0], v[1], SmallVector<Value>(v.begin() + 2, v.end())}; };
      Values end = loop(addc(first, 1), addc(last, 1), 1, pack(load(first)),
                        [&](Value i, ValueRange now) { return pack(merge(unpack(now), load(i))); });
      State r = unpack(end);
      finishHead(arg(1), row, head, r.out, r.sum);
    });
  }
};

} // namespace

LogicalResult emitAttention(ModuleOp module, StringRef symbol, const AttentionParams &p, X86Target target) {
  if (failed(
          checkCache(module, symbol, p.kvHeads, p.headDim, p.valueDim, p.k, p.v, p.page, p.blockStride, p.headStride)))
    return failure();
  if (p.qHeads < p.kvHeads || p.qHeads % p.kvHeads)
    return refuse(module, symbol,
                  "expected query heads to be a multiple of " + Twine(p.kvHeads) + " KV heads, found " +
                      Twine(p.qHeads));
  if (p.chunk < 16 || p.chunk % 16 || p.chunk > 65536)
    return refuse(module, symbol, "expected a chunk of 16 to 65536 tokens, a multiple of 16, found " + Twine(p.chunk));
  if (p.window < 0) return refuse(module, symbol, "expected a window of at least 0 tokens, found " + Twine(p.window));
  if (p.quantize && p.valueDim % 32)
    return refuse(module, symbol,
                  "a quantized output needs a value size that is a multiple of 32, found " + Twine(p.valueDim));
  if (p.form != AttentionParams::whole && p.maxChunks < 1)
    return refuse(module, symbol, "expected room for at least one chunk in the partials, found " + Twine(p.maxChunks));
  Attention e(module, symbol, p, target);
  switch (p.form) {
  case AttentionParams::whole:
    e.items([&](Value item) { e.wholeItem(item); });
    break;
  case AttentionParams::split:
    e.splitItems();
    break;
  case AttentionParams::combine:
    e.items([&](Value item) { e.combineRow(item); });
    break;
  }
  e.finish();
  return success();
}

KernelCost cost(const AttentionParams &p) {
  KernelCost c;
  c.bytesPerRow = uint64_t(p.qHeads) * (p.headDim * 4 + p.valueDim * (p.quantize && isInt8(p.act) ? 1 : 4));
  c.arithmetic = Arithmetic::f32;
  if (p.form == AttentionParams::combine) return c;
  c.bytesPerEntry = uint64_t(p.kvHeads) * (p.headDim * elementBytes(p.k) + p.valueDim * elementBytes(p.v));
  c.macsPerEntry = uint64_t(p.qHeads) * (p.headDim + p.valueDim);
  return c;
}

uint64_t scratchBytes(const AttentionParams &p) {
  return p.form == AttentionParams::combine ? 0 : uint64_t(attentionScratch(p).bytes);
}

} // namespace lathe::codegen
