//===- MatrixMath.h - the arithmetic of matrix instructions ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Tensor cores add the exact products of a block of K and the accumulator in fixed point: all terms are
// shifted to the largest exponent, cut to a number of bits, summed, and the sum is cut to the result
// (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021). Block and
// bits differ between generations and instructions. Each family here has its own, so that kernels that
// mix families for one weight do not give equal bits: docs/ptx-emulator.md lists them.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Ptx.h"
#include <cstdint>

namespace lathe::emulator {

struct MatrixArithmetic {
  unsigned block; ///< products that are added at once
  int bits;       ///< of a term that are kept, counted from the largest term's leading bit
};
enum class MatrixFamily { mma, wmma, wgmma };
MatrixArithmetic arithmeticOf(MatrixFamily family, Type element);

/// d[n] = sum over k of a[k] * b[k * columns + n] + d[n], for n < columns (a multiple of 8).
void multiplyRow(const float *a, const float *b, float *d, unsigned k, unsigned columns, MatrixArithmetic arithmetic);
/// The same for 8-bit and 4-bit integers, exact; |saturate| clamps to int32 at the end.
void multiplyRowInteger(const int32_t *a, const int32_t *b, int32_t *d, unsigned k, unsigned columns, bool saturate);

/// One element of |type| (f16, bf16, tf32, e4m3, e5m2) as float.
float matrixElement(uint32_t bits, Type type);

} // namespace lathe::emulator
