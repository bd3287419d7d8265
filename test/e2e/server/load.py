#!/usr/bin/env python3
"""`lathe load` against `lathe serve`: counts that must hold whatever the speed. usage: load.py LATHE ARTIFACT FOLDER"""
import json
import subprocess
import sys

from running import Server, wait_for

lathe, artifact, folder = sys.argv[1:4]


def load(server, *options):
    command = [lathe, "load", server.url, "--json", "-", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["summary"]


with Server(lathe, [artifact], "--ctx", "1024") as server:
    closed = load(server, "-n", "12", "-c", "4", "--input", "64", "--output", "16", "--plot", f"{folder}/load.svg")
    assert closed["complete"] == 12 and closed["new_tokens"] == 12 * 16 and closed["prompt_tokens"] == 12 * 64, closed
    assert closed["ttft"]["count"] == 12 and closed["ttft"]["p50"] > 0
    # What the server says of it: the counts exactly; its time to the first token lies within the clients'.
    wait_for(lambda: server.metric("request_success_total") == server.metric("time_to_first_token_seconds_count") == 12, "twelve answers in the metrics")
    assert server.metric("generation_tokens_total") == 12 * 16 and server.metric("prompt_tokens_total") == 12 * 64
    assert server.metric("inter_token_latency_seconds_count") == 12 * 15
    first = server.metric("time_to_first_token_seconds_sum") / 12
    assert 0 < server.metric("request_queue_time_seconds_sum") / 12 <= first <= closed["ttft"]["mean"], (first, closed["ttft"])
    again = load(server, "-n", "12", "-c", "4", "--input", "64", "--output", "16")
    assert again["cached_tokens"] > 0, again  # the same seed: the same prompts
    open_loop = load(server, "-n", "20", "--rate", "20", "--burstiness", "0.5", "--input", "40", "--input-sigma", "0.7", "--output",
                     "10", "--output-sigma", "0.5", "--shared-prefix", "64", "--slo", "ttft:60000", "--seed", "9")
    assert open_loop["complete"] == 20 and open_loop["goodput"]["good"] == 20, open_loop
    mixed = load(server, "-n", "12", "--chat", "--turns", "2", "--input", "20", "--output", "12", "--abort", "0.3", "--slow", "0.2")
    assert mixed["failed"] == 0 and mixed["aborted"] > 0 and mixed["complete"] + mixed["aborted"] == mixed["requests"], mixed
    print("load: closed loop, open loop, conversations with clients that leave")
assert open(f"{folder}/load.svg").read().startswith("<svg")
