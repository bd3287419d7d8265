//===- CpuDevice.cpp - a program on the thread team ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/Device.h"
#include "lathe/base/Topology.h"
#include "runtime/device/Trees.h"
#include "runtime/device/cpu/GraphExecutable.h"
#include "runtime/device/cpu/ThreadTeam.h"
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <sys/mman.h>

namespace lathe::runtime {
namespace {

constexpr size_t hugePage = 2 << 20;

/// Zeroed memory straight from the kernel: committed when touched, in huge pages where it can be.
class Region {
public:
  Region() = default;
  Region(Region &&other) noexcept { *this = std::move(other); }
  Region &operator=(Region &&other) noexcept {
    std::swap(base, other.base);
    std::swap(size, other.size);
    std::swap(data, other.data);
    return *this;
  }
  ~Region() {
    if (base) munmap(base, size);
  }
  static Result<Region> allocate(const char *what, uint64_t bytes) {
    Region region;
    region.size = bytes + hugePage;
    void *got = mmap(nullptr, region.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED)
      return makeError(StatusCode::resourceExhausted, "cannot allocate %" PRIu64 " bytes for the %s", bytes, what);
    region.base = got;
    auto address = reinterpret_cast<uintptr_t>(got);
    // Small regions are not worth a huge page each.
    uintptr_t aligned = bytes >= hugePage ? (address + hugePage - 1) & ~(hugePage - 1) : address;
    region.data = reinterpret_cast<uint8_t *>(aligned);
    if (bytes >= hugePage) madvise(region.data, bytes & ~(hugePage - 1), MADV_HUGEPAGE);
    return region;
  }

  uint8_t *data = nullptr;

private:
  void *base = nullptr;
  size_t size = 0;
};

class CpuExecutable : public Executable {
public:
  static Result<std::unique_ptr<Executable>> create(std::shared_ptr<LoadedArtifact> artifact,
                                                    const ExecutableOptions &options);
  Result<Ticket> submit(EntryKind kind, const LatheStep &step) override;
  Status wait(Ticket) override { return artifact->mapping().check(); }
  const float *logits(uint32_t row) override {
    return reinterpret_cast<const float *>(arena.data + program.logitsOffset) + uint64_t(row) * program.logitsStride;
  }
  const float *choice(uint32_t row) override {
    return reinterpret_cast<const float *>(arena.data + program.choicesOffset) + uint64_t(row) * program.choicesStride;
  }
  const float *draftLogits(uint32_t row, uint32_t head) override {
    return reinterpret_cast<const float *>(arena.data + draftLogitsAt(program, head)) + uint64_t(row) * program.draftLogitsStride;
  }
  Status setDraftInput(uint32_t row, std::span<const float> values) override {
    LATHE_RETURN_IF_ERROR(checkDraftInput(program, row, values.size()));
    std::memcpy(arena.data + draftInputAt(program, row), values.data(), values.size_bytes());
    return Status();
  }
  const float *hidden(uint32_t row) override {
    return reinterpret_cast<const float *>(arena.data + program.hiddenOffset) + uint64_t(row) * program.hiddenStride;
  }
  const float *feature(uint32_t index, uint32_t row) override {
    return reinterpret_cast<const float *>(arena.data + program.draftFeatures[index]) + uint64_t(row) * program.hiddenStride;
  }
  const float *draftOwn(uint32_t row) override {
    return reinterpret_cast<const float *>(arena.data + program.draftOwnOffset) + uint64_t(row) * program.hiddenStride;
  }
  const float *embedding(uint32_t row) override {
    return reinterpret_cast<const float *>(arena.data + program.embeddingOffset) + uint64_t(row) * program.embeddingStride;
  }
  Status saveBlock(uint32_t group, uint32_t block, std::span<uint8_t> out) override {
    LATHE_ASSIGN_OR_RETURN(uint8_t *data, blockData(group, block, out.size()));
    std::memcpy(out.data(), data, out.size());
    return Status();
  }
  Status restoreBlock(uint32_t group, uint32_t block, std::span<const uint8_t> bytes) override {
    LATHE_ASSIGN_OR_RETURN(uint8_t *data, blockData(group, block, bytes.size()));
    std::memcpy(data, bytes.data(), bytes.size());
    return Status();
  }
  Status copyBlock(uint32_t group, uint32_t from, uint32_t to) override {
    if (group >= pools.size()) return makeError(StatusCode::invalidArgument, "no KV group %u", group);
    uint64_t bytes = program.kvGroups[group].blockBytes;
    LATHE_ASSIGN_OR_RETURN(const uint8_t *source, blockData(group, from, bytes));
    LATHE_ASSIGN_OR_RETURN(uint8_t *target, blockData(group, to, bytes));
    if (source != target) std::memcpy(target, source, bytes);
    return Status();
  }
  Status copyEntry(uint32_t group, uint32_t from, uint32_t fromToken, uint32_t to, uint32_t toToken) override {
    LATHE_RETURN_IF_ERROR(checkEntry(program, group, fromToken, toToken));
    uint64_t bytes = program.kvGroups[group].blockBytes;
    LATHE_ASSIGN_OR_RETURN(const uint8_t *source, blockData(group, from, bytes));
    LATHE_ASSIGN_OR_RETURN(uint8_t *target, blockData(group, to, bytes));
    runtime::copyEntry(program, group, target, toToken, source, fromToken);
    return Status();
  }
  Status fillBlock(uint32_t group, uint32_t block, uint8_t value) override {
    if (group >= pools.size()) return makeError(StatusCode::invalidArgument, "no KV group %u", group);
    LATHE_ASSIGN_OR_RETURN(uint8_t *data, blockData(group, block, program.kvGroups[group].blockBytes));
    std::memset(data, value, program.kvGroups[group].blockBytes);
    return Status();
  }
  void setProfiling(bool on) override {
    profiling = on;
    for (size_t i = 0; i < profiles.size(); ++i)
      profiles[i] = {static_cast<uint32_t>(i), 0, 0, 0};
  }
  std::vector<LaunchProfile> profile() const override {
    std::vector<LaunchProfile> used;
    for (const LaunchProfile &p : profiles)
      if (p.calls) used.push_back(p);
    return used;
  }
  unsigned threads() const override { return threadCount; }
  uint64_t memoryBytes() const override { return allocated; }

private:
  explicit CpuExecutable(std::shared_ptr<LoadedArtifact> loaded)
      : artifact(std::move(loaded)), program(artifact->program()) {}
  Result<uint8_t *> blockData(uint32_t group, uint32_t block, size_t bytes) {
    if (group >= pools.size() || block >= blocks[group] || bytes != program.kvGroups[group].blockBytes)
      return makeError(StatusCode::invalidArgument, "no KV block %u of %zu bytes in group %u", block, bytes, group);
    return pools[group].data + uint64_t(block) * program.kvGroups[group].blockBytes;
  }
  void countItems(const Bucket &bucket, const LatheStep &step);
  void work(unsigned thread, unsigned threads, FlagBarrier &barrier);

  std::shared_ptr<LoadedArtifact> artifact;
  const Program &program;
  std::shared_ptr<ThreadTeam> team;
  Region arena, scratch;
  std::vector<Region> pools;
  std::vector<uint32_t> blocks;
  uint64_t scratchStride = 0, allocated = 0;
  unsigned threadCount = 1;
  bool pin = false;
  std::vector<uint8_t *> args;     ///< resolved Program.args
  std::vector<int64_t> itemCounts; ///< of each launch, for the current run
  const Entry *entries[entryKinds] = {}; ///< by EntryKind
  // The current run.
  const LatheStep *step = nullptr;
  const Bucket *bucket = nullptr;
  Ticket lastTicket = 0;
  bool profiling = false;
  std::vector<LaunchProfile> profiles;
};

Result<std::unique_ptr<Executable>> CpuExecutable::create(std::shared_ptr<LoadedArtifact> artifact,
                                                          const ExecutableOptions &options) {
  std::unique_ptr<CpuExecutable> e(new CpuExecutable(std::move(artifact)));
  const Program &p = e->program;
  e->threadCount = options.threads ? std::min(options.threads, maxThreads)
                                   : std::min(Topology::detect().defaultThreads(), maxThreads);
  e->pin = options.pin;
  if (options.kvBlocks.size() != p.kvGroups.size())
    return makeError(StatusCode::invalidArgument, "expected block counts of %zu KV groups, found %zu",
                     p.kvGroups.size(), options.kvBlocks.size());
  LATHE_ASSIGN_OR_RETURN(e->arena, Region::allocate("step arena", p.arenaBytes));
  e->scratchStride = (p.scratchBytes + 4095) / 4096 * 4096 + 4096; // a page apart: no two threads share a line
  LATHE_ASSIGN_OR_RETURN(e->scratch, Region::allocate("scratch memory", e->scratchStride * e->threadCount));
  e->allocated = p.arenaBytes + e->scratchStride * e->threadCount;
  e->blocks = options.kvBlocks;
  for (size_t g = 0; g < p.kvGroups.size(); ++g) {
    uint64_t bytes = p.kvGroups[g].blockBytes * std::max<uint64_t>(1, options.kvBlocks[g]);
    LATHE_ASSIGN_OR_RETURN(Region pool, Region::allocate("KV cache", bytes));
    e->pools.push_back(std::move(pool));
    e->allocated += bytes;
  }
  for (const Arg &arg : p.args) {
    switch (arg.kind) {
    case ArgKind::arena:
      e->args.push_back(e->arena.data + arg.offset);
      break;
    // Kernels only read weights; the call has one pointer type for all arguments.
    case ArgKind::weight:
      e->args.push_back(const_cast<uint8_t *>(e->artifact->weights().data()) + arg.offset);
      break;
    case ArgKind::kv:
      e->args.push_back(e->pools[arg.group].data + arg.offset);
      break;
    }
  }
  e->itemCounts.resize(p.launches.size());
  e->profiles.resize(p.launches.size());
  for (const Entry &entry : p.entries)
    e->entries[static_cast<int>(entryKind(entry.name))] = &entry;
  e->team = ThreadTeam::acquire();
  e->team->grow(e->threadCount);
  return std::unique_ptr<Executable>(std::move(e));
}

void CpuExecutable::countItems(const Bucket &used, const LatheStep &s) {
  for (uint32_t i = used.firstLaunch; i < used.firstLaunch + used.launchCount; ++i)
    itemCounts[i] = static_cast<int64_t>(launchItems(program.launches[i], s));
}

Result<Ticket> CpuExecutable::submit(EntryKind kind, const LatheStep &input) {
  const Entry *found = entries[static_cast<int>(kind)];
  if (!found) return makeError(StatusCode::unsupported, "the program has no entry '%s'", toString(kind));
  const Entry &entry = *found;
  uint32_t rows = runsRows(kind) ? input.rows : input.outRows;
  auto wide =
      std::find_if(entry.buckets.begin(), entry.buckets.end(), [&](const Bucket &b) { return b.maxRows >= rows; });
  if (rows == 0 || wide == entry.buckets.end())
    return makeError(StatusCode::invalidArgument, "expected 1 to %u rows in entry '%s', found %u",
                     entry.buckets.back().maxRows, entry.name.c_str(), rows);
  LATHE_RETURN_IF_ERROR(checkStep(program, input, runsRows(kind)));
  step = &input;
  bucket = &*wide;
  countItems(*bucket, input);
  team->run(
      threadCount, pin,
      [](void *self, unsigned thread, unsigned n, FlagBarrier &barrier) {
        static_cast<CpuExecutable *>(self)->work(thread, n, barrier);
      },
      this, reinterpret_cast<uintptr_t>(bucket) + (uint64_t(rows) << 48));
  return ++lastTicket;
}

void CpuExecutable::work(unsigned thread, unsigned n, FlagBarrier &barrier) {
  using Clock = std::chrono::steady_clock;
  uint32_t epoch = 0;
  uint8_t *own = scratch.data + scratchStride * thread;
  bool measure = profiling;
  Clock::time_point before = measure ? Clock::now() : Clock::time_point();
  for (uint32_t i = bucket->firstLaunch, end = i + bucket->launchCount; i < end; ++i) {
    const Launch &l = program.launches[i];
    int64_t items = itemCounts[i];
    bool dealt = l.shareKind == ShareKind::interleaved;
    // A step is at most 2^62 items: the product needs the wide type.
    auto share = [&](unsigned t) { return static_cast<int64_t>(static_cast<__int128>(items) * t / n); };
    int64_t first = dealt ? thread : share(thread), last = dealt ? items : share(thread + 1);
    if (first < last) artifact->kernels()[l.kernel](args.data() + l.firstArg, step, first, last, dealt ? n : 1, own);
    if (n > 1 && (l.barrier || measure)) barrier.wait(thread, epoch);
    if (measure && thread == 0) {
      Clock::time_point now = Clock::now();
      double seconds = std::chrono::duration<double>(now - before).count();
      LaunchProfile &profile = profiles[i];
      profile.fastest = profile.calls ? std::min(profile.fastest, seconds) : seconds;
      profile.calls += 1;
      profile.seconds += seconds;
      before = now;
    }
  }
}

class CpuDevice : public Device {
public:
  const char *name() const override { return "cpu"; }
  Result<std::unique_ptr<Executable>> prepare(std::shared_ptr<LoadedArtifact> artifact,
                                              const ExecutableOptions &options) override {
    if (artifact->graph()) return makeGraphExecutable(std::move(artifact), makeHostGraphMemory());
    return CpuExecutable::create(std::move(artifact), options);
  }
};

} // namespace

std::unique_ptr<Device> makeCpuDevice() { return std::make_unique<CpuDevice>(); }

} // namespace lathe::runtime
