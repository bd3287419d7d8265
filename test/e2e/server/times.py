#!/usr/bin/env python3
"""How long `lathe serve` may take: what no test of order and counts sees. For a quiet machine, so not a part of every run; each figure is the
best or the median of several. usage: times.py LATHE ARTIFACT"""
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from running import Server, run_tests, wait_for

PATH = "/v1/completions"
lathe, artifact = sys.argv[1:3]


def request(server, body, keep=False):
    data = json.dumps({"temperature": 0, "ignore_eos": True, **body}).encode()
    close = "" if keep else "Connection: close\r\n"
    return f"POST {PATH} HTTP/1.1\r\nHost: {server.host}\r\n{close}Content-Length: {len(data)}\r\n\r\n".encode() + data


def load(server, *options, key=None):
    """The summary of `lathe load`."""
    command = [lathe, "load", server.url, "--json", "-", *map(str, options)] + (["--key", key] if key else [])
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["summary"]
    except ValueError:
        raise AssertionError(done.stdout + done.stderr)


def test_starts_within_a_second():
    seconds = []
    for _ in range(5):
        with Server(lathe, [artifact]) as server:
            assert server.get("/ready")[0] == 200
            seconds.append(server.start_seconds)
    print(f"     started in {', '.join(f'{s:.2f}' for s in seconds)} s")
    assert min(seconds) < 1, seconds


def test_health_beside_stalled_readers():
    """200 streams that nobody reads, and the engine at work on as many as it takes."""
    with Server(lathe, [artifact], "--ctx", "1024", "--max-seqs", "32") as server:
        stalled = []
        for n in range(200):
            s = server.connect(4096)
            s.sendall(request(server, {"prompt": [1, 2, 3 + n], "max_tokens": 900, "stream": True}))
            stalled.append(s)
        wait_for(lambda: server.metric("http_requests_in_flight") >= 201, "200 requests and the question")
        worst = []
        for _ in range(3):
            times = []
            for _ in range(20):
                began = time.monotonic()
                assert server.get("/health")[0] == 200
                times.append(time.monotonic() - began)
            worst.append(max(times))
        print(f"     /health within {', '.join(f'{1e3 * w:.1f}' for w in worst)} ms")
        assert server.metric("http_requests_in_flight") >= 150
        for s in stalled:
            s.close()
        assert min(worst) < 0.1, worst


def test_early_refusals():
    """A target that cannot be met is refused in less than 5 ms, with Retry-After, while the engine is at work."""
    with Server(lathe, [artifact], "--ctx", "2048", "--max-seqs", "4", "--policy", "deadline", "--ttft", "1") as server:
        with server.connect() as busy, server.connect() as s:
            busy.sendall(request(server, {"prompt": [1, 2, 3], "max_tokens": 2000, "stream": True, "ttft_target_ms": 1e6}, keep=True))
            wait_for(lambda: server.metric("num_requests_running") == 1, "the first to run")
            times = []
            for n in range(20):
                began = time.monotonic()
                s.sendall(request(server, {"prompt": [(7 * i + n) % 1000 for i in range(100)], "max_tokens": 4}, keep=True))
                got = b""
                while b"}}" not in got:
                    got += s.recv(65536)
                times.append(time.monotonic() - began)
                assert got.startswith(b"HTTP/1.1 429") and b"\r\nRetry-After: " in got, got
    print(f"     refused after {1e3 * statistics.median(times):.2f} ms, at most {1e3 * max(times):.2f} ms")
    assert statistics.median(times) < 0.005, times


MIX = ["--input", 64, "--input-sigma", 0.5, "--max-input", 300, "--output", 32, "--output-sigma", 0.5, "--max-output", 128]


def test_goodput_at_overload():
    """Arrivals at 1.3 times what is served, with targets and without. Printed."""
    found = {}
    for policy in ("deadline", "fcfs"):
        with Server(lathe, [artifact], "--ctx", "1024", "--max-seqs", "16", "--policy", policy, "--ttft", "1000", "--tpot", "200") as server:
            if not found:
                capacity = load(server, "-n", 120, "-c", 16, *MIX)["requests_per_second"]
            load(server, "-n", 16, "-c", 16, "--seed", 2, *MIX)  # what a step costs
            found[policy] = load(server, "-n", round(25 * capacity), "--rate", 1.3 * capacity, "--seed", 3, "--slo", "ttft:1000,tpot:200", *MIX)
    rates = {policy: s["goodput"]["requests_per_second"] for policy, s in found.items()}
    print(f"     {capacity:.2f} requests/s are served; at 1.3 times that many meet 1 s and 200 ms a token: "
          + ", ".join(f"{policy} {rate:.2f}/s ({found[policy]['refused']} of {found[policy]['requests']} refused)" for policy, rate in rates.items()))
    assert all(s["failed"] == 0 for s in found.values()), found  # how much it brings is the simulator's to assert


def test_first_tokens_beside_a_flood():
    """A tenant of one request at a time, alone and beside one that keeps 60 waiting. Printed."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as keys:
        for name in ("flood", "polite"):
            keys.write(json.dumps({"name": name, "key": "sk-" + name + "-key"}) + "\n")
        keys.flush()
        ratio = {}
        for policy in ("fair", "fcfs"):
            with Server(lathe, [artifact], "--ctx", "1024", "--max-seqs", "16", "--policy", policy, "--api-key-file", keys.name) as server:
                polite = lambda seed: load(server, "-n", 30, "-c", 1, "--seed", seed, *MIX, key="sk-polite-key")["ttft"]["p99"]
                polite(1)  # what a step costs
                alone = polite(2)
                stop = threading.Event()

                def flood():
                    seed = 100
                    while not stop.is_set():
                        load(server, "-n", 200, "-c", 76, "--seed", seed, *MIX, key="sk-flood-key")
                        seed += 1

                thread = threading.Thread(target=flood)
                thread.start()
                time.sleep(3)
                ratio[policy] = polite(3) / alone
                stop.set()
                thread.join()
    print("     p99 of the first token beside a flood, to that alone: " + ", ".join(f"{policy} {r:.1f}" for policy, r in ratio.items()))


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
