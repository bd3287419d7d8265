//===- Interpreter.cpp - runs the fragments of a warp ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Machine.h"
#include "runtime/device/emulator/Race.h"
#include <cstdarg>

namespace lathe::emulator {

// --- errors ---
void fail(Warp &warp, const Inst &inst, const std::string &message, int lane) {
  Block &block = *warp.block;
  warp.budget = 0;
  if (block.failed) return;
  block.failed = true;
  const InstInfo &info = block.program->infos[inst.info];
  std::string text = "kernel '" + block.program->name + "': ptx line " + std::to_string(info.line) + " (" + std::string(info.opcode) + ")";
  if (info.sourceLine) {
    auto file = block.program->module->files.find(info.sourceFile);
    text += ", source " + (file == block.program->module->files.end() ? std::string("line") : std::string(file->second)) + ":" + std::to_string(info.sourceLine);
  }
  if (std::string_view layer = block.program->layerOf(info.line); !layer.empty()) text += ", layer '" + std::string(layer) + "'";
  text += ": " + message + "; block (" + std::to_string(block.id[0]) + ", " + std::to_string(block.id[1]) + ", " + std::to_string(block.id[2]) + "), warp " + std::to_string(warp.id);
  if (lane >= 0) text += ", lane " + std::to_string(lane);
  block.error = Status(StatusCode::invalidArgument, std::move(text));
}
void failf(Warp &warp, const Inst &inst, int lane, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  fail(warp, inst, text, lane);
}

void notePoll(Warp &warp, const Inst &inst) {
  if (warp.polled && warp.polledAt == warp.block->events) warp.yield = true;
  warp.polled = &inst;
  warp.polledAt = warp.block->events;
}

void setDefined(Warp &warp, uint32_t slot, uint32_t mask, bool defined) {
  const auto &slots = warp.block->program->watchedSlots;
  for (size_t index = 0; index < slots.size(); ++index)
    if (slots[index] == slot) warp.defined[index] = defined ? warp.defined[index] | mask : warp.defined[index] & ~mask;
}

namespace {

// --- fragments and joins ---
void addFragment(Warp &warp, const Fragment &fragment) {
  for (Fragment &old : warp.fragments)
    if (old.state == FragmentState::dead) {
      old = fragment;
      return;
    }
  warp.fragments.push_back(fragment);
}

int32_t newJoin(Warp &warp, uint32_t pc, uint32_t pending, int32_t parent) {
  Join join{pc, pending, 0, parent};
  for (size_t index = 0; index < warp.joins.size(); ++index)
    if (warp.joins[index].pending == 0 && warp.joins[index].arrived == 0) {
      warp.joins[index] = join;
      return static_cast<int32_t>(index);
    }
  warp.joins.push_back(join);
  return static_cast<int32_t>(warp.joins.size() - 1);
}

/// Lets the lanes that met at |index| go on together.
void releaseJoin(Warp &warp, int32_t index) {
  Join &join = warp.joins[static_cast<size_t>(index)];
  if (join.pending != 0) return;
  Fragment merged{join.pc, join.arrived, join.parent, FragmentState::ready, 0};
  join.arrived = 0;
  if (merged.mask) addFragment(warp, merged);
}

void arriveAtBarrier(Warp &warp, const Inst &inst, uint32_t id, uint32_t mask);

/// All lanes of the warp that are left wait at one barrier: the warp has arrived.
void checkBarrierArrival(Warp &warp) {
  uint32_t waiting = 0, id = UINT32_MAX, pc = 0;
  for (const Fragment &fragment : warp.fragments)
    if (fragment.state == FragmentState::barrier) {
      if (id != UINT32_MAX && id != fragment.barrier) return;
      id = fragment.barrier;
      pc = fragment.pc;
      waiting |= fragment.mask;
    }
  if (id != UINT32_MAX && waiting == warp.live && !(warp.block->barriers[id].present >> warp.id & 1)) arriveAtBarrier(warp, warp.code[pc], id, waiting);
}

void exitLanes(Warp &warp, const Inst &inst, uint32_t mask) {
  warp.live &= ~mask;
  for (size_t index = 0; index < warp.joins.size(); ++index)
    if (warp.joins[index].pending & mask) {
      warp.joins[index].pending &= ~mask;
      releaseJoin(warp, static_cast<int32_t>(index));
    }
  ++warp.block->events;
  if (warp.done()) {
    --warp.block->liveWarps;
    finishWarp(warp, inst);
  } else {
    checkBarrierArrival(warp);
  }
}

// --- barriers of the block ---
void arriveAtBarrier(Warp &warp, const Inst &inst, uint32_t id, uint32_t mask) {
  Block &block = *warp.block;
  BarrierState &state = block.barriers[id];
  uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask)), expected = 0;
  if (inst.s[1] != kNoSlot) {
    uint32_t threads = warp.reg<uint32_t>(inst.s[1])[lane];
    if (threads == 0 || threads % 32 || threads > (block.threads + 31) / 32 * 32) return failf(warp, inst, -1, "barrier for %u threads in a block of %u; expected a multiple of 32", threads, block.threads);
    expected = threads / 32;
  } else if (inst.imm == 1) {
    return fail(warp, inst, "an arrive needs the number of threads");
  }
  if (state.counted && state.expected != expected) return failf(warp, inst, -1, "barrier %u is used with %u and with %u threads at the same time", id, state.expected * 32, expected * 32);
  if (inst.imm == 0 && (state.present >> warp.id & 1)) return failf(warp, inst, -1, "the warp has already arrived at barrier %u and it has not completed", id);
  state.expected = expected;
  state.counted = true;
  state.present |= 1u << warp.id;
  ++state.arrived;
  ++block.events;
  if (inst.imm == 2) {
    uint32_t predicate = warp.predicates[inst.s[2]];
    state.count += static_cast<uint32_t>(__builtin_popcount(predicate & mask));
    state.all &= (predicate & mask) == mask;
    state.any |= (predicate & mask) != 0;
  }
  state.waited |= (warp.waited & mask) == mask;
  if (block.race) block.race->barrierArrive(warp, id);
}

/// Returns true when the fragment must wait.
bool executeBarrier(Warp &warp, Fragment &fragment, const Inst &inst, uint32_t mask) {
  if (inst.imm == kClusterWait) {
    if (mask != warp.live) {
      fail(warp, inst, "divergent barrier: barrier.cluster with a part of the warp");
      return false;
    }
    if (!warp.clusterArrived) {
      fail(warp, inst, "barrier.cluster.wait without an arrive before it");
      return false;
    }
    fragment.state = FragmentState::cluster;
    return true;
  }
  uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask));
  uint32_t id = warp.reg<uint32_t>(inst.s[0])[lane];
  bool aligned = inst.imm2 & 1;
  if (id > 15) {
    failf(warp, inst, static_cast<int>(lane), "barrier %u; a block has barriers 0 to 15", id);
    return false;
  }
  bool differs = false;
  eachLane(mask, [&](unsigned other) { differs |= warp.reg<uint32_t>(inst.s[0])[other] != id; });
  if (differs) {
    fail(warp, inst, "lanes of a warp name different barriers");
    return false;
  }
  if (aligned && mask != warp.live) {
    failf(warp, inst, -1, "divergent barrier: lanes 0x%08x are here, lanes 0x%08x of the warp are not", mask, warp.live & ~mask);
    return false;
  }
  if (inst.imm == 1) {
    arriveAtBarrier(warp, inst, id, mask);
    return false;
  }
  if (mask != fragment.mask) { // the guard leaves lanes behind
    Fragment rest = fragment;
    rest.mask = fragment.mask & ~mask;
    rest.pc = fragment.pc + 1;
    fragment.mask = mask;
    fragment.state = FragmentState::barrier;
    fragment.barrier = id;
    addFragment(warp, rest); // may move |fragment|
  } else {
    fragment.state = FragmentState::barrier;
    fragment.barrier = id;
  }
  checkBarrierArrival(warp);
  return true;
}

// --- instructions that wait for lanes ---
/// Returns the lanes to execute for, or 0 when the fragment must wait.
uint32_t gatherLanes(Warp &warp, Fragment &fragment, const Inst &inst, uint32_t mask) {
  const uint32_t *member = warp.reg<uint32_t>(inst.target);
  auto needed = [&](uint32_t lanes) {
    uint32_t all = 0;
    eachLane(lanes, [&](unsigned lane) { all |= member[lane]; });
    return all & warp.live;
  };
  bool outside = false;
  unsigned which = 0;
  eachLane(mask, [&](unsigned lane) {
    if (!(member[lane] >> lane & 1)) outside = true, which = lane;
  });
  if (outside) {
    failf(warp, inst, static_cast<int>(which), "the lane is not in its own member mask 0x%08x", member[which]);
    return 0;
  }
  if ((needed(mask) & ~mask) == 0) return mask;
  uint32_t all = mask;
  for (Fragment &other : warp.fragments)
    if (&other != &fragment && other.state == FragmentState::warpSync && warp.code + other.pc == &inst) all |= other.mask;
  if ((needed(all) & ~all) == 0) {
    for (Fragment &other : warp.fragments)
      if (&other != &fragment && other.state == FragmentState::warpSync && warp.code + other.pc == &inst) {
        other.state = FragmentState::ready;
        ++other.pc;
      }
    return all;
  }
  // Barriers of a warp need not be the same instruction.
  if (inst.imm2 == kWarpBarrier) {
    all = mask;
    for (Fragment &other : warp.fragments)
      if (&other != &fragment && other.state == FragmentState::warpSync && warp.code[other.pc].imm2 == kWarpBarrier && warp.code[other.pc].flow == Flow::warpSync) all |= other.mask;
    if ((needed(all) & ~all) == 0) {
      for (Fragment &other : warp.fragments)
        if (&other != &fragment && other.state == FragmentState::warpSync && warp.code[other.pc].imm2 == kWarpBarrier && warp.code[other.pc].flow == Flow::warpSync) {
          other.state = FragmentState::ready;
          ++other.pc;
        }
      return all;
    }
  }
  if (mask != fragment.mask) {
    Fragment rest = fragment;
    rest.mask = fragment.mask & ~mask;
    rest.pc = fragment.pc + 1;
    fragment.mask = mask;
    fragment.state = FragmentState::warpSync;
    addFragment(warp, rest);
  } else {
    fragment.state = FragmentState::warpSync;
  }
  return 0;
}

bool checkReads(Warp &warp, const Inst &inst, uint32_t mask) {
  const Program &program = *warp.block->program;
  const Program::UseRange range = program.uses[static_cast<size_t>(&inst - warp.code)];
  if (mask == 0) return true;
  for (uint32_t at = range.first; at < range.first + range.count; ++at) {
    const Program::Use &use = program.useList[at];
    if (use.write) continue;
    if (uint32_t missing = mask & ~warp.defined[use.watched]) {
      uint32_t slot = program.watchedSlots[use.watched];
      bool pending = slot != kNoSlot && warp.accumulators.count(slot);
      if (!pending && !warp.block->launch->options->checkRegisters) continue;
      fail(warp, inst, "register " + program.watchedNames[use.watched] + (pending ? " is read before the wgmma.wait_group of its matrix product" : " is read before it is written"), __builtin_ctz(missing));
      return false;
    }
  }
  for (uint32_t at = range.first; at < range.first + range.count; ++at) {
    const Program::Use &use = program.useList[at];
    if (!use.write) continue;
    uint32_t slot = program.watchedSlots[use.watched];
    if (slot != kNoSlot && !warp.accumulators.empty() && warp.accumulators.count(slot)) {
      fail(warp, inst, "register " + program.watchedNames[use.watched] + " is written before the wgmma.wait_group of its matrix product");
      return false;
    }
    warp.defined[use.watched] |= mask;
    // Registers of matrix products: the next one needs a wgmma.fence.
    if (use.watched < program.asyncWatched) warp.matrixDirty = true;
  }
  return true;
}

bool pickFragment(Warp &warp) {
  size_t count = warp.fragments.size();
  for (size_t step = 0; step < count; ++step) {
    size_t index = (warp.current + step) % count;
    if (warp.fragments[index].state == FragmentState::ready) {
      warp.current = static_cast<uint32_t>(index);
      return true;
    }
  }
  return false;
}

} // namespace

void runWarp(Warp &warp) {
  Block &block = *warp.block;
  const Program &program = *block.program;
  const Inst *const code = warp.code;
  uint64_t *const warpCounts = block.counts.warps.data();
  uint64_t *const laneCounts = block.counts.lanes.data();
  const uint32_t end = static_cast<uint32_t>(program.code.size());
  warp.yield = false;
  const int64_t granted = warp.budget;

  while (warp.budget > 0 && !warp.yield && !warp.done() && pickFragment(warp)) {
    uint32_t index = warp.current;
    uint32_t pc = warp.fragments[index].pc, mask = warp.fragments[index].mask;
    int32_t join = warp.fragments[index].join;
    bool running = true;
    while (running && --warp.budget >= 0) {
      const Inst &inst = code[pc];
      if (inst.isJoin && join >= 0 && warp.joins[static_cast<size_t>(join)].pc == pc) {
        Join &meeting = warp.joins[static_cast<size_t>(join)];
        meeting.arrived |= mask;
        meeting.pending &= ~mask;
        warp.fragments[index].state = FragmentState::dead;
        releaseJoin(warp, join);
        ++warp.budget;
        running = false;
        break;
      }
      uint32_t active = mask & (warp.predicates[inst.guard] ^ inst.guardXor);
      warpCounts[pc] += 1;
      laneCounts[pc] += static_cast<uint64_t>(__builtin_popcount(active));
      if (inst.checked && !checkReads(warp, inst, active)) break;
      switch (inst.flow) {
      case Flow::next:
        ++pc;
        if (active) inst.run(warp, inst, active);
        break;
      case Flow::branch:
        if (active == mask) {
          pc = inst.target;
        } else if (active == 0) {
          ++pc;
        } else {
          if (inst.join != end && !(join >= 0 && warp.joins[static_cast<size_t>(join)].pc == inst.join)) join = newJoin(warp, inst.join, mask, join);
          mask &= ~active;
          ++pc;
          Fragment taken{inst.target, active, join, FragmentState::ready, 0};
          warp.fragments[index].mask = mask;
          addFragment(warp, taken);
        }
        break;
      case Flow::indexed: {
        if (!active) {
          ++pc;
          break;
        }
        const uint32_t *which = warp.reg<uint32_t>(inst.s[0]);
        uint32_t left = mask, rest = mask & ~active;
        bool split = false;
        if (inst.join != end && !(join >= 0 && warp.joins[static_cast<size_t>(join)].pc == inst.join)) join = newJoin(warp, inst.join, mask, join);
        uint32_t nextPc = pc + 1, nextMask = rest;
        left = active;
        while (left) {
          unsigned lane = static_cast<unsigned>(__builtin_ctz(left));
          uint32_t value = which[lane], group = 0;
          eachLane(left, [&](unsigned other) { group |= which[other] == value ? 1u << other : 0; });
          left &= ~group;
          if (value >= inst.extraCount) {
            failf(warp, inst, static_cast<int>(lane), "branch index %u, the table has %u targets", value, inst.extraCount);
            break;
          }
          uint32_t to = program.operands[inst.extra + value];
          if (!split && !nextMask) {
            nextPc = to;
            nextMask = group;
          } else {
            addFragment(warp, {to, group, join, FragmentState::ready, 0});
          }
          split = true;
        }
        pc = nextPc;
        mask = nextMask;
        break;
      }
      case Flow::exit:
        if (active) {
          warp.fragments[index].mask = mask & ~active;
          if (mask == active) warp.fragments[index].state = FragmentState::dead;
          exitLanes(warp, inst, active);
          mask &= ~active;
          if (!mask) {
            running = false;
            break;
          }
        }
        ++pc;
        break;
      case Flow::warpSync:
        if (active) {
          warp.fragments[index].pc = pc;
          uint32_t lanes = gatherLanes(warp, warp.fragments[index], inst, active);
          if (warp.budget <= 0 && block.failed) break;
          if (!lanes) {
            running = false;
            --warpCounts[pc];
            laneCounts[pc] -= static_cast<uint64_t>(__builtin_popcount(active));
            break;
          }
          inst.run(warp, inst, lanes);
          mask = warp.fragments[index].mask;
        }
        ++pc;
        break;
      case Flow::barrier:
        if (active) {
          warp.fragments[index].pc = pc;
          if (executeBarrier(warp, warp.fragments[index], inst, active)) {
            running = false;
            break;
          }
        }
        ++pc;
        break;
      }
      if (warp.yield) {
        if (warp.retry) {
          --pc;
          --warpCounts[pc];
          laneCounts[pc] -= static_cast<uint64_t>(__builtin_popcount(active));
          warp.retry = false;
        }
        break;
      }
    }
    if (running) {
      Fragment &fragment = warp.fragments[index];
      fragment.pc = pc;
      fragment.mask = mask;
      fragment.join = join;
    }
    if (block.failed) break;
    warp.current = (index + 1) % static_cast<uint32_t>(warp.fragments.size());
  }
  warp.instructions += static_cast<uint64_t>(granted - std::max<int64_t>(warp.budget, 0));
}

bool releaseBarriers(Block &block) {
  bool released = false;
  for (uint32_t id = 0; id < 16; ++id) {
    BarrierState &state = block.barriers[id];
    if (!state.counted || state.arrived < (state.expected ? state.expected : block.liveWarps)) continue;
    BarrierState done = state;
    state = {};
    if (block.race) block.race->barrierComplete(block, id);
    ++block.events;
    released = true;
    for (Warp &warp : block.warps)
      for (Fragment &fragment : warp.fragments)
        if (fragment.state == FragmentState::barrier && fragment.barrier == id && (done.present >> warp.id & 1)) {
          const Inst &inst = warp.code[fragment.pc];
          if (inst.imm == 2) {
            bool value = inst.imm2 & 2 ? done.all : done.any;
            if (inst.imm2 & 8) eachLane(fragment.mask, [&](unsigned lane) { warp.reg<uint32_t>(inst.d)[lane] = done.count; });
            else warp.predicates[inst.d] = (warp.predicates[inst.d] & ~fragment.mask) | (value ? fragment.mask : 0);
          }
          if (done.waited) warp.waited |= fragment.mask;
          fragment.state = FragmentState::ready;
          ++fragment.pc;
        }
  }
  return released;
}

bool releaseClusterBarrier(const std::vector<Block *> &blocks) {
  bool any = false;
  for (Block *block : blocks)
    for (Warp &warp : block->warps) {
      if (warp.done()) continue;
      if (!warp.clusterArrived) return false;
      for (const Fragment &fragment : warp.fragments)
        if (fragment.state == FragmentState::ready) return false;
      any = true;
    }
  if (!any) return false;
  for (Block *block : blocks) {
    if (block->race) block->race->clusterComplete(blocks);
    ++block->events;
    for (Warp &warp : block->warps) {
      warp.clusterArrived = false;
      for (Fragment &fragment : warp.fragments)
        if (fragment.state == FragmentState::cluster) {
          fragment.state = FragmentState::ready;
          ++fragment.pc;
        }
    }
  }
  return true;
}

std::string describeWaiting(const Block &block) {
  std::string text;
  unsigned listed = 0;
  for (const Warp &warp : block.warps)
    for (const Fragment &fragment : warp.fragments) {
      if (warp.done() || fragment.state == FragmentState::dead || ++listed > 6) continue;
      const InstInfo &info = block.program->infos[warp.code[fragment.pc].info];
      text += "; warp " + std::to_string(warp.id) + " ";
      switch (fragment.state) {
      case FragmentState::barrier: text += "waits at barrier " + std::to_string(fragment.barrier) + ","; break;
      case FragmentState::warpSync: text += "waits for other lanes,"; break;
      case FragmentState::cluster: text += "waits for its cluster,"; break;
      default: text += "polls near"; break;
      }
      text += " line " + std::to_string(info.line) + " (" + std::string(info.opcode) + ")";
    }
  if (listed > 6) text += "; and " + std::to_string(listed - 6) + " more";
  return text;
}

} // namespace lathe::emulator
