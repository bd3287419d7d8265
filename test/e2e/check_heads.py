#!/usr/bin/env python3
"""Computes heads in double precision from their checkpoint and the rows behind a model's last norm, and compares logits with them.

    check_heads.py HEADS.safetensors ROWS.f32 PREFIX TOLERANCE

ROWS.f32 are float32 [tokens][hidden]; PREFIX0.f32, ... float32 [tokens][vocabulary], one file a head. Heads of F16 tensors, no prefix of names.
"""
import json
import math
import struct
import sys

path, rows_path, prefix, tolerance = sys.argv[1:]
raw = open(path, "rb").read()
(length,) = struct.unpack("<Q", raw[:8])
header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]


def tensor(name):
    info = header[name]
    begin, end = info["data_offsets"]
    values = [v for (v,) in struct.iter_unpack("<e", data[begin:end])]
    if len(info["shape"]) == 1:
        return values
    width = info["shape"][1]
    return [values[i : i + width] for i in range(0, len(values), width)]


def product(matrix, x):
    return [sum(w * v for w, v in zip(row, x)) for row in matrix]


worst = largest = 0.0
head = 0
while f"{head}.0.weight" in header or f"{head}.0.linear.weight" in header:
    blocks = []
    while f"{head}.{len(blocks)}.linear.weight" in header:
        name = f"{head}.{len(blocks)}.linear"
        blocks.append((tensor(name + ".weight"), tensor(name + ".bias")))
    last = tensor(f"{head}.{len(blocks)}.weight")
    hidden, vocabulary = len(last[0]), len(last)
    rows = [v for (v,) in struct.iter_unpack("<f", open(rows_path, "rb").read())]
    found = [v for (v,) in struct.iter_unpack("<f", open(f"{prefix}{head}.f32", "rb").read())]
    assert len(rows) // hidden == len(found) // vocabulary > 0
    for r in range(len(rows) // hidden):
        x = rows[r * hidden : (r + 1) * hidden]
        for weight, bias in blocks:
            y = [a + b for a, b in zip(product(weight, x), bias)]
            x = [a + b / (1 + math.exp(-b)) for a, b in zip(x, y)]
        for want, have in zip(product(last, x), found[r * vocabulary :]):
            worst, largest = max(worst, abs(want - have)), max(largest, abs(want))
    head += 1
assert head > 0
print(f"{path}: {head} heads, largest difference {worst / largest:.2e} of the largest logit (limit {tolerance})")
sys.exit(worst / largest > float(tolerance))
