//===- EmulatedMmaAttentionTest.cpp - attention on mma.sync, on the emulator ----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Values against float64, with the bounds of docs/exactness.md; bits between the forms and between batches.
//===----------------------------------------------------------------------===//
#include "AttentionScene.h"
#include "Machine.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::nvptx;
using namespace lathe::codegen::nvptx::test;
using lathe::codegen::test::Batch;
using lathe::codegen::test::fullGrid;
using lathe::codegen::test::sameBits;
using lathe::codegen::test::sameBytes;
using lathe::codegen::test::Scene;
using lathe::codegen::test::shape;
using nvptx::test::job;

namespace {

/// One query head in float64, of the stored entries.
void exact(Scene &s, int64_t row, int64_t head, double *out) {
  const AttentionParams &p = s.p;
  std::vector<int64_t> history = s.history(row);
  int64_t to = int64_t(history.size()), from = p.window ? std::max<int64_t>(0, to - p.window) : 0, kv = head / (p.qHeads / p.kvHeads);
  const float *q = s.q.data() + row * p.qStride + head * p.headDim;
  const int32_t *table = s.step.table.data() + s.step.sequence[size_t(row)] * int64_t(s.step.tableStride);
  auto block = [&](int64_t j) { return table[history[size_t(j)] / p.page]; };
  std::vector<double> score;
  double most = -INFINITY, sum = 0;
  for (int64_t j = from; j < to; ++j) {
    double a = 0;
    for (int64_t d = 0; d < p.headDim; ++d) a += double(q[d]) * s.cache.key(block(j), kv, history[size_t(j)], d);
    a *= p.scale;
    if (p.softcap != 0) a = p.softcap * std::tanh(a / p.softcap);
    score.push_back(a);
    most = std::max(most, a);
  }
  std::fill_n(out, p.valueDim, 0.0);
  for (int64_t j = from; j < to; ++j) {
    double w = std::exp(score[size_t(j - from)] - most);
    sum += w;
    for (int64_t d = 0; d < p.valueDim; ++d) out[d] += w * s.cache.value(block(j), kv, history[size_t(j)], d);
  }
  for (int64_t d = 0; d < p.valueDim; ++d) out[d] /= sum;
}

struct Case {
  AttentionParams p;
  std::string name(int form) const { return "k" + std::to_string(index) + "_" + std::to_string(form); }
  size_t index = 0;
};

/// With |fp8|: the cases that need a chip with 8-bit floats, and no others.
std::vector<Case> grid(bool fp8 = false) {
  std::vector<Case> g;
  auto add = [&](AttentionParams p, int64_t chunk, int64_t window = 0, float cap = 0) {
    p.chunk = chunk, p.window = window, p.softcap = cap, p.maxChunks = 320 / chunk + 1;
    g.push_back({p, g.size()});
  };
  using F = KVFormat;
  if (fp8) {
    add(shape(6, 2, 64, 64, F::e4m3, F::e4m3, 16), 256);
    add(shape(5, 1, 18, 34, F::e4m3, F::e4m3, 32), 48, 33);
    if (!fullGrid()) return g;
    add(shape(8, 8, 80, 48, F::e4m3, F::bf16, 16), 64, 0, 50.0f);
    add(shape(8, 4, 256, 256, F::e4m3, F::e4m3, 32), 256);
    add(shape(16, 1, 96, 128, F::f16, F::e4m3, 64), 128, 300);
    return g;
  }
  add(shape(9, 3, 64, 64, F::f16, F::f16, 16), 256);
  add(shape(8, 2, 128, 128, F::bf16, F::bf16, 32), 256);
  add(shape(8, 8, 80, 80, F::int8, F::int8, 16), 64, 0, 50.0f);
  add(shape(5, 1, 18, 34, F::bf16, F::int8, 32), 48, 33);
  add(shape(24, 1, 64, 128, F::int8, F::f16, 16), 32, 70); // heads of a KV head in several blocks
  if (!fullGrid()) return g;
  for (F k : {F::f16, F::bf16, F::int8}) {
    add(shape(7, 1, 64, 64, k, k, 16), 256);
    add(shape(16, 1, 96, 128, k, k, 64), 128, 300);
    add(shape(8, 4, 256, 256, k, k, 32), 256);
    add(shape(4, 1, 32, 6, k, k, 32), 16);
  }
  return g;
}

std::vector<PtxJob> jobs(const std::vector<Case> &g) {
  std::vector<PtxJob> all;
  for (const Case &c : g)
    for (auto form : {AttentionParams::whole, AttentionParams::split, AttentionParams::combine}) {
      MmaAttentionParams p{c.p};
      p.form = form;
      all.push_back(job(c.name(form), p, emitMmaAttention));
    }
  return all;
}

/// The kernels of grid(fp8) on the oldest chip that runs them: compiled once for all tests.
Machine &oldest(bool fp8 = false) {
  static Machine machines[] = {{jobs(grid()), *emulatedChips().front()}, {jobs(grid(true)), *fp8Chips().front()}};
  return machines[fp8];
}

/// The rows of |scene| by the whole form, after the split form gave the same bits.
std::vector<float> run(Machine &machine, const Case &c, Scene &s) {
  MmaAttentionParams p{s.p};
  Buffer q(s.q.size() * 4), pool(s.cache.bytes.size()), out(size_t(s.rows * p.outStride * 4)), combined(out.size());
  Buffer partials(size_t(partialsBytes(p, s.rows)), 0xff);
  std::memcpy(q.data(), s.q.data(), q.size());
  std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
  p.form = AttentionParams::whole;
  machine.run(c.name(p.form), launchShape(p), {&q, &pool, &out}, s.step);
  p.form = AttentionParams::split;
  machine.run(c.name(p.form), launchShape(p), {&q, &pool, &partials}, s.step);
  p.form = AttentionParams::combine;
  machine.run(c.name(p.form), launchShape(p), {&partials, &combined}, s.step);
  EXPECT_TRUE(sameBits(combined.as<float>(), out.as<float>(), s.rows * p.outStride));
  return {out.as<float>(), out.as<float>() + s.rows * p.outStride};
}

const Batch batches[] = {{{{1, 1}}}, {{{300, 1}, {17, 2}, {256, 1}}}, {{{262, 9}, {70, 6}}, true}, {{{90, 21}, {33, 12}}}};

void isNearFloat64AndEqualInEveryForm(bool fp8) {
  std::vector<Case> g = grid(fp8);
  std::vector<const Chip *> all = fp8 ? fp8Chips() : emulatedChips();
  for (const Chip *chip : all) {
    std::optional<Machine> other;
    if (chip != all.front()) other.emplace(jobs(g), *chip);
    Machine &machine = other ? *other : oldest(fp8);
    ASSERT_TRUE(machine);
    for (const Case &c : g)
      for (size_t b = 0; b < std::size(batches); ++b) {
        SCOPED_TRACE(std::string(chip->name) + " case " + std::to_string(c.index) + " batch " + std::to_string(b));
        Scene s(c.p, batches[b], uint32_t(c.index * 10 + b));
        std::vector<float> y = run(machine, c, s);
        std::vector<double> expected(size_t(c.p.valueDim));
        double worst = 0;
        for (int64_t r = 0; r < s.rows; ++r)
          for (int64_t h = 0; h < c.p.qHeads; ++h) {
            exact(s, r, h, expected.data());
            for (int64_t d = 0; d < c.p.valueDim; ++d) {
              double error = std::fabs(y[size_t(r * c.p.outStride + h * c.p.valueDim + d)] - expected[size_t(d)]);
              worst = std::isnan(error) ? INFINITY : std::max(worst, error);
            }
          }
        EXPECT_LT(worst, 1e-4); // of values of magnitude 1 to 4, scores of up to 100
        ::testing::Test::RecordProperty("worst", std::to_string(worst));
        if (std::getenv("LATHE_VERBOSE")) std::printf("case %zu batch %zu: largest error %.3g\n", c.index, b, worst);
      }
  }
}

TEST(EmulatedMmaAttention, IsNearFloat64AndEqualInEveryForm) { isNearFloat64AndEqualInEveryForm(false); }
TEST(EmulatedMmaAttention, E4m3IsNearFloat64AndEqualInEveryForm) { isNearFloat64AndEqualInEveryForm(true); }

/// The rows of |s| from |first| on, |count| of them, as a step of their own.
Scene part(const Scene &s, int64_t first, int64_t count) {
  Scene one = s;
  one.rows = count;
  auto cut = [&](std::vector<int32_t> &v) {
    if (!v.empty()) v = {v.begin() + first, v.begin() + first + count};
  };
  cut(one.step.token), cut(one.step.position), cut(one.step.slot), cut(one.step.sequence);
  one.step.parent.clear();
  one.q = {s.q.begin() + first * s.p.qStride, s.q.begin() + (first + count) * s.p.qStride};
  return one;
}

void bitsDoNotDependOnTheRowsBeside(bool fp8) {
  Machine &machine = oldest(fp8);
  ASSERT_TRUE(machine);
  for (const Case &c : grid(fp8)) {
    SCOPED_TRACE("case " + std::to_string(c.index));
    Scene s(c.p, Batch{{{90, 19}, {262, 3}}}, uint32_t(c.index));
    std::vector<float> all = run(machine, c, s);
    for (auto [first, count] : {std::pair<int64_t, int64_t>{3, 1}, {6, 7}, {18, 2}, {21, 1}}) {
      Scene one = part(s, first, count);
      std::vector<float> y = run(machine, c, one);
      EXPECT_TRUE(sameBits(y.data(), all.data() + first * c.p.outStride, count * c.p.outStride)) << "row " << first;
    }
    // Entries behind what a row sees do not meet it, whatever they hold.
    Scene poisoned = s;
    std::vector<float> values(256, INFINITY);
    int32_t block = s.step.table[size_t(84 / c.p.page)];
    for (int64_t h = 0; h < c.p.kvHeads; ++h) poisoned.cache.append(block, h, 84, values.data(), values.data());
    std::vector<float> y = run(machine, c, poisoned);
    EXPECT_TRUE(sameBits(y.data(), all.data(), 13 * c.p.outStride)); // slots 71 .. 83
    EXPECT_FALSE(sameBits(y.data() + 13 * c.p.outStride, all.data() + 13 * c.p.outStride, c.p.outStride)); // slot 84 does see it
  }
}

TEST(EmulatedMmaAttention, BitsDoNotDependOnTheRowsBeside) { bitsDoNotDependOnTheRowsBeside(false); }
TEST(EmulatedMmaAttention, E4m3BitsDoNotDependOnTheRowsBeside) { bitsDoNotDependOnTheRowsBeside(true); }

/// A path of a draft tree has the bits of the chain that it becomes when it is accepted.
void treeRowsHaveTheBitsOfChains(bool fp8) {
  Machine &machine = oldest(fp8);
  ASSERT_TRUE(machine);
  for (const Case &c : grid(fp8)) {
    SCOPED_TRACE("case " + std::to_string(c.index));
    Scene tree(c.p, Batch{{{80, 11}}, true}, uint32_t(c.index + 50));
    std::vector<float> all = run(machine, c, tree);
    for (int64_t r : {4, 10}) {
      std::vector<int64_t> history = tree.history(r);
      Scene chain = part(tree, r, 1);
      int64_t last = int64_t(history.size()) - 1;
      chain.step.slot[0] = int32_t(last);
      for (int64_t j = tree.step.slot[0] + 1; j <= last; ++j) // the path's entries move behind the root
        for (int64_t h = 0; h < c.p.kvHeads; ++h) {
          const int32_t *table = tree.step.table.data();
          Scene &from = tree, &to = chain;
          auto move = [&](auto at, int64_t n, int64_t bytes) {
            for (int64_t d = 0; d < n; ++d) std::memcpy((to.cache.*at)(table[j / c.p.page], h, j, d), (from.cache.*at)(table[history[size_t(j)] / c.p.page], h, history[size_t(j)], d), size_t(bytes));
          };
          move(&model::Cache::keyAt, c.p.headDim, model::Cache::size(c.p.k));
          move(&model::Cache::valueAt, c.p.valueDim, model::Cache::size(c.p.v));
          auto scale = [&](auto at) { std::memcpy((to.cache.*at)(table[j / c.p.page], h, j), (from.cache.*at)(table[history[size_t(j)] / c.p.page], h, history[size_t(j)]), 4); };
          if (isByte(c.p.k)) scale(&model::Cache::keyScale);
          if (isByte(c.p.v)) scale(&model::Cache::valueScale);
        }
      std::vector<float> y = run(machine, c, chain);
      EXPECT_TRUE(sameBits(y.data(), all.data() + r * c.p.outStride, c.p.outStride)) << "row " << r;
    }
  }
}

TEST(EmulatedMmaAttention, TreeRowsHaveTheBitsOfChains) { treeRowsHaveTheBitsOfChains(false); }
TEST(EmulatedMmaAttention, E4m3TreeRowsHaveTheBitsOfChains) { treeRowsHaveTheBitsOfChains(true); }

TEST(EmulatedMmaAttention, QuantizedOutputIsTheQuantizationOfTheRows) {
  AttentionParams p = shape(6, 2, 32, 64, KVFormat::bf16, KVFormat::int8, 16);
  p.chunk = 64, p.maxChunks = 6;
  Case rows{p, 0}, quantized{p, 1};
  quantized.p.quantize = true, quantized.p.act = ActFormat::bf16;
  Machine machine(jobs({rows, quantized}), *findChip("sm_80"));
  ASSERT_TRUE(machine);
  Scene s(rows.p, batches[1], 3);
  std::vector<float> y = run(machine, rows, s);
  MmaAttentionParams m{quantized.p};
  Buffer q(s.q.size() * 4), pool(s.cache.bytes.size()), out(size_t(actBytes(s.rows, 6 * 64, m.act, false)), 0xcd), expected(out.size(), 0xcd);
  std::memcpy(q.data(), s.q.data(), q.size());
  std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
  for (int64_t r = 0; r < s.rows; ++r) packRow(expected.data(), 6 * 64, m.act, false, r, y.data() + r * p.outStride);
  machine.run(quantized.name(AttentionParams::whole), launchShape(m), {&q, &pool, &out}, s.step);
  EXPECT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
}

TEST(MmaAttention, RefusesWhatItCannotDo) {
  AttentionParams p = shape(4, 1, 64, 64, KVFormat::f32, KVFormat::f16, 16);
  auto message = [](AttentionParams p) {
    MmaAttentionParams m{p};
    auto built = buildPtx({job("k", m, emitMmaAttention)}, *findChip("sm_80"), 1);
    return built.ok() ? std::string() : built.status().message();
  };
  EXPECT_NE(message(p).find("unsupported: mma.sync over keys or values in f32"), std::string::npos) << message(p);
  p.k = KVFormat::f16, p.chunk = 4096;
  EXPECT_NE(message(p).find("unsupported: a head with chunks of 4096 needs"), std::string::npos) << message(p);
  p.chunk = 24;
  EXPECT_NE(message(p).find("expected a chunk of 16 to 65536 tokens, a multiple of 16, found 24"), std::string::npos) << message(p);
}

} // namespace
