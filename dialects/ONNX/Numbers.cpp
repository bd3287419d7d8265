//===- Numbers.cpp - number formats, places and ranges of ONNX -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/ONNX/Numbers.h"
#include "llvm/ADT/APFloat.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace lathe::onnx {

// Formats.

bool isFloat(DataType type) {
  switch (type) {
  case DataType::float32: case DataType::float64: case DataType::float16: case DataType::bfloat16: case DataType::float8e4m3fn:
  case DataType::float8e4m3fnuz: case DataType::float8e5m2: case DataType::float8e5m2fnuz: case DataType::float4e2m1: case DataType::float8e8m0:
    return true;
  default:
    return false;
  }
}

bool isUnsigned(DataType type) {
  switch (type) {
  case DataType::uint8: case DataType::uint16: case DataType::uint32: case DataType::uint64: case DataType::uint4: case DataType::uint2:
    return true;
  default:
    return false;
  }
}

int64_t elementBytes(DataType type) { return std::max(8, dataTypeBits(type)) / 8; }

namespace {
/// Small formats by their value: mantissa bits, exponent of the smallest normal, largest number.
struct Format {
  int mantissa, least;
  double largest;
};
} // namespace
static Format formatOf(DataType type) {
  switch (type) {
  case DataType::float16: return {10, -14, 65504};
  case DataType::bfloat16: return {7, -126, 3.3895313892515355e38};
  case DataType::float8e4m3fn: return {3, -6, 448};
  case DataType::float8e4m3fnuz: return {3, -7, 240};
  case DataType::float8e5m2: return {2, -14, 57344};
  case DataType::float8e5m2fnuz: return {2, -15, 57344};
  default: return {1, 0, 6}; // float4e2m1
  }
}
/// To a multiple of the unit in the last place, ties to even.
static double roundFormat(const Format &format, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);
  int unit = std::max(exponent - 1, format.least) - format.mantissa;
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

double castTo(DataType type, double x, bool saturate) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  switch (type) {
  case DataType::float64: return x;
  case DataType::float32: return double(float(x));
  case DataType::float8e8m0: {
    if (std::isnan(x)) return x;
    double m = std::abs(x);
    if (m > 0x1p127) return saturate ? 0x1p127 : nan;
    if (m < 0x1p-127) return 0x1p-127;
    int exponent;
    double fraction = std::frexp(m, &exponent);
    return std::ldexp(1, fraction == 0.5 ? exponent - 1 : exponent); // up to a power of two
  }
  default:
    break;
  }
  if (std::isnan(x)) return type == DataType::float4e2m1 ? 0 : x;
  Format format = formatOf(type);
  double r = roundFormat(format, type == DataType::float16 || type == DataType::bfloat16 ? x : double(float(x)));
  bool zeroSigned = type != DataType::float8e4m3fnuz && type != DataType::float8e5m2fnuz;
  if (r == 0) return zeroSigned ? r : 0.0;
  if (std::abs(r) <= format.largest) return r;
  if (type == DataType::float16 || type == DataType::bfloat16) return std::copysign(inf, x);
  if (saturate || type == DataType::float4e2m1) return std::copysign(format.largest, x);
  return type == DataType::float8e5m2 ? std::copysign(inf, x) : nan;
}

int64_t wrapTo(DataType type, int64_t n) {
  int bits = dataTypeBits(type);
  if (type == DataType::boolean) return n != 0;
  if (bits >= 64) return n;
  uint64_t low = uint64_t(n) & ((1ull << bits) - 1);
  if (!isUnsigned(type) && low >> (bits - 1)) return int64_t(low) - (int64_t(1) << bits);
  return int64_t(low);
}

// Elements.

static const llvm::fltSemantics &semanticsOf(DataType type) {
  switch (type) {
  case DataType::float16: return llvm::APFloat::IEEEhalf();
  case DataType::bfloat16: return llvm::APFloat::BFloat();
  case DataType::float8e4m3fn: return llvm::APFloat::Float8E4M3FN();
  case DataType::float8e4m3fnuz: return llvm::APFloat::Float8E4M3FNUZ();
  case DataType::float8e5m2: return llvm::APFloat::Float8E5M2();
  case DataType::float8e5m2fnuz: return llvm::APFloat::Float8E5M2FNUZ();
  case DataType::float4e2m1: return llvm::APFloat::Float4E2M1FN();
  default: return llvm::APFloat::Float8E8M0FNU();
  }
}

std::vector<uint8_t> unpacked(DataType type, const uint8_t *bytes, size_t count) {
  int bits = dataTypeBits(type);
  std::vector<uint8_t> out;
  out.reserve(count);
  bool isSigned = !isUnsigned(type) && !isFloat(type);
  for (size_t k = 0; k < count; ++k) {
    int code = packedBits(bytes, k, bits);
    if (isSigned && code >> (bits - 1)) code -= 1 << bits;
    out.push_back(static_cast<uint8_t>(code));
  }
  return out;
}

void load(DataType type, std::span<const uint8_t> bytes, size_t count, std::vector<double> &f, std::vector<int64_t> &i) {
  auto each = static_cast<size_t>(elementBytes(type));
  auto bits = static_cast<unsigned>(dataTypeBits(type));
  bool floats = isFloat(type);
  if (floats) f.resize(count);
  else i.resize(count);
  for (size_t k = 0; k < count; ++k) {
    const uint8_t *at = bytes.data() + k * each;
    uint64_t raw = 0;
    std::memcpy(&raw, at, std::min<size_t>(each, 8)); // little-endian
    if (!floats) {
      i[k] = wrapTo(type, int64_t(raw));
    } else if (type == DataType::float32) {
      float x;
      std::memcpy(&x, at, 4);
      f[k] = x;
    } else if (type == DataType::float64) {
      std::memcpy(&f[k], at, 8);
    } else {
      llvm::APFloat x(semanticsOf(type), llvm::APInt(bits, raw & ((1ull << bits) - 1)));
      bool lossy;
      x.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
      f[k] = x.convertToDouble();
    }
  }
}

std::vector<uint8_t> stored(DataType type, std::span<const double> f, std::span<const int64_t> i) {
  auto each = static_cast<size_t>(elementBytes(type));
  bool floats = isFloat(type);
  size_t count = floats ? f.size() : i.size();
  std::vector<uint8_t> out(count * each);
  for (size_t k = 0; k < count; ++k) {
    uint8_t *at = out.data() + k * each;
    if (!floats) {
      std::memcpy(at, &i[k], std::min<size_t>(each, 8)); // little-endian: the low bytes of the number
    } else if (type == DataType::float32) {
      auto x = static_cast<float>(f[k]);
      std::memcpy(at, &x, 4);
    } else if (type == DataType::float64) {
      std::memcpy(at, &f[k], 8);
    } else {
      llvm::APFloat x(f[k]);
      bool lossy;
      x.convert(semanticsOf(type), llvm::APFloat::rmNearestTiesToEven, &lossy);
      uint64_t raw = x.bitcastToAPInt().getZExtValue();
      std::memcpy(at, &raw, each);
    }
  }
  return out;
}

// Places.

void forEach(llvm::ArrayRef<int64_t> shape, llvm::function_ref<void(const std::vector<int64_t> &)> fn) {
  if (llvm::is_contained(shape, 0)) return;
  std::vector<int64_t> index(shape.size(), 0);
  for (;;) {
    fn(index);
    size_t k = shape.size();
    for (;;) {
      if (k == 0) return;
      --k;
      if (++index[k] < shape[k]) break;
      index[k] = 0;
    }
  }
}

int64_t placeOf(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> index) {
  int64_t place = 0;
  for (size_t k = 0; k < shape.size(); ++k)
    place = place * shape[k] + index[k];
  return place;
}

int64_t broadcastPlace(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> index) {
  int64_t place = 0;
  size_t skip = index.size() - shape.size();
  for (size_t k = 0; k < shape.size(); ++k)
    place = place * shape[k] + (shape[k] == 1 ? 0 : index[skip + k]);
  return place;
}

llvm::SmallVector<int64_t, 4> broadcastStrides(llvm::ArrayRef<int64_t> shape, size_t rank) {
  llvm::SmallVector<int64_t, 4> strides(rank, 0);
  int64_t stride = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    if (shape[k] != 1) strides[rank - shape.size() + k] = stride;
    stride *= shape[k];
  }
  return strides;
}

mlir::FailureOr<llvm::SmallVector<int64_t, 4>> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  llvm::SmallVector<int64_t, 4> out(std::max(a.size(), b.size()), 1);
  for (auto shape : {a, b})
    for (size_t k = 0; k < shape.size(); ++k) {
      int64_t &size = out[out.size() - shape.size() + k];
      if (shape[k] == 1) continue;
      if (size != 1 && size != shape[k]) return mlir::failure();
      size = shape[k];
    }
  return out;
}

// Ranges.

AxisRange rangeOf(int64_t start, int64_t end, int64_t step, int64_t size) {
  auto wrapped = [&](int64_t at) { return at < 0 ? at + size : at; };
  AxisRange range{0, 0, step, 0};
  if (step > 0) {
    range.begin = std::clamp<int64_t>(wrapped(start), 0, size);
    range.end = std::clamp<int64_t>(wrapped(end), 0, size);
    range.count = range.end > range.begin ? (range.end - range.begin - 1) / step + 1 : 0;
  } else {
    range.begin = std::min(std::max<int64_t>(wrapped(start), 0), size - 1);
    range.end = std::clamp<int64_t>(wrapped(end), -1, size - 1);
    // Divided by step itself: there is no positive number for the least one.
    range.count = range.begin > range.end ? (range.end - range.begin + 1) / step + 1 : 0;
  }
  return range;
}

} // namespace lathe::onnx
