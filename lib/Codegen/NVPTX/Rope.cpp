//===- Rope.cpp - head norms, rotation, append to the KV cache ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One block a row, one warp a head; a head is worked on in shared memory.
//===----------------------------------------------------------------------===//
#include "NVPTX/GpuEmitter.h"
#include "NVPTX/Kernels.h"

namespace lathe::codegen::nvptx {
namespace {

constexpr int64_t maxHead = 256;

struct RopeAppend : GpuEmitter {
  const RopeAppendParams &p;
  Value angles, qNorm, kNorm, room; ///< room: this warp's floats in shared memory

  static SmallVector<Use> uses(const RopeAppendParams &p) {
    SmallVector<Use> u(5, Use::inout);
    u.append(int(p.qNorm) + int(p.kNorm), Use::constant);
    return u;
  }
  RopeAppend(ModuleOp m, StringRef symbol, const RopeAppendParams &p, const Chip &chip) : GpuEmitter(m, symbol, chip, 128, uses(p)), p(p) {
    room = at(sharedMemory(warps() * maxHead * 4), warp, maxHead * 4);
    angles = p.rope ? at(arg(3), block, rowStride(p.rotaryDim) * 4) : Value();
    qNorm = p.qNorm ? arg(5) : Value(), kNorm = p.kNorm ? arg(p.qNorm ? 6 : 5) : Value();
  }
  void eachLane(int64_t n, llvm::function_ref<void(Value i)> body) { loop(lane, c(n), 32, body); }

  void load(Value x, int64_t n) {
    syncWarp(); // the head before has been read
    eachLane(n, [&](Value i) { stf(ldf(x, i), room, i); });
    syncWarp();
  }
  void normalise(Value weight) {
    Value l = andc(lane, 15), acc = cf(0);
    for (int64_t i = 0; i < p.headDim; i += 16) { // lanes beyond the head add +0
      Value at = addc(l, i), v = i + 16 <= p.headDim ? ldf(room, at) : ldfGuarded(room, at, p.headDim);
      acc = fma(v, v, acc);
    }
    Value ss = fmul(halfTree(acc), cf(float(1.0 / double(p.headDim))));
    Value r = fdiv(cf(1), sqrt(fadd(ss, cf(p.eps))));
    syncWarp();
    eachLane(p.headDim, [&](Value i) { stf(fmul(fmul(ldf(room, i), r), ldf(weight, i)), room, i); });
    syncWarp();
  }
  void rotate() {
    int64_t half = p.rotaryDim / 2;
    eachLane(half, [&](Value i) {
      Value first = p.interleaved ? shl(i, 1) : i, second = p.interleaved ? addc(shl(i, 1), 1) : addc(i, half);
      Value u = ldf(room, first), v = ldf(room, second), co = ldf(angles, i), s = ldf(angles, addc(i, half));
      stf(fma(u, co, fneg(fmul(v, s))), room, first);
      stf(fma(v, co, fmul(u, s)), room, second);
    });
    syncWarp();
  }
  void head(Value x, Value weight) {
    load(x, p.headDim);
    if (weight) normalise(weight);
    if (p.rope) rotate();
  }

  /// room[0 .. n) into the cache: |address|(i) is the place of element i, |scaleAt| that of the scale (bytes).
  void append(int64_t n, KVFormat f, Value scaleAt, llvm::function_ref<Value(Value i)> address) {
    Value inverse;
    if (isByte(f)) {
      Value largest = cf(0);
      for (int64_t i = 0; i < n; i += 32) {
        Value at = addc(lane, i), v = i + 32 <= n ? ldf(room, at) : ldfGuarded(room, at, n);
        largest = fmax(largest, fabs(v));
      }
      Value amax = warpMax(largest), some = fcmp(arith::CmpFPredicate::OGE, amax, cf(1e-30f));
      inverse = select(some, fdiv(cf(byteLimit(f)), amax), cf(0));
      when(eq(lane32, 0), [&] { st(fmul(amax, cf(1.0f / byteLimit(f))), scaleAt, 0, 4); });
    }
    eachLane(n, [&](Value i) {
      Value x = ldf(room, i);
      storeElement(inverse ? fmul(x, inverse) : x, address(i), f);
    });
  }

  void body() {
    auto rows = [&](int i) { return at(arg(i), block, p.qkvStride * 4); };
    Value q = rows(0), k = rows(1), v = rows(2);
    if (p.rope || p.qNorm)
      eachWarp(c(p.qHeads), [&](Value h) {
        Value x = at(q, h, p.headDim * 4);
        head(x, qNorm);
        eachLane(p.headDim, [&](Value i) { stf(ldf(room, i), x, i); });
      });
    if (!p.appendKV) return;
    Value slot = stepInt(offsetof(LatheStep, slot), block), sequence = stepInt(offsetof(LatheStep, sequence), block);
    Value table = ld(ptr, stepPtr(offsetof(LatheStep, blockTable)), 8 * int64_t(p.group), 8);
    Value width = zext(i64, ld(i32, stepPtr(offsetof(LatheStep, tableStride)), 4 * int64_t(p.group), 4));
    Value entry = add(mul(sequence, width), divc(slot, p.page));
    Value kvBlock = sext(i64, ld(i32, at(table, entry, 4), 0, 4)), token = remc(slot, p.page);
    Value base = at(arg(4), kvBlock, p.blockStride);
    int64_t kb = elementBytes(p.k), vb = elementBytes(p.v);
    eachWarp(c(p.kvHeads), [&](Value h) {
      Value keys = at(base, h, p.headStride), values = gepc(keys, cachePlaneBytes(p.page, p.headDim, p.k));
      head(at(k, h, p.headDim * 4), kNorm);
      Value to = gep(at(keys, shru(token, 4), p.headDim * 16 * kb), mulc(andc(token, 15), kb));
      append(p.headDim, p.k, gepc(at(keys, token, 4), p.page * p.headDim), [&](Value i) { return at(to, i, 16 * kb); });
      load(at(v, h, p.valueDim * 4), p.valueDim);
      Value row = at(values, token, p.valueDim * vb);
      append(p.valueDim, p.v, gepc(at(values, token, 4), p.page * p.valueDim), [&](Value i) { return at(row, i, vb); });
    });
  }
};

} // namespace

LogicalResult emitRopeAppend(ModuleOp module, StringRef symbol, const RopeAppendParams &p, const Chip &chip) {
  if (p.appendKV) {
    if (failed(checkCache(module, symbol, p.kvHeads, p.headDim, p.valueDim, p.k, p.v, p.page, p.blockStride, p.headStride))) return failure();
  } else if (failed(checkHeadSize(module, symbol, p.headDim))) {
    return failure();
  }
  if (p.rope && (p.rotaryDim < 2 || p.rotaryDim % 2 || p.rotaryDim > p.headDim))
    return refuse(module, symbol, "expected an even rotary size of 2 to " + Twine(p.headDim) + ", found " + Twine(p.rotaryDim));
  RopeAppend e(module, symbol, p, chip);
  e.body();
  e.finish();
  return success();
}

LaunchShape launchShape(const RopeAppendParams &) { return {}; }

} // namespace lathe::codegen::nvptx
