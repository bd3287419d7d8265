#!/usr/bin/env python3
"""/v1/embeddings of a tiny model against transformers' pooled hidden states (test/fixtures/server). usage: embeddings.py LATHE WORK"""
import json
import subprocess
import sys
from pathlib import Path

from running import Server

lathe, work = sys.argv[1:3]
fixtures = Path(__file__).resolve().parents[2] / "fixtures"
kept = json.loads((fixtures / "server/embeddings.json").read_text())
artifact = f"{work}/embeddings.lathe"
# Float weights and activations: nothing is rounded that transformers does not round.
subprocess.run([lathe, "compile", fixtures / "import/models" / kept["model"], "-o", artifact, "--activations", "f32", "--kv", "f32",
                "--target", "native", "--quiet"], check=True, stderr=subprocess.DEVNULL)
for pooling in ("last", "mean"):
    with Server(lathe, [artifact], "--pooling", pooling) as server:
        worst = 0
        for _ in range(2):  # the second time from the prefix cache
            status, body = server.post("/v1/embeddings", {"input": kept["prompts"]})
            assert status == 200, body
            found = [entry["embedding"] for entry in json.loads(body)["data"]]
            for one, other in zip(found, kept[pooling], strict=True):
                worst = max(worst, *(abs(a - b) for a, b in zip(one, other, strict=True)))
        print(f"embeddings, pooled by {pooling}: within {worst:.1e} of transformers' for values of up to {max(map(abs, sum(kept[pooling], []))):.1f}")
        assert worst <= 1e-3, worst
