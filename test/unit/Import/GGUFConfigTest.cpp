#include "GGUFBuilder.h"
#include "lathe/import/ModelConfig.h"
#include "lathe/import/WeightMap.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace lathe;
using lathe::test::GGUFBuilder;

namespace {

/// A model of one layer: hidden 8, 2 heads of 4, feed-forward 8, 10 tokens.
GGUFBuilder model(const std::string &arch = "llama", bool tensors = true) {
  GGUFBuilder b;
  b.string("general.architecture", arch);
  b.u32(arch + ".context_length", 64).u32(arch + ".embedding_length", 8).u32(arch + ".block_count", 1);
  b.u32(arch + ".feed_forward_length", 8).u32(arch + ".attention.head_count", 2);
  b.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  auto add = [&](const std::string &name, std::vector<uint64_t> dims) {
    uint64_t n = 1;
    for (uint64_t dim : dims)
      n *= dim;
    b.tensor(name, 0, dims, std::string(4 * n, '\0'));
  };
  add("token_embd.weight", {8, 10});
  if (!tensors) return b;
  for (const char *name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    add(std::string("blk.0.") + name + ".weight", {8, 8});
  for (const char *name : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"})
    add(std::string(name) + ".weight", {8});
  return b;
}

struct Parsed {
  std::string bytes;
  Result<gguf::File> file;
  explicit Parsed(const GGUFBuilder &b)
      : bytes(b.build()),
        file(gguf::File::parse({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()}, "m.gguf")) {
    EXPECT_TRUE(file.ok()) << file.status().message();
  }
};
Result<ModelConfig> config(const GGUFBuilder &b, int64_t maxSequence = 0) {
  Parsed parsed(b);
  return readModelConfig(*parsed.file, {maxSequence});
}
std::string error(const GGUFBuilder &b) { return config(b).status().message(); }
std::string mapError(const GGUFBuilder &b) {
  Parsed parsed(b);
  auto c = readModelConfig(*parsed.file, {});
  EXPECT_TRUE(c.ok()) << c.status().message();
  return c.ok() ? WeightMap::fromGGUF(*c, *parsed.file).status().message() : "";
}

TEST(GGUFConfig, ReadsAModel) {
  auto c = config(model());
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(c->vocabulary, 10);
  EXPECT_EQ(c->headSize, 4);
  EXPECT_EQ(c->layers[0].kvHeads, 2);
  EXPECT_TRUE(c->tiedHead);
  EXPECT_EQ(c->maxSequence, 64);
  EXPECT_EQ(config(model(), 20)->maxSequence, 20);
  EXPECT_EQ(mapError(model()), "");
}

TEST(GGUFConfig, PerLayerNumbers) {
  auto b = model();
  b.array<int32_t>("llama.attention.head_count_kv", 5, {1});
  EXPECT_EQ(config(b)->layers[0].kvHeads, 1);
  auto wrong = model();
  wrong.array<int32_t>("llama.attention.head_count_kv", 5, {1, 1});
  EXPECT_EQ(error(wrong),
            "m.gguf: metadata 'llama.attention.head_count_kv': expected one value for each of 1 layers, found 2");
}

TEST(GGUFConfig, Windows) {
  auto b = model("gemma3");
  b.u32("gemma3.attention.sliding_window", 8).array<uint8_t>("gemma3.attention.sliding_window_pattern", 7, {1});
  auto c = config(b);
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(c->layers[0].window, 8);
  EXPECT_EQ(c->layers[0].rope, 1);
  EXPECT_DOUBLE_EQ(c->ropes[1].inverseFrequencies[1], 0.01);
  EXPECT_DOUBLE_EQ(c->ropes[0].inverseFrequencies[1], 0.001);
  auto wrong = model("gemma3");
  wrong.u32("gemma3.attention.sliding_window", 8).array<uint8_t>("gemma3.attention.sliding_window_pattern", 7, {1, 0});
  EXPECT_EQ(
      error(wrong),
      "m.gguf: metadata 'gemma3.attention.sliding_window_pattern': expected one value for each of 1 layers, found 2");
  auto zero = model("gemma3");
  zero.u32("gemma3.attention.sliding_window", 8).u32("gemma3.attention.sliding_window_pattern", 0);
  EXPECT_EQ(error(zero),
            "m.gguf: metadata 'gemma3.attention.sliding_window_pattern': expected a positive period, found 0");
}

TEST(GGUFConfig, UnsupportedThingsAreNamed) {
  EXPECT_EQ(error(model("mamba")),
            "m.gguf: architecture 'mamba' is not supported, only llama (with mistral), qwen2, qwen3, "
            "gemma3, phi3, gpt2 are");
  EXPECT_EQ(error(model().u32("llama.expert_count", 8)),
            "m.gguf: a mixture of 8 experts is not supported, only dense feed-forward layers are");
  EXPECT_EQ(error(model().u32("split.count", 3)),
            "m.gguf: a GGUF file in 3 parts is not supported, join the parts first (gguf-split --merge)");
  EXPECT_EQ(error(model().u32("llama.attention.value_length", 6)),
            "m.gguf: keys of 4 and values of 6 elements are not supported, only equal sizes are");
  EXPECT_EQ(error(model().u32("llama.rope.dimension_count", 2)),
            "m.gguf: architecture 'llama' with 2 of 4 elements of a head rotated is not supported, only all are");
  EXPECT_NE(error(model().string("llama.rope.scaling.type", "mystery")).find("RoPE kind 'mystery' is not supported"),
            std::string::npos);
  EXPECT_EQ(error(model().u32("llama.attention.key_length", 600).u32("llama.attention.value_length", 600)),
            "m.gguf: metadata: head size 600 is not supported, only even sizes of 2 to 256 are");
}

TEST(GGUFConfig, DamagedMetadata) {
  EXPECT_EQ(error(GGUFBuilder()), "m.gguf: metadata 'general.architecture' is missing");
  EXPECT_EQ(error(GGUFBuilder().u32("general.architecture", 3)),
            "m.gguf: metadata 'general.architecture': expected a string, found uint32");
  EXPECT_EQ(error(GGUFBuilder()
                      .string("general.architecture", "llama")
                      .u32("llama.embedding_length", 8)
                      .u32("llama.context_length", 8)),
            "m.gguf: expected a tensor 'token_embd.weight' of 2 dimensions");
  GGUFBuilder none;
  none.string("general.architecture", "llama").u32("llama.embedding_length", 8).u32("llama.context_length", 8);
  none.tensor("token_embd.weight", 0, {8, 2}, std::string(64, '\0')).u32("llama.block_count", 5000);
  EXPECT_EQ(error(none), "m.gguf: metadata 'llama.block_count': expected 1 to 4096 layers, found 5000");
  auto freqs = model();
  freqs.tensor("rope_freqs.weight", 1, {2}, std::string(4, '\0'));
  EXPECT_EQ(error(freqs), "m.gguf: tensor 'rope_freqs.weight': expected one dimension of at most 65536 F32 values");
  auto zeros = model();
  zeros.tensor("rope_freqs.weight", 0, {2}, std::string(8, '\0'));
  EXPECT_EQ(error(zeros), "m.gguf: RoPE: expected positive frequency divisors");
}

TEST(WeightMap, TensorsAreCheckedAgainstTheConfiguration) {
  EXPECT_EQ(mapError(model("llama", false)),
            "m.gguf: family llama expects a tensor 'blk.0.attn_norm.weight', the model has none");
  auto more = model();
  more.tensor("blk.0.mystery.weight", 0, {8}, std::string(32, '\0'));
  EXPECT_EQ(mapError(more), "m.gguf: tensor 'blk.0.mystery.weight' has no part in a model of family llama");
  auto bias = model();
  bias.tensor("blk.0.attn_q.bias", 0, {7}, std::string(28, '\0'));
  EXPECT_EQ(mapError(bias), "m.gguf: tensor 'blk.0.attn_q.bias': expected shape [8], found [7]");
  auto head = model();
  head.tensor("output.weight", 0, {8, 9}, std::string(288, '\0'));
  EXPECT_EQ(mapError(head), "m.gguf: tensor 'output.weight': expected shape [10, 8], found [9, 8]");
  GGUFBuilder wide;
  wide.string("general.architecture", "gpt2").u32("gpt2.context_length", 4).u32("gpt2.embedding_length", 32);
  wide.u32("gpt2.block_count", 1).u32("gpt2.feed_forward_length", 8).u32("gpt2.attention.head_count", 8);
  wide.f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
  wide.tensor("token_embd.weight", 0, {32, 2}, std::string(256, '\0'));
  wide.tensor("position_embd.weight", 0, {32, 4}, std::string(512, '\0'));
  wide.tensor("blk.0.attn_norm.weight", 2, {32}, std::string(18, '\0'));
  EXPECT_EQ(mapError(wide),
            "m.gguf: tensor 'blk.0.attn_norm.weight': a vector of type q4_0 is not supported, only f32, f16, bf16 are");
}

TEST(WeightMap, LlamaRowsAreUnroped) {
  Parsed parsed(model());
  auto c = readModelConfig(*parsed.file, {});
  auto map = WeightMap::fromGGUF(*c, *parsed.file);
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(map->find(Role::q, 0)->unropeHeads, 2);
  EXPECT_EQ(map->find(Role::v, 0)->unropeHeads, 0);
  EXPECT_EQ(map->find(Role::head, -1), nullptr);
  EXPECT_EQ(map->find(Role::up, 0)->shape, (std::vector<int64_t>{8, 8}));
  Parsed qwen(model("qwen2"));
  c = readModelConfig(*qwen.file, {});
  map = WeightMap::fromGGUF(*c, *qwen.file);
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(map->find(Role::q, 0)->unropeHeads, 0);
}

} // namespace
