//===- RunContrib.cpp - rotation and attention as single operators ----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// RotaryEmbedding and Attention of the standard; GroupQueryAttention, MultiHeadAttention, Attention and RotaryEmbedding of com.microsoft
// (ONNX Runtime's ContribOperators.md).
//===----------------------------------------------------------------------===//
#include "Run.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {

/// Rows of a stored cache at this step's positions. |positions| null: they follow the past.
FailureOr<int> GraphRun::cacheTable(const std::shared_ptr<const Known> &stored, const Known *positions) {
  const Known &cache = *stored;
  if (cache.shape.size() != 2 || cache.shape[1] < 1 || !cache.isFloat()) return failure();
  if (positions && positions->elements() == 1) { // an offset
    if (positions->i.empty() || positions->i[0] != sizes.past) return failure();
  } else if (positions && !isPositions(*positions, positions->shape)) {
    return failure();
  }
  if (cache.shape[0] < sizes.total()) {
    beyond = std::max(beyond, sizes.total() - cache.shape[0]);
    return failure();
  }
  Table table{sizes.step, cache.shape[1], {}, {}};
  for (int64_t s = 0; s < sizes.step; ++s)
    for (int64_t k = 0; k < table.columns; ++k)
      table.values.push_back(cache.number((sizes.past + s) * table.columns + k));
  table.cache = stored;
  return terms.intern(std::move(table));
}

/// Is |x| rows of |heads| heads: [batch, step, heads * size], or [batch, heads, step, size]? heads 0: from the shape.
bool GraphRun::headsOf(const Abstract &x, int64_t heads, int64_t &size, bool &fourD) {
  if (x.is != Abstract::term) return false;
  int64_t width = terms.width(x.id);
  fourD = x.layout.size() == 4;
  Layout expected = {{{Dim::batch, sizes.batch}}};
  if (fourD) {
    heads = sizeOf(x.layout[1]);
    size = width / std::max<int64_t>(heads, 1);
    expected.append({{{Dim::feature, heads, size}}, {{Dim::step, sizes.step}}, {{Dim::feature, size, 1}}});
  } else {
    if (heads < 1 || width % heads) return false;
    size = width / heads;
    expected.append({{{Dim::step, sizes.step}}, {{Dim::feature, width, 1}}});
  }
  normalize(expected);
  return x.layout == expected;
}

bool GraphRun::rotary(NodeOp op, In in, Out out) {
  if (op.getOpType() != "RotaryEmbedding") return false;
  bool contrib = op.getDomain() == "com.microsoft";
  const Abstract &x = *in[0];
  Abstract &cosines = *in[contrib ? 2 : 1], &sines = *in[contrib ? 3 : 2];
  load(cosines);
  load(sines);
  const Abstract *positions = contrib ? in[1] : in.size() > 3 && in[3]->is != Abstract::absent ? in[3] : nullptr;
  if (!cosines.known || !sines.known || (positions && !positions->known)) return refuse("cosines, sines or positions depend on the tokens");
  if (contrib && (op.getFloat("scale", 1) != 1 || op.getInt("is_packed_batching", 0))) return refuse("a scale or packed batches");
  int64_t rotated = op.getInt("rotary_embedding_dim", 0), heads = op.getInt("num_heads", 0), size = 0;
  if (cosines.known->shape.empty() || cosines.known->shape.back() < 1) return refuse("cosines without a size");
  if (x.is != Abstract::term) return refuse("rows that are not computed from the tokens");
  if (!heads && !rotated && contrib && x.layout.size() == 3) heads = terms.width(x.id) / (2 * cosines.known->shape.back());
  bool fourD = false;
  if (!headsOf(x, heads, size, fourD)) return refuse("rows of heads laid out as " + layoutText(x.layout));
  if (!rotated) rotated = size;
  if (rotated < 1 || rotated > size || rotated / 2 != cosines.known->shape.back() || rotated % 2) return refuse("cosines for another size than " + std::to_string(rotated));
  FailureOr<int> c, s;
  // Of what was computed for the tokens of this run, positions choose rows.
  auto chosen = [&](const Abstract &table) { return onnx::isFloat(table.type) && table.is == Abstract::number && !table.fixed && table.known->shape.size() == 2; };
  if (positions && positions->known->elements() == sizes.batch * sizes.step && chosen(cosines) && chosen(sines)) {
    Layout layout = {{{Dim::batch, sizes.batch}}, {{Dim::step, sizes.step}}, {{Dim::feature, rotated / 2, 1}}};
    normalize(layout);
    auto rows = [&](const Known &table) -> FailureOr<int> {
      auto take = [&](const Known &from) -> FailureOr<Known> {
        if (from.shape != table.shape) return failure();
        Known out = Known::make(from.type, {sizes.batch, sizes.step, rotated / 2});
        for (int64_t r = 0; r < sizes.batch * sizes.step; ++r) {
          int64_t at = positions->known->i[static_cast<size_t>(r)];
          if (at < 0 || at >= from.shape[0]) return failure();
          for (int64_t k = 0; k < rotated / 2; ++k)
            out.f[static_cast<size_t>(r * (rotated / 2) + k)] = from.number(at * (rotated / 2) + k);
        }
        return out;
      };
      auto values = take(table);
      if (failed(values)) return failure();
      if (table.angles)
        if (auto angles = take(*table.angles); succeeded(angles)) values->angles = std::make_shared<const Known>(std::move(*angles));
      return tableOf(*values, layout, values->shape);
    };
    c = rows(*cosines.known);
    s = rows(*sines.known);
  } else if (positions) {
    c = cacheTable(cosines.known, positions->known.get());
    s = cacheTable(sines.known, positions->known.get());
  } else {
    Layout layout = {{{Dim::batch, sizes.batch}}, {{Dim::step, sizes.step}}, {{Dim::feature, rotated / 2, 1}}};
    normalize(layout);
    Shape shape = {sizes.batch, sizes.step, rotated / 2};
    c = tableOf(*cosines.known, layout, shape);
    s = tableOf(*sines.known, layout, shape);
  }
  if (failed(c) || failed(s)) return refuse("cosines or sines that are not one row for every position");
  out[0] = term(terms.rope(x.id, size, rotated, *c, *s, op.getInt("interleaved", 0)), x.layout, x.type);
  return true;
}

/// Attention of |call|; the cache's terms as well.
bool GraphRun::attend(const AttentionCall &call, TermId &result, TermId &key, TermId &value) {
  auto history = [&](const Abstract &x, const Abstract *past, int64_t size, TermId &out) {
    TermId id = x.id;
    if (past) {
      if (past->is != Abstract::term || terms[past->id].kind != Kind::past) return refuse("a past that is not an input"), false;
      Layout expected = {{{Dim::batch, sizes.batch}}, {{Dim::feature, call.kvHeads, size}}, {{Dim::past, sizes.past}}, {{Dim::feature, size, 1}}};
      normalize(expected);
      if (past->layout != expected) return refuse("a past laid out as " + layoutText(past->layout)), false;
      out = terms.history(id, terms[past->id].a);
      return true;
    }
    if (terms[id].kind != Kind::history) return refuse("keys or values without a past"), false;
    out = id;
    return true;
  };
  if (!history(call.k, call.pastKey, call.headSize, key) || !history(call.v, call.pastValue, call.valueSize, value)) return false;
  if (call.heads % call.kvHeads) return refuse("query heads that are no multiple of the KV heads"), false;
  if (!(call.scale > 0) || !std::isfinite(call.scale) || !(call.softcap >= 0) || !std::isfinite(call.softcap))
    return refuse("expected a positive scale and a soft cap of 0 or more, found " + std::to_string(call.scale) + " and " + std::to_string(call.softcap)), false;
  TermId scores = terms.scores(call.q.id, key, call.heads, call.headSize);
  scores = terms.scale(scores, call.scale);
  if (call.softcap > 0) scores = terms.scale(terms.unary("tanh", terms.scale(scores, 1 / call.softcap)), call.softcap);
  if (call.mask) {
    if (!call.mask->known) return refuse("a mask that depends on the tokens"), false;
    Layout layout = {{{Dim::batch, sizes.batch}}, {{Dim::feature, call.heads, 1}}, {{Dim::step, sizes.step}}, {{Dim::total, sizes.total()}}};
    int64_t window = 0;
    double hidden = -INFINITY; // nothing scales the scores after it
    if (!windowOf(*call.mask->known, layout, call.mask->type == DataType::boolean, window, hidden)) return false;
    scores = terms.masked(scores, window, hidden);
  } else if (!call.causal && sizes.step > 1) {
    return refuse("attention without a causal mask"), false;
  }
  if (call.causal) scores = terms.masked(scores, call.window, -INFINITY);
  // Of a scale and a cap that no float holds the product of.
  if (terms[scores].kind != Kind::scores) return refuse("scores whose scale and soft cap cannot be told apart from " + terms.text(scores, 1)), false;
  result = terms.attend(terms.softmax(scores), value, call.valueSize);
  return true;
}

/// com.microsoft Attention: queries, keys and values are products of one weight, past and present one tensor each.
bool GraphRun::selfAttention(NodeOp op, In in, Out out) {
  auto at = [&](unsigned k) -> Abstract * { return k < in.size() && in[k]->is != Abstract::absent ? in[k] : nullptr; };
  int64_t heads = op.getInt("num_heads", 0);
  Layout rows;
  Weight w, bias;
  if (!fullFeatures(*in[0], rows)) return refuse("rows laid out as " + layoutText(in[0]->layout));
  if (!matrixOf(*in[1], false, w) || w.columns != terms.width(in[0]->id) || heads < 1 || heads > w.rows || w.rows % (3 * heads)) return refuse("a weight that is not that of queries, keys and values");
  if (at(2) && (!vectorOf(*at(2), bias) || bias.rows != w.rows)) return refuse("a bias that is not one vector of weights for queries, keys and values");
  if (op.getInt("do_rotary", 0) || !op.getInts("qkv_hidden_sizes").empty() || at(6)) return refuse("a rotation, own sizes of queries, keys and values, or a cache of fixed length");
  if (at(3)) {
    const Abstract &mask = *at(3);
    if (!mask.known || mask.shape != Shape{sizes.batch, sizes.total()} || !mask.known->uniform() || mask.known->number(0) == 0) return refuse("a mask that does not follow the mask of the graph");
  }
  int64_t width = w.rows / 3, size = width / heads;
  Layout pair = {{{Dim::feature, 2, width}}, {{Dim::batch, sizes.batch}}, {{Dim::feature, heads, size}}, {{Dim::past, sizes.past}}, {{Dim::feature, size, 1}}};
  normalize(pair);
  if (!at(4) || at(4)->is != Abstract::term || terms[at(4)->id].kind != Kind::past || at(4)->layout != pair) return refuse("a past that is not an input of [2, batch, heads, past, size]");
  TermId all = terms.linear(in[0]->id, w, bias);
  auto part = [&](int64_t k) { return terms.slice(all, w.rows, k * width, (k + 1) * width); };
  const int64_t past = terms[at(4)->id].a;
  AttentionCall call;
  call.q = call.k = call.v = *in[0];
  call.q.id = part(0);
  call.k.id = terms.history(part(1), past), call.v.id = terms.history(part(2), past + pairValues);
  call.heads = call.kvHeads = heads, call.headSize = call.valueSize = size;
  call.scale = op.getFloat("scale", 0);
  if (call.scale == 0) call.scale = 1 / std::sqrt(double(size));
  call.causal = op.getInt("unidirectional", 0);
  call.mask = at(5);
  TermId result = -1, key = -1, value = -1;
  if (!attend(call, result, key, value)) return true;
  rows.push_back({{Dim::feature, width, 1}});
  out[0] = term(result, rows, in[0]->type);
  pair[3] = {{Dim::total, sizes.total()}};
  if (out.size() > 1) out[1] = term(terms.concat({key, value}, {width, width}), pair, in[0]->type);
  return true;
}

bool GraphRun::attention(NodeOp op, In in, Out out) {
  StringRef name = op.getOpType();
  bool contrib = op.getDomain() == "com.microsoft";
  if (contrib && name == "Attention") return selfAttention(op, in, out);
  auto at = [&](unsigned k) -> Abstract * { return k < in.size() && in[k]->is != Abstract::absent ? in[k] : nullptr; };
  AttentionCall call;
  bool fourD = false, keyFourD = false;
  int64_t size = 0;
  if (!contrib && name == "Attention") {
    if (op.getInt("qk_matmul_output_mode", 0) || op.getOutputs().size() > 3) return refuse("the scores are an output");
    if (at(6) && (!at(6)->known || llvm::any_of(at(6)->known->i, [&](int64_t n) { return n != sizes.total(); }))) return refuse("lengths of keys that are not the past's and the step's");
    call.q = *in[0], call.k = *in[1], call.v = *in[2];
    if (!headsOf(call.q, op.getInt("q_num_heads", 0), call.headSize, fourD)) return refuse("queries laid out as " + layoutText(call.q.layout));
    call.heads = terms.width(call.q.id) / call.headSize;
    call.pastKey = at(4), call.pastValue = at(5);
    auto keys = [&](Abstract &x, int64_t &each, const Abstract *past) {
      if (x.is != Abstract::term) return false;
      if (past) return headsOf(x, op.getInt("kv_num_heads", 0), each, keyFourD);
      if (x.layout.size() != 4) return false;
      each = sizeOf(x.layout[3]);
      int64_t kvHeads = terms.width(x.id) / std::max<int64_t>(each, 1);
      // The cache's heads, as they are or copied for the query heads that share one.
      Layout plain = {{{Dim::batch, sizes.batch}}, {{Dim::feature, kvHeads, each}}, {{Dim::total, sizes.total()}}, {{Dim::feature, each, 1}}};
      Layout copied = plain;
      copied[1].push_back({Dim::copies, call.heads / std::max<int64_t>(kvHeads, 1)});
      normalize(plain), normalize(copied);
      return x.layout == plain || x.layout == copied;
    };
    if (!keys(call.k, call.headSize, call.pastKey)) return refuse("keys laid out as " + layoutText(call.k.layout));
    if (!keys(call.v, call.valueSize, call.pastValue)) return refuse("values laid out as " + layoutText(call.v.layout));
    call.kvHeads = terms.width(call.k.id) / call.headSize;
    call.scale = op.getFloat("scale", 1 / std::sqrt(double(call.headSize)));
    call.softcap = op.getFloat("softcap", 0);
    call.causal = op.getInt("is_causal", 0);
    // is_causal counts positions from the first key, without the past, unless that or the lengths are an input of the operator.
    if (call.causal && !call.pastKey && !at(6)) return refuse("is_causal with keys that the past is already part of");
    call.mask = at(3);
    int64_t left = op.getInt("left_window_size", -1), right = op.getInt("right_window_size", -1);
    if (left >= 0 || right > 0) return refuse("a window as an attribute is not followed");
  } else if (contrib && name == "GroupQueryAttention") {
    call.heads = op.getInt("num_heads", 0), call.kvHeads = op.getInt("kv_num_heads", 0);
    if (call.heads < 1 || call.kvHeads < 1) return refuse("numbers of heads are missing");
    for (unsigned k : {5u, 6u})
      if (!at(k) || !at(k)->known) return refuse("lengths depend on the tokens");
    for (int64_t n : at(5)->known->i)
      if (n != sizes.total() - 1) return refuse("seqlens_k that is not the total length minus one");
    if (at(6)->known->i.size() != 1 || at(6)->known->i[0] != sizes.total()) return refuse("a total length that is not the past's and the step's");
    if (at(11) || op.getInt("smooth_softmax", -1) > 0) return refuse("attention sinks");
    if (op.getString("k_quant_type", "NONE") != "NONE" || op.getString("v_quant_type", "NONE") != "NONE" || op.getInt("kv_cache_bit_width", 0)) return refuse("a quantized cache");
    if (!op.getInt("causal", 1)) return refuse("attention that is not causal");
    if (op.getInt("sliding_window_cache", 0) || at(16)) return refuse("a cache as long as the window, or rows that are padded");
    call.q = *in[0];
    Layout rows;
    if (!fullFeatures(call.q, rows)) return refuse("queries laid out as " + layoutText(call.q.layout));
    if (at(1)) {
      if (!at(2)) return refuse("keys without values");
      call.k = *at(1), call.v = *at(2);
    } else {
      // Queries, keys and values in one row.
      if (call.q.layout.size() != 3) return refuse("queries laid out as " + layoutText(call.q.layout));
      int64_t all = terms.width(call.q.id), heads = std::min(call.heads, all), kvHeads = std::min(call.kvHeads, all);
      int64_t each = all / (heads + 2 * kvHeads), q = call.heads * each, kv = call.kvHeads * each;
      if (!each || all != q + 2 * kv) return refuse("rows of " + std::to_string(all) + " features for " + std::to_string(call.heads) + " and " + std::to_string(call.kvHeads) + " heads");
      Abstract packed = call.q;
      sliceAxis(packed, 2, 0, q, call.q);
      sliceAxis(packed, 2, q, q + kv, call.k);
      sliceAxis(packed, 2, q + kv, all, call.v);
    }
    if (!headsOf(call.q, call.heads, call.headSize, fourD) || fourD || !headsOf(call.k, call.kvHeads, size, fourD) || fourD || size != call.headSize ||
        !headsOf(call.v, call.kvHeads, call.valueSize, fourD) || fourD)
      return refuse("queries, keys and values laid out as " + layoutText(call.q.layout) + ", " + layoutText(call.k.layout) + " and " + layoutText(call.v.layout));
    call.pastKey = at(3), call.pastValue = at(4);
    if (!call.pastKey || !call.pastValue) return refuse("no past");
    if (at(14) || at(15)) { // norms of the heads, before they are rotated
      Weight q, k;
      if (!at(14) || !at(15) || !vectorOf(*at(14), q) || !vectorOf(*at(15), k) || q.rows != call.headSize || k.rows != call.headSize)
        return refuse("norms of heads whose weights are not two vectors of a head's size");
      double both = op.getFloat("qk_norm_epsilon", 1e-6);
      call.q.id = terms.rmsNorm(call.q.id, q, op.getFloat("q_norm_epsilon", both));
      call.k.id = terms.rmsNorm(call.k.id, k, op.getFloat("k_norm_epsilon", both));
    }
    if (op.getInt("do_rotary", 0)) {
      for (unsigned k : {7u, 8u})
        if (at(k)) load(*at(k));
      if (!at(7) || !at(8) || !at(7)->known || !at(8)->known || (at(9) && !at(9)->known)) return refuse("cosines, sines or positions depend on the tokens");
      const Known *positions = at(9) ? at(9)->known.get() : nullptr;
      auto c = cacheTable(at(7)->known, positions), s = cacheTable(at(8)->known, positions);
      if (failed(c) || failed(s)) return refuse("cosines or sines that are not one row for every position");
      int64_t rotated = 2 * at(7)->known->shape[1];
      bool interleaved = op.getInt("rotary_interleaved", 0);
      if (rotated > call.headSize) return refuse("cosines for more than a head");
      call.q.id = terms.rope(call.q.id, call.headSize, rotated, *c, *s, interleaved);
      call.k.id = terms.rope(call.k.id, call.headSize, rotated, *c, *s, interleaved);
    }
    call.scale = op.getFloat("scale", 0);
    if (call.scale == 0) call.scale = 1 / std::sqrt(double(call.headSize));
    call.softcap = op.getFloat("softcap", 0);
    call.causal = true;
    // The row's own token counts (measured with onnxruntime 1.32).
    int64_t window = op.getInt("local_window_size", -1);
    if (window != -1 && window < 1) return refuse("a window of " + std::to_string(window) + " tokens");
    call.window = std::max<int64_t>(0, window);
    call.mask = at(10);
  } else if (contrib && name == "MultiHeadAttention") {
    call.heads = call.kvHeads = op.getInt("num_heads", 0);
    if (call.heads < 1) return refuse("numbers of heads are missing");
    if (!at(1) || !at(2)) return refuse("queries, keys and values in one tensor");
    if (at(8) || at(9) || op.getOutputs().size() > 3) return refuse("a cache of fixed length, beams or the scores as an output");
    call.q = *in[0], call.k = *at(1), call.v = *at(2);
    if (at(3)) {
      Weight bias;
      Abstract *parts[] = {&call.q, &call.k, &call.v};
      int64_t widths = 0;
      for (Abstract *part : parts) {
        Layout rows;
        if (!fullFeatures(*part, rows)) return refuse("queries, keys or values laid out as " + layoutText(part->layout));
        widths += terms.width(part->id);
      }
      if (!vectorOf(*at(3), bias) || bias.rows != widths) return refuse("a bias that is not one vector of weights for queries, keys and values");
      int64_t begin = bias.begin;
      for (Abstract *part : parts) {
        Weight own = bias;
        own.rows = terms.width(part->id);
        own.begin = begin;
        own.end = begin += own.rows;
        part->id = terms.addWeight(part->id, own);
      }
    }
    if (!headsOf(call.q, call.heads, call.headSize, fourD) || fourD || !headsOf(call.k, call.kvHeads, size, fourD) || fourD || size != call.headSize ||
        !headsOf(call.v, call.kvHeads, call.valueSize, fourD) || fourD)
      return refuse("queries, keys and values laid out as " + layoutText(call.q.layout) + ", " + layoutText(call.k.layout) + " and " + layoutText(call.v.layout));
    if (at(4)) {
      const Abstract &padding = *at(4);
      if (!padding.known || padding.shape != Shape{sizes.batch, sizes.total()} || !padding.known->uniform() || padding.known->number(0) == 0)
        return refuse("a padding mask that does not follow the mask of the graph");
    }
    call.mask = at(5);
    call.pastKey = at(6), call.pastValue = at(7);
    if (!call.pastKey || !call.pastValue) return refuse("no past");
    call.scale = op.getFloat("scale", 0);
    if (call.scale == 0) call.scale = 1 / std::sqrt(double(call.headSize));
    call.causal = op.getInt("unidirectional", 0);
  } else {
    return false;
  }
  TermId result = -1, key = -1, value = -1;
  if (!attend(call, result, key, value)) return true;
  int64_t width = call.heads * call.valueSize;
  Layout rows = {{{Dim::batch, sizes.batch}}, {{Dim::step, sizes.step}}, {{Dim::feature, width, 1}}};
  if (call.q.layout.size() == 4)
    rows = {{{Dim::batch, sizes.batch}}, {{Dim::feature, call.heads, call.valueSize}}, {{Dim::step, sizes.step}}, {{Dim::feature, call.valueSize, 1}}};
  out[0] = term(result, rows, call.q.type);
  auto cache = [&](TermId id, int64_t each) {
    return term(id, {{{Dim::batch, sizes.batch}}, {{Dim::feature, call.kvHeads, each}}, {{Dim::total, sizes.total()}}, {{Dim::feature, each, 1}}}, call.q.type);
  };
  if (out.size() > 1 && call.pastKey) out[1] = cache(key, call.headSize);
  if (out.size() > 2 && call.pastValue) out[2] = cache(value, call.valueSize);
  return true;
}

/// Whether the elements of |x| are those of its param in their order: nothing transposed, added or decoded them.
static bool asStored(const Abstract &x) { return x.is == Abstract::weight && x.of && !x.swapped && !x.of.plusOne && !x.of.qdq && !x.of.bits; }

/// Whether what is stored for |x| has a type that scales may have where they are read.
static bool hasScales(const Abstract &x) {
  Type type = cast<RankedTensorType>(onnx::ParamOp(x.of.param).getType()).getElementType();
  return type.isF32() || type.isF16() || type.isBF16();
}

/// DequantizeLinear of a stored matrix: a weight by its codes.
bool GraphRun::dequantized(NodeOp op, In in, Out out) {
  if (op.getOpType() != "DequantizeLinear" || in[0]->is != Abstract::weight || in[0]->of.bits || in[0]->of.qdq || in[0]->swapped || in[0]->shape.size() != 2) return false;
  const Abstract &codes = *in[0], &scales = *in[1];
  const Abstract *zeros = in.size() > 2 && in[2]->is != Abstract::absent ? in[2] : nullptr;
  bool bytes = codes.type == DataType::int8 || codes.type == DataType::uint8;
  if (!bytes && codes.type != DataType::int4 && codes.type != DataType::uint4) return codes.known ? false : refuse("codes that are neither of 4 nor of 8 bits");
  Weight w = codes.of;
  w.qdq = true;
  const Shape &shape = codes.shape;
  int64_t axis = op.getInt("axis", 1), block = op.getInt("block_size", 0);
  if (axis < 0) axis += 2;
  if (shape[0] < 1 || shape[1] < 1) return refuse("a matrix without elements");
  if (axis < 0 || axis > 1 || block < 0) return refuse("an axis or blocks that do not fit");
  if (elementsOf(scales.shape) == 1 && !block) {
    w.qdqBlock[0] = shape[0], w.qdqBlock[1] = shape[1];
  } else {
    w.qdqBlock[axis] = block ? std::min(block, shape[axis]) : 1;
    w.qdqBlock[1 - axis] = block ? 1 : shape[1 - axis];
  }
  const Shape grid = {(shape[0] + w.qdqBlock[0] - 1) / w.qdqBlock[0], (shape[1] + w.qdqBlock[1] - 1) / w.qdqBlock[1]};
  const int64_t count = elementsOf(grid);
  // One, a vector along the axis, or a matrix of blocks: as many in another order would be other scales.
  const Shape expected = block ? grid : Shape{count};
  auto fits = [&](const Shape &found) { return found == expected || (count == 1 && !block && elementsOf(found) == 1); };
  for (const Abstract *x : {&scales, zeros})
    if (x && !fits(x->shape)) return refuse("scales or zero points that do not fit the matrix: expected " + shapeText(expected) + ", found " + shapeText(x->shape));
  auto part = [&](const Abstract &x, onnx::ParamOp &param, std::vector<double> &numbers) {
    if (asStored(x) && (!onnx::isFloat(x.type) || hasScales(x))) param = x.of.param;
    else if (x.known)
      for (int64_t k = 0; k < count; ++k)
        numbers.push_back(x.known->number(k));
    else return false;
    return true;
  };
  if (!onnx::isFloat(scales.type) || scales.type == DataType::float64 || !part(scales, w.scales, w.scaleNumbers)) return refuse("scales that are not stored floats");
  if (zeros && (zeros->type != codes.type || !part(*zeros, w.zeros, w.zeroNumbers))) return refuse("zero points that are not stored in the type of the codes");
  // What the operator gives has the type of its scales, or the one that is asked for.
  auto type = static_cast<DataType>(op.getInt("output_dtype", 0));
  if (type == DataType::undefined) type = scales.type;
  if (!keepsValues(DataType::float32, type)) return refuse("rounds a weight to " + onnx::dataTypeName(type) + ", which is not the type of the graph's weights");
  double middle = codes.type == DataType::uint8 ? 128 : codes.type == DataType::uint4 ? 8 : 0;
  if (!zeros) w.zeroNumbers = {0};
  // Zero points that all stand in the middle of the codes are what a storage type without them means.
  if (zeros && zeros->known && zeros->known->uniform()) {
    w.zeros = nullptr;
    w.zeroNumbers = {zeros->known->number(0)};
  } else if (w.zeros) {
    auto read = params.read(w.zeros);
    if (read.ok() && (*read)->uniform() && (*read)->number(0) == middle) {
      w.zeros = nullptr;
      w.zeroNumbers = {middle};
    }
  }
  out[0].is = Abstract::weight;
  out[0].type = type;
  out[0].shape = shape;
  out[0].of = w;
  // A table that is no linear's weight (of cosines, say) is looked into: small ones are numbers too, as stored floats are.
  bool product = llvm::all_of(op.getOutputs()[0].getUsers(), [](Operation *user) {
    auto node = dyn_cast<NodeOp>(user);
    return node && (node.getOpType() == "MatMul" || node.getOpType() == "Gemm" || node.getOpType() == "Transpose");
  });
  if (!product && llvm::all_of(in, [](const Abstract *x) { return x->is == Abstract::absent || x->known; })) {
    SmallVector<const Known *> numbers;
    for (const Abstract *x : in)
      numbers.push_back(x->known.get());
    if (auto values = evaluate(op, numbers); values.ok()) out[0].known = std::make_shared<Known>(std::move((*values)[0]));
  }
  return true;
}

/// MatMulNBits and GatherBlockQuantized: weights in blocks with a scale each.
bool GraphRun::quantized(NodeOp op, In in, Out out) {
  StringRef name = op.getOpType();
  if (op.getDomain() != "com.microsoft" || (name != "MatMulNBits" && name != "GatherBlockQuantized")) return false;
  auto at = [&](unsigned k) -> Abstract * { return k < in.size() && in[k]->is != Abstract::absent ? in[k] : nullptr; };
  bool lookup = name == "GatherBlockQuantized";
  const Abstract &codes = *in[lookup ? 0 : 1];
  const Abstract &scales = *in[2], *zeros = at(3);
  // Of zero points, a few bytes are numbers.
  for (const Abstract *x : {&codes, &scales, zeros})
    if (x && !asStored(*x) && !(x == zeros && x->known)) return refuse("codes, scales or zero points that are no weights as they are stored");
  if (!hasScales(scales)) return refuse("scales that are stored in another type than float32, float16 or bfloat16");
  Weight w;
  w.param = codes.of.param;
  w.scales = scales.of.param;
  if (zeros && asStored(*zeros)) w.zeros = zeros->of.param;
  w.bits = op.getInt("bits", 4);
  w.block = op.getInt("block_size", 128);
  if (op.getInt("weight_prepacked", 0)) return refuse("codes in the order of one accelerator (weight_prepacked)");
  if (w.block < 1 || (w.bits != 4 && w.bits != 8)) return refuse("weights of " + Twine(w.bits) + " bits in blocks of " + Twine(w.block));
  bool bytes = codes.type == DataType::uint8, nibbles = false;
  if (lookup) {
    if (op.getInt("gather_axis", 0) != 0 || op.getInt("quantize_axis", 1) != 1 || codes.shape.size() != 2) return refuse("a lookup that is not of rows of a matrix");
    // Without zero points, 4-bit types have their zero at 0 and bytes at half the range.
    nibbles = codes.type == DataType::int4 || codes.type == DataType::uint4;
    w.rows = codes.shape[0];
    w.columns = nibbles ? codes.shape[1] : codes.shape[1] * 8 / w.bits;
  } else {
    w.rows = op.getInt("N", 0);
    w.columns = op.getInt("K", 0);
    if (at(4)) return refuse("columns in another order (g_idx)");
  }
  if (w.rows < 1 || w.columns < 1 || w.columns > mostElements || w.block > mostElements) return refuse("a matrix of " + shapeText({w.rows, w.columns}) + " in blocks of " + Twine(w.block));
  int64_t blocks = (w.columns + w.block - 1) / w.block;
  if (w.rows > mostElements / (blocks * w.block)) return refuse("a matrix of " + shapeText({w.rows, w.columns}) + " in blocks of " + Twine(w.block));
  // In the order of the rows, flat or as a matrix.
  auto fits = [&](const Shape &found, int64_t each) { return found == Shape{w.rows * each} || found == Shape{w.rows, each}; };
  if (!fits(scales.shape, blocks))
    return refuse("scales that do not fit the matrix: expected " + shapeText({w.rows, blocks}) + ", found " + shapeText(scales.shape));
  if (nibbles) { // as those of DequantizeLinear
    if (zeros && (zeros->type != codes.type || !fits(zeros->shape, blocks)))
      return refuse("zero points that do not fit the matrix: expected " + onnx::dataTypeName(codes.type) + " of " + shapeText({w.rows, blocks}) + ", found " + onnx::dataTypeName(zeros->type) + " of " +
                    shapeText(zeros->shape));
    w.qdq = true;
    w.qdqBlock[1] = std::min(w.block, w.columns);
    w.bits = w.block = 0;
    if (!zeros) w.zeroNumbers = {0};
  } else if (!bytes || elementsOf(codes.shape) != w.rows * blocks * w.block * w.bits / 8) {
    return refuse("codes that do not fit the matrix: expected bytes of " + shapeText({w.rows, blocks * w.block * w.bits / 8}) + ", found " + onnx::dataTypeName(codes.type) + " of " + shapeText(codes.shape));
  }
  if (int64_t each = (blocks * w.bits + 7) / 8; zeros && !nibbles && (zeros->type != DataType::uint8 || !fits(zeros->shape, each)))
    return refuse("zero points that do not fit the matrix: expected bytes of " + shapeText({w.rows, each}) + ", found " + onnx::dataTypeName(zeros->type) + " of " + shapeText(zeros->shape));
  if (zeros && !w.zeros)
    for (int64_t r = 0; r < w.rows; ++r)
      for (int64_t b = 0; b < blocks; ++b) {
        const Known &all = *zeros->known;
        int64_t at = r * blocks + b, perByte = nibbles ? 1 : 8 / w.bits;
        if (nibbles) w.zeroNumbers.push_back(all.number(at));
        else w.zeroNumbers.push_back(static_cast<double>(all.i[r * ((blocks + perByte - 1) / perByte) + b / perByte] >> (b % perByte * w.bits) & ((1 << w.bits) - 1)));
      }
  if (lookup) {
    if (in[1]->is != Abstract::tokens) return refuse("a lookup by something else than tokens");
    Layout layout;
    if (!tokenRows(in[1]->shape, layout)) return refuse("indices of an unexpected shape");
    layout.push_back({{Dim::feature, w.columns, 1}});
    out[0] = term(terms.leaf(Kind::embed, w.columns, 0, w), layout);
    return true;
  }
  Layout rows;
  if (!fullFeatures(*in[0], rows) || terms.width(in[0]->id) != w.columns) return refuse("a product of something else than rows of " + Twine(w.columns) + " features");
  Weight bias;
  if (at(5) && (!vectorOf(*at(5), bias) || bias.rows != w.rows)) return refuse("a bias that is not a vector of weights");
  rows.push_back({{Dim::feature, w.rows, 1}});
  out[0] = term(terms.linear(in[0]->id, w, bias), rows, in[0]->type);
  return true;
}

} // namespace lathe::raise
