//===- ExecBulk.cpp - cp.async.bulk and tensor maps ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Data Movement and Conversion Instructions: Tensor Copy", "Swizzling Modes". Lazy mode: a load
// arrives when everybody waits; a store reads and writes when its group is waited for, at the latest when
// its warp ends.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Async.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Overlap.h"
#include "runtime/device/emulator/Race.h"
#include <cinttypes>

namespace lathe::emulator {
namespace {

constexpr uint32_t kMapMagic = 0x4c544d31;
struct EncodedMap {
  uint32_t magic, rank, elementBytes, swizzle;
  uint64_t address;
  uint64_t stride[4];
  uint32_t size[5], box[5], elementStride[5];
  uint32_t fillNaN;
};
static_assert(sizeof(EncodedMap) <= 128);

bool lazy(const Warp &warp) { return warp.block->launch->options->mode == AsyncMode::lazy; }

/// Offset of a byte of a box in the swizzled tile. The pattern repeats on the absolute shared address.
uint64_t swizzled(uint64_t address, uint32_t swizzle) {
  switch (swizzle) {
  case 1: return address ^ (address >> 3 & 0x10);  // 32 B: bit 4 ^= bit 7
  case 2: return address ^ (address >> 3 & 0x30);  // 64 B: bits 4..5 ^= bits 7..8
  case 3: return address ^ (address >> 3 & 0x70);  // 128 B: bits 4..6 ^= bits 7..9
  default: return address;
  }
}

bool readMap(Warp &warp, const Inst &inst, uint64_t address, EncodedMap &map, int lane) {
  const uint8_t *bytes = nullptr;
  if (address % 64) {
    fail(warp, inst, "misaligned tensor map: expected an address that is a multiple of 64", lane);
    return false;
  }
  if (address >> 60 == 3) {
    uint64_t offset = address & kWindowMask;
    if (offset + sizeof(TensorMapBytes) <= warp.block->launch->parameters.size()) bytes = warp.block->launch->parameters.data() + offset;
  } else if (auto found = warp.block->launch->memory->resolve(address & kWindowMask, sizeof(TensorMapBytes), false); found.ok()) {
    bytes = *found;
  }
  if (bytes) std::memcpy(&map, bytes, sizeof(map));
  if (!bytes || map.magic != kMapMagic) {
    failf(warp, inst, lane, "no tensor map at 0x%" PRIx64, address);
    return false;
  }
  return true;
}

uint64_t boxBytes(const EncodedMap &map) {
  uint64_t bytes = map.elementBytes;
  for (uint32_t axis = 0; axis < map.rank; ++axis)
    bytes *= (map.box[axis] + map.elementStride[axis] - 1) / map.elementStride[axis];
  return bytes;
}

/// Calls |body|(shared address, global address or 0 when outside, bytes) for each row of the box.
template <typename F> bool eachRow(const EncodedMap &map, const int32_t *coordinates, uint64_t shared, F &&body) {
  uint32_t index[5] = {0, 0, 0, 0, 0}, count[5] = {1, 1, 1, 1, 1};
  for (uint32_t axis = 0; axis < map.rank; ++axis)
    count[axis] = (map.box[axis] + map.elementStride[axis] - 1) / map.elementStride[axis];
  uint64_t at = shared;
  for (index[4] = 0; index[4] < count[4]; ++index[4])
    for (index[3] = 0; index[3] < count[3]; ++index[3])
      for (index[2] = 0; index[2] < count[2]; ++index[2])
        for (index[1] = 0; index[1] < count[1]; ++index[1])
          for (index[0] = 0; index[0] < count[0]; ++index[0]) {
            bool inside = true;
            uint64_t global = map.address;
            for (uint32_t axis = 0; axis < map.rank; ++axis) {
              int64_t position = int64_t(coordinates[axis]) + int64_t(index[axis]) * map.elementStride[axis];
              inside &= position >= 0 && position < int64_t(map.size[axis]);
              global += static_cast<uint64_t>(position) * (axis ? map.stride[axis - 1] : map.elementBytes);
            }
            if (!body(swizzled(at, map.swizzle), inside ? global : 0)) return false;
            at += map.elementBytes;
          }
  return true;
}

void markShadow(Block &block, uint64_t offset, uint64_t bytes, uint8_t set, uint8_t clear) {
  for (uint64_t byte = 0; byte < bytes; ++byte)
    block.shadow[offset + byte] = static_cast<uint8_t>((block.shadow[offset + byte] & ~clear) | set);
}

/// Bytes that a load will write: free of everything in flight.
bool claimTarget(Warp &warp, const Inst &inst, Block &home, uint64_t offset, uint64_t bytes, int lane) {
  if (!sharedRange(warp, inst, home, offset, bytes, lane)) return false;
  for (uint64_t byte = 0; byte < bytes; ++byte) {
    uint8_t flags = home.shadow[offset + byte];
    if (flags & (kPendingWrite | kPendingRead | kBarrierObject)) {
      failf(warp, inst, lane, "bulk copy to shared offset %u, which %s", static_cast<unsigned>(offset + byte), flags & kPendingRead ? "an asynchronous operation still reads" : flags & kPendingWrite ? "another copy in flight will write" : "holds an mbarrier");
      return false;
    }
  }
  if (home.race && !home.race->asyncAccess(warp, inst, home, offset, bytes, true)) return false;
  markShadow(home, offset, bytes, kPendingWrite, 0);
  return true;
}

bool performLoad(Warp &warp, const BulkOp &op) {
  const Inst &inst = *op.inst;
  Block &home = *op.home;
  uint64_t bytes = op.bytes;
  if (op.kind == BulkOp::Kind::tensorLoad) {
    EncodedMap map;
    if (!readMap(warp, inst, op.global, map, static_cast<int>(op.lane))) return false;
    const GlobalMemory &memory = *warp.block->launch->memory;
    bool good = eachRow(map, op.coordinates, op.shared + kSharedBase, [&](uint64_t address, uint64_t global) {
      uint8_t *target = home.shared + (address - kSharedBase);
      if (!global) {
        std::memset(target, map.fillNaN ? 0x7f : 0, map.elementBytes);
        if (map.fillNaN) std::memset(target, 0xff, map.elementBytes);
        return true;
      }
      const Allocation *allocation = memory.find(global);
      if (!allocation || allocation->freed || global + map.elementBytes > allocation->end()) {
        fail(warp, inst, "tensor copy: " + memory.explain(global, map.elementBytes, false), static_cast<int>(op.lane));
        return false;
      }
      std::memcpy(target, allocation->host + (global - allocation->base), map.elementBytes);
      return true;
    });
    if (!good) return false;
  } else if (op.kind == BulkOp::Kind::sharedToCluster) {
    std::memcpy(home.shared + op.shared, op.data.data(), op.bytes);
  } else {
    auto source = warp.block->launch->memory->resolve(op.global, op.bytes, false);
    if (!source.ok()) {
      fail(warp, inst, source.status().message(), static_cast<int>(op.lane));
      return false;
    }
    std::memcpy(home.shared + op.shared, *source, op.bytes);
  }
  markShadow(home, op.shared, bytes, kWritten, kPendingWrite | kGeneric);
  if (!home.proxyWriter.empty()) std::memset(&home.proxyWriter[op.shared], 0, bytes);
  auto barrier = home.mbarriers.find(op.barrier);
  if (barrier == home.mbarriers.end()) {
    failf(warp, inst, static_cast<int>(op.lane), "the mbarrier at shared offset %u was gone when the copy arrived", op.barrier);
    return false;
  }
  transactBarrier(home, barrier->second, -static_cast<int64_t>(bytes));
  return true;
}

bool readStore(Warp &warp, BulkOp &op) {
  if (op.readDone) return true;
  op.readDone = true;
  op.data.assign(op.home->shared + op.shared, op.home->shared + op.shared + op.bytes);
  markShadow(*op.home, op.shared, op.bytes, 0, kPendingRead);
  return true;
}
bool writeStore(Warp &warp, BulkOp &op) {
  const Inst &inst = *op.inst;
  if (!readStore(warp, op)) return false;
  ++warp.block->events;
  const GlobalMemory &memory = *warp.block->launch->memory;
  if (op.kind == BulkOp::Kind::store) {
    auto target = memory.resolve(op.global, op.bytes, true);
    if (!target.ok()) {
      fail(warp, inst, target.status().message(), static_cast<int>(op.lane));
      return false;
    }
    std::memcpy(*target, op.data.data(), op.bytes);
    return true;
  }
  EncodedMap map;
  if (!readMap(warp, inst, op.global, map, static_cast<int>(op.lane))) return false;
  return eachRow(map, op.coordinates, op.shared + kSharedBase, [&](uint64_t address, uint64_t global) {
    if (!global) return true; // outside the tensor: not written
    auto target = memory.resolve(global, map.elementBytes, true);
    if (!target.ok()) {
      fail(warp, inst, "tensor copy: " + target.status().message(), static_cast<int>(op.lane));
      return false;
    }
    std::memcpy(*target, op.data.data() + (address - kSharedBase - op.shared), map.elementBytes);
    return true;
  });
}

void issueLoad(Warp &warp, const Inst &inst, BulkOp op) {
  const int lane = static_cast<int>(op.lane);
  if (!claimTarget(warp, inst, *op.home, op.shared, op.bytes, lane)) return;
  if (!findBarrier(warp, inst, *op.home, op.barrier, lane)) return;
  warp.block->counts.globalBytesRead += op.bytes;
  if (lazy(warp)) op.home->bulk.push_back(std::move(op));
  else performLoad(warp, op);
}

// imm: rank | kind << 8 | multicast << 12; s[0] shared address, s[1] global address or map, s[2] bytes or source, s[3] mbarrier,
// d2: multicast mask. Coordinates in extra.
void bulkCopy(Warp &warp, const Inst &inst, uint32_t mask) {
  uint64_t address[32];
  laneAddresses(warp, inst, mask, address);
  const auto kind = static_cast<BulkOp::Kind>(inst.imm >> 8 & 15);
  const uint32_t rank = inst.imm & 0xff;
  const bool tensor = kind == BulkOp::Kind::tensorLoad || kind == BulkOp::Kind::tensorStore;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  eachLane(mask, [&](unsigned lane) {
    Block &block = *warp.block;
    if (block.failed) return;
    const int at = static_cast<int>(lane);
    BulkOp op;
    op.kind = kind;
    op.inst = &inst;
    op.lane = lane;
    op.home = sharedHome(warp, address[lane]);
    if (!op.home) return fail(warp, inst, "address of a block that the cluster does not have", at);
    uint64_t offset = sharedOffset(address[lane]);
    if (offset >= op.home->sharedBytes) return failf(warp, inst, at, "shared access out of bounds: bulk copy at offset %lld", static_cast<long long>(static_cast<int64_t>(offset)));
    op.shared = static_cast<uint32_t>(offset);
    op.global = warp.reg<uint64_t>(inst.s[1])[lane];
    EncodedMap map{};
    if (tensor) {
      if (!readMap(warp, inst, op.global, map, at)) return;
      if (map.rank != rank) return failf(warp, inst, at, "the tensor map has rank %u, the copy %u", map.rank, rank);
      for (uint32_t axis = 0; axis < rank; ++axis)
        op.coordinates[axis] = static_cast<int32_t>(warp.reg<uint32_t>(slots[axis])[lane]);
      op.bytes = static_cast<uint32_t>(boxBytes(map));
      if (op.shared % 128) return failf(warp, inst, at, "misaligned tensor tile at shared offset %u; expected a multiple of 128", op.shared);
      uint32_t repeat = map.swizzle == 3 ? 1024 : map.swizzle == 2 ? 512 : map.swizzle == 1 ? 256 : 128;
      if (op.bytes > repeat && op.shared % repeat) return failf(warp, inst, at, "misaligned tensor tile at shared offset %u; its swizzle repeats every %u bytes", op.shared, repeat);
    } else {
      op.bytes = warp.reg<uint32_t>(inst.s[2])[lane];
      if (op.bytes == 0 || op.bytes % 16 || op.shared % 16 || (kind != BulkOp::Kind::sharedToCluster && op.global % 16)) return failf(warp, inst, at, "misaligned bulk copy of %u bytes between 0x%" PRIx64 " and shared offset %u; all must be multiples of 16", op.bytes, op.global, op.shared);
      op.global &= kWindowMask;
    }
    const bool writes = kind == BulkOp::Kind::store || kind == BulkOp::Kind::tensorStore;
    if (tensor && block.launch->overlap) {
      auto inOrder = [&](uint64_t, uint64_t global) { return !global || checkOverlap(warp, inst, lane, global, map.elementBytes, writes); };
      if (!eachRow(map, op.coordinates, op.shared + kSharedBase, inOrder)) return;
    } else if (!tensor && kind != BulkOp::Kind::sharedToCluster && !checkOverlap(warp, inst, lane, op.global, op.bytes, writes)) {
      return;
    }
    if (writes) {
      if (!checkProxyRead(warp, inst, block, op.shared, op.bytes, at)) return;
      if (block.race && !block.race->asyncAccess(warp, inst, block, op.shared, op.bytes, false)) return;
      block.counts.globalBytesWritten += op.bytes;
      if (lazy(warp)) {
        markShadow(block, op.shared, op.bytes, kPendingRead, 0);
        warp.openBulk.push_back(std::move(op));
      } else {
        writeStore(warp, op);
      }
      return;
    }
    uint64_t barrier = warp.reg<uint64_t>(inst.s[3])[lane];
    op.barrier = static_cast<uint32_t>(sharedOffset(barrier));
    if (kind == BulkOp::Kind::sharedToCluster) {
      uint64_t from = sharedOffset(op.global);
      if (!sharedRange(warp, inst, block, from, op.bytes, at) || !checkProxyRead(warp, inst, block, from, op.bytes, at)) return;
      op.data.assign(block.shared + from, block.shared + from + op.bytes);
      op.home = sharedHome(warp, address[lane]);
      return issueLoad(warp, inst, std::move(op));
    }
    if (inst.d2 == kNoSlot) return issueLoad(warp, inst, std::move(op));
    // Multicast: the same offsets in every block of the mask.
    uint32_t blocks = warp.reg<uint32_t>(inst.d2)[lane] & 0xffff;
    size_t size = block.cluster.empty() ? 1 : block.cluster.size();
    if (blocks >> size) return failf(warp, inst, at, "multicast to blocks 0x%x of a cluster of %zu", blocks, size);
    for (size_t which = 0; which < size && !block.failed; ++which)
      if (blocks >> which & 1) {
        BulkOp copy = op;
        copy.home = block.cluster.empty() ? &block : block.cluster[which];
        issueLoad(warp, inst, std::move(copy));
      }
  });
}

// s[0] address, s[2] bytes. Nothing changes, but what is asked for must be there.
void bulkPrefetch(Warp &warp, const Inst &inst, uint32_t mask) {
  uint64_t address[32];
  laneAddresses(warp, inst, mask, address);
  eachLane(mask, [&](unsigned lane) {
    if (warp.block->failed) return;
    const int at = static_cast<int>(lane);
    const uint32_t bytes = warp.reg<uint32_t>(inst.s[2])[lane];
    if (bytes == 0 || bytes % 16 || address[lane] % 16) return failf(warp, inst, at, "misaligned bulk prefetch of %u bytes at 0x%" PRIx64 "; both must be multiples of 16", bytes, address[lane]);
    if (auto source = warp.block->launch->memory->resolve(address[lane] & kWindowMask, bytes, false); !source.ok()) fail(warp, inst, source.status().message(), at);
  });
}

void commitBulk(Warp &warp, const Inst &inst, uint32_t mask) {
  warp.bulkGroups.push_back(std::move(warp.openBulk));
  warp.openBulk.clear();
}
void waitBulk(Warp &warp, const Inst &inst, uint32_t mask) {
  bool readOnly = inst.imm2;
  size_t keep = inst.imm, count = warp.bulkGroups.size();
  for (size_t index = 0; index + keep < count; ++index)
    for (BulkOp &op : warp.bulkGroups[index])
      if (!(readOnly ? readStore(warp, op) : writeStore(warp, op))) return;
  if (!readOnly)
    while (warp.bulkGroups.size() > keep)
      warp.bulkGroups.pop_front();
  refreshPendingReads(*warp.block);
}

} // namespace

bool checkProxyRead(Warp &warp, const Inst &inst, Block &block, uint64_t offset, uint64_t bytes, int lane) {
  if (!sharedRange(warp, inst, block, offset, bytes, lane)) return false;
  for (uint64_t byte = offset; byte < offset + bytes; ++byte) {
    uint8_t flags = block.shadow[byte];
    const char *what = nullptr;
    if (flags & kPendingWrite) what = "missing wait: an asynchronous copy will write it";
    else if (flags & kBarrierObject) what = "it holds an mbarrier";
    else if (!(flags & kWritten)) what = "uninitialised shared memory";
    else if (flags & kGeneric) what = "missing fence.proxy.async: ordinary stores have written it";
    if (what) {
      failf(warp, inst, lane, "asynchronous read of shared offset %u: %s", static_cast<unsigned>(byte), what);
      return false;
    }
  }
  return true;
}

void refreshPendingReads(Block &block) {
  auto mark = [&](const BulkOp &op) {
    if (!op.readDone) markShadow(*op.home, op.shared, op.bytes, kPendingRead, 0);
  };
  for (const Warp &warp : block.warps) {
    for (const BulkOp &op : warp.openBulk)
      mark(op);
    for (const auto &group : warp.bulkGroups)
      for (const BulkOp &op : group)
        mark(op);
    for (const auto &group : warp.matrixGroups)
      for (const MatrixOp &op : group)
        for (uint32_t chunk : op.chunks)
          markShadow(block, chunk, 16, kPendingRead, 0);
    for (const MatrixOp &op : warp.openMatrix)
      for (uint32_t chunk : op.chunks)
        markShadow(block, chunk, 16, kPendingRead, 0);
  }
}

bool deliverBulk(Block &block) {
  if (block.bulk.empty()) return false;
  size_t which = 0;
  if (block.random) { // any order is allowed
    block.random = block.random * 6364136223846793005ull + 1442695040888963407ull;
    which = (block.random >> 33) % block.bulk.size();
  }
  BulkOp op = std::move(block.bulk[which]);
  block.bulk.erase(block.bulk.begin() + static_cast<ptrdiff_t>(which));
  performLoad(block.warps[0], op);
  return true;
}

void finishWarp(Warp &warp, const Inst &inst) {
  Block &block = *warp.block;
  if (block.failed) return;
  if (block.launch->overlap) block.launch->overlap->end(warp);
  for (auto *groups : {&warp.bulkGroups})
    for (auto &group : *groups)
      for (BulkOp &op : group) {
        if (!op.readDone) return fail(warp, *op.inst, "missing wait: the warp ends while a bulk store may still read its shared memory");
        writeStore(warp, op);
      }
  if (!warp.openBulk.empty()) return fail(warp, *warp.openBulk.front().inst, "missing wait: the warp ends and the bulk store is in no committed group");
  if (!warp.matrixGroups.empty() || !warp.openMatrix.empty()) return fail(warp, inst, "missing wait: the warp ends with matrix products in flight");
  if (block.liveWarps == 0 && !block.bulk.empty()) return fail(warp, *block.bulk.front().inst, "missing wait: the block ends while a bulk copy is in flight");
}

Status decodeBulk(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  LATHE_RETURN_IF_ERROR(decoder.require(90, "cp.async.bulk"));
  decoder.result().usesAsyncProxy = true;
  if (mods.take("commit_group")) {
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 0));
    inst.run = commitBulk;
    return {};
  }
  if (mods.take("wait_group")) {
    inst.imm2 = mods.take("read");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
    int64_t keep = 0;
    LATHE_RETURN_IF_ERROR(decoder.immediate(text.operands[0], keep));
    inst.imm = static_cast<uint32_t>(std::min<uint64_t>(static_cast<uint64_t>(keep), UINT32_MAX));
    inst.run = waitBulk;
    return {};
  }
  if (mods.take("prefetch")) {
    const bool tiles = mods.has("tensor");
    while (!mods.takeNext().empty()) {
    }
    decoder.handled = tiles; // what a tensor map says is not followed
    if (tiles) return {};
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 3));
    inst.run = bulkPrefetch;
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::u32, inst.s[2]));
    return decoder.address(text.operands[0], inst, 0);
  }
  bool tensor = mods.take("tensor");
  uint32_t rank = 0;
  if (tensor) {
    std::string_view dimensions = mods.takeAny({"1d", "2d", "3d", "4d", "5d"});
    if (dimensions.empty()) return decoder.error("expected .1d to .5d");
    rank = static_cast<uint32_t>(dimensions[0] - '0');
    mods.take("tile");
  }
  // The first space is the target, the second the source.
  std::string_view target = mods.takeNext(), source = mods.takeNext();
  bool toShared = target == "shared::cluster" || target == "shared::cta";
  bool fromShared = source == "shared::cta";
  bool multicast = mods.take("multicast::cluster"), hinted = mods.take("L2::cache_hint");
  BulkOp::Kind kind;
  if (toShared && source == "global") kind = tensor ? BulkOp::Kind::tensorLoad : BulkOp::Kind::load;
  else if (target == "global" && fromShared) kind = tensor ? BulkOp::Kind::tensorStore : BulkOp::Kind::store;
  else if (toShared && fromShared && !tensor) kind = BulkOp::Kind::sharedToCluster;
  else return decoder.error("copy from '%.*s' to '%.*s' is not modelled", static_cast<int>(source.size()), source.data(), static_cast<int>(target.size()), target.data());
  bool load = kind != BulkOp::Kind::store && kind != BulkOp::Kind::tensorStore;
  if (load ? !mods.take("mbarrier::complete_tx::bytes") : !mods.take("bulk_group")) return decoder.error("expected .%s", load ? "mbarrier::complete_tx::bytes" : "bulk_group");
  if (multicast && !load) return decoder.error("a store has no .multicast");
  inst.imm = rank | static_cast<uint32_t>(kind) << 8;
  inst.run = bulkCopy;
  size_t count = (tensor ? 2 : 3) + (load ? 1 : 0) + multicast + hinted;
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, count, count));
  const Operand &shared = text.operands[load ? 0 : 1], &global = text.operands[load ? 1 : 0];
  Operand plain = global;
  plain.parts.clear();
  LATHE_RETURN_IF_ERROR(decoder.addressValue(plain, inst.s[1]));
  if (tensor) {
    if (global.parts.size() != 1 || global.parts[0].kind != Operand::Kind::vector || global.parts[0].parts.size() != rank) return decoder.error("expected %u coordinates", rank);
    LATHE_RETURN_IF_ERROR(decoder.sources(global.parts[0], Type::b32, inst));
  } else {
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[2], Type::u32, inst.s[2]));
  }
  if (load) {
    LATHE_RETURN_IF_ERROR(decoder.addressValue(text.operands[tensor ? 2 : 3], inst.s[3]));
    if (multicast) LATHE_RETURN_IF_ERROR(decoder.source(text.operands[tensor ? 3 : 4], Type::b16, inst.d2));
  }
  return decoder.address(shared, inst, 0);
}

void addBulkOps(OpTable &) {} // under the mnemonic cp, in ExecCopy.cpp

Result<TensorMapBytes> encodeTensorMap(const TensorMapDescription &d) {
  auto bad = [](const char *what, uint32_t axis = 0, uint32_t found = 0) {
    std::string text = std::string("tensor map: ") + what;
    for (uint32_t value : {axis, found})
      if (size_t at = text.find("%u"); at != text.npos) text.replace(at, 2, std::to_string(value));
    return Status(StatusCode::invalidArgument, std::move(text));
  };
  if (d.rank < 1 || d.rank > 5) return bad("expected rank 1 to 5, found %u", d.rank);
  if (d.elementBytes != 1 && d.elementBytes != 2 && d.elementBytes != 4 && d.elementBytes != 8) return bad("expected elements of 1, 2, 4 or 8 bytes, found %u", d.elementBytes);
  if (d.address % 16 || d.address == 0) return bad("expected an address that is a multiple of 16");
  EncodedMap map{};
  map.magic = kMapMagic;
  map.rank = d.rank;
  map.elementBytes = d.elementBytes;
  map.swizzle = static_cast<uint32_t>(d.swizzle);
  map.address = d.address;
  map.fillNaN = d.fillNaN;
  for (uint32_t axis = 0; axis < d.rank; ++axis) {
    if (d.size[axis] == 0 || d.size[axis] > (1ull << 32)) return bad("size %u must be 1 to 2^32", axis);
    if (d.box[axis] == 0 || d.box[axis] > 256) return bad("box %u must be 1 to 256, found %u", axis, d.box[axis]);
    if (d.elementStride[axis] == 0 || d.elementStride[axis] > 8) return bad("element stride %u must be 1 to 8", axis);
    if (axis && (d.stride[axis] % 16 || d.stride[axis] >= (1ull << 40))) return bad("stride %u must be a multiple of 16 below 2^40", axis);
    map.size[axis] = static_cast<uint32_t>(std::min<uint64_t>(d.size[axis], UINT32_MAX));
    map.box[axis] = d.box[axis];
    map.elementStride[axis] = d.elementStride[axis];
    if (axis) map.stride[axis - 1] = d.stride[axis];
  }
  uint32_t inner = d.box[0] * d.elementBytes, span = d.swizzle == TensorSwizzle::bytes128 ? 128 : d.swizzle == TensorSwizzle::bytes64 ? 64 : 32;
  if (inner % 16) return bad("the inner box has %u bytes, expected a multiple of 16", inner);
  if (d.swizzle != TensorSwizzle::none && inner > span) return bad("the inner box has %u bytes, the swizzle spans %u", inner, span);
  TensorMapBytes bytes{};
  std::memcpy(bytes.data(), &map, sizeof(map));
  return bytes;
}

} // namespace lathe::emulator
