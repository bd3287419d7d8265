//===- WeightMap.cpp - tensor names of all families and formats -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/WeightMap.h"
#include "lathe/import/Quote.h"
#include "lathe/weights/Storage.h"
#include <algorithm>
#include <functional>
#include <set>

namespace lathe {
namespace {

/// A tensor's name without ".weight" or ".bias"; %d is the layer. |fused| says that the tensor
/// holds more than this part.
struct Place {
  const char *name = nullptr;
  enum { whole, qkv, gateUp } fused = whole;
};

using NameTable = std::map<Role, Place>;

NameTable ggufNames(const ModelConfig &config, bool fusedQkv) {
  NameTable t = {{Role::embedding, {"token_embd"}},
                 {Role::positions, {"position_embd"}},
                 {Role::finalNorm, {"output_norm"}},
                 {Role::head, {"output"}},
                 {Role::attentionNorm, {"blk.%d.attn_norm"}},
                 {Role::q, {"blk.%d.attn_q"}},
                 {Role::k, {"blk.%d.attn_k"}},
                 {Role::v, {"blk.%d.attn_v"}},
                 {Role::o, {"blk.%d.attn_output"}},
                 {Role::qNorm, {"blk.%d.attn_q_norm"}},
                 {Role::kNorm, {"blk.%d.attn_k_norm"}},
                 {Role::postAttentionNorm, {"blk.%d.post_attention_norm"}},
                 {Role::feedForwardNorm, {"blk.%d.ffn_norm"}},
                 {Role::gate, {"blk.%d.ffn_gate"}},
                 {Role::up, {"blk.%d.ffn_up"}},
                 {Role::down, {"blk.%d.ffn_down"}},
                 {Role::postFeedForwardNorm, {"blk.%d.post_ffw_norm"}}};
  if (fusedQkv)
    for (Role role : {Role::q, Role::k, Role::v})
      t[role] = {"blk.%d.attn_qkv", Place::qkv};
  if (config.family == Family::phi3)
    for (Role role : {Role::gate, Role::up})
      t[role] = {"blk.%d.ffn_up", Place::gateUp};
  return t;
}

NameTable huggingFaceNames(const ModelConfig &config) {
  if (config.family == Family::gpt2)
    return {{Role::embedding, {"transformer.wte"}},
            {Role::positions, {"transformer.wpe"}},
            {Role::finalNorm, {"transformer.ln_f"}},
            {Role::head, {"lm_head"}},
            {Role::attentionNorm, {"transformer.h.%d.ln_1"}},
            {Role::q, {"transformer.h.%d.attn.c_attn", Place::qkv}},
            {Role::k, {"transformer.h.%d.attn.c_attn", Place::qkv}},
            {Role::v, {"transformer.h.%d.attn.c_attn", Place::qkv}},
            {Role::o, {"transformer.h.%d.attn.c_proj"}},
            {Role::feedForwardNorm, {"transformer.h.%d.ln_2"}},
            {Role::up, {"transformer.h.%d.mlp.c_fc"}},
            {Role::down, {"transformer.h.%d.mlp.c_proj"}}};
  NameTable t = {{Role::embedding, {"model.embed_tokens"}},
                 {Role::finalNorm, {"model.norm"}},
                 {Role::head, {"lm_head"}},
                 {Role::attentionNorm, {"model.layers.%d.input_layernorm"}},
                 {Role::q, {"model.layers.%d.self_attn.q_proj"}},
                 {Role::k, {"model.layers.%d.self_attn.k_proj"}},
                 {Role::v, {"model.layers.%d.self_attn.v_proj"}},
                 {Role::o, {"model.layers.%d.self_attn.o_proj"}},
                 {Role::qNorm, {"model.layers.%d.self_attn.q_norm"}},
                 {Role::kNorm, {"model.layers.%d.self_attn.k_norm"}},
                 {Role::feedForwardNorm, {"model.layers.%d.post_attention_layernorm"}},
                 {Role::gate, {"model.layers.%d.mlp.gate_proj"}},
                 {Role::up, {"model.layers.%d.mlp.up_proj"}},
                 {Role::down, {"model.layers.%d.mlp.down_proj"}}};
  if (config.postNorms) {
    t[Role::postAttentionNorm] = {"model.layers.%d.post_attention_layernorm"};
    t[Role::feedForwardNorm] = {"model.layers.%d.pre_feedforward_layernorm"};
    t[Role::postFeedForwardNorm] = {"model.layers.%d.post_feedforward_layernorm"};
  }
  if (config.family == Family::phi3) {
    for (Role role : {Role::q, Role::k, Role::v})
      t[role] = {"model.layers.%d.self_attn.qkv_proj", Place::qkv};
    for (Role role : {Role::gate, Role::up})
      t[role] = {"model.layers.%d.mlp.gate_up_proj", Place::gateUp};
  }
  return t;
}

std::string expand(const char *pattern, int layer) {
  std::string out = pattern;
  size_t at = out.find("%d");
  if (at != std::string::npos) out.replace(at, 2, std::to_string(layer));
  return out;
}

StorageType storageOf(const safetensors::TensorInfo &info) {
  return info.dtype == safetensors::DType::f32 ? StorageType::f32 : info.dtype == safetensors::DType::f16 ? StorageType::f16 : StorageType::bf16;
}

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string out = "[";
  for (int64_t dim : shape)
    out += (out.size() > 1 ? ", " : "") + std::to_string(dim);
  return out + "]";
}

bool isNorm(Role role) {
  return role == Role::finalNorm || role == Role::attentionNorm || role == Role::qNorm || role == Role::kNorm ||
         role == Role::postAttentionNorm || role == Role::feedForwardNorm || role == Role::postFeedForwardNorm;
}

bool endsWith(const std::string &text, const char *end) {
  std::string_view tail(end);
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

/// Tensors that hold nothing of the model: rotary tables, GPT-2's causal masks, a second copy of a tied head.
bool mayBeIgnored(const ModelConfig &config, const std::string &name) {
  if (name == "rope_freqs.weight" || name == "rope_factors_short.weight" || name == "rope_factors_long.weight")
    return true;
  if (endsWith(name, ".rotary_emb.inv_freq")) return true;
  if (endsWith(name, ".input_scale")) return true; // beside weights of e4m3: how another program would round activations
  if (config.family == Family::gpt2 && (endsWith(name, ".attn.bias") || endsWith(name, ".attn.masked_bias")))
    return true;
  if (config.family == Family::gemma3)
    for (const char *part :
         {"vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."})
      if (name.compare(0, std::string_view(part).size(), part) == 0) return true; // text only
  return config.tiedHead && (name == "lm_head.weight" || name == "language_model.lm_head.weight");
}

/// A matrix of F8_E4M3 beside whose tensor 'x.weight' lie its scales, 'x.weight_scale' or 'x.weight_scale_inv': factors, one for all or one a row.
Result<TensorRef> scaledTensor(const safetensors::Model &model, const safetensors::TensorInfo &info) {
  auto bad = [&](StatusCode code, const std::string &what) { return Status(code, "tensor " + quoteName(info.name) + " of type F8_E4M3: " + what); };
  std::string name = info.name + "_scale";
  const safetensors::TensorInfo *scales = model.tensor(name);
  if (!scales) scales = model.tensor(name + "_inv");
  if (!scales) return bad(StatusCode::notFound, "expected its scales in " + quoteName(name) + ", the model has none");
  LATHE_RETURN_IF_ERROR(scales->checkUsable());
  TensorRef ref{model.files()[info.file]->path(), info.name, static_cast<int64_t>(info.offset), StorageType::e4m3, {}};
  ref.shape.assign(info.shape.begin(), info.shape.end());
  bool column = scales->shape.size() < 2 || (scales->shape.size() == 2 && scales->shape[1] == 1), one = scales->elements() == 1;
  if (ref.shape.size() != 2 || !(one || (column && scales->elements() == info.shape[0])))
    return bad(StatusCode::unsupported, "scales of shape " + shapeText({scales->shape.begin(), scales->shape.end()}) + " in " + quoteName(scales->name) +
                                            " are not supported, only one for a matrix or one for each row is");
  ref.scaled = {scales->name, model.files()[scales->file]->path(), static_cast<int64_t>(scales->offset), storageOf(*scales), !one};
  return ref;
}

} // namespace

const char *roleName(Role role) {
  static const char *const names[] = {"embedding",
                                      "positions",
                                      "final_norm",
                                      "head",
                                      "attention_norm",
                                      "q",
                                      "k",
                                      "v",
                                      "o",
                                      "q_norm",
                                      "k_norm",
                                      "post_attention_norm",
                                      "feed_forward_norm",
                                      "gate",
                                      "up",
                                      "down",
                                      "post_feed_forward_norm"};
  return names[static_cast<int>(role)];
}

const WeightRef *WeightMap::find(Role role, int layer, bool bias) const {
  auto it = weights.find({role, layer, bias});
  return it == weights.end() ? nullptr : &it->second;
}

/// Fills a map by a table of names and a lookup into one format.
class WeightMapBuilder {
public:
  using Lookup = std::function<Result<std::optional<TensorRef>>(const std::string &)>;
  WeightMapBuilder(const ModelConfig &config, NameTable names, Lookup lookup)
      : config(config), names(std::move(names)), lookup(std::move(lookup)) {}
  bool transposed = false; ///< matrices of layers are stored [in, out] (GPT-2's HuggingFace form)
  bool roped = false;      ///< q and k rows are in GGUF's rotary order

  Status run();
  Status checkUnused(const std::vector<std::string> &all) const;
  WeightMap map;

private:
  Status add(Role role, int layer, int64_t rows, int64_t columns, bool bias = false);
  Status addLayer(int layer);

  const ModelConfig &config;
  NameTable names;
  Lookup lookup;
  std::set<std::string> used;
};

/// |columns| 0: a vector of |rows|. |bias|: a vector of |rows| beside the weight.
Status WeightMapBuilder::add(Role role, int layer, int64_t rows, int64_t columns, bool bias) {
  Place place = names[role];
  std::string name = expand(place.name, layer) + (bias ? ".bias" : ".weight");
  LATHE_ASSIGN_OR_RETURN(std::optional<TensorRef> found, lookup(name));
  if (!found)
    return Status(StatusCode::notFound, std::string("family ") + familyName(config.family) + " expects a tensor " +
                                            quoteName(name) + ", the model has none");
  used.insert(found->name);
  if (!found->scaled.name.empty()) used.insert(found->scaled.name);
  WeightRef ref;
  ref.tensor = std::move(*found);
  ref.shape = columns && !bias ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{rows};
  std::vector<int64_t> expected = ref.shape;
  const LayerConfig &shape = config.layers[static_cast<size_t>(std::max(0, layer))];
  if (place.fused == Place::qkv) {
    int64_t q = shape.heads * config.headSize, kv = shape.kvHeads * config.headSize;
    expected[0] = q + 2 * kv;
    ref.begin = role == Role::q ? 0 : role == Role::k ? q : q + kv;
    ref.end = ref.begin + rows;
  } else if (place.fused == Place::gateUp) {
    expected[0] = 2 * rows;
    ref.begin = role == Role::gate ? 0 : rows;
    ref.end = ref.begin + rows;
  }
  if (transposed && layer >= 0 && expected.size() == 2) {
    ref.transpose = true;
    std::swap(expected[0], expected[1]);
  }
  if (ref.tensor.shape != expected)
    return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": expected shape " + shapeText(expected) +
                                                   ", found " + shapeText(ref.tensor.shape));
  if (expected.size() == 1 && !isFloatStorage(ref.tensor.storage))
    return Status(StatusCode::unsupported, "tensor " + quoteName(name) + ": a vector of type " +
                                               storageInfo(ref.tensor.storage).name +
                                               " is not supported, only f32, f16, bf16 are");
  if (ref.transpose && !isFloatStorage(ref.tensor.storage))
    return Status(StatusCode::unsupported, "tensor " + quoteName(name) + ": a matrix of type " + storageInfo(ref.tensor.storage).name +
                                               " that is stored transposed is not supported, only f32, f16, bf16 are");
  if (roped && (role == Role::q || role == Role::k)) ref.unropeHeads = role == Role::q ? shape.heads : shape.kvHeads;
  ref.plusOne = config.normPlusOne && isNorm(role);
  map.weights[{role, layer, bias}] = std::move(ref);
  return Status();
}

Status WeightMapBuilder::addLayer(int layer) {
  const LayerConfig &shape = config.layers[static_cast<size_t>(layer)];
  int64_t hidden = config.hidden, q = shape.heads * config.headSize, kv = shape.kvHeads * config.headSize;
  bool layerNorm = config.norm == NormKind::layer;
  auto norm = [&](Role role, int64_t size) {
    LATHE_RETURN_IF_ERROR(add(role, layer, size, 0));
    return layerNorm ? add(role, layer, size, 0, true) : Status();
  };
  auto linear = [&](Role role, int64_t rows, int64_t columns, bool bias) {
    LATHE_RETURN_IF_ERROR(add(role, layer, rows, columns));
    return bias ? add(role, layer, rows, columns, true) : Status();
  };
  LATHE_RETURN_IF_ERROR(norm(Role::attentionNorm, hidden));
  LATHE_RETURN_IF_ERROR(linear(Role::q, q, hidden, config.qkvBias));
  LATHE_RETURN_IF_ERROR(linear(Role::k, kv, hidden, config.qkvBias));
  LATHE_RETURN_IF_ERROR(linear(Role::v, kv, hidden, config.qkvBias));
  LATHE_RETURN_IF_ERROR(linear(Role::o, hidden, q, config.outputBias));
  if (config.headNorms) {
    LATHE_RETURN_IF_ERROR(norm(Role::qNorm, config.headSize));
    LATHE_RETURN_IF_ERROR(norm(Role::kNorm, config.headSize));
  }
  LATHE_RETURN_IF_ERROR(norm(Role::feedForwardNorm, hidden));
  if (config.gated) LATHE_RETURN_IF_ERROR(linear(Role::gate, shape.feedForward, hidden, config.feedForwardBias));
  LATHE_RETURN_IF_ERROR(linear(Role::up, shape.feedForward, hidden, config.feedForwardBias));
  LATHE_RETURN_IF_ERROR(linear(Role::down, hidden, shape.feedForward, config.feedForwardBias));
  if (!config.postNorms) return Status();
  LATHE_RETURN_IF_ERROR(norm(Role::postAttentionNorm, hidden));
  return norm(Role::postFeedForwardNorm, hidden);
}

Status WeightMapBuilder::run() {
  LATHE_RETURN_IF_ERROR(add(Role::embedding, -1, config.vocabulary, config.hidden));
  if (config.learnedPositions) LATHE_RETURN_IF_ERROR(add(Role::positions, -1, config.modelPositions, config.hidden));
  for (size_t i = 0; i < config.layers.size(); ++i)
    LATHE_RETURN_IF_ERROR(addLayer(static_cast<int>(i)));
  LATHE_RETURN_IF_ERROR(add(Role::finalNorm, -1, config.hidden, 0));
  if (config.norm == NormKind::layer) LATHE_RETURN_IF_ERROR(add(Role::finalNorm, -1, config.hidden, 0, true));
  if (!config.tiedHead) LATHE_RETURN_IF_ERROR(add(Role::head, -1, config.vocabulary, config.hidden));
  if (config.headBias) LATHE_RETURN_IF_ERROR(add(Role::head, -1, config.vocabulary, config.hidden, true));
  return Status();
}

Status WeightMapBuilder::checkUnused(const std::vector<std::string> &all) const {
  for (const std::string &name : all)
    if (!used.count(name) && !mayBeIgnored(config, name))
      return Status(StatusCode::unsupported,
                    "tensor " + quoteName(name) + " has no part in a model of family " + familyName(config.family));
  return Status();
}

Result<WeightMap> WeightMap::fromGGUF(const ModelConfig &config, const gguf::File &file) {
  auto lookup = [&](const std::string &name) -> Result<std::optional<TensorRef>> {
    const gguf::TensorInfo *info = file.tensor(name);
    if (!info) return std::optional<TensorRef>();
    TensorRef ref{file.path(), name, static_cast<int64_t>(info->offset), *storageFromGGUF(info->type->id), {}};
    for (auto it = info->dims.rbegin(); it != info->dims.rend(); ++it)
      ref.shape.push_back(static_cast<int64_t>(*it));
    while (ref.shape.size() > 1 && ref.shape[0] == 1 && (ref.shape.size() > 2 || info->dims.size() > 2))
      ref.shape.erase(ref.shape.begin()); // trailing sizes of one
    return std::optional<TensorRef>(std::move(ref));
  };
  bool fusedQkv = file.tensor("blk.0.attn_qkv.weight") != nullptr;
  WeightMapBuilder builder(config, ggufNames(config, fusedQkv), lookup);
  // Converters put the rows of q and k of the llama architecture into the order of interleaved rotation.
  builder.roped = config.family == Family::llama || config.family == Family::mistral;
  std::vector<std::string> all;
  for (const gguf::TensorInfo &info : file.tensors())
    all.push_back(info.name);
  Status status = builder.run();
  if (status.ok()) status = builder.checkUnused(all);
  if (!status.ok()) return std::move(status).at(file.path());
  return std::move(builder.map);
}

Result<WeightMap> WeightMap::fromSafetensors(const ModelConfig &config, const safetensors::Model &model) {
  NameTable names = huggingFaceNames(config);
  // Checkpoints of the bare model lack the prefix; those with a vision tower have a longer one.
  std::string prefix = config.family == Family::gpt2 ? "transformer." : "model.";
  std::vector<std::string> instead = {""};
  if (config.family == Family::gemma3) instead = {"", "language_model.model.", "model.language_model."};
  auto lookup = [&](const std::string &name) -> Result<std::optional<TensorRef>> {
    const safetensors::TensorInfo *info = model.tensor(name);
    for (size_t i = 0; !info && i < instead.size() && name.compare(0, prefix.size(), prefix) == 0; ++i)
      info = model.tensor(instead[i] + name.substr(prefix.size()));
    if (!info) return std::optional<TensorRef>();
    if (info->dtype == safetensors::DType::e4m3) {
      LATHE_ASSIGN_OR_RETURN(TensorRef scaled, scaledTensor(model, *info));
      return std::optional<TensorRef>(std::move(scaled));
    }
    LATHE_RETURN_IF_ERROR(info->checkUsable());
    TensorRef ref{model.files()[info->file]->path(), info->name, static_cast<int64_t>(info->offset), storageOf(*info), {}};
    for (uint64_t dim : info->shape)
      ref.shape.push_back(static_cast<int64_t>(dim));
    return std::optional<TensorRef>(std::move(ref));
  };
  WeightMapBuilder builder(config, std::move(names), lookup);
  builder.transposed = config.family == Family::gpt2;
  std::vector<std::string> all;
  for (const safetensors::TensorInfo &info : model.tensors())
    all.push_back(info.name);
  LATHE_RETURN_IF_ERROR(builder.run());
  LATHE_RETURN_IF_ERROR(builder.checkUnused(all));
  return std::move(builder.map);
}

} // namespace lathe
