//===- Parser.cpp - header, metadata and tensor table of a GGUF file -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every count and length is compared with the bytes that are left before it is used.
//===----------------------------------------------------------------------===//
#include "Types.h"
#include "lathe/import/Quote.h"
#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>

namespace lathe::gguf {
namespace {
constexpr uint64_t maxNameBytes = 65535;
constexpr int maxArrayDepth = 4;
// The shortest possible entries: an empty key with a one-byte value; an empty name with one dimension.
constexpr uint64_t minValueBytes = 8 + 4 + 1;
constexpr uint64_t minTensorBytes = 8 + 4 + 8 + 4 + 8;

Status damaged(uint64_t offset, const std::string &what) {
  return Status(StatusCode::invalidArgument, what + " at offset " + std::to_string(offset));
}
} // namespace

class File::Parser {
public:
  explicit Parser(File &file) : file(file), data(file.data) {}
  Status run();

private:
  uint64_t left() const { return data.size() - position; }
  template <typename T> Result<T> read(const char *what) {
    if (left() < sizeof(T))
      return makeError(StatusCode::invalidArgument, "expected %s (%zu bytes) at offset %" PRIu64 ", file ends at %zu",
                       what, sizeof(T), position, data.size());
    T value;
    std::memcpy(&value, data.data() + position, sizeof(T));
    position += sizeof(T);
    return value;
  }
  Result<std::string_view> readString(const char *what, uint64_t maxBytes);
  Status readHeader(uint64_t &tensorCount, uint64_t &valueCount);
  Status readValue();
  Status skipValues(std::string_view key, ValueType type, uint64_t count, int depth);
  Result<ValueType> readValueType(std::string_view key);
  Status readAlignment();
  Status readTensor();
  Status placeTensors();

  File &file;
  std::span<const uint8_t> data;
  uint64_t position = 0;
};

Result<std::string_view> File::Parser::readString(const char *what, uint64_t maxBytes) {
  uint64_t start = position;
  LATHE_ASSIGN_OR_RETURN(uint64_t length, read<uint64_t>("a string length"));
  if (length > left())
    return makeError(StatusCode::invalidArgument,
                     "%s of %" PRIu64 " bytes at offset %" PRIu64 " does not fit, file ends at %zu", what, length,
                     start, data.size());
  if (length > maxBytes)
    return makeError(StatusCode::invalidArgument,
                     "%s at offset %" PRIu64 ": expected at most %" PRIu64 " bytes, found %" PRIu64, what, start,
                     maxBytes, length);
  std::string_view text(reinterpret_cast<const char *>(data.data() + position), length);
  position += length;
  return text;
}

Status File::Parser::readHeader(uint64_t &tensorCount, uint64_t &valueCount) {
  if (data.size() < 4 || std::memcmp(data.data(), "GGUF", 4) != 0)
    return makeError(StatusCode::invalidArgument, "not a GGUF file: expected the bytes 'GGUF' at offset 0");
  position = 4;
  LATHE_ASSIGN_OR_RETURN(file.fileVersion, read<uint32_t>("the version"));
  if (file.fileVersion != 2 && file.fileVersion != 3) {
    uint32_t swapped = __builtin_bswap32(file.fileVersion);
    if (swapped == 2 || swapped == 3)
      return makeError(StatusCode::unsupported, "big-endian GGUF file, only little-endian files are supported");
    return makeError(StatusCode::unsupported, "GGUF version %u is not supported, only versions 2 and 3 are",
                     file.fileVersion);
  }
  LATHE_ASSIGN_OR_RETURN(tensorCount, read<uint64_t>("the tensor count"));
  LATHE_ASSIGN_OR_RETURN(valueCount, read<uint64_t>("the metadata count"));
  if (tensorCount > left() / minTensorBytes)
    return makeError(StatusCode::invalidArgument, "%" PRIu64 " tensors do not fit in a file of %zu bytes", tensorCount,
                     data.size());
  if (valueCount > left() / minValueBytes)
    return makeError(StatusCode::invalidArgument, "%" PRIu64 " metadata entries do not fit in a file of %zu bytes",
                     valueCount, data.size());
  return Status();
}

Result<ValueType> File::Parser::readValueType(std::string_view key) {
  uint64_t start = position;
  LATHE_ASSIGN_OR_RETURN(uint32_t type, read<uint32_t>("a value type"));
  if (type > static_cast<uint32_t>(ValueType::float64))
    return damaged(start,
                   "metadata " + quoteName(key) + ": expected a value type of 0 to 12, found " + std::to_string(type));
  return static_cast<ValueType>(type);
}

Status File::Parser::skipValues(std::string_view key, ValueType type, uint64_t count, int depth) {
  if (uint64_t bytes = valueTypeBytes(type)) {
    if (count > left() / bytes)
      return damaged(position, "metadata " + quoteName(key) + ": " + std::to_string(count) + " values of type " +
                                   valueTypeName(type) + " do not fit, file ends at " + std::to_string(data.size()) +
                                   "; found the values");
    if (type == ValueType::boolean)
      for (uint64_t i = 0; i < count; ++i)
        if (data[position + i] > 1)
          return damaged(position + i, "metadata " + quoteName(key) + ": expected a bool of 0 or 1, found " +
                                           std::to_string(data[position + i]));
    position += count * bytes;
    return Status();
  }
  // The shortest string is its length, the shortest array its type and count.
  if (count > left() / (type == ValueType::string ? 8 : 12))
    return damaged(position, "metadata " + quoteName(key) + ": " + std::to_string(count) + " values of type " +
                                 valueTypeName(type) + " do not fit, file ends at " + std::to_string(data.size()) +
                                 "; found the values");
  for (uint64_t i = 0; i < count; ++i) {
    if (type == ValueType::string) {
      auto text = readString("a string", UINT64_MAX);
      if (!text.ok()) return text.status().at("metadata " + quoteName(key));
      continue;
    }
    if (depth == maxArrayDepth)
      return damaged(position,
                     "metadata " + quoteName(key) + ": arrays are nested deeper than " + std::to_string(maxArrayDepth));
    LATHE_ASSIGN_OR_RETURN(ValueType element, readValueType(key));
    LATHE_ASSIGN_OR_RETURN(uint64_t inner, read<uint64_t>("an array length"));
    LATHE_RETURN_IF_ERROR(skipValues(key, element, inner, depth + 1));
  }
  return Status();
}

Status File::Parser::readValue() {
  Value value;
  uint64_t start = position;
  LATHE_ASSIGN_OR_RETURN(value.key, readString("a metadata key", maxNameBytes));
  if (value.key.empty()) return damaged(start, "empty metadata key");
  LATHE_ASSIGN_OR_RETURN(value.type, readValueType(value.key));
  value.element = value.type;
  value.count = 1;
  if (value.type == ValueType::array) {
    LATHE_ASSIGN_OR_RETURN(value.element, readValueType(value.key));
    LATHE_ASSIGN_OR_RETURN(value.count, read<uint64_t>("an array length"));
  }
  value.offset = position;
  LATHE_RETURN_IF_ERROR(skipValues(value.key, value.element, value.count, 1));
  if (!file.valueIndex.emplace(value.key, file.values.size()).second)
    return damaged(start, "metadata " + quoteName(value.key) + " occurs twice, the second time");
  file.values.push_back(value);
  return Status();
}

Status File::Parser::readAlignment() {
  if (!file.has("general.alignment")) return Status();
  LATHE_ASSIGN_OR_RETURN(int64_t alignment, file.integer("general.alignment"));
  if (alignment < 8 || alignment > (int64_t(1) << 30) || !std::has_single_bit(static_cast<uint64_t>(alignment)))
    return makeError(StatusCode::invalidArgument,
                     "metadata 'general.alignment': expected a power of two of at least 8, found %" PRId64, alignment);
  file.dataAlignment = static_cast<uint64_t>(alignment);
  return Status();
}

Status File::Parser::readTensor() {
  TensorInfo info;
  uint64_t start = position;
  LATHE_ASSIGN_OR_RETURN(std::string_view tensorName, readString("a tensor name", maxNameBytes));
  info.name = tensorName;
  std::string where = "tensor " + quoteName(tensorName);
  if (tensorName.empty()) return damaged(start, "empty tensor name");
  LATHE_ASSIGN_OR_RETURN(uint32_t rank, read<uint32_t>("a tensor's rank"));
  if (rank < 1 || rank > 4)
    return damaged(start, where + ": expected 1 to 4 dimensions, found " + std::to_string(rank));
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    LATHE_ASSIGN_OR_RETURN(uint64_t dim, read<uint64_t>("a tensor's dimension"));
    if (dim == 0) return damaged(start, where + ": dimension " + std::to_string(i) + " is 0");
    // 2^60 elements: sizes in bytes stay far from overflow.
    if (dim > (uint64_t(1) << 60) / elements)
      return damaged(start, where + ": its dimensions make more than 2^60 elements");
    elements *= dim;
    info.dims.push_back(dim);
  }
  LATHE_ASSIGN_OR_RETURN(uint32_t typeId, read<uint32_t>("a tensor's type"));
  info.type = findTensorType(typeId);
  if (!info.type)
    return Status(StatusCode::unsupported, where + ": type " + describeTensorType(typeId) + " is not supported, only " +
                                               supportedTensorTypes() + " are");
  if (info.dims[0] % info.type->blockElements)
    return damaged(start, where + ": expected rows of a multiple of " + std::to_string(info.type->blockElements) +
                              " elements for type " + info.type->name + ", found " + std::to_string(info.dims[0]));
  info.bytes = elements / info.type->blockElements * info.type->blockBytes;
  LATHE_ASSIGN_OR_RETURN(info.offset, read<uint64_t>("a tensor's offset"));
  if (info.offset % file.dataAlignment)
    return damaged(start, where + ": expected an offset that is a multiple of " + std::to_string(file.dataAlignment) +
                              ", found " + std::to_string(info.offset));
  file.table.push_back(std::move(info));
  return Status();
}

Status File::Parser::placeTensors() {
  if (file.table.empty()) return Status();
  uint64_t mask = file.dataAlignment - 1;
  uint64_t base = (position + mask) & ~mask;
  for (size_t i = 0; i < file.table.size(); ++i) {
    TensorInfo &info = file.table[i];
    if (!file.tensorIndex.emplace(info.name, i).second)
      return Status(StatusCode::invalidArgument, "tensor " + quoteName(info.name) + " occurs twice");
    if (base > data.size() || info.offset > data.size() - base || info.bytes > data.size() - base - info.offset)
      return makeError(StatusCode::invalidArgument,
                       "tensor %s: expected %" PRIu64 " bytes at offset %" PRIu64 " of the data at %" PRIu64
                       ", file ends at %zu",
                       quoteName(info.name).c_str(), info.bytes, info.offset, base, data.size());
    info.offset += base;
  }
  std::vector<const TensorInfo *> order;
  for (const TensorInfo &info : file.table)
    order.push_back(&info);
  std::sort(order.begin(), order.end(), [](auto *a, auto *b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
      return makeError(StatusCode::invalidArgument, "tensors %s and %s overlap at offset %" PRIu64,
                       quoteName(order[i - 1]->name).c_str(), quoteName(order[i]->name).c_str(), order[i]->offset);
  return Status();
}

Status File::Parser::run() {
  uint64_t tensorCount, valueCount;
  LATHE_RETURN_IF_ERROR(readHeader(tensorCount, valueCount));
  for (uint64_t i = 0; i < valueCount; ++i)
    LATHE_RETURN_IF_ERROR(readValue());
  LATHE_RETURN_IF_ERROR(readAlignment());
  for (uint64_t i = 0; i < tensorCount; ++i)
    LATHE_RETURN_IF_ERROR(readTensor());
  return placeTensors();
}

Result<File> File::parse(std::span<const uint8_t> bytes, std::string name) {
  File file;
  file.data = bytes;
  file.name = std::move(name);
  Status status = Parser(file).run();
  if (!status.ok()) return std::move(status).at(file.name);
  return file;
}

Result<File> File::open(const std::string &path) {
  LATHE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  auto owner = std::make_unique<MappedFile>(std::move(mapped));
  LATHE_ASSIGN_OR_RETURN(File file, parse(owner->bytes(), path));
  LATHE_RETURN_IF_ERROR(owner->check());
  file.mapped = std::move(owner);
  return file;
}

} // namespace lathe::gguf
