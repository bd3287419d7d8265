//===- EmulatedWgmmaTest.cpp - matmuls by wgmma in the emulator ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// float64 within the documented bound, the same bits for every number of rows and every tile: alone, in clusters, and segment after segment.
//===----------------------------------------------------------------------===//
#include "MatmulProblem.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::nvptx;
using namespace lathe::codegen::nvptx::test;
using lathe::codegen::test::fullGrid;
using lathe::codegen::test::sameBytes;
using nvptx::test::job;

namespace {

const Chip &hopper() { return *findChip("sm_90a"); }

MmaParams wgmma(StorageType type, int64_t n, int64_t k, int64_t segments, ActFormat act = ActFormat::bf16) {
  MmaParams p = shape(type, act, n, k);
  p.wgmma = true, p.kSegments = segments;
  return p;
}

/// The first rows of the output.
void expectClose(const Problem &t, const Buffer &out, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < t.p.n; ++n) {
      auto [want, size] = t.real(r, n);
      double lost = t.p.act == ActFormat::e4m3 ? t.lostBy14Bits(r, n) : 0;
      ASSERT_NEAR(out.as<float>()[r * t.p.outStride + n], want, 1e-6 * size + 1e-6 + lost) << "row " << r << " output " << n;
    }
}

struct Case {
  MmaParams p;
  std::vector<int64_t> tiles;
};

void areCloseToFloat64AndDoNotDependOnTheBatch(const std::vector<Case> &cases) {
  std::vector<PtxJob> jobs;
  auto name = [](size_t i, int64_t tile) { return "k" + std::to_string(i) + "_" + std::to_string(tile); };
  for (size_t i = 0; i < cases.size(); ++i)
    for (int64_t tile : cases[i].tiles) {
      MmaParams p = cases[i].p;
      p.rowTile = tile;
      jobs.push_back(job(name(i, tile), p, nvptx::emitMatmul));
    }
  Machine machine(jobs, hopper());
  ASSERT_TRUE(machine);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("type " + std::to_string(int(cases[i].p.type)));
    Problem t(cases[i].p, 21, uint32_t(i));
    auto run = [&](int64_t tile, int64_t rows) {
      MmaParams p = cases[i].p;
      p.rowTile = tile;
      return t.run(machine, name(i, tile), p, rows);
    };
    Buffer all = run(128, 21);
    expectClose(t, all, 21);
    for (int64_t tile : cases[i].tiles)
      for (int64_t rows : {1, 21}) {
        if (tile == 128 || (rows == 1 && tile > 8)) continue;
        Buffer some = run(tile, rows);
        ASSERT_TRUE(sameBytes(some.data(), all.data(), size_t(rows * cases[i].p.outStride * 4))) << "tile " << tile << ", " << rows << " rows";
      }
  }
}

TEST(EmulatedWgmma, IsCloseToFloat64AndDoesNotDependOnTheBatch) {
  std::vector<Case> cases;
  for (StorageType type : allTypes) {
    int64_t segments = int64_t(1) << int(type) % 3;
    // Five tiles and a half: a warpgroup with tiles that do not exist. Three runs of K in two segments; four, or one, in four.
    MmaParams p = wgmma(type, 88, segments == 2 ? 768 : 256 * segments, segments);
    p.bias = int(type) % 2, p.residual = int(type) % 3 == 0;
    bool usual = type == StorageType::bf16 || type == StorageType::q4_0 || type == StorageType::q4_1 || type == StorageType::q2_k || type == StorageType::int8;
    std::vector<int64_t> tiles{8, 128};
    if (usual) tiles = {8, 32, 64, 128};
    if (fullGrid()) tiles = {8, 16, 32, 64, 128};
    cases.push_back({p, tiles});
  }
  areCloseToFloat64AndDoNotDependOnTheBatch(cases);
}

/// Products of 8-bit floats: alone, in a cluster and segment after segment, in every tile.
TEST(EmulatedWgmma, E4m3ActivationsAreCloseToFloat64AndDoNotDependOnTheBatch) {
  std::vector<Case> cases;
  for (int64_t segments : {1, 2, 4}) {
    MmaParams p = wgmma(StorageType::e4m3, 88, segments == 2 ? 768 : 256 * segments, segments, ActFormat::e4m3);
    p.bias = segments == 2, p.residual = segments == 4;
    cases.push_back({p, {8, 16, 32, 64, 128}});
  }
  areCloseToFloat64AndDoNotDependOnTheBatch(cases);
}

/// Sums of wgmma have other bits than those of mma.sync here, so kernels of both for one weight would not go unnoticed; an operand read as the other 8-bit
/// float, or without its swizzle, is far from float64.
TEST(EmulatedWgmma, MutantsOfE4m3ProductsAreSeen) {
  MmaParams p = wgmma(StorageType::e4m3, 64, 256, 1, ActFormat::e4m3), other = p;
  other.wgmma = false;
  auto replaced = [](std::string &ptx, const std::string &from, const std::string &to) {
    int64_t changed = 0;
    for (size_t at = 0; (at = ptx.find(from, at)) != std::string::npos; at += to.size(), ++changed) ptx.replace(at, from.size(), to);
    EXPECT_GT(changed, 0) << from;
  };
  Problem t(p, 8, 1);
  auto near = [&](const Buffer &out) {
    bool near = true;
    for (int64_t r = 0; r < 8; ++r)
      for (int64_t n = 0; n < p.n; ++n) near &= std::fabs(out.as<float>()[r * p.outStride + n] - t.real(r, n).first) <= t.lostBy14Bits(r, n) + 1e-6; // NaN is not
    return near;
  };
  auto run = [&](const std::function<void(std::string &)> &mutate, const MmaParams &q) {
    Machine machine({job("k", q, nvptx::emitMatmul)}, hopper(), mutate);
    EXPECT_TRUE(machine);
    return t.run(machine, "k", q, 8);
  };
  Buffer good = run({}, p), mixed = run({}, other);
  EXPECT_TRUE(near(good));
  EXPECT_TRUE(near(mixed));
  EXPECT_FALSE(sameBytes(good.data(), mixed.data(), good.size()));
  for (const char *types : {".f32.e5m2.e4m3", ".f32.e4m3.e5m2"}) EXPECT_FALSE(near(run([&](std::string &ptx) { replaced(ptx, ".f32.e4m3.e4m3", types); }, p))) << types;
  const std::string mode32 = std::to_string(int64_t(3ull << 62 | 64ull << 32 | 1ull << 16)), plain = std::to_string(int64_t(64ull << 32 | 1ull << 16));
  EXPECT_FALSE(near(run([&](std::string &ptx) { replaced(ptx, mode32, plain); }, p)));
}

/// What P1's fuzz relies on: a row alone by mma.sync and in a batch by wgmma has other bits here, though both are near float64. So a bucket whose kernel is of
/// the other family would be seen. The same rows by one family have the same bits. Inputs of many sizes: a group's sums of 4-bit codes times bf16 of like
/// size are exact in every family.
TEST(EmulatedWgmma, AMixOfFamiliesHasOtherBits) {
  for (auto [type, act] : {std::pair{StorageType::bf16, ActFormat::bf16}, {StorageType::q4_0, ActFormat::bf16}, {StorageType::int8, ActFormat::bf16}, {StorageType::e4m3, ActFormat::e4m3}}) {
    SCOPED_TRACE("type " + std::to_string(int(type)));
    MmaParams few = shape(type, act, 256, 512), many = few;
    few = onChip(few, hopper(), 8), many = onChip(many, hopper(), 128);
    ASSERT_TRUE(few.wgmma && many.wgmma);
    MmaParams other = few;
    other.wgmma = false;
    Machine machine({job("few", few, nvptx::emitMatmul), job("other", other, nvptx::emitMatmul), job("many", many, nvptx::emitMatmul)}, hopper());
    ASSERT_TRUE(machine);
    Problem t(few, 21, uint32_t(type));
    for (size_t i = 0; i < t.x.size(); ++i) t.x[i] = std::ldexp(t.x[i], -int(i * 7 % 20));
    t.act = model::quantize(t.x, 21, few.k, act);
    constexpr int64_t alone = 3;
    Buffer batch = t.run(machine, "many", many, 21), same = t.run(machine, "few", few, alone), mixed = t.run(machine, "other", other, alone);
    const size_t bytes = size_t(alone * few.outStride * 4);
    EXPECT_TRUE(sameBytes(same.data(), batch.data(), bytes));
    EXPECT_FALSE(sameBytes(mixed.data(), batch.data(), bytes));
    expectClose(t, mixed, alone);
    expectClose(t, batch, alone);
  }
}

TEST(EmulatedWgmma, GateAndUpAreCloseToFloat64AndDoNotDependOnTheBatch) {
  struct Gated {
    StorageType type;
    int64_t segments;
    ActFormat act, out;
  };
  for (Gated c : {Gated{StorageType::q4_k, 2, ActFormat::bf16, ActFormat::f32}, {StorageType::q4_0, 1, ActFormat::bf16, ActFormat::bf16},
                  {StorageType::e4m3, 2, ActFormat::e4m3, ActFormat::f32}, {StorageType::e4m3, 1, ActFormat::e4m3, ActFormat::e4m3}}) {
    MmaParams p = wgmma(c.type, 192, 512, c.segments, c.act); // three units: a warpgroup has none
    p.epilogue = MatmulParams::gateUp, p.outAct = c.out;
    std::vector<PtxJob> jobs;
    for (int64_t tile : {8, 128}) {
      p.rowTile = tile;
      jobs.push_back(job("k" + std::to_string(tile), p, nvptx::emitMatmul));
    }
    Machine machine(jobs, hopper());
    ASSERT_TRUE(machine);
    Problem t(p, 11, uint32_t(c.segments));
    auto run = [&](int64_t tile) {
      p.rowTile = tile;
      return t.run(machine, "k" + std::to_string(tile), p, 11);
    };
    Buffer out = run(8), wide = run(128);
    EXPECT_TRUE(sameBytes(out.data(), wide.data(), out.size()));
    if (c.out != ActFormat::f32) continue;
    ActLayout l = actLayout(p.n / 2, p.outAct, p.outHalves);
    for (int64_t r = 0; r < 11; ++r)
      for (int64_t j = 0; j < p.n / 2; ++j) {
        int64_t gateRow = j / 32 * 64 + j % 32;
        auto [gate, gateSize] = t.real(r, gateRow);
        auto [up, upSize] = t.real(r, gateRow + 32);
        double want = gate / (1 + std::exp(-gate)) * up;
        const float *block = reinterpret_cast<const float *>(out.data() + r / 8 * l.blockBytes);
        double gateLost = 2e-6 * gateSize, upLost = 2e-6 * upSize;
        if (c.act == ActFormat::e4m3) gateLost += 1.1 * t.lostBy14Bits(r, gateRow), upLost += 1.1 * t.lostBy14Bits(r, gateRow + 32); // silu's slope is at most 1.1
        ASSERT_NEAR(block[(j / 32 * 8 + r % 8) * 32 + j % 32], want, gateLost * (1 + std::fabs(up)) + upLost * (1 + std::fabs(gate)) + gateLost * upLost + 2e-6) << "row " << r << " output " << j;
      }
  }
}

/// What writes activations and what reads them, by mma.sync too, agree on wgmma's order.
TEST(EmulatedWgmma, ActivationsLieInItsOrder) {
  constexpr int64_t rows = 11, k = 96;
  struct Order {
    ActFormat act;
    std::vector<StorageType> types;
  };
  for (const Order &o : {Order{ActFormat::bf16, {StorageType::q4_1, StorageType::f16}}, {ActFormat::e4m3, {StorageType::e4m3}}}) {
    QuantizeParams quantize;
    quantize.k = quantize.inStride = k, quantize.act = o.act;
    std::vector<PtxJob> jobs{job("quantize", quantize, nvptx::emitQuantize)};
    for (StorageType type : o.types) jobs.push_back(job("matmul" + std::to_string(int(type)), shape(type, o.act, 48, k), nvptx::emitMatmul));
    Machine machine(jobs, hopper());
    ASSERT_TRUE(machine);
    for (StorageType type : o.types) {
      MmaParams p = shape(type, o.act, 48, k);
      Problem t(p, rows, uint32_t(3 + int(type)));
      Buffer x(size_t(rows * k * 4)), out(size_t(actBytes(rows, k, o.act, false)), 0xcd), expected(out.size(), 0xcd);
      std::memcpy(x.data(), t.x.data(), x.size());
      packActivations(t.act, k, o.act, false, expected.data(), true);
      StepData step(rows);
      machine.run("quantize", launchShape(quantize), {&x, &out}, step);
      EXPECT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
      expectClose(t, t.run(machine, "matmul" + std::to_string(int(type)), p, rows), rows);
    }
  }
}

TEST(EmulatedWgmma, OneFamilyForAllRowsOfAWeight) {
  for (MmaParams p : {shape(StorageType::q4_0, ActFormat::bf16, 4096, 4096), shape(StorageType::e4m3, ActFormat::e4m3, 4096, 4096)})
    for (const Chip &chip : chips())
      for (int64_t rows : {1, 8, 9, 16, 33, 64, 65, 512}) {
        MmaParams q = onChip(p, chip, rows);
        EXPECT_EQ(q.wgmma, chip.has(Feature::wgmma)) << chip.name;
        EXPECT_EQ(q.kSegments, q.wgmma ? 4 : 1) << chip.name;
        if (q.wgmma) EXPECT_EQ(q.rowTile, std::min<int64_t>(128, std::max<int64_t>(8, int64_t(llvm::PowerOf2Ceil(uint64_t(rows)))))) << rows;
      }
  for (auto [n, k, act] : {std::tuple{4096, 4128, ActFormat::bf16}, {128, 4096, ActFormat::bf16}, {4096, 4096, ActFormat::int8}, {4096, 4096, ActFormat::f32}})
    for (int64_t rows : {1, 512}) EXPECT_FALSE(onChip(shape(StorageType::q4_0, act, n, k), hopper(), rows).wgmma);
}

TEST(EmulatedWgmma, SaysWhatItCannotDo) {
  auto message = [](MmaParams p, const char *chip = "sm_90a") {
    auto r = buildPtx({job("k", p, nvptx::emitMatmul)}, *findChip(chip), 1);
    return r.ok() ? std::string() : r.status().message();
  };
  const MmaParams good = wgmma(StorageType::q4_0, 64, 512, 2);
  EXPECT_NE(message(good, "sm_100a").find("unsupported: wgmma on sm_100a"), std::string::npos);
  MmaParams p = good;
  p.act = ActFormat::int8;
  EXPECT_NE(message(p).find("expected bf16 or e4m3 activations for wgmma"), std::string::npos);
  // What every family of instructions asks for.
  p = good, p.epilogue = MatmulParams::gateUp, p.n = 96;
  EXPECT_NE(message(p).find("expected a multiple of 64 weight rows for a gate/up epilogue, found 96"), std::string::npos);
  p = good, p.outStride = 32;
  EXPECT_NE(message(p).find("expected an output stride of at least 64, found 32"), std::string::npos);
  p = good, p.k = 544;
  EXPECT_NE(message(p).find("expected a multiple of 256 k for wgmma, found 544"), std::string::npos);
  p = good, p.rowTile = 256;
  EXPECT_NE(message(p).find("expected a row tile of 8, 16, 32, 64 or 128 for wgmma, found 256"), std::string::npos);
  p = good, p.kSegments = 4;
  EXPECT_NE(message(p).find("expected a power of two of 1 to 8 segments, of 256 k at least, for wgmma, found 4"), std::string::npos);
}

} // namespace
