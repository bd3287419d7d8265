#!/usr/bin/env python3
"""Exports tiny random models in the ways that ONNX files of language models come in, and what onnxruntime computes with them.

usage: make_models.py OUT [--families NAME,...] [--ways WAY,...] [--hf DIR] [--optimum PYTHON]

Needs torch, transformers, onnx, onnxscript, onnxruntime, onnxruntime-genai, tokenizers; --optimum names the Python of an environment with
optimum-onnx, which wants older transformers, and onnxruntime-genai 0.11, whose builder takes Gemma 3 with those. Writes OUT/FAMILY/hf (config.json, model.safetensors), OUT/FAMILY/WAY/model.onnx and
OUT/FAMILY/tokens.json and expected.f32 (expected-int4.f32): tokens and what onnxruntime computes for them, a prompt and then one token after
the other with the cache, as float32 [tokens, vocabulary]. Weights that are
in OUT/FAMILY/hf already stay. With --hf, one existing model is exported instead, without expected logits.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import torch
import transformers
from exports import cache_shape, run_ort
from transformers.cache_utils import DynamicCache

WAYS = {  # way: attention, operator set, through torch.export
    'dynamo18-eager': ('eager', 18, True),
    'dynamo18-sdpa': ('sdpa', 18, True),
    'dynamo23-eager': ('eager', 23, True),
    'dynamo23-sdpa': ('sdpa', 23, True),
    'torchscript': ('eager', 17, False),
}
SMALL = dict(vocab_size=80,  # no other size: the GenAI builder takes every linear with so many outputs for the head
             hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128)


def families():
    t = transformers
    return {
        'llama': t.LlamaConfig(**dict(SMALL, num_attention_heads=4, num_key_value_heads=2), rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True),
        'llama-genai': t.LlamaConfig(**dict(SMALL, vocab_size=112), rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False),
        'qwen2': t.Qwen2Config(**SMALL, rope_theta=1000000.0, tie_word_embeddings=True),
        'qwen3': t.Qwen3Config(**SMALL, head_dim=16, rope_theta=1000000.0, tie_word_embeddings=False),
        'gemma3': t.Gemma3TextConfig(**SMALL, head_dim=16, sliding_window=16, query_pre_attn_scalar=8,
                                     layer_types=['sliding_attention', 'full_attention']),
        # What the GenAI builder makes of Gemma 3 is the same model only where every sixth layer sees everything and the root of the width has two decimals.
        'gemma3-genai': t.Gemma3TextConfig(**dict(SMALL, hidden_size=16, intermediate_size=24, num_hidden_layers=6), head_dim=16, sliding_window=16, query_pre_attn_scalar=8,
                                           layer_types=['sliding_attention'] * 5 + ['full_attention']),
        'phi3': t.Phi3Config(**SMALL, original_max_position_embeddings=128, rope_theta=10000.0, tie_word_embeddings=False, sliding_window=None,
                             pad_token_id=0, bos_token_id=1, eos_token_id=2),
        'gpt2': t.GPT2Config(vocab_size=80, n_embd=16, n_layer=2, n_head=2, n_positions=128, n_inner=32, bos_token_id=1, eos_token_id=2),
    }


# What the GenAI builder is asked for; of other families both.
PRECISIONS = {'llama': (), 'gemma3': ('int4',), 'gemma3-genai': ('fp32',)}
PROMPT = 33  # of 40 tokens; the others follow one by one


class WithPast(torch.nn.Module):
    """Cache tensors as inputs and outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = DynamicCache()  # plain layers: those of a configuration with windows forget tokens
        for i in range(len(past) // 2):
            cache.update(past[2 * i], past[2 * i + 1], i)
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, use_cache=True)
        result = [out.logits]
        for layer in out.past_key_values.layers:
            result += [layer.keys, layer.values]
        return tuple(result)


def export(model, path, attention, opset, dynamo):
    model.set_attn_implementation(attention)
    layers = model.config.num_hidden_layers
    heads, size = cache_shape(model.config.to_dict())
    batch, step, past = 2, 3, 5
    ids = torch.randint(0, model.config.vocab_size, (batch, step))
    mask = torch.ones(batch, step + past, dtype=torch.long)
    positions = torch.arange(past, past + step)[None].repeat(batch, 1)
    cache = [torch.randn(batch, heads, past, size) for _ in range(2 * layers)]
    inputs = ['input_ids', 'attention_mask', 'position_ids'] + [f'past_key_values.{i}.{x}' for i in range(layers) for x in ('key', 'value')]
    outputs = ['logits'] + [f'present.{i}.{x}' for i in range(layers) for x in ('key', 'value')]
    arguments = (ids, mask, positions, *cache)
    if dynamo:
        d = torch.export.Dim.DYNAMIC
        shapes = ({0: d, 1: d}, {0: d, 1: d}, {0: d, 1: d}, tuple({0: d, 2: d} for _ in cache))
        torch.onnx.export(WithPast(model).eval(), arguments, path, dynamo=True, opset_version=opset, input_names=inputs, output_names=outputs, dynamic_shapes=shapes,
                          external_data=True)
    else:
        axes = {name: {0: 'batch', 1: 'sequence'} for name in ('input_ids', 'position_ids', 'logits')}
        axes['attention_mask'] = {0: 'batch', 1: 'total'}
        axes |= {name: {0: 'batch', 2: 'past'} for name in inputs[3:]} | {name: {0: 'batch', 2: 'total'} for name in outputs[1:]}
        torch.onnx.export(WithPast(model).eval(), arguments, path, dynamo=False, opset_version=opset, input_names=inputs, output_names=outputs, dynamic_axes=axes)


def write_tokenizer(directory, vocabulary):
    """The exporters want one; a model without text is tested."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    tokens = {chr(33 + i) if i < 90 else f'<t{i}>': i for i in range(vocabulary)}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(directory / 'tokenizer.json'))
    (directory / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'PreTrainedTokenizerFast'}))


def shrink(path):
    """Leaves out what exporters note for people; the graph stays."""
    model = onnx.load(path, load_external_data=False)

    def strip(graph):
        del graph.value_info[:]
        del graph.metadata_props[:]
        for node in graph.node:
            node.ClearField('doc_string')
            node.ClearField('name')
            del node.metadata_props[:]
            for attribute in node.attribute:
                if attribute.HasField('g'):
                    strip(attribute.g)
        for value in list(graph.input) + list(graph.output):
            del value.metadata_props[:]
        for tensor in graph.initializer:
            tensor.ClearField('doc_string')
            del tensor.metadata_props[:]

    strip(model.graph)
    del model.metadata_props[:]
    del model.functions[:]
    path.write_bytes(model.SerializeToString())


def make(name, config, out, ways, optimum):
    torch.manual_seed(1)
    directory = out / name
    hf = directory / 'hf'
    if (hf / 'config.json').exists():
        model = transformers.AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32).eval()
        config = model.config
    else:
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.2) + (1.0 if 'norm' in parameter_name and not name.startswith('gemma3') else 0.0))
        model.save_pretrained(hf)
        (hf / 'generation_config.json').unlink(missing_ok=True)
    if name.endswith('-genai'):  # llama has a tied head, which the builder unties
        ways = [way for way in ways if way == 'genai']
    export_all(model, hf, directory, ways, optimum, PRECISIONS.get(name, ('fp32', 'int4')))
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, 40).tolist()
    expected = None
    for way in sorted(p.parent.name for p in directory.glob('*/model.onnx')):
        if 'int4' in way:
            continue
        rows = run_ort(directory / way / 'model.onnx', tokens, PROMPT, config.to_dict())
        if expected is None:
            expected = rows
        difference = np.abs(rows - expected).max() / np.abs(expected).max()
        print(f'{name} {way}: {difference:.1e} from the first way', flush=True)
        assert difference < 1e-4, way
    for way in directory.glob('*/model.onnx'):
        shutil.copy(hf / 'config.json', way.parent)
    (directory / 'tokens.json').write_text(json.dumps(tokens) + '\n')
    expected.astype(np.float32).tofile(directory / 'expected.f32')
    if (directory / 'genai-int4/model.onnx').exists():
        run_ort(directory / 'genai-int4/model.onnx', tokens, PROMPT, config.to_dict()).astype(np.float32).tofile(directory / 'expected-int4.f32')


def export_all(model, hf, directory, ways, optimum, precisions=('fp32', 'int4')):
    for way in ways:
        if way in WAYS:
            target = directory / way
            target.mkdir(parents=True, exist_ok=True)
            with torch.no_grad():
                export(model, str(target / 'model.onnx'), *WAYS[way])
            shrink(target / 'model.onnx')
    if 'genai' in ways:
        export_genai(model, hf, directory, precisions, optimum)
    if 'optimum' in ways and optimum:
        export_optimum(hf, directory, optimum)


def older_config(config):
    """|config| with the names that older transformers reads."""
    config = dict(config)
    ropes = config.pop('rope_parameters', None) or {}
    if 'full_attention' in ropes:
        config['rope_theta'], config['rope_local_base_freq'] = ropes['full_attention']['rope_theta'], ropes['sliding_attention']['rope_theta']
    elif ropes:
        config['rope_theta'] = ropes['rope_theta']
    return config


def export_genai(model, hf, directory, precisions, older):
    source = directory / 'cache'
    shutil.copytree(hf, source / 'hf')
    config = json.loads((hf / 'config.json').read_text())
    config['eos_token_id'] = config.get('eos_token_id') or 2  # the builder wants one
    python = sys.executable
    if config['model_type'] == 'gemma3_text' and older:  # builders of newer transformers stop at its two rotations: KeyError: 'rope_type'
        python, config = older, older_config(config)
    (source / 'hf/config.json').write_text(json.dumps(config))
    own = (hf / 'tokenizer.json').exists()
    if not own:
        write_tokenizer(source / 'hf', model.config.vocab_size)
    for precision in precisions:
        target = directory / f'genai-{precision}'
        run = subprocess.run([python, '-m', 'onnxruntime_genai.models.builder', '-i', str(source / 'hf'), '-o', str(target), '-p', precision, '-e', 'cpu',
                              '-c', str(source)], capture_output=True, text=True)
        if run.returncode:
            print(f'{directory.name} genai {precision}: {run.stderr.strip().splitlines()[-1]}', flush=True)
            shutil.rmtree(target, ignore_errors=True)
            continue
        shrink(target / 'model.onnx')
        for extra in [] if own else [*target.glob('*token*'), *target.glob('*.jinja')]:
            extra.unlink()
    shutil.rmtree(source)


def export_optimum(hf, directory, optimum):
    target, source = directory / 'optimum', directory / 'cache'
    shutil.copytree(hf, source)
    config = older_config(json.loads((hf / 'config.json').read_text()))
    (source / 'config.json').write_text(json.dumps(config))
    if not (hf / 'tokenizer.json').exists():
        write_tokenizer(source, config['vocab_size'])
    command = [optimum, '-m', 'optimum.commands.optimum_cli', 'export', 'onnx', '--task', 'text-generation-with-past', '--model', str(source), str(target)]
    run = subprocess.run(command, capture_output=True, text=True)
    shutil.rmtree(source)
    if run.returncode:
        print(f'{directory.name} optimum: {run.stderr.strip().splitlines()[-1]}', flush=True)
        return
    shrink(target / 'model.onnx')
    for extra in list(target.glob('*token*')) + list(target.glob('generation_config.json')) + list(target.glob('*.jinja')):
        extra.unlink()


def main():
    parser = argparse.ArgumentParser(description='exports models to ONNX')
    parser.add_argument('out', type=pathlib.Path)
    parser.add_argument('--hf', type=pathlib.Path)
    parser.add_argument('--ways', default=','.join([*WAYS, 'genai', 'optimum']))
    parser.add_argument('--families', default='')
    parser.add_argument('--optimum')
    arguments = parser.parse_args()
    ways = [way for way in arguments.ways.split(',') if way]
    if arguments.hf:
        model = transformers.AutoModelForCausalLM.from_pretrained(arguments.hf, dtype=torch.float32).eval()
        export_all(model, arguments.hf, arguments.out, ways, arguments.optimum)
        return
    for name, config in families().items():
        if not arguments.families or name in arguments.families.split(','):
            make(name, config, arguments.out, ways, arguments.optimum)


if __name__ == '__main__':
    main()
