//===- Encode.cpp - round-to-nearest quantization of rows ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/weights/Half.h"
#include "lathe/weights/Storage.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace lathe {
namespace {

void store16(uint8_t *p, uint16_t value) { std::memcpy(p, &value, 2); }

/// The element of largest magnitude, with its sign (the first of equals).
float extreme(const float *x, int n) {
  float amax = 0, best = 0;
  for (int k = 0; k < n; ++k)
    if (amax < std::fabs(x[k])) {
      amax = std::fabs(x[k]);
      best = x[k];
    }
  return best;
}

/// 1 / d, 0 for scales so small that they are stored as 0 and whose inverse would overflow.
float reciprocal(float d) { return std::fabs(d) < 1e-30f ? 0.0f : 1.0f / d; }

void storeNibbles(const uint8_t *codes, uint8_t *out) {
  for (int j = 0; j < 16; ++j)
    out[j] = static_cast<uint8_t>(codes[j] | codes[16 + j] << 4);
}

bool fitsHalf(float f) { return std::fabs(f) < 65520; }

/// The reference encoder of q4_0: the extreme value becomes -8 exactly.
bool encodeQ40(const float *x, uint8_t *out) {
  float d = extreme(x, 32) / -8;
  float inverse = reciprocal(d);
  store16(out, floatToHalf(d));
  uint8_t codes[32];
  for (int k = 0; k < 32; ++k)
    codes[k] = static_cast<uint8_t>(std::min(15, static_cast<int>(x[k] * inverse + 8.5f)));
  storeNibbles(codes, out + 2);
  return fitsHalf(d);
}

/// The reference encoder of q8_0.
bool encodeQ80(const float *x, uint8_t *out) {
  float d = std::fabs(extreme(x, 32)) / 127;
  float inverse = reciprocal(d);
  store16(out, floatToHalf(d));
  for (int k = 0; k < 32; ++k)
    out[2 + k] = static_cast<uint8_t>(static_cast<int8_t>(std::lround(x[k] * inverse)));
  return fitsHalf(d);
}

/// |n| of |group| columns are given. Codes are chosen for the scale as stored (rounded to f16).
bool encodeInt4(const float *x, int n, int group, bool asymmetric, uint8_t *out) {
  uint8_t codes[128];
  float d, m = 0;
  uint8_t *nibbles = out + (asymmetric ? 4 : 2);
  if (asymmetric) {
    auto [lo, hi] = std::minmax_element(x, x + n);
    float low = *lo, high = *hi;
    if (n < group) { // padding columns are zeros of the weight
      low = std::min(low, 0.0f);
      high = std::max(high, 0.0f);
    }
    m = halfToFloat(floatToHalf(low));
    d = halfToFloat(floatToHalf((high - m) / 15));
    store16(out + 2, floatToHalf(m));
  } else {
    d = halfToFloat(floatToHalf(extreme(x, n) / -8));
  }
  store16(out, floatToHalf(d));
  float zero = asymmetric ? 0 : 8;
  for (int k = 0; k < group; ++k) {
    // A group whose scale underflows float16 is stored as zeros (or as its minimum).
    float code = k < n && d != 0 && fitsHalf(d) && fitsHalf(m) ? std::nearbyint((x[k] - m) / d) + zero : zero;
    codes[k] = static_cast<uint8_t>(std::clamp(code, 0.0f, 15.0f));
  }
  for (int g = 0; g < group / 32; ++g)
    storeNibbles(codes + 32 * g, nibbles + 16 * g);
  return fitsHalf(d) && fitsHalf(m);
}

void encodeInt8(std::span<const float> row, uint8_t *out) {
  float scale = std::fabs(extreme(row.data(), static_cast<int>(row.size()))) / 127;
  std::memcpy(out, &scale, 4);
  for (size_t k = 0; k < row.size(); ++k)
    out[4 + k] =
        static_cast<uint8_t>(128 + (scale != 0 ? std::nearbyint(std::clamp(row[k] / scale, -127.0f, 127.0f)) : 0));
}

void encodeE4m3(std::span<const float> row, uint8_t *out) {
  float scale = std::fabs(extreme(row.data(), static_cast<int>(row.size()))) / 448;
  std::memcpy(out, &scale, 4);
  for (size_t k = 0; k < row.size(); ++k)
    out[4 + k] = scale != 0 ? floatToE4m3(row[k] / scale) : 0;
}

} // namespace

Status encodeRow(StorageType type, std::span<const float> row, uint8_t *out) {
  switch (type) {
  case StorageType::f32:
    std::memcpy(out, row.data(), row.size_bytes());
    return Status();
  case StorageType::f16:
    for (size_t k = 0; k < row.size(); ++k)
      store16(out + 2 * k, floatToHalf(row[k]));
    return Status();
  case StorageType::bf16:
    for (size_t k = 0; k < row.size(); ++k)
      store16(out + 2 * k, floatToBfloat(row[k]));
    return Status();
  default:
    break;
  }
  const StorageInfo &info = storageInfo(type);
  if (!rowFits(type, static_cast<int64_t>(row.size())))
    return makeError(StatusCode::invalidArgument, "expected rows of a multiple of %d elements for type %s, found %zu",
                     info.blockElements, info.name, row.size());
  for (size_t k = 0; k < row.size(); ++k)
    if (!std::isfinite(row[k]))
      return makeError(StatusCode::invalidArgument, "cannot quantize to %s: column %zu is %f", info.name, k,
                       static_cast<double>(row[k]));
  auto group = static_cast<size_t>(info.blockElements);
  for (size_t k = 0; k < row.size(); k += group, out += info.blockBytes) {
    const float *x = row.data() + k;
    int n = static_cast<int>(std::min(group, row.size() - k));
    bool fits = true;
    switch (type) {
    case StorageType::int8:
      encodeInt8(row, out);
      return Status();
    case StorageType::e4m3:
      encodeE4m3(row, out);
      return Status();
    case StorageType::q4_0:
      fits = encodeQ40(x, out);
      break;
    case StorageType::q8_0:
      fits = encodeQ80(x, out);
      break;
    case StorageType::int4_g32:
    case StorageType::int4_g64:
    case StorageType::int4_g128:
      fits = encodeInt4(x, n, info.blockElements, false, out);
      break;
    case StorageType::int4z_g32:
    case StorageType::int4z_g64:
    case StorageType::int4z_g128:
      fits = encodeInt4(x, n, info.blockElements, true, out);
      break;
    default:
      return makeError(StatusCode::unsupported,
                       "cannot quantize to %s, only to f32, f16, bf16, q4_0, q8_0, int8, int4_g32, int4_g64, "
                       "int4_g128, int4z_g32, int4z_g64, int4z_g128, e4m3",
                       info.name);
    }
    if (!fits)
      return makeError(StatusCode::invalidArgument,
                       "cannot quantize to %s: the scale of the group at column %zu is too large for float16",
                       info.name, k);
  }
  return Status();
}

} // namespace lathe
