//===- StepDevice.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/StepDevice.h"
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <sys/mman.h>

namespace lathe::runtime {

constexpr uint64_t resultSliceBytes = 16 << 20;
/// Of blocks that are copied to see how fast that is: more than stays in the caches beside other things.
constexpr uint64_t measuredTransferBytes = 16 << 20;

SavedBlocks::~SavedBlocks() {
  for (const Group &g : groups)
    if (g.data) munmap(g.data, g.blockBytes * g.slots);
}

Status SavedBlocks::reserve(const Program &program, uint64_t budgetBytes) {
  HostStore store(program, budgetBytes); // knows how many slots a budget makes
  for (uint32_t g = 0; g < program.stepGroups(); ++g) {
    groups.push_back({nullptr, store.blockBytes(g), store.slots(g)});
    Group &group = groups.back();
    if (!group.slots) continue;
    uint64_t bytes = group.blockBytes * group.slots;
    void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
      return makeError(StatusCode::resourceExhausted, "cannot allocate %" PRIu64 " bytes for saved KV blocks", bytes);
    group.data = static_cast<uint8_t *>(data);
  }
  return Status();
}

std::span<uint8_t> SavedBlocks::slot(uint32_t g, uint32_t index) const {
  if (g >= groups.size() || index >= groups[g].slots) return {};
  return {groups[g].data + groups[g].blockBytes * index, groups[g].blockBytes};
}

Result<std::unique_ptr<StepDevice>> StepDevice::create(std::shared_ptr<LoadedArtifact> artifact, Device &device,
                                                       const ExecutableOptions &options, uint32_t stepTokens,
                                                       uint64_t savedBytes) {
  std::unique_ptr<StepDevice> d(new StepDevice());
  d->artifact = std::move(artifact);
  LATHE_RETURN_IF_ERROR(d->saved.reserve(d->program(), savedBytes));
  LATHE_ASSIGN_OR_RETURN(d->device, device.prepare(d->artifact, options));
  d->blocks = options.kvBlocks;
  for (const Entry &entry : d->program().entries)
    for (const Bucket &bucket : entry.buckets) {
      uint64_t bytes = 0;
      for (uint32_t i = 0; i < bucket.launchCount; ++i)
        bytes += d->program().launches[bucket.firstLaunch + i].weightBytes;
      d->perBucket[static_cast<int>(entryKind(entry.name))].push_back({bucket.maxRows, bytes});
    }
  for (auto *list : {&d->token, &d->position, &d->slot, &d->sequence, &d->parent})
    list->resize(stepTokens);
  return d;
}

Status StepDevice::transfer(const StepPlan &plan, KVCache &kv, bool poison) {
  auto number = [](int32_t block) { return static_cast<uint32_t>(block); };
  for (const KVTransfer &t : plan.saves)
    LATHE_RETURN_IF_ERROR(device->saveBlock(t.group, number(t.block), saved.slot(t.group, t.slot)));
  if (poison)
    for (auto [group, block] : kv.takeReleased())
      LATHE_RETURN_IF_ERROR(device->fillBlock(group, number(block), 0xff));
  for (const KVCopy &c : plan.copies)
    LATHE_RETURN_IF_ERROR(device->copyBlock(c.group, number(c.from), number(c.to)));
  for (const KVTransfer &t : plan.restores)
    LATHE_RETURN_IF_ERROR(device->restoreBlock(t.group, number(t.block), saved.slot(t.group, t.slot)));
  return Status();
}

LatheStep StepDevice::stepOf(uint32_t rows, const int32_t *const *tables, const uint32_t *strides,
                             uint32_t sequences) const {
  LatheStep s{};
  s.size = sizeof s;
  s.rows = rows;
  s.sequences = sequences;
  s.token = token.data();
  s.position = position.data();
  s.slot = slot.data();
  s.sequence = sequence.data();
  s.blockTable = tables;
  s.tableStride = strides;
  return s;
}

Status StepDevice::runEntry(EntryKind kind, const LatheStep &input) {
  LATHE_ASSIGN_OR_RETURN(Ticket ticket, device->submit(kind, input));
  uint32_t rows = runsRows(kind) ? input.rows : input.outRows;
  for (const BucketBytes &bucket : perBucket[static_cast<int>(kind)])
    if (bucket.maxRows >= rows) {
      weightsRead += bucket.weightBytes;
      break;
    }
  return device->wait(ticket);
}

Status StepDevice::run(const StepPlan &plan, const KVCache &kv) {
  if (plan.rows > token.size())
    return makeError(StatusCode::internal, "expected a plan of at most %zu rows, found %u", token.size(), plan.rows);
  uint32_t row = 0;
  bool trees = false;
  for (const StepPiece &piece : plan.pieces) {
    uint32_t known = piece.tokens - piece.drafts;
    trees |= piece.parents != nullptr;
    for (uint32_t i = 0; i < piece.tokens; ++i, ++row) {
      token[row] = piece.ids[i];
      slot[row] = static_cast<int32_t>(piece.first + i);
      position[row] = static_cast<int32_t>(piece.first + (piece.parents ? piece.place(i) : i));
      sequence[row] = static_cast<int32_t>(piece.row);
      parent[row] = -1;
      if (piece.parents && i >= known) parent[row] = static_cast<int32_t>(row - i + known - 1) + 1 + piece.parents[i - known];
    }
  }
  step = stepOf(row, kv.tables(), kv.strides(), kv.sequences());
  if (trees) step.parent = parent.data();
  return runEntry(EntryKind::step, step);
}

Status StepDevice::keepPath(const StepPiece &piece, std::span<const uint8_t> path, const KVCache &kv) {
  uint32_t first = piece.first + piece.tokens - piece.drafts;
  for (uint32_t i = 0; i < path.size(); ++i)
    for (uint32_t g = 0; g < kv.groups() && path[i] != i; ++g) {
      uint32_t page = program().kvGroups[g].pageTokens, from = first + path[i], to = first + i;
      const int32_t *table = kv.tables()[g] + uint64_t(piece.row) * kv.strides()[g];
      LATHE_RETURN_IF_ERROR(device->copyEntry(g, static_cast<uint32_t>(table[from / page]), from % page,
                                              static_cast<uint32_t>(table[to / page]), to % page));
    }
  return Status();
}

Result<uint32_t> StepDevice::results(EntryKind kind, std::span<const int32_t> rows, size_t first) {
  const Program &p = program();
  uint32_t stride = kind == EntryKind::embed ? p.embeddingStride : kind == EntryKind::headChoices ? p.choicesStride : p.logitsStride;
  uint64_t slice = std::clamp<uint64_t>(resultSliceBytes / (uint64_t(stride) * 4), 1, p.maxOutRows);
  step.outRows = static_cast<uint32_t>(std::min<uint64_t>(slice, rows.size() - first));
  step.outRow = rows.data() + first;
  LATHE_RETURN_IF_ERROR(runEntry(kind, step));
  return step.outRows;
}

std::span<const float> StepDevice::result(EntryKind kind, uint32_t index) {
  if (kind == EntryKind::embed) return {device->embedding(index), program().hiddenSize};
  if (kind == EntryKind::headChoices) return {device->choice(index), 2};
  return {device->logits(index), program().vocabulary};
}

Result<double> StepDevice::measure(uint32_t rows, uint32_t history, EntryKind kind) {
  const Program &p = program();
  std::vector<std::vector<int32_t>> tables;
  std::vector<const int32_t *> pointers;
  std::vector<uint32_t> strides;
  for (uint32_t g = 0; g < p.kvGroups.size(); ++g) {
    uint32_t page = p.kvGroups[g].pageTokens, own = std::min(blocks[g], (rows + page - 1) / page);
    uint32_t needed = history / page + own;
    rows = std::min<uint64_t>(rows, uint64_t(own) * page);
    auto &table = tables.emplace_back();
    for (uint32_t b = 0; b < needed; ++b)
      table.push_back(static_cast<int32_t>(b % own));
    strides.push_back(needed);
  }
  for (auto &table : tables)
    pointers.push_back(table.data());
  rows = std::min<uint32_t>({rows, static_cast<uint32_t>(token.size()), positions(kind) - history});
  for (uint32_t r = 0; r < rows; ++r) {
    token[r] = static_cast<int32_t>(r * 7919u % p.vocabulary);
    position[r] = slot[r] = static_cast<int32_t>(history + r);
    sequence[r] = 0;
  }
  auto begin = std::chrono::steady_clock::now();
  LatheStep s = stepOf(rows, pointers.data(), strides.data(), 1);
  LATHE_RETURN_IF_ERROR(runEntry(kind, s));
  // Heads have a result for each row, others for the last one of a sequence.
  std::vector<int32_t> results{static_cast<int32_t>(rows) - 1};
  if (kind == EntryKind::draft && p.draftInputStride && !goesOnFromItself(p.draftMethod))
    for (uint32_t r = 1; r < std::min(rows, p.maxOutRows); ++r)
      results.push_back(static_cast<int32_t>(r) - 1);
  s.outRows = static_cast<uint32_t>(results.size());
  s.outRow = results.data();
  LATHE_RETURN_IF_ERROR(runEntry(kind == EntryKind::draft ? EntryKind::draftHead : EntryKind::head, s));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Result<double> StepDevice::measureTransfer() {
  double bytes = 0, seconds = 0;
  for (uint32_t g = 0; g < program().stepGroups(); ++g) {
    const uint64_t size = program().kvGroups[g].blockBytes;
    auto count = static_cast<uint32_t>(std::clamp<uint64_t>(measuredTransferBytes / std::max<uint64_t>(size, 1), 1, blocks[g]));
    while (count && saved.slot(g, count - 1).empty())
      --count;
    if (!count) return 0.0;
    double fastest = 0;
    for (int round = 0; round < 3; ++round) { // the first touches the memory
      auto begin = std::chrono::steady_clock::now();
      for (uint32_t i = 0; i < count; ++i)
        LATHE_RETURN_IF_ERROR(device->saveBlock(g, i, saved.slot(g, i)));
      for (uint32_t i = 0; i < count; ++i)
        LATHE_RETURN_IF_ERROR(device->restoreBlock(g, i, saved.slot(g, i)));
      double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      fastest = round ? std::min(fastest, took) : took;
    }
    bytes += 2.0 * static_cast<double>(size) * count;
    seconds += fastest;
  }
  return bytes / std::max(seconds, 1e-9);
}

} // namespace lathe::runtime
