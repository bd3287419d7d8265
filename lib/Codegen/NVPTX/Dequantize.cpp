//===- Dequantize.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "NVPTX/Dequantize.h"

namespace lathe::codegen::nvptx {

const int8_t iq4nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

Dequantizer::Raw Dequantizer::load(Value group) {
  Value g8 = e.shl(e.fragmentRow(), 3), t64 = e.shl(e.fragmentColumn(), 6);
  Raw raw;
  auto pair = [&](Value p, int64_t offset) {
    Value v = e.ld(e.vec(2, e.i32), p, offset, 8);
    raw.words.push_back(e.elementOf(v, 0));
    raw.words.push_back(e.elementOf(v, 1));
  };
  Value base = e.gep(group, g8), quad = e.gep(base, t64);
  int64_t at = 0;
  if (w.plane8) {
    pair(quad, at);
    pair(quad, at + 256);
    at += 512;
  }
  if (w.plane4) {
    pair(quad, at);
    at += 256;
  }
  if (w.plane2) {
    pair(base, at);
    pair(base, at + 64);
    at += 128;
  }
  if (w.plane1) pair(base, at);
  return raw;
}

Values Dequantizer::codes(const Raw &raw) {
  Values out(4);
  size_t next = 0;
  auto take = [&] { return raw.words[next++]; };
  auto merge = [&](int i, Value part, int64_t shift) {
    part = e.shl(part, shift);
    out[i] = out[i] ? e.ori(out[i], part) : part;
  };
  Value t = e.trunc(e.i32, e.fragmentColumn());
  auto shiftBy = [&](Value x, Value n) { return Value(arith::ShRUIOp::create(e.b, e.loc, x, n)); };
  if (w.plane8) {
    for (int i = 0; i < 4; ++i) merge(i, w.e4m3 ? take() : e.xori(take(), e.ci(e.i32, int32_t(0x80808080))), 0);
    return out;
  }
  int64_t high = 0;
  if (w.plane4) {
    for (int r = 0; r < 2; ++r) {
      Value word = take();
      merge(r, e.andc(word, 0x0f0f0f0f), 0);
      merge(2 + r, e.andc(e.shru(word, 4), 0x0f0f0f0f), 0);
    }
    high = 4;
  }
  if (w.plane2) {
    Value by = e.shl(t, 1);
    for (int i = 0; i < 4; ++i) merge(i, e.andc(shiftBy(take(), by), 0x03030303), high);
    high += 2;
  }
  if (w.plane1) {
    high = w.plane4 ? 4 : 2;
    for (int r = 0; r < 2; ++r) {
      Value word = shiftBy(take(), t);
      merge(r, e.andc(word, 0x01010101), high);
      merge(2 + r, e.andc(e.shru(word, 4), 0x01010101), high);
    }
  }
  if (w.codebook)
    for (Value &v : out) v = lookup(v);
  return out;
}

Value Dequantizer::lookup(Value n) {
  // Selectors are the low three bits of four nibbles in a row; bit 3 chooses between the two halves of the table.
  auto word = [&](int from) {
    uint32_t v = 0;
    for (int i = 0; i < 4; ++i) v |= uint32_t(uint8_t(iq4nl[from + i])) << 8 * i;
    return e.ci(e.i32, int32_t(v));
  };
  Value packed = e.ori(n, e.shru(n, 4)); // byte 0: n0 | n1 << 4, byte 2: n2 | n3 << 4
  Value selector = e.andc(e.permute(packed, packed, 0x0020), 0x7777);
  Value low = e.permute(word(0), word(4), selector), high = e.permute(word(8), word(12), selector);
  Value mask = e.mulc(e.andc(e.shru(n, 3), 0x01010101), 255);
  return e.ori(e.andi(low, e.xori(mask, e.ci(e.i32, -1))), e.andi(high, mask));
}

Values Dequantizer::levels(Value codes) {
  VectorType pair = e.vec(2, e.bf16);
  if (w.e4m3) {
    Values out;
    for (int i = 0; i < 2; ++i) { // the upper bytes of both halves
      Value selector = e.wgmmaOrder() ? e.ori(e.shl(byteOf(2 * i), 4), e.shl(byteOf(2 * i + 1), 12)) : e.ci(e.i32, i == 0 ? 0x1000 : 0x3020);
      out.push_back(e.e4m3ToBf16(e.permute(codes, codes, selector)));
    }
    return out;
  }
  if (signedCodes()) {
    // Through float32: 2^23 + byte is exact, and so is what remains of the level in the upper half.
    Value biased = e.xori(codes, e.ci(e.i32, int32_t(0x80808080))), magic = e.ci(e.i32, 0x4B000000);
    Values f;
    for (int i = 0; i < 4; ++i) {
      Value bits = e.wgmmaOrder() ? e.permute(biased, magic, e.ori(byteOf(i), e.ci(e.i32, 0x7440))) : e.permute(biased, magic, 0x7440 | i);
      f.push_back(e.bitcast(e.i32, e.fsub(e.bitcast(e.f32, bits), e.cf(8388608.0f + 128))));
    }
    return {e.permute(f[0], f[1], 0x7632), e.permute(f[2], f[3], 0x7632)};
  }
  // 0x43nn is the bf16 128 + nn for nn < 128.
  Value magic = e.ci(e.i32, 0x43434343);
  Values out;
  for (int i = 0; i < 2; ++i) {
    Value selector = e.wgmmaOrder() ? e.ori(e.ori(byteOf(2 * i), e.shl(byteOf(2 * i + 1), 8)), e.ci(e.i32, 0x4040)) : e.ci(e.i32, i == 0 ? 0x4140 : 0x4342);
    Value v = e.bitcastPair(pair, e.permute(codes, magic, selector));
    v = e.fma(v, e.splatF(pair, 1.0), e.splatF(pair, -128.0 - w.zero));
    out.push_back(e.bitcastPair(e.i32, v));
  }
  return out;
}

Values Dequantizer::pairOfHalves(Value p) {
  Value v = e.ld(e.vec(2, e.f16), p, 0, 4);
  return {e.ext(e.elementOf(v, 0)), e.ext(e.elementOf(v, 1))};
}
Values Dequantizer::pairOfBytes(Value p, bool isSigned) {
  Value v = e.ld(e.vec(2, e.i8), p, 0, 2);
  Values out;
  for (int r = 0; r < 2; ++r) out.push_back(isSigned ? e.sext(e.i32, e.elementOf(v, r)) : e.zext(e.i32, e.elementOf(v, r)));
  return out;
}

Dequantizer::Scales Dequantizer::scales(Value block, Value g) {
  Scales s;
  if (!w.scaleK || w.floatBytes) return s;
  Value rows = e.shl(e.fragmentRow(), 1); // 2g
  Value dAt = e.gep(e.gepc(block, w.dOffset), e.shl(rows, 1));
  if (w.scaleK < w.blockK) dAt = e.gep(dAt, e.mulc(e.divc(e.mulc(g, 32), w.scaleK), 32));
  Values d = pairOfHalves(dAt), m;
  if (w.min) m = pairOfHalves(e.gepc(dAt, w.minOffset - w.dOffset));
  if (!w.subK) {
    s.ws = d;
    s.m = m;
    return s;
  }
  for (int64_t h = 0; h < 32 / w.subK; ++h) {
    Value index = e.addc(e.mulc(g, 32 / w.subK), h);
    Value at = e.gep(e.gepc(block, w.subOffset), e.add(e.shl(index, 4), rows));
    Values sub = pairOfBytes(at, w.subSigned), mins;
    if (w.subNibbles)
      for (Value &v : sub) {
        mins.push_back(e.shru(v, 4));
        v = e.andc(v, 15);
      }
    else if (w.subMins)
      mins = pairOfBytes(e.gepc(at, w.subMinOffset - w.subOffset), false);
    for (int r = 0; r < 2; ++r) s.ws.push_back(e.fmul(d[r], e.i2f(sub[r])));
    for (int r = 0; r < 2 && !mins.empty(); ++r) s.m.push_back(e.fneg(e.fmul(m[r], e.i2f(mins[r]))));
  }
  return s;
}

Value Dequantizer::rowScaleOf(Value tile, Value r, int64_t k) {
  return w.rowScale ? e.ld(e.f32, e.gep(e.gepc(tile, packedTileBytes(type, k) - 64), e.shl(r, 2)), 0, 4) : Value();
}

Value Dequantizer::element(Value block, Value g, Value r, Value kk, Value rowScale) {
  Value group = e.gep(block, e.mulc(g, w.groupBytes));
  if (w.floatBytes) {
    Value p = e.gep(group, e.mulc(e.add(e.shl(kk, 4), r), w.floatBytes));
    if (type == StorageType::f32) return e.ld(e.f32, p, 0, 4);
    if (type == StorageType::f16) return half(p);
    return e.fromBf16Bits(e.ld(e.i16, p, 0, 2));
  }
  auto byte = [&](Value offset) { return e.zext(e.i32, e.ld(e.i8, e.gep(group, offset), 0, 1)); };
  auto shiftBy = [&](Value x, Value n) { return Value(arith::ShRUIOp::create(e.b, e.loc, x, e.trunc(e.i32, n))); };
  Value within = e.add(e.shl(r, 2), e.andc(kk, 3)), q = e.shru(kk, 2); // byte 4r + i, quad
  Value code;
  int64_t at = 0, high = 0;
  auto merge = [&](Value part, int64_t shift) { code = code ? e.ori(code, e.shl(part, shift)) : part; };
  if (w.plane8) {
    merge(byte(e.addc(e.add(e.shl(q, 6), within), at)), 0);
    at += 512;
  }
  if (w.plane4) {
    Value b = byte(e.addc(e.add(e.shl(e.andc(q, 3), 6), within), at));
    merge(e.andc(shiftBy(b, e.shl(e.shru(q, 2), 2)), 15), 0);
    at += 256;
    high = 4;
  }
  if (w.plane2) {
    Value b = byte(e.addc(e.add(e.shl(e.shru(q, 2), 6), within), at));
    merge(e.andc(shiftBy(b, e.shl(e.andc(q, 3), 1)), 3), high);
    at += 128;
    high += 2;
  }
  if (w.plane1) merge(e.andc(shiftBy(byte(e.addc(within, at)), q), 1), w.plane4 ? 4 : 2);
  Value level;
  if (w.codebook) {
    level = e.ci(e.i32, iq4nl[0]);
    for (int i = 1; i < 16; ++i) level = e.select(e.eq(code, i), e.ci(e.i32, iq4nl[i]), level);
  } else {
    level = e.addc(code, -w.zero);
  }
  Value x = w.e4m3 ? fromE4m3(e, code, 0) : e.i2f(level);
  if (w.rowScale) return rowScale ? e.fmul(x, rowScale) : x;
  Value dAt = e.gep(e.gepc(block, w.dOffset), e.add(e.mulc(e.divc(e.mulc(g, 32), w.scaleK), 32), e.shl(r, 1)));
  Value d = half(dAt), m;
  if (w.min) m = half(e.gepc(dAt, w.minOffset - w.dOffset));
  if (w.subK) {
    Value index = w.subK == 32 ? g : e.add(e.shl(g, 1), e.shru(kk, 4));
    Value subAt = e.gep(e.gepc(block, w.subOffset), e.add(e.shl(index, 4), r));
    Value sub = e.ld(e.i8, subAt, 0, 1), scale, minimum;
    if (w.subNibbles) {
      scale = e.andc(e.zext(e.i32, sub), 15);
      minimum = e.shru(e.zext(e.i32, sub), 4);
    } else {
      scale = w.subSigned ? e.sext(e.i32, sub) : e.zext(e.i32, sub);
      if (w.subMins) minimum = e.zext(e.i32, e.ld(e.i8, subAt, w.subMinOffset - w.subOffset, 1));
    }
    x = e.fmul(e.fmul(d, e.i2f(scale)), x);
    return minimum ? e.fsub(x, e.fmul(m, e.i2f(minimum))) : x;
  }
  x = e.fmul(x, d);
  return m ? e.fadd(x, m) : x;
}

} // namespace lathe::codegen::nvptx
