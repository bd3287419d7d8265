//===- Weights.cpp - the values of params ---------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/Weights.h"
#include "lathe/base/MappedFile.h"
#include <cstring>

namespace lathe::ops {
using namespace mlir;
using onnx::DataType;

int64_t elementBytes(DataType type) { return std::max(8, onnxfile::dataTypeBits(type)) / 8; }

Result<onnx::HostTensor> readWeight(Type type, Attribute value) {
  auto tensor = cast<RankedTensorType>(type);
  onnx::HostTensor out;
  out.type = onnx::dataType(tensor.getElementType());
  out.shape.assign(tensor.getShape().begin(), tensor.getShape().end());
  int bits = onnxfile::dataTypeBits(out.type);
  int64_t count = tensor.getNumElements(), each = elementBytes(out.type);
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) {
    out.data.resize(size_t(count * each));
    auto put = [&](int64_t i, APInt x) {
      bool isSigned = isa<IntegerType>(tensor.getElementType()) && !tensor.getElementType().isUnsignedInteger() && bits > 1 && out.type != DataType::boolean;
      x = isSigned ? x.sextOrTrunc(unsigned(each * 8)) : x.zextOrTrunc(unsigned(each * 8));
      std::memcpy(out.data.data() + i * each, x.getRawData(), size_t(each));
    };
    int64_t i = 0;
    if (isa<FloatType>(tensor.getElementType()))
      for (const APFloat &x : dense.getValues<APFloat>())
        put(i++, x.bitcastToAPInt());
    else
      for (const APInt &x : dense.getValues<APInt>())
        put(i++, x);
    return out;
  }
  auto file = dyn_cast<onnx::FileAttr>(value);
  if (!file) return makeError(StatusCode::invalidArgument, "expected the bytes of a file or a dense value as a weight");
  std::string path = file.getPath().str();
  LATHE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  auto bytes = mapped.bytes();
  if (uint64_t(file.getOffset()) > bytes.size() || uint64_t(file.getBytes()) > bytes.size() - uint64_t(file.getOffset()))
    return makeError(StatusCode::dataLoss, "'%s': expected %lld bytes at offset %lld, the file ends at %zu", path.c_str(), (long long)file.getBytes(), (long long)file.getOffset(), bytes.size());
  const uint8_t *data = bytes.data() + file.getOffset();
  if (bits >= 8) {
    out.data.assign(data, data + file.getBytes());
    if (out.type == DataType::boolean)
      for (uint8_t &b : out.data)
        b = b != 0;
    return out;
  }
  bool isSigned = out.type == DataType::int4 || out.type == DataType::int2;
  out.data.reserve(size_t(count));
  for (int64_t i = 0; i < count; ++i) {
    int v = data[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
    if (isSigned && v >> (bits - 1)) v -= 1 << bits;
    out.data.push_back(uint8_t(v));
  }
  return out;
}

} // namespace lathe::ops
