#!/usr/bin/env python3
"""Writes UnicodeTables.inc: what Python's str methods know about characters.

Run with any CPython; the tables carry its Unicode version:
    python3 make_unicode_tables.py > UnicodeTables.inc
Ranges are {first, last}. Case maps are runs {first, last, step, delta}: every step-th character from
first to last maps to itself plus delta. Characters that map to several are listed apart.
"""
import unicodedata

CHARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def emit_ranges(name, predicate):
    ranges, start = [], None
    for c in range(0x110001):
        hit = c < 0x110000 and not 0xD800 <= c < 0xE000 and predicate(chr(c))
        if hit and start is None:
            start = c
        if not hit and start is not None:
            ranges.append((start, c - 1))
            start = None
    emit(f"const Range {name}[]", [f"{{{a:#x},{b:#x}}}" for a, b in ranges])


def emit_map(name, function):
    single, several = [], []
    for c in CHARS:
        to = function(chr(c))
        if len(to) > 1:
            several.append((c, to))
        elif to != chr(c):
            single.append((c, ord(to) - c))
    runs = []
    for c, delta in single:
        if runs and runs[-1][3] == delta:
            first, last, step, _ = runs[-1]
            gap = c - last
            if gap <= 2 and step in (0, gap):
                runs[-1] = (first, c, gap, delta)
                continue
        runs.append((c, c, 0, delta))
    emit(f"const CaseRun {name}Runs[]", [f"{{{a:#x},{b:#x},{s or 1},{d}}}" for a, b, s, d in runs])
    emit(f"const CaseSpecial {name}Specials[]",
         [f"{{{c:#x},{{{','.join(hex(ord(x)) for x in to)}}}}}" for c, to in several])


def emit(declaration, items):
    print(declaration + " = {")
    line = " "
    for item in items:
        if len(line) + len(item) > 116:
            print(line)
            line = " "
        line += item + ","
    print(line + "\n};")


def case_ignorable(c):
    return not (c.isupper() or c.islower() or c.istitle()) and ("A\u03a3" + c + "A").lower()[1] == "\u03c3"


print(f"// Made by make_unicode_tables.py from Unicode {unicodedata.unidata_version}; do not edit.")
print("// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.")
for name in ("printable", "alnum", "alpha", "upper", "lower", "decimal", "digit", "numeric"):
    emit_ranges(name, getattr(str, "is" + name))
emit_ranges("titled", lambda c: unicodedata.category(c) == "Lt")
emit_ranges("ignorable", case_ignorable)
emit_ranges("identifier", lambda c: ("a" + c).isidentifier())
emit_ranges("identifierStart", str.isidentifier)
emit_map("toUpper", str.upper)
emit_map("toLower", str.lower)
emit_map("toTitle", str.title)
emit_map("toFold", lambda c: c.casefold() if c.casefold() != c.lower() else c)
