//===- Assemble.cpp - terms to the parts of a language model ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Assemble.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {
namespace {

using Part = lathe::Role;

class Assembler {
public:
  Assembler(const Terms &terms, const RunResult &result, Sizes sizes) : terms(terms), result(result), sizes(sizes) {}
  Parts run();

private:
  struct Layer {
    LayerConfig shape;
    std::map<std::pair<Part, bool>, Weight> weights;
    std::pair<int, int> rope{-1, -1}; ///< tables
    int64_t rotated = 0, headSize = 0;
    double softcap = 0;
    bool pairs = false; ///< rotates elements 2i and 2i + 1
    bool postNorms = false, headNorms = false, gated = false;
    std::string activation;
    TermId keys = -1, values = -1; ///< that attention reads: the past's and the step's
  };

  bool fail(const Twine &reason) {
    if (why.empty()) why = reason.str();
    return false;
  }
  const Term &at(TermId id) const { return terms[id]; }
  bool isNorm(TermId id) const { return at(id).kind == Kind::rmsNorm || at(id).kind == Kind::layerNorm; }
  bool takeNorm(TermId id, Part part, Layer *layer);
  bool takeLinear(TermId id, Part part, Layer *layer, TermId &input);
  void put(Part part, bool bias, const Weight &w, Layer *layer);
  bool feedForward(TermId id, TermId residual, Layer &layer);
  bool attention(TermId id, TermId residual, Layer &layer);
  bool headPart(TermId id, Part norm, Layer &layer, TermId &linear, std::pair<int, int> &rope, bool &pairs);
  bool head(TermId &x);
  bool base(TermId id);
  /// What |layer| is, for people.
  std::string describe(const Layer &layer) const;
  template <typename T>
  bool same(std::optional<T> &known, const T &value, const char *what) {
    if (!known) known = value;
    return *known == value || fail(Twine("layers differ in ") + what);
  }

  const Terms &terms;
  const RunResult &result;
  Sizes sizes;
  std::string why;
  Parts parts;
  std::vector<Layer> layers; ///< last first
  std::optional<double> epsilon;
  std::optional<Kind> normKind;
  std::optional<bool> plusOne;
};

void Assembler::put(Part part, bool bias, const Weight &w, Layer *layer) {
  if (layer) layer->weights[{part, bias}] = w;
  else parts.weights[{part, -1, bias}] = w;
}

bool Assembler::takeNorm(TermId id, Part part, Layer *layer) {
  const Term &t = at(id);
  if (!isNorm(id)) return fail(Twine("expected a norm, found ") + terms.text(id, 2));
  if (!same(normKind, t.kind, "the kind of norm") || !same(epsilon, t.number, "the epsilon of their norms") || !same(plusOne, t.weight.plusOne, "1 + w of norms")) return false;
  if (t.kind == Kind::layerNorm && !t.bias) return fail(Twine("a layer norm without bias: ") + terms.text(id, 2));
  put(part, false, t.weight, layer);
  if (t.kind == Kind::layerNorm) put(part, true, t.bias, layer);
  return true;
}

bool Assembler::takeLinear(TermId id, Part part, Layer *layer, TermId &input) {
  const Term &t = at(id);
  if (t.kind != Kind::linear) return fail(Twine("expected a linear as ") + roleName(part) + ", found " + terms.text(id, 2));
  put(part, false, t.weight, layer);
  if (t.bias) put(part, true, t.bias, layer);
  input = t.in[0];
  return true;
}

bool Assembler::feedForward(TermId id, TermId residual, Layer &layer) {
  if (isNorm(id)) {
    layer.postNorms = true;
    if (!takeNorm(id, Part::postFeedForwardNorm, &layer)) return false;
    id = at(id).in[0];
  }
  TermId inner = -1, input = -1, second = -1;
  if (!takeLinear(id, Part::down, &layer, inner)) return false;
  layer.shape.feedForward = terms.width(inner);
  const Term &t = at(inner);
  if (t.kind == Kind::mul) {
    // activation(gate) * up
    TermId gate = t.in[0], up = t.in[1];
    if (at(gate).kind != Kind::activation) std::swap(gate, up);
    if (at(gate).kind != Kind::activation) return fail(Twine("a product without an activation before the down projection: ") + terms.text(inner, 2));
    layer.gated = true;
    layer.activation = at(gate).name;
    if (!takeLinear(at(gate).in[0], Part::gate, &layer, input) || !takeLinear(up, Part::up, &layer, second)) return false;
    if (input != second) return fail("gate and up projections of different values");
  } else if (t.kind == Kind::activation) {
    layer.activation = t.name;
    if (!takeLinear(t.in[0], Part::up, &layer, input)) return false;
  } else {
    return fail(Twine("no feed-forward before the down projection: ") + terms.text(inner, 3));
  }
  if (!takeNorm(input, Part::feedForwardNorm, &layer)) return false;
  if (at(input).in[0] != residual) return fail("a feed-forward that does not start from the residual");
  return true;
}

/// [rope of] [norm of heads of] a linear.
bool Assembler::headPart(TermId id, Part norm, Layer &layer, TermId &linear, std::pair<int, int> &rope, bool &pairs) {
  if (at(id).kind == Kind::rope) {
    const Term &t = at(id);
    if (t.group != layer.headSize) return fail("rotates something else than heads");
    if (t.b && t.a != t.group) return fail("rotates interleaved pairs of a part of each head");
    pairs = t.b;
    rope = {t.table, t.table2};
    layer.rotated = t.a;
    id = t.in[0];
  }
  if (isNorm(id)) {
    if (at(id).group != layer.headSize) return fail("a norm of something else than heads");
    if (!takeNorm(id, norm, &layer)) return false;
    id = at(id).in[0];
  }
  linear = id;
  return true;
}

bool Assembler::attention(TermId id, TermId residual, Layer &layer) {
  if (isNorm(id)) {
    if (!takeNorm(id, Part::postAttentionNorm, &layer)) return false;
    if (!layer.postNorms) return fail("a norm behind attention and none behind the feed-forward");
    id = at(id).in[0];
  } else if (layer.postNorms) {
    return fail("a norm behind the feed-forward and none behind attention");
  }
  TermId context = -1;
  if (!takeLinear(id, Part::o, &layer, context)) return false;
  const Term &t = at(context);
  if (t.kind != Kind::attention) return fail(Twine("expected attention, found ") + terms.text(context, 3));
  const Term &key = at(t.in[1]), &value = at(t.in[2]);
  layer.headSize = t.group;
  layer.shape.heads = t.b;
  layer.shape.kvHeads = key.width / t.group;
  layer.shape.attentionScale = t.number;
  layer.shape.window = std::max<int64_t>(0, t.a);
  layer.softcap = t.number2;
  if (terms.width(context) != t.b * t.group || value.width != key.width) return fail("values of another size than the keys");
  layer.keys = t.in[1];
  layer.values = t.in[2];
  TermId q = -1, k = -1, inputs[3];
  std::pair<int, int> ropeQ{-1, -1}, ropeK{-1, -1};
  bool pairsQ = false, pairsK = false;
  if (!headPart(t.in[0], Part::qNorm, layer, q, ropeQ, pairsQ) || !headPart(key.in[0], Part::kNorm, layer, k, ropeK, pairsK)) return false;
  if (ropeQ != ropeK || pairsQ != pairsK) return fail("queries and keys are rotated differently");
  layer.rope = ropeQ;
  layer.headNorms = layer.weights.count({Part::qNorm, false});
  if (layer.headNorms != bool(layer.weights.count({Part::kNorm, false}))) return fail("a norm of queries or of keys only");
  if (!takeLinear(q, Part::q, &layer, inputs[0]) || !takeLinear(k, Part::k, &layer, inputs[1]) || !takeLinear(value.in[0], Part::v, &layer, inputs[2])) return false;
  if (inputs[0] != inputs[1] || inputs[0] != inputs[2]) return fail("queries, keys and values of different rows");
  layer.pairs = pairsQ;
  if (layer.pairs) {
    // Scores do not change when queries and keys are permuted alike: llm.rope's halves, by other rows of the weights.
    for (auto &[part, weight] : layer.weights)
      if (part.first == Part::q || part.first == Part::k) weight.unropeHeads = part.first == Part::q ? layer.shape.heads : layer.shape.kvHeads;
      else if (part.first == Part::qNorm || part.first == Part::kNorm) weight.unropeHeads = 1;
  }
  if (!takeNorm(inputs[0], Part::attentionNorm, &layer)) return false;
  if (at(inputs[0]).in[0] != residual) return fail("attention that does not start from the residual");
  return true;
}

/// From the logits to the last residual.
bool Assembler::head(TermId &x) {
  ModelConfig &config = parts.config;
  TermId id = result.logits;
  if (terms.isLast(id)) id = at(id).in[0]; // a step gives the rows that are asked for
  if (at(id).kind == Kind::scale && at(at(id).in[0]).kind == Kind::unary && at(at(id).in[0]).name == "tanh") {
    double cap = at(id).number;
    TermId inner = at(at(id).in[0]).in[0];
    if (at(inner).kind != Kind::scale || std::fabs(at(inner).number * cap - 1) > 1e-6 || cap <= 0) return fail("a tanh of the logits that is no soft cap");
    config.finalSoftcap = cap;
    id = at(inner).in[0];
  }
  TermId normed = -1;
  if (!takeLinear(id, Part::head, nullptr, normed)) return false;
  config.vocabulary = terms.width(id);
  config.headBias = parts.weights.count({Part::head, -1, true});
  if (!takeNorm(normed, Part::finalNorm, nullptr)) return false;
  x = at(normed).in[0];
  config.hidden = terms.width(x);
  return true;
}

bool Assembler::base(TermId id) {
  ModelConfig &config = parts.config;
  if (at(id).kind == Kind::add) {
    TermId a = at(id).in[0], b = at(id).in[1];
    if (at(a).kind == Kind::positions) std::swap(a, b);
    if (at(b).kind == Kind::positions) {
      put(Part::positions, false, at(b).weight, nullptr);
      config.learnedPositions = true;
      config.modelPositions = at(b).weight.rows;
      id = a;
    }
  }
  if (at(id).kind == Kind::scale) {
    config.embeddingScale = at(id).number;
    id = at(id).in[0];
  }
  if (at(id).kind != Kind::embed) return fail(Twine("the residual does not start from an embedding of the tokens: ") + terms.text(id, 3));
  if (at(id).weight.rows != config.vocabulary)
    return fail("an embedding of " + Twine(at(id).weight.rows) + " tokens and logits of " + Twine(config.vocabulary));
  put(Part::embedding, false, at(id).weight, nullptr);
  return true;
}

std::string Assembler::describe(const Layer &layer) const {
  const LayerConfig &shape = layer.shape;
  return std::string(*normKind == Kind::layerNorm ? "layer norm" : "RMS norm") + ", " + std::to_string(shape.heads) + " query and " + std::to_string(shape.kvHeads) + " KV heads of " +
         std::to_string(layer.headSize) + (layer.rope.first >= 0 ? layer.pairs ? ", rotary of pairs" : ", rotary" : "") + (layer.softcap ? ", soft cap" : "") +
         (layer.weights.count({Part::qNorm, false}) ? ", head norms" : "") + (shape.window ? ", window " + std::to_string(shape.window) : "") + ", " + (layer.gated ? "gated " : "") + layer.activation +
         " of " + std::to_string(shape.feedForward);
}

static bool sameWeight(const Weight &a, const Weight &b) { return a.key() == b.key(); }

Parts Assembler::run() {
  ModelConfig &config = parts.config;
  TermId x = -1;
  bool ok = head(x);
  // Pairs of residual sums, from the last.
  while (ok && at(x).kind == Kind::add && at(at(x).in[0]).kind != Kind::positions && at(at(x).in[1]).kind != Kind::positions) {
    Layer layer;
    std::string reason;
    bool matched = false;
    TermId next = -1;
    for (int k = 0; k < 2 && !matched; ++k) {
      why.clear();
      layer = Layer();
      TermId residual = at(x).in[k];
      if (!feedForward(at(x).in[1 - k], residual, layer)) {
        // The reason of the side that is a projection says more.
        if (reason.empty() || at(at(x).in[1 - k]).kind == Kind::linear) reason = why;
        continue;
      }
      if (at(residual).kind != Kind::add) {
        reason = "a feed-forward without attention before it: " + terms.text(residual, 2);
        continue;
      }
      for (int j = 0; j < 2 && !matched; ++j) {
        why.clear();
        Layer attempt = layer;
        next = at(residual).in[j];
        if (attention(at(residual).in[1 - j], next, attempt)) {
          layer = attempt;
          matched = true;
        } else if (reason.empty() || at(at(residual).in[1 - j]).kind == Kind::linear || isNorm(at(residual).in[1 - j])) {
          reason = why;
        }
      }
    }
    if (!matched) {
      why.clear();
      ok = fail(reason);
      break;
    }
    why.clear();
    layers.push_back(std::move(layer));
    x = next;
  }
  ok = ok && base(x);
  if (ok && layers.empty()) ok = fail("the graph has no layers");
  size_t count = layers.size();
  if (!ok) {
    parts.why = (layers.empty() ? "" : "before the last " + std::to_string(count) + " layers: ") + why;
    for (size_t k = 0; k < count; ++k)
      parts.layers.push_back("layer " + std::to_string(k + 1) + " from the end: " + describe(layers[k]));
    return parts;
  }
  std::reverse(layers.begin(), layers.end());
  const Layer &first = layers[0];
  config.headSize = first.headSize;
  config.postNorms = first.postNorms;
  config.headNorms = first.headNorms;
  config.gated = first.gated;
  config.norm = *normKind == Kind::layerNorm ? NormKind::layer : NormKind::rms;
  config.normEpsilon = *epsilon;
  config.normPlusOne = *plusOne;
  auto hasBias = [](const Layer &layer, Part part) { return layer.weights.count({part, true}) != 0; };
  config.attentionSoftcap = first.softcap;
  config.qkvBias = hasBias(first, Part::q);
  config.outputBias = hasBias(first, Part::o);
  config.feedForwardBias = hasBias(first, Part::up);
  config.activation = first.activation == "silu"        ? ActivationKind::silu
                      : first.activation == "gelu_tanh" ? ActivationKind::geluTanh
                      : first.activation == "gelu_erf"  ? ActivationKind::geluErf
                                                        : ActivationKind::relu;
  std::vector<std::pair<int, int>> tables;
  for (auto [i, layer] : llvm::enumerate(layers)) {
    auto differs = [&](bool bad, const char *what) {
      if (bad && parts.why.empty()) parts.why = "layer " + std::to_string(i) + (i ? " differs from layer 0 in " : " is not all alike in ") + what;
    };
    auto own = [&](bool bad, const char *what) {
      if (bad && parts.why.empty()) parts.why = "the cache of layer " + std::to_string(i) + ": " + what;
    };
    differs(layer.headSize != first.headSize, "the size of its heads");
    differs(layer.softcap != first.softcap, "the soft cap of its scores");
    differs(layer.postNorms != first.postNorms || layer.headNorms != first.headNorms, "its norms");
    differs(layer.gated != first.gated || layer.activation != first.activation, "its feed-forward");
    for (Part part : {Part::q, Part::k, Part::v})
      differs(hasBias(layer, part) != config.qkvBias, "biases of q, k and v");
    differs(hasBias(layer, Part::o) != config.outputBias, "the bias of o");
    differs(hasBias(layer, Part::up) != config.feedForwardBias || hasBias(layer, Part::down) != config.feedForwardBias ||
                (layer.gated && hasBias(layer, Part::gate) != config.feedForwardBias),
            "biases of its feed-forward");
    layer.shape.rope = -1;
    if (layer.rope.first >= 0) {
      auto it = llvm::find(tables, layer.rope);
      layer.shape.rope = static_cast<int>(it - tables.begin());
      if (it == tables.end()) {
        tables.push_back(layer.rope);
        parts.ropes.push_back({layer.rotated, {{sizes.past, terms.table(layer.rope.first), terms.table(layer.rope.second)}}});
        for (TermId id = 0, end = static_cast<TermId>(terms.size()); id < end && !parts.ropes.back().loc; ++id)
          if (at(id).kind == Kind::rope && std::pair(at(id).table, at(id).table2) == layer.rope) parts.ropes.back().loc = at(id).loc;
      }
      differs(parts.ropes[layer.shape.rope].rotated != layer.rotated, "the size of its rotation");
    }
    config.layers.push_back(layer.shape);
    for (auto &[key, weight] : layer.weights)
      parts.weights[{key.first, static_cast<int>(i), key.second}] = weight;
    // The cache of each layer is an output of its own, and is what its attention reads.
    const std::pair<int64_t, TermId> cache[] = {{at(layer.keys).a, layer.keys}, {at(layer.values).a, layer.values}};
    int found = 0, other = 0;
    for (auto &present : result.presents)
      for (auto &own : cache) {
        found += present == own;
        other += present.first == own.first && present != own;
      }
    own(other, "expected outputs that attention reads, found other keys or values behind the same past");
    own(found != 2 || cache[0].first == cache[1].first, "its keys and values are not outputs of the graph");
    parts.layers.push_back("layer " + std::to_string(i) + ": " + describe(layer));
  }
  // Every present is one that a layer reads.
  if (parts.why.empty() && result.presents.size() != 2 * layers.size())
    parts.why = "the graph has " + std::to_string(result.presents.size()) + " caches for " + std::to_string(layers.size()) + " layers";
  const Weight &embedding = parts.weights[{Part::embedding, -1, false}];
  Weight &headWeight = parts.weights[{Part::head, -1, false}];
  if (sameWeight(embedding, headWeight)) {
    config.tiedHead = true;
    parts.weights.erase({Part::head, -1, false});
  }
  return parts;
}

} // namespace

Parts assemble(const Terms &terms, const RunResult &result, Sizes sizes) {
  Parts parts = Assembler(terms, result, sizes).run();
  parts.longest = sizes.total();
  return parts;
}

std::vector<std::string> recognised(const Terms &terms) {
  std::vector<std::string> out;
  size_t attentions = 0, forwards = 0;
  llvm::SmallDenseSet<TermId> seen; // a linear with its bias is one more term
  for (TermId id = 0, end = static_cast<TermId>(terms.size()); id < end; ++id) {
    const Term &t = terms[id];
    if (t.kind == Kind::attention) {
      auto rotated = [&](TermId x) { return terms[x].kind == Kind::history ? terms[terms[x].in[0]].kind == Kind::rope : terms[x].kind == Kind::rope; };
      out.push_back("attention " + std::to_string(attentions++) + ": " + std::to_string(t.b) + " query and " + std::to_string(terms.width(t.in[1]) / t.group) + " KV heads of " +
                    std::to_string(t.group) + (rotated(t.in[0]) && rotated(t.in[1]) ? ", rotary" : "") + (t.number2 ? ", soft cap" : "") + (t.a > 0 ? ", window " + std::to_string(t.a) : ""));
    } else if (t.kind == Kind::linear) {
      const Term &inner = terms[t.in[0]];
      bool gated = inner.kind == Kind::mul;
      const Term *curve = &inner;
      if (gated) curve = &terms[inner.in[terms[inner.in[0]].kind == Kind::activation ? 0 : 1]];
      if (curve->kind == Kind::activation && seen.insert(t.in[0]).second)
        out.push_back("feed-forward " + std::to_string(forwards++) + ": " + (gated ? "gated " : "") + curve->name + " of " + std::to_string(inner.width));
    }
  }
  return out;
}

std::string merge(Parts &parts, const Parts &other) {
  ModelConfig &a = parts.config;
  const ModelConfig &b = other.config;
  auto differs = [](const std::string &what) { return "the graph computes " + what + " that depends on the sizes it runs with"; };
  if (parts.weights.size() != other.weights.size() || a.layers.size() != b.layers.size() || parts.ropes.size() != other.ropes.size()) return differs("a structure");
  for (auto &[key, weight] : parts.weights) {
    auto it = other.weights.find(key);
    if (it == other.weights.end() || it->second.key() != weight.key()) return differs("with a weight");
  }
  if (a.hidden != b.hidden || a.vocabulary != b.vocabulary || a.headSize != b.headSize || a.normEpsilon != b.normEpsilon || a.postNorms != b.postNorms ||
      a.gated != b.gated || a.activation != b.activation || a.embeddingScale != b.embeddingScale || a.finalSoftcap != b.finalSoftcap ||
      a.attentionSoftcap != b.attentionSoftcap)
    return differs("a constant");
  for (auto [x, y] : llvm::zip(a.layers, b.layers)) {
    if (x.heads != y.heads || x.kvHeads != y.kvHeads || x.feedForward != y.feedForward || x.rope != y.rope || x.attentionScale != y.attentionScale) return differs("attention");
    // A window shows in runs that are longer than it, and in all of them.
    bool same = x.window == y.window || (!x.window && parts.longest <= y.window) || (!y.window && other.longest <= x.window);
    if (!same) return differs("a window");
    x.window = std::max(x.window, y.window);
  }
  for (auto [x, y] : llvm::zip(parts.ropes, other.ropes)) {
    if (x.rotated != y.rotated) return differs("a rotation");
    x.seen.insert(x.seen.end(), y.seen.begin(), y.seen.end());
  }
  parts.longest = std::max(parts.longest, other.longest);
  return "";
}

} // namespace lathe::raise
