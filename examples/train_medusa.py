#!/usr/bin/env python3
"""Trains Medusa heads for a small model on text that the model generated itself, on a CPU in less than an hour.

    train_medusa.py MODEL.gguf OUT [--lathe build/bin/lathe] [--text DIR] [--heads 3] [--tokens 60000] [--epochs 8] [--threads 2] [--seed 1]
    lathe compile MODEL.gguf --speculate medusa --speculate-weights OUT --quantize int4-g32 --quantize-skip '^layers' --quantize-skip '^embedding' -o model.lathe
    lathe bench model.lathe --speculate medusa --prompt-file TEXT -n 128

Needs torch, transformers, gguf, safetensors and numpy (`pip install torch transformers gguf safetensors numpy`), and lathe, which generates the text.
What it learns is the block of each head, x + silu(W x + b) over the rows behind the model's last norm; the vocabulary's matrix is the model's own. On one
twentieth of the text, kept apart, it says how often each head is right, and writes OUT/medusa_lm_head.safetensors and OUT/config.json.
"""
import argparse
import copy
import json
import math
import os
import random
import subprocess
import sys
import time
import urllib.request

SUBJECTS = [
    "the sea", "a lighthouse", "photosynthesis", "the Roman empire", "bicycles", "bread", "a lost dog", "gravity", "chess", "winter in the mountains", "how rain forms",
    "a train journey", "the human heart", "gardening", "the moon", "an old library", "volcanoes", "friendship", "computers", "bees", "a market in the morning",
    "music", "the history of paper", "a small village", "electricity", "whales", "learning a language", "the desert", "tea", "bridges", "the number seven", "clocks",
    "a football match", "vaccines", "sorting a list", "the French revolution", "magnets", "a birthday party", "saving money", "rivers", "the alphabet", "dinosaurs", "sleep",
    "a broken window", "prime numbers", "cooking rice", "the solar system", "trees in a city", "honesty", "maps", "glass", "a first day at school", "the weather", "cats",
    "reading a file", "coffee", "a walk in the rain", "the stock market", "penguins", "time zones",
]
QUESTIONS = [
    "Write a short story about {}.", "Explain {} to a child.", "List five facts about {}.", "Why is {} important?", "Write a Python function that has to do with {}.",
    "Write a letter to a friend about {}.", "What should I know about {}?", "Describe {} in three sentences.", "Make a plan for a lesson about {}.", "Write a poem about {}.",
    "What are common mistakes people make about {}?", "Give me ten questions about {}, with answers.", "Compare {} with something similar.", "Write a dialogue between two people about {}.",
    "Summarize the most important ideas about {}.", "How has {} changed in a hundred years?", "Write an email that invites colleagues to a talk about {}.", "Write a table of words about {}.",
    "What would the world be without {}?", "Give step-by-step advice about {}.",
]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--lathe", default="build/bin/lathe")
    p.add_argument("--text", help="directory of the text and its features, made there if it has none (default: OUT)")
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
    """[(prompt, answer)], token ids, by the compiled model, 32 answers at a time: each question once, half of them greedily, half sampled."""
    home = a.text or a.out
    os.makedirs(a.out, exist_ok=True)
    os.makedirs(home, exist_ok=True)
    keep = os.path.join(home, "text.json")
    if os.path.exists(keep):
        return json.load(open(keep))
    artifact = os.path.join(home, "plain.lathe")
    subprocess.run([a.lathe, "compile", a.model, "-o", artifact, "--target", "native", "--quiet"], check=True)
    pairs = [(subject, question) for subject in SUBJECTS for question in QUESTIONS]
    random.Random(a.seed).shuffle(pairs)
    texts, count = [], 0
    with open(os.path.join(home, "serve.log"), "w") as log:
        server = subprocess.Popen([a.lathe, "serve", artifact, "--port", "0", "--threads", str(a.threads), "--request-timeout", "0"], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        listening = server.stdout.readline()
        if not listening.startswith("listening on "):
            sys.exit(f"the server did not start, see {os.path.join(home, 'serve.log')}")
        for i in range(0, len(pairs), 32):
            if count >= a.tokens:
                break
            prompts = [tokenizer.apply_chat_template([{"role": "user", "content": question.format(subject)}], add_generation_prompt=True, tokenize=False) for subject, question in pairs[i : i + 32]]
            ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
            body = {"prompt": ids, "max_tokens": a.answer, "seed": i + a.seed, "temperature": 0.8 if i // 32 % 2 else 0}
            request = urllib.request.Request(listening.split()[-1] + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as response:
                choices = json.load(response)["choices"]
            for choice in choices:
                # The text's own tokens, which the model will see as what came before; they are nearly always those that were said.
                answer = tokenizer(choice["text"], add_special_tokens=False)["input_ids"]
                if choice["finish_reason"] == "stop":
                    answer.append(tokenizer.eos_token_id)
                if len(answer) > 8:
                    texts.append((ids[choice["index"]], answer))
                    count += len(answer)
    finally:
        server.terminate()
        server.wait()
    os.remove(artifact)
    with open(keep, "w") as f:
        json.dump(texts, f)
    return texts


def features_of(a, model, texts):
    """Of each text, prompt and answer: the rows behind the model's last norm, float16 [tokens, hidden]. Computed in bfloat16."""
    import torch

    keep = os.path.join(a.text or a.out, "features.pt")
    if os.path.exists(keep):
        features = torch.load(keep)
        if [len(f) for f in features] == [len(prompt) + len(answer) for prompt, answer in texts]:
            return features
    features = []
    inner = copy.deepcopy(model.model).bfloat16()
    with torch.no_grad():
        for prompt, answer in texts:
            features.append(inner(torch.tensor([prompt + answer]), use_cache=False).last_hidden_state[0].half())
    torch.save(features, keep)
    return features


def rows_of(texts, features, places):
    """Rows at the places from which answers are said, and what is said behind each: [n, hidden], [n, places], -1 where there is nothing."""
    import torch

    following = [[answer[i + k] if i + k < len(answer) else -1 for k in range(places)] for _, answer in texts for i in range(len(answer))]
    return torch.cat([f[len(prompt) - 1 : -1] for (prompt, _), f in zip(texts, features)]), torch.tensor(following)


def frequent(tokens):
    """The 4,096 tokens that occur most often, at most: the rest can hardly be learned and costs time."""
    import torch

    found, counts = torch.unique(tokens, return_counts=True)
    return found[counts.argsort(descending=True)[:4096]]


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
    return blocks, vocabulary, right()


def save(a, blocks, vocabulary):
    """Writes the heads, float16, as their authors do."""
    from safetensors.torch import save_file

    tensors = {}
    for h, block in enumerate(blocks):
        tensors[f"{h}.0.linear.weight"] = block.weight.detach().half().contiguous()
        tensors[f"{h}.0.linear.bias"] = block.bias.detach().half().contiguous()
        tensors[f"{h}.1.weight"] = vocabulary.half().clone().contiguous()
    os.makedirs(a.out, exist_ok=True)
    save_file(tensors, os.path.join(a.out, "medusa_lm_head.safetensors"))
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump({"medusa_num_heads": a.heads, "medusa_num_layers": 1, "base_model_name_or_path": os.path.basename(a.model)}, f)


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
    save(a, blocks, vocabulary)
    said("heads are right in " + ", ".join(f"{100 * s:.1f} %" for s in shares) + f" of the text kept apart; written to {a.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
