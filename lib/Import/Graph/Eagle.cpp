//===- Eagle.cpp - checkpoints of EAGLE's layer -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A linear over several inputs side by side is the sum of a linear over each, with the columns of its weight that belong to it: rows are never joined.
//===----------------------------------------------------------------------===//
#include "DraftCheckpoint.h"
#include "lathe/import/DraftHeads.h"
#include "lathe/import/Json.h"
#include "lathe/import/ModelConfig.h"
#include "lathe/import/Verify.h"
#include <nlohmann/json.hpp>

using namespace mlir;

namespace lathe {
namespace {

constexpr const char *groupName = "eagle";

class EagleBuilder : DraftCheckpoint {
public:
  EagleBuilder(MLIRContext &context, const safetensors::Model &file, EagleShape shape, const ModelConfig &config)
      : DraftCheckpoint(context, file), shape(shape), config(config), layer(config.layers[0]), H(shape.hidden) {
    prefix = shape.third && file.tensor("midlayer.self_attn.q_proj.weight") ? "midlayer." : "layers.0.";
  }

  /// |features|, |draftVocabulary|: of EAGLE-3.
  Result<OwningOpRef<ModuleOp>> run(ArrayRef<int64_t> features, int64_t draftVocabulary) {
    OwningOpRef<ModuleOp> module = ModuleOp::create(b.getUnknownLoc());
    b.setInsertionPointToEnd(module->getBody());
    auto kvLayer = llm::KVLayerAttr::get(b.getContext(), layer.kvHeads, config.headSize, config.headSize);
    llm::KVGroupOp::create(b, b.getUnknownLoc(), groupName, b.getArrayAttr(kvLayer), llm::KVFormat::f16, llm::KVFormat::f16, 0, 0);
    auto kvType = llm::KVType::get(b.getContext());
    SmallVector<Type> inputs{llm::BatchType::get(b.getContext()), kvType};
    inputs.append(shape.third ? 5 : 2, rows(H));
    auto function = func::FuncOp::create(b, at(groupName), "layer", b.getFunctionType(inputs, {rows(H), kvType}));
    Block *entry = function.addEntryBlock();
    b.setInsertionPointToEnd(entry);
    batch = entry->getArgument(0), kv = entry->getArgument(1);
    auto arguments = entry->getArguments().drop_front(2);
    auto made = shape.third ? third(arguments[0], arguments[1], {arguments[2], arguments[3], arguments[4]}) : first(arguments[0], arguments[1]);
    if (!made.ok()) return made.status();
    func::ReturnOp::create(b, b.getUnknownLoc(), ValueRange{*made, kv});
    SmallVector<NamedAttribute> about{b.getNamedAttr("max_sequence", b.getI64IntegerAttr(config.maxSequence))};
    if (shape.third) {
      about.push_back(b.getNamedAttr("features", b.getDenseI64ArrayAttr(features)));
      b.setInsertionPointToEnd(module->getBody());
      LATHE_RETURN_IF_ERROR(head(draftVocabulary));
      LATHE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, readTokens(draftVocabulary));
      if (!tokens.empty()) about.push_back(b.getNamedAttr("tokens", DenseElementsAttr::get(RankedTensorType::get({draftVocabulary}, b.getI32Type()), ArrayRef(tokens))));
    }
    (*module)->setAttr("llm.eagle", b.getDictionaryAttr(about));
    // The model's own, which training leaves as it is.
    if (file.tensor("embed_tokens.weight")) LATHE_RETURN_IF_ERROR(tensor("embed_tokens.weight", {shape.vocabulary, H}).status());
    if (const safetensors::TensorInfo *info = unused())
      return makeError(StatusCode::unsupported, "tensor %s is no part of %s layer", quoteName(info->name).c_str(), shape.third ? "an EAGLE-3" : "an EAGLE");
    LATHE_RETURN_IF_ERROR(verifyImported(*module));
    return module;
  }

private:
  /// |inputs| side by side, of width H each, times the weight |name|, with its bias if there is one.
  Result<Value> linear(const std::string &name, ArrayRef<Value> inputs, int64_t width, int64_t inputWidth) {
    Value bias, sum;
    if (file.tensor(name + ".bias")) {
      LATHE_ASSIGN_OR_RETURN(bias, weight(name + ".bias", {width}));
    }
    auto count = static_cast<int64_t>(inputs.size());
    for (auto [i, input] : llvm::enumerate(inputs)) {
      int64_t begin = static_cast<int64_t>(i) * inputWidth;
      LATHE_ASSIGN_OR_RETURN(Value w, weight(name + ".weight", {width, count * inputWidth}, begin, count > 1 ? begin + inputWidth : 0));
      Value part = llm::LinearOp::create(b, at(name), rows(width), input, ValueRange(w), i ? Value() : bias);
      sum = sum ? Value(llm::AddOp::create(b, at(name), rows(width), sum, part)) : part;
    }
    return sum;
  }

  Result<Value> norm(const std::string &name, Value input, int64_t heads = 1) {
    LATHE_ASSIGN_OR_RETURN(Value w, weight(name + ".weight", {cast<RankedTensorType>(input.getType()).getDimSize(1) / heads}));
    return Value(llm::RmsNormOp::create(b, at(name), input.getType(), input, w, llvm::APFloat(static_cast<float>(config.normEpsilon)), heads));
  }

  Value add(StringRef name, Value x, Value y) { return llm::AddOp::create(b, at(prefix + name.str()), x.getType(), x, y); }

  Result<Value> attention(ArrayRef<Value> inputs) {
    int64_t qWidth = layer.heads * config.headSize, kvWidth = layer.kvHeads * config.headSize;
    std::string self = prefix + "self_attn.";
    LATHE_ASSIGN_OR_RETURN(Value q, linear(self + "q_proj", inputs, qWidth, H));
    LATHE_ASSIGN_OR_RETURN(Value k, linear(self + "k_proj", inputs, kvWidth, H));
    LATHE_ASSIGN_OR_RETURN(Value v, linear(self + "v_proj", inputs, kvWidth, H));
    if (config.headNorms) {
      LATHE_ASSIGN_OR_RETURN(q, norm(self + "q_norm", q, layer.heads));
      LATHE_ASSIGN_OR_RETURN(k, norm(self + "k_norm", k, layer.kvHeads));
    }
    const Rope &rope = config.ropes[static_cast<size_t>(layer.rope)];
    SmallVector<float> frequencies(rope.inverseFrequencies.begin(), rope.inverseFrequencies.end());
    auto type = RankedTensorType::get({static_cast<int64_t>(frequencies.size())}, b.getF32Type());
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(b.getBlock()->getParentOp());
      llm::ParamOp::create(b, at("rope"), b.getStringAttr("rope"), DenseElementsAttr::get(type, ArrayRef<float>(frequencies)), TypeAttr::get(type));
    }
    Value f = llm::WeightOp::create(b, at("rope"), type, "rope");
    Value angles = llm::AnglesOp::create(b, at("rope"), rows(2 * type.getDimSize(0)), batch, f, llvm::APFloat(static_cast<float>(rope.attentionFactor)));
    q = llm::RopeOp::create(b, at(self + "rope"), q.getType(), q, angles, layer.heads, false);
    k = llm::RopeOp::create(b, at(self + "rope"), k.getType(), k, angles, layer.kvHeads, false);
    kv = llm::KVAppendOp::create(b, at(self + "append"), kv.getType(), kv, k, v, batch, groupName, 0);
    Value y = llm::AttentionOp::create(b, at(self + "attention"), q.getType(), q, kv, batch, groupName, 0, layer.heads,
                                       llvm::APFloat(static_cast<float>(layer.attentionScale)), llvm::APFloat(0.0f));
    return linear(self + "o_proj", y, H, qWidth);
  }

  /// x and what the feed-forward part makes of its norm.
  Result<Value> feedForward(Value x) {
    LATHE_ASSIGN_OR_RETURN(Value h, norm(prefix + "post_attention_layernorm", x));
    LATHE_ASSIGN_OR_RETURN(Value gate, linear(prefix + "mlp.gate_proj", h, layer.feedForward, H));
    LATHE_ASSIGN_OR_RETURN(Value up, linear(prefix + "mlp.up_proj", h, layer.feedForward, H));
    Value y = llm::GluOp::create(b, at(prefix + "mlp"), gate.getType(), llm::Activation::silu, gate, up);
    LATHE_ASSIGN_OR_RETURN(y, linear(prefix + "mlp.down_proj", y, H, layer.feedForward));
    return add("mlp.residual", x, y);
  }

  Result<Value> first(Value embedding, Value feature) {
    LATHE_ASSIGN_OR_RETURN(Value x, linear("fc", {embedding, feature}, H, H));
    LATHE_ASSIGN_OR_RETURN(Value y, attention(x));
    return feedForward(add("self_attn.residual", x, y));
  }

  Result<Value> third(Value embedding, Value own, ArrayRef<Value> features) {
    if (file.tensor("fc.bias")) return makeError(StatusCode::unsupported, "tensor 'fc.bias': expected an EAGLE-3 layer whose fc has no bias");
    LATHE_ASSIGN_OR_RETURN(Value g, linear("fc", features, H, H));
    g = llm::AddOp::create(b, at("fc"), g.getType(), own, g);
    LATHE_ASSIGN_OR_RETURN(Value e, norm(prefix + "input_layernorm", embedding));
    LATHE_ASSIGN_OR_RETURN(Value h, norm(prefix + "hidden_norm", g));
    LATHE_ASSIGN_OR_RETURN(Value y, attention({e, h}));
    return feedForward(add("self_attn.residual", g, y));
  }

  Status head(int64_t width) {
    auto function = func::FuncOp::create(b, at("lm_head"), "head", b.getFunctionType({rows(H)}, {rows(width)}));
    Block *entry = function.addEntryBlock();
    b.setInsertionPointToEnd(entry);
    LATHE_ASSIGN_OR_RETURN(Value x, norm("norm", entry->getArgument(0)));
    LATHE_ASSIGN_OR_RETURN(Value logits, linear("lm_head", x, width, H));
    func::ReturnOp::create(b, b.getUnknownLoc(), logits);
    return Status();
  }

  /// What each of |count| draft tokens is in the model's vocabulary; empty when they are the model's.
  Result<std::vector<int32_t>> readTokens(int64_t count) {
    std::vector<int32_t> tokens;
    if (count == shape.vocabulary && !file.tensor("d2t")) {
      if (file.tensor("t2d")) LATHE_RETURN_IF_ERROR(tensor("t2d", {shape.vocabulary}).status());
      return tokens;
    }
    LATHE_ASSIGN_OR_RETURN(const safetensors::TensorInfo *d2t, tensor("d2t", {count}));
    bool wide = d2t->dtypeName == "I64";
    if (!wide && d2t->dtypeName != "I32") return makeError(StatusCode::invalidArgument, "tensor 'd2t': expected type I64 or I32, found %s", d2t->dtypeName.c_str());
    const uint8_t *data = file.tensorBytes(*d2t).data();
    std::vector<bool> taken(static_cast<size_t>(shape.vocabulary));
    for (int64_t i = 0; i < count; ++i) {
      int64_t offset = 0;
      int32_t narrow = 0;
      if (wide)
        std::memcpy(&offset, data + i * 8, 8);
      else
        std::memcpy(&narrow, data + i * 4, 4), offset = narrow;
      if (offset < -i || offset >= shape.vocabulary - i)
        return makeError(StatusCode::invalidArgument, "tensor 'd2t': element %lld: expected an offset in %lld .. %lld, so that token %lld is one of %lld, found %lld", (long long)i, (long long)-i,
                         (long long)(shape.vocabulary - i - 1), (long long)i, (long long)shape.vocabulary, (long long)offset);
      auto token = static_cast<size_t>(i + offset);
      if (taken[token]) return makeError(StatusCode::invalidArgument, "tensor 'd2t': element %lld: expected a token of its own, found %zu again", (long long)i, token);
      taken[token] = true;
      tokens.push_back(static_cast<int32_t>(token));
    }
    if (!file.tensor("t2d")) return tokens;
    LATHE_ASSIGN_OR_RETURN(const safetensors::TensorInfo *t2d, tensor("t2d", {shape.vocabulary}));
    if (t2d->dtypeName != "BOOL") return makeError(StatusCode::invalidArgument, "tensor 't2d': expected type BOOL, found %s", t2d->dtypeName.c_str());
    std::span<const uint8_t> marks = file.tensorBytes(*t2d);
    for (size_t t = 0; t < taken.size(); ++t)
      if ((marks[t] != 0) != taken[t])
        return makeError(StatusCode::invalidArgument, "tensor 't2d': token %zu: expected %s, as 'd2t' says, found %d", t, taken[t] ? "1" : "0", marks[t]);
    return tokens;
  }

  EagleShape shape;
  const ModelConfig &config;
  const LayerConfig &layer;
  int64_t H;
  std::string prefix;
  Value batch, kv;
};

/// The layers in front of which EAGLE-3's features are.
Result<SmallVector<int64_t>> readFeatures(const nlohmann::json &json, int64_t layers) {
  SmallVector<int64_t> features{2, layers / 2, layers - 3};
  const nlohmann::json *found = nullptr;
  if (auto it = json.find("eagle_config"); it != json.end() && it->is_object())
    if (auto ids = it->find("eagle_aux_hidden_state_layer_ids"); ids != it->end()) found = &*ids;
  if (found) {
    features.clear();
    if (found->is_array() && found->size() == 3)
      for (const nlohmann::json &id : *found)
        if (id.is_number_integer() && id.get<int64_t>() >= 0) features.push_back(id.get<int64_t>());
  }
  if (features.size() == 3 && features[0] < features[1] && features[1] < features[2] && features[2] < layers) return features;
  return makeError(StatusCode::invalidArgument, "expected 'eagle_aux_hidden_state_layer_ids' to be three layers of the model's %lld in ascending order, found %s", (long long)layers,
                   found ? found->dump().substr(0, 60).c_str() : "none, and too few layers for 2, L/2 and L - 3");
}

} // namespace

Result<OwningOpRef<ModuleOp>> importEagle(MLIRContext &context, const std::string &directory, EagleShape shape) {
  LATHE_ASSIGN_OR_RETURN(std::string path, resolveInside(directory, "config.json"));
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  auto json = parseJson({reinterpret_cast<const char *>(file.bytes().data()), file.fileSize()});
  if (!json.ok()) return json.status().at(path);
  ImportOptions options;
  options.maxSequence = shape.maxSequence;
  auto config = readModelConfig(*json, options);
  if (!config.ok()) return config.status().at(path);
  auto wrong = [&](const char *what, long long expected, long long found) {
    return makeError(StatusCode::invalidArgument, "%s: expected %s %lld, which is that of the model, found %lld", path.c_str(), what, expected, found);
  };
  if (config->family != Family::llama && config->family != Family::qwen2 && config->family != Family::qwen3)
    return makeError(StatusCode::unsupported, "%s: expected a layer of llama, qwen2 or qwen3, found %s", path.c_str(), familyName(config->family));
  if (config->layers.size() != 1) return makeError(StatusCode::unsupported, "%s: expected one layer, found %zu", path.c_str(), config->layers.size());
  if (config->layers[0].window || config->layers[0].rope < 0 || config->activation != ActivationKind::silu)
    return makeError(StatusCode::unsupported, "%s: expected a layer without a window, with rotated positions and silu", path.c_str());
  if (config->hidden != shape.hidden) return wrong("a 'hidden_size' of", shape.hidden, config->hidden);
  if (config->vocabulary != shape.vocabulary) return wrong("a 'vocab_size' of", shape.vocabulary, config->vocabulary);
  SmallVector<int64_t> features;
  int64_t draftVocabulary = shape.vocabulary;
  if (shape.third) {
    auto read = readFeatures(*json, shape.layers);
    if (!read.ok()) return read.status().at(path);
    features = *read;
    if (auto it = json->find("draft_vocab_size"); it != json->end() && !it->is_null()) {
      bool whole = it->is_number_integer();
      draftVocabulary = whole ? it->get<int64_t>() : 0;
      if (draftVocabulary < 1 || draftVocabulary > shape.vocabulary)
        return makeError(StatusCode::invalidArgument, "%s: expected a 'draft_vocab_size' of 1 to %lld, found %s", path.c_str(), (long long)shape.vocabulary, it->dump().substr(0, 40).c_str());
    }
  }
  bool there = exists(directory + "/model.safetensors") || exists(directory + "/model.safetensors.index.json");
  if (!there && exists(directory + "/pytorch_model.bin"))
    return makeError(StatusCode::unsupported, "'%s/pytorch_model.bin' is an archive of PyTorch's: expected its tensors as model.safetensors", directory.c_str());
  LATHE_ASSIGN_OR_RETURN(safetensors::Model tensors, safetensors::Model::openDirectory(directory));
  auto module = EagleBuilder(context, tensors, shape, *config).run(features, draftVocabulary);
  if (!module.ok()) return module.status().at(directory);
  return module;
}

} // namespace lathe
