//===- Numerics.cpp - conversions between number formats -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Numerics.h"
#include <array>

namespace lathe::emulator {
namespace {
double roundInteger(double value, Rounding rounding) {
  switch (rounding) {
  case Rounding::nearest: return std::nearbyint(value);
  case Rounding::zero: return std::trunc(value);
  case Rounding::down: return std::floor(value);
  case Rounding::up: return std::ceil(value);
  case Rounding::away: return std::round(value);
  }
  return value;
}

template <size_t N> std::array<float, N> tableOf(Format format) {
  std::array<float, N> table{};
  for (uint32_t bits = 0; bits < N; ++bits)
    table[bits] = static_cast<float>(decode(bits, format));
  return table;
}
} // namespace

uint32_t encode(double value, Format format, Rounding rounding, bool saturate) {
  const uint32_t sign = std::signbit(value) ? 1u << (format.exponentBits + format.mantissaBits) : 0;
  const uint32_t all = (1u << (format.exponentBits + format.mantissaBits)) - 1;
  // All ones below the sign is NaN in every format here; e4m3 has no other, the rest have infinity below their NaNs.
  const uint32_t infinity = all & ~((1u << format.mantissaBits) - 1);
  const uint32_t largest = format.hasInfinity ? infinity - 1 : all - 1;
  const uint32_t overflow = saturate ? largest : format.hasInfinity ? infinity : all;
  if (value != value) return format.hasInfinity || !saturate ? all : all; // the sign of a NaN is lost
  double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | overflow;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias());
  // In units of the last place; the rounding sees the signed value.
  double units = std::ldexp(std::signbit(value) ? -magnitude : magnitude, format.mantissaBits - exponent);
  double rounded = std::fabs(roundInteger(units, rounding));
  uint64_t bits = static_cast<uint64_t>(rounded);
  // A subnormal has exponent field 0, and a carry into the next binade is carried by the addition.
  uint64_t field = static_cast<uint64_t>(exponent + format.bias() - 1);
  uint64_t code = (field << format.mantissaBits) + bits;
  if (code > largest) {
    bool toward = rounding == Rounding::zero || (rounding == Rounding::down && !sign) || (rounding == Rounding::up && sign);
    return sign | (toward ? largest : overflow);
  }
  return sign | static_cast<uint32_t>(code);
}

double decode(uint32_t bits, Format format) {
  const uint32_t mantissa = bits & ((1u << format.mantissaBits) - 1);
  const uint32_t exponent = bits >> format.mantissaBits & ((1u << format.exponentBits) - 1);
  const uint32_t top = (1u << format.exponentBits) - 1;
  double value;
  if (format.hasInfinity && exponent == top) value = mantissa ? NAN : INFINITY;
  else if (!format.hasInfinity && exponent == top && mantissa == (1u << format.mantissaBits) - 1) value = NAN;
  else if (exponent == 0) value = std::ldexp(mantissa, 1 - format.bias() - format.mantissaBits);
  else value = std::ldexp((1u << format.mantissaBits) + mantissa, static_cast<int>(exponent) - format.bias() - format.mantissaBits);
  return bits >> (format.exponentBits + format.mantissaBits) & 1 ? -value : value;
}

// A double rounded to odd keeps what a second rounding needs.
static float toFloatOdd(double value) {
  float single = static_cast<float>(value);
  if (single - single != 0 || static_cast<double>(single) == value) return single;
  uint32_t bits = std::bit_cast<uint32_t>(single);
  if (std::fabs(static_cast<double>(single)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}
uint16_t doubleToHalf(double value) { return floatToHalf(toFloatOdd(value)); }
uint16_t doubleToBfloat(double value) { return floatToBfloat(toFloatOdd(value)); }

float e4m3ToFloat(uint8_t bits) {
  static const auto table = tableOf<256>(kE4m3);
  return table[bits];
}
float e5m2ToFloat(uint8_t bits) {
  static const auto table = tableOf<256>(kE5m2);
  return table[bits];
}

float roundToFloat(double value, Rounding rounding) {
  float nearest = static_cast<float>(value);
  double exact = static_cast<double>(nearest);
  if (rounding == Rounding::nearest || value != value || exact == value) return nearest;
  bool above = exact > value;
  bool wantBelow = rounding == Rounding::down || (rounding == Rounding::zero && value > 0);
  bool wantAbove = rounding == Rounding::up || (rounding == Rounding::zero && value < 0);
  if (above && wantBelow) return std::nextafterf(nearest, -INFINITY);
  if (!above && wantAbove) return std::nextafterf(nearest, INFINITY);
  return nearest;
}

} // namespace lathe::emulator
