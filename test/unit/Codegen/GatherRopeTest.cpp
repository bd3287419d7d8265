//===- GatherRopeTest.cpp - embedding, angles, rope and append ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "RowTesting.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::test;

namespace {

model::Weight randomWeight(Random &r, StorageType type, int64_t n, int64_t k) {
  PackedLayout l = packedLayout(type);
  model::Weight w{type, n, k, (k + l.blockK - 1) / l.blockK * l.blockK, {}, {}, {}, {}, {}, {}, {}};
  auto integer = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(r); };
  if (l.floatBytes) {
    for (int64_t i = 0; i < n * w.padded; ++i) {
      float v = normal(r);
      w.values.push_back(type == StorageType::f32   ? v
                         : type == StorageType::f16 ? model::half(model::toHalf(v))
                                                    : model::bf16(v));
    }
    return w;
  }
  int bits = l.plane8 ? 8 : (l.plane4 ? 4 : 0) + (l.plane2 ? 2 : 0) + (l.plane1 ? 1 : 0);
  for (int64_t i = 0; i < n * w.padded; ++i)
    w.code.push_back(uint8_t(integer(0, (1 << bits) - 1) & (l.e4m3 ? 0xfb : 0xff))); // without the codes of NaN
  for (int64_t i = 0; l.scaleK && i < n * (w.padded / l.scaleK); ++i) {
    w.d.push_back(model::toHalf(normal(r, 0.02f)));
    w.dmin.push_back(model::toHalf(normal(r, 0.02f)));
  }
  for (int64_t i = 0; l.subK && i < n * (w.padded / l.subK); ++i) {
    w.sub.push_back(l.subNibbles ? integer(0, 15) : l.subSigned ? integer(-32, 127) : integer(0, 63));
    w.subMin.push_back(l.subNibbles ? integer(0, 15) : integer(0, 63));
  }
  for (int64_t i = 0; l.rowScale && i < n; ++i)
    w.rowScale.push_back(normal(r, 0.02f));
  return w;
}

TEST(Gather, EveryStorageTypeMatchesTheModel) {
  std::vector<GatherParams> grid;
  for (int t = 0; t <= int(StorageType::e4m3); ++t)
    for (int64_t k : {576, 100, 23}) {
      if (!fullGrid() && (t + k) % 3 == 1) continue;
      GatherParams p;
      p.type = StorageType(t), p.n = 37, p.k = k, p.outStride = rowStride(k);
      p.scale = k == 576 ? 1.0f : 45.254834f;
      p.addPositions = k != 23;
      grid.push_back(p);
    }
  std::vector<KernelJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i)
    jobs.push_back(job("k" + std::to_string(i), grid[i], emitGather));
  for (X86Target target : rowTargets()) {
    KernelLibrary library(jobs, target);
    for (size_t i = 0; i < grid.size(); ++i) {
      const GatherParams &p = grid[i];
      SCOPED_TRACE("type " + std::to_string(int(p.type)) + " k " + std::to_string(p.k));
      Random random{uint32_t(i)};
      model::Weight w = randomWeight(random, p.type, p.n, p.k);
      std::vector<uint8_t> packed = model::pack(w);
      Buffer weights(packed.size());
      std::memcpy(weights.data(), packed.data(), packed.size());
      const int64_t rows = 9;
      StepData step(rows);
      Buffer positions = randomRows(random, 50, rowStride(p.k));
      std::vector<float> given(size_t(p.k));
      fillNormal(random, given.data(), p.k);
      bool some = i % 2;
      for (int64_t r = 0; r < rows; ++r) {
        step.token[size_t(r)] = int32_t(r * 5 % 37);
        step.position[size_t(r)] = int32_t(49 - r);
        if (some) step.embedding.push_back(r == 4 ? given.data() : nullptr);
      }
      Buffer out(size_t(rows * p.outStride * 4), 0xcd);
      runKernel(library["k" + std::to_string(i)], {weights.data(), out.data(), positions.data()}, step, rows);
      EXPECT_TRUE(out.intact());
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

TEST(Angles, MatchTheModelAndTheLibrary) {
  std::vector<AnglesParams> grid{{1, 1.0f}, {7, 1.25f}, {20, 1.0f}, {32, 0.8f}, {64, 1.0f}};
  std::vector<KernelJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i)
    jobs.push_back(job("k" + std::to_string(i), grid[i], emitAngles));
  for (X86Target target : rowTargets()) {
    KernelLibrary library(jobs, target);
    for (size_t i = 0; i < grid.size(); ++i) {
      const AnglesParams &p = grid[i];
      const std::vector<int32_t> at{0, 1, 2, 3, 17, 255, 4095, 32767, 131071, 1000003, 16777215};
      StepData step(int64_t(at.size()));
      step.position = at;
      Buffer freq(size_t(rowStride(p.half) * 4)), out(size_t(int64_t(at.size()) * rowStride(2 * p.half) * 4), 0xcd);
      for (int64_t j = 0; j < p.half; ++j)
        freq.as<float>()[j] = std::pow(10000.0f, -float(j) / float(p.half));
      runKernel(library["k" + std::to_string(i)], {freq.data(), out.data()}, step, int64_t(at.size()));
      EXPECT_TRUE(out.intact());
      for (size_t r = 0; r < at.size(); ++r) {
        std::vector<float> y(size_t(rowStride(2 * p.half)));
        for (int64_t j = 0; j < p.half; ++j) {
          float angle = float(at[r]) * freq.as<float>()[j], s, co;
          model::sinCos(angle, s, co);
          EXPECT_NEAR(s, std::sin(double(angle)), 6e-8);
          EXPECT_NEAR(co, std::cos(double(angle)), 6e-8);
          y[size_t(j)] = p.attentionFactor == 1.0f ? co : co * p.attentionFactor;
          y[size_t(p.half + j)] = p.attentionFactor == 1.0f ? s : s * p.attentionFactor;
        }
        ASSERT_TRUE(sameBits(out.as<float>() + int64_t(r) * rowStride(2 * p.half), y.data(), rowStride(2 * p.half)))
            << "position " << at[r];
      }
    }
  }
}

TEST(RopeAppend, MatchesTheModel) {
  std::vector<RopeAppendParams> grid;
  auto add = [&](int64_t dim, int64_t valueDim, int64_t rotary, int flags, KVFormat k, KVFormat v, int64_t page) {
    RopeAppendParams p;
    p.qHeads = 6, p.kvHeads = 2, p.headDim = dim, p.valueDim = valueDim, p.rotaryDim = rotary;
    p.interleaved = flags & 1, p.qNorm = flags & 2, p.kNorm = flags & 4, p.rope = rotary > 0;
    p.appendKV = !(flags & 8);
    p.qkvStride = rowStride(8 * dim + 2 * valueDim);
    p.k = k, p.v = v, p.page = page;
    model::Cache c;
    c.page = page, c.heads = 2, c.keyDim = dim, c.valueDim = valueDim, c.k = k, c.v = v;
    c.shape(0);
    p.headStride = c.headStride, p.blockStride = c.blockStride + 128;
    grid.push_back(p);
  };
  const KVFormat all[] = {KVFormat::f32, KVFormat::f16, KVFormat::bf16, KVFormat::int8, KVFormat::e4m3};
  for (int i = 0; i < 5; ++i) {
    add(64, 64, 64, i, all[i], all[(i + 1) % 5], 16);
    add(80, 80, 32, 6 + i % 2, all[i], all[i], 32);
    add(18, 34, 14, i, all[i], all[4 - i], 64);
    add(6, 2, 6, 7 - i, all[i], all[i], 16);
    add(128, 128, 128, (i + 4) % 8, all[i], all[i], 128);
  }
  add(64, 64, 0, 0, KVFormat::f16, KVFormat::f16, 16);
  add(64, 64, 64, 8, KVFormat::f16, KVFormat::f16, 16);
  add(256, 256, 256, 6, KVFormat::bf16, KVFormat::bf16, 16);
  std::vector<KernelJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i)
    jobs.push_back(job("k" + std::to_string(i), grid[i], emitRopeAppend));
  for (X86Target target : rowTargets()) {
    KernelLibrary library(jobs, target);
    for (size_t i = 0; i < grid.size(); ++i) {
      const RopeAppendParams &p = grid[i];
      SCOPED_TRACE(std::string(variantName(target.variant)) + " case " + std::to_string(i) + " head " +
                   std::to_string(p.headDim));
      Random random{uint32_t(i)};
      const int64_t rows = 7;
      StepData step(rows);
      step.tableStride = 5;
      step.table = {3, 9, 1, 0, -1, 4, 2, 8, 7, 6}; // 2 sequences
      for (int64_t r = 0; r < rows; ++r) {
        step.sequence[size_t(r)] = int32_t(r / 4);
        step.slot[size_t(r)] = int32_t(r < 4 ? p.page - 2 + r : r);
      }
      Buffer qkv = randomRows(random, rows, p.qkvStride), expected(qkv.size());
      std::memcpy(expected.data(), qkv.data(), qkv.size());
      Buffer angles = randomRows(random, rows, rowStride(std::max<int64_t>(p.rotaryDim, 1)));
      Buffer qNorm = randomRows(random, 1, rowStride(p.headDim)), kNorm = randomRows(random, 1, rowStride(p.headDim));
      model::Cache cache;
      cache.page = p.page, cache.heads = 2, cache.keyDim = p.headDim, cache.valueDim = p.valueDim, cache.k = p.k,
      cache.v = p.v;
      cache.shape(10);
      cache.blockStride = p.blockStride;
      cache.bytes.assign(size_t(10 * p.blockStride), 0xff);
      Buffer pool(cache.bytes.size(), 0xff);
      int64_t kAt = 6 * p.headDim, vAt = 8 * p.headDim;
      for (int64_t r = 0; r < rows; ++r) {
        float *row = expected.as<float>() + r * p.qkvStride;
        const float *a = angles.as<float>() + r * rowStride(p.rotaryDim);
        std::vector<float> head(size_t(p.headDim));
        auto rotate = [&](const float *x, const float *norm) {
          std::copy(x, x + p.headDim, head.data());
          if (norm) model::rmsNorm(x, norm, head.data(), p.headDim, p.eps);
          if (p.rope) model::rope(head.data(), a, p.rotaryDim, p.interleaved);
        };
        for (int64_t h = 0; h < 6; ++h) {
          rotate(row + h * p.headDim, p.qNorm ? qNorm.as<float>() : nullptr);
          std::copy(head.begin(), head.end(), row + h * p.headDim);
        }
        int32_t block = step.table[size_t(step.sequence[size_t(r)] * 5 + step.slot[size_t(r)] / p.page)];
        for (int64_t h = 0; h < 2 && p.appendKV; ++h) {
          rotate(row + kAt + h * p.headDim, p.kNorm ? kNorm.as<float>() : nullptr);
          cache.append(block, h, step.slot[size_t(r)], head.data(), row + vAt + h * p.valueDim);
        }
      }
      std::vector<uint8_t *> args{qkv.data(), qkv.data() + kAt * 4, qkv.data() + vAt * 4, angles.data(), pool.data()};
      if (p.qNorm) args.push_back(qNorm.data());
      if (p.kNorm) args.push_back(kNorm.data());
      runKernel(library["k" + std::to_string(i)], args, step, rows);
      EXPECT_TRUE(pool.intact());
      ASSERT_TRUE(sameBits(qkv.as<float>(), expected.as<float>(), rows * p.qkvStride));
      ASSERT_TRUE(sameBytes(pool.data(), cache.bytes.data(), pool.size()));
    }
  }
}

} // namespace
