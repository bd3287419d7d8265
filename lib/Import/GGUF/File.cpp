//===- File.cpp - metadata and tensor lookup in a parsed GGUF file ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Types.h"
#include "lathe/import/Quote.h"
#include <cstring>

namespace lathe::gguf {
namespace {

template <typename T> T load(std::span<const uint8_t> data, uint64_t offset) {
  T value;
  std::memcpy(&value, data.data() + offset, sizeof(T));
  return value;
}

bool isInteger(ValueType type) {
  return type != ValueType::float32 && type != ValueType::float64 && type != ValueType::boolean &&
         type != ValueType::string && type != ValueType::array;
}
bool isNumber(ValueType type) { return isInteger(type) || type == ValueType::float32 || type == ValueType::float64; }
bool isBoolean(ValueType type) { return type == ValueType::boolean; }
bool isString(ValueType type) { return type == ValueType::string; }

std::string_view stringAt(std::span<const uint8_t> data, uint64_t offset) {
  // The parser has checked every length; a mapping that lost its pages reads as zeros, but it may
  // also have been overwritten in between, so the length is not trusted twice.
  uint64_t room = data.size() - offset - 8;
  uint64_t length = load<uint64_t>(data, offset);
  return {reinterpret_cast<const char *>(data.data() + offset + 8), length < room ? length : room};
}

} // namespace

const File::Value *File::find(std::string_view key) const {
  auto it = valueIndex.find(key);
  return it == valueIndex.end() ? nullptr : &values[it->second];
}

static Status missing(std::string_view key) {
  return Status(StatusCode::notFound, "metadata " + quoteName(key) + " is missing");
}

Result<const File::Value *> File::need(std::string_view key, const char *expected, bool wanted(ValueType)) const {
  const Value *value = find(key);
  if (!value) return missing(key);
  if (!wanted(value->type))
    return Status(StatusCode::invalidArgument,
                  "metadata " + quoteName(key) + ": expected " + expected + ", found " + valueTypeName(value->type));
  return value;
}

Result<const File::Value *> File::needArray(std::string_view key, const char *expected, bool wanted(ValueType)) const {
  const Value *value = find(key);
  if (!value) return missing(key);
  std::string found = valueTypeName(value->type);
  if (value->type == ValueType::array) {
    if (wanted(value->element) || value->count == 0) return value;
    found += " of " + std::string(valueTypeName(value->element));
  }
  return Status(StatusCode::invalidArgument,
                "metadata " + quoteName(key) + ": expected an array of " + expected + ", found " + found);
}

Result<int64_t> File::integerAt(std::string_view key, ValueType type, uint64_t offset) const {
  switch (type) {
  case ValueType::uint8:
    return static_cast<int64_t>(load<uint8_t>(data, offset));
  case ValueType::int8:
    return static_cast<int64_t>(load<int8_t>(data, offset));
  case ValueType::uint16:
    return static_cast<int64_t>(load<uint16_t>(data, offset));
  case ValueType::int16:
    return static_cast<int64_t>(load<int16_t>(data, offset));
  case ValueType::uint32:
    return static_cast<int64_t>(load<uint32_t>(data, offset));
  case ValueType::int32:
    return static_cast<int64_t>(load<int32_t>(data, offset));
  case ValueType::int64:
    return load<int64_t>(data, offset);
  default:
    break;
  }
  auto value = load<uint64_t>(data, offset);
  if (value > static_cast<uint64_t>(INT64_MAX))
    return Status(StatusCode::invalidArgument, "metadata " + quoteName(key) + ": " + std::to_string(value) +
                                                   " does not fit in a signed 64-bit integer");
  return static_cast<int64_t>(value);
}

double File::numberAt(ValueType type, uint64_t offset) const {
  if (type == ValueType::float32) return load<float>(data, offset);
  if (type == ValueType::float64) return load<double>(data, offset);
  if (type == ValueType::uint64) return static_cast<double>(load<uint64_t>(data, offset));
  return static_cast<double>(*integerAt({}, type, offset));
}

Result<std::string_view> File::string(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, need(key, "a string", isString));
  return stringAt(data, value->offset);
}

Result<int64_t> File::integer(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, need(key, "an integer", isInteger));
  return integerAt(key, value->type, value->offset);
}

Result<double> File::number(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, need(key, "a number", isNumber));
  return numberAt(value->type, value->offset);
}

Result<bool> File::boolean(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, need(key, "a bool", isBoolean));
  return load<uint8_t>(data, value->offset) != 0;
}

Result<std::vector<std::string_view>> File::strings(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, needArray(key, "strings", isString));
  std::vector<std::string_view> out;
  uint64_t offset = value->offset;
  for (uint64_t i = 0; i < value->count; ++i) {
    if (offset > data.size() - 8) // only when the file was overwritten since it was checked
      return Status(StatusCode::dataLoss, "metadata " + quoteName(key) + " changed while it was read");
    out.push_back(stringAt(data, offset));
    offset += 8 + out.back().size();
  }
  return out;
}

Result<std::vector<int64_t>> File::integers(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, needArray(key, "integers", isInteger));
  std::vector<int64_t> out;
  uint64_t bytes = valueTypeBytes(value->element);
  for (uint64_t i = 0; i < value->count; ++i) {
    LATHE_ASSIGN_OR_RETURN(int64_t element, integerAt(key, value->element, value->offset + i * bytes));
    out.push_back(element);
  }
  return out;
}

Result<std::vector<float>> File::floats(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, needArray(key, "numbers", isNumber));
  std::vector<float> out;
  uint64_t bytes = valueTypeBytes(value->element);
  for (uint64_t i = 0; i < value->count; ++i)
    out.push_back(static_cast<float>(numberAt(value->element, value->offset + i * bytes)));
  return out;
}

Result<std::vector<bool>> File::booleans(std::string_view key) const {
  LATHE_ASSIGN_OR_RETURN(const Value *value, needArray(key, "bools", isBoolean));
  std::vector<bool> out;
  for (uint64_t i = 0; i < value->count; ++i)
    out.push_back(load<uint8_t>(data, value->offset + i) != 0);
  return out;
}

Result<std::string_view> File::stringOr(std::string_view key, std::string_view fallback) const {
  return has(key) ? string(key) : Result<std::string_view>(fallback);
}
Result<int64_t> File::integerOr(std::string_view key, int64_t fallback) const {
  return has(key) ? integer(key) : Result<int64_t>(fallback);
}
Result<double> File::numberOr(std::string_view key, double fallback) const {
  return has(key) ? number(key) : Result<double>(fallback);
}
Result<bool> File::booleanOr(std::string_view key, bool fallback) const {
  return has(key) ? boolean(key) : Result<bool>(fallback);
}

Result<ValueType> File::type(std::string_view key) const {
  const Value *value = find(key);
  if (!value) return missing(key);
  return value->type;
}

Result<ValueType> File::elementType(std::string_view key) const {
  const Value *value = find(key);
  if (!value) return missing(key);
  return value->element;
}

std::vector<std::string_view> File::keys() const {
  std::vector<std::string_view> out;
  for (const Value &value : values)
    out.push_back(value.key);
  return out;
}

const TensorInfo *File::tensor(std::string_view tensorName) const {
  auto it = tensorIndex.find(tensorName);
  return it == tensorIndex.end() ? nullptr : &table[it->second];
}

} // namespace lathe::gguf
