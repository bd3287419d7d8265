//===- Machine.h - state of a running launch ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A launch has blocks, a block has warps, a warp has fragments: sets of lanes with one program counter.
// Lanes that a branch separates become two fragments and meet at the branch's post-dominator. Any
// fragment can be scheduled, so lanes that wait for lanes of the same warp make progress, as they do
// from sm_70 on.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Emulator.h"
#include "runtime/device/emulator/Memory.h"
#include "runtime/device/emulator/Program.h"
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <unordered_map>

namespace lathe::emulator {

/// Inst.imm2 of bar.warp.sync, which may be matched by another one.
inline constexpr uint32_t kWarpBarrier = 0x100;
/// Inst.imm of a barrier: 0 sync, 1 arrive, 2 red, and:
inline constexpr uint32_t kClusterWait = 4;

class OverlapCheck;
class RaceDetector;
struct Block;
struct Launch;

/// What the shadow of a byte of shared memory says.
enum ShadowBit : uint8_t {
  kWritten = 1,      ///< has a value
  kPendingWrite = 2, ///< an asynchronous copy that nobody has waited for will write it
  kPendingRead = 4,  ///< an asynchronous operation that nobody has waited for may still read it
  kBarrierObject = 8, ///< part of an mbarrier
  kGeneric = 16,     ///< written by ordinary stores and not yet fenced for the asynchronous proxy
};

enum class FragmentState : uint8_t { ready, warpSync, barrier, cluster, dead };

struct Fragment {
  uint32_t pc = 0, mask = 0;
  int32_t join = -1;
  FragmentState state = FragmentState::ready;
  uint32_t barrier = 0; ///< which one, while waiting
};

/// Where the lanes of a divergent branch meet.
struct Join {
  uint32_t pc = 0, pending = 0, arrived = 0;
  int32_t parent = -1;
};

struct AsyncCopy { // cp.async of one lane
  uint64_t source = 0;
  uint32_t target = 0, bytes = 0, copied = 0; ///< the rest is zeros
  uint32_t lane = 0;
};

/// What cp.async.commit_group closed for some lanes.
struct CopyGroup {
  uint32_t lanes = 0;
  std::vector<AsyncCopy> copies;
};

/// A wgmma.mma_async whose result has not been asked for.
struct MatrixOp {
  const Inst *inst = nullptr;
  uint64_t descA = 0, descB = 0;
  bool scaleD = true;
  std::vector<uint32_t> a; ///< A from registers: 32 lanes of each
  bool computed = false;
  std::vector<uint32_t> chunks; ///< offsets of the 16-byte pieces of shared memory that it reads
};

/// A bulk copy in flight.
struct BulkOp {
  enum class Kind : uint8_t { load, tensorLoad, store, tensorStore, sharedToCluster, reduce } kind = Kind::load;
  const Inst *inst = nullptr;
  uint64_t global = 0;   ///< address, or the tensor map's
  uint32_t shared = 0;   ///< offset in the block's shared memory
  uint32_t barrier = 0;  ///< offset of the mbarrier
  uint32_t bytes = 0;
  Block *home = nullptr; ///< block of |shared| and |barrier|
  int32_t coordinates[5] = {0, 0, 0, 0, 0};
  uint32_t lane = 0;
  bool readDone = false; ///< of a store: its source has been read
  std::vector<uint8_t> data; ///< what a store has read
};

struct Warp {
  // Read by every executor.
  uint8_t *registers = nullptr;
  uint32_t *predicates = nullptr;
  Block *block = nullptr;
  const Inst *code = nullptr;
  int64_t budget = 0; ///< instructions left of its turn; a failure sets it to 0
  uint32_t id = 0;
  uint32_t live = 0;  ///< lanes that have not exited
  bool yield = false; ///< ask the scheduler for another turn
  bool retry = false; ///< with |yield|: the instruction has done nothing and runs again

  std::vector<Fragment> fragments;
  std::vector<Join> joins;
  uint32_t current = 0;

  std::vector<uint32_t> defined; ///< per watched register: lanes that may read it
  uint8_t *local = nullptr;      ///< 32 frames of Program.localBytes

  const Inst *polled = nullptr;  ///< last failed poll and the block's event count then
  uint64_t polledAt = 0;

  std::vector<AsyncCopy> openCopies;             ///< since the last cp.async.commit_group
  std::deque<CopyGroup> copyGroups;
  std::vector<BulkOp> openBulk;
  std::deque<std::vector<BulkOp>> bulkGroups;    ///< bulk stores
  std::vector<MatrixOp> openMatrix;
  std::deque<std::vector<MatrixOp>> matrixGroups;
  uint64_t matrixCommitted = 0; ///< groups so far; the last matrixGroups.size() of them are not released
  std::unordered_map<uint32_t, std::vector<uint32_t>> accumulators; ///< slot -> values of a poisoned accumulator
  bool matrixDirty = true; ///< registers of matrix products were written since the last wgmma.fence
  bool clusterArrived = false;
  uint32_t waited = 0; ///< lanes that have executed griddepcontrol.wait, or met one that has at a barrier

  uint64_t instructions = 0;

  template <typename T> T *reg(uint32_t slot) { return reinterpret_cast<T *>(registers + slot); }
  bool done() const { return live == 0; }
};

struct BarrierState {
  uint32_t arrived = 0;  ///< warps
  uint32_t expected = 0; ///< warps; 0: all of the block
  bool counted = false;  ///< |expected| is known
  uint32_t present = 0;  ///< mask of warps that have arrived
  uint32_t count = 0;    ///< bar.red: lanes whose predicate was true
  bool all = true, any = false;
  bool waited = false; ///< a warp that has arrived had executed griddepcontrol.wait
};

/// An mbarrier object, kept beside the 8 bytes that stand for it.
struct MBarrier {
  int64_t count = 0, pending = 0, tx = 0;
  uint64_t phase = 0;
};

/// One counter set per static instruction.
struct Counts {
  std::vector<uint64_t> warps, lanes; ///< executions, and lanes of them
  uint64_t globalAccesses = 0, globalSectors = 0, globalIdeal = 0;
  uint64_t sharedAccesses = 0, sharedCycles = 0, sharedIdeal = 0;
  uint64_t globalBytesRead = 0, globalBytesWritten = 0;
  void add(const Counts &other);
};

struct Block {
  Launch *launch = nullptr;
  const Program *program = nullptr;
  uint32_t id[3] = {0, 0, 0};
  uint64_t linear = 0;
  uint32_t threads = 0;

  uint8_t *shared = nullptr; ///< sharedBytes, the first byte at address kSharedBase
  uint8_t *shadow = nullptr; ///< ShadowBits of each
  std::vector<uint8_t> proxyWriter; ///< warp + 1 of the last ordinary store, in programs with an asynchronous proxy
  uint32_t sharedBytes = 0;
  uint32_t dynamicStart = 0;

  std::vector<Warp> warps;
  uint32_t liveWarps = 0;
  BarrierState barriers[16];
  std::unordered_map<uint32_t, MBarrier> mbarriers; ///< by shared offset
  std::deque<BulkOp> bulk; ///< loads in flight (lazy mode)

  uint64_t events = 0; ///< changes that a waiting warp could see
  bool failed = false;
  Status error;
  Counts counts;
  std::vector<const Allocation *> allocationCache; ///< by instruction
  uint64_t random = 0;
  RaceDetector *race = nullptr;

  std::vector<uint8_t> storage; ///< backs |shared|, |shadow|, registers and local memory
  std::vector<Block *> cluster; ///< blocks of the cluster by rank; empty: this one alone
  uint32_t clusterRank = 0;
};

struct Launch {
  const Program *program = nullptr;
  const Options *options = nullptr;
  GlobalMemory *memory = nullptr;
  OverlapCheck *overlap = nullptr; ///< null: not checked
  LaunchConfig config;
  std::vector<uint8_t> parameters;
  uint64_t instructionLimit = 0;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> instructions{0};
};

/// Records the first error of a block, with PTX line, source line, layer, block, warp and lane, and ends the turn.
[[gnu::cold]] void fail(Warp &warp, const Inst &inst, const std::string &message, int lane = -1);
[[gnu::cold, gnu::format(printf, 4, 5)]] void failf(Warp &warp, const Inst &inst, int lane, const char *format, ...);

template <typename F> inline void eachLane(uint32_t mask, F &&body) {
  for (; mask; mask &= mask - 1)
    body(static_cast<unsigned>(__builtin_ctz(mask)));
}

/// A load or wait found nothing new. Twice at the same place without any event: the warp gives its turn away.
void notePoll(Warp &warp, const Inst &inst);
/// Lets the warps go that wait at a barrier whose count is reached; true when some did.
bool releaseBarriers(Block &block);
/// The same for barrier.cluster of |blocks|.
bool releaseClusterBarrier(const std::vector<Block *> &blocks);
/// What a block waits for, for a report of a deadlock.
std::string describeWaiting(const Block &block);

/// Runs one turn of |warp|. Returns when its budget is used, it waits, yields, is done or has failed.
void runWarp(Warp &warp);

/// Sets a watched register's lanes to defined or undefined; |slot| that is not watched is ignored.
void setDefined(Warp &warp, uint32_t slot, uint32_t mask, bool defined);

// --- memory, in ExecMemory.cpp ---
struct Access {
  uint64_t address[32];
  uint8_t *host[32];
  bool shared = false;
};
/// Generic addresses of the lanes.
void laneAddresses(Warp &warp, const Inst &inst, uint32_t mask, uint64_t *out);
/// Checks bounds and alignment of one access per lane, records it in the counters and the race check.
/// |kind|: 0 load, 1 store, 2 atomic. |strong|: relaxed, acquire, release or volatile; such accesses do not race with
/// each other. Returns false after a failure.
bool access(Warp &warp, const Inst &inst, uint32_t mask, Space space, unsigned bytes, int kind, Access &out, bool strong = false);
/// The same with the addresses in |out|.
bool accessAt(Warp &warp, const Inst &inst, uint32_t mask, Space space, unsigned bytes, int kind, Access &out, bool strong = false);
/// Shared memory for an asynchronous engine: bounds only. nullptr after a failure.
uint8_t *sharedRange(Warp &warp, const Inst &inst, Block &block, uint64_t offset, uint64_t bytes, int lane);
/// The block whose shared memory a shared or generic address names; nullptr: no such block.
Block *sharedHome(Warp &warp, uint64_t address);
/// Offset into shared memory of a generic or shared address.
inline uint64_t sharedOffset(uint64_t address) {
  return (address & kWindowMask & ((1ull << kClusterShift) - 1)) - kSharedBase;
}
/// Checks an asynchronous access to global memory at its issue against launches that may run at the same time. Returns false after a failure.
bool checkOverlap(Warp &warp, const Inst &inst, unsigned lane, uint64_t address, uint64_t bytes, bool write);
void countShared(Warp &warp, uint32_t mask, const uint64_t *address, unsigned bytes);
void countGlobal(Warp &warp, uint32_t mask, const uint64_t *address, unsigned bytes, int kind);

// --- asynchronous engines ---
/// Lands the oldest bulk load of |block|; false when there is none.
bool deliverBulk(Block &block);
/// Checks that nothing asynchronous is left when a warp ends.
void finishWarp(Warp &warp, const Inst &inst);

} // namespace lathe::emulator
