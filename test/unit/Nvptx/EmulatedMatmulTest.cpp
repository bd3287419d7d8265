//===- EmulatedMatmulTest.cpp - matmuls in the emulator ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Integer and f32 activations: the scalar model's bits, which are x86's. bf16 activations: float64 within the documented
// bound, and the same bits whatever rows come along and however many a block takes.
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

struct Case {
  MmaParams p;
  std::string name;
};

void expectBits(const Problem &t, const Buffer &out, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < t.p.n; ++n) {
      float got = out.as<float>()[r * t.p.outStride + n], want = t.exact(r, n);
      ASSERT_EQ(model::toBits(got), model::toBits(want)) << "row " << r << " output " << n << ": " << got << " instead of " << want;
    }
}

TEST(EmulatedMatmul, IntegerAndFloat32ActivationsHaveTheModelsBits) {
  std::vector<Case> cases;
  for (StorageType type : allTypes)
    for (ActFormat act : allActs) {
      PackedLayout l = packedLayout(type);
      if (sumsInHardware(act) || (l.isFloat() && isInt8(act))) continue;
      if (!fullGrid() && act == ActFormat::f32 && int(type) % 4 && !l.e4m3) continue;
      // One whole block and a rest of a group and a half; n in more tiles than a block has.
      MmaParams p = shape(type, act, act == ActFormat::int8 ? 88 : 32, l.blockK + 52);
      p.bias = int(type) % 2, p.residual = int(type) % 3 == 0, p.outRows = int(type) % 5 == 0;
      p.rowTile = int(type) % 2 ? 8 : 16;
      cases.push_back({p, "k" + std::to_string(cases.size())});
    }
  std::vector<PtxJob> jobs;
  for (const Case &c : cases) jobs.push_back(job(c.name, c.p, nvptx::emitMatmul));
  for (const Chip *chip : emulatedChips()) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(std::string(chip->name) + " type " + std::to_string(int(cases[i].p.type)) + " act " + std::to_string(int(cases[i].p.act)));
      Problem t(cases[i].p, 19, uint32_t(i));
      for (int64_t rows : {1, 19}) expectBits(t, t.run(machine, cases[i].name, cases[i].p, rows), rows);
    }
  }
}

void areCloseToFloat64AndDoNotDependOnTheBatch(std::vector<Case> cases, const std::vector<const Chip *> &chips) {
  std::vector<PtxJob> jobs;
  for (Case &c : cases)
    for (int64_t tile : {8, 16, 32}) {
      c.p.rowTile = tile;
      jobs.push_back(job(c.name + "_" + std::to_string(tile), c.p, nvptx::emitMatmul));
    }
  for (const Chip *chip : chips) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(std::string(chip->name) + " type " + std::to_string(int(cases[i].p.type)));
      Problem t(cases[i].p, 21, uint32_t(i));
      MmaParams p = cases[i].p;
      auto run = [&](int64_t tile, int64_t rows) {
        p.rowTile = tile;
        return t.run(machine, cases[i].name + "_" + std::to_string(tile), p, rows);
      };
      Buffer all = run(8, 21);
      for (int64_t r = 0; r < 21; ++r)
        for (int64_t n = 0; n < p.n; ++n) {
          auto [want, size] = t.real(r, n);
          // Sums of an mma are rounded by up to 2 units of float32 of their largest term (docs/exactness.md), then one
          // or two fma a group.
          double lost = p.act == ActFormat::e4m3 && chip->has(Feature::fp8) ? t.lostBy14Bits(r, n) : 0;
          ASSERT_NEAR(all.as<float>()[r * p.outStride + n], want, 1e-6 * size + 1e-6 + lost) << "row " << r << " output " << n;
        }
      for (auto [tile, rows] : {std::pair<int64_t, int64_t>{16, 21}, {32, 21}, {8, 3}, {32, 3}}) {
        Buffer some = run(tile, rows);
        ASSERT_TRUE(sameBytes(some.data(), all.data(), size_t(rows * p.outStride * 4))) << "tile " << tile << ", " << rows << " rows";
      }
    }
  }
}

TEST(EmulatedMatmul, Bf16ActivationsAreCloseToFloat64AndDoNotDependOnTheBatch) {
  std::vector<Case> cases;
  for (StorageType type : allTypes) {
    int64_t segments = int64_t(1) << int(type) % 4; // of four groups, some of none; the last has two groups more
    MmaParams p = shape(type, ActFormat::bf16, 48, segments > 1 ? 564 : packedLayout(type).blockK + 52);
    p.bias = int(type) % 2, p.residual = int(type) % 3 == 0, p.kSegments = segments;
    cases.push_back({p, "k" + std::to_string(cases.size())});
  }
  areCloseToFloat64AndDoNotDependOnTheBatch(std::move(cases), emulatedChips());
}

/// By mma.sync of 8-bit floats, and on chips without by that of bf16 on the same numbers.
TEST(EmulatedMatmul, E4m3ActivationsAreCloseToFloat64AndDoNotDependOnTheBatch) {
  std::vector<Case> cases;
  for (int64_t segments : {1, 4}) {
    MmaParams p = shape(StorageType::e4m3, ActFormat::e4m3, 48, segments > 1 ? 564 : 116);
    p.bias = segments == 1, p.residual = segments == 4, p.kSegments = segments;
    cases.push_back({p, "k" + std::to_string(segments)});
  }
  std::vector<const Chip *> chips = fp8Chips();
  chips.push_back(emulatedChips().front());
  ASSERT_NE(chips.front()->has(Feature::fp8), chips.back()->has(Feature::fp8));
  areCloseToFloat64AndDoNotDependOnTheBatch(std::move(cases), chips);
}

/// The same kernel with an operand read as the other 8-bit float is far from float64.
TEST(EmulatedMatmul, MutantsOfE4m3ProductsAreFarFromFloat64) {
  MmaParams p = shape(StorageType::e4m3, ActFormat::e4m3, 16, 64);
  for (const char *types : {"e4m3.e4m3", "e5m2.e4m3", "e4m3.e5m2"}) {
    SCOPED_TRACE(types);
    int64_t changed = 0;
    auto mutate = [&](std::string &ptx) {
      for (size_t at = 0; (at = ptx.find(".f32.e4m3.e4m3.f32", at)) != std::string::npos; ++at, ++changed) ptx.replace(at + 5, 9, types);
    };
    Machine machine({job("k", p, nvptx::emitMatmul)}, *fp8Chips().front(), mutate);
    ASSERT_TRUE(machine);
    ASSERT_GT(changed, 0);
    Problem t(p, 3, 1);
    Buffer out = t.run(machine, "k", p, 3);
    bool near = true;
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t n = 0; n < p.n; ++n) near &= std::fabs(out.as<float>()[r * p.outStride + n] - t.real(r, n).first) <= t.lostBy14Bits(r, n) + 1e-6; // NaN is not
    EXPECT_EQ(near, std::string(types) == "e4m3.e4m3");
  }
}

TEST(EmulatedMatmul, GateAndUpBecomeActivations) {
  std::vector<Case> cases;
  for (auto [type, act, outAct] : {std::tuple{StorageType::q4_0, ActFormat::int8, ActFormat::int8}, {StorageType::q4_1, ActFormat::int8z, ActFormat::bf16},
                                   {StorageType::q6_k, ActFormat::int8, ActFormat::int8z}, {StorageType::f16, ActFormat::f32, ActFormat::f32}}) {
    MmaParams p = shape(type, act, 192, packedLayout(type).blockK + 20);
    p.epilogue = MatmulParams::gateUp, p.outAct = outAct, p.outHalves = outAct == ActFormat::int8z;
    p.activation = cases.size() % 2 ? Activation::geluTanh : Activation::silu;
    p.rowTile = cases.size() == 1 ? 16 : 8;
    cases.push_back({p, "k" + std::to_string(cases.size())});
  }
  std::vector<PtxJob> jobs;
  for (const Case &c : cases) jobs.push_back(job(c.name, c.p, nvptx::emitMatmul));
  for (const Chip *chip : emulatedChips()) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < cases.size(); ++i) {
      const MmaParams &p = cases[i].p;
      SCOPED_TRACE(std::string(chip->name) + " case " + std::to_string(i));
      Problem t(p, 11, uint32_t(i));
      Buffer out = t.run(machine, cases[i].name, p, 11), expected(out.size(), 0xcd);
      for (int64_t r = 0; r < 11; ++r) {
        std::vector<float> y;
        for (int64_t j = 0; j < p.n / 2; ++j) {
          int64_t gate = j / 32 * 64 + j % 32;
          y.push_back(model::activation(p.activation, t.exact(r, gate)) * t.exact(r, gate + 32));
        }
        packRow(expected.data(), p.n / 2, p.outAct, p.outHalves, r, y.data(), machine.chip().has(Feature::wgmma));
      }
      ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
    }
  }
}

TEST(EmulatedMatmul, GateAndUpInSegmentsAreCloseToFloat64AndDoNotDependOnTheBatch) {
  for (int64_t segments : {2, 4}) {
    MmaParams p = shape(segments == 2 ? StorageType::q4_1 : StorageType::int8, ActFormat::bf16, 128, 564);
    p.epilogue = MatmulParams::gateUp, p.outAct = ActFormat::f32, p.kSegments = segments;
    std::vector<PtxJob> jobs;
    for (int64_t tile : {8, 32}) {
      p.rowTile = tile;
      jobs.push_back(job("k" + std::to_string(tile), p, nvptx::emitMatmul));
    }
    for (const Chip *chip : emulatedChips()) {
      SCOPED_TRACE(std::string(chip->name) + ", " + std::to_string(segments) + " segments");
      Machine machine(jobs, *chip);
      ASSERT_TRUE(machine);
      Problem t(p, 11, uint32_t(segments));
      auto run = [&](int64_t tile) {
        p.rowTile = tile;
        return t.run(machine, "k" + std::to_string(tile), p, 11);
      };
      Buffer out = run(8), wide = run(32);
      EXPECT_TRUE(sameBytes(out.data(), wide.data(), out.size()));
      ActLayout l = actLayout(p.n / 2, p.outAct, p.outHalves);
      for (int64_t r = 0; r < 11; ++r)
        for (int64_t j = 0; j < p.n / 2; ++j) {
          int64_t gateRow = j / 32 * 64 + j % 32;
          auto [gate, gateSize] = t.real(r, gateRow);
          auto [up, upSize] = t.real(r, gateRow + 32);
          double want = gate / (1 + std::exp(-gate)) * up;
          const float *block = reinterpret_cast<const float *>(out.data() + r / 8 * l.blockBytes);
          ASSERT_NEAR(block[(j / 32 * 8 + r % 8) * 32 + j % 32], want, 2e-6 * (gateSize * (1 + std::fabs(up)) + upSize * (1 + std::fabs(gate)) + 1))
              << "row " << r << " output " << j;
        }
    }
  }
}

TEST(EmulatedMatmul, SegmentsFollowTheShapeOfTheWeight) {
  auto segments = [](int64_t n, int64_t k, ActFormat act = ActFormat::bf16, bool gated = false) {
    MmaParams p = shape(StorageType::q4_0, act, n, k);
    if (gated) p.epilogue = MatmulParams::gateUp;
    return segmentsOfK(p);
  };
  EXPECT_EQ(segments(4096, 4096), 8);
  EXPECT_EQ(segments(4096, 4096, ActFormat::int8), 1);
  EXPECT_EQ(segments(4096, 4096, ActFormat::f32), 1);
  EXPECT_EQ(segments(4096, 4096, ActFormat::e4m3), 8);
  EXPECT_EQ(segments(28672, 4096, ActFormat::bf16, true), 2);
  EXPECT_EQ(segments(4096, 4096, ActFormat::bf16, true), 4);
  EXPECT_EQ(segments(128256, 4096), 1);
  EXPECT_EQ(segments(576, 576), 2);
  EXPECT_EQ(segments(64, 64), 1);
}

} // namespace
