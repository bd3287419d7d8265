#!/usr/bin/env python3
"""Writes the ONNX project's backend node tests to a directory: NAME/model.onnx and NAME/test_data_set_N/{input,output}_M.pb.

usage: make_node_tests.py DIRECTORY      (needs the PyPI package onnx)
"""
import pathlib
import sys

import onnx
import onnx.backend.test.case.node
from onnx import numpy_helper


def proto(value, info):
    if isinstance(value, onnx.TensorProto):
        return value
    kind = info.type.WhichOneof('value')
    convert = {'sequence_type': numpy_helper.from_list, 'optional_type': numpy_helper.from_optional, 'map_type': numpy_helper.from_dict}
    return convert.get(kind, numpy_helper.from_array)(value, info.name)


def main():
    root = pathlib.Path(sys.argv[1])
    cases = onnx.backend.test.case.node.collect_testcases()
    for case in cases:
        folder = root / case.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / 'model.onnx').write_bytes(case.model.SerializeToString())
        for i, (inputs, outputs) in enumerate(case.data_sets):
            data = folder / f'test_data_set_{i}'
            data.mkdir(exist_ok=True)
            for prefix, values, infos in (('input', inputs, case.model.graph.input), ('output', outputs, case.model.graph.output)):
                for j, value in enumerate(values):
                    (data / f'{prefix}_{j}.pb').write_bytes(proto(value, infos[j]).SerializeToString())
    print(f'{len(cases)} cases, onnx {onnx.__version__}')


if __name__ == '__main__':
    main()
