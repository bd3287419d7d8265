//===- ImportTest.cpp - what importers accept and refuse ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "../../../runtime/tokenizer/Tokenizer.h"
#include "../Import/GGUFBuilder.h"
#include "lathe/base/Pattern.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/Tokenizer.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

using namespace lathe;
using lathe::test::GGUFBuilder;
using Ids = std::vector<int32_t>;
using Type = TokenizerSpec::PieceType;

namespace {

Result<ImportedTokenizer> fromGGUF(const GGUFBuilder &builder) {
  std::string bytes = builder.build();
  auto file = gguf::File::parse({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()}, "m.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  return importTokenizer(*file);
}
std::string error(const GGUFBuilder &builder) { return fromGGUF(builder).status().message(); }

GGUFBuilder vocabulary(const std::string &model, const std::vector<std::string> &tokens,
                       const std::vector<int32_t> &types) {
  GGUFBuilder b;
  b.string("tokenizer.ggml.model", model).strings("tokenizer.ggml.tokens", tokens);
  if (!types.empty()) b.array("tokenizer.ggml.token_type", 5, types);
  return b;
}
GGUFBuilder small() {
  GGUFBuilder b = vocabulary("gpt2", {"a", "b", "ab", "\u0120", "\u0120a", "<|im_end|>", "<|endoftext|>", "\u4e2d"},
                             {1, 1, 1, 1, 1, 3, 3, 1});
  return b.string("tokenizer.ggml.pre", "gpt-2").strings("tokenizer.ggml.merges", {"a b", "\u0120 a"});
}

TEST(TokenizerFromGGUF, ByteLevel) {
  auto t = fromGGUF(small()
                        .u32("tokenizer.ggml.bos_token_id", 6)
                        .u32("tokenizer.ggml.eos_token_id", 6)
                        .u32("tokenizer.ggml.padding_token_id", 99)
                        .flag("tokenizer.ggml.add_bos_token", true)
                        .string("tokenizer.chat_template", "T")
                        .string("tokenizer.chat_template.rag", "R"));
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->spec.pieces[4], " a");
  EXPECT_EQ(t->spec.types[5], Type::control);
  EXPECT_EQ(t->spec.types[7], Type::unused); // not in the alphabet of bytes
  EXPECT_EQ(t->spec.merges.size(), 2u);
  EXPECT_EQ(t->spec.prefix, (std::vector<uint32_t>{6}));
  EXPECT_EQ(t->spec.eot, 5);
  EXPECT_EQ(t->spec.pad, -1);
  EXPECT_EQ(t->spec.endOfGeneration, (std::vector<uint32_t>{5, 6}));
  EXPECT_EQ(t->eosText, "<|endoftext|>");
  EXPECT_EQ(t->chatTemplate, "T");
  ASSERT_EQ(t->namedTemplates.size(), 1u);
  EXPECT_EQ(t->namedTemplates[0].first, "rag");
  auto tokenizer = Tokenizer::create(t->spec);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->encode("ab a"), (Ids{6, 2, 4}));
}

TEST(TokenizerFromGGUF, DropsMergesOfUnknownPieces) {
  auto t = fromGGUF(vocabulary("gpt2", {"a", "b", "ab"}, {}).strings("tokenizer.ggml.merges", {"a b", "ab c"}));
  ASSERT_TRUE(t.ok());
  ASSERT_EQ(t->warnings.size(), 2u);
  EXPECT_EQ(t->warnings[0], "the file names no pre-tokenizer; a common one is used, which may not be the model's own");
  EXPECT_EQ(t->warnings[1], "1 merges of pieces that are not in the vocabulary were dropped");
}

TEST(TokenizerFromGGUF, ChannelEndsAreNotEnds) {
  auto t = fromGGUF(vocabulary("gpt2", {"a", "<|end|>", "<|return|>", "<|call|>"}, {1, 3, 3, 3})
                        .strings("tokenizer.ggml.merges", {})
                        .u32("tokenizer.ggml.eos_token_id", 2));
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->spec.endOfGeneration, (std::vector<uint32_t>{2, 3}));
}

TEST(TokenizerFromGGUF, PhiThreeSwallowsSpaceAfterItsTokens) {
  GGUFBuilder b = vocabulary("llama", {"<unk>", "<s>", "<|end|>", "a"}, {2, 3, 3, 1});
  b.array<float>("tokenizer.ggml.scores", 6, {0, 0, 0, -1}).string("general.name", "Phi-3 mini");
  auto t = fromGGUF(b);
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_FALSE(t->spec.added[1].stripRight);
  EXPECT_TRUE(t->spec.added[2].stripRight);
  EXPECT_EQ(t->spec.prefix, (std::vector<uint32_t>{1}));
}

TEST(TokenizerFromGGUF, Errors) {
  EXPECT_NE(error(GGUFBuilder()).find("tokenizer.ggml.model"), std::string::npos);
  EXPECT_EQ(error(vocabulary("rwkv", {"a"}, {})),
            "tokenizer model 'rwkv' is not supported; supported are gpt2, gemma4, llama, t5, bert");
  EXPECT_EQ(error(vocabulary("gpt2", {}, {})), "'tokenizer.ggml.tokens': expected pieces, found none");
  EXPECT_EQ(error(vocabulary("gpt2", {"a"}, {1, 1})), "'tokenizer.ggml.token_type': expected 1 entries, found 2");
  EXPECT_EQ(error(vocabulary("gpt2", {"a"}, {}).array<float>("tokenizer.ggml.scores", 6, {1, 2})),
            "'tokenizer.ggml.scores': expected 1 entries, found 2");
  EXPECT_EQ(error(vocabulary("llama", {"abc"}, {6})),
            "token 0: expected the name of a byte like '<0x0A>', found 'abc'");
  EXPECT_NE(error(vocabulary("gpt2", {"a"}, {})).find("tokenizer.ggml.merges"), std::string::npos);
  EXPECT_EQ(error(vocabulary("gpt2", {"a"}, {}).strings("tokenizer.ggml.merges", {"ab"})),
            "'tokenizer.ggml.merges' entry 0: expected two pieces, found 'ab'");
  EXPECT_EQ(error(vocabulary("llama", {"a"}, {})), "tokenizer: the model needs scores, found none");
  std::string unknown = error(vocabulary("gpt2", {"a"}, {}).string("tokenizer.ggml.pre", "nonsense"));
  EXPECT_EQ(unknown.find("pre-tokenizer 'nonsense' is not supported; supported are a.x-4.0, afmoe, "), 0u) << unknown;
}

TEST(PreTokenizers, AllPatternsCompile) {
  std::string names = preTokenizerNames();
  size_t count = 0;
  for (size_t at = 0; at < names.size(); ++count) {
    size_t end = std::min(names.find(", ", at), names.size());
    std::string name = names.substr(at, end - at);
    const NamedPreTokenizer *named = findPreTokenizer(name);
    ASSERT_NE(named, nullptr) << name;
    for (const char *pattern : named->patterns) {
      auto compiled = Pattern::compile(pattern);
      EXPECT_TRUE(compiled.ok()) << name << ": " << compiled.status().message();
    }
    at = end + 2;
  }
  EXPECT_GT(count, 70u);
}

Result<ImportedTokenizer> fromJson(std::string_view json, std::string_view config = {},
                                   std::string_view generation = {}) {
  TokenizerFiles files;
  files.tokenizer = json;
  files.config = config;
  files.generationConfig = generation;
  return importTokenizer(files);
}
/// tokenizer.json with a model of three pieces and |rest| added.
std::string with(const std::string &rest) {
  return R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]})" + rest + "}";
}
std::string jsonError(const std::string &json) { return fromJson(json).status().message(); }

TEST(TokenizerFromJson, FilesBesideIt) {
  auto t = fromJson(
      with(R"(,"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"</s>","special":true}])"),
      R"({"tokenizer_class":"LlamaTokenizer","bos_token":{"content":"<s>"},"eos_token":"</s>","add_bos_token":true,
                        "chat_template":[{"name":"default","template":"D"},{"name":"rag","template":"R"}],
                        "added_tokens_decoder":{"5":{"content":"<x>","special":true}}})",
      R"({"eos_token_id":[4,5,77]})");
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->spec.bos, 3);
  EXPECT_EQ(t->spec.eos, 4);
  EXPECT_EQ(t->spec.endOfGeneration, (std::vector<uint32_t>{4, 5}));
  EXPECT_EQ(t->spec.prefix, (std::vector<uint32_t>{3}));
  EXPECT_EQ(t->spec.pieces[5], "<x>");
  EXPECT_EQ(t->chatTemplate, "D");
  EXPECT_EQ(t->namedTemplates[0].second, "R");
  EXPECT_EQ(t->bosText, "<s>");
}

TEST(TokenizerFromJson, Template) {
  auto t = fromJson(
      with(R"(,"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
    "single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"y"}}],
    "special_tokens":{"x":{"ids":[1]},"y":{"ids":[2,0]}}}]})"));
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->spec.prefix, (std::vector<uint32_t>{1}));
  EXPECT_EQ(t->spec.suffix, (std::vector<uint32_t>{2, 0}));
}

TEST(TokenizerFromJson, DirectoryAndTemplateFile) {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / "lathe-tokenizer-import-test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << with("");
  std::ofstream(folder / "chat_template.jinja") << "{{ messages }}";
  auto t = importTokenizerDirectory(folder.string());
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->chatTemplate, "{{ messages }}");
  std::ofstream(folder / "tokenizer.json") << "{";
  EXPECT_NE(importTokenizerDirectory(folder.string())
                .status()
                .message()
                .find(folder.string() + ": tokenizer.json: not valid JSON"),
            std::string::npos);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(importTokenizerDirectory(folder.string()).status().code(), StatusCode::notFound);
}

TEST(TokenizerFromJson, Errors) {
  struct Case {
    std::string json;
    const char *message;
  } cases[] = {
      {"[]", "tokenizer.json: expected an object, found array"},
      {"{}", "tokenizer.json: expected an object 'model'"},
      {R"({"model":{"type":"WordLevel"}})",
       "tokenizer.json: model 'WordLevel' is not supported; supported are BPE, Unigram, WordPiece"},
      {R"({"model":{"type":3}})", "tokenizer.json: model: expected a string 'type', found number"},
      {R"({"model":{"type":"BPE"}})", "tokenizer.json: model: expected an object 'vocab'"},
      {R"({"model":{"type":"BPE","vocab":{"a":"x"}}})", "tokenizer.json: model: token 'a' has an id that is no number"},
      {R"({"model":{"type":"BPE","vocab":{"a":4000000000}}})",
       "tokenizer.json: token 'a' has id 4000000000, in a vocabulary of 1"},
      {R"({"model":{"type":"BPE","vocab":{"a":0}}})", "tokenizer.json: model: expected a list 'merges'"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[3]}})",
       "tokenizer.json: model: expected two pieces as merge 0"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})",
       "tokenizer.json: model: merge 0 uses 'b', which is not in 'vocab'"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.5}})",
       "tokenizer.json: model: 'dropout' is not supported"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[],"continuing_subword_prefix":"#"}})",
       "tokenizer.json: model: 'continuing_subword_prefix' is not supported for BPE"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[],"ignore_merges":1}})",
       "tokenizer.json: model: expected true or false as 'ignore_merges', found number"},
      {R"({"model":{"type":"Unigram","vocab":{}}})", "tokenizer.json: model: expected a list 'vocab'"},
      {R"({"model":{"type":"Unigram","vocab":[["a"]]}})",
       "tokenizer.json: model: expected pieces with scores in 'vocab'"},
      {R"({"model":{"type":"Unigram","vocab":[["a",1]],"unk_id":3}})",
       "tokenizer.json: model: 'unk_id' is no id of a piece"},
      {R"({"model":{"type":"WordPiece","vocab":{"a":0},"max_input_chars_per_word":-1}})",
       "tokenizer.json: model: a negative 'max_input_chars_per_word'"},
      {R"({"model":{"type":"WordPiece","vocab":{"a":0}},"pre_tokenizer":{"type":"ByteLevel"}})",
       "tokenizer.json: pre-tokenizer 'ByteLevel' is only supported with a BPE model"},
      {with(R"(,"added_tokens":3)"), "tokenizer.json: expected a list 'added_tokens'"},
      {with(R"(,"added_tokens":[{"content":"x"}])"),
       "tokenizer.json: added_tokens: expected an integer 'id', found none"},
      {with(R"(,"added_tokens":[{"id":-3,"content":"x"}])"), "tokenizer.json: added_tokens: a negative id"},
      {with(R"(,"normalizer":{"type":"Nmt"})"), "tokenizer.json: normalizer 'Nmt' is not supported; supported are "
                                                "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
                                                "Strip, Replace, Prepend, BertNormalizer, Precompiled"},
      {with(R"(,"normalizer":{"type":"Sequence"})"), "tokenizer.json: normalizer: expected the list 'normalizers'"},
      {with(R"(,"normalizer":{"type":"Replace","pattern":"x"})"),
       "tokenizer.json: normalizer: expected 'pattern' with a 'String' or a 'Regex'"},
      {with(R"(,"normalizer":{"type":"Precompiled","precompiled_charsmap":"!"})"),
       "tokenizer.json: 'precompiled_charsmap': expected base64"},
      {with(R"(,"pre_tokenizer":{"type":"UnicodeScripts"})"),
       "tokenizer.json: pre-tokenizer 'UnicodeScripts' is not supported; supported are Sequence, ByteLevel, Split, "
       "Digits, "
       "Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, Metaspace"},
      {with(R"(,"pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Odd"})"),
       "tokenizer.json: split behavior 'Odd' is not supported; supported are Isolated, Removed, MergedWithPrevious, "
       "MergedWithNext, "
       "Contiguous"},
      {with(R"(,"pre_tokenizer":{"type":"Metaspace","prepend_scheme":"odd"})"),
       "tokenizer.json: 'prepend_scheme' 'odd' is not supported; supported are always, first, never"},
      {with(R"(,"decoder":{"type":"CTC"})"), "tokenizer.json: decoder 'CTC' is not supported; supported are Sequence, "
                                             "ByteLevel, ByteFallback, Fuse, Replace, Metaspace, "
                                             "Strip, WordPiece, BPEDecoder"},
      {with(R"(,"decoder":{"type":"Replace","pattern":{"String":"x"},"content":"y"})"),
       "tokenizer.json: decoder 'Replace' is only supported from a string to a space"},
      {with(R"(,"decoder":{"type":"Strip","content":"x","start":1})"),
       "tokenizer.json: decoder 'Strip' is only supported for up to 16 spaces at the start"},
      {with(R"(,"post_processor":{"type":"Odd"})"),
       "tokenizer.json: post-processor 'Odd' is not supported; supported are Sequence, ByteLevel, TemplateProcessing, "
       "BertProcessing, RobertaProcessing"},
      {with(R"(,"post_processor":{"type":"BertProcessing","cls":3})"),
       "tokenizer.json: post_processor: expected 'cls' to be a token and its id"},
      {with(R"(,"post_processor":{"type":"TemplateProcessing","single":[{}]})"),
       "tokenizer.json: post_processor: expected a 'Sequence' or a 'SpecialToken'"},
      {with(R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}]})"),
       "tokenizer.json: post_processor: special token 'x' has no ids"},
      {with(
           R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{"x":{"ids":["y"]}}})"),
       "tokenizer.json: post_processor: special token 'x' has an id that is no number"},
      {with(
           R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{"x":{"ids":[9]}}})"),
       "tokenizer: special token 9 is not below 3"},
  };
  for (const Case &c : cases)
    EXPECT_EQ(jsonError(c.json), c.message) << c.json;
  EXPECT_EQ(fromJson(with(""), R"({"chat_template":3})").status().message(),
            "tokenizer_config.json: 'chat_template': expected a string or a list");
  EXPECT_EQ(fromJson(with(""), R"({"added_tokens_decoder":{"x":{}}})").status().message(),
            "tokenizer_config.json: added_tokens_decoder: expected ids as keys, found 'x'");
  auto warned = fromJson(
      with(R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})"));
  ASSERT_TRUE(warned.ok());
  EXPECT_EQ(warned->warnings.at(0),
            "pre-tokenizer step 'Digits' follows ByteLevel: it is applied to characters, not to their bytes");
}

} // namespace
