//===- Storage.cpp - table of storage types, values of rows ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/weights/Storage.h"
#include "lathe/weights/Half.h"
#include <algorithm>
#include <cstring>

namespace lathe {
namespace {

// In the order of the enum.
const StorageInfo infos[] = {
    {StorageType::f32, "f32", 1, 4, 0},
    {StorageType::f16, "f16", 1, 2, 1},
    {StorageType::bf16, "bf16", 1, 2, 30},
    {StorageType::q4_0, "q4_0", 32, 18, 2},
    {StorageType::q4_1, "q4_1", 32, 20, 3},
    {StorageType::q5_0, "q5_0", 32, 22, 6},
    {StorageType::q5_1, "q5_1", 32, 24, 7},
    {StorageType::q8_0, "q8_0", 32, 34, 8},
    {StorageType::q2_k, "q2_k", 256, 84, 10},
    {StorageType::q3_k, "q3_k", 256, 110, 11},
    {StorageType::q4_k, "q4_k", 256, 144, 12},
    {StorageType::q5_k, "q5_k", 256, 176, 13},
    {StorageType::q6_k, "q6_k", 256, 210, 14},
    {StorageType::iq4_nl, "iq4_nl", 32, 18, 20},
    {StorageType::int8, "int8", 1, 1, -1},
    {StorageType::int4_g32, "int4_g32", 32, 18, -1},
    {StorageType::int4_g64, "int4_g64", 64, 34, -1},
    {StorageType::int4_g128, "int4_g128", 128, 66, -1},
    {StorageType::int4z_g32, "int4z_g32", 32, 20, -1},
    {StorageType::int4z_g64, "int4z_g64", 64, 36, -1},
    {StorageType::int4z_g128, "int4z_g128", 128, 68, -1},
    {StorageType::e4m3, "e4m3", 1, 1, -1},
};

template <typename T, typename F> void widen(const uint8_t *row, std::span<float> out, F convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, row + i * sizeof(T), sizeof(T));
    out[i] = convert(value);
  }
}

} // namespace

const int8_t iq4nlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

const StorageInfo &storageInfo(StorageType type) { return infos[static_cast<uint32_t>(type)]; }

std::optional<StorageType> storageFromName(std::string_view name) {
  for (const StorageInfo &info : infos)
    if (info.name == name) return info.type;
  return std::nullopt;
}

std::optional<StorageType> storageFromGGUF(uint32_t typeId) {
  for (const StorageInfo &info : infos)
    if (info.ggufType >= 0 && static_cast<uint32_t>(info.ggufType) == typeId) return info.type;
  return std::nullopt;
}

std::string storageTypeNames() {
  std::string list;
  for (const StorageInfo &info : infos)
    list += (list.empty() ? "" : ", ") + std::string(info.name);
  return list;
}

bool rowFits(StorageType type, int64_t columns) {
  return type >= StorageType::int8 || columns % storageInfo(type).blockElements == 0;
}

int64_t rowBytes(StorageType type, int64_t columns) {
  const StorageInfo &info = storageInfo(type);
  int64_t blocks = (columns + info.blockElements - 1) / info.blockElements;
  return blocks * info.blockBytes + (packedLayout(type).rowScale ? 4 : 0);
}

// The library is built with -ffp-contract=off: each product and each sum below is rounded by itself,
// as in the formats' reference code.
void decomposedToFloats(StorageType type, const DecomposedBlock &block, int columns, float *out) {
  PackedLayout layout = packedLayout(type);
  float d = halfToFloat(block.d);
  if (layout.codebook) {
    for (int k = 0; k < columns; ++k)
      out[k] = d * iq4nlValues[block.codes[k] & 15];
    return;
  }
  if (!layout.subK) {
    if (layout.min) {
      float m = halfToFloat(block.dmin);
      for (int k = 0; k < columns; ++k)
        out[k] = static_cast<float>(block.codes[k]) * d + m;
    } else {
      for (int k = 0; k < columns; ++k)
        out[k] = static_cast<float>(block.codes[k] - layout.zero) * d;
    }
    return;
  }
  float dmin = layout.min ? halfToFloat(block.dmin) : 0;
  for (int begin = 0; begin < columns; begin += layout.subK) {
    uint8_t raw = block.sub[begin / layout.subK];
    int sub = layout.subSigned ? static_cast<int8_t>(raw) : layout.subNibbles ? raw & 15 : raw;
    float scale = d * static_cast<float>(sub);
    int end = std::min(columns, begin + layout.subK);
    if (layout.min) {
      float m = dmin * static_cast<float>(layout.subNibbles ? raw >> 4 : block.subMin[begin / layout.subK]);
      for (int k = begin; k < end; ++k)
        out[k] = scale * static_cast<float>(block.codes[k]) - m;
    } else {
      for (int k = begin; k < end; ++k)
        out[k] = scale * static_cast<float>(block.codes[k] - layout.zero);
    }
  }
}

void dequantizeRow(StorageType type, const uint8_t *row, std::span<float> out) {
  switch (type) {
  case StorageType::f32:
    std::memcpy(out.data(), row, out.size_bytes());
    return;
  case StorageType::f16:
    widen<uint16_t>(row, out, halfToFloat);
    return;
  case StorageType::bf16:
    widen<uint16_t>(row, out, bfloatToFloat);
    return;
  case StorageType::int8:
  case StorageType::e4m3: {
    float scale;
    std::memcpy(&scale, row, 4);
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = (type == StorageType::e4m3 ? e4m3ToFloat(row[4 + k]) : static_cast<float>(row[4 + k] - 128)) * scale;
    return;
  }
  default:
    break;
  }
  const StorageInfo &info = storageInfo(type);
  DecomposedBlock block;
  auto size = static_cast<size_t>(info.blockElements);
  for (size_t k = 0; k < out.size(); k += size, row += info.blockBytes) {
    decomposeBlock(type, row, block);
    decomposedToFloats(type, block, static_cast<int>(std::min(size, out.size() - k)), out.data() + k);
  }
}

} // namespace lathe
