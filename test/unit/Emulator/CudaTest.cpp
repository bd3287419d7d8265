//===- CudaTest.cpp - kernels that nvcc compiled ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// cuda/*.cu beside what nvcc 13 made of them (cuda/make_ptx.sh): PTX that nobody wrote for this emulator.
//===----------------------------------------------------------------------===//
#include "Harness.h"
#include "runtime/device/emulator/Numerics.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::emulator {
namespace {

/// Every kernel runs lazily, eagerly, with random turns and with the race check.
class Cuda : public testing::TestWithParam<int> {
protected:
  Harness open(const char *name) {
    Options options;
    if (GetParam() == 1) options.mode = AsyncMode::eager;
    if (GetParam() == 2) options.seed = 11;
    if (GetParam() == 3) options.checkRaces = true;
    Harness harness(options);
    EXPECT_TRUE(harness.load(readText(std::string("cuda/") + name + ".ptx"))) << errorOf(harness);
    return harness;
  }
  Random random{42};
};
#define LATHE_RUN(H, ...)                                                                                              \
  do {                                                                                                                 \
    ASSERT_NE(H.module, nullptr) << errorOf(H);                                                                        \
    ASSERT_TRUE(H.run(__VA_ARGS__)) << errorOf(H);                                                                     \
  } while (0)

TEST_P(Cuda, WmmaGemm) {
  Harness h = open("wmma_gemm");
  constexpr int M = 32, N = 64, K = 48;
  std::vector<uint16_t> a(M * K), b(K * N);
  for (auto *matrix : {&a, &b})
    for (uint16_t &value : *matrix)
      value = floatToHalf(random.uniform(-1, 1));
  uint64_t c = h.space<float>(M * N);
  LATHE_RUN(h, "wmma_gemm", {.grid = {2, M / 16}, .block = {64}, .cluster = {}}, Arguments().add(h.put(a)).add(h.put(b)).add(c).add(M).add(N).add(K));
  auto found = h.get<float>(c, M * N);
  for (int row = 0; row < M; ++row)
    for (int n = 0; n < N; ++n) {
      double sum = 0;
      for (int k = 0; k < K; ++k)
        sum += double(halfToFloat(a[row * K + k])) * halfToFloat(b[k * N + n]);
      ASSERT_NEAR(found[row * N + n], sum / 2, 1e-5);
    }
}

TEST_P(Cuda, PipelinedGemm) {
  Harness h = open("pipeline_gemm");
  constexpr int M = 64, N = 64, K = 96;
  std::vector<float> a(M * K), b(K * N);
  for (auto *matrix : {&a, &b})
    for (float &value : *matrix)
      value = random.uniform(-1, 1);
  uint64_t c = h.space<float>(M * N);
  LATHE_RUN(h, "pipeline_gemm", {.grid = {N / 32, M / 32}, .block = {256}, .cluster = {}}, Arguments().add(h.put(a)).add(h.put(b)).add(c).add(M).add(N).add(K));
  auto found = h.get<float>(c, M * N);
  for (int row = 0; row < M; ++row)
    for (int n = 0; n < N; ++n) {
      float sum = 0; // the kernel's own order
      for (int k = 0; k < K; ++k)
        sum = std::fma(a[row * K + k], b[k * N + n], sum);
      ASSERT_EQ(found[row * N + n], sum);
    }
}

TEST_P(Cuda, CooperativeGroupsReduce) {
  Harness h = open("cg_reduce");
  constexpr int n = 5000, blocks = 4, threads = 256;
  std::vector<float> x(n);
  for (float &value : x)
    value = float(int(random.next() % 201) - 100); // sums are exact
  uint64_t sums = h.space<float>(blocks), segments = h.space<float>(blocks * threads / 8), maximum = h.put(std::vector<int>{INT32_MIN});
  LATHE_RUN(h, "cg_reduce", {.grid = {blocks}, .block = {threads}, .cluster = {}}, Arguments().add(h.put(x)).add(sums).add(maximum).add(segments).add(n));
  std::vector<float> expected(blocks), parts(blocks * threads / 8);
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    int thread = i % (blocks * threads);
    expected[thread / threads] += x[i];
    parts[thread / 8] += x[i];
    largest = std::max(largest, std::fabs(x[i]));
  }
  EXPECT_EQ(h.get<float>(sums, blocks), expected);
  EXPECT_EQ(h.get<float>(segments, parts.size()), parts);
  EXPECT_EQ(h.get<float>(maximum, 1)[0], largest);
}

TEST_P(Cuda, GridSync) {
  Harness h = open("grid_sync");
  constexpr int n = 700, steps = 4;
  std::vector<float> a(n), b(n);
  for (float &value : a)
    value = random.uniform(-1, 1);
  uint64_t da = h.put(a), db = h.put(b);
  LaunchConfig config{.grid = {3}, .block = {128}, .cluster = {}, .cooperative = true};
  LATHE_RUN(h, "grid_sync", config, Arguments().add(da).add(db).add(n).add(steps));
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < n; ++i)
      b[i] = std::fma(a[(i + 1) % n], 0.25f, std::fma(a[i], 0.5f, a[(i + n - 1) % n] * 0.25f));
    std::swap(a, b);
  }
  auto found = h.get<float>(da, n);
  for (int i = 0; i < n; ++i)
    ASSERT_NEAR(found[i], a[i], 1e-6);
  if (GetParam() == 0) {
    config.cooperative = false;
    EXPECT_FALSE(h.run("grid_sync", config, Arguments().add(da).add(db).add(n).add(steps)));
    EXPECT_NE(errorOf(h).find("deadlock"), std::string::npos) << errorOf(h);
    EXPECT_NE(errorOf(h).find("need a cooperative launch"), std::string::npos);
  }
}

TEST_P(Cuda, Histogram) {
  Harness h = open("histogram");
  constexpr int n = 6000;
  std::vector<uint8_t> data(n);
  std::vector<unsigned> expected(256);
  for (uint8_t &value : data)
    ++expected[value = uint8_t(random.next() % 97)];
  uint64_t bins = h.put(std::vector<unsigned>(256)), total = h.put(std::vector<uint64_t>(1));
  LATHE_RUN(h, "histogram", {.grid = {5}, .block = {192}, .cluster = {}}, Arguments().add(h.put(data)).add(bins).add(total).add(n));
  EXPECT_EQ(h.get<unsigned>(bins, 256), expected);
  EXPECT_EQ(h.get<uint64_t>(total, 1)[0], uint64_t(n));
}

TEST_P(Cuda, Scan) {
  Harness h = open("scan");
  constexpr int n = 1500;
  std::vector<int> in(n), expected(n);
  for (int i = 0; i < n; ++i)
    expected[i] = (in[i] = int(random.next() % 1000) - 500) + (i % 512 ? expected[i - 1] : 0);
  uint64_t out = h.space<int>(n);
  LATHE_RUN(h, "scan", {.grid = {3}, .block = {512}, .cluster = {}}, Arguments().add(h.put(in)).add(out).add(n));
  EXPECT_EQ(h.get<int>(out, n), expected);
}

TEST_P(Cuda, BitonicSort) {
  Harness h = open("bitonic");
  std::vector<unsigned> keys(2048);
  for (unsigned &key : keys)
    key = unsigned(random.next());
  auto sorted = keys;
  uint64_t dk = h.put(keys), dp = h.space<unsigned>(2048);
  LATHE_RUN(h, "bitonic", {.grid = {2}, .block = {256}, .cluster = {}}, Arguments().add(dk).add(dp));
  auto found = h.get<unsigned>(dk, 2048), positions = h.get<unsigned>(dp, 2048);
  for (int block = 0; block < 2; ++block) {
    std::sort(sorted.begin() + block * 1024, sorted.begin() + (block + 1) * 1024);
    for (int i = 0; i < 1024; ++i) {
      ASSERT_EQ(found[block * 1024 + i], sorted[block * 1024 + i]);
      ASSERT_EQ(keys[block * 1024 + positions[block * 1024 + i]], sorted[block * 1024 + i]);
    }
  }
}

TEST_P(Cuda, HalfStencil) {
  Harness h = open("stencil_half");
  constexpr int W = 20, H = 13;
  std::vector<uint16_t> in(W * H * 2);
  for (uint16_t &value : in)
    value = floatToHalf(random.uniform(-2, 2));
  uint64_t out = h.space<uint16_t>(in.size());
  LATHE_RUN(h, "stencil_half", {.grid = {2, 2}, .block = {16, 8}, .cluster = {}}, Arguments().add(h.put(in)).add(out).add(W).add(H));
  auto found = h.get<uint16_t>(out, in.size());
  auto at = [&](int y, int x, int half) { return y < 0 || y >= H || x < 0 || x >= W ? 0.0f : halfToFloat(in[(y * W + x) * 2 + half]); };
  auto round = [](double value) { return decode(encode(value, kHalf, Rounding::nearest, false), kHalf); };
  for (int y = 0; y < H; ++y)
    for (int x = 0; x < W; ++x)
      for (int half = 0; half < 2; ++half) {
        double sum = round(round(at(y - 1, x, half) + at(y + 1, x, half)) + round(at(y, x - 1, half) + at(y, x + 1, half)));
        ASSERT_EQ(halfToFloat(found[(y * W + x) * 2 + half]), std::max(0.0, round(sum * 0.25 - at(y, x, half))));
      }
}

TEST_P(Cuda, Int8Dot) {
  Harness h = open("dot_int8");
  constexpr int rows = 8, words = 70;
  std::vector<int8_t> a(rows * words * 4), x(words * 4);
  for (auto *vector : {&a, &x})
    for (int8_t &value : *vector)
      value = int8_t(random.next());
  std::vector<float> scale(rows, 0.25f);
  uint64_t y = h.space<float>(rows);
  LATHE_RUN(h, "dot_int8", {.grid = {2}, .block = {128}, .cluster = {}}, Arguments().add(h.put(a)).add(h.put(x)).add(h.put(scale)).add(y).add(words));
  auto found = h.get<float>(y, rows);
  for (int row = 0; row < rows; ++row) {
    int sum = 0;
    for (int k = 0; k < words * 4; ++k)
      sum += a[row * words * 4 + k] * x[k];
    EXPECT_EQ(found[row], float(sum) * 0.25f);
  }
}

TEST_P(Cuda, BulkCopyAndBarrier) {
  Harness h = open("bulk_barrier");
  constexpr int tiles = 5;
  std::vector<float> in(tiles * 256);
  for (float &value : in)
    value = random.uniform(-1, 1);
  uint64_t out = h.space<float>(in.size());
  LATHE_RUN(h, "bulk_barrier", {.grid = {2}, .block = {64}, .cluster = {}}, Arguments().add(h.put(in)).add(out).add(tiles));
  auto found = h.get<float>(out, in.size());
  for (size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(found[i], std::fma(in[i], in[i], 1.0f));
}

TEST_P(Cuda, Softmax) {
  Harness h = open("softmax");
  constexpr int rows = 3, columns = 500;
  std::vector<float> x(rows * columns);
  for (float &value : x)
    value = random.uniform(-8, 8);
  uint64_t y = h.space<float>(x.size()), lse = h.space<float>(rows);
  LATHE_RUN(h, "softmax", {.grid = {rows}, .block = {128}, .cluster = {}}, Arguments().add(h.put(x)).add(y).add(lse).add(columns));
  auto found = h.get<float>(y, x.size()), logs = h.get<float>(lse, rows);
  for (int row = 0; row < rows; ++row) {
    double sum = 0;
    for (int i = 0; i < columns; ++i)
      sum += std::exp(double(x[row * columns + i]));
    EXPECT_NEAR(logs[row], std::log(sum), 1e-5);
    for (int i = 0; i < columns; ++i)
      ASSERT_NEAR(found[row * columns + i], std::exp(double(x[row * columns + i])) / sum, 1e-6);
  }
}

TEST_P(Cuda, CompactAndDivergence) {
  Harness h = open("compact");
  constexpr int n = 300;
  std::vector<int> in(n), kept;
  for (int &value : in)
    if ((value = int(random.next() % 4001) - 2000) > 0) kept.push_back(value);
  uint64_t out = h.space<int>(n), count = h.put(std::vector<int>{0}), equal = h.space<int>(n), steps = h.space<int>(n);
  LATHE_RUN(h, "compact", {.grid = {3}, .block = {128}, .cluster = {}}, Arguments().add(h.put(in)).add(out).add(count).add(equal).add(steps).add(n));
  ASSERT_EQ(h.get<int>(count, 1)[0], int(kept.size()));
  auto found = h.get<int>(out, kept.size());
  std::sort(found.begin(), found.end());
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(found, kept);
  auto same = h.get<int>(equal, n), taken = h.get<int>(steps, n);
  for (int i = 0; i < n; ++i) {
    int expected = 0, value = std::abs(in[i]) % 1000 + 1, count = 0;
    for (int j = i / 32 * 32; j < std::min(n, i / 32 * 32 + 32); ++j)
      expected += in[j] % 7 == in[i] % 7;
    for (; value != 1 && count < 200; ++count)
      value = value & 1 ? 3 * value + 1 : value / 2;
    ASSERT_EQ(same[i], expected);
    ASSERT_EQ(taken[i], count);
  }
}

int choose(int which, int value) {
  unsigned bits = unsigned(value), result = 0;
  switch (which) {
  case 0: return int(bits + 1);
  case 1: return int(bits * 3);
  case 2: return value ^ 0x55;
  case 3: return int(0u - bits);
  case 4: return value >> 2;
  case 5:
    for (int i = 0; i < 32; ++i)
      result |= (bits >> i & 1) << (31 - i);
    return int(result);
  case 6: return bits ? __builtin_clz(bits) : 32;
  default: return __builtin_popcount(bits);
  }
}
TEST_P(Cuda, CallsSwitchesAndLocalArrays) {
  Harness h = open("calls");
  constexpr int n = 90;
  std::vector<double> x(n);
  std::vector<int64_t> y(n);
  for (int i = 0; i < n; ++i) {
    x[i] = random.uniform(-4, 4);
    y[i] = int64_t(random.next());
  }
  uint64_t a = h.space<double>(n), b = h.space<int64_t>(n), c = h.space<int>(n);
  LATHE_RUN(h, "calls", {.grid = {2}, .block = {64}, .cluster = {}}, Arguments().add(h.put(x)).add(h.put(y)).add(a).add(b).add(c).add(n));
  auto fa = h.get<double>(a, n);
  auto fb = h.get<int64_t>(b, n);
  auto fc = h.get<int>(c, n);
  for (int i = 0; i < n; ++i) {
    double p = std::fma(x[i], x[(i + 1) % n], 1.0);
    ASSERT_EQ(fa[i], std::sqrt(p * p) / 3.0);
    int64_t divisor = y[(i + 1) % n] | 1;
    ASSERT_EQ(fb[i], y[i] / divisor + y[i] % divisor);
    int history[16], value = int(y[i]);
    for (int step = 0; step < 16; ++step) {
      value = choose((value ^ step) & 7, value);
      history[(step * 5 + i) & 15] = value;
    }
    unsigned sum = 0;
    for (int step = 0; step < 16; ++step)
      sum = sum * 31 + unsigned(history[(i + step) & 15]);
    ASSERT_EQ(fc[i], int(sum));
  }
}

INSTANTIATE_TEST_SUITE_P(Nvcc, Cuda, testing::Values(0, 1, 2, 3));

} // namespace
} // namespace lathe::emulator
