//===- Array.cpp - tensors of the onnx interpreter ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <cmath>
#include <cstdio>

namespace lathe::interp {
using onnx::DataType;
using onnx::HostTensor;

int64_t Array::count() const {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  return n;
}

void Array::put(int64_t k, double x) { f[size_t(k)] = onnx::roundTo(type, x); }

int64_t truncated(double x) {
  double v = std::trunc(x);
  if (std::isnan(v)) return 0;
  if (v >= 0x1p63) return v < 0x1p64 ? int64_t(uint64_t(v)) : INT64_MIN;
  return v < -0x1p63 ? INT64_MIN : int64_t(v);
}

void Array::putInt(int64_t k, int64_t n) { i[size_t(k)] = onnx::wrapTo(type, n); }

Array makeArray(DataType type, Sizes shape) {
  Array a;
  a.type = type;
  a.shape = std::move(shape);
  if (a.floating()) a.f.resize(size_t(a.count()));
  else a.i.resize(size_t(a.count()));
  return a;
}

Result<Array> fromHost(const HostTensor &t) {
  if (onnxfile::dataTypeBits(t.type) == 0 || t.type == DataType::complex64 || t.type == DataType::complex128)
    return makeError(StatusCode::unsupported, "expected a tensor of numbers, found %s", onnxfile::dataTypeName(t.type).c_str());
  int64_t each = onnx::elementBytes(t.type), n = 1;
  for (int64_t size : t.shape)
    if (size < 0 || __builtin_mul_overflow(n, size, &n)) return makeError(StatusCode::invalidArgument, "expected a tensor of sizes that can be, found a dimension of %lld", static_cast<long long>(size));
  if (uint64_t(n) > t.data.size() || t.data.size() != uint64_t(n) * uint64_t(each))
    return makeError(StatusCode::invalidArgument, "expected a tensor of %lld elements of %lld bytes, found %zu bytes", static_cast<long long>(n), static_cast<long long>(each), t.data.size());
  Array a;
  a.type = t.type;
  a.shape = t.shape;
  onnx::load(t.type, t.data, size_t(n), a.f, a.i);
  return a;
}

HostTensor toHost(const Array &a) {
  HostTensor t;
  t.type = a.type;
  t.shape = a.shape;
  t.data = onnx::stored(a.type, a.f, a.i);
  return t;
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
