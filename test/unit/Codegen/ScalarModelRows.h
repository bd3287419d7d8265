//===- ScalarModelRows.h - docs/exactness.md as code: rows, attention -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The bit oracle of the row kernels and attention: one float at a time, every rounding where the page
// puts it. Compile with -ffp-contract=off.
//===----------------------------------------------------------------------===//
#pragma once
#include "ScalarModel.h"
#include "lathe/Codegen/Kernels.h"
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace lathe::codegen::model {

inline float erfa(float x) {
  float a = std::fabs(x), t = 1.0f / std::fmaf(0.3275911f, a, 1.0f), p = 1.061405429f;
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    p = std::fmaf(p, t, c);
  return std::copysign(1.0f - (p * t) * expa(-(a * a)), x);
}
inline float activation(Activation a, float g) {
  switch (a) {
  case Activation::silu:
    return silu(g);
  case Activation::geluTanh:
    return geluTanh(g);
  case Activation::geluErf:
    return (0.5f * g) * (1.0f + erfa(g * 0.70710678118654752f));
  case Activation::relu:
    return g > 0.0f ? g : 0.0f;
  }
  return g;
}

/// Writes row |row| of |rows| into an activation buffer; |packed|: bf16 as avx512bf16 keeps it.
inline void writeActivations(uint8_t *buffer, int64_t k, ActFormat f, bool halves, int64_t row, int64_t rows,
                             const float *x, bool packed = false) {
  ActivationLayout l = activationLayout(k, f, halves);
  auto [first, mb] = rowPart(f, std::min<int64_t>(16, rows - row / 16 * 16), row % 16);
  int64_t i = row % 16 - first, before = first * l.groups;
  uint8_t *b = buffer + row / 16 * l.blockBytes;
  auto put = [&](int64_t offset, auto v) { std::memcpy(b + offset, &v, sizeof v); };
  for (int64_t g = 0; g < l.groups; ++g) {
    float in[32] = {};
    for (int64_t j = 0; j < 32 && g * 32 + j < k; ++j)
      in[j] = x[g * 32 + j];
    Group v = quantize(in, f);
    int64_t at = before + g * mb + i;
    if (!isInt8(f)) {
      putValues(b, at, v.x, packed);
      continue;
    }
    for (int64_t j = 0; j < 32; ++j)
      put(at * 32 + j, static_cast<int8_t>(v.q[j]));
    put(l.scale + at * 4, v.scale);
    for (int64_t h = 0; h < l.sums; ++h) {
      put(l.isum + (before * l.sums + (g * l.sums + h) * mb + i) * 4, -v.sum[h]);
      put(l.fsum + (before * l.sums + (g * l.sums + h) * mb + i) * 4, v.fsum[h]);
    }
    if (f == ActFormat::int8z) put(l.offset + at * 4, v.offset + 0.0f); // never -0
  }
}

inline float meanSquare(const float *x, int64_t k, float shift) {
  float s[16] = {};
  for (int64_t i = 0; i < k; ++i)
    s[i % 16] = std::fmaf(x[i] - shift, x[i] - shift, s[i % 16]);
  return tree({s, s + 16}) * static_cast<float>(1.0 / static_cast<double>(k));
}
inline void rmsNorm(const float *x, const float *w, float *y, int64_t k, float eps) {
  float r = 1.0f / std::sqrt(meanSquare(x, k, 0.0f) + eps);
  for (int64_t i = 0; i < k; ++i)
    y[i] = (x[i] * r) * w[i];
}
/// |b| may be null (a bias of zero is not added then).
inline void layerNorm(const float *x, const float *w, const float *b, float *y, int64_t k, float eps) {
  float s[16] = {};
  for (int64_t i = 0; i < k; ++i)
    s[i % 16] = s[i % 16] + x[i];
  float mean = tree({s, s + 16}) * static_cast<float>(1.0 / static_cast<double>(k));
  float r = 1.0f / std::sqrt(meanSquare(x, k, mean) + eps);
  for (int64_t i = 0; i < k; ++i) {
    float d = x[i] - mean;
    y[i] = b ? std::fmaf(d * r, w[i], b[i]) : (d * r) * w[i];
  }
}

/// Cosine and sine of a float, by way of float64.
inline void sinCos(float angle, float &sine, float &cosine) {
  double a = angle, n = std::nearbyint(a * 0.63661977236758134308);
  double r = std::fma(n, -1.57079632673412561417, a);
  r = std::fma(n, -6.07710050630396597660e-11, r);
  r = std::fma(n, -2.02226624879595063154e-21, r);
  double z = r * r, s = 1.58969099521155010221e-10, c = -1.13596475577881948265e-11;
  for (double k : {-2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
                   8.33333333332248946124e-03, -1.66666666666666324348e-01})
    s = std::fma(s, z, k);
  s = std::fma(r * z, s, r);
  for (double k : {2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
                   -1.38888888888741095749e-03, 4.16666666666666019037e-02})
    c = std::fma(c, z, k);
  c = std::fma(z * z, c, std::fma(z, -0.5, 1.0));
  switch (static_cast<int64_t>(n) & 3) {
  case 0:
    sine = static_cast<float>(s), cosine = static_cast<float>(c);
    break;
  case 1:
    sine = static_cast<float>(c), cosine = static_cast<float>(-s);
    break;
  case 2:
    sine = static_cast<float>(-s), cosine = static_cast<float>(-c);
    break;
  default:
    sine = static_cast<float>(-c), cosine = static_cast<float>(s);
    break;
  }
}

/// Rotates the first |rotary| of x by angles = cosines then sines.
inline void rope(float *x, const float *angles, int64_t rotary, bool interleaved) {
  int64_t half = rotary / 2;
  for (int64_t i = 0; i < half; ++i) {
    int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
    float c = angles[i], s = angles[half + i], u = x[a], v = x[b];
    x[a] = std::fmaf(u, c, -(v * s));
    x[b] = std::fmaf(v, c, u * s);
  }
}

/// A KV pool of one layer group, addressed as docs/kernels.md says.
struct Cache {
  std::vector<uint8_t> bytes;
  int64_t page = 16, heads = 1, keyDim = 0, valueDim = 0, blockStride = 0, headStride = 0;
  KVFormat k = KVFormat::f16, v = KVFormat::f16;
  static int64_t size(KVFormat f) { return f == KVFormat::f32 ? 4 : isByte(f) ? 1 : 2; }
  int64_t keyBytes() const { return page * keyDim * size(k) + (isByte(k) ? page * 4 : 0); }
  int64_t valueBytes() const { return page * valueDim * size(v) + (isByte(v) ? page * 4 : 0); }
  void shape(int64_t blocks) {
    headStride = (keyBytes() + valueBytes() + 63) / 64 * 64;
    blockStride = headStride * heads;
    bytes.assign(blocks * blockStride, 0xff); // NaN in every format that has one
  }
  static void store(uint8_t *p, KVFormat f, float x) {
    uint16_t h = f == KVFormat::f16 ? toHalf(x) : static_cast<uint16_t>(toBits(bf16(x)) >> 16);
    f == KVFormat::f32 ? std::memcpy(p, &x, 4) : std::memcpy(p, &h, 2);
  }
  static float load(const uint8_t *p, KVFormat f, float scale) {
    float x;
    uint16_t h;
    std::memcpy(&h, p, isByte(f) ? 1 : 2);
    switch (f) {
    case KVFormat::f32:
      std::memcpy(&x, p, 4);
      return x;
    case KVFormat::f16:
      return half(h);
    case KVFormat::bf16:
      return fromBits(static_cast<uint32_t>(h) << 16);
    case KVFormat::e4m3:
      return (*p & 0x80 ? -e4m3(*p & 0x7f) : e4m3(*p)) * scale;
    case KVFormat::int8:
      return static_cast<float>(static_cast<int8_t>(*p)) * scale;
    }
    return 0;
  }
  uint8_t *head(int64_t block, int64_t h) { return bytes.data() + block * blockStride + h * headStride; }
  uint8_t *keyAt(int64_t block, int64_t h, int64_t slot, int64_t d) {
    int64_t t = slot % page;
    return head(block, h) + ((t / 16 * keyDim + d) * 16 + t % 16) * size(k);
  }
  uint8_t *valueAt(int64_t block, int64_t h, int64_t slot, int64_t d) {
    return head(block, h) + keyBytes() + (slot % page * valueDim + d) * size(v);
  }
  uint8_t *keyScale(int64_t block, int64_t h, int64_t slot) {
    return head(block, h) + page * keyDim * size(k) + slot % page * 4;
  }
  uint8_t *valueScale(int64_t block, int64_t h, int64_t slot) {
    return head(block, h) + keyBytes() + page * valueDim * size(v) + slot % page * 4;
  }
  template <class At> void put(const float *x, int64_t n, KVFormat f, uint8_t *scaleAt, At at) {
    if (!isByte(f)) {
      for (int64_t d = 0; d < n; ++d)
        store(at(d), f, x[d]);
      return;
    }
    float amax = 0;
    for (int64_t d = 0; d < n; ++d)
      amax = std::fmax(amax, std::fabs(x[d]));
    float limit = f == KVFormat::e4m3 ? 448.0f : 127.0f, scale = amax * (1.0f / limit), inv = amax >= 1e-30f ? limit / amax : 0.0f;
    std::memcpy(scaleAt, &scale, 4);
    for (int64_t d = 0; d < n; ++d)
      *at(d) = f == KVFormat::e4m3 ? toE4m3(x[d] * inv) : static_cast<uint8_t>(static_cast<int8_t>(std::nearbyintf(x[d] * inv)));
  }
  void append(int64_t block, int64_t h, int64_t slot, const float *key, const float *value) {
    put(key, keyDim, k, keyScale(block, h, slot), [&](int64_t d) { return keyAt(block, h, slot, d); });
    put(value, valueDim, v, valueScale(block, h, slot), [&](int64_t d) { return valueAt(block, h, slot, d); });
  }
  float key(int64_t block, int64_t h, int64_t slot, int64_t d) {
    float s = 0;
    if (isByte(k)) std::memcpy(&s, keyScale(block, h, slot), 4);
    return load(keyAt(block, h, slot, d), k, s);
  }
  float value(int64_t block, int64_t h, int64_t slot, int64_t d) {
    float s = 0;
    if (isByte(v)) std::memcpy(&s, valueScale(block, h, slot), 4);
    return load(valueAt(block, h, slot, d), v, s);
  }
};

/// One query head over the history of a row: entry j of it is the KV entry history[j] of the sequence whose block table is |table|.
inline void attention(const AttentionParams &p, const float *q, Cache &cache, const int32_t *table, int64_t head,
                      const std::vector<int64_t> &history, float *out) {
  int64_t slot = int64_t(history.size()) - 1; // a chain's
  int64_t lo = p.window && slot + 1 > p.window ? slot + 1 - p.window : 0;
  float M = 0, L = 0;
  std::vector<float> O(p.valueDim), o(p.valueDim), s(p.chunk);
  bool first = true;
  for (int64_t c = lo / p.chunk * p.chunk; c <= slot; c += p.chunk) {
    int64_t from = std::max(lo, c), to = std::min(slot + 1, c + p.chunk);
    float m = -INFINITY, l[16] = {};
    for (int64_t j = from; j < to; ++j) {
      float a = 0;
      for (int64_t d = 0; d < p.headDim; ++d)
        a = std::fmaf(q[d], cache.key(table[history[j] / p.page], head, history[j], d), a);
      a = a * p.scale;
      if (p.softcap != 0.0f) a = p.softcap * tanha(a * (1.0f / p.softcap));
      s[j - c] = a;
      m = a > m ? a : m;
    }
    std::fill(o.begin(), o.end(), 0.0f);
    for (int64_t j = from; j < to; ++j) {
      float w = expa(s[j - c] - m);
      l[j % 16] = l[j % 16] + w;
      for (int64_t d = 0; d < p.valueDim; ++d)
        o[d] = std::fmaf(w, cache.value(table[history[j] / p.page], head, history[j], d), o[d]);
    }
    float lc = tree({l, l + 16});
    if (first) {
      M = m, L = lc, O = o, first = false;
      continue;
    }
    float next = m > M ? m : M, a = expa(M - next), b = expa(m - next);
    L = std::fmaf(lc, b, L * a);
    for (int64_t d = 0; d < p.valueDim; ++d)
      O[d] = std::fmaf(o[d], b, O[d] * a);
    M = next;
  }
  float inv = 1.0f / L;
  for (int64_t d = 0; d < p.valueDim; ++d)
    out[d] = O[d] * inv;
}

} // namespace lathe::codegen::model
