//===- Pack.cpp - weights into their packed layout -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/weights/Pack.h"
#include <algorithm>
#include <cstring>
#include <thread>

namespace lathe {
namespace {

constexpr int tileRows = 16;

inline uint32_t load32(const uint8_t *p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

/// Puts one row's codes of a group of 32 into its place in the group's planes. |at| points to the row's
/// dword of the first plane: dword q of a plane is 64 bytes after dword q - 1.
inline void scatterCodes(const PackedLayout &layout, const uint8_t *codes, uint8_t *at) {
  if (layout.plane8) {
    for (int q = 0; q < 8; ++q)
      std::memcpy(at + 64 * q, codes + 4 * q, 4);
    return;
  }
  uint32_t words[8];
  for (int q = 0; q < 8; ++q)
    words[q] = load32(codes + 4 * q);
  int shift2 = 0, shift1 = 0;
  if (layout.plane4) {
    for (int q = 0; q < 4; ++q) {
      uint32_t word = (words[q] & 0x0f0f0f0f) | (words[q + 4] & 0x0f0f0f0f) << 4;
      std::memcpy(at + 64 * q, &word, 4);
    }
    at += 256;
    shift2 = shift1 = 4;
  }
  if (layout.plane2) {
    for (int h = 0; h < 2; ++h) {
      uint32_t word = 0;
      for (int j = 0; j < 4; ++j)
        word |= (words[4 * h + j] >> shift2 & 0x03030303) << (2 * j);
      std::memcpy(at + 64 * h, &word, 4);
    }
    at += 128;
    shift1 = shift2 + 2;
  }
  if (layout.plane1) {
    uint32_t word = 0;
    for (int q = 0; q < 8; ++q)
      word |= (words[q] >> shift1 & 0x01010101) << q;
    std::memcpy(at, &word, 4);
  }
}

/// Places of one row in a block of a tile.
struct BlockWriter {
  const PackedLayout &layout;
  uint8_t *block;
  int row;
  void codes(int group, const uint8_t *values) const {
    scatterCodes(layout, values, block + group * layout.groupBytes + 4 * row);
  }
  void scales(int group, uint16_t d, uint16_t dmin) const {
    std::memcpy(block + layout.dOffset + 32 * group + 2 * row, &d, 2);
    if (layout.min) std::memcpy(block + layout.minOffset + 32 * group + 2 * row, &dmin, 2);
  }
  void subScales(const DecomposedBlock &from) const {
    for (int i = 0; i < layout.blockK / layout.subK; ++i) {
      block[layout.subOffset + 16 * i + row] = from.sub[i];
      if (layout.subMins) block[layout.subMinOffset + 16 * i + row] = from.subMin[i];
    }
  }
  void padding(int fromGroup) const {
    uint8_t zeros[32];
    std::memset(zeros, layout.codebook ? 0 : layout.zero, 32);
    for (int g = fromGroup; g < layout.blockK / 32; ++g)
      codes(g, zeros);
  }
};

void packFloatRow(const PackedLayout &layout, const uint8_t *stored, int64_t columns, int row, uint8_t *tile) {
  // [k][16 rows] without gaps: groups and blocks only cut it.
  auto size = static_cast<size_t>(layout.floatBytes);
  uint8_t *at = tile + size * static_cast<size_t>(row);
  for (int64_t k = 0; k < columns; ++k, stored += size, at += tileRows * size) {
    if (size == 2)
      std::memcpy(at, stored, 2);
    else
      std::memcpy(at, stored, 4);
  }
}

/// int8 and e4m3.
void packScaledRow(const PackedLayout &layout, const uint8_t *stored, int64_t columns, int row, uint8_t *tile,
                   int64_t blocks) {
  uint8_t codes[32];
  for (int64_t g = 0; g < blocks * layout.blockK / 32; ++g) {
    int64_t n = std::clamp<int64_t>(columns - 32 * g, 0, 32);
    std::memset(codes, layout.zero, 32);
    if (stored && n) std::memcpy(codes, stored + 4 + 32 * g, static_cast<size_t>(n));
    scatterCodes(layout, codes, tile + g * layout.groupBytes + 4 * row);
  }
  if (stored) std::memcpy(tile + blocks * layout.blockBytes + 4 * row, stored, 4);
}

void packBlockRow(StorageType type, const PackedLayout &layout, const uint8_t *stored, int64_t columns, int row,
                  uint8_t *tile, int64_t blocks) {
  const StorageInfo &info = storageInfo(type);
  int perBlock = layout.blockK / info.blockElements, groups = info.blockElements / 32;
  int64_t storedBlocks = stored ? (columns + info.blockElements - 1) / info.blockElements : 0;
  DecomposedBlock parts;
  for (int64_t b = 0; b < blocks; ++b) {
    BlockWriter out{layout, tile + b * layout.blockBytes, row};
    for (int i = 0; i < perBlock; ++i) {
      if (b * perBlock + i >= storedBlocks) {
        out.padding(i * groups);
        break;
      }
      decomposeBlock(type, stored, parts);
      stored += info.blockBytes;
      for (int g = 0; g < groups; ++g)
        out.codes(i * groups + g, parts.codes + 32 * g);
      out.scales(i, parts.d, parts.dmin);
      if (layout.subK) out.subScales(parts);
    }
  }
}

} // namespace

Status packTiles(const WeightRows &weight, int64_t first, int64_t count, uint8_t *out) {
  StorageType type = weight.storage();
  PackedLayout layout = packedLayout(type);
  int64_t columns = weight.columns(), tileBytes = packedTileBytes(type, columns);
  int64_t blocks = (columns + layout.blockK - 1) / layout.blockK;
  std::vector<uint8_t> scratch;
  for (int64_t tile = first; tile < first + count; ++tile, out += tileBytes) {
    std::memset(out, 0, static_cast<size_t>(tileBytes));
    for (int row = 0; row < tileRows; ++row) {
      int64_t source = tile * tileRows + row;
      const uint8_t *stored = nullptr;
      if (source < weight.rows()) {
        LATHE_ASSIGN_OR_RETURN(stored, weight.storedRow(source, scratch));
      }
      if (layout.rowScale)
        packScaledRow(layout, stored, columns, row, out, blocks);
      else if (!layout.floatBytes)
        packBlockRow(type, layout, stored, columns, row, out, blocks);
      else if (stored)
        packFloatRow(layout, stored, columns, row, out);
    }
  }
  return Status();
}

Status packWeight(const WeightRows &weight, const PackOptions &options,
                  const std::function<Status(std::span<const uint8_t>)> &sink) {
  int64_t tiles = (weight.rows() + tileRows - 1) / tileRows;
  int64_t tileBytes = packedTileBytes(weight.storage(), weight.columns());
  int64_t threads = std::clamp<int64_t>(options.threads, 1, 256);
  int64_t share = std::max<int64_t>(1, static_cast<int64_t>(options.bufferBytes) / tileBytes / threads);
  share = std::min(share, (tiles + threads - 1) / threads);
  std::vector<uint8_t> buffer(static_cast<size_t>(threads * share * tileBytes));
  std::vector<Status> status(static_cast<size_t>(threads));
  for (int64_t begin = 0; begin < tiles; begin += threads * share) {
    auto work = [&](int64_t t) {
      int64_t first = begin + t * share, count = std::min(share, tiles - first);
      if (count > 0)
        status[static_cast<size_t>(t)] = packTiles(weight, first, count, buffer.data() + t * share * tileBytes);
    };
    std::vector<std::thread> team;
    for (int64_t t = 1; t < threads; ++t)
      team.emplace_back(work, t);
    work(0);
    for (std::thread &thread : team)
      thread.join();
    for (Status &s : status)
      LATHE_RETURN_IF_ERROR(s);
    LATHE_RETURN_IF_ERROR(weight.check());
    int64_t done = std::min(threads * share, tiles - begin);
    LATHE_RETURN_IF_ERROR(sink(std::span(buffer).first(static_cast<size_t>(done * tileBytes))));
  }
  weight.drop();
  return Status();
}

} // namespace lathe
