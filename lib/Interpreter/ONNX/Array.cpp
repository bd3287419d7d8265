//===- Array.cpp - tensors of the onnx interpreter ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include "ONNXOps/Weights.h"
#include "llvm/ADT/APFloat.h"
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

namespace lathe::interp {
using onnx::DataType;
using onnx::HostTensor;

bool isFloating(DataType t) {
  switch (t) {
  case DataType::float32: case DataType::float64: case DataType::float16: case DataType::bfloat16: case DataType::float8e4m3fn:
  case DataType::float8e4m3fnuz: case DataType::float8e5m2: case DataType::float8e5m2fnuz: case DataType::float4e2m1: case DataType::float8e8m0:
    return true;
  default:
    return false;
  }
}
bool Array::floating() const { return isFloating(type); }
bool Array::isUnsigned() const {
  switch (type) {
  case DataType::uint8: case DataType::uint16: case DataType::uint32: case DataType::uint64: case DataType::uint4: case DataType::uint2:
    return true;
  default:
    return false;
  }
}
int64_t Array::count() const {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  return n;
}

/// Small formats by their value: mantissa bits, exponent of the smallest normal, largest number.
struct Format {
  int mantissa, least;
  double largest;
};
static Format formatOf(DataType t) {
  switch (t) {
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

double castTo(DataType t, double x, bool saturate) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  switch (t) {
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
  if (std::isnan(x)) return t == DataType::float4e2m1 ? 0 : x;
  Format format = formatOf(t);
  double r = roundFormat(format, t == DataType::float16 || t == DataType::bfloat16 ? x : double(float(x)));
  bool zeroSigned = t != DataType::float8e4m3fnuz && t != DataType::float8e5m2fnuz;
  if (r == 0) return zeroSigned ? r : 0.0;
  if (std::abs(r) <= format.largest) return r;
  if (t == DataType::float16 || t == DataType::bfloat16) return std::copysign(inf, x);
  if (saturate || t == DataType::float4e2m1) return std::copysign(format.largest, x);
  return t == DataType::float8e5m2 ? std::copysign(inf, x) : nan;
}
double roundTo(DataType t, double x) { return castTo(t, x, true); }

int64_t wrapTo(DataType t, int64_t n) {
  int bits = onnxfile::dataTypeBits(t);
  if (t == DataType::boolean) return n != 0;
  if (bits >= 64) return n;
  Array probe;
  probe.type = t;
  uint64_t low = uint64_t(n) & ((1ull << bits) - 1);
  if (!probe.isUnsigned() && low >> (bits - 1)) return int64_t(low) - (int64_t(1) << bits);
  return int64_t(low);
}

void Array::put(int64_t k, double x) { f[size_t(k)] = roundTo(type, x); }
void Array::putInt(int64_t k, int64_t n) { i[size_t(k)] = wrapTo(type, n); }

Array makeArray(DataType type, Sizes shape) {
  Array a;
  a.type = type;
  a.shape = std::move(shape);
  if (a.floating()) a.f.resize(size_t(a.count()));
  else a.i.resize(size_t(a.count()));
  return a;
}

static const llvm::fltSemantics &semanticsOf(DataType t) {
  switch (t) {
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

Result<Array> fromHost(const HostTensor &t) {
  if (onnxfile::dataTypeBits(t.type) == 0 || t.type == DataType::complex64 || t.type == DataType::complex128)
    return makeError(StatusCode::unsupported, "expected a tensor of numbers, found %s", onnxfile::dataTypeName(t.type).c_str());
  int64_t each = ops::elementBytes(t.type), n = 1;
  for (int64_t size : t.shape)
    if (size < 0 || __builtin_mul_overflow(n, size, &n)) return makeError(StatusCode::invalidArgument, "expected a tensor of sizes that can be, found a dimension of %lld", static_cast<long long>(size));
  if (uint64_t(n) > t.data.size() || t.data.size() != uint64_t(n) * uint64_t(each))
    return makeError(StatusCode::invalidArgument, "expected a tensor of %lld elements of %lld bytes, found %zu bytes", static_cast<long long>(n), static_cast<long long>(each), t.data.size());
  Array a = makeArray(t.type, t.shape);
  for (int64_t k = 0; k < n; ++k) {
    const uint8_t *p = t.data.data() + k * each;
    uint64_t bits = 0;
    std::memcpy(&bits, p, size_t(each));
    if (!a.floating()) {
      a.i[size_t(k)] = wrapTo(t.type, int64_t(bits));
    } else if (t.type == DataType::float32) {
      float x;
      std::memcpy(&x, p, 4);
      a.f[size_t(k)] = x;
    } else if (t.type == DataType::float64) {
      std::memcpy(&a.f[size_t(k)], p, 8);
    } else {
      llvm::APFloat x(semanticsOf(t.type), llvm::APInt(unsigned(onnxfile::dataTypeBits(t.type)), bits & ((1ull << onnxfile::dataTypeBits(t.type)) - 1)));
      bool lossy;
      x.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
      a.f[size_t(k)] = x.convertToDouble();
    }
  }
  return a;
}

HostTensor toHost(const Array &a) {
  HostTensor t;
  t.type = a.type;
  t.shape = a.shape;
  int64_t each = ops::elementBytes(a.type), n = a.count();
  t.data.resize(size_t(n * each));
  for (int64_t k = 0; k < n; ++k) {
    uint8_t *p = t.data.data() + k * each;
    if (!a.floating()) {
      std::memcpy(p, &a.i[size_t(k)], size_t(each));
    } else if (a.type == DataType::float32) {
      float x = float(a.f[size_t(k)]);
      std::memcpy(p, &x, 4);
    } else if (a.type == DataType::float64) {
      std::memcpy(p, &a.f[size_t(k)], 8);
    } else {
      llvm::APFloat x(a.f[size_t(k)]);
      bool lossy;
      x.convert(semanticsOf(a.type), llvm::APFloat::rmNearestTiesToEven, &lossy); // exact: it was rounded before
      uint64_t bits = x.bitcastToAPInt().getZExtValue();
      std::memcpy(p, &bits, size_t(each));
    }
  }
  return t;
}

void forEach(const Sizes &shape, const std::function<void(const Sizes &)> &fn) {
  for (int64_t n : shape)
    if (n == 0) return;
  Sizes index(shape.size(), 0);
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
int64_t placeOf(const Sizes &shape, const Sizes &index) {
  int64_t place = 0;
  for (size_t k = 0; k < shape.size(); ++k)
    place = place * shape[k] + index[k];
  return place;
}
int64_t broadcastPlace(const Sizes &shape, const Sizes &index) {
  int64_t place = 0;
  size_t skip = index.size() - shape.size();
  for (size_t k = 0; k < shape.size(); ++k)
    place = place * shape[k] + (shape[k] == 1 ? 0 : index[skip + k]);
  return place;
}

Status Evaluation::bad(const std::string &expected, const std::string &found) const {
  return Status(StatusCode::invalidArgument, node.where() + ": expected " + expected + ", found " + found);
}
Status Evaluation::work(double steps) const {
  double limit = 16 * double(most);
  if (steps <= limit) return Status();
  char text[64];
  snprintf(text, sizeof text, "%.4g", steps);
  return bad("a computation of at most " + std::to_string(int64_t(limit)) + " steps", text);
}

} // namespace lathe::interp
