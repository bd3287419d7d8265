//===- KVBudget.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/KVBudget.h"
#include "runtime/speculation/Types.h"
#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <fstream>
#include <iterator>

namespace lathe::runtime {

// Sequences that draft from the step's KV in one round; each has private blocks for its last tokens.
static constexpr uint32_t mostWithTails = 16;

uint32_t draftTailPages(const KVGroup &group) { return (2 * group.pageTokens + maxDraftTokens - 1) / group.pageTokens; }

DraftBlocks draftBlocksFor(const Program &p, uint32_t maxSequences) {
  DraftBlocks d;
  if (!p.draftMaxSeq) return d;
  d.sequences = maxSequences;
  d.tails.assign(p.stepGroups(), 0);
  for (const Entry &entry : p.entries) {
    if (entry.name != "draft") continue;
    for (const Bucket &bucket : entry.buckets)
      for (uint32_t l = 0; l < bucket.launchCount; ++l) {
        const Launch &launch = p.launches[bucket.firstLaunch + l];
        for (uint32_t a = 0; a < launch.argCount; ++a) {
          const Arg &arg = p.args[launch.firstArg + a];
          if (arg.kind == ArgKind::kv && arg.group < d.tails.size()) d.tails[arg.group] = 1;
        }
      }
  }
  uint32_t sharing = std::min(maxSequences, mostWithTails);
  for (size_t g = 0; g < d.tails.size(); ++g) {
    if (!d.tails[g]) continue;
    d.sequences = sharing;
    d.tails[g] = sharing * draftTailPages(p.kvGroups[g]);
    d.bytes += p.kvGroups[g].blockBytes * d.tails[g];
  }
  return d;
}

Status checkSequences(const LoadedArtifact &artifact, uint32_t contextTokens, uint32_t maxSequences) {
  const uint32_t most = artifact.program().maxSeq;
  if (contextTokens > most)
    return makeError(StatusCode::invalidArgument,
                     "expected a context of at most %u tokens, found %u; compile with '--max-seq %u'", most,
                     contextTokens, contextTokens);
  if (maxSequences == 0 || maxSequences > 4096)
    return makeError(StatusCode::invalidArgument, "expected 1 to 4096 sequences, found %u", maxSequences);
  if (artifact.graph() && maxSequences != 1)
    return makeError(StatusCode::unsupported,
                     "this artifact holds a general graph, which serves one sequence at a time: expected 1 sequence, found %u",
                     maxSequences);
  return Status();
}

uint64_t kvBytesFor(const Program &program, const KVShape &shape) {
  std::vector<uint32_t> blocks = kvBlocksFor(program, shape);
  uint64_t bytes = 0;
  for (size_t g = 0; g < blocks.size(); ++g)
    bytes += program.kvGroups[g].blockBytes * blocks[g];
  return bytes;
}

Status fitBudget(const Program &p, uint64_t budget, KVShape &shape) {
  if (!budget) return Status();
  KVShape one = shape;
  one.maxSequences = 1;
  one.kvTokens = 0;
  uint64_t fixed = p.arenaBytes + p.scratchBytes;
  if (shape.drafts) fixed += draftBlocksFor(p, shape.maxSequences).bytes;
  auto fits = [&](const KVShape &s) { return fixed + kvBytesFor(p, s) <= budget; };
  auto largest = [](uint64_t low, uint64_t high, auto &&good) {
    while (low < high) {
      uint64_t middle = low + (high - low + 1) / 2;
      if (good(middle))
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  };
  if (!fits(one)) {
    uint64_t longest = largest(0, shape.contextTokens, [&](uint64_t tokens) {
      one.contextTokens = static_cast<uint32_t>(tokens);
      return fits(one);
    });
    return makeError(StatusCode::resourceExhausted,
                     "a memory budget of %" PRIu64 " bytes cannot hold one sequence of %u tokens; the longest that "
                     "fits has %" PRIu64 " tokens",
                     budget, shape.contextTokens, longest);
  }
  if (fits(shape)) return Status();
  uint64_t all = uint64_t(shape.contextTokens) * shape.maxSequences;
  shape.kvTokens =
      largest(shape.contextTokens, shape.kvTokens ? std::min(shape.kvTokens, all) : all, [&](uint64_t tokens) {
        KVShape s = shape;
        s.kvTokens = tokens;
        return fits(s);
      });
  return Status();
}

/// The number behind |key|, which begins a line of |text|.
static std::optional<uint64_t> numberOf(std::string_view text, std::string_view key) {
  size_t at = text.starts_with(key) ? 0 : text.find('\n' + std::string(key));
  if (at == std::string_view::npos) return std::nullopt;
  at = text.find_first_not_of(" \n", at + (at ? 1 : 0) + key.size());
  uint64_t value = 0;
  if (at == std::string_view::npos || std::from_chars(text.data() + at, text.data() + text.size(), value).ec != std::errc())
    return std::nullopt;
  return value;
}

std::optional<uint64_t> parseMemAvailable(std::string_view meminfo) {
  std::optional<uint64_t> kilobytes = numberOf(meminfo, "MemAvailable:");
  if (kilobytes) *kilobytes *= 1024;
  return kilobytes;
}

uint64_t groupLeavesFree(std::string_view limitText, std::string_view usedText, std::string_view stat) {
  uint64_t limit = UINT64_MAX, used = 0;
  if (std::from_chars(limitText.data(), limitText.data() + limitText.size(), limit).ec != std::errc())
    return UINT64_MAX;
  std::from_chars(usedText.data(), usedText.data() + usedText.size(), used);
  // Version 1 has the group's own files under the plain name and those of all groups below it, as the limit counts them, under the other.
  std::optional<uint64_t> files = numberOf(stat, "total_inactive_file ");
  if (!files) files = numberOf(stat, "inactive_file ");
  used -= std::min(used, files.value_or(0));
  return limit > used ? limit - used : 0;
}

uint64_t defaultBudget(std::optional<uint64_t> available) { return available ? std::max<uint64_t>(1, *available / 2) : 0; }

static std::string fileText(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<uint64_t> availableMemory() { return availableMemory(fileText("/proc/meminfo"), fileText("/proc/self/cgroup"), "/sys/fs/cgroup"); }

std::optional<uint64_t> availableMemory(std::string_view meminfo, const std::string &groups, const std::string &mount) {
  uint64_t available = parseMemAvailable(meminfo).value_or(UINT64_MAX);
  // "0::/a/b" is the process's group in version 2, "4:memory:/a/b" in version 1.
  for (size_t at = 0; at < groups.size();) {
    size_t end = std::min(groups.find('\n', at), groups.size());
    std::string_view line = std::string_view(groups).substr(at, end - at);
    at = end + 1;
    bool second = line.starts_with("0::"), first = line.find(":memory:") != std::string_view::npos;
    if (!second && !first) continue;
    std::string root = second ? mount : mount + "/memory";
    std::string path(line.substr(line.rfind(':') + 1));
    const char *limit = second ? "/memory.max" : "/memory.limit_in_bytes";
    const char *used = second ? "/memory.current" : "/memory.usage_in_bytes";
    while (true) { // the group's own limit and those above it
      if (path == "/") path.clear();
      available = std::min(available, groupLeavesFree(fileText(root + path + limit), fileText(root + path + used), fileText(root + path + "/memory.stat")));
      if (path.empty()) break;
      size_t cut = path.rfind('/');
      path.resize(cut == std::string::npos ? 0 : cut);
    }
  }
  if (available == UINT64_MAX) return std::nullopt;
  return available;
}

} // namespace lathe::runtime
