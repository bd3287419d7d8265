//===- Wgmma.cpp - weights times activations on wgmma ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "cp.async.bulk", "mbarrier". A warp of the block copies, warpgroups of four warps
// multiply. Weights are the A operand, from registers: four tiles of the file's packing are a warpgroup's 64 rows, so a warp dequantizes its tile from
// shared memory with the code of the mma.sync kernel. Tokens are B, from shared memory: activations lie as B wants them (Layout.h). So all copies are
// plain runs of bytes and no tensor map is needed: nothing has to be swizzled on its way. With e4m3 activations codes are the A operand as they are.
// Order of sums: docs/exactness.md, "GPU".
//===----------------------------------------------------------------------===//
#include "NVPTX/Wgmma.h"
#include "NVPTX/MatmulEmitter.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace lathe::codegen::nvptx {

WgmmaGeometry wgmmaGeometry(const MmaParams &p) {
  PackedLayout w = packedLayout(p.type);
  ActLayout a = actLayout(p.k, p.act, p.halves);
  static_assert(actLayout(256, ActFormat::e4m3, true).sums == 1); // what scales are as far apart as, and all that lies between
  WgmmaGeometry g;
  const bool prompt = p.rowTile > 64;
  g.cluster = prompt ? 1 : p.kSegments;
  g.warpgroups = g.cluster > 1 ? 1 : 2;
  if (prompt) g.producerThreads = 128;
  g.weightK = w.blockK == 256 ? 256 : w.floatBytes ? 64 : 128;
  g.tokenK = w.floatBytes ? 64 : 128;
  g.tileBytes = g.weightK / w.blockK * w.blockBytes;
  g.weightStage = 4 * g.warpgroups * g.tileBytes;
  const int64_t groups = g.tokenK / 32;
  g.tokenStage = p.rowTile * g.tokenK * a.elementBytes;
  g.metaStage = w.min || p.act == ActFormat::e4m3 ? p.rowTile / actBlockRows * groups * a.sums * 32 : 0;
  const int64_t sums = p.kSegments > 1 ? p.rowTile / 2 * 128 * g.warpgroups * 4 : 0;
  // A prompt's block has a multiprocessor for itself, two blocks or four of a small step share one.
  const int64_t room = prompt ? (226 << 10) - sums : g.cluster > 1 ? 48 << 10 : 96 << 10;
  const int64_t tokenBytes = g.tokenStage + g.metaStage;
  g.weightStages = std::clamp<int64_t>(room / (g.weightStage + g.weightK / g.tokenK * tokenBytes), 2, 8);
  g.tokenStages = std::clamp<int64_t>((room - g.weightStages * g.weightStage) / tokenBytes, 2, 8);
  g.weightAt = g.tokenStages * g.tokenStage;
  g.metaAt = g.weightAt + g.weightStages * g.weightStage;
  g.sumAt = g.metaAt + g.tokenStages * g.metaStage;
  g.barrierAt = g.sumAt + sums;
  g.bytes = g.barrierAt + 16 * (g.weightStages + g.tokenStages) + 16;
  if (p.epilogue == MatmulParams::gateUp) g.bytes = std::max(g.bytes, g.warpgroups * p.rowTile * MatmulEmitter::gateStride * 4);
  return g;
}

LaunchShape wgmmaShape(const MmaParams &p) {
  WgmmaGeometry g = wgmmaGeometry(p);
  LaunchShape s;
  s.threads = g.threads(), s.sharedBytes = g.bytes;
  s.count = ((p.n + 15) / 16 + 4 * g.warpgroups - 1) / (4 * g.warpgroups) * g.cluster;
  s.items = ItemKind::perRowBlock, s.itemRows = p.rowTile;
  return s;
}

MmaParams onChip(MmaParams p, const Chip &chip, int64_t bucketRows) {
  if (!chip.has(Feature::wgmma) || !sumsInHardware(p.act) || p.k % wgmmaRun || p.n < 256 || p.epilogue == MatmulParams::argmax) return p;
  p.wgmma = true;
  p.rowTile = 8;
  while (p.rowTile < 128 && p.rowTile < bucketRows) p.rowTile *= 2;
  // Four warpgroups on each of 132 multiprocessors, with 1,024 k each at least: prompts pay for segments.
  const int64_t tiles = (p.n + 63) / 64;
  p.kSegments = 1;
  while (p.kSegments < 8 && tiles * p.kSegments < 512 && p.k / wgmmaRun >= 8 * p.kSegments) p.kSegments *= 2;
  return p;
}

LogicalResult verifyWgmma(ModuleOp module, StringRef symbol, const MmaParams &p) {
  auto fail = [&](const Twine &message) { return refuse(module, symbol, message); };
  if (!sumsInHardware(p.act)) return fail("expected bf16 or e4m3 activations for wgmma");
  if (p.k % wgmmaRun) return fail("expected a multiple of " + Twine(wgmmaRun) + " k for wgmma, found " + Twine(p.k));
  if (p.rowTile < 8 || p.rowTile > 128 || !llvm::isPowerOf2_64(p.rowTile)) return fail("expected a row tile of 8, 16, 32, 64 or 128 for wgmma, found " + Twine(p.rowTile));
  if (p.kSegments < 1 || p.kSegments > 8 || !llvm::isPowerOf2_64(p.kSegments) || p.kSegments > p.k / wgmmaRun)
    return fail("expected a power of two of 1 to 8 segments, of " + Twine(wgmmaRun) + " k at least, for wgmma, found " + Twine(p.kSegments));
  return success();
}

namespace {

struct Wgmma : MatmulEmitter {
  const WgmmaGeometry s;
  const int64_t consumers; ///< warps
  const bool floats8;      ///< products of e4m3 by e4m3, a group each
  const int64_t groupBytes; ///< of 8 rows of activations
  Value shared, base;      ///< the block's dynamic shared memory, as a pointer and as an i32
  Value unit, rank;        ///< of 64 rows a warpgroup; the block's place in its cluster
  Value rankZero;

  Wgmma(ModuleOp m, StringRef symbol, const MmaParams &p, const Chip &chip)
      : MatmulEmitter(m, symbol, p, chip, wgmmaGeometry(p).threads(), 4 * wgmmaGeometry(p).warpgroups, wgmmaGeometry(p).cluster), s(wgmmaGeometry(p)), consumers(4 * s.warpgroups),
        floats8(p.act == ActFormat::e4m3), groupBytes(actBlockRows * 32 * a.elementBytes) {
    if (s.cluster > 1) setCluster(s.cluster);
    shared = dynamicSharedMemory(1024);
    base = LLVM::PtrToIntOp::create(b, loc, i32, shared);
    // Blocks of a panel of eight units and all tokens follow each other: while they run, both fit in the L2.
    constexpr int64_t panel = 8;
    const int64_t units = wgmmaShape(p).count / s.cluster;
    Value index = divc(block, s.cluster), rowBlocks = divc(addc(rows, p.rowTile - 1), p.rowTile);
    rank = remc(block, s.cluster);
    Value first = mulc(divu(index, mulc(rowBlocks, panel)), panel), within = remu(index, mulc(rowBlocks, panel));
    Value width = mins(c(panel), sub(c(units), first));
    unit = add(first, remu(within, width)), rowBlock = divu(within, width);
  }

  //===-- rings ----------------------------------------------------------------------------------===//
  struct Ring {
    int64_t stages, full, empty; ///< offsets of barriers
  };
  Ring weightRing() const { return {s.weightStages, s.barrierAt, s.barrierAt + 8 * s.weightStages}; }
  Ring tokenRing() const {
    int64_t at = s.barrierAt + 16 * s.weightStages;
    return {s.tokenStages, at, at + 8 * s.tokenStages};
  }
  /// A place in a ring: the stage, and the parity of the phase to wait for; both i32.
  struct Place {
    Value stage, parity;
  };
  Place next(const Ring &r, Place at) {
    Value stage = addc(at.stage, 1), wraps = eq(stage, r.stages);
    return {select(wraps, ci(i32, 0), stage), select(wraps, xori(at.parity, ci(i32, 1)), at.parity)};
  }
  Value barrierOf(int64_t first, Value stage) { return addc(add(base, shl(stage, 3)), first); }
  void wait(int64_t first, Place at) {
    ptx("{\n\t.reg .pred p;\nAGAIN:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n\t@p bra DONE;\n\tbra AGAIN;\nDONE:\n\t}", {}, {barrierOf(first, at.stage), at.parity}, "r,r");
  }
  /// One arrival a warp.
  void release(int64_t empty, Value stage) {
    syncWarp();
    when(eq(lane32, 0), [&] { ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", {}, {barrierOf(empty, stage)}, "r"); });
  }
  /// Where the block's place waits for the end: registers are scarce in between.
  Value placeAt(int64_t i) { return gepc(shared, s.barrierAt + 16 * (s.weightStages + s.tokenStages) + 4 * i); }
  void recallPlace() {
    auto recall = [&](int64_t i) { return zext(i64, ld(i32, placeAt(i), 0, 4)); };
    unit = recall(0), rowBlock = recall(1), rows = recall(2);
  }

  void initBarriers() {
    when(eq(tid, 0), [&] {
      for (auto [i, v] : llvm::enumerate(Values{unit, rowBlock, rows})) st(trunc(i32, v), placeAt(int64_t(i)), 0, 4);
      for (Ring r : {weightRing(), tokenRing()})
        for (int64_t i = 0; i < r.stages; ++i) {
          ptx("mbarrier.init.shared::cta.b64 [$0], 1;", {}, {addc(base, r.full + 8 * i)}, "r");
          ptx("mbarrier.init.shared::cta.b64 [$0], " + Twine(consumers) + ";", {}, {addc(base, r.empty + 8 * i)}, "r");
        }
      ptx("fence.mbarrier_init.release.cluster;", {}, {}, "");
      ptx("fence.proxy.async;", {}, {}, "");
    });
    barrier();
  }

  //===-- the producer ---------------------------------------------------------------------------===//
  void copy(Value to, Value from, int64_t bytes, Value full) {
    Value address = LLVM::PtrToIntOp::create(b, loc, i64, from);
    ptx("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", {}, {to, address, ci(i32, bytes), full}, "r,l,r,r");
  }
  /// Waits until the stage is free and says how many bytes will come; then every lane may copy a piece.
  Value open(const Ring &r, Place at, int64_t bytes) {
    wait(r.empty, at);
    Value full = barrierOf(r.full, at.stage);
    when(eq(lane32, 0), [&] { ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", {}, {full, ci(i32, bytes)}, "r,r"); });
    syncWarp();
    return full;
  }
  Value offset32(Value stage, int64_t stride, int64_t at) { return addc(add(base, mulc(stage, stride)), at); }

  void produce(Value first, Value last) {
    const int64_t tiles = (p.n + 15) / 16, perStage = s.weightK / s.tokenK, groups = s.tokenK / 32;
    Value tile = mins(add(mulc(unit, consumers), lane), c(tiles - 1));
    Value weights = at(arg(1), tile, packedTileBytes(p.type, p.k));
    // A block of 8 rows that the step does not have is another time the last one: its columns are not stored.
    Value blocks = shru(addc(rows, actBlockRows - 1), 3);
    Value rowsAt = at(arg(0), mins(add(mulc(rowBlock, tokens), andc(lane, 15)), addc(blocks, -1)), a.blockBytes);
    Value start = ci(i32, 0), free = ci(i32, 1);
    loop(first, last, 1, {start, free, start, free}, [&](Value i, ValueRange now) {
      Place w{now[0], now[1]}, t{now[2], now[3]};
      Value full = open(weightRing(), w, s.weightStage);
      when(ltS(lane, c(consumers)), [&] {
        copy(add(offset32(w.stage, s.weightStage, s.weightAt), trunc(i32, mulc(lane, s.tileBytes))), gep(weights, mulc(i, s.tileBytes)), s.tileBytes, full);
      });
      for (int64_t j = 0; j < perStage; ++j) {
        Value g = mulc(addc(mulc(i, perStage), j), groups);
        full = open(tokenRing(), t, s.tokenStage + s.metaStage);
        when(ltS(lane, c(tokens)), [&] {
          copy(add(offset32(t.stage, s.tokenStage, s.tokenAt), trunc(i32, mulc(lane, groups * groupBytes))), gep(rowsAt, mulc(g, groupBytes)), groups * groupBytes, full);
        });
        if (s.metaStage) {
          const int64_t bytes = groups * a.sums * 32;
          Value which = addc(lane, -16);
          when(andi(leS(c(0), which), ltS(which, c(tokens))), [&] {
            copy(add(offset32(t.stage, s.metaStage, s.metaAt), trunc(i32, mulc(which, bytes))), gepc(gep(rowsAt, mulc(g, a.sums * 32)), floats8 ? a.scale : a.fsum), bytes, full);
          });
        }
        t = next(tokenRing(), t);
      }
      w = next(weightRing(), w);
      return Values{w.stage, w.parity, t.stage, t.parity};
    });
  }

  //===-- consumers ------------------------------------------------------------------------------===//
  /// A chain of products that goes into the accumulators of its own (quantized weights) or on in those of the segment (float ones).
  struct Term {
    std::vector<Values> a;         ///< A operand of each step of 16 k, of 32 with products of 8-bit floats
    std::vector<int64_t> at;       ///< bytes of its B operand in the stage
    Values ws, m;                  ///< [row of the pair]
    int64_t group = 0, sum = 0;    ///< of the stage of tokens; which of its sums
  };
  using Batch = std::vector<Term>;

  /// |count| groups from |first| on, of the stage of weights at |stage|.
  std::vector<Group> loadGroups(Value stage, int64_t first, int64_t count) {
    std::vector<Group> groups;
    const int64_t perBlock = w.blockK / 32;
    for (int64_t j = first; j < first + count; ++j) groups.push_back(loadWeights(gepc(stage, j / perBlock * w.blockBytes), c(j % perBlock)));
    return groups;
  }
  /// The terms of groups from |first| on.
  Batch dequantize(ArrayRef<Group> groups, int64_t first) {
    Batch batch;
    for (auto [i, r] : llvm::enumerate(groups)) {
      const int64_t group = (first + int64_t(i)) % (s.tokenK / 32);
      if (w.floatBytes) {
        if (batch.empty()) batch.emplace_back();
        for (auto &part : floatParts(r))
          for (int64_t step = 0; step < 2; ++step) batch.back().a.push_back(part[step]), batch.back().at.push_back(group * 512 + 32 * step);
        continue;
      }
      if (floats8) {
        batch.emplace_back();
        batch.back().a = {q.codes(r.raw)}, batch.back().at = {group * groupBytes}, batch.back().group = group;
        continue;
      }
      Values levels;
      for (Value codes : q.codes(r.raw)) levels.append(q.levels(codes)); // [4 registers][2]
      for (int64_t h = 0; h < parts(); ++h) {
        Term t;
        for (int64_t step = usesHalves() ? h : 0; step < (usesHalves() ? h + 1 : 2); ++step) {
          t.a.push_back({levels[4 * step], levels[4 * step + 2], levels[4 * step + 1], levels[4 * step + 3]});
          t.at.push_back(group * 512 + 32 * step);
        }
        if (!w.rowScale) t.ws = {r.scales.ws[2 * h], r.scales.ws[2 * h + 1]};
        if (w.min) t.m = {r.scales.m[2 * h], r.scales.m[2 * h + 1]};
        t.group = group, t.sum = sumOf(h);
        batch.push_back(std::move(t));
      }
    }
    return batch;
  }

  static std::string range(int64_t first, int64_t count) {
    std::string text = "{";
    for (int64_t i = 0; i < count; ++i) text += (i ? ",$" : "$") + std::to_string(first + i);
    return text + "}";
  }
  static std::string repeated(StringRef what, int64_t n) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += (i ? "," : "") + what.str();
    return text;
  }
  static std::string tied(int64_t n) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += (i ? "," : "") + std::to_string(i);
    return text;
  }

  /// Starts a batch: one group of products in flight. |acc|: empty, or what the only chain goes on from. Returns the registers that they will be in.
  Values issue(const Batch &batch, Value tokensAt, ValueRange acc) {
    const int64_t perTerm = 4 * tokens, count = perTerm * int64_t(batch.size());
    Values operands(acc.begin(), acc.end());
    std::string text = "{\n\t.reg .pred first, more;\n\tsetp.ne.b32 first, 0, 0;\n\tsetp.ne.b32 more, 1, 0;\n\twgmma.fence.sync.aligned;\n";
    std::string constraints = repeated("=f", count);
    if (!acc.empty()) constraints += "," + tied(count);
    int64_t at = count + int64_t(acc.size());
    // A swizzle of 64 bytes, of 32 for 8-bit floats: what a row has of a group. 8 rows every so many groups.
    const uint64_t fixed = (floats8 ? 3ull : 2ull) << 62 | uint64_t(s.tokenK / 32 * groupBytes / 16) << 32 | 1ull << 16;
    const std::string types = floats8 ? "k32.f32.e4m3.e4m3 " : "k16.f32.bf16.bf16 ", tail = floats8 ? ", 1, 1;\n" : ", 1, 1, 0;\n"; // bf16: whether B is transposed
    Value descriptor = ori(zext(i64, shru(andc(tokensAt, 0x3ffff), 4)), c(int64_t(fixed)));
    for (auto [which, term] : llvm::enumerate(batch))
      for (size_t step = 0; step < term.a.size(); ++step) {
        text += "\twgmma.mma_async.sync.aligned.m64n" + std::to_string(p.rowTile) + types + range(int64_t(which) * perTerm, perTerm) + ", " + range(at, 4) + ", $" +
                std::to_string(at + 4) + ", " + (step == 0 && acc.empty() ? "first" : "more") + tail;
        operands.append(term.a[step].begin(), term.a[step].end());
        operands.push_back(addc(descriptor, term.at[step] / 16));
        constraints += ",r,r,r,r,l";
        at += 5;
      }
    text += "\twgmma.commit_group.sync.aligned;\n\t}";
    return ptx(text, SmallVector<Type>(size_t(count), f32), operands, constraints);
  }
  /// The registers of all products, when they have arrived.
  Values arrived(ValueRange flying) {
    int64_t n = int64_t(flying.size());
    return ptx("wgmma.wait_group.sync.aligned 0;", SmallVector<Type>(size_t(n), f32), flying, repeated("=f", n) + "," + tied(n));
  }

  /// Adds a batch's sums to the segment's.
  void addTerms(const Batch &batch, ValueRange sums, Value meta, Values &acc) {
    const int64_t groups = s.tokenK / 32;
    for (auto [which, term] : llvm::enumerate(batch))
      for (int64_t n = 0; n < tokens; ++n) {
        Values ofTokens; // the sums of their group, or its scales
        if (s.metaStage) ofTokens = pairAt(gep(gepc(meta, ((n * groups + term.group) * a.sums + term.sum) * 32), shl(fragmentColumn(), 3)), f32);
        for (int64_t i = 0; i < 4; ++i) {
          Value &y = acc[4 * n + i];
          Value sum = sums[4 * tokens * int64_t(which) + 4 * n + i];
          y = floats8 ? fma(sum, ofTokens[i % 2], y) : w.rowScale ? fadd(y, sum) : fma(sum, term.ws[i / 2], y);
          if (w.min) y = fma(term.m[i / 2], ofTokens[i % 2], y);
        }
      }
  }

  /// The products of stages |first| to |last| - 1, from zero; |at|: where both rings are, which goes on.
  Values segment(Value first, Value last, Values &at) {
    const int64_t groups = s.weightK / 32, perTokens = s.tokenK / 32;
    const int64_t batchGroups = w.floatBytes ? (w.floatBytes == 2 && p.type == StorageType::bf16 ? 2 : 1) : std::max<int64_t>(1, (p.rowTile <= 16 ? 4 : 2) / parts());
    Values carried = at;
    carried.append(4 * tokens, cf(0));
    Values result = loop(first, last, 1, carried, [&](Value, ValueRange now) {
      Place wp{now[0], now[1]}, tp{now[2], now[3]};
      Values acc(now.begin() + 4, now.end());
      wait(weightRing().full, wp);
      Value stage = gep(gepc(shared, s.weightAt), add(mulc(zext(i64, wp.stage), s.weightStage), mulc(warp, s.tileBytes)));
      if (!w.floatBytes && p.rowTile >= 64) {
        // ptxas deals unrolled groups over three sets of sums and spills; in a loop there is one beside the accumulators.
        for (int64_t from = 0; from < groups; from += perTokens) {
          wait(tokenRing().full, tp);
          Value tokensAt = offset32(tp.stage, s.tokenStage, s.tokenAt), meta = gep(gepc(shared, s.metaAt), mulc(zext(i64, tp.stage), s.metaStage));
          acc = loop(c(0), c(perTokens), 1, acc, [&](Value g, ValueRange inner) {
            Values sums(inner.begin(), inner.end());
            Value j = addc(g, from);
            const int64_t perBlock = w.blockK / 32;
            Group group = loadWeights(gep(stage, mulc(divc(j, perBlock), w.blockBytes)), remc(j, perBlock));
            for (Term &t : dequantize(group, 0)) // halves one after the other
              addTerms({t}, arrived(issue({t}, add(tokensAt, trunc(i32, mulc(g, groupBytes))), {})), gep(meta, mulc(g, a.sums * 32)), sums);
            return sums;
          });
          release(tokenRing().empty, tp.stage);
          tp = next(tokenRing(), tp);
        }
        release(weightRing().empty, wp.stage);
      } else {
        Batch ready = dequantize(loadGroups(stage, 0, batchGroups), 0);
        for (int64_t j = 0; j < groups; j += batchGroups) {
          if (j % perTokens == 0) wait(tokenRing().full, tp);
          Value tokensAt = offset32(tp.stage, s.tokenStage, s.tokenAt), meta = gep(gepc(shared, s.metaAt), mulc(zext(i64, tp.stage), s.metaStage));
          Batch current = std::move(ready);
          Values flying = issue(current, tokensAt, w.floatBytes ? ValueRange(acc) : ValueRange());
          // While they fly, the next groups are dequantized.
          if (j + batchGroups < groups)
            ready = dequantize(loadGroups(stage, j + batchGroups, batchGroups), j + batchGroups);
          else
            release(weightRing().empty, wp.stage);
          Values sums = arrived(flying);
          if (w.floatBytes)
            acc = sums;
          else
            addTerms(current, sums, meta, acc);
          if ((j + batchGroups) % perTokens == 0) {
            release(tokenRing().empty, tp.stage);
            tp = next(tokenRing(), tp);
          }
        }
      }
      wp = next(weightRing(), wp);
      Values out{wp.stage, wp.parity, tp.stage, tp.parity};
      out.append(acc.begin(), acc.end());
      return out;
    });
    at.assign(result.begin(), result.begin() + 4);
    return Values(result.begin() + 4, result.end());
  }

  Value runStart(Value segment) { return mulc(divc(mulc(segment, p.k / wgmmaRun), p.kSegments), wgmmaRun / s.weightK); }
  Value partial(int64_t i) { return gep(gepc(shared, s.sumAt + 512 * s.warpgroups * i), shl(tid, 2)); }

  /// All segments, one after the other: ((acc0 + acc1) + acc2) + ... of each thread in a place of its own in shared memory.
  Values allSegments() {
    Values at{ci(i32, 0), ci(i32, 0), ci(i32, 0), ci(i32, 0)};
    if (p.kSegments == 1) return segment(c(0), c(p.k / s.weightK), at);
    loop(c(0), c(p.kSegments), 1, at, [&](Value i, ValueRange now) {
      Values here(now.begin(), now.end());
      Values acc = segment(runStart(i), runStart(addc(i, 1)), here);
      auto put = [&](bool add) {
        for (size_t r = 0; r < acc.size(); ++r) st(add ? fadd(ld(f32, partial(int64_t(r)), 0, 4), acc[r]) : acc[r], partial(int64_t(r)), 0, 4);
      };
      ifElse(eq(i, 0), TypeRange(), [&] { put(false); return Values(); }, [&] { put(true); return Values(); });
      return here;
    });
    Values y;
    for (int64_t r = 0; r < 4 * tokens; ++r) y.push_back(ld(f32, partial(r), 0, 4));
    return y;
  }

  void clusterBarrier() {
    syncWarp();
    ptx("barrier.cluster.arrive.release.aligned;", {}, {}, "");
    ptx("barrier.cluster.wait.acquire.aligned;", {}, {}, "");
  }
  /// The block's segment, and in block 0 of the cluster the sum of all in order.
  Values clusterSegments() {
    Values at{ci(i32, 0), ci(i32, 0), ci(i32, 0), ci(i32, 0)};
    Values acc = segment(runStart(rank), runStart(addc(rank, 1)), at);
    when(ltS(c(0), rank), [&] {
      for (size_t r = 0; r < acc.size(); ++r) st(acc[r], partial(int64_t(r)), 0, 4);
    });
    clusterBarrier();
    Values y = ifValues(
        rankZero, SmallVector<Type>(acc.size(), f32),
        [&] {
          Value mine = LLVM::PtrToIntOp::create(b, loc, i32, partial(0));
          return loop(c(1), c(p.kSegments), 1, acc, [&](Value other, ValueRange now) {
            Value theirs = ptx("mapa.shared::cluster.u32 $0, $1, $2;", {i32}, {mine, trunc(i32, other)}, "=r,r,r")[0];
            Values sum;
            for (size_t r = 0; r < acc.size(); ++r)
              sum.push_back(fadd(now[r], ptx("ld.shared::cluster.f32 $0, [$1+" + Twine(512 * s.warpgroups * int64_t(r)) + "];", {f32}, {theirs}, "=f,r")[0]));
            return sum;
          });
        },
        [&] { return acc; });
    clusterBarrier(); // what block 0 has read stands until here
    return y;
  }

  void consume() {
    const int64_t tiles = (p.n + 15) / 16;
    Values y = s.cluster > 1 ? clusterSegments() : allSegments();
    auto finishTile = [&] {
      recallPlace();
      Value tile = add(mulc(unit, consumers), warp);
      if (w.rowScale) {
        Value known = tiles % consumers ? mins(tile, c(tiles - 1)) : tile;
        Values scale = rowScales(at(arg(1), known, packedTileBytes(p.type, p.k)));
        for (int64_t i = 0; i < int64_t(y.size()); ++i) y[i] = fmul(y[i], scale[i % 4 / 2]);
      }
      if (p.epilogue != MatmulParams::gateUp) return when(ltS(tile, c(tiles)), [&] { storeTile(tile, y); });
      // Four warps are a unit of gates and ups. The rings are free when all have come here.
      auto meet = [&] { ptx("bar.sync 1, " + Twine(128 * s.warpgroups) + ";", {}, {}, ""); };
      meet();
      Value sums = gep(shared, mulc(shru(warp, 2), p.rowTile * gateStride * 4));
      putGates(sums, andc(warp, 3), y);
      meet();
      when(ltS(tile, c(tiles)), [&] { storeGates(sums, shru(tile, 2), andc(warp, 3), 4); });
    };
    s.cluster > 1 ? when(rankZero, finishTile) : finishTile();
  }

  void body() {
    initBarriers();
    if (s.cluster > 1) rankZero = eq(rank, 0);
    const bool trade = s.producerThreads == 128; // 168 registers a thread are too few for two sets of sums
    ifElse(
        leS(c(consumers), warp), TypeRange(),
        [&] {
          if (trade) {
            ptx("setmaxnreg.dec.sync.aligned.u32 40;", {}, {}, "");
            when(eq(warp, consumers), [&] { produce(c(0), c(p.k / s.weightK)); });
            return Values();
          }
          if (s.cluster > 1) {
            produce(runStart(rank), runStart(addc(rank, 1)));
            clusterBarrier();
            clusterBarrier();
          } else {
            produce(c(0), c(p.k / s.weightK));
          }
          return Values();
        },
        [&] {
          if (trade) ptx("setmaxnreg.inc.sync.aligned.u32 232;", {}, {}, "");
          consume();
          return Values();
        });
  }
};

} // namespace

LogicalResult emitWgmma(ModuleOp module, StringRef symbol, const MmaParams &p, const Chip &chip) {
  if (!chip.has(Feature::wgmma)) return refuse(module, symbol, "unsupported: wgmma on " + Twine(chip.name));
  if (isForBodies(module)) return refuse(module, symbol, "unsupported: wgmma in a megakernel");
  if (wgmmaGeometry(p).bytes > chip.sharedBytes)
    return refuse(module, symbol, Twine(wgmmaGeometry(p).bytes) + " bytes of shared memory, expected at most " + Twine(chip.sharedBytes));
  Wgmma e(module, symbol, p, chip);
  e.body();
  e.finish();
  return success();
}

} // namespace lathe::codegen::nvptx
