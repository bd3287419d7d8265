#!/usr/bin/env python3
"""Writes heads as their authors do: a directory with a config.json and safetensors. Weights are random, or right.

    tiny_heads.py DIR [--hidden 64] [--vocab 97] [--heads 3] [--blocks 1] [--type F32|F16|BF16] [--seed 1] [--prefix P] [--gain 1.0]
                  [--follow LOGITS.f32 ROWS.f32] [--without NAME] [--rename NAME=NAME] [--shape NAME=2x3] [--dtype NAME=I32] [--no-config]

--follow: heads of no block for a model whose layers add nothing, so that what follows depends on the last token alone. The files (lathe-interp --raw) hold
its logits and its rows behind the last norm for each token alone, in order. On the cycle that its choices end in, head i says what comes i + 2 places behind.
What follows --no-config or names a tensor is for tests of what a compiler must refuse.
"""
import argparse
import json
import os
import random
import struct

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("directory")
for name, default in [("hidden", 64), ("vocab", 97), ("heads", 3), ("blocks", 1), ("seed", 1)]:
    p.add_argument("--" + name, type=int, default=default)
p.add_argument("--gain", type=float, default=1.0)
p.add_argument("--type", default="F32")
p.add_argument("--prefix", default="")
p.add_argument("--config", default="")
p.add_argument("--file", default="medusa_lm_head.safetensors")
p.add_argument("--follow", nargs=2)
for name in ("without", "rename", "shape", "dtype"):
    p.add_argument("--" + name, action="append", default=[])
p.add_argument("--no-config", action="store_true")
a = p.parse_args()
rng = random.Random(a.seed)


def bytes_of(values, kind):
    if kind == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if kind == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    if kind == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}i", *(int(v) for v in values))


def floats(path, width):
    values = [v for (v,) in struct.iter_unpack("<f", open(path, "rb").read())]
    return [values[i : i + width] for i in range(0, len(values), width)]


def following():
    """[head] weights: rows of the tokens in the cycle, each where its successor's successor (and so on) is."""
    logits, rows = floats(a.follow[0], a.vocab), floats(a.follow[1], a.hidden)
    after = [max(range(a.vocab), key=row.__getitem__) for row in logits]
    token = 1
    for _ in range(a.vocab):
        token = after[token]
    cycle = [token]
    while after[cycle[-1]] != token:
        cycle.append(after[cycle[-1]])
    heads = []
    for head in range(a.heads):
        weight = [[0.0] * a.hidden for _ in range(a.vocab)]
        for i, t in enumerate(cycle):
            length = sum(v * v for v in rows[t]) ** 0.5
            weight[cycle[(i + 2 + head) % len(cycle)]] = [v / length for v in rows[t]]
        heads.append([v for row in weight for v in row])
    return heads


followed = following() if a.follow else []
tensors = {}
for head in range(a.heads):
    for block in range(a.blocks):
        tensors[f"{head}.{block}.linear.weight"] = [a.hidden, a.hidden]
        tensors[f"{head}.{block}.linear.bias"] = [a.hidden]
    tensors[f"{head}.{a.blocks}.weight"] = [a.vocab, a.hidden]
renamed = dict(item.split("=") for item in a.rename)
shapes = {k: [int(n) for n in v.split("x")] for k, v in (item.split("=") for item in a.shape)}
types = dict(item.split("=") for item in a.dtype)
header, data = {}, b""
for name, shape in tensors.items():
    if name in a.without:
        continue
    shape, kind = shapes.get(name, shape), types.get(name, a.type)
    count = 1
    for n in shape:
        count *= n
    scale = a.gain * a.hidden**-0.5
    values = followed[int(name.split(".")[0])] if followed else [rng.gauss(0, scale) for _ in range(count)]
    body = bytes_of(values, kind)
    header[a.prefix + renamed.get(name, name)] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(body)]}
    data += body
os.makedirs(a.directory, exist_ok=True)
text = json.dumps(header).encode()
with open(os.path.join(a.directory, a.file), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
if not a.no_config:
    with open(os.path.join(a.directory, "config.json"), "w") as f:
        f.write(a.config or json.dumps({"medusa_num_heads": a.heads, "medusa_num_layers": a.blocks}))
