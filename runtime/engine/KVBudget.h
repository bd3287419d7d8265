//===- KVBudget.h - how large a KV cache may be -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/kv/KVCache.h"
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::runtime {

/// Bytes of the blocks that |shape| needs, over all groups.
uint64_t kvBytesFor(const Program &program, const KVShape &shape);

/// Lowers shape.kvTokens so that KV cache, arena and scratch fit |budget| bytes (0: no limit). Error: resourceExhausted
/// when not even one sequence of shape.contextTokens fits; the message names the longest that does.
Status fitBudget(const Program &program, uint64_t budget, KVShape &shape);

/// Bytes that this process may still take: what the machine has available, within what every memory control group above
/// the process leaves free. 0: unknown.
uint64_t availableMemory();

/// Files that availableMemory() reads, as texts: of /proc/meminfo, and of a control group's limit and use ("max" and
/// nonsense: no limit).
uint64_t parseMemAvailable(std::string_view meminfo);
uint64_t groupLeavesFree(std::string_view limit, std::string_view used);

} // namespace lathe::runtime
