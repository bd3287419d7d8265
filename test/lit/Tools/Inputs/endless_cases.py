#!/usr/bin/env python3
"""Writes two cases for lathe-onnx-test that do not end soon: wait/, whose input is a pipe that nobody writes to, and busy/, a product of large matrices.
usage: endless_cases.py DIRECTORY"""
import os
import pathlib
import sys


def varint(x):
    return bytes([x]) if x < 128 else bytes([x & 127 | 128]) + varint(x >> 7)


def field(number, data):
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


SIZE = 4000
FLOAT, INT64 = 1, 7


def value(name, dims):
    shape = b''.join(field(1, field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, shape)))


def node(op, inputs, output):
    return field(1, b''.join(field(1, name) for name in inputs) + field(2, output) + field(3, output) + field(4, op))


def model(graph):
    return field(1, 8) + field(7, field(2, 'g') + graph) + field(8, field(2, 17))


def case(name, graph):
    data = pathlib.Path(sys.argv[1]) / name / 'test_data_set_0'
    data.mkdir(parents=True)
    (data.parent / 'model.onnx').write_bytes(model(graph))
    return data


os.mkfifo(case('wait', node('Identity', ['x'], 'y') + field(11, value('x', [1])) + field(12, value('y', [1]))) / 'input_0.pb')
shape = field(1, 2) + field(2, INT64) + field(7, varint(SIZE) * 2) + field(8, 'shape')
case('busy', node('ConstantOfShape', ['shape'], 'x') + node('MatMul', ['x', 'x'], 'y') + field(5, shape) + field(12, value('y', [SIZE, SIZE])))
