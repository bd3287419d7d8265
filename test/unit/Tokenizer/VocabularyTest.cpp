//===- VocabularyTest.cpp - the first difference of two vocabularies ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Vocabulary.h"
#include <functional>
#include <gtest/gtest.h>

using namespace lathe;

TEST(VocabularyTest, NamesTheFirstDifference) {
  TokenizerSpec model;
  model.pieces = {"a", "b", "<s>", "</s>"};
  model.types = {TokenizerSpec::PieceType::normal, TokenizerSpec::PieceType::normal, TokenizerSpec::PieceType::control,
                 TokenizerSpec::PieceType::control};
  model.added = {{2, "<s>"}, {3, "</s>"}};
  model.bos = 2, model.eos = 3;
  EXPECT_TRUE(compareVocabularies(model, model).ok());
  auto difference = [&](const std::function<void(TokenizerSpec &)> &change) {
    TokenizerSpec draft = model;
    change(draft);
    Status status = compareVocabularies(model, draft);
    EXPECT_EQ(status.code(), StatusCode::invalidArgument);
    const std::string start = "the draft model's vocabulary is another one: ";
    EXPECT_EQ(status.message().substr(0, start.size()), start);
    return status.message().substr(std::min(start.size(), status.message().size()));
  };
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.pieces.push_back("c"); }), "tokens: expected 4, found 5");
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.pieces[1] = "\x01" "c"; }), "token 1: expected 'b', found '\\x01c'");
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.types[2] = TokenizerSpec::PieceType::normal; }),
            "kind of token 2 '<s>': expected 3, found 1");
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.added[1].text = "<end>"; }), "special token 3: expected '</s>', found '<end>'");
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.added.pop_back(); }), "special token 3: expected '</s>', found none");
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.added.push_back({0, "a"}); }), "special token 0: expected none, found 'a'");
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.bos = 3; }), "begin of text, token: expected 2, found 3");
  EXPECT_EQ(difference([](TokenizerSpec &d) { d.eos = 2; }), "end of text, token: expected 3, found 2");
  // One that does not know its own ends is no worse at guessing.
  TokenizerSpec silent = model;
  silent.bos = silent.eos = -1;
  EXPECT_TRUE(compareVocabularies(model, silent).ok());
}
