//===- Unpack.cpp - values of a packed weight ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Written from the description in Packing.h, element by element, without the packer's helpers.
//===----------------------------------------------------------------------===//
#include "lathe/weights/Half.h"
#include "lathe/weights/Pack.h"
#include <algorithm>
#include <cstring>

namespace lathe {
namespace {

uint8_t codeAt(const PackedLayout &layout, const uint8_t *group, int row, int k) {
  if (layout.plane8) return group[64 * (k / 4) + 4 * row + k % 4];
  int code = 0, shift = 0;
  if (layout.plane4) {
    uint8_t byte = group[64 * (k % 16 / 4) + 4 * row + k % 4];
    code = k < 16 ? byte & 15 : byte >> 4;
    group += 256;
    shift = 4;
  }
  if (layout.plane2) {
    int q = k / 4;
    code |= (group[64 * (q / 4) + 4 * row + k % 4] >> (2 * (q % 4)) & 3) << shift;
    group += 128;
    shift += 2;
  }
  if (layout.plane1) code |= (group[4 * row + k % 4] >> (k / 4) & 1) << shift;
  return static_cast<uint8_t>(code);
}

float floatAt(StorageType storage, const uint8_t *p) {
  float value = 0;
  dequantizeRow(storage, p, {&value, 1});
  return value;
}

} // namespace

std::vector<float> unpackWeight(StorageType storage, int64_t rows, int64_t columns, std::span<const uint8_t> packed) {
  PackedLayout layout = packedLayout(storage);
  int64_t tileBytes = packedTileBytes(storage, columns);
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t n = 0; n < rows; ++n) {
    const uint8_t *tile = packed.data() + n / 16 * tileBytes;
    int row = static_cast<int>(n % 16);
    float *values = out.data() + n * columns;
    if (layout.floatBytes) {
      for (int64_t k = 0; k < columns; ++k)
        values[k] = floatAt(storage, tile + (k * 16 + row) * layout.floatBytes);
      continue;
    }
    int run = layout.scaleK ? layout.scaleK : 32; // columns that share one d
    for (int64_t begin = 0; begin < columns; begin += run) {
      const uint8_t *block = tile + begin / layout.blockK * layout.blockBytes;
      int inBlock = static_cast<int>(begin % layout.blockK);
      int count = static_cast<int>(std::min<int64_t>(run, columns - begin));
      DecomposedBlock parts{};
      for (int k = 0; k < count; ++k)
        parts.codes[k] = codeAt(layout, block + (inBlock + k) / 32 * layout.groupBytes, row, (inBlock + k) % 32);
      if (layout.rowScale) {
        float scale = floatAt(StorageType::f32, tile + tileBytes - 64 + 4 * row);
        for (int k = 0; k < count; ++k)
          values[begin + k] = (layout.e4m3 ? e4m3ToFloat(parts.codes[k]) : static_cast<float>(parts.codes[k] - layout.zero)) * scale;
        continue;
      }
      std::memcpy(&parts.d, block + layout.dOffset + 32 * (inBlock / run) + 2 * row, 2);
      if (layout.min) std::memcpy(&parts.dmin, block + layout.minOffset + 32 * (inBlock / run) + 2 * row, 2);
      for (int i = 0; layout.subK && i < run / layout.subK; ++i) {
        parts.sub[i] = block[layout.subOffset + 16 * i + row];
        if (layout.subMins) parts.subMin[i] = block[layout.subMinOffset + 16 * i + row];
      }
      decomposedToFloats(storage, parts, count, values + begin);
    }
  }
  return out;
}

} // namespace lathe
