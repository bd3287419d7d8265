#!/usr/bin/env python3
"""Renders real chat templates with Lathe and with Jinja2 and compares bytes.

The templates are those in the source archive of llama-cpp-python (vendor/llama.cpp/models/templates),
taken from the folder $LATHE_TEMPLATES, or fetched (77 MB, by the Python $LATHE_PIP_PYTHON if this one has no pip):
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
Each is rendered for every conversation below. Where Jinja2 calls raise_exception the message must
be equal; where it fails otherwise Lathe must fail too. Needs Python with jinja2.

usage: check_templates.py [--renderer build/bin/lathe-render-template] [--verbose] [NAME ...]
       check_templates.py --fetch FOLDER
"""
import argparse
import glob
import itertools
import json
import os
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "test", "fixtures", "template"))
import oracle  # noqa: E402

NOW = [2026, 3, 9, 15, 4, 5]

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a <city> & more, \"now\".\nIn one line.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 1, "nullable": True},
        "tags": {"type": "array", "items": {"type": "string"}},
        "box": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}},
                "required": ["lat"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        "required": ["city"]},
    "return": {"type": "object", "properties": {"t": {"type": "number"}}, "description": "what comes back"}}}
PLAIN = {"type": "function", "function": {"name": "ping", "description": "Answers.",
                                          "parameters": {"type": "object", "properties": {}}}}
BUILTIN = {"type": "function", "function": {"name": "browser", "description": "", "parameters": {}}}


def call(identifier, arguments, name="get_weather"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are terse.\nAnswer in German."}
DEVELOPER = {"role": "developer", "content": "Be exact."}
USER = {"role": "user", "content": "Wie ist das Wetter in Zürich? <b>&</b> 'so' \"so\" 🙂"}
ANSWER = {"role": "assistant", "content": "  Sonnig.\n"}
MORE = {"role": "user", "content": "Und morgen?"}
THINK = {"role": "assistant", "content": "<think>\nHmm, let me see.\n</think>\n\nRegen."}
REASON = {"role": "assistant", "reasoning_content": "Let me think.", "content": "Regen."}
REASONING = {"role": "assistant", "reasoning": "Deep.", "thinking": "Deeper.", "content": "Regen."}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    call("abcdef123", {"city": "Zürich", "days": 2, "tags": ["a", "b"], "box": {"lat": 1.5, "lon": None}, "ok": True})]}
CALL_NULL = {"role": "assistant", "content": None, "tool_calls": [call("abcdef123", {"city": "Bern"})]}
CALL_TEXT = {"role": "assistant", "content": "I look.", "tool_calls": [call("abcdef123", "{\"city\": \"Bern\"}")]}
CALLS = {"role": "assistant", "content": "Both.", "reasoning_content": "Two are needed.", "tool_calls": [
    call("abcdef123", {"city": "Bern"}), call("ghijkl456", {"x": [1, 2.5, 1e20, -0.0]}, "ping")]}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "{\"t\": 21.5}"}
RESULT2 = {"role": "tool", "tool_call_id": "ghijkl456", "name": "ping", "content": "pong"}
RESULT_PARTS = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather",
                "content": [{"type": "text", "text": "21"}, {"type": "text", "text": " degrees"}]}
RESULT_OBJECT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": {"t": 21.5, "wind": None}}
PARTS = {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}]}
IMAGE = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Describe."},
                                     {"type": "image_url", "image_url": {"url": "x.png"}}]}
VIDEO = {"role": "user", "content": [{"type": "video", "video": "v.mp4"}, {"type": "audio"}, {"type": "text", "text": "?"}]}
SYSTEM_PARTS = {"role": "system", "content": [{"type": "text", "text": "You are terse."}]}
ANSWER_PARTS = {"role": "assistant", "content": [{"type": "text", "text": "Fine."}]}

CONVERSATIONS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "developer": [DEVELOPER, USER],
    "turns": [USER, ANSWER, MORE],
    "system turns": [SYSTEM, USER, ANSWER, MORE, ANSWER],
    "think": [USER, THINK, MORE],
    "think last": [USER, THINK],
    "reason": [SYSTEM, USER, REASON, MORE, REASON],
    "reasoning": [USER, REASONING, MORE],
    "call": [USER, CALL],
    "call null": [SYSTEM, USER, CALL_NULL, RESULT],
    "call text": [USER, CALL_TEXT, RESULT, ANSWER],
    "calls": [SYSTEM, USER, CALLS, RESULT, RESULT2],
    "calls turns": [USER, CALLS, RESULT, RESULT2, ANSWER, MORE],
    "many calls": [USER, CALL, RESULT, CALL_NULL, RESULT, REASON, MORE, CALL, RESULT_PARTS],
    "result object": [USER, CALL, RESULT_OBJECT, ANSWER],
    "parts": [PARTS, ANSWER, PARTS],
    "system parts": [SYSTEM_PARTS, PARTS, ANSWER_PARTS, MORE],
    "image": [IMAGE],
    "video": [SYSTEM, VIDEO, ANSWER, IMAGE],
    "empty": [],
    "only system": [SYSTEM],
    "answer first": [ANSWER, USER],
    "two users": [USER, MORE],
    "two systems": [SYSTEM, USER, SYSTEM, MORE],
    "result first": [RESULT],
    "strange role": [{"role": "alien", "content": "x"}],
    "no content": [{"role": "user"}],
    "null content": [{"role": "user", "content": None}],
    "empty content": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "number content": [{"role": "user", "content": 5}],
    "last space": [{"role": "user", "content": "  x \n"}, {"role": "assistant", "content": "\n y </think> z \n"}],
    "prefix": [USER, {"role": "assistant", "content": "Es ist", "prefix": True}],
}
TOOLS = {"none": None, "weather": [WEATHER], "two": [PLAIN, WEATHER], "bare": [WEATHER["function"]],
         "builtin": [BUILTIN], "empty": []}
EXTRAS = [
    {},
    {"enable_thinking": False},
    {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    {"documents": [{"title": "T", "text": "Some text.", "doc_id": 1}]},
    {"builtin_tools": ["browser", "python"], "date_string": "1 Jan 2025", "model_identity": "I am a test."},
    {"preserve_thinking": True, "clear_thinking": False, "keep_past_thinking": True},
]


def contexts():
    base = {"bos_token": "<s>", "eos_token": "</s>", "documents": None}
    for (name, messages), (tools_name, tools) in itertools.product(CONVERSATIONS.items(), TOOLS.items()):
        for prompt in (True, False):
            yield f"{name}/{tools_name}/{prompt}", dict(
                base, messages=messages, tools=tools, add_generation_prompt=prompt)
    for name in ("system turns", "reason", "calls turns", "call", "many calls", "user"):
        for i, extra in enumerate(EXTRAS):
            for tools in (None, [WEATHER]):
                for prompt in (True, False):
                    yield f"{name}/extra{i}/{bool(tools)}/{prompt}", dict(
                        base, messages=CONVERSATIONS[name], tools=tools, add_generation_prompt=prompt, **extra)
    yield "no tools at all", {"messages": [SYSTEM, USER], "add_generation_prompt": True}


def fetch_templates(folder):
    """Takes the templates out of the source archive."""
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([os.environ.get("LATHE_PIP_PYTHON", sys.executable), "-m", "pip", "download", "-q", "--no-deps",
                        "--no-binary", ":all:", "-d", work, "llama-cpp-python==0.3.36"], check=True)
        os.makedirs(folder, exist_ok=True)
        with tarfile.open(glob.glob(os.path.join(work, "*.tar.gz"))[0]) as tar:
            for member in tar.getmembers():
                if "/models/templates/" in member.name and member.name.endswith(".jinja"):
                    with open(os.path.join(folder, os.path.basename(member.name)), "wb") as out:
                        out.write(tar.extractfile(member).read())


def find_templates():
    folder = os.environ.get("LATHE_TEMPLATES")
    if not folder:
        folder = tempfile.mkdtemp()
        fetch_templates(folder)
    files = sorted(glob.glob(os.path.join(folder, "*.jinja")))
    if not files:
        sys.exit(f"no templates in {folder}")
    return files


class Renderer:
    """Runs jobs through the test program."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        encoding="utf-8")

    def __call__(self, template, context):
        job = json.dumps({"template": template, "context": context, "now": NOW})
        self.process.stdin.write(job + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the renderer died on {job[:2000]}")
        return json.loads(line)


counts = {"texts": 0, "raised": 0, "failed": 0}


def compare(template, context, renderer):
    """None, or a description of the difference."""
    text, kind, message = oracle.render(template, context, NOW)
    counts[kind or "texts"] += 1
    ours = renderer(template, context)
    if text is not None:
        if ours.get("text") == text:
            return None
        return f"expected {text!r}\nfound    {ours.get('text', ours)!r}"
    if "text" in ours:
        return f"expected failure {message!r}, found {ours['text']!r}"
    if kind == "raised" and ours["error"] != message:
        return f"expected message {message!r}, found {ours['error']!r}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--renderer", default=os.path.join(ROOT, "build/bin/lathe-render-template"))
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--fetch", metavar="FOLDER", help="only fetch the templates into FOLDER")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.fetch:
        return fetch_templates(args.fetch)
    renderer = Renderer(args.renderer)
    total = wrong = 0
    for path in find_templates():
        name = os.path.basename(path)
        if args.names and not any(n in name for n in args.names):
            continue
        with open(path, encoding="utf-8", newline="") as f:
            template = f.read()
        bad = 0
        for case, context in contexts():
            total += 1
            difference = compare(template, context, renderer)
            if difference is None:
                continue
            bad += 1
            if args.verbose or bad == 1:
                print(f"{name}: {case}: {difference}")
        wrong += bad
        print(f"{name}: {'ok' if not bad else f'{bad} differ'}", flush=True)
    print(f"{total} renderings ({counts['texts']} texts, {counts['raised']} raised, {counts['failed']} failures),"
          f" {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
