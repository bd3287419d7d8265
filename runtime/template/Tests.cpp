//===- Tests.cpp - what follows `is` ----------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Parser.h"
#include "TextOps.h"

namespace lathe::jinja {
namespace {

struct TestEntry {
  const char *name;
  int arguments;
  bool (*apply)(Renderer &r, const Value &in, const Value &arg, bool &out);
};

template <Op op> bool compareTest(Renderer &r, const Value &in, const Value &arg, bool &out) {
  return r.compare(op, in, arg, out);
}

template <Kind kind> bool kindTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = in.is(kind);
  return true;
}

template <int value> bool constantTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = in.is(Kind::boolean) && in.asBool() == (value != 0);
  return true;
}

bool definedTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = !in.isUndefined();
  return true;
}

bool remainder(Renderer &r, const Value &in, const Value &by, int64_t expected, bool &out) {
  Value rest;
  return r.binary(Op::mod, in, by, rest) && r.equal(rest, Value::integer(expected), out);
}
bool oddTest(Renderer &r, const Value &in, const Value &, bool &out) {
  return remainder(r, in, Value::integer(2), 1, out);
}
bool evenTest(Renderer &r, const Value &in, const Value &, bool &out) {
  return remainder(r, in, Value::integer(2), 0, out);
}
bool divisibleTest(Renderer &r, const Value &in, const Value &by, bool &out) { return remainder(r, in, by, 0, out); }

bool numberTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = in.isNumber();
  return true;
}

bool sequenceTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = in.is(Kind::string) || in.isSequence() || in.is(Kind::dict) || in.is(Kind::range) || in.isUndefined();
  return true;
}

bool iterableTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = in.is(Kind::string) || in.isSequence() || in.is(Kind::dict) || in.is(Kind::range) || in.isUndefined() ||
        in.is(Kind::view) || in.is(Kind::generator) || in.is(Kind::loop);
  return true;
}

bool callableTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = in.is(Kind::macro) || in.is(Kind::method) || in.is(Kind::function) || in.is(Kind::loop) ||
        in.is(Kind::joiner) || in.isUndefined();
  return true;
}

bool sameTest(Renderer &, const Value &in, const Value &arg, bool &out) {
  out = in.identical(arg);
  return true;
}

bool escapedTest(Renderer &, const Value &in, const Value &, bool &out) {
  out = in.is(Kind::string) && in.isMarkup();
  return true;
}

bool upperTest(Renderer &r, const Value &in, const Value &, bool &out) {
  std::string text;
  if (!r.toText(in, text)) return false;
  out = isUpperText(text);
  return true;
}
bool lowerTest(Renderer &r, const Value &in, const Value &, bool &out) {
  std::string text;
  if (!r.toText(in, text)) return false;
  out = isLowerText(text);
  return true;
}

bool filterTest(Renderer &r, const Value &in, const Value &, bool &out) {
  if (!r.needHashable(in)) return false;
  out = in.is(Kind::string) && findFilter(in.text()) >= 0;
  return true;
}
bool testTest(Renderer &r, const Value &in, const Value &, bool &out) {
  if (!r.needHashable(in)) return false;
  out = in.is(Kind::string) && findTest(in.text()) >= 0;
  return true;
}

const TestEntry tests[] = {
    {"defined", 0, definedTest},
    {"undefined", 0, kindTest<Kind::undefined>},
    {"none", 0, kindTest<Kind::none>},
    {"string", 0, kindTest<Kind::string>},
    {"mapping", 0, kindTest<Kind::dict>},
    {"boolean", 0, kindTest<Kind::boolean>},
    {"integer", 0, kindTest<Kind::integer>},
    {"float", 0, kindTest<Kind::real>},
    {"number", 0, numberTest},
    {"sequence", 0, sequenceTest},
    {"iterable", 0, iterableTest},
    {"callable", 0, callableTest},
    {"true", 0, constantTest<1>},
    {"false", 0, constantTest<0>},
    {"odd", 0, oddTest},
    {"even", 0, evenTest},
    {"divisibleby", 1, divisibleTest},
    {"sameas", 1, sameTest},
    {"escaped", 0, escapedTest},
    {"upper", 0, upperTest},
    {"lower", 0, lowerTest},
    {"filter", 0, filterTest},
    {"test", 0, testTest},
    {"in", 1, compareTest<Op::in>},
    {"eq", 1, compareTest<Op::eq>},
    {"equalto", 1, compareTest<Op::eq>},
    {"==", 1, compareTest<Op::eq>},
    {"ne", 1, compareTest<Op::ne>},
    {"!=", 1, compareTest<Op::ne>},
    {"lt", 1, compareTest<Op::lt>},
    {"lessthan", 1, compareTest<Op::lt>},
    {"<", 1, compareTest<Op::lt>},
    {"le", 1, compareTest<Op::le>},
    {"<=", 1, compareTest<Op::le>},
    {"gt", 1, compareTest<Op::gt>},
    {"greaterthan", 1, compareTest<Op::gt>},
    {">", 1, compareTest<Op::gt>},
    {"ge", 1, compareTest<Op::ge>},
    {">=", 1, compareTest<Op::ge>},
};

} // namespace

int findTest(std::string_view name) {
  for (size_t i = 0; i < std::size(tests); ++i)
    if (name == tests[i].name) return static_cast<int>(i);
  return -1;
}

bool Renderer::applyTest(int id, const Value &in, Args &args, bool &out) {
  const TestEntry &test = tests[id];
  if (!args.keyword.empty() || args.positional.size() != static_cast<size_t>(test.arguments))
    return fail("test '%s' takes %d arguments, found %zu", test.name, test.arguments, args.size());
  return test.apply(*this, in, test.arguments ? args.positional[0] : Value(), out);
}

} // namespace lathe::jinja
