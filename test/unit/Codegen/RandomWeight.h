//===- RandomWeight.h - weights and rows that reach the corners ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "ScalarModel.h"
#include <random>

namespace lathe::codegen::test {
namespace m = lathe::codegen::model;

/// Random parts, with the extreme codes and sub-scales well represented.
inline m::Weight randomWeight(StorageType type, int64_t n, int64_t k, std::mt19937 &rng) {
  PackedLayout l = packedLayout(type);
  m::Weight w{type, n, k, (k + l.blockK - 1) / l.blockK * l.blockK, {}, {}, {}, {}, {}, {}, {}};
  auto uniform = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  auto real = [&](float scale) { return std::normal_distribution<float>(0, scale)(rng); };
  int bits = l.plane8 ? 8 : (l.plane4 ? 4 : 0) + (l.plane2 ? 2 : 0) + (l.plane1 ? 1 : 0), top = (1 << bits) - 1;
  for (int64_t r = 0; r < n; ++r) {
    bool extreme = r % 5 == 0;
    for (int64_t i = 0; i < w.padded; ++i) {
      bool inside = i < k;
      if (l.floatBytes) {
        float v = inside ? real(0.1f) : 0;
        w.values.push_back(type == StorageType::f32   ? v
                           : type == StorageType::f16 ? m::half(m::toHalf(v))
                                                      : m::bf16(v));
      } else {
        w.code.push_back(uint8_t(!inside ? 0 : extreme ? uniform(0, 1) * top : uniform(0, top)));
        if (l.e4m3 && (w.code.back() & 0x7f) == 0x7f) --w.code.back(); // NaN does not occur
      }
    }
    if (l.rowScale) w.rowScale.push_back(std::fabs(real(0.01f)));
    // Padding has zero scales from the first whole group beyond K; a group that K cuts keeps its scale.
    for (int64_t i = 0; l.scaleK && !l.floatBytes && i < w.padded; i += l.scaleK) {
      w.d.push_back(i < k ? m::toHalf(real(0.02f)) : 0);
      w.dmin.push_back(i < k ? m::toHalf(real(0.02f)) : 0);
    }
    for (int64_t i = 0; l.subK && i < w.padded; i += l.subK) {
      int edge = extreme ? 1 : 0;
      w.sub.push_back(l.subSigned    ? (edge ? (uniform(0, 1) ? 127 : -128) : uniform(-128, 127))
                      : l.subNibbles ? (edge ? 15 : uniform(0, 15))
                      : edge         ? 63
                                     : uniform(0, 63));
      w.subMin.push_back(l.subNibbles ? (edge ? 15 : uniform(0, 15)) : edge ? 63 : uniform(0, 63));
    }
  }
  return w;
}

/// Rows with plain values, saturated groups, and a zero group.
inline std::vector<float> randomInputs(int64_t rows, int64_t k, std::mt19937 &rng) {
  std::vector<float> x;
  std::normal_distribution<float> normal(0.2f, 1);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i) {
      int64_t kind = (r + i / 32) % 7;
      x.push_back(kind == 3 ? 0 : kind == 5 ? (rng() % 2 ? 3.0f : -3.0f) : normal(rng));
    }
  return x;
}

} // namespace lathe::codegen::test
