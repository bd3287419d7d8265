#!/usr/bin/env python3
"""Checks exports that test/full/onnx.sh made: each is raised, also with other names and orders; float ones are the module of the safetensors, and the
interpreter gives the same bits; block-quantized ones are compared with onnxruntime, and as compiled code with the interpreter. Of tiny models the ways and
onnxruntime's logits are those of the fixtures.

usage: check_onnx.py --build BUILD [--smollm2 DIR] [--tiny DIR --fixtures DIR]
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'test/onnx'))
from exports import disguise, float_activations, run_ort  # noqa: E402

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

    def raised(self, model, step):
        """Whether |model| is raised; writes the module to |step|."""
        graph = step.with_suffix('.graph')
        graph.write_text(run(self.build / 'bin/lathe-import', model).stdout)
        messages = run(self.build / 'bin/lathe-opt', '--onnx-raise=remarks=true', graph, '-o', step).stderr
        graph.unlink()
        text = step.read_text()
        warnings = '\n'.join(line for line in messages.splitlines() if ' warning: ' in line)
        return 'func.func @step' in text and not re.search(r'\bonnx\.(op|param|weight|constant)\b', text), warnings

    def refused(self, model, artifact):
        """What the compiler says of |model|, which it does not compile."""
        result = subprocess.run([str(self.build / 'libexec/lathe-compiler'), 'compile', str(model), '-o', str(artifact)], capture_output=True, text=True)
        return result.stderr if result.returncode == 1 else f'exit status {result.returncode}: {result.stderr}'

    def compiled(self, model, tokens, expected, limit, what):
        """Compiled code against |expected|, for prompts and for single tokens."""
        artifact, raw = model.with_suffix('.lathe'), model.with_suffix('.expected')
        expected.astype(np.float32).tofile(raw)
        run(self.build / 'bin/lathe', 'compile', model, '-o', artifact, '--target', 'native', '--activations', 'f32', '--kv', 'f32')
        for chunk in (len(tokens) - 4, 1):
            result = subprocess.run([str(c) for c in (self.build / 'test/e2e/CompareLogits', '--chunk', chunk, artifact, raw, limit, *tokens)], capture_output=True, text=True)
            self.check(result.returncode == 0, f'{what}, {chunk} tokens a step: {(result.stdout + result.stderr).strip()}')
        artifact.unlink()

    def directory(self, base, tokens, fixture=None):
        config = json.loads((base / 'hf/config.json').read_text())
        tokens = json.loads((fixture / 'tokens.json').read_text()) if fixture else tokens
        reference = base / 'reference.mlir'
        reference.write_text(run(self.build / 'bin/lathe-import', base / 'hf').stdout)
        expected = self.logits(reference, tokens)
        models = sorted(base.glob('*/model.onnx'))
        if fixture:
            ways, known = {m.parent.name for m in models}, {m.parent.name for m in fixture.glob('*/model.onnx')}
            # An exporter that learns a family shows here, too.
            self.check(known == ways, f'{base.name}: the ways of the fixtures, {", ".join(sorted(known - ways)) or "none"} missing, {", ".join(sorted(ways - known)) or "none"} more')
        compiled = False
        for model in models:
            way = f'{base.name}/{model.parent.name}'
            if not (model.parent / 'config.json').exists():
                shutil.copy(base / 'hf/config.json', model.parent)
            step = model.with_suffix('.step.mlir')
            good, messages = self.raised(model, step)
            self.check(good, f'{way}: raised' + ('' if good else '\n' + messages))
            if not good:
                continue
            text = step.read_text()
            hidden = model.with_name('disguised.onnx')
            disguise(model, hidden, len(way))
            other = model.with_suffix('.disguised.mlir')
            good, messages = self.raised(hidden, other)
            self.check(good and normalized(other.read_text()) == normalized(text), f'{way}: the same with other names and another order' + ('' if good else '\n' + messages))
            hidden.unlink()
            got = self.logits(step, tokens)
            prompt = len(tokens) - 4
            computed = model
            if 'int4' in way:
                computed = model.with_name('float.onnx')
                float_activations(model, computed)
            ort = run_ort(computed, tokens, prompt, config)
            error = np.abs(got - ort).max() / np.abs(ort).max()
            if 'int4' in way:
                same = (got.argmax(1) == ort.argmax(1)).mean()
                # Our scales are f16, so that each differs by up to 2^-11 of itself: 8e-4 on SmolLM2, up to 3e-3 on tiny random models.
                self.check(error < 5e-3 and same > 0.9, f'{way}: {error:.1e} from onnxruntime, {same:.0%} of the choices are equal')
                computed.unlink()
                self.compiled(model, tokens, got, 1e-4, f'{way}: compiled, against the interpreter')
                continue
            self.check(normalized(text) == normalized(reference.read_text()), f'{way}: the module of the safetensors')
            self.check(np.array_equal(got, expected), f'{way}: bit-equal logits')
            self.check(error < 2e-4, f'{way}: {error:.1e} from onnxruntime')
            if fixture:
                before = np.fromfile(fixture / 'expected.f32', np.float32).reshape(ort.shape)
                change = np.abs(before - ort).max() / np.abs(before).max()
                self.check(change < 1e-4, f'{way}: {change:.1e} from the fixture\'s logits')
            if not compiled:  # the others are the same module
                self.compiled(model, tokens, ort, 2e-4, f'{way}: compiled, against onnxruntime')
            compiled = True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--smollm2', type=pathlib.Path)
    parser.add_argument('--tiny', type=pathlib.Path)
    parser.add_argument('--fixtures', type=pathlib.Path, default=ROOT / 'test/fixtures/onnx')
    arguments = parser.parse_args()
    checker = Checker(arguments.build)
    if arguments.smollm2:
        checker.directory(arguments.smollm2, TOKENS)
    for family in sorted(p for p in (arguments.tiny.iterdir() if arguments.tiny else []) if p.is_dir()):
        checker.directory(family, [], arguments.fixtures / family.name)
    if checker.failures:
        sys.exit(f'{checker.failures} checks failed')


if __name__ == '__main__':
    main()
