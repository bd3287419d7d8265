//===- Header.cpp - the JSON header of a safetensors file -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Json.h"
#include "lathe/import/Quote.h"
#include "lathe/import/Safetensors.h"
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

namespace lathe::safetensors {
namespace {
using nlohmann::json;

constexpr uint64_t maxHeaderBytes = 100'000'000; // the format's own limit
constexpr size_t maxRank = 8;

const struct {
  const char *name;
  DType dtype;
  uint64_t bytes;
} types[] = {{"F32", DType::f32, 4},    {"F16", DType::f16, 2},       {"BF16", DType::bf16, 2},
             {"F64", DType::other, 8},  {"I64", DType::other, 8},     {"U64", DType::other, 8},
             {"I32", DType::other, 4},  {"U32", DType::other, 4},     {"I16", DType::other, 2},
             {"U16", DType::other, 2},  {"I8", DType::other, 1},      {"U8", DType::other, 1},
             {"BOOL", DType::other, 1}, {"F8_E5M2", DType::other, 1}, {"F8_E4M3", DType::e4m3, 1}};

Status bad(const std::string &where, const std::string &what) {
  return Status(StatusCode::invalidArgument, where + ": " + what);
}

Result<TensorInfo> readTensor(const std::string &name, const json &entry, uint64_t base, uint64_t fileSize) {
  std::string where = "tensor " + quoteName(name);
  if (!entry.is_object()) return bad(where, "expected an object with dtype, shape and data_offsets");
  auto dtype = entry.find("dtype"), shape = entry.find("shape"), offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string()) return bad(where, "expected a string 'dtype'");
  if (shape == entry.end() || !shape->is_array()) return bad(where, "expected an array 'shape'");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned())
    return bad(where, "expected 'data_offsets' of two non-negative integers");
  TensorInfo info;
  info.name = name;
  info.dtypeName = dtype->get<std::string>();
  if (shape->size() > maxRank)
    return bad(where,
               "expected at most " + std::to_string(maxRank) + " dimensions, found " + std::to_string(shape->size()));
  uint64_t elements = 1;
  for (const json &dim : *shape) {
    if (!dim.is_number_unsigned()) return bad(where, "expected 'shape' of non-negative integers");
    auto size = dim.get<uint64_t>();
    if (elements && size > (uint64_t(1) << 60) / elements)
      return bad(where, "its dimensions make more than 2^60 elements");
    elements *= size;
    info.shape.push_back(size);
  }
  auto begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > fileSize - base)
    return bad(where, "data offsets " + std::to_string(begin) + " to " + std::to_string(end) +
                          " do not fit, the file has " + std::to_string(fileSize - base) + " bytes of data");
  for (const auto &type : types) {
    if (info.dtypeName != type.name) continue;
    info.dtype = type.dtype;
    if (elements * type.bytes != end - begin)
      return bad(where, "expected " + std::to_string(elements * type.bytes) + " bytes for its shape and type " +
                            type.name + ", found " + std::to_string(end - begin));
  }
  info.offset = base + begin;
  info.bytes = end - begin;
  return info;
}

} // namespace

Status TensorInfo::checkUsable() const {
  if (dtype != DType::other && dtype != DType::e4m3) return Status();
  return Status(StatusCode::unsupported, "tensor " + quoteName(name) + ": type " + quoteName(dtypeName) +
                                             " is not supported, only F32, F16, BF16 are");
}

Result<std::vector<TensorInfo>> parseHeader(std::span<const uint8_t> bytes) {
  if (bytes.size() < 8)
    return makeError(StatusCode::invalidArgument, "expected a header length of 8 bytes, the file has %zu bytes",
                     bytes.size());
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  if (length > maxHeaderBytes)
    return makeError(StatusCode::invalidArgument, "expected a header of at most %" PRIu64 " bytes, found %" PRIu64,
                     maxHeaderBytes, length);
  if (length > bytes.size() - 8)
    return makeError(StatusCode::invalidArgument, "header of %" PRIu64 " bytes does not fit in a file of %zu bytes",
                     length, bytes.size());
  std::string_view text(reinterpret_cast<const char *>(bytes.data()) + 8, length);
  auto header = parseJson(text, {maxHeaderBytes, 8});
  if (!header.ok()) return header.status().at("header");
  if (!header->is_object()) return bad("header", "expected a JSON object");
  uint64_t base = 8 + length;
  std::vector<TensorInfo> table;
  for (auto &[name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    LATHE_ASSIGN_OR_RETURN(TensorInfo info, readTensor(name, entry, base, bytes.size()));
    table.push_back(std::move(info));
  }
  std::sort(table.begin(), table.end(), [](const TensorInfo &a, const TensorInfo &b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  for (size_t i = 1; i < table.size(); ++i)
    if (table[i].offset < table[i - 1].offset + table[i - 1].bytes)
      return makeError(StatusCode::invalidArgument, "tensors %s and %s overlap at offset %" PRIu64,
                       quoteName(table[i - 1].name).c_str(), quoteName(table[i].name).c_str(), table[i].offset);
  return table;
}

} // namespace lathe::safetensors
