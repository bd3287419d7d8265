//===- Decompose.cpp - codes and scales of stored blocks -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The bit layouts of GGUF's block types. Loops run over whole groups of 16 or 32 bytes so that they
// vectorise: this is the inner loop of packing.
//===----------------------------------------------------------------------===//
#include "lathe/weights/Storage.h"
#include <cstring>

namespace lathe {
namespace {

uint16_t load16(const uint8_t *p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

/// 16 bytes: low nibbles are columns 0..15, high nibbles 16..31.
inline void nibbles(const uint8_t *bytes, uint8_t *codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = bytes[j] & 15;
    codes[16 + j] = bytes[j] >> 4;
  }
}

/// Adds bit k of |bits| to codes[k] as bit 4.
inline void fifthBits(const uint8_t *bits, uint8_t *codes) {
  uint32_t word;
  std::memcpy(&word, bits, 4);
  for (int k = 0; k < 32; ++k)
    codes[k] |= (word >> k & 1) << 4;
}

/// 64 bytes of 2-bit codes: column 128 n + 32 j + l is bits 2j of byte 32 n + l.
inline void twoBits(const uint8_t *bytes, uint8_t *codes) {
  for (int n = 0; n < 2; ++n)
    for (int j = 0; j < 4; ++j)
      for (int l = 0; l < 32; ++l)
        codes[128 * n + 32 * j + l] = bytes[32 * n + l] >> (2 * j) & 3;
}

/// 128 bytes: 32 bytes hold two groups of 32, low nibbles first.
inline void groupNibbles(const uint8_t *bytes, uint8_t *codes) {
  for (int c = 0; c < 4; ++c)
    for (int l = 0; l < 32; ++l) {
      codes[64 * c + l] = bytes[32 * c + l] & 15;
      codes[64 * c + 32 + l] = bytes[32 * c + l] >> 4;
    }
}

/// 12 bytes of eight 6-bit scales and eight 6-bit mins (q4_k, q5_k).
inline void scalesAndMins(const uint8_t *s, DecomposedBlock &out) {
  for (int j = 0; j < 4; ++j) {
    out.sub[j] = s[j] & 63;
    out.subMin[j] = s[4 + j] & 63;
    out.sub[4 + j] = static_cast<uint8_t>((s[8 + j] & 15) | (s[j] >> 6) << 4);
    out.subMin[4 + j] = static_cast<uint8_t>(s[8 + j] >> 4 | (s[4 + j] >> 6) << 4);
  }
}

void decomposeQ2K(const uint8_t *b, DecomposedBlock &out) {
  std::memcpy(out.sub, b, 16);
  twoBits(b + 16, out.codes);
  out.d = load16(b + 80);
  out.dmin = load16(b + 82);
}

void decomposeQ3K(const uint8_t *b, DecomposedBlock &out) {
  const uint8_t *high = b, *s = b + 96;
  twoBits(b + 32, out.codes);
  for (int g = 0; g < 8; ++g)
    for (int l = 0; l < 32; ++l)
      out.codes[32 * g + l] |= (high[l] >> g & 1) << 2;
  for (int i = 0; i < 16; ++i) {
    int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    int top = s[8 + i % 4] >> (2 * (i / 4)) & 3;
    out.sub[i] = static_cast<uint8_t>((low | top << 4) - 32);
  }
  out.d = load16(b + 108);
  out.dmin = 0;
}

void decomposeQ5K(const uint8_t *b, DecomposedBlock &out) {
  const uint8_t *high = b + 16;
  groupNibbles(b + 48, out.codes);
  for (int g = 0; g < 8; ++g)
    for (int l = 0; l < 32; ++l)
      out.codes[32 * g + l] |= (high[l] >> g & 1) << 4;
  scalesAndMins(b + 4, out);
  out.d = load16(b);
  out.dmin = load16(b + 2);
}

void decomposeQ6K(const uint8_t *b, DecomposedBlock &out) {
  for (int n = 0; n < 2; ++n) {
    const uint8_t *low = b + 64 * n, *high = b + 128 + 32 * n;
    uint8_t *codes = out.codes + 128 * n;
    for (int l = 0; l < 32; ++l) {
      codes[l] = static_cast<uint8_t>((low[l] & 15) | (high[l] & 3) << 4);
      codes[32 + l] = static_cast<uint8_t>((low[32 + l] & 15) | (high[l] >> 2 & 3) << 4);
      codes[64 + l] = static_cast<uint8_t>(low[l] >> 4 | (high[l] >> 4 & 3) << 4);
      codes[96 + l] = static_cast<uint8_t>(low[32 + l] >> 4 | (high[l] >> 6) << 4);
    }
  }
  std::memcpy(out.sub, b + 192, 16);
  out.d = load16(b + 208);
  out.dmin = 0;
}

} // namespace

void decomposeBlock(StorageType type, const uint8_t *b, DecomposedBlock &out) {
  out.d = load16(b);
  out.dmin = 0;
  switch (type) {
  case StorageType::q4_0:
  case StorageType::iq4_nl:
    return nibbles(b + 2, out.codes);
  case StorageType::q4_1:
    out.dmin = load16(b + 2);
    return nibbles(b + 4, out.codes);
  case StorageType::q5_0:
    nibbles(b + 6, out.codes);
    return fifthBits(b + 2, out.codes);
  case StorageType::q5_1:
    out.dmin = load16(b + 2);
    nibbles(b + 8, out.codes);
    return fifthBits(b + 4, out.codes);
  case StorageType::q8_0:
    for (int k = 0; k < 32; ++k)
      out.codes[k] = b[2 + k] ^ 128;
    return;
  case StorageType::q2_k:
    return decomposeQ2K(b, out);
  case StorageType::q3_k:
    return decomposeQ3K(b, out);
  case StorageType::q4_k:
    out.dmin = load16(b + 2);
    scalesAndMins(b + 4, out);
    return groupNibbles(b + 16, out.codes);
  case StorageType::q5_k:
    return decomposeQ5K(b, out);
  case StorageType::q6_k:
    return decomposeQ6K(b, out);
  case StorageType::int4_g32:
  case StorageType::int4_g64:
  case StorageType::int4_g128:
    for (int g = 0; g < storageInfo(type).blockElements / 32; ++g)
      nibbles(b + 2 + 16 * g, out.codes + 32 * g);
    return;
  case StorageType::int4z_g32:
  case StorageType::int4z_g64:
  case StorageType::int4z_g128:
    out.dmin = load16(b + 2);
    for (int g = 0; g < storageInfo(type).blockElements / 32; ++g)
      nibbles(b + 4 + 16 * g, out.codes + 32 * g);
    return;
  case StorageType::f32:
  case StorageType::f16:
  case StorageType::bf16:
  case StorageType::int8:
  case StorageType::e4m3:
    return; // have no blocks
  }
}

} // namespace lathe
