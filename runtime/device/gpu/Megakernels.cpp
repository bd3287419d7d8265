//===- Megakernels.cpp - which launches of a step are one -----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/gpu/Megakernels.h"
#include "lathe/artifact/Megakernel.h"
#include "runtime/device/Device.h"
#include <algorithm>
#include <cstring>

namespace lathe::runtime {
namespace {

constexpr uint64_t mostBlocks = 1u << 31;
constexpr uint32_t noBody = ~0u;

/// Whether |l|, of an entry that runs rows of the step or of the output, can be a record of a megakernel's table, which is written to |out|. |body|: of the launch's
/// kernel, or noBody.
bool recordOf(const Launch &l, uint32_t body, bool ofStep, uint32_t maxRows, MegakernelRecord &out) {
  if (body == noBody || l.itemKind == ItemKind::perRowChunk) return false;
  out = MegakernelRecord();
  out.body = body;
  out.barrier = l.barrier != 0;
  // Rows of an entry that computes output rows are output rows.
  if (l.itemKind != ItemKind::fixed) out.rows = ofStep && l.itemKind != ItemKind::perOutRow ? MegakernelRecord::ofStep : MegakernelRecord::ofOutput;
  if (l.itemKind == ItemKind::perRowBlock) out.rowsPerBlock = l.itemRows;
  if (l.items * (l.itemKind == ItemKind::fixed ? 1 : maxRows) >= mostBlocks) return false;
  out.count = static_cast<uint32_t>(l.items);
  return true;
}

} // namespace

std::vector<MegakernelBucket> planMegakernels(const Program &program, std::span<const uint64_t> addresses, std::vector<uint8_t> &tables) {
  std::vector<MegakernelBucket> all;
  std::vector<uint32_t> bodies(program.kernels.size(), noBody); // of each kernel, in the megakernel at hand
  for (size_t i = 0; i < program.megakernels.size(); ++i) {
    const Megakernel &m = program.megakernels[i];
    const Entry &entry = program.entries[m.entry];
    const bool ofStep = runsRows(entryKind(entry.name));
    for (size_t b = 0; b < m.bodies.size(); ++b) bodies[m.bodies[b]] = static_cast<uint32_t>(b);
    MegakernelBucket out;
    out.bucket = &entry.buckets[m.bucket];
    out.megakernel = static_cast<uint32_t>(i);
    // Output rows of a step may be more than its bucket's rows.
    const uint32_t maxRows = std::max(out.bucket->maxRows, program.maxOutRows);
    MegakernelRecord record;
    for (uint32_t l = out.bucket->firstLaunch, end = l + out.bucket->launchCount; l < end; ++l) {
      const bool fits = recordOf(program.launches[l], bodies[program.launches[l].kernel], ofStep, maxRows, record);
      if (fits && !out.pieces.empty() && out.pieces.back().together)
        ++out.pieces.back().count;
      else
        out.pieces.push_back({l, 1, fits, 0});
    }
    for (LaunchPiece &piece : out.pieces) {
      piece.together &= piece.count > 1;
      if (!piece.together) continue;
      const uint64_t bytes = megakernelRecordBytes(m.maxArgs);
      piece.table = tables.size();
      tables.resize(tables.size() + sizeof(MegakernelTable) + piece.count * bytes);
      uint8_t *to = tables.data() + piece.table;
      MegakernelTable table;
      table.launches = piece.count;
      std::memcpy(to, &table, sizeof table);
      to += sizeof table;
      for (uint32_t n = 0; n < piece.count; ++n, to += bytes) {
        const Launch &l = program.launches[piece.first + n];
        (void)recordOf(l, bodies[l.kernel], ofStep, maxRows, record);
        if (n + 1 == piece.count) record.barrier = 0; // the kernel ends
        std::memcpy(to, &record, sizeof record);
        if (l.argCount) std::memcpy(to + sizeof record, addresses.data() + l.firstArg, 8ull * l.argCount);
      }
    }
    for (uint32_t kernel : m.bodies) bodies[kernel] = noBody;
    all.push_back(std::move(out));
  }
  return all;
}

} // namespace lathe::runtime
