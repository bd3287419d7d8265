//===- Dequantize.h - packed weights in a thread --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Everything that knows include/lathe/artifact/Packing.h, driven by packedLayout(). A tile of 16 rows is read as A operands
// of mma.sync with fragment rows g and g + 8 being the tile's rows 2g and 2g + 1, so that a lane's two rows lie side by
// side: four codes of each are one 8-byte load.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/GpuEmitter.h"

namespace lathe::codegen::nvptx {

/// The levels of iq4_nl.
extern const int8_t iq4nl[16];

struct Dequantizer {
  GpuEmitter &e;
  StorageType type;
  PackedLayout w;
  Dequantizer(GpuEmitter &e, StorageType type) : e(e), type(type), w(packedLayout(type)) {}

  //===-- fragments: row pair 2g, 2g + 1 of lane (g, t) ------------------------------------------===//
  /// Codes are signed bytes (level = code) for 8-bit codes and codebooks, else unsigned (level = code - zero). Those of e4m3 are as stored.
  bool signedCodes() const { return (w.plane8 && !w.e4m3) || w.codebook; }
  /// Raw planes of a group, loaded before they are unpacked.
  struct Raw {
    Values words; ///< [plane word][row of the pair], i32
  };
  Raw load(Value group);
  /// Four registers of four codes: {row 2g, row 2g + 1} at k = 4t .. 4t + 3, then at 16 + 4t ... .
  Values codes(const Raw &raw);
  /// Level of four codes as two registers of bf16x2 (k, k + 1), (k + 2, k + 3): exact.
  Values levels(Value codes);

  /// Scales of group |g| (an i64 within its block) for the row pair. ws: [half][row]; m (types with a min): the same.
  struct Scales {
    Values ws, m;
  };
  Scales scales(Value block, Value g);

  //===-- one element ----------------------------------------------------------------------------===//
  /// The value of column |kk| of 32 (i64) in group |g| (i64, in its block) of the tile's row |r| (i64), with the roundings of the
  /// format's reference. |rowScale|: f32, for int8 and e4m3; null: left out.
  Value element(Value block, Value g, Value r, Value kk, Value rowScale);
  /// The row scale of row |r|; null without.
  Value rowScaleOf(Value tile, Value r, int64_t k);

private:
  Value lookup(Value codes);
  /// Which of a lane's four codes is element |i| of an operand, in wgmma's order.
  Value byteOf(int64_t i) { return e.xori(e.andc(e.lane32, 3), e.ci(e.i32, i)); }
  Value half(Value p) { return e.ext(e.ld(e.f16, p, 0, 2)); }
  Values pairOfHalves(Value p);
  Values pairOfBytes(Value p, bool isSigned);
};

} // namespace lathe::codegen::nvptx
