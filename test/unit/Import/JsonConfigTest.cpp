#include "lathe/import/ModelConfig.h"
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace lathe;
using nlohmann::json;

namespace {

json llama() {
  return json::parse(R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":100,"hidden_size":64,
    "intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":2048,"rms_norm_eps":1e-5,"rope_theta":10000.0})");
}
json gemma() {
  return json::parse(R"({"model_type":"gemma3_text","vocab_size":100,"hidden_size":64,"intermediate_size":96,
    "num_hidden_layers":7,"num_attention_heads":4,"num_key_value_heads":1,"head_dim":32,"sliding_window":512,
    "max_position_embeddings":4096})");
}
json gpt2() {
  return json::parse(R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":100,"n_embd":64,
    "n_layer":2,"n_head":4,"n_positions":128})");
}
json with(json base, const json &more) {
  base.update(more);
  return base;
}
Result<ModelConfig> read(const json &config, int64_t maxSequence = 0) { return readModelConfig(config, {maxSequence}); }
std::string error(const json &config, int64_t maxSequence = 0) { return read(config, maxSequence).status().message(); }

TEST(JsonConfig, Llama) {
  auto config = read(llama());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, Family::llama);
  EXPECT_EQ(config->headSize, 16);
  EXPECT_EQ(config->layers.size(), 2u);
  EXPECT_EQ(config->layers[0].kvHeads, 2);
  EXPECT_EQ(config->layers[0].window, 0);
  EXPECT_DOUBLE_EQ(config->layers[0].attentionScale, 0.25);
  EXPECT_FALSE(config->tiedHead);
  EXPECT_FALSE(config->qkvBias);
  EXPECT_EQ(config->maxSequence, 2048);
  ASSERT_EQ(config->ropes.size(), 1u);
  EXPECT_EQ(config->ropes[0].inverseFrequencies.size(), 8u);
  EXPECT_DOUBLE_EQ(config->ropes[0].inverseFrequencies[4], 0.01);
  config = read(with(llama(), {{"attention_bias", true},
                               {"mlp_bias", true},
                               {"tie_word_embeddings", true},
                               {"num_key_value_heads", nullptr},
                               {"head_dim", 10}}),
                100);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->qkvBias && config->outputBias && config->feedForwardBias && config->tiedHead);
  EXPECT_EQ(config->layers[0].kvHeads, 4);
  EXPECT_EQ(config->headSize, 10);
  EXPECT_EQ(config->maxSequence, 100);
}

TEST(JsonConfig, WindowsOfMistralAndQwen) {
  json mistral =
      with(llama(), {{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}, {"sliding_window", 300}});
  EXPECT_EQ(read(mistral)->layers[1].window, 300);
  EXPECT_EQ(read(mistral, 300)->layers[1].window, 0); // no sequence outgrows it
  EXPECT_EQ(read(with(mistral, {{"sliding_window", nullptr}}))->layers[1].window, 0);
  json qwen = with(llama(), {{"model_type", "qwen2"},
                             {"architectures", {"Qwen2ForCausalLM"}},
                             {"sliding_window", 300},
                             {"max_window_layers", 1}});
  EXPECT_EQ(read(qwen)->layers[1].window, 0);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(read(qwen)->layers[0].window, 0);
  EXPECT_EQ(read(qwen)->layers[1].window, 300);
  EXPECT_TRUE(read(qwen)->qkvBias);
  EXPECT_FALSE(read(qwen)->outputBias);
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(read(qwen)->layers[0].window, 300);
  EXPECT_EQ(read(qwen)->layers[1].window, 0);
}

TEST(JsonConfig, Qwen3HasHeadNorms) {
  json qwen = with(llama(), {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}});
  EXPECT_TRUE(read(qwen)->headNorms);
  EXPECT_EQ(read(qwen)->headSize, 128);
}

TEST(JsonConfig, Gemma3) {
  auto config = read(gemma());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->normPlusOne && config->postNorms && config->headNorms && config->tiedHead);
  EXPECT_EQ(config->activation, ActivationKind::geluTanh);
  EXPECT_DOUBLE_EQ(config->embeddingScale, 8);
  EXPECT_DOUBLE_EQ(config->layers[0].attentionScale, 1.0 / 16);
  EXPECT_EQ(config->layers[4].window, 512);
  EXPECT_EQ(config->layers[5].window, 0);
  EXPECT_EQ(config->layers[4].rope, 1);
  EXPECT_EQ(config->layers[5].rope, 0);
  ASSERT_EQ(config->ropes.size(), 2u);
  EXPECT_DOUBLE_EQ(config->ropes[0].inverseFrequencies[8], 1e-3);
  EXPECT_DOUBLE_EQ(config->ropes[1].inverseFrequencies[8], 1e-2);
  // The form of transformers 5 says the same.
  json newer = with(
      gemma(), json::parse(R"({"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":1e6},
    "sliding_attention":{"rope_type":"default","rope_theta":1e4}},"final_logit_softcapping":30.0})"));
  config = read(newer);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_DOUBLE_EQ(config->ropes[0].inverseFrequencies[8], 1e-3 / 8);
  EXPECT_DOUBLE_EQ(config->ropes[1].inverseFrequencies[8], 1e-2);
  EXPECT_EQ(config->finalSoftcap, 30);
  json older =
      with(gemma(), json::parse(R"({"rope_scaling":{"rope_type":"linear","factor":8.0},"rope_local_base_freq":1e4})"));
  config = read(older);
  EXPECT_DOUBLE_EQ(config->ropes[0].inverseFrequencies[8], 1e-3 / 8);
  EXPECT_DOUBLE_EQ(config->ropes[1].inverseFrequencies[8], 1e-2);
  // transformers has this field and does not use it.
  EXPECT_EQ(error(with(gemma(), {{"attn_logit_softcapping", 50.0}})), "");
  // A window that is switched off keeps the local frequencies.
  config = read(gemma(), 100);
  EXPECT_EQ(config->layers[4].window, 0);
  EXPECT_EQ(config->layers[4].rope, 1);
}

TEST(JsonConfig, Gemma3WithAVisionTowerGivesItsTextModel) {
  json config =
      json::parse(R"({"model_type":"gemma3","architectures":["Gemma3ForConditionalGeneration"],"vision_config":{},
    "text_config":{"model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,
    "sliding_window":1024,"rope_scaling":{"rope_type":"linear","factor":8.0}}})");
  auto text = read(config);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->vocabulary, 262208);
  EXPECT_EQ(text->layers[0].heads, 8);
  EXPECT_EQ(text->layers[0].kvHeads, 4);
  EXPECT_DOUBLE_EQ(text->ropes[0].inverseFrequencies[64], 1e-3 / 8);
  EXPECT_EQ(error({{"model_type", "gemma3"}, {"text_config", 3}}), "expected a JSON object");
}

TEST(JsonConfig, GPT2) {
  auto config = read(gpt2());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->learnedPositions && config->tiedHead && config->qkvBias && config->feedForwardBias);
  EXPECT_FALSE(config->gated);
  EXPECT_EQ(config->norm, NormKind::layer);
  EXPECT_EQ(config->layers[0].feedForward, 256);
  EXPECT_EQ(config->layers[0].rope, -1);
  EXPECT_DOUBLE_EQ(read(with(gpt2(), {{"scale_attn_by_inverse_layer_idx", true}}))->layers[1].attentionScale, 0.125);
  EXPECT_DOUBLE_EQ(read(with(gpt2(), {{"scale_attn_weights", false}}))->layers[1].attentionScale, 1);
}

TEST(JsonConfig, UnsupportedThingsAreNamed) {
  EXPECT_EQ(error(json::array()), "expected a JSON object");
  EXPECT_EQ(error(with(llama(), {{"model_type", "mamba"}})),
            "'model_type' 'mamba' is not supported, only llama, mistral, qwen2, qwen3, gemma3_text, phi3, gpt2 are");
  EXPECT_EQ(error(with(llama(), {{"architectures", {"LlamaForSequenceClassification"}}})),
            "'architectures' 'LlamaForSequenceClassification' is not supported for llama, only LlamaForCausalLM is");
  EXPECT_EQ(error(with(llama(), {{"quantization_config", {{"quant_method", "gptq"}}}})),
            "'quantization_config' with method 'gptq' is not supported, only fp8, compressed-tensors and modelopt with weights in F8_E4M3, F32, F16 or BF16 are");
  EXPECT_EQ(error(with(llama(), {{"quantization_config", {{"quant_method", "compressed-tensors"}, {"transform_config", {{"config_groups", 1}}}}}})),
            "'quantization_config' with a 'transform_config' is not supported");
  EXPECT_TRUE(read(with(llama(), {{"quantization_config", {{"quant_method", "compressed-tensors"}, {"transform_config", json::object()}}}})).ok());
  EXPECT_EQ(error(with(llama(), {{"hidden_act", "quick_gelu"}})),
            "'hidden_act': 'quick_gelu' is not supported, only silu, gelu, gelu_new, gelu_pytorch_tanh, relu are");
  EXPECT_EQ(error(with(gemma(), {{"use_bidirectional_attention", true}})),
            "'use_bidirectional_attention': true is not supported, only false is");
  EXPECT_EQ(error(with(gpt2(), {{"add_cross_attention", true}})),
            "'add_cross_attention': true is not supported, only false is");
  json qwen = with(llama(), {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}});
  EXPECT_EQ(error(with(qwen, {{"layer_types", {"linear_attention", "full_attention"}}})),
            "'layer_types': 'linear_attention' is not supported, only full_attention and sliding_attention are");
  EXPECT_EQ(error(with(qwen, {{"layer_types", {"sliding_attention", "full_attention"}}})),
            "'sliding_window': expected a window for layers of sliding_attention, found nothing");
  EXPECT_EQ(error(with(llama(), {{"head_dim", 15}})),
            "sizes: head size 15 is not supported, only even sizes of 2 to 256 are");
  EXPECT_EQ(error(with(llama(), {{"head_dim", 512}})),
            "sizes: head size 512 is not supported, only even sizes of 2 to 256 are");
}

TEST(JsonConfig, WrongValuesAreNamed) {
  json config = llama();
  config.erase("hidden_size");
  EXPECT_EQ(error(config), "'hidden_size' is missing");
  EXPECT_EQ(error(with(llama(), {{"hidden_size", "big"}})), "'hidden_size': expected an integer, found \"big\"");
  EXPECT_EQ(error(with(llama(), {{"hidden_size", 64.5}})), "'hidden_size': expected an integer, found 64.5");
  EXPECT_EQ(error(with(llama(), {{"hidden_size", ~0ull}})),
            "'hidden_size': expected an integer, found 18446744073709551615");
  EXPECT_EQ(error(with(llama(), {{"rms_norm_eps", "x"}})), "'rms_norm_eps': expected a number, found \"x\"");
  EXPECT_EQ(error(with(llama(), {{"tie_word_embeddings", 1}})),
            "'tie_word_embeddings': expected true or false, found 1");
  EXPECT_EQ(error(with(llama(), {{"model_type", 7}})), "'model_type': expected a string, found 7");
  EXPECT_EQ(error(with(llama(), {{"architectures", "x"}})), "'architectures': expected a list of names, found \"x\"");
  EXPECT_EQ(error(with(llama(), {{"num_hidden_layers", 1000000}})), "expected 1 to 4096 layers, found 1000000");
  EXPECT_EQ(error(with(llama(), {{"num_attention_heads", 0}})), "expected 1 to 65536 heads, found 0");
  EXPECT_EQ(error(with(llama(), {{"num_attention_heads", 5}})),
            "expected a hidden size that is a multiple of the heads, found 64 and 5");
  EXPECT_EQ(error(with(llama(), {{"num_key_value_heads", 3}})),
            "sizes: expected heads that are a multiple of the KV heads, found 4 and 3");
  EXPECT_EQ(error(with(llama(), {{"num_key_value_heads", 8}})),
            "sizes: expected a number of KV heads of 1 to 4, found 8");
  EXPECT_EQ(error(with(llama(), {{"vocab_size", 0}})), "sizes: expected a vocabulary size of 1 to 268435456, found 0");
  EXPECT_EQ(error(with(llama(), {{"intermediate_size", -1}})),
            "sizes: expected a feed-forward size of 1 to 4194304, found -1");
  EXPECT_EQ(error(with(llama(), {{"rms_norm_eps", -1.0}})),
            "sizes: expected a norm epsilon of 0 to 1, found -1.000000");
  EXPECT_EQ(error(with(gemma(), {{"sliding_window", -5}})), "sizes: expected a positive sliding window, found -5");
  EXPECT_EQ(error(with(gemma(), {{"sliding_window_pattern", 0}})),
            "'sliding_window_pattern': expected a positive integer, found 0");
  EXPECT_EQ(error(with(gemma(), {{"query_pre_attn_scalar", 0}})),
            "sizes: expected a positive attention scale, found inf");
  EXPECT_EQ(error(with(gemma(), {{"final_logit_softcapping", -1}})),
            "sizes: expected a positive soft cap, found -1.000000");
  EXPECT_EQ(error(gpt2(), 129),
            "sizes: the model has learned 128 positions, a maximum sequence length of 129 is beyond them");
  json qwen = with(llama(), {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}});
  EXPECT_EQ(error(with(qwen, {{"layer_types", {"full_attention"}}})),
            "'layer_types': expected a list of 2 names, found [\"full_attention\"]");
}

double frequency(const json &rope, int i, int64_t maxSequence = 0) {
  auto config = read(with(llama(), rope), maxSequence);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? config->ropes[0].inverseFrequencies[static_cast<size_t>(i)] : 0;
}

TEST(JsonConfig, RopeKinds) {
  EXPECT_DOUBLE_EQ(frequency({{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}, 4), 0.0025);
  EXPECT_DOUBLE_EQ(frequency({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 16.0}}}}, 4), 0.25);
  json llama3 = {{"rope_scaling",
                  {{"rope_type", "llama3"},
                   {"factor", 8.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0},
                   {"original_max_position_embeddings", 1024}}}};
  EXPECT_DOUBLE_EQ(frequency(llama3, 0), 1);                           // wavelength 6.28 < 256: kept
  EXPECT_DOUBLE_EQ(frequency(llama3, 7), std::pow(1e4, -7.0 / 8) / 8); // 19,869 > 1024: stretched
  double base = 0.01, smooth = (1024 / (2 * M_PI / base) - 1) / 3;     // 628: in between
  EXPECT_DOUBLE_EQ(frequency(llama3, 4), (1 - smooth) * base / 8 + smooth * base);
  // yarn at factor 4 over 512: the ramp runs from dimension floor(1.62) = 1 to ceil(7.65) = 8 of 16.
  json yarn = {
      {"rope_parameters",
       {{"rope_type", "yarn"}, {"rope_theta", 1e4}, {"factor", 4.0}, {"original_max_position_embeddings", 512}}}};
  double low = std::floor(16 * std::log(512 / (32 * 2 * M_PI)) / (2 * std::log(1e4)));
  double high = std::ceil(16 * std::log(512 / (2 * M_PI)) / (2 * std::log(1e4)));
  double share = std::min(1.0, std::max(0.0, (2 - low) / (high - low)));
  EXPECT_DOUBLE_EQ(frequency(yarn, 2), 0.1 / 4 * share + 0.1 * (1 - share));
  EXPECT_DOUBLE_EQ(read(with(llama(), yarn))->ropes[0].attentionFactor, 0.1 * std::log(4.0) + 1);
  yarn["rope_parameters"]["attention_factor"] = 1.5;
  EXPECT_DOUBLE_EQ(read(with(llama(), yarn))->ropes[0].attentionFactor, 1.5);
}

TEST(JsonConfig, LongropeIsFixedByTheSequenceLength) {
  json phi =
      with(llama(),
           {{"model_type", "phi3"}, {"architectures", {"Phi3ForCausalLM"}}, {"original_max_position_embeddings", 512}});
  phi["rope_scaling"] = {{"type", "longrope"},
                         {"short_factor", json::array({1, 1, 1, 1, 2, 1, 1, 1})},
                         {"long_factor", json::array({1, 1, 1, 1, 4, 1, 1, 1})}};
  EXPECT_DOUBLE_EQ(read(phi, 512)->ropes[0].inverseFrequencies[4], 0.005);
  EXPECT_DOUBLE_EQ(read(phi, 513)->ropes[0].inverseFrequencies[4], 0.0025);
  EXPECT_EQ(read(phi, 512)->ropes[0].factors, "short");
  EXPECT_EQ(read(phi, 513)->ropes[0].factors, "long");
  EXPECT_EQ(read(llama())->ropes[0].factors, "");
  EXPECT_DOUBLE_EQ(read(phi)->ropes[0].inverseFrequencies[4], 0.0025);
  EXPECT_DOUBLE_EQ(read(phi)->ropes[0].attentionFactor, std::sqrt(1 + std::log(4.0) / std::log(512.0)));
  json rope = phi["rope_scaling"];
  for (const char *name : {"su", "yarn"}) {
    phi["rope_scaling"]["type"] = name; // early names
    EXPECT_EQ(read(phi)->ropes[0].kind, "longrope") << name;
    EXPECT_DOUBLE_EQ(read(phi)->ropes[0].inverseFrequencies[4], 0.0025) << name;
  }
  phi["rope_scaling"] = rope;
  phi["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(error(phi), "RoPE: expected 4 short factors, found 8");
}

TEST(JsonConfig, RopeErrors) {
  auto rope = [](json parameters) { return error(with(llama(), {{"rope_parameters", parameters}})); };
  EXPECT_EQ(
      rope({{"rope_type", "dynamic"}, {"factor", 2}}),
      "RoPE kind 'dynamic' is not supported: its frequencies depend on the sequence's length, so that earlier tokens "
      "would change; supported are default, linear, llama3, yarn, longrope");
  EXPECT_EQ(rope({{"rope_type", "mrope"}, {"factor", 2}}),
            "RoPE kind 'mrope' is not supported, only default, linear, llama3, yarn, longrope are");
  EXPECT_EQ(rope({{"rope_type", "linear"}}), "'rope_parameters': 'factor' is missing");
  EXPECT_EQ(rope({{"rope_type", "linear"}, {"factor", 0}}), "RoPE: expected a positive factor, found 0.000000");
  EXPECT_EQ(rope({{"rope_theta", 0}}), "RoPE: expected a theta above 1, found 0.000000");
  EXPECT_EQ(rope({{"rope_type", "llama3"}, {"factor", 8}}), "'rope_parameters': 'low_freq_factor' is missing");
  EXPECT_EQ(rope({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}}),
            "RoPE: llama3 expects 0 < low_freq_factor < high_freq_factor, found 4.000000 and 1.000000");
  EXPECT_EQ(rope({{"rope_type", "yarn"}, {"factor", 8}, {"beta_fast", -1}}),
            "RoPE: yarn expects positive beta_fast and beta_slow, found -1.000000 and 1.000000");
  EXPECT_EQ(rope({{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 0}}),
            "RoPE: yarn expects original positions above 1, found 0.000000");
  EXPECT_EQ(rope({{"rope_type", "yarn"}, {"factor", 8}, {"attention_factor", -1}}),
            "RoPE: expected a positive attention factor, found -1.000000");
  EXPECT_EQ(
      rope({{"rope_type", "longrope"}, {"short_factor", json::array({0, 1, 1, 1, 1, 1, 1, 1})}, {"long_factor", "x"}}),
      "'rope_parameters': 'long_factor': expected a list of numbers, found \"x\"");
  EXPECT_EQ(rope({{"rope_type", "longrope"},
                  {"short_factor", json::array({0, 1, 1, 1, 1, 1, 1, 1})},
                  {"long_factor", json::array({1})}}),
            "RoPE: expected positive short factors");
  EXPECT_EQ(rope({{"partial_rotary_factor", 2}}),
            "'rope_parameters': 'partial_rotary_factor': expected a number above 0 and at most 1, found 2");
  EXPECT_EQ(rope({{"partial_rotary_factor", 0.5}}),
            "'rope_parameters': 'partial_rotary_factor' other than 1 is supported for phi3 only");
  EXPECT_EQ(rope({{"full_attention", {{"rope_type", "default"}}}}),
            "'rope_parameters': parameters for each layer type are supported for gemma3 only");
  EXPECT_EQ(error(with(llama(), {{"rope_scaling", 3}})), "'rope_scaling': expected an object, found 3");
  EXPECT_EQ(error(with(llama(), {{"rope_parameters", 3}})), "'rope_parameters': expected an object, found 3");
}

} // namespace
