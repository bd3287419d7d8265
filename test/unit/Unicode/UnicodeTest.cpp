//===- UnicodeTest.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/base/Unicode.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

using namespace lathe::unicode;

TEST(Unicode, CategoriesOfKnownCharacters) {
  EXPECT_EQ(category('A'), Category::Lu);
  EXPECT_EQ(category('5'), Category::Nd);
  EXPECT_EQ(category(0x4e2d), Category::Lo);
  EXPECT_EQ(category(0x301), Category::Mn);
  EXPECT_EQ(category(0x1f600), Category::So);
  EXPECT_EQ(category(0x1c89), Category::Lu); // since Unicode 16
  EXPECT_EQ(category(0x10ffff), Category::none);
  EXPECT_EQ(category(limit), Category::none);
  EXPECT_EQ(categoriesByName("L"), letters);
  EXPECT_EQ(categoriesByName("M"), marks);
  EXPECT_EQ(categoriesByName("N"), numbers);
  EXPECT_EQ(categoriesByName("P"), punctuation);
  EXPECT_EQ(categoriesByName("S"), symbols);
  EXPECT_EQ(categoriesByName("Z"), separators);
  EXPECT_EQ(categoriesByName("C"), others);
  EXPECT_EQ(categoriesByName("Lu"), categoryBit(Category::Lu));
  EXPECT_EQ(categoriesByName("Q"), 0u);
}

TEST(Unicode, RangesAgreeWithCategories) {
  std::vector<Range> ranges = rangesOf(letters);
  size_t r = 0;
  for (uint32_t cp = 0; cp < limit; ++cp) {
    while (r < ranges.size() && ranges[r].last < cp)
      ++r;
    bool inside = r < ranges.size() && ranges[r].first <= cp;
    ASSERT_EQ(inside, isIn(cp, letters)) << cp;
  }
}

TEST(Unicode, DecodeRefusesWhatUtf8DoesNotAllow) {
  unsigned length;
  for (const char *bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xff"}) {
    EXPECT_EQ(decode(bad, 0, length), invalid) << bad;
    EXPECT_EQ(length, 1u);
  }
  for (uint32_t cp : {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    append(cp, text);
    EXPECT_EQ(decode(text, 0, length), cp);
    EXPECT_EQ(length, text.size());
    EXPECT_EQ(validPrefix(text, 0), cp < 0x80 ? 0 : text.size());
  }
}

TEST(Unicode, ValidPrefixStopsWhereACharacterBecomesImpossible) {
  EXPECT_EQ(validPrefix("\xe2\x82", 0), 2u);
  EXPECT_EQ(validPrefix("\xe2x", 0), 1u);
  EXPECT_EQ(validPrefix("\xe0\x80", 0), 1u);
  EXPECT_EQ(validPrefix("\xed\xa0\x80", 0), 1u);
  EXPECT_EQ(validPrefix("\xf0\x9f\x98", 0), 3u);
  EXPECT_EQ(validPrefix("\xff", 0), 0u);
}

TEST(Unicode, LowerCaseAndVariants) {
  std::string out;
  for (uint32_t cp : {uint32_t('A'), 0xc4u, 0x130u, 0x3a3u, 0x1e9eu, 0x4e2du})
    appendLower(cp, out);
  EXPECT_EQ(out, "a\u00e4i\u0307\u03c3\u00df\u4e2d");
  std::vector<uint32_t> s = caseVariants('s');
  for (uint32_t want : {uint32_t('s'), uint32_t('S'), 0x17fu})
    EXPECT_NE(std::find(s.begin(), s.end(), want), s.end()) << want;
}

TEST(Unicode, Normalization) {
  EXPECT_EQ(normalize("e\u0301", Form::nfc), "\u00e9");
  EXPECT_EQ(normalize("\u00e9", Form::nfd), "e\u0301");
  EXPECT_EQ(normalize("\ufb01\u00b2", Form::nfkc), "fi2");
  EXPECT_EQ(normalize("\ufb01", Form::nfc), "\ufb01");
  EXPECT_EQ(normalize("\u1e9b\u0323", Form::nfkc), "\u1e69");
  // Hangul, by arithmetic
  EXPECT_EQ(normalize("\ud55c", Form::nfd), "\u1112\u1161\u11ab");
  EXPECT_EQ(normalize("\u1112\u1161\u11ab", Form::nfc), "\ud55c");
  // Marks are ordered by class; a composition is blocked by a mark of the same class between.
  EXPECT_EQ(normalize("a\u0301\u0323", Form::nfd), "a\u0323\u0301");
  EXPECT_EQ(normalize("a\u0323\u0301", Form::nfc), "\u1ea1\u0301");
  EXPECT_EQ(normalize("a\u0305\u0301", Form::nfc), "a\u0305\u0301");
  // Composition exclusions stay apart
  EXPECT_EQ(normalize("\u0958", Form::nfc), "\u0915\u093c");
  // what is not UTF-8 is kept
  EXPECT_EQ(normalize("e\u0301\xff"
                      "e\xcc",
                      Form::nfc),
            "\u00e9\xff"
            "e\xcc");
}

TEST(Unicode, NormalizationIsStable) {
  std::mt19937 random(1);
  const uint32_t pool[] = {'a',    'e',    0x301,  0x323,  0x305,  0x1112, 0x1161,
                           0x11ab, 0xac00, 0x1e9b, 0xfb01, 0x3099, 0x304b};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 8; ++i)
      append(pool[random() % std::size(pool)], text);
    for (Form form : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd})
      ASSERT_EQ(normalize(normalize(text, form), form), normalize(text, form));
    ASSERT_EQ(normalize(normalize(text, Form::nfd), Form::nfc), normalize(text, Form::nfc));
    ASSERT_EQ(normalize(normalize(text, Form::nfc), Form::nfd), normalize(text, Form::nfd));
  }
}

TEST(Unicode, AMillionMarksNormalizeInLinearTime) {
  std::string text = "a";
  for (int i = 0; i < 500000; ++i)
    text += i % 2 ? "\u0301" : "\u0323";
  EXPECT_EQ(normalize(text, Form::nfd).size(), text.size());
}
