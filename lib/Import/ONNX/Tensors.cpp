//===- Tensors.cpp - TensorProto: where its bytes are ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "lathe/base/MappedFile.h"
#include "lathe/import/Quote.h"
#include "onnx.pb.h"
#include <charconv>
#include <cstring>
#include <google/protobuf/unknown_field_set.h>
#include <sys/stat.h>

namespace lathe::onnxfile {
namespace {

const struct {
  const char *name;
  int bits;
} types[] = {{"undefined", 0}, {"float32", 32}, {"uint8", 8}, {"int8", 8}, {"uint16", 16}, {"int16", 16}, {"int32", 32},
             {"int64", 64}, {"string", 0}, {"bool", 8}, {"float16", 16}, {"float64", 64}, {"uint32", 32}, {"uint64", 64},
             {"complex64", 64}, {"complex128", 128}, {"bfloat16", 16}, {"float8e4m3fn", 8}, {"float8e4m3fnuz", 8},
             {"float8e5m2", 8}, {"float8e5m2fnuz", 8}, {"uint4", 4}, {"int4", 4}, {"float4e2m1", 4}, {"float8e8m0", 8},
             {"uint2", 2}, {"int2", 2}};
constexpr int typeCount = sizeof(types) / sizeof(types[0]);

Status bad(const Tensor &tensor, const std::string &what) {
  return Status(StatusCode::invalidArgument, "tensor " + quoteName(tensor.name) + ": " + what);
}

Result<uint64_t> number(const Tensor &tensor, const char *key, const std::string &text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > INT64_MAX)
    return bad(tensor, std::string("external data: expected a number as ") + key + ", found " + quoteName(text));
  return value;
}

/// Shape and type of |proto|; the number of bytes they need.
Result<uint64_t> readShape(const ::onnx::TensorProto &proto, Tensor &tensor) {
  tensor.name = proto.name();
  tensor.type = static_cast<DataType>(proto.data_type());
  uint64_t elements = 1;
  if (proto.dims_size() > 64) return bad(tensor, "expected at most 64 dimensions, found " + std::to_string(proto.dims_size()));
  bool empty = false;
  for (int64_t dim : proto.dims()) {
    if (dim < 0) return bad(tensor, "expected sizes of at least 0, found " + std::to_string(dim));
    empty |= dim == 0;
    if (dim && elements > (uint64_t(1) << 58) / static_cast<uint64_t>(dim))
      return bad(tensor, "the shape has more than 2^58 elements");
    if (dim) elements *= static_cast<uint64_t>(dim);
    tensor.dims.push_back(dim);
  }
  if (empty) elements = 0;
  if (tensor.type == DataType::string) return elements;
  int bits = dataTypeBits(tensor.type);
  if (!bits)
    return Status(StatusCode::unsupported, "tensor " + quoteName(tensor.name) + ": element type " +
                                               dataTypeName(tensor.type) + " is not supported");
  return bits == 128 ? elements * 16 : (elements * static_cast<uint64_t>(bits) + 7) / 8;
}

template <typename Out, typename Field>
void appendAll(Tensor &tensor, const Field &field) {
  tensor.data.resize(static_cast<size_t>(field.size()) * sizeof(Out));
  size_t at = 0;
  for (auto element : field) {
    Out value = static_cast<Out>(element);
    std::memcpy(tensor.data.data() + at, &value, sizeof(Out));
    at += sizeof(Out);
  }
}

/// Elements of the typed fields. Types below 8 bits hold packed bytes in int32_data.
void readTyped(const ::onnx::TensorProto &proto, Tensor &tensor) {
  switch (tensor.type) {
  case DataType::float32:
  case DataType::complex64:
    return appendAll<float>(tensor, proto.float_data());
  case DataType::float64:
  case DataType::complex128:
    return appendAll<double>(tensor, proto.double_data());
  case DataType::int64:
    return appendAll<int64_t>(tensor, proto.int64_data());
  case DataType::uint32:
    return appendAll<uint32_t>(tensor, proto.uint64_data());
  case DataType::uint64:
    return appendAll<uint64_t>(tensor, proto.uint64_data());
  case DataType::int32:
    return appendAll<int32_t>(tensor, proto.int32_data());
  case DataType::int16:
  case DataType::uint16:
  case DataType::float16:
  case DataType::bfloat16:
    return appendAll<uint16_t>(tensor, proto.int32_data());
  default:
    return appendAll<uint8_t>(tensor, proto.int32_data());
  }
}

Status readExternal(const ::onnx::TensorProto &proto, Tensor &tensor, FileContext &file, uint64_t needed) {
  std::string location;
  uint64_t offset = 0, length = 0;
  bool hasLength = false;
  for (const auto &entry : proto.external_data()) {
    if (entry.key() == "location") {
      location = entry.value();
    } else if (entry.key() == "offset") {
      LATHE_ASSIGN_OR_RETURN(offset, number(tensor, "offset", entry.value()));
    } else if (entry.key() == "length") {
      LATHE_ASSIGN_OR_RETURN(length, number(tensor, "length", entry.value()));
      hasLength = true;
    }
  }
  auto known = file.external.find(location);
  if (known == file.external.end()) {
    auto path = resolveInside(file.directory, location);
    if (!path.ok()) return path.status().at("tensor " + quoteName(tensor.name) + ": external data");
    struct stat info {};
    if (stat(path->c_str(), &info) != 0) return bad(tensor, "cannot open external data " + quoteName(*path));
    known = file.external.emplace(location, std::make_pair(*path, static_cast<uint64_t>(info.st_size))).first;
  }
  auto [path, size] = known->second;
  if (hasLength && length != needed)
    return bad(tensor, "external data: expected a length of " + std::to_string(needed) + " bytes for its shape and type " +
                           dataTypeName(tensor.type) + ", found " + std::to_string(length));
  if (offset > size || needed > size - offset)
    return bad(tensor, "external data: expected " + std::to_string(needed) + " bytes at offset " + std::to_string(offset) +
                           " of " + quoteName(path) + ", the file ends at " + std::to_string(size));
  tensor.path = path;
  tensor.offset = offset;
  tensor.bytes = needed;
  return Status();
}

} // namespace

std::string dataTypeName(DataType type) {
  int number = static_cast<int>(type);
  return number >= 0 && number < typeCount ? types[number].name : "type " + std::to_string(number);
}

int dataTypeBits(DataType type) {
  int number = static_cast<int>(type);
  return number >= 0 && number < typeCount ? types[number].bits : 0;
}

Result<Tensor> convertTensor(const ::onnx::TensorProto &proto, FileContext &file) {
  Tensor tensor;
  LATHE_ASSIGN_OR_RETURN(uint64_t needed, readShape(proto, tensor));
  if (proto.has_segment()) return bad(tensor, "a tensor in segments is not supported, expected a whole one");
  if (tensor.type == DataType::string) {
    if (static_cast<uint64_t>(proto.string_data_size()) != needed)
      return bad(tensor, "expected " + std::to_string(needed) + " strings, found " + std::to_string(proto.string_data_size()));
    tensor.strings.assign(proto.string_data().begin(), proto.string_data().end());
    return tensor;
  }
  if (proto.data_location() == ::onnx::TensorProto::EXTERNAL) {
    LATHE_RETURN_IF_ERROR(readExternal(proto, tensor, file, needed));
    return tensor;
  }
  const auto &unknown = proto.unknown_fields();
  bool raw = false;
  uint64_t length = 0;
  for (int i = 0; i < unknown.field_count(); ++i) {
    const auto &field = unknown.field(i);
    if (field.type() != google::protobuf::UnknownField::TYPE_VARINT) continue;
    if (field.number() == rawOffsetField) tensor.offset = field.varint(), raw = true;
    if (field.number() == rawLengthField) length = field.varint();
  }
  if (!raw) {
    readTyped(proto, tensor);
    length = tensor.data.size();
  } else {
    tensor.path = file.path;
  }
  if (length != needed)
    return bad(tensor, "expected " + std::to_string(needed) + " bytes for its shape and type " + dataTypeName(tensor.type) +
                           ", found " + std::to_string(length));
  tensor.bytes = needed;
  return tensor;
}

} // namespace lathe::onnxfile
