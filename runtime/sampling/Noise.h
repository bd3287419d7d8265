//===- Noise.h - random numbers without state ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Everything that decides a token uses IEEE additions, multiplications and divisions in a fixed
// order, no libm and no fused operation (the library is compiled with -ffp-contract=off), and no
// subnormal numbers: the same bits on every machine, whatever its flush-to-zero setting.
//===----------------------------------------------------------------------===//
#pragma once
#include <bit>
#include <cstdint>

namespace lathe::sampling {

/// Philox4x32-10: ten rounds on a block of four words. Each block depends on its counter and the key
/// only.
struct Block {
  uint32_t word[4];
};
inline Block philox(Block c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t(0xD2511F53u) * c.word[0], b = uint64_t(0xCD9E8D57u) * c.word[2];
    c = {{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

/// What one draw is keyed by, apart from the token.
struct NoiseKey {
  uint64_t seed;
  uint32_t choice, position, purpose;

  /// The four words shared by the tokens 4 * group .. 4 * group + 3. |half| 0 holds the high words.
  Block block(uint32_t group, uint32_t half) const {
    return philox({{group, position, choice, purpose * 2 + half}}, static_cast<uint32_t>(seed),
                  static_cast<uint32_t>(seed >> 32));
  }
};

/// Natural logarithm of a normal x > 0, to about 1 unit in the last place.
inline double logOf(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent += 1;
  }
  // log m = 2 atanh t
  double t = (m - 1.0) / (m + 1.0), q = t * t, sum = 1.0 / 23;
  for (int n = 21; n >= 1; n -= 2)
    sum = sum * q + 1.0 / n;
  double e = static_cast<double>(exponent);
  return e * 0.6931471803691238 + (2.0 * t * sum + e * 1.9082149292705877e-10);
}

/// e^x for x <= 0; 0 below -700, so that no result is subnormal.
inline double expOf(double x) {
  double clamped = x < -700.0 ? -700.0 : x;
  // Adding and subtracting 1.5 * 2^52 rounds to an integer.
  double k = (clamped * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0;
  double r = (clamped - k * 0.6931471803691238) - k * 1.9082149292705877e-10;
  double p = 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  double scale = std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(k) + 1023) << 52);
  return x < -700.0 ? 0.0 : p * scale;
}

/// Standard Gumbel noise from 64 random bits: -log(-log(1 - v)), v = (bits + 1/2) / 2^64.
inline double gumbelOf(uint64_t bits) {
  constexpr double unit = 1.0 / 18446744073709551616.0;
  double e;
  if (bits >> 62 == 0) {
    // -log(1 - v) = 2 atanh(v / (2 - v)), exact for small v too
    double v = (static_cast<double>(bits) + 0.5) * unit;
    double t = v / (2.0 - v), q = t * t, sum = 1.0 / 23;
    for (int n = 21; n >= 1; n -= 2)
      sum = sum * q + 1.0 / n;
    e = 2.0 * t * sum;
  } else {
    e = -logOf((static_cast<double>(~bits) + 0.5) * unit);
  }
  return -logOf(e);
}

inline double noiseOf(const NoiseKey &key, uint32_t token) {
  uint64_t high = key.block(token / 4, 0).word[token % 4], low = key.block(token / 4, 1).word[token % 4];
  return gumbelOf(high << 32 | low);
}

/// -log v is at least the noise (since -log(1 - v) >= v); this is a bound of it by the high word alone.
/// The slack covers all rounding, so leaving out what cannot win never changes who wins.
inline double noiseBound(uint32_t high) { return (high ? std::countl_zero(high) + 1 : 66) * 0.6931471805599453 + 1e-6; }

} // namespace lathe::sampling
