//===- Weights.cpp - the values of params ---------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/Weights.h"
#include "lathe/base/MappedFile.h"
#include <cstring>

namespace lathe::ops {
using namespace mlir;
using onnx::DataType;

onnx::HostTensor hostTensor(DenseElementsAttr value) {
  ShapedType tensor = value.getType();
  onnx::HostTensor out;
  out.type = onnx::dataType(tensor.getElementType());
  out.shape.assign(tensor.getShape().begin(), tensor.getShape().end());
  int64_t i = 0, each = elementBytes(out.type);
  out.data.resize(size_t(tensor.getNumElements() * each));
  bool isSigned = !onnx::isUnsigned(out.type) && !onnx::isFloat(out.type) && out.type != DataType::boolean;
  auto put = [&](APInt x) {
    x = isSigned ? x.sextOrTrunc(unsigned(each * 8)) : x.zextOrTrunc(unsigned(each * 8));
    std::memcpy(out.data.data() + i++ * each, x.getRawData(), size_t(each));
  };
  if (isa<FloatType>(tensor.getElementType()))
    for (const APFloat &x : value.getValues<APFloat>())
      put(x.bitcastToAPInt());
  else
    for (const APInt &x : value.getValues<APInt>())
      put(x);
  return out;
}

Result<onnx::HostTensor> readWeight(Type type, Attribute value) {
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) return hostTensor(dense);
  auto tensor = cast<RankedTensorType>(type);
  onnx::HostTensor out;
  out.type = onnx::dataType(tensor.getElementType());
  out.shape.assign(tensor.getShape().begin(), tensor.getShape().end());
  int bits = onnxfile::dataTypeBits(out.type);
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
  out.data = onnx::unpacked(out.type, data, size_t(tensor.getNumElements()));
  return out;
}

} // namespace lathe::ops
