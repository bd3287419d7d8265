//===- MatmulWeights.cpp - unpacking a group of 32 k ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "X86/Matmul.h"

namespace lathe::codegen {

/// Value of each iq4_nl code.
static const int8_t iq4nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// Bits |from| .. |from| + n - 1 of every byte, moved to bit |to|.
static Value field(Emitter &e, Value v, int from, int to, int n) {
  Value moved = from > to ? e.shru(v, from - to) : e.shl(v, to - from);
  return e.andc(moved, int8_t(((1 << n) - 1) << to));
}

MatmulEmitter::Codes MatmulEmitter::codes(Value group) {
  const int64_t W = width(), P = pieces();
  VectorType vw = e.vec(W, e.i8);
  Codes out(8 * P);
  auto load = [&](int64_t plane, int64_t vector, int64_t piece) {
    return e.ld(vw, group, plane + 64 * vector + W * piece, 32);
  }; // blocks are whole half lines
  int64_t plane4 = w.plane8 ? 512 : 0, plane2 = plane4 + (w.plane4 ? 256 : 0), plane1 = plane2 + (w.plane2 ? 128 : 0);
  Value table;
  if (w.codebook) {
    SmallVector<int8_t> bytes;
    for (int64_t i = 0; i < W; ++i)
      bytes.push_back(int8_t(iq4nl[i % 16] + (signedCodes() ? 0 : w.zero)));
    table = arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(vw, ArrayRef<int8_t>(bytes)));
  }
  for (int64_t piece = 0; piece < P; ++piece) {
    Value one = w.plane1 ? load(plane1, 0, piece) : Value();
    for (int q = 0; q < 8; ++q) {
      Value v;
      int bits = 0; // so far
      auto put = [&](Value part, int n) {
        v = v ? e.ori(v, part) : part;
        bits += n;
      };
      if (w.plane8) {
        v = load(0, q, piece);
        if (signedCodes()) v = e.xori(v, e.splatI(vw, -128));
      }
      if (w.plane4) put(field(e, load(plane4, q % 4, piece), q < 4 ? 0 : 4, 0, 4), 4);
      if (w.plane2) put(field(e, load(plane2, q / 4, piece), 2 * (q % 4), bits, 2), 2);
      if (w.plane1) put(field(e, one, q, bits, 1), 1);
      if (w.codebook)
        v = e.intrinsic(W == 64 ? "llvm.x86.avx512.pshuf.b.512" : "llvm.x86.avx2.pshuf.b", vw, {table, v});
      out[q * P + piece] = v;
    }
  }
  return out;
}

Value MatmulEmitter::quad(const Codes &codes, int q) {
  if (pieces() == 1) return e.bitcast(e.vi, codes[q]);
  VectorType half = e.vec(8, e.i32);
  return e.concat(e.bitcast(half, codes[2 * q]), e.bitcast(half, codes[2 * q + 1]));
}

Value MatmulEmitter::levelTable() {
  if (!e.target.has512() || !w.plane4 || w.plane2 || w.plane1) return Value();
  SmallVector<float> levels;
  for (int i = 0; i < 16; ++i)
    levels.push_back(float(w.codebook ? iq4nl[i] : i - w.zero));
  return arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(e.vf, ArrayRef<float>(levels)));
}

MatmulEmitter::BlockScales MatmulEmitter::blockScales(Value block, int64_t j) {
  BlockScales s;
  if (w.floatBytes || w.scaleK == 0) return s;
  int64_t at = j * 32 / w.scaleK * 32;
  s.d = e.ext(e.ld(e.vh, block, w.dOffset + at, 32));
  if (w.min) s.dmin = e.ext(e.ld(e.vh, block, w.minOffset + at, 32));
  return s;
}

MatmulEmitter::Scales MatmulEmitter::groupScales(Value block, Value j, const BlockScales &ofBlock) {
  auto own = [&](int64_t offset) { return e.at(e.gepc(block, offset), j, 32 / w.subK * 16); };
  // A group's own scales: the block's address moved by what lies between the groups' scales.
  return scales(w.scaleK == w.blockK ? ofBlock : blockScales(e.at(block, e.divc(e.mulc(j, 32), std::max(w.scaleK, 1)), 32), 0),
                w.subK ? own(w.subOffset) : Value(), w.subMins ? own(w.subMinOffset) : Value());
}

MatmulEmitter::Scales MatmulEmitter::scales(const BlockScales &s, Value sub, Value subMin) {
  Scales out;
  if (w.subK == 0) {
    out.ws.push_back(s.d);
    if (w.min) out.m.push_back(s.dmin);
    return out;
  }
  VectorType v16 = e.vec(16, e.i8);
  for (int64_t h = 0; h < 32 / w.subK; ++h) {
    Value raw = e.ld(v16, sub, 16 * h, 16);
    Value wide = w.subSigned ? e.sext(e.i32, raw) : e.zext(e.i32, raw);
    Value min;
    if (w.subNibbles) {
      min = e.shru(wide, 4);
      wide = e.andc(wide, 15);
    } else if (w.subMins)
      min = e.zext(e.i32, e.ld(v16, subMin, 16 * h, 16));
    out.ws.push_back(e.fmul(s.d, e.i2f(wide)));
    if (min) out.m.push_back(e.fneg(e.fmul(s.dmin, e.i2f(min))));
  }
  return out;
}

} // namespace lathe::codegen
