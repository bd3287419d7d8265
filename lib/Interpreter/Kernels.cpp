//===- Kernels.cpp - the arithmetic of the reference interpreter ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Kernels.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

namespace lathe::interp {

float roundToBF16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return x;
  bits += 0x7fff + ((bits >> 16) & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

float roundToF16(float x) {
  // Ties go to even because adding and subtracting a power of two rounds in the current mode.
  float a = std::fabs(x);
  if (!(a < 65520.0f)) return std::isnan(x) ? x : std::copysign(INFINITY, x);
  int exponent = 0;
  std::frexp(a, &exponent); // a = m * 2^exponent, 0.5 <= m < 1
  int ulp = std::max(exponent - 11, -24);
  return std::copysign(std::ldexp(std::nearbyintf(std::ldexp(a, -ulp)), ulp), x);
}

float roundToE4M3(float x) {
  float a = std::fabs(x);
  if (!(a < 448.0f)) return std::isnan(x) ? x : std::copysign(448.0f, x);
  int exponent = 0;
  std::frexp(a, &exponent);
  int ulp = std::max(exponent - 4, -9);
  return std::copysign(std::ldexp(std::nearbyintf(std::ldexp(a, -ulp)), ulp), x);
}

void parallelFor(int64_t count, int threads, int64_t work, const std::function<void(int64_t, int64_t)> &fn) {
  if (threads <= 1 || count < 2 || work < 1000000) return fn(0, count);
  std::vector<std::thread> team;
  int64_t share = (count + threads - 1) / threads;
  for (int64_t begin = share; begin < count; begin += share)
    team.emplace_back(fn, begin, std::min(count, begin + share));
  fn(0, std::min(count, share));
  for (std::thread &member : team) member.join();
}

//===----------------------------------------------------------------------===//
// Sums of products: 8 lanes per output
//===----------------------------------------------------------------------===//

namespace {
constexpr int lanes = 8;
using F8 = float __attribute__((vector_size(32)));
using D8 = double __attribute__((vector_size(64)));
template <typename Real>
using Vec = std::conditional_t<std::is_same_v<Real, float>, F8, D8>;

template <typename To, typename From>
[[gnu::always_inline]] inline void load(const From *p, Vec<To> &v) {
  for (int i = 0; i < lanes; ++i) v[i] = p[i];
}

template <typename Real>
[[gnu::always_inline]] inline Real total(const Vec<Real> &v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

template <int R, int N, typename Real>
[[gnu::always_inline]] inline void tile(const Real *x, int64_t k, const float *w, Real *y, int64_t ldy) {
  Vec<Real> sum[R][N] = {};
  int64_t whole = k / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes) {
    Vec<Real> b[N];
    for (int n = 0; n < N; ++n) load<Real>(w + n * k + i, b[n]);
    for (int r = 0; r < R; ++r) {
      Vec<Real> a;
      load<Real>(x + r * k + i, a);
      for (int n = 0; n < N; ++n) sum[r][n] += a * b[n];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) {
      Real s = total<Real>(sum[r][n]);
      for (int64_t i = whole; i < k; ++i) s += x[r * k + i] * Real(w[n * k + i]);
      y[r * ldy + n] = s;
    }
}

template <int R, typename Real>
[[gnu::always_inline]] inline void band(const Real *x, int64_t k, const float *w, int64_t n, Real *y, int64_t ldy) {
  int64_t j = 0;
  for (; j + 2 <= n; j += 2) tile<R, 2>(x, k, w + j * k, y + j, ldy);
  for (; j < n; ++j) tile<R, 1>(x, k, w + j * k, y + j, ldy);
}

template <typename Real>
[[gnu::always_inline]] inline void matmulBody(const Real *x, int64_t rows, int64_t k, const float *w, int64_t n, Real *y, int64_t ldy) {
  // 16 weight rows stay in the cache while all input rows pass.
  for (int64_t j = 0; j < n; j += 16) {
    int64_t some = std::min<int64_t>(16, n - j), r = 0;
    for (; r + 4 <= rows; r += 4) band<4>(x + r * k, k, w + j * k, some, y + r * ldy + j, ldy);
    for (; r < rows; ++r) band<1>(x + r * k, k, w + j * k, some, y + r * ldy + j, ldy);
  }
}
} // namespace

#if defined(__x86_64__)
#define LATHE_CLONES [[gnu::target_clones("arch=x86-64-v3", "default")]]
#else
#define LATHE_CLONES
#endif

// Built without contraction, both clones give the same bits.
LATHE_CLONES void matmul(const float *x, int64_t rows, int64_t k, const float *w, int64_t n, float *y, int64_t ldy) {
  matmulBody(x, rows, k, w, n, y, ldy);
}
LATHE_CLONES void matmul(const double *x, int64_t rows, int64_t k, const float *w, int64_t n, double *y, int64_t ldy) {
  matmulBody(x, rows, k, w, n, y, ldy);
}

template <typename Real>
Real dot(const Real *a, const Real *b, int64_t n) {
  Real sum[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int l = 0; l < lanes; ++l) sum[l] += a[i + l] * b[i + l];
  Real s = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
  for (; i < n; ++i) s += a[i] * b[i];
  return s;
}

//===----------------------------------------------------------------------===//
// Roundings that the IR names
//===----------------------------------------------------------------------===//

/// Symmetric codes up to |limit| with one float32 scale: int8 activations, and the KV formats of bytes.
template <typename Real, typename Round>
static void roundScaled(const Real *in, int64_t n, Real *out, float limit, Round round) {
  float amax = 0;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(float(in[i])));
  float scale = amax * (1.0f / limit), inverse = amax >= 1e-30f ? limit / amax : 0.0f;
  for (int64_t i = 0; i < n; ++i) out[i] = Real(round(float(in[i]) * inverse)) * Real(scale);
}

template <typename Real>
static void roundInt8z(const Real *in, int64_t n, Real *out) {
  // A group's last columns beyond the row are zeros, which count for its minimum and maximum.
  float lo = n < 32 ? 0.0f : float(in[0]), hi = lo;
  for (int64_t i = 0; i < n; ++i) {
    lo = std::min(lo, float(in[i]));
    hi = std::max(hi, float(in[i]));
  }
  float offset = roundToBF16((hi + lo) * 0.5f), scale = std::max((hi - lo) * (1.0f / 254.0f), 1e-30f);
  float inverse = 1.0f / scale;
  for (int64_t i = 0; i < n; ++i) {
    float q = std::clamp(std::nearbyintf((float(in[i]) - offset) * inverse), -127.0f, 127.0f);
    out[i] = Real(q) * Real(scale) + Real(offset);
  }
}

template <typename Real>
void roundActivations(Act format, const Real *in, int64_t k, Real *out) {
  constexpr int64_t group = 32;
  switch (format) {
  case Act::f32:
    std::copy(in, in + k, out);
    return;
  case Act::bf16:
    for (int64_t i = 0; i < k; ++i) out[i] = roundToBF16(float(in[i]));
    return;
  case Act::int8:
    for (int64_t i = 0; i < k; i += group) roundScaled(in + i, std::min(group, k - i), out + i, 127.0f, [](float x) { return std::nearbyintf(x); });
    return;
  case Act::e4m3:
    for (int64_t i = 0; i < k; i += group) roundScaled(in + i, std::min(group, k - i), out + i, 448.0f, roundToE4M3);
    return;
  case Act::int8z:
    for (int64_t i = 0; i < k; i += group) roundInt8z(in + i, std::min(group, k - i), out + i);
    return;
  }
}

template <typename Real>
void roundEntry(Store format, const Real *in, int64_t n, Real *out) {
  switch (format) {
  case Store::f32:
    std::copy(in, in + n, out);
    return;
  case Store::f16:
    for (int64_t i = 0; i < n; ++i) out[i] = roundToF16(float(in[i]));
    return;
  case Store::bf16:
    for (int64_t i = 0; i < n; ++i) out[i] = roundToBF16(float(in[i]));
    return;
  case Store::int8:
    roundScaled(in, n, out, 127.0f, [](float x) { return std::nearbyintf(x); });
    return;
  case Store::e4m3:
    roundScaled(in, n, out, 448.0f, roundToE4M3);
    return;
  }
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

template <typename Real>
Real activate(Fn fn, Real x) {
  switch (fn) {
  case Fn::silu: return x / (Real(1) + std::exp(-x));
  case Fn::geluTanh:
    return Real(0.5) * x * (Real(1) + std::tanh(Real(0.7978845608028654) * (x + Real(0.044715) * x * x * x)));
  case Fn::geluErf: return Real(0.5) * x * (Real(1) + std::erf(x * Real(0.7071067811865476)));
  case Fn::relu: return x > 0 ? x : Real(0);
  }
  return x;
}

template <typename Real>
void rmsNorm(const Real *x, const Real *w, int64_t n, Real eps, Real *y) {
  Real r = Real(1) / std::sqrt(dot(x, x, n) / Real(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
}

template <typename Real>
void layerNorm(const Real *x, const Real *w, const Real *b, int64_t n, Real eps, Real *y) {
  Real sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  Real mean = sum / Real(n);
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  Real r = Real(1) / std::sqrt(squares / Real(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * r * w[i] + b[i];
}

template <typename Real>
void rope(const Real *x, const Real *angles, int64_t half, int64_t size, bool interleaved, Real *y) {
  std::copy(x, x + size, y);
  for (int64_t i = 0; i < half; ++i) {
    int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
    Real c = angles[i], s = angles[half + i];
    y[a] = x[a] * c - x[b] * s;
    y[b] = x[b] * c + x[a] * s;
  }
}

template <typename Real>
void attend(const AttendArgs<Real> &args) {
  std::vector<Real> p(args.last - args.first + 1);
  Real most = -INFINITY, sum = 0;
  for (int64_t j = args.first; j <= args.last; ++j) {
    Real s = dot(args.query, args.key(j), args.keySize) * args.scale;
    if (args.softcap > 0) s = args.softcap * std::tanh(s / args.softcap);
    p[j - args.first] = s;
    // Not std::max: a NaN from an entry that was never written has to reach the result.
    most = s > most || std::isnan(s) ? s : most;
  }
  std::fill(args.out, args.out + args.valueSize, Real(0));
  for (int64_t j = args.first; j <= args.last; ++j) {
    Real e = std::exp(p[j - args.first] - most);
    sum += e;
    const Real *value = args.value(j);
    for (int64_t d = 0; d < args.valueSize; ++d) args.out[d] += e * value[d];
  }
  for (int64_t d = 0; d < args.valueSize; ++d) args.out[d] /= sum;
}

#define LATHE_INSTANTIATE(Real)                                                                                        \
  template Real dot(const Real *, const Real *, int64_t);                                                              \
  template void roundActivations(Act, const Real *, int64_t, Real *);                                                  \
  template void roundEntry(Store, const Real *, int64_t, Real *);                                                      \
  template Real activate(Fn, Real);                                                                                    \
  template void rmsNorm(const Real *, const Real *, int64_t, Real, Real *);                                            \
  template void layerNorm(const Real *, const Real *, const Real *, int64_t, Real, Real *);                            \
  template void rope(const Real *, const Real *, int64_t, int64_t, bool, Real *);                                      \
  template void attend(const AttendArgs<Real> &)
LATHE_INSTANTIATE(float);
LATHE_INSTANTIATE(double);

} // namespace lathe::interp
