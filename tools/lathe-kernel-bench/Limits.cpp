//===- Limits.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Limits.h"
#include <immintrin.h>

namespace lathe::bench {

__attribute__((target("avx512f"))) static void read512(const uint8_t *p, size_t bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (size_t i = 0; i < bytes; i += 512) {
    const __m512i *v = reinterpret_cast<const __m512i *>(p + i);
    a = _mm512_or_si512(a, _mm512_or_si512(_mm512_loadu_si512(v), _mm512_loadu_si512(v + 1)));
    b = _mm512_or_si512(b, _mm512_or_si512(_mm512_loadu_si512(v + 2), _mm512_loadu_si512(v + 3)));
    c = _mm512_or_si512(c, _mm512_or_si512(_mm512_loadu_si512(v + 4), _mm512_loadu_si512(v + 5)));
    d = _mm512_or_si512(d, _mm512_or_si512(_mm512_loadu_si512(v + 6), _mm512_loadu_si512(v + 7)));
  }
  a = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
  asm volatile("" ::"v"(a));
}
__attribute__((target("avx2"))) static void read256(const uint8_t *p, size_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a;
  for (size_t i = 0; i < bytes; i += 128) {
    const __m256i *v = reinterpret_cast<const __m256i *>(p + i);
    a = _mm256_or_si256(a, _mm256_or_si256(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)));
    b = _mm256_or_si256(b, _mm256_or_si256(_mm256_loadu_si256(v + 2), _mm256_loadu_si256(v + 3)));
  }
  asm volatile("" ::"x"(_mm256_or_si256(a, b)));
}
void readAll(const uint8_t *p, size_t bytes) {
  __builtin_cpu_supports("avx512f") ? read512(p, bytes) : read256(p, bytes);
}

__attribute__((target("avx512f,avx512vnni"))) static void dots512(uint64_t count) {
  __m512i acc[12], x = _mm512_set1_epi8(1);
  for (__m512i &a : acc)
    a = _mm512_setzero_si512();
  for (uint64_t i = 0; i < count; ++i)
#pragma unroll
    for (__m512i &a : acc) {
      a = _mm512_dpbusd_epi32(a, x, x);
      asm volatile("" : "+v"(a));
    }
}
uint64_t dotPeak(uint64_t count) {
  if (!__builtin_cpu_supports("avx512vnni")) return 0;
  dots512(count);
  return count * 12 * 64;
}

__attribute__((target("avx2"))) static void dots256(uint64_t count) {
  __m256i acc[8], x = _mm256_set1_epi8(1), one = _mm256_set1_epi16(1);
  for (__m256i &a : acc)
    a = _mm256_setzero_si256();
  for (uint64_t i = 0; i < count; ++i)
#pragma unroll
    for (__m256i &a : acc) {
      asm volatile("" : "+x"(x));
      a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), one));
      asm volatile("" : "+x"(a));
    }
}
uint64_t dotPeakAvx2(uint64_t count) {
  dots256(count);
  return count * 8 * 32;
}

} // namespace lathe::bench
