//===- Safetensors.h - reader of safetensors files ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A file is 8 bytes of header length, a JSON header, and the tensors' bytes. A model is one file or
// several named by an index.
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

namespace lathe::safetensors {

/// The types that Lathe computes with; tensors of other types may be present but not used. e4m3 needs scales beside it.
enum class DType { f32, f16, bf16, e4m3, other };

struct TensorInfo {
  std::string name;
  DType dtype = DType::other;
  std::string dtypeName;       ///< as in the file: "F32", "I64", ...
  std::vector<uint64_t> shape; ///< outermost first: a linear's weight is [out, in]
  uint32_t file = 0;           ///< index into Model::files()
  uint64_t offset = 0;         ///< from the start of that file
  uint64_t bytes = 0;
  uint64_t elements() const {
    uint64_t n = 1;
    for (uint64_t dim : shape)
      n *= dim; // the reader has checked that this does not overflow
    return n;
  }
  /// unsupported for a type that Lathe does not compute with, or not without scales; names the tensor and the type.
  Status checkUsable() const;
};

/// Reads the header of one file. |bytes| is the whole file. Checks: header length, JSON depth and
/// size, offsets inside the file, sizes that fit shape and type, names unique, no overlap.
Result<std::vector<TensorInfo>> parseHeader(std::span<const uint8_t> bytes);

/// The tensors of a model's directory. Move-only; const members are safe from several threads.
class Model {
public:
  /// One .safetensors file.
  static Result<Model> openFile(const std::string &path);
  /// |directory| with model.safetensors.index.json, or else model.safetensors. Shards lie inside
  /// the directory (resolveInside); a tensor in two shards, or one that the index places in a shard
  /// without it, is an error.
  static Result<Model> openDirectory(const std::string &directory);

  const std::vector<std::unique_ptr<MappedFile>> &files() const { return mapped; }
  /// In file order.
  const std::vector<TensorInfo> &tensors() const { return table; }
  /// The tensor called |name|, or nullptr.
  const TensorInfo *tensor(std::string_view name) const;
  std::span<const uint8_t> tensorBytes(const TensorInfo &info) const {
    return mapped[info.file]->bytes().subspan(info.offset, info.bytes);
  }

private:
  Status add(const std::string &path);
  Status readIndex(const std::string &directory, const std::string &indexPath);
  std::vector<std::unique_ptr<MappedFile>> mapped;
  std::vector<TensorInfo> table;
  std::unordered_map<std::string, size_t> index;
};

} // namespace lathe::safetensors
