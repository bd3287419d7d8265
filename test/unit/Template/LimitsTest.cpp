//===- LimitsTest.cpp - hostile templates end -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "template/Template.h"
#include <gtest/gtest.h>
#include <thread>

// A limit reached takes minutes under ThreadSanitizer, and there is one thread.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SKIP_IF_SLOW GTEST_SKIP()
#endif
#endif
#ifndef SKIP_IF_SLOW
#define SKIP_IF_SLOW (void)0
#endif

using namespace lathe;
using Json = nlohmann::ordered_json;

namespace {

Status status(const std::string &source, const Json &context = Json::object()) {
  auto parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->render(context, RenderOptions()).status();
}

std::string repeated(const char *what, int times) {
  std::string out;
  for (int i = 0; i < times; ++i)
    out += what;
  return out;
}

TEST(Limits, EachEndsWithItsMessage) {
  SKIP_IF_SLOW;
  const std::pair<std::string, const char *> cases[] = {
      {"{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}", "more than 1000000 steps"},
      {"{% for i in range(100000) %}{% if 1" + repeated("+1", 100000) + " %}{% endif %}{% endfor %}",
       "more than 1000000 steps"},
      {"{% for i in range(100000) %}{% for j in [1] %}{% set x %}" + repeated("x", 500000) +
           "{% break %}{% endset %}{% endfor %}{% endfor %}",
       "more than 1000000 steps"},
      {"{{ range(100001) }}", "a range of 100001 elements, at most 100000 are allowed"},
      {"{{ range(2 ** 41) }}", "the bounds of a range are over 2^40"},
      {"{{ 'x' * 99999999 }}", "a string of more than 16777216 bytes"},
      {"{% set x = 'x' * 9999999 %}{{ x }}{{ x }}", "output of more than 16777216 bytes"},
      {"{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
       "a string of more than 16777216 bytes"},
      {"{% set n = namespace(l=[]) %}{% for i in range(999) %}{% set n.l = n.l + ['x' * 9000000] %}{% endfor %}",
       "values take more than 268435456 bytes"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls nested more than 100 deep"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "calls nested more than 100 deep"},
      {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
       "values nested more than 100 deep"},
      {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = n.x | map('upper') %}{% endfor %}",
       "values nested more than 100 deep"},
      {"{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
       "more than 1000000 steps"},
      {"{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
       "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
       "more than 1000000 steps"},
      {"{% set n = namespace() %}{% set n.n = n %}{{ n }}", "values nested too deep to print"},
      {"{{ 9223372036854775807 + 1 }}", "the result of '+' does not fit 64 bits"},
      {"{{ 2 ** 64 }}", "the result of '**' does not fit 64 bits"},
      {"{{ '%999999999d' % 1 }}", "a string of more than 16777216 bytes"},
      {"{{ '{:999999999}'.format(1) }}", "a string of more than 16777216 bytes"},
      {"{{ 'x' | center(999999999) }}", "a string of more than 16777216 bytes"},
      {"{{ 'x' | indent(999999999) }}", "a string of more than 16777216 bytes"},
      {"{{ ('x' * 100000).replace('', 'y' * 100000) }}", "a string of more than 16777216 bytes"},
      {"{{ [1] * 9999999 }}", "more than 1000000 steps"},
      {"{{ " + repeated("(", 200) + "1" + repeated(")", 200) + " }}", "nested more than 100 deep"},
      {"{{ " + repeated("[", 200) + repeated("]", 200) + " }}", "nested more than 100 deep"},
      {repeated("{% if 1 %}", 200) + repeated("{% endif %}", 200), "nested more than 100 deep"},
      {"{{ " + repeated("not ", 20000) + "1 }}", "nested more than 100 deep"},
      {"{{ " + repeated("-", 20000) + "1 }}", "nested more than 100 deep"},
      {"{{ x" + repeated(".a", 20000) + " }}", "expression nested more than 200 deep"},
      {"{{ x" + repeated("|trim", 20000) + " }}", "expression nested more than 200 deep"},
      {"{{ 1" + repeated(" if 1 else 1", 20000) + " }}", "nested more than 100 deep"},
  };
  for (const auto &[source, message] : cases) {
    Status s = status(source);
    EXPECT_EQ(s.code(), StatusCode::resourceExhausted) << source.substr(0, 200);
    EXPECT_EQ(s.message(), std::string("template line 1: ") + message) << source.substr(0, 200);
  }
  EXPECT_EQ(status(std::string((1 << 20) + 1, 'x')).message(),
            "template of 1048577 bytes, at most 1048576 are allowed");
}

TEST(Limits, ManyNamesCount) {
  SKIP_IF_SLOW;
  std::string names, source;
  for (int i = 0; i < 30000; ++i)
    names += "{{ n" + std::to_string(i) + " }}";
  source = "{% macro m() %}{% if 0 %}" + names +
           "{% endif %}{% endmacro %}{% for i in range(100000) %}{{ m() }}{% endfor %}";
  EXPECT_EQ(status(source).message(), "template line 1: more than 1000000 steps");
}

TEST(Limits, LongButFlatIsFine) {
  SKIP_IF_SLOW;
  EXPECT_TRUE(status("{{ 1" + repeated(" + 1", 20000) + " }}").ok());
  EXPECT_TRUE(status("{{ 1" + repeated(" and 1", 20000) + " }}").ok());
  EXPECT_TRUE(status("{{ 1" + repeated(" ~ 1", 20000) + " }}").ok());
  EXPECT_TRUE(status("{% if 0 %}" + repeated("{% elif 0 %}", 20000) + "{% endif %}").ok());
  EXPECT_TRUE(status(repeated("{{ 1 }}", 20000)).ok());
}

TEST(Limits, DeepRecursionFitsASmallStack) {
  // The deepest recursion that the limits allow, on a thread with little stack.
  std::string nested = "[" + repeated("(not ", 30) + "m(a + 1)" + repeated(")", 30) + "]";
  std::string source =
      "{% macro m(a) %}{% if a < 99 %}{% for x in " + nested + " %}{% endfor %}{% endif %}{% endmacro %}{{ m(1) }}";
  Status result;
  std::thread thread([&] { result = status(source); });
  thread.join();
  EXPECT_EQ(result.code(), StatusCode::resourceExhausted);
  EXPECT_EQ(result.message(), "template line 1: expressions and calls nested more than 1000 deep");
}

TEST(Limits, ManyThreadsRenderOneTemplate) {
  auto parsed =
      Template::parse("{% set ns = namespace(l=['a', 'b']) %}{% for i in range(200) %}{{ ns.l | join('c') ~ i }}"
                      "{% set ns.l = ns.l[:1] + ['d'] %}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  std::string expected = *parsed->render(Json::object(), RenderOptions());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        auto text = parsed->render(Json::object(), RenderOptions());
        wrong[t] += !text.ok() || *text != expected;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Limits, LongChainsOfObjectsAreFreed) {
  SKIP_IF_SLOW;
  // Each is a list as long as the steps allow, linked through what is not nested by value.
  const char *chains[] = {
      "{% set n = namespace() %}{% for i in range(90000) %}{% set n.head = namespace(next=n.head) %}{% endfor %}",
      "{% set n = namespace() %}{% macro m(f) %}{% macro g() %}{{ f }}{% endmacro %}{% set n.f = g %}{% endmacro %}"
      "{% for i in range(30000) %}{{ m(n.f) }}{% endfor %}",
  };
  for (const char *source : chains) {
    Status s = status(source);
    EXPECT_TRUE(s.ok() || s.code() == StatusCode::resourceExhausted) << s.message();
  }
}

} // namespace
