#!/usr/bin/env python3
"""Writes cases of ONNX Runtime's com.microsoft operators, with what it computes for random inputs, in the form of make_node_tests.py.

usage: make_contrib_tests.py DIRECTORY      (needs the PyPI packages onnx and onnxruntime)
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(11)


def floats(*shape, scale=1.0, offset=0.0):
    return (offset + scale * random.standard_normal(shape)).astype(np.float32)


def tables(positions, half):
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def positions(start, count, batch=1):
    return np.arange(start, start + count, dtype=np.int64)[None].repeat(batch, 0)


def grouped(past, step, window=-1, cap=0.0, rotary=1, interleaved=0, heads=4, kv=2, size=16, part=None, packed=False):
    cos, sin = tables(past + step + 5, (part or size) // 2)
    q, k, v = floats(1, step, heads * size), floats(1, step, kv * size), floats(1, step, kv * size)
    if packed:
        q, k, v = np.concatenate([q, k, v], 2), None, None
    inputs = [q, k, v, floats(1, kv, past, size), floats(1, kv, past, size), np.array([[past + step - 1]], np.int32), np.array([past + step], np.int32)]
    attributes = dict(num_heads=heads, kv_num_heads=kv)
    if rotary:
        inputs += [cos, sin]
        attributes.update(do_rotary=1, rotary_interleaved=interleaved)
    if window > 0:
        attributes['local_window_size'] = window
    if cap:
        attributes['softcap'] = cap
    return 'GroupQueryAttention', inputs, 3, attributes


def multi(past, step, mask=True, causal=0, heads=3, size=8, bias=False):
    q, k, v = (floats(2, step, heads * size) for _ in range(3))
    added = np.where(np.arange(past + step)[None] <= np.arange(past, past + step)[:, None], 0, -1e4).astype(np.float32)[None, None] if mask else None
    inputs = [q, k, v, floats(3 * heads * size) if bias else None, None, added, floats(2, heads, past, size), floats(2, heads, past, size)]
    return 'MultiHeadAttention', inputs, 3, dict(num_heads=heads, **({'unidirectional': 1} if causal else {}))


def fused(past, step, mask=True, causal=1, heads=3, size=8, hidden=16, batch=2):
    inputs = [floats(batch, step, hidden), floats(hidden, 3 * heads * size, scale=0.2), floats(3 * heads * size)]
    inputs.append((random.random((batch, past + step)) > 0.2).astype(np.int32) if mask else None)
    inputs.append(floats(2, batch, heads, past, size) if past else None)
    return 'Attention', inputs, 2, dict(num_heads=heads, unidirectional=causal)


def nbits(bits, block, rows, columns, zeros, bias=False):
    blocks = (columns + block - 1) // block
    codes = random.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8)
    inputs = [floats(3, columns), codes, floats(rows, blocks, scale=0.02), None, None, None]
    if zeros:
        inputs[3] = random.integers(0, 256, (rows, (blocks * bits + 7) // 8)).astype(np.uint8)
    if bias:
        inputs[5] = floats(rows)
    return 'MatMulNBits', inputs, 1, dict(N=rows, K=columns, bits=bits, block_size=block)


def cases():
    x, y, w, b = floats(2, 5, 16), floats(2, 5, 16), floats(16, offset=1, scale=0.1), floats(16)
    yield 'skip_simplified', ('SkipSimplifiedLayerNormalization', [x, y, w], [0, 3], dict(epsilon=1e-5))
    yield 'skip_simplified_bias', ('SkipSimplifiedLayerNormalization', [x, y, w, b], [0, 3], dict(epsilon=1e-5))
    yield 'skip_layer', ('SkipLayerNormalization', [x, y, w, b], [0, 3], dict(epsilon=1e-5))
    yield 'skip_layer_bias', ('SkipLayerNormalization', [x, y, w, b, floats(16)], [0, 3], dict(epsilon=1e-5))
    yield 'skip_layer_plain', ('SkipLayerNormalization', [x, y, w], 1, {})
    for name in ('Gelu', 'QuickGelu', 'FastGelu'):
        yield f'{name.lower()}', (name, [floats(3, 7)], 1, {})
    yield 'quickgelu_alpha', ('QuickGelu', [floats(3, 7)], 1, dict(alpha=1.0))
    yield 'fastgelu_bias', ('FastGelu', [floats(3, 7), floats(7)], 1, {})
    yield 'biasgelu', ('BiasGelu', [floats(3, 7), floats(7)], 1, {})
    cos, sin = tables(20, 8)
    half_cos, half_sin = tables(20, 4)
    yield 'rotary', ('RotaryEmbedding', [floats(2, 3, 4, 16), positions(6, 4, 2), cos, sin], 1, {})
    yield 'rotary_interleaved', ('RotaryEmbedding', [floats(2, 3, 4, 16), positions(6, 4, 2), cos, sin], 1, dict(interleaved=1))
    yield 'rotary_offset', ('RotaryEmbedding', [floats(2, 4, 48), np.array([6]), cos, sin], 1, {})
    yield 'rotary_part', ('RotaryEmbedding', [floats(2, 4, 48), positions(2, 4, 2), half_cos, half_sin], 1, dict(rotary_embedding_dim=8, num_heads=3))
    yield 'gqa_prompt', grouped(0, 6)
    yield 'gqa_decode', grouped(7, 1)
    yield 'gqa_append', grouped(5, 3)
    yield 'gqa_interleaved', grouped(0, 5, interleaved=1)
    yield 'gqa_window', grouped(9, 1, window=4)
    yield 'gqa_window_prompt', grouped(0, 9, window=4)
    yield 'gqa_cap', grouped(4, 1, cap=3.0)
    yield 'gqa_plain', grouped(4, 1, rotary=0)
    yield 'gqa_one_kv_head', grouped(4, 1, heads=3, kv=1)
    yield 'gqa_packed', grouped(4, 2, packed=True)
    yield 'gqa_packed_prompt', grouped(0, 3, packed=True, rotary=0)
    yield 'mha', multi(0, 5)
    yield 'mha_past', multi(6, 2)
    yield 'mha_unmasked', multi(6, 1, mask=False)
    yield 'mha_causal', multi(0, 5, mask=False, causal=1)
    yield 'mha_bias', multi(6, 2, bias=True)
    yield 'attention', fused(0, 4)
    yield 'attention_past', fused(5, 2)
    yield 'attention_unmasked', fused(4, 1, mask=False, causal=0)
    for bits, block, zeros in ((4, 32, False), (4, 32, True), (4, 16, False), (4, 128, True), (8, 32, False)):
        yield f'matmul_{bits}bits_{block}{"_zeros" * zeros}', nbits(bits, block, 6, 128, zeros)
    yield 'matmul_4bits_last_block', nbits(4, 32, 5, 80, False)
    yield 'matmul_4bits_odd_blocks', nbits(4, 32, 5, 96, True)
    yield 'matmul_4bits_bias', nbits(4, 32, 6, 64, False, bias=True)
    codes, scales = random.integers(0, 256, (9, 32)).astype(np.uint8), floats(9, 2, scale=0.02)
    for name, zeros in (('', None), ('_zeros', random.integers(0, 256, (9, 1)).astype(np.uint8))):
        yield f'gather_4bits{name}', ('GatherBlockQuantized', [codes, np.array([[3, 0, 8]]), scales, zeros], 1, dict(bits=4, block_size=32, gather_axis=0, quantize_axis=1))
    a, c = floats(2, 3, 5), floats(2, 5, 4)
    yield 'fused_matmul', ('FusedMatMul', [a, c], 1, dict(alpha=0.5))
    yield 'fused_matmul_transposed', ('FusedMatMul', [a.transpose(0, 2, 1).copy(), c.transpose(0, 2, 1).copy()], 1, dict(transA=1, transB=1))


def write(folder, name, operator, inputs, results, attributes):
    wanted = list(range(results)) if isinstance(results, int) else results
    outputs = [f'y{k}' if k in wanted else '' for k in range(max(wanted) + 1)]
    names = [f'x{k}' if value is not None else '' for k, value in enumerate(inputs)]
    given = [(n, value) for n, value in zip(names, inputs) if n]
    node = helper.make_node(operator, names, outputs, domain='com.microsoft', name=name, **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for n, value in given]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs if o]
    model = helper.make_model(helper.make_graph([node], name, infos, results), ir_version=9,
                              opset_imports=[helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=['CPUExecutionProvider'])
        values = session.run(None, dict(given))
    except Exception as error:
        sys.exit(f'{name}: {error}')
    folder = folder / f'com_microsoft_{name}'
    data = folder / 'test_data_set_0'
    data.mkdir(parents=True, exist_ok=True)
    # With its shapes, as exporters write them.
    for info, value in zip(model.graph.output, values):
        info.CopyFrom(helper.make_tensor_value_info(info.name, TensorProto.FLOAT, value.shape))
    (folder / 'model.onnx').write_bytes(model.SerializeToString())
    for prefix, list_ in (('input', [value for _, value in given]), ('output', values)):
        for k, value in enumerate(list_):
            (data / f'{prefix}_{k}.pb').write_bytes(numpy_helper.from_array(value, f'{prefix}{k}').SerializeToString())


def main():
    root = pathlib.Path(sys.argv[1])
    count = 0
    for name, case in cases():
        write(root, name, *case)
        count += 1
    print(f'{count} cases of onnxruntime {onnxruntime.__version__}')


if __name__ == '__main__':
    main()
