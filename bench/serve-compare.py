#!/usr/bin/env python3
"""Tokens/s of `lathe serve` under concurrent clients against other servers, in turns, as ratios of medians.

    bench/serve-compare.py MODEL.gguf [--openvino PYTHON] [--server NAME=COMMAND|URL ...] [--clients 16] [--rounds 5] [--append FILE]

Every server gets the same closed loop from `lathe load`: random prompts of --input token ids, --output new tokens each, all different,
temperature 0, the end of text ignored. A COMMAND starts an OpenAI-compatible server; {model} and {port} are replaced in it, for instance
    --server 'llama.cpp=llama-server -m {model} --port {port} -np 16 -c 4096 -t 2'
    --server 'vllm=python -m vllm.entrypoints.openai.api_server --model HF_DIR --port {port} --max-model-len 512 --no-enable-prefix-caching'
and a URL is of one that runs already. OpenVINO GenAI's continuous-batching pipeline runs in process, without HTTP. All servers stay up and
idle while another is measured.
With --append the rounds are added to those that FILE has, and the medians are over all: so rounds can be spread over many quiet moments.
"""
import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

OPENVINO = r"""
import json, random, sys, time
import numpy as np, openvino as ov, openvino_genai as g
model, threads, clients, prompt, new = sys.argv[1], *map(int, sys.argv[2:])
s = g.SchedulerConfig()
s.cache_size, s.max_num_batched_tokens, s.max_num_seqs, s.enable_prefix_caching, s.dynamic_split_fuse = 2, 256, clients, False, True
pipe = g.ContinuousBatchingPipeline(model, s, "CPU", {"INFERENCE_NUM_THREADS": threads})
c = g.GenerationConfig()
c.max_new_tokens = c.min_new_tokens = new
c.ignore_eos, c.do_sample = True, False
rng, serial = random.Random(), 0
def run(requests, clients):
    global serial
    waiting, active, begun, first, start = requests, {}, {}, [], time.perf_counter()
    while waiting or active:
        while waiting and len(active) < clients:
            waiting, serial = waiting - 1, serial + 1
            x = np.array([[rng.randrange(100, 20000) for _ in range(prompt)]], dtype=np.int64)
            active[serial], begun[serial] = pipe.add_request(serial, ov.Tensor(x), c), time.perf_counter()
        pipe.step()
        for i, h in list(active.items()):
            if i in begun and h.can_read():
                first.append(time.perf_counter() - begun.pop(i))
            if h.get_status() != g.GenerationStatus.RUNNING:
                h.read_all()
                del active[i]
    return {"tokens_per_second": requests * new / (time.perf_counter() - start), "ttft_p50": sorted(first)[len(first) // 2]}
run(2, 2)
for line in sys.stdin:
    print(json.dumps(run(int(line), clients)), flush=True)
"""

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("model")
p.add_argument("--lathe", default="build/bin/lathe")
p.add_argument("--artifact", help="an artifact of MODEL (default: compiled into build/bench)")
p.add_argument("--openvino", metavar="PYTHON", help="a Python that has openvino-genai")
p.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND|URL")
p.add_argument("--start-seconds", type=float, default=300, help="how long a server may take to start")
for name, default in (("clients", 16), ("requests", 64), ("input", 128), ("output", 64), ("rounds", 5), ("threads", 2)):
    p.add_argument("--" + name, type=int, default=default)
p.add_argument("--warm", type=int, help="requests of the run before the first round (default: as many as clients)")
p.add_argument("--append", metavar="FILE", help="JSON that rounds are added to")
p.add_argument("--json", action="store_true")
p.add_argument("--at-least", type=float, default=0, metavar="RATIO", help="fail unless lathe has so many times the tokens/s of the best other one")
a = p.parse_args()
warm = a.clients if a.warm is None else a.warm
settings = {"model": os.path.basename(a.model)} | {name: getattr(a, name) for name in ("clients", "requests", "input", "output", "threads")}
rounds = {}
if a.append and os.path.exists(a.append):
    with open(a.append) as f:
        before = json.load(f)
    if before["settings"] != settings:
        sys.exit(f"error: '{a.append}' has rounds of {before['settings']}, expected {settings}")
    rounds = before["rounds"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


running = []


def start(command, port):
    log = open(os.path.join("build", "bench", f"server-{port}.log"), "w")
    process = subprocess.Popen(command, stdout=log, stderr=log)
    running.append(process)
    end = time.monotonic() + a.start_seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"error: '{command[0]}' ended with {process.returncode} before it served, see {log.name}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2).read()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"error: '{command[0]}' does not answer on port {port} after {a.start_seconds} s, see {log.name}")


def over_http(url):
    serial = time.time_ns() % 2**40  # a server that runs already may remember prompts of earlier rounds

    def run(requests):
        nonlocal serial
        serial += 1
        load = subprocess.run([a.lathe, "load", url, "-n", str(requests), "-c", str(a.clients), "--input", str(a.input),
                               "--output", str(a.output), "--seed", str(serial), "--vocab", "20000", "--json", "-"], capture_output=True, text=True)
        if not load.stdout.strip():
            sys.exit(f"error: no result of `lathe load` from {url}, exit status {load.returncode}: {load.stderr.strip()}")
        result = json.loads(load.stdout)["summary"]
        if result["failed"] or result["complete"] != requests:
            sys.exit(f"error: {requests - result['complete']} of {requests} requests failed at {url}")
        if result["new_tokens"] != requests * a.output:
            sys.exit(f"error: expected {requests * a.output} new tokens from {url}, found {result['new_tokens']}")
        return {"tokens_per_second": result["new_tokens_per_second"], "ttft_p50": result["ttft"]["p50"]}

    return run


os.makedirs(os.path.join("build", "bench"), exist_ok=True)
artifact = a.artifact or os.path.join("build", "bench", os.path.basename(a.model).replace(".gguf", ".lathe"))
if not a.artifact and not (os.path.exists(artifact) and os.path.getmtime(artifact) > os.path.getmtime(a.lathe)):
    subprocess.run([a.lathe, "compile", a.model, "-o", artifact, "--quiet"], check=True)
engines = {}
try:
    port = free_port()
    start([a.lathe, "serve", artifact, "--port", str(port), "--threads", str(a.threads)], port)
    engines["lathe"] = over_http(f"http://127.0.0.1:{port}")
    for item in a.server:
        name, command = item.split("=", 1)
        if command.startswith("http://"):
            engines[name] = over_http(command)
            continue
        port = free_port()
        start([part.format(model=a.model, port=port) for part in shlex.split(command)], port)
        engines[name] = over_http(f"http://127.0.0.1:{port}")
    if a.openvino:
        peer = subprocess.Popen([a.openvino, "-c", OPENVINO, a.model, *map(str, (a.threads, a.clients, a.input, a.output))],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(peer)

        def openvino(requests):
            peer.stdin.write(f"{requests}\n")
            peer.stdin.flush()
            line = peer.stdout.readline()
            if not line:
                sys.exit("error: the OpenVINO process ended")
            return json.loads(line)

        engines["openvino"] = openvino
    for run in engines.values():
        if warm:
            run(warm)
    for i in range(a.rounds):
        for name, run in engines.items():
            rounds.setdefault(name, []).append(run(a.requests))
            print(f"round {len(rounds[name])}: {name} {rounds[name][-1]['tokens_per_second']:.0f} tokens/s", file=sys.stderr, flush=True)
        if a.append:
            with open(a.append + ".new", "w") as f:
                json.dump({"settings": settings, "rounds": rounds}, f)
            os.replace(a.append + ".new", a.append)
finally:
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()

median = {name: {key: statistics.median(r[key] for r in results) for key in results[0]} for name, results in rounds.items()}
if a.json:
    print(json.dumps({"settings": settings, "median": median, "rounds": rounds}))
else:
    print(f"{a.clients} clients, {a.requests} requests of {a.input} + {a.output} tokens, {a.threads} threads, medians")
    for name, m in median.items():
        speeds = [r["tokens_per_second"] for r in rounds[name]]
        print(f"{name:>12}  {m['tokens_per_second']:8.1f} new tokens/s ({min(speeds):.0f} to {max(speeds):.0f}, {len(speeds)} rounds)   lathe is {median['lathe']['tokens_per_second'] / m['tokens_per_second']:.2f} x   first token {1e3 * m['ttft_p50']:.0f} ms")
if a.at_least:
    best = max((m["tokens_per_second"], name) for name, m in median.items() if name != "lathe")
    ratio = median["lathe"]["tokens_per_second"] / best[0]
    if ratio < a.at_least:
        sys.exit(f"error: expected at least {a.at_least} times the tokens/s of the best other server, {best[1]}, found {ratio:.2f}")
