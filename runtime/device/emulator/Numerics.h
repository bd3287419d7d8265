//===- Numerics.h - conversions between number formats -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every conversion rounds once, from the exact value. Formats: IEEE 754 binary16, bfloat16, TF32, and
// e4m3 / e5m2 of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022).
//===----------------------------------------------------------------------===//
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace lathe::emulator {

enum class Rounding : uint8_t { nearest, zero, down, up, away };

/// A binary format of |exponentBits| and |mantissaBits|. |hasInfinity| false: e4m3, whose largest code is NaN.
struct Format {
  int exponentBits, mantissaBits;
  bool hasInfinity;
  int bias() const { return (1 << (exponentBits - 1)) - 1; }
};
inline constexpr Format kHalf{5, 10, true}, kBfloat{8, 7, true}, kE4m3{4, 3, false}, kE5m2{5, 2, true};

/// Rounds |value| to |format|. |saturate|: values out of range, infinities too, become the largest finite one.
uint32_t encode(double value, Format format, Rounding rounding, bool saturate);
double decode(uint32_t bits, Format format);

inline float halfToFloat(uint16_t bits) {
#if defined(__F16C__)
  // Through the vector type: vectorises, and exact.
  return static_cast<float>(std::bit_cast<_Float16>(bits));
#else
  return static_cast<float>(decode(bits, kHalf));
#endif
}
inline float bfloatToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
/// Round to nearest even; NaN becomes 0x7fff.
inline uint16_t floatToHalf(float value) {
#if defined(__F16C__)
  uint16_t bits = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  return value != value ? 0x7fff : bits;
#else
  return static_cast<uint16_t>(encode(value, kHalf, Rounding::nearest, false));
#endif
}
inline uint16_t floatToBfloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t rounded = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  return value != value ? 0x7fff : rounded;
}
uint16_t doubleToHalf(double value);
uint16_t doubleToBfloat(double value);

float e4m3ToFloat(uint8_t bits);
float e5m2ToFloat(uint8_t bits);

/// |value| to float, rounded as said.
float roundToFloat(double value, Rounding rounding);

} // namespace lathe::emulator
