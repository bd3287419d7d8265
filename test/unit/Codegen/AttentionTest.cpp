//===- AttentionTest.cpp - every form of paged attention against the model ---===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "AttentionScene.h"
#include <map>

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::test;

namespace {

std::vector<AttentionParams> grid() {
  std::vector<AttentionParams> g;
  auto add = [&](AttentionParams p, int64_t chunk = 256, int64_t window = 0, float cap = 0) {
    p.chunk = chunk, p.window = window, p.softcap = cap;
    p.maxChunks = 640 / chunk + 1;
    g.push_back(p);
  };
  using F = KVFormat;
  add(shape(9, 3, 64, 64, F::f16, F::f16, 16));
  add(shape(4, 1, 64, 64, F::f16, F::f16, 64), 256, 100);
  add(shape(2, 2, 80, 80, F::f32, F::f32, 16), 32, 0, 50.0f);
  add(shape(5, 1, 18, 34, F::bf16, F::int8, 32), 64, 33);
  add(shape(8, 1, 128, 64, F::int8, F::bf16, 32));
  add(shape(6, 2, 6, 2, F::f16, F::f32, 16), 16, 7);
  add(shape(6, 2, 64, 34, F::e4m3, F::e4m3, 32), 64, 100);
  if (!fullGrid()) return g;
  for (F k : {F::f32, F::f16, F::bf16, F::int8, F::e4m3})
    for (int64_t page : {16, 32, 64, 128}) {
      add(shape(7, 1, 64, 64, k, k, page));
      add(shape(16, 1, 96, 128, k, k, page), 128, 300);
      add(shape(2, 1, 256, 256, k, k, page), 256, 0, 30.0f);
      add(shape(11, 1, 40, 72, k, k, page), 48, 20);
      add(shape(3, 3, 14, 30, k, k, page), 64);
    }
  return g;
}

const Batch batches[] = {
    {{{1, 1}}},
    {{{600, 1}, {17, 1}, {256, 1}, {1, 1}}},
    {{{255, 3}, {257, 40}}},
    {{{16, 16}, {15, 2}, {600, 1}, {300, 60}}},
    {{{258, 5}, {512, 3}, {31, 2}}}, // drafts to verify
    {{{260, 8}, {517, 6}, {31, 20}, {40, 40}}, true},
    {{{300, 64}, {65, 1}}, true},
};

/// All forms of the grid, built once for all tests.
KernelLibrary &gridLibrary(X86Target target) {
  static std::map<artifact::Variant, std::unique_ptr<KernelLibrary>> built;
  auto &library = built[target.variant];
  if (library) return *library;
  std::vector<KernelJob> jobs;
  for (AttentionParams p : grid()) {
    std::string n = std::to_string(jobs.size() / 3);
    jobs.push_back(job("whole" + n, p, emitAttention));
    p.form = AttentionParams::split;
    jobs.push_back(job("split" + n, p, emitAttention));
    p.form = AttentionParams::combine;
    jobs.push_back(job("combine" + n, p, emitAttention));
  }
  library = std::make_unique<KernelLibrary>(jobs, target);
  return *library;
}

TEST(Attention, WholeMatchesTheModelForEveryRow) {
  std::vector<AttentionParams> g = grid();
  // The model is slow: its rows are computed once, for all variants.
  std::vector<X86Target> targets = rowTargets();
  for (size_t i = 0; i < g.size(); ++i)
    for (size_t b = 0; b < std::size(batches); ++b) {
      Scene s(g[i], batches[b], uint32_t(i * 10 + b));
      const AttentionParams &p = s.p;
      std::vector<float> expected(size_t(s.rows * p.outStride));
      for (int64_t r = 0; r < s.rows; ++r)
        s.expectedRow(r, expected.data() + r * p.outStride);
      for (size_t t = 0; t < targets.size(); ++t) {
        SCOPED_TRACE(std::string(variantName(targets[t].variant)) + " case " + std::to_string(i) + " batch " +
                     std::to_string(b));
        Buffer q(s.q.size() * 4), out(expected.size() * 4, 0), pool(s.cache.bytes.size());
        std::memcpy(q.data(), s.q.data(), q.size());
        std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
        int64_t block = attentionRowBlock(p);
        runKernel(gridLibrary(targets[t])["whole" + std::to_string(i)], {q.data(), pool.data(), out.data()}, s.step,
                  (s.rows + block - 1) / block * p.kvHeads, 2, int64_t(scratchBytes(p)));
        EXPECT_TRUE(out.intact());
        for (int64_t r = 0; r < s.rows; ++r)
          ASSERT_TRUE(
              sameBits(out.as<float>() + r * p.outStride, expected.data() + r * p.outStride, p.qHeads * p.valueDim))
              << "row " << r;
      }
    }
}

// Pages show in no bit: of each size, a sequence of every length up to two of the largest and one token more has the bits of the model,
// which knows no pages. The last row of each.
TEST(Attention, EveryLengthAtEveryPage) {
  Batch every;
  for (int64_t length = 1; length <= 257; ++length)
    every.sequences.push_back({length, 1});
  std::vector<AttentionParams> forms;
  std::vector<KernelJob> jobs;
  for (KVFormat kv : {KVFormat::f16, KVFormat::int8})
    for (int64_t page : {16, 32, 64, 128}) {
      AttentionParams p = shape(3, 1, 32, 32, kv, kv, page);
      p.chunk = 64;
      jobs.push_back(job("k" + std::to_string(forms.size()), p, emitAttention));
      forms.push_back(p);
    }
  std::vector<X86Target> targets = rowTargets();
  std::vector<std::unique_ptr<KernelLibrary>> libraries;
  for (X86Target target : targets)
    libraries.push_back(std::make_unique<KernelLibrary>(jobs, target));
  for (size_t i = 0; i < forms.size(); ++i) {
    Scene s(forms[i], every, uint32_t(i));
    const AttentionParams &p = s.p;
    std::vector<float> expected(size_t(s.rows * p.outStride));
    for (int64_t r = 0; r < s.rows; ++r)
      s.expectedRow(r, expected.data() + r * p.outStride);
    for (size_t t = 0; t < targets.size(); ++t) {
      SCOPED_TRACE(std::string(variantName(targets[t].variant)) + " page " + std::to_string(p.page));
      Buffer q(s.q.size() * 4), out(expected.size() * 4, 0), pool(s.cache.bytes.size());
      std::memcpy(q.data(), s.q.data(), q.size());
      std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
      int64_t block = attentionRowBlock(p);
      runKernel((*libraries[t])["k" + std::to_string(i)], {q.data(), pool.data(), out.data()}, s.step,
                (s.rows + block - 1) / block * p.kvHeads, 2, int64_t(scratchBytes(p)));
      for (int64_t r = 0; r < s.rows; ++r)
        ASSERT_TRUE(sameBits(out.as<float>() + r * p.outStride, expected.data() + r * p.outStride, p.qHeads * p.valueDim)) << "length " << r + 1;
    }
  }
}

TEST(Attention, SplitAndCombineEqualWhole) {
  std::vector<AttentionParams> g = grid();
  for (X86Target target : rowTargets()) {
    KernelLibrary &library = gridLibrary(target);
    for (size_t i = 0; i < g.size(); ++i)
      for (size_t b = 0; b < std::size(batches); ++b) {
        SCOPED_TRACE(std::string(variantName(target.variant)) + " case " + std::to_string(i) + " batch " +
                     std::to_string(b));
        Scene s(g[i], batches[b], uint32_t(i * 10 + b));
        AttentionParams p = s.p;
        std::string n = std::to_string(i);
        Buffer q(s.q.size() * 4), out(size_t(s.rows * p.outStride * 4)), split(out.size()), pool(s.cache.bytes.size());
        std::memcpy(q.data(), s.q.data(), q.size());
        std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
        int64_t block = attentionRowBlock(p), items = 0;
        runKernel(library["whole" + n], {q.data(), pool.data(), out.data()}, s.step,
                  (s.rows + block - 1) / block * p.kvHeads, 1, int64_t(scratchBytes(p)));
        for (int64_t r = 0; r < s.rows; ++r)
          items += (s.step.slot[size_t(r)] / p.chunk + 1) * p.kvHeads;
        Buffer partials(size_t(partialsBytes(p, s.rows)), 0xff);
        p.form = AttentionParams::split;
        runKernel(library["split" + n], {q.data(), pool.data(), partials.data()}, s.step, items, 3,
                  int64_t(scratchBytes(p)));
        EXPECT_TRUE(partials.intact());
        runKernel(library["combine" + n], {partials.data(), split.data()}, s.step, s.rows, 2);
        ASSERT_TRUE(sameBits(split.as<float>(), out.as<float>(), s.rows * p.outStride));
      }
  }
}

TEST(Attention, QuantizedOutputIsTheQuantizationOfTheRows) {
  std::vector<KernelJob> jobs;
  AttentionParams base = shape(6, 2, 64, 64, KVFormat::f16, KVFormat::f16, 16);
  int i = 0;
  for (ActFormat f : {ActFormat::int8, ActFormat::int8z, ActFormat::bf16, ActFormat::f32, ActFormat::e4m3}) {
    AttentionParams p = base;
    p.quantize = true, p.act = f, p.halves = f == ActFormat::int8z;
    jobs.push_back(job("k" + std::to_string(i++), p, emitAttention));
  }
  for (X86Target target : rowTargets()) {
    KernelLibrary library(jobs, target);
    Scene s(base, {{{40, 20}, {300, 1}}}, 3);
    Buffer q(s.q.size() * 4), pool(s.cache.bytes.size());
    std::memcpy(q.data(), s.q.data(), q.size());
    std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
    i = 0;
    for (ActFormat f : {ActFormat::int8, ActFormat::int8z, ActFormat::bf16, ActFormat::f32, ActFormat::e4m3}) {
      bool halves = f == ActFormat::int8z;
      int64_t k = base.qHeads * base.valueDim, block = attentionRowBlock(base);
      Buffer out(size_t(activationBytes(s.rows, k, f, halves)), 0xcd), expected(out.size(), 0xcd);
      runKernel(library["k" + std::to_string(i++)], {q.data(), pool.data(), out.data()}, s.step,
                (s.rows + block - 1) / block * base.kvHeads, 2, int64_t(scratchBytes(base)));
      std::vector<float> row(static_cast<size_t>(k));
      for (int64_t r = 0; r < s.rows; ++r) {
        s.expectedRow(r, row.data());
        model::writeActivations(expected.data(), k, f, halves, r, s.rows, row.data(), target.packsBf16(f));
      }
      ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size())) << "format " << int(f);
    }
  }
}

// A draft row whose values overflowed must not reach the rows before it, which share its loads.
TEST(Attention, NothingBeyondARowsEntryReachesIt) {
  std::vector<AttentionParams> g = grid();
  for (X86Target target : rowTargets())
    for (size_t i = 0; i < g.size(); ++i)
      for (int64_t last : {1, 2, 13}) {
        SCOPED_TRACE(std::string(variantName(target.variant)) + " case " + std::to_string(i));
        Scene s(g[i], {{{270, 30}, {20, 1}}}, uint32_t(i));
        const AttentionParams &p = s.p;
        for (int64_t slot = 270 - last; slot < 270; ++slot)
          for (int64_t h = 0; h < p.kvHeads; ++h) {
            int64_t block = s.step.table[size_t(slot / p.page)];
            for (int64_t d = 0; d < p.headDim; ++d)
              std::memset(s.cache.keyAt(block, h, slot, d), 0xff, size_t(model::Cache::size(p.k)));
            for (int64_t d = 0; d < p.valueDim; ++d)
              std::memset(s.cache.valueAt(block, h, slot, d), 0xff, size_t(model::Cache::size(p.v)));
            if (isByte(p.k)) std::memset(s.cache.keyScale(block, h, slot), 0xff, 4);
            if (isByte(p.v)) std::memset(s.cache.valueScale(block, h, slot), 0xff, 4);
          }
        Buffer q(s.q.size() * 4), out(size_t(s.rows * p.outStride * 4)), pool(s.cache.bytes.size());
        std::memcpy(q.data(), s.q.data(), q.size());
        std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
        int64_t block = attentionRowBlock(p);
        runKernel(gridLibrary(target)["whole" + std::to_string(i)], {q.data(), pool.data(), out.data()}, s.step,
                  (s.rows + block - 1) / block * p.kvHeads, 1, int64_t(scratchBytes(p)));
        std::vector<float> expected(size_t(p.outStride));
        for (int64_t r = 0; r < s.rows; ++r) {
          if (r >= 30 - last && r < 30) continue; // these see it
          s.expectedRow(r, expected.data());
          ASSERT_TRUE(sameBits(out.as<float>() + r * p.outStride, expected.data(), p.qHeads * p.valueDim))
              << "row " << r;
        }
      }
}

// The same rows in another order, among other sequences: every form gives each row its bits.
TEST(Attention, RowsKeepTheirBitsInAnyOrder) {
  std::vector<AttentionParams> g = grid();
  for (X86Target target : rowTargets())
    for (size_t i = 0; i < g.size(); ++i) {
      SCOPED_TRACE(std::string(variantName(target.variant)) + " case " + std::to_string(i));
      Scene s(g[i], {{{90, 30}, {300, 4}, {33, 9}}}, uint32_t(i));
      AttentionParams p = s.p;
      std::string n = std::to_string(i);
      KernelLibrary &library = gridLibrary(target);
      Buffer pool(s.cache.bytes.size()), partials(size_t(partialsBytes(p, s.rows)), 0xff);
      std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
      int64_t block = attentionRowBlock(p), blocks = (s.rows + block - 1) / block;
      auto whole = [&](Buffer &q, Buffer &out, StepData &step) {
        runKernel(library["whole" + n], {q.data(), pool.data(), out.data()}, step, blocks * p.kvHeads, 1,
                  int64_t(scratchBytes(p)));
      };
      Buffer q(s.q.size() * 4), out(size_t(s.rows * p.outStride * 4));
      std::memcpy(q.data(), s.q.data(), q.size());
      whole(q, out, s.step);

      std::vector<size_t> order(static_cast<size_t>(s.rows));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), Random(uint32_t(i)));
      StepData mixed(s.rows);
      mixed.table = s.step.table, mixed.tableStride = s.step.tableStride;
      Buffer mixedQ(q.size()), a(out.size()), b(out.size());
      int64_t items = 0;
      for (size_t r = 0; r < order.size(); ++r) {
        mixed.sequence[r] = s.step.sequence[order[r]];
        mixed.slot[r] = s.step.slot[order[r]];
        std::memcpy(mixedQ.data() + int64_t(r) * p.qStride * 4, q.data() + int64_t(order[r]) * p.qStride * 4,
                    size_t(p.qStride * 4));
        items += (mixed.slot[r] / p.chunk + 1) * p.kvHeads;
      }
      whole(mixedQ, a, mixed);
      p.form = AttentionParams::split;
      runKernel(library["split" + n], {mixedQ.data(), pool.data(), partials.data()}, mixed, items, 2,
                int64_t(scratchBytes(p)));
      runKernel(library["combine" + n], {partials.data(), b.data()}, mixed, s.rows, 1);
      for (size_t r = 0; r < order.size(); ++r) {
        const float *expected = out.as<float>() + int64_t(order[r]) * p.outStride;
        ASSERT_TRUE(sameBits(a.as<float>() + int64_t(r) * p.outStride, expected, p.qHeads * p.valueDim))
            << "whole, row " << r;
        ASSERT_TRUE(sameBits(b.as<float>() + int64_t(r) * p.outStride, expected, p.qHeads * p.valueDim))
            << "split, row " << r;
      }
    }
}

} // namespace
