//===- Rope.cpp - angles, rotary embedding, append to the KV cache -----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "RowTools.h"

namespace lathe::codegen {
namespace {

struct Angles : Emitter {
  const AnglesParams &p;
  Angles(ModuleOp m, StringRef symbol, const AnglesParams &p, X86Target t) : Emitter(m, symbol, t), p(p) {}

  void row(Value item) {
    Value freq = arg(0), out = at(arg(1), item, rowStride(2 * p.half) * 4);
    Value position = i2f(trunc(i32, stepInt(offsetof(LatheStep, position), item)));
    auto piece = [&](Value in, Value to, int64_t offset, int64_t n) {
      Value f = ld(vec(n, f32), in, offset * 4, 4);
      auto [cosine, sine] = cosSin(*this, fmul(splat(vec(n, f32), position), f), p.attentionFactor);
      st(cosine, to, offset * 4, 4);
      st(sine, to, (p.half + offset) * 4, 4);
    };
    int64_t whole = p.half / 8 * 8;
    if (whole) loop(c(0), c(whole * 4), 32, [&](Value i) { piece(gep(freq, i), gep(out, i), 0, 8); });
    for (int64_t at = whole, w = 4; w; w /= 2)
      if (p.half & w) {
        piece(freq, out, at, w);
        at += w;
      }
    for (int64_t i = 2 * p.half; i < rowStride(2 * p.half); ++i)
      st(cf(0), out, i * 4, 4);
  }
};

struct RopeAppend : Emitter {
  const RopeAppendParams &p;
  RopeAppend(ModuleOp m, StringRef symbol, const RopeAppendParams &p, X86Target t) : Emitter(m, symbol, t), p(p) {}

  /// RMSNorm of one head: 1 / rms, in all lanes of a vector of 16.
  Value headScale(Value x) {
    Value acc = splatF(vf, 0);
    for (int64_t at = 0; at < p.headDim; at += 16) {
      Value v = loadLanes(*this, x, at * 4, std::min<int64_t>(16, p.headDim - at));
      acc = fma(v, v, acc); // lanes beyond the head add +0
    }
    Value ss = fmul(treeAdd(acc), cf(float(1.0 / double(p.headDim))));
    return fdiv(cf(1), sqrt(fadd(ss, cf(p.eps))));
  }

  struct Part {
    int64_t at;
    Value v;
  };

  /// The head at |x|, normalised and rotated, as parts that cover 0 .. headDim-1 (some may overlap).
  SmallVector<Part> head(Value x, Value weight, Value angles) {
    Value r = weight ? headScale(x) : Value();
    auto load = [&](int64_t at, int64_t n) {
      Value v = ld(vec(n, f32), x, at * 4, 4);
      if (r) v = fmul(fmul(v, splat(vec(n, f32), r)), ld(vec(n, f32), weight, at * 4, 4));
      return v;
    };
    SmallVector<Part> parts;
    int64_t rotary = p.rope ? p.rotaryDim : 0, half = rotary / 2;
    if (p.interleaved) {
      for (Piece q : pieces(rotary)) {
        SmallVector<int64_t> swap, twice;
        SmallVector<int32_t> sign;
        for (int64_t i = 0; i < q.width; ++i) {
          swap.push_back(i ^ 1);
          twice.push_back(i / 2);
          sign.push_back(i % 2 ? 0 : INT32_MIN);
        }
        Value v = load(q.at, q.width);
        auto pairs = [&](int64_t base) {
          Value w = ld(vec(q.width / 2, f32), angles, (base + q.at / 2) * 4, 4);
          return shuffle(w, w, twice);
        };
        Value product = fmul(shuffle(v, v, swap), pairs(half));
        VectorType it = vec(q.width, i32);
        Value flip = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(it, ArrayRef<int32_t>(sign)));
        product = bitcast(v.getType(), xori(bitcast(it, product), flip)); // -(x[i+1] * s) in even lanes
        parts.push_back({q.at, fma(v, pairs(0), product)});
      }
    } else {
      for (Piece q : pieces(half)) {
        Value u = load(q.at, q.width), v = load(half + q.at, q.width);
        Value co = ld(vec(q.width, f32), angles, q.at * 4, 4), s = ld(vec(q.width, f32), angles, (half + q.at) * 4, 4);
        parts.push_back({q.at, fma(u, co, fneg(fmul(v, s)))});
        parts.push_back({half + q.at, fma(v, co, fmul(u, s))});
      }
    }
    for (Piece q : pieces(p.headDim - rotary))
      parts.push_back({rotary + q.at, load(rotary + q.at, q.width)});
    return parts;
  }

  /// Largest magnitude to {scale, limit / it}, as the activation quantization has it with 127.
  std::pair<Value, Value> byteScale(ArrayRef<Part> parts, KVFormat f) {
    Value amax = cf(0);
    for (const Part &q : parts)
      amax = fmax(amax, treeMax(fabs(q.v)));
    Value some = fcmp(arith::CmpFPredicate::OGE, amax, cf(1e-30f));
    return {fmul(amax, cf(1.0f / byteLimit(f))), select(some, fdiv(cf(byteLimit(f)), amax), cf(0))};
  }

  void appendKey(SmallVector<Part> parts, Value plane, Value token) {
    int64_t bytes = elementBytes(p.k);
    Value inGroup = andc(token, 15);
    Value to = gep(at(plane, shru(token, 4), p.headDim * 16 * bytes), mulc(inGroup, bytes));
    if (isByte(p.k)) {
      auto [scale, inv] = byteScale(parts, p.k);
      st(scale, at(plane, token, 4), p.page * p.headDim, 4);
      for (Part &q : parts)
        q.v = fmul(q.v, splat(cast<VectorType>(q.v.getType()), inv));
    }
    // [dimension][16 tokens]: one element a line. Overlapping lanes are stored once.
    SmallVector<bool> done(p.headDim);
    for (const Part &q : parts) {
      Value v = toStored(*this, q.v, p.k);
      for (int64_t i = 0; i < cast<VectorType>(q.v.getType()).getNumElements(); ++i)
        if (!std::exchange(done[q.at + i], true)) st(lane(v, i), to, (q.at + i) * 16 * bytes, bytes);
    }
  }

  void appendValue(Value x, Value plane, Value token) {
    int64_t bytes = elementBytes(p.v);
    SmallVector<Part> parts;
    for (Piece q : pieces(p.valueDim))
      parts.push_back({q.at, ld(vec(q.width, f32), x, q.at * 4, 4)});
    if (isByte(p.v)) {
      auto [scale, inv] = byteScale(parts, p.v);
      st(scale, at(plane, token, 4), p.page * p.valueDim, 4);
      for (Part &q : parts)
        q.v = fmul(q.v, splat(cast<VectorType>(q.v.getType()), inv));
    }
    Value to = at(plane, token, p.valueDim * bytes);
    for (const Part &q : parts)
      st(toStored(*this, q.v, p.v), to, q.at * bytes, bytes);
  }

  void row(Value item) {
    auto rows = [&](int i) { return at(arg(i), item, p.qkvStride * 4); };
    Value q = rows(0), k = rows(1), v = rows(2),
          angles = p.rope ? at(arg(3), item, rowStride(p.rotaryDim) * 4) : Value();
    Value qNorm = p.qNorm ? arg(5) : Value(), kNorm = p.kNorm ? arg(p.qNorm ? 6 : 5) : Value();
    if (p.rope || p.qNorm)
      loop(c(0), c(p.qHeads), 1, [&](Value h) {
        Value x = at(q, h, p.headDim * 4);
        for (const Part &part : head(x, qNorm, angles))
          st(part.v, x, part.at * 4, 4);
      });
    if (!p.appendKV) return;
    // Where the row's entry lives.
    Value slot = stepInt(offsetof(LatheStep, slot), item), sequence = stepInt(offsetof(LatheStep, sequence), item);
    Value table = ld(ptr, stepPtr(offsetof(LatheStep, blockTable)), 8 * int64_t(p.group), 8);
    Value width = zext(i64, ld(i32, stepPtr(offsetof(LatheStep, tableStride)), 4 * int64_t(p.group), 4));
    Value entry = add(mul(sequence, width), divc(slot, p.page));
    Value block = sext(i64, ld(i32, at(table, entry, 4), 0, 4)), token = remc(slot, p.page);
    Value base = at(arg(4), block, p.blockStride);
    loop(c(0), c(p.kvHeads), 1, [&](Value h) {
      Value plane = at(base, h, p.headStride);
      appendKey(head(at(k, h, p.headDim * 4), kNorm, angles), plane, token);
      appendValue(at(v, h, p.valueDim * 4), gepc(plane, cachePlaneBytes(p.page, p.headDim, p.k)), token);
    });
  }
};

} // namespace

LogicalResult emitAngles(ModuleOp module, StringRef symbol, const AnglesParams &p, X86Target target) {
  if (p.half < 1) return refuse(module, symbol, "expected at least one frequency, found " + Twine(p.half));
  Angles e(module, symbol, p, target);
  e.items([&](Value item) { e.row(item); });
  e.finish();
  return success();
}

LogicalResult emitRopeAppend(ModuleOp module, StringRef symbol, const RopeAppendParams &p, X86Target target) {
  if (p.appendKV) {
    if (failed(checkCache(module, symbol, p.kvHeads, p.headDim, p.valueDim, p.k, p.v, p.page, p.blockStride, p.headStride)))
      return failure();
  } else if (failed(checkHeadSize(module, symbol, p.headDim))) {
    return failure();
  }
  if (p.rope && (p.rotaryDim < 2 || p.rotaryDim % 2 || p.rotaryDim > p.headDim))
    return refuse(module, symbol,
                  "expected an even rotary size of 2 to " + Twine(p.headDim) + ", found " + Twine(p.rotaryDim));
  RopeAppend e(module, symbol, p, target);
  e.items([&](Value item) { e.row(item); });
  e.finish();
  return success();
}

KernelCost cost(const AnglesParams &p) { return {uint64_t(p.half) * 4, 0, uint64_t(p.half) * 8}; }
KernelCost cost(const RopeAppendParams &p) {
  uint64_t q = uint64_t(p.qHeads) * p.headDim * 8;
  uint64_t k = uint64_t(p.kvHeads) * p.headDim, v = uint64_t(p.kvHeads) * p.valueDim;
  return {0, 0, q + (p.appendKV ? k * (4 + elementBytes(p.k)) + v * (4 + elementBytes(p.v)) : 0)};
}

} // namespace lathe::codegen
