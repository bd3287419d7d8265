//===- Gather.cpp - embedding rows, angles -----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "NVPTX/Dequantize.h"
#include "NVPTX/Kernels.h"

namespace lathe::codegen::nvptx {

LogicalResult emitGather(ModuleOp module, StringRef symbol, const GatherParams &p, const Chip &chip) {
  if (p.k < 1 || p.n < 1) return refuse(module, symbol, "expected a table of at least 1 x 1, found " + Twine(p.n) + " x " + Twine(p.k));
  if (p.outStride < p.k) return refuse(module, symbol, "expected outStride of at least " + Twine(p.k) + ", found " + Twine(p.outStride));
  SmallVector<Use> uses{Use::constant, Use::inout};
  if (p.addPositions) uses.push_back(Use::constant);
  GpuEmitter e(module, symbol, chip, 128, uses);
  Dequantizer q(e, p.type);
  const int64_t perBlock = q.w.blockK / 32, tileBytes = packedTileBytes(p.type, p.k);
  Value out = e.at(e.arg(1), e.block, p.outStride * 4), positions;
  if (p.addPositions) positions = e.at(e.arg(2), e.stepInt(offsetof(LatheStep, position), e.block), rowStride(p.k) * 4);
  auto each = [&](llvm::function_ref<Value(Value i)> value) {
    int64_t padded = rowStride(p.k) <= p.outStride ? rowStride(p.k) : p.k; // whole rows keep their padding zero
    auto full = [&](Value i) {
      Value v = value(i);
      return Values{positions ? e.fadd(v, e.ldf(positions, i)) : v};
    };
    e.eachThread(e.c(padded), [&](Value i) {
      Value v = padded == p.k ? full(i)[0]
                              : e.ifElse(
                                    e.lt(i, p.k), e.f32, [&] { return full(i); }, [&] { return Values{e.cf(0)}; })[0];
      e.stf(v, out, i);
    });
  };
  Value given = e.stepPtr(offsetof(LatheStep, embedding)), null = LLVM::ZeroOp::create(e.b, e.loc, e.ptr);
  given = e.ifElse(
      e.isNull(given), e.ptr, [&] { return Values{null}; }, [&] { return Values{e.ld(e.ptr, e.at(given, e.block, 8), 0, 8)}; })[0];
  e.ifElse(
      e.isNull(given), {},
      [&] {
        Value id = e.stepInt(offsetof(LatheStep, token), e.block);
        Value tile = e.at(e.arg(0), e.shru(id, 4), tileBytes), r = e.andc(id, 15), rowScale = q.rowScaleOf(tile, r, p.k);
        each([&](Value i) {
          Value index = e.shru(i, 5);
          Value v = q.element(e.at(tile, e.divc(index, perBlock), q.w.blockBytes), e.remc(index, perBlock), r, e.andc(i, 31), rowScale);
          return p.scale == 1.0f ? v : e.fmul(v, e.cf(p.scale));
        });
        return Values();
      },
      [&] {
        each([&](Value i) { return e.ldf(given, i); });
        return Values();
      });
  e.finish();
  return success();
}

LogicalResult emitAngles(ModuleOp module, StringRef symbol, const AnglesParams &p, const Chip &chip) {
  if (p.half < 1) return refuse(module, symbol, "expected at least one frequency, found " + Twine(p.half));
  GpuEmitter e(module, symbol, chip, 128, {Use::constant, Use::inout});
  Value out = e.at(e.arg(1), e.block, rowStride(2 * p.half) * 4);
  Value position = e.i2f(e.trunc(e.i32, e.stepInt(offsetof(LatheStep, position), e.block)));
  e.eachThread(e.c(p.half), [&](Value i) {
    auto [cosine, sine] = cosSin(e, e.fmul(position, e.ldf(e.arg(0), i)), p.attentionFactor);
    e.stf(cosine, out, i);
    e.stf(sine, out, e.addc(i, p.half));
  });
  if (int64_t pad = rowStride(2 * p.half) - 2 * p.half)
    e.eachThread(e.c(pad), [&](Value i) { e.stf(e.cf(0), out, e.addc(i, 2 * p.half)); });
  e.finish();
  return success();
}

LaunchShape launchShape(const GatherParams &) { return {}; }
LaunchShape launchShape(const AnglesParams &) { return {}; }

} // namespace lathe::codegen::nvptx
