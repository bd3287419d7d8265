//===- Harness.h - runs PTX in tests -----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Emulator.h"
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

namespace lathe::emulator {

inline std::string readText(const std::string &name) {
  std::ifstream file(std::string(LATHE_SOURCE_DIR) + "/test/unit/Emulator/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A device with one module.
class Harness {
public:
  explicit Harness(Options options = {}) {
    auto made = Emulator::create(options);
    if (made.ok()) emulator = *std::move(made);
    else status = made.status();
  }
  bool load(const std::string &text) {
    auto loaded = emulator->load(text);
    status = loaded.status();
    if (loaded.ok()) module = *loaded;
    return loaded.ok();
  }
  template <typename T> uint64_t put(const std::vector<T> &values, const char *name = "") {
    uint64_t address = *emulator->allocate(values.size() * sizeof(T), name);
    EXPECT_TRUE(emulator->write(address, values.data(), values.size() * sizeof(T)).ok());
    return address;
  }
  template <typename T> uint64_t space(size_t count, const char *name = "") { return *emulator->allocate(count * sizeof(T), name); }
  template <typename T> std::vector<T> get(uint64_t address, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(emulator->read(values.data(), address, count * sizeof(T)).ok());
    return values;
  }
  /// True on success; else |status| says why not.
  bool run(const std::string &kernel, const LaunchConfig &config, const Arguments &arguments) {
    auto result = emulator->launch(module, kernel, config, arguments);
    status = result.status();
    if (result.ok()) stats = *result;
    return result.ok();
  }

  std::unique_ptr<Emulator> emulator;
  const LoadedModule *module = nullptr;
  LaunchStats stats;
  Status status;
};

inline std::string header(const char *target = "sm_90a") { return std::string(".version 8.6\n.target ") + target + "\n.address_size 64\n"; }

/// A kernel "k" with the pointers p0, p1, ... in %p0, %p1, ... (64-bit), %tid in %t, and |body|.
inline std::string kernelText(const std::string &declarations, const std::string &body, unsigned pointers, const char *target = "sm_90a") {
  std::string text = header(target) + ".visible .entry k(";
  for (unsigned index = 0; index < pointers; ++index)
    text += std::string(index ? ", " : "") + ".param .u64 p" + std::to_string(index);
  text += ")\n{\n.reg .b32 %t;\nmov.u32 %t, %tid.x;\n";
  for (unsigned index = 0; index < pointers; ++index)
    text += ".reg .b64 %p" + std::to_string(index) + ";\nld.param.u64 %p" + std::to_string(index) + ", [p" + std::to_string(index) + "];\n";
  return text + declarations + "\n" + body + "\nret;\n}\n";
}

/// splitmix64
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f; }
};

inline std::string errorOf(Harness &harness) { return harness.status.message(); }

} // namespace lathe::emulator
