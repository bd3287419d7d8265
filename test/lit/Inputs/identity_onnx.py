#!/usr/bin/env python3
"""Writes an ONNX model that gives its tokens back: the smallest graph that is no language model. usage: identity_onnx.py FILE"""
import sys


def field(number, data):
    data = data.encode() if isinstance(data, str) else data
    return bytes([number << 3 | 2, len(data)]) + data


def value(name):
    tensor = bytes([1 << 3, 7]) + field(2, field(1, field(2, 'b')) + field(1, field(2, 's')))
    return field(1, name) + field(2, field(1, tensor))


graph = field(1, field(1, 'ids') + field(2, 'out') + field(3, 'copy') + field(4, 'Identity')) + field(11, value('ids')) + field(12, value('out'))
model = bytes([1 << 3, 8]) + field(7, graph) + field(8, bytes([2 << 3, 17]))
open(sys.argv[1], 'wb').write(model)
