#!/usr/bin/env python3
"""Many clients that leave at a random place: then no request and no block is left. usage: aborts.py LATHE ARTIFACT COUNT"""
import json
import re
import subprocess
import sys

from running import Server, wait_for

lathe, artifact, count = sys.argv[1:4]
with Server(lathe, [artifact]) as server:
    done = subprocess.run([lathe, "load", server.url, "-n", count, "-c", "48", "--abort", "1", "--input", "20", "--output", "100",
                           "--vocab", "48", "--json", "-"], capture_output=True, text=True)
    summary = json.loads(done.stdout)["summary"]
    assert summary["failed"] == summary["refused"] == 0, summary
    assert summary["aborted"] > 0.9 * int(count), summary
    wait_for(lambda: server.metric("num_requests_running") == 0 and server.metric("num_requests_waiting") == 0, "no request")
    text = server.get("/metrics")[1].decode()
    blocks = dict(re.findall(r'lathe:kv_cache_blocks\{.*state="(\w+)"\} (\d+)', text))
    assert blocks["owned"] == "0", blocks
    assert server.metric("http_requests_in_flight") == 1  # the question itself
    print(f"aborts: {summary['aborted']} of {count}; KV blocks {blocks}")
