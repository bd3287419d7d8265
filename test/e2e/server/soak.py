#!/usr/bin/env python3
"""Mixed load for a while, then nothing may be left. usage: soak.py LATHE ARTIFACT SECONDS

Rounds of `lathe load` (closed and open loop, conversations, shared prefixes, clients that leave or read slowly) run beside
clients that send what is malformed and clients that stall. Resident memory is read all the time; a line is fitted to the
last two thirds, and over that time it may rise by no more than 2 % of the memory. The KV cache is small, so that all of it
has been touched by then. Latencies of the last third are those of the first, and nobody is refused.
"""
import itertools
import json
import random
import statistics
import subprocess
import sys
import threading
import time

from running import Server, wait_for

lathe, artifact, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
MIXES = [
    ["-n", "24", "-c", "8", "--input", "100", "--input-sigma", "0.8", "--max-input", "600", "--output", "30", "--output-sigma", "0.6", "--max-output", "200"],
    ["-n", "24", "--rate", "4", "--burstiness", "0.3", "--input", "60", "--output", "20", "--shared-prefix", "200", "--groups", "3"],
    ["-n", "20", "-c", "10", "--input", "50", "--output", "60", "--abort", "0.7"],
    ["-n", "6", "-c", "6", "--chat", "--turns", "3", "--input", "20", "--output", "20", "--abort", "0.2", "--temp", "0.9"],
    ["-n", "8", "-c", "8", "--input", "30", "--output", "100", "--slow", "0.5", "--slow-rate", "8000"],
]
end = time.monotonic() + seconds
samples, latencies, counts, problems = [], [], {"complete": 0, "aborted": 0, "refused": 0, "failed": 0, "rounds": 0}, []


def rounds(server):
    for number, mix in enumerate(itertools.cycle(MIXES)):
        if time.monotonic() > end:
            return
        done = subprocess.run([lathe, "load", server.url, "--json", "-", "--seed", str(number), *mix], capture_output=True, text=True)
        try:
            summary = json.loads(done.stdout)["summary"]
        except ValueError:
            problems.append(done.stdout + done.stderr)
            return
        for name in ("complete", "aborted", "refused", "failed"):
            counts[name] += summary[name]
        counts["rounds"] += 1
        if number % len(MIXES) < 3:  # the others wait on purpose
            latencies.append((number % len(MIXES), summary["ttft"]["p99"], summary["itl"]["p99"]))
        if summary["failed"]:
            problems.append(str(summary["errors"]))


def nuisance(server):
    rng = random.Random(1)
    held = []
    while time.monotonic() < end:
        kind = rng.randrange(4)
        try:
            if kind == 0:
                server.post("/v1/chat/completions", bytes(rng.randrange(256) for _ in range(200)))
            elif kind == 1:
                s = server.connect()
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
                held.append(s)
            elif kind == 2:
                server.get("/metrics")
            else:
                server.post("/v1/embeddings", {"input": "word " * rng.randrange(1, 100)})
        except OSError as error:
            problems.append(f"nuisance: {error}")
        if len(held) > 20:
            held.pop(0).close()
        time.sleep(0.2)
    for s in held:
        s.close()


# The time-out for writes is long, because the machine may be busy with others, or suspended.
with Server(lathe, [artifact], "--ctx", "1024", "--max-seqs", "16", "--memory", "128", "--write-timeout", "600") as server:
    threads = [threading.Thread(target=task, args=(server,)) for task in (rounds, nuisance)]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        samples.append((time.monotonic() - begin, server.memory()))
        time.sleep(1)
    assert server.process.poll() is None, server.errors()
    wait_for(lambda: server.metric("num_requests_running") == 0 and server.metric("num_requests_waiting") == 0, "no request")
    wait_for(lambda: 'state="owned"} 0' in server.get("/metrics")[1].decode(), "no owned block")
    late = samples[len(samples) // 3:]
    n = len(late)
    mean_t, mean_m = sum(t for t, _ in late) / n, sum(m for _, m in late) / n
    slope = sum((t - mean_t) * (m - mean_m) for t, m in late) / max(1e-9, sum((t - mean_t) ** 2 for t, _ in late))
    rise = slope * (late[-1][0] - late[0][0])
    print(f"soak: {seconds:.0f} s, {counts}; memory {mean_m / 1e6:.1f} MB, {rise / 1e6:+.2f} MB over the last {late[-1][0] - late[0][0]:.0f} s")
    # Does it get slower? By mix, the medians over the rounds of the first and of the last third; half as much again is the machine's.
    third = len(latencies) // 3
    for name, column in (("ttft", 1), ("itl", 2)):
        for mix in range(3):
            first, last = ([r[column] for r in part if r[0] == mix] for part in (latencies[:third], latencies[-third:]))
            if len(first) < 3 or len(last) < 3:
                continue
            first, last = statistics.median(first), statistics.median(last)
            print(f"soak: mix {mix}, p99 {name} {first:.4f} s in the first third, {last:.4f} s in the last")
            assert last <= 1.5 * first + 0.01, f"mix {mix}: the p99 of {name} rises from {first:.4f} to {last:.4f} s"
    assert not problems, problems[:5]
    # The queue holds all of a mix: nothing is a reason to refuse, and somebody was answered all the time.
    assert counts["refused"] <= counts["complete"] / 1000, counts
    assert counts["rounds"] >= seconds / 60, counts
    assert rise <= 0.02 * mean_m, f"resident memory rises by {rise / 1e6:.2f} MB"
