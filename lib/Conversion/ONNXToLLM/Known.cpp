//===- Known.cpp - tensors of numbers --------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Known.h"
#include "lathe/weights/Half.h"
#include <cmath>
#include <cstring>

using namespace mlir;

namespace lathe::raise {

bool isFloatType(DataType type) {
  switch (type) {
  case DataType::float32: case DataType::float64: case DataType::float16: case DataType::bfloat16:
  case DataType::float8e4m3fn: case DataType::float8e4m3fnuz: case DataType::float8e5m2: case DataType::float8e5m2fnuz:
  case DataType::float4e2m1: case DataType::float8e8m0:
    return true;
  default:
    return false;
  }
}

static const llvm::fltSemantics *semanticsOf(DataType type) {
  switch (type) {
  case DataType::float16: return &llvm::APFloat::IEEEhalf();
  case DataType::bfloat16: return &llvm::APFloat::BFloat();
  case DataType::float8e4m3fn: return &llvm::APFloat::Float8E4M3FN();
  case DataType::float8e4m3fnuz: return &llvm::APFloat::Float8E4M3FNUZ();
  case DataType::float8e5m2: return &llvm::APFloat::Float8E5M2();
  case DataType::float8e5m2fnuz: return &llvm::APFloat::Float8E5M2FNUZ();
  case DataType::float4e2m1: return &llvm::APFloat::Float4E2M1FN();
  case DataType::float8e8m0: return &llvm::APFloat::Float8E8M0FNU();
  default: return nullptr;
  }
}

double roundTo(DataType type, double value) {
  if (type == DataType::float64) return value;
  if (type == DataType::float32) return static_cast<float>(value);
  if (const auto *semantics = semanticsOf(type)) {
    llvm::APFloat rounded(value);
    bool lost;
    rounded.convert(*semantics, llvm::APFloat::rmNearestTiesToEven, &lost);
    return rounded.convertToDouble();
  }
  return value;
}

int64_t elementsOf(ArrayRef<int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape)
    n *= size;
  return n;
}

FailureOr<Shape> broadcast(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (auto shape : {a, b})
    for (size_t k = 0; k < shape.size(); ++k) {
      int64_t &size = out[out.size() - shape.size() + k];
      if (shape[k] == 1) continue;
      if (size != 1 && size != shape[k]) return failure();
      size = shape[k];
    }
  return out;
}

Shape broadcastStrides(ArrayRef<int64_t> shape, ArrayRef<int64_t> out) {
  Shape strides(out.size(), 0);
  int64_t stride = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    if (shape[k] != 1) strides[out.size() - shape.size() + k] = stride;
    stride *= shape[k];
  }
  return strides;
}

void forEachIndex(ArrayRef<int64_t> out, ArrayRef<ArrayRef<int64_t>> strides, llvm::function_ref<void(int64_t, ArrayRef<int64_t>)> visit) {
  int64_t n = elementsOf(out);
  Shape index(out.size(), 0), offsets(strides.size(), 0);
  for (int64_t flat = 0; flat < n; ++flat) {
    visit(flat, offsets);
    for (size_t k = out.size(); k-- > 0;) {
      for (size_t s = 0; s < strides.size(); ++s)
        offsets[s] += strides[s][k];
      if (++index[k] < out[k]) break;
      for (size_t s = 0; s < strides.size(); ++s)
        offsets[s] -= strides[s][k] * out[k];
      index[k] = 0;
    }
  }
}

Known Known::make(DataType type, ArrayRef<int64_t> shape) {
  Known out;
  out.type = type;
  out.shape.assign(shape.begin(), shape.end());
  if (isFloatType(type)) out.f.assign(elementsOf(shape), 0);
  else out.i.assign(elementsOf(shape), 0);
  return out;
}

Known Known::integers(ArrayRef<int64_t> values, bool scalar) {
  Known out = make(DataType::int64, scalar ? ArrayRef<int64_t>() : ArrayRef<int64_t>{static_cast<int64_t>(values.size())});
  out.i.assign(values.begin(), values.end());
  return out;
}

void Known::set(int64_t k, double value) {
  if (isFloat()) f[k] = roundTo(type, value);
  else if (type == DataType::boolean) i[k] = value != 0;
  else i[k] = value >= 9.2e18 ? INT64_MAX : value <= -9.2e18 ? INT64_MIN : static_cast<int64_t>(value);
}

bool Known::uniform() const {
  int64_t n = elements();
  for (int64_t k = 1; k < n; ++k)
    if (number(k) != number(0)) return false;
  return n > 0;
}

static double decodeFloat(DataType type, const uint8_t *at) {
  if (type == DataType::float32) {
    float v;
    std::memcpy(&v, at, 4);
    return v;
  }
  if (type == DataType::float64) {
    double v;
    std::memcpy(&v, at, 8);
    return v;
  }
  const auto *semantics = semanticsOf(type);
  unsigned bits = llvm::APFloat::semanticsSizeInBits(*semantics);
  uint64_t raw = bits == 16 ? at[0] | at[1] << 8 : at[0];
  return llvm::APFloat(*semantics, llvm::APInt(bits, raw)).convertToDouble();
}

Known decode(DataType type, ArrayRef<int64_t> shape, ArrayRef<uint8_t> bytes) {
  Known out = Known::make(type, shape);
  size_t bits = static_cast<size_t>(onnx::dataTypeBits(type));
  for (int64_t k = 0, n = out.elements(); k < n; ++k) {
    if (bits < 8) {
      uint8_t raw = (bytes[k * bits / 8] >> (k * bits % 8)) & ((1 << bits) - 1);
      bool isSigned = type == DataType::int4 || type == DataType::int2;
      if (out.isFloat()) out.f[k] = decodeFloat(type, &raw);
      else out.i[k] = isSigned && raw >> (bits - 1) ? int64_t(raw) - (1 << bits) : raw;
      continue;
    }
    const uint8_t *at = bytes.data() + k * bits / 8;
    if (out.isFloat()) {
      out.f[k] = decodeFloat(type, at);
      continue;
    }
    uint64_t raw = 0;
    std::memcpy(&raw, at, bits / 8);
    switch (type) {
    case DataType::int8: out.i[k] = static_cast<int8_t>(raw); break;
    case DataType::int16: out.i[k] = static_cast<int16_t>(raw); break;
    case DataType::int32: out.i[k] = static_cast<int32_t>(raw); break;
    case DataType::boolean: out.i[k] = raw != 0; break;
    default: out.i[k] = static_cast<int64_t>(raw); break;
    }
  }
  return out;
}

Known fromHost(const onnx::HostTensor &tensor) {
  int bits = onnx::dataTypeBits(tensor.type);
  if (bits >= 8) return decode(tensor.type, tensor.shape, tensor.data);
  Known out = Known::make(tensor.type, tensor.shape); // a byte for each element
  for (size_t k = 0; k < tensor.data.size(); ++k) {
    uint8_t raw = tensor.data[k] & ((1 << bits) - 1);
    bool isSigned = tensor.type == DataType::int4 || tensor.type == DataType::int2;
    if (out.isFloat()) out.f[k] = decodeFloat(tensor.type, &raw);
    else out.i[k] = isSigned && raw >> (bits - 1) ? int64_t(raw) - (1 << bits) : raw;
  }
  return out;
}

onnx::HostTensor toHost(const Known &value) {
  onnx::HostTensor out;
  out.type = value.type;
  out.shape.assign(value.shape.begin(), value.shape.end());
  auto each = static_cast<size_t>(std::max(8, onnx::dataTypeBits(value.type)) / 8);
  out.data.resize(static_cast<size_t>(value.elements()) * each);
  for (int64_t k = 0, n = value.elements(); k < n; ++k) {
    uint8_t *at = out.data.data() + static_cast<size_t>(k) * each;
    if (!value.isFloat()) {
      std::memcpy(at, &value.i[k], each); // little-endian: the low bytes of the number
    } else if (value.type == DataType::float64) {
      std::memcpy(at, &value.f[k], 8);
    } else if (value.type == DataType::float32) {
      auto single = static_cast<float>(value.f[k]);
      std::memcpy(at, &single, 4);
    } else {
      llvm::APFloat number(value.f[k]);
      bool lost;
      number.convert(*semanticsOf(value.type), llvm::APFloat::rmNearestTiesToEven, &lost);
      uint64_t bits = number.bitcastToAPInt().getZExtValue();
      std::memcpy(at, &bits, each);
    }
  }
  return out;
}

Known fromElements(ElementsAttr value) {
  auto type = value.getShapedType();
  DataType element = onnx::dataType(type.getElementType());
  Known out = Known::make(element, type.getShape());
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense || element == DataType::string) return out;
  int64_t k = 0;
  if (out.isFloat()) {
    for (APFloat v : dense.getValues<APFloat>()) {
      bool lost;
      v.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
      out.f[k++] = v.convertToDouble();
    }
    return out;
  }
  bool isUnsigned = type.getElementType().isUnsignedInteger() || element == DataType::boolean;
  for (const APInt &v : dense.getValues<APInt>())
    out.i[k++] = isUnsigned ? static_cast<int64_t>(v.getZExtValue()) : v.getSExtValue();
  return out;
}

Result<std::shared_ptr<const Known>> ParamReader::read(onnx::ParamOp param, int64_t limit) {
  if (auto found = cache.find(param); found != cache.end()) return found->second;
  std::shared_ptr<const Known> known;
  auto type = cast<RankedTensorType>(param.getType());
  if (type.getNumElements() > limit)
    return makeError(StatusCode::unsupported, "a weight of %lld elements is used where values must be known", static_cast<long long>(type.getNumElements()));
  if (auto elements = dyn_cast<ElementsAttr>(param.getValue())) {
    known = std::make_shared<Known>(fromElements(elements));
    return keep(param, std::move(known));
  }
  auto file = cast<onnx::FileAttr>(param.getValue());
  auto it = files.find(file.getPath().str());
  if (it == files.end()) {
    LATHE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file.getPath().str()));
    it = files.emplace(file.getPath().str(), std::move(mapped)).first;
  }
  auto bytes = it->second.bytes();
  auto offset = static_cast<uint64_t>(file.getOffset()), size = static_cast<uint64_t>(file.getBytes());
  if (offset > bytes.size() || size > bytes.size() - offset)
    return makeError(StatusCode::invalidArgument, "tensor '%s': expected %lld bytes at offset %lld of '%s', the file ends at %zu", param.getSymName().str().c_str(),
                     static_cast<long long>(size), static_cast<long long>(offset), it->first.c_str(), bytes.size());
  known = std::make_shared<Known>(decode(onnx::dataType(type.getElementType()), type.getShape(), {bytes.data() + offset, size}));
  LATHE_RETURN_IF_ERROR(it->second.check());
  return keep(param, std::move(known));
}

std::shared_ptr<const Known> ParamReader::keep(Operation *param, std::shared_ptr<const Known> known) {
  kept += known->elements();
  if (kept > maxHeldElements) { // who uses them still holds them
    cache.clear();
    kept = known->elements();
  }
  return cache[param] = std::move(known);
}

} // namespace lathe::raise
