#!/usr/bin/env python3
"""Compiled tiny random models against transformers (float32, CPU), every family and RoPE kind.

usage: transformers.py --build BUILD --work DIR [NAME...]

Each case below is made by transformers itself: XForCausalLM(XConfig(...)).save_pretrained, then
`lathe compile DIR --activations f32 --kv f32`, then CompareLogits and CompareEmbeddings against the logits and the last hidden
states (behind the norm, pooled) of the model that transformers
loads from the same folder: max |a - b| / max |b| at most 2e-4 and the same likeliest token wherever the reference's
first two differ by more than the error. So that the check is sensitive, weights are drawn much wider than
transformers' initializer does, and a case with a feature (a RoPE kind, a window, a cap) also shows that the logits
without this feature differ by at least 50 times the tolerance.

The hand-written fixtures in test/fixtures/import/models go the same way, and their own logits are compared too.
NAME: only cases whose name starts so.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# This file's folder comes first in the search path, and this file has the name of the module.
sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parent.parent.parent
TOLERANCE = 2e-4
SENSITIVE = 50 * TOLERANCE
FAMILIES = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "mistral": ("MistralConfig", "MistralForCausalLM"),
            "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"), "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
            "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"), "phi3": ("Phi3Config", "Phi3ForCausalLM"),
            "gpt2": ("GPT2Config", "GPT2LMHeadModel")}
BASE = dict(vocab_size=301, hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False)

DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
# Original lengths are chosen so that the ramps of llama3 and yarn fall inside the few frequencies of a small head.
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
YARN_OPTIONS = {**YARN, "beta_fast": 8.0, "beta_slow": 0.5, "truncate": False, "attention_factor": 1.3}
YARN_SCALES = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.2}


def longrope(pairs, **more):
    return {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1 + 0.05 * i for i in range(pairs)],
            "long_factor": [1.5 + 0.7 * i for i in range(pairs)], **more}


def cases():
    """(name, config fields, options).

    options: `bare`: the checkpoint of the model without its head, with the buffers that old ones hold; `vision`: a text
    model beside a vision tower; `dtype` of the file; `shard` size limit; `old`: config.json in the form before transformers 5;
    `drop`: fields left out of config.json; `max_seq`; `tokens`; `without`: fields of the model without the feature.
    """
    plain, no_window = {"rope_parameters": DEFAULT}, {"sliding_window": None}
    yield "llama-default", dict(rope_parameters=DEFAULT), {}
    yield "llama-odd", dict(hidden_size=100, intermediate_size=77, head_dim=20, num_attention_heads=5, num_key_value_heads=1,
                            vocab_size=317), {"dtype": "bfloat16"}
    yield "llama-head-22", dict(hidden_size=69, intermediate_size=91, head_dim=22, num_attention_heads=3, num_key_value_heads=3,
                                vocab_size=263), {"dtype": "float16"}
    yield "llama-biases", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), {"old": True}
    yield "llama-large-theta", dict(rope_parameters={**DEFAULT, "rope_theta": 5e5}), {"old": True, "without": plain}
    yield "llama-linear", dict(rope_parameters=LINEAR), {"without": plain}
    yield "llama-linear-old", dict(rope_parameters=LINEAR, head_dim=40), {"old": True, "without": plain}
    yield "llama-llama3", dict(rope_parameters=LLAMA3, head_dim=24), {"without": {"rope_parameters": {**DEFAULT, "rope_theta": 500.0}}}
    yield "llama-llama3-old", dict(rope_parameters=LLAMA3, tie_word_embeddings=True), {
        "old": True, "dtype": "bfloat16", "without": {"rope_parameters": {**DEFAULT, "rope_theta": 500.0}}}
    yield "llama-yarn", dict(rope_parameters=YARN, head_dim=64), {"without": plain}
    yield "llama-yarn-old", dict(rope_parameters=YARN), {"old": True, "without": plain}
    yield "llama-yarn-options", dict(rope_parameters=YARN_OPTIONS, head_dim=32), {"without": {"rope_parameters": YARN}}
    yield "llama-yarn-scales", dict(rope_parameters=YARN_SCALES), {"old": True, "without": {"rope_parameters": YARN}}
    yield "llama-longrope", dict(rope_parameters=longrope(8, original_max_position_embeddings=64)), {"without": plain}
    yield "llama-shards", dict(num_hidden_layers=4), {"shard": "200KB"}
    yield "llama-gelu", dict(hidden_act="gelu"), {"without": {"hidden_act": "silu"}}

    yield "llama-head-4", dict(head_dim=4, num_attention_heads=16, num_key_value_heads=1), {}
    yield "llama-bare", dict(tie_word_embeddings=True), {"bare": True}
    yield "llama-missing", dict(rms_norm_eps=1e-6, num_key_value_heads=6), {"drop": [
        "rms_norm_eps", "hidden_act", "num_key_value_heads", "attention_bias", "mlp_bias", "tie_word_embeddings", "head_dim",
        "rope_parameters"]}

    yield "mistral-missing", dict(num_attention_heads=8, num_key_value_heads=8), {"drop": [
        "rms_norm_eps", "hidden_act", "num_key_value_heads", "head_dim", "tie_word_embeddings", "rope_parameters", "sliding_window"]}
    yield "mistral-window", dict(sliding_window=17), {"without": no_window}
    yield "mistral-no-window", dict(sliding_window=None, head_dim=24), {"dtype": "bfloat16"}
    yield "mistral-odd", dict(sliding_window=33, hidden_size=120, num_attention_heads=10, num_key_value_heads=5, head_dim=40,
                              intermediate_size=131, vocab_size=299), {"old": True, "dtype": "float16", "without": no_window}
    yield "mistral-yarn", dict(rope_parameters=YARN, sliding_window=None), {"shard": "300KB", "without": plain}

    yield "qwen2-default", dict(), {}
    yield "qwen2-tied", dict(tie_word_embeddings=True, hidden_size=84, num_attention_heads=7, num_key_value_heads=1,
                             vocab_size=311), {"dtype": "bfloat16", "old": True}
    yield "qwen2-window", dict(use_sliding_window=True, sliding_window=20, max_window_layers=1), {"without": {"use_sliding_window": False}}
    yield "qwen2-window-old", dict(use_sliding_window=True, sliding_window=20, max_window_layers=2), {
        "old": True, "drop": ["layer_types"], "without": {"use_sliding_window": False}}
    yield "qwen2-yarn", dict(rope_parameters=YARN), {"old": True, "without": plain}
    yield "qwen2-longrope", dict(rope_parameters=longrope(8, factor=3.0, original_max_position_embeddings=128)), {
        "max_seq": 128, "without": plain}

    yield "qwen3-default", dict(head_dim=32), {}
    yield "qwen3-odd", dict(head_dim=40, hidden_size=76, num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=True,
                            vocab_size=293, intermediate_size=101), {"dtype": "bfloat16", "shard": "100KB"}
    yield "qwen3-bias-window", dict(head_dim=24, attention_bias=True, use_sliding_window=True, sliding_window=16,
                                    layer_types=["sliding_attention", "full_attention", "sliding_attention"]), {
        "without": {"use_sliding_window": False, "layer_types": ["full_attention"] * 3}}
    yield "qwen3-yarn", dict(head_dim=64, rope_parameters={**YARN, "rope_theta": 1e6}), {
        "old": True, "without": {"rope_parameters": {**DEFAULT, "rope_theta": 1e6}}}

    gemma = dict(tie_word_embeddings=True, head_dim=32, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=1,
                 sliding_window=18, query_pre_attn_scalar=24)
    ropes = {"full_attention": {**DEFAULT, "rope_theta": 1e6}, "sliding_attention": DEFAULT}
    scaled = {**ropes, "full_attention": {**LINEAR, "rope_theta": 1e6, "factor": 8.0}}
    yield "gemma3-default", dict(gemma), {"without": {"sliding_window": 4096}}
    yield "gemma3-linear", dict(gemma, rope_parameters=scaled), {"without": {"rope_parameters": ropes}}
    yield "gemma3-linear-old", dict(gemma, rope_parameters=scaled), {
        "old": True, "drop": ["layer_types"], "dtype": "bfloat16", "without": {"rope_parameters": ropes}}
    yield "gemma3-cap", dict(gemma, final_logit_softcapping=3.0), {"without": {"final_logit_softcapping": None}}
    # A field of the configuration that the model does not use.
    yield "gemma3-attention-cap", dict(gemma, attn_logit_softcapping=2.0), {}
    yield "gemma3-head-256", dict(gemma, head_dim=256, query_pre_attn_scalar=256, num_hidden_layers=7, sliding_window=4096), {"drop": [
        "head_dim", "query_pre_attn_scalar", "sliding_window", "layer_types", "rope_parameters", "rms_norm_eps",
        "hidden_activation", "tie_word_embeddings", "attention_bias", "_sliding_window_pattern"]}
    yield "gemma3-yarn", dict(gemma, rope_parameters={**ropes, "full_attention": {**YARN, "rope_theta": 1e6}}), {
        "without": {"rope_parameters": ropes}}
    yield "gemma3-vision", dict(gemma), {"vision": True}
    yield "gemma3-odd", dict(gemma, hidden_size=90, head_dim=20, num_attention_heads=6, num_key_value_heads=3, vocab_size=307,
                             intermediate_size=99, attention_bias=True, tie_word_embeddings=False,
                             layer_types=["full_attention", "sliding_attention"] * 3), {"shard": "300KB"}

    short = dict(pad_token_id=0, original_max_position_embeddings=64)
    yield "phi3-default", dict(pad_token_id=0), {}
    yield "phi3-odd", dict(pad_token_id=0, hidden_size=100, num_attention_heads=5, num_key_value_heads=5, vocab_size=309,
                           intermediate_size=83), {"dtype": "float16", "shard": "100KB"}
    yield "phi3-window", dict(pad_token_id=0, sliding_window=21, tie_word_embeddings=True), {"without": no_window}
    yield "phi3-long", dict(short, rope_parameters=longrope(8)), {"without": plain}
    yield "phi3-long-old", dict(short, rope_parameters=longrope(8)), {"old": True, "dtype": "bfloat16", "without": plain}
    yield "phi3-su", dict(short, rope_parameters=longrope(8)), {"old": True, "rename": "su", "without": plain}
    yield "phi3-yarn-name", dict(short, rope_parameters=longrope(8)), {"old": True, "rename": "yarn", "without": plain}
    yield "phi3-short", dict(short, rope_parameters=longrope(8)), {"max_seq": 64, "tokens": 64, "without": plain}
    partial = dict(short, hidden_size=96, num_attention_heads=4, num_key_value_heads=1)
    yield "phi3-partial", dict(partial, rope_parameters={**DEFAULT, "partial_rotary_factor": 0.75}), {"without": plain}
    yield "phi3-partial-old", dict(partial, rope_parameters={**DEFAULT, "partial_rotary_factor": 0.5}), {"old": True, "without": plain}
    yield "phi3-partial-long", dict(partial, rope_parameters=longrope(9, partial_rotary_factor=0.75)), {"without": plain}

    gpt = dict(n_embd=96, n_layer=3, n_head=6, n_positions=128, vocab_size=301)
    yield "gpt2-default", dict(gpt), {}
    yield "gpt2-odd", dict(gpt, n_embd=100, n_head=5, n_inner=171, vocab_size=305), {"dtype": "float16", "shard": "200KB"}
    yield "gpt2-relu", dict(gpt, activation_function="relu", tie_word_embeddings=False), {"without": {"activation_function": "gelu_new"}}
    yield "gpt2-by-layer", dict(gpt, scale_attn_by_inverse_layer_idx=True), {
        "dtype": "bfloat16", "without": {"scale_attn_by_inverse_layer_idx": False}}
    yield "gpt2-bare", dict(gpt), {"bare": True}
    yield "gpt2-unscaled", dict(gpt, scale_attn_weights=False), {"without": {"scale_attn_weights": True}}


def widen(model, family, seed):
    """Weights that keep activations of about one size and give attention and logits a clear shape."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                is_norm = name.endswith("weight")
                x = 0.2 * x + (1.0 if is_norm and family != "gemma3" else 0.0)
            elif "embed" in name or "wte" in name:
                x = x * (1.0 if family != "gemma3" else p.shape[1] ** -0.5)
            elif "wpe" in name:
                x = x * 0.7
            else:
                x = x * 1.3 / (p.shape[0] if family == "gpt2" and "lm_head" not in name else p.shape[1]) ** 0.5
            p.copy_(x)


def rewrite_config(path, options):
    config = json.loads(path.read_text())
    for name in options.get("drop", []):
        config.pop(name, None)
    if "rename" in options:
        config["rope_scaling"]["type"] = options["rename"]
        config["rope_scaling"]["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    path.write_text(json.dumps(config, indent=2) + "\n")


def old_form(path):
    """Rewrites config.json as transformers 4 did: rope_theta and rope_scaling, Gemma 3's local base apart."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None) or {}
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    rope = dict(rope)
    if "rope_theta" in rope:
        config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if rope.get("rope_type", "default") != "default":
        if rope["rope_type"] in ("linear", "longrope") and config["model_type"] != "gemma3_text":
            rope["type"] = rope.pop("rope_type")  # the older of the two names, which Gemma 3 came too late for
        if config["model_type"] == "phi3":
            rope.pop("original_max_position_embeddings", None)
    config["rope_scaling"] = rope if len(rope) > 1 else None
    config["torch_dtype"] = config.pop("dtype", "float32")
    path.write_text(json.dumps(config, indent=2) + "\n")


def strip(folder, prefix):
    """Rewrites a checkpoint as that of the model without its head, as older versions saved it."""
    path = folder / "model.safetensors"
    weights = {}
    for name, x in load_file(path).items():
        weights[name.removeprefix(prefix)] = x
        if name.endswith("attn.c_attn.weight"):
            weights[name.removeprefix(prefix).replace("c_attn.weight", "bias")] = torch.ones(1, 1, 128, 128).tril()
        if name.endswith("q_proj.weight"):
            weights[name.removeprefix(prefix).replace("q_proj.weight", "rotary_emb.inv_freq")] = torch.ones(8)
    save_file(weights, path, metadata={"format": "pt"})


def vision_model(text):
    """The same text model beside a small vision tower."""
    config = transformers.Gemma3Config(
        text_config=text.config.to_dict(), mm_tokens_per_image=4, image_token_index=300, boi_token_index=298, eoi_token_index=299,
        vision_config=dict(hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=7))
    model = transformers.Gemma3ForConditionalGeneration(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.tie_weights()
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def hidden_of(model, tokens):
    """The rows behind the last norm, which embeddings are pooled from."""
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True).hidden_states[-1][0].float()


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


class Case:
    def __init__(self, name, folder, tokens, options, family):
        self.name, self.folder, self.tokens, self.options, self.family = name, folder, tokens, options, family
        self.problems, self.error, self.choices, self.hidden = [], float("nan"), 0, None

    def compare(self, build, logits):
        raw, artifact = self.folder.with_suffix(".f32"), self.folder.with_suffix(".lathe")
        raw.write_bytes(logits.contiguous().numpy().tobytes())
        command = [build / "bin/lathe", "compile", self.folder, "-o", artifact, "--activations", "f32", "--kv", "f32",
                   "--target", "native", "--quiet"]
        if "max_seq" in self.options:
            command.append(f"--max-seq={self.options['max_seq']}")
        steps = [command, [build / "test/e2e/CompareLogits", artifact, raw, str(TOLERANCE), *map(str, self.tokens)]]
        if self.hidden is not None:
            rows = self.folder.with_suffix(".hidden.f32")
            rows.write_bytes(self.hidden.contiguous().numpy().tobytes())
            steps.append([build / "test/e2e/CompareEmbeddings", artifact, rows, str(TOLERANCE), *map(str, self.tokens)])
        for step in steps:
            run = subprocess.run(list(map(str, step)), capture_output=True, text=True)
            found = re.search(r"largest difference (\S+) of the largest logit .*, (\d+) choices differ", run.stdout)
            if found:
                self.error, self.choices = float(found[1]), int(found[2])
            if run.returncode:
                self.problems.append((run.stderr or run.stdout).strip())
                return


def make(name, fields, options, work, seed):
    """Saves the model and returns the case with the reference's logits."""
    family = name.split("-")[0]
    config_class, model_class = (getattr(transformers, x) for x in FAMILIES[family])
    base = {} if family == "gpt2" else BASE
    count = options.get("tokens", 96)
    tokens = torch.randint(0, 257, (count,), generator=torch.Generator().manual_seed(seed + 1000)).tolist()
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    # A config's constructor may change the dictionaries it is given.
    build = lambda more={}: model_class(config_class(**json.loads(json.dumps({**base, **fields, **more}))))
    model = build()
    widen(model, family, seed)
    if options.get("vision"):
        model = vision_model(model)
    model.to(getattr(torch, options.get("dtype", "float32"))).save_pretrained(folder, max_shard_size=options.get("shard", "5GB"))
    if options.get("old"):
        old_form(folder / "config.json")
    rewrite_config(folder / "config.json", options)
    if options.get("bare"):
        strip(folder, "transformer." if family == "gpt2" else "model.")
    reference = load(folder)
    logits = logits_of(reference, tokens)
    case = Case(name, folder, tokens, options, family)
    case.hidden = hidden_of(reference, tokens)
    if "without" in options:
        other = build(options["without"])
        other.load_state_dict(reference.state_dict())
        other.set_attn_implementation("eager")
        change = difference(logits_of(other.eval(), tokens), logits)
        if change < SENSITIVE:
            case.problems.append(f"the case shows nothing: without its feature logits differ by {change:.1e} only")
    if not torch.isfinite(logits).all():
        case.problems.append("the reference's logits are not finite")
    return case, logits


def fixture(path, work):
    want = json.loads(path.with_suffix(".json").read_text())
    options = {"max_seq": want["max_sequence"]} if want["max_sequence"] else {}
    # The chosen factors depend on the longest sequence: with nine tokens transformers takes the short ones always.
    folder = work / f"fixture-{path.name}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(path, folder)
    case = Case(folder.name, folder, want["tokens"], options, "fixtures")
    model = load(folder)
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope" and want["max_sequence"] > rope["original_max_position_embeddings"]:
        padding = [0] * (rope["original_max_position_embeddings"] + 1 - len(want["tokens"]))
        logits = logits_of(model, want["tokens"] + padding)[: len(want["tokens"])]
    else:
        logits = logits_of(model, want["tokens"])
    error = difference(torch.tensor(want["logits"]), logits)
    if error > TOLERANCE:
        case.problems.append(f"the fixture's own logits differ from transformers' by {error:.1e}")
    return case, logits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, limit {TOLERANCE:.0e}", flush=True)

    wanted = lambda name: not args.names or any(name.startswith(n) for n in args.names)
    makers = [(name, lambda a=(name, fields, options, args.work, seed): make(*a))
              for seed, (name, fields, options) in enumerate(cases())]
    for path in sorted((ROOT / "test/fixtures/import/models").iterdir()):
        if path.is_dir():
            makers.append((f"fixture-{path.name}", lambda path=path: fixture(path, args.work)))
    done, running = [], []
    with ThreadPoolExecutor(2) as pool:
        for name, maker in makers:
            if not wanted(name):
                continue
            try:
                case, logits = maker()
            except Exception as error:  # one case that transformers refuses must not hide the others
                case = Case(name, args.work / name, [], {}, name.split("-")[0])
                case.problems.append(f"transformers: {error!r}")
                running.append((case, None))
                continue
            running.append((case, pool.submit(case.compare, args.build, logits)))
        for case, job in running:
            if job:
                job.result()
            print(f"{'ok' if not case.problems else 'FAILED':6} {case.name:24} {case.error:.1e}", flush=True)
            for problem in case.problems:
                print(f"       {problem}", flush=True)
            done.append(case)
    print("\nlargest error of each family:")
    for family in dict.fromkeys(case.family for case in done):
        mine = [case for case in done if case.family == family]
        worst = max((c.error for c in mine if c.error == c.error), default=float("nan"))
        print(f"  {family:9} {worst:.1e} over {len(mine)} models, {sum(c.choices for c in mine)} choices differ")
    failed = [case.name for case in done if case.problems]
    if failed or not done:
        sys.exit(f"{len(failed)} of {len(done)} models failed: {' '.join(failed)}")
    print(f"all {len(done)} models agree with transformers")


main()
