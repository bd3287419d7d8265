#!/usr/bin/env python3
"""docs/serving.md against what it describes, both ways: the flags of `lathe serve --help` and the defaults that both state,
the status and code of every error in the server's sources, and the fields that it reads. usage: flags.py LATHE"""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[3]
page = (root / "docs" / "serving.md").read_text()
table = page.split("## Flags and limits")[1].split("\n## ")[0]
help_text = subprocess.run([sys.argv[1], "serve", "--help"], capture_output=True, text=True, check=True).stdout
# An entry is "  --name VALUE   what it is", which may go on in the lines below.
helped = {}
for line in help_text.splitlines():
    entry = re.match(r"\s+(--[a-z][a-z-]*)(?: \S+)?\s{2,}(.*)$", line) or re.match(r"\s+(--[a-z][a-z-]*)(?: \S+)?()$", line)
    if entry:
        name = entry[1]
        helped[name] = entry[2]
    elif helped and re.match(r"\s{6,}\S", line):
        helped[name] += " " + line.strip()
assert len(helped) > 40, help_text
documented = {}
for row in re.findall(r"^\| (`--.*)$", table, re.M):
    names, default = row.split("|")[:2]
    for flag in re.findall(r"--[a-z][a-z-]*", names):
        documented[flag] = default.strip()
    flags, defaults = re.findall(r"--[a-z][a-z-]*", names), [part.strip() for part in default.split(",")]
    if len(flags) == len(defaults):  # one for each
        documented.update(zip(flags, defaults))
wrong = [f"{flag} is not in docs/serving.md" for flag in helped if flag not in documented and flag != "--help"]
wrong += [f"{flag} is in docs/serving.md only" for flag in documented if flag not in helped]
compared = 0
for flag, text in helped.items():
    stated = re.search(r"\(default: ([^()]*)\)", text)
    if not stated or flag not in documented:
        continue
    help_value, page_value = (re.match(r"^[\w.]+(?=$|[:;,])", value.strip()) for value in (stated[1], documented[flag]))
    if help_value and page_value:
        compared += 1
        if help_value[0] != page_value[0]:
            wrong.append(f"{flag}: the help says {stated[1]}, docs/serving.md says {documented[flag]}")
assert compared >= 25, compared

errors = set()  # (status, code)
for path in (root / "runtime" / "server").glob("*.cpp"):
    source = path.read_text()
    for status, arguments in re.findall(r'\b(?:error|simpleError)\((\d{3}), (?=([^;]*))', source):
        code = next((word for word in re.findall(r'"([^"]*)"', arguments) if not word.endswith("_error") or word == "internal_error"), "")
        errors.add((status, code))
    # A member of an ApiError that is filled by hand; without a status of its own it has the default, 400.
    for line in source.splitlines():
        code = re.search(r'(?:\.|->)code = "(\w+)"', line)
        if code:
            status = re.search(r"(?:\.|->)status = (\d{3})", line)
            errors.add((status[1] if status else "400", code[1]))
table = page.split("\n## Errors")[1].split("\n## ")[0]
listed = set()
for row in re.findall(r"^\| (\d{3}.*)$", table, re.M):
    statuses, codes = row.split("|")[:2]
    statuses, codes = re.findall(r"\d{3}", statuses), re.findall(r"`(\w+)`", codes)
    assert len(statuses) in (1, len(codes)), row
    listed |= set(zip(statuses * len(codes) if len(statuses) == 1 else statuses, codes))
assert len(errors) > 15, errors
wrong += [f"the error {status} {code} is not in docs/serving.md" for status, code in sorted(errors - listed)]
wrong += [f"the error {status} {code} is in docs/serving.md only" for status, code in sorted(listed - errors)]

# The fields of a body: what the parser asks for is under "Fields", and what stands there as understood is known to the sources.
section = page.split("\n## Fields")[1].split("\n## ")[0]
sources = "".join(path.read_text() for path in (root / "runtime" / "server").glob("*.cpp"))
read = set(re.findall(r'\b(?:f|fields)\.(?:find|boolean|integer|number|text)\("([a-z_]+)"', sources))
named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]*)`", section))))
understood = re.search(r"^Understood, .*?^$", section, re.M | re.S)[0]
understood = {word for group in re.findall(r"`([a-z_ \n]+)`", understood) for word in group.split()} - {"last", "mean"}
assert len(read) > 35 and len(understood) > 40, (read, understood)
wrong += [f"the field {name} is read and not under Fields in docs/serving.md" for name in sorted(read - named)]
wrong += [f"the field {name} is under Fields and not in the sources" for name in sorted(understood) if f'"{name}"' not in sources]
print(f"fields: {len(read)} are read, {len(understood)} are documented as understood")
print(f"errors: {len(errors)} in the sources, {len(listed)} in docs/serving.md")
print(f"flags: {len(helped)} in the help, {len(documented)} in docs/serving.md")
sys.exit("\n".join(wrong) or 0)  # an empty message would be a failure
