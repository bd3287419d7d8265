#!/usr/bin/env python3
"""Speculation by lookup on text that repeats: Lathe against itself without, and against llama.cpp's own n-gram speculation, in turns.

    bench/speculation_peers.py MODEL.gguf [--llama DIR] [--rounds 5] [--new 256] [--threads 2] [--method auto] [--prompts editing,code,retrieval,copy,free] [--json]

DIR holds llama.cpp's programs llama-lookup and llama-speculative-simple (built with `ninja llama-lookup llama-speculative-simple`); what is not there is left
out. Each round asks for --new tokens behind each prompt of about 1,000 tokens: Lathe without and with drafts, which must give the same tokens
(`lathe bench --speculate`), then each program of llama.cpp, on the same text with the same model file, greedily, ends ignored. Figures are new tokens a second
without the prompt, medians of the rounds; ratios are medians of each round's ratio, against the best of llama.cpp's. The prompt `free` is prose that Lathe continues at
temperature 1.2, where nothing can be looked up: its ratio says what trying costs.
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
    """name -> text, each of about 1,000 tokens with the beginning of its answer."""
    licence = open(os.path.join(ROOT, "LICENSE"), encoding="utf-8").read()
    licence = re.sub(r"\s+", " ", licence[licence.index("1. Definitions.") :])[:4000]
    code = open(os.path.join(ROOT, "test", "e2e", "tiny_heads.py"), encoding="utf-8").read()
    code = code[code.index("import argparse") :][:2600]
    people = [f"{name} lives in {CITIES[(i * 5 + j * 3) % 8]} and has the number {(i * 7919 + j * 104729) % 9000 + 1000}." for i, name in enumerate(NAMES) for j in range(7)]
    rows = [f"{i:03},{NAMES[i * 7 % 10]},{CITIES[i * 3 % 8]},{i * 37 % 90 + 10}.50" for i in range(60)]
    return {
        "editing": asked('Repeat this text, but write "Owner" wherever it says "Licensor".', licence, licence[:120].replace("Licensor", "Owner")),
        "code": asked("Add a comment to each function of this program and print all of it.", "```python\n" + code + "```", "```python\n" + code[:120]),
        "retrieval": asked("Copy every sentence about the people in this list, in order.", "\n".join(people), "\n".join(people[:2]) + "\n"),
        "copy": asked("Write this table of comma-separated values again, one line after the other.", "id,name,city,price\n" + "\n".join(rows), "id,name,city,price\n" + rows[0] + "\n"),
        "free": "The old harbour master looked out over the grey water, and nobody could have guessed what he was about to say. ",
    }


class Lathe:
    def __init__(self, a, work):
        self.a, self.artifact = a, os.path.join(work, "model.lathe")
        subprocess.run([a.lathe, "compile", a.model, "-o", self.artifact, "--target", "native", "--quiet"], check=True)

    def __call__(self, name, file):
        free = ["--temp", "1.2", "--seed", "5"] if name == "free" else []
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


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--lathe", default=os.path.join(ROOT, "build", "bin", "lathe"))
    p.add_argument("--llama")
    p.add_argument("--method", default="auto")
    p.add_argument("--prompts", default="editing,code,retrieval,copy,free")
    p.add_argument("--peers", default=",".join(PEERS))
    for name, default in [("rounds", 5), ("new", 256), ("threads", 2)]:
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    texts = prompts()
    peers = {name: PEERS[name] for name in a.peers.split(",") if a.llama and os.path.exists(os.path.join(a.llama, PEERS[name][0]))}
    with tempfile.TemporaryDirectory() as work:
        lathe = Lathe(a, work)
        for name in a.prompts.split(","):
            file = os.path.join(work, name + ".txt")
            with open(file, "w", encoding="utf-8") as f:
                f.write(texts[name])
            plain, drafted, right, others, shares, over_plain, over_best = [], [], [], {}, {}, [], []
            for _ in range(a.rounds):
                slow, fast, share = lathe(name, file)
                plain.append(slow), drafted.append(fast), right.append(share), over_plain.append(fast / slow)
                if name != "free":
                    for other, command in peers.items():
                        speed, share = peer(a, command, file)
                        others.setdefault(other, []).append(speed), shares.setdefault(other, []).append(share)
            medians = {other: statistics.median(speeds) for other, speeds in others.items()}
            best = max(medians, key=medians.get) if medians else None
            if best:
                over_best = [fast / speed for fast, speed in zip(drafted, others[best])]
            row = {"prompt": name, "plain": statistics.median(plain), "drafted": statistics.median(drafted), "right": statistics.median(right), "over_plain": statistics.median(over_plain),
                   "peers": medians, "peers_right": {other: statistics.median(s) for other, s in shares.items()}, "best": best, "over_best": statistics.median(over_best) if best else None}
            if a.json:
                print(json.dumps(row), flush=True)
                continue
            said = f"{name:9}: plain {row['plain']:.0f}, {a.method} {row['drafted']:.0f} new tokens/s ({100 * row['right']:.0f} % right), {row['over_plain']:.2f}x plain"
            for other in medians:
                said += f"; {other} {medians[other]:.0f} ({100 * row['peers_right'][other]:.0f} %)"
            print(said + (f"; {row['over_best']:.2f}x {best}" if best else ""), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
