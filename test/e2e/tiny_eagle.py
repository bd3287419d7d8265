#!/usr/bin/env python3
"""Writes a layer as EAGLE's authors do: a directory with a config.json and safetensors. Weights are random, or right.

    tiny_eagle.py DIR [--third] [--hidden 64] [--vocab 97] [--heads 4] [--kv-heads 2] [--head 16] [--ffn 96] [--draft-vocab 61] [--features 0,1,2]
                  [--type F32|F16|BF16] [--seed 1] [--follow LOGITS.f32 ROWS.f32] [--names layers.0.] [--biases]
                  [--without NAME] [--rename NAME=NAME] [--shape NAME=2x3] [--dtype NAME=I32] [--value NAME=INDEX=VALUE] [--config JSON] [--no-config]

--third: EAGLE-3, with a reduced vocabulary of every so many tokens if --draft-vocab is below --vocab.
--follow: a layer for a model whose layers add nothing, so that what follows depends on the last token alone. The files (lathe-interp --raw) hold the model's
logits and its features (EAGLE-1: its rows behind the last norm; EAGLE-3: those in front of a layer) for each token alone, in order. On the cycle that its
choices end in, the layer says what follows.
What follows --biases is for tests of what a compiler must refuse.
"""
import argparse
import json
import math
import os
import random
import struct

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("directory")
for name, default in [("hidden", 64), ("vocab", 97), ("heads", 4), ("kv-heads", 2), ("head", 16), ("ffn", 96), ("draft-vocab", 0), ("seed", 1)]:
    p.add_argument("--" + name, type=int, default=default)
p.add_argument("--features", default="0,1,2")
p.add_argument("--type", default="F32")
p.add_argument("--names", default="")
p.add_argument("--config", default="")
p.add_argument("--gain", type=float, default=1.0)
p.add_argument("--follow", nargs=2)
for name in ("without", "rename", "shape", "dtype", "value"):
    p.add_argument("--" + name, action="append", default=[])
for name in ("third", "biases", "no-config"):
    p.add_argument("--" + name, action="store_true")
a = p.parse_args()
rng = random.Random(a.seed)
H, D = a.hidden, a.draft_vocab or a.vocab
wide = 2 * H if a.third else H
prefix = a.names or ("midlayer." if a.third else "layers.0.")


def bytes_of(values, kind):
    if kind == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if kind == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    if kind == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    if kind == "I64":
        return struct.pack(f"<{len(values)}q", *(int(v) for v in values))
    if kind == "BOOL":
        return bytes(int(v) for v in values)
    return struct.pack(f"<{len(values)}i", *(int(v) for v in values))


tensors = {"fc.weight": [H, 3 * H if a.third else 2 * H]}
if not a.third:
    tensors["fc.bias"] = [H]
for name, shape in [("self_attn.q_proj", [a.heads * a.head, wide]), ("self_attn.k_proj", [a.kv_heads * a.head, wide]), ("self_attn.v_proj", [a.kv_heads * a.head, wide]),
                    ("self_attn.o_proj", [H, a.heads * a.head]), ("mlp.gate_proj", [a.ffn, H]), ("mlp.up_proj", [a.ffn, H]), ("mlp.down_proj", [H, a.ffn]),
                    ("post_attention_layernorm", [H])]:
    tensors[prefix + name + ".weight"] = shape
    if a.biases and name.startswith("self_attn") and "o_proj" not in name:
        tensors[prefix + name + ".bias"] = shape[:1]
if a.third:
    tensors[prefix + "input_layernorm.weight"] = [H]
    tensors[prefix + "hidden_norm.weight"] = [H]
    tensors["norm.weight"] = [H]
    tensors["lm_head.weight"] = [D, H]
    if D < a.vocab:
        tensors["d2t"] = [D]
        tensors["t2d"] = [a.vocab]
else:
    tensors["embed_tokens.weight"] = [a.vocab, H]
kept = sorted(i * a.vocab // D for i in range(D))


def floats(path, width):
    values = [v for (v,) in struct.iter_unpack("<f", open(path, "rb").read())]
    return [values[i : i + width] for i in range(0, len(values), width)]


def following():
    """The tensors of a layer that knows what follows. Its feed-forward part has a unit for each token of the cycle: it knows the row of the token before, and
    makes the row of the token itself of it, as a feature or as the layer's own row; the head then says what follows that."""
    logits, rows = floats(a.follow[0], a.vocab), floats(a.follow[1], H)
    after = [max(range(a.vocab), key=row.__getitem__) for row in logits]
    token = 1
    for _ in range(a.vocab):
        token = after[token]
    cycle = [token]
    while after[cycle[-1]] != token:
        cycle.append(after[cycle[-1]])
    assert len(cycle) <= a.ffn, f"a cycle of {len(cycle)} tokens, expected at most {a.ffn}"
    # The reduced vocabulary has what is said.
    kept[:] = sorted(set(cycle) | set([t for t in range(a.vocab) if t not in cycle][: D - len(cycle)]))
    assert len(kept) == D, f"a cycle of {len(cycle)} tokens, expected at most {D}"
    made = {name: [0.0] * count(shape) for name, shape in tensors.items()}
    for name in made:
        if "norm" in name:
            made[name] = [1.0] * H
    unit = [[v / sum(u * u for u in rows[t]) ** 0.5 for v in rows[t]] for t in cycle]
    sharp, small = 2.0, 1e-3
    g = sharp * H**0.5
    strength = g / (1 + math.exp(-g)) * H**0.5  # what a unit that knows its row says
    for i, t in enumerate(cycle):
        known, following = unit[i], unit[(i + 1) % len(cycle)]
        for j in range(H):
            made[prefix + "mlp.gate_proj.weight"][i * H + j] = sharp * known[j]
            made[prefix + "mlp.up_proj.weight"][i * H + j] = known[j]
            # EAGLE-3's own row goes past fc: what it was is taken away.
            made[prefix + "mlp.down_proj.weight"][j * a.ffn + i] = (following[j] - known[j]) / strength if a.third else following[j]
    if a.third:
        length = sum(v * v for v in rows[cycle[0]]) ** 0.5
        for j in range(H):
            made["fc.weight"][j * 3 * H + j] = 1 / length
        for i, t in enumerate(cycle):  # behind the row of t comes after[t]
            at = kept.index(after[t])
            made["lm_head.weight"][at * H : (at + 1) * H] = unit[i]
    else:
        for j in range(H):
            made["fc.weight"][j * 2 * H + H + j] = small
    return made


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


followed = following() if a.follow else None
renamed = dict(item.split("=") for item in a.rename)
shapes = {k: [int(n) for n in v.split("x")] for k, v in (item.split("=") for item in a.shape)}
types = {"d2t": "I64", "t2d": "BOOL", **dict(item.split("=") for item in a.dtype)}
header, data = {}, b""
for name, shape in tensors.items():
    if name in a.without:
        continue
    shape, kind = shapes.get(name, shape), types.get(name, a.type)
    n = count(shape)
    if name == "d2t":
        values = [t - i for i, t in enumerate(kept)][:n]
    elif name == "t2d":
        values = [t in set(kept) for t in range(n)]
    elif followed:
        values = followed[name]
    elif "norm" in name:
        values = [1 + rng.gauss(0, 0.1) for _ in range(n)]
    else:
        values = [rng.gauss(0, a.gain * shape[-1] ** -0.5) for _ in range(n)]
    for item in a.value:
        where, index, value = item.split("=")
        if where == name:
            values[int(index)] = float(value)
    body = bytes_of(values, kind)
    header[renamed.get(name, name)] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(body)]}
    data += body
os.makedirs(a.directory, exist_ok=True)
text = json.dumps(header).encode()
with open(os.path.join(a.directory, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
if not a.no_config:
    config = {"model_type": "llama", "hidden_size": H, "intermediate_size": a.ffn, "num_hidden_layers": 1, "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads,
              "head_dim": a.head, "rms_norm_eps": 1e-5, "vocab_size": a.vocab, "max_position_embeddings": 2048, "hidden_act": "silu", "rope_theta": 10000.0}
    if a.third:
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [int(i) for i in a.features.split(",")]}
        if D < a.vocab:
            config["draft_vocab_size"] = D
    config.update(json.loads(a.config or "{}"))
    with open(os.path.join(a.directory, "config.json"), "w") as f:
        json.dump({k: v for k, v in config.items() if v is not None}, f)
