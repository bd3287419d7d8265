//===- Gather.cpp - embedding rows out of packed weights ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Reads one row of a tile of include/lathe/artifact/Packing.h, 32 columns at a time, and dequantizes it with the
// roundings of the format's reference.
//===----------------------------------------------------------------------===//
#include "RowTools.h"

namespace lathe::codegen {
namespace {

struct Gather : Emitter {
  const GatherParams &p;
  PackedLayout l;
  Gather(ModuleOp m, StringRef symbol, const GatherParams &p, X86Target t)
      : Emitter(m, symbol, t), p(p), l(packedLayout(p.type)) {}

  Value ints(llvm::function_ref<int32_t(int64_t)> f) {
    SmallVector<int32_t> v;
    for (int64_t i = 0; i < 16; ++i)
      v.push_back(f(i));
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vi, ArrayRef<int32_t>(v)));
  }
  Value shiftBy(Value x, Value amounts) { return arith::ShRUIOp::create(b, loc, x, amounts); }

  /// Lanes 4q .. 4q+3 hold the int32 at p + 64 (first + q): the four bytes of one row in a zmm each.
  Value words(Value at, int64_t offset, int64_t first) {
    Value v = splatI(vi, 0);
    for (int64_t q = 0; q < 4; ++q) {
      Value one = splat(ld(i32, at, offset + 64 * (first + q), 4));
      v = q == 0 ? one : select(quarter(q), one, v);
    }
    return v;
  }
  Value quarter(int64_t q) {
    SmallVector<bool> bits;
    for (int64_t i = 0; i < 16; ++i)
      bits.push_back(i / 4 == q);
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vec(16, i1), ArrayRef<bool>(bits)));
  }

  /// Codes of columns 0..15 (h = 0) or 16..31 of a group; |at| points at the row's byte 4r of the group's first plane.
  Value codes(Value at, int64_t h) {
    int64_t o = 0;
    Value code;
    auto merge = [&](Value part, int64_t shift) { code = code ? ori(code, shl(part, shift)) : part; };
    if (l.plane8) {
      merge(andc(shiftBy(words(at, o, 4 * h), ints([](int64_t i) { return 8 * (i % 4); })), 255), 0);
      o += 512;
    }
    if (l.plane4) {
      merge(andc(shiftBy(words(at, o, 0), ints([&](int64_t i) { return 8 * (i % 4) + 4 * h; })), 15), 0);
      o += 256;
    }
    int64_t high = l.plane4 ? 4 : 0;
    if (l.plane2) {
      merge(andc(shiftBy(splat(ld(i32, at, o + 64 * h, 4)), ints([](int64_t i) { return 8 * (i % 4) + 2 * (i / 4); })),
                 3),
            high);
      o += 128;
      high = l.plane4 ? 4 : 2;
    }
    if (l.plane1)
      merge(andc(shiftBy(splat(ld(i32, at, o, 4)), ints([&](int64_t i) { return 8 * (i % 4) + 4 * h + i / 4; })), 1),
            high);
    return code;
  }

  Value half(Value at) { return ext(ld(f16, at, 0, 2)); }

  /// 16 values of group |g| of 32 within a block (an i64), columns 16 h ...
  Value values(Value block, Value r, Value g, int64_t h, Value rowScale) {
    if (l.floatBytes) { // [k][16 rows]: one element a line of 16
      Type t = p.type == StorageType::f32 ? f32 : p.type == StorageType::f16 ? f16 : i16;
      Value at = gep(gep(block, mulc(g, l.groupBytes)), mulc(r, l.floatBytes));
      Value v = splat(ld(t, at, 16 * h * 16 * l.floatBytes, l.floatBytes));
      for (int64_t i = 1; i < 16; ++i)
        v = vector::InsertOp::create(b, loc, ld(t, at, (16 * h + i) * 16 * l.floatBytes, l.floatBytes), v, i);
      return p.type == StorageType::f32 ? v : p.type == StorageType::f16 ? ext(v) : fromBf16Bits(v);
    }
    Value code = codes(gep(gep(block, mulc(g, l.groupBytes)), mulc(r, 4)), h);
    if (l.codebook) {
      static const int32_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
      Value v = splatI(vi, 0);
      for (int64_t i = 0; i < 16; ++i) // a row is gathered once: 16 selects are cheap enough on every target
        v = select(cmp(arith::CmpIPredicate::eq, code, splatI(vi, i)), splatI(vi, table[i]), v);
      code = v;
    } else {
      code = addc(code, -l.zero);
    }
    Value x = l.e4m3 ? fromE4m3(*this, code, 0) : i2f(code);
    if (l.rowScale) return fmul(x, rowScale);
    Value rows2 = shl(r, 1);
    Value dAt = gep(gep(block, addc(rows2, l.dOffset)), mulc(divc(mulc(g, 32), l.scaleK), 32));
    Value d = half(dAt), m;
    if (l.min) m = half(gepc(dAt, l.minOffset - l.dOffset));
    if (l.subK) {
      Value index = l.subK == 32 ? g : addc(mulc(g, 2), h);
      Value subAt = gep(block, addc(add(mulc(index, 16), r), l.subOffset));
      Value sub = ld(i8, subAt, 0, 1), scale, minimum;
      if (l.subNibbles) {
        scale = andc(zext(i32, sub), 15);
        minimum = shru(zext(i32, sub), 4);
      } else {
        scale = l.subSigned ? sext(i32, sub) : zext(i32, sub);
        if (l.subMins) minimum = zext(i32, ld(i8, subAt, l.subMinOffset - l.subOffset, 1));
      }
      Value ds = splat(fmul(d, i2f(scale)));
      x = fmul(ds, x);
      return minimum ? fsub(x, splat(fmul(m, i2f(minimum)))) : x;
    }
    x = fmul(x, splat(d));
    return m ? fadd(x, splat(m)) : x;
  }

  void row(Value item) {
    Value out = at(arg(1), item, p.outStride * 4), positions;
    if (p.addPositions) positions = at(arg(2), stepInt(offsetof(LatheStep, position), item), rowStride(p.k) * 4);
    // Whole rows keep their padding zero.
    auto put = [&](Value v, Value column, int64_t offset, int64_t n) {
      Value bytes = shl(column, 2);
      if (positions) v = fadd(v, loadLanes(*this, gep(positions, bytes), offset * 4, n));
      if (n < 16) v = select(laneMask(*this, n), v, splatF(vf, 0));
      storeLanes(*this, v, gep(out, bytes), offset * 4, rowStride(p.k) <= p.outStride ? 16 : n);
    };
    Value given = stepPtr(offsetof(LatheStep, embedding)), null = LLVM::ZeroOp::create(b, loc, ptr);
    given = ifElse(
        isNull(given), ptr, [&] { return Values{null}; }, [&] { return Values{ld(ptr, at(given, item, 8), 0, 8)}; })[0];
    ifElse(
        isNull(given), {},
        [&] {
          token(stepInt(offsetof(LatheStep, token), item), put);
          return Values();
        },
        [&] {
          int64_t whole = p.k / 16 * 16;
          loop(c(0), c(whole), 16, [&](Value i) { put(loadLanes(*this, gep(given, shl(i, 2)), 0, 16), i, 0, 16); });
          if (int64_t tail = p.k - whole) put(loadLanes(*this, given, whole * 4, tail), c(whole), 0, tail);
          return Values();
        });
  }

  void token(Value id, llvm::function_ref<void(Value v, Value column, int64_t offset, int64_t n)> put) {
    Value tile = at(arg(0), shru(id, 4), packedTileBytes(p.type, p.k)), r = andc(id, 15), rowScale;
    if (l.rowScale) rowScale = splat(ld(f32, gep(tile, shl(r, 2)), packedTileBytes(p.type, p.k) - 64, 4));
    auto scaled = [&](Value v) { return p.scale == 1.0f ? v : fmul(v, splatF(vf, p.scale)); };
    int64_t perBlock = l.blockK / 32;
    auto group = [&](Value index, int64_t width) {
      Value block = at(tile, divc(index, perBlock), l.blockBytes), g = remc(index, perBlock), column = mulc(index, 32);
      put(scaled(values(block, r, g, 0, rowScale)), column, 0, std::min<int64_t>(width, 16));
      if (width > 16) put(scaled(values(block, r, g, 1, rowScale)), column, 16, width - 16);
    };
    loop(c(0), c(p.k / 32), 1, [&](Value g) { group(g, 32); });
    if (p.k % 32) group(c(p.k / 32), p.k % 32);
  }
};

} // namespace

LogicalResult emitGather(ModuleOp module, StringRef symbol, const GatherParams &p, X86Target target) {
  if (p.k < 1 || p.n < 1)
    return refuse(module, symbol, "expected a table of at least 1 x 1, found " + Twine(p.n) + " x " + Twine(p.k));
  if (p.outStride < p.k)
    return refuse(module, symbol, "expected outStride of at least " + Twine(p.k) + ", found " + Twine(p.outStride));
  Gather e(module, symbol, p, target);
  e.items([&](Value item) { e.row(item); });
  e.finish();
  return success();
}

KernelCost cost(const GatherParams &p) {
  return {0, 0, uint64_t(p.k) * 4 + uint64_t(packedTileBytes(p.type, p.k)) / 16};
}

} // namespace lathe::codegen
