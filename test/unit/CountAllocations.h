//===- CountAllocations.h - operator new that counts ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Replaces operator new of the whole program: to be included by one source file of it.
//===----------------------------------------------------------------------===//
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<bool> counting{false};
static std::atomic<int> allocations{0}; ///< while |counting|, on any thread

void *operator new(size_t bytes) {
  if (counting) ++allocations;
  void *memory = std::malloc(bytes ? bytes : 1);
  if (!memory) std::abort();
  return memory;
}
void *operator new[](size_t bytes) { return operator new(bytes); }
void *operator new(size_t bytes, std::align_val_t align) {
  if (counting) ++allocations;
  auto unit = static_cast<size_t>(align);
  void *memory = std::aligned_alloc(unit, (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit);
  if (!memory) std::abort();
  return memory;
}
void *operator new[](size_t bytes, std::align_val_t align) { return operator new(bytes, align); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }
