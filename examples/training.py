"""What examples/train_*.py share: text that a model generates itself, the model's features of it, and the order of the work.

Needs torch, transformers, gguf, safetensors and numpy (`pip install torch transformers gguf safetensors numpy`), and lathe, which generates the text.
"""
import argparse
import copy
import json
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


def arguments(doc, rate, **numbers):
    """The command line of a script whose help is |doc|: its own |numbers| and the learning rate with their defaults, and what all have."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--lathe", default="build/bin/lathe")
    p.add_argument("--text", help="directory of the text and its features, made there if it has none (default: OUT)")
    for name, default in {"tokens": 60000, "answer": 192, "threads": 2, "seed": 1, **numbers}.items():
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--rate", type=float, default=rate)
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


def frequent(tokens):
    """The 4,096 tokens that occur most often, at most: the rest can hardly be learned and costs time."""
    import torch

    found, counts = torch.unique(tokens, return_counts=True)
    return found[counts.argsort(descending=True)[:4096]]


def run(a, train, save):
    """Generates text, trains and writes. train(a, model, texts): what was made, and in words how often it is right of the text kept apart; save(a, model, made)."""
    start = time.time()

    def said(what):
        print(f"{time.time() - start:6.0f} s: {what}", flush=True)

    model, tokenizer = load(a.model, a.threads)
    texts = generate(a, tokenizer)
    said(f"{len(texts)} answers, {sum(len(t[1]) for t in texts)} tokens")
    made, right = train(a, model, texts)
    said("trained")
    save(a, model, made)
    said(f"{right} of the text kept apart; written to {a.out}")
    return 0
