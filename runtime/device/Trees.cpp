//===- Trees.cpp ----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/Trees.h"
#include <algorithm>
#include <cstddef>
#include <cstring>

namespace lathe::runtime {

Status checkParents(const Program &program, const LatheStep &s) {
  if (!s.parent) return Status();
  auto rootOf = [&](int32_t row) {
    while (s.parent[row] >= 0)
      row = s.parent[row];
    return row;
  };
  for (int32_t r = 0; r < static_cast<int32_t>(s.rows); ++r) {
    int32_t p = s.parent[r];
    if (p < 0) continue;
    if (!knowsTrees(program))
      return makeError(StatusCode::unsupported, "row %d has a parent, and this artifact's kernels know no draft trees: compile the model again", r);
    if (p >= r || s.sequence[p] != s.sequence[r] || s.slot[p] >= s.slot[r] || s.position[p] + 1 != s.position[r])
      return makeError(StatusCode::invalidArgument,
                       "row %d: expected as parent an earlier row of its sequence, of a smaller slot and the position before, found row %d", r, p);
    int32_t root = rootOf(p);
    if (s.slot[r] - s.slot[root] > maxTreeSlots)
      return makeError(StatusCode::invalidArgument, "row %d: expected a slot at most %d behind its root's, found %d", r, maxTreeSlots, s.slot[r] - s.slot[root]);
    for (int32_t q = r - 1; q > root; --q) { // the tree row before it: all of a sequence have one root
      if (s.sequence[q] != s.sequence[r] || s.parent[q] < 0) continue;
      if (rootOf(q) != root) return makeError(StatusCode::invalidArgument, "row %d: expected one draft tree of a sequence, found another at row %d", r, q);
      break;
    }
  }
  return Status();
}

Status checkStep(const Program &program, const LatheStep &s, bool rowsRun) {
  if (s.bitmask) return Status(StatusCode::unsupported, "the step has a mask of allowed tokens, which kernels do not know: the sampler applies it");
  if (!rowsRun) return Status();
  const bool knowsChosen = s.size >= offsetof(LatheStep, chosenBy) + sizeof s.chosenBy;
  for (uint32_t r = 0; r < s.rows; ++r) {
    if (s.adapter && s.adapter[r] != -1) return makeError(StatusCode::unsupported, "row %u has adapter %d, and kernels know no adapters", r, s.adapter[r]);
    if (knowsChosen && s.chosenBy && s.chosenBy[r] != -1)
      return makeError(StatusCode::unsupported, "row %u takes the choice of row %d of the step before, which kernels do not know", r, s.chosenBy[r]);
  }
  return checkParents(program, s);
}

Status checkEntry(const Program &program, uint32_t group, uint32_t fromToken, uint32_t toToken) {
  if (!knowsTrees(program)) return Status(StatusCode::unsupported, "this artifact does not say where a KV entry lies: compile the model again");
  if (group >= program.kvGroups.size() || std::max(fromToken, toToken) >= program.kvGroups[group].pageTokens)
    return makeError(StatusCode::invalidArgument, "no KV entries %u and %u in a block of group %u", fromToken, toToken, group);
  return Status();
}

void copyEntry(const Program &program, uint32_t group, uint8_t *toBlock, uint32_t toToken, const uint8_t *fromBlock, uint32_t fromToken) {
  for (const KVPlane &p : program.kvPlanes) {
    if (p.group != group) continue;
    auto at = [&](uint32_t token) { return p.offset + token / 16 * p.groupBytes + uint64_t(token % 16) * p.bytes; };
    for (uint32_t h = 0; h < p.heads; ++h) {
      uint8_t *to = toBlock + at(toToken) + h * p.headStride;
      const uint8_t *from = fromBlock + at(fromToken) + h * p.headStride;
      for (uint32_t i = 0; i < p.pieces; ++i, to += p.pieceStride, from += p.pieceStride)
        std::memcpy(to, from, p.bytes);
    }
  }
}

} // namespace lathe::runtime
