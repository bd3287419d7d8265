#!/usr/bin/env python3
"""Writes small-graph.onnx, a language model of 2 layers that no raise pass knows, and small-graph.f32, its logits from onnxruntime.

usage: make_small_graph.py DIRECTORY      (needs the PyPI packages onnx, onnxruntime and numpy)

Attention is ordinary; the second layer's MLP is gated by a sine and mixes neighbours with a cumulative sum, so that the graph stays general
code. Weights are float32 with a fixed seed; ids are 0 .. 99.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, HEADS, LAYERS, INNER = 100, 32, 4, 2, 48
SIZE = HIDDEN // HEADS
TOKENS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


class Graph:
    def __init__(self):
        self.random = np.random.default_rng(7)
        self.nodes, self.weights = [], []

    def constant(self, name, value):
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name, *shape, scale=None):
        scale = scale or 1 / np.sqrt(shape[0])
        return self.constant(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=f'/{output}', **attributes))
        return output

    def norm(self, x, name):
        square = self.node('Pow', [x, 'two'], f'{name}.square')
        mean = self.node('ReduceMean', [square, 'last'], f'{name}.mean', keepdims=1)
        root = self.node('Sqrt', [self.node('Add', [mean, 'epsilon'], f'{name}.shifted')], f'{name}.root')
        return self.node('Mul', [self.node('Div', [x, root], f'{name}.unit'), self.constant(f'{name}.weight', (1 + 0.1 * self.random.standard_normal(HIDDEN)).astype(np.float32))], f'{name}.out')

    def heads(self, x, name):
        shaped = self.node('Reshape', [x, 'head_shape'], f'{name}.shaped')
        return self.node('Transpose', [shaped], f'{name}.heads', perm=[0, 2, 1, 3])

    def layer(self, i, x):
        n = f'layers.{i}'
        h = self.norm(x, f'{n}.norm1')
        q, k, v = (self.heads(self.node('MatMul', [h, self.weight(f'{n}.{p}.weight', HIDDEN, HIDDEN)], f'{n}.{p}'), f'{n}.{p}') for p in 'qkv')
        k = self.node('Concat', [f'past_key_values.{i}.key', k], f'present.{i}.key', axis=2)
        v = self.node('Concat', [f'past_key_values.{i}.value', v], f'present.{i}.value', axis=2)
        kt = self.node('Transpose', [k], f'{n}.kt', perm=[0, 1, 3, 2])
        scores = self.node('Mul', [self.node('MatMul', [q, kt], f'{n}.dots'), 'scale'], f'{n}.scores')
        p = self.node('Softmax', [self.node('Where', ['seen', scores, 'never'], f'{n}.masked')], f'{n}.p', axis=-1)
        y = self.node('Transpose', [self.node('MatMul', [p, v], f'{n}.mix')], f'{n}.mixt', perm=[0, 2, 1, 3])
        y = self.node('MatMul', [self.node('Reshape', [y, 'flat_shape'], f'{n}.flat'), self.weight(f'{n}.o.weight', HIDDEN, HIDDEN)], f'{n}.o')
        x = self.node('Add', [x, y], f'{n}.residual1')
        h = self.norm(x, f'{n}.norm2')
        gate, up = (self.node('MatMul', [h, self.weight(f'{n}.{p}.weight', HIDDEN, INNER)], f'{n}.{p}') for p in ('gate', 'up'))
        if i == 1:  # nobody's MLP
            gate = self.node('Sin', [gate], f'{n}.sine')
            up = self.node('CumSum', [up, 'axis2'], f'{n}.sums')
        else:
            gate = self.node('Mul', [gate, self.node('Sigmoid', [gate], f'{n}.sigmoid')], f'{n}.silu')
        h = self.node('MatMul', [self.node('Mul', [gate, up], f'{n}.gated'), self.weight(f'{n}.down.weight', INNER, HIDDEN)], f'{n}.down')
        return self.node('Add', [x, h], f'{n}.residual2')

    def model(self):
        for name, value in (('two', np.float32(2)), ('epsilon', np.float32(1e-5)), ('last', np.array([-1])), ('head_shape', np.array([0, -1, HEADS, SIZE])),
                            ('flat_shape', np.array([0, -1, HIDDEN])), ('scale', np.float32(1 / np.sqrt(SIZE))), ('never', np.float32(-3.4e38)), ('axis2', np.int64(2)),
                            ('zero', np.int64(0)), ('one', np.int64(1)), ('first', np.array([0])), ('second', np.array([1])), ('mask_axes', np.array([1, 2]))):
            self.constant(name, value)
        # seen[1, 1, queries, keys]: keys at or before the query's position, where the mask is 1
        total = self.node('Gather', [self.node('Shape', ['attention_mask'], 'mask_shape'), 'one'], 'total', axis=0)
        keys = self.node('Range', ['zero', total, 'one'], 'keys')
        causal = self.node('LessOrEqual', [keys, self.node('Unsqueeze', ['position_ids', 'last'], 'query_rows')], 'causal')
        padding = self.node('Unsqueeze', [self.node('Cast', ['attention_mask'], 'mask_bool', to=TensorProto.BOOL), 'second'], 'padding')
        self.node('Unsqueeze', [self.node('And', [causal, padding], 'seen3'), 'second'], 'seen')
        x = self.node('Gather', [self.weight('embed.weight', VOCABULARY, HIDDEN, scale=1.0), 'input_ids'], 'embedding', axis=0)
        for i in range(LAYERS):
            x = self.layer(i, x)
        self.node('MatMul', [self.norm(x, 'norm'), self.weight('head.weight', HIDDEN, VOCABULARY)], 'logits')
        value = helper.make_tensor_value_info
        inputs = [value('input_ids', TensorProto.INT64, ['batch', 'sequence']), value('attention_mask', TensorProto.INT64, ['batch', 'total']),
                  value('position_ids', TensorProto.INT64, ['batch', 'sequence'])]
        outputs = [value('logits', TensorProto.FLOAT, ['batch', 'sequence', VOCABULARY])]
        for i in range(LAYERS):
            for kind in ('key', 'value'):
                inputs.append(value(f'past_key_values.{i}.{kind}', TensorProto.FLOAT, ['batch', HEADS, 'past', SIZE]))
                outputs.append(value(f'present.{i}.{kind}', TensorProto.FLOAT, ['batch', HEADS, 'total', SIZE]))
        graph = helper.make_graph(self.nodes, 'small', inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=9, producer_name='make_small_graph')


def main():
    folder = pathlib.Path(sys.argv[1])
    model = Graph().model()
    onnx.checker.check_model(model)
    onnx.save(model, folder / 'small-graph.onnx')
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=['CPUExecutionProvider'])
    feed = {'input_ids': np.array([TOKENS]), 'attention_mask': np.ones((1, len(TOKENS)), np.int64), 'position_ids': np.arange(len(TOKENS))[None]}
    for i in range(LAYERS):
        for kind in ('key', 'value'):
            feed[f'past_key_values.{i}.{kind}'] = np.zeros((1, HEADS, 0, SIZE), np.float32)
    logits = session.run(['logits'], feed)[0]
    logits.astype(np.float32).tofile(folder / 'small-graph.f32')


if __name__ == '__main__':
    main()
