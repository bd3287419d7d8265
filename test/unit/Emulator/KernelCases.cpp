//===- KernelCases.cpp - kernels with inputs and float64 references --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "KernelCases.h"
#include "runtime/device/emulator/Numerics.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::emulator {
namespace {

struct Difference {
  double worst = 0, scale = 1e-30;
  void add(double found, double expected) {
    double error = std::fabs(found - expected);
    if (!(error <= worst)) worst = error == error ? error : INFINITY;
    scale = std::max(scale, std::fabs(expected));
  }
  double relative() const { return worst / scale; }
};

struct Runner {
  Harness harness;
  Outcome outcome;
  Random random{1};
  Runner(const std::string &text, const Options &options, double tolerance) : harness(options) {
    outcome.tolerance = tolerance;
    if (!harness.load(text)) outcome.status = harness.status;
  }
  bool run(const char *kernel, const LaunchConfig &config, const Arguments &arguments) {
    if (outcome.status.ok() && !harness.run(kernel, config, arguments)) outcome.status = harness.status;
    return outcome.status.ok();
  }
  std::vector<uint16_t> halves(size_t count, float low, float high, bool bfloat = false) {
    std::vector<uint16_t> values(count);
    for (uint16_t &value : values)
      value = bfloat ? floatToBfloat(random.uniform(low, high)) : floatToHalf(random.uniform(low, high));
    return values;
  }
  Outcome finish(const Difference &difference) {
    outcome.error = difference.relative();
    return outcome;
  }
};

constexpr LaunchConfig grid(uint32_t x, uint32_t y, uint32_t z, uint32_t threads, uint32_t shared = 0) { return {.grid = {x, y, z}, .block = {threads, 1, 1}, .cluster = {}, .sharedBytes = shared}; }

// Weights of 4 bits in groups of 32 along K, two rows a warp; the whole matrix is N x 4096, the first |blocks| blocks run.
Outcome gemvW4(const std::string &text, const Options &options) {
  constexpr int K = 4096, blocks = 6, N = blocks * 8;
  Runner r(text, options, 2e-6);
  std::vector<uint32_t> w(size_t(N) * K / 8);
  for (uint32_t &word : w)
    word = static_cast<uint32_t>(r.random.next());
  auto s = r.halves(size_t(N) * K / 32, 0.001f, 0.02f), x = r.halves(K, -1, 1);
  uint64_t y = r.harness.space<float>(N, "y");
  if (!r.run("gemv_w4", grid(blocks, 1, 1, 128), Arguments().add(r.harness.put(w, "w")).add(r.harness.put(s, "s")).add(r.harness.put(x, "x")).add(y))) return r.outcome;
  auto found = r.harness.get<float>(y, N);
  Difference difference;
  for (int n = 0; n < N; ++n) {
    double sum = 0;
    for (int k = 0; k < K; ++k) {
      int q = w[size_t(n) * K / 8 + k / 8] >> (4 * (k % 8 / 2) + 16 * (k & 1)) & 15;
      sum += double(q - 8) * halfToFloat(s[size_t(n) * K / 32 + k / 32]) * halfToFloat(x[k]);
    }
    difference.add(found[n], sum);
  }
  return r.finish(difference);
}

/// Packs nibbles for weights as the A operand of m16n8k16 (blocks of 16 rows x 64 k).
void packMma(const std::vector<uint8_t> &q, const std::vector<uint16_t> &scale, int N, int K, uint32_t *w, uint16_t *s) {
  for (int nt = 0; nt < N / 16; ++nt)
    for (int kb = 0; kb < K / 64; ++kb) {
      for (int lane = 0; lane < 32; ++lane)
        for (int step = 0; step < 4; ++step) {
          uint32_t word = 0;
          for (int j = 0; j < 4; ++j)
            for (int h = 0; h < 2; ++h) {
              int row = nt * 16 + lane / 4 + 8 * (j & 1), k = kb * 64 + 32 * (step / 2) + 8 * (lane % 4) + 4 * (step % 2) + 2 * (j / 2) + h;
              word |= uint32_t(q[size_t(row) * K + k]) << (4 * j + 16 * h);
            }
          w[((size_t(nt) * (K / 64) + kb) * 32 + lane) * 4 + step] = word;
        }
      for (int g = 0; g < 8; ++g)
        for (int h = 0; h < 2; ++h)
          for (int row = 0; row < 2; ++row)
            s[((size_t(nt) * (K / 64) + kb) * 8 + g) * 4 + 2 * h + row] = scale[size_t(nt * 16 + g + 8 * row) * (K / 32) + kb * 2 + h];
    }
}

Outcome gemvMma(const std::string &text, const Options &options) {
  constexpr int K = 4096, blocks = 3, N = blocks * 16, M = 8, wholeN = 4096;
  Runner r(text, options, 2e-6);
  std::vector<uint8_t> q(size_t(N) * K);
  for (uint8_t &value : q)
    value = r.random.next() & 15;
  auto scale = r.halves(q.size() / 32, 0.001f, 0.02f), x = r.halves(size_t(M) * K, -1, 1);
  std::vector<uint32_t> w(q.size() / 8);
  std::vector<uint16_t> s(q.size() / 32);
  packMma(q, scale, N, K, w.data(), s.data());
  uint64_t y = r.harness.space<float>(size_t(M) * wholeN, "y");
  if (!r.run("gemv_mma", grid(blocks, 1, 1, 256), Arguments().add(r.harness.put(w, "w")).add(r.harness.put(s, "s")).add(r.harness.put(x, "x")).add(y))) return r.outcome;
  auto found = r.harness.get<float>(y, size_t(M) * wholeN);
  Difference difference;
  for (int t = 0; t < M; ++t)
    for (int n = 0; n < N; ++n) {
      double sum = 0;
      for (int k = 0; k < K; ++k)
        sum += double(q[size_t(n) * K + k] - 8) * halfToFloat(scale[size_t(n) * (K / 32) + k / 32]) * halfToFloat(x[size_t(t) * K + k]);
      difference.add(found[size_t(t) * wholeN + n], sum);
    }
  return r.finish(difference);
}

Outcome gemmW4(const std::string &text, const Options &options) {
  constexpr int K = 4096, G = 128, blocks = 1, N = blocks * 128, wholeN = 4096;
  Runner r(text, options, 1.2e-5);
  std::vector<uint8_t> q(size_t(N) * K);
  for (uint8_t &value : q)
    value = r.random.next() & 15;
  auto scale = r.halves(size_t(K / G) * N, 0.001f, 0.02f), a = r.halves(size_t(16) * K, -1, 1);
  std::vector<uint32_t> w(q.size() / 8);
  std::vector<uint16_t> s(size_t(K / G) * wholeN);
  for (int kb = 0; kb < K / 64; ++kb)
    for (int ch = 0; ch < 2; ++ch)
      for (int t = 0; t < 128; ++t)
        for (int wd = 0; wd < 4; ++wd) {
          int lane = t % 32, n = t / 32 * 32 + (2 * ch + wd / 2) * 8 + lane / 4, k0 = kb * 64 + (wd & 1) * 32;
          uint32_t word = 0;
          for (int j = 0; j < 4; ++j)
            for (int h = 0; h < 2; ++h)
              word |= uint32_t(q[size_t(n) * K + k0 + j / 2 * 16 + 2 * (lane % 4) + h + 8 * (j & 1)]) << (4 * j + 16 * h);
          w[((size_t(kb) * 2 + ch) * 128 + t) * 4 + wd] = word;
        }
  for (int g = 0; g < K / G; ++g)
    for (int wp = 0; wp < 4; ++wp)
      for (int row = 0; row < 8; ++row)
        for (int t = 0; t < 4; ++t)
          s[(((size_t(g) * (wholeN / 128)) * 4 + wp) * 8 + row) * 4 + t] = scale[size_t(g) * N + wp * 32 + t * 8 + row];
  uint64_t c = r.harness.space<float>(size_t(16) * wholeN, "c");
  if (!r.run("gemm_w4a16", grid(blocks, 1, 1, 128), Arguments().add(r.harness.put(a, "a")).add(r.harness.put(w, "w")).add(r.harness.put(s, "s")).add(c))) return r.outcome;
  auto found = r.harness.get<float>(c, size_t(16) * wholeN);
  Difference difference;
  for (int row = 0; row < 16; ++row)
    for (int n = 0; n < N; ++n) {
      double sum = 0;
      for (int k = 0; k < K; ++k)
        sum += double(halfToFloat(a[size_t(row) * K + k])) * halfToFloat(floatToHalf(float(q[size_t(n) * K + k] - 8) * halfToFloat(scale[size_t(k / G) * N + n])));
      difference.add(found[size_t(row) * wholeN + n], sum);
    }
  return r.finish(difference);
}

// One 128 x 256 tile of a 4096^3 product on TMA, mbarriers and wgmma, three warpgroups.
Outcome hopper(const std::string &text, const Options &options, bool fp8) {
  constexpr int K = 4096, N = 4096, rows = 128, columns = 256;
  const unsigned bytes = fp8 ? 1 : 2;
  // Output in bf16; fp8 sums keep 14 bits.
  Runner r(text, options, fp8 ? 2e-2 : 4e-3);
  std::vector<uint8_t> a(size_t(rows) * K * bytes), b(size_t(columns) * K * bytes);
  auto fill = [&](std::vector<uint8_t> &target) {
    for (size_t index = 0; index < target.size() / bytes; ++index) {
      if (fp8) target[index] = uint8_t(encode(r.random.uniform(-2, 2), kE4m3, Rounding::nearest, true));
      else {
        uint16_t value = floatToBfloat(r.random.uniform(-1, 1));
        std::memcpy(&target[2 * index], &value, 2);
      }
    }
  };
  fill(a);
  fill(b);
  auto value = [&](const std::vector<uint8_t> &source, size_t index) {
    if (fp8) return e4m3ToFloat(source[index]);
    uint16_t bits;
    std::memcpy(&bits, &source[2 * index], 2);
    return bfloatToFloat(bits);
  };
  auto map = [&](uint64_t address, uint64_t count, uint32_t box) {
    TensorMapDescription d;
    d.elementBytes = bytes;
    d.address = address;
    d.size = {K, count};
    d.stride = {0, uint64_t(K) * bytes};
    d.box = {128 / bytes, box};
    d.swizzle = TensorSwizzle::bytes128;
    auto encoded = encodeTensorMap(d);
    EXPECT_TRUE(encoded.ok()) << encoded.status().message();
    return r.harness.put(std::vector<uint8_t>(encoded->begin(), encoded->end()));
  };
  uint64_t ta = map(r.harness.put(a, "a"), rows, 128), tb = map(r.harness.put(b, "b"), columns, 256);
  uint64_t c = r.harness.space<uint16_t>(size_t(rows) * N, "c");
  if (!r.run(fp8 ? "gemm_ws_e4m3" : "gemm_ws_bf16", grid(1, 1, 1, 384, 4 * 49152 + 64), Arguments().add(ta).add(tb).add(c))) return r.outcome;
  auto found = r.harness.get<uint16_t>(c, size_t(rows) * N);
  Difference difference;
  for (int row = 0; row < rows; row += 3)
    for (int n = 0; n < columns; n += 5) {
      double sum = 0;
      for (int k = 0; k < K; ++k)
        sum += double(value(a, size_t(row) * K + k)) * value(b, size_t(n) * K + k);
      difference.add(bfloatToFloat(found[size_t(row) * N + n]), sum);
    }
  return r.finish(difference);
}
Outcome hopperBf16(const std::string &text, const Options &options) { return hopper(text, options, false); }
Outcome hopperE4m3(const std::string &text, const Options &options) { return hopper(text, options, true); }

enum class KvFormat { f16, i8, e4m3 };
// Paged decode: 32 query heads on 8 KV heads of 128, pages of 16 tokens, 8 splits.
Outcome attention(const std::string &text, const Options &options, KvFormat format) {
  constexpr int HQ = 32, HK = 8, D = 128, PS = 16, NP = 96, NB = 2, MAXP = 256, SPLIT = 8;
  const char *names[] = {"paged_decode_f16", "paged_decode_i8", "paged_decode_e4m3"};
  Runner r(text, options, 5e-4);
  const unsigned bytes = format == KvFormat::f16 ? 2 : 1;
  size_t cache = size_t(NP) * HK * PS * D;
  auto q = r.halves(size_t(NB) * HQ * D, -2, 2);
  std::vector<uint8_t> k(cache * bytes), v(cache * bytes);
  auto put = [&](std::vector<uint8_t> &target, size_t index, float x) {
    if (format == KvFormat::f16) {
      uint16_t bits = floatToHalf(x);
      std::memcpy(&target[2 * index], &bits, 2);
    } else target[index] = format == KvFormat::i8 ? uint8_t(int8_t(std::lrint(x * 50))) : uint8_t(encode(x * 20, kE4m3, Rounding::nearest, true));
  };
  auto get = [&](const std::vector<uint8_t> &source, size_t index) -> double {
    if (format == KvFormat::i8) return int8_t(source[index]);
    if (format == KvFormat::e4m3) return e4m3ToFloat(source[index]);
    uint16_t bits;
    std::memcpy(&bits, &source[2 * index], 2);
    return halfToFloat(bits);
  };
  for (size_t index = 0; index < cache; ++index) {
    put(k, index, r.random.uniform(-2, 2));
    put(v, index, r.random.uniform(-2, 2));
  }
  std::vector<float> scales(2);
  scales[0] = format == KvFormat::f16 ? 1 : format == KvFormat::i8 ? 0.02f : 0.05f;
  scales[1] = scales[0] * 0.5f;
  std::vector<int> permutation(NP), table(NB * MAXP), length(NB);
  std::iota(permutation.begin(), permutation.end(), 0);
  for (int index = NP - 1; index > 0; --index)
    std::swap(permutation[index], permutation[r.random.next() % (index + 1)]);
  for (int s = 0, next = 0; s < NB; ++s) {
    length[s] = s == 0 ? 1 : 217;
    for (int p = 0; p < MAXP; ++p)
      table[s * MAXP + p] = p < (length[s] + PS - 1) / PS ? permutation[next++] : -1;
  }
  uint64_t pa = r.harness.space<float>(size_t(NB) * HQ * SPLIT * D), pm = r.harness.space<float>(size_t(NB) * HQ * SPLIT * 2), o = r.harness.space<uint16_t>(size_t(NB) * HQ * D);
  if (!r.run(names[int(format)], grid(HK, NB, SPLIT, 128), Arguments().add(r.harness.put(q, "q")).add(r.harness.put(k, "k")).add(r.harness.put(v, "v")).add(r.harness.put(table, "table")).add(r.harness.put(length, "length")).add(r.harness.put(scales, "scales")).add(pa).add(pm))) return r.outcome;
  if (!r.run("decode_reduce", grid(HQ, NB, 1, 32), Arguments().add(pa).add(pm).add(o))) return r.outcome;
  auto found = r.harness.get<uint16_t>(o, size_t(NB) * HQ * D);
  Difference difference;
  for (int s = 0; s < NB; ++s)
    for (int h = 0; h < HQ; h += 3) {
      std::vector<double> p(length[s]);
      double largest = -INFINITY, sum = 0;
      auto at = [&](int t, int d) { return ((size_t(table[s * MAXP + t / PS]) * HK + h / (HQ / HK)) * PS + t % PS) * D + d; };
      for (int t = 0; t < length[s]; ++t) {
        double x = 0;
        for (int d = 0; d < D; ++d)
          x += halfToFloat(q[(size_t(s) * HQ + h) * D + d]) * get(k, at(t, d));
        p[t] = x * scales[0] / std::sqrt(double(D));
        largest = std::max(largest, p[t]);
      }
      for (double &x : p)
        sum += x = std::exp(x - largest);
      for (int d = 0; d < D; ++d) {
        double x = 0;
        for (int t = 0; t < length[s]; ++t)
          x += p[t] / sum * get(v, at(t, d)) * scales[1];
        difference.add(halfToFloat(found[(size_t(s) * HQ + h) * D + d]), x);
      }
    }
  return r.finish(difference);
}
Outcome attentionF16(const std::string &text, const Options &options) { return attention(text, options, KvFormat::f16); }
Outcome attentionI8(const std::string &text, const Options &options) { return attention(text, options, KvFormat::i8); }
Outcome attentionE4m3(const std::string &text, const Options &options) { return attention(text, options, KvFormat::e4m3); }

Outcome norm(const std::string &text, const Options &options, bool fp8) {
  constexpr int H = 4096, R = 3;
  Runner r(text, options, fp8 ? 0.0625 : 0.0041);
  auto x = r.halves(size_t(R) * H, -3, 3, fp8), w = r.halves(H, 0.5f, 1.5f, fp8);
  auto value = [&](uint16_t bits) { return fp8 ? bfloatToFloat(bits) : halfToFloat(bits); };
  uint64_t q = r.harness.space<uint8_t>(size_t(R) * H), s = r.harness.space<float>(R);
  if (!r.run(fp8 ? "rmsnorm_quant_e4m3" : "rmsnorm_quant_i8", grid(R, 1, 1, 256), Arguments().add(r.harness.put(x, "x")).add(r.harness.put(w, "w")).add(q).add(s))) return r.outcome;
  auto found = r.harness.get<uint8_t>(q, size_t(R) * H);
  auto scale = r.harness.get<float>(s, R);
  Difference difference, scales;
  for (int row = 0; row < R; ++row) {
    double squares = 0, largest = 0;
    std::vector<double> y(H);
    for (int k = 0; k < H; ++k)
      squares += double(value(x[size_t(row) * H + k])) * value(x[size_t(row) * H + k]);
    for (int k = 0; k < H; ++k) {
      y[k] = value(x[size_t(row) * H + k]) / std::sqrt(squares / H + 1e-5) * value(w[k]);
      largest = std::max(largest, std::fabs(y[k]));
    }
    scales.add(scale[row], largest / (fp8 ? 448 : 127));
    for (int k = 0; k < H; ++k)
      difference.add((fp8 ? double(e4m3ToFloat(found[size_t(row) * H + k])) : double(int8_t(found[size_t(row) * H + k]))) * scale[row], y[k]);
  }
  if (scales.relative() > 1e-6) difference.worst = INFINITY;
  return r.finish(difference);
}
Outcome normI8(const std::string &text, const Options &options) { return norm(text, options, false); }
Outcome normE4m3(const std::string &text, const Options &options) { return norm(text, options, true); }

// A persistent kernel with static task lists: three chained (norm, product) layers on 12 resident blocks.
Outcome megakernel(const std::string &text, const Options &options) {
  constexpr int N = 1024, K = 1024, L = 3, M = 8, NB = N / 16, WK = 12;
  Runner r(text, options, 2e-3);
  std::vector<uint8_t> q(size_t(L) * N * K);
  for (uint8_t &value : q)
    value = r.random.next() & 15;
  auto scale = r.halves(q.size() / 32, 0.001f, 0.01f);
  std::vector<uint32_t> w(q.size() / 8);
  std::vector<uint16_t> s(q.size() / 32), x(size_t(M) * K, 0xffff);
  for (int l = 0; l < L; ++l) {
    std::vector<uint8_t> layer(q.begin() + ptrdiff_t(l) * N * K, q.begin() + ptrdiff_t(l + 1) * N * K);
    std::vector<uint16_t> layerScale(scale.begin() + ptrdiff_t(l) * N * K / 32, scale.begin() + ptrdiff_t(l + 1) * N * K / 32);
    packMma(layer, layerScale, N, K, w.data() + size_t(l) * N * K / 8, s.data() + size_t(l) * N * K / 32);
  }
  std::vector<float> h(size_t(L + 1) * M * K, NAN);
  for (int index = 0; index < M * K; ++index)
    h[index] = r.random.uniform(-1, 1);
  std::vector<std::vector<std::array<int, 6>>> lists(WK);
  int turn = 0;
  for (int l = 0; l < L; ++l) {
    for (int row = 0; row < M; ++row)
      lists[turn++ % WK].push_back({0, row, l, 2 * l, l ? NB : 0, 1 + 2 * l});
    for (int nt = 0; nt < NB; ++nt)
      lists[turn++ % WK].push_back({1, nt, l, 1 + 2 * l, M, 2 + 2 * l});
  }
  std::vector<int> tasks(4096 * 8), start(1024), events(64);
  int count = 0;
  for (int worker = 0; worker < WK; ++worker) {
    start[worker] = count;
    for (const auto &task : lists[worker]) {
      std::copy(task.begin(), task.end(), tasks.begin() + count * 8);
      ++count;
    }
  }
  start[WK] = count;
  uint64_t hidden = r.harness.put(h, "h");
  LaunchConfig config = grid(WK, 1, 1, 256);
  config.cooperative = true;
  if (!r.run("mega", config, Arguments().add(r.harness.put(tasks, "tasks")).add(r.harness.put(start, "start")).add(r.harness.put(events, "events")).add(r.harness.put(w, "w")).add(r.harness.put(s, "s")).add(r.harness.put(x, "x")).add(hidden))) return r.outcome;
  auto found = r.harness.get<float>(hidden, h.size());
  std::vector<double> now(h.begin(), h.begin() + M * K);
  for (int l = 0; l < L; ++l) {
    std::vector<double> next(size_t(M) * N);
    for (int t = 0; t < M; ++t) {
      double squares = 0;
      for (int k = 0; k < K; ++k)
        squares += now[t * K + k] * now[t * K + k];
      std::vector<double> y(K);
      for (int k = 0; k < K; ++k)
        y[k] = halfToFloat(floatToHalf(float(now[t * K + k] / std::sqrt(squares / K + 1e-5))));
      for (int o = 0; o < N; ++o)
        for (int k = 0; k < K; ++k)
          next[t * N + o] += (q[(size_t(l) * N + o) * K + k] - 8) * double(halfToFloat(scale[(size_t(l) * N + o) * (K / 32) + k / 32])) * y[k];
    }
    now = next;
  }
  Difference difference;
  for (int index = 0; index < M * N; ++index)
    difference.add(found[size_t(L) * M * K + index], now[index]);
  return r.finish(difference);
}

} // namespace

const std::vector<KernelCase> &kernelCases() {
  static const std::vector<KernelCase> cases = {
      {"gemv_w4", "kernels/gemv_w4.sm_80.ptx", gemvW4, true},
      {"gemv_mma", "kernels/gemv_mma.sm_80.ptx", gemvMma, true},
      {"gemm_w4a16", "kernels/gemm_w4a16.sm_80.ptx", gemmW4, true},
      {"gemm_ws_bf16", "kernels/gemm_ws_bf16.sm_90a.ptx", hopperBf16, true},
      {"gemm_ws_e4m3", "kernels/gemm_ws_e4m3.sm_90a.ptx", hopperE4m3, false},
      {"paged_decode_f16", "kernels/paged_decode_f16.sm_80.ptx", attentionF16, true},
      {"paged_decode_i8", "kernels/paged_decode_i8.sm_80.ptx", attentionI8, false},
      {"paged_decode_e4m3", "kernels/paged_decode_e4m3.sm_90a.ptx", attentionE4m3, false},
      {"norm_i8", "kernels/norm_i8.sm_80.ptx", normI8, true},
      {"norm_e4m3", "kernels/norm_e4m3.sm_90a.ptx", normE4m3, false},
      {"megakernel", "kernels/mega.sm_80.ptx", megakernel, false},
  };
  return cases;
}

} // namespace lathe::emulator
