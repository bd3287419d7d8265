#!/usr/bin/env python3
"""Trains Medusa heads for a small model on text that the model generated itself, on a CPU in less than an hour.

    train_medusa.py MODEL.gguf OUT [--lathe build/bin/lathe] [--text DIR] [--heads 3] [--tokens 60000] [--epochs 8] [--threads 2] [--seed 1]
    lathe compile MODEL.gguf --speculate medusa --speculate-weights OUT --quantize int4-g32 --quantize-skip '^layers' --quantize-skip '^embedding' -o model.lathe
    lathe bench model.lathe --speculate medusa --prompt-file TEXT -n 128

Needs torch, transformers, gguf, safetensors and numpy (`pip install torch transformers gguf safetensors numpy`), and lathe, which generates the text.
What it learns is the block of each head, x + silu(W x + b) over the rows behind the model's last norm; the vocabulary's matrix is the model's own. On one
twentieth of the text, kept apart, it says how often each head is right, and writes OUT/medusa_lm_head.safetensors and OUT/config.json.
"""
import json
import math
import os
import sys

from training import arguments, features_of, frequent, run


def rows_of(texts, features, places):
    """Rows at the places from which answers are said, and what is said behind each: [n, hidden], [n, places], -1 where there is nothing."""
    import torch

    following = [[answer[i + k] if i + k < len(answer) else -1 for k in range(places)] for _, answer in texts for i in range(len(answer))]
    return torch.cat([f[len(prompt) - 1 : -1] for (prompt, _), f in zip(texts, features)]), torch.tensor(following)


def train(a, model, texts):
    import torch
    from torch import nn

    torch.manual_seed(a.seed)
    apart = max(1, len(texts) // 20)
    features = features_of(a, model, texts)
    test_rows, test_next = rows_of(texts[:apart], features[:apart], a.heads + 1)
    rows, following = rows_of(texts[apart:], features[apart:], a.heads + 1)
    print(f"{len(rows)} rows to learn from, {len(test_rows)} kept apart", flush=True)
    vocabulary = model.lm_head.weight.detach()
    known = frequent(following[following >= 0])
    place = torch.full((len(vocabulary),), -1)
    place[known] = torch.arange(len(known))
    last = vocabulary[known]
    width = vocabulary.shape[1]
    blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(a.heads))
    for block in blocks:
        nn.init.zeros_(block.weight)
        nn.init.zeros_(block.bias)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=a.rate, weight_decay=0.01)
    steps = a.epochs * max(1, len(rows) // a.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * s / steps))))
    loss_of = nn.CrossEntropyLoss(ignore_index=-1)

    def right():
        """[head]: shares of the rows kept apart whose token is the head's first choice."""
        shares = []
        with torch.no_grad():
            for h, block in enumerate(blocks):
                hits = count = 0
                for at in range(0, len(test_rows), 512):
                    x, want = test_rows[at : at + 512].float(), test_next[at : at + 512, h + 1]
                    said = ((x + nn.functional.silu(block(x))) @ vocabulary.T).argmax(1)
                    hits += int((said[want >= 0] == want[want >= 0]).sum())
                    count += int((want >= 0).sum())
                shares.append(hits / max(1, count))
        return shares

    step = 0
    for epoch in range(a.epochs):
        order = torch.randperm(len(rows))
        total = 0.0
        for at in range(0, len(rows) - a.batch + 1, a.batch):
            pick = order[at : at + a.batch]
            x = rows[pick].float()
            loss = 0
            with torch.autocast("cpu", dtype=torch.bfloat16):
                for h, block in enumerate(blocks):
                    want = following[pick, h + 1]
                    want = torch.where(want >= 0, place[want.clamp(min=0)], want)
                    loss = loss + 0.8**h * loss_of((x + nn.functional.silu(block(x))) @ last.T, want)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            total += float(loss.detach())
        print(f"epoch {epoch + 1}: loss {total / max(1, len(rows) // a.batch):.3f}, right {', '.join(f'{100 * s:.1f} %' for s in right())}", flush=True)
    return (blocks, vocabulary), "heads are right in " + ", ".join(f"{100 * s:.1f} %" for s in right())


def save(a, model, made):
    """Writes the heads, float16, as their authors do."""
    from safetensors.torch import save_file

    blocks, vocabulary = made
    tensors = {}
    for h, block in enumerate(blocks):
        tensors[f"{h}.0.linear.weight"] = block.weight.detach().half().contiguous()
        tensors[f"{h}.0.linear.bias"] = block.bias.detach().half().contiguous()
        tensors[f"{h}.1.weight"] = vocabulary.half().clone().contiguous()
    os.makedirs(a.out, exist_ok=True)
    save_file(tensors, os.path.join(a.out, "medusa_lm_head.safetensors"))
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump({"medusa_num_heads": a.heads, "medusa_num_layers": 1, "base_model_name_or_path": os.path.basename(a.model)}, f)


if __name__ == "__main__":
    sys.exit(run(arguments(__doc__, 1e-3, heads=3, epochs=8, batch=1024), train, save))
