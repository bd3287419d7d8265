//===- GGUFBuilder.h - makes GGUF files in memory for tests --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lathe::test {

/// Writes what it is told, valid or not.
struct GGUFBuilder {
  std::string metadata, tensors, data;
  uint64_t valueCount = 0, tensorCount = 0;
  uint32_t version = 3;
  uint64_t alignment = 32;

  template <typename T> static std::string raw(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string text(const std::string &s) { return raw<uint64_t>(s.size()) + s; }

  GGUFBuilder &value(const std::string &key, uint32_t type, const std::string &bytes) {
    metadata += text(key) + raw(type) + bytes;
    ++valueCount;
    return *this;
  }
  GGUFBuilder &u32(const std::string &key, uint32_t v) { return value(key, 4, raw(v)); }
  GGUFBuilder &f32(const std::string &key, float v) { return value(key, 6, raw(v)); }
  GGUFBuilder &flag(const std::string &key, bool v) { return value(key, 7, raw<uint8_t>(v)); }
  GGUFBuilder &string(const std::string &key, const std::string &v) { return value(key, 8, text(v)); }
  GGUFBuilder &strings(const std::string &key, const std::vector<std::string> &v) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(v.size());
    for (const std::string &s : v)
      bytes += text(s);
    return value(key, 9, bytes);
  }
  template <typename T> GGUFBuilder &array(const std::string &key, uint32_t type, const std::vector<T> &v) {
    std::string bytes = raw(type) + raw<uint64_t>(v.size());
    for (T x : v)
      bytes += raw(x);
    return value(key, 9, bytes);
  }
  GGUFBuilder &tensorAt(const std::string &name, uint32_t type, const std::vector<uint64_t> &dims, uint64_t offset) {
    tensors += text(name) + raw<uint32_t>(dims.size());
    for (uint64_t dim : dims)
      tensors += raw(dim);
    tensors += raw(type) + raw(offset);
    ++tensorCount;
    return *this;
  }
  /// Appends |bytes| to the data section, aligned.
  GGUFBuilder &tensor(const std::string &name, uint32_t type, const std::vector<uint64_t> &dims,
                      const std::string &bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    tensorAt(name, type, dims, data.size());
    data += bytes;
    return *this;
  }
  std::string build() const {
    std::string out = "GGUF" + raw(version) + raw(tensorCount) + raw(valueCount) + metadata + tensors;
    if (tensorCount) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

} // namespace lathe::test
