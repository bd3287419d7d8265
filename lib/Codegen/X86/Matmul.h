//===- Matmul.h - the parts of the matmul emitter ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Matmul.cpp: row blocks, units, epilogues. MatmulWeights.cpp: codes, scales and mins of a group of 32
// k. MatmulDot.cpp: exact integer dot products per instruction set. MatmulTile.cpp: the K loop.
//===----------------------------------------------------------------------===//
#pragma once
#include "Common/Emitter.h"

namespace lathe::codegen {

/// What the parts share while one kernel is emitted.
struct MatmulEmitter {
  Emitter &e;
  const MatmulParams &p;
  PackedLayout w;
  ActivationLayout a;

  MatmulEmitter(Emitter &e, const MatmulParams &p) : e(e), p(p), w(packedLayout(p.type)), a(activationLayout(p.k, p.act, p.halves)) {}

  /// Place in scratch of a group of dequantized weights, behind the four tiles of a gate/up unit.
  static constexpr int64_t dequantizedAt = 4 * 16 * 64, dequantizedBytes = 32 * 64;

  /// Bytes of a vector of codes: one zmm or half of it.
  int64_t width() const { return e.target.has512() ? 64 : 32; }
  int64_t pieces() const { return 64 / width(); }
  /// 8-bit codes on AVX2 are kept signed: vpmaddubsw would saturate on 255 * 127 * 2.
  bool signedCodes() const { return !e.target.hasVnni() && (w.plane8 || w.codebook); }

  /// Codes of a group: vector q * pieces() + piece holds byte 4r + i = code of (row r, k = 4q + i), i8.
  using Codes = Values;
  Codes codes(Value group);
  /// The same for quad |q| as 16 x i32, still packed.
  Value quad(const Codes &codes, int q);

  /// Scales of a group as 16 x f32: ws and m hold one value, or one per half of 16 k. |m| is what is added
  /// (already negated for K-quants), empty without mins.
  struct Scales {
    Values ws, m;
  };
  /// d and dmin of a block (or of the group |j| of it, when every group has its own).
  struct BlockScales {
    Value d, dmin;
  };
  BlockScales blockScales(Value block, int64_t j);
  Scales scales(const BlockScales &s, Value sub, Value subMin);

  /// Exact int32 sum over quads [q0, q1) of codes times activations, minus zero times their sum (which
  /// |negSum|, 16 equal lanes of -(sum of q), gives; null: |bias| is the constant to start from). |x|(q) is the
  /// int32 of four activations.
  Value dot(const Codes &codes, int q0, int q1, llvm::function_ref<Value(int q)> x, Value negSum, int64_t bias = 0);

  /// acc[row] += one group. |at|: addresses of the group in each plane.
  struct GroupAddress {
    Value x, meta, sums; ///< q (or x) plane, [G][mb] planes, [G][H][mb] planes
  };
  void intGroup(const Codes &codes, const Scales &s, const GroupAddress &at, int64_t mb, Values &acc);
  void floatGroup(Value group, const Scales &s, const GroupAddress &at, int64_t mb, Values &acc);

  /// The K loop of one tile against one row block: y of |mb| rows, before bias and residual.
  Values tile(Value weights, Value activations, int64_t mb);
};

} // namespace lathe::codegen
