//===- NetworkTypes.cpp - result types of norms, attention, quantization ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/TypeTable.h"

namespace lathe::ops {
using namespace mlir;

static FailureOr<AttentionSpec> attentionPast(TypeContext &c, AttentionSpec s);

FailureOr<AttentionSpec> attentionSpec(TypeContext &c) {
  const DimMath &d = c.d;
  bool contrib = c.node.domain == "com.microsoft", gqa = c.node.op == "GroupQueryAttention";
  AttentionSpec s;
  const char *queryHeads = contrib ? "num_heads" : "q_num_heads";
  s.heads = c.node.integer(queryHeads, 0);
  s.kvHeads = c.node.integer("kv_num_heads", gqa || !contrib ? 0 : s.heads);
  if (s.heads < 0 || s.kvHeads < 0) return c.node.error("head counts of 1 and above", Twine(s.heads) + " and " + Twine(s.kvHeads));
  auto shapeError = [&] { return c.node.error("query, key and value as [batch, sequence, heads * size] or [batch, heads, sequence, size]", c.describe(0) + ", " + c.describe(1) + " and " + c.describe(2)); };
  s.packed = gqa && !c.has(1) && !c.has(2);
  if (!s.packed && (!c.has(1) || !c.has(2)))
    return c.node.error("separate query, key and value", c.describe(0) + ", " + c.describe(1) + " and " + c.describe(2));
  for (unsigned i : {0u, 1u, 2u})
    if (!(s.packed && i) && c.rank(i) != 3 && c.rank(i) != 4) return shapeError();
  if (s.packed) {
    // Rows of queries, keys and values, one after the other.
    if (c.rank(0) != 3) return shapeError();
    if (s.heads < 1 || s.kvHeads < 1 || s.heads % s.kvHeads) return c.node.error("'num_heads' that is a multiple of 'kv_num_heads'", Twine(s.heads) + " and " + Twine(s.kvHeads));
    Dim last = c.shape(0)[2];
    int64_t parts = s.heads + 2 * s.kvHeads;
    s.query3d = s.keys3d = s.values3d = true;
    s.headSize = s.valueSize = d.floorDiv(last, parts);
    if (failed(c.require(d.equal(d.mul(s.headSize, parts), last), "a hidden size that " + Twine(parts) + " heads divide", c.describe(0)))) return failure();
    s.batch = c.shape(0)[0];
    s.queries = s.keys = c.shape(0)[1];
    return attentionPast(c, s);
  }
  s.query3d = c.rank(0) == 3;
  s.keys3d = c.rank(1) == 3;
  s.values3d = c.rank(2) == 3;
  if (gqa && !(s.query3d && s.keys3d && s.values3d)) return shapeError();
  auto known = [&](int64_t &heads, unsigned i) {
    if (c.rank(i) == 3) return heads > 0;
    Dim n = c.shape(i)[1];
    if (heads == 0 && n.known) heads = *n.known;
    return heads > 0 && n.is(heads);
  };
  if (!known(s.heads, 0) || !known(s.kvHeads, 1) || !known(s.kvHeads, 2)) return c.node.error(Twine("'") + queryHeads + "' and 'kv_num_heads' that fit the inputs", c.describe(0) + ", " + c.describe(1) + " and " + c.describe(2));
  if (s.heads % s.kvHeads) return c.node.error("a number of query heads that " + Twine(s.kvHeads) + " divides", Twine(s.heads));
  auto size = [&](unsigned i, int64_t heads, Dim &out) {
    Dim last = c.shape(i).back();
    if (c.rank(i) == 4) return out = last, success();
    out = d.floorDiv(last, heads);
    return c.require(d.equal(d.mul(out, heads), last), "a hidden size that " + Twine(heads) + " heads divide", c.describe(i));
  };
  Dim keySize;
  if (failed(size(0, s.heads, s.headSize)) || failed(size(1, s.kvHeads, keySize)) || failed(size(2, s.kvHeads, s.valueSize))) return failure();
  if (failed(c.require(d.equal(s.headSize, keySize), "one head size for query and key", c.describe(0) + " and " + c.describe(1)))) return failure();
  s.batch = c.shape(0)[0];
  s.queries = c.shape(0)[s.query3d ? 1 : 2];
  s.keys = c.shape(1)[s.keys3d ? 1 : 2];
  Dim values = c.shape(2)[s.values3d ? 1 : 2];
  if (failed(c.require(d.both(d.both(d.equal(s.batch, c.shape(1)[0]), d.equal(s.batch, c.shape(2)[0])), d.equal(s.keys, values)), "one batch and as many keys as values",
                       c.describe(0) + ", " + c.describe(1) + " and " + c.describe(2))))
    return failure();
  return attentionPast(c, s);
}

/// The past's length, and so the total.
static FailureOr<AttentionSpec> attentionPast(TypeContext &c, AttentionSpec s) {
  const DimMath &d = c.d;
  bool contrib = c.node.domain == "com.microsoft", gqa = c.node.op == "GroupQueryAttention";
  unsigned pastKey = gqa ? 3 : contrib ? 6 : 4;
  s.past = 0;
  if (c.has(pastKey) != c.has(pastKey + 1)) return c.node.error("past key and past value together", c.describe(pastKey) + " and " + c.describe(pastKey + 1));
  if (c.has(pastKey)) {
    if (c.rank(pastKey) != 4 || c.rank(pastKey + 1) != 4) return c.node.error("past keys and values as [batch, heads, sequence, size]", c.describe(pastKey) + " and " + c.describe(pastKey + 1));
    ArrayRef<Dim> k = c.shape(pastKey), v = c.shape(pastKey + 1);
    s.past = k[2];
    Dim fits = d.both(d.both(d.both(d.equal(k[0], s.batch), d.equal(v[0], s.batch)), d.both(d.equal(k[1], s.kvHeads), d.equal(v[1], s.kvHeads))),
                      d.both(d.both(d.equal(k[2], v[2]), d.equal(k[3], s.headSize)), d.equal(v[3], s.valueSize)));
    if (failed(c.require(fits, "past keys and values that fit query, key and value", c.describe(pastKey) + " and " + c.describe(pastKey + 1)))) return failure();
  }
  s.total = d.add(s.past, s.keys);
  return s;
}

namespace {

LogicalResult same(TypeContext &c) {
  c.result(c.element(0), c.shape(0));
  return success();
}
Type f32(TypeContext &c) { return Float32Type::get(c.node.loc.getContext()); }

/// Inputs |from| .. must broadcast to the normalized dimensions.
LogicalResult normalizes(TypeContext &c, int64_t &axis) {
  auto a = c.axis(c.rank(0), -1);
  if (failed(a)) return failure();
  axis = *a;
  for (unsigned i = 1; i < std::min<size_t>(c.operands.size(), 3); ++i) {
    if (c.has(i) && failed(broadcastsToFirst(c, i))) return failure();
  }
  return success();
}
Dims statistics(TypeContext &c, int64_t axis) {
  Dims shape = c.shape(0);
  for (int64_t k = axis; k < c.rank(0); ++k)
    shape[k] = 1;
  return shape;
}
LogicalResult layerNorm(TypeContext &c) {
  int64_t axis;
  if (failed(normalizes(c, axis))) return failure();
  c.result(c.element(0), c.shape(0));
  c.result(f32(c), statistics(c, axis));
  c.result(f32(c), statistics(c, axis));
  return success();
}
LogicalResult rmsNorm(TypeContext &c) {
  int64_t axis;
  if (failed(normalizes(c, axis))) return failure();
  c.result(c.element(1), c.shape(0));
  c.result(f32(c), statistics(c, axis));
  return success();
}
LogicalResult skipNorm(TypeContext &c) {
  if (c.rank(0) < 2 || c.rank(1) < 2) return c.node.error("input and skip of rank 2 or 3", c.describe(0) + " and " + c.describe(1));
  for (unsigned i = 1; i < c.operands.size(); ++i) {
    if (!c.has(i)) continue;
    auto shape = c.broadcast({0u, i});
    if (failed(shape)) return failure();
    if (shape->size() != c.shape(0).size() || (i > 1 && c.rank(i) != 1)) return c.node.error("input " + Twine(i) + " to broadcast to input 0", c.describe(i) + " and " + c.describe(0));
  }
  Dims one = statistics(c, c.rank(0) - 1);
  c.result(c.element(0), c.shape(0));
  c.result(f32(c), one);
  c.result(f32(c), one);
  c.result(c.element(0), c.shape(0));
  return success();
}
LogicalResult biased(TypeContext &c) { // BiasGelu, FastGelu
  if (c.has(1) && failed(broadcastsToFirst(c, 1))) return failure();
  return same(c);
}
LogicalResult swiglu(TypeContext &c) {
  if (c.rank(0) != c.rank(1)) return c.node.error("inputs of one shape", c.describe(0) + " and " + c.describe(1));
  for (int64_t k = 0; k < c.rank(0); ++k)
    if (failed(c.require(c.d.equal(c.shape(0)[k], c.shape(1)[k]), "inputs of one shape", c.describe(0) + " and " + c.describe(1)))) return failure();
  return same(c);
}

LogicalResult rotary(TypeContext &c) {
  bool contrib = c.node.domain == "com.microsoft";
  unsigned cos = contrib ? 2 : 1, positions = contrib ? 1 : 3;
  if (c.rank(0) != 3 && c.rank(0) != 4) return c.node.error("an input of rank 3 or 4", c.describe(0));
  if (contrib && (c.node.real("scale", 1) != 1 || c.node.integer("is_packed_batching", 0))) return c.node.error("neither a 'scale' nor 'is_packed_batching'", std::to_string(c.node.real("scale", 1)) + " and " + std::to_string(c.node.integer("is_packed_batching", 0)));
  Dim size = c.shape(0).back();
  int64_t heads = c.node.integer("num_heads", 0), rotated = c.node.integer("rotary_embedding_dim", 0);
  if (c.rank(0) == 3) {
    if (heads <= 0) {
      // The contrib op takes the head size from the caches.
      if (!contrib || !size.known || c.rank(cos) != 2 || !c.shape(cos)[1].known || *c.shape(cos)[1].known == 0) return c.node.error("attribute 'num_heads' of 1 or more for an input of rank 3", Twine(heads));
      heads = *size.known / (*c.shape(cos)[1].known * 2);
      if (heads <= 0) return c.node.error("caches of half a head", c.describe(cos));
    }
    if (failed(c.require(c.d.equal(c.d.mul(c.d.floorDiv(size, heads), heads), size), "a hidden size that " + Twine(heads) + " heads divide", c.describe(0)))) return failure();
    size = c.d.floorDiv(size, heads);
  }
  Dim width = rotated > 0 ? Dim(rotated) : size;
  if (failed(c.require(c.d.less(width, c.d.add(size, 1)), "a 'rotary_embedding_dim' of at most the head size", Twine(rotated)))) return failure();
  int64_t cacheRank = c.has(positions) ? 2 : 3;
  if (c.rank(cos) != cacheRank || c.rank(cos + 1) != cacheRank) return c.node.error("cos and sin caches of rank " + Twine(cacheRank), c.describe(cos) + " and " + c.describe(cos + 1));
  for (unsigned i : {cos, cos + 1})
    if (failed(c.require(c.d.equal(c.d.mul(c.shape(i).back(), 2), width), "caches of half the rotated dimensions", c.describe(i)))) return failure();
  if (failed(c.require(c.d.equal(c.shape(cos)[0], c.shape(cos + 1)[0]), "as many rows of sines as of cosines", c.describe(cos + 1) + " and " + c.describe(cos)))) return failure();
  Dim batch = c.shape(0)[0], tokens = c.shape(0)[c.rank(0) == 3 ? 1 : 2];
  if (!c.has(positions)) { // a row for each token
    for (unsigned i : {cos, cos + 1})
      if (failed(c.require(c.d.both(c.d.equal(c.shape(i)[0], batch), c.d.equal(c.shape(i)[1], tokens)), "caches of [batch, sequence, ..]", c.describe(i) + " for " + c.describe(0)))) return failure();
    return same(c);
  }
  if (contrib && c.rank(positions) == 1) { // the first token's
    if (failed(oneElement(c, positions, "a first position"))) return failure();
  } else if (c.rank(positions) != 2) {
    return c.node.error("position ids of rank 2", c.describe(positions));
  } else {
    Dim rows = c.d.either(c.d.equal(c.shape(positions)[0], 1), c.d.equal(c.shape(positions)[0], batch));
    if (failed(c.require(c.d.both(rows, c.d.equal(c.shape(positions)[1], tokens)), "position ids of [batch, sequence]", c.describe(positions) + " for " + c.describe(0)))) return failure();
  }
  return same(c);
}

LogicalResult attention(TypeContext &c) {
  auto s = attentionSpec(c);
  if (failed(s)) return failure();
  const DimMath &d = c.d;
  if (c.has(3)) { // attn_mask
    if (c.rank(3) < 1 || c.rank(3) > 4) return c.node.error("a mask that broadcasts to [batch, heads, queries, keys]", c.describe(3));
    Dim extents[] = {s->batch, Dim(s->heads), s->queries};
    for (int64_t k = 0; k < c.rank(3); ++k) {
      Dim n = c.shape(3)[k];
      int64_t at = 4 - c.rank(3) + k;
      // The last dimension may be shorter: the rest is masked.
      Dim ok = at == 3 ? d.both(d.less(0, n), d.less(n, d.add(s->total, 1))) : d.either(d.equal(n, 1), d.equal(n, extents[at]));
      if (failed(c.require(ok, "a mask that broadcasts to [batch, heads, queries, keys]", c.describe(3)))) return failure();
    }
    if (isInt(c.element(3))) return c.node.error("a mask of bool or of the query's type", c.describe(3));
  }
  if (c.has(6) && c.rank(6) != 1) return c.node.error("'nonpad_kv_seqlen' of rank 1", c.describe(6));
  if (c.has(6) && failed(c.require(d.equal(c.shape(6)[0], s->batch), "one 'nonpad_kv_seqlen' a batch entry", c.describe(6)))) return failure();
  Dims out = s->query3d ? Dims{s->batch, s->queries, d.mul(s->heads, s->valueSize)} : Dims{s->batch, s->heads, s->queries, s->valueSize};
  c.result(c.element(0), out);
  c.result(c.element(1), {s->batch, s->kvHeads, s->total, s->headSize});
  c.result(c.element(2), {s->batch, s->kvHeads, s->total, s->valueSize});
  c.result(c.element(0), {s->batch, s->heads, s->queries, s->total});
  return success();
}

/// com.microsoft: GroupQueryAttention and MultiHeadAttention.
LogicalResult contribAttention(TypeContext &c) {
  auto s = attentionSpec(c);
  if (failed(s)) return failure();
  bool gqa = c.node.op == "GroupQueryAttention";
  const DimMath &d = c.d;
  Dim present = s->total;
  if (gqa) {
    if (c.has(7) != c.has(8) || (c.node.integer("do_rotary", 0) && !c.has(7))) return c.node.error("cos_cache and sin_cache for 'do_rotary'", c.describe(7) + " and " + c.describe(8));
    if (!c.has(5)) return c.node.error("seqlens_k", "nothing");
    if (c.rank(5) != 1 && c.rank(5) != 2) return c.node.error("seqlens_k as [batch] or [batch, 1]", c.describe(5));
    if (failed(c.require(d.both(d.equal(c.shape(5)[0], s->batch), d.equal(c.shape(5).back(), c.rank(5) == 2 ? Dim(1) : s->batch)), "one of seqlens_k a batch entry", c.describe(5)))) return failure();
    if (c.node.integer("do_rotary", 0)) {
      if (c.rank(7) != 2 || c.rank(8) != 2) return c.node.error("cos_cache and sin_cache of rank 2", c.describe(7) + " and " + c.describe(8));
      if (failed(c.require(d.less(d.mul(c.shape(7)[1], 2), d.add(s->headSize, 1)), "a cos_cache of at most half a head", c.describe(7))) ||
          failed(c.require(d.both(d.equal(c.shape(7)[0], c.shape(8)[0]), d.equal(c.shape(7)[1], c.shape(8)[1])), "a sin_cache of cos_cache's shape", c.describe(8) + " and " + c.describe(7))))
        return failure();
    }
    if (c.node.integer("smooth_softmax", -1) > 0) return c.node.error("no 'smooth_softmax'", "1");
    if (!c.node.integer("causal", 1)) return c.node.error("'causal' of 1", "0");
    // A window of 0 hides every key in ONNX Runtime 1.32, and other negative numbers mean nothing that is written down.
    if (int64_t window = c.node.integer("local_window_size", -1); window != -1 && window < 1) return c.node.error("'local_window_size' of -1, or of 1 and above", Twine(window));
    if (c.node.integer("sliding_window_cache", 0) || c.node.integer("qk_output", 0)) return c.node.error("neither 'sliding_window_cache' nor 'qk_output'", Twine(c.node.integer("sliding_window_cache", 0)) + " and " + Twine(c.node.integer("qk_output", 0)));
    if (c.node.string("k_quant_type", "NONE") != "NONE" || c.node.string("v_quant_type", "NONE") != "NONE" || c.node.integer("kv_cache_bit_width", 0) || c.has(12) || c.has(13))
      return c.node.error("a cache that is not quantized", "'k_quant_type', 'v_quant_type', 'kv_cache_bit_width' or scales");
    if (c.has(14) != c.has(15)) return c.node.error("q_norm_weight and k_norm_weight together", c.describe(14) + " and " + c.describe(15));
    for (unsigned i : {14u, 15u})
      if (c.has(i) && (c.rank(i) != 1 || failed(c.require(c.d.equal(c.shape(i)[0], s->headSize), "a weight for each element of a head", c.describe(i)))))
        return c.rank(i) == 1 ? failure() : c.node.error("q_norm_weight and k_norm_weight of rank 1", c.describe(i));
    if (failed(c.ints(6, "total_sequence_length")) || failed(oneElement(c, 6, "total_sequence_length"))) return failure();
    // The buffer of the present is as long as the past's if that holds all tokens, as the operator's text says.
    Dim total = c.ints(6, "total_sequence_length")->front();
    present = d.max(s->past, total);
    if (c.has(10)) { // what is beyond its last dimension is masked
      if (c.rank(10) != 4) return c.node.error("an attention_bias of rank 4", c.describe(10));
      Dim last = c.shape(10)[3];
      if (failed(oneOrExtent(c, 10, {s->batch, Dim(s->heads), s->queries, last}, "an attention_bias"))) return failure();
      if (failed(c.require(d.either(d.equal(last, 1), d.both(d.less(0, last), d.less(d.sub(total, 1), last))), "an attention_bias for all keys", c.describe(10)))) return failure();
    }
  } else {
    for (unsigned i : {8u, 9u})
      if (c.has(i)) return c.node.error("no " + Twine(i == 8 ? "past_sequence_length" : "cache_indirection"), c.describe(i));
    // Of queries, keys and values, one after the other.
    Dim wide = c.d.mul(s->headSize, s->heads), all = c.d.add(c.d.mul(wide, 2), c.d.mul(s->valueSize, s->heads));
    if (c.has(3) && (c.rank(3) != 1 || failed(c.require(c.d.equal(c.shape(3)[0], all), "a bias for each feature of query, key and value", c.describe(3)))))
      return c.rank(3) == 1 ? failure() : c.node.error("a bias of rank 1", c.describe(3));
    if (c.has(5) && failed(oneOrExtent(c, 5, {s->batch, Dim(s->heads), s->queries, s->total}, "an attention_bias"))) return failure();
  }
  c.result(c.element(0), {s->batch, s->queries, c.d.mul(s->heads, s->valueSize)});
  c.result(c.element(s->packed ? 0 : 1), {s->batch, s->kvHeads, present, s->headSize});
  c.result(c.element(s->packed ? 0 : 2), {s->batch, s->kvHeads, present, s->valueSize});
  return success();
}

} // namespace

FailureOr<SelfAttentionSpec> selfAttentionSpec(TypeContext &c) {
  const DimMath &d = c.d;
  SelfAttentionSpec s;
  s.heads = c.node.integer("num_heads", 0);
  if (s.heads < 1) return c.node.error("'num_heads' of 1 and above", Twine(s.heads));
  if (c.node.has("qkv_hidden_sizes") || c.node.integer("do_rotary", 0)) return c.node.error("neither 'qkv_hidden_sizes' nor 'do_rotary'", c.node.has("qkv_hidden_sizes") ? "'qkv_hidden_sizes'" : "'do_rotary'");
  if (c.has(6)) return c.node.error("no past_sequence_length", c.describe(6));
  if (c.rank(0) != 3 || c.rank(1) != 2) return c.node.error("rows [batch, sequence, hidden] and weights [hidden, 3 * features]", c.describe(0) + " and " + c.describe(1));
  s.batch = c.shape(0)[0], s.queries = c.shape(0)[1], s.hidden = c.shape(0)[2];
  Dim all = c.shape(1)[1];
  s.headSize = d.floorDiv(all, 3 * s.heads);
  Dim fits = d.both(d.equal(c.shape(1)[0], s.hidden), d.equal(d.mul(s.headSize, 3 * s.heads), all));
  if (failed(c.require(fits, "weights for the rows' features and " + Twine(s.heads) + " heads", c.describe(0) + " and " + c.describe(1)))) return failure();
  if (c.has(2) && c.rank(2) != 1) return c.node.error("a bias of rank 1", c.describe(2));
  if (c.has(2) && failed(c.require(d.equal(c.shape(2)[0], all), "a bias for each feature", c.describe(2)))) return failure();
  s.past = 0;
  if (c.has(4)) {
    if (c.rank(4) != 5) return c.node.error("a past of [2, batch, heads, sequence, size]", c.describe(4));
    ArrayRef<Dim> p = c.shape(4);
    s.past = p[3];
    Dim ok = d.both(d.both(d.equal(p[0], 2), d.equal(p[1], s.batch)), d.both(d.equal(p[2], s.heads), d.equal(p[4], s.headSize)));
    if (failed(c.require(ok, "a past of [2, batch, heads, sequence, size]", c.describe(4)))) return failure();
  }
  s.total = d.add(s.past, s.queries);
  if (c.has(3)) {
    if (c.rank(3) != 2) return c.node.error("a mask of [batch, total]", c.describe(3));
    if (failed(c.require(d.both(d.equal(c.shape(3)[0], s.batch), d.equal(c.shape(3)[1], s.total)), "a mask of [batch, total]", c.describe(3)))) return failure();
  }
  if (c.has(5) && failed(oneOrExtent(c, 5, {s.batch, Dim(s.heads), s.queries, s.total}, "an attention_bias"))) return failure();
  return s;
}

namespace {

/// com.microsoft Attention.
LogicalResult selfAttention(TypeContext &c) {
  auto s = selfAttentionSpec(c);
  if (failed(s)) return failure();
  c.result(c.element(0), {s->batch, s->queries, c.d.mul(s->headSize, s->heads)});
  c.result(c.element(0), {Dim(2), s->batch, Dim(s->heads), s->total, s->headSize});
  return success();
}

/// Scale and zero point: one, one per entry of the axis, or one per block along it.
LogicalResult quantizationScale(TypeContext &c) {
  if (c.rank(1) == 0 || (c.rank(1) == 1 && c.shape(1)[0].is(1) && c.rank(0) != 1)) return success();
  auto axis = c.axis(c.rank(0), 1);
  if (failed(axis)) return failure();
  int64_t block = c.node.integer("block_size", 0);
  if (c.rank(1) == 1 && !block) return c.require(c.d.equal(c.shape(1)[0], c.shape(0)[*axis]), "one scale for each entry of axis " + Twine(*axis), c.describe(1) + " for " + c.describe(0));
  if (block <= 0 || c.rank(1) != c.rank(0)) return c.node.error("a scale for all, for each entry of the axis, or for each block of 'block_size'", c.describe(1) + " for " + c.describe(0));
  for (int64_t k = 0; k < c.rank(0); ++k) {
    Dim n = c.shape(0)[k];
    if (failed(c.require(c.d.equal(c.shape(1)[k], k == *axis ? c.d.ceilDiv(n, block) : n), "a scale for each block of " + Twine(block) + " along axis " + Twine(*axis), c.describe(1) + " for " + c.describe(0)))) return failure();
  }
  return success();
}
LogicalResult quantizationZero(TypeContext &c) {
  auto single = [&](unsigned i) { return c.rank(i) == 0 || (c.rank(i) == 1 && c.shape(i)[0].is(1)); };
  if (!c.has(2) || (single(1) && single(2))) return success();
  if (c.rank(2) != c.rank(1)) return c.node.error("zero points of the scale's shape", c.describe(2) + " and " + c.describe(1));
  for (int64_t k = 0; k < c.rank(1); ++k)
    if (failed(c.require(c.d.equal(c.shape(2)[k], c.shape(1)[k]), "zero points of the scale's shape", c.describe(2) + " and " + c.describe(1)))) return failure();
  return success();
}
LogicalResult outputType(TypeContext &c, Type otherwise, Type &type) {
  int64_t number = c.node.integer("output_dtype", 0);
  type = number ? elementType(c.node.loc.getContext(), number) : otherwise;
  if (!type) return c.node.error("attribute 'output_dtype' with a numeric element type", Twine(number));
  return success();
}
LogicalResult quantizeLinear(TypeContext &c) {
  Type type;
  if (failed(quantizationScale(c)) || failed(quantizationZero(c)) ||
      failed(outputType(c, c.has(2) ? c.element(2) : IntegerType::get(c.node.loc.getContext(), 8, IntegerType::Unsigned), type)))
    return failure();
  c.result(type, c.shape(0));
  return success();
}
LogicalResult dequantizeLinear(TypeContext &c) {
  Type type;
  if (failed(quantizationScale(c)) || failed(quantizationZero(c)) || failed(outputType(c, c.element(1), type))) return failure();
  c.result(type, c.shape(0));
  return success();
}
LogicalResult dynamicQuantize(TypeContext &c) {
  Type u8 = IntegerType::get(c.node.loc.getContext(), 8, IntegerType::Unsigned);
  c.result(u8, c.shape(0));
  c.result(f32(c), {});
  c.result(u8, {});
  return success();
}
LogicalResult dropout(TypeContext &c) {
  if (c.has(2)) {
    auto training = c.elements(2);
    if (!training || training->size() != 1 || !(*training)[0].is(0)) {
      c.unsupported = true;
      return c.node.error("training_mode that is absent or a constant false", training && training->size() == 1 && (*training)[0].known ? "true" : c.describe(2));
    }
  }
  c.result(c.element(0), c.shape(0));
  c.result(IntegerType::get(c.node.loc.getContext(), 1), c.shape(0));
  return success();
}

LogicalResult matMulNBits(TypeContext &c) {
  int64_t k = c.node.integer("K", 0), n = c.node.integer("N", 0), bits = c.node.integer("bits", 4), block = c.node.integer("block_size", 0);
  if (k <= 0 || n <= 0 || (bits != 2 && bits != 4 && bits != 8) || block < 16 || (block & (block - 1)))
    return c.node.error("'K' and 'N' of 1 or more, 'bits' of 2, 4 or 8 and a 'block_size' that is a power of two from 16", Twine(k) + ", " + Twine(n) + ", " + Twine(bits) + " and " + Twine(block));
  if (c.node.integer("weight_prepacked", 0)) return c.node.error("weights that are not 'weight_prepacked'", Twine(c.node.integer("weight_prepacked", 0)));
  // The sizes that follow from them are numbers of 64 bits.
  constexpr int64_t most = int64_t(1) << 48;
  int64_t blocks = k > most || block > most ? most : (k + block - 1) / block;
  if (blocks > most / block || n > most / (blocks * block)) return c.node.error("'K', 'N' and 'block_size' of a matrix of at most 2^48 elements", Twine(k) + ", " + Twine(n) + " and " + Twine(block));
  auto elements = [&](unsigned i, int64_t wanted, const Twine &what) {
    return c.require(c.d.equal(c.d.product(c.shape(i)), wanted), what + " of " + Twine(wanted) + " elements", c.describe(i));
  };
  if (c.rank(0) < 1 || failed(c.require(c.d.equal(c.shape(0).back(), k), "an input whose last dimension is " + Twine(k), c.describe(0)))) return failure();
  if (!c.element(1).isUnsignedInteger(8)) return c.node.error("weights as uint8", c.describe(1));
  if (failed(elements(1, n * blocks * (block * bits / 8), "weights")) || failed(elements(2, n * blocks, "scales"))) return failure();
  if (c.has(3)) {
    int64_t packed = isFloat(c.element(3)) ? n * blocks : n * ((blocks * bits + 7) / 8);
    if (failed(elements(3, packed, "zero points"))) return failure();
  }
  if (c.has(4)) return c.node.error("no g_idx", c.describe(4));
  if (c.has(5) && failed(elements(5, n, "a bias"))) return failure();
  Dims shape = c.shape(0);
  shape.back() = n;
  c.result(c.element(0), shape);
  return success();
}

LogicalResult gatherBlockQuantized(TypeContext &c) {
  int64_t bits = c.node.integer("bits", 4), block = c.node.integer("block_size", 128), rank = c.rank(0);
  auto gather = c.axis(rank, 0, "gather_axis"), quantize = c.axis(rank, 1, "quantize_axis");
  if (failed(gather) || failed(quantize)) return failure();
  if ((bits != 4 && bits != 8) || block < 16 || (block & (block - 1))) return c.node.error("'bits' of 4 or 8 and a 'block_size' that is a power of two from 16", Twine(bits) + " and " + Twine(block));
  bool packed = c.element(0).isUnsignedInteger(8);
  int64_t each = packed ? 8 / bits : 1;
  if (each > 1 && *quantize != rank - 1) return c.node.error("packed data that is quantized along its last axis", "axis " + Twine(*quantize));
  Dims whole = c.shape(0);
  whole[rank - 1] = c.d.mul(whole[rank - 1], each);
  if (c.rank(2) != rank) return c.node.error("scales of the data's rank", c.describe(2));
  for (int64_t k = 0; k < rank; ++k)
    if (failed(c.require(c.d.equal(c.shape(2)[k], k == *quantize ? c.d.ceilDiv(whole[k], block) : whole[k]), "a scale for each block of " + Twine(block), c.describe(2) + " for " + c.describe(0)))) return failure();
  if (c.has(3)) { // packed as the data is
    if (c.element(3) != c.element(0) || c.rank(3) != rank) return c.node.error("zero points of the data's type and rank", c.describe(3) + " for " + c.describe(0));
    for (int64_t k = 0; k < rank; ++k) {
      Dim n = k == rank - 1 ? c.d.ceilDiv(c.shape(2)[k], each) : c.shape(2)[k];
      if (failed(c.require(c.d.equal(c.shape(3)[k], n), "a zero point for each scale", c.describe(3) + " for " + c.describe(2)))) return failure();
    }
  }
  Dims shape(whole.begin(), whole.begin() + *gather);
  shape.append(c.shape(1).begin(), c.shape(1).end());
  shape.append(whole.begin() + *gather + 1, whole.end());
  c.result(c.element(2), shape);
  return success();
}

} // namespace

const std::vector<TypeEntry> &networkOperators() {
  static const char *ms = "com.microsoft";
  static const std::vector<TypeEntry> table = {
      {"", "LayerNormalization", 2, 3, "ff-", layerNorm},
      {"", "RMSNormalization", 2, 2, "ff", rmsNorm},
      {"", "SimplifiedLayerNormalization", 2, 2, "ff", rmsNorm},
      {"", "RotaryEmbedding", 3, 4, "f--i", rotary},
      {"", "Attention", 3, 7, "ff-affi", attention},
      {"", "SwiGLU", 2, 2, "f-", swiglu},
      {"", "Dropout", 1, 3, "ffb", dropout},
      {"", "QuantizeLinear", 2, 3, "nfa", quantizeLinear},
      {"", "DequantizeLinear", 2, 3, "afa", dequantizeLinear},
      {"", "DynamicQuantizeLinear", 1, 1, "f", dynamicQuantize},
      {ms, "SimplifiedLayerNormalization", 2, 2, "ff", rmsNorm},
      {ms, "SkipSimplifiedLayerNormalization", 3, 4, "f---", skipNorm},
      {ms, "SkipLayerNormalization", 3, 5, "f----", skipNorm},
      {ms, "RotaryEmbedding", 4, 4, "fif-", rotary},
      {ms, "GroupQueryAttention", 1, 16, "fff--iiffifff", contribAttention},
      {ms, "MultiHeadAttention", 3, 10, "ffffifffii", contribAttention},
      {ms, "Attention", 2, 7, "f--iffi", selfAttention},
      {ms, "MatMulNBits", 3, 6, "fafaif", matMulNBits},
      {ms, "GatherBlockQuantized", 3, 4, "aifa", gatherBlockQuantized},
      {ms, "Gelu", 1, 1, "f", same},
      {ms, "QuickGelu", 1, 1, "f", same},
      {ms, "BiasGelu", 2, 2, "f-", biased},
      {ms, "FastGelu", 1, 2, "f-", biased},
  };
  return table;
}

static const TypeEntry *find(StringRef domain, StringRef op) {
  if (domain == "ai.onnx") domain = "";
  for (const auto *table : {&coreOperators(), &networkOperators()})
    for (const TypeEntry &e : *table)
      if (domain == e.domain && op == e.op) return &e;
  return nullptr;
}

TypeFn typeFunction(StringRef domain, StringRef op) {
  const TypeEntry *e = find(domain, op);
  return e ? e->fn : nullptr;
}

std::vector<std::pair<std::string, std::string>> coveredOperators() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto *table : {&coreOperators(), &networkOperators()})
    for (const TypeEntry &e : *table)
      all.emplace_back(e.domain, e.op);
  llvm::sort(all);
  return all;
}

LogicalResult inferTypes(TypeContext &c) {
  const TypeEntry *e = find(c.node.domain, c.node.op);
  if (!e) return c.node.error("an operator that general code covers", "'" + c.node.op + "'");
  int given = int(c.operands.size());
  while (given > 0 && !c.has(given - 1))
    --given;
  if (given < e->least || (e->most >= 0 && given > e->most)) {
    std::string range = e->most < 0 ? "at least " + std::to_string(e->least) : e->least == e->most ? std::to_string(e->least) : std::to_string(e->least) + " to " + std::to_string(e->most);
    return c.node.error(range + " inputs", Twine(given));
  }
  size_t letters = strlen(e->kinds);
  // Of any number of inputs none may be left out, not the last ones either.
  if (e->most < 0) given = int(c.operands.size());
  for (int i = 0; i < given; ++i) {
    if (!c.has(i)) {
      if (i < e->least || e->most < 0) return c.node.error("input " + Twine(i), "nothing");
      continue;
    }
    char kind = e->kinds[std::min<size_t>(i, letters - 1)];
    Type t = c.element(i);
    bool ok = kind == 'a' || (kind == 'n' && !isBool(t)) || (kind == 'f' && isFloat(t)) || (kind == 'i' && isInt(t)) || (kind == 'b' && isBool(t));
    const char *expected = kind == 'n' ? "a number" : kind == 'f' ? "a float" : kind == 'i' ? "an integer" : "a bool";
    if (kind == '-') {
      int before = i - 1;
      while (before > 0 && !c.has(before))
        --before;
      if (t != c.element(before)) return c.node.error("input " + Twine(i) + " of type " + elementText(c.element(before)), c.describe(i));
    } else if (!ok) {
      return c.node.error(Twine(expected) + " type for input " + Twine(i), c.describe(i));
    }
  }
  for (int i = 0; i < given; ++i)
    if (c.has(i) && c.rank(i) > onnx::mostAxes) return c.node.error("inputs of at most " + Twine(onnx::mostAxes) + " axes", Twine(c.rank(i)));
  if (failed(e->fn(c))) return failure();
  for (const TypeContext::Operand &result : c.results)
    if (int64_t(result.shape.size()) > onnx::mostAxes) return c.node.error("a result of at most " + Twine(onnx::mostAxes) + " axes", Twine(result.shape.size()));
  return success();
}

} // namespace lathe::ops
