//===- Cases.cpp - the ONNX project's backend tests on disk ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Cases.h"
#include "lathe/ONNX/Numbers.h"
#include "lathe/import/ONNX.h"
#include "llvm/ADT/APFloat.h"
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sys/stat.h>

namespace lathe::onnxtest {
using onnx::HostTensor;
using onnxfile::DataType;

static std::string varint(uint64_t x) {
  std::string out;
  for (; x >= 128; x >>= 7)
    out += char(x | 128);
  return out + char(x);
}
static std::string field(int number, const std::string &bytes) { return varint(uint64_t(number) << 3 | 2) + varint(bytes.size()) + bytes; }

Result<HostTensor> readTensor(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return makeError(StatusCode::notFound, "cannot open '%s'", path.c_str());
  // The reader takes models: one whose only initializer is the tensor. A second name field overrides an empty one.
  std::string tensor = bytes + field(8, "tensor");
  std::string model = varint(1 << 3) + varint(10) + field(7, field(2, "g") + field(5, tensor)) + field(8, varint(2 << 3) + varint(21));
  LATHE_ASSIGN_OR_RETURN(onnxfile::Model read, onnxfile::parse({reinterpret_cast<const uint8_t *>(model.data()), model.size()}, path, "."));
  if (read.graph.initializers.size() != 1) return makeError(StatusCode::invalidArgument, "'%s': expected a tensor", path.c_str());
  const onnxfile::Tensor &t = read.graph.initializers[0];
  int bits = onnxfile::dataTypeBits(t.type);
  if (!bits) return makeError(StatusCode::unsupported, "element type %s", onnxfile::dataTypeName(t.type).c_str());
  const uint8_t *data = t.path.empty() ? t.data.data() : reinterpret_cast<const uint8_t *>(model.data()) + t.offset;
  HostTensor out;
  out.type = t.type;
  out.shape = t.dims;
  if (bits >= 8) {
    out.data.assign(data, data + t.bytes);
    return out;
  }
  out.data = onnx::unpacked(t.type, data, size_t(t.elements()));
  return out;
}

Result<std::vector<DataSet>> readDataSets(const std::string &directory) {
  std::vector<DataSet> sets;
  auto exists = [](const std::string &path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0;
  };
  for (int s = 0;; ++s) {
    std::string folder = directory + "/test_data_set_" + std::to_string(s);
    if (!exists(folder)) break;
    DataSet set;
    for (bool output : {false, true})
      for (int i = 0;; ++i) {
        std::string path = folder + (output ? "/output_" : "/input_") + std::to_string(i) + ".pb";
        if (!exists(path)) break;
        LATHE_ASSIGN_OR_RETURN(HostTensor t, readTensor(path));
        (output ? set.outputs : set.inputs).push_back(std::move(t));
      }
    sets.push_back(std::move(set));
  }
  if (sets.empty()) return makeError(StatusCode::notFound, "no test_data_set_0 in '%s'", directory.c_str());
  return sets;
}

/// Element |i| as double; integers of 64 bits keep their bits in |exact|.
static double valueOf(const HostTensor &t, int64_t i, uint64_t &exact) {
  int bytes = std::max(8, onnxfile::dataTypeBits(t.type)) / 8;
  uint64_t bits = 0;
  std::memcpy(&bits, t.data.data() + i * bytes, size_t(bytes));
  exact = bits;
  auto small = [&](const llvm::fltSemantics &s, unsigned width) {
    llvm::APFloat x(s, llvm::APInt(width, bits & ((1ull << width) - 1)));
    bool lossy;
    x.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
    return x.convertToDouble();
  };
  switch (t.type) {
  case DataType::float32: {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }
  case DataType::float64: {
    double x;
    std::memcpy(&x, &bits, 8);
    return x;
  }
  case DataType::float16: return small(llvm::APFloat::IEEEhalf(), 16);
  case DataType::bfloat16: return small(llvm::APFloat::BFloat(), 16);
  case DataType::float8e4m3fn: return small(llvm::APFloat::Float8E4M3FN(), 8);
  case DataType::float8e4m3fnuz: return small(llvm::APFloat::Float8E4M3FNUZ(), 8);
  case DataType::float8e5m2: return small(llvm::APFloat::Float8E5M2(), 8);
  case DataType::float8e5m2fnuz: return small(llvm::APFloat::Float8E5M2FNUZ(), 8);
  case DataType::float4e2m1: return small(llvm::APFloat::Float4E2M1FN(), 4);
  case DataType::float8e8m0: return small(llvm::APFloat::Float8E8M0FNU(), 8);
  default: return double(int64_t(bits));
  }
}

Status compare(const HostTensor &expected, const HostTensor &found, double rtol, double atol) {
  auto shapeText = [](const HostTensor &t) {
    std::string text = onnxfile::dataTypeName(t.type) + "[";
    for (int64_t n : t.shape)
      text += (text.back() == '[' ? "" : ",") + std::to_string(n);
    return text + "]";
  };
  if (expected.type != found.type || expected.shape != found.shape)
    return makeError(StatusCode::invalidArgument, "expected %s, found %s", shapeText(expected).c_str(), shapeText(found).c_str());
  if (expected.data.size() != found.data.size()) return makeError(StatusCode::internal, "expected %zu bytes, found %zu", expected.data.size(), found.data.size());
  switch (expected.type) {
  case DataType::bfloat16: // two units in the last place, as the ONNX project's runner allows
    rtol = std::max(rtol, 0x1p-6);
    break;
  case DataType::float16: // the same for the other 16-bit format
    rtol = std::max(rtol, 0x1p-9);
    break;
  default:
    break;
  }
  bool floating = onnxfile::dataTypeName(expected.type).find("float") != std::string::npos;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    uint64_t eb, fb;
    double e = valueOf(expected, i, eb), f = valueOf(found, i, fb);
    if (eb == fb || (floating && std::isnan(e) && std::isnan(f))) continue;
    if (floating && (e == f || (std::isfinite(e) && std::abs(e - f) <= atol + rtol * std::abs(e)))) continue;
    return makeError(StatusCode::invalidArgument, "element %lld: expected %.9g, found %.9g", (long long)i, e, f);
  }
  return Status();
}

} // namespace lathe::onnxtest
