//===- Attention.cpp - attention operators ------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include <cmath>

namespace lathe::interp {
namespace {

using Row = std::vector<double>;

/// Reads element (batch, head, token, k) of an input of rank 3 or 4, of rank 3 from feature |first| on, with |bias| added.
struct Heads {
  const Array &x;
  int64_t heads, size, first = 0;
  const Array *bias = nullptr; ///< from |first| on too
  double operator()(int64_t b, int64_t h, int64_t t, int64_t k) const {
    double value = x.rank() == 4 ? x.f[size_t(((b * x.shape[1] + h) * x.shape[2] + t) * x.shape[3] + k)]
                                 : x.f[size_t((b * x.shape[1] + t) * x.shape[2] + (bias ? 0 : first) + h * size + k)];
    return bias ? roundTo(x.type, value + bias->f[size_t(first + h * size + k)]) : value;
  }
};

struct Sizes5 {
  int64_t batch, queries, keys, past, total, headSize, valueSize;
};
/// Products of scores and sums of values, for |total| keys.
double steps(int64_t batch, int64_t heads, int64_t queries, int64_t total, int64_t size) { return double(batch) * double(heads) * double(queries) * double(total) * double(std::max<int64_t>(size, 1)); }
Sizes5 numbers(const ops::AttentionSpec &s) { return {*s.batch.known, *s.queries.known, *s.keys.known, *s.past.known, *s.total.known, *s.headSize.known, *s.valueSize.known}; }

/// softmax of a row of scores; a row of -inf gives zeros
Row probabilities(const Row &scores) {
  double most = -INFINITY, sum = 0;
  for (double s : scores)
    most = std::max(most, s);
  Row p(scores.size(), 0);
  if (most == -INFINITY) return p;
  for (size_t k = 0; k < scores.size(); ++k)
    sum += p[k] = std::exp(scores[k] - most);
  for (double &x : p)
    x /= sum;
  return p;
}

Status attention(Evaluation &e) {
  auto spec = ops::attentionSpec(e.types);
  if (mlir::failed(spec)) return e.bad("query, key and value", "others");
  Sizes5 n = numbers(*spec);
  LATHE_RETURN_IF_ERROR(e.work(steps(n.batch, spec->heads, n.queries, n.total, n.headSize + n.valueSize)));
  int64_t group = spec->heads / spec->kvHeads;
  Heads q{e.a(0), spec->heads, n.headSize}, k{e.a(1), spec->kvHeads, n.headSize}, v{e.a(2), spec->kvHeads, n.valueSize};
  auto key = [&](int64_t b, int64_t h, int64_t t, int64_t c) { return t < n.past ? e.a(4).f[size_t(((b * spec->kvHeads + h) * n.past + t) * n.headSize + c)] : k(b, h, t - n.past, c); };
  auto value = [&](int64_t b, int64_t h, int64_t t, int64_t c) { return t < n.past ? e.a(5).f[size_t(((b * spec->kvHeads + h) * n.past + t) * n.valueSize + c)] : v(b, h, t - n.past, c); };
  double scale = e.node.has("scale") ? e.node.real("scale", 1) : 1 / std::sqrt(double(n.headSize)), cap = e.node.real("softcap", 0);
  int64_t mode = e.node.integer("qk_matmul_output_mode", 0), left = e.node.integer("left_window_size", -1), right = e.node.integer("right_window_size", -1);
  if (mode < 0 || mode > 3) return e.bad("qk_matmul_output_mode 0 .. 3", std::to_string(mode));
  bool causal = e.node.integer("is_causal", 0);
  for (int64_t b = 0; e.has(6) && b < n.batch; ++b)
    if (int64_t length = e.a(6).i[size_t(b)]; length < 0 || length > n.total)
      return e.bad("'nonpad_kv_seqlen' of 0 .. " + std::to_string(n.total), std::to_string(length));
  left = std::min(left, n.total + n.queries), right = std::min(right, n.total + n.queries); // as good as none
  for (int64_t b = 0; b < n.batch; ++b)
    for (int64_t h = 0; h < spec->heads; ++h)
      for (int64_t r = 0; r < n.queries; ++r) {
        Row raw, capped, biased, bias;
        int64_t length = e.has(6) ? e.a(6).i[size_t(b)] : n.total, offset = e.has(4) ? n.past : e.has(6) ? length - n.queries : 0, at = r + offset;
        for (int64_t t = 0; t < n.total; ++t) {
          double dot = 0, add = 0;
          for (int64_t c = 0; c < n.headSize; ++c)
            dot += q(b, h, r, c) * key(b, h / group, t, c);
          raw.push_back(dot * scale);
          capped.push_back(cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale);
          if (e.has(3)) {
            const Array &m = e.a(3);
            // The last dimension may end early, or be one for all.
            int64_t last = m.shape.back();
            if (t >= last) {
              add = -INFINITY;
            } else {
              Sizes index{b, h, r, t};
              int64_t place = broadcastPlace(m.shape, index);
              add = m.floating() ? m.f[size_t(place)] : m.i[size_t(place)] ? 0 : -INFINITY;
            }
          }
          bool seen = (!causal || t <= at) && t < length && (left < 0 || t >= at - left) && (right < 0 || t <= at + right);
          if (!seen) add = -INFINITY;
          bias.push_back(add);
          biased.push_back(capped.back() + add);
        }
        double most = -INFINITY;
        for (double x : bias)
          most = std::max(most, x);
        Row p = most == -INFINITY ? Row(size_t(n.total), 0) : probabilities(biased);
        for (double &x : p)
          x = roundTo(e.a(0).type, x);
        for (int64_t c = 0; c < n.valueSize; ++c) {
          double sum = 0;
          for (int64_t t = 0; t < n.total; ++t)
            sum += p[size_t(t)] * value(b, h / group, t, c);
          e.out[0].put(spec->query3d ? ((b * n.queries + r) * spec->heads + h) * n.valueSize + c : ((b * spec->heads + h) * n.queries + r) * n.valueSize + c, sum);
        }
        const Row &wanted = mode == 0 ? raw : mode == 1 ? capped : mode == 2 ? biased : p;
        for (int64_t t = 0; t < n.total; ++t)
          e.out[3].put(((b * spec->heads + h) * n.queries + r) * n.total + t, wanted[size_t(t)]);
      }
  for (int64_t b = 0; b < n.batch; ++b)
    for (int64_t h = 0; h < spec->kvHeads; ++h)
      for (int64_t t = 0; t < n.total; ++t) {
        int64_t row = (b * spec->kvHeads + h) * n.total + t;
        for (int64_t c = 0; c < n.headSize; ++c)
          e.out[1].put(row * n.headSize + c, key(b, h, t, c));
        for (int64_t c = 0; c < n.valueSize; ++c)
          e.out[2].put(row * n.valueSize + c, value(b, h, t, c));
      }
  return Status();
}

/// com.microsoft: GroupQueryAttention and MultiHeadAttention.
Status contribAttention(Evaluation &e) {
  auto spec = ops::attentionSpec(e.types);
  if (mlir::failed(spec)) return e.bad("query, key and value", "others");
  Sizes5 n = numbers(*spec);
  bool gqa = e.node.op == "GroupQueryAttention", interleaved = e.node.integer("rotary_interleaved", 0);
  int64_t group = spec->heads / spec->kvHeads, window = e.node.integer("local_window_size", -1);
  size_t pastInput = gqa ? 3 : 6, biasInput = gqa ? 10 : 5;
  for (size_t i : gqa ? std::vector<size_t>{9, 11} : std::vector<size_t>{4})
    if (e.has(i)) return e.bad(gqa ? (i == 9 ? "no position_ids" : "no head_sink") : "no key_padding_mask", e.types.describe(unsigned(i)));
  bool rotates = gqa && e.node.integer("do_rotary", 0);
  double scale = e.node.real("scale", 0), cap = gqa ? e.node.real("softcap", 0) : 0;
  if (scale == 0) scale = 1 / std::sqrt(double(n.headSize));
  bool causal = gqa || e.node.integer("unidirectional", 0);
  const Array *bias = !gqa && e.has(3) ? &e.a(3) : nullptr;
  int64_t wide = spec->heads * n.headSize, narrow = spec->kvHeads * n.headSize;
  bool parts = spec->packed || bias;
  Heads q{e.a(0), spec->heads, n.headSize, 0, bias}, k{e.a(spec->packed ? 0 : 1), spec->kvHeads, n.headSize, parts ? wide : 0, bias},
      v{e.a(spec->packed ? 0 : 2), spec->kvHeads, n.valueSize, parts ? wide + narrow : 0, bias};
  int64_t length = *e.types.results[1].shape[2].known;
  LATHE_RETURN_IF_ERROR(e.work(steps(n.batch, spec->heads, n.queries, length, n.headSize + n.valueSize)));
  for (int64_t b = 0; b < n.batch; ++b) {
    int64_t past = gqa ? e.a(5).i[size_t(b)] + 1 - n.queries : n.past;
    auto turned = [&](const Heads &x, int64_t h, int64_t t) {
      Row row;
      for (int64_t c = 0; c < n.headSize; ++c)
        row.push_back(x(b, h, t, c));
      if (size_t norm = &x == &q ? 14 : 15; gqa && e.has(norm)) {
        double sum = 0, epsilon = e.node.real(norm == 14 ? "q_norm_epsilon" : "k_norm_epsilon", e.node.real("qk_norm_epsilon", 1e-6));
        for (double y : row)
          sum += y * y;
        double factor = 1 / std::sqrt(sum / double(n.headSize) + epsilon);
        for (int64_t c = 0; c < n.headSize; ++c)
          row[size_t(c)] = roundTo(x.x.type, row[size_t(c)] * factor * e.a(norm).f[size_t(c)]);
      }
      if (!rotates) return row;
      const Array &cos = e.a(7), &sin = e.a(8);
      int64_t half = cos.shape[1], at = std::max<int64_t>(past + t, 0);
      for (int64_t c = 0; c < half; ++c) {
        size_t one = size_t(interleaved ? 2 * c : c), two = size_t(interleaved ? 2 * c + 1 : c + half);
        double co = cos.f[size_t(at * half + c)], si = sin.f[size_t(at * half + c)], x1 = row[one], x2 = row[two];
        row[one] = roundTo(x.x.type, co * x1 - si * x2);
        row[two] = roundTo(x.x.type, si * x1 + co * x2);
      }
      return row;
    };
    if (rotates && past + n.queries > e.a(7).shape[0]) return e.bad("positions within cos_cache", e.types.describe(7));
    // The present cache: past entries, then the new ones; what is beyond them keeps what the past buffer held.
    for (int64_t h = 0; h < spec->kvHeads; ++h)
      for (int64_t t = 0; t < length; ++t) {
        bool fresh = t >= past && t - past < n.keys;
        Row row = fresh ? turned(k, h, t - past) : Row();
        for (int64_t c = 0; c < n.headSize; ++c)
          e.out[1].put(((b * spec->kvHeads + h) * length + t) * n.headSize + c,
                       fresh ? row[size_t(c)] : e.has(pastInput) && t < n.past ? e.a(pastInput).f[size_t(((b * spec->kvHeads + h) * n.past + t) * n.headSize + c)] : 0);
        for (int64_t c = 0; c < n.valueSize; ++c)
          e.out[2].put(((b * spec->kvHeads + h) * length + t) * n.valueSize + c,
                       fresh ? v(b, h, t - past, c) : e.has(pastInput + 1) && t < n.past ? e.a(pastInput + 1).f[size_t(((b * spec->kvHeads + h) * n.past + t) * n.valueSize + c)] : 0);
      }
    for (int64_t h = 0; h < spec->heads; ++h)
      for (int64_t r = 0; r < n.queries; ++r) {
        Row query = turned(q, h, r), scores;
        int64_t kv = h / group, at = past + r;
        for (int64_t t = 0; t < length; ++t) {
          double dot = 0;
          for (int64_t c = 0; c < n.headSize; ++c)
            dot += query[size_t(c)] * e.out[1].f[size_t(((b * spec->kvHeads + kv) * length + t) * n.headSize + c)];
          double s = cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale;
          if (e.has(biasInput)) {
            const Array &bias = e.a(biasInput);
            Sizes index{b, h, r, t};
            int64_t place = 0;
            for (size_t d = 0; d < 4; ++d)
              place = place * bias.shape[d] + (bias.shape[d] == 1 ? 0 : std::min(index[d], bias.shape[d] - 1));
            s += bias.f[size_t(place)];
          }
          bool seen = (!causal || t <= at) && (window <= 0 || t > at - window);
          scores.push_back(seen ? s : -INFINITY);
        }
        Row p = probabilities(scores);
        for (int64_t c = 0; c < n.valueSize; ++c) {
          double sum = 0;
          for (int64_t t = 0; t < length; ++t)
            sum += p[size_t(t)] * e.out[2].f[size_t(((b * spec->kvHeads + kv) * length + t) * n.valueSize + c)];
          e.out[0].put(((b * n.queries + r) * spec->heads + h) * n.valueSize + c, sum);
        }
      }
  }
  return Status();
}

/// com.microsoft Attention.
Status selfAttention(Evaluation &e) {
  auto spec = ops::selfAttentionSpec(e.types);
  if (mlir::failed(spec)) return e.bad("rows, weights and a past", "others");
  int64_t batch = *spec->batch.known, queries = *spec->queries.known, past = *spec->past.known, total = *spec->total.known, hidden = *spec->hidden.known,
          size = *spec->headSize.known, heads = spec->heads, all = 3 * heads * size;
  LATHE_RETURN_IF_ERROR(e.work(steps(batch, heads, queries, total, 2 * size) + 3 * steps(batch, heads, queries, size, hidden)));
  bool causal = e.node.integer("unidirectional", 0);
  double scale = e.node.real("scale", 0), hiddenScore = e.node.real("mask_filter_value", -10000);
  if (scale == 0) scale = 1 / std::sqrt(double(size));
  const Array &x = e.a(0), &w = e.a(1);
  // part: 0 queries, 1 keys, 2 values
  auto project = [&](int64_t part, int64_t b, int64_t h, int64_t t, int64_t c) {
    int64_t column = (part * heads + h) * size + c;
    double sum = 0;
    for (int64_t k = 0; k < hidden; ++k)
      sum += x.f[size_t((b * queries + t) * hidden + k)] * w.f[size_t(k * all + column)];
    sum = roundTo(x.type, sum);
    return e.has(2) ? roundTo(x.type, sum + e.a(2).f[size_t(column)]) : sum;
  };
  for (int64_t part = 0; part < 2; ++part)
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < total; ++t)
          for (int64_t c = 0; c < size; ++c)
            e.out[1].put((((part * batch + b) * heads + h) * total + t) * size + c,
                         t < past ? e.a(4).f[size_t((((part * batch + b) * heads + h) * past + t) * size + c)] : project(part + 1, b, h, t - past, c));
  auto cached = [&](int64_t part, int64_t b, int64_t h, int64_t t, int64_t c) { return e.out[1].f[size_t((((part * batch + b) * heads + h) * total + t) * size + c)]; };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < queries; ++r) {
        Row query, scores;
        for (int64_t c = 0; c < size; ++c)
          query.push_back(project(0, b, h, r, c));
        for (int64_t t = 0; t < total; ++t) {
          double dot = 0;
          for (int64_t c = 0; c < size; ++c)
            dot += query[size_t(c)] * cached(0, b, h, t, c);
          double s = dot * scale;
          if (e.has(5)) s += e.a(5).f[size_t(broadcastPlace(e.a(5).shape, Sizes{b, h, r, t}))];
          if (e.has(3) && !e.a(3).i[size_t(b * total + t)]) s += hiddenScore;
          scores.push_back(causal && t > past + r ? -INFINITY : s);
        }
        Row p = probabilities(scores);
        for (int64_t c = 0; c < size; ++c) {
          double sum = 0;
          for (int64_t t = 0; t < total; ++t)
            sum += p[size_t(t)] * cached(1, b, h, t, c);
          e.out[0].put(((b * queries + r) * heads + h) * size + c, sum);
        }
      }
  return Status();
}

} // namespace

llvm::ArrayRef<EvalEntry> attentionEvaluations() {
  static const EvalEntry table[] = {{"", "Attention", attention}, {"com.microsoft", "GroupQueryAttention", contribAttention}, {"com.microsoft", "MultiHeadAttention", contribAttention},
                                    {"com.microsoft", "Attention", selfAttention}};
  return table;
}

} // namespace lathe::interp
