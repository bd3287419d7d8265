//===- TokenizerTest.cpp - small tokenizers made by hand ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "../../../runtime/tokenizer/Tokenizer.h"
#include <gtest/gtest.h>
#include <thread>

using namespace lathe;
using Type = TokenizerSpec::PieceType;
using Ids = std::vector<int32_t>;

namespace {

/// All bytes, then the given merges of two pieces each, then control tokens.
TokenizerSpec byteLevel(const std::vector<std::pair<std::string, std::string>> &merges,
                        const std::vector<std::string> &control = {}) {
  TokenizerSpec s;
  s.byteLevel = true;
  for (int b = 0; b < 256; ++b)
    s.pieces.push_back(std::string(1, static_cast<char>(b)));
  auto id = [&](const std::string &text) {
    return static_cast<uint32_t>(std::find(s.pieces.begin(), s.pieces.end(), text) - s.pieces.begin());
  };
  for (const auto &[left, right] : merges) {
    uint32_t a = id(left), b = id(right), c = static_cast<uint32_t>(s.pieces.size());
    s.pieces.push_back(left + right);
    s.merges.push_back({a, b, c});
  }
  s.types.assign(s.pieces.size(), Type::normal);
  for (const std::string &text : control) {
    TokenizerSpec::AddedToken token;
    token.id = static_cast<uint32_t>(s.pieces.size());
    token.text = text;
    token.special = true;
    s.added.push_back(token);
    s.pieces.push_back(text);
    s.types.push_back(Type::control);
  }
  return s;
}

Tokenizer make(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *std::move(tokenizer);
}

TEST(Tokenizer, MergesByRankThenPosition) {
  // ranks: bc before ab, so "abc" is a+bc
  Tokenizer t = make(byteLevel({{"b", "c"}, {"a", "b"}, {"a", "a"}}));
  EXPECT_EQ(t.encode("abc"), (Ids{'a', 256}));
  EXPECT_EQ(t.encode("abab"), (Ids{257, 257}));
  EXPECT_EQ(t.encode("aaa"), (Ids{258, 'a'}));
  EXPECT_EQ(t.decode(t.encode("abcaab")), "abcaab");
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  TokenizerSpec spec = byteLevel({{"a", "b"}, {"b", "c"}});
  spec.pieces.push_back("abc");
  spec.types.push_back(Type::normal);
  EXPECT_EQ(make(spec).encode("abc"), (Ids{256, 'c'}));
  spec.ignoreMerges = true;
  EXPECT_EQ(make(spec).encode("abc"), (Ids{258}));
}

TEST(Tokenizer, AnyBytesSurvive) {
  Tokenizer t = make(byteLevel({{"b", "c"}}));
  std::string all;
  for (int b = 0; b < 256; ++b)
    all += static_cast<char>(b);
  EXPECT_EQ(t.decode(t.encode(all)), all);
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAsked) {
  Tokenizer t = make(byteLevel({}, {"<|end|>"}));
  EXPECT_EQ(t.encode("a<|end|>").size(), 8u);
  EXPECT_EQ(t.encode("a<|end|>", {true, true}), (Ids{'a', 256}));
  // pieces: the second may not forge it, not even together with its neighbours
  EXPECT_EQ(t.encode({{"<|end|>", true}, {"<|end|>", false}}, false).size(), 8u);
  EXPECT_EQ(t.encode({{"<|en", true}, {"d|>", false}}, false).size(), 7u);
  EXPECT_EQ(t.encode({{"<|en", true}, {"d|>", true}}, false), (Ids{256}));
  EXPECT_EQ(t.decode({'a', 256, 'b'}), "ab");
  EXPECT_EQ(t.decode({'a', 256, 'b'}, true), "a<|end|>b");
  EXPECT_EQ(t.tokenToPiece(256), "");
  EXPECT_EQ(t.tokenToPiece(256, true), "<|end|>");
  EXPECT_EQ(t.tokenToPiece(-1), "");
  EXPECT_EQ(t.tokenToPiece(1000), "");
  EXPECT_EQ(t.pieceToToken("<|end|>"), 256);
  EXPECT_EQ(t.pieceToToken("nothing"), -1);
  EXPECT_TRUE(t.isSpecial(256));
  EXPECT_FALSE(t.isSpecial('a'));
}

TEST(Tokenizer, MergesCrossPieces) {
  Tokenizer t = make(byteLevel({{"a", "b"}}, {"<x>"}));
  EXPECT_EQ(t.encode({{"a", true}, {"b", false}}, false), (Ids{256}));
}

TEST(Tokenizer, LongestAddedTokenAtTheLeftmostPlace) {
  TokenizerSpec spec = byteLevel({}, {"<a", "<a>", "a><"});
  EXPECT_EQ(make(spec).encode("<a><", {false, true}), (Ids{257, '<'}));
}

TEST(Tokenizer, AddedTokenFlags) {
  TokenizerSpec spec = byteLevel({}, {"<m>"});
  spec.added[0].stripLeft = spec.added[0].stripRight = true;
  EXPECT_EQ(make(spec).encode("a \n<m>\xe3\x80\x80 b", {false, true}), (Ids{'a', 256, 'b'}));
  spec = byteLevel({}, {"to"});
  spec.added[0].singleWord = true;
  EXPECT_EQ(make(spec).encode("to tom -to", {false, true}), (Ids{256, ' ', 't', 'o', 'm', ' ', '-', 256}));
}

TEST(Tokenizer, PrefixAndSuffix) {
  TokenizerSpec spec = byteLevel({}, {"<s>", "</s>"});
  spec.prefix = {256};
  spec.suffix = {257};
  spec.endOfGeneration = {257};
  Tokenizer t = make(spec);
  EXPECT_EQ(t.encode("a"), (Ids{256, 'a', 257}));
  EXPECT_EQ(t.encode("a", {false, false}), (Ids{'a'}));
  EXPECT_EQ(t.encode(""), (Ids{256, 257}));
  EXPECT_TRUE(t.isEndOfGeneration(257));
  EXPECT_FALSE(t.isEndOfGeneration(256));
}

/// SentencePiece: pieces with scores; bytes for what has none.
TokenizerSpec scored(std::vector<std::pair<std::string, float>> pieces) {
  TokenizerSpec s;
  s.model = TokenizerSpec::Model::scoredBpe;
  s.byteFallback = true;
  s.pieces = {"<unk>", "<s>"};
  s.types = {Type::unknown, Type::control};
  s.scores = {0, 0};
  for (int b = 0; b < 256; ++b) {
    s.pieces.push_back(std::string(1, static_cast<char>(b)));
    s.types.push_back(Type::byte);
    s.scores.push_back(0);
  }
  for (auto &[text, score] : pieces) {
    s.pieces.push_back(text);
    s.types.push_back(Type::normal);
    s.scores.push_back(score);
  }
  s.unknown = 0;
  s.normalizers.push_back({TokenizerSpec::Normalizer::Kind::prepend, 0, " ", ""});
  s.normalizers.push_back({TokenizerSpec::Normalizer::Kind::replace, 0, " ", "\u2581"});
  s.decoder = TokenizerSpec::Decoder::metaspace;
  s.metaspace = "\u2581";
  s.stripStart = 1;
  return s;
}

TEST(Tokenizer, MergesByScore) {
  Tokenizer t = make(scored({{"\u2581", -9}, {"a", -9}, {"b", -9}, {"ab", -1}, {"\u2581a", -2}, {"ba", -3}}));
  EXPECT_EQ(t.encode("ab"), (Ids{258, 261}));
  EXPECT_EQ(t.encode("aab"), (Ids{262, 261}));
  EXPECT_EQ(t.encode("\xff"), (Ids{258, 2 + 255}));
  EXPECT_EQ(t.encode("\u00e9"), (Ids{258, 2 + 0xc3, 2 + 0xa9}));
  for (const char *text : {"ab", "a b", "  a", "\u00e9", "\xff"})
    EXPECT_EQ(t.decode(t.encode(text)), text);
}

TEST(Tokenizer, PiecesWithASpaceInsideStayWhole) {
  Tokenizer t = make(scored({{"\u2581", -9},
                             {">", -9},
                             {"<", -9},
                             {"a", -9},
                             {">\u2581", -3},
                             {">\u2581<", -4},
                             {"\u2581a", -2},
                             {"\u2581\u2581", -5}}));
  EXPECT_EQ(t.encode("> <"), (Ids{258, 263}));
  EXPECT_EQ(t.encode(">  <"), (Ids{258, 262, 258, 260}));
  EXPECT_EQ(t.encode("a > a"), (Ids{264, 258, 259, 264}));
  EXPECT_EQ(t.encode("a   a"), (Ids{264, 265, 264}));
}

TEST(Tokenizer, UnusedPiecesAreOnlySteps) {
  TokenizerSpec spec = scored({{"\u2581", -9}, {"a", -9}, {"b", -9}, {"c", -9}, {"ab", -1}, {"abc", -2}});
  EXPECT_EQ(make(spec).encode("abc"), (Ids{258, 263}));
  spec.types[262] = Type::unused;
  EXPECT_EQ(make(spec).encode("abc"), (Ids{258, 263}));
  EXPECT_EQ(make(spec).encode("ab"), (Ids{258, 259, 260}));
}

TEST(Tokenizer, UnigramTakesTheBestSum) {
  TokenizerSpec spec = scored({{"\u2581", -2}, {"a", -3}, {"b", -3}, {"ab", -4}, {"abb", -12}});
  spec.model = TokenizerSpec::Model::unigram;
  spec.byteFallback = false;
  spec.fuseUnknown = true;
  Tokenizer t = make(spec);
  EXPECT_EQ(t.encode("abb"), (Ids{258, 261, 260}));
  EXPECT_EQ(t.encode("axyb"), (Ids{258, 259, 0, 260}));
  spec.byteFallback = true;
  EXPECT_EQ(make(spec).encode("ax"), (Ids{258, 259, 2 + 'x'}));
}

TEST(Tokenizer, StreamKeepsCharactersWhole) {
  Tokenizer t = make(byteLevel({}, {"<e>"}));
  StreamDecoder stream(t);
  EXPECT_EQ(stream.push(0xe4), "");
  EXPECT_EQ(stream.push(0xb8), "");
  EXPECT_EQ(stream.push(256), "");
  EXPECT_EQ(stream.push(0xad), "\u4e2d");
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xe4), "");
  EXPECT_EQ(stream.push('b'), "\ufffd"
                              "b");
  EXPECT_EQ(stream.push(0xff), "\ufffd");
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.push(0x9f), "");
  EXPECT_EQ(stream.flush(), "\ufffd");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Tokenizer, StreamDropsTheLeadingSpaceOnce) {
  Tokenizer t = make(scored({{"\u2581", -9}, {"a", -9}, {"\u2581a", -2}}));
  StreamDecoder stream(t);
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(260), "a");
  EXPECT_EQ(stream.push(260), " a");
  StreamDecoder more(t, false, true);
  EXPECT_EQ(more.push(260), " a");
  EXPECT_EQ(t.decode({1, 260, 260}), "a a");
}

TEST(Tokenizer, HostileTexts) {
  Tokenizer t = make(byteLevel({{"a", "a"}, {" ", " "}}));
  Tokenizer s = make(scored({{"\u2581", -9}, {"a", -9}, {"aa", -1}, {"aaaa", -2}, {"\u2581\u2581", -3}}));
  std::string marks;
  for (int i = 0; i < 500000; ++i)
    marks += "\u0301";
  for (const std::string &text :
       {std::string(1000000, 'a'), std::string(1000000, ' '), marks, std::string(1000000, '\xff')}) {
    EXPECT_EQ(t.decode(t.encode(text)), text);
    EXPECT_EQ(s.decode(s.encode(text)), text);
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  TokenizerSpec spec = byteLevel({{"a", "b"}, {" ", " "}}, {"<s>"});
  TokenizerSpec::Split split;
  split.pattern = "\\s+$|\\d{1,3}(?=(?:\\d{3})*\\b)"; // the first long run of spaces builds a second automaton
  spec.splits = {split};
  spec.normalizers.push_back({TokenizerSpec::Normalizer::Kind::nfc, 0, "", ""});
  Tokenizer t = make(spec);
  std::string text = "ab e\u0301 1234567 <s>" + std::string(5000, ' ') + "x";
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids &result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i)
        result = t.encode(text, {true, true});
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Ids &result : results)
    EXPECT_EQ(result, results[0]);
  EXPECT_EQ(t.decode(results[0]), "ab \u00e9 1234567 " + std::string(5000, ' ') + "x");
}

TEST(Tokenizer, CreateErrors) {
  TokenizerSpec spec = byteLevel({});
  TokenizerSpec::Split split;
  split.pattern = "(";
  spec.splits = {split};
  EXPECT_EQ(Tokenizer::create(spec).status().message(), "tokenizer: pattern: expected ')' at offset 1");
  split.kind = TokenizerSpec::Split::Kind::literal;
  split.pattern = "";
  spec.splits = {split};
  EXPECT_EQ(Tokenizer::create(spec).status().message(), "tokenizer: expected a text to split at, found none");
  spec = byteLevel({});
  spec.normalizers.push_back({TokenizerSpec::Normalizer::Kind::charsMap, 0, "abc", ""});
  EXPECT_EQ(Tokenizer::create(spec).status().message(),
            "tokenizer: expected a compiled characters map, found 3 bytes of something else");
}

} // namespace
