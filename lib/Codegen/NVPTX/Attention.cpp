//===- Attention.cpp - paged attention over chunks of history -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One block a row and KV head (or a part of its query heads): they share every load of K and V. The order of every sum is that of
// docs/exactness.md, so the bits are those of the other targets: a thread owns whole dot products, or whole elements
// of the output, and walks tokens in order.
//===----------------------------------------------------------------------===//
#include "NVPTX/AttentionRows.h"
#include "NVPTX/Kernels.h"

namespace lathe::codegen::nvptx {
namespace {

constexpr int64_t blockThreads = 128;
constexpr int64_t sharedLimit = 48 << 10;

int64_t sharedBytes(const AttentionParams &p, int64_t heads) { return 4 * heads * (p.headDim + p.chunk + 4 + p.valueDim) + 4 * maxTreeSlots; }
/// Query heads of a KV head that one block does: as many as fit, a divisor of all; 0 if not even one fits.
int64_t headsPerBlock(const AttentionParams &p) {
  int64_t group = p.qHeads / p.kvHeads;
  for (int64_t n = group; n > 0; --n)
    if (group % n == 0 && sharedBytes(p, n) <= sharedLimit) return n;
  return 0;
}

struct Attention : AttentionRows {
  Value row;
  Value from, to, limit; ///< places that the row sees; those before |limit| are slots, those from it on are in |path| (LatheStep.parent)
  Value q, scores, weights, stats, out; ///< shared: [head][dim], [head][chunk], chunk {m, l} and running {M, L} of a head, [head][valueDim]
  Value path; ///< shared: i32 [maxTreeSlots], the slots of the row's ancestors in a draft tree and its own

  static SmallVector<Use> uses(const AttentionParams &p) {
    if (p.form == AttentionParams::combine) return {Use::in, Use::inout};
    return {Use::in, Use::in, Use::inout};
  }
  Attention(ModuleOp m, StringRef symbol, const AttentionParams &p, const Chip &chip)
      : AttentionRows(m, symbol, p, chip, blockThreads, uses(p), headsPerBlock(p)) {}

  void visible() {
    Visible v = visibleTo(row);
    from = v.from, to = v.to, limit = v.limit;
  }
  Value slotOf(Value place) {
    return ifElse(
        ltS(place, limit), i64, [&] { return Values{place}; }, [&] { return Values{sext(i64, ld(i32, at(path, sub(place, limit), 4), 0, 4))}; })[0];
  }
  /// stats[4 * head + i]
  Value stat(Value head, int64_t i) { return gepc(gep(stats, shl(head, 4)), 4 * i); }

  void open() {
    visible();
    openCache(row);
    q = sharedMemory(heads * p.headDim * 4);
    scores = sharedMemory(heads * p.chunk * 4);
    stats = sharedMemory(heads * 16);
    out = sharedMemory(heads * p.valueDim * 4);
    path = sharedMemory(maxTreeSlots * 4);
    when(andi(eq(tid, 0), ltS(limit, to)), [&] {
      loop(c(0), sub(to, limit), 1, {row}, [&](Value k, ValueRange x) {
        st(trunc(i32, stepInt(offsetof(LatheStep, slot), x[0])), at(path, sub(addc(sub(to, limit), -1), k), 4), 0, 4);
        return Values{stepInt(offsetof(LatheStep, parent), x[0])};
      });
    });
    Value x = at(at(arg(0), row, p.qStride * 4), head0, p.headDim * 4);
    eachThread(c(heads * p.headDim), [&](Value i) { stf(ldf(x, i), q, i); });
    eachThread(c(heads * 4), [&](Value i) { stf(cf(0), stats, i); }); // LLVM loads a head's four together, also before the running two mean anything
    barrier();
  }

  /// Scores, softmax and weighted values of the visible part lo .. hi-1 of the chunk at |c0|. m and l go to the stats; |keep|(head index,
  /// element, o) gets every element of the output.
  void chunk(Value c0, Value lo, Value hi, llvm::function_ref<void(Value head, Value d, Value o)> keep) {
    const int64_t kb = elementBytes(p.k), vb = elementBytes(p.v), tile = heads % 4 == 0 ? 4 : heads % 2 == 0 ? 2 : heads % 3 == 0 ? 3 : 1;
    // 1: a thread has whole tokens.
    loop(add(lo, tid), hi, threads, [&](Value j) {
      Value slot = slotOf(j), keys = plane(slot), inPage = remc(slot, p.page), scale;
      Value k = gep(at(keys, shru(inPage, 4), p.headDim * 16 * kb), mulc(andc(inPage, 15), kb));
      if (isByte(p.k)) scale = ld(f32, at(keys, inPage, 4), p.page * p.headDim, 4);
      loop(c(0), c(heads), tile, [&](Value h0) {
        const int64_t unroll = p.headDim % 8 == 0 ? 8 : 2;
        Values acc = loop(c(0), c(p.headDim), unroll, Values(tile, cf(0)), [&](Value d, ValueRange now) {
          Values a(now.begin(), now.end()), key;
          Value kd = at(k, d, 16 * kb);
          for (int64_t u = 0; u < unroll; ++u) key.push_back(loadElement(gepc(kd, u * 16 * kb), p.k, scale));
          Value qd = gep(q, shl(add(mulc(h0, p.headDim), d), 2));
          for (int64_t i = 0; i < tile; ++i)
            for (int64_t u = 0; u < unroll; ++u) a[i] = fma(ld(f32, qd, (i * p.headDim + u) * 4, 4), key[u], a[i]);
          return a;
        });
        for (int64_t i = 0; i < tile; ++i) {
          Value s = fmul(acc[i], cf(p.scale));
          if (p.softcap != 0.0f) s = fmul(cf(p.softcap), tanha(fmul(s, cf(1.0f / p.softcap))));
          stf(s, scores, add(mulc(addc(h0, i), p.chunk), sub(j, c0)));
        }
      });
    });
    barrier();
    // 2 and the sum of 3: a warp has a head.
    eachWarp(c(heads), [&](Value h) {
      Value s = at(scores, h, p.chunk * 4);
      auto score = [&](Value j) { return sub(j, c0); };
      Value m = loop(add(lo, lane), hi, 32, {cf(-INFINITY)}, [&](Value j, ValueRange now) { return Values{fmax(now[0], ldf(s, score(j)))}; })[0];
      Value largest = warpMax(m);
      loop(add(lo, lane), hi, 32, [&](Value j) { stf(expa(fsub(ldf(s, score(j)), largest)), s, score(j)); });
      syncWarp();
      // Lane l sums the tokens j = l mod 16: both halves of the warp do the same.
      Value l = andc(lane, 15), first = andc(lo, ~int64_t(15)), start = add(first, l);
      start = select(ltS(start, lo), addc(start, 16), start);
      Value sum = loop(start, hi, 16, {cf(0)}, [&](Value j, ValueRange now) { return Values{fadd(now[0], ldf(s, score(j)))}; })[0];
      sum = halfTree(sum);
      when(eq(lane32, 0), [&] {
        st(largest, stat(h, 0), 0, 4);
        st(sum, stat(h, 1), 0, 4);
      });
    });
    barrier();
    // 3: a thread has an element of |tile| heads.
    int64_t groups = heads / tile;
    eachThread(c(groups * p.valueDim), [&](Value i) {
      Value h0 = mulc(divc(i, p.valueDim), tile), d = remc(i, p.valueDim);
      Value s = at(scores, h0, p.chunk * 4);
      auto step = [&](Value j, Value slot, ValueRange now) {
        Values a(now.begin(), now.end());
        Value values = gepc(plane(slot), cachePlaneBytes(p.page, p.headDim, p.k)), inPage = remc(slot, p.page), scale;
        if (isByte(p.v)) scale = ld(f32, at(values, inPage, 4), p.page * p.valueDim, 4);
        Value v = loadElement(at(values, add(mulc(inPage, p.valueDim), d), vb), p.v, scale);
        Value pj = gep(s, shl(sub(j, c0), 2));
        for (int64_t k = 0; k < tile; ++k) a[k] = fma(ld(f32, pj, k * p.chunk * 4, 4), v, a[k]);
        return a;
      };
      Values o = loop(lo, mins(hi, limit), 1, Values(tile, cf(0)), [&](Value j, ValueRange now) { return step(j, j, now); });
      o = loop(maxs(lo, limit), hi, 1, o, [&](Value j, ValueRange now) { return step(j, slotOf(j), now); });
      for (int64_t k = 0; k < tile; ++k) keep(addc(h0, k), d, o[k]);
    });
  }

  struct Weights {
    Value max, old, fresh; ///< M', expa(M - M'), expa(m - M')
  };
  Weights mergeWeights(Value M, Value m) {
    Value max = fmax(M, m);
    return {max, expa(fsub(M, max)), expa(fsub(m, max))};
  }

  void whole() {
    row = divc(block, headBlocks());
    setHeads(remc(block, headBlocks()));
    open();
    Value start = mulc(divc(from, p.chunk), p.chunk);
    loop(start, to, p.chunk, [&](Value c0) {
      Value lo = maxs(from, c0), hi = mins(to, addc(c0, p.chunk));
      Value isFirst = leS(c0, from);
      chunk(c0, lo, hi, [&](Value h, Value d, Value o) {
        Value place = gep(out, shl(add(mulc(h, p.valueDim), d), 2));
        Value merged = ifElse(
            isFirst, f32, [&] { return Values{o}; },
            [&] {
              Weights w = mergeWeights(ld(f32, stat(h, 2), 0, 4), ld(f32, stat(h, 0), 0, 4));
              return Values{fma(o, w.fresh, fmul(ld(f32, place, 0, 4), w.old))};
            })[0];
        st(merged, place, 0, 4);
      });
      barrier();
      eachThread(c(heads), [&](Value h) {
        Value m = ld(f32, stat(h, 0), 0, 4), l = ld(f32, stat(h, 1), 0, 4);
        Values next = ifElse(
            isFirst, {f32, f32}, [&] { return Values{m, l}; },
            [&] {
              Weights w = mergeWeights(ld(f32, stat(h, 2), 0, 4), m);
              return Values{w.max, fma(l, w.fresh, fmul(ld(f32, stat(h, 3), 0, 4), w.old))};
            });
        st(next[0], stat(h, 2), 0, 4);
        st(next[1], stat(h, 3), 0, 4);
      });
      barrier();
    });
    store(out, [&](Value h) { return ld(f32, stat(h, 3), 0, 4); }, arg(2));
  }

  /// O * (1 / L) of the block's heads; |o|: shared [head][valueDim].
  void store(Value o, llvm::function_ref<Value(Value h)> sum, Value to) {
    auto value = [&](Value i) { return fmul(ldf(o, i), fdiv(cf(1), sum(divc(i, p.valueDim)))); };
    if (!p.quantize) {
      Value y = gep(at(to, row, p.outStride * 4), mulc(head0, p.valueDim * 4));
      eachThread(c(heads * p.valueDim), [&](Value i) { stf(value(i), y, i); });
      return;
    }
    ActLayout l = actLayout(p.qHeads * p.valueDim, p.act, p.halves);
    eachWarp(c(heads * p.valueDim / 32), [&](Value g) {
      storeGroup(to, l, p.act, row, add(mulc(head0, p.valueDim / 32), g), value(add(shl(g, 5), lane)));
    });
  }

  /// A block does one chunk: blocks are numbered over rows, chunks of the longest history, heads.
  void split() {
    setHeads(remc(block, headBlocks()));
    Value rest = divc(block, headBlocks()), chunkIndex = remc(rest, p.maxChunks);
    row = divc(rest, p.maxChunks);
    Value c0 = mulc(chunkIndex, p.chunk);
    visible();
    Value lo = maxs(from, c0), hi = mins(to, addc(c0, p.chunk));
    when(ltS(lo, hi), [&] { // the same for all threads of the block
      open();
      chunk(c0, lo, hi, [&](Value h, Value d, Value o) { stf(o, partial(arg(2), row, add(head0, h), chunkIndex), addc(d, 16)); });
      eachThread(c(heads), [&](Value h) {
        Value to = partial(arg(2), row, add(head0, h), chunkIndex);
        st(ld(f32, stat(h, 0), 0, 4), to, 0, 4);
        st(ld(f32, stat(h, 1), 0, 4), to, 4, 4);
      });
    });
  }

  /// Blocks as in the whole form.
  void combine() {
    row = divc(block, headBlocks());
    setHeads(remc(block, headBlocks()));
    visible();
    Value first = divc(from, p.chunk), last = divc(addc(to, -1), p.chunk);
    out = sharedMemory(heads * p.valueDim * 4);
    stats = sharedMemory(heads * 16);
    eachThread(c(heads * p.valueDim), [&](Value i) {
      Value h = divc(i, p.valueDim), d = remc(i, p.valueDim), head = add(head0, h);
      auto load = [&](Value chunkIndex) {
        Value at = partial(arg(0), row, head, chunkIndex);
        return Values{ld(f32, at, 0, 4), ld(f32, at, 4, 4), ldf(at, addc(d, 16))};
      };
      Values end = loop(addc(first, 1), addc(last, 1), 1, load(first), [&](Value k, ValueRange now) {
        Values next = load(k);
        Weights w = mergeWeights(now[0], next[0]);
        return Values{w.max, fma(next[1], w.fresh, fmul(now[1], w.old)), fma(next[2], w.fresh, fmul(now[2], w.old))};
      });
      stf(end[2], out, i);
      when(eq(d, 0), [&] { st(end[1], stat(h, 3), 0, 4); });
    });
    barrier();
    store(out, [&](Value h) { return ld(f32, stat(h, 3), 0, 4); }, arg(1));
  }
};

} // namespace

LogicalResult checkAttention(ModuleOp module, StringRef symbol, const AttentionParams &p) {
  if (failed(checkCache(module, symbol, p.kvHeads, p.headDim, p.valueDim, p.k, p.v, p.page, p.blockStride, p.headStride))) return failure();
  if (p.qHeads < p.kvHeads || p.qHeads % p.kvHeads)
    return refuse(module, symbol, "expected query heads to be a multiple of " + Twine(p.kvHeads) + " KV heads, found " + Twine(p.qHeads));
  if (p.chunk < 16 || p.chunk % 16 || p.chunk > 65536)
    return refuse(module, symbol, "expected a chunk of 16 to 65536 tokens, a multiple of 16, found " + Twine(p.chunk));
  if (p.window < 0) return refuse(module, symbol, "expected a window of at least 0 tokens, found " + Twine(p.window));
  if (p.quantize && p.valueDim % 32)
    return refuse(module, symbol, "a quantized output needs a value size that is a multiple of 32, found " + Twine(p.valueDim));
  if (p.form != AttentionParams::whole && p.maxChunks < 1)
    return refuse(module, symbol, "expected room for at least one chunk in the partials, found " + Twine(p.maxChunks));
  return success();
}

LogicalResult emitAttention(ModuleOp module, StringRef symbol, const AttentionParams &p, const Chip &chip) {
  if (failed(checkAttention(module, symbol, p))) return failure();
  if (!headsPerBlock(p))
    return refuse(module, symbol, "unsupported: a head with chunks of " + Twine(p.chunk) + " needs " + Twine(sharedBytes(p, 1)) +
                                      " bytes of shared memory, expected at most " + Twine(sharedLimit));
  Attention e(module, symbol, p, chip);
  switch (p.form) {
  case AttentionParams::whole: e.whole(); break;
  case AttentionParams::split: e.split(); break;
  case AttentionParams::combine: e.combine(); break;
  }
  e.finish();
  return success();
}

LaunchShape launchShape(const AttentionParams &p) {
  LaunchShape s;
  s.threads = blockThreads;
  int64_t heads = std::max<int64_t>(headsPerBlock(p), 1);
  s.count = p.qHeads / heads * (p.form == AttentionParams::split ? p.maxChunks : 1);
  return s;
}

} // namespace lathe::codegen::nvptx
