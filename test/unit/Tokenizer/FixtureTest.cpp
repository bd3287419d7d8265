//===- FixtureTest.cpp - ids of other libraries ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Small tokenizers of test/fixtures/tokenizer with the ids that the library that trained them gives.
// With LATHE_VOCAB_DIR (folders separated by ':'), also the vocabularies there that have expected ids
// beside them: NAME.gguf, NAME.gguf.inp, NAME.gguf.out.
//===----------------------------------------------------------------------===//
#include "../../../runtime/tokenizer/Tokenizer.h"
#include "lathe/base/MappedFile.h"
#include "lathe/base/Unicode.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/Tokenizer.h"
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>

using namespace lathe;

namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LATHE_UNDER_SANITIZER
#endif
#endif
#ifdef LATHE_UNDER_SANITIZER
constexpr bool underSanitizer = true;
#else
constexpr bool underSanitizer = false;
#endif

std::string read(const std::string &path) {
  auto file = MappedFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return {};
  return {reinterpret_cast<const char *>(file->bytes().data()), file->fileSize()};
}

/// Through the encoding, as in an artifact.
Tokenizer load(const std::string &path) {
  Result<ImportedTokenizer> imported = Status(StatusCode::internal, "");
  std::string text = read(path);
  if (path.ends_with(".json")) {
    TokenizerFiles files;
    files.tokenizer = text;
    imported = importTokenizer(files);
  } else {
    auto file = gguf::File::open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    imported = importTokenizer(*file);
  }
  EXPECT_TRUE(imported.ok()) << path << ": " << imported.status().message();
  std::string bytes = imported->spec.encode();
  auto spec = TokenizerSpec::decode({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()});
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  auto tokenizer = Tokenizer::create(std::move(*spec));
  EXPECT_TRUE(tokenizer.ok()) << path << ": " << tokenizer.status().message();
  return *std::move(tokenizer);
}

std::vector<int32_t> numbers(const std::string &line) {
  std::vector<int32_t> out;
  std::istringstream in(line);
  for (int32_t id; in >> id;)
    out.push_back(id);
  return out;
}

std::string fromHex(const std::string &digits) {
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return out;
}

class Fixture : public testing::TestWithParam<const char *> {};

TEST_P(Fixture, GivesTheIdsOfTheLibrary) {
  std::string base = std::string(LATHE_SOURCE_DIR) + "/test/fixtures/tokenizer/";
  std::string name = GetParam();
  Tokenizer tokenizer = load(base + name);
  std::istringstream lines(read(base + name.substr(0, name.rfind('.')) + ".ids"));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    size_t tab = line.find('\t');
    std::string text = fromHex(line.substr(0, tab));
    // `tokenizers` finds special tokens in any text, `sentencepiece` in none.
    std::vector<int32_t> ids = tokenizer.encode(text, {false, name.ends_with(".json")});
    ASSERT_EQ(ids, numbers(line.substr(tab + 1))) << name << ", text '" << text << "'";

    // Streaming gives decode(), repaired to UTF-8.
    StreamDecoder stream(tokenizer, true);
    std::string streamed;
    for (int32_t id : ids) {
      std::string part = stream.push(id);
      ASSERT_TRUE(unicode::isValid(part));
      streamed += part;
    }
    streamed += stream.flush();
    std::string whole = tokenizer.decode(ids, true);
    ASSERT_EQ(streamed, whole) << name; // texts here are valid UTF-8

    // Nothing in a text that does not parse special tokens may become one.
    for (int32_t id : tokenizer.encode(text, {false, false}))
      ASSERT_FALSE(tokenizer.isSpecial(id) && id != tokenizer.spec().unknown);
  }
  EXPECT_GT(count, 100u);
}
INSTANTIATE_TEST_SUITE_P(All, Fixture,
                         testing::Values("gpt2.json", "qwen2.json", "gpt4o.json", "llama-bpe.json", "unigram.json",
                                         "added.json", "spm-bpe.gguf", "spm-unigram.gguf"));

TEST(Fixtures, ByteLevelTextSurvives) {
  Tokenizer tokenizer = load(std::string(LATHE_SOURCE_DIR) + "/test/fixtures/tokenizer/gpt2.json");
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += static_cast<char>(i * 37 % 256);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

// Nothing here may take longer than the text is long: with a square of it, these texts would take hours. Judged is the processor's
// time, which other load hardly changes, at ten times what the slowest takes.
TEST(Fixtures, LongRunsOfTheSameCharacter) {
  const size_t bytes = underSanitizer ? 100000 : 1000000;
  auto now = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
  };
  double slowest = 0;
  std::string where;
  for (const char *name : {"gpt2.json", "qwen2.json", "gpt4o.json", "llama-bpe.json", "unigram.json", "added.json", "spm-bpe.gguf", "spm-unigram.gguf"}) {
    Tokenizer tokenizer = load(std::string(LATHE_SOURCE_DIR) + "/test/fixtures/tokenizer/" + name);
    for (const char *unit : {"a", "A", " ", "\n", "7", "<", "\u0301", "\xff", "\u2581"}) {
      std::string text;
      while (text.size() < bytes)
        text += unit;
      double begin = now();
      EXPECT_FALSE(tokenizer.encode(text).empty()) << name;
      if (double seconds = now() - begin; seconds > slowest) slowest = seconds, where = std::string(name) + " on runs of 0x" + "0123456789abcdef"[*unit >> 4 & 15] + "0123456789abcdef"[*unit & 15];
    }
  }
  std::printf("slowest of %zu bytes: %.3f s of CPU time, %s\n", bytes, slowest, where.c_str());
  if (!underSanitizer) EXPECT_LT(slowest, 1.0) << where;
}

TEST(Archive, ExpectedIds) {
  const char *folders = std::getenv("LATHE_VOCAB_DIR");
  if (!folders) GTEST_SKIP() << "LATHE_VOCAB_DIR is not set";
  std::istringstream list(folders);
  size_t files = 0;
  for (std::string folder; std::getline(list, folder, ':');)
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
      std::string path = entry.path().string();
      if (!path.ends_with(".gguf") || !std::filesystem::exists(path + ".inp")) continue;
      ++files;
      Tokenizer tokenizer = load(path);
      std::string input = read(path + ".inp");
      std::istringstream expected(read(path + ".out"));
      constexpr std::string_view separator = "\n__ggml_vocab_test__\n";
      std::string line;
      for (size_t at = 0; at <= input.size() && std::getline(expected, line);) {
        size_t end = std::min(input.find(separator, at), input.size());
        EXPECT_EQ(tokenizer.encode(input.substr(at, end - at), {false, false}), numbers(line))
            << path << ", text '" << input.substr(at, end - at) << "'";
        at = end + separator.size();
      }
    }
  EXPECT_GT(files, 0u);
}

} // namespace
