//===- Memory.h - the emulated device's address space ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Device addresses are numbers of the emulator's own: the same in every run, with an unmapped gap after
// every allocation and never used twice, so that an overrun or a use after free is always seen.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lathe::emulator {

/// Generic addresses. Global memory starts above 4 GiB; the other spaces have windows of their own.
inline constexpr uint64_t kGlobalBase = 1ull << 33;
inline constexpr uint64_t kSharedWindow = 1ull << 60;
inline constexpr uint64_t kLocalWindow = 2ull << 60;
inline constexpr uint64_t kParamWindow = 3ull << 60;
inline constexpr uint64_t kWindowMask = ~(0xfull << 60);
/// Shared and local addresses below this are never valid, so that address 0 is an error.
inline constexpr uint32_t kSharedBase = 1024;
/// Bits of a shared::cluster address that hold the offset; the block's rank is above them.
inline constexpr unsigned kClusterShift = 24;

struct Allocation {
  uint64_t base = 0, bytes = 0;
  uint8_t *host = nullptr; ///< of |bytes|
  bool freed = false;
  bool readOnly = false;
  bool owned = false;
  std::string name; ///< for messages; may be empty
  uint64_t end() const { return base + bytes; }
};

/// The allocations of one emulator. Not thread-safe but for find().
class GlobalMemory {
public:
  explicit GlobalMemory(uint64_t limit) : limit(limit) {}
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory &) = delete;
  GlobalMemory &operator=(const GlobalMemory &) = delete;

  /// |bytes| of new memory, each byte 0xff (NaN in every float format). Address aligned to 1024.
  Result<uint64_t> allocate(uint64_t bytes, std::string name);
  /// Memory of the caller, which must outlive the allocation.
  Result<uint64_t> adopt(void *host, uint64_t bytes, bool readOnly, std::string name);
  Status release(uint64_t address);
  void makeReadOnly(uint64_t address);

  /// The allocation that holds |address|, also a freed one; nullptr: none.
  const Allocation *find(uint64_t address) const;
  /// Host memory of [address, address + bytes), or an error that says why not.
  Result<uint8_t *> resolve(uint64_t address, uint64_t bytes, bool write) const;
  /// Why [address, address + bytes) is no valid access: "12 bytes past the end of ...".
  std::string explain(uint64_t address, uint64_t bytes, bool write) const;
  uint64_t bytesInUse() const { return used; }

private:
  Result<uint64_t> place(Allocation allocation);

  std::map<uint64_t, Allocation> allocations; ///< by base
  uint64_t next = kGlobalBase;
  uint64_t used = 0;
  uint64_t limit;
};

} // namespace lathe::emulator
