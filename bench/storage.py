#!/usr/bin/env python3
"""Speed by storage type at one shape, against llama.cpp in turns: prompts of 512 and one sequence.

    bench/storage.py [--shape 1b|8b] [--types q4_0,q6_k,...] [--rounds 1] [--threads 2] [--llama-bench NAME=PATH ...]

Files of the Llama-3.2-1B shape with random blocks (test/e2e/tiny_gguf.py) are made one after the other in build/bench and removed again: up to
2.5 GB at a time, and f32 is left out. "q4_k,q6_k" in one go is --types q4_k+q6_k: matrices in turn. --shape 8b: that of Llama-3.1-8B, one Q4_K_M
file of 4.9 GB if nothing else is asked for, and as much again for the artifact.
"""
import argparse
import json
import os
import subprocess
import sys

MIXED = "q4_k+q4_k+q6_k"  # about as Q4_K_M has them
SHAPES = {
    "1b": (["--layers", "16", "--hidden", "2048", "--heads", "32", "--kv-heads", "8", "--ffn", "8192", "--vocab", "128256"],
           f"q4_0,q4_1,q5_0,q5_1,q8_0,iq4_nl,q2_k,q3_k,q4_k,q5_k,q6_k,{MIXED},f16,bf16"),
    "8b": (["--layers", "32", "--hidden", "4096", "--heads", "32", "--kv-heads", "8", "--ffn", "14336", "--vocab", "128256", "--untied"], MIXED),
}

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--shape", choices=SHAPES, default="1b")
p.add_argument("--types")
p.add_argument("--rounds", default="1")
p.add_argument("--threads", default="2")
p.add_argument("--llama-bench", action="append", default=[], metavar="NAME=PATH")
a = p.parse_args()
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
os.makedirs("build/bench", exist_ok=True)
shape, types = SHAPES[a.shape]
peers = [entry.split("=", 1)[0] for entry in a.llama_bench]
print("| storage | prompt of 512 | of int8 peak |", *(f"{n} | ratio |" for n in peers), "one sequence | of bandwidth |", *(f"{n} | ratio |" for n in peers))
print("|---|---|---|" + "---|---|" * (2 * len(peers) + 1))
for kinds in (a.types or types).split(","):
    model = f"build/bench/{a.shape}-{kinds}.gguf"
    subprocess.run([sys.executable, "test/e2e/tiny_gguf.py", "--types", kinds.replace("+", ","), *shape, model], check=True)
    out = subprocess.run([sys.executable, "bench/compare.py", model, "--json", "--figures", "prompt,decode", "--rounds", a.rounds, "--threads", a.threads,
                          *[x for entry in a.llama_bench for x in ("--llama-bench", entry)]], check=True, stdout=subprocess.PIPE, text=True).stdout
    m = json.loads(out)
    cells = [kinds]
    for key in ("prompt", "decode"):
        cells += [f"{m['lathe'][key]:.1f}", f"{100 * m['lathe']['share of ' + key]:.0f} %"]
        for name in peers:
            cells += [f"{m[name][key]:.1f}", f"{m['lathe'][key] / m[name][key]:.2f}x"]
    print("| " + " | ".join(cells) + " |", flush=True)
    for path in (model, model.replace(".gguf", "-default.lathe")):
        os.remove(path)
