//===- EmulatedAttentionTest.cpp - rope, KV append, attention, bit for bit ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "AttentionScene.h"
#include "Machine.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::nvptx;
using namespace lathe::codegen::nvptx::test;
using lathe::codegen::test::Batch;
using lathe::codegen::test::fullGrid;
using lathe::codegen::test::Random;
using lathe::codegen::test::randomRows;
using lathe::codegen::test::sameBits;
using lathe::codegen::test::sameBytes;
using lathe::codegen::test::Scene;
using lathe::codegen::test::shape;
using nvptx::test::job;

namespace {

std::vector<AttentionParams> grid() {
  std::vector<AttentionParams> g;
  auto add = [&](AttentionParams p, int64_t chunk, int64_t window = 0, float cap = 0) {
    p.chunk = chunk, p.window = window, p.softcap = cap, p.maxChunks = 320 / chunk + 1;
    g.push_back(p);
  };
  using F = KVFormat;
  add(shape(9, 3, 64, 64, F::f16, F::f16, 16), 256);
  add(shape(2, 2, 80, 80, F::f32, F::f32, 16), 32, 0, 50.0f);
  add(shape(5, 1, 18, 34, F::bf16, F::int8, 32), 64, 33);
  add(shape(4, 1, 128, 64, F::int8, F::bf16, 32), 64);
  if (!fullGrid()) return g;
  for (F k : {F::f32, F::f16, F::bf16, F::int8}) {
    add(shape(7, 1, 64, 64, k, k, 16), 256);
    add(shape(16, 1, 96, 128, k, k, 64), 128, 300);
    add(shape(24, 1, 128, 128, k, k, 32), 256); // heads of a KV head in several blocks
  }
  return g;
}

const Batch batches[] = {{{{1, 1}}}, {{{300, 1}, {17, 2}, {256, 1}}}, {{{66, 5}}}, {{{260, 6}, {70, 12}}, true}};

void everyFormMatchesTheModel(const std::vector<AttentionParams> &g, const std::vector<const Chip *> &chips) {
  std::vector<PtxJob> jobs;
  for (size_t i = 0; i < g.size(); ++i)
    for (auto form : {AttentionParams::whole, AttentionParams::split, AttentionParams::combine}) {
      AttentionParams p = g[i];
      p.form = form;
      jobs.push_back(job("k" + std::to_string(i) + "_" + std::to_string(form), p, nvptx::emitAttention));
    }
  for (const Chip *chip : chips) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < g.size(); ++i)
      for (size_t b = 0; b < std::size(batches); ++b) {
        SCOPED_TRACE(std::string(chip->name) + " case " + std::to_string(i) + " batch " + std::to_string(b));
        Scene s(g[i], batches[b], uint32_t(i * 10 + b));
        AttentionParams p = s.p;
        Buffer q(s.q.size() * 4), pool(s.cache.bytes.size()), out(size_t(s.rows * p.outStride * 4)), expected(out.size());
        Buffer partials(size_t(partialsBytes(p, s.rows)), 0xff), combined(out.size());
        std::memcpy(q.data(), s.q.data(), q.size());
        std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
        for (int64_t r = 0; r < s.rows; ++r) s.expectedRow(r, expected.as<float>() + r * p.outStride);
        auto name = [&](int form) { return "k" + std::to_string(i) + "_" + std::to_string(form); };
        p.form = AttentionParams::whole;
        machine.run(name(0), launchShape(p), {&q, &pool, &out}, s.step);
        ASSERT_TRUE(sameBits(out.as<float>(), expected.as<float>(), s.rows * p.outStride));
        p.form = AttentionParams::split;
        machine.run(name(1), launchShape(p), {&q, &pool, &partials}, s.step);
        p.form = AttentionParams::combine;
        machine.run(name(2), launchShape(p), {&partials, &combined}, s.step);
        ASSERT_TRUE(sameBits(combined.as<float>(), expected.as<float>(), s.rows * p.outStride));
      }
  }
}

TEST(EmulatedAttention, EveryFormMatchesTheModel) { everyFormMatchesTheModel(grid(), emulatedChips()); }

TEST(EmulatedAttention, E4m3MatchesTheModel) {
  std::vector<AttentionParams> g{shape(4, 2, 80, 34, KVFormat::e4m3, KVFormat::e4m3, 16), shape(3, 1, 18, 64, KVFormat::e4m3, KVFormat::f16, 32)};
  for (AttentionParams &p : g) p.chunk = 64, p.maxChunks = 6;
  everyFormMatchesTheModel(g, fp8Chips());
}

TEST(EmulatedAttention, QuantizedOutputIsTheQuantizationOfTheRows) {
  std::vector<AttentionParams> g;
  for (ActFormat act : allActs) {
    AttentionParams p = shape(6, 2, 32, 64, KVFormat::f16, KVFormat::f16, 16);
    p.quantize = true, p.act = act, p.halves = act == ActFormat::int8, p.chunk = 64, p.maxChunks = 6;
    p.form = act == ActFormat::int8z ? AttentionParams::combine : AttentionParams::whole;
    g.push_back(p);
  }
  std::vector<PtxJob> jobs;
  for (size_t i = 0; i < g.size(); ++i) jobs.push_back(job("k" + std::to_string(i), g[i], nvptx::emitAttention));
  AttentionParams split = g[0];
  split.form = AttentionParams::split;
  jobs.push_back(job("split", split, nvptx::emitAttention));
  Machine machine(jobs, *findChip("sm_80"));
  ASSERT_TRUE(machine);
  for (size_t i = 0; i < g.size(); ++i) {
    SCOPED_TRACE(int(g[i].act));
    Scene s(g[i], batches[1], uint32_t(i));
    const AttentionParams &p = s.p;
    Buffer q(s.q.size() * 4), pool(s.cache.bytes.size()), out(size_t(actBytes(s.rows, 6 * 64, p.act, p.halves)), 0xcd), expected(out.size(), 0xcd);
    std::memcpy(q.data(), s.q.data(), q.size());
    std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
    std::vector<float> y(6 * 64);
    for (int64_t r = 0; r < s.rows; ++r) {
      s.expectedRow(r, y.data());
      packRow(expected.data(), 6 * 64, p.act, p.halves, r, y.data());
    }
    if (p.form == AttentionParams::combine) {
      Buffer partials(size_t(partialsBytes(p, s.rows)), 0xff);
      machine.run("split", launchShape(split), {&q, &pool, &partials}, s.step);
      machine.run("k" + std::to_string(i), launchShape(p), {&partials, &out}, s.step);
    } else {
      machine.run("k" + std::to_string(i), launchShape(p), {&q, &pool, &out}, s.step);
    }
    ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
  }
}

RopeAppendParams ropeAppend(int64_t dim, int64_t valueDim, int64_t rotary, int flags, KVFormat k, KVFormat v, int64_t page) {
  RopeAppendParams p;
  p.qHeads = 6, p.kvHeads = 2, p.headDim = dim, p.valueDim = valueDim, p.rotaryDim = rotary;
  p.interleaved = flags & 1, p.qNorm = flags & 2, p.kNorm = flags & 4, p.rope = rotary > 0, p.appendKV = !(flags & 8);
  p.qkvStride = rowStride(8 * dim + 2 * valueDim), p.k = k, p.v = v, p.page = page;
  model::Cache c;
  c.page = page, c.heads = 2, c.keyDim = dim, c.valueDim = valueDim, c.k = k, c.v = v;
  c.shape(0);
  p.headStride = c.headStride, p.blockStride = c.blockStride + 128;
  return p;
}

void matchesTheModel(const std::vector<RopeAppendParams> &g, const std::vector<const Chip *> &chips) {
  std::vector<PtxJob> jobs;
  for (size_t i = 0; i < g.size(); ++i) jobs.push_back(job("k" + std::to_string(i), g[i], nvptx::emitRopeAppend));
  for (const Chip *chip : chips) {
    Machine machine(jobs, *chip);
    ASSERT_TRUE(machine);
    for (size_t i = 0; i < g.size(); ++i) {
      const RopeAppendParams &p = g[i];
      SCOPED_TRACE(std::string(chip->name) + " case " + std::to_string(i) + " head " + std::to_string(p.headDim));
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
      cache.page = p.page, cache.heads = 2, cache.keyDim = p.headDim, cache.valueDim = p.valueDim, cache.k = p.k, cache.v = p.v;
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
      // q, k and v are columns of one buffer.
      std::vector<const Buffer *> rest{&angles, &pool};
      if (p.qNorm) rest.push_back(&qNorm);
      if (p.kNorm) rest.push_back(&kNorm);
      machine.runColumns("k" + std::to_string(i), launchShape(p), qkv, {0, kAt * 4, vAt * 4}, rest, step);
      ASSERT_TRUE(sameBits(qkv.as<float>(), expected.as<float>(), rows * p.qkvStride));
      ASSERT_TRUE(sameBytes(pool.data(), cache.bytes.data(), pool.size()));
    }
  }
}

TEST(EmulatedRopeAppend, MatchesTheModel) {
  std::vector<RopeAppendParams> g;
  auto add = [&](auto... values) { g.push_back(ropeAppend(values...)); };
  const KVFormat all[] = {KVFormat::f32, KVFormat::f16, KVFormat::bf16, KVFormat::int8};
  for (int i = 0; i < 4; ++i) {
    add(64, 64, 64, i, all[i], all[(i + 1) % 4], 16);
    add(80, 80, 32, 6 + i % 2, all[i], all[i], 32);
    if (fullGrid()) add(18, 34, 14, i, all[i], all[3 - i], 64);
    if (fullGrid()) add(6, 2, 6, 7 - i, all[i], all[i], 16);
  }
  add(64, 64, 0, 0, KVFormat::f16, KVFormat::f16, 16);
  add(64, 64, 64, 8, KVFormat::f16, KVFormat::f16, 16);
  add(256, 256, 256, 6, KVFormat::bf16, KVFormat::bf16, 16);
  matchesTheModel(g, emulatedChips());
}

TEST(EmulatedRopeAppend, E4m3MatchesTheModel) {
  constexpr KVFormat f = KVFormat::e4m3;
  matchesTheModel({ropeAppend(64, 64, 64, 4, f, f, 16), ropeAppend(18, 34, 14, 1, f, KVFormat::int8, 32)}, fp8Chips());
}

} // namespace
