#!/usr/bin/env python3
"""Trains an EAGLE layer for a small model of Llama's kind on text that the model generated itself, on a CPU in less than an hour.

    train_eagle.py MODEL.gguf OUT [--lathe build/bin/lathe] [--text DIR] [--tokens 60000] [--epochs 6] [--threads 2] [--seed 1]
    lathe compile MODEL.gguf --speculate eagle --speculate-weights OUT --quantize int4-g32 --quantize-skip '^layers' --quantize-skip '^embedding' -o model.lathe
    lathe bench model.lathe --speculate eagle --prompt-file TEXT -n 128

Needs torch, transformers, gguf, safetensors and numpy (`pip install torch transformers gguf safetensors numpy`), and lathe, which generates the text.
The layer's row of a token takes the token's embedding and the feature of the token before, which is the model's row behind the last norm, and learns to make the
token's own feature, from which the model's head says what follows. It is taught with the model's features and, in a second pass of half of the texts, with those that
it made itself. On one twentieth of the text, kept apart, the script says how often the first and the second token of a draft are right. OUT/model.safetensors
and OUT/config.json have the format of EAGLE's authors.
"""
import json
import math
import os
import sys

from training import arguments, features_of, frequent, run


def layer_of(config):
    """fc and a decoder layer of Llama's kind whose attention has no norm in front. Parameters have the names of the checkpoint's tensors."""
    import torch
    from torch import nn

    H, heads, kv_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or H // heads
    parameters = getattr(config, "rope_parameters", None) or {}
    theta = parameters.get("rope_theta") or getattr(config, "rope_theta", 10000.0)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda n, k, bias=False: nn.Linear(k, n, bias=bias)
            self.fc = linear(H, 2 * H, True)
            self.q, self.k, self.v = linear(heads * size, H), linear(kv_heads * size, H), linear(kv_heads * size, H)
            self.o = linear(H, heads * size)
            self.gate, self.up, self.down = linear(config.intermediate_size, H), linear(config.intermediate_size, H), linear(H, config.intermediate_size)
            self.norm = nn.Parameter(torch.ones(H))
            for last in (self.o, self.down):
                nn.init.zeros_(last.weight)

        def rotated(self, x):
            half = size // 2
            angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), theta ** (-torch.arange(half) / half))[None, :, None]
            a, b = x[..., :half], x[..., half:]
            return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

        def forward(self, embedding, feature):
            x = self.fc(torch.cat([embedding, feature], -1))
            n, t = x.shape[:2]
            q, k, v = self.rotated(self.q(x).view(n, t, heads, size)), self.rotated(self.k(x).view(n, t, kv_heads, size)), self.v(x).view(n, t, kv_heads, size)
            q, k = q.to(v.dtype), k.to(v.dtype)
            k, v = (y.repeat_interleave(heads // kv_heads, 2) for y in (k, v))
            y = nn.functional.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (q, k, v)), is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(n, t, -1))
            h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps) * self.norm
            return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))

        def tensors(self):
            names = {"self_attn.q_proj": self.q, "self_attn.k_proj": self.k, "self_attn.v_proj": self.v, "self_attn.o_proj": self.o, "mlp.gate_proj": self.gate, "mlp.up_proj": self.up,
                     "mlp.down_proj": self.down}
            made = {f"layers.0.{name}.weight": linear.weight for name, linear in names.items()}
            return {**made, "layers.0.post_attention_layernorm.weight": self.norm, "fc.weight": self.fc.weight, "fc.bias": self.fc.bias}

    return Layer(), {"head_dim": size, "rope_theta": theta}


def start_from_line(layer, data, table):
    """Begins with the linear map from [embedding, feature] to the next feature that fits the text best (least squares, a little ridge): the layer then learns the rest."""
    import torch

    width = table.shape[1]
    square, cross, count = torch.zeros(2 * width + 1, 2 * width + 1, dtype=torch.float64), torch.zeros(2 * width + 1, width, dtype=torch.float64), 0
    for tokens, rows, _ in data:
        x = torch.cat([table[tokens[1:]], rows[:-1].float(), torch.ones(len(tokens) - 1, 1)], 1)
        square += (x.T @ x).double()
        cross += (x.T @ rows[1:].float()).double()
        count += len(x)
    ridge = 1e-4 * square.diagonal().clone()
    ridge[-1] = 0
    best = torch.linalg.solve(square + torch.diag(ridge + 1e-6 * count * table.var()), cross).float()
    with torch.no_grad():
        layer.fc.weight.copy_(best[:-1].T)
        layer.fc.bias.copy_(best[-1])


def train(a, model, texts):
    import torch
    from torch import nn

    torch.manual_seed(a.seed)
    apart = max(1, len(texts) // 20)
    # Of each text its tokens, the features and the first row of the answer.
    data = [(torch.tensor(prompt + answer), rows, len(prompt)) for (prompt, answer), rows in zip(texts, features_of(a, model, texts))]
    test, data = data[:apart], data[apart:]
    print(f"{sum(len(t) for t, _, _ in data)} tokens to learn from, {sum(len(t) for t, _, _ in test)} kept apart", flush=True)
    table, head = model.model.embed_tokens.weight.detach(), model.lm_head.weight.detach()
    some = head[frequent(torch.cat([t for t, _, _ in data]))]
    layer, about = layer_of(model.config)
    start_from_line(layer, data, table)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=a.rate, betas=(0.9, 0.95), weight_decay=0.0)
    steps = a.epochs * max(1, len(data) // a.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * s / steps))))

    def padded(group):
        """Rows 1 .. of each text: embeddings, features of the tokens before, those to be made, and which of these are an answer's."""
        most = max(len(t) for t, _, _ in group) - 1
        width = table.shape[1]
        e, f, want, mask = torch.zeros(len(group), most, width), torch.zeros(len(group), most, width), torch.zeros(len(group), most, width), torch.zeros(len(group), most, dtype=torch.bool)
        for i, (tokens, rows, first) in enumerate(group):
            n = len(tokens) - 1
            e[i, :n], f[i, :n], want[i, :n] = table[tokens[1:]], rows[:-1].float(), rows[1:].float()
            mask[i, max(0, first - 2) : n] = True
        return e, f, want, mask

    def loss_of(made, want, mask):
        made, want = made[mask], want[mask]
        near = nn.functional.smooth_l1_loss(made, want)
        said = torch.log_softmax(made @ some.T, -1)
        return near + 0.1 * -(torch.softmax(want @ some.T, -1) * said).sum(-1).mean()

    def right():
        """Shares of the answers kept apart where the first and the second token of a draft are what the model says greedily."""
        hits, count = [0, 0], [0, 0]
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            for one in test:
                e, f, want, mask = padded([one])
                made = layer(e, f)
                again = layer(e, torch.cat([f[:, :1], made[:, :-1]], 1))
                for place, rows in enumerate((made, again)):
                    said, wanted = (rows[mask] @ head.T).argmax(-1), (want[mask] @ head.T).argmax(-1)
                    hits[place] += int((said == wanted).sum())
                    count[place] += len(said)
        return [h / max(1, n) for h, n in zip(hits, count)]

    for epoch in range(a.epochs):
        order, total, groups = torch.randperm(len(data)).tolist(), 0.0, 0
        for at in range(0, len(data) - a.batch + 1, a.batch):
            e, f, want, mask = padded([data[i] for i in order[at : at + a.batch]])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                made = layer(e, f + (torch.rand_like(f) - 0.5) * 0.1)
                loss = loss_of(made, want, mask)
                if groups % 2: # every other time also what is behind its own rows
                    loss = loss + 0.5 * loss_of(layer(e, torch.cat([f[:, :1], made[:, :-1].detach()], 1)), want, mask)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            total, groups = total + float(loss.detach()), groups + 1
        print(f"epoch {epoch + 1}: loss {total / max(1, groups):.3f}, right {', '.join(f'{100 * s:.1f} %' for s in right())}", flush=True)
    return (layer, about), "first and second tokens of a draft are right in " + " and ".join(f"{100 * s:.1f} %" for s in right())


def save(a, model, made):
    """Writes the layer, float16, as EAGLE's authors do."""
    from safetensors.torch import save_file

    c, (layer, about) = model.config, made
    os.makedirs(a.out, exist_ok=True)
    save_file({name: value.detach().half().contiguous() for name, value in layer.tensors().items()}, os.path.join(a.out, "model.safetensors"))
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_act": "silu", **about,
                   **{k: getattr(c, k) for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "vocab_size", "max_position_embeddings")}}, f)


if __name__ == "__main__":
    sys.exit(run(arguments(__doc__, 5e-4, epochs=6, batch=4), train, save))
