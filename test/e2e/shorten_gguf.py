#!/usr/bin/env python3
"""Writes a GGUF file with the first layers of another.

    shorten_gguf.py IN.gguf LAYERS OUT.gguf

Metadata is copied byte by byte but for the block count; tensors of later layers are left out.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
import re
import struct
import sys

SCALAR = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n : self.at]

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip(inner)
        else:
            self.at += SCALAR[kind]


def main():
    source, layers, target = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    data = bytearray(open(source, "rb").read())
    r = Reader(data)
    if data[:4] != b"GGUF":
        sys.exit(f"error: '{source}' is no GGUF file")
    r.at = 8
    tensors, pairs = r.number("Q"), r.number("Q")
    alignment = 32
    for _ in range(pairs):
        key, kind = r.string(), r.number("I")
        if key.endswith(b".block_count"):
            struct.pack_into("<I", data, r.at, layers)
        if key == b"general.alignment":
            (alignment,) = struct.unpack_from("<I", data, r.at)
        r.skip(kind)
    metadata = bytes(data[24 : r.at])
    infos = []
    for _ in range(tensors):
        name = r.string()
        dims = [r.number("Q") for _ in range(r.number("I"))]
        infos.append((name, dims, r.number("I"), r.number("Q")))
    start = (r.at + alignment - 1) // alignment * alignment
    ends = sorted({info[3] for info in infos} | {len(data) - start})
    kept, body = [], bytearray()
    for name, dims, kind, offset in infos:
        block = re.match(rb"blk\.(\d+)\.", name)
        if block and int(block[1]) >= layers:
            continue
        kept.append((name, dims, kind, len(body)))
        body += data[start + offset : start + ends[ends.index(offset) + 1]]  # with the padding to the next tensor
        body += bytes(-len(body) % alignment)
    out = bytearray(b"GGUF" + data[4:8] + struct.pack("<QQ", len(kept), pairs) + metadata)
    for name, dims, kind, offset in kept:
        out += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)
    out += bytes(-len(out) % alignment)
    with open(target, "wb") as f:
        f.write(out + body)


main()
