#!/usr/bin/env python3
"""Checks exports that test/full/onnx.sh made: each is raised; float ones are the module of the safetensors, and the interpreter gives the same bits;
block-quantized ones are compared with onnxruntime.

usage: check_onnx.py --build BUILD [--smollm2 DIR] [--tiny DIR]
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

TOKENS = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308]


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f'{" ".join(map(str, command))}\n{result.stderr}')
    return result


def normalized(text):
    """A module without where its weights are."""
    return re.sub(r'(llm\.param @[^=]*) = #llm[^\n]*', r'\1', text)


class Checker:
    def __init__(self, build):
        self.build = build
        self.failures = 0

    def check(self, good, what):
        print(('ok    ' if good else 'WRONG ') + what, flush=True)
        self.failures += not good

    def logits(self, module, tokens):
        raw = module.with_suffix('.f32')
        f32 = module.with_suffix('.f32.mlir')
        run(self.build / 'bin/lathe-opt', '--llm-set-kv=key=f32 value=f32', module, '-o', f32)
        run(self.build / 'bin/lathe-interp', f32, '--tokens', ','.join(map(str, tokens)), '--raw', raw)
        return np.fromfile(raw, np.float32).reshape(len(tokens), -1)

    def directory(self, base, tokens):
        reference = base / 'reference.mlir'
        reference.write_text(run(self.build / 'bin/lathe-import', base / 'hf').stdout)
        expected = self.logits(reference, tokens)
        for model in sorted(base.glob('*/model.onnx')):
            way = f'{base.name}/{model.parent.name}'
            if not (model.parent / 'config.json').exists():
                shutil.copy(base / 'hf/config.json', model.parent)
            graph, step = model.with_suffix('.graph.mlir'), model.with_suffix('.step.mlir')
            graph.write_text(run(self.build / 'bin/lathe-import', model).stdout)
            raised = run(self.build / 'bin/lathe-opt', '--onnx-raise=remarks=true', graph, '-o', step)
            text = step.read_text()
            self.check('func.func @step' in text and 'onnx.' not in text, f'{way}: raised' + ('' if 'func.func @step' in text else '\n' + raised.stderr))
            if 'func.func @step' not in text:
                continue
            got = self.logits(step, tokens)
            if 'int4' in way:
                ort = run_ort(model, tokens)
                error = np.abs(got - ort).max() / np.abs(ort).max()
                same = (got.argmax(1) == ort.argmax(1)).mean()
                # onnxruntime rounds activations to 8 bits for these weights, and our scales are f16.
                self.check(error < 0.1 and same > 0.8, f'{way}: {error:.1e} from onnxruntime, {same:.0%} of the choices are equal')
                continue
            self.check(normalized(text) == normalized(reference.read_text()), f'{way}: the module of the safetensors')
            self.check(np.array_equal(got, expected), f'{way}: bit-equal logits')
            ort = run_ort(model, tokens)
            error = np.abs(got - ort).max() / np.abs(ort).max()
            self.check(error < 2e-4, f'{way}: {error:.1e} from onnxruntime')


def run_ort(path, tokens):
    """Logits of a prompt and of the last four tokens one at a time."""
    import onnxruntime
    config = json.loads((path.parent / 'config.json').read_text())
    size = config.get('head_dim') or config.get('n_embd', config.get('hidden_size')) // config.get('n_head', config.get('num_attention_heads'))
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    names = [i.name for i in session.get_inputs()]
    past = {i.name: np.zeros((1, i.shape[1], 0, size), np.float32) for i in session.get_inputs() if i.name.startswith('past')}
    rows, done, prompt = [], 0, len(tokens) - 4
    for chunk in [tokens[:prompt]] + [[t] for t in tokens[prompt:]]:
        feed = {'input_ids': np.array([chunk], np.int64), 'attention_mask': np.ones((1, done + len(chunk)), np.int64),
                'position_ids': np.arange(done, done + len(chunk), dtype=np.int64)[None], **past}
        out = session.run(None, {n: feed[n] for n in names})
        rows.append(out[0][0])
        presents = [o.name for o in session.get_outputs()][1:]
        past = {n.replace('present', 'past_key_values'): v for n, v in zip(presents, out[1:])}
        done += len(chunk)
    return np.concatenate(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--smollm2', type=pathlib.Path)
    parser.add_argument('--tiny', type=pathlib.Path)
    arguments = parser.parse_args()
    checker = Checker(arguments.build)
    if arguments.smollm2:
        checker.directory(arguments.smollm2, TOKENS)
    for family in sorted(p for p in (arguments.tiny.iterdir() if arguments.tiny else []) if p.is_dir()):
        checker.directory(family, [t % 80 for t in range(3, 400, 11)])
    if checker.failures:
        sys.exit(f'{checker.failures} checks failed')


if __name__ == '__main__':
    main()
