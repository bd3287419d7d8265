//===- Quantization.cpp - quantized tensors in and out -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <cmath>

namespace lathe::interp {
namespace {

using onnx::DataType;

/// Place of the scale of element |index|.
int64_t scalePlace(const Evaluation &e, const Sizes &index) {
  const Array &scale = e.a(1);
  int64_t axis = e.node.integer("axis", 1), block = e.node.integer("block_size", 0);
  if (scale.count() == 1) return 0;
  if (axis < 0) axis += int64_t(index.size());
  if (!block) return index[size_t(axis)];
  Sizes at(index);
  at[size_t(axis)] /= block;
  return placeOf(scale.shape, at);
}
void range(DataType t, double &low, double &high) {
  int bits = onnxfile::dataTypeBits(t);
  low = onnx::isUnsigned(t) ? 0 : -std::ldexp(1, bits - 1);
  high = std::ldexp(1, bits - !onnx::isUnsigned(t)) - 1;
}
Status quantizeLinear(Evaluation &e) {
  Array &out = e.out[0];
  int64_t precision = e.node.integer("precision", 0), place = 0;
  auto wide = precision ? DataType(precision) : e.a(1).type;
  if (!onnx::isFloat(wide) || onnxfile::dataTypeBits(wide) < 16) wide = DataType::float32;
  forEach(out.shape, [&](const Sizes &index) {
    int64_t at = scalePlace(e, index);
    double q = roundTo(wide, roundTo(wide, e.a(0).number(place)) / roundTo(wide, e.a(1).f[size_t(at)]));
    double zero = e.has(2) ? e.a(2).number(at) : 0;
    if (out.floating()) {
      out.f[size_t(place)] = castTo(out.type, q + zero, e.node.integer("saturate", 1));
    } else {
      double low, high;
      range(out.type, low, high);
      double v = std::nearbyint(q) + zero;
      out.putInt(place, std::isnan(v) ? 0 : int64_t(std::clamp(v, low, high)));
    }
    ++place;
  });
  return Status();
}
Status dequantizeLinear(Evaluation &e) {
  int64_t place = 0;
  forEach(e.out[0].shape, [&](const Sizes &index) {
    int64_t at = scalePlace(e, index);
    double x = e.a(0).number(place) - (e.has(2) ? e.a(2).number(at) : 0);
    e.out[0].put(place++, x * e.a(1).f[size_t(at)]);
  });
  return Status();
}
Status dynamicQuantize(Evaluation &e) {
  const Array &x = e.a(0);
  double most = 0, least = 0;
  for (double v : x.f) {
    most = std::max(most, v);
    least = std::min(least, v);
  }
  double scale = double(float((most - least) / 255)), zero = std::nearbyint(std::clamp(double(float(-least / scale)), 0.0, 255.0));
  if (std::isnan(zero)) zero = 0;
  for (int64_t k = 0; k < x.count(); ++k) {
    double v = std::nearbyint(double(float(x.f[size_t(k)] / scale))) + zero;
    e.out[0].putInt(k, std::isnan(v) ? 0 : int64_t(std::clamp(v, 0.0, 255.0)));
  }
  e.out[1].put(0, scale);
  e.out[2].putInt(0, int64_t(zero));
  return Status();
}

/// Code |k| of packed bytes that start at |start|.
int64_t code(const Array &bytes, int64_t start, int64_t k, int64_t bits) { return bytes.i[size_t(start + k * bits / 8)] >> (k * bits % 8) & ((1 << bits) - 1); }

Status matMulNBits(Evaluation &e) {
  int64_t k = e.node.integer("K", 0), n = e.node.integer("N", 0), bits = e.node.integer("bits", 4), block = e.node.integer("block_size", 32);
  int64_t blocks = (k + block - 1) / block, blob = block * bits / 8, zeroRow = (blocks * bits + 7) / 8;
  int64_t rows = e.a(0).count() / k;
  LATHE_RETURN_IF_ERROR(e.work((double(rows) + 1) * double(n) * double(k)));
  std::vector<double> w(size_t(n * k));
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c) {
      int64_t b = c / block;
      double zero = double(1 << (bits - 1));
      if (e.has(3)) zero = e.a(3).floating() ? e.a(3).f[size_t(r * blocks + b)] : double(code(e.a(3), r * zeroRow, b, bits));
      w[size_t(r * k + c)] = (double(code(e.a(1), (r * blocks + b) * blob, c % block, bits)) - zero) * e.a(2).f[size_t(r * blocks + b)];
    }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t q = 0; q < k; ++q)
        sum += e.a(0).f[size_t(r * k + q)] * w[size_t(c * k + q)];
      if (e.has(5)) sum += e.a(5).f[size_t(c)];
      e.out[0].put(r * n + c, sum);
    }
  return Status();
}
Status gatherBlockQuantized(Evaluation &e) {
  const Array &x = e.a(0), &indices = e.a(1), &scales = e.a(2);
  int64_t bits = e.node.integer("bits", 4), block = e.node.integer("block_size", 128), gather = e.node.integer("gather_axis", 0), axis = e.node.integer("quantize_axis", 1);
  if (gather < 0) gather += x.rank();
  if (axis < 0) axis += x.rank();
  bool packed = x.type == DataType::uint8;
  Sizes whole = x.shape;
  if (packed) whole.back() *= 8 / bits;
  auto at = [&](const Array &t, const Sizes &index) -> double {
    if (!packed) return t.number(placeOf(t.shape, index));
    Sizes row(index);
    row.back() = 0;
    return double(code(t, placeOf(t.shape, row), index.back(), bits));
  };
  int64_t place = 0;
  Status status;
  forEach(e.out[0].shape, [&](const Sizes &i) {
    Sizes from(i.begin(), i.begin() + gather), which(i.begin() + gather, i.begin() + gather + indices.rank());
    int64_t chosen = indices.i[size_t(placeOf(indices.shape, which))], n = whole[size_t(gather)];
    if (chosen < -n || chosen >= n) {
      status = e.bad("indices within the extent of the axis", std::to_string(chosen));
      return;
    }
    from.push_back(chosen < 0 ? chosen + n : chosen);
    from.insert(from.end(), i.begin() + gather + indices.rank(), i.end());
    Sizes group(from);
    group[size_t(axis)] /= block;
    double zero = e.has(3) ? at(e.a(3), group) : packed ? double(1 << (bits - 1)) : 0;
    e.out[0].put(place++, (at(x, from) - zero) * scales.f[size_t(placeOf(scales.shape, group))]);
  });
  return status;
}

} // namespace

llvm::ArrayRef<EvalEntry> quantizationEvaluations() {
  static const char *ms = "com.microsoft";
  static const EvalEntry table[] = {{"", "QuantizeLinear", quantizeLinear}, {"", "DequantizeLinear", dequantizeLinear}, {"", "DynamicQuantizeLinear", dynamicQuantize},
                                    {ms, "MatMulNBits", matMulNBits}, {ms, "GatherBlockQuantized", gatherBlockQuantized}};
  return table;
}

} // namespace lathe::interp
