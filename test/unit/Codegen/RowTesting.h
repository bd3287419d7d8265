//===- RowTesting.h - steps, random values, bit comparison ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "KernelLibrary.h"
#include "ScalarModelRows.h"
#include <random>

namespace lathe::codegen::test {

/// The wide grids of every test; the default keeps the corners.
inline bool fullGrid() { return std::getenv("LATHE_FULL") != nullptr; }

/// The variants to test: but for bf16 activations, which avx512vnni keeps as AVX2 does, row kernels depend on the vector
/// width only, so one of 512 bits stands for both.
inline std::vector<X86Target> rowTargets() {
  std::vector<X86Target> all = hostTargets();
  if (!fullGrid() && all.size() > 2) all.erase(all.begin() + 1);
  return all;
}

using Random = std::mt19937;
inline float normal(Random &r, float sigma = 1.0f) { return sigma * std::normal_distribution<float>()(r); }
inline void fillNormal(Random &r, float *p, int64_t n, float sigma = 1.0f) {
  for (int64_t i = 0; i < n; ++i)
    p[i] = normal(r, sigma);
}
inline Buffer randomRows(Random &r, int64_t rows, int64_t stride, float sigma = 1.0f) {
  Buffer b(size_t(rows * stride * 4));
  fillNormal(r, b.as<float>(), rows * stride, sigma);
  return b;
}

/// A step and what it points to; one KV group.
struct StepData {
  std::vector<int32_t> token, position, slot, sequence, outRow, parent;
  std::vector<const float *> embedding;
  std::vector<int32_t> table;
  uint32_t tableStride = 0;
  LatheStep step{};
  const int32_t *tables[1];

  explicit StepData(int64_t rows) : token(rows), position(rows), slot(rows), sequence(rows) {}
  const LatheStep *get() {
    step.size = sizeof step;
    step.rows = uint32_t(token.size());
    step.sequences = 1;
    for (int32_t s : sequence)
      step.sequences = std::max(step.sequences, uint32_t(s + 1));
    step.outRows = uint32_t(outRow.size());
    step.token = token.data();
    step.position = position.data();
    step.slot = slot.data();
    step.sequence = sequence.data();
    step.outRow = outRow.data();
    step.parent = parent.empty() ? nullptr : parent.data();
    step.embedding = embedding.empty() ? nullptr : embedding.data();
    tables[0] = table.data();
    step.blockTable = tables;
    step.tableStride = &tableStride;
    return &step;
  }
};

/// Runs |items| of a kernel as |threads| interleaved shares.
inline void runKernel(LatheKernelFn f, std::vector<uint8_t *> args, StepData &step, int64_t items, int64_t threads = 2,
                      int64_t scratchBytes = 0) {
  ASSERT_TRUE(f);
  Buffer scratch(size_t(scratchBytes), 0xff); // NaN: nothing may depend on what it held
  for (int64_t t = 0; t < threads; ++t)
    f(args.data(), step.get(), t, items, threads, scratch.data());
  EXPECT_TRUE(scratch.intact()) << "scratch overrun";
}

/// First difference of two float arrays as bits.
inline ::testing::AssertionResult sameBits(const float *actual, const float *expected, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (model::toBits(actual[i]) != model::toBits(expected[i]))
      return ::testing::AssertionFailure()
             << "element " << i << " of " << n << ": " << actual[i] << " instead of " << expected[i];
  return ::testing::AssertionSuccess();
}
inline ::testing::AssertionResult sameBytes(const uint8_t *actual, const uint8_t *expected, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (actual[i] != expected[i])
      return ::testing::AssertionFailure()
             << "byte " << i << " of " << n << ": " << int(actual[i]) << " instead of " << int(expected[i]);
  return ::testing::AssertionSuccess();
}

inline ArgmaxParams argmaxCase(int64_t width, bool pairs) {
  ArgmaxParams p;
  p.width = width, p.pairs = p.outRows = pairs;
  p.inStride = rowStride(pairs ? 2 * width : width);
  return p;
}
/// Rows whose largest value is one of equals, a NaN, an infinity of either sign, or just a number.
inline Buffer argmaxRows(Random &random, int64_t rows, const ArgmaxParams &p) {
  Buffer x = randomRows(random, rows, p.inStride);
  for (int64_t r = 0; r < rows; ++r) {
    float *row = x.as<float>() + r * p.inStride;
    for (int64_t k = 0; k < p.width; ++k) {
      if (r % 2) row[k] = float(int(row[k] * 2)); // ties, and zeros of both signs
      if (r % 5 == 0) row[k] = -INFINITY;         // also whole rows of it
      if (p.pairs) row[k + p.width] = float(3 * k + 7);
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float special[] = {INFINITY, nan, -nan, std::numeric_limits<float>::max(), 1.0f, -INFINITY, -0.0f};
    for (uint32_t n = random() % 4; n > 0 && r % 3; --n)
      row[random() % uint32_t(p.width)] = special[random() % std::size(special)];
  }
  return x;
}
/// Whether |out|, rows of 16 floats, has what a sampler would find in |x|: NaN and +infinity are larger than the rest, the first of them counts.
inline ::testing::AssertionResult areLargest(const float *x, const float *out, int64_t rows, const ArgmaxParams &p) {
  for (int64_t r = 0; r < rows; ++r, x += p.inStride, out += 16) {
    const float *bad = std::find_if(x, x + p.width, [](float v) { return std::isnan(v) || v == INFINITY; });
    const float *want = bad == x + p.width ? std::max_element(x, x + p.width) : bad;
    std::array<float, 16> expected{!p.pairs ? float(want - x) : *want == -INFINITY ? 0 : want[p.width], *want};
    for (size_t k = 0; k < 16; ++k)
      if (model::toBits(out[k]) != model::toBits(expected[k]))
        return ::testing::AssertionFailure() << "row " << r << " column " << k << ": " << out[k] << " instead of " << expected[k];
  }
  return ::testing::AssertionSuccess();
}

template <typename Params, typename Emit> KernelJob job(const std::string &symbol, Params p, Emit emit) {
  return {symbol, [p, emit](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emit(m, s, p, t); }};
}

} // namespace lathe::codegen::test
