//===- ScalarModel.h - docs/exactness.md as scalar code ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The bit oracle of the kernels: every rounding in the order of the page, one value at a time. Shares
// nothing with the emitters but the storage types. Compile with -ffp-contract=off.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Layout.h"
#include "lathe/artifact/Packing.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace lathe::codegen::model {

inline float fromBits(uint32_t b) {
  float f;
  std::memcpy(&f, &b, 4);
  return f;
}
inline uint32_t toBits(float f) {
  uint32_t b;
  std::memcpy(&b, &f, 4);
  return b;
}
inline float half(uint16_t bits) {
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return float(h);
}
inline uint16_t toHalf(float f) {
  _Float16 h = _Float16(f);
  uint16_t b;
  std::memcpy(&b, &h, 2);
  return b;
}
/// Round to nearest even, finite values.
inline float bf16(float f) {
  uint32_t b = toBits(f);
  b += 0x7fff + (b >> 16 & 1);
  return fromBits(b & 0xffff0000u);
}

/// The value of a positive e4m3 code, by its definition.
inline float e4m3(int code) {
  int exponent = code >> 3;
  return exponent ? std::ldexp(8.0f + float(code & 7), exponent - 10) : std::ldexp(float(code & 7), -9);
}
/// The nearest e4m3 code, of two the even one; found by halving, as codes ascend with their values.
inline uint8_t toE4m3(float x) {
  float a = std::fabs(x);
  int lo = 0, hi = 0x7e; // the answer is lo or hi
  while (hi - lo > 1) {
    int middle = (lo + hi) / 2;
    (e4m3(middle) <= a ? lo : hi) = middle;
  }
  float below = a - e4m3(lo), above = e4m3(hi) - a; // exact: neighbours are within a factor of 2
  int code = below < above || (below == above && lo % 2 == 0) ? lo : hi;
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

inline float expa(float x) {
  x = std::min(std::max(x, -87.0f), 88.0f);
  float n = std::nearbyint(x * 1.44269504088896341f);
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = std::fma(p, r, c);
  float r2 = r * r;
  p = std::fma(p, r2, r) + 1.0f;
  return fromBits(toBits(p) + (uint32_t(int32_t(n)) << 23));
}
inline float tanha(float v) {
  float s = expa(2.0f * v) + 1.0f;
  return 1.0f - 2.0f / s;
}
inline float silu(float g) { return g / (1.0f + expa(-g)); }
inline float geluTanh(float g) {
  float cube = 0.044715f * g;
  cube = cube * g;
  float t = tanha(0.7978845608028654f * std::fma(cube, g, g));
  return 0.5f * g * (1.0f + t);
}

/// Sum over lanes in the order of tree(v).
inline float tree(std::vector<float> v) {
  for (size_t n = v.size(); n > 1; n /= 2)
    for (size_t i = 0; i < n / 2; ++i)
      v[i] = v[i] + v[i + n / 2];
  return v[0];
}

//===-- activations ------------------------------------------------------------------------------===//
struct Group {
  float x[32]; ///< f32, bf16, e4m3: what is multiplied
  int32_t q[32]; ///< int8; e4m3: the codes
  float scale = 0, offset = 0;
  int32_t sum[3] = {}; ///< whole, first half, second half
  float fsum[3] = {};
};
inline Group quantize(const float *v, ActFormat format) {
  Group g;
  std::fill(g.q, g.q + 32, 0);
  std::copy(v, v + 32, g.x);
  if (format == ActFormat::bf16)
    for (float &x : g.x)
      x = bf16(x);
  if (format == ActFormat::e4m3) {
    float amax = 0;
    for (int i = 0; i < 32; ++i)
      amax = std::max(amax, std::fabs(v[i]));
    g.scale = amax * (1.0f / 448);
    float inv = amax >= 1e-30f ? 448 / amax : 0;
    for (int i = 0; i < 32; ++i) {
      g.q[i] = toE4m3(v[i] * inv);
      g.x[i] = (g.q[i] & 0x80 ? -e4m3(g.q[i] & 0x7f) : e4m3(g.q[i])) * g.scale;
    }
  }
  if (!isInt8(format)) return g;
  if (format == ActFormat::int8) {
    float amax = 0;
    for (int i = 0; i < 32; ++i)
      amax = std::max(amax, std::fabs(v[i]));
    g.scale = amax * (1.0f / 127);
    float inv = amax >= 1e-30f ? 127 / amax : 0;
    for (int i = 0; i < 32; ++i)
      g.q[i] = int32_t(std::nearbyint(v[i] * inv));
  } else {
    float lo = *std::min_element(v, v + 32), hi = *std::max_element(v, v + 32);
    g.offset = bf16((hi + lo) * 0.5f);
    g.scale = std::max((hi - lo) * (1.0f / 254), 1e-30f);
    float inv = 1 / g.scale;
    for (int i = 0; i < 32; ++i) {
      float t = (v[i] - g.offset) * inv;
      g.q[i] = int32_t(std::nearbyint(std::min(std::max(t, -127.0f), 127.0f)));
    }
  }
  for (int i = 0; i < 32; ++i) {
    g.sum[0] += g.q[i];
    g.sum[1 + i / 16] += g.q[i];
  }
  for (int h = 0; h < 3; ++h)
    g.fsum[h] = format == ActFormat::int8 ? g.scale * float(g.sum[h])
                                          : std::fma(g.scale, float(g.sum[h]), (h ? 16.0f : 32.0f) * g.offset);
  return g;
}
/// Rows of K values (contiguous) as groups; zeros beyond K.
using Activations = std::vector<std::vector<Group>>;
inline Activations quantize(const std::vector<float> &x, int64_t rows, int64_t k, ActFormat format) {
  Activations out(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < (k + 31) / 32; ++g) {
      float v[32] = {};
      for (int64_t i = 0; i < 32 && g * 32 + i < k; ++i)
        v[i] = x[size_t(r * k + g * 32 + i)];
      out[size_t(r)].push_back(quantize(v, format));
    }
  return out;
}
/// The 32 values of a group without scales; |packed|: their upper 16 bits each.
inline void putValues(uint8_t *plane, int64_t index, const float *x, bool packed) {
  for (int64_t j = 0; j < 32; ++j) {
    uint32_t bits = toBits(x[j]);
    if (packed)
      bits >>= 16, std::memcpy(plane + (index * 32 + j) * 2, &bits, 2);
    else
      std::memcpy(plane + (index * 32 + j) * 4, &bits, 4);
  }
}
/// Writes activations in the layout of docs/kernels.md; |packed|: bf16 as avx512bf16 keeps it.
inline void pack(const Activations &a, int64_t k, ActFormat format, bool halves, uint8_t *out, bool packed = false) {
  ActivationLayout l = activationLayout(k, format, halves);
  int64_t rows = int64_t(a.size());
  for (int64_t r = 0; r < rows; ++r) {
    int64_t block = r / 16;
    auto [first, mb] = rowPart(format, std::min<int64_t>(16, rows - 16 * block), r % 16);
    // Rows of the block before the part are in front of it in each plane.
    int64_t i = r % 16 - first, before = first * l.groups;
    uint8_t *b = out + block * l.blockBytes;
    for (int64_t g = 0; g < l.groups; ++g) {
      const Group &v = a[size_t(r)][size_t(g)];
      if (!isInt8(format)) {
        putValues(b, before + g * mb + i, v.x, packed);
        continue;
      }
      for (int j = 0; j < 32; ++j)
        b[(before + g * mb + i) * 32 + j] = uint8_t(int8_t(v.q[j]));
      std::memcpy(b + l.scale + (before + g * mb + i) * 4, &v.scale, 4);
      if (format == ActFormat::int8z) std::memcpy(b + l.offset + (before + g * mb + i) * 4, &v.offset, 4);
      for (int64_t h = 0; h < l.sums; ++h) {
        int32_t neg = -v.sum[h];
        std::memcpy(b + l.isum + (before * l.sums + (g * l.sums + h) * mb + i) * 4, &neg, 4);
        std::memcpy(b + l.fsum + (before * l.sums + (g * l.sums + h) * mb + i) * 4, &v.fsum[h], 4);
      }
    }
  }
}

//===-- weights ----------------------------------------------------------------------------------===//
inline constexpr int iq4nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// A weight in parts; every vector is [row][...] over K padded to whole blocks.
struct Weight {
  StorageType type;
  int64_t n, k, padded;          ///< padded: K rounded up to blockK
  std::vector<float> values;     ///< float types, [n][padded]
  std::vector<uint8_t> code;     ///< as stored, [n][padded]
  std::vector<uint16_t> d, dmin; ///< f16 bits, [n][padded / scaleK]
  std::vector<int> sub, subMin;  ///< [n][padded / subK]
  std::vector<float> rowScale;   ///< [n]

  /// code - zero, or the codebook's value.
  int level(int64_t row, int64_t i) const {
    PackedLayout l = packedLayout(type);
    int c = code[size_t(row * padded + i)];
    return l.codebook ? iq4nl[c] : c - l.zero;
  }
  /// The level as a number, which of e4m3 is no integer.
  float number(int64_t row, int64_t i) const {
    if (!packedLayout(type).e4m3) return float(level(row, i));
    int c = code[size_t(row * padded + i)];
    return c & 0x80 ? -e4m3(c & 0x7f) : e4m3(c);
  }
  float scale(int64_t row, int64_t i) const {
    PackedLayout l = packedLayout(type);
    if (l.rowScale) return rowScale[size_t(row)];
    float s = half(d[size_t(row * (padded / l.scaleK) + i / l.scaleK)]);
    return l.subK ? s * float(sub[size_t(row * (padded / l.subK) + i / l.subK)]) : s;
  }
  /// What is added beside scale * level; 0 without mins.
  float min(int64_t row, int64_t i) const {
    PackedLayout l = packedLayout(type);
    float m = half(dmin[size_t(row * (padded / l.scaleK) + i / l.scaleK)]);
    return l.subK ? -(m * float(subMin[size_t(row * (padded / l.subK) + i / l.subK)])) : m;
  }
  float value(int64_t row, int64_t i) const {
    PackedLayout l = packedLayout(type);
    if (l.floatBytes) return values[size_t(row * padded + i)];
    float v = scale(row, i) * number(row, i);
    return l.min ? v + min(row, i) : v;
  }
};

/// Packs |w| as Packing.h says; an independent reading of that text.
inline std::vector<uint8_t> pack(const Weight &w) {
  PackedLayout l = packedLayout(w.type);
  int64_t tileBytes = packedTileBytes(w.type, w.k);
  std::vector<uint8_t> out(size_t(packedBytes(w.type, w.n, w.k)));
  for (int64_t row = 0; row < w.n; ++row) {
    uint8_t *tile = out.data() + row / 16 * tileBytes;
    int64_t r = row % 16;
    for (int64_t i = 0; i < w.padded; ++i) {
      uint8_t *block = tile + i / l.blockK * l.blockBytes;
      int64_t inBlock = i % l.blockK, j = inBlock / 32, kk = inBlock % 32;
      uint8_t *group = block + j * l.groupBytes;
      if (l.floatBytes) {
        float v = w.values[size_t(row * w.padded + i)];
        uint8_t *at = group + (kk * 16 + r) * l.floatBytes;
        uint32_t bits = toBits(v);
        uint16_t h = w.type == StorageType::f16 ? toHalf(v) : uint16_t(bits >> 16);
        l.floatBytes == 4 ? std::memcpy(at, &v, 4) : std::memcpy(at, &h, 2);
        continue;
      }
      int c = w.code[size_t(row * w.padded + i)];
      int64_t q = kk / 4, byte = 4 * r + kk % 4;
      uint8_t *plane = group;
      if (l.plane8) plane[q * 64 + byte] = uint8_t(c);
      if (l.plane4) {
        plane[q % 4 * 64 + byte] |= uint8_t((c & 15) << (q < 4 ? 0 : 4));
        plane += 256;
        c >>= 4;
      }
      if (l.plane2) {
        plane[q / 4 * 64 + byte] |= uint8_t((c & 3) << 2 * (q % 4));
        plane += 128;
        c >>= 2;
      }
      if (l.plane1) plane[byte] |= uint8_t((c & 1) << q);
      if (l.scaleK && inBlock % l.scaleK == 0) {
        int64_t s = inBlock / l.scaleK;
        std::memcpy(block + l.dOffset + (s * 16 + r) * 2, &w.d[size_t(row * (w.padded / l.scaleK) + i / l.scaleK)], 2);
        if (l.min)
          std::memcpy(block + l.minOffset + (s * 16 + r) * 2,
                      &w.dmin[size_t(row * (w.padded / l.scaleK) + i / l.scaleK)], 2);
      }
      if (l.subK && inBlock % l.subK == 0) {
        int64_t s = inBlock / l.subK;
        size_t from = size_t(row * (w.padded / l.subK) + i / l.subK);
        block[l.subOffset + s * 16 + r] = uint8_t(l.subNibbles ? w.sub[from] | w.subMin[from] << 4 : w.sub[from]);
        if (l.subMins) block[l.subMinOffset + s * 16 + r] = uint8_t(w.subMin[from]);
      }
    }
    if (l.rowScale) std::memcpy(tile + tileBytes - 64 + r * 4, &w.rowScale[size_t(row)], 4);
  }
  return out;
}

//===-- matmul -----------------------------------------------------------------------------------===//
/// One output before the epilogue.
inline float dot(const Weight &w, int64_t row, const std::vector<Group> &x, ActFormat format) {
  PackedLayout l = packedLayout(w.type);
  float acc = 0;
  for (size_t g = 0; g < x.size(); ++g) {
    const Group &a = x[g];
    int64_t at = int64_t(g) * 32;
    if (!isInt8(format)) {
      int oddFirst = (w.type == StorageType::bf16 || l.e4m3) && format == ActFormat::bf16;
      for (int n = 0; n < 32; ++n) {
        int i = n ^ oddFirst;
        acc = std::fma(l.e4m3 ? w.number(row, at + i) : w.value(row, at + i), a.x[i], acc);
      }
      continue;
    }
    int parts = l.subK == 16 ? 2 : 1, len = 32 / parts;
    float product = 0, wsum = 0;
    for (int h = 0; h < parts; ++h) {
      int32_t idot = 0, levels = 0;
      for (int i = h * len; i < (h + 1) * len; ++i) {
        idot += w.level(row, at + i) * a.q[i];
        levels += w.level(row, at + i);
      }
      if (l.rowScale) {
        product = float(idot);
        wsum = float(levels);
        continue;
      }
      float ws = w.scale(row, at + h * len);
      product = h ? std::fma(float(idot), ws, product) : float(idot) * ws;
      wsum = h ? std::fma(float(levels), ws, wsum) : float(levels) * ws;
    }
    acc = std::fma(product, a.scale, acc);
    if (l.min)
      for (int h = 0; h < parts; ++h)
        acc = std::fma(w.min(row, at + h * len), a.fsum[parts == 2 ? 1 + h : 0], acc);
    if (format == ActFormat::int8z) acc = std::fma(wsum, a.offset, acc);
  }
  if (l.rowScale && (l.e4m3 || isInt8(format))) acc = acc * w.rowScale[size_t(row)];
  return acc;
}

} // namespace lathe::codegen::model
