//===- Packing.h - weights as every x86 variant reads them ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A weight of N rows (outputs) and K columns (inputs) is stored as tiles of 16 rows; rows and K are
// padded with codes of value zero (the zero point) and zero scales. A tile is ceil(K / blockK) blocks, back to back:
//
//   block = [group 0: code planes] ... [group blockK/32 - 1] [d] [dmin] [sub-scales] [sub-mins]
//
// Code planes of a group of 32 k, codes unsigned, in this order, each only if present:
//   plane8  512 B: zmm q (0..7), byte 4r+i = code of row r, k = 4q+i
//   plane4  256 B: zmm q (0..3), byte 4r+i = low nibble: k = 4q+i, high nibble: k = 16+4q+i  (bits 0-3 of the code)
//   plane2  128 B: zmm h (0..1), byte 4r+i, bits 2j..2j+1 (j 0..3): code part of k = 4*(4h+j)+i
//   plane1   64 B: byte 4r+i, bit q (0..7): code part of k = 4q+i
// A code is plane4 | plane2 << 4 | plane1 << 4 for 5- and 6-bit types, plane2 | plane1 << 2 for 2- and 3-bit ones.
// Float types: one group of 32 k is [k][16 rows] of the element type.
//
//   d, dmin      f16 [scaleGroups][16 rows]   (one per 32 k, per block for K-quants, per group for int4-gN)
//   sub-scales   u8 or i8 [blockK/subK][16]   (K-quants); q2_k: low nibble scale, high nibble min
//   sub-mins     u8 [blockK/subK][16]         (q4_k, q5_k)
// int8 and e4m3 (one scale a row): after the tile's last block, f32 [16]. Codes of e4m3 are its bytes.
//
// The value of an element is d * sub * (code - zero) - dmin * submin, in the storage type's own
// order of roundings (docs/exactness.md). q4_1, q5_1 and asymmetric int4 add their min instead: dmin slot
// holds m, value d * code + m.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>

namespace lathe {

enum class StorageType : uint32_t {
  f32, f16, bf16,
  q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl,
  int8,                          ///< symmetric, one f32 scale a row
  int4_g32, int4_g64, int4_g128, ///< symmetric, f16 scale a group, zero point 8
  int4z_g32, int4z_g64, int4z_g128, ///< asymmetric: f16 scale and f16 min a group
  e4m3,                          ///< 8-bit floats (4 bits of exponent, 3 of fraction), one f32 scale a row
};

/// Layout of one block of a tile; all in bytes unless said otherwise.
struct PackedLayout {
  int blockK = 64;       ///< k per block
  int groupBytes = 0;    ///< code planes of 32 k
  bool plane8 = false, plane4 = false, plane2 = false, plane1 = false;
  int floatBytes = 0;    ///< element size of float types, 0 for quantized
  int zero = 0;          ///< subtracted from codes
  int scaleK = 32;       ///< k that share one d
  bool min = false;      ///< a dmin (or m) beside every d
  int subK = 0;          ///< k that share one sub-scale, 0 none
  bool subSigned = false, subMins = false, subNibbles = false;
  bool rowScale = false; ///< f32 [16] after the tile
  bool codebook = false; ///< iq4_nl: the nibble selects one of 16 values
  bool e4m3 = false;     ///< the code is an e4m3 number
  int dOffset = 0, minOffset = 0, subOffset = 0, subMinOffset = 0, blockBytes = 0;
  /// Codes are floats, which integer activations cannot be multiplied with.
  constexpr bool isFloat() const { return floatBytes || e4m3; }
};

constexpr PackedLayout packedLayout(StorageType t) {
  PackedLayout l;
  switch (t) {
  case StorageType::f32: l.floatBytes = 4; break;
  case StorageType::f16: case StorageType::bf16: l.floatBytes = 2; break;
  case StorageType::q4_0: case StorageType::int4_g32: l.plane4 = true; l.zero = 8; break;
  case StorageType::int4_g64: l.plane4 = true; l.zero = 8; l.scaleK = 64; break;
  case StorageType::int4_g128: l.plane4 = true; l.zero = 8; l.scaleK = 128; l.blockK = 128; break;
  case StorageType::q4_1: case StorageType::int4z_g32: l.plane4 = l.min = true; break;
  case StorageType::int4z_g64: l.plane4 = l.min = true; l.scaleK = 64; break;
  case StorageType::int4z_g128: l.plane4 = l.min = true; l.scaleK = 128; l.blockK = 128; break;
  case StorageType::q5_0: l.plane4 = l.plane1 = true; l.zero = 16; break;
  case StorageType::q5_1: l.plane4 = l.plane1 = l.min = true; break;
  case StorageType::q8_0: l.plane8 = true; l.zero = 128; break;
  case StorageType::int8: l.plane8 = l.rowScale = true; l.zero = 128; l.scaleK = 0; break;
  case StorageType::e4m3: l.plane8 = l.rowScale = l.e4m3 = true; l.scaleK = 0; break;
  case StorageType::iq4_nl: l.plane4 = l.codebook = true; l.zero = 128; break;
  case StorageType::q2_k: l.plane2 = l.min = l.subNibbles = true; l.blockK = l.scaleK = 256; l.subK = 16; break;
  case StorageType::q3_k: l.plane2 = l.plane1 = l.subSigned = true; l.zero = 4; l.blockK = l.scaleK = 256; l.subK = 16; break;
  case StorageType::q4_k: l.plane4 = l.min = l.subMins = true; l.blockK = l.scaleK = 256; l.subK = 32; break;
  case StorageType::q5_k: l.plane4 = l.plane1 = l.min = l.subMins = true; l.blockK = l.scaleK = 256; l.subK = 32; break;
  case StorageType::q6_k: l.plane4 = l.plane2 = l.subSigned = true; l.zero = 32; l.blockK = l.scaleK = 256; l.subK = 16; break;
  }
  l.groupBytes = l.floatBytes ? 32 * 16 * l.floatBytes : (l.plane8 ? 512 : 0) + (l.plane4 ? 256 : 0) + (l.plane2 ? 128 : 0) + (l.plane1 ? 64 : 0);
  int at = l.blockK / 32 * l.groupBytes;
  if (!l.floatBytes && l.scaleK) {
    int d = l.blockK / l.scaleK * 32;
    l.dOffset = at; at += d;
    if (l.min) { l.minOffset = at; at += d; }
    if (l.subK) { l.subOffset = at; at += l.blockK / l.subK * 16; }
    if (l.subMins) { l.subMinOffset = at; at += l.blockK / l.subK * 16; }
  }
  l.blockBytes = at;
  return l;
}

/// Bytes of one 16-row tile of a weight with |k| columns.
constexpr int64_t packedTileBytes(StorageType t, int64_t k) {
  PackedLayout l = packedLayout(t);
  return (k + l.blockK - 1) / l.blockK * l.blockBytes + (l.rowScale ? 64 : 0);
}
/// Bytes of a packed weight of |n| rows and |k| columns.
constexpr int64_t packedBytes(StorageType t, int64_t n, int64_t k) { return (n + 15) / 16 * packedTileBytes(t, k); }

} // namespace lathe
