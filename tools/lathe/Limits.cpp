//===- Limits.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Limits.h"
#include "runtime/device/cpu/ThreadTeam.h"
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <immintrin.h>
#include <sys/mman.h>
#include <vector>

namespace lathe::tool {
namespace {

using runtime::FlagBarrier;
using runtime::ThreadTeam;
using Clock = std::chrono::steady_clock;

__attribute__((target("avx512f"))) uint64_t read512(const uint8_t *data, size_t bytes) {
  __m512i sum[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256)
    for (int j = 0; j < 4; ++j)
      sum[j] = _mm512_xor_si512(sum[j], _mm512_loadu_si512(data + i + 64 * j));
  return static_cast<uint64_t>(
      _mm512_reduce_add_epi64(_mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]))));
}

__attribute__((target("avx2"))) uint64_t read256(const uint8_t *data, size_t bytes) {
  __m256i sum[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128)
    for (int j = 0; j < 4; ++j)
      sum[j] = _mm256_xor_si256(sum[j], _mm256_loadu_si256(reinterpret_cast<const __m256i *>(data + i + 32 * j)));
  __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) + _mm256_extract_epi64(all, 3));
}

// 12 independent chains cover latency times width of every processor that has the instruction. The empty asm keeps the
// operands opaque, so that nothing is computed ahead.
__attribute__((target("avx512f,avx512vnni"))) double macs512(int rounds) {
  __m512i acc[12] = {}, a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
    for (auto &x : acc)
      x = _mm512_dpbusd_epi32(x, a, b);
  }
  for (auto &x : acc)
    __asm__ volatile("" : : "v"(x));
  return 12.0 * 64 * rounds;
}

/// The copy keeps equal products from being computed once for all sums.
__attribute__((target("avx2"), always_inline)) inline __m256i dot256(__m256i sum, __m256i a, __m256i b, __m256i one) {
  __asm__ volatile("" : "+x"(a));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one));
}

__attribute__((target("avx2"))) double macs256(int rounds) {
  __m256i acc[8] = {}, a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(2), one = _mm256_set1_epi16(1);
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
    for (auto &x : acc)
      x = dot256(x, a, b, one);
  }
  for (auto &x : acc)
    __asm__ volatile("" : : "x"(x));
  return 8.0 * 32 * rounds;
}

// A group of 32: eight dot products, then convert, scale by the weights' scale, and fma with the row's.
__attribute__((target("avx512f,avx512vnni"))) double groups512(int rounds) {
  __m512 sum[8] = {}, scale = _mm512_set1_ps(0.5f);
  __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(scale));
    __m512i acc[8] = {};
    for (auto &x : acc)
      __asm__ volatile("" : "+v"(x)); // else the equal sums are computed once
    for (int k = 0; k < 8; ++k)
      for (auto &x : acc)
        x = _mm512_dpbusd_epi32(x, a, b);
    for (int j = 0; j < 8; ++j)
      sum[j] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc[j]), scale), scale, sum[j]);
  }
  for (auto &x : sum)
    __asm__ volatile("" : : "v"(x));
  return 8.0 * 8 * 64 * rounds;
}

__attribute__((target("avx2,fma"))) double groups256(int rounds) {
  __m256 sum[4] = {}, scale = _mm256_set1_ps(0.5f);
  __m256i a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(2), one = _mm256_set1_epi16(1);
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(scale));
    __m256i acc[4] = {};
    for (auto &x : acc)
      __asm__ volatile("" : "+x"(x));
    for (int k = 0; k < 8; ++k)
      for (auto &x : acc)
        x = dot256(x, a, b, one);
    for (int j = 0; j < 4; ++j)
      sum[j] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc[j]), scale), scale, sum[j]);
  }
  for (auto &x : sum)
    __asm__ volatile("" : : "x"(x));
  return 4.0 * 8 * 32 * rounds;
}

#define LATHE_TILES __attribute__((target("avx512f,amx-tile,amx-int8")))

/// Tiles 0 to 3 as sums, 4 and 6 as 16 rows of |k| activations, 5 and 7 as their weights. Until _tile_release().
LATHE_TILES void useTiles(int k) {
  alignas(64) uint8_t shapes[64] = {1};
  for (int i = 0; i < 8; ++i) {
    shapes[16 + 2 * i] = static_cast<uint8_t>(i == 4 || i == 6 ? k : 64);
    shapes[48 + i] = static_cast<uint8_t>(i == 5 || i == 7 ? k / 4 : 16);
  }
  _tile_loadconfig(shapes);
  alignas(64) static const uint8_t ones[1024] = {1};
  _tile_loadd(4, ones, k);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, k);
  _tile_loadd(7, ones, 64);
}

LATHE_TILES double macsOfTiles(int rounds) {
  useTiles(64);
  _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
  for (int i = 0; i < rounds; ++i) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 6, 5);
    _tile_dpbssd(3, 6, 7);
  }
  _tile_release();
  return 4.0 * 16 * 16 * 64 * rounds;
}

// A group of 32 of 16 rows and outputs: codes and sums go through memory, which takes several turns.
LATHE_TILES double groupsOfTiles(int rounds) {
  alignas(64) uint8_t codes[4][512] = {};
  alignas(64) int32_t products[2][256] = {};
  __m512 sum[16] = {}, scale = _mm512_set1_ps(0.5f);
  __m512i code = _mm512_set1_epi8(1);
  useTiles(32);
  _tile_zero(0);
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(code), "+v"(scale));
    _tile_stored(0, products[(i + 1) % 2], 64);
    for (int k = 0; k < 8; ++k)
      _mm512_store_si512(codes[(i + 2) % 4] + 64 * k, code);
    _tile_zero(0);
    _tile_loadd(5, codes[i % 4], 64);
    _tile_dpbssd(0, 4, 5);
    const int32_t *from = products[i % 2];
    for (int j = 0; j < 16; ++j)
      sum[j] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(from + 16 * j)), scale), scale, sum[j]);
  }
  _tile_release();
  for (auto &x : sum)
    __asm__ volatile("" : : "v"(x));
  return 16.0 * 16 * 32 * rounds;
}

__attribute__((target("avx512f"))) double floats512(int rounds) {
  __m512 acc[12] = {}, a = _mm512_set1_ps(1), b = _mm512_set1_ps(2);
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
    for (auto &x : acc)
      x = _mm512_fmadd_ps(a, b, x);
  }
  for (auto &x : acc)
    __asm__ volatile("" : : "v"(x));
  return 12.0 * 16 * rounds;
}

__attribute__((target("avx2,fma"))) double floats256(int rounds) {
  __m256 acc[12] = {}, a = _mm256_set1_ps(1), b = _mm256_set1_ps(2);
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
    for (auto &x : acc)
      x = _mm256_fmadd_ps(a, b, x);
  }
  for (auto &x : acc)
    __asm__ volatile("" : : "x"(x));
  return 12.0 * 8 * rounds;
}

__attribute__((target("avx512f,avx512bf16"))) double bf16s512(int rounds) {
  __m512 acc[12] = {};
  __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = a;
  for (int i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
    for (auto &x : acc)
      x = _mm512_dpbf16_ps(x, a, b);
  }
  for (auto &x : acc)
    __asm__ volatile("" : : "v"(x));
  return 12.0 * 32 * rounds;
}

struct Work {
  double (*loop)(int) = nullptr;
  int rounds = 0;
  double macs = 0; ///< of thread 0
};

/// The shortest of |rounds| runs. |body| and |what| name them to the team, which then learns from their time whether its
/// threads should spin (WaitPolicy): unnamed runs that are preempted now and then would make it sleep, and a barrier of
/// sleepers takes 20 us where one of spinners takes less than 1.
double best(ThreadTeam &team, unsigned threads, int rounds, ThreadTeam::Body body, void *context, uint64_t what = 0) {
  double seconds = 1e9;
  uint64_t kind = reinterpret_cast<uintptr_t>(body) + what;
  for (int i = 0; i < rounds; ++i) {
    auto begin = Clock::now();
    team.run(threads, false, body, context, kind);
    seconds = std::min(seconds, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return seconds;
}

} // namespace

void measureReads(unsigned threads, artifact::Variant variant, std::span<const std::span<const uint8_t>> parts, std::span<double> seconds) {
  struct Reads {
    std::span<const std::span<const uint8_t>> parts;
    std::span<double> seconds;
    bool wide;
    volatile uint64_t sink = 0;
  } reads{parts, seconds, variant != artifact::Variant::avx2};
  ThreadTeam::Body body = [](void *context, unsigned t, unsigned n, FlagBarrier &barrier) {
    auto &r = *static_cast<Reads *>(context);
    uint32_t epoch = 0;
    if (n > 1) barrier.wait(t, epoch); // waking up is not reading
    auto then = Clock::now();
    for (size_t i = 0; i < r.parts.size(); ++i) {
      size_t size = r.parts[i].size() / n;
      const uint8_t *begin = r.parts[i].data() + size * t;
      uint64_t sum = r.wide ? read512(begin, size) : read256(begin, size);
      if (n > 1) barrier.wait(t, epoch);
      if (t) continue;
      r.sink = sum;
      auto now = Clock::now();
      r.seconds[i] = std::chrono::duration<double>(now - then).count();
      then = now;
    }
  };
  ThreadTeam::acquire()->run(threads, false, body, &reads, reinterpret_cast<uintptr_t>(body));
}

double measureRead(unsigned threads, artifact::Variant variant, int rounds, uint64_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::fill_n(static_cast<uint8_t *>(memory), bytes, uint8_t(1)); // else all pages are one zero page
  std::span<const uint8_t> part(static_cast<const uint8_t *>(memory), bytes);
  double fastest = 1e9;
  for (int i = 0; i < rounds; ++i) {
    double seconds = 0;
    measureReads(threads, variant, {&part, 1}, {&seconds, 1});
    fastest = std::min(fastest, seconds);
  }
  munmap(memory, bytes);
  return static_cast<double>(bytes) / fastest;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

MachineLimits measureLimits(unsigned threads, artifact::Variant variant) {
  MachineLimits limits;
  if (artifact::isGpu(variant)) return limits;
  limits.readBytesPerSecond = measureRead(threads, variant, 8);
  auto team = ThreadTeam::acquire();
  Work work;
  const bool wide = variant != artifact::Variant::avx2;
  auto rate = [&](double (*loop)(int), int rounds) {
    work.loop = loop;
    work.rounds = rounds;
    double seconds = best(
        *team, threads, 6,
        [](void *context, unsigned t, unsigned, FlagBarrier &) {
          auto &w = *static_cast<Work *>(context);
          double macs = w.loop(w.rounds);
          if (t == 0) w.macs = macs;
        },
        &work, reinterpret_cast<uintptr_t>(loop));
    return work.macs * threads / seconds;
  };
  const bool tiles = variant == artifact::Variant::amx;
  limits.int8MacsPerSecond = tiles ? rate(macsOfTiles, 100000) : rate(wide ? macs512 : macs256, 200000);
  limits.int8GroupMacsPerSecond = rate(wide ? groups512 : groups256, 40000);
  limits.int8TileGroupMacsPerSecond = tiles ? rate(groupsOfTiles, 40000) : limits.int8GroupMacsPerSecond;
  limits.floatMacsPerSecond = rate(wide ? floats512 : floats256, 200000);
  limits.bf16MacsPerSecond =
      tiles || variant == artifact::Variant::avx512bf16 ? rate(bf16s512, 200000) : limits.floatMacsPerSecond;
  // Parts that the threads read and write in turns: every line was last written by another one.
  constexpr size_t part = 64 << 10;
  constexpr unsigned turns = 64;
  std::vector<uint64_t> shared(part / 8 * threads);
  limits.exchangeBytesPerSecond = 2.0 * part * threads * turns /
                                  best(
                                      *team, threads, 40,
                                      [](void *context, unsigned t, unsigned n, FlagBarrier &barrier) {
                                        auto *data = static_cast<uint64_t *>(context);
                                        uint32_t epoch = 0;
                                        for (unsigned turn = 0; turn < turns; ++turn) {
                                          uint64_t *mine = data + (t + turn) % n * (part / 8);
                                          for (size_t i = 0; i < part / 8; ++i)
                                            mine[i] += turn;
                                          if (n > 1) barrier.wait(t, epoch);
                                        }
                                      },
                                      shared.data());
  // Many short runs: at least one of them finds the threads awake and undisturbed.
  constexpr int barriers = 200;
  limits.barrierSeconds = best(
                              *team, threads, 40,
                              [](void *, unsigned t, unsigned n, FlagBarrier &barrier) {
                                uint32_t epoch = 0;
                                for (int i = 0; i < barriers && n > 1; ++i)
                                  barrier.wait(t, epoch);
                              },
                              nullptr) /
                          barriers;
  return limits;
}

} // namespace lathe::tool
