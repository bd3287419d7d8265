//===- MatmulTile.cpp - the K loop of a tile --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One accumulator per output, groups of 32 k in order; see docs/exactness.md, "Matmul". The numbered
// steps are those of that page.
//===----------------------------------------------------------------------===//
#include "X86/Matmul.h"

namespace lathe::codegen {

void MatmulEmitter::intGroup(const Codes &codes, const Scales &s, const GroupAddress &at, int64_t mb, Values &acc) {
  const bool halves = w.subK == 16, offsets = p.act == ActFormat::int8z;
  const int parts = halves ? 2 : 1, quads = 8 / parts;
  Value wsum; // step 6: the same for all rows
  if (offsets) {
    Value one = e.ci(e.i32, 0x01010101);
    for (int h = 0; h < parts; ++h) {
      Value sum = e.i2f(dot(codes, h * quads, (h + 1) * quads, [&](int) { return one; }, Value(), -32 / parts));
      wsum = h ? e.fma(sum, s.ws[1], wsum) : s.ws.empty() || !s.ws[0] ? sum : e.fmul(sum, s.ws[0]);
    }
  }
  for (int64_t r = 0; r < mb; ++r) {
    Value product;
    for (int h = 0; h < parts; ++h) {
      int64_t plane = halves ? 1 + h : 0;
      Value negSum = w.zero && !signedCodes() ? e.ldSplatI(at.sums, a.isum + (plane * mb + r) * 4) : Value();
      Value idot = e.i2f(dot(codes, h * quads, (h + 1) * quads, [&](int q) { return e.ld(e.i32, at.x, r * 32 + q * 4, 4); }, negSum));
      product = h ? e.fma(idot, s.ws[1], product) : s.ws.empty() || !s.ws[0] ? idot : e.fmul(idot, s.ws[0]); // steps 1 to 3
    }
    Value y = e.fma(product, e.ldSplat(at.meta, a.scale + r * 4), acc[r]); // 4
    for (size_t h = 0; h < s.m.size(); ++h)                                // 5
      y = e.fma(s.m[h], e.ldSplat(at.sums, a.fsum + ((halves ? 1 + h : 0) * mb + r) * 4), y);
    if (offsets) y = e.fma(wsum, e.ldSplat(at.meta, a.offset + r * 4), y); // 6
    acc[r] = y;
  }
}

void MatmulEmitter::floatGroup(Value group, const Scales &s, const GroupAddress &at, int64_t mb, Values &acc) {
  auto multiply = [&](Value v, Value x, int64_t offset) {
    for (int64_t r = 0; r < mb; ++r) acc[r] = e.fma(v, e.ldSplat(x, r * 128 + offset), acc[r]);
  };
  // A loop over k, four at a time: 32 times 16 rows unrolled would only cost compile time.
  auto loopOverK = [&](llvm::function_ref<Value(Value k, int64_t i)> load) {
    acc = e.loop(e.c(0), e.c(32), 4, acc, [&](Value k, ValueRange carried) {
      acc.assign(carried.begin(), carried.end());
      Value x = e.at(at.x, k, 4);
      for (int64_t i = 0; i < 4; ++i) multiply(load(k, i), x, 4 * i);
      return acc;
    });
  };
  if (w.floatBytes)
    return loopOverK([&](Value k, int64_t i) {
      Value row = e.at(group, k, 16 * w.floatBytes);
      if (p.type == StorageType::f32) return e.ld(e.vf, row, i * 64, 64);
      if (p.type == StorageType::f16) return e.ext(e.ld(e.vh, row, i * 32, 32));
      return e.fromBf16Bits(e.ld(e.vec(16, e.i16), row, i * 32, 32));
    });
  Codes c = codes(group);
  Value packed;
  auto dequantized = [&](int k) {
    if (k % 4 == 0) packed = quad(c, k / 4);
    Value code;
    if (signedCodes())
      code = e.shrs(e.shl(packed, 24 - 8 * (k % 4)), 24);
    else {
      code = e.shru(packed, 8 * (k % 4));
      if (k % 4 != 3) code = e.andc(code, 255);
      if (w.zero) code = e.sub(code, e.splatI(e.vi, w.zero));
    }
    int h = w.subK == 16 ? k / 16 : 0;
    Value v = e.fmul(e.i2f(code), s.ws[h]);
    return s.m.empty() ? v : e.fadd(v, s.m[h]);
  };
  if (mb <= 2) {
    for (int k = 0; k < 32; ++k) multiply(dequantized(k), at.x, 4 * k);
    return;
  }
  Value values = e.gepc(e.scratch, dequantizedAt);
  for (int k = 0; k < 32; ++k) e.st(dequantized(k), values, 64 * k, 64);
  loopOverK([&](Value k, int64_t i) { return e.ld(e.vf, e.at(values, k, 64), 64 * i, 64); });
}

Values MatmulEmitter::tile(Value weights, Value activations, int64_t mb) {
  const bool ints = isInt8(p.act);
  const int64_t perBlock = w.blockK / 32, blocks = a.groups / perBlock, rest = a.groups % perBlock;
  const int64_t xBytes = mb * (ints ? 32 : 128), subBytes = w.subK ? 32 / w.subK * 16 : 0;
  Value rowScale = w.rowScale ? e.ld(e.vf, weights, packedTileBytes(p.type, p.k) - 64, 64) : Value();

  // One group: |j| its place in the block, as a value and, when groups have scales of their own, a constant.
  auto group = [&](Value codesAt, Value sub, Value subMin, const BlockScales &bs, const GroupAddress &at, Values &acc) {
    Scales s = scales(bs, sub, subMin);
    if (ints)
      return intGroup(codes(codesAt), s, at, mb, acc);
    if (rowScale) s.ws.assign(1, rowScale);
    floatGroup(codesAt, s, at, mb, acc);
  };
  auto address = [&](Value g) {
    return GroupAddress{e.at(activations, g, xBytes), e.at(activations, g, 4 * mb), e.at(activations, g, 4 * mb * a.sums)};
  };
  // |count| groups of the block |i|.
  auto block = [&](Value i, int64_t count, Values acc) {
    Value at = e.at(weights, i, w.blockBytes), g = e.mulc(i, perBlock);
    if (perBlock == 2 && ints) { // unrolled
      for (int64_t j = 0; j < count; ++j)
        group(e.gepc(at, j * w.groupBytes), Value(), Value(), blockScales(at, j), address(e.addc(g, j)), acc);
      return acc;
    }
    const bool shared = w.scaleK == w.blockK; // one d for the block
    BlockScales bs = blockScales(at, 0);
    return e.loop(e.c(0), e.c(count), 1, acc, [&](Value j, ValueRange carried) {
      Values sums(carried);
      Value sub = subBytes ? e.at(e.gepc(at, w.subOffset), j, subBytes) : Value();
      Value subMin = w.subMins ? e.at(e.gepc(at, w.subMinOffset), j, subBytes) : Value();
      // Scales of the group's own: |at| moved by what lies between the groups' scales.
      BlockScales own = shared ? bs : blockScales(e.at(at, e.divc(e.mulc(j, 32), std::max(w.scaleK, 1)), 32), 0);
      group(e.at(at, j, w.groupBytes), sub, subMin, own, address(e.add(g, j)), sums);
      return sums;
    });
  };
  Values acc(mb, e.splatF(e.vf, 0));
  if (blocks) acc = e.loop(e.c(0), e.c(blocks), 1, acc, [&](Value i, ValueRange carried) { return block(i, perBlock, Values(carried)); });
  if (rest) acc = block(e.c(blocks), rest, acc);
  if (ints && rowScale)
    for (Value &y : acc) y = e.fmul(y, rowScale);
  return acc;
}

} // namespace lathe::codegen
