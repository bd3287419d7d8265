//===- Device.cpp - names of entries --------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/Device.h"
#include <algorithm>
#include <iterator>

namespace lathe::runtime {

static constexpr const char *entryNames[entryKinds] = {"step", "head", "embed", "draft", "draft_head", "head_choices"};

const char *toString(EntryKind kind) { return entryNames[static_cast<size_t>(kind)]; }

EntryKind entryKind(std::string_view name) {
  auto found = std::find(std::begin(entryNames), std::end(entryNames), name);
  return static_cast<EntryKind>(std::min<std::ptrdiff_t>(found - std::begin(entryNames), entryKinds - 1));
}

uint64_t launchItems(const Launch &l, const LatheStep &s) {
  switch (l.itemKind) {
  case ItemKind::fixed: return l.items;
  case ItemKind::perRow: return l.items * s.rows;
  case ItemKind::perOutRow: return l.items * s.outRows;
  case ItemKind::perRowBlock: return l.items * ((s.rows + l.itemRows - 1) / l.itemRows);
  case ItemKind::perRowChunk: break;
  }
  uint64_t chunks = 0;
  for (uint32_t r = 0; r < s.rows; ++r) chunks += (uint64_t(s.slot[r]) + l.itemRows) / l.itemRows;
  return l.items * chunks;
}

Status checkDraftInput(const Program &p, uint32_t row, size_t floats) {
  if (p.draftInputStride && row < p.maxRows && floats == p.draftInputSize) return Status();
  return makeError(StatusCode::invalidArgument, "row %u of a draft's input: expected %u floats in rows below %u, found %zu", row, p.draftInputSize,
                   p.draftInputStride ? p.maxRows : 0, floats);
}

} // namespace lathe::runtime
