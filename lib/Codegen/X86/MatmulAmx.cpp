//===- MatmulAmx.cpp - the K loop of a tile by AMX --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// AMX (Sapphire Rapids and later): one instruction adds the products of 16 rows with 16 outputs over 32 k. Sums are of
// int32, so they are the bits of every other variant. A part's rows of a group are 32 bytes each side by side, which is a
// tile as it stands; the codes of a group are one too, once they are unpacked. "Intel Architecture Instruction Set
// Extensions Programming Reference", chapter 3.
//===----------------------------------------------------------------------===//
#include "X86/Matmul.h"

namespace lathe::codegen {

namespace {
/// Tile registers: sums of a half of a group, activations, codes. Their shapes differ, so they must not be exchanged, as LLVM's
/// scheduler does behind allocation (AntiDepBreaker) to those of its intrinsics: assembly.
constexpr int64_t sums[] = {0, 1}, activations = 2, weightCodes = 3;
} // namespace

void MatmulEmitter::useTiles(Value rows) {
  if (!tiled(16)) return;
  e.when(e.leS(e.c(partFrom(p.act, 16)), rows), [&] {
    const int64_t k = w.subK == 16 ? 16 : 32;
    SmallVector<int8_t> shapes(64); // palette 1; bytes of a row from 16 on, as 16 bits each; rows from 48 on
    shapes[0] = 1;
    auto shape = [&](int64_t i, int64_t rows, int64_t bytes) { shapes[16 + 2 * i] = int8_t(bytes), shapes[48 + i] = int8_t(rows); };
    for (int64_t h : {0, 1})
      shape(sums[h], 16, 64);
    shape(activations, 16, k);
    shape(weightCodes, k / 4, 64);
    e.st(arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(e.vb, ArrayRef<int8_t>(shapes))), e.scratch, tileShapesAt, 64);
    e.assembly("ldtilecfg ($0)", {e.gepc(e.scratch, tileShapesAt)});
  });
}

void MatmulEmitter::leaveTiles(Value rows) {
  if (!tiled(16)) return;
  // The system saves what is in use with every switch of threads.
  e.when(e.leS(e.c(partFrom(p.act, 16)), rows), [&] { e.assembly("tilerelease", {}); });
}

Values MatmulEmitter::tileSums(Value weights, llvm::function_ref<GroupAddress(Value)> address) {
  const int64_t mb = 16, perBlock = w.blockK / 32, parts = w.subK == 16 ? 2 : 1, codeBytes = 512 / parts, G = a.groups;
  auto codesOf = [&](Value g) { return e.gepc(e.at(e.scratch, e.andc(g, 7), 512), tileCodesAt); };
  auto sumsOf = [&](Value g, int64_t h) { return e.gepc(e.at(e.scratch, e.andc(g, 1), 2048), tileSumsAt + 1024 * h); };

  // Signed codes, so that nothing has to be added to the sums: a subtraction for four k of 16 outputs, not one for each row.
  auto unpack = [&](Value g) {
    Value from = e.mins(g, e.c(G - 1)), j = e.remc(from, perBlock), block = e.at(weights, e.divc(from, perBlock), w.blockBytes);
    prefetchShare(e.at(block, j, w.blockBytes / perBlock), mb, Emitter::Cache::l2);
    Codes c = codes(e.at(block, j, w.groupBytes));
    for (int64_t q = 0; q < 8; ++q)
      e.st(w.zero ? e.sub(c[q], e.splatI(e.vb, int8_t(w.zero))) : c[q], codesOf(g), 64 * q, 64);
  };
  auto multiply = [&](Value g) {
    Value x = address(g).x;
    for (int64_t h = 0; h < parts; ++h)
      e.assembly("tilezero %tmm" + Twine(sums[h]) + "\n\ttileloadd ($0,$1), %tmm" + Twine(activations) + "\n\ttileloadd ($2,$3), %tmm" + Twine(weightCodes) +
                     "\n\ttdpbssd %tmm" + Twine(weightCodes) + ", %tmm" + Twine(activations) + ", %tmm" + Twine(sums[h]),
                 {e.gepc(x, 16 * h), e.c(32), e.gepc(codesOf(g), codeBytes * h), e.c(64)});
  };
  auto keep = [&](Value g) {
    for (int64_t h = 0; h < parts; ++h)
      e.assembly("tilestored %tmm" + Twine(sums[h]) + ", ($0,$1)", {sumsOf(g, h), e.c(64)});
  };
  auto finish = [&](Value g, Values acc) {
    Value j = e.remc(g, perBlock), block = e.at(weights, e.divc(g, perBlock), w.blockBytes);
    Scales s = groupScales(block, j, blockScales(block, 0));
    GroupAddress at = address(g);
    Value wsum; // the sums of codes are products with ones
    if (p.act == ActFormat::int8z)
      for (int64_t h = 0; h < parts; ++h) {
        Value sum = e.splatI(e.vi, 0), ones = e.splatI(e.vi, 0x01010101);
        for (int64_t q = 0; q < 8 / parts; ++q)
          sum = e.intrinsic("llvm.x86.avx512.vpdpbusd.512", e.vi, {sum, e.bitcast(e.vb, ones), e.ld(e.vb, codesOf(g), codeBytes * h + 64 * q, 64)});
        wsum = scaled(sum, s, h, wsum);
      }
    for (int64_t r = 0; r < mb; ++r) {
      Value product;
      for (int64_t h = 0; h < parts; ++h)
        product = scaled(e.ld(e.vi, sumsOf(g, h), 64 * r, 64), s, h, product);
      acc[r] = added(product, s, wsum, at, mb, r, acc[r]);
    }
    return acc;
  };

  // Loads, products, stores and sums of a group depend on each other over some 200 cycles, so each turn has one stage of
  // each of four groups.
  for (int64_t g = 0; g < 4; ++g)
    unpack(e.c(g));
  multiply(e.c(0));
  keep(e.c(0));
  multiply(e.c(1));
  Values acc = e.loop(e.c(2), e.c(G), 1, Values(mb, e.splatF(e.vf, 0)), [&](Value g, ValueRange carried) {
    keep(e.sub(g, e.c(1)));
    unpack(e.addc(g, 2));
    multiply(g);
    return finish(e.sub(g, e.c(2)), Values(carried.begin(), carried.end()));
  });
  keep(e.c(G - 1));
  return e.loop(e.c(G - 2), e.c(G), 1, acc, [&](Value g, ValueRange carried) { return finish(g, Values(carried.begin(), carried.end())); });
}

} // namespace lathe::codegen
