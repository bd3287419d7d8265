//===- Launch.cpp - grids, clusters and blocks -----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Launch.h"
#include "runtime/device/emulator/Race.h"
#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <thread>

namespace lathe::emulator {
namespace {

constexpr int64_t kTurn = 2000;          // instructions of a warp before the next one runs
constexpr unsigned kIdleRounds = 64;     // rounds in which everybody waits that make a deadlock
constexpr uint64_t kMaxResident = 8ull << 30; // bytes of all resident blocks

uint64_t nextRandom(uint64_t &state) { // splitmix64
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

struct Layout {
  uint64_t registers, predicates, local, warpBytes, shared, shadow, total;
  uint32_t warps, sharedBytes, dynamicStart;
};

Layout layoutOf(const Program &program, const LaunchConfig &config) {
  auto round = [](uint64_t bytes) { return (bytes + 63) / 64 * 64; };
  Layout layout{};
  layout.warps = static_cast<uint32_t>((config.block.count() + 31) / 32);
  layout.registers = round(program.registerBytes);
  layout.predicates = round(uint64_t(program.predicates) * 4);
  layout.local = round(uint64_t(program.localBytes) * 32);
  layout.warpBytes = layout.registers + layout.predicates + layout.local;
  layout.dynamicStart = (program.staticShared + program.dynamicAlign - 1) / program.dynamicAlign * program.dynamicAlign;
  layout.sharedBytes = config.sharedBytes ? layout.dynamicStart + config.sharedBytes : program.staticShared;
  layout.shared = round(layout.sharedBytes + 64);
  layout.shadow = layout.shared;
  layout.total = layout.warps * layout.warpBytes + layout.shared + layout.shadow;
  return layout;
}

uint32_t specialValue(const Block &block, const LaunchConfig &config, const Layout &layout, Special special, uint32_t warp, uint32_t lane) {
  uint32_t linear = warp * 32 + lane;
  const Dim3 &threads = config.block, &grid = config.grid, &cluster = config.cluster;
  auto inCluster = [&](unsigned axis) {
    uint32_t size = axis == 0 ? cluster.x : axis == 1 ? cluster.y : cluster.z;
    return block.id[axis] % size;
  };
  switch (special) {
  case Special::tidX: return linear % threads.x;
  case Special::tidY: return linear / threads.x % threads.y;
  case Special::tidZ: return linear / threads.x / threads.y;
  case Special::ntidX: return threads.x;
  case Special::ntidY: return threads.y;
  case Special::ntidZ: return threads.z;
  case Special::ctaidX: return block.id[0];
  case Special::ctaidY: return block.id[1];
  case Special::ctaidZ: return block.id[2];
  case Special::nctaidX: return grid.x;
  case Special::nctaidY: return grid.y;
  case Special::nctaidZ: return grid.z;
  case Special::laneid: return lane;
  case Special::warpid: return warp;
  case Special::nwarpid: return layout.warps;
  case Special::smid: return 0;
  case Special::nsmid: return 1;
  case Special::lanemaskEq: return 1u << lane;
  case Special::lanemaskLe: return (2u << lane) - 1;
  case Special::lanemaskLt: return (1u << lane) - 1;
  case Special::lanemaskGe: return ~((1u << lane) - 1);
  case Special::lanemaskGt: return ~((2u << lane) - 1);
  case Special::gridid: return 1;
  case Special::dynamicSmem: return config.sharedBytes;
  case Special::totalSmem: return layout.sharedBytes;
  case Special::warpSize: return 32;
  case Special::clusterX: return block.id[0] / cluster.x;
  case Special::clusterY: return block.id[1] / cluster.y;
  case Special::clusterZ: return block.id[2] / cluster.z;
  case Special::nclusterX: return grid.x / cluster.x;
  case Special::nclusterY: return grid.y / cluster.y;
  case Special::nclusterZ: return grid.z / cluster.z;
  case Special::clusterCtaX: return inCluster(0);
  case Special::clusterCtaY: return inCluster(1);
  case Special::clusterCtaZ: return inCluster(2);
  case Special::clusterNctaX: return cluster.x;
  case Special::clusterNctaY: return cluster.y;
  case Special::clusterNctaZ: return cluster.z;
  case Special::clusterRank: return block.clusterRank;
  case Special::clusterSize: return static_cast<uint32_t>(cluster.count());
  case Special::isExplicitCluster: return cluster.count() > 1;
  case Special::zero: return 0;
  }
  return 0;
}

/// A block with its storage, used for one block after the other.
class Resident {
public:
  void start(Launch &launch, uint64_t linear, RaceDetector *race) {
    const Program &program = *launch.program;
    const LaunchConfig &config = launch.config;
    Layout layout = layoutOf(program, config);
    bool fresh = block.program == nullptr;
    if (fresh) {
      block.storage.assign(layout.total + 64, 0);
      block.counts.warps.assign(program.code.size(), 0);
      block.counts.lanes.assign(program.code.size(), 0);
      block.allocationCache.assign(program.code.size(), nullptr);
      block.warps.resize(layout.warps);
    }
    block.launch = &launch;
    block.program = &program;
    block.linear = linear;
    block.id[0] = static_cast<uint32_t>(linear % config.grid.x);
    block.id[1] = static_cast<uint32_t>(linear / config.grid.x % config.grid.y);
    block.id[2] = static_cast<uint32_t>(linear / config.grid.x / config.grid.y);
    block.threads = static_cast<uint32_t>(config.block.count());
    block.sharedBytes = layout.sharedBytes;
    block.dynamicStart = layout.dynamicStart;
    block.race = race;
    block.failed = false;
    block.error = Status();
    block.events = 0;
    block.bulk.clear();
    block.mbarriers.clear();
    for (BarrierState &barrier : block.barriers)
      barrier = {};
    block.random = launch.options->seed ? launch.options->seed * 0x9e3779b97f4a7c15ull + linear : 0;
    uint8_t *base = block.storage.data();
    base += (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64;
    block.shared = base + layout.warps * layout.warpBytes;
    block.shadow = block.shared + layout.shared;
    std::memset(block.shared, 0xff, layout.sharedBytes);
    std::memset(block.shadow, launch.options->checkShared ? 0 : kWritten, layout.sharedBytes);
    block.proxyWriter.assign(program.usesAsyncProxy ? layout.sharedBytes : 0, 0);
    block.liveWarps = layout.warps;
    for (uint32_t id = 0; id < layout.warps; ++id)
      startWarp(block.warps[id], id, base + id * layout.warpBytes, layout, fresh);
    if (race) race->startBlock(block);
  }

  /// One turn for each warp. Counts what waiting warps could see in |events|.
  void round() {
    order.resize(block.warps.size());
    for (size_t index = 0; index < order.size(); ++index)
      order[index] = static_cast<uint32_t>(index);
    if (block.random)
      for (size_t index = order.size(); index > 1; --index)
        std::swap(order[index - 1], order[nextRandom(block.random) % index]);
    waiting = true;
    for (uint32_t id : order) {
      Warp &warp = block.warps[id];
      if (warp.done()) continue;
      warp.budget = block.random ? static_cast<int64_t>(1 + nextRandom(block.random) % 400) : kTurn;
      uint64_t before = warp.instructions;
      runWarp(warp);
      executed += warp.instructions - before;
      if (block.failed) return;
      bool ready = false;
      for (const Fragment &fragment : warp.fragments)
        ready |= fragment.state == FragmentState::ready;
      waiting &= warp.done() || !ready || warp.yield;
    }
    releaseBarriers(block);
  }
  bool done() const { return block.liveWarps == 0; }

  Block block;
  bool waiting = false;
  uint64_t executed = 0;

private:
  void startWarp(Warp &warp, uint32_t id, uint8_t *storage, const Layout &layout, bool fresh) {
    const Program &program = *block.program;
    warp.registers = storage;
    warp.predicates = reinterpret_cast<uint32_t *>(storage + layout.registers);
    warp.local = storage + layout.registers + layout.predicates;
    warp.block = &block;
    warp.code = program.code.data();
    warp.id = id;
    uint32_t lanes = std::min<uint32_t>(32, block.threads - id * 32);
    warp.live = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warp.fragments.assign(1, Fragment{0, warp.live, -1, FragmentState::ready, 0});
    warp.joins.clear();
    warp.current = 0;
    warp.yield = false;
    warp.polled = nullptr;
    warp.clusterArrived = false;
    warp.waited = 0;
    warp.instructions = 0;
    warp.openCopies.clear();
    warp.copyGroups.clear();
    warp.openBulk.clear();
    warp.bulkGroups.clear();
    warp.openMatrix.clear();
    warp.matrixGroups.clear();
    warp.accumulators.clear();
    warp.matrixDirty = true;
    warp.matrixCommitted = 0;
    warp.retry = false;
    warp.defined.assign(program.watchedSlots.size(), 0);
    if (fresh) {
      for (const Program::Constant &constant : program.constants) {
        if (constant.slot & 0x80000000u) warp.predicates[constant.slot & 0x7fffffffu] = static_cast<uint32_t>(constant.value);
        else if (constant.wide) std::fill_n(warp.reg<uint64_t>(constant.slot), 32, constant.value);
        else std::fill_n(warp.reg<uint32_t>(constant.slot), 32, static_cast<uint32_t>(constant.value));
      }
      warp.predicates[0] = ~0u;
    }
    // Registers that may be read before they are written hold the same in every run.
    for (uint32_t slot : program.watchedSlots)
      if (slot != kNoSlot) std::memset(warp.registers + slot, 0xff, 128);
    if (layout.local) std::memset(warp.local, 0xff, layout.local);
    for (const Program::SpecialSlot &special : program.specials)
      for (uint32_t lane = 0; lane < 32; ++lane) {
        uint32_t value = specialValue(block, block.launch->config, layout, special.special, id, lane);
        if (special.special == Special::isExplicitCluster) warp.predicates[special.slot] = value ? ~0u : 0;
        else if (special.wide) warp.reg<uint64_t>(special.slot)[lane] = value;
        else warp.reg<uint32_t>(special.slot)[lane] = value;
      }
  }

  std::vector<uint32_t> order;
};

/// Runs blocks that are resident together until all are done.
Status runGroup(Launch &launch, std::vector<std::unique_ptr<Resident>> &group) {
  unsigned idle = 0;
  uint64_t quiet = 0, lastEvents = UINT64_MAX;
  while (true) {
    bool done = true, waiting = true;
    uint64_t events = 0, executed = 0;
    for (auto &resident : group) {
      if (!resident->done()) {
        uint64_t before = resident->executed;
        resident->round();
        executed += resident->executed - before;
        if (resident->block.failed) return resident->block.error;
        done &= resident->done();
        waiting &= resident->done() || resident->waiting;
      }
      events += resident->block.events;
    }
    if (done) return {};
    if (launch.stop.load(std::memory_order_relaxed)) return makeError(StatusCode::cancelled, "stopped by an error of another block");
    uint64_t total = launch.instructions.fetch_add(executed, std::memory_order_relaxed) + executed;
    if (launch.options->instructionLimit && total > launch.options->instructionLimit)
      return makeError(StatusCode::resourceExhausted, "kernel '%s': more than %" PRIu64 " instructions", launch.program->name.c_str(), launch.options->instructionLimit);
    bool moved = events != lastEvents;
    if (waiting && !moved) {
      // Nobody can go on by himself: let the clusters meet, then let the oldest copy arrive.
      bool helped = false;
      if (!group[0]->block.cluster.empty())
        for (auto &resident : group)
          if (resident->block.clusterRank == 0) helped |= releaseClusterBarrier(resident->block.cluster);
      if (group[0]->block.cluster.empty())
        for (auto &resident : group)
          helped |= releaseClusterBarrier({&resident->block});
      for (auto &resident : group) {
        if (helped) break;
        helped = deliverBulk(resident->block);
        if (resident->block.failed) return resident->block.error;
      }
      moved |= helped;
    }
    if (moved) {
      idle = 0;
      quiet = 0;
    } else {
      quiet += executed;
      idle = waiting ? idle + 1 : 0;
    }
    lastEvents = events;
    for (auto &resident : group)
      if (!resident->done() && (idle > kIdleRounds || quiet > launch.options->spinLimit)) {
        const Block &block = resident->block;
        return makeError(StatusCode::invalidArgument, "kernel '%s': deadlock%s: block (%u, %u, %u)%s%s", launch.program->name.c_str(),
                         idle > kIdleRounds ? "" : " (no store, arrival or exit for a long time)", block.id[0], block.id[1], block.id[2], describeWaiting(block).c_str(),
                         launch.config.cooperative ? "" : "; blocks that wait for each other need a cooperative launch");
      }
  }
}

} // namespace

void Counts::add(const Counts &other) {
  for (size_t index = 0; index < other.warps.size(); ++index) {
    warps[index] += other.warps[index];
    lanes[index] += other.lanes[index];
  }
  globalAccesses += other.globalAccesses;
  globalSectors += other.globalSectors;
  globalIdeal += other.globalIdeal;
  sharedAccesses += other.sharedAccesses;
  sharedCycles += other.sharedCycles;
  sharedIdeal += other.sharedIdeal;
  globalBytesRead += other.globalBytesRead;
  globalBytesWritten += other.globalBytesWritten;
}

Status checkLaunch(const Program &program, LaunchConfig &config) {
  auto named = [&](const char *format, auto... values) {
    return makeError(StatusCode::invalidArgument, format, program.name.c_str(), values...);
  };
  uint64_t threads = config.block.count();
  if (threads == 0 || config.block.x > 1024 || config.block.y > 1024 || config.block.z > 64 || threads > 1024) return named("kernel '%s': expected 1 to 1024 threads in a block, found %u x %u x %u", config.block.x, config.block.y, config.block.z);
  if (config.grid.count() == 0 || config.grid.x > INT32_MAX || config.grid.y > 65535 || config.grid.z > 65535) return named("kernel '%s': expected a grid of up to 2147483647 x 65535 x 65535 blocks, found %u x %u x %u", config.grid.x, config.grid.y, config.grid.z);
  uint64_t most = 1;
  for (uint32_t size : program.maxThreads)
    most *= size ? size : 1;
  if (program.maxThreads[0] && threads > most) return named("kernel '%s': %" PRIu64 " threads in a block, .maxntid allows %" PRIu64, threads, most);
  if (program.exactThreads && (config.block.x != program.maxThreads[0] || config.block.y != program.maxThreads[1] || config.block.z != program.maxThreads[2])) return named("kernel '%s': the block differs from .reqntid");
  if (program.cluster[0]) {
    if (config.cluster.count() == 1) config.cluster = {program.cluster[0], program.cluster[1], program.cluster[2]};
    if (config.cluster.x != program.cluster[0] || config.cluster.y != program.cluster[1] || config.cluster.z != program.cluster[2]) return named("kernel '%s': the cluster differs from .reqnctapercluster");
  }
  if (config.cluster.count() == 0 || config.cluster.x > 16 || config.cluster.y > 16 || config.cluster.z > 16 || config.cluster.count() > 16) return named("kernel '%s': expected a cluster of 1 to 16 blocks");
  if (config.grid.x % config.cluster.x || config.grid.y % config.cluster.y || config.grid.z % config.cluster.z) return named("kernel '%s': the grid is not a multiple of the cluster");
  constexpr uint32_t kMaxShared = 227 * 1024; // sm_90 and sm_100; ptxas checks smaller chips
  uint64_t shared = uint64_t(program.staticShared) + config.sharedBytes;
  if (shared > kMaxShared) return named("kernel '%s': %" PRIu64 " bytes of shared memory, a block has at most %u", shared, kMaxShared);
  return {};
}

Result<Counts> runLaunch(Launch &launch) {
  const Program &program = *launch.program;
  const uint64_t blocks = launch.config.grid.count();
  const uint64_t clusterSize = launch.config.cluster.count();
  Layout layout = layoutOf(program, launch.config);
  uint64_t resident = launch.config.cooperative ? blocks : clusterSize;
  if (launch.config.cooperative && launch.options->residentBlocks && blocks > launch.options->residentBlocks)
    return makeError(StatusCode::invalidArgument, "kernel '%s': a cooperative launch of %" PRIu64 " blocks, expected at most the %u that the device keeps at a time", program.name.c_str(), blocks,
                     launch.options->residentBlocks);
  if (resident * layout.total > kMaxResident)
    return makeError(StatusCode::resourceExhausted, "kernel '%s': %" PRIu64 " resident blocks need %" PRIu64 " bytes each, more than %" PRIu64 " in all", program.name.c_str(), resident, layout.total, kMaxResident);

  Counts total;
  total.warps.assign(program.code.size(), 0);
  total.lanes.assign(program.code.size(), 0);
  std::unique_ptr<RaceDetector> race;
  if (launch.options->checkRaces) race = std::make_unique<RaceDetector>(program);

  // Blocks by group: one, those of a cluster, or all.
  const Dim3 &grid = launch.config.grid, &cluster = launch.config.cluster;
  auto member = [&](uint64_t group, uint64_t index) {
    if (launch.config.cooperative && clusterSize == 1) return index;
    if (clusterSize == 1) return group;
    uint64_t which = launch.config.cooperative ? index / clusterSize : group, rank = index % clusterSize;
    uint64_t gx = grid.x / cluster.x, gy = grid.y / cluster.y;
    uint64_t x = which % gx * cluster.x + rank % cluster.x, y = which / gx % gy * cluster.y + rank / cluster.x % cluster.y,
             z = which / gx / gy * cluster.z + rank / cluster.x / cluster.y;
    return (z * grid.y + y) * grid.x + x;
  };
  const uint64_t groups = launch.config.cooperative ? 1 : blocks / clusterSize;
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  Status first;
  uint64_t firstGroup = UINT64_MAX;
  auto work = [&] {
    std::vector<std::unique_ptr<Resident>> group(resident);
    for (auto &entry : group)
      entry = std::make_unique<Resident>();
    for (uint64_t which; (which = next.fetch_add(1)) < groups;) {
      for (uint64_t index = 0; index < resident; ++index) {
        group[index]->block.clusterRank = static_cast<uint32_t>(index % clusterSize);
        group[index]->start(launch, member(which, index), race.get());
      }
      if (clusterSize > 1)
        for (uint64_t index = 0; index < resident; ++index) {
          group[index]->block.cluster.clear();
          for (uint64_t rank = 0; rank < clusterSize; ++rank)
            group[index]->block.cluster.push_back(&group[index / clusterSize * clusterSize + rank]->block);
        }
      Status status = runGroup(launch, group);
      if (race)
        for (auto &entry : group)
          race->endBlock(entry->block);
      if (!status.ok()) {
        std::lock_guard lock(mutex);
        if (which < firstGroup && status.code() != StatusCode::cancelled) {
          first = std::move(status);
          firstGroup = which;
        }
        launch.stop = true;
        break;
      }
    }
    std::lock_guard lock(mutex);
    for (auto &entry : group)
      if (entry->block.program) total.add(entry->block.counts);
  };
  unsigned threads = launch.options->hostThreads;
  if (race || launch.overlap || program.ordersBlocks || launch.config.cooperative) threads = 1;
  threads = static_cast<unsigned>(std::min<uint64_t>(std::max(threads, 1u), groups));
  std::vector<std::thread> helpers;
  for (unsigned index = 1; index < threads; ++index)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  if (!first.ok()) return first;
  return total;
}

} // namespace lathe::emulator
