//===- TemplateTest.cpp - against Jinja2's output ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "template/Template.h"
#include <fstream>
#include <gtest/gtest.h>

using namespace lathe;
using Json = nlohmann::ordered_json;

namespace {

RenderOptions options() {
  RenderOptions o;
  o.now = {2026, 3, 9, 15, 4, 5, 0};
  return o;
}

/// The output, or "error: " and the message.
std::string render(const std::string &source, const Json &context = Json::object()) {
  auto parsed = Template::parse(source);
  if (!parsed.ok()) return "error: " + parsed.status().message();
  auto text = parsed->render(context, options());
  return text.ok() ? *text : "error: " + text.status().message();
}

// cases.json is made by make_cases.py with Jinja2.
TEST(Template, GivesWhatJinja2Gives) {
  std::ifstream file(LATHE_SOURCE_DIR "/test/fixtures/template/cases.json");
  Json all = Json::parse(file, nullptr, false);
  ASSERT_TRUE(all.is_object());
  ASSERT_GT(all["cases"].size(), 60u);
  for (const Json &c : all["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    std::string found = render(c["template"].get<std::string>(), all["context"]);
    if (c.contains("text"))
      EXPECT_EQ(found, c["text"].get<std::string>());
    else if (c.contains("raised"))
      EXPECT_EQ(found, "error: " + c["raised"].get<std::string>());
    else
      EXPECT_TRUE(found.starts_with("error: template line ")) << found;
  }
}

TEST(Template, RaisesTheTemplatesOwnMessage) {
  auto parsed = Template::parse("x\n{{ raise_exception('no {{ system }} here') }}");
  ASSERT_TRUE(parsed.ok());
  auto text = parsed->render(Json::object(), options());
  EXPECT_EQ(text.status().code(), StatusCode::invalidArgument);
  EXPECT_EQ(text.status().message(), "no {{ system }} here");
}

struct Message {
  const char *source, *error;
};

TEST(Template, SaysWhatIsWrongWithASource) {
  const Message messages[] = {
      {"{% if %}", "template line 1: expected an expression, found '%}'"},
      {"a\n{{ 1 +", "template line 2: tag begun in line 2 is not closed, expected '}}'"},
      {"{# x", "template line 1: comment is not closed, expected '#}'"},
      {"{% raw %}x", "template line 1: raw block is not closed, expected '{% endraw %}'"},
      {"{{ 'a }}", "template line 1: string is not closed"},
      {"{{ $ }}", "template line 1: unexpected character '$'"},
      {"{{ (1] }}", "template line 1: expected ')', found ']'"},
      {"{{ ) }}", "template line 1: unexpected ')'"},
      {"{{ '\\xg' }}", "template line 1: bad escape \\x in a string, expected 2 hexadecimal digits of a character"},
      {"{{ 99999999999999999999 }}", "template line 1: integer 99999999999999999999 does not fit 64 bits"},
      {"\n{% for x in y %}", "template line 2: expected the tag 'endfor', 'else', found the end of the template"},
      {"{% for x y %}", "template line 1: expected 'in', found 'y'"},
      {"{% set 1 = 2 %}", "template line 1: cannot assign to this expression"},
      {"{% macro m(a, a) %}{% endmacro %}", "template line 1: parameter 'a' occurs twice"},
      {"{% macro m(a=1, b) %}{% endmacro %}",
       "template line 1: parameter 'b' without a default follows one with a default"},
      {"{% call x %}{% endcall %}", "template line 1: expected a call in the tag 'call'"},
      {"{% nope %}", "template line 1: unknown tag 'nope'"},
      {"{% 1 %}", "template line 1: expected the name of a tag, found '1'"},
      {"{% include 'x' %}", "template line 1: tag 'include'; a chat template stands alone"},
      {"{{ x is y is z }}", "template line 1: tests cannot be chained with 'is'"},
      {"{{ x | nope }}", "template line 1: unknown filter 'nope'"},
      {"{{ x is nope }}", "template line 1: unknown test 'nope'"},
      {"{{ f(a=1, a=2) }}", "template line 1: argument 'a' is given twice"},
      {"{{ f(a=1, 2) }}", "template line 1: arguments are out of order: positional, then *list, named, **dict"},
      {"{{ a.'b' }}", "template line 1: expected a name or a number behind '.', found a string"},
      {"{% break %}", "template line 1: 'break' outside of a loop"},
      {"{% continue %}", "template line 1: 'continue' outside of a loop"},
      {"{% for x in y %}{% set loop = 1 %}{% endfor %}",
       "template line 1: cannot assign to the special variable 'loop' in a loop"},
      {"\xff", "template is not UTF-8"},
  };
  for (const Message &m : messages)
    EXPECT_EQ(render(m.source), std::string("error: ") + m.error);
}

TEST(Template, SaysWhatWentWrong) {
  const Message messages[] = {
      {"\n\n{{ x.y }}", "template line 3: cannot read 'y' of an undefined value: 'x' is not set"},
      {"{{ x[0] }}", "template line 1: cannot read an item of an undefined value: 'x' is not set"},
      {"{{ x() }}", "template line 1: cannot call an undefined value: 'x' is not set"},
      {"{{ 1() }}", "template line 1: a int cannot be called"},
      {"{{ x + 1 }}", "template line 1: '+' on an undefined value: 'x' is not set"},
      {"{{ 1 + 'a' }}", "template line 1: '+' does not work on int and str"},
      {"{{ -'a' }}", "template line 1: '-' does not work on str"},
      {"{{ 1 % 0 }}", "template line 1: division by zero"},
      {"{{ 1 < 'a' }}", "template line 1: '<' does not order int and str"},
      {"{{ 1 in 'a' }}", "template line 1: expected a string left of 'in', found int"},
      {"{{ {[]: 1} }}", "template line 1: a list cannot be a key"},
      {"{{ 1 | length }}", "template line 1: a int has no length"},
      {"{% for a in 1 %}{% endfor %}", "template line 1: a int cannot be iterated"},
      {"{% set a, b = [1] %}", "template line 1: expected 2 values to unpack, found 1"},
      {"{% set a = 1 %}{% set a.b = 1 %}", "template line 1: cannot assign to attribute 'b' of 'a': not a namespace"},
      {"{{ [1].append(2) }}",
       "template line 1: cannot call an undefined value: 'append' of a list may not be used: it changes its object"},
      {"{{ 1[::0] }}", "template line 1: a int cannot be sliced"},
      {"{{ 'a'[::0] }}", "template line 1: the step of a slice is 0"},
      {"{{ 'a'['x':] }}", "template line 1: expected integers in a slice, found str"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "template line 1: macro 'm' takes 1 arguments, found 2"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "template line 1: macro 'm' has no parameter 'b'"},
      {"{{ namespace(x) }}", "template line 1: namespace: expected a mapping or pairs, found an undefined value: 'x' is not set"},
      {"{{ range('a') }}", "template line 1: range: expected an integer, found str"},
      {"{{ 'a' | round }}", "template line 1: round of a str"},
      {"{{ 1 | upper(2) }}", "template line 1: upper takes at most 0 arguments, found 1"},
      {"{{ 1 | replace(1) }}", "template line 1: replace needs the argument 'new'"},
      {"{{ 1 | join(x=2) }}", "template line 1: join has no argument 'x'"},
      {"{{ 'a'.split('') }}", "template line 1: split: empty separator"},
      {"{{ 'a'.index('b') }}", "template line 1: index: the text is not found"},
      {"{{ x | tojson }}", "template line 1: tojson: a undefined has no JSON form"},
      {"{{ '%d' % 'a' }}", "template line 1: '%d': expected an integer, found str"},
      {"{{ '%s' % () }}", "template line 1: '%': more places than values"},
      {"{{ '' % 1 }}", "template line 1: '%': more values than places"},
      {"{{ '{}'.format() }}", "template line 1: format: no value for place 0"},
      {"{{ '{'.format() }}", "template line 1: format: a single '{'"},
      {"{{ '{:d}'.format('a') }}", "template line 1: format: 'd' does not fit a str"},
      {"{{ 1 is divisibleby }}", "template line 1: test 'divisibleby' takes 1 arguments, found 0"},
      {"{% for a in [1] %}{{ loop([]) }}{% endfor %}",
       "template line 1: a loop must be marked 'recursive' to be called"},
      {"{{ 'a' | xmlattr }}", "template line 1: filter 'xmlattr'"},
  };
  for (const Message &m : messages)
    EXPECT_EQ(render(m.source), std::string("error: ") + m.error);
}

TEST(Template, RefusesABadContext) {
  EXPECT_EQ(render("", Json::array()), "error: template context: expected an object, found array");
  EXPECT_EQ(render("", {{"a", UINT64_MAX}}),
            "error: template context: integer 18446744073709551615 does not fit 64 bits");
  EXPECT_EQ(render("", {{"a", "\xff"}}), "error: template context: a string is not UTF-8");
  EXPECT_EQ(render("", {{"\xff", 1}}), "error: template context: a key is not UTF-8");
  Json deep = 1;
  for (int i = 0; i < 200; ++i)
    deep = Json::array({deep});
  EXPECT_EQ(render("", {{"a", deep}}), "error: template context: nested more than 100 deep");
}

TEST(Template, RendersFromManyCopies) {
  auto parsed =
      Template::parse("{% set ns = namespace() %}{% set ns.me = ns %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}");
  ASSERT_TRUE(parsed.ok());
  Template copy = *parsed;
  for (int i = 0; i < 3; ++i) {
    auto text = copy.render({{"x", i}}, options());
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(*text, std::to_string(i));
  }
}

TEST(CivilTime, NowIsAPlausibleDate) {
  CivilTime now = CivilTime::now();
  EXPECT_GE(now.year, 2024);
  EXPECT_TRUE(now.month >= 1 && now.month <= 12 && now.day >= 1 && now.day <= 31);
}

} // namespace
