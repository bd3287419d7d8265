#!/usr/bin/env python3
"""Speculation by lookup on text that repeats: Lathe against itself without, and against llama.cpp's own n-gram speculation, in turns.

    bench/speculation_peers.py MODEL.gguf [--llama DIR] [--rounds 5] [--new 256] [--threads 2] [--method auto] [--prompts editing,code,retrieval,copy,free] [--json]

DIR holds llama.cpp's programs llama-lookup and llama-speculative-simple (built with `ninja llama-lookup llama-speculative-simple`); what is not there is left
out. Each round asks for --new tokens behind each prompt of about 1,000 tokens: Lathe without and with drafts, which must give the same tokens
(`lathe bench --speculate`), then each program of llama.cpp, on the same text with the same model file, greedily, ends ignored. Figures are new tokens a second
without the prompt, medians of the rounds; ratios are medians of each round's ratio, against the best of llama.cpp's. `free` are three beginnings of prose that Lathe goes on
with at temperature 1.2, with another seed each round, where nothing can be looked up: its ratio says what trying costs.
--artifact FILE.lathe, compiled from the same model with a draft of its own, is for --method medusa, eagle, eagle2 or draft.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CITIES = ["Lisbon", "Oslo", "Vienna", "Dublin", "Prague", "Athens", "Madrid", "Warsaw"]
NAMES = ["Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas"]
# Programs of llama.cpp: lookup with its default of 3 drafts, with 8 and with none (its plain speed); the other two with settings that draft as soon as
# 4 tokens agree, where their defaults wait for 12.
PEERS = {
    "lookup-0": ["llama-lookup", "--spec-draft-n-max", "0"],
    "lookup-3": ["llama-lookup", "--spec-draft-n-max", "3"],
    "lookup-8": ["llama-lookup", "--spec-draft-n-max", "8"],
    "ngram-simple": ["llama-speculative-simple", "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "16"],
    "ngram-map-k": ["llama-speculative-simple", "--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "4", "--spec-ngram-map-k-size-m", "16"],
}


def asked(task, text, answer):
    return f"<|im_start|>user\n{task}\n\n{text}<|im_end|>\n<|im_start|>assistant\n{answer}"


def prompts():
    """name -> texts of that kind, each of about 1,000 tokens with the beginning of its answer."""
    licence = open(os.path.join(ROOT, "LICENSE"), encoding="utf-8").read()
    licence = re.sub(r"\s+", " ", licence[licence.index("1. Definitions.") :])[:4000]
    code = open(os.path.join(ROOT, "test", "e2e", "tiny_heads.py"), encoding="utf-8").read()
    code = code[code.index("import argparse") :][:2600]
    people = [f"{name} lives in {CITIES[(i * 5 + j * 3) % 8]} and has the number {(i * 7919 + j * 104729) % 9000 + 1000}." for i, name in enumerate(NAMES) for j in range(7)]
    rows = [f"{i:03},{NAMES[i * 7 % 10]},{CITIES[i * 3 % 8]},{i * 37 % 90 + 10}.50" for i in range(60)]
    return {
        "editing": [asked('Repeat this text, but write "Owner" wherever it says "Licensor".', licence, licence[:120].replace("Licensor", "Owner"))],
        "code": [asked("Add a comment to each function of this program and print all of it.", "```python\n" + code + "```", "```python\n" + code[:120])],
        "retrieval": [asked("Copy every sentence about the people in this list, in order.", "\n".join(people), "\n".join(people[:2]) + "\n")],
        "copy": [asked("Write this table of comma-separated values again, one line after the other.", "id,name,city,price\n" + "\n".join(rows), "id,name,city,price\n" + rows[0] + "\n")],
        "free": ["The old harbour master looked out over the grey water, and nobody could have guessed what he was about to say. ",
                 "She opened the letter on the train, somewhere between two stations whose names she had never managed to remember, and began to read. ",
                 "Among the things that were found in the attic when the house was sold there was a box of photographs. "],
    }


class Lathe:
    def __init__(self, a, work):
        self.a, self.artifact = a, a.artifact or os.path.join(work, "model.lathe")
        if a.artifact:
            return
        subprocess.run([a.lathe, "compile", a.model, "-o", self.artifact, "--target", "native", "--quiet"], check=True)

    def __call__(self, name, file, number):
        free = ["--temp", "1.2", "--seed", str(5 + number)] if name == "free" else []
        command = [self.a.lathe, "bench", self.artifact, "--speculate", self.a.method, "--prompt-file", file, "-n", str(self.a.new), "-r", "1"]
        command += ["--threads", str(self.a.threads), "--ctx", "2048", "--json"]
        row = json.loads(subprocess.run(command + free, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        return row["plain_tokens_per_second"], row["speculated_tokens_per_second"], row["accepted"] / max(1, row["drafted"])


def peer(a, command, file):
    """Tokens a second behind the prompt, and the share of drafts that were right."""
    options = ["-m", a.model, "-f", file, "-n", str(a.new), "-t", str(a.threads), "-c", "2048", "-b", "2048", "--temp", "0", "--ignore-eos"]
    out = subprocess.run([os.path.join(a.llama, command[0]), *command[1:], *options], capture_output=True, text=True)
    text = out.stdout + out.stderr
    speed, accepted = re.search(r"decoded +\d+ tokens in .*speed: +([0-9.]+) t/s", text), re.search(r"accept += ([0-9.]+)%", text)
    if not speed:
        sys.exit(f"error: {command[0]}: no speed in what it printed:\n{text[-1000:]}")
    return float(speed[1]), float(accepted[1]) / 100 if accepted else 0.0


class Row:
    """What was measured of one prompt, in order."""

    def __init__(self):
        self.plain, self.drafted, self.right, self.ratios, self.said = [], [], [], [], {}

    def add(self, plain, drafted, right, said):
        self.plain.append(plain), self.drafted.append(drafted), self.right.append(right), self.ratios.append(drafted / plain)
        for other, measured in said.items():
            self.said.setdefault(other, []).append(measured)

    def summary(self, name):
        peers = {other: statistics.median(speed for speed, _ in runs) for other, runs in self.said.items()}
        best = max(peers, key=peers.get) if peers else None
        over_best = [drafted / speed for drafted, (speed, _) in zip(self.drafted, self.said[best])] if best else []
        quarters = statistics.quantiles(self.ratios, n=4) if len(self.ratios) > 1 else [self.ratios[0]] * 3
        return {"prompt": name, "runs": len(self.ratios), "plain": statistics.median(self.plain), "plain_range": [min(self.plain), max(self.plain)],
                "drafted": statistics.median(self.drafted), "right": statistics.median(self.right),
                "over_plain": statistics.median(self.ratios), "over_plain_quartiles": [quarters[0], quarters[2]], "peers": peers,
                "peers_right": {other: statistics.median(share for _, share in runs) for other, runs in self.said.items()},
                "best": best, "over_best": statistics.median(over_best) if best else None}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--lathe", default=os.path.join(ROOT, "build", "bin", "lathe"))
    p.add_argument("--artifact", help="compiled from the model, with a draft of its own")
    p.add_argument("--llama")
    p.add_argument("--method", default="auto")
    p.add_argument("--prompts", default="editing,code,retrieval,copy,free")
    p.add_argument("--peers", default=",".join(PEERS))
    for name, default in [("rounds", 5), ("new", 256), ("threads", 2)]:
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    texts, names = prompts(), a.prompts.split(",")
    peers = {name: PEERS[name] for name in a.peers.split(",") if a.llama and os.path.exists(os.path.join(a.llama, PEERS[name][0]))}
    rows = {name: Row() for name in names}
    with tempfile.TemporaryDirectory() as work:
        lathe = Lathe(a, work)
        # Rounds outside: what the machine does for a minute is in one round of each prompt, not in all rounds of one.
        for number in range(a.rounds):
            for name in names:
                for variant, text in enumerate(texts[name]):
                    file = os.path.join(work, f"{name}-{variant}.txt")
                    with open(file, "w", encoding="utf-8") as f:
                        f.write(text)
                    plain, drafted, right = lathe(name, file, number)
                    said = {other: peer(a, command, file) for other, command in peers.items()} if name != "free" else {}
                    rows[name].add(plain, drafted, right, said)
            if not a.json:
                print(f"round {number + 1} of {a.rounds}: " + ", ".join(f"{name} {rows[name].ratios[-1]:.2f}x" for name in names), file=sys.stderr, flush=True)
    for name in names:
        row = rows[name].summary(name)
        if a.json:
            print(json.dumps(row), flush=True)
            continue
        low, high = row["over_plain_quartiles"]
        text = f"{name:9}: plain {row['plain']:.0f} ({row['plain_range'][0]:.0f} to {row['plain_range'][1]:.0f}), {a.method} {row['drafted']:.0f} new tokens/s ({100 * row['right']:.0f} % right), "
        text += f"{row['over_plain']:.2f}x plain (quartiles {low:.2f} to {high:.2f}, {row['runs']} runs)"
        for other, speed in row["peers"].items():
            text += f"; {other} {speed:.0f} ({100 * row['peers_right'][other]:.0f} %)"
        print(text + (f"; {row['over_best']:.2f}x {row['best']}" if row["best"] else ""), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
