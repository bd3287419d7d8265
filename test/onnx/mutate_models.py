#!/usr/bin/env python3
"""Damages exports in ways that stay valid protobufs and compiles them: each compiles or is refused with a message, in bounded memory and time, and nothing crashes.

usage: mutate_models.py COMPILER COUNT [--seed N] [--to PHASE] MODEL.onnx...      (needs the PyPI package onnx)

COMPILER is lathe-compiler. Up to the phase raise a model takes a tenth of a second, as general code up to half a minute.

A mutation changes sizes of weights, inputs and constants, numbers of attributes, operators, names of values, or leaves out nodes; some make cycles. A crash leaves the
model in ./mutant-SEED for whoever looks at it.
"""
import argparse
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile

import onnx

NUMBERS = [0, -1, 1, 2, 3, 7, 63, 64, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -2**63]
MEMORY = 6 << 30  # address space of a compiler
SECONDS = 200  # of its processor time


def mutate(model, chance):
    graph = model.graph
    kind = chance.randrange(9)
    node = chance.choice(graph.node)
    if kind == 0 and graph.initializer:
        tensor = chance.choice(graph.initializer)
        if tensor.dims:
            tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice(NUMBERS)
    elif kind == 1 and graph.initializer:
        small = [t for t in graph.initializer if t.data_type == onnx.TensorProto.INT64 and 8 <= len(t.raw_data) <= 64]
        if small:  # an axis, a shape, an index
            tensor = chance.choice(small)
            at = chance.randrange(len(tensor.raw_data) // 8) * 8
            tensor.raw_data = tensor.raw_data[:at] + chance.choice(NUMBERS).to_bytes(8, 'little', signed=True) + tensor.raw_data[at + 8:]
    elif kind == 2:
        whole = [a for a in node.attribute if a.type in (onnx.AttributeProto.INT, onnx.AttributeProto.INTS)]
        if whole:
            attribute = chance.choice(whole)
            if attribute.type == onnx.AttributeProto.INT:
                attribute.i = chance.choice(NUMBERS)
            elif attribute.ints:
                attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(NUMBERS)
    elif kind == 3:
        node.op_type = chance.choice(graph.node).op_type
    elif kind == 4 and node.input:  # another value in its place: of another shape, or from behind it
        values = [v for n in graph.node for v in n.output] + [t.name for t in graph.initializer] + [i.name for i in graph.input]
        node.input[chance.randrange(len(node.input))] = chance.choice(values)
    elif kind == 5:
        graph.node.remove(node)
    elif kind == 6:
        value = chance.choice(list(graph.input) + list(graph.output))
        dims = value.type.tensor_type.shape.dim
        if dims:
            dims[chance.randrange(len(dims))].dim_value = chance.choice(NUMBERS)
    elif kind == 7 and graph.initializer:
        chance.choice(graph.initializer).data_type = chance.choice([1, 2, 3, 6, 7, 9, 10, 11, 16, 21, 22, 99])
    elif kind == 8 and node.input:
        del node.input[chance.randrange(len(node.input))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('compiler', type=pathlib.Path)
    parser.add_argument('count', type=int)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--to', default='package')
    parser.add_argument('models', type=pathlib.Path, nargs='+')
    arguments = parser.parse_args()

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    compiled = refused = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            chance = random.Random(seed)
            source = chance.choice(arguments.models)
            place = pathlib.Path(folder) / str(seed)
            place.mkdir()
            for extra in source.parent.iterdir():
                if extra.is_file() and extra.suffix not in ('.onnx', '.f32') and extra.stat().st_size < 1 << 20:
                    shutil.copy(extra, place)
            model = onnx.load(source, load_external_data=False)
            for _ in range(chance.randrange(1, 4)):
                mutate(model, chance)
            (place / 'model.onnx').write_bytes(model.SerializeToString())
            command = [str(arguments.compiler), 'compile', str(place / 'model.onnx'), '--target', 'native', '--max-seq', '64', '--quiet']
            command += ['-o', str(place / 'm.lathe')] if arguments.to == 'package' else ['--compile-to', arguments.to]
            run = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
            status, text = run.returncode, run.stderr
            if status == 0:
                compiled += 1
            elif status == 1 and 'error: ' in text:
                refused += 1
            else:
                failed += 1
                shutil.copytree(place, f'mutant-{seed}', dirs_exist_ok=True)
                print(f'seed {seed}, {source}: ended with {status}: {text[-600:]}', file=sys.stderr)
            shutil.rmtree(place)
    print(f'{arguments.count} damaged models: {compiled} compiled, {refused} refused, {failed} failed')
    sys.exit(failed != 0)


if __name__ == '__main__':
    main()
