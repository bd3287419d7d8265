//===- Storage.h - how weights are stored in model files -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A stored weight is rows of blocks. This file has, for every storage type, the size of a block, the
// exact values of a row (the bits of the format's reference implementation: docs/exactness.md), the
// integer codes and scales of a block, and encoders for round-to-nearest quantization. The types themselves and
// their packed form are in lathe/artifact/Packing.h.
//
// Lathe's own types have no file format; their rows are
//   int8      f32 scale, then one byte a column: code - 128 = round(x / scale)
//   e4m3      f32 scale, then one byte a column: the 8-bit float nearest to x / scale (Half.h). The two codes of NaN do not occur
//   int4_gN   for each N columns: f16 d, N/2 bytes of nibbles (16 bytes for each 32 columns: byte j
//             holds column j low and column 16 + j high); value (code - 8) * d
//   int4z_gN  the same with f16 d, f16 m; value code * d + m
// A last group that is not full is padded with codes of value zero (int4z: code 0).
//
// All functions are thread-safe.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Packing.h"
#include "lathe/base/Status.h"
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lathe {

struct StorageInfo {
  StorageType type;
  const char *name;  ///< "q4_k", as in the IR
  int blockElements; ///< columns a block holds; 1 for float types, int8 and e4m3
  int blockBytes;    ///< for int8 and e4m3 the bytes of one column (their rows have 4 more)
  int ggufType;      ///< number in a GGUF file, or -1
};

const StorageInfo &storageInfo(StorageType type);
std::optional<StorageType> storageFromName(std::string_view name);
std::optional<StorageType> storageFromGGUF(uint32_t typeId);
inline bool isFloatStorage(StorageType type) { return type <= StorageType::bf16; }
/// f32, f16 and bf16 by name, and all others: "f32, f16, ...".
std::string storageTypeNames();

/// The storage of a matrix with one scale (and 4-bit zero point) for each |block| columns; none that Lathe has for other shapes.
constexpr std::optional<StorageType> nbitsStorage(int bits, int64_t block, bool zeros) {
  if (bits == 8 && block == 32 && !zeros) return StorageType::q8_0;
  if (bits != 4) return std::nullopt;
  switch (block) {
  case 32: return zeros ? StorageType::int4z_g32 : StorageType::int4_g32;
  case 64: return zeros ? StorageType::int4z_g64 : StorageType::int4_g64;
  case 128: return zeros ? StorageType::int4z_g128 : StorageType::int4_g128;
  default: return std::nullopt;
  }
}

/// The same of a matrix of |columns|. Where its last block is not full, smaller groups with its scales hold what is there; none if no group fits.
constexpr std::optional<StorageType> nbitsStorage(int bits, int64_t columns, int64_t block, bool zeros) {
  if (block < 1 || !nbitsStorage(bits, block, zeros)) return std::nullopt;
  for (int64_t group = block; group >= 32; group /= 2)
    if (columns % group == 0) return nbitsStorage(bits, group, zeros);
  return std::nullopt;
}

/// True when a row of |columns| is whole blocks (own types pad the last one).
bool rowFits(StorageType type, int64_t columns);
/// Bytes of a stored row.
int64_t rowBytes(StorageType type, int64_t columns);

/// One block of a quantized type taken apart. Value of column k (docs/exactness.md):
///   no sub-scales   (code - zero) * d, or code * d + m with a min (m in dmin), or d * codebook[code]
///   sub-scales      (d * sub) * (code - zero), or (d * sub) * code - dmin * submin
/// with zero, subK and the signedness of sub in packedLayout(type).
struct DecomposedBlock {
  uint8_t codes[256];
  uint16_t d, dmin;   ///< float16 bits
  uint8_t sub[16];    ///< per subK columns; q3_k, q6_k: int8; q2_k: low nibble scale, high nibble min
  uint8_t subMin[16]; ///< q4_k, q5_k
};
/// Any quantized type but int8 and e4m3. |block| has blockBytes bytes.
void decomposeBlock(StorageType type, const uint8_t *block, DecomposedBlock &out);
/// The 16 values of iq4_nl.
extern const int8_t iq4nlValues[16];

/// Values of |columns| columns of a block or a packed group: the one place where a code becomes a
/// number. |out| has |columns| floats; columns start at the block's first.
void decomposedToFloats(StorageType type, const DecomposedBlock &block, int columns, float *out);

/// |out| = values of one stored row of out.size() columns, |row| its rowBytes.
void dequantizeRow(StorageType type, const uint8_t *row, std::span<float> out);

/// Round-to-nearest encoding of a row. Types: f32, f16, bf16, q4_0, q8_0 (the bits of the formats'
/// reference encoders), int8, e4m3, int4_gN, int4z_gN; others are unsupported. invalidArgument for
/// an infinity or NaN (names the column) and for a row that is not whole blocks.
Status encodeRow(StorageType type, std::span<const float> row, uint8_t *out);

} // namespace lathe
