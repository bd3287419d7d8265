#!/usr/bin/env python3
"""Answers of `lathe serve` with drafts against those without: 200 prompts of real text, every token and log-probability.

    speculation_sweep.py LATHE WORK ARTIFACT=METHOD,METHOD... [ARTIFACT=METHOD...] [--random METHOD,METHOD...] [--prompts 200] [--new 128] [--texts FILE ...]

The plain answers are the first artifact's, asked without a prefix cache. Then each artifact's server is asked the same with each of its methods,
greedily and sampled (temperature 0.7 and 1, top-p 0.9, all penalties), by 1, 2, 4, 8 and 16 clients at a time, with chunked prompts and a prefix cache.
Prompts are pieces of the texts, of 10 to 400 bytes, a third behind one and the same beginning. Fails at the first answer that differs. Drafts are verified
whatever they cost (`--draft-cost none`), so each method must have drafted with each setting, and something that it drafted must have been right; one of --random, whose
weights were not trained, must have drafted. At the end a tenth is asked again of a server that measures what drafts cost.
"""
import argparse
import atexit
import concurrent.futures
import json
import random
import re
import subprocess
import sys
import time
import urllib.request

SETTINGS = {
    "greedy": {"temperature": 0},
    "temperature 0.7": {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.2},
    "temperature 1": {"temperature": 1, "top_p": 0.9, "repetition_penalty": 1.05, "frequency_penalty": 0.4},
}


class Server:
    def __init__(self, lathe, artifact, log, *options):
        with open(log, "w") as f:
            self.process = subprocess.Popen([lathe, "serve", artifact, "--port", "0", "--request-timeout", "0", *options], stdout=subprocess.PIPE, stderr=f, text=True)
        atexit.register(self.process.terminate)  # also if an answer differs; nothing where it has ended
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit(f"error: the server of {artifact} did not start, see {log}")
        self.url = line.split()[-1]

    def ask(self, prompt, settings, new, method):
        body = {"prompt": prompt, "max_tokens": new, "ignore_eos": True, "logprobs": 1, "speculate": method, **settings}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            answer = json.load(response)
        choice, usage = answer["choices"][0], answer["usage"]
        if usage["completion_tokens"] != new:
            sys.exit(f"error: expected {new} tokens, found {usage['completion_tokens']}")
        return choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]

    def drafts(self):
        """(drafted, accepted) by drafter, since the start."""
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        found = {}
        for name, place in [("draft", 0), ("accepted", 1)]:
            for drafter, value in re.findall(rf'^lathe:spec_decode_num_{name}_tokens_total\{{.*drafter="([a-z_-]+)".*\}} ([0-9.e+]+)', text, re.M):
                found.setdefault(drafter, [0, 0])[place] = int(float(value))
        return found

    def stop(self):
        self.process.terminate()
        if self.process.wait() != 0:
            sys.exit(f"error: the server ended with {self.process.returncode}")


def prompts_of(files, count):
    text = "".join(open(name, encoding="utf-8").read() for name in files)
    rng = random.Random(1)
    pieces = []
    for i in range(count):
        size = rng.randrange(10, 400)
        at = rng.randrange(len(text) - size)
        pieces.append((text[:300] if i % 3 == 0 else "") + text[at : at + size])
    return pieces


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lathe")
    p.add_argument("work")
    p.add_argument("artifacts", nargs="+")
    p.add_argument("--prompts", type=int, default=200)
    p.add_argument("--new", type=int, default=128)
    p.add_argument("--texts", nargs="+", required=True)
    p.add_argument("--random", default="", help="methods whose weights were not trained")
    a = p.parse_args()
    prompts = prompts_of(a.texts, a.prompts)
    settings = {name: [{**how, "seed": 1000 + i} for i in range(len(prompts))] for name, how in SETTINGS.items()}
    artifacts = [item.rsplit("=", 1) for item in a.artifacts]
    start = time.time()

    def all_of(server, name, method, clients):
        """The answers, asked by so many clients: a list of (clients, share of the prompts in percent)."""
        answers, at = [], 0
        for count, share in clients:
            part = range(at, at + len(prompts) * share // 100)
            at = part.stop
            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                answers += pool.map(lambda i: server.ask(prompts[i], settings[name][i], a.new, method), part)
        return answers

    server = Server(a.lathe, artifacts[0][0], f"{a.work}/plain.log", "--no-prefix-cache")
    plain = {name: all_of(server, name, "off", [(1, 5), (16, 95)]) for name in SETTINGS}
    drafted = sum(d[0] for d in server.drafts().values())
    server.stop()
    if drafted:
        sys.exit(f"error: the plain run drafted {drafted} tokens")
    different = len({answer[0] for answers in plain.values() for answer in answers})
    if different < 2.5 * len(prompts):
        sys.exit(f"error: {different} different answers of {3 * len(prompts)}: the comparison would say little")
    print(f"{time.time() - start:5.0f} s: plain answers", flush=True)

    def same(server, artifact, method, clients):
        """Asks with each setting and compares; what was drafted and accepted with each."""
        before, made = server.drafts(), {}
        for name in SETTINGS:
            answers = all_of(server, name, method, clients)
            for i, (found, expected) in enumerate(zip(answers, plain[name])):
                if found != expected:
                    at = next((t for t in range(a.new) if found[1][t : t + 1] != expected[1][t : t + 1] or found[2][t : t + 1] != expected[2][t : t + 1]), None)
                    sys.exit(f"error: {artifact}, {method}, {name}, prompt {i} ({prompts[i]!r}): token {at}: expected {expected[0]!r}, found {found[0]!r}")
            now = server.drafts()
            made[name] = [sum(d[k] for d in now.values()) - sum(d[k] for d in before.values()) for k in (0, 1)]
            before = now
        said = "; ".join(f"{name}: {drafts} drafts, {accepted} accepted" for name, (drafts, accepted) in made.items())
        print(f"{time.time() - start:5.0f} s: {method}: {len(answers)} prompts of {a.new} new tokens equal; {said}", flush=True)
        return made

    options = ["--max-seqs", "16", "--step-tokens", "32"]
    for artifact, methods in artifacts:
        server = Server(a.lathe, artifact, f"{a.work}/drafts.log", "--draft-cost", "none", *options)
        for method in methods.split(","):
            made = same(server, artifact, method, [(1, 2), (2, 3), (4, 10), (8, 20), (16, 65)])
            # What was not trained is soon asked seldom, and need not be right.
            random_weights = method in a.random.split(",")
            idle = [name for name, (drafts, _) in made.items() if not drafts]
            if len(idle) > (len(made) - 1 if random_weights else 0):
                sys.exit(f"error: {artifact}, {method}: expected drafts, found none with {', '.join(idle)}")
            if not random_weights and not sum(accepted for _, accepted in made.values()):
                sys.exit(f"error: {artifact}, {method}: expected drafts that are right, found none")
        server.stop()
    for artifact, methods in artifacts:
        server = Server(a.lathe, artifact, f"{a.work}/measured.log", *options)
        for method in methods.split(","):
            same(server, artifact, method, [(4, 10)])
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
