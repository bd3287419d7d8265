#!/usr/bin/env python3
"""Prints a small decoder-only model as a module of the llm dialect, with synthetic weights: no file, any shape.

    tiny_model.py [--layers 3] [--hidden 96] [--heads 6] [--kv-heads 2] [--head 32] [--ffn 160] [--vocab 301]
                  [--weights int4z_g32] [--embedding q8_0] [--window W] [--head-norms] [--post-norms] [--activation silu]
                  [--softcap C] [--no-rope-every N] [--parallel] [--untied] [--max-seq 2048] [--headless] [--silent-from N]

--silent-from: layers from this one on add nothing.
--headless: the step's result is the rows behind the last norm instead of logits (for lathe-interp).
"""
import argparse

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default in [("layers", 3), ("hidden", 96), ("heads", 6), ("kv-heads", 2), ("head", 32), ("ffn", 160), ("vocab", 301),
                      ("window", 0), ("window-every", 2), ("no-rope-every", 0), ("max-seq", 2048), ("seed", 1), ("silent-from", 1 << 30)]:
    p.add_argument("--" + name, type=int, default=default)
p.add_argument("--weights", default="int4z_g32", help="storages of the linears in turn, separated by commas")
p.add_argument("--embedding", default="q8_0")
p.add_argument("--activation", default="silu")
p.add_argument("--softcap", type=float, default=0)
for name in ("head-norms", "post-norms", "parallel", "untied", "bias", "headless"):
    p.add_argument("--" + name, action="store_true")
a = p.parse_args()

params, body = [], []
seed = a.seed
storages = a.weights.split(",")
value = 0


def element(storage):
    return storage if storage in ("f32", "f16", "bf16") else f"!llm.q<{storage}>"


def param(name, shape, storage, wrap="{}"):
    global seed
    seed += 1
    t = f"tensor<{'x'.join(map(str, shape))}x{element(storage)}>"
    sizes = ", ".join(map(str, shape))
    expression = wrap.format(f"#llm.synthetic<{seed}, {storage}, [{sizes}]>")
    if silent(name):
        expression = f"dense<0.0> : {t}"
    params.append(f'llm.param @"{name}" : {t} = {expression}')
    body.append((f'%"{name}"', f'llm.weight @"{name}" : {t}', name))
    return name, t


def silent(name):
    """Norms with weights of zero make a layer that adds nothing."""
    parts = name.split(".")
    return len(parts) == 3 and parts[2] in ("attn_norm", "ffn_norm") and parts[1].isdigit() and int(parts[1]) >= a.silent_from


def emit(text, name, results=1):
    global value
    value += 1
    body.append((f"%v{value}", text, name))
    return f"%v{value}"


def w(name):
    return f'%"{name}"'.replace('"', "").replace(".", "_")


def rows(n):
    return f"tensor<?x{n}xf32>"


count = 0


def linear(x, n_in, n_out, name):
    global count
    storage = storages[count % len(storages)]
    count += 1
    n, t = param(name, (n_out, n_in), storage)
    if not a.bias:
        return emit(f"llm.linear {x}, {w(n)} : ({rows(n_in)}, {t}) -> {rows(n_out)}", name)
    bn, bt = param(name + ".bias", (n_out,), "f32")
    return emit(f"llm.linear {x}, {w(n)} bias {w(bn)} : {bt} : ({rows(n_in)}, {t}) -> {rows(n_out)}", name)


def norm(x, n, name, heads=1):
    nn, t = param(name, (n // heads,), "f32", "{}")
    extra = f" heads {heads}" if heads > 1 else ""
    return emit(f"llm.rms_norm {x}, {w(nn)} eps 1.0e-5{extra} : {rows(n)}, {t}", name)


def add(x, y, n, name):
    return emit(f"llm.add {x}, {y} : {rows(n)}", name)


H, D = a.hidden, a.head
e, et = param("embed", (a.vocab, H), a.embedding)
x = emit(f"llm.embed %b, {w(e)} {{scale = {H ** 0.5:.6f} : f32}} : {et} -> {rows(H)}", "embed")
freq = ", ".join(f"{10000 ** (-2 * i / D):.8e}" for i in range(D // 2))
params.append(f"llm.param @freq : tensor<{D // 2}xf32> = dense<[{freq}]> : tensor<{D // 2}xf32>")
body.append(('%"freq"', f"llm.weight @freq : tensor<{D // 2}xf32>", "freq"))
angles = emit(f"llm.angles %b, %freq : tensor<{D // 2}xf32> -> {rows(D)}", "angles")
groups = {}
for layer in range(a.layers):
    group = "local" if a.window and layer % a.window_every == 0 else "full"
    groups.setdefault(group, []).append(layer)
kv = "%kv"
for layer in range(a.layers):
    pre = f"blk.{layer}."
    group = next(g for g, ls in groups.items() if layer in ls)
    index = groups[group].index(layer)
    h = norm(x, H, pre + "attn_norm")
    q = linear(h, H, a.heads * D, pre + "q")
    k = linear(h, H, a.kv_heads * D, pre + "k")
    v = linear(h, H, a.kv_heads * D, pre + "v")
    if a.head_norms:
        q = norm(q, a.heads * D, pre + "q_norm", a.heads)
        k = norm(k, a.kv_heads * D, pre + "k_norm", a.kv_heads)
    if not (a.no_rope_every and layer % a.no_rope_every == 0):
        q = emit(f"llm.rope {q}, {angles} heads {a.heads} : {rows(a.heads * D)}, {rows(D)}", pre + "q_rope")
        k = emit(f"llm.rope {k}, {angles} heads {a.kv_heads} : {rows(a.kv_heads * D)}, {rows(D)}", pre + "k_rope")
    kv = emit(f"llm.kv.append {kv}, {k}, {v}, %b group @{group} layer {index} : {rows(a.kv_heads * D)}, {rows(a.kv_heads * D)}", pre + "append")
    o = emit(f"llm.attention {q}, {kv}, %b group @{group} layer {index} heads {a.heads} scale {D ** -0.5:.8f} : {rows(a.heads * D)} -> {rows(a.heads * D)}", pre + "attention")
    o = linear(o, a.heads * D, H, pre + "o")
    if a.post_norms:
        o = norm(o, H, pre + "post_attn_norm")
    if not a.parallel:
        x = add(x, o, H, pre + "attn_add")
        h = norm(x, H, pre + "ffn_norm")
    g = linear(h, H, a.ffn, pre + "gate")
    u = linear(h, H, a.ffn, pre + "up")
    f = emit(f"llm.glu {a.activation} {g}, {u} : {rows(a.ffn)}", pre + "glu")
    f = linear(f, a.ffn, H, pre + "down")
    if a.post_norms:
        f = norm(f, H, pre + "post_ffn_norm")
    if a.parallel:
        f = add(o, f, H, pre + "parallel_add")
    x = add(x, f, H, pre + "ffn_add")
s = emit(f"llm.select_rows {x}, %b : {rows(H)}", "select")
s = norm(s, H, "output_norm")
if a.untied:
    storages, count = [a.embedding], 0
    head, ht = param("head", (a.vocab, H), a.embedding)
else:
    head, ht = e, et
outputs = H if a.headless else a.vocab
logits = s if a.headless else emit(f"llm.linear {s}, {w(head)} : ({rows(H)}, {ht}) -> {rows(a.vocab)}", "head")
if a.softcap and not a.headless:
    logits = emit(f"llm.softcap {logits} cap {a.softcap} : {rows(a.vocab)}", "softcap")

print(f'module attributes {{llm.model = {{name = "tiny", max_sequence = {a.max_seq} : i64}}}} {{')
for group, layers in groups.items():
    window = a.window if group == "local" else 0
    entries = ", ".join([f"#llm.kv_layer<{a.kv_heads}, {D}, {D}>"] * len(layers))
    print(f"llm.kv_group @{group} layers [{entries}] key f16 value f16 window {window} page 0")
print("\n".join(params))
print(f"func.func @step(%b: !llm.batch, %kv: !llm.kv) -> ({rows(outputs)}, !llm.kv) {{")
for result, text, name in body:
    print(f'  {result.replace(chr(34), "").replace(".", "_")} = {text} loc("{name}")')
print(f"  return {logits}, {kv} : {rows(outputs)}, !llm.kv\n}}\n}}")
