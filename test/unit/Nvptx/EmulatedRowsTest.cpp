//===- EmulatedRowsTest.cpp - row kernels in the emulator, bit for bit --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include "RandomWeight.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::nvptx;
using namespace lathe::codegen::nvptx::test;
using lathe::codegen::test::areLargest;
using lathe::codegen::test::argmaxCase;
using lathe::codegen::test::argmaxRows;
using lathe::codegen::test::fillNormal;
using lathe::codegen::test::fullGrid;
using lathe::codegen::test::Random;
using lathe::codegen::test::randomRows;
using lathe::codegen::test::sameBits;
using lathe::codegen::test::sameBytes;
using nvptx::test::job;

namespace {

std::string name(size_t i) { return "k" + std::to_string(i); }

TEST(EmulatedNorm, MatchesTheModelBitForBit) {
  std::vector<NormParams> grid;
  for (int64_t k : fullGrid() ? std::vector<int64_t>{1, 15, 16, 33, 100, 576, 2048, 12000} : std::vector<int64_t>{7, 33, 576})
    for (bool layer : {false, true})
      for (int out = 0; out < 6; ++out) {
        if (!fullGrid() && (out + layer + k) % 2) continue;
        NormParams p;
        p.k = k, p.inStride = rowStride(k) + (out % 2 ? 0 : 32), p.layerNorm = layer, p.bias = layer && k != 33;
        p.outRows = out == 1 || out == 4, p.out = out < 2 ? NormParams::Out::rows : NormParams::Out::activations;
        p.outStride = rowStride(k), p.postScaleResidual = out == 0, p.halves = out == 4;
        if (out >= 2) p.act = allActs[out - 2];
        grid.push_back(p);
      }
  std::vector<PtxJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i) jobs.push_back(job(name(i), grid[i], nvptx::emitNorm));
  for (const Chip *chip : emulatedChips()) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < grid.size(); ++i) {
      const NormParams &p = grid[i];
      SCOPED_TRACE(std::string(chip->name) + " k " + std::to_string(p.k) + " case " + std::to_string(i));
      for (int64_t rows : {1, 11}) {
        Random random(uint32_t(i * 100 + rows));
        StepData step(rows + (p.outRows ? 5 : 0));
        for (int64_t r = 0; p.outRows && r < rows; ++r) step.outRow.push_back(int32_t((r * 7 + 3) % (rows + 5)));
        Buffer x = randomRows(random, rows + 5, p.inStride), w = randomRows(random, 1, rowStride(p.k)), bias = randomRows(random, 1, rowStride(p.k));
        bool rowsOut = p.out == NormParams::Out::rows;
        Buffer out(size_t(rowsOut ? rows * p.outStride * 4 : actBytes(rows, p.k, p.act, p.halves)), 0xcd), expected(out.size(), 0xcd);
        if (p.postScaleResidual) {
          fillNormal(random, out.as<float>(), rows * p.outStride);
          std::memcpy(expected.data(), out.data(), out.size());
        }
        std::vector<const Buffer *> args{&x, &w, &out};
        if (p.bias) args.push_back(&bias);
        if (p.postScaleResidual) args.push_back(&out); // into the residual itself
        std::vector<float> y(size_t(rowStride(p.k)));
        for (int64_t r = 0; r < rows; ++r) {
          const float *in = x.as<float>() + (p.outRows ? step.outRow[size_t(r)] : r) * p.inStride;
          if (p.layerNorm)
            model::layerNorm(in, w.as<float>(), p.bias ? bias.as<float>() : nullptr, y.data(), p.k, p.eps);
          else
            model::rmsNorm(in, w.as<float>(), y.data(), p.k, p.eps);
          if (!rowsOut) {
            packRow(expected.data(), p.k, p.act, p.halves, r, y.data(), machine.chip().has(Feature::wgmma));
            continue;
          }
          float *e = expected.as<float>() + r * p.outStride;
          for (int64_t j = 0; j < p.k; ++j) e[j] = p.postScaleResidual ? e[j] + y[size_t(j)] : y[size_t(j)];
          // What was in the padding is added to the zero that the norm has there.
          for (int64_t j = p.k; j < p.outStride; ++j) e[j] = p.postScaleResidual ? e[j] : 0;
        }
        machine.run(name(i), launchShape(p), args, step, p.outRows);
        ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
      }
    }
  }
}

TEST(EmulatedRows, ArgmaxFindsTheFirstOfTheLargest) {
  std::vector<ArgmaxParams> grid;
  for (int64_t width : {1, 33, 512, 1700})
    grid.push_back(argmaxCase(width, width == 33));
  std::vector<PtxJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i)
    jobs.push_back(job(name(i), grid[i], nvptx::emitArgmax));
  for (const Chip *chip : emulatedChips()) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < grid.size(); ++i) {
      SCOPED_TRACE(std::string(chip->name) + " width " + std::to_string(grid[i].width));
      const int64_t rows = 30;
      Random random{uint32_t(i)};
      StepData step(rows);
      step.outRow.resize(rows);
      Buffer x = argmaxRows(random, rows, grid[i]), out(rows * 64, 0xcd);
      machine.run(name(i), launchShape(grid[i]), {&x, &out}, step);
      ASSERT_TRUE(areLargest(x.as<float>(), out.as<float>(), rows, grid[i]));
    }
  }
}

TEST(EmulatedRows, QuantizeActivationAndSoftcapMatchTheModel) {
  struct Case {
    int64_t k;
    ActFormat act;
    bool halves;
    int kind; ///< 0..3 activation with up, 4..7 without, 8 plain quantize
  };
  std::vector<Case> grid;
  for (int64_t k : fullGrid() ? std::vector<int64_t>{1, 31, 32, 47, 1536} : std::vector<int64_t>{47, 96})
    for (ActFormat f : allActs)
      for (int kind = 0; kind < 9; ++kind)
        if (fullGrid() || kind == 8 || (kind + int(f)) % 4 == 0) grid.push_back({k, f, kind % 3 == 0, kind});
  std::vector<PtxJob> jobs;
  auto quantizeOf = [](const Case &g) {
    QuantizeParams p;
    p.k = g.k, p.inStride = rowStride(g.k), p.act = g.act, p.halves = g.halves;
    return p;
  };
  auto activationOf = [](const Case &g) {
    ActivationParams p;
    p.k = g.k, p.inStride = rowStride(g.k), p.act = g.act, p.halves = g.halves, p.up = g.kind < 4, p.activation = Activation(g.kind % 4);
    return p;
  };
  for (size_t i = 0; i < grid.size(); ++i) {
    if (grid[i].kind == 8)
      jobs.push_back(job(name(i), quantizeOf(grid[i]), nvptx::emitQuantize));
    else
      jobs.push_back(job(name(i), activationOf(grid[i]), nvptx::emitActivation));
  }
  SoftcapParams cap;
  cap.n = 45, cap.stride = 48, cap.cap = 30;
  jobs.push_back(job("cap", cap, nvptx::emitSoftcap));
  for (const Chip *chip : emulatedChips()) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    const int64_t rows = 9;
    StepData step(rows);
    for (size_t i = 0; i < grid.size(); ++i) {
      const Case &g = grid[i];
      SCOPED_TRACE(std::string(chip->name) + " k " + std::to_string(g.k) + " kind " + std::to_string(g.kind) + " act " + std::to_string(int(g.act)));
      Random random{uint32_t(i)};
      Buffer gate = randomRows(random, rows, rowStride(g.k), 3.0f), up = randomRows(random, rows, rowStride(g.k));
      for (int64_t j = 0; j < std::min<int64_t>(g.k, 32); ++j) gate.as<float>()[2 * rowStride(g.k) + j] = 0; // a zero group
      Buffer out(size_t(actBytes(rows, g.k, g.act, g.halves)), 0xcd), expected(out.size(), 0xcd);
      std::vector<float> y(size_t(g.k));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < g.k; ++j) {
          float v = gate.as<float>()[r * rowStride(g.k) + j];
          if (g.kind < 8) v = model::activation(Activation(g.kind % 4), v);
          y[size_t(j)] = g.kind < 4 ? v * up.as<float>()[r * rowStride(g.k) + j] : v;
        }
        packRow(expected.data(), g.k, g.act, g.halves, r, y.data(), machine.chip().has(Feature::wgmma));
      }
      std::vector<const Buffer *> args{&gate};
      if (g.kind < 4) args.push_back(&up);
      args.push_back(&out);
      machine.run(name(i), g.kind == 8 ? launchShape(quantizeOf(g)) : launchShape(activationOf(g)), args, step);
      ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
    }
    Random random(1);
    Buffer x = randomRows(random, rows, cap.stride, 40.0f), expected(x.size());
    std::memcpy(expected.data(), x.data(), x.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < cap.n; ++j) {
        float &v = expected.as<float>()[r * cap.stride + j];
        v = cap.cap * model::tanha(v * (1.0f / cap.cap));
      }
    for (int64_t r = 0; r < rows; ++r) step.outRow.push_back(int32_t(r));
    machine.run("cap", launchShape(cap), {&x}, step, true);
    EXPECT_TRUE(sameBits(x.as<float>(), expected.as<float>(), rows * cap.stride));
  }
}

/// By the instruction of chips that have it, at the edges of the format: what lies between two numbers, below the smallest, and at the largest.
TEST(EmulatedRows, E4m3QuantizationByInstructionMatchesTheModel) {
  constexpr int64_t rows = 5, k = 96;
  QuantizeParams p;
  p.k = k, p.inStride = rowStride(k), p.act = ActFormat::e4m3;
  for (const Chip *chip : fp8Chips()) {
    Machine machine({job("quantize", p, nvptx::emitQuantize)}, *chip);
    ASSERT_TRUE(machine);
    Random random(3);
    Buffer x = randomRows(random, rows, p.inStride, 3.0f), out(size_t(actBytes(rows, k, p.act, false)), 0xcd), expected(out.size(), 0xcd);
    for (int64_t j = 0; j < 32; ++j) {
      x.as<float>()[j] = j == 0 ? 448.0f : 9.0f + 0.25f * float(j); // a scale of 1; ties
      x.as<float>()[32 + j] = j == 0 ? -448.0f : std::ldexp(float(j), -11);
      x.as<float>()[64 + j] = 0;
    }
    for (int64_t r = 0; r < rows; ++r) packRow(expected.data(), k, p.act, false, r, x.as<float>() + r * p.inStride, chip->has(Feature::wgmma));
    StepData step(rows);
    machine.run("quantize", launchShape(p), {&x, &out}, step);
    ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size())) << chip->name;
  }
}

TEST(EmulatedGather, EveryStorageTypeMatchesTheModel) {
  std::vector<GatherParams> grid;
  for (StorageType type : allTypes)
    for (int64_t k : {300, 23}) {
      if (!fullGrid() && (int(type) + k) % 2) continue;
      GatherParams p;
      p.type = type, p.n = 37, p.k = k, p.outStride = rowStride(k);
      p.scale = int(type) % 3 ? 1.0f : 45.254834f;
      p.addPositions = int(type) % 2;
      grid.push_back(p);
    }
  std::vector<PtxJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i) jobs.push_back(job(name(i), grid[i], nvptx::emitGather));
  for (const Chip *chip : emulatedChips()) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < grid.size(); ++i) {
      const GatherParams &p = grid[i];
      SCOPED_TRACE(std::string(chip->name) + " type " + std::to_string(int(p.type)) + " k " + std::to_string(p.k));
      Random random{uint32_t(i)};
      model::Weight w = codegen::test::randomWeight(p.type, p.n, p.k, random);
      std::vector<uint8_t> packed = model::pack(w);
      Buffer weights(packed.size());
      std::memcpy(weights.data(), packed.data(), packed.size());
      const int64_t rows = 9;
      StepData step(rows);
      Buffer positions = randomRows(random, 50, rowStride(p.k));
      std::vector<float> given(size_t(p.k));
      fillNormal(random, given.data(), p.k);
      machine.embeddingBytes = uint64_t(p.k) * 4;
      bool some = i % 2;
      for (int64_t r = 0; r < rows; ++r) {
        step.token[size_t(r)] = int32_t(r * 5 % 37);
        step.position[size_t(r)] = int32_t(49 - r);
        if (some) step.embedding.push_back(r == 4 ? given.data() : nullptr);
      }
      Buffer out(size_t(rows * p.outStride * 4), 0xcd);
      std::vector<const Buffer *> args{&weights, &out};
      if (p.addPositions) args.push_back(&positions);
      machine.run(name(i), launchShape(p), args, step);
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<float> y(size_t(p.outStride));
        for (int64_t j = 0; j < p.k; ++j) {
          float v = w.value(step.token[size_t(r)], j);
          if (p.scale != 1.0f) v = v * p.scale;
          if (some && r == 4) v = given[size_t(j)];
          y[size_t(j)] = p.addPositions ? v + positions.as<float>()[step.position[size_t(r)] * rowStride(p.k) + j] : v;
        }
        ASSERT_TRUE(sameBits(out.as<float>() + r * p.outStride, y.data(), p.outStride)) << "row " << r;
      }
    }
  }
}

TEST(EmulatedAngles, MatchTheModel) {
  std::vector<AnglesParams> grid{{1, 1.0f}, {7, 1.25f}, {64, 1.0f}};
  std::vector<PtxJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i) jobs.push_back(job(name(i), grid[i], nvptx::emitAngles));
  for (const Chip *chip : emulatedChips()) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < grid.size(); ++i) {
      const AnglesParams &p = grid[i];
      const std::vector<int32_t> at{0, 1, 2, 3, 17, 255, 32767, 1000003, 16777215};
      StepData step(int64_t(at.size()));
      step.position = at;
      Buffer freq(size_t(rowStride(p.half) * 4)), out(at.size() * size_t(rowStride(2 * p.half)) * 4, 0xcd);
      for (int64_t j = 0; j < p.half; ++j) freq.as<float>()[j] = std::pow(10000.0f, -float(j) / float(p.half));
      machine.run(name(i), launchShape(p), {&freq, &out}, step);
      for (size_t r = 0; r < at.size(); ++r) {
        std::vector<float> y(size_t(rowStride(2 * p.half)));
        for (int64_t j = 0; j < p.half; ++j) {
          float s, co;
          model::sinCos(float(at[r]) * freq.as<float>()[j], s, co);
          y[size_t(j)] = p.attentionFactor == 1.0f ? co : co * p.attentionFactor;
          y[size_t(p.half + j)] = p.attentionFactor == 1.0f ? s : s * p.attentionFactor;
        }
        ASSERT_TRUE(sameBits(out.as<float>() + int64_t(r) * rowStride(2 * p.half), y.data(), rowStride(2 * p.half))) << "position " << at[r];
      }
    }
  }
}

TEST(EmulatedSelect, CopiesTheOutputRows) {
  LoopsParams p;
  p.width = 45, p.stride0 = 64, p.outStride = 48, p.select = p.outRows = true;
  std::vector<PtxJob> jobs{{"k", [p](mlir::ModuleOp m, llvm::StringRef s, const Chip &c) { return nvptx::emitLoops(m, s, p, nullptr, c); }}};
  Machine machine(jobs, *findChip("sm_80"));
  ASSERT_TRUE(machine);
  Random random(3);
  StepData step(6);
  step.outRow = {5, 0, 3};
  Buffer x = randomRows(random, 6, 64), out(3 * 48 * 4, 0xcd);
  machine.run("k", launchShape(p), {&x, &out}, step, true);
  for (size_t r = 0; r < 3; ++r) {
    std::vector<float> y(48);
    std::copy_n(x.as<float>() + step.outRow[r] * 64, 45, y.begin());
    EXPECT_TRUE(sameBits(out.as<float>() + r * 48, y.data(), 48));
  }
}

} // namespace
