//===- Matmul.cpp - weights times activations on mma.sync ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Weights are the A operand (16 rows a warp), tokens the n dimension (8 a tile), so a row's bits cannot depend on the rows beside
// it, and one instruction family serves every row count. Integer activations: exact dot products of a group, then the
// float steps of docs/exactness.md one by one, the bits of every other target. bf16 activations: docs/exactness.md,
// "GPU". e4m3 activations: a product of a group's 8-bit floats, which its scale multiplies into float32. f32 activations: one thread an output, the order of x86.
//===----------------------------------------------------------------------===//
#include "NVPTX/MatmulEmitter.h"
#include "NVPTX/Wgmma.h"
#include "lathe/Codegen/Operands.h"
#include <vector>

namespace lathe::codegen::nvptx {
namespace {

/// Tiles of 16 weight rows that a block computes, a warp for each segment of K: the four tiles of a unit with gateUp, else as many
/// as make four warps.
int64_t tilesPerBlock(const MmaParams &p) {
  return p.epilogue == MatmulParams::gateUp ? 4 : std::max<int64_t>(1, 4 / p.kSegments);
}
/// Of f32 activations a block has a thread for each output of one tile.
int64_t unitTiles(const MmaParams &p) { return p.act == ActFormat::f32 && p.epilogue != MatmulParams::gateUp ? 1 : tilesPerBlock(p); }
int64_t threadsOf(const MmaParams &p) { return 32 * tilesPerBlock(p) * p.kSegments; }

struct Matmul : MatmulEmitter {
  const int64_t tileCount; ///< of a block
  Value unit;
  Value slot, segment; ///< the warp's tile within the block, and its part of K

  Matmul(ModuleOp m, StringRef symbol, const MmaParams &p, const Chip &chip) : MatmulEmitter(m, symbol, p, chip, threadsOf(p), unitTiles(p)), tileCount(tilesPerBlock(p)) {
    int64_t units = nvptx::launchShape(p).count;
    unit = remc(block, units), rowBlock = divc(block, units);
    slot = remc(warp, tileCount), segment = divc(warp, tileCount);
  }

  /// acc: [token tile][row of the pair][token of the pair].
  void compute(const Group &r, Values &acc) {
    if (isInt8(p.act)) return computeInts(r, acc);
    if (p.act == ActFormat::e4m3) return computeFloats8(r, acc);
    Values zeros(4, cf(0));
    constexpr const char *shape = "m16n8k16.row.col.bf16";
    if (w.floatBytes) { // one chain of mma over all of K
      auto all = floatParts(r);
      for (int64_t n = 0; n < tokens; ++n)
        for (auto &part : all)
          for (int64_t step = 0; step < 2; ++step) {
            Values d = mma(shape, part[step], ValueRange(r.x[n]).slice(2 * step, 2), ValueRange(acc).slice(4 * n, 4));
            std::copy(d.begin(), d.end(), acc.begin() + 4 * n);
          }
      return;
    }
    Values codes = q.codes(r.raw), levels;
    for (Value c : codes) levels.append(q.levels(c)); // [4 registers][2]
    auto operand = [&](int64_t step) { return Values{levels[4 * step], levels[4 * step + 2], levels[4 * step + 1], levels[4 * step + 3]}; };
    Values a0 = operand(0), a1 = operand(1);
    for (int64_t n = 0; n < tokens; ++n) {
      SmallVector<Values> sums;
      Values first = mma(shape, a0, ValueRange(r.x[n]).slice(0, 2), zeros);
      sums.push_back(first);
      Values second = mma(shape, a1, ValueRange(r.x[n]).slice(2, 2), usesHalves() ? zeros : first);
      if (usesHalves())
        sums.push_back(second);
      else
        sums[0] = second;
      for (int64_t h = 0; h < parts(); ++h)
        for (int64_t i = 0; i < 4; ++i) {
          Value &y = acc[4 * n + i];
          y = w.rowScale ? fadd(y, sums[h][i]) : fma(sums[h][i], r.scales.ws[2 * h + i / 2], y);
          if (w.min) y = fma(r.scales.m[2 * h + i / 2], r.meta[n][2 * h + i % 2], y);
        }
    }
  }

  /// acc += scale * product of a group. A chip without products of 8-bit floats takes the same numbers as bf16, in two steps.
  void computeFloats8(const Group &r, Values &acc) {
    Values codes = q.codes(r.raw), levels;
    const bool native = chip.has(Feature::fp8);
    if (!native)
      for (Value c : codes) levels.append(q.levels(c));
    for (int64_t n = 0; n < tokens; ++n) {
      Values sum(4, cf(0));
      if (native) sum = mma("m16n8k32.row.col.f32.e4m3.e4m3.f32", codes, r.x[n], sum);
      for (int64_t step = 0; step < 2 && !native; ++step)
        sum = mma("m16n8k16.row.col.bf16", {levels[4 * step], levels[4 * step + 2], levels[4 * step + 1], levels[4 * step + 3]}, q.levels(r.x[n][step]), sum);
      for (int64_t i = 0; i < 4; ++i) acc[4 * n + i] = fma(sum[i], r.meta[n][i % 2], acc[4 * n + i]);
    }
  }

  void computeInts(const Group &r, Values &acc) {
    Values codes = q.codes(r.raw);
    const bool correct = w.zero && !q.signedCodes(), offsets = p.act == ActFormat::int8z;
    std::string types = q.signedCodes() ? "s8" : "u8.s8";
    std::string whole = "m16n8k32.row.col." + types, half = "m16n8k16.row.col." + types;
    Value zero = ci(i32, 0);
    // Step 1 and 2 for one B operand: scaled float products of the four outputs of a lane.
    auto product = [&](ValueRange x, llvm::function_ref<Values(int64_t h)> start) {
      Values f;
      for (int64_t h = 0; h < parts(); ++h) {
        Values d = usesHalves() ? mma(half, {codes[2 * h], codes[2 * h + 1]}, {x[h]}, start(h)) : mma(whole, codes, x, start(h));
        for (int64_t i = 0; i < 4; ++i) {
          Value v = i2f(d[i]), ws = w.rowScale ? Value() : r.scales.ws[2 * h + i / 2];
          if (h)
            f[i] = fma(v, ws, f[i]);
          else
            f.push_back(ws ? fmul(v, ws) : v);
        }
      }
      return f;
    };
    Values wsum; // step 6: the same for all tokens
    if (offsets) {
      Value ones = ci(i32, 0x01010101);
      Value bias = correct ? ci(i32, -32 / parts() * w.zero) : zero;
      wsum = product({ones, ones}, [&](int64_t) { return Values(4, bias); });
    }
    for (int64_t n = 0; n < tokens; ++n) {
      const Values &m = r.meta[n];
      size_t next = 2;
      Values starts;
      if (correct)
        for (int64_t i = 0; i < 2 * parts(); ++i) starts.push_back(mulc(m[next++], w.zero));
      Values f = product(r.x[n], [&](int64_t h) {
        if (!correct) return Values(4, zero);
        return Values{starts[2 * h], starts[2 * h + 1], starts[2 * h], starts[2 * h + 1]};
      });
      for (int64_t i = 0; i < 4; ++i) {
        Value y = fma(f[i], m[i % 2], acc[4 * n + i]); // 4
        size_t at = next;
        if (w.min) // 5
          for (int64_t h = 0; h < parts(); ++h, at += 2) y = fma(r.scales.m[2 * h + i / 2], m[at + i % 2], y);
        if (offsets) y = fma(wsum[i], m[at + i % 2], y); // 6
        acc[4 * n + i] = y;
      }
    }
  }

  //===-- all of K -------------------------------------------------------------------------------===//
  /// The sums over the warp's segment: runs of four groups are dealt evenly, and the last segment has what is left over.
  Values kLoop(Value tile, Value x) {
    constexpr int64_t run = 4;
    const int64_t perBlock = w.blockK / 32, runs = a.groups / run, whole = runs * run;
    // Groups that are loaded before the first of them is multiplied. A block of 512 threads leaves 128 registers to each.
    const int64_t U = threads > 256 && tokens > 2 ? run / 2 : run;
    auto start = [&](Value i) { return mulc(divc(mulc(i, runs), p.kSegments), run); };
    bool split = p.kSegments > 1;
    Value first = split ? start(segment) : c(0), last = split ? start(addc(segment, 1)) : c(whole);
    Values acc(4 * tokens, cf(0));
    auto step = [&](Value g, int64_t count, ValueRange now) {
      Values next(now.begin(), now.end());
      Value base = gep(tile, mulc(divc(g, perBlock), w.blockBytes)), j0 = remc(g, perBlock);
      std::vector<Group> groups;
      for (int64_t u = 0; u < count; ++u) {
        Value blockAt = perBlock < U ? gepc(base, u / perBlock * w.blockBytes) : base;
        Value j = count == 1 ? j0 : perBlock <= U ? c(u % perBlock) : addc(j0, u);
        groups.push_back(load(blockAt, j, addc(g, u), x));
      }
      for (const Group &r : groups) compute(r, next);
      return next;
    };
    if (whole) acc = loop(first, last, U, acc, [&](Value g, ValueRange now) { return step(g, U, now); });
    Value end = split ? select(eq(segment, p.kSegments - 1), c(a.groups), c(whole)) : c(a.groups);
    if (whole < a.groups) acc = loop(c(whole), end, 1, acc, [&](Value g, ValueRange now) { return step(g, 1, now); });
    return acc;
  }

  /// The sums of all segments, in order, in the warps of segment 0. For all warps of the block: there is a barrier inside.
  Values addSegments(Values acc) {
    const int64_t perWarp = int64_t(acc.size()) * 32;
    Value partials = sharedMemory((p.kSegments - 1) * tileCount * perWarp * 4);
    when(ltS(c(0), segment), [&] {
      Value mine = add(mulc(sub(warp, c(tileCount)), perWarp), lane);
      for (size_t i = 0; i < acc.size(); ++i) stf(acc[i], partials, addc(mine, 32 * int64_t(i)));
    });
    barrier();
    Value mine = add(mulc(slot, perWarp), lane);
    return ifValues(
        eq(segment, 0), SmallVector<Type>(acc.size(), f32),
        [&] {
          Values sum = acc;
          for (int64_t s = 0; s + 1 < p.kSegments; ++s)
            for (size_t i = 0; i < acc.size(); ++i) sum[i] = fadd(sum[i], ldf(partials, addc(mine, s * tileCount * perWarp + 32 * int64_t(i))));
          return sum;
        },
        [&] { return acc; });
  }

  /// What the tile's outputs are before the epilogue. In segments: for all warps of the block, and only those of segment 0 have it.
  Values tileResult(Value tile, Value x) {
    Values acc = kLoop(tile, x);
    if (p.kSegments > 1) acc = addSegments(acc);
    if (!w.rowScale) return acc;
    Values scale = rowScales(tile);
    for (int64_t i = 0; i < int64_t(acc.size()); ++i) acc[i] = fmul(acc[i], scale[i % 4 / 2]);
    return acc;
  }

  void mmaBody() {
    const int64_t tileBytes = packedTileBytes(p.type, p.k), tiles = (p.n + 15) / 16;
    Value tile = add(mulc(unit, tileCount), slot);
    Value x = at(arg(0), mulc(rowBlock, tokens), a.blockBytes);
    if (p.epilogue == MatmulParams::gateUp) return gateUpBody(at(arg(1), tile, tileBytes), x);
    if (p.kSegments == 1) return when(lt(tile, tiles), [&] { storeTile(tile, tileResult(at(arg(1), tile, tileBytes), x)); });
    // A warp whose tile does not exist computes the last one: it has to be at the barrier.
    Values y = tileResult(at(arg(1), tiles % tileCount ? mins(tile, c(tiles - 1)) : tile, tileBytes), x);
    when(andi(eq(segment, 0), lt(tile, tiles)), [&] { storeTile(tile, y); });
  }

  void gateUpBody(Value tile, Value x) {
    Value sums = sharedMemory(p.rowTile * gateStride * 4);
    Values y = tileResult(tile, x);
    auto put = [&] { putGates(sums, slot, y); };
    p.kSegments == 1 ? put() : when(eq(segment, 0), put);
    barrier();
    storeGates(sums, unit, warp, warps());
  }

  //===-- f32 activations ------------------------------------------------------------------------===//
  /// One thread an output: 16 rows x 8 tokens a block; k in order.
  Value scalarDot(Value tile, Value r, Value x, Value token) {
    Value rowScale = q.rowScaleOf(tile, r, p.k), perWeight = w.e4m3 ? Value() : rowScale; // of e4m3 it multiplies the sum
    const int64_t perBlock = w.blockK / 32;
    Value sum = loop(c(0), c(a.groups), 1, {cf(0)}, [&](Value g, ValueRange outer) {
      Value blockAt = gep(tile, mulc(divc(g, perBlock), w.blockBytes)), j = remc(g, perBlock);
      Value xs = gep(x, shl(add(shl(g, 3), token), 7));
      return loop(c(0), c(32), 1, {outer[0]}, [&](Value k, ValueRange now) {
        return Values{fma(q.element(blockAt, j, r, k, perWeight), ldf(xs, k), now[0])};
      });
    })[0];
    return w.e4m3 ? fmul(sum, rowScale) : sum;
  }
  void scalarBody() {
    const int64_t tileBytes = packedTileBytes(p.type, p.k);
    Value r = andc(tid, 15), token = shru(tid, 4), x = at(arg(0), rowBlock, a.blockBytes), row = add(shl(rowBlock, 3), token);
    if (p.epilogue != MatmulParams::gateUp) {
      Value column = add(shl(unit, 4), r);
      Value inside = ltS(row, rows);
      if (p.outStride < rowStride(p.n) && p.n % 16) inside = andi(inside, lt(column, p.n));
      when(inside, [&] { store(scalarDot(at(arg(1), unit, tileBytes), r, x, token), row, column); });
      return;
    }
    Value sums = sharedMemory(8 * 65 * 4);
    for (int64_t t = 0; t < 4; ++t) {
      Value tile = at(arg(1), addc(shl(unit, 2), t), tileBytes);
      stf(scalarDot(tile, r, x, token), sums, add(mulc(token, 65), addc(r, 16 * t)));
    }
    barrier();
    ActLayout out = actLayout(p.n / 2, p.outAct, p.outHalves);
    eachWarp(c(8), [&](Value token) {
      Value row = add(shl(rowBlock, 3), token), at = add(mulc(token, 65), lane);
      when(ltS(row, rows), [&] {
        storeGroup(arg(2), out, p.outAct, row, unit, fmul(activate(*this, p.activation, ldf(sums, at)), ldf(sums, addc(at, 32))));
      });
    });
  }
};

LogicalResult verify(ModuleOp module, StringRef symbol, const MmaParams &p) {
  auto fail = [&](const Twine &message) { return refuse(module, symbol, message); };
  PackedLayout w = packedLayout(p.type);
  if (p.n <= 0 || p.k <= 0) return fail("expected positive n and k, found " + Twine(p.n) + " and " + Twine(p.k));
  if (packedTileBytes(p.type, p.k) > INT32_MAX || actLayout(p.k, p.act, p.halves).blockBytes > INT32_MAX / 4)
    return fail("k = " + Twine(p.k) + " is too large for one tile");
  if (p.epilogue == MatmulParams::argmax) return fail("unsupported: an argmax epilogue on a GPU");
  if (const char *wrong = operandError(p.type, p.act)) return fail(wrong);
  if (w.subK == 16 && (isInt8(p.act) || (w.min && p.act == ActFormat::bf16)) && !p.halves) return fail("expected activations with half sums for scales of 16 k");
  if (p.epilogue == MatmulParams::gateUp) {
    if (p.n % 64) return fail("expected a multiple of 64 weight rows for a gate/up epilogue, found " + Twine(p.n));
    if (p.bias || p.residual) return fail("a gate/up epilogue takes no bias and no residual");
  } else if (p.outStride < p.n)
    return fail("expected an output stride of at least " + Twine(p.n) + ", found " + Twine(p.outStride));
  if (p.wgmma) return verifyWgmma(module, symbol, p);
  if (p.rowTile != 8 && p.rowTile != 16 && p.rowTile != 32) return fail("expected a row tile of 8, 16 or 32, found " + Twine(p.rowTile));
  int64_t most = !sumsInHardware(p.act) ? 1 : p.epilogue == MatmulParams::gateUp ? 4 : 8;
  if (p.kSegments < 1 || p.kSegments > most || !llvm::isPowerOf2_64(p.kSegments))
    return fail("expected a power of two of 1 to " + Twine(most) + " segments of K, found " + Twine(p.kSegments));
  return success();
}

} // namespace

LogicalResult emitMatmul(ModuleOp module, StringRef symbol, const MmaParams &p, const Chip &chip) {
  if (failed(verify(module, symbol, p))) return failure();
  if (p.wgmma) return emitWgmma(module, symbol, p, chip);
  Matmul e(module, symbol, p, chip);
  if (p.act == ActFormat::f32)
    e.scalarBody();
  else
    e.mmaBody();
  e.finish();
  return success();
}

int64_t segmentsOfK(const MatmulParams &p) {
  // A GPU of 132 multiprocessors with 16 warps each reads memory at full speed. Integer and f32 activations keep x86's bits.
  constexpr int64_t enoughWarps = 2048, fewestGroups = 8;
  if (!sumsInHardware(p.act)) return 1;
  int64_t tiles = (p.n + 15) / 16, segments = 1, most = p.epilogue == MatmulParams::gateUp ? 4 : 8;
  while (segments < most && tiles * segments < enoughWarps && (p.k + 31) / 32 >= 2 * segments * fewestGroups) segments *= 2;
  return segments;
}

MmaParams asBody(MmaParams p) {
  while (threadsOf(p) > megakernelThreads && p.kSegments > 1) p.kSegments /= 2;
  return p;
}

LaunchShape launchShape(const MmaParams &p) {
  if (p.wgmma) return wgmmaShape(p);
  LaunchShape s;
  int64_t tiles = (p.n + 15) / 16;
  bool single = p.act == ActFormat::f32 && p.epilogue != MatmulParams::gateUp;
  s.count = single ? tiles : (tiles + tilesPerBlock(p) - 1) / tilesPerBlock(p);
  s.threads = threadsOf(p);
  s.items = ItemKind::perRowBlock;
  s.itemRows = p.act == ActFormat::f32 ? actBlockRows : p.rowTile;
  return s;
}

} // namespace lathe::codegen::nvptx
