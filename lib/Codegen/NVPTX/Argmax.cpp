//===- Argmax.cpp - the largest value of a row and its index -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One block a row: every thread takes the values of its stride, then threads meet by shuffles and warps in shared memory.
//===----------------------------------------------------------------------===//
#include "Common/Largest.h"
#include "NVPTX/GpuEmitter.h"
#include "NVPTX/Kernels.h"

namespace lathe::codegen::nvptx {

constexpr int64_t argmaxThreads = 512;

LaunchShape launchShape(const ArgmaxParams &p) {
  LaunchShape s;
  s.threads = argmaxThreads;
  s.items = p.outRows ? ItemKind::perOutRow : ItemKind::perRow;
  return s;
}

LogicalResult emitArgmax(ModuleOp module, StringRef symbol, const ArgmaxParams &p, const Chip &chip) {
  if (failed(checkArgmax(module, symbol, p))) return failure();
  const int64_t threads = isForBodies(module) ? megakernelThreads : argmaxThreads; // the result is the same
  GpuEmitter e(module, symbol, chip, threads, {Use::in, Use::inout});
  Value x = e.at(e.arg(0), e.block, p.inStride * 4), out = e.at(e.arg(1), e.block, p.outStride * 4);
  Largest best = Largest::none(e, e.cf(0));
  Values seen = e.loop(e.tid, e.c(p.width), e.c(threads), {best.value, best.index}, [&](Value i, ValueRange now) {
    Value index = p.pairs ? e.ldf(x, e.addc(i, p.width)) : e.i2f(e.trunc(e.i32, i));
    Largest next = Largest{now[0], now[1]}.with(e, e.ldf(x, i), index);
    return Values{next.value, next.index};
  });
  best = {seen[0], seen[1]};
  auto meet = [&](int64_t from) {
    for (int64_t mask = from; mask > 0; mask /= 2)
      best = best.merged(e, {e.shuffleXor(best.value, mask), e.shuffleXor(best.index, mask)});
  };
  meet(16);
  // Every warp leaves its pair; the first one reads them all.
  Value shared = e.sharedMemory(8 * e.warps());
  e.when(e.eq(e.lane, 0), [&] {
    e.st(best.value, e.at(shared, e.warp, 8), 0, 4);
    e.st(best.index, e.at(shared, e.warp, 8), 4, 4);
  });
  e.barrier();
  e.when(e.eq(e.warp, 0), [&] {
    Value from = e.at(shared, e.andc(e.lane, e.warps() - 1), 8);
    best = {e.ld(e.f32, from, 0, 4), e.ld(e.f32, from, 4, 4)};
    meet(e.warps() / 2);
    e.when(e.cmp(arith::CmpIPredicate::slt, e.lane, e.c(16)), [&] {
      Value rest = e.select(e.eq(e.lane, 1), best.value, e.cf(0));
      e.stf(e.select(e.eq(e.lane, 0), best.index, rest), out, e.lane);
    });
  });
  e.finish();
  return success();
}

} // namespace lathe::codegen::nvptx
