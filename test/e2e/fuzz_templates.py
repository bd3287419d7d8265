#!/usr/bin/env python3
"""Compares Lathe with Jinja2 on random templates: grammar-made, seeded, so a seed names its templates.

Python's text for functions and generators holds an address; templates whose output shows one are
skipped. Integers beyond 64 bits and what docs/chat-templates.md lists as left out are Lathe's own
errors (codes "unsupported" and "limit"), which do not count as differences.

With --mutate the templates are real ones (see check_templates.py) with a few random edits.

usage: fuzz_templates.py [--seed N] [--count N] [--mutate] [--renderer build/bin/lathe-render-template]
"""
import argparse
import os
import random
import re
import sys
import warnings

import check_templates
import oracle

CONTEXT = {
    "n": 7, "z": 0, "neg": -3, "f": 2.5, "g": -0.125, "t": True, "e": "", "nul": None,
    "s": "hello World", "u": "Grüße, ÄÖ 🙂 x\n y", "num": " 42 ", "csv": "a,b,,c", "html": "<b>\"x\" & 'y'</b>",
    "d": {"b": 1, "A": 2, "c": [1, 2], "items": 9, "k": None}, "l": [3, 1, 2, 2], "ll": [[1, "a"], [2, "b"]],
    "m": [{"role": "user", "content": "Hi", "x": {"y": 2}}, {"role": "tool", "content": None},
          {"role": "assistant", "content": "  yo\n", "tool_calls": [{"function": {"name": "f", "arguments": {"q": "1"}}}]}],
    "mix": [1, "a", None, 2.5, True, [], {}],
}
NAMES = list(CONTEXT) + ["missing", "v", "w", "ns"]
STRINGS = ["", "a", "b", " x ", "Hello", "ä🙂", "l", "o", "1", "2.5", "\\n", "%s-%s", "{} {}", "role", "content", ",", "<i>"]
UNARY_FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "string", "int", "float",
                 "abs", "round", "sort", "reverse|list", "unique|list", "sum", "min", "max", "tojson", "items|list", "dictsort", "e",
                 "escape", "safe", "striptags", "wordcount", "count", "join", "urlencode", "default", "forceescape", "indent",
                 "filesizeformat", "center"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "split()", "swapcase()", "splitlines()",
           "isdigit()", "isalpha()", "isspace()", "isupper()", "islower()", "istitle()", "isalnum()", "items()", "keys()", "values()",
           "copy()", "isidentifier()", "isprintable()", "isascii()", "casefold()", "expandtabs()", "bit_length()", "is_integer()"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "boolean", "integer", "float", "number", "sequence", "iterable",
         "true", "false", "odd", "even", "escaped", "upper", "lower", "callable"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.macros = []

    def pick(self, *options):
        return self.rng.choice(options)

    def string(self):
        quote = self.pick("'", '"')
        return quote + self.rng.choice(STRINGS) + quote

    def atom(self):
        r = self.rng.random()
        if r < 0.45:
            return self.rng.choice(NAMES)
        if r < 0.6:
            return self.string()
        if r < 0.75:
            return self.pick("0", "1", "2", "3", "-1", "10", "1.5", "0.1", "-2.5", "1e3", "100", "255", "1e16", "1e-5")
        return self.pick("true", "false", "none", "[]", "{}", "()", "(1,)", "'x'", "range(4)", "[1,2,3]", "{'a': 1}", "loop.index",
                         "loop.last", "d", "m[0]", "m")

    def expr(self, depth=3):
        """Mostly one that works in the context, or nearly all templates would fail."""
        for _ in range(6 if self.rng.random() < 0.95 else 1):
            text = self.raw_expr(depth)
            if oracle.render("{{ " + text + " }}", CONTEXT, check_templates.NOW)[0] is not None:
                break
        return text

    def raw_expr(self, depth):
        if depth <= 0:
            return self.atom()
        e = lambda: self.raw_expr(depth - 1 - self.rng.randrange(2))  # noqa: E731
        kind = self.rng.randrange(24)
        if kind < 3:
            return self.atom()
        if kind == 3:
            return f"({e()} {self.pick('+', '-', '*', '/', '//', '%', '+', '+')} {e()})"
        if kind == 4:
            return f"{e()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {e()}"
        if kind == 5:
            return f"({e()} {self.pick('and', 'or')} {e()})"
        if kind == 6:
            return f"({e()} ~ {e()})"
        if kind == 7:
            return f"{self.pick('not ', '-', '+')}({e()})"
        if kind == 8:
            return f"({e()} if {e()}" + (f" else {e()})" if self.rng.random() < 0.8 else ")")
        if kind == 9:
            return f"({e()}){self.pick('.role', '.content', '.b', '.a', '.x', '.items', '.0', '.function')}"
        if kind == 10:
            return f"({e()})[{self.pick(e(), self.string(), '0', '-1', '1')}]"
        if kind == 11:
            # not of a constant: folded when Jinja2 compiles, a slice that fails is undefined
            return f"({self.rng.choice(NAMES)})[{self.pick('', '1', '-2', '0', e())}:{self.pick('', '2', '-1', '5')}{self.pick('', ':', ':2', ':-1')}]"
        if kind in (12, 13, 14):
            return f"({e()})|{self.rng.choice(UNARY_FILTERS)}"
        if kind == 15:
            return f"({e()})|" + self.filter_call(e)
        if kind == 16:
            return f"({e()}) is {self.pick('', 'not ')}{self.rng.choice(TESTS)}"
        if kind == 17:
            return f"({e()}) is {self.pick('eq', 'ne', 'gt', 'lt', 'in', 'divisibleby', '==', 'ge')}({e()})".replace("is ==", "is eq")
        if kind == 18:
            return f"({e()}).{self.rng.choice(METHODS)}"
        if kind == 19:
            return f"({e()})." + self.method_call(e)
        if kind == 20:
            return "[" + ", ".join(e() for _ in range(self.rng.randrange(4))) + "]"
        if kind == 21:
            return "{" + ", ".join(f"{self.pick(self.string(), '1', 'none', 'true')}: {e()}" for _ in range(self.rng.randrange(3))) + "}"
        if kind == 22:
            return "(" + ", ".join(e() for _ in range(self.rng.randrange(3))) + ",)"
        if self.macros and self.rng.random() < 0.7:
            return f"{self.rng.choice(self.macros)}({', '.join(e() for _ in range(self.rng.randrange(3)))})"
        return self.pick(f"range({e()})", f"dict(a={e()})", f"namespace(a={e()})", "strftime_now('%d %b')", f"[{e()}] + [{e()}]")

    def filter_call(self, e):
        s = self.string
        return self.pick(
            f"join({s()})", f"default({e()})", f"default({e()}, true)", f"replace({s()}, {s()})", f"replace({s()}, {e()}, 1)",
            f"map('{self.pick('upper', 'string', 'length', 'first', 'int', 'trim')}')|list", f"map(attribute={s()})|list",
            "map(attribute='role', default='?')|list", f"select('{self.pick('odd', 'string', 'defined', 'none')}')|list",
            f"reject('{self.pick('eq', 'in')}', {e()})|list", "selectattr('role')|list", "selectattr('role', 'eq', 'user')|list",
            "rejectattr('x')|list", "rejectattr('x.y', 'defined')|list", f"batch({self.pick('2', '3')}, {e()})|list",
            f"slice({self.pick('2', '3')})|list", f"round({self.pick('0', '1', '2', '-1')})",
            f"round(1, {self.pick(chr(39) + 'ceil' + chr(39), chr(39) + 'floor' + chr(39))})", f"int({e()})", f"int(base={self.pick('16', '2', '0', '8')})",
            f"float({e()})", f"sort(reverse={self.pick('true', 'false')})", "sort(attribute='role')", "sort(case_sensitive=true)",
            f"tojson(indent={self.pick('2', '0', '4', chr(39) + chr(45) + chr(39))})", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)",
            "tojson(separators=(',', ':'))", f"indent({self.pick('2', '0', e())}, {self.pick('true', 'false')})", f"trim({s()})",
            f"truncate({self.pick('5', '3', '20')}, {self.pick('true', 'false')}, {s()}, 0)", f"center({self.pick('9', '20', '0')})", f"format({e()}, {e()})",
            f"format({e()})", "dictsort(true)", "dictsort(by='value')", "groupby('role')", "unique(attribute='role')|list", "unique(true)|list",
            f"sum(start={e()})", "sum(attribute='b')", "min(attribute='role')", f"attr({s()})", f"first|{self.pick('upper', 'list', 'string')}",
            "max(case_sensitive=true)", f"items|{self.pick('list', 'first', 'length')}", f"join({s()}, 'role')")

    def method_call(self, e):
        s = self.string
        return self.pick(
            f"split({s()})", f"split({s()}, 1)", f"rsplit({s()}, 1)", f"replace({s()}, {s()})", f"replace({s()}, {s()}, 1)",
            f"startswith({s()})", f"endswith({s()})", f"startswith(({s()}, {s()}))", f"find({s()})", f"rfind({s()})", f"count({s()})", f"index({s()})",
            f"join({e()})", f"strip({s()})", f"lstrip({s()})", f"rstrip({s()})", f"partition({s()})", f"rpartition({s()})", f"get({e()})",
            f"get({s()}, {e()})", f"center({self.pick('8', '9', '3')}, {s()})", f"ljust({self.pick('8', '3')})", f"rjust({self.pick('8', '3')}, '*')", f"zfill({self.pick('6', '2')})",
            f"removeprefix({s()})", f"removesuffix({s()})", f"format({e()}, {e()})", f"append({e()})", "pop()", f"index({e()})", f"count({e()})",
            "splitlines(true)", f"find({s()}, {self.pick('1', '-3')}, {self.pick('4', '-1')})", f"startswith({s()}, {self.pick('1', '-1')})", f"__class__", "rsplit()", "split(none, 1)")

    def formats(self):
        spec = self.pick("", "5", "<5", ">6", "^7", "*^9", "05", "+", " ", "x", "#x", "b", "o", "X", "d", ".2f", "8.3f", "e", ".3e", "g", ",", "_", "%", ".1%", "s",
                         ".2", "10.2", "=+6", "n", "c", ",.2f")
        form = self.pick("s", "r", "d", "5d", "-5d|", "05d", "+d", "x", "X", "#x", "o", "i", "f", ".2f", "8.3f", "e", "g", ".3g", "c", "5s", "-5s|", ".1s", "%", "a", " d", "+.1e", "G")
        return self.pick(f"'{{:{spec}}}'.format({self.expr(1)})", f"'%{form}' % {self.pick('(' + self.expr(1) + ',)', self.expr(1))}",
                         f"'{{0}}{{1!r:>8}}'.format({self.expr(1)}, {self.expr(1)})", f"'%(b)s %(A){form}' % d", f"'{{a[b]}} {{a.A}}'.format(a=d)")

    def body(self, depth):
        return "".join(self.stmt(depth) for _ in range(self.rng.randrange(1, 4)))

    def tag(self, text):
        return self.pick("{%", "{%", "{%", "{%-", "{%+") + " " + text + " " + self.pick("%}", "%}", "%}", "-%}", "+%}")

    def stmt(self, depth=3):
        r = self.rng
        kind = r.randrange(20) if depth > 0 else r.randrange(6)
        if kind < 4:
            inner = self.formats() if r.random() < 0.08 else self.expr(3)
            return self.pick("{{ ", "{{- ") + inner + self.pick(" }}", " -}}") if r.random() < 0.3 else "{{ " + inner + " }}"
        if kind < 6:
            return self.pick("a", " ", "\n", "  \n  ", "b\n", "\t", "text ", "\r\n", "{# c #}", "{#- c -#}", "{% raw %}{{ x }}{% endraw %}")
        if kind < 9:
            out = self.tag("if " + self.expr(2)) + self.body(depth - 1)
            if r.random() < 0.3:
                out += self.tag("elif " + self.expr(2)) + self.body(depth - 1)
            if r.random() < 0.5:
                out += self.tag("else") + self.body(depth - 1)
            return out + self.tag("endif")
        if kind < 12:
            target = self.pick("v", "w", "x", "v, w")
            over = self.pick("l", "m", "s", "d", "ll", "range(3)", "d.items()", "d|items", "l|reverse", self.expr(2))
            recursive = r.random() < 0.08
            out = self.tag(f"for {target} in {over}" + (f" if {self.expr(1)}" if r.random() < 0.25 else "") + (" recursive" if recursive else ""))
            out += self.body(depth - 1)
            if recursive:
                out += "{{ loop([]) }}"
            if r.random() < 0.4:
                out += "{{ loop." + self.pick("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth",
                                              "cycle('p', 'q')", f"changed({self.expr(1)})") + " }}"
            if r.random() < 0.15:
                out += self.tag("if " + self.expr(1)) + self.tag(self.pick("break", "continue")) + self.tag("endif")
            out += self.body(depth - 1)
            if r.random() < 0.25:
                out += self.tag("else") + self.body(depth - 1)
            return out + self.tag("endfor")
        if kind < 15:
            name = self.pick("v", "w", "n", "s", "x", "v, w", "ns.a", "l")
            if r.random() < 0.2:
                return self.tag("set " + name + self.pick("", " | upper", " | trim | length")) + self.body(depth - 1) + self.tag("endset")
            if r.random() < 0.2:
                return self.tag(f"set ns = namespace(a={self.expr(1)})")
            return self.tag(f"set {name} = {self.expr(2)}")
        if kind == 15:
            name = self.pick("f1", "f2")
            args = self.pick("", "a", "a, b=2", "a=n, b=a", "v, w")
            out = self.tag(f"macro {name}({args})") + self.body(depth - 1) + self.pick("", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller }}", "{{ a }}{{ b }}")
            out += self.tag("endmacro")
            self.macros.append(name)
            return out
        if kind == 16 and self.macros:
            return self.tag(f"call {self.pick('', '(v) ')}{r.choice(self.macros)}({self.expr(1)})") + self.body(depth - 1) + self.tag("endcall")
        if kind == 17:
            return self.tag("filter " + self.pick("upper", "trim", "replace('a', 'b')", "length", "trim | title")) + self.body(depth - 1) + self.tag("endfilter")
        if kind == 18:
            return self.tag(f"with v = {self.expr(1)}, x = {self.expr(1)}") + self.body(depth - 1) + self.tag("endwith")
        return self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration")

    def template(self):
        if self.rng.random() < 0.4:
            return "{{ " + (self.formats() if self.rng.random() < 0.2 else self.expr(4)) + " }}"
        return "".join(self.stmt() for _ in range(self.rng.randrange(1, 5)))


SNIPPETS = ["{%", "%}", "{{", "}}", "{#", "#}", "-", "+", "\n", " ", "  \n  ", "if ", "else", "endif", "endfor", "for x in ", "set x = ", "not ",
            " and ", " or ", "|", "|trim", "|length", "is defined", "(", ")", "[", "]", "{", "}", ",", ".", ":", "'", '"', "\\", "~", "*", "loop",
            "none", "messages", "0", "1", "=", "==", "{% raw %}", "{% endraw %}", "{%- break %}", "recursive", "in"]


def mutate(rng, text):
    for _ in range(rng.choice([1, 1, 1, 2])):
        at, size = rng.randrange(len(text) + 1), rng.choice([1, 1, 2, 3, 8, 40])
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + text[at + size:]
        elif kind == 1:
            text = text[:at] + rng.choice(SNIPPETS) + text[at:]
        elif kind == 2:
            text = text[:at] + rng.choice(SNIPPETS) + text[at + size:]
        else:
            source = rng.randrange(len(text) + 1)
            text = text[:at] + text[source:source + size] + text[at:]
    return text


ADDRESS = re.compile(r"0x[0-9a-f]{8}|<function|<class|<built-in|<bound|&lt;generator|<generator", re.IGNORECASE)
UNSUPPORTED, EXHAUSTED = 3, 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--renderer", default=os.path.join(check_templates.ROOT, "build/bin/lathe-render-template"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--mutate", action="store_true")
    args = parser.parse_args()
    if args.mutate:
        sources = [open(path, encoding="utf-8", newline="").read() for path in check_templates.find_templates()]
        chats = [context for _, context in check_templates.contexts()]
    warnings.filterwarnings("ignore", category=SyntaxWarning)
    renderer = check_templates.Renderer(args.renderer)
    counts = {"equal": 0, "both fail": 0, "own limit": 0, "address": 0, "differ": 0}
    for i in range(args.count):
        rng = random.Random(args.seed * 1000003 + i)
        if args.mutate:
            template, context = mutate(rng, rng.choice(sources)), rng.choice(chats)
        else:
            template, context = Maker(rng).template(), CONTEXT
        text, kind, message = oracle.render(template, context, check_templates.NOW)
        ours = renderer(template, context)
        if text is not None and ours.get("text") == text:
            counts["equal"] += 1
        elif text is not None and ADDRESS.search(text):
            counts["address"] += 1
        elif ours.get("code") in (UNSUPPORTED, EXHAUSTED):
            counts["own limit"] += 1
        elif text is None and "text" not in ours:
            counts["both fail"] += 1
        else:
            counts["differ"] += 1
            if counts["differ"] <= args.show:
                print(f"--- {i}\n{template!r}\nexpected {text!r} {message or ''}\nfound    {ours}", flush=True)
    print(", ".join(f"{v} {k}" for k, v in counts.items()))
    return 1 if counts["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
