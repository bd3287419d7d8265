//===- Tiles.h - AMX's tile registers need leave ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

namespace lathe {

/// Asks Linux for the 8 KiB of tile registers that each thread of this process may use from then on (5.16 and later; arch_prctl
/// ARCH_REQ_XCOMP_PERM, "Using XSTATE features in user space applications"). False where the kernel or the processor has none, or a
/// thread's alternate signal stack is too small for them. Asking again costs a system call. Thread-safe.
inline bool allowTiles() {
  constexpr long requestPermission = 0x1023, tileData = 18;
  return syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
}

} // namespace lathe
