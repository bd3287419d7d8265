//===- Attention.cpp - attention operators ------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Lower.h"

namespace lathe::ops {
using namespace mlir;
namespace {

/// [batch, heads, sequence, size] of an input of rank 3, from feature |first| on, or 4.
TensorValue asHeads(Lower &l, const TensorValue &t, int64_t heads, Dim size, Dim first = 0) {
  if (t.rank() == 4) return t;
  return l.generate(t.element, {t.shape[0], Dim(heads), t.shape[1], size}, [&](ArrayRef<Dim> i) { return l.get(t, {i[0], i[2], l.d.add(first, l.d.add(l.d.mul(i[1], size), i[3]))}); });
}
/// |t| [batch, heads, sequence, size] with a vector added, of which its features begin at |first|.
TensorValue withBias(Lower &l, const TensorValue &t, const TensorValue &bias, Dim first) {
  if (!bias) return t;
  Scalars s = l.scalars(t.element);
  return l.generate(t.element, t.shape, [&](ArrayRef<Dim> i) { return s.add(l.get(t, i), l.get(bias, {l.d.add(first, l.d.add(l.d.mul(i[1], t.shape[3]), i[3]))})); });
}
/// Past and new entries of one cache, |length| of them.
TensorValue joined(Lower &l, const TensorValue &past, const TensorValue &next, Dim pastLength, Dim length) {
  if (!past) return next;
  Dims shape{next.shape[0], next.shape[1], length, next.shape[3]};
  return l.generate(next.element, shape, [&](ArrayRef<Dim> i) {
    Dim old = l.d.less(i[2], pastLength);
    return l.choose(l.bit(old), [&] { return l.get(past, i); },
                    [&] { return l.get(next, {i[0], i[1], l.d.sub(i[2], pastLength), i[3]}); });
  });
}
TensorValue result3d(Lower &l, const TensorValue &y, bool flat) {
  if (!flat) return y;
  Dim size = y.shape[3];
  return l.generate(y.element, l.shape(), [&](ArrayRef<Dim> i) {
    Dim head = l.d.floorDiv(i[2], size);
    return l.get(y, {i[0], head, i[1], l.d.sub(i[2], l.d.mul(head, size))});
  });
}

/// scores [batch, heads, queries, keys] = q . k, both scaled by |root|; f32 or f64.
TensorValue scoresOf(Lower &l, const TensorValue &q, const TensorValue &k, int64_t group, double scale, bool roots) {
  Type sum = q.element.isF64() ? q.element : Type(l.b.getF32Type());
  Scalars s = l.scalars(sum);
  Value root = s.constant(roots ? std::sqrt(scale) : 1);
  return l.generate(sum, {q.shape[0], q.shape[1], q.shape[2], k.shape[2]}, [&](ArrayRef<Dim> i) {
    Dim kv = l.d.floorDiv(i[1], group);
    Value dot = l.fold(0, q.shape[3], s.constant(0), [&](Dim e, Value so) {
      Value x = l.convert(l.get(q, {i[0], i[1], i[2], e}), q.element, sum), y = l.convert(l.get(k, {i[0], kv, i[3], e}), k.element, sum);
      if (roots) {
        x = s.mul(x, root);
        y = s.mul(y, root);
      }
      return s.add(so, s.mul(x, y));
    });
    return roots ? dot : s.mul(dot, s.constant(scale));
  });
}
TensorValue weighted(Lower &l, const TensorValue &p, const TensorValue &v, int64_t group, Type element) {
  Scalars s = l.scalars(p.element);
  return l.generate(element, {p.shape[0], p.shape[1], p.shape[2], v.shape[3]}, [&](ArrayRef<Dim> i) {
    Dim kv = l.d.floorDiv(i[1], group);
    Value sum = l.fold(0, p.shape[3], s.constant(0), [&](Dim j, Value so) {
      return s.add(so, s.mul(l.get(p, {i[0], i[1], i[2], j}), l.convert(l.get(v, {i[0], kv, j, i[3]}), v.element, p.element)));
    });
    return l.convert(sum, p.element, element);
  });
}
Value softcapped(const Scalars &s, Value x, double cap) { return cap > 0 ? s.mul(s.tanh(s.div(x, s.constant(cap))), s.constant(cap)) : x; }

LogicalResult attention(Lower &l) {
  auto spec = attentionSpec(l.types);
  if (failed(spec)) return failure();
  const DimMath &d = l.d;
  int64_t group = spec->heads / spec->kvHeads;
  TensorValue q = asHeads(l, l.in[0], spec->heads, spec->headSize);
  TensorValue newK = asHeads(l, l.in[1], spec->kvHeads, spec->headSize), newV = asHeads(l, l.in[2], spec->kvHeads, spec->valueSize);
  TensorValue past, pastV;
  if (l.has(4)) {
    past = l.in[4];
    pastV = l.in[5];
  }
  TensorValue k = joined(l, past, newK, spec->past, spec->total), v = joined(l, pastV, newV, spec->past, spec->total);
  double scale = l.node.real("scale", 0), cap = l.node.real("softcap", 0);
  if (!l.node.has("scale")) {
    if (!spec->headSize.known) return l.node.error("a known head size where there is no 'scale'", l.types.describe(0));
    scale = 1 / std::sqrt(double(*spec->headSize.known));
  }
  int64_t mode = l.node.integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) return l.node.error("qk_matmul_output_mode 0 .. 3", Twine(mode));
  TensorValue scores = scoresOf(l, q, k, group, scale, true);
  Type sum = scores.element;
  Scalars s = l.scalars(sum);
  TensorValue capped = cap > 0 ? l.generate(sum, scores.shape, [&](ArrayRef<Dim> i) { return softcapped(s, l.get(scores, i), cap); }) : scores;
  bool causal = l.node.integer("is_causal", 0);
  int64_t left = l.node.integer("left_window_size", -1), right = l.node.integer("right_window_size", -1);
  // Added to the scores: -inf where a query must not look.
  TensorValue bias = l.generate(sum, scores.shape, [&](ArrayRef<Dim> i) {
    Value none = s.constant(0), never = s.lowest(), x = none;
    auto mask = [&](Dim seen) {
      if (!seen.is(1)) x = s.select(l.bit(seen), x, never);
    };
    if (l.has(3)) {
      const TensorValue &m = l.in[3];
      Dim inside = d.less(i[3], m.shape.back());
      if (m.shape.back().is(1) && !spec->total.is(1)) inside = m.rank() ? d.less(i[3], 1) : Dim(1);
      auto load = [&] {
        Index at;
        for (int64_t e = 0; e < m.rank(); ++e) {
          Dim place = i[4 - m.rank() + e];
          at.push_back(m.shape[e].is(1) && e + 1 < m.rank() ? Dim(0) : e + 1 == m.rank() ? d.select(inside, place, 0) : m.shape[e].known ? place : d.select(d.equal(m.shape[e], 1), 0, place));
        }
        Value w = l.get(m, at);
        return isBool(m.element) ? s.select(w, none, never) : l.convert(w, m.element, sum);
      };
      x = load();
      mask(inside);
    }
    Dim offset = spec->past;
    if (l.has(6)) {
      Dim length = l.getIndex(l.in[6], {i[0]});
      mask(d.less(i[3], length));
      if (!l.has(4)) offset = d.sub(length, spec->queries);
    }
    Dim position = d.add(i[2], offset);
    if (causal) mask(d.less(i[3], d.add(position, 1)));
    if (left >= 0) mask(d.less(d.sub(position, left + 1), i[3]));
    if (right >= 0) mask(d.less(i[3], d.add(position, right + 1)));
    return x;
  });
  TensorValue biased = l.generate(sum, scores.shape, [&](ArrayRef<Dim> i) { return s.add(l.get(capped, i), l.get(bias, i)); });
  // A row without any key gives zeros, whatever its scores are.
  TensorValue empty = l.generate(sum, {scores.shape[0], scores.shape[1], scores.shape[2]}, [&](ArrayRef<Dim> row) {
    return l.fold(0, scores.shape[3], s.lowest(), [&](Dim j, Value most) { return s.max(most, l.get(bias, {row[0], row[1], row[2], j})); });
  });
  TensorValue soft = l.softmaxLast(biased, true);
  TensorValue p = l.generate(q.element, scores.shape, [&](ArrayRef<Dim> i) {
    Value masked = s.equal(l.get(empty, i.drop_back()), s.lowest());
    return l.convert(s.select(masked, s.constant(0), l.get(soft, i)), sum, q.element);
  });
  TensorValue y = weighted(l, l.cast(p, sum), v, group, l.resultElement());
  l.out.push_back(result3d(l, y, spec->query3d));
  if (l.types.wanted > 1) l.out.push_back(k);
  if (l.types.wanted > 2) l.out.push_back(v);
  if (l.types.wanted > 3) l.out.push_back(l.cast(mode == 0 ? scores : mode == 1 ? capped : mode == 2 ? biased : p, l.resultElement(3)));
  return success();
}

/// com.microsoft GroupQueryAttention: keys beyond seqlens_k + 1 do not exist; the present is a buffer.
LogicalResult groupQuery(Lower &l) {
  auto spec = attentionSpec(l.types);
  if (failed(spec)) return failure();
  const DimMath &d = l.d;
  int64_t group = spec->heads / spec->kvHeads, window = l.node.integer("local_window_size", -1);
  Dim size = spec->headSize;
  bool interleaved = l.node.integer("rotary_interleaved", 0), rotates = l.node.integer("do_rotary", 0);
  Scalars s0 = l.scalars(l.element(0));
  for (unsigned i : {9u, 11u, 14u})
    if (l.has(i)) return l.node.error(Twine("no ") + (i == 9 ? "position_ids" : i == 11 ? "head_sink" : "q_norm_weight"), l.types.describe(i));
  // Tokens before this call's, for each batch entry.
  auto pastOf = [&](Dim batch) { return d.sub(d.add(l.getIndex(l.in[5], l.in[5].rank() == 2 ? Index{batch, Dim(0)} : Index{batch}), 1), spec->queries); };
  auto rotated = [&](const TensorValue &t) {
    if (!rotates) return t;
    const TensorValue &cos = l.in[7], &sin = l.in[8];
    Dim half = cos.shape[1];
    return l.generate(t.element, t.shape, [&](ArrayRef<Dim> i) -> Value {
      Dim k = i[3];
      auto turn = [&]() -> Value {
        Dim position = d.max(d.add(pastOf(i[0]), i[2]), 0);
        l.check(d.less(position, cos.shape[0]), "positions within cos_cache");
        Dim pair = interleaved ? d.floorDiv(k, 2) : d.select(d.less(k, half), k, d.sub(k, half));
        Dim second = interleaved ? d.sub(k, d.mul(pair, 2)) : d.negate(d.less(k, half));
        Dim one = interleaved ? d.mul(pair, 2) : pair, two = interleaved ? d.add(one, 1) : d.add(pair, half);
        Value a = l.get(t, {i[0], i[1], i[2], one}), b = l.get(t, {i[0], i[1], i[2], two});
        Value c = l.convert(l.get(cos, {position, pair}), cos.element, t.element), sn = l.convert(l.get(sin, {position, pair}), sin.element, t.element);
        return s0.select(l.bit(second), s0.add(s0.mul(sn, a), s0.mul(c, b)), s0.sub(s0.mul(c, a), s0.mul(sn, b)));
      };
      Dim inside = d.less(k, d.mul(half, 2));
      if (inside.is(1)) return turn();
      return l.choose(l.bit(inside), turn, [&] { return l.get(t, i); });
    });
  };
  Dim keysAt = spec->packed ? d.mul(size, spec->heads) : Dim(0), valuesAt = spec->packed ? d.mul(size, spec->heads + spec->kvHeads) : Dim(0);
  const TensorValue &keys = l.in[spec->packed ? 0 : 1], &values = l.in[spec->packed ? 0 : 2];
  TensorValue q = rotated(asHeads(l, l.in[0], spec->heads, size)), newK = rotated(asHeads(l, keys, spec->kvHeads, size, keysAt));
  TensorValue newV = asHeads(l, values, spec->kvHeads, spec->valueSize, valuesAt);
  Dim length = l.shape(1)[2];
  auto present = [&](const TensorValue &next, unsigned pastInput) {
    return l.generate(next.element, {next.shape[0], next.shape[1], length, next.shape[3]}, [&](ArrayRef<Dim> i) {
      Dim past = pastOf(i[0]), at = d.sub(i[2], past);
      Dim isNew = d.both(d.less(-1, at), d.less(at, spec->keys));
      return l.choose(l.bit(isNew), [&] { return l.get(next, {i[0], i[1], at, i[3]}); }, [&]() -> Value {
        if (!l.has(pastInput)) return s0.constant(0);
        Dim old = d.less(i[2], spec->past);
        return l.choose(l.bit(old), [&] { return l.get(l.in[pastInput], i); }, [&] { return s0.constant(0); });
      });
    });
  };
  TensorValue k = present(newK, 3), v = present(newV, 4);
  double scale = l.node.real("scale", 0), cap = l.node.real("softcap", 0);
  if (scale == 0) {
    if (!size.known) return l.node.error("a known head size where there is no 'scale'", l.types.describe(0));
    scale = 1 / std::sqrt(double(*size.known));
  }
  TensorValue scores = scoresOf(l, q, k, group, scale, false);
  Scalars s = l.scalars(scores.element);
  TensorValue biased = l.generate(scores.element, scores.shape, [&](ArrayRef<Dim> i) {
    Value x = softcapped(s, l.get(scores, i), cap);
    if (l.has(10)) {
      const TensorValue &bias = l.in[10];
      Index at;
      for (int64_t e = 0; e < 4; ++e)
        at.push_back(bias.shape[e].is(1) ? Dim(0) : d.min(i[e], d.sub(bias.shape[e], 1)));
      x = s.add(x, l.convert(l.get(bias, at), bias.element, scores.element));
    }
    Dim position = d.add(pastOf(i[0]), i[2]);
    Dim seen = d.less(i[3], d.add(position, 1));
    if (window > 0) seen = d.both(seen, d.less(d.sub(position, window), i[3]));
    return s.select(l.bit(seen), x, s.lowest());
  });
  TensorValue y = weighted(l, l.softmaxLast(biased, true), v, group, l.resultElement());
  l.out.push_back(result3d(l, y, true));
  if (l.types.wanted > 1) l.out.push_back(k);
  if (l.types.wanted > 2) l.out.push_back(v);
  return success();
}

LogicalResult multiHead(Lower &l) {
  auto spec = attentionSpec(l.types);
  if (failed(spec)) return failure();
  const DimMath &d = l.d;
  if (l.has(4)) return l.node.error("no key_padding_mask", l.types.describe(4));
  TensorValue bias = l.has(3) ? l.in[3] : TensorValue();
  Dim wide = d.mul(spec->headSize, spec->heads);
  TensorValue q = withBias(l, asHeads(l, l.in[0], spec->heads, spec->headSize), bias, 0), newK = withBias(l, asHeads(l, l.in[1], spec->heads, spec->headSize), bias, wide),
              newV = withBias(l, asHeads(l, l.in[2], spec->heads, spec->valueSize), bias, d.mul(wide, 2));
  TensorValue past, pastV;
  if (l.has(6)) {
    past = l.in[6];
    pastV = l.in[7];
  }
  TensorValue k = joined(l, past, newK, spec->past, spec->total), v = joined(l, pastV, newV, spec->past, spec->total);
  double scale = l.node.real("scale", 0);
  if (scale == 0) {
    if (!spec->headSize.known) return l.node.error("a known head size where there is no 'scale'", l.types.describe(0));
    scale = 1 / std::sqrt(double(*spec->headSize.known));
  }
  bool causal = l.node.integer("unidirectional", 0);
  TensorValue scores = scoresOf(l, q, k, 1, scale, false);
  Scalars s = l.scalars(scores.element);
  TensorValue biased = l.generate(scores.element, scores.shape, [&](ArrayRef<Dim> i) {
    Value x = l.get(scores, i);
    if (l.has(5)) x = s.add(x, l.convert(l.getBroadcast(l.in[5], i), l.element(5), scores.element));
    return causal ? s.select(l.bit(d.less(i[3], d.add(d.add(spec->past, i[2]), 1))), x, s.lowest()) : x;
  });
  TensorValue y = weighted(l, l.softmaxLast(biased, true), v, 1, l.resultElement());
  l.out.push_back(result3d(l, y, true));
  if (l.types.wanted > 1) l.out.push_back(k);
  if (l.types.wanted > 2) l.out.push_back(v);
  return success();
}

/// com.microsoft Attention: the product for queries, keys and values is its own, and both caches are one tensor.
LogicalResult selfAttention(Lower &l) {
  auto spec = selfAttentionSpec(l.types);
  if (failed(spec)) return failure();
  const DimMath &d = l.d;
  int64_t heads = spec->heads;
  Dim size = spec->headSize, wide = d.mul(size, heads);
  double scale = l.node.real("scale", 0), hiddenScore = l.node.real("mask_filter_value", -10000);
  if (scale == 0) {
    if (!size.known) return l.node.error("a known head size where there is no 'scale'", l.types.describe(1));
    scale = 1 / std::sqrt(double(*size.known));
  }
  TensorValue rows = l.cast(l.matmul(l.reshape(l.in[0], {d.mul(spec->batch, spec->queries), spec->hidden}), l.in[1], l.element(0)), l.element(0));
  rows = l.reshape(rows, {spec->batch, spec->queries, d.mul(wide, 3)});
  TensorValue bias = l.has(2) ? l.in[2] : TensorValue();
  auto part = [&](int64_t k) { return withBias(l, asHeads(l, rows, heads, size, d.mul(wide, k)), bias, d.mul(wide, k)); };
  auto history = [&](int64_t k) {
    TensorValue next = part(k + 1), past;
    if (l.has(4)) past = l.generate(next.element, {spec->batch, Dim(heads), spec->past, size}, [&](ArrayRef<Dim> i) { return l.get(l.in[4], {Dim(k), i[0], i[1], i[2], i[3]}); });
    return joined(l, past, next, spec->past, spec->total);
  };
  TensorValue q = part(0), k = history(0), v = history(1);
  TensorValue scores = scoresOf(l, q, k, 1, scale, false);
  Scalars s = l.scalars(scores.element);
  bool causal = l.node.integer("unidirectional", 0);
  TensorValue biased = l.generate(scores.element, scores.shape, [&](ArrayRef<Dim> i) {
    Value x = l.get(scores, i);
    if (l.has(5)) x = s.add(x, l.convert(l.getBroadcast(l.in[5], i), l.element(5), scores.element));
    if (l.has(3)) x = s.select(l.bit(d.equal(l.getIndex(l.in[3], {i[0], i[3]}), 0)), s.add(x, s.constant(hiddenScore)), x);
    return causal ? s.select(l.bit(d.less(i[3], d.add(d.add(spec->past, i[2]), 1))), x, s.lowest()) : x;
  });
  TensorValue y = weighted(l, l.softmaxLast(biased, true), v, 1, l.resultElement());
  l.out.push_back(result3d(l, y, true));
  if (l.types.wanted > 1)
    l.out.push_back(l.generate(l.element(0), {Dim(2), spec->batch, Dim(heads), spec->total, size}, [&](ArrayRef<Dim> i) {
      return l.choose(l.bit(d.equal(i[0], 0)), [&] { return l.get(k, {i[1], i[2], i[3], i[4]}); }, [&] { return l.get(v, {i[1], i[2], i[3], i[4]}); });
    }));
  return success();
}

} // namespace

ArrayRef<LowerEntry> attentionLowerings() {
  static const LowerEntry table[] = {{"", "Attention", attention}, {"com.microsoft", "GroupQueryAttention", groupQuery}, {"com.microsoft", "MultiHeadAttention", multiHead},
                                     {"com.microsoft", "Attention", selfAttention}};
  return table;
}

} // namespace lathe::ops
