//===- GGUFConfig.cpp - a model's configuration from GGUF metadata ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Validate.h"
#include "lathe/import/Quote.h"
#include <cmath>
#include <cstring>

namespace lathe {
namespace {

constexpr int64_t maxLayers = 4096;

class Reader {
public:
  Reader(const gguf::File &file, const ImportOptions &options) : file(file), options(options) {}
  Result<ModelConfig> run();

private:
  std::string key(const char *suffix) const { return architecture + "." + suffix; }
  Status readFamily();
  Status readSizes();
  Status readLayers();
  Status readPerLayer(const char *suffix, int64_t fallback, int64_t LayerConfig::*field);
  Status readWindows();
  Status readRopes();
  Result<RopeParameters> readRopeParameters();
  Result<std::vector<double>> readFactors(const char *tensorName);
  Status readBiases();

  const gguf::File &file;
  const ImportOptions &options;
  std::string architecture;
  ModelConfig config;
};

Status Reader::readFamily() {
  LATHE_ASSIGN_OR_RETURN(std::string_view name, file.string("general.architecture"));
  architecture = name;
  const struct {
    const char *name;
    Family family;
  } known[] = {{"llama", Family::llama},   {"qwen2", Family::qwen2}, {"qwen3", Family::qwen3},
               {"gemma3", Family::gemma3}, {"phi3", Family::phi3},   {"gpt2", Family::gpt2}};
  for (const auto &entry : known)
    if (name == entry.name) {
      config.family = entry.family;
      return Status();
    }
  return Status(StatusCode::unsupported,
                "architecture " + quoteName(name) +
                    " is not supported, only llama (with mistral), qwen2, qwen3, gemma3, phi3, gpt2 are");
}

Status Reader::readPerLayer(const char *suffix, int64_t fallback, int64_t LayerConfig::*field) {
  std::string name = key(suffix);
  if (!file.has(name)) {
    if (!fallback) return file.integer(name).status(); // says that it is missing
    for (LayerConfig &layer : config.layers)
      layer.*field = fallback;
    return Status();
  }
  LATHE_ASSIGN_OR_RETURN(gguf::ValueType type, file.type(name));
  if (type != gguf::ValueType::array) {
    LATHE_ASSIGN_OR_RETURN(int64_t value, file.integer(name));
    for (LayerConfig &layer : config.layers)
      layer.*field = value;
    return Status();
  }
  LATHE_ASSIGN_OR_RETURN(std::vector<int64_t> list, file.integers(name));
  if (list.size() != config.layers.size())
    return Status(StatusCode::invalidArgument, "metadata " + quoteName(name) + ": expected one value for each of " +
                                                   std::to_string(config.layers.size()) + " layers, found " +
                                                   std::to_string(list.size()));
  for (size_t i = 0; i < list.size(); ++i)
    config.layers[i].*field = list[i];
  return Status();
}

Status Reader::readSizes() {
  LATHE_ASSIGN_OR_RETURN(config.hidden, file.integer(key("embedding_length")));
  LATHE_ASSIGN_OR_RETURN(config.modelPositions, file.integer(key("context_length")));
  config.maxSequence = options.maxSequence ? options.maxSequence : config.modelPositions;
  const gguf::TensorInfo *embedding = file.tensor("token_embd.weight");
  if (!embedding || embedding->dims.size() != 2)
    return Status(StatusCode::invalidArgument, "expected a tensor 'token_embd.weight' of 2 dimensions");
  if (embedding->dims[1] > (1u << 28))
    return Status(StatusCode::invalidArgument, "tensor 'token_embd.weight': expected at most 2^28 rows, found " +
                                                   std::to_string(embedding->dims[1]));
  config.vocabulary = static_cast<int64_t>(embedding->dims[1]);
  LATHE_ASSIGN_OR_RETURN(int64_t splits, file.integerOr("split.count", 1));
  if (splits > 1)
    return Status(StatusCode::unsupported, "a GGUF file in " + std::to_string(splits) +
                                               " parts is not supported, join the parts first (gguf-split --merge)");
  LATHE_ASSIGN_OR_RETURN(int64_t experts, file.integerOr(key("expert_count"), 0));
  if (experts)
    return Status(StatusCode::unsupported, "a mixture of " + std::to_string(experts) +
                                               " experts is not supported, only dense feed-forward layers are");
  LATHE_ASSIGN_OR_RETURN(std::string_view name, file.stringOr("general.name", ""));
  config.name = name;
  return Status();
}

Status Reader::readLayers() {
  LATHE_ASSIGN_OR_RETURN(int64_t count, file.integer(key("block_count")));
  if (count < 1 || count > maxLayers)
    return Status(StatusCode::invalidArgument, "metadata " + quoteName(key("block_count")) +
                                                   ": expected 1 to 4096 layers, found " + std::to_string(count));
  config.layers.resize(static_cast<size_t>(count));
  LATHE_RETURN_IF_ERROR(readPerLayer("attention.head_count", 0, &LayerConfig::heads));
  LATHE_RETURN_IF_ERROR(readPerLayer("attention.head_count_kv", -1, &LayerConfig::kvHeads));
  LATHE_RETURN_IF_ERROR(readPerLayer("feed_forward_length", 0, &LayerConfig::feedForward));
  int64_t heads = config.layers[0].heads;
  LATHE_ASSIGN_OR_RETURN(config.headSize,
                         file.integerOr(key("attention.key_length"), heads > 0 ? config.hidden / heads : 0));
  LATHE_ASSIGN_OR_RETURN(int64_t valueSize, file.integerOr(key("attention.value_length"), config.headSize));
  if (valueSize != config.headSize)
    return Status(StatusCode::unsupported, "keys of " + std::to_string(config.headSize) + " and values of " +
                                               std::to_string(valueSize) +
                                               " elements are not supported, only equal sizes are");
  for (LayerConfig &layer : config.layers) {
    if (layer.kvHeads == -1) layer.kvHeads = layer.heads;
    layer.attentionScale = 1 / std::sqrt(static_cast<double>(config.headSize));
  }
  return Status();
}

Status Reader::readWindows() {
  LATHE_ASSIGN_OR_RETURN(int64_t window, file.integerOr(key("attention.sliding_window"), 0));
  if (!window) return Status();
  std::vector<bool> sliding(config.layers.size(), config.family != Family::gemma3);
  std::string pattern = key("attention.sliding_window_pattern");
  int64_t period = config.family == Family::gemma3 ? 6 : 0;
  if (file.has(pattern)) {
    LATHE_ASSIGN_OR_RETURN(gguf::ValueType type, file.type(pattern));
    if (type == gguf::ValueType::array) {
      LATHE_ASSIGN_OR_RETURN(sliding, file.booleans(pattern));
      if (sliding.size() != config.layers.size())
        return Status(StatusCode::invalidArgument,
                      "metadata " + quoteName(pattern) + ": expected one value for each of " +
                          std::to_string(config.layers.size()) + " layers, found " + std::to_string(sliding.size()));
      period = 0;
    } else {
      LATHE_ASSIGN_OR_RETURN(period, file.integer(pattern));
      if (period < 1)
        return Status(StatusCode::invalidArgument, "metadata " + quoteName(pattern) +
                                                       ": expected a positive period, found " + std::to_string(period));
    }
  }
  for (size_t i = 0; i < sliding.size(); ++i) {
    // Every period-th layer sees everything.
    if (period) sliding[i] = (static_cast<int64_t>(i) + 1) % period != 0;
    if (sliding[i]) config.layers[i].window = window;
  }
  return Status();
}

Result<std::vector<double>> Reader::readFactors(const char *tensorName) {
  std::vector<double> out;
  const gguf::TensorInfo *info = file.tensor(tensorName);
  if (!info) return out;
  if (std::strcmp(info->type->name, "F32") || info->dims.size() != 1 || info->dims[0] > 65536)
    return Status(StatusCode::invalidArgument,
                  std::string("tensor '") + tensorName + "': expected one dimension of at most 65536 F32 values");
  for (uint64_t i = 0; i < info->dims[0]; ++i) {
    float value;
    std::memcpy(&value, file.tensorBytes(*info).data() + 4 * i, 4);
    out.push_back(value);
  }
  return out;
}

Result<RopeParameters> Reader::readRopeParameters() {
  RopeParameters p;
  LATHE_ASSIGN_OR_RETURN(p.theta, file.numberOr(key("rope.freq_base"), config.family == Family::gemma3 ? 1e6 : 1e4));
  LATHE_ASSIGN_OR_RETURN(p.rotarySize, file.integerOr(key("rope.dimension_count"), config.headSize));
  LATHE_ASSIGN_OR_RETURN(double legacy, file.numberOr(key("rope.scale_linear"), 1));
  LATHE_ASSIGN_OR_RETURN(p.factor, file.numberOr(key("rope.scaling.factor"), legacy));
  LATHE_ASSIGN_OR_RETURN(p.originalPositions, file.numberOr(key("rope.scaling.original_context_length"),
                                                            static_cast<double>(config.modelPositions)));
  LATHE_ASSIGN_OR_RETURN(p.shortFactors, readFactors("rope_factors_short.weight"));
  LATHE_ASSIGN_OR_RETURN(p.longFactors, readFactors("rope_factors_long.weight"));
  LATHE_ASSIGN_OR_RETURN(p.divisors, readFactors("rope_freqs.weight"));
  LATHE_ASSIGN_OR_RETURN(double factor, file.numberOr(key("rope.scaling.attn_factor"), 0));
  bool hasFactors = !p.shortFactors.empty() || !p.longFactors.empty();
  std::string fallback = hasFactors ? "longrope" : p.factor != 1 && p.factor != 0 ? "linear" : "none";
  LATHE_ASSIGN_OR_RETURN(std::string_view kind, file.stringOr(key("rope.scaling.type"), fallback));
  p.kind = kind == "none" ? "default" : kind;
  if (p.factor == 0) p.factor = 1; // written by old converters for "none"
  if (p.kind == "linear" && p.factor == 1) p.kind = "default";
  if (p.kind == "default" && !p.divisors.empty()) {
    // The divisors are Llama 3's ramp, computed by the converter.
    LATHE_ASSIGN_OR_RETURN(Rope rope, makeRope(p, config.maxSequence));
    rope.kind = "llama3";
    config.ropes.push_back(std::move(rope));
    return p;
  }
  if (p.kind == "longrope") {
    p.factor = static_cast<double>(config.modelPositions) / p.originalPositions;
    p.attentionFactor = factor;
  } else if (p.kind == "yarn") {
    LATHE_ASSIGN_OR_RETURN(p.betaFast, file.numberOr(key("rope.scaling.yarn_beta_fast"), 32));
    LATHE_ASSIGN_OR_RETURN(p.betaSlow, file.numberOr(key("rope.scaling.yarn_beta_slow"), 1));
    LATHE_ASSIGN_OR_RETURN(p.attentionFactor, file.numberOr(key("rope.scaling.yarn_attn_factor"), 0));
    if (factor != 0 && p.attentionFactor == 0)
      p.attentionFactor = factor * (p.factor > 1 ? 0.1 * std::log(p.factor) + 1 : 1);
  }
  LATHE_ASSIGN_OR_RETURN(Rope rope, makeRope(p, config.maxSequence));
  config.ropes.push_back(std::move(rope));
  return p;
}

Status Reader::readRopes() {
  if (config.family == Family::gpt2) {
    config.learnedPositions = true;
    for (LayerConfig &layer : config.layers)
      layer.rope = -1;
    return Status();
  }
  LATHE_ASSIGN_OR_RETURN(RopeParameters global, readRopeParameters());
  if (config.family == Family::llama && global.rotarySize != config.headSize)
    return Status(StatusCode::unsupported, "architecture 'llama' with " + std::to_string(global.rotarySize) + " of " +
                                               std::to_string(config.headSize) +
                                               " elements of a head rotated is not supported, only all are");
  if (config.family != Family::gemma3) return Status();
  RopeParameters local; // not scaled, and its base is not in every file
  local.rotarySize = global.rotarySize;
  LATHE_ASSIGN_OR_RETURN(local.theta, file.numberOr(key("rope.freq_base_swa"), 1e4));
  LATHE_ASSIGN_OR_RETURN(Rope rope, makeRope(local, config.maxSequence));
  config.ropes.push_back(std::move(rope));
  for (LayerConfig &layer : config.layers)
    layer.rope = layer.window ? 1 : 0;
  return Status();
}

Status Reader::readBiases() {
  auto has = [&](const char *name) { return file.tensor(name) != nullptr; };
  config.qkvBias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  config.outputBias = has("blk.0.attn_output.bias");
  config.feedForwardBias = has("blk.0.ffn_down.bias");
  config.headBias = has("output.bias");
  config.tiedHead = !has("output.weight");
  return Status();
}

Result<ModelConfig> Reader::run() {
  LATHE_RETURN_IF_ERROR(readFamily());
  LATHE_RETURN_IF_ERROR(readSizes());
  LATHE_RETURN_IF_ERROR(readLayers());
  bool layerNorm = config.family == Family::gpt2;
  LATHE_ASSIGN_OR_RETURN(config.normEpsilon, file.number(key(layerNorm ? "attention.layer_norm_epsilon"
                                                                       : "attention.layer_norm_rms_epsilon")));
  config.norm = layerNorm ? NormKind::layer : NormKind::rms;
  LATHE_RETURN_IF_ERROR(readWindows());
  LATHE_RETURN_IF_ERROR(readRopes());
  LATHE_RETURN_IF_ERROR(readBiases());
  config.headNorms = config.family == Family::qwen3 || config.family == Family::gemma3;
  if (config.family == Family::gpt2) {
    config.gated = false;
    config.activation = ActivationKind::geluTanh;
  }
  if (config.family == Family::gemma3) {
    config.activation = ActivationKind::geluTanh;
    config.postNorms = true;
    config.embeddingScale = std::sqrt(static_cast<double>(config.hidden));
    LATHE_ASSIGN_OR_RETURN(config.finalSoftcap, file.numberOr(key("final_logit_softcapping"), 0));
    // The 27B model alone scales by its hidden size; the files do not say so.
    if (config.layers.size() == 62)
      for (LayerConfig &layer : config.layers)
        layer.attentionScale = 1 / std::sqrt(static_cast<double>(config.hidden / std::max<int64_t>(1, layer.heads)));
  }
  LATHE_RETURN_IF_ERROR(validateConfig(config, "metadata"));
  return std::move(config);
}

} // namespace

Result<ModelConfig> readModelConfig(const gguf::File &file, const ImportOptions &options) {
  auto config = Reader(file, options).run();
  if (!config.ok()) return config.status().at(file.path());
  return config;
}

} // namespace lathe
