#!/usr/bin/env python3
"""Writes a model of the llama architecture as GGUF whose tensors are random valid blocks of any storage type; tiny, if nothing is said.

    tiny_gguf.py --types q4_k,q6_k [--layers 1] [--untied] [--seed 1] [--hidden 256] [--heads 4] [--kv-heads 2] [--ffn 512] [--vocab 301] OUT.gguf

--types: storage types of the matrices in turn, in the order of the file: embedding, q, k, v, o, gate, up, down, next layer.
Blocks are made from bytes, not from values: every code, sub-scale and high bit occurs. Only the float16 scales are chosen, so that
a row of weights has about the length 1; a large tensor repeats 65,536 blocks. No vocabulary text: for programs that take ids. Needs nothing but Python.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
import argparse
import random
import struct

POSITIONS = 2048

# Number in the file, columns of a block, bytes before the scales, float16 fields, bytes behind them, spread of value / d, min / d.
TYPES = {
    "q4_0": (2, 32, 0, "d", 16, 4.6, 0), "q4_1": (3, 32, 0, "dm", 16, 4.6, -7.5), "q5_0": (6, 32, 0, "d", 20, 9.2, 0),
    "q5_1": (7, 32, 0, "dm", 20, 9.2, -15.5), "q8_0": (8, 32, 0, "d", 32, 74, 0), "q2_k": (10, 256, 80, "dm", 0, 14, 1.5),
    "q3_k": (11, 256, 108, "d", 0, 43, 0), "q4_k": (12, 256, 0, "dm", 140, 257, 7.5), "q5_k": (13, 256, 0, "dm", 172, 523, 15.5),
    "q6_k": (14, 256, 208, "d", 0, 1370, 0), "iq4_nl": (20, 32, 0, "d", 16, 65, 0),
}
FLOATS = {"f32": 0, "f16": 1, "bf16": 30}


def blocks(rng, kind, rows, columns):
    length = columns ** -0.5
    if kind in FLOATS:
        values = [rng.gauss(0, length) for _ in range(min(rows * columns, 1 << 21))]
        if kind == "bf16":
            out = b"".join(struct.pack("<f", v)[2:] for v in values)  # cut off: any bfloat16 will do
        else:
            out = struct.pack("<%d%s" % (len(values), "e" if kind == "f16" else "f"), *values)
        return repeated(out, len(out) // len(values) * rows * columns)
    _, size, before, fields, behind, spread, least = TYPES[kind]
    out, count = bytearray(), rows * columns // size
    for _ in range(min(count, 1 << 16)):
        d = length / spread * rng.uniform(0.5, 1.5)
        out += rng.randbytes(before) + struct.pack("<e", d) + (struct.pack("<e", d * least) if fields == "dm" else b"") + rng.randbytes(behind)
    return repeated(out, len(out) // min(count, 1 << 16) * count)


def repeated(data, size):
    return (data * (-(-size // len(data))))[:size]


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--types", required=True)
    for name, default in [("layers", 1), ("hidden", 256), ("heads", 4), ("kv-heads", 2), ("ffn", 512), ("vocab", 301), ("seed", 1)]:
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--untied", action="store_true")
    p.add_argument("out")
    a = p.parse_args()
    rng = random.Random(a.seed)
    kinds, tensors = a.types.split(","), []
    matrices = 0

    def matrix(name, rows, columns):
        nonlocal matrices
        kind = kinds[matrices % len(kinds)]
        size = 1 if kind in FLOATS else TYPES[kind][1] if kind in TYPES else 0
        if not size or columns % size:
            p.error(f"{name}: expected a storage type and whole blocks in a row, found {kind} and rows of {columns}")
        matrices += 1
        tensors.append((name + ".weight", [columns, rows], FLOATS[kind] if kind in FLOATS else TYPES[kind][0], blocks(rng, kind, rows, columns)))

    def norm(name):
        tensors.append((name + ".weight", [a.hidden], 0, struct.pack(f"<{a.hidden}f", *[rng.uniform(0.5, 1.5) for _ in range(a.hidden)])))

    kv = a.hidden // a.heads * a.kv_heads
    matrix("token_embd", a.vocab, a.hidden)
    for layer in range(a.layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm")
        for name, rows, columns in [("attn_q", a.hidden, a.hidden), ("attn_k", kv, a.hidden), ("attn_v", kv, a.hidden), ("attn_output", a.hidden, a.hidden)]:
            matrix(block + name, rows, columns)
        norm(block + "ffn_norm")
        for name, rows, columns in [("ffn_gate", a.ffn, a.hidden), ("ffn_up", a.ffn, a.hidden), ("ffn_down", a.hidden, a.ffn)]:
            matrix(block + name, rows, columns)
    norm("output_norm")
    if a.untied:
        matrix("output", a.vocab, a.hidden)

    metadata = [("general.architecture", 8, string("llama")), ("tokenizer.ggml.model", 8, string("none"))]
    for key, value in [("context_length", POSITIONS), ("embedding_length", a.hidden), ("vocab_size", a.vocab), ("block_count", a.layers), ("feed_forward_length", a.ffn),
                       ("attention.head_count", a.heads), ("attention.head_count_kv", a.kv_heads)]:
        metadata.append(("llama." + key, 4, struct.pack("<I", value)))
    metadata.append(("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)))
    metadata.append(("llama.rope.freq_base", 6, struct.pack("<f", 10000)))
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, kind, value in metadata:
        head += string(key) + struct.pack("<I", kind) + value
    offset = 0
    for name, dims, kind, data in tensors:
        head += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)
        offset += len(data) + -len(data) % 32
    with open(a.out, "wb") as f:
        for part in [head, *(tensor[-1] for tensor in tensors)]:
            f.write(part)
            f.write(bytes(-len(part) % 32))


main()
