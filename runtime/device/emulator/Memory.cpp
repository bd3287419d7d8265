//===- Memory.cpp - the emulated device's address space --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Memory.h"
#include <cinttypes>
#include <cstdlib>
#include <cstring>

namespace lathe::emulator {
namespace {
constexpr uint64_t kAlignment = 1024;
constexpr uint64_t kGap = 1 << 16;
} // namespace

GlobalMemory::~GlobalMemory() {
  for (auto &[base, allocation] : allocations)
    if (allocation.owned) std::free(allocation.host);
}

Result<uint64_t> GlobalMemory::place(Allocation allocation) {
  allocation.base = next;
  next += (allocation.bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
  used += allocation.bytes;
  uint64_t base = allocation.base;
  allocations.emplace(base, std::move(allocation));
  return base;
}

Result<uint64_t> GlobalMemory::allocate(uint64_t bytes, std::string name) {
  if (bytes == 0) return makeError(StatusCode::invalidArgument, "allocation: expected at least one byte");
  if (bytes > limit || used > limit - bytes)
    return makeError(StatusCode::resourceExhausted,
                     "allocation of %" PRIu64 " bytes: %" PRIu64 " of the limit of %" PRIu64 " bytes are in use", bytes, used, limit);
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.owned = true;
  allocation.name = std::move(name);
  allocation.host = static_cast<uint8_t *>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (!allocation.host) return makeError(StatusCode::resourceExhausted, "allocation of %" PRIu64 " bytes failed", bytes);
  std::memset(allocation.host, 0xff, bytes);
  return place(std::move(allocation));
}

Result<uint64_t> GlobalMemory::adopt(void *host, uint64_t bytes, bool readOnly, std::string name) {
  if (bytes == 0 || !host) return makeError(StatusCode::invalidArgument, "allocation: expected at least one byte");
  if (bytes > (1ull << 48)) return makeError(StatusCode::resourceExhausted, "allocation of %" PRIu64 " bytes failed", bytes);
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.host = static_cast<uint8_t *>(host);
  allocation.readOnly = readOnly;
  allocation.name = std::move(name);
  return place(std::move(allocation));
}

Status GlobalMemory::release(uint64_t address) {
  auto found = allocations.find(address);
  if (found == allocations.end())
    return makeError(StatusCode::invalidArgument, "free of 0x%" PRIx64 ": no allocation starts there", address);
  Allocation &allocation = found->second;
  if (allocation.freed) return makeError(StatusCode::invalidArgument, "free of 0x%" PRIx64 ": already freed", address);
  if (allocation.owned) std::free(allocation.host);
  used -= allocation.bytes;
  allocation.host = nullptr;
  allocation.owned = false;
  allocation.freed = true; // the record stays: a use after free is told from a wild address
  return {};
}

void GlobalMemory::makeReadOnly(uint64_t address) {
  if (auto found = allocations.find(address); found != allocations.end()) found->second.readOnly = true;
}

const Allocation *GlobalMemory::find(uint64_t address) const {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const Allocation &allocation = std::prev(after)->second;
  return address < allocation.end() ? &allocation : nullptr;
}

Result<uint8_t *> GlobalMemory::resolve(uint64_t address, uint64_t bytes, bool write) const {
  const Allocation *allocation = find(address);
  if (!allocation || allocation->freed || bytes > allocation->end() - address || (write && allocation->readOnly))
    return makeError(StatusCode::invalidArgument, "%s", explain(address, bytes, write).c_str());
  return allocation->host + (address - allocation->base);
}

std::string GlobalMemory::explain(uint64_t address, uint64_t bytes, bool write) const {
  auto describe = [](const Allocation &allocation) {
    char text[160];
    std::snprintf(text, sizeof(text), "%s%s%sallocation of %" PRIu64 " bytes at 0x%" PRIx64, allocation.name.empty() ? "an " : "'",
                  allocation.name.c_str(), allocation.name.empty() ? "" : "', ", allocation.bytes, allocation.base);
    return std::string(text);
  };
  char text[160];
  auto after = allocations.upper_bound(address);
  if (after != allocations.begin()) {
    const Allocation &allocation = std::prev(after)->second;
    uint64_t offset = address - allocation.base;
    if (allocation.freed && offset < allocation.bytes) {
      std::snprintf(text, sizeof(text), "use after free: offset %" PRIu64 " of ", offset);
      return text + describe(allocation);
    }
    if (offset < allocation.bytes && allocation.readOnly && write && bytes <= allocation.bytes - offset)
      return "write to read-only " + describe(allocation);
    if (offset < allocation.bytes + kGap) {
      std::snprintf(text, sizeof(text), "global access out of bounds: %" PRIu64 " bytes at offset %" PRIu64 " of ", bytes, offset);
      return text + describe(allocation);
    }
  }
  if (after != allocations.end() && after->second.base - address <= kGap) {
    std::snprintf(text, sizeof(text), "global access out of bounds: %" PRIu64 " bytes before ", after->second.base - address);
    return text + describe(after->second);
  }
  std::snprintf(text, sizeof(text), "global access out of bounds: no allocation near address 0x%" PRIx64, address);
  return text;
}

} // namespace lathe::emulator
