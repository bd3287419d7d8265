#!/usr/bin/env python3
"""Writes Medusa's heads with random weights, float16, for models of real sizes, in a second: what is exact does not depend on good drafts.

    random_heads.py DIR [--hidden 576] [--vocab 49152] [--heads 2] [--seed 1]
"""
import argparse
import json
import os
import random
import struct

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("directory")
for name, default in [("hidden", 576), ("vocab", 49152), ("heads", 2), ("seed", 1)]:
    p.add_argument("--" + name, type=int, default=default)
a = p.parse_args()
rng = random.Random(a.seed)
# The upper byte of a float16 becomes a sign and an exponent of 2^-6 or 2^-5; two bits of its fraction stay.
upper = bytes((b & 0x80) | 0x24 | (b & 7) for b in range(256))
header, size = {}, 0
for head in range(a.heads):
    for name, shape in [("0.linear.weight", [a.hidden, a.hidden]), ("0.linear.bias", [a.hidden]), ("1.weight", [a.vocab, a.hidden])]:
        n = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[f"{head}.{name}"] = {"dtype": "F16", "shape": shape, "data_offsets": [size, size + n]}
        size += n
os.makedirs(a.directory, exist_ok=True)
text = json.dumps(header).encode()
with open(os.path.join(a.directory, "medusa_lm_head.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for tensor in header.values():
        body = bytearray(rng.randbytes(tensor["data_offsets"][1] - tensor["data_offsets"][0]))
        body[1::2] = body[1::2].translate(upper)
        f.write(body)
with open(os.path.join(a.directory, "config.json"), "w") as f:
    json.dump({"medusa_num_heads": a.heads, "medusa_num_layers": 1}, f)
