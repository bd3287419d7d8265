//===- KVBudget.h - how large a KV cache may be -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/artifact/Loader.h"
#include "runtime/kv/KVCache.h"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lathe::runtime {

/// Whether an engine may run |maxSequences| sequences of at most |contextTokens| tokens (0: what |artifact| was compiled for). Errors: invalidArgument;
/// unsupported for several sequences of a general graph.
Status checkSequences(const LoadedArtifact &artifact, uint32_t contextTokens, uint32_t maxSequences);

/// Bytes of the blocks that |shape| needs, over all groups.
uint64_t kvBytesFor(const Program &program, const KVShape &shape);

/// Memory of a draft program that reads the step's KV, beside the step's: blocks for the tokens that it guesses.
struct DraftBlocks {
  std::vector<uint32_t> tails; ///< [step group] blocks behind those of the scheduler; 0: the draft does not read the group
  uint32_t sequences = 0;      ///< that may draft at a time, with or without tails
  uint64_t bytes = 0;          ///< of all tails
};
/// What the draft program of |program| needs for |maxSequences| sequences. Nothing when there is none.
DraftBlocks draftBlocksFor(const Program &program, uint32_t maxSequences);
/// Pages that the last known token and the drafts behind it may touch.
uint32_t draftTailPages(const KVGroup &group);

/// Lowers shape.kvTokens so that KV cache (a draft program's too, if it runs), arena and scratch fit |budget| bytes (0: no limit). Error: resourceExhausted
/// when not even one sequence of shape.contextTokens fits; the message names the longest that does.
Status fitBudget(const Program &program, uint64_t budget, KVShape &shape);

/// Bytes that this process may still take: what the machine has available, within what every memory control group above
/// the process leaves free. Nothing: unknown. 0: there is nothing left.
std::optional<uint64_t> availableMemory();
/// The same from the texts of /proc/meminfo and /proc/self/cgroup, and the folder where control groups are mounted.
std::optional<uint64_t> availableMemory(std::string_view meminfo, const std::string &groups, const std::string &mount);
/// A budget for fitBudget(): half of |available|; 0 (no limit) only when that is unknown.
uint64_t defaultBudget(std::optional<uint64_t> available);

/// Files that it reads, as texts: of /proc/meminfo, and of a control group's limit ("max" and nonsense: none), use and
/// statistics. Files that were read and are not in use count as used there, and the kernel drops them before anything else.
std::optional<uint64_t> parseMemAvailable(std::string_view meminfo);
uint64_t groupLeavesFree(std::string_view limit, std::string_view used, std::string_view stat);

} // namespace lathe::runtime
