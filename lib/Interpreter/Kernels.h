//===- Kernels.h - the arithmetic of the reference interpreter -----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Plain loops over rows, in float or double (`Real`). Roundings that the IR names (activation and KV
// formats) are float32 arithmetic in both. Sums run over 8 lanes per output, whatever the number of
// rows: results do not depend on how a batch is cut. No code is shared with the emitters.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <functional>

namespace lathe::interp {

enum class Act { f32, bf16, int8, int8z, e4m3 };
enum class Store { f32, f16, bf16, int8, e4m3 };
enum class Fn { silu, geluTanh, geluErf, relu };

float roundToBF16(float x);
float roundToF16(float x);
/// To nearest even; beyond 448, the largest value, to it.
float roundToE4M3(float x);

/// Calls fn(begin, end) for a partition of 0 .. count on up to |threads| threads; |work| is the number of
/// operations in all, small work stays on the calling thread.
void parallelFor(int64_t count, int threads, int64_t work, const std::function<void(int64_t, int64_t)> &fn);

template <typename Real>
Real dot(const Real *a, const Real *b, int64_t n);

/// y[r * ldy + j] = sum over k of x[r * k + ..] * w[j * k + ..] for r < rows, j < n.
void matmul(const float *x, int64_t rows, int64_t k, const float *w, int64_t n, float *y, int64_t ldy);
void matmul(const double *x, int64_t rows, int64_t k, const float *w, int64_t n, double *y, int64_t ldy);

/// The values that a row of |k| elements has after activation quantization (docs/exactness.md).
template <typename Real>
void roundActivations(Act format, const Real *in, int64_t k, Real *out);
/// The values that a head of |n| elements has after it was stored in the KV cache.
template <typename Real>
void roundEntry(Store format, const Real *in, int64_t n, Real *out);

template <typename Real>
Real activate(Fn fn, Real x);
template <typename Real>
void rmsNorm(const Real *x, const Real *w, int64_t n, Real eps, Real *y);
template <typename Real>
void layerNorm(const Real *x, const Real *w, const Real *b, int64_t n, Real eps, Real *y);
/// One head of |size| elements by |half| angles (cosines, then sines at angles + half).
template <typename Real>
void rope(const Real *x, const Real *angles, int64_t half, int64_t size, bool interleaved, Real *y);

/// One query head over entries first .. last. |key| and |value| give the entries of the KV head.
template <typename Real>
struct AttendArgs {
  const Real *query;
  int64_t keySize, valueSize, first, last;
  Real scale, softcap; ///< softcap 0: none
  std::function<const Real *(int64_t)> key, value;
  Real *out;
};
template <typename Real>
void attend(const AttendArgs<Real> &args);

} // namespace lathe::interp
