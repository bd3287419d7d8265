#!/usr/bin/env python3
"""Rewrites TorchScript exports into what other exporters write, and checks that they are raised to the module of the safetensors all the same.

usage: vary_models.py BUILD OUT FAMILY...   (directories below test/fixtures/onnx with torchscript/model.onnx)

opset11, opset12, opset13: the operators of those sets, with axes and sizes as attributes. Positions that are no input: sums of the mask, with which padding on
the left has none; a range behind the length of the past; a range to the length of the mask. Masks of floats and of bools, and none at all. onnxruntime says
that each computes what the fixture does; two are compared as general code too. Then what a step has no place for: masks of a rank above two, embeddings as an input. Needs onnx and onnxruntime.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / 'test/full'), str(ROOT / 'test/onnx')]
from check_onnx import Checker, normalized, run  # noqa: E402
from exports import run_ort  # noqa: E402


class Rewriter:
    """A copy of a model, its new nodes in front."""

    def __init__(self, path):
        self.model = onnx.load(path)
        self.graph, self.new = self.model.graph, []

    def node(self, kind, *inputs, **attributes):
        name = f'new{len(self.new)}'
        self.new.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, value, kind=np.int64):
        return self.node('Constant', value=numpy_helper.from_array(np.array(value, kind)))

    def drop(self, name):
        """The input |name| away; new nodes give a value of its name."""
        kept = [i for i in self.graph.input if i.name != name]
        del self.graph.input[:]
        self.graph.input.extend(kept)

    def retype(self, name, kind, shape):
        """The input |name| by another type; what uses it uses the value that this gives the name of."""
        for value in self.graph.input:
            if value.name == name:
                value.CopyFrom(helper.make_tensor_value_info(name, kind, shape))
        for node in self.graph.node:
            node.input[:] = ['old_' + i if i == name else i for i in node.input]
        return 'old_' + name

    def named(self, value, name):
        self.new.append(helper.make_node('Identity', [value], [name]))

    def save(self, path):
        nodes = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend(self.new + nodes)
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.checker.check_model(self.model)
        onnx.save(self.model, path)

    # Sizes of a step, [1] each.
    def step(self):
        return self.node('Slice', self.node('Shape', 'input_ids'), *map(self.constant, ([1], [2], [0])))

    def past(self):
        first = next(i.name for i in self.graph.input if i.name.startswith('past'))
        return self.node('Slice', self.node('Shape', first), *map(self.constant, ([2], [3], [0])))

    def scalar(self, x):
        return self.node('Squeeze', x, self.constant([0]))


def chain(node):
    """A LayerNormalization of the last axis in small operators."""
    x, weight, bias = node.input
    epsilon = next(a.f for a in node.attribute if a.name == 'epsilon')
    name = lambda part: f'{node.output[0]}_{part}'
    steps = [('Constant', [], 'epsilon', dict(value=numpy_helper.from_array(np.array(epsilon, np.float32)))), ('ReduceMean', [x], 'mean', dict(axes=[-1])), ('Sub', [x, name('mean')], 'centred', {}),
             ('Mul', [name('centred')] * 2, 'square', {}), ('ReduceMean', [name('square')], 'variance', dict(axes=[-1])), ('Add', [name('variance'), name('epsilon')], 'more', {}),
             ('Sqrt', [name('more')], 'root', {}), ('Div', [name('centred'), name('root')], 'normal', {}), ('Mul', [name('normal'), weight], 'scaled', {})]
    return [helper.make_node(kind, inputs, [name(part)], **attributes) for kind, inputs, part, attributes in steps] + [helper.make_node('Add', [name('scaled'), bias], [node.output[0]])]


def older(path, opset):
    r = Rewriter(path)
    constants = {t.name: t for t in r.graph.initializer}
    constants |= {n.output[0]: n.attribute[0].t for n in r.graph.node if n.op_type == 'Constant'}
    nodes = []
    for node in r.graph.node:
        if node.op_type == 'Reshape' and opset < 14:
            del node.attribute[:]  # allowzero; no exporter that asks for it writes zeros
        if node.op_type == 'LayerNormalization':
            nodes += chain(node)
            continue
        # Since set 13 these are inputs.
        name = {'Unsqueeze': 'axes', 'Squeeze': 'axes', 'Split': 'split', 'ReduceSum': 'axes'}.get(node.op_type)
        if opset < 13 and name and len(node.input) > 1:
            node.attribute.append(helper.make_attribute(name, numpy_helper.to_array(constants[node.input[1]]).reshape(-1).tolist()))
            del node.input[1:]
        if opset < 12 and node.op_type == 'LessOrEqual':
            node.op_type, out = 'Greater', node.output[0]
            node.output[0] = out + '_not'
            nodes += [node, helper.make_node('Not', [out + '_not'], [out])]
            continue
        nodes.append(node)
    del r.graph.node[:]
    r.graph.node.extend(nodes)
    r.model.opset_import[0].version = opset
    return r


def positions_of_mask(path):
    r = Rewriter(path)
    r.drop('position_ids')
    sums = r.node('Sub', r.node('CumSum', 'attention_mask', r.constant(1)), r.constant(1))
    all_rows = r.node('Where', r.node('Equal', 'attention_mask', r.constant(0)), r.constant(1), sums)
    r.named(r.node('Slice', all_rows, r.node('Neg', r.step()), r.constant([2**63 - 1]), r.constant([1])), 'position_ids')
    return r


def positions_of_past(path):
    r = Rewriter(path)
    r.drop('position_ids')
    past, step = r.past(), r.step()
    r.named(r.node('Unsqueeze', r.node('Range', r.scalar(past), r.scalar(r.node('Add', past, step)), r.constant(1)), r.constant([0])), 'position_ids')
    return r


def positions_of_length(path):
    r = Rewriter(path)
    r.drop('position_ids')
    total = r.scalar(r.node('Slice', r.node('Shape', 'attention_mask'), *map(r.constant, ([1], [2], [0]))))
    r.named(r.node('Unsqueeze', r.node('Range', r.node('Sub', total, r.scalar(r.step())), total, r.constant(1)), r.constant([0])), 'position_ids')
    return r


def mask_of(kind):
    def rewrite(path):
        r = Rewriter(path)
        value = r.retype('attention_mask', kind, ['batch', 'total'])
        r.new.append(helper.make_node('Cast', ['attention_mask'], [value], to=TensorProto.INT64))
        return r
    return rewrite


def no_mask(path):
    r = Rewriter(path)
    r.drop('attention_mask')
    batch = r.node('Slice', r.node('Shape', 'input_ids'), *map(r.constant, ([0], [1], [0])))
    shape = r.node('Concat', batch, r.node('Add', r.past(), r.step()), axis=0)
    r.named(r.node('ConstantOfShape', shape, value=numpy_helper.from_array(np.ones(1, np.int64))), 'attention_mask')
    return r


def neither(path):
    r = no_mask(path)
    r.drop('position_ids')
    past = r.past()
    r.named(r.node('Unsqueeze', r.node('Range', r.scalar(past), r.scalar(r.node('Add', past, r.step())), r.constant(1)), r.constant([0])), 'position_ids')
    return r


EQUAL = {'opset13': lambda p: older(p, 13), 'opset12': lambda p: older(p, 12), 'opset11': lambda p: older(p, 11), 'positions-of-mask': positions_of_mask,
         'positions-of-past': positions_of_past, 'positions-of-length': positions_of_length, 'float-mask': mask_of(TensorProto.FLOAT), 'bool-mask': mask_of(TensorProto.BOOL),
         'no-mask': no_mask, 'neither': neither}


GENERAL = ('opset11', 'neither')


def whole_mask(path):
    """A mask for every query: [batch, 1, step, total], 0 where a key is seen."""
    r = Rewriter(path)
    value = r.retype('attention_mask', TensorProto.FLOAT, ['batch', 1, 'step', 'total'])
    last = r.node('Squeeze', r.node('Slice', 'attention_mask', *map(r.constant, ([-1], [2**63 - 1], [2]))), r.constant([1, 2]))
    r.new.append(helper.make_node('Cast', [r.node('GreaterOrEqual', last, r.constant(0, np.float32))], [value], to=TensorProto.INT64))
    return r


def added_mask(path):
    """A mask that is added as it is: 0 where a key is seen. Ones are what a step gives."""
    r = Rewriter(path)
    value = r.retype('attention_mask', TensorProto.FLOAT, ['batch', 'total'])
    r.new.append(helper.make_node('Cast', [r.node('Equal', 'attention_mask', r.constant(0, np.float32))], [value], to=TensorProto.INT64))
    return r


def embeddings(path):
    r = Rewriter(path)
    first = next(n for n in r.graph.node if n.op_type == 'Gather' and n.input[0] in {t.name for t in r.graph.initializer})
    width = next(t.dims[1] for t in r.graph.initializer if t.name == first.input[0])
    out = first.output[0]
    r.graph.node.remove(first)
    r.graph.input[0].CopyFrom(helper.make_tensor_value_info('inputs_embeds', TensorProto.FLOAT, ['batch', 'step', width]))
    shape = r.node('Slice', r.node('Shape', 'inputs_embeds'), *map(r.constant, ([0], [2], [0])))
    r.named(r.node('ConstantOfShape', shape, value=numpy_helper.from_array(np.ones(1, np.int64))), 'input_ids')
    r.named('inputs_embeds', out)
    return r


KEPT = {'whole-mask': (whole_mask, "input 'attention_mask' is a mask of rank 4, which may hide any token from any other", "input 'attention_mask' of float[?,1,?,?]: a graph that was not recognised takes"),
        'added-mask': (added_mask, 'a mask that is neither causal nor causal with a window', "input 'attention_mask' of float[?,?]: a graph that was not recognised takes"),
        'embeddings': (embeddings, "input 'inputs_embeds' has rows of an embedding where a step has tokens", "input 'inputs_embeds' of float[?,?,")}


def general(checker, model, rewriter, tokens, config, what):
    """The model with an operator behind its embedding that no language model has: general code, against onnxruntime, for a prompt and for single tokens."""
    graph = rewriter.graph
    lookup = next(n for n in graph.node if n.op_type == 'Gather' and n.input[0] in {t.name for t in graph.initializer})
    out = lookup.output[0]
    lookup.output[0] = out + '_plain'
    graph.node.insert(list(graph.node).index(lookup) + 1, helper.make_node('Softsign', [out + '_plain'], [out]))
    rewriter.save(model)
    raw, artifact = model.with_suffix('.expected'), model.with_suffix('.lathe')
    run_ort(model, tokens, len(tokens) - 4, config).astype(np.float32).tofile(raw)
    warnings = run(checker.build / 'bin/lathe', 'compile', model, '-o', artifact, '--target', 'native', '--max-seq', 64, '--max-rows', 32, '--quiet').stderr
    checker.check('runs as general code' in warnings, f'{what}: general code')
    for chunk in (len(tokens) - 4, 1):
        difference = run(checker.build / 'test/e2e/CompareLogits', '--chunk', chunk, artifact, raw, 2e-4, *tokens).stdout
        checker.check(True, f'{what}, {chunk} tokens a step: {difference.strip()}')
    artifact.unlink()


def main():
    build, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    checker = Checker(build)
    for family in sys.argv[3:]:
        fixture = ROOT / 'test/fixtures/onnx' / family
        source, config = fixture / 'torchscript/model.onnx', json.loads((fixture / 'hf/config.json').read_text())
        tokens = json.loads((fixture / 'tokens.json').read_text())
        expected = np.fromfile(fixture / 'expected.f32', np.float32).reshape(len(tokens), -1)
        reference = normalized(run(build / 'bin/lathe-import', fixture / 'hf').stdout)
        for name, rewrite in EQUAL.items():
            model = out / family / name / 'model.onnx'
            rewrite(source).save(model)
            (model.parent / 'config.json').write_text(json.dumps(config))
            rows = run_ort(model, tokens, len(tokens) - 7, config)
            error = np.abs(rows - expected).max() / np.abs(expected).max()
            checker.check(error < 1e-4, f'{family} {name}: {error:.1e} from the fixture, by onnxruntime')
            step = model.with_suffix('.step.mlir')
            good, messages = checker.raised(model, step)
            checker.check(good and normalized(step.read_text()) == reference, f'{family} {name}: the module of the safetensors' + ('' if good else '\n' + messages))
        for name in GENERAL:
            general(checker, out / family / f'{name}-general/model.onnx', EQUAL[name](source), tokens[:14], config, f'{family} {name}')
        for name, (rewrite, warning, error) in KEPT.items():
            model = out / family / name / 'model.onnx'
            rewrite(source).save(model)
            good, messages = checker.raised(model, model.with_suffix('.step.mlir'))
            checker.check(not good and warning in messages, f'{family} {name}: kept, {messages.strip()}')
            refused = checker.refused(model, model.with_suffix('.lathe'))
            checker.check(error in refused, f'{family} {name}: refused, {refused.strip().splitlines()[-1]}')
    if checker.failures:
        sys.exit(f'{checker.failures} checks failed')


if __name__ == '__main__':
    main()
