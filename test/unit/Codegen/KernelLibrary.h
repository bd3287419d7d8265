//===- KernelLibrary.h - compile, load and call kernels ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "X86/Compile.h"
#include "lathe/artifact/Step.h"
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

namespace lathe::codegen::test {

/// The x86 variants this machine runs.
inline std::vector<X86Target> hostTargets() {
  std::vector<X86Target> out;
  for (auto v : {artifact::Variant::avx2, artifact::Variant::avx512vnni, artifact::Variant::avx512bf16, artifact::Variant::amx})
    if (hostSupports({v})) out.push_back({v});
  return out;
}

/// Kernels of one variant, loaded into this process.
class KernelLibrary {
public:
  /// Fails the test and stays empty when |jobs| do not compile.
  KernelLibrary(const std::vector<KernelJob> &jobs, X86Target target) {
    Result<std::string> code = buildCode(jobs, target, 2);
    EXPECT_TRUE(code.ok()) << code.status().message();
    if (!code.ok()) return;
    fd = memfd_create("lathe-kernels", 0);
    EXPECT_EQ(write(fd, code->data(), code->size()), ssize_t(code->size()));
    handle = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(handle) << dlerror();
  }
  ~KernelLibrary() {
    if (handle) dlclose(handle);
    if (fd >= 0) close(fd);
  }
  KernelLibrary(const KernelLibrary &) = delete;
  explicit operator bool() const { return handle; }
  LatheKernelFn operator[](const std::string &symbol) const {
    void *f = handle ? dlsym(handle, symbol.c_str()) : nullptr;
    EXPECT_TRUE(f) << "no kernel '" << symbol << "'";
    return reinterpret_cast<LatheKernelFn>(f);
  }

private:
  int fd = -1;
  void *handle = nullptr;
};

/// 64-byte aligned bytes with a guard pattern behind them.
class Buffer {
public:
  explicit Buffer(size_t bytes, uint8_t fill = 0) : bytes(bytes), storage(new uint8_t[bytes + 192]) {
    std::memset(storage.get(), fill, bytes + 192);
    base = reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(storage.get()) + 63) & ~uintptr_t(63));
    std::memset(base + bytes, 0xa5, 64);
  }
  uint8_t *data() const { return base; }
  template <typename T> T *as() const { return reinterpret_cast<T *>(base); }
  size_t size() const { return bytes; }
  /// False when something wrote just behind the end.
  bool intact() const {
    for (int i = 0; i < 64; ++i)
      if (base[bytes + i] != 0xa5) return false;
    return true;
  }

private:
  size_t bytes;
  std::unique_ptr<uint8_t[]> storage;
  uint8_t *base;
};

} // namespace lathe::codegen::test
