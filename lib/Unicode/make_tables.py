#!/usr/bin/env python3
# Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
"""Writes Tables.inc, the Unicode data of lib/Unicode.

Needs two packages from PyPI, nothing else:  pip install unicodedata2==16.0.0 regex
Version 16 is what the regular expressions of the `tokenizers` library (0.23) have, code point for code point.
"""
import os
import unicodedata

import regex
import unicodedata2 as ud

assert ud.unidata_version == "16.0.0", ud.unidata_version

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co").split()
SCRIPTS = ("Han Hiragana Katakana Hangul Latin Cyrillic Greek Arabic Hebrew Thai Lao Khmer Myanmar Devanagari "
           "Bengali Tamil").split()
LIMIT = 0x110000
SURROGATES = range(0xD800, 0xE000)


def category_ranges():
    out, last = [], None
    for cp in range(LIMIT):
        cat = CATEGORIES.index(ud.category(chr(cp)))
        if cat != last:
            out.append((cp, cat))
            last = cat
    return out


def script_ranges():
    # `regex` may be newer than 16.0: only characters assigned there count.
    out = []
    for index, script in enumerate(SCRIPTS):
        pattern = regex.compile(r"\p{Script=%s}" % script)
        start = None
        for cp in range(LIMIT + 1):
            inside = (cp < LIMIT and cp not in SURROGATES and pattern.match(chr(cp)) is not None
                      and ud.category(chr(cp)) != "Cn")
            if inside and start is None:
                start = cp
            elif not inside and start is not None:
                out.append((start, cp - 1, index))
                start = None
    return out


def lower_one(cp):
    """Lower case of one code point as a string; python's own tables, plus the pairs added since."""
    c = chr(cp)
    low = c.lower() if c != "\u03a3" else "\u03c3"
    if low == c and ud.category(c) == "Lu" and unicodedata.category(c) == "Cn":  # newer than python's tables
        try:
            low = ud.lookup(ud.name(c).replace("CAPITAL", "SMALL"))
        except (KeyError, ValueError):
            pass
        # names that do not follow the rule
        low = {0xA7CB: "\u0264", 0xA7DC: "\u019b", 0xA7C5: "\u0282", 0xA7C6: "\u1d8e"}.get(cp, low)
        if low != c and ud.category(low) != "Ll":
            low = c
    return low


def lower_pairs():
    singles, multi = [], []
    for cp in range(LIMIT):
        if cp in SURROGATES:
            continue
        low = lower_one(cp)
        if low == chr(cp):
            continue
        if len(low) == 1:
            singles.append((cp, ord(low)))
        else:
            multi.append((cp, [ord(x) for x in low]))
    return singles, multi


def fold_pairs(singles):
    """Simple case folding: pairs (cp, representative) of everything that is equal but for case."""
    lower = dict(singles)
    out = []
    for cp in range(LIMIT):
        if cp in SURROGATES:
            continue
        folded = chr(cp).casefold()
        rep = ord(folded) if len(folded) == 1 else lower.get(cp, cp)
        if rep == cp:
            rep = lower.get(cp, cp)
            rep = lower.get(rep, rep)
        if rep != cp:
            out.append((cp, rep))
    return out


def decompositions():
    """(cp, compat, code points) of single steps, Hangul excluded (it is arithmetic)."""
    out = []
    for cp in range(LIMIT):
        if cp in SURROGATES or 0xAC00 <= cp <= 0xD7A3:
            continue
        text = ud.decomposition(chr(cp))
        if not text:
            continue
        parts = text.split()
        compat = parts[0].startswith("<")
        out.append((cp, compat, [int(x, 16) for x in (parts[1:] if compat else parts)]))
    return out


def combining_classes():
    out, last = [], 0
    for cp in range(LIMIT):
        ccc = 0 if cp in SURROGATES else ud.combining(chr(cp))
        if ccc != last:
            out.append((cp, ccc))
            last = ccc
    return out


def compositions(decomps):
    out = []
    for cp, compat, parts in decomps:
        if compat or len(parts) != 2:
            continue
        a, b = parts
        if ud.normalize("NFC", chr(a) + chr(b)) == chr(cp):  # leaves out the exclusions
            out.append((a, b, cp))
    return sorted(out)


def table(f, kind, name, values, per_line):
    f.write(f"static const {kind} {name}[] = {{\n")
    for i in range(0, len(values), per_line):
        f.write("".join("%s," % v for v in values[i:i + per_line]) + "\n")
    f.write("};\n\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    decomps = decompositions()
    singles, multi = lower_pairs()
    with open(os.path.join(here, "Tables.inc"), "w") as f:
        f.write("// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.\n")
        f.write("// Unicode %s data. Written by make_tables.py; do not edit.\n// clang-format off\n\n" % ud.unidata_version)
        f.write("// first code point << 8 | category, up to the next entry\n")
        table(f, "uint32_t", "categoryRanges", ["0x%x" % (cp << 8 | cat) for cp, cat in category_ranges()], 16)
        f.write("// first, last, script\n")
        table(f, "ScriptRange", "scriptRanges", ["{0x%x,0x%x,%d}" % r for r in script_ranges()], 8)
        f.write("static const char *const scriptNames[] = {%s};\n\n" % ", ".join('"%s"' % s for s in SCRIPTS))
        f.write("// first code point << 8 | canonical combining class, up to the next entry\n")
        table(f, "uint32_t", "combiningRanges", ["0x%x" % (cp << 8 | c) for cp, c in combining_classes()], 16)
        f.write("// code point, lower case\n")
        table(f, "CodePair", "lowerPairs", ["{0x%x,0x%x}" % p for p in singles], 10)
        f.write("static const LowerLong lowerLong[] = {%s};\n\n" %
                ",".join("{0x%x,{%s}}" % (cp, ",".join("0x%x" % x for x in (low + [0, 0, 0])[:3])) for cp, low in multi))
        f.write("// code point, representative of its case-folding class\n")
        table(f, "CodePair", "foldPairs", ["{0x%x,0x%x}" % p for p in fold_pairs(singles)], 10)
        f.write("// one step of decomposition: code point << 1 | compatibility, count, code points...\n")
        flat = []
        for cp, compat, parts in decomps:
            flat += ["0x%x" % (cp << 1 | compat), str(len(parts))] + ["0x%x" % p for p in parts]
        table(f, "uint32_t", "decompositions", flat, 20)
        f.write("// canonical compositions: first, second, composed\n")
        table(f, "Composition", "compositions", ["{0x%x,0x%x,0x%x}" % c for c in compositions(decomps)], 8)
        f.write("// clang-format on\n")


main()
