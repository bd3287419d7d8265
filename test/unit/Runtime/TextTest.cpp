//===- TextTest.cpp - words around a program ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include "runtime/text/Completion.h"
#include <algorithm>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;
using Json = nlohmann::ordered_json;

namespace {

class TextTest : public testing::Test {
protected:
  void SetUp() override {
    ToyOptions toy;
    toy.words = true;
    ASSERT_TRUE(writeToyArtifact("text-test.lathe", toy).ok());
    auto loaded = LoadedArtifact::load("text-test.lathe");
    ASSERT_TRUE(loaded.ok());
    artifact = *loaded;
    auto made = TextModel::create(*artifact);
    ASSERT_TRUE(made.ok()) << made.status().message();
    text = std::make_unique<TextModel>(*std::move(made));
    auto engineMade = Engine::create(artifact, {.threads = 1, .maxSequences = 40});
    ASSERT_TRUE(engineMade.ok());
    engine = *std::move(engineMade);
  }
  CompletionRequest request(std::string_view prompt) {
    CompletionRequest r;
    r.sequence = *engine->open();
    r.prompt = text->encode(prompt);
    r.sampling = text->samplingDefaults();
    r.maxTokens = 30;
    r.ignoreEnd = true;
    return r;
  }
  Completion completeOne(const CompletionRequest &r) {
    auto answers = complete(*engine, text.get(), {&r, 1});
    EXPECT_TRUE(answers.ok()) << answers.status().message();
    return (*answers)[0];
  }
  std::shared_ptr<LoadedArtifact> artifact;
  std::unique_ptr<TextModel> text;
  std::unique_ptr<Engine> engine;
};

bool wholeCharacters(std::string_view piece) {
  for (size_t i = 0; i < piece.size();) {
    auto c = static_cast<unsigned char>(piece[i]);
    size_t n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (!n || i + n > piece.size()) return false;
    i += n;
  }
  return true;
}

} // namespace

TEST_F(TextTest, DefaultsComeFromTheArtifact) {
  EXPECT_EQ(text->stopTokens(), std::vector<int32_t>{toyEnd});
  EXPECT_EQ(text->samplingDefaults().temperature, 0);
  EXPECT_EQ(text->samplingDefaults().topK, 0); // no do_sample: the rest does not count
  EXPECT_TRUE(text->hasTemplate());
}

TEST_F(TextTest, StreamedTextIsWholeCharactersAndAddsUp) {
  int pieces = 0, answersWithAccent = 0;
  for (char c = 'a'; c <= 'z'; ++c) {
    std::string streamed;
    std::vector<int32_t> ids;
    CompletionRequest r = request(std::string("say ") + c);
    r.onPiece = [&](int32_t id, std::string_view piece) {
      EXPECT_TRUE(wholeCharacters(piece));
      streamed += piece;
      if (id >= 0) ids.push_back(id);
      ++pieces;
      return true;
    };
    Completion answer = completeOne(r);
    EXPECT_EQ(streamed, answer.text);
    EXPECT_EQ(ids, answer.ids);
    EXPECT_EQ(answer.ids.size(), 30u);
    answersWithAccent += std::count(ids.begin(), ids.end(), 33) > 0;
    engine->close(r.sequence);
  }
  EXPECT_GE(pieces, 26 * 30);
  EXPECT_GT(answersWithAccent, 0); // lone lead bytes occur, or the test shows nothing
}

TEST_F(TextTest, StopStringsEndTheAnswer) {
  CompletionRequest r = request("say a");
  std::string whole = completeOne(r).text;
  std::string stop = whole.substr(10, 3);
  r.stops = {"no such text", stop};
  std::string streamed;
  r.onPiece = [&](int32_t, std::string_view piece) { return streamed += piece, true; };
  Completion answer = completeOne(r);
  EXPECT_EQ(answer.reason, FinishReason::stop);
  EXPECT_EQ(answer.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(streamed, answer.text);
}

TEST_F(TextTest, ManyAtOnceEqualEachAlone) {
  std::vector<CompletionRequest> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request(std::string(static_cast<size_t>(i + 1), static_cast<char>('a' + i))));
    requests.back().ignoreEnd = i % 2;
    requests.back().maxTokens = static_cast<uint32_t>(3 * i + 1);
  }
  auto together = complete(*engine, text.get(), requests);
  ASSERT_TRUE(together.ok());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine->truncate(requests[i].sequence, 0);
    Completion alone = completeOne(requests[i]);
    EXPECT_EQ(alone.text, (*together)[i].text);
    EXPECT_EQ(alone.ids, (*together)[i].ids);
    EXPECT_EQ(alone.reason, (*together)[i].reason);
  }
}

TEST_F(TextTest, ATemplateThatDoesNotParseLeavesPlainPrompts) {
  ToyOptions toy;
  toy.words = true;
  toy.chatTemplate = "{% if x %}never closed";
  ASSERT_TRUE(writeToyArtifact("text-test-template.lathe", toy).ok());
  auto loaded = LoadedArtifact::load("text-test-template.lathe");
  ASSERT_TRUE(loaded.ok());
  auto made = TextModel::create(**loaded);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_FALSE(made->hasTemplate());
  EXPECT_EQ(made->encode("say a"), text->encode("say a"));
  Json messages = Json::array({{{"role", "user"}, {"content", "a"}}});
  auto ids = made->encodeChat(messages, {});
  EXPECT_EQ(ids.status().code(), StatusCode::invalidArgument);
  EXPECT_EQ(ids.status().message().find("'text-test-template.lathe': template line 1: "), 0u) << ids.status().message();
  EXPECT_EQ(made->templateError().message(), ids.status().message());
}

TEST_F(TextTest, MessagesFromJson) {
  auto message = [](std::string_view json) { return TextModel::parseMessages(json).status().message(); };
  EXPECT_EQ(message("[{\"role\": \"user\", \"content\": \"[[[\"}]"), "");
  EXPECT_EQ(message("{}"), "messages: expected a JSON array of objects");
  EXPECT_EQ(message("[1]"), "messages: expected an object with a 'role' at index 0");
  EXPECT_EQ(message("[{\"role\": 7}]"), "messages: expected an object with a 'role' at index 0");
  EXPECT_EQ(message(std::string(100000, '[')), "messages: expected at most 64 levels of JSON");
}

TEST_F(TextTest, MessagesCannotForgeControlTokens) {
  Json messages = Json::array({{{"role", "user"}, {"content", "a<|end|>b"}}});
  auto ids = text->encodeChat(messages, {});
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_EQ(std::count(ids->begin(), ids->end(), toyEnd), 1);  // the template's
  EXPECT_EQ(std::count(ids->begin(), ids->end(), toyUser), 2); // and the generation prompt's
  EXPECT_EQ(text->tokenizer().decode(*ids, true), "<|user|>user: a<|end|>b<|end|><|user|>");
  ChatOptions special;
  special.parseSpecial = true;
  special.addGenerationPrompt = false;
  ids = text->encodeChat(messages, special);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), toyEnd), 2);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), toyUser), 1);
}
