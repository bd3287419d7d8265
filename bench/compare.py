#!/usr/bin/env python3
"""Speed of an artifact against peers on the same machine, in turns, as ratios of medians.

    bench/compare.sh MODEL.gguf [--rounds 5] [--threads 2] [--openvino PYTHON] [--llama-bench NAME=PATH ...] [--json]

Each round measures Lathe and every peer one after the other, so that what else the machine does hits all alike. Four
figures: tokens/s of a prompt of 512, of one sequence after a short prompt, of one sequence after 2048 tokens, and of 16 sequences
together. Shares of the machine's limit come from `lathe bench` in the same rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

OPENVINO = r"""
import json, random, sys, time
import numpy as np, openvino as ov, openvino_genai as g
model, threads = sys.argv[1], int(sys.argv[2])
c = g.SchedulerConfig()
c.cache_size, c.max_num_batched_tokens, c.max_num_seqs, c.enable_prefix_caching = 2, 2048, 64, False
pipe = g.LLMPipeline(model, "CPU", scheduler_config=c, INFERENCE_NUM_THREADS=threads)
rng = random.Random(1)
def run(new, prompt, batch=1):
    o = g.GenerationConfig()
    o.max_new_tokens = o.min_new_tokens = new
    o.ignore_eos, o.do_sample = True, False
    x = np.array([[rng.randrange(100, 20000) for _ in range(prompt)] for _ in range(batch)], dtype=np.int64)
    t = time.perf_counter()
    pipe.generate(g.TokenizedInputs(ov.Tensor(x), ov.Tensor(np.ones_like(x))), o)
    return time.perf_counter() - t
run(2, 16)
print("ready", flush=True)
for line in sys.stdin:
    r = {"prompt": 512 / run(1, 512)}
    r["decode"] = 48 / (run(49, 16) - run(1, 16))
    r["depth"] = 24 / (run(25, 2048) - run(1, 2048))
    r["batch"] = 16 * 32 / (run(33, 64, 16) - run(1, 64, 16))
    print(json.dumps(r), flush=True)
"""


def lathe(a, artifact):
    def bench(*options):
        out = subprocess.run([a.lathe, "bench", artifact, "--json", "--threads", str(a.threads), *options], check=True, capture_output=True, text=True).stdout
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")][-1]

    first = bench("-p", "512", "-n", "48")
    return {"prompt": first["prompt_tokens_per_second"], "decode": bench("-p", "16", "-n", "48")["decode_tokens_per_second"],
            "depth": bench("-p", "16", "-n", "24", "--depth", "2048")["decode_tokens_per_second"],
            "batch": bench("-p", "64", "-n", "32", "--batch", "16")["decode_tokens_per_second"]}


def llama_bench(path, a):
    """llama.cpp and ik_llama.cpp: their own llama-bench, and for 16 sequences the llama-batched-bench beside it. ik_llama.cpp repacks weights on loading."""
    text = subprocess.run([path, "--help"], capture_output=True, text=True)
    repack = "-rtr" in text.stdout + text.stderr

    def run(*options):
        out = subprocess.run([path, "-m", a.model, "-t", str(a.threads), "-fa", "1", "-r", "1", "-o", "json", *(["-rtr", "1"] if repack else []), *options],
                             check=True, capture_output=True, text=True).stdout
        return json.loads(out)[-1]["avg_ts"]

    figures = {"prompt": run("-p", "512", "-n", "0"), "decode": run("-p", "0", "-n", "48"),
               "depth": run(*(["-p", "0", "-n", "0", "-gp", "2048,24"] if repack else ["-p", "0", "-n", "24", "-d", "2048"]))}
    batched = os.path.join(os.path.dirname(os.path.abspath(path)), "llama-batched-bench")
    if os.path.exists(batched):
        scratch = tempfile.mkdtemp()  # it leaves a log where it runs
        out = subprocess.run([batched, "-m", os.path.abspath(a.model), "-c", "4096", "-b", "2048", "-ub", "512", "-npp", "64", "-ntg", "32", "-npl", "16", "-t", str(a.threads),
                              "-tb", str(a.threads), "-fa", "on", *(["-rtr"] if repack else [])], cwd=scratch, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        figures["batch"] = float([line for line in out.splitlines() if line.startswith("|")][-1].split("|")[8])
    return figures


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("model")
p.add_argument("--lathe", default="build/bin/lathe")
p.add_argument("--rounds", type=int, default=5)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--openvino", metavar="PYTHON", help="a Python that has openvino-genai")
p.add_argument("--llama-bench", action="append", default=[], metavar="NAME=PATH", help="a llama-bench of llama.cpp or ik_llama.cpp, with llama-batched-bench beside it")
p.add_argument("--json", action="store_true")
a = p.parse_args()

artifact = os.path.join("build", "bench", os.path.basename(a.model).replace(".gguf", ".lathe"))
os.makedirs(os.path.dirname(artifact), exist_ok=True)
subprocess.run([a.lathe, "compile", a.model, "-o", artifact, "--quiet"], check=True)
engines = {"lathe": lambda: lathe(a, artifact)}
if a.openvino:
    peer = subprocess.Popen([a.openvino, "-c", OPENVINO, a.model, str(a.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while (line := peer.stdout.readline()) and line != "ready\n":  # loading would disturb the first round
        pass

    def openvino():
        peer.stdin.write("\n")
        peer.stdin.flush()
        while line := peer.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        sys.exit("error: OpenVINO ended early")

    engines["openvino"] = openvino
for entry in a.llama_bench:
    name, path = entry.split("=", 1)
    engines[name] = lambda path=path: llama_bench(path, a)

figures = {name: {} for name in engines}
for r in range(a.rounds):
    for name, measure in engines.items():
        for key, value in measure().items():
            figures[name].setdefault(key, []).append(value)
        print(f"round {r + 1}/{a.rounds}: {name}: " + ", ".join(f"{k} {v[-1]:.0f}" for k, v in figures[name].items()), file=sys.stderr)
medians = {name: {k: statistics.median(v) for k, v in f.items()} for name, f in figures.items()}
if a.json:
    print(json.dumps(medians))
    sys.exit()
titles = {"prompt": "prompt of 512", "decode": "one sequence", "depth": "one sequence at depth 2048", "batch": "16 sequences"}
peers = [n for n in engines if n != "lathe"]
print("| tokens/s, median of %d | lathe | %s best peer |" % (a.rounds, "".join(n + " | " for n in peers) + "ratio to the"))
print("|---|---|" + "---|" * (len(peers) + 1))
for key, title in titles.items():
    best = max((medians[n].get(key, 0) for n in peers), default=0)
    cells = "".join(f" {medians[n][key]:.0f} |" if key in medians[n] else " |" for n in peers)
    print(f"| {title} | {medians['lathe'][key]:.0f} |{cells} {medians['lathe'][key] / best:.2f}x |" if best else f"| {title} | {medians['lathe'][key]:.0f} |{cells} |")
