//===- ExecControl.cpp - branches, barriers, and what only schedules -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Overlap.h"
#include "runtime/device/emulator/Race.h"

namespace lathe::emulator {
namespace {

Status decodeBranch(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  mods.take("uni");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
  inst.flow = Flow::branch;
  return decoder.label(text.operands[0]);
}
Status decodeIndexedBranch(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("idx")) return decoder.error("expected .idx");
  mods.take("uni");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[0], Type::u32, inst.s[0]));
  inst.flow = Flow::indexed;
  return decoder.labels(text.operands[1], inst);
}
Status decodeReturn(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  mods.take("uni");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 0));
  if (mods.mnemonic() == "exit") {
    inst.flow = Flow::exit;
    return {};
  }
  return decoder.returnFrom(inst);
}
Status decodeTrap(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 0));
  inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) { fail(warp, inst, "the kernel executed a trap", __builtin_ctz(mask)); };
  return {};
}

void warpBarrier(Warp &warp, const Inst &inst, uint32_t mask) {
  if (warp.block->race) warp.block->race->warpBarrier(warp);
}

/// {bar,barrier}{.cta}.{sync,arrive,red...}{.aligned}, bar.warp.sync, barrier.cluster.*
Status decodeBarrier(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  bool isBar = mods.mnemonic() == "bar";
  if (mods.take("warp")) {
    if (!mods.take("sync")) return decoder.error("expected .sync");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[0], Type::b32, inst.target));
    inst.flow = Flow::warpSync;
    inst.imm2 = kWarpBarrier;
    inst.run = warpBarrier;
    return {};
  }
  if (mods.take("cluster")) {
    LATHE_RETURN_IF_ERROR(decoder.require(90, "barrier.cluster"));
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 0));
    mods.takeAny({"release", "relaxed", "acquire"});
    mods.take("aligned");
    decoder.result().usesCluster = true;
    if (mods.take("arrive")) {
      inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
        if (mask != warp.live) return fail(warp, inst, "divergent barrier: barrier.cluster with a part of the warp");
        if (warp.clusterArrived) return fail(warp, inst, "the warp has already arrived at the cluster's barrier");
        warp.clusterArrived = true;
        ++warp.block->events;
      };
      return {};
    }
    if (!mods.take("wait")) return decoder.error("expected .arrive or .wait");
    inst.flow = Flow::barrier;
    inst.imm = kClusterWait;
    return {};
  }
  mods.take("cta");
  bool aligned = mods.take("aligned") || isBar;
  inst.imm2 = aligned;
  inst.flow = Flow::barrier;
  if (mods.take("sync")) {
    inst.imm = 0;
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 2));
  } else if (mods.take("arrive")) {
    inst.imm = 1;
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 2, 2));
  } else if (mods.take("red")) {
    inst.imm = 2;
    std::string_view op = mods.takeAny({"popc", "and", "or"});
    if (op.empty()) return decoder.error("expected .popc, .and or .or");
    Type type = mods.takeType();
    if (type != (op == "popc" ? Type::u32 : Type::pred)) return decoder.error("expected .%s", op == "popc" ? "u32" : "pred");
    inst.imm2 |= op == "and" ? 2 : op == "popc" ? 8 : 4;
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 3, 4));
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::u32, inst.s[0]));
    if (text.operands.size() == 4) LATHE_RETURN_IF_ERROR(decoder.source(text.operands[2], Type::u32, inst.s[1]));
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands.back(), Type::pred, inst.s[2]));
    return decoder.dest(text.operands[0], type, inst.d);
  } else {
    return decoder.error("expected .sync, .arrive or .red");
  }
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[0], Type::u32, inst.s[0]));
  if (text.operands.size() == 2) LATHE_RETURN_IF_ERROR(decoder.source(text.operands[1], Type::u32, inst.s[1]));
  return {};
}

Status decodeSleep(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (!mods.take("u32")) return decoder.error("expected .u32");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
  LATHE_RETURN_IF_ERROR(decoder.source(text.operands[0], Type::u32, inst.s[0]));
  inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) { warp.yield = true; };
  return {};
}

/// setmaxnreg changes time only, griddepcontrol what is ordered with the launches before.
Status decodeHint(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  if (mods.mnemonic() == "setmaxnreg") {
    LATHE_RETURN_IF_ERROR(decoder.targetCapability() >= 100 ? Status() : decoder.requireFeature(90, "setmaxnreg"));
    std::string_view way = mods.takeAny({"inc", "dec"});
    if (way.empty() || !mods.take("sync") || !mods.take("aligned") || !mods.take("u32")) return decoder.error("expected .inc or .dec and .sync.aligned.u32");
    LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 1, 1));
    int64_t count = 0;
    LATHE_RETURN_IF_ERROR(decoder.immediate(text.operands[0], count));
    if (count < 24 || count > 256 || count % 8) return decoder.error("expected 24 to 256 registers, a multiple of 8");
    inst.run = [](Warp &warp, const Inst &inst, uint32_t mask) {
      if (mask != warp.live) fail(warp, inst, "an .aligned instruction with a part of the warp");
    };
    return {};
  }
  std::string_view what = mods.takeAny({"wait", "launch_dependents"});
  if (what.empty()) return decoder.error("expected .wait or .launch_dependents");
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, 0, 0));
  if (what == "wait")
    inst.run = [](Warp &warp, const Inst &, uint32_t mask) {
      if (OverlapCheck *overlap = warp.block->launch->overlap) overlap->wait(warp, mask);
    };
  else
    inst.run = [](Warp &warp, const Inst &, uint32_t mask) {
      if (OverlapCheck *overlap = warp.block->launch->overlap) overlap->launchDependents(warp, mask);
    };
  return {};
}
Status decodeIgnored(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  inst.run = [](Warp &, const Inst &, uint32_t) {};
  return {};
}

} // namespace

void addControlOps(OpTable &table) {
  table.family("bra", decodeBranch, OpClass::control);
  table.family("brx", decodeIndexedBranch, OpClass::control);
  table.family("ret", decodeReturn, OpClass::control);
  table.family("exit", decodeReturn, OpClass::control);
  table.family("trap", decodeTrap, OpClass::control);
  table.family("bar", decodeBarrier, OpClass::barrier);
  table.family("barrier", decodeBarrier, OpClass::barrier);
  table.family("nanosleep", decodeSleep, OpClass::other, 70);
  table.family("setmaxnreg", decodeHint, OpClass::other);
  table.family("griddepcontrol", decodeHint, OpClass::other, 90);
  table.family("pmevent", decodeIgnored, OpClass::other);
  table.family("brkpt", decodeIgnored, OpClass::other);
}

} // namespace lathe::emulator
