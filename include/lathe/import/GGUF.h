//===- GGUF.h - reader of GGUF files -------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// GGUF versions 2 and 3, little-endian: metadata by key, and a table of tensors. The file is
// mapped; strings and arrays are views or are decoded when asked for, and nothing is allocated by
// a count that the file could not hold.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/MappedFile.h"
#include "lathe/base/Status.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lathe::gguf {

/// Types of metadata values, by their number in the file.
enum class ValueType : uint32_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  uint64 = 10,
  int64 = 11,
  float64 = 12,
};
/// "uint8", "string", ...
const char *valueTypeName(ValueType type);

/// A tensor type that Lathe reads: its number in the file, its name and its blocks.
struct TensorType {
  uint32_t id;
  const char *name;
  uint32_t blockElements;
  uint32_t blockBytes;
};
/// The supported type with this number, or nullptr.
const TensorType *findTensorType(uint32_t id);

struct TensorInfo {
  std::string name;
  const TensorType *type = nullptr;
  /// 1 to 4 sizes, innermost (contiguous) first: a linear's weight is [in, out].
  std::vector<uint64_t> dims;
  uint64_t offset = 0; ///< from the start of the file
  uint64_t bytes = 0;
  uint64_t elements() const {
    uint64_t n = 1;
    for (uint64_t dim : dims)
      n *= dim; // open() has checked that this does not overflow
    return n;
  }
};

/// An open GGUF file. Move-only; all const members are safe to call from several threads.
/// String views and spans live as long as the File (moving it keeps them valid).
///
/// Getters: notFound names a missing key; invalidArgument names the key, the type that was
/// expected and the type found. Integers of any width are accepted where an integer is asked for,
/// floats and integers where a number is.
class File {
public:
  /// Reads and checks everything but the tensors' bytes: counts, lengths and offsets lie inside the
  /// file, names are unique, tensors are aligned and do not overlap. Errors: notFound,
  /// invalidArgument (damaged; says where), unsupported (version, tensor type; lists what is
  /// supported).
  static Result<File> open(const std::string &path);
  /// The same over memory that outlives the File; |name| is for messages.
  static Result<File> parse(std::span<const uint8_t> bytes, std::string name);

  uint32_t version() const { return fileVersion; }
  uint64_t alignment() const { return dataAlignment; }
  const std::string &path() const { return name; }
  /// The mapping, for MappedFile::check and drop; nullptr after parse().
  const MappedFile *mapping() const { return mapped.get(); }
  std::span<const uint8_t> bytes() const { return data; }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  Result<std::string_view> string(std::string_view key) const;
  Result<int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::vector<std::string_view>> strings(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;
  Result<std::vector<float>> floats(std::string_view key) const;
  Result<std::vector<bool>> booleans(std::string_view key) const;
  // A missing key gives |fallback|; a key of the wrong type is still an error.
  Result<std::string_view> stringOr(std::string_view key, std::string_view fallback) const;
  Result<int64_t> integerOr(std::string_view key, int64_t fallback) const;
  Result<double> numberOr(std::string_view key, double fallback) const;
  Result<bool> booleanOr(std::string_view key, bool fallback) const;

  /// Type of the value of |key|; for an array, elementType() has the type of its elements.
  Result<ValueType> type(std::string_view key) const;
  Result<ValueType> elementType(std::string_view key) const;
  /// Keys in file order.
  std::vector<std::string_view> keys() const;

  /// In file order.
  const std::vector<TensorInfo> &tensors() const { return table; }
  /// The tensor called |tensorName|, or nullptr.
  const TensorInfo *tensor(std::string_view tensorName) const;
  std::span<const uint8_t> tensorBytes(const TensorInfo &info) const { return data.subspan(info.offset, info.bytes); }

private:
  struct Value {
    std::string_view key;
    ValueType type;
    ValueType element; ///< of an array
    uint64_t offset;   ///< of the value's (for arrays: the first element's) bytes
    uint64_t count;    ///< elements of an array, else 1
  };
  class Parser;

  const Value *find(std::string_view key) const;
  Result<const Value *> need(std::string_view key, const char *expected, bool wanted(ValueType)) const;
  Result<const Value *> needArray(std::string_view key, const char *expected, bool wanted(ValueType)) const;
  Result<int64_t> integerAt(std::string_view key, ValueType type, uint64_t offset) const;
  double numberAt(ValueType type, uint64_t offset) const;

  std::unique_ptr<MappedFile> mapped;
  std::span<const uint8_t> data;
  std::string name;
  uint32_t fileVersion = 0;
  uint64_t dataAlignment = 32;
  std::vector<Value> values;
  std::unordered_map<std::string_view, size_t> valueIndex;
  std::vector<TensorInfo> table;
  std::unordered_map<std::string_view, size_t> tensorIndex; ///< views into table's names
};

} // namespace lathe::gguf
