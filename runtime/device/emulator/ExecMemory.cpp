//===- ExecMemory.cpp - ld, st and the checks of an access -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Overlap.h"
#include "runtime/device/emulator/Race.h"
#include <algorithm>

namespace lathe::emulator {

void laneAddresses(Warp &warp, const Inst &inst, uint32_t mask, uint64_t *out) {
  if (inst.addressWide) {
    const uint64_t *base = warp.reg<uint64_t>(inst.s[0]);
    forLanes(mask, [=](unsigned lane) { out[lane] = base[lane] + static_cast<uint64_t>(inst.offset); });
  } else {
    const uint32_t *base = warp.reg<uint32_t>(inst.s[0]);
    forLanes(mask, [=](unsigned lane) { out[lane] = static_cast<uint32_t>(base[lane] + static_cast<uint32_t>(inst.offset)); });
  }
}

void countGlobal(Warp &warp, uint32_t mask, const uint64_t *address, unsigned bytes, int kind) {
  Counts &counts = warp.block->counts;
  uint64_t sectors[32 * 2];
  unsigned count = 0;
  bool sorted = true;
  uint64_t last = 0, distinctBytes = 0, lastAddress = ~0ull;
  eachLane(mask, [&](unsigned lane) {
    uint64_t first = address[lane] >> 5, end = (address[lane] + bytes - 1) >> 5;
    sorted &= first >= last;
    for (uint64_t sector = first; sector <= end; ++sector)
      if (count == 0 || sectors[count - 1] != sector) sectors[count++] = sector;
    last = end;
    if (address[lane] != lastAddress) distinctBytes += bytes;
    lastAddress = address[lane];
  });
  if (!sorted) {
    std::sort(sectors, sectors + count);
    count = static_cast<unsigned>(std::unique(sectors, sectors + count) - sectors);
    uint64_t all[32];
    unsigned lanes = 0;
    eachLane(mask, [&](unsigned lane) { all[lanes++] = address[lane]; });
    std::sort(all, all + lanes);
    distinctBytes = static_cast<uint64_t>(std::unique(all, all + lanes) - all) * bytes;
  }
  ++counts.globalAccesses;
  counts.globalSectors += count;
  counts.globalIdeal += (distinctBytes + 31) / 32;
  uint64_t moved = static_cast<uint64_t>(__builtin_popcount(mask)) * bytes;
  if (kind != 1) counts.globalBytesRead += moved;
  if (kind != 0) counts.globalBytesWritten += moved;
}

void countShared(Warp &warp, uint32_t mask, const uint64_t *address, unsigned bytes) {
  // 32 banks of 4 bytes: accesses of 8 bytes go by half a warp, of 16 bytes by a quarter.
  const unsigned lanesPerPhase = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  Counts &counts = warp.block->counts;
  ++counts.sharedAccesses;
  for (unsigned first = 0; first < 32; first += lanesPerPhase) {
    uint32_t part = mask & (lanesPerPhase == 32 ? ~0u : ((1u << lanesPerPhase) - 1) << first);
    if (!part) continue;
    uint32_t banks = 0;
    bool conflict = false;
    uint64_t words[32];
    eachLane(part, [&](unsigned lane) {
      for (uint64_t word = address[lane] >> 2; word <= (address[lane] + bytes - 1) >> 2; ++word) {
        uint32_t bank = static_cast<uint32_t>(word & 31);
        if (banks >> bank & 1) conflict |= words[bank] != word;
        banks |= 1u << bank;
        words[bank] = word;
      }
    });
    unsigned cycles = 1;
    if (conflict) {
      uint64_t all[128];
      unsigned count = 0;
      eachLane(part, [&](unsigned lane) {
        for (uint64_t word = address[lane] >> 2; word <= (address[lane] + bytes - 1) >> 2; ++word)
          all[count++] = word;
      });
      std::sort(all, all + count);
      count = static_cast<unsigned>(std::unique(all, all + count) - all);
      unsigned perBank[32] = {};
      for (unsigned index = 0; index < count; ++index)
        cycles = std::max(cycles, ++perBank[all[index] & 31]);
    }
    counts.sharedCycles += cycles;
    ++counts.sharedIdeal;
  }
}

Block *sharedHome(Warp &warp, uint64_t address) {
  uint64_t rank = (address & kWindowMask) >> kClusterShift & 0xff;
  Block &block = *warp.block;
  if (rank == 0) return &block;
  if (block.cluster.empty()) return rank == 1 ? &block : nullptr;
  return rank <= block.cluster.size() ? block.cluster[rank - 1] : nullptr;
}

namespace {

const char *kindName(int kind) { return kind == 0 ? "load" : kind == 1 ? "store" : "atomic"; }

/// Checks the shadow of one access to shared memory. |kind| as in access().
bool checkShadow(Warp &warp, const Inst &inst, Block &block, uint64_t offset, unsigned bytes, int kind, unsigned lane) {
  uint8_t *shadow = block.shadow + offset;
  uint8_t any = 0, all = 0xff;
  for (unsigned byte = 0; byte < bytes; ++byte) {
    any |= shadow[byte];
    all &= shadow[byte];
  }
  if (any & (kPendingWrite | kBarrierObject)) {
    if (any & kBarrierObject) failf(warp, inst, static_cast<int>(lane), "%s of %u bytes at shared offset %u, which holds an mbarrier", kindName(kind), bytes, static_cast<unsigned>(offset));
    else failf(warp, inst, static_cast<int>(lane), "missing wait: %s of %u bytes at shared offset %u, which an asynchronous copy will write", kindName(kind), bytes, static_cast<unsigned>(offset));
    return false;
  }
  if (kind != 1 && !(all & kWritten)) {
    failf(warp, inst, static_cast<int>(lane), "uninitialised shared memory: %s of %u bytes at offset %u", kindName(kind), bytes, static_cast<unsigned>(offset));
    return false;
  }
  if (kind != 0) {
    if (any & kPendingRead) {
      failf(warp, inst, static_cast<int>(lane), "missing wait: %s of %u bytes at shared offset %u, which an asynchronous operation still reads", kindName(kind), bytes, static_cast<unsigned>(offset));
      return false;
    }
    uint8_t set = kWritten;
    if (!block.proxyWriter.empty()) {
      set |= kGeneric;
      std::memset(&block.proxyWriter[offset], static_cast<int>(warp.id + 1), bytes);
    }
    for (unsigned byte = 0; byte < bytes; ++byte)
      shadow[byte] |= set;
  }
  return true;
}

bool accessShared(Warp &warp, const Inst &inst, uint32_t mask, unsigned bytes, int kind, bool strong, Access &out) {
  out.shared = true;
  countShared(warp, mask, out.address, bytes);
  bool good = true;
  eachLane(mask, [&](unsigned lane) {
    if (!good) return;
    Block *home = sharedHome(warp, out.address[lane]);
    uint64_t offset = sharedOffset(out.address[lane]);
    if (!home || offset >= home->sharedBytes || bytes > home->sharedBytes - offset) {
      good = false;
      return failf(warp, inst, static_cast<int>(lane), "shared access out of bounds: %s of %u bytes at offset %lld; the block has %u bytes", kindName(kind), bytes, static_cast<long long>(static_cast<int64_t>(offset)), home ? home->sharedBytes : 0);
    }
    if (!(good = checkShadow(warp, inst, *home, offset, bytes, kind, lane))) return;
    if (home->race && home == warp.block && !home->race->access(warp, inst, lane, true, offset, bytes, kind != 0, kind == 2 || strong)) {
      good = false;
      return;
    }
    out.host[lane] = home->shared + offset;
    if (home != warp.block && kind) ++home->events;
  });
  if (kind) ++warp.block->events;
  return good;
}

bool accessGlobal(Warp &warp, const Inst &inst, uint32_t mask, unsigned bytes, int kind, bool strong, Access &out) {
  Block &block = *warp.block;
  countGlobal(warp, mask, out.address, bytes, kind);
  const Allocation *&cached = block.allocationCache[static_cast<size_t>(&inst - warp.code)];
  bool good = true;
  uint32_t writable = 0;
  eachLane(mask, [&](unsigned lane) {
    uint64_t address = out.address[lane];
    const Allocation *allocation = cached;
    if (!allocation || address < allocation->base || address - allocation->base >= allocation->bytes) cached = allocation = block.launch->memory->find(address);
    if (!allocation || allocation->freed || bytes > allocation->end() - address || (kind && allocation->readOnly)) {
      if (good) fail(warp, inst, block.launch->memory->explain(address, bytes, kind != 0), static_cast<int>(lane));
      good = false;
      return;
    }
    out.host[lane] = allocation->host + (address - allocation->base);
    writable |= allocation->readOnly ? 0 : 1u << lane;
  });
  if (!good) {
    cached = nullptr;
    return false;
  }
  if (block.race)
    eachLane(mask, [&](unsigned lane) { good = good && block.race->access(warp, inst, lane, false, out.address[lane], bytes, kind != 0, kind == 2 || strong); });
  if (OverlapCheck *overlap = block.launch->overlap)
    eachLane(writable, [&](unsigned lane) { good = good && overlap->access(warp, inst, lane, out.address[lane], bytes, kind != 0, inst.nonCoherent); });
  if (kind) ++block.events;
  return good;
}

bool accessLocal(Warp &warp, const Inst &inst, uint32_t mask, unsigned bytes, Access &out) {
  const uint32_t frame = warp.block->program->localBytes;
  bool good = true;
  eachLane(mask, [&](unsigned lane) {
    uint64_t offset = (out.address[lane] & kWindowMask) - kSharedBase;
    if (offset >= frame || bytes > frame - offset) {
      if (good) failf(warp, inst, static_cast<int>(lane), "local access out of bounds: %u bytes at offset %lld; a thread has %u bytes", bytes, static_cast<long long>(static_cast<int64_t>(offset)), frame);
      good = false;
      return;
    }
    out.host[lane] = warp.local + uint64_t(lane) * frame + offset;
  });
  return good;
}

bool accessParam(Warp &warp, const Inst &inst, uint32_t mask, unsigned bytes, int kind, Access &out) {
  Launch &launch = *warp.block->launch;
  const uint32_t size = warp.block->program->parameterBytes;
  bool good = true;
  eachLane(mask, [&](unsigned lane) {
    uint64_t offset = out.address[lane] & kWindowMask;
    if (kind || offset >= size || bytes > size - offset) {
      if (good) failf(warp, inst, static_cast<int>(lane), kind ? "store to a kernel parameter" : "parameter access out of bounds: %u bytes at offset %llu of %u", bytes, static_cast<unsigned long long>(offset), size);
      good = false;
      return;
    }
    out.host[lane] = launch.parameters.data() + offset;
  });
  return good;
}

} // namespace

uint8_t *sharedRange(Warp &warp, const Inst &inst, Block &block, uint64_t offset, uint64_t bytes, int lane) {
  if (offset >= block.sharedBytes || bytes > block.sharedBytes - offset) {
    failf(warp, inst, lane, "shared access out of bounds: %llu bytes at offset %lld; the block has %u bytes", static_cast<unsigned long long>(bytes), static_cast<long long>(static_cast<int64_t>(offset)), block.sharedBytes);
    return nullptr;
  }
  return block.shared + offset;
}

bool checkOverlap(Warp &warp, const Inst &inst, unsigned lane, uint64_t address, uint64_t bytes, bool write) {
  const Launch &launch = *warp.block->launch;
  if (!launch.overlap) return true;
  const Allocation *allocation = launch.memory->find(address);
  return !allocation || allocation->readOnly || launch.overlap->access(warp, inst, lane, address, bytes, write);
}

bool access(Warp &warp, const Inst &inst, uint32_t mask, Space space, unsigned bytes, int kind, Access &out, bool strong) {
  laneAddresses(warp, inst, mask, out.address);
  return accessAt(warp, inst, mask, space, bytes, kind, out, strong);
}
bool accessAt(Warp &warp, const Inst &inst, uint32_t mask, Space space, unsigned bytes, int kind, Access &out, bool strong) {
  uint64_t low = 0;
  eachLane(mask, [&](unsigned lane) { low |= out.address[lane]; });
  if (low & (bytes - 1)) {
    unsigned lane = static_cast<unsigned>(__builtin_ctz(mask));
    eachLane(mask, [&](unsigned other) {
      if (out.address[other] & (bytes - 1) && !(out.address[lane] & (bytes - 1))) lane = other;
    });
    failf(warp, inst, static_cast<int>(lane), "misaligned %s: %u bytes at address 0x%llx", kindName(kind), bytes, static_cast<unsigned long long>(out.address[lane]));
    return false;
  }
  out.shared = false;
  switch (space) {
  case Space::shared: return accessShared(warp, inst, mask, bytes, kind, strong, out);
  case Space::global:
  case Space::constant:
    if (low >> 60) { // a constant in the parameter window, or a wild address
      unsigned lane = static_cast<unsigned>(__builtin_ctz(mask));
      if (out.address[lane] >> 60 == 3) return accessParam(warp, inst, mask, bytes, kind, out);
    }
    return accessGlobal(warp, inst, mask, bytes, kind, strong, out);
  case Space::local: return accessLocal(warp, inst, mask, bytes, out);
  case Space::param: return accessParam(warp, inst, mask, bytes, kind, out);
  case Space::generic: break;
  }
  // Generic: by the window of each lane.
  uint32_t byWindow[4] = {0, 0, 0, 0};
  bool wild = false;
  eachLane(mask, [&](unsigned lane) {
    uint64_t window = out.address[lane] >> 60;
    if (window < 4) byWindow[window] |= 1u << lane;
    else wild = true;
  });
  if (wild) {
    fail(warp, inst, "address outside all state spaces", __builtin_ctz(mask));
    return false;
  }
  if (byWindow[1] && !accessShared(warp, inst, byWindow[1], bytes, kind, strong, out)) return false;
  if (byWindow[0] && !accessGlobal(warp, inst, byWindow[0], bytes, kind, strong, out)) return false;
  if (byWindow[2] && !accessLocal(warp, inst, byWindow[2], bytes, out)) return false;
  if (byWindow[3] && !accessParam(warp, inst, byWindow[3], bytes, kind, out)) return false;
  out.shared = byWindow[1] != 0;
  return true;
}

namespace {

enum Order : uint32_t { weak = 0, relaxed = 1, acquire = 2, release = 4, acqRel = 6 };
constexpr uint32_t kPoll = 8; ///< may be the load of a waiting loop

void orderBefore(Warp &warp, const Inst &inst, uint32_t mask, const Access &where) {
  RaceDetector *race = warp.block->race;
  if (!race || inst.imm == 0) return;
  eachLane(mask, [&](unsigned lane) {
    uint64_t address = where.shared ? sharedOffset(where.address[lane]) : where.address[lane];
    if (inst.imm & release) race->release(warp, where.shared, address);
    else race->relaxedWrite(warp, where.shared, address);
  });
}
void orderAfter(Warp &warp, const Inst &inst, uint32_t mask, const Access &where) {
  RaceDetector *race = warp.block->race;
  if (!race || inst.imm == 0) return;
  eachLane(mask, [&](unsigned lane) {
    uint64_t address = where.shared ? sharedOffset(where.address[lane]) : where.address[lane];
    if (inst.imm & acquire) race->acquire(warp, where.shared, address);
    else race->relaxedRead(warp, where.shared, address);
  });
}

/// E: the element in memory, R: the lane of the register (uint32_t or uint64_t); signed E is extended.
template <typename E, typename R> void load(Warp &warp, const Inst &inst, uint32_t mask) {
  Access where;
  if (!access(warp, inst, mask, inst.space, inst.bytes * inst.vector, 0, where, inst.imm != 0)) return;
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  for (unsigned element = 0; element < inst.vector; ++element) {
    R *d = warp.reg<R>(slots[element]);
    auto one = [&](unsigned lane) {
      E value;
      std::memcpy(&value, where.host[lane] + element * sizeof(E), sizeof(E));
      if constexpr (std::is_signed_v<E>) d[lane] = static_cast<R>(static_cast<std::make_signed_t<R>>(value));
      else d[lane] = value;
    };
    if (mask == ~0u)
      for (unsigned lane = 0; lane < 32; ++lane)
        one(lane);
    else eachLane(mask, one);
  }
  if (inst.imm2 == 16) // sign-extended to a 16-bit register
    for (unsigned element = 0; element < inst.vector; ++element)
      eachLane(mask, [&](unsigned lane) { warp.reg<R>(slots[element])[lane] &= 0xffff; });
  orderAfter(warp, inst, mask, where);
  if (inst.imm & kPoll) notePoll(warp, inst);
}
template <typename E, typename R> void store(Warp &warp, const Inst &inst, uint32_t mask) {
  Access where;
  if (!access(warp, inst, mask, inst.space, inst.bytes * inst.vector, 1, where, inst.imm != 0)) return;
  orderBefore(warp, inst, mask, where);
  const uint32_t *slots = &warp.block->program->operands[inst.extra];
  for (unsigned element = 0; element < inst.vector; ++element) {
    const R *a = warp.reg<R>(slots[element]);
    eachLane(mask, [&](unsigned lane) {
      E value = static_cast<E>(a[lane]);
      std::memcpy(where.host[lane] + element * sizeof(E), &value, sizeof(E));
    });
  }
}

template <typename R> Handler loadOf(Type type) {
  switch (type) {
  case Type::s8: return load<int8_t, R>;
  case Type::s16: return load<int16_t, R>;
  case Type::s32: return load<int32_t, R>;
  default:
    switch (typeBits(type)) {
    case 8: return load<uint8_t, R>;
    case 16: return load<uint16_t, R>;
    case 32: return load<uint32_t, R>;
    case 64: return load<uint64_t, uint64_t>;
    default: return nullptr;
    }
  }
}
template <typename R> Handler storeOf(Type type) {
  switch (typeBits(type)) {
  case 8: return store<uint8_t, R>;
  case 16: return store<uint16_t, R>;
  case 32: return store<uint32_t, R>;
  case 64: return store<uint64_t, uint64_t>;
  default: return nullptr;
  }
}

/// Modifiers that do not change a result: caching, prefetching, eviction.
void takeHints(Modifiers &mods) {
  static constexpr std::initializer_list<std::string_view> hints = {
      "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
      "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B", "L2::evict_last", "L2::evict_normal", "L2::evict_first", "unified"};
  for (std::string_view hint : hints)
    mods.take(hint);
}

Status decodeSpace(Decoder &decoder, Modifiers &mods, Space &space) {
  struct Entry { std::string_view name; Space space; };
  static constexpr Entry entries[] = {{"global", Space::global}, {"shared", Space::shared}, {"shared::cta", Space::shared}, {"shared::cluster", Space::shared},
                                      {"local", Space::local},   {"const", Space::constant}, {"param", Space::param},        {"param::entry", Space::param}, {"param::func", Space::param}};
  space = Space::generic;
  for (const Entry &entry : entries)
    if (mods.take(entry.name)) {
      space = entry.space;
      return {};
    }
  return {};
}

Status decodeAccess(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  bool isLoad = mods.mnemonic() == "ld" || mods.mnemonic() == "ldu";
  std::string_view order = mods.takeAny({"volatile", "relaxed", "acquire", "release", "weak", "mmio"});
  std::string_view scope = mods.takeAny({"cta", "cluster", "gpu", "sys"});
  bool hinted = mods.has("L2::cache_hint");
  takeHints(mods);
  bool nonCoherent = mods.take("nc");
  LATHE_RETURN_IF_ERROR(decodeSpace(decoder, mods, inst.space));
  if (mods.mnemonic() == "ldu") nonCoherent = true;
  std::string_view vector = mods.takeAny({"v2", "v4", "v8"});
  inst.vector = vector.empty() ? 1 : static_cast<uint8_t>(vector[1] - '0');
  Type type = mods.takeType();
  if (type == Type::none || type == Type::pred) return decoder.error("expected a type");
  if (typeBits(type) > 64) return decoder.error("an access of .%s is not modelled", typeName(type));
  if (isLoad && order == "release") return decoder.error("a load cannot be a release");
  if (!isLoad && order == "acquire") return decoder.error("a store cannot be an acquire");
  if ((order == "relaxed" || order == "acquire" || order == "release") && scope.empty()) return decoder.error("expected a scope such as .gpu");
  if (order == "relaxed" || order == "acquire" || order == "release") LATHE_RETURN_IF_ERROR(decoder.require(70, "an ordered access"));
  if (order == "acquire") inst.imm = acquire;
  else if (order == "release") inst.imm = release;
  else if (order == "relaxed" || order == "volatile" || order == "mmio") inst.imm = relaxed;
  if (isLoad && inst.imm && inst.space != Space::local) inst.imm |= kPoll;
  if (inst.imm && inst.space != Space::shared && inst.space != Space::local) decoder.result().ordersBlocks = true;
  if (nonCoherent && inst.space != Space::global) return decoder.error(".nc is for global memory");
  inst.nonCoherent = nonCoherent;
  inst.bytes = static_cast<uint8_t>(typeBits(type) / 8);
  unsigned total = inst.bytes * inst.vector;
  if (total > 32 || (total == 32 && decoder.targetCapability() < 100)) return decoder.error("an access of %u bytes needs sm_100", total);
  size_t count = hinted ? 3 : 2;
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, count, count));
  const Operand &address = text.operands[isLoad ? 1 : 0], &data = text.operands[isLoad ? 0 : 1];
  // ld.param and st.param of a device function are accesses to the caller's local memory.
  if (inst.space == Space::param && !decoder.isEntryParameter(address)) inst.space = Space::local;
  decoder.opClass = isLoad ? (inst.space == Space::shared ? OpClass::sharedLoad : OpClass::load) : inst.space == Space::shared ? OpClass::sharedStore : OpClass::store;
  if (inst.space == Space::shared || inst.space == Space::generic || inst.space == Space::global) decoder.noteGranule(inst.space, inst.bytes * inst.vector);
  LATHE_RETURN_IF_ERROR(decoder.address(address, inst, 0));
  size_t parts = data.kind == Operand::Kind::vector ? data.parts.size() : 1;
  if (parts != inst.vector) return decoder.error("expected %u elements, found %zu", inst.vector, parts);
  bool anyWide = false, anyNarrow = false;
  inst.extra = static_cast<uint32_t>(decoder.result().operands.size());
  std::vector<uint32_t> slots;
  for (size_t index = 0; index < parts; ++index) {
    const Operand &part = data.kind == Operand::Kind::vector ? data.parts[index] : data;
    uint32_t slot = kNoSlot;
    bool wide = false;
    if (isLoad) LATHE_RETURN_IF_ERROR(decoder.destRelaxed(part, type, slot, wide));
    else LATHE_RETURN_IF_ERROR(decoder.sourceRelaxed(part, type, slot, wide));
    if (part.kind == Operand::Kind::name || part.kind == Operand::Kind::sink) (wide ? anyWide : anyNarrow) = true;
    slots.push_back(slot);
    if (isLoad && decoder.registerBits(part) == 16 && type == Type::s8) inst.imm2 = 16;
  }
  if (anyWide && anyNarrow) return decoder.error("the registers of a vector have different sizes");
  inst.extra = static_cast<uint32_t>(decoder.result().operands.size());
  inst.extraCount = inst.vector;
  for (uint32_t slot : slots)
    decoder.result().operands.push_back(slot);
  bool wide = anyWide || (typeBits(type) == 64);
  inst.run = isLoad ? (wide ? loadOf<uint64_t>(type) : loadOf<uint32_t>(type)) : (wide ? storeOf<uint64_t>(type) : storeOf<uint32_t>(type));
  return {};
}

Status decodeNothing(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &) {
  // prefetch, applypriority, discard, createpolicy's users: no effect on results.
  while (!mods.takeNext().empty()) {
  }
  decoder.handled = true;
  return {};
}
Status decodePolicy(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  while (!mods.takeNext().empty()) {
  }
  if (text.operands.empty()) return decoder.error("expected a result");
  inst.run = LATHE_UNARY(uint64_t, uint64_t, a);
  inst.s[0] = decoder.constant(0, true);
  return decoder.dest(text.operands[0], Type::b64, inst.d);
}

} // namespace

void addMemoryOps(OpTable &table) {
  for (const char *name : {"ld", "ldu", "st"})
    table.family(name, decodeAccess, OpClass::load);
  for (const char *name : {"prefetch", "prefetchu", "applypriority", "discard"})
    table.family(name, decodeNothing, OpClass::other);
  table.family("createpolicy", decodePolicy, OpClass::other, 80);
}

} // namespace lathe::emulator
