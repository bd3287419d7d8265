//===- MatrixMath.cpp - the arithmetic of matrix instructions --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/MatrixMath.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Numerics.h"
#include <algorithm>

namespace lathe::emulator {

MatrixArithmetic arithmeticOf(MatrixFamily family, Type element) {
  bool fp8 = element == Type::e4m3 || element == Type::e5m2;
  if (fp8) return family == MatrixFamily::wgmma ? MatrixArithmetic{32, 14} : MatrixArithmetic{16, 14};
  if (element == Type::tf32) return family == MatrixFamily::wgmma ? MatrixArithmetic{8, 26} : MatrixArithmetic{4, 25};
  switch (family) {
  case MatrixFamily::mma: return {8, 25};
  case MatrixFamily::wmma: return {4, 24};
  case MatrixFamily::wgmma: return {16, 26};
  }
  return {8, 25};
}

float matrixElement(uint32_t bits, Type type) {
  switch (type) {
  case Type::f16: return halfToFloat(static_cast<uint16_t>(bits));
  case Type::bf16: return bfloatToFloat(static_cast<uint16_t>(bits));
  case Type::tf32: return std::bit_cast<float>(bits & 0xffffe000u); // the low 13 bits are not read
  case Type::e4m3: return e4m3ToFloat(static_cast<uint8_t>(bits));
  case Type::e5m2: return e5m2ToFloat(static_cast<uint8_t>(bits));
  default: return std::bit_cast<float>(bits);
  }
}

void multiplyRow(const float *a, const float *b, float *d, unsigned k, unsigned columns, MatrixArithmetic arithmetic) {
  constexpr unsigned kWidth = 8;
  const uint64_t scaleUp = static_cast<uint64_t>(arithmetic.bits - 1) << 52;
  for (unsigned column = 0; column < columns; column += kWidth)
    for (unsigned first = 0; first < k; first += arithmetic.block) {
      const unsigned count = std::min(arithmetic.block, k - first);
      double terms[33][kWidth];
      double largest[kWidth];
      LATHE_LANE_LOOP
      for (unsigned n = 0; n < kWidth; ++n) {
        terms[count][n] = d[column + n];
        largest[n] = std::fabs(terms[count][n]);
      }
      for (unsigned index = 0; index < count; ++index) {
        const double x = a[first + index];
        const float *row = b + static_cast<size_t>(first + index) * columns + column;
        LATHE_LANE_LOOP
        for (unsigned n = 0; n < kWidth; ++n) {
          double product = x * row[n];
          terms[index][n] = product;
          double magnitude = std::fabs(product);
          largest[n] = magnitude > largest[n] || magnitude != magnitude ? magnitude : largest[n];
        }
      }
      double unit[kWidth], inverse[kWidth], sum[kWidth];
      bool finite = true;
      LATHE_LANE_LOOP
      for (unsigned n = 0; n < kWidth; ++n) {
        uint64_t exponent = std::bit_cast<uint64_t>(largest[n]) & 0x7ff0000000000000ull;
        finite &= exponent != 0x7ff0000000000000ull;
        exponent = std::max<uint64_t>(exponent, 200ull << 52); // no product of floats is below 2^-298
        unit[n] = std::bit_cast<double>(exponent - scaleUp);
        // 2^-(e - bits + 1): the exponent field mirrored at 2 * 1023
        inverse[n] = std::bit_cast<double>((2046ull << 52) - (exponent - scaleUp));
        sum[n] = 0;
      }
      for (unsigned index = 0; index <= count; ++index) {
        LATHE_LANE_LOOP
        for (unsigned n = 0; n < kWidth; ++n)
          sum[n] += __builtin_elementwise_trunc(terms[index][n] * inverse[n]);
      }
      LATHE_LANE_LOOP
      for (unsigned n = 0; n < kWidth; ++n) {
        double exact = sum[n] * unit[n];
        float rounded = static_cast<float>(exact);
        // Toward zero.
        uint32_t down = std::bit_cast<uint32_t>(rounded) - (std::fabs(static_cast<double>(rounded)) > std::fabs(exact) && std::fabs(rounded) < INFINITY);
        d[column + n] = std::bit_cast<float>(down);
      }
      for (unsigned n = 0; n < kWidth && !finite; ++n) { // infinities and NaN, without any effect on the columns beside
        if (std::isfinite(largest[n])) continue;
        double plain = 0;
        for (unsigned index = 0; index <= count; ++index)
          plain += terms[index][n];
        d[column + n] = canonical(static_cast<float>(plain));
      }
    }
}

void multiplyRowInteger(const int32_t *a, const int32_t *b, int32_t *d, unsigned k, unsigned columns, bool saturate) {
  for (unsigned n = 0; n < columns; ++n) {
    int64_t sum = d[n];
    for (unsigned index = 0; index < k; ++index)
      sum += static_cast<int64_t>(a[index]) * b[static_cast<size_t>(index) * columns + n];
    if (saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
    d[n] = static_cast<int32_t>(static_cast<uint64_t>(sum));
  }
}

} // namespace lathe::emulator
