//===- JsonConfig.cpp - a model's configuration from config.json -----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Fields that are missing have the family's defaults in transformers.
//===----------------------------------------------------------------------===//
#include "Fields.h"
#include "JsonRope.h"
#include "Validate.h"
#include <cmath>

namespace lathe {
namespace {
using nlohmann::json;

/// What transformers assumes for a family when config.json does not say.
struct Defaults {
  const char *modelType;
  const char *architecture;
  Family family;
  int64_t positions;
  int64_t kvHeads;  ///< 0: as many as heads
  int64_t headSize; ///< 0: hidden size / heads
  double epsilon;
  int64_t window; ///< 0: none
  bool tied;
  std::optional<int64_t> heads, vocabulary; ///< none: must be given
};
const Defaults table[] = {
    {"llama", "LlamaForCausalLM", Family::llama, 2048, 0, 0, 1e-6, 0, false, {}, {}},
    {"mistral", "MistralForCausalLM", Family::mistral, 131072, 8, 0, 1e-6, 4096, false, {}, {}},
    {"qwen2", "Qwen2ForCausalLM", Family::qwen2, 32768, 32, 0, 1e-6, 4096, false, {}, {}},
    {"qwen3", "Qwen3ForCausalLM", Family::qwen3, 32768, 32, 128, 1e-6, 4096, false, {}, {}},
    {"gemma3_text", "Gemma3ForCausalLM", Family::gemma3, 131072, 4, 256, 1e-6, 4096, true, 8, 262208},
    {"phi3", "Phi3ForCausalLM", Family::phi3, 4096, 0, 0, 1e-5, 0, false, {}, {}},
    {"gpt2", "GPT2LMHeadModel", Family::gpt2, 1024, 0, 0, 1e-5, 0, true, {}, {}},
};

std::string supportedTypes() {
  std::string list;
  for (const Defaults &entry : table)
    list += (list.empty() ? "" : ", ") + std::string(entry.modelType);
  return list;
}

class Reader {
public:
  Reader(const json &object, const ImportOptions &options) : object(object), fields(object, ""), options(options) {}
  Result<ModelConfig> run();

private:
  Status readFamily();
  Status readSizes();
  Status readWindows();
  Status readActivation();
  Status readFlags();
  Status readGPT2();
  /// An unsupported feature that must be off.
  Status mustBeFalse(const char *name);

  const json &object;
  Fields fields;
  const ImportOptions &options;
  const Defaults *defaults = nullptr;
  ModelConfig config;
};

Status Reader::readFamily() {
  LATHE_ASSIGN_OR_RETURN(std::string type, fields.string("model_type", ""));
  for (const Defaults &entry : table)
    if (type == entry.modelType) defaults = &entry;
  if (!defaults)
    return Status(StatusCode::unsupported,
                  "'model_type' " + quoteName(type) + " is not supported, only " + supportedTypes() + " are");
  config.family = defaults->family;
  if (const json *names = fields.find("architectures")) {
    if (!names->is_array()) return fields.wrong("architectures", "a list of names");
    for (const json &name : *names)
      if (!name.is_string() || name.get<std::string>() != defaults->architecture)
        return Status(StatusCode::unsupported,
                      "'architectures' " + (name.is_string() ? quoteName(name.get<std::string>()) : "entry") +
                          " is not supported for " + type + ", only " + defaults->architecture + " is");
  }
  if (const json *quantization = fields.find("quantization_config")) {
    std::string method;
    if (quantization->is_object()) {
      LATHE_ASSIGN_OR_RETURN(method, Fields(*quantization, "").string("quant_method", ""));
    }
    // Those whose matrices are F8_E4M3 with scales; what the tensors are is looked at one by one.
    if (method != "fp8" && method != "compressed-tensors" && method != "modelopt")
      return Status(StatusCode::unsupported, "'quantization_config' with method " + quoteName(method) +
                                                 " is not supported, only fp8, compressed-tensors and modelopt with weights in F8_E4M3, F32, F16 or BF16 are");
    if (const json *transform = Fields(*quantization, "").find("transform_config"); transform && !transform->empty())
      return Status(StatusCode::unsupported, "'quantization_config' with a 'transform_config' is not supported");
  }
  LATHE_ASSIGN_OR_RETURN(config.name, fields.string("_name_or_path", ""));
  return Status();
}

Status Reader::mustBeFalse(const char *name) {
  LATHE_ASSIGN_OR_RETURN(bool on, fields.boolean(name, false));
  if (!on) return Status();
  return Status(StatusCode::unsupported, quoteName(name) + ": true is not supported, only false is");
}

Status Reader::readSizes() {
  LATHE_ASSIGN_OR_RETURN(config.vocabulary, fields.integer("vocab_size", defaults->vocabulary));
  bool gpt2 = config.family == Family::gpt2;
  LATHE_ASSIGN_OR_RETURN(config.hidden, fields.integer(gpt2 ? "n_embd" : "hidden_size", std::nullopt));
  LATHE_ASSIGN_OR_RETURN(int64_t layers, fields.integer(gpt2 ? "n_layer" : "num_hidden_layers", std::nullopt));
  LATHE_ASSIGN_OR_RETURN(int64_t heads, fields.integer(gpt2 ? "n_head" : "num_attention_heads", defaults->heads));
  if (layers < 1 || layers > 4096)
    return Status(StatusCode::invalidArgument, "expected 1 to 4096 layers, found " + std::to_string(layers));
  if (heads < 1 || heads > 65536)
    return Status(StatusCode::invalidArgument, "expected 1 to 65536 heads, found " + std::to_string(heads));
  LATHE_ASSIGN_OR_RETURN(config.modelPositions,
                         fields.integer(gpt2 ? "n_positions" : "max_position_embeddings", defaults->positions));
  config.maxSequence = options.maxSequence ? options.maxSequence : config.modelPositions;
  LayerConfig layer;
  layer.heads = heads;
  if (gpt2) {
    layer.kvHeads = heads;
    LATHE_ASSIGN_OR_RETURN(layer.feedForward, fields.integer("n_inner", 4 * std::min<int64_t>(config.hidden, 1 << 20)));
  } else {
    // null stands for as many as heads, a missing field for the family's number.
    std::optional<int64_t> kvHeads =
        object.contains("num_key_value_heads") || !defaults->kvHeads ? heads : defaults->kvHeads;
    LATHE_ASSIGN_OR_RETURN(layer.kvHeads, fields.integer("num_key_value_heads", kvHeads));
    LATHE_ASSIGN_OR_RETURN(layer.feedForward, fields.integer("intermediate_size", std::nullopt));
  }
  int64_t divided = config.hidden / heads;
  if (gpt2) {
    config.headSize = divided;
  } else {
    LATHE_ASSIGN_OR_RETURN(config.headSize,
                           fields.integer("head_dim", defaults->headSize ? defaults->headSize : divided));
  }
  if (config.headSize == divided && (gpt2 || !fields.find("head_dim")) && config.hidden % heads)
    return Status(StatusCode::invalidArgument, "expected a hidden size that is a multiple of the heads, found " +
                                                   std::to_string(config.hidden) + " and " + std::to_string(heads));
  layer.attentionScale = 1 / std::sqrt(static_cast<double>(config.headSize));
  config.layers.assign(static_cast<size_t>(layers), layer);
  return Status();
}

Status Reader::readWindows() {
  std::optional<int64_t> fallback;
  if (defaults->window && !object.contains("sliding_window")) fallback = defaults->window;
  LATHE_ASSIGN_OR_RETURN(int64_t window, fields.integer("sliding_window", fallback ? fallback : 0));
  if (config.family == Family::llama || config.family == Family::gpt2) return Status();
  bool some = config.family == Family::qwen2 || config.family == Family::qwen3 || config.family == Family::gemma3;
  if (config.family == Family::qwen2 || config.family == Family::qwen3) {
    LATHE_ASSIGN_OR_RETURN(bool use, fields.boolean("use_sliding_window", false));
    if (!use) window = 0;
  }
  auto count = static_cast<int64_t>(config.layers.size());
  const json *types = some ? fields.find("layer_types") : nullptr;
  if (types && (!types->is_array() || static_cast<int64_t>(types->size()) != count))
    return fields.wrong("layer_types", ("a list of " + std::to_string(count) + " names").c_str());
  LATHE_ASSIGN_OR_RETURN(int64_t firstWindow, fields.integer("max_window_layers", 28));
  LATHE_ASSIGN_OR_RETURN(int64_t old, fields.integer("_sliding_window_pattern", 6));
  LATHE_ASSIGN_OR_RETURN(int64_t period, fields.integer("sliding_window_pattern", old));
  if (period < 1) return fields.wrong("sliding_window_pattern", "a positive integer");
  for (int64_t i = 0; i < count; ++i) {
    bool sliding = true;
    if (types) {
      std::string type =
          (*types)[static_cast<size_t>(i)].is_string() ? (*types)[static_cast<size_t>(i)].get<std::string>() : "";
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention")
        return Status(StatusCode::unsupported, "'layer_types': " + quoteName(type) +
                                                   " is not supported, only full_attention and sliding_attention are");
      if (sliding && !window) return fields.wrong("sliding_window", "a window for layers of sliding_attention");
    } else if (config.family == Family::gemma3) {
      sliding = (i + 1) % period != 0;
    } else if (some) {
      sliding = i >= firstWindow;
    }
    LayerConfig &layer = config.layers[static_cast<size_t>(i)];
    if (sliding) layer.window = window;
    if (config.family == Family::gemma3) layer.rope = sliding ? 1 : 0;
  }
  return Status();
}

Status Reader::readActivation() {
  const char *key = config.family == Family::gpt2     ? "activation_function"
                    : config.family == Family::gemma3 ? "hidden_activation"
                                                      : "hidden_act";
  std::string fallback = config.family == Family::gpt2     ? "gelu_new"
                         : config.family == Family::gemma3 ? "gelu_pytorch_tanh"
                                                           : "silu";
  LATHE_ASSIGN_OR_RETURN(std::string name, fields.string(key, fallback));
  const struct {
    const char *name;
    ActivationKind kind;
  } known[] = {{"silu", ActivationKind::silu},
               {"swish", ActivationKind::silu},
               {"gelu_pytorch_tanh", ActivationKind::geluTanh},
               {"gelu_new", ActivationKind::geluTanh},
               {"gelu", ActivationKind::geluErf},
               {"relu", ActivationKind::relu}};
  for (const auto &entry : known)
    if (name == entry.name) {
      config.activation = entry.kind;
      return Status();
    }
  return Status(StatusCode::unsupported,
                quoteName(key) + ": " + quoteName(name) +
                    " is not supported, only silu, gelu, gelu_new, gelu_pytorch_tanh, relu are");
}

Status Reader::readGPT2() {
  config.norm = NormKind::layer;
  config.gated = false;
  config.learnedPositions = true;
  config.qkvBias = config.outputBias = config.feedForwardBias = true;
  LATHE_ASSIGN_OR_RETURN(config.normEpsilon, fields.number("layer_norm_epsilon", defaults->epsilon));
  LATHE_RETURN_IF_ERROR(mustBeFalse("add_cross_attention"));
  LATHE_ASSIGN_OR_RETURN(bool scaled, fields.boolean("scale_attn_weights", true));
  LATHE_ASSIGN_OR_RETURN(bool byLayer, fields.boolean("scale_attn_by_inverse_layer_idx", false));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig &layer = config.layers[i];
    layer.rope = -1;
    if (!scaled) layer.attentionScale = 1;
    if (byLayer) layer.attentionScale /= static_cast<double>(i + 1);
  }
  return Status();
}

Status Reader::readFlags() {
  LATHE_ASSIGN_OR_RETURN(config.tiedHead, fields.boolean("tie_word_embeddings", defaults->tied));
  if (config.family == Family::gpt2) return readGPT2();
  LATHE_ASSIGN_OR_RETURN(config.normEpsilon, fields.number("rms_norm_eps", defaults->epsilon));
  if (config.family == Family::llama || config.family == Family::qwen3 || config.family == Family::gemma3) {
    LATHE_ASSIGN_OR_RETURN(config.qkvBias, fields.boolean("attention_bias", false));
    config.outputBias = config.qkvBias;
  }
  if (config.family == Family::llama) {
    LATHE_ASSIGN_OR_RETURN(config.feedForwardBias, fields.boolean("mlp_bias", false));
  }
  if (config.family == Family::qwen2) config.qkvBias = true;
  config.headNorms = config.family == Family::qwen3 || config.family == Family::gemma3;
  if (config.family != Family::gemma3) return Status();
  config.normPlusOne = config.postNorms = true;
  config.embeddingScale = std::sqrt(static_cast<double>(config.hidden));
  LATHE_RETURN_IF_ERROR(mustBeFalse("use_bidirectional_attention"));
  LATHE_ASSIGN_OR_RETURN(config.finalSoftcap, fields.number("final_logit_softcapping", 0));
  // 'attn_logit_softcapping' is a field that Gemma 3's model in transformers has from Gemma 2 and does not use.
  LATHE_ASSIGN_OR_RETURN(double scalar, fields.number("query_pre_attn_scalar", 256));
  for (LayerConfig &layer : config.layers)
    layer.attentionScale = 1 / std::sqrt(scalar);
  return Status();
}

Result<ModelConfig> Reader::run() {
  if (!object.is_object()) return Status(StatusCode::invalidArgument, "expected a JSON object");
  LATHE_RETURN_IF_ERROR(readFamily());
  LATHE_RETURN_IF_ERROR(readSizes());
  LATHE_RETURN_IF_ERROR(readWindows());
  LATHE_RETURN_IF_ERROR(readActivation());
  LATHE_RETURN_IF_ERROR(readFlags());
  // Frequencies are computed for a checked head size only.
  LATHE_RETURN_IF_ERROR(validateConfig(config, "sizes"));
  if (config.family != Family::gpt2) LATHE_RETURN_IF_ERROR(readRopes(object, config));
  LATHE_RETURN_IF_ERROR(validateConfig(config, "sizes"));
  return std::move(config);
}

} // namespace

Result<ModelConfig> readModelConfig(const json &object, const ImportOptions &options) {
  // Gemma 3 from 4B on comes with a vision tower; its text model is described by an object of its own.
  if (object.is_object() && object.value("model_type", json()) == "gemma3" && object.contains("text_config"))
    return Reader(object["text_config"], options).run();
  return Reader(object, options).run();
}

} // namespace lathe
