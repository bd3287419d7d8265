//===- Probe.cpp ----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Probe.h"
#include "Limits.h"
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <sys/mman.h>

namespace lathe::tool {
using namespace runtime;
using Clock = std::chrono::steady_clock;

static uint64_t pages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

Result<std::unique_ptr<KernelProbe>> KernelProbe::create(std::shared_ptr<LoadedArtifact> artifact, unsigned threads) {
  std::unique_ptr<KernelProbe> probe(new KernelProbe());
  const Program &p = artifact->program();
  probe->threads = threads;
  probe->scratchStride = pages(p.scratchBytes) + 4096;
  uint64_t kvAt = pages(p.arenaBytes) + probe->scratchStride * threads;
  probe->arenaBytes = kvAt;
  for (const KVGroup &g : p.kvGroups)
    probe->arenaBytes += pages(g.blockBytes);
  void *memory = mmap(nullptr, probe->arenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return makeError(StatusCode::resourceExhausted, "cannot allocate %" PRIu64 " bytes to measure kernels in", probe->arenaBytes);
  probe->arena = static_cast<uint8_t *>(memory);
  for (const KVGroup &g : p.kvGroups) {
    probe->pools.push_back(probe->arena + kvAt);
    kvAt += pages(g.blockBytes);
  }
  probe->artifact = std::move(artifact);
  probe->team = ThreadTeam::acquire();
  return probe;
}

KernelProbe::~KernelProbe() {
  if (arena) munmap(arena, arenaBytes);
}

void KernelProbe::setStep(uint32_t sequences, uint32_t perSequence, uint32_t depth, uint32_t outRows) {
  const Program &p = artifact->program();
  known.clear();
  for (auto *list : {&token, &position, &slot, &sequence, &outRow})
    list->clear();
  for (uint32_t s = 0; s < sequences; ++s)
    for (uint32_t r = 0; r < perSequence && token.size() < p.maxRows; ++r) {
      token.push_back(0);
      position.push_back(static_cast<int32_t>(depth + r));
      slot.push_back(static_cast<int32_t>(depth + r));
      sequence.push_back(static_cast<int32_t>(s));
    }
  outRow.assign(std::min(outRows, p.maxOutRows), 0);
  // A table of zeros serves all sequences of all groups: its rows lie over each other.
  table.assign(depth + perSequence, 0);
  tables.assign(p.kvGroups.size(), table.data());
  strides.assign(p.kvGroups.size(), 0);
  step = {};
  step.size = sizeof step;
  step.rows = static_cast<uint32_t>(token.size()), step.sequences = sequences, step.outRows = static_cast<uint32_t>(outRow.size());
  step.token = token.data(), step.position = position.data(), step.slot = slot.data(), step.sequence = sequence.data(), step.outRow = outRow.data();
  step.blockTable = tables.data(), step.tableStride = strides.data();
}

double KernelProbe::timed(LatheKernelFn kernel, uint8_t *const *args, int64_t items, bool whole, bool dealt, int64_t repeats) {
  struct Run {
    LatheKernelFn kernel;
    uint8_t *const *args;
    const LatheStep *step;
    int64_t items, repeats;
    bool whole, dealt;
    uint8_t *scratch;
    uint64_t scratchStride;
  } run{kernel, args, &step, items, repeats, whole, dealt, arena + pages(artifact->program().arenaBytes), scratchStride};
  auto begin = Clock::now();
  team->run(
      threads, false,
      [](void *context, unsigned t, unsigned n, FlagBarrier &) {
        auto &r = *static_cast<Run *>(context);
        int64_t first = r.whole ? (r.dealt ? t : r.items * t / n) : t * r.items, last = r.whole ? (r.dealt ? r.items : r.items * (t + 1) / n) : first + r.items;
        for (int64_t i = 0; i < r.repeats && first < last; ++i)
          r.kernel(r.args, r.step, first, last, r.dealt ? n : 1, r.scratch + t * r.scratchStride);
      },
      &run, reinterpret_cast<uintptr_t>(kernel));
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double KernelProbe::fromCache(uint32_t index) {
  const Program &p = artifact->program();
  const Launch &l = p.launches[index];
  const bool matmul = l.itemKind == ItemKind::fixed && l.weightBytes && l.items, attention = l.macsPerEntry;
  if (!matmul && !attention) return 0;
  const double scale = matmul ? static_cast<double>(l.items) / threads : 1;
  std::vector<uint8_t *> args;
  for (uint32_t a = l.firstArg; a < l.firstArg + l.argCount; ++a) {
    const Arg &arg = p.args[a];
    // Kernels only read weights; the call has one pointer type for all arguments.
    uint8_t *base = arg.kind == ArgKind::weight ? const_cast<uint8_t *>(artifact->weights().data()) : arg.kind == ArgKind::kv ? pools[arg.group] : arena;
    args.push_back(base + arg.offset);
  }
  int64_t items = 0;
  if (matmul) { // as many as half of a small second-level cache holds, beside the activations
    uint64_t itemBytes = std::max<uint64_t>(1, l.weightBytes / l.items);
    items = std::clamp<int64_t>(static_cast<int64_t>((128 << 10) / itemBytes), 1, std::max<int64_t>(1, static_cast<int64_t>(l.items / threads)));
  } else {
    items = launchItems(l, step);
  }
  auto run = [&](int64_t repeats) { return timed(artifact->kernels()[l.kernel], args.data(), items, attention, attention && l.shareKind == ShareKind::interleaved, repeats); };
  run(1); // pages and caches
  auto repeats = static_cast<int64_t>(std::clamp(1e-3 / std::max(1e-9, run(1)), 1.0, 1e6));
  double seconds = 1e9;
  for (int round = 0; round < 4; ++round)
    seconds = std::min(seconds, run(repeats));
  double &best = known.try_emplace(l.kernel, 1e9).first->second;
  best = std::min(best, seconds / static_cast<double>(matmul ? repeats * items : repeats));
  return best * scale;
}

void KernelProbe::readWeights(std::span<const uint32_t> ofStep) {
  if (!std::ranges::equal(launches, ofStep)) {
    const Program &p = artifact->program();
    std::span<const uint8_t> weights = artifact->weights();
    std::vector<uint64_t> begins = {weights.size()};
    for (const Arg &arg : p.args)
      if (arg.kind == ArgKind::weight) begins.push_back(arg.offset);
    std::ranges::sort(begins);
    launches.assign(ofStep.begin(), ofStep.end());
    parts.assign(launches.size(), {});
    reads.clear();
    for (size_t i = 0; i < launches.size(); ++i) {
      const Launch &l = p.launches[launches[i]];
      for (uint32_t a = l.firstArg; a < l.firstArg + l.argCount; ++a) {
        if (p.args[a].kind != ArgKind::weight) continue;
        uint64_t begin = p.args[a].offset, end = *std::ranges::upper_bound(begins, begin);
        uint64_t size = std::min(end - begin, l.weightBytes); // of a table that rows are taken from no step reads all
        if (size > parts[i].size()) parts[i] = weights.subspan(begin, size);
      }
    }
  }
  measureReads(threads, artifact->variant(), parts, reads.emplace_back(parts.size()));
}

double KernelProbe::readRate(uint32_t index) const {
  size_t i = std::ranges::find(launches, index) - launches.begin();
  if (i >= parts.size() || parts[i].empty() || reads.empty()) return 0;
  std::vector<double> seconds;
  for (const std::vector<double> &all : reads)
    seconds.push_back(all[i]);
  return static_cast<double>(parts[i].size()) / median(std::move(seconds));
}

} // namespace lathe::tool
