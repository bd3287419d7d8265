#!/usr/bin/env python3
"""Trains Medusa heads for a small model on text that the model generated itself, on a CPU in less than an hour.

    train_medusa.py MODEL.gguf OUT [--lathe build/bin/lathe] [--heads 3] [--tokens 60000] [--epochs 8] [--threads 2] [--seed 1]
    lathe compile MODEL.gguf --speculate medusa --speculate-weights OUT --quantize int4-g32 -o model.lathe
    lathe bench model.lathe --speculate medusa --prompt-file TEXT -n 128

Needs torch, transformers, gguf, safetensors and numpy (`pip install torch transformers gguf safetensors numpy`), and lathe, which generates the text.
What it learns is the block of each head, x + silu(W x + b) over the rows behind the model's last norm; the vocabulary's matrix is the model's own. On one
twentieth of the text, kept apart, it says how often each head is right, and writes OUT/medusa_lm_head.safetensors and OUT/config.json.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time

SUBJECTS = [
    "the sea", "a lighthouse", "photosynthesis", "the Roman empire", "bicycles", "bread", "a lost dog", "gravity", "chess", "winter in the mountains", "how rain forms",
    "a train journey", "the human heart", "gardening", "the moon", "an old library", "volcanoes", "friendship", "computers", "bees", "a market in the morning",
    "music", "the history of paper", "a small village", "electricity", "whales", "learning a language", "the desert", "tea", "bridges",
]
QUESTIONS = [
    "Write a short story about {}.", "Explain {} to a child.", "List five facts about {}.", "Why is {} important?", "Write a Python function that has to do with {}.",
    "Write a letter to a friend about {}.", "What should I know about {}?", "Describe {} in three sentences.", "Make a plan for a lesson about {}.", "Write a poem about {}.",
]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--lathe", default="build/bin/lathe")
    for name, default in [("heads", 3), ("tokens", 60000), ("answer", 192), ("epochs", 8), ("batch", 1024), ("threads", 2), ("seed", 1)]:
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--rate", type=float, default=1e-3)
    return p.parse_args()


def load(path, threads):
    """The model in float32 and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads)
    home, name = os.path.split(os.path.abspath(path))
    tokenizer = AutoTokenizer.from_pretrained(home, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(home, gguf_file=name, dtype=torch.float32)
    model.eval()
    return model, tokenizer


def generate(a, tokenizer):
    """[(prompt, answer)], token ids, by the compiled model: half greedy, half sampled."""
    os.makedirs(a.out, exist_ok=True)
    keep = os.path.join(a.out, "text.json")
    if os.path.exists(keep):
        return json.load(open(keep))
    artifact = os.path.join(a.out, "plain.lathe")
    subprocess.run([a.lathe, "compile", a.model, "-o", artifact, "--target", "native", "--quiet"], check=True)
    texts, count, i = [], 0, a.seed
    while count < a.tokens and len(texts) < 20 * len(SUBJECTS) * len(QUESTIONS):
        question = QUESTIONS[i % len(QUESTIONS)].format(SUBJECTS[i * 7 // len(QUESTIONS) % len(SUBJECTS)])
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        command = [a.lathe, "run", artifact, "--ids", "--prompt-ids", ",".join(map(str, ids)), "-n", str(a.answer), "--seed", str(i), "--temp", "0" if i % 2 else "0.8"]
        answer = [int(t) for t in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]
        if len(answer) > 8:
            texts.append((ids, answer))
            count += len(answer)
        i += 1
    json.dump(texts, open(keep, "w"))
    os.remove(artifact)
    return texts


def rows_of(model, texts):
    """Rows behind the last norm at the places from which answers are said, and what is said behind each: [n, hidden], [n, places], -1 where there is nothing."""
    import torch

    hidden, following = [], []
    with torch.no_grad():
        for prompt, answer in texts:
            out = model.model(torch.tensor([prompt + answer])).last_hidden_state[0]
            for i in range(len(answer)):
                hidden.append(out[len(prompt) - 1 + i].half())
                following.append([answer[i + k] if i + k < len(answer) else -1 for k in range(8)])
    return torch.stack(hidden), torch.tensor(following)


def train(a, model, texts):
    import torch
    from torch import nn

    torch.manual_seed(a.seed)
    apart = max(1, len(texts) // 20)
    test_rows, test_next = rows_of(model, texts[:apart])
    rows, following = rows_of(model, texts[apart:])
    print(f"{len(rows)} rows to learn from, {len(test_rows)} kept apart", flush=True)
    vocabulary = model.lm_head.weight.detach()
    # Of the vocabulary what occurs: the rest cannot be learned and costs time.
    known = torch.unique(following[following >= 0])
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
            for h, block in enumerate(blocks):
                want = following[pick, h + 1]
                want = torch.where(want >= 0, place[want.clamp(min=0)], want)
                loss = loss + 0.8**h * loss_of((x + nn.functional.silu(block(x))) @ last.T, want)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            total += float(loss)
        print(f"epoch {epoch + 1}: loss {total / max(1, len(rows) // a.batch):.3f}, right {', '.join(f'{100 * s:.1f} %' for s in right())}", flush=True)
    return blocks, vocabulary, right()


def main():
    a = arguments()
    start = time.time()

    def said(what):
        print(f"{time.time() - start:6.0f} s: {what}", flush=True)

    model, tokenizer = load(a.model, a.threads)
    texts = generate(a, tokenizer)
    said(f"{len(texts)} answers, {sum(len(t[1]) for t in texts)} tokens")
    blocks, vocabulary, shares = train(a, model, texts)
    said("trained")
    from safetensors.torch import save_file

    tensors = {}
    for h, block in enumerate(blocks):
        tensors[f"{h}.0.linear.weight"] = block.weight.detach().half().contiguous()
        tensors[f"{h}.0.linear.bias"] = block.bias.detach().half().contiguous()
        tensors[f"{h}.1.weight"] = vocabulary.half().clone().contiguous()
    save_file(tensors, os.path.join(a.out, "medusa_lm_head.safetensors"))
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump({"medusa_num_heads": a.heads, "medusa_num_layers": 1, "base_model_name_or_path": os.path.basename(a.model)}, f)
    said("heads are right in " + ", ".join(f"{100 * s:.1f} %" for s in shares) + f" of the text kept apart; written to {a.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
