//===- Program.h - a kernel decoded for execution ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Registers are slots of a warp's register file: 32 lanes of 4 bytes (types up to 32 bits) or of 8
// bytes (64 bits), lane after lane. A predicate is one 32-bit mask. Immediates, addresses of variables
// and special registers are slots too, filled before the kernel starts, so that an executor reads
// registers only. Calls are inlined while decoding.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Ptx.h"
#include <cstdint>
#include <string>
#include <vector>

namespace lathe::emulator {

struct Warp;
struct Inst;
/// Executes one instruction for the lanes of |mask| (never 0).
using Handler = void (*)(Warp &warp, const Inst &inst, uint32_t mask);

inline constexpr uint32_t kNoSlot = UINT32_MAX;

/// How an instruction moves the program counter.
enum class Flow : uint8_t {
  next,
  branch,   ///< to |target| where the guard holds
  indexed,  ///< brx.idx
  exit,
  warpSync, ///< .sync with a member mask: waits for the lanes it names
  barrier,  ///< bar / barrier.cta
};

/// Classes of instructions in reports.
enum class OpClass : uint8_t { integer, floating, convert, move, control, load, store, sharedLoad, sharedStore, atomic, barrier, warp, matrix, async, other };
inline constexpr unsigned kOpClasses = 15;
const char *opClassName(OpClass opClass);

struct Inst {
  Handler run = nullptr;
  uint32_t guard = 0;     ///< predicate slot; slot 0 is always true
  uint32_t guardXor = 0;  ///< ~0 for @!p
  uint32_t d = kNoSlot, d2 = kNoSlot;
  uint32_t s[4] = {kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  int64_t offset = 0;     ///< displacement of an address
  uint32_t target = 0, join = 0; ///< code indices; |join|: where lanes meet again
  uint32_t extra = 0, extraCount = 0; ///< more slots, in Program.operands
  uint32_t imm = 0, imm2 = 0;
  uint32_t info = 0;      ///< index into Program.infos
  Space space = Space::generic;
  Flow flow = Flow::next;
  uint8_t bytes = 0, vector = 1; ///< of a memory access: element size and number of elements
  bool nonCoherent = false;      ///< a load through the read-only path
  bool addressWide = false;      ///< address register has 64 bits
  bool isJoin = false;           ///< some branch's lanes meet here
  bool checked = false;          ///< reads or writes a register that needs a check when it runs
  bool counted = true;           ///< false for the moves that decoding adds
};

/// What a message or a report needs to know of an instruction.
struct InstInfo {
  uint32_t line = 0, sourceLine = 0, sourceFile = 0;
  std::string_view opcode;
  OpClass opClass = OpClass::other;
};

enum class Special : uint8_t {
  tidX, tidY, tidZ, ntidX, ntidY, ntidZ, ctaidX, ctaidY, ctaidZ, nctaidX, nctaidY, nctaidZ, laneid, warpid, nwarpid, smid, nsmid,
  lanemaskEq, lanemaskLe, lanemaskLt, lanemaskGe, lanemaskGt, gridid, dynamicSmem, totalSmem, warpSize,
  clusterX, clusterY, clusterZ, nclusterX, nclusterY, nclusterZ, clusterCtaX, clusterCtaY, clusterCtaZ, clusterNctaX, clusterNctaY,
  clusterNctaZ, clusterRank, clusterSize, isExplicitCluster, zero,
};

struct Parameter {
  std::string_view name;
  uint32_t offset = 0, bytes = 0, align = 1;
};

/// An entry function, ready to run.
struct Program {
  std::string name;
  std::vector<Inst> code;
  std::vector<InstInfo> infos;
  std::vector<uint32_t> operands;
  uint32_t registerBytes = 0, predicates = 1;
  struct Constant { uint32_t slot; bool wide; uint64_t value; };
  std::vector<Constant> constants;
  struct SpecialSlot { uint32_t slot; Special special; bool wide; };
  std::vector<SpecialSlot> specials;

  /// Registers whose state is followed while running: some path may read them before it writes them, or an
  /// asynchronous instruction owns them for a while. |uses| says for each checked instruction which it touches.
  struct Use { uint32_t watched; bool write; };
  struct UseRange { uint32_t first = 0, count = 0; };
  std::vector<UseRange> uses; ///< parallel to |code|
  std::vector<Use> useList;
  std::vector<uint32_t> watchedSlots; ///< watched index -> register slot
  std::vector<std::string> watchedNames;
  uint32_t asyncWatched = 0; ///< the first ones belong to asynchronous instructions

  std::vector<Parameter> parameters;
  uint32_t parameterBytes = 0;
  uint32_t staticShared = 0;      ///< bytes, from kSharedBase
  uint32_t dynamicAlign = 16;     ///< of the .extern shared arrays
  uint32_t localBytes = 0;        ///< per lane
  std::array<uint32_t, 3> maxThreads{0, 0, 0}, cluster{0, 0, 0};
  bool exactThreads = false;

  unsigned sharedGranule = 4, globalGranule = 4; ///< bytes of the smallest access: what the race check distinguishes
  bool ordersBlocks = false;   ///< has atomics or ordered accesses on global memory: blocks run in order
  bool usesAsyncProxy = false; ///< reads or writes shared memory by bulk copies or wgmma
  bool usesCluster = false;
  const ParsedModule *module = nullptr;

  std::string_view layerOf(uint32_t line) const;
};

} // namespace lathe::emulator
