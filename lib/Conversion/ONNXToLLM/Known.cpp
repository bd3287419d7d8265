//===- Known.cpp - tensors of numbers --------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Known.h"
#include "ONNXOps/Weights.h"

using namespace mlir;

namespace lathe::raise {

int64_t elementsOf(ArrayRef<int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(n, size, &n)) n = std::numeric_limits<int64_t>::max();
  return n;
}

Known Known::make(DataType type, ArrayRef<int64_t> shape) {
  Known out;
  out.type = type;
  out.shape.assign(shape.begin(), shape.end());
  if (onnx::isFloat(type)) out.f.assign(elementsOf(shape), 0);
  else out.i.assign(elementsOf(shape), 0);
  return out;
}

Known Known::integers(ArrayRef<int64_t> values, bool scalar) {
  Known out = make(DataType::int64, scalar ? ArrayRef<int64_t>() : ArrayRef<int64_t>{static_cast<int64_t>(values.size())});
  out.i.assign(values.begin(), values.end());
  return out;
}

void Known::set(int64_t k, double value) {
  if (isFloat()) f[k] = onnx::roundTo(type, value);
  else if (type == DataType::boolean) i[k] = value != 0;
  else i[k] = value >= 9.2e18 ? INT64_MAX : value <= -9.2e18 ? INT64_MIN : static_cast<int64_t>(value);
}

bool Known::uniform() const {
  int64_t n = elements();
  for (int64_t k = 1; k < n; ++k)
    if (number(k) != number(0)) return false;
  return n > 0;
}

/// |bytes| are as a HostTensor has them.
static Known loaded(DataType type, ArrayRef<int64_t> shape, ArrayRef<uint8_t> bytes) {
  Known out;
  out.type = type;
  out.shape.assign(shape.begin(), shape.end());
  onnx::load(type, bytes, static_cast<size_t>(elementsOf(shape)), out.f, out.i);
  return out;
}

Known decode(DataType type, ArrayRef<int64_t> shape, ArrayRef<uint8_t> bytes) {
  if (onnx::dataTypeBits(type) >= 8) return loaded(type, shape, bytes);
  return loaded(type, shape, onnx::unpacked(type, bytes.data(), static_cast<size_t>(elementsOf(shape))));
}

Known fromHost(const onnx::HostTensor &tensor) { return loaded(tensor.type, tensor.shape, tensor.data); }

onnx::HostTensor toHost(const Known &value) {
  onnx::HostTensor out;
  out.type = value.type;
  out.shape.assign(value.shape.begin(), value.shape.end());
  out.data = onnx::stored(value.type, value.f, value.i);
  return out;
}

Known fromElements(ElementsAttr value) {
  auto type = value.getShapedType();
  DataType element = onnx::dataType(type.getElementType());
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense || element == DataType::string) return Known::make(element, type.getShape());
  return fromHost(ops::hostTensor(dense));
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
  LATHE_ASSIGN_OR_RETURN(auto found, mapped(param));
  known = std::make_shared<Known>(decode(onnx::dataType(type.getElementType()), type.getShape(), found.first));
  LATHE_RETURN_IF_ERROR(found.second->check());
  return keep(param, std::move(known));
}

Status ParamReader::visit(onnx::ParamOp param, llvm::function_ref<void(const Known &)> take, int64_t part) {
  if (auto elements = dyn_cast<ElementsAttr>(param.getValue())) {
    take(fromElements(elements));
    return Status();
  }
  LATHE_ASSIGN_OR_RETURN(auto found, mapped(param));
  auto type = cast<RankedTensorType>(param.getType());
  DataType element = onnx::dataType(type.getElementType());
  const int64_t bits = onnx::dataTypeBits(element);
  for (int64_t at = 0, count = type.getNumElements(); at < count; at += part) {
    int64_t n = std::min(part, count - at);
    take(decode(element, {n}, found.first.slice(static_cast<size_t>(at * bits / 8), static_cast<size_t>((n * bits + 7) / 8))));
  }
  return found.second->check();
}

Result<std::pair<ArrayRef<uint8_t>, const MappedFile *>> ParamReader::mapped(onnx::ParamOp param) {
  auto file = cast<onnx::FileAttr>(param.getValue());
  auto it = files.find(file.getPath().str());
  if (it == files.end()) {
    LATHE_ASSIGN_OR_RETURN(MappedFile opened, MappedFile::open(file.getPath().str()));
    it = files.emplace(file.getPath().str(), std::move(opened)).first;
  }
  auto bytes = it->second.bytes();
  auto offset = static_cast<uint64_t>(file.getOffset()), size = static_cast<uint64_t>(file.getBytes());
  if (offset > bytes.size() || size > bytes.size() - offset)
    return makeError(StatusCode::invalidArgument, "tensor '%s': expected %lld bytes at offset %lld of '%s', the file ends at %zu", param.getSymName().str().c_str(),
                     static_cast<long long>(size), static_cast<long long>(offset), it->first.c_str(), bytes.size());
  return std::pair(ArrayRef<uint8_t>(bytes.data() + offset, size), static_cast<const MappedFile *>(&it->second));
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
