#!/usr/bin/env python3
"""Writes Operators.inc: the operators of the ONNX standard, from the schemas in PyPI's `onnx`.

usage: make_operators.py > Operators.inc
"""
import onnx
from onnx import defs

OLDEST = 7  # versions that no operator set from here on uses are left out
KINDS = {'FLOAT': 'float', 'INT': 'int', 'STRING': 'string', 'TENSOR': 'tensor', 'GRAPH': 'graph', 'FLOATS': 'floats',
         'INTS': 'ints', 'STRINGS': 'strings', 'TENSORS': 'tensors', 'GRAPHS': 'graphs', 'SPARSE_TENSOR': 'sparse',
         'TYPE_PROTO': 'type', 'TYPE_PROTOS': 'types', 'SPARSE_TENSORS': 'sparse'}


def attribute(name, schema):
    text = name + ':' + KINDS[schema.type.name]
    if schema.required:
        return text + '!'
    default = schema.default_value
    if schema.type.name == 'INT' and default.name:
        text += f'={default.i}'
    elif schema.type.name == 'FLOAT' and default.name:
        text += f'={default.f:.9g}'
    elif schema.type.name == 'STRING' and default.name:
        text += f'={default.s.decode()}'
    return text


def most(n):
    return -1 if n > 10**6 else n


schemas = [s for s in defs.get_all_schemas_with_history() if s.domain == '']
versions = {}
for s in schemas:
    versions.setdefault(s.name, set()).add(s.since_version)
print(f'// Written by make_operators.py from onnx {onnx.__version__} (operator set {defs.onnx_opset_version()}).')
print('// name, since version, fewest and most inputs (-1: any number), fewest and most outputs, attributes')
for s in sorted(schemas, key=lambda s: (s.name, s.since_version)):
    later = [v for v in versions[s.name] if v > s.since_version]
    if later and min(later) <= OLDEST:
        continue
    attributes = ' '.join(attribute(n, a) for n, a in sorted(s.attributes.items()))
    flag = 'true' if s.deprecated else 'false'
    print(f'OPERATOR("{s.name}", {s.since_version}, {s.min_input}, {most(s.max_input)}, {s.min_output}, '
          f'{most(s.max_output)}, {flag}, "{attributes}")')
