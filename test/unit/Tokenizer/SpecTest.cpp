//===- SpecTest.cpp - encoding of tokenizer specs -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/TokenizerSpec.h"
#include <gtest/gtest.h>
#include <random>

using lathe::Result;
using lathe::TokenizerSpec;
using Type = TokenizerSpec::PieceType;

namespace {

TokenizerSpec sample() {
  TokenizerSpec s;
  s.model = TokenizerSpec::Model::scoredBpe;
  s.byteLevel = s.byteFallback = s.ignoreMerges = s.fuseUnknown = s.floatSums = true;
  s.pieces = {"<unk>", "a", "b", "ab", "\n", "<s>"};
  s.types = {Type::unknown, Type::normal, Type::normal, Type::normal, Type::byte, Type::control};
  s.scores = {0, -1, -2, -0.5f, 0, 0};
  s.merges = {{1, 2, 3}};
  TokenizerSpec::AddedToken token;
  token.id = 5;
  token.text = "<s>";
  token.special = token.stripRight = true;
  s.added = {token};
  s.normalizers.push_back({TokenizerSpec::Normalizer::Kind::replace, 3, " ", "_"});
  TokenizerSpec::Split split;
  split.behavior = TokenizerSpec::Split::Behavior::withNext;
  split.invert = true;
  split.pattern = "\\s+";
  s.splits = {split};
  s.continuation = "##";
  s.endOfWord = "</w>";
  s.maxWordCharacters = 7;
  s.decoder = TokenizerSpec::Decoder::metaspace;
  s.metaspace = "_";
  s.stripStart = 1;
  s.cleanUp = true;
  s.prefix = {5};
  s.suffix = {0, 1};
  s.bos = 5;
  s.eos = 0;
  s.unknown = 0;
  s.endOfGeneration = {0, 5};
  return s;
}

Result<TokenizerSpec> decode(const std::string &bytes) {
  return TokenizerSpec::decode({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()});
}

TEST(TokenizerSpec, RoundTrip) {
  std::string bytes = sample().encode();
  auto back = decode(bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->encode(), bytes);
  EXPECT_EQ(back->pieces, sample().pieces);
  EXPECT_EQ(back->scores, sample().scores);
  EXPECT_EQ(back->added[0].text, "<s>");
  TokenizerSpec wide = sample();
  wide.scores[1] = -0.1;
  EXPECT_EQ(decode(wide.encode())->scores, wide.scores);
  EXPECT_EQ(wide.encode().size(), bytes.size() + 4 * wide.scores.size());
  EXPECT_TRUE(back->added[0].stripRight);
  EXPECT_FALSE(back->added[0].stripLeft);
  EXPECT_EQ(back->eot, -1);
  EXPECT_EQ(back->bos, 5);
  EXPECT_EQ(back->splits[0].behavior, TokenizerSpec::Split::Behavior::withNext);
}

TEST(TokenizerSpec, EveryTruncationIsAnError) {
  std::string bytes = sample().encode();
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode(bytes.substr(0, size)).ok()) << size;
  auto longer = decode(bytes + "x");
  EXPECT_NE(longer.status().message().find("expected the end at offset"), std::string::npos)
      << longer.status().message();
}

TEST(TokenizerSpec, ChangedBytesNeverCrash) {
  std::string bytes = sample().encode();
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string changed = bytes;
    for (unsigned i = 0, n = 1 + random() % 3; i < n; ++i)
      changed[random() % changed.size()] = static_cast<char>(random());
    auto result = decode(changed);
    if (result.ok()) EXPECT_TRUE(result->verify().ok());
  }
}

TEST(TokenizerSpec, DecodeErrors) {
  EXPECT_EQ(decode("LTO").status().message(), "tokenizer: expected the mark 'LTOK' at offset 0");
  EXPECT_EQ(decode(std::string("LTOK\x09", 5)).status().message(),
            "tokenizer: expected version 1, found 9; compile the model again with this Lathe");
  EXPECT_EQ(decode("LTOK\x01\x07").status().message(), "tokenizer: an unknown kind at offset 6");
  EXPECT_EQ(decode(std::string("LTOK\x01\x00\x02", 7)).status().message(),
            "tokenizer: expected a flag of 0 or 1 at offset 7");
  EXPECT_EQ(decode(std::string("LTOK\x01\x00\x00\x00\x00\x00\x00\x7f", 12)).status().message(),
            "tokenizer: a count exceeds the data at offset 12");
  EXPECT_EQ(decode("LTOK\xff\xff\xff\xff\xff\xff\xff").status().message(),
            "tokenizer: a number is too long at offset 9");
  EXPECT_EQ(decode("LTOK").status().message(), "tokenizer: cut off at offset 4");
}

TEST(TokenizerSpec, VerifyErrors) {
  auto error = [](auto change) {
    TokenizerSpec s = sample();
    change(s);
    return s.verify().message();
  };
  EXPECT_EQ(error([](TokenizerSpec &s) { s.pieces.clear(); }), "tokenizer: expected at least one piece, found none");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.types.pop_back(); }), "tokenizer: expected 6 piece types, found 5");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.scores.pop_back(); }), "tokenizer: expected 6 scores, found 5");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.scores.clear(); }), "tokenizer: the model needs scores, found none");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.scores[2] = __builtin_nanf(""); }),
            "tokenizer: score of piece 2 is not finite");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.types[1] = static_cast<Type>(9); }),
            "tokenizer: piece 1 has unknown type 9");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.pieces[4] = "ab"; }), "tokenizer: byte piece 4 has 2 bytes");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.merges[0].result = 6; }),
            "tokenizer: merge 0 uses an id that is not below 6");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.added[0].id = 6; }), "tokenizer: added token '<s>' has id 6, of 6 pieces");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.suffix = {7}; }), "tokenizer: special token 7 is not below 6");
  EXPECT_EQ(error([](TokenizerSpec &s) { s.eot = 8; }), "tokenizer: special token 8 is not below 6");
}

} // namespace
