//===- PatternTest.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/base/Pattern.h"
#include <gtest/gtest.h>
#include <random>
#include <regex>

using lathe::Pattern;

namespace {

/// Matches as "[..]" inside the text.
std::string mark(std::string_view source, std::string_view text) {
  auto pattern = Pattern::compile(source);
  if (!pattern.ok()) return pattern.status().message();
  std::vector<Pattern::Match> matches;
  pattern->findAll(text, matches);
  std::string out;
  size_t at = 0;
  for (const Pattern::Match &match : matches) {
    out += text.substr(at, match.first - at);
    out += '[';
    out += text.substr(match.first, match.last - match.first);
    out += ']';
    at = match.last;
  }
  out += text.substr(at);
  return out;
}

TEST(Pattern, FindsWhatBacktrackingFindsFirst) {
  EXPECT_EQ(mark("a|ab", "abab"), "[a]b[a]b");
  EXPECT_EQ(mark("ab|a", "abab"), "[ab][ab]");
  EXPECT_EQ(mark("a*?b", "aab"), "[aab]");
  EXPECT_EQ(mark("a+?", "aa"), "[a][a]");
  EXPECT_EQ(mark("(a|b)+c", "abcab"), "[abc]ab");
  EXPECT_EQ(mark("a{2,3}", "aaaaaa"), "[aaa][aaa]");
  EXPECT_EQ(mark("a{2}", "aaa"), "[aa]a");
  EXPECT_EQ(mark("a{,2}b", "aaab"), "a[aab]");
  EXPECT_EQ(mark("x{y", "x{y"), "[x{y]");
}

TEST(Pattern, Classes) {
  EXPECT_EQ(mark("[a-c]+", "xabcd"), "x[abc]d");
  EXPECT_EQ(mark("[^a-c]+", "abxyc"), "ab[xy]c");
  EXPECT_EQ(mark("[]a]+", "a]b"), "[a]]b");
  EXPECT_EQ(mark("[a\\-\\]]+", "a-]b"), "[a-]]b");
  EXPECT_EQ(mark("[a-z&&[^aeiou]]+", "bcade"), "[bc]a[d]e");
  EXPECT_EQ(mark("[\\p{L}\\p{N}]+", "a1 \u4e2d\u0663!"), "[a1] [\u4e2d\u0663]!");
  EXPECT_EQ(mark("\\p{Han}+", "a\u4e2d\u6587b"), "a[\u4e2d\u6587]b");
  EXPECT_EQ(mark("\\P{L}", "a1"), "a[1]");
  EXPECT_EQ(mark("\\p{^L}", "a1"), "a[1]");
  EXPECT_EQ(mark("\\s", "a\u3000\u0085b"), "a[\u3000][\u0085]b");
  EXPECT_EQ(mark("\\w+", "a_1-\u00e9"), "[a_1]-[\u00e9]");
  EXPECT_EQ(mark("\\x41\\x{1F600}\\u0042", "A\U0001F600B"), "[A\U0001F600B]");
  EXPECT_EQ(mark(".+", "ab\ncd"), "[ab]\n[cd]");
}

TEST(Pattern, ConditionsOnNeighbours) {
  EXPECT_EQ(mark("\\s+(?!\\S)", "a   b  "), "a[  ] b[  ]");
  EXPECT_EQ(mark("a(?=b)", "ab ac"), "[a]b ac");
  EXPECT_EQ(mark("\\bx", "x ax -x"), "[x] ax -[x]");
  EXPECT_EQ(mark("x\\B", "x xa"), "x [x]a");
  EXPECT_EQ(mark("^a", "a\nab"), "[a]\n[a]b");
  EXPECT_EQ(mark("a$", "a\nba"), "[a]\nb[a]");
  EXPECT_EQ(mark("\\Aa", "a\na"), "[a]\na");
  EXPECT_EQ(mark("a\\z", "a\na"), "a\n[a]");
}

TEST(Pattern, LookaheadsOfAnyLength) {
  EXPECT_EQ(mark("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 12 1234x"), "[1][234][567] [12] 1234x");
  EXPECT_EQ(mark("(?=(\\d{3})+(?!\\d))", "1234567"), "1[]234[]567");
  EXPECT_EQ(mark("a(?!bc|d)", "abc ad ab"), "abc ad [a]b");
  EXPECT_EQ(mark("\\p{N}{1,2}(?=(?:\\p{N}{3})*(?!\\p{N}))|\\p{N}{3}", "1234567 123 12"), "[1][234][567] [123] [12]");
}

TEST(Pattern, CaseAndPossession) {
  EXPECT_EQ(mark("(?i:'s|'ll)", "'S 'lL 's"), "['S] ['lL] ['s]");
  EXPECT_EQ(mark("(?i:k)x", "\u212ax Kx kX"), "[\u212ax] [Kx] kX");
  EXPECT_EQ(mark("(?i:[a-c])+d", "aBCd aBCD"), "[aBCd] aBCD");
  EXPECT_EQ(mark("a++a", "aaa"), "aaa");
  EXPECT_EQ(mark("a?+a", "aa a"), "[aa] a");
  EXPECT_EQ(mark("a{1,2}+a", "aaab"), "[aaa]b"); // not possessive after braces
  EXPECT_EQ(mark("a{2}?b", "aabb"), "[aab][b]");
  EXPECT_EQ(mark("\\s++$|\\s+", "a  b  "), "a[  ]b[  ]");
}

TEST(Pattern, EmptyMatchesMoveOn) {
  EXPECT_EQ(mark("x*", "axb"), "[]a[x][]b[]");
  EXPECT_EQ(mark("", "\u4e2d"), "[]\u4e2d[]");
}

TEST(Pattern, BytesThatAreNotUtf8) {
  EXPECT_EQ(mark("[^a]", "a\xff\x80"
                         "a"),
            "a[\xff][\x80]a");
  EXPECT_EQ(mark("\\p{L}+", "a\xe4\xb8"), "[a]\xe4\xb8");
  EXPECT_EQ(mark("\\bx", "\xffx"), "\xff[x]");
}

TEST(Pattern, Errors) {
  auto error = [](std::string_view source) {
    auto pattern = Pattern::compile(source);
    return pattern.ok() ? std::string("none") : pattern.status().message();
  };
  EXPECT_EQ(error("(a"), "pattern: expected ')' at offset 2");
  EXPECT_EQ(error("a)"), "pattern: unmatched ')' at offset 1");
  EXPECT_EQ(error("[a"), "pattern: expected ']' at offset 2");
  EXPECT_EQ(error("*a"), "pattern: nothing to repeat at offset 0");
  EXPECT_EQ(error("a\\"), "pattern: '\\' ends the pattern at offset 1");
  EXPECT_EQ(error("[b-a]"), "pattern: a range is reversed at offset 4");
  EXPECT_EQ(error("[a-\\d]"), "pattern: a range ends in a class at offset 5");
  EXPECT_EQ(error("a{3,2}"), "pattern: repeat counts are reversed at offset 6");
  EXPECT_EQ(error("a{2000}"), "pattern: repeat count is over 1000 at offset 7");
  EXPECT_EQ(error("\\x{110000}"), "pattern: bad hexadecimal escape at offset 10");
  EXPECT_EQ(error("\\p{L"), "pattern: expected '}' after a property at offset 3");
  EXPECT_EQ(error("\\p{Klingon}"), "pattern: property 'Klingon' at offset 11 is not supported");
  EXPECT_EQ(error("(?i-a)"), "pattern: this group option at offset 4 is not supported");
  EXPECT_EQ(error("(?i"), "pattern: expected ':' after group options at offset 3");
  EXPECT_EQ(error("(?<=a)b"), "pattern: lookbehind at offset 2 is not supported");
  EXPECT_EQ(error("(?>a)"), "pattern: an atomic group at offset 2 is not supported");
  EXPECT_EQ(error("(?<n>a)"), "pattern: a named group at offset 2 is not supported");
  EXPECT_EQ(error("(?#a)"), "pattern: a comment at offset 2 is not supported");
  EXPECT_EQ(error("(a)\\1"), "pattern: a back reference at offset 3 is not supported");
  EXPECT_EQ(error("\\Z"), "pattern: this escape at offset 0 is not supported");
  EXPECT_EQ(error("\\y"), "pattern: this escape at offset 0 is not supported");
  EXPECT_EQ(error("[[:alpha:]]"), "pattern: a POSIX class at offset 1 is not supported");
  EXPECT_EQ(error("(?:ab)++"), "pattern: a possessive repeat of more than one character at offset 8 is not supported");
  EXPECT_EQ(error("a******"), "pattern: a repeat of a repeat of a repeat at offset 6 is not supported");
  EXPECT_EQ(error("(?=a(?=bc))"), "pattern: a lookahead inside a lookahead is not supported");
  EXPECT_EQ(error("(?=ab)(?=cd)(?=ef)(?=gh)"), "pattern: more than 3 lookaheads are not supported");
  EXPECT_EQ(error("\xff"), "expected a pattern in UTF-8");
  EXPECT_EQ(error(std::string(70000, 'a')), "expected a pattern of at most 65536 bytes, found 70000");
  EXPECT_EQ(error(std::string(500, '(') + std::string(500, ')')), "pattern: groups nest too deeply at offset 101");
  EXPECT_EQ(error(std::string(500, '[') + std::string(500, ']')), "pattern: classes nest too deeply at offset 101");
  EXPECT_EQ(error("(?:(?:a{1000}){1000}){1000}"), "pattern: more than 20000 instructions");
  EXPECT_EQ(error("(?:(?:(){1000}){1000}){1000}"), "pattern: too many repeats");
  EXPECT_EQ(error("(a|b)*a(a|b){20}"), "pattern: its automaton has more than 20000 states");
  std::string many;
  for (int i = 0; i < 300; ++i)
    many += "|\\x{" + std::to_string(3000 + i) + "}";
  EXPECT_EQ(error(many), "pattern: more than 250 character classes");
}

/// Random patterns on random texts against std::regex, which backtracks.
TEST(Pattern, AgreesWithABacktrackingMatcher) {
  std::mt19937 random(7);
  auto pick = [&](std::initializer_list<const char *> list) {
    return std::string(*(list.begin() + random() % list.size()));
  };
  auto atom = [&] {
    return pick(
        {"a", "b", "c", "[ab]", "[^a]", "(?:ab|a)", "(?:a|bc)", "(?:a|b|c)", "\\b", "(?=b)", "(?!bc)", "(?=a*c)"});
  };
  for (int round = 0; round < 3000; ++round) {
    std::string source;
    for (unsigned i = 0, n = 1 + random() % 4; i < n; ++i) {
      std::string a = atom();
      bool assertion = a[0] == '\\' || a.substr(0, 3) == "(?=" || a.substr(0, 3) == "(?!";
      source += a;
      if (!assertion) source += pick({"", "", "*", "+", "?", "*?", "+?", "{1,2}", "{2}"});
      if (random() % 6 == 0) source += "|";
    }
    auto pattern = Pattern::compile(source);
    if (!pattern.ok()) {
      ASSERT_NE(pattern.status().message().find("lookaheads"), std::string::npos)
          << source << pattern.status().message();
      continue;
    }
    std::regex oracle(source, std::regex::ECMAScript);
    for (int t = 0; t < 10; ++t) {
      std::string text;
      for (unsigned i = 0, n = random() % 12; i < n; ++i)
        text += "abc "[random() % 4];
      std::vector<Pattern::Match> got;
      pattern->findAll(text, got);
      std::vector<std::pair<size_t, size_t>> want, have;
      for (size_t at = 0; at <= text.size();) {
        std::smatch match;
        auto flags = at > 0 ? std::regex_constants::match_prev_avail : std::regex_constants::match_default;
        if (!std::regex_search(text.cbegin() + static_cast<long>(at), text.cend(), match, oracle, flags)) break;
        size_t first = at + static_cast<size_t>(match.position(0)), last = first + static_cast<size_t>(match.length(0));
        want.emplace_back(first, last);
        at = last > first ? last : last + 1;
      }
      for (const Pattern::Match &match : got)
        have.emplace_back(match.first, match.last);
      ASSERT_EQ(have, want) << "pattern " << source << " text '" << text << "'";
    }
  }
}

TEST(Pattern, LongTextsTakeLinearTime) {
  // Each of these makes a backtracking matcher quadratic or worse.
  std::vector<Pattern::Match> matches;
  std::string spaces(1000000, ' ');
  for (auto [source, text] : {std::pair<const char *, std::string>{"\\s+$", spaces + "x"},
                              {"(?:a*)*b", std::string(1000000, 'a')},
                              {"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", spaces + "x"},
                              {"\\d{1,3}(?=(?:\\d{3})*\\b)", std::string(1000000, '7')},
                              {"[A-Z]*[a-z]+!|[A-Z]+", std::string(1000000, 'A')}}) {
    auto pattern = Pattern::compile(source);
    ASSERT_TRUE(pattern.ok()) << pattern.status().message();
    matches.clear();
    pattern->findAll(text, matches); // hangs if it is not
  }
}

} // namespace
