//===- StoreRow.cpp - a row into the activation planes -----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A group needs the largest of its 32 values, a division and one to three sums: horizontal work that costs more than the
// rounding itself. Runs of 16 groups do it vertically: 16 vectors are reduced together, by a transposition
// that halves their number at each level, into one vector that holds a group a lane.
//===----------------------------------------------------------------------===//
#include "RowTools.h"

namespace lathe::codegen {
namespace {

using Op2 = llvm::function_ref<Value(Value, Value)>;

struct RowStore {
  Emitter &e;
  int64_t k;
  ActFormat format;
  ActivationLayout l;
  ActivationRow to;
  Value values, first, second, lanes; ///< on the stack: 16 groups of values, two sets of 16 vectors, one vector

  /// Stack space of the whole function: a loop must not allocate.
  Value onStack(int64_t bytes) {
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPointToStart(cast<BlockArgument>(e.step).getOwner());
    return LLVM::AllocaOp::create(e.b, e.loc, e.ptr, e.i8, e.c(bytes), 64);
  }

  /// Lane i: |op| over all lanes of the i-th vector at |p|. The order within a vector is free: maxima and integer sums only.
  Value reduce(Value p, Type type, Op2 op) {
    auto inLanes = [](std::array<int64_t, 4> from) { // the same choice in each 128 bits of a pair of vectors
      SmallVector<int64_t> mask;
      for (int64_t block = 0; block < 4; ++block)
        for (int64_t i : from) mask.push_back((i & 3) + 4 * block + (i & 4 ? 16 : 0));
      return mask;
    };
    auto blocks = [](std::array<int64_t, 4> from) { // whole 128 bits; 4.. are the second vector's
      SmallVector<int64_t> mask;
      for (int64_t block : from)
        for (int64_t i = 0; i < 4; ++i) mask.push_back(4 * block + i);
      return mask;
    };
    auto level = [&](Value x, Value y, ArrayRef<int64_t> low, ArrayRef<int64_t> high) {
      return op(e.shuffle(x, y, low), e.shuffle(x, y, high));
    };
    SmallVector<Value> quads;
    for (int64_t q = 0; q < 4; ++q) {
      Value pair[2];
      for (int64_t i = 0; i < 2; ++i) {
        int64_t at = (4 * q + 2 * i) * 64;
        pair[i] = level(e.ld(type, p, at, 64), e.ld(type, p, at + 64, 64), inLanes({0, 4, 1, 5}), inLanes({2, 6, 3, 7}));
      }
      quads.push_back(level(pair[0], pair[1], inLanes({0, 1, 4, 5}), inLanes({2, 3, 6, 7})));
    }
    Value halves[2];
    for (int64_t i = 0; i < 2; ++i)
      halves[i] = level(quads[2 * i], quads[2 * i + 1], blocks({0, 2, 4, 6}), blocks({1, 3, 5, 7}));
    return level(halves[0], halves[1], blocks({0, 2, 4, 6}), blocks({1, 3, 5, 7}));
  }

  /// A value a group, from group |g0| on, into the plane at |offset|; |sum| of l.sums values a group, or -1 for a plane of one.
  void plane(Value v, Value g0, int64_t offset, int64_t sum) {
    int64_t perGroup = sum < 0 ? 1 : l.sums;
    Value base = e.gepc(e.gep(to.block, e.shl(to.place(e, g0, perGroup, std::max<int64_t>(sum, 0)), 2)), offset);
    auto scattered = [&] {
      e.st(v, lanes, 0, 64);
      Value stride = e.mulc(to.mb, 4 * perGroup);
      e.loop(e.c(0), e.c(16), 1, [&](Value g) { e.st(e.ld(e.i32, e.at(lanes, g, 4), 0, 4), e.gep(base, e.mul(g, stride)), 0, 4); });
      return Values();
    };
    if (perGroup > 1) {
      scattered();
      return;
    }
    e.ifElse(
        e.eq(to.mb, 1), {},
        [&] {
          e.st(v, base, 0, 4);
          return Values();
        },
        scattered);
  }

  /// Groups g0 .. g0+15.
  void run(Value g0, llvm::function_ref<Value(Value, int64_t, int64_t)> value) {
    bool symmetric = format == ActFormat::int8;
    e.loop(e.c(0), e.c(16), 1, [&](Value g) {
      Value bytes = e.mulc(e.add(g0, g), 128), at = e.at(values, g, 128);
      Value x0 = value(bytes, 0, 16), x1 = value(bytes, 16, 16);
      e.st(x0, at, 0, 64);
      e.st(x1, at, 64, 64);
      e.st(symmetric ? e.fmax(e.fabs(x0), e.fabs(x1)) : e.fmax(x0, x1), e.at(first, g, 64), 0, 64);
      if (!symmetric) e.st(e.fmin(x0, x1), e.at(second, g, 64), 0, 64);
    });
    auto constant = [&](float v) { return e.splatF(e.vf, v); };
    Value high = reduce(first, e.vf, [&](Value x, Value y) { return e.fmax(x, y); }), scale, inverse, offset;
    if (symmetric) {
      scale = e.fmul(high, constant(1.0f / 127));
      Value some = e.fcmp(arith::CmpFPredicate::OGE, high, constant(1e-30f));
      inverse = e.select(some, e.fdiv(constant(127), high), constant(0));
    } else {
      Value low = reduce(second, e.vf, [&](Value x, Value y) { return e.fmin(x, y); });
      offset = e.fadd(e.roundBf16(e.fmul(e.fadd(high, low), constant(0.5f))), constant(0));
      scale = e.fmax(e.fmul(e.fsub(high, low), constant(1.0f / 254)), constant(1e-30f));
      inverse = e.fdiv(constant(1), scale);
    }
    // Per group: broadcast, round, store; what is summed goes where the maxima were.
    e.st(inverse, lanes, 0, 64);
    if (offset) e.st(offset, lanes, 64, 64);
    e.loop(e.c(0), e.c(16), 1, [&](Value g) {
      Value at = e.at(values, g, 128), inv = e.ldSplat(e.at(lanes, g, 4)), q[2];
      Value shift = offset ? e.ldSplat(e.at(lanes, g, 4), 64) : Value();
      Value code = e.at(to.block, to.place(e, e.add(g0, g)), 32);
      for (int64_t h = 0; h < 2; ++h) {
        Value x = e.ld(e.vf, at, h * 64, 64);
        Value y = e.fmul(shift ? e.fsub(x, shift) : x, inv);
        if (shift) y = e.fmin(e.fmax(y, constant(-127)), constant(127));
        q[h] = e.roundToInt(y);
        e.st(e.trunc(e.i8, q[h]), code, h * 16, 16);
      }
      e.st(l.sums == 1 ? e.add(q[0], q[1]) : q[0], e.at(first, g, 64), 0, 64);
      if (l.sums == 3) e.st(q[1], e.at(second, g, 64), 0, 64);
    });
    auto add = [&](Value x, Value y) { return e.add(x, y); };
    Values sums{reduce(first, e.vi, add)};
    if (l.sums == 3) {
      Value other = reduce(second, e.vi, add);
      sums = {e.add(sums[0], other), sums[0], other};
    }
    plane(scale, g0, l.scale, -1);
    for (auto [h, sum] : llvm::enumerate(sums)) {
      plane(e.sub(e.splatI(e.vi, 0), sum), g0, l.isum, h);
      Value f = e.i2f(sum);
      f = offset ? e.fma(scale, f, e.fmul(constant(h == 0 ? 32 : 16), offset)) : e.fmul(scale, f);
      plane(f, g0, l.fsum, h);
    }
    if (offset) plane(offset, g0, l.offset, -1);
  }
};

} // namespace

void storeRow(Emitter &e, Value out, int64_t k, ActFormat format, bool halves, Value item, Value rows,
              llvm::function_ref<Value(Value bytes, int64_t offset, int64_t n)> value) {
  RowStore s{e, k, format, activationLayout(k, format, halves), {}, {}, {}, {}, {}};
  s.to = activationRow(e, out, s.l, format, item, rows);
  int64_t runs = isInt8(format) ? k / 512 : 0;
  if (runs) {
    s.values = s.onStack(16 * 128), s.first = s.onStack(16 * 64), s.second = s.onStack(16 * 64), s.lanes = s.onStack(128);
    e.loop(e.c(0), e.c(runs * 16), 16, [&](Value g0) { s.run(g0, value); });
  }
  e.loop(e.c(runs * 16), e.c(k / 32), 1, [&](Value g) {
    Value bytes = e.mulc(g, 128);
    storeActivations(e, s.l, format, s.to, g, value(bytes, 0, 16), value(bytes, 16, 16));
  });
  if (int64_t at = k / 32 * 32; int64_t tail = k - at) {
    Value bytes = e.c(at * 4);
    Value low = value(bytes, 0, std::min<int64_t>(tail, 16));
    Value high = tail > 16 ? value(bytes, 16, tail - 16) : e.splatF(e.vf, 0);
    storeActivations(e, s.l, format, s.to, e.c(k / 32), low, high);
  }
}

} // namespace lathe::codegen
