//===- Half.h - small floats' bits to float32 and back -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <bit>
#include <cstdint>

namespace lathe {

/// Exact; a NaN stays a NaN. Written without branches so that loops over it vectorise.
inline float halfToFloat(uint16_t h) {
  uint32_t magnitude = uint32_t(h & 0x7fff) << 13;
  // 2^112 moves the exponent's bias from 15 to 127, for subnormal numbers too.
  float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t special = (h & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : bits;
  return std::bit_cast<float>(special | uint32_t(h & 0x8000) << 16);
}

/// Rounds to nearest, ties to even; overflows to infinity; a NaN stays a (quiet) NaN.
inline uint16_t floatToHalf(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00; // 65520 and above
  if (bits < 0x38800000) {                      // subnormal: adding 0.5 rounds at bit 2^-24
    float shifted = std::bit_cast<float>(bits) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
  }
  bits += 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((bits >> 13) - (112 << 10));
}

inline float bfloatToFloat(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

/// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
inline uint16_t floatToBfloat(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// e4m3 ("FP8 Formats for Deep Learning", Micikevicius et al., 2022): a sign, 4 bits of exponent with a bias of 7, 3 of fraction, no infinities. Exact.
/// The codes of NaN, 0x7f and 0xff, would be 480, the next number; nothing writes them.
inline float e4m3ToFloat(uint8_t code) {
  // 2^120 moves the exponent's bias from 7 to 127, for subnormal numbers too.
  float value = std::bit_cast<float>(uint32_t(code & 0x7f) << 20) * 0x1p120f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | uint32_t(code & 0x80) << 24);
}
inline bool isE4m3NaN(uint8_t code) { return (code & 0x7f) == 0x7f; }

/// Rounds a number to nearest, ties to even; beyond 448, infinities and NaNs too, it is 448.
inline uint8_t floatToE4m3(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  bits &= 0x7fffffff;
  if (bits >= 0x43e00000) return sign | 0x7e;
  if (bits < 0x3c800000) { // below 2^-6: adding 2^14 rounds at bit 2^-9
    float shifted = std::bit_cast<float>(bits) + 0x1p14f;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) - 0x46800000);
  }
  bits += 0x7ffff + (bits >> 20 & 1);
  return sign | static_cast<uint8_t>((bits >> 20) - (120 << 3));
}

} // namespace lathe
