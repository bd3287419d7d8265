#!/usr/bin/env python3
"""Checks rules of the tree that no compiler checks. Prints every violation as FILE:LINE: message; exit status 1 if any.

  ops          every op has a summary and a description; every op of the llm dialect an example (its own or a reference)
  passes       every pass has a summary, a description with Before and After, a statistic if it changes anything, a lit test
  layers       runtime/ includes nothing of the compiler and names no model family; lib/ and dialects/ include nothing of runtime/
  diagnostics  every message of lib/ and dialects/ occurs in a test
  files        length limit, licence line, no path of a machine

usage: check_tree.py [--root DIR] [CHECK...]
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = {'.cpp', '.h', '.c', '.td'}
MAX_LINES = 800
# Longer by nature: tables that a script wrote, or one emitter family.
LONG_FILES = {}
# Words that would tie the runtime to a model. Tokenizers and chat templates have the names of formats.
FAMILIES = re.compile(r'\b(llama|qwen|gemma|mistral|mixtral|phi3|smollm|falcon|gptneox|swiglu|geglu|rms_?norm|rope)\b', re.I)
FAMILY_EXEMPT = {'tokenizer', 'template', 'text'}

problems = []


def problem(path, line, text):
    problems.append(f'{path.relative_to(ROOT)}:{line}: {text}')


def files(*folders, suffixes=SOURCES):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob('*')):
            if path.suffix in suffixes and path.is_file():
                yield path


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


def records(path, pattern):
    """(match, body) of every TableGen record whose first line matches."""
    text = path.read_text()
    heads = list(re.finditer(pattern, text, re.M))
    for head, following in zip(heads, heads[1:] + [None]):
        yield text, head, text[head.end():following.start() if following else len(text)]


def check_ops():
    for path in files('dialects', suffixes={'.td'}):
        for text, head, body in records(path, r'^def (\w+)Op : \w+<"([\w.]+)"'):
            where = line_of(text, head.start())
            if not re.search(r'let summary = "\S', body):
                problem(path, where, f'op {head[2]} has no summary')
            if not re.search(r'let description = ', body):
                problem(path, where, f'op {head[2]} has no description')
            elif path.parent.name == 'LLM' and not re.search(r'```mlir|Example: see `llm\.', body):
                problem(path, where, f'op {head[2]} has no example')


def check_passes():
    runs = '\n'.join(line for path in files('test/lit', suffixes={'.mlir', '.test'})
                     for line in path.read_text().splitlines() if 'RUN:' in line)
    for path in files('include/lathe', suffixes={'.td'}):
        for text, head, body in records(path, r'^def \w+Pass : \w+<"([\w-]+)"'):
            name, where = head[1], line_of(text, head.start())
            if not re.search(r'let summary = "\S', body):
                problem(path, where, f'pass {name} has no summary')
            description = re.search(r'let description = \[\{(.*?)\}\]', body, re.S)
            if not description:
                problem(path, where, f'pass {name} has no description')
            elif not re.search(r'Before', description[1]) or not re.search(r'[Aa]fter', description[1]):
                problem(path, where, f'pass {name}: its description has no before and after')
            if path.parent.name == 'Transforms' and 'Statistic<' not in body:
                problem(path, where, f'pass {name} has no statistics')
            if not re.search(rf'(?:^|[\s{{(,"\'=]|\s--?){re.escape(name)}(?![\w-])', runs):
                problem(path, where, f'pass {name} is in no RUN line of test/lit')


def check_layers():
    for path in files('runtime'):
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            include = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if include and re.match(r'(mlir|llvm|dialects|lib)/|lathe/(?!base/|artifact/)', include[1]):
                problem(path, number, f'the runtime includes {include[1]}')
            if path.relative_to(ROOT / 'runtime').parts[0] not in FAMILY_EXEMPT and FAMILIES.search(line):
                problem(path, number, f"the runtime names '{FAMILIES.search(line)[0]}'")
    for path in files('lib', 'dialects', 'include/lathe'):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.match(r'\s*#\s*include\s+"runtime/', line):
                problem(path, number, 'the compiler includes the runtime')


# What follows the call up to the end of the statement holds the message's literals.
CALLS = re.compile(r'\b(?:emitOpError|emitError|makeError|emitWarning|missed|fail)\s*\(')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
SPECIFIER = re.compile(r'%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]|%"|\{\d+[^}]*\}')


def messages(text):
    """(offset, longest constant piece) of every message of a C++ file."""
    for call in CALLS.finditer(text):
        end = text.find(';', call.end())
        # A literal may hold a semicolon.
        while end >= 0 and text.count('"', call.end(), end) - text.count('\\"', call.end(), end) & 1:
            end = text.find(';', end + 1)
        statement = re.sub(r'"\s*PRI\w+\s*"', 'd', text[call.end():end if end >= 0 else len(text)])
        statement = re.sub(r'"\s*PRI\w+', 'd"', statement)
        pieces = []
        for literal in LITERAL.finditer(statement):
            value = literal[1].replace('\\"', '"').replace('\\n', ' ')
            pieces += [piece.strip(" ',:;") for piece in SPECIFIER.split(value)]
        # A conditional chooses between whole messages: every long piece counts as one.
        pieces = [piece for piece in pieces if len(piece) >= 12 and ' ' in piece]
        if pieces:
            yield call.start(), max(pieces, key=len)


UNTESTED = 'scripts/untested-messages.txt'


def check_diagnostics():
    # Known gaps, to be closed: "FILE: message" a line. A line that is no gap any more has to go.
    known = set(filter(None, (ROOT / UNTESTED).read_text().splitlines())) if (ROOT / UNTESTED).exists() else set()
    found = set()
    tests = '\n'.join(path.read_text(errors='replace') for path in
                      files('test', suffixes={'.mlir', '.test', '.cpp', '.h', '.py', '.txt'}))
    tests = re.sub(r'\s+', ' ', tests.replace('\\"', '"').replace('""', '').replace('" "', ''))
    for path in files('lib', 'dialects', suffixes={'.cpp', '.h'}):
        text = path.read_text()
        for offset, piece in messages(text):
            if re.sub(r'\s+', ' ', piece) in tests:
                continue
            entry = f'{path.relative_to(ROOT)}: {piece}'
            found.add(entry)
            if entry not in known:
                problem(path, line_of(text, offset), f"no test expects '{piece}'")
    for entry in sorted(known - found):
        problem(ROOT / UNTESTED, 1, f"a test expects it or it is gone: '{entry}'")


def check_files():
    for path in files('dialects', 'include', 'lib', 'runtime', 'tools', 'test'):
        text = path.read_text(errors='replace')
        lines = text.count('\n')
        name = str(path.relative_to(ROOT))
        if lines > LONG_FILES.get(name, MAX_LINES) and not re.search(r'^// (Generated|Written) by', text, re.M):
            problem(path, lines, f'{lines} lines; the limit is {LONG_FILES.get(name, MAX_LINES)}')
        if not name.startswith('test/') and 'Licensed under Apache-2.0 WITH LLVM-exception' not in text[:400]:
            problem(path, 1, 'no licence line')
    for path in files('dialects', 'include', 'lib', 'runtime', 'tools', 'test', 'docs', 'scripts', 'bench', 'examples',
                      suffixes=SOURCES | {'.md', '.py', '.sh', '.txt', '.mlir', '.test', '.cmake'}):
        for number, line in enumerate(path.read_text(errors='replace').splitlines(), 1):
            if re.search(r'(?<![\w.])/(?:work|home|root)/\w', line):
                problem(path, number, 'a path of one machine')


CHECKS = {name[6:]: check for name, check in list(globals().items()) if name.startswith('check_')}


def main():
    global ROOT
    parser = argparse.ArgumentParser(description='checks rules of the tree')
    parser.add_argument('--root', type=pathlib.Path, default=ROOT)
    parser.add_argument('checks', nargs='*', choices=[[], *CHECKS], default=[])
    arguments = parser.parse_args()
    ROOT = arguments.root.resolve()
    for name in arguments.checks or CHECKS:
        CHECKS[name]()
    for text in problems:
        print(text)
    if problems:
        sys.exit(f'{len(problems)} problems')


if __name__ == '__main__':
    main()
