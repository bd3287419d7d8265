//===- Matmul.cpp - quantized matrix times activations ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A call walks its units of output tiles once per row super-block, and all row blocks of the super-block per unit: a
// tile is read from memory once and meets activations that stay in L2. The 16 lanes are 16 outputs.
//===----------------------------------------------------------------------===//
#include "X86/Matmul.h"
#include "Common/Largest.h"
#include "lathe/Codegen/Operands.h"

namespace lathe::codegen {

int64_t matmulTilesPerUnit(const MatmulParams &p) { return p.epilogue == MatmulParams::gateUp ? 4 : p.epilogue == MatmulParams::argmax ? argmaxRun / 16 : 1; }
int64_t matmulUnits(const MatmulParams &p) {
  int64_t rows = 16 * matmulTilesPerUnit(p);
  return (p.n + rows - 1) / rows;
}

KernelCost cost(const MatmulParams &p) {
  KernelCost c;
  c.weightBytes = uint64_t(packedBytes(p.type, p.n, p.k));
  c.macsPerRow = uint64_t(p.n) * uint64_t(p.k);
  // Bytes are those of the widest form: avx512bf16 reads half as many of bf16 activations. With other weights bf16 activations are multiplied in float32 too (docs/exactness.md).
  bool bf16 = (p.type == StorageType::bf16 || p.type == StorageType::e4m3) && p.act == ActFormat::bf16;
  c.arithmetic = isInt8(p.act) ? Arithmetic::int8 : bf16 ? Arithmetic::bf16 : Arithmetic::f32;
  int64_t out =
      p.epilogue == MatmulParams::gateUp   ? activationLayout(p.n / 2, p.outAct, p.outHalves).blockBytes / 16
      : p.epilogue == MatmulParams::argmax ? 8 * matmulUnits(p)
                                           : 4 * p.n;
  c.bytesPerRow = uint64_t(activationLayout(p.k, p.act, p.halves).blockBytes / 16 + out + (p.residual ? 4 * p.n : 0));
  return c;
}

uint64_t scratchBytes(const MatmulParams &) { return MatmulEmitter::scratchBytes; }

static LogicalResult verify(ModuleOp module, StringRef symbol, const MatmulParams &p, X86Target target) {
  auto error = [&]() { return module.emitError() << "matmul '" << symbol << "': "; };
  PackedLayout w = packedLayout(p.type);
  if (target.variant == artifact::Variant::none) return error() << "expected an x86 code variant, found 'none'";
  if (p.n <= 0 || p.k <= 0) return error() << "expected positive n and k, found " << p.n << " and " << p.k;
  if (packedTileBytes(p.type, p.k) > INT32_MAX || activationLayout(p.k, p.act, p.halves).blockBytes > INT32_MAX)
    return error() << "k = " << p.k << " is too large for one tile";
  if (const char *wrong = operandError(p.type, p.act)) return error() << wrong;
  if (w.subK == 16 && isInt8(p.act) && !p.halves)
    return error() << "expected activations with half sums for scales of 16 k";
  if (p.epilogue == MatmulParams::gateUp) {
    if (p.n % 64) return error() << "expected a multiple of 64 weight rows for a gate/up epilogue, found " << p.n;
    if (p.bias || p.residual) return error() << "a gate/up epilogue takes no bias and no residual";
    if (p.activation != Activation::silu && p.activation != Activation::geluTanh)
      return error() << "expected silu or gelu_tanh in a gate/up epilogue";
  } else if (p.epilogue == MatmulParams::argmax) {
    if (p.n > int64_t(1) << 24 || p.residual || p.outStride < 2 * matmulUnits(p))
      return error() << "expected at most 16777216 outputs, no residual and an output stride of at least " << 2 * matmulUnits(p) << " in an argmax epilogue, found " << p.n << " outputs, "
                     << (p.residual ? "a" : "no") << " residual and " << p.outStride;
  } else if (p.outStride < rowStride(p.n) && p.outStride != p.n)
    return error() << "expected an output stride of at least " << p.n << ", found " << p.outStride;
  return success();
}

/// Row |r| of the 4 tiles of |mb| rows of 16 in scratch: 32 gates and 32 ups become a group of the next matmul's
/// activations.
static void gateUpRow(Emitter &e, const MatmulParams &p, const ActivationLayout &l, Value unit, int64_t mb, Value r,
                      const ActivationRow &to) {
  Value h[2];
  for (int i = 0; i < 2; ++i) {
    Value at = e.at(e.scratch, r, 64);
    Value gate = e.ld(e.vf, at, i * mb * 64, 64), up = e.ld(e.vf, at, (2 + i) * mb * 64, 64);
    h[i] = e.fmul(p.activation == Activation::silu ? e.silu(gate) : e.geluTanh(gate), up);
  }
  storeActivations(e, l, p.outAct, to, unit, h[0], h[1]);
}

LogicalResult emitMatmul(ModuleOp module, StringRef symbol, const MatmulParams &p, X86Target target) {
  if (failed(verify(module, symbol, p, target))) return failure();
  Emitter e(module, symbol, target);
  MatmulEmitter m(e, p);
  const bool gateUp = p.epilogue == MatmulParams::gateUp;
  const int64_t tileBytes = packedTileBytes(p.type, p.k);
  Value rows = e.rowCount(p.outRows), activations = e.arg(0), weights = e.arg(1), out = e.arg(2);
  Value bias = p.bias ? e.arg(3) : Value(), residual = p.residual ? e.arg(3 + p.bias) : Value();
  ActivationLayout outLayout = gateUp ? activationLayout(p.n / 2, p.outAct, p.outHalves) : ActivationLayout();

  // |units|: one or two. |second|: whether the other one of two exists; an odd share computes its last unit twice and
  // stores it once.
  auto store = [&](ArrayRef<Value> units, Value second, Value block, Value first, int64_t mb) {
    Values tiles;
    for (Value u : units)
      tiles.push_back(e.at(weights, u, tileBytes));
    auto placeOf = [&](int64_t t) { return e.add(e.shl(units[t], 6), e.mulc(e.add(e.shl(block, 4), first), 4 * p.outStride)); };
    // Another thread read or wrote these lines last, and a line a row is not what processors fetch by themselves.
    for (size_t t = 0; t < units.size(); ++t)
      for (int64_t r = 0; r < mb; ++r)
        e.prefetchToWrite(e.gep(out, placeOf(int64_t(t))), r * 4 * p.outStride);
    m.tiles(tiles, e.at(activations, block, m.a.blockBytes), first, mb, [&](llvm::function_ref<Value(int64_t, int64_t)> y) {
      auto one = [&](int64_t t) {
        Value column = e.shl(units[t], 6), at = placeOf(t);
        Value b = bias ? e.ld(e.vf, e.gep(bias, column), 0, 64) : Value();
        Value to = e.gep(out, at), from = residual ? e.gep(residual, at) : Value();
        for (int64_t r = 0; r < mb; ++r) {
          Value v = y(t, r);
          if (b) v = e.fadd(v, b);
          if (from) v = e.fadd(e.ld(e.vf, from, r * 4 * p.outStride, 4), v);
          e.st(v, to, r * 4 * p.outStride, 4);
        }
      };
      one(0);
      if (units.size() > 1) e.when(second, [&] { one(1); });
    });
  };
  auto gated = [&](Value unit, Value block, Value first, int64_t mb) {
    const int64_t T = m.tilesAtOnce(mb);
    e.loop(e.c(0), e.c(4), T, [&](Value tile) {
      Values tiles;
      for (int64_t t = 0; t < T; ++t)
        tiles.push_back(e.at(weights, e.addc(e.add(e.shl(unit, 2), tile), t), tileBytes));
      Value to = e.at(e.scratch, tile, 64 * mb);
      m.tiles(tiles, e.at(activations, block, m.a.blockBytes), first, mb, [&](llvm::function_ref<Value(int64_t, int64_t)> y) {
        for (int64_t t = 0; t < T; ++t)
          for (int64_t r = 0; r < mb; ++r)
            e.st(y(t, r), to, 64 * (t * mb + r), 64);
      });
    });
    // The next matmul's rows are in the same parts, unless it reads floats.
    const bool same = isInt8(p.act) == isInt8(p.outAct);
    ActivationRow to;
    if (same) to = {e.at(out, block, outLayout.blockBytes), e.c(mb), Value(), e.mulc(first, outLayout.groups)};
    // Stale rows of a part of floats may have no place among integers.
    Value count = same ? e.c(mb) : e.mins(e.c(mb), e.sub(rows, e.add(e.shl(block, 4), first)));
    e.loop(e.c(0), count, 1, [&](Value r) {
      if (same)
        to.row = r;
      else
        to = activationRow(e, out, outLayout, p.outAct, e.add(e.add(e.shl(block, 4), first), r), rows);
      gateUpRow(e, p, outLayout, unit, mb, r, to);
    });
  };

  // Of a unit's outputs the largest of each row. What was met so far is in scratch: the K loop needs the registers.
  auto largest = [&](Value unit, Value block, Value before, int64_t mb) {
    const int64_t T = m.tilesAtOnce(mb), perUnit = matmulTilesPerUnit(p), indexesAt = 64 * mb;
    e.loop(e.c(0), e.c(mb), 1, [&](Value r) {
      Largest none = Largest::none(e, e.splatF(e.vf, 0));
      e.st(none.value, e.at(e.scratch, r, 64), 0, 64);
      e.st(none.index, e.at(e.scratch, r, 64), indexesAt, 64);
    });
    Value begin = e.mulc(unit, perUnit), end = e.mins(e.addc(begin, perUnit), e.c((p.n + 15) / 16));
    e.loop(begin, end, T, [&](Value first) {
      // An odd number of tiles: the last one twice, which changes nothing.
      Values at{first}, tiles;
      if (T == 2) at.push_back(e.mins(e.addc(first, 1), e.sub(end, e.c(1))));
      for (Value t : at)
        tiles.push_back(e.at(weights, t, tileBytes));
      m.tiles(tiles, e.at(activations, block, m.a.blockBytes), before, mb, [&](llvm::function_ref<Value(int64_t, int64_t)> y) {
        for (int64_t t = 0; t < T; ++t) {
          Value b = bias ? e.ld(e.vf, e.gep(bias, e.shl(at[t], 6)), 0, 64) : Value();
          Value columns = e.fadd(e.splat(e.i2f(e.trunc(e.i32, e.shl(at[t], 4)))), e.i2f(e.iota(16)));
          Value there = p.n % 16 ? e.fcmp(arith::CmpFPredicate::OLT, columns, e.splatF(e.vf, double(p.n))) : Value();
          for (int64_t r = 0; r < mb; ++r) {
            Value v = y(t, r);
            if (b) v = e.fadd(v, b);
            if (there) v = e.select(there, v, Largest::none(e, v).value);
            Largest now = Largest{e.ld(e.vf, e.scratch, 64 * r, 64), e.ld(e.vf, e.scratch, indexesAt + 64 * r, 64)}.with(e, v, columns);
            e.st(now.value, e.scratch, 64 * r, 64);
            e.st(now.index, e.scratch, indexesAt + 64 * r, 64);
          }
        }
      });
    });
    e.loop(e.c(0), e.c(mb), 1, [&](Value r) {
      Value from = e.at(e.scratch, r, 64), row = e.add(e.add(e.shl(block, 4), before), r);
      Value to = e.gep(out, e.add(e.mulc(row, 4 * p.outStride), e.shl(unit, 2)));
      Largest best = Largest{e.ld(e.vf, from, 0, 64), e.ld(e.vf, from, indexesAt, 64)}.ofLanes(e);
      e.st(best.value, to, 0, 4);
      e.st(best.index, to, 4 * matmulUnits(p), 4);
    });
  };

  m.useTiles(rows);
  // At most 512 KiB of activations at a time.
  const int64_t superBlock = std::max<int64_t>(1, (int64_t(512) << 10) / m.a.blockBytes);
  Value blocks = e.divc(e.addc(rows, 15), 16);
  e.loop(e.c(0), blocks, superBlock, [&](Value first) {
    Value last = e.mins(rows, e.mulc(e.addc(first, superBlock), 16));
    if (p.epilogue != MatmulParams::store) {
      e.items([&](Value unit) {
        e.rowBlocks(p.act, first, last, [&](Value block, Value at, int64_t mb) { gateUp ? gated(unit, block, at, mb) : largest(unit, block, at, mb); });
      });
      return;
    }
    // Units in pairs where some body takes two tiles.
    const int64_t T = m.tilesAtOnce(1);
    e.loop(e.begin, e.end, e.mulc(e.stride, T), {}, [&](Value unit, ValueRange) {
      Value next = T == 2 ? e.add(unit, e.stride) : Value(), second = next ? e.ltS(next, e.end) : Value();
      e.rowBlocks(p.act, first, last, [&](Value block, Value at, int64_t mb) {
        if (T == 1)
          store({unit}, Value(), block, at, mb);
        else if (m.tilesAtOnce(mb) == 2)
          store({unit, e.select(second, next, unit)}, second, block, at, mb);
        else
          e.loop(unit, e.mins(e.end, e.addc(next, 1)), e.stride, {}, [&](Value u, ValueRange) {
            store({u}, Value(), block, at, mb);
            return Values();
          });
      });
      return Values();
    });
  });
  m.leaveTiles(rows);
  e.finish();
  return success();
}

} // namespace lathe::codegen
