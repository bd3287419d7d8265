#!/usr/bin/env python3
"""Speed of an artifact against peers on the same machine, in turns, as ratios of medians.

    bench/compare.sh MODEL.gguf [--rounds 5] [--threads 2] [--figures prompt,decode,depth,batch] [--also "int8z=--activations int8z"]
                     [--also "avx2=--variant avx2"] [--openvino PYTHON] [--llama-bench NAME=PATH ...] [--json]

Each round measures Lathe and every peer one after the other, figure by figure and another one first each time, so that what else the machine does hits
all alike: a virtual machine's two processors may be one core's threads for a minute, and both read as much together then as one does. Four figures: tokens/s of a prompt of 512, of one sequence after a short prompt, of one sequence after 2048 tokens, and of 16 sequences
together. The share of the machine's limit is what `lathe explain` counts for such a step - bytes of one sequence, multiply-adds of prompts and
of 16 sequences, their attention and heads among them - times its rate, against the read bandwidth or the peak of 8-bit multiply-adds that
`lathe bench` measures in the same minute; its median. The last line says between what the measured limits lay. --also measures other artifacts of the model, or other variants, in the same turns.
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
figures = {"prompt": lambda: 512 / run(1, 512), "decode": lambda: 48 / (run(49, 16) - run(1, 16)), "depth": lambda: 24 / (run(25, 2048) - run(1, 2048)),
           "batch": lambda: 16 * 32 / (run(33, 64, 16) - run(1, 64, 16))}
for line in sys.stdin:
    print(json.dumps({"rate": figures[line.strip()]()}), flush=True)
"""


# Figure: options of bench, those of explain for the step in the middle of it, its tokens, and which limit binds it.
FIGURES = {"prompt": (["-p", "512", "-n", "0"], ["--rows", "512"], 512, "macs"),
           "decode": (["-p", "16", "-n", "48"], ["--depth", "24"], 1, "bytes"),
           "depth": (["-p", "16", "-n", "24", "--depth", "2048"], ["--depth", "2060"], 1, "bytes"),
           "batch": (["-p", "64", "-n", "32", "--batch", "16"], ["--batch", "16", "--depth", "16"], 16, "macs")}


class Lathe:
    """One artifact of the model and how it is run."""

    def __init__(self, a, name, options):
        self.a, self.variant, self.work, self.reads, self.macs = a, [], {}, [], []
        options = options.split()
        if "--variant" in options:
            at = options.index("--variant")
            self.variant = options[at:at + 2]
            del options[at:at + 2]
        self.artifact = os.path.join("build", "bench", os.path.basename(a.model).replace(".gguf", f"-{name}.lathe"))
        subprocess.run([a.lathe, "compile", a.model, "-o", self.artifact, "--quiet", *options], check=True)
        for figure in a.figures:
            total = [row for row in self.run("explain", "-r", "1", *FIGURES[figure][1]) if row.get("kernel") == "total"][0]
            self.work[figure] = total[FIGURES[figure][3]] / FIGURES[figure][2]

    def run(self, command, *options):
        out = subprocess.run([self.a.lathe, command, self.artifact, "--json", "--threads", str(self.a.threads), *self.variant, *options], check=True, capture_output=True, text=True)
        return [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]

    def __call__(self, figure):
        options, _, _, limit = FIGURES[figure]
        row = self.run("bench", *options)[-1]
        rate = row["prompt_tokens_per_second" if figure == "prompt" else "decode_tokens_per_second"]
        self.reads.append(row["read_limit_bytes_per_second"])
        self.macs.append(row["int8_limit_macs_per_second"])
        return rate, rate * self.work[figure] / (self.macs if limit == "macs" else self.reads)[-1]


def llama_bench(path, a, figure):
    """llama.cpp and ik_llama.cpp: their own llama-bench, and for 16 sequences the llama-batched-bench beside it. ik_llama.cpp repacks weights on loading."""
    text = subprocess.run([path, "--help"], capture_output=True, text=True)
    repack = "-rtr" in text.stdout + text.stderr
    if figure != "batch":
        how = {"prompt": ["-p", "512", "-n", "0"], "decode": ["-p", "0", "-n", "48"],
               "depth": ["-p", "0", "-n", "0", "-gp", "2048,24"] if repack else ["-p", "0", "-n", "24", "-d", "2048"]}[figure]
        out = subprocess.run([path, "-m", a.model, "-t", str(a.threads), "-fa", "1", "-r", "1", "-o", "json", *(["-rtr", "1"] if repack else []), *how],
                             check=True, capture_output=True, text=True).stdout
        return json.loads(out)[-1]["avg_ts"], None
    batched = os.path.join(os.path.dirname(os.path.abspath(path)), "llama-batched-bench")
    if not os.path.exists(batched):
        return None, None
    scratch = tempfile.mkdtemp()  # it leaves a log where it runs
    out = subprocess.run([batched, "-m", os.path.abspath(a.model), "-c", "4096", "-b", "2048", "-ub", "512", "-npp", "64", "-ntg", "32", "-npl", "16", "-t", str(a.threads),
                          "-tb", str(a.threads), "-fa", "on", *(["-rtr"] if repack else [])], cwd=scratch, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    return float([line for line in out.splitlines() if line.startswith("|")][-1].split("|")[8]), None


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("model")
p.add_argument("--lathe", default="build/bin/lathe")
p.add_argument("--rounds", type=int, default=5)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--figures", default=",".join(FIGURES))
p.add_argument("--also", action="append", default=[], metavar="NAME=OPTIONS", help="another artifact, by options of `lathe compile`, or --variant V of its run")
p.add_argument("--openvino", metavar="PYTHON", help="a Python that has openvino-genai")
p.add_argument("--llama-bench", action="append", default=[], metavar="NAME=PATH", help="a llama-bench of llama.cpp or ik_llama.cpp, with llama-batched-bench beside it")
p.add_argument("--json", action="store_true")
a = p.parse_args()

a.figures = a.figures.split(",")
if unknown := [figure for figure in a.figures if figure not in FIGURES]:
    p.error(f"--figures: expected some of {', '.join(FIGURES)}, found '{unknown[0]}'")
os.makedirs(os.path.join("build", "bench"), exist_ok=True)
engines = {"lathe": Lathe(a, "default", "")}
for entry in a.also:
    name, _, options = entry.partition("=")
    engines["lathe " + name] = Lathe(a, name, options)
if a.openvino:
    peer = subprocess.Popen([a.openvino, "-c", OPENVINO, a.model, str(a.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while (line := peer.stdout.readline()) and line != "ready\n":  # loading would disturb the first round
        pass

    def openvino(figure):
        peer.stdin.write(figure + "\n")
        peer.stdin.flush()
        while line := peer.stdout.readline():
            if line.startswith('{"rate"'):
                return json.loads(line)["rate"], None
        sys.exit("error: OpenVINO ended early")

    engines["openvino"] = openvino
for entry in a.llama_bench:
    name, path = entry.split("=", 1)
    engines[name] = lambda figure, path=path: llama_bench(path, a, figure)

figures = {name: {} for name in engines}
names = list(engines)
for r in range(a.rounds):
    for k, figure in enumerate(a.figures):
        said = []
        first = (r + k) % len(names)
        for name in names[first:] + names[:first]:
            rate, share = engines[name](figure)
            if rate is not None:
                figures[name].setdefault(figure, []).append(rate)
                said.append(f"{name} {rate:.0f}")
            if share is not None:
                figures[name].setdefault("share of " + figure, []).append(share)
                said[-1] += f" ({100 * share:.0f} %)"
        print(f"round {r + 1}/{a.rounds}: {figure}: " + ", ".join(said), file=sys.stderr, flush=True)
medians = {name: {k: statistics.median(v) for k, v in f.items()} for name, f in figures.items()}
if a.json:
    print(json.dumps(medians))
    sys.exit()
titles = {"prompt": "prompt of 512", "decode": "one sequence", "depth": "one sequence at depth 2048", "batch": "16 sequences"}
ours = [n for n in engines if n.startswith("lathe ")]
peers = [n for n in engines if not n.startswith("lathe")]
columns = [f"tokens/s, median of {a.rounds}", "lathe", "of the limit"] + ours + peers + (["ratio to the best peer"] if peers else [])
print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
for key in a.figures:
    mine = medians["lathe"][key]
    cells = [titles[key], f"{mine:.0f}", f"{100 * medians['lathe']['share of ' + key]:.0f} % of {'int8 peak' if FIGURES[key][3] == 'macs' else 'bandwidth'}"]
    cells += [f"{medians[n][key]:.0f} ({medians[n][key] / mine:.2f}x, {100 * medians[n]['share of ' + key]:.0f} %)" for n in ours]
    cells += [f"{medians[n][key]:.0f}" if key in medians[n] else "" for n in peers]
    if peers:
        best = max(medians[n].get(key, 0) for n in peers)
        cells.append(f"{mine / best:.2f}x" if best else "")
    print("| " + " | ".join(cells) + " |")
lathe = engines["lathe"]
print(f"\nlimits: reads of {min(lathe.reads) / 1e9:.0f} to {max(lathe.reads) / 1e9:.0f} GB/s, {min(lathe.macs) / 1e9:.0f} to {max(lathe.macs) / 1e9:.0f} billion 8-bit multiply-adds/s")
