#!/usr/bin/env python3
"""Computes EAGLE's layer in double precision from its checkpoint, and compares logits with what it says.

    check_eagle.py DIR TOKENS EMBEDDINGS.f32 FEATURES.f32[,MIDDLE.f32,HIGH.f32] LOGITS.f32 TOLERANCE [--head-scale S]

EMBEDDINGS: float32 [vocabulary][hidden], each token's; times S they are also the head of a model for EAGLE-1 and 2. FEATURES: float32 [tokens][hidden]. LOGITS:
float32 [tokens][draft's vocabulary]: row t has token t's embedding and the features of token t - 1. Checkpoints of F32 tensors (tiny_eagle.py), in which a part has the
name of the tensors that the authors give it.
"""
import json
import math
import struct
import sys

directory, tokens, embeddings, features, logits, tolerance = sys.argv[1:7]
head_scale = float(sys.argv[8]) if len(sys.argv) > 8 else 1.0
config = json.load(open(directory + "/config.json"))
H, heads, kv_heads, size, eps = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"))
raw = open(directory + "/model.safetensors", "rb").read()
(length,) = struct.unpack("<Q", raw[:8])
header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]


def table(values, width):
    return [values[i : i + width] for i in range(0, len(values), width)]


def floats(path):
    return [v for (v,) in struct.iter_unpack("<f", open(path, "rb").read())]


def tensor(name):
    begin, end = header[name]["data_offsets"]
    values = [v for (v,) in struct.iter_unpack("<f", data[begin:end])]
    return values if len(header[name]["shape"]) == 1 else table(values, header[name]["shape"][1])


def linear(name, x):
    y = [sum(a * b for a, b in zip(row, x)) for row in tensors[name + ".weight"]]
    bias = tensors.get(name + ".bias")
    return [a + b for a, b in zip(y, bias)] if bias else y


def norm(name, x):
    scale = (sum(v * v for v in x) / len(x) + eps) ** -0.5
    return [v * scale * w for v, w in zip(x, tensors[name + ".weight"])]


def rotate(x, position):
    out = []
    for h in range(0, len(x), size):
        half, head = size // 2, x[h : h + size]
        angles = [position * config["rope_theta"] ** (-2 * i / size) for i in range(half)]
        out += [head[i] * math.cos(w) - head[i + half] * math.sin(w) for i, w in enumerate(angles)]
        out += [head[i + half] * math.cos(w) + head[i] * math.sin(w) for i, w in enumerate(angles)]
    return out


tensors = {name: tensor(name) for name in header if header[name]["dtype"] == "F32"}
third = "norm.weight" in tensors
prefix = next(name for name in tensors if name.endswith("self_attn.q_proj.weight")).removesuffix("self_attn.q_proj.weight")
ids = [int(t) for t in tokens.split(",")]
table_of = table(floats(embeddings), H)
before = [table(floats(path), H) for path in features.split(",")]
found = floats(logits)
D = len(found) // len(ids)
keys, values = [], []
worst = largest = 0.0
for t, token in enumerate(ids):
    e = table_of[token]
    f = [v for part in before for v in (part[t - 1] if t else [0.0] * H)]
    if third:
        x = linear("fc", f)
        a = norm(prefix + "input_layernorm", e) + norm(prefix + "hidden_norm", x)
    else:
        a = x = linear("fc", e + f)
    q = rotate(linear(prefix + "self_attn.q_proj", a), t)
    keys.append(rotate(linear(prefix + "self_attn.k_proj", a), t))
    values.append(linear(prefix + "self_attn.v_proj", a))
    o = []
    for h in range(heads):
        k = h // (heads // kv_heads) * size
        scores = [sum(u * v for u, v in zip(q[h * size : (h + 1) * size], key[k : k + size])) * size**-0.5 for key in keys]
        weights = [math.exp(s - max(scores)) for s in scores]
        total = sum(weights)
        o += [sum(w * v[k + d] for w, v in zip(weights, values)) / total for d in range(size)]
    x = [u + v for u, v in zip(x, linear(prefix + "self_attn.o_proj", o))]
    h = norm(prefix + "post_attention_layernorm", x)
    gate, up = linear(prefix + "mlp.gate_proj", h), linear(prefix + "mlp.up_proj", h)
    x = [u + v for u, v in zip(x, linear(prefix + "mlp.down_proj", [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]))]
    want = linear("lm_head", norm("norm", x)) if third else [head_scale * sum(u * v for u, v in zip(row, x)) for row in table_of]
    assert len(want) == D, (len(want), D)
    for w, v in zip(want, found[t * D : (t + 1) * D]):
        worst, largest = max(worst, abs(w - v)), max(largest, abs(w))
print(f"{directory}: {len(ids)} rows of {D} logits, largest difference {worst / largest:.2e} of the largest logit (limit {tolerance})")
sys.exit(not worst / largest <= float(tolerance))
