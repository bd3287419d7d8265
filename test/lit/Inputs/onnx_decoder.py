"""onnx_decoder.py [--NAME=CHOICE ...]: prints a decoder of two layers as a graph of onnx ops, its parts written in the ways that the options name.

Weights are random with a fixed seed.
"""
import argparse
import math
import pathlib
import random
import struct

VOCABULARY, HIDDEN, HEADS, SIZE, INNER, POSITIONS, LAYERS = 11, 16, 2, 8, 24, 64, 2
FLOAT, INT32, INT64, BOOL, FLOAT16, BFLOAT16, FLOAT8 = 1, 6, 7, 9, 10, 16, 17
ELEMENTS = {'float32': ('f32', FLOAT), 'float16': ('f16', FLOAT16), 'bfloat16': ('bf16', BFLOAT16)}
SINCE = dict(Add=14, And=7, Equal=19, Cast=19, CastLike=19, Concat=13, Cos=7, DequantizeLinear=21, Div=14, Dropout=22, Erf=13, Expand=13, Gather=13, Gelu=20, Greater=13, LayerNormalization=17, Less=13, LessOrEqual=16, Log=13,
             MatMul=13, Max=13, Min=13, Mul=14, Neg=13, Pow=15, RMSNormalization=23, Range=11, Reciprocal=13, ReduceMean=18, ReduceSum=13, Reshape=14, RotaryEmbedding=23, Attention=24, Shape=15,
             Sigmoid=13, SimplifiedLayerNormalization=1, Sin=7, Slice=13, Softmax=13, Split=18, Sqrt=13, Sub=14, SwiGLU=28, Swish=24, Tanh=13, Transpose=13,
             TensorScatter=24, Unsqueeze=13, Where=16, Squeeze=13, Identity=21)


def rounded16(x):
    """The bits of the bfloat16 next to x."""
    return struct.unpack('<I', struct.pack('<f', x))[0] + 0x8000 >> 16 & 0xffff


class Graph:
    def __init__(self, options):
        self.o = options
        self.element, self.type = ELEMENTS[options.dtype]
        self.random = random.Random(5)
        self.params, self.lines, self.types, self.known = [], [], {}, {}
        self.kv = 1 if options.attention in ('gqa', 'chain') else HEADS
        self.kv_values = HEADS if self.broken('value-heads') else self.kv
        self.data, self.size = [], 0  # what is where in the file of --data

    # Text.
    def value(self, text, kind):
        name = f'%v{len(self.types)}'
        self.types[name] = kind
        self.lines.append(f'  {name} = {text}')
        return name

    def weight(self, name, *shape, scale=0.4, offset=0.0, values=None, element=None):
        if name in self.known:
            return self.known[name]
        count, element = math.prod(shape), element or self.element
        values = values or [offset + scale * self.random.gauss(0, 1) for _ in range(count)]
        kind = 'tensor<' + ''.join(f'{n}x' for n in shape) + f'{element}>'
        if element != 'f32':
            pack = (lambda x: struct.pack('<e', x)) if element == 'f16' else (lambda x: struct.pack('<H', rounded16(x)))
            self.known[name] = self.stored(name, kind, b''.join(map(pack, values)))
            return self.known[name]

        def nested(flat, sizes):
            if not sizes:
                return f'{flat[0]:.8e}'
            step = len(flat) // sizes[0]
            return '[' + ', '.join(nested(flat[k * step:(k + 1) * step], sizes[1:]) for k in range(sizes[0])) + ']'

        self.params.append(f'onnx.param @{name} : {kind} = dense<{nested(values, shape)}> : {kind}')
        self.known[name] = self.value(f'onnx.weight @{name} : {kind}', kind)
        return self.known[name]

    def stored(self, name, kind, data, size=0):
        """A weight whose bytes are in the file. Where it has |size| bytes and |data| fewer, all but its last four come first and these last, with a hole between."""
        size, end = size or len(data), data[-4:]
        self.params.append(f'onnx.param @{name} : {kind} = #onnx.file<"{self.o.data}", {self.size}, {size}>')
        self.data += [(self.size, data[:-4]), (self.size + size - len(end), end)]
        self.size += size
        return self.value(f'onnx.weight @{name} : {kind}', kind)

    def coded(self, name, rows, columns, axis=0):
        """[rows, columns] behind DequantizeLinear, in the way of --quantized; |axis|: that a product sums over."""
        code, grain, *rest = self.o.quantized.split(':')
        twin = name[-1] if 'twins' in rest and name[-2:] in ('_k', '_v') else ''
        bits, low = int(code[-1]), 0 if code[0] == 'u' else -(1 << int(code[-1]) - 1)
        swapped = 'transposed' in rest and axis == 0
        shape = (columns, rows) if swapped else (rows, columns)
        if self.broken('no-rows'):
            shape = (0, shape[1])
        axis = 1 - axis if swapped else axis
        counts = {'tensor': (1, 1), 'channel': (1, shape[1]) if axis == 0 else (shape[0], 1)}.get(grain) or \
            tuple((1 if 'large' in rest else (n + 31) // 32) if k == axis else n for k, n in enumerate(shape))
        count, scalar = counts[0] * counts[1] - self.broken('scale-count'), grain == 'tensor'
        codes = [self.random.randrange(1 << bits) + low for _ in range(shape[0] * shape[1])]
        zeros = [self.random.randrange(3, (1 << bits - 1) - 1) + low if 'zero' in rest else low + (1 << bits - 1) for _ in range(count)]
        if bits == 4:
            pack = lambda v: bytes((a & 15) | (b & 15) << 4 for a, b in zip(v[::2], (v + [0])[1::2]))
        else:
            pack = lambda v: bytes(x & 255 for x in v)
        # f16 holds these scales, and their products with zero points.
        scales = [self.random.randrange(1, 40) / (1 << 15 if bits == 8 else 1 << 11) for _ in range(count)]
        if twin:
            scales = [0.0001226 if twin == 'k' else 0.0001234]
        element = {'int8': 'i8', 'uint8': 'ui8', 'int4': 'i4', 'uint4': 'ui4'}[code]
        blocked = grain == 'block'
        form = '' if scalar else f'{counts[0]}x{counts[1]}x' if blocked else f'{count}x'
        if twin == 'v':
            w = self.keys
        else:
            w = self.stored(name, f'tensor<{shape[0]}x{shape[1]}x{element}>', pack(codes))
        if twin == 'k':
            self.keys = w
        if self.broken('scale-order') and blocked:
            form = f'{counts[1]}x{counts[0]}x'
        if self.broken('turned-codes'):
            back = self.op('Reshape', self.op('Transpose', w, perm=[1, 0]), self.constant(list(shape)))
            w = self.op('Transpose', self.op('Reshape', back, self.constant(list(shape))), perm=[1, 0])
            w = self.op('Reshape', w, self.constant(list(shape)))
        if scalar:
            s = self.number(scales[0])
        elif 'coded-scales' in rest:
            codes = self.stored(f'{name}_scales', f'tensor<{form}ui8>', bytes(round(x * (1 << 15)) % 256 for x in scales))
            s = self.op('DequantizeLinear', codes, self.number(1 / (1 << 15)))
        elif 'wide-scales' in rest:
            s = self.op('Cast', self.stored(f'{name}_scales', f'tensor<{form}f64>', b''.join(struct.pack('<d', x) for x in scales)), to=FLOAT)
        elif self.broken('half-scales'):
            s = self.stored(f'{name}_scales', f'tensor<{form}f16>', b''.join(struct.pack('<e', x) for x in scales))
        else:
            s = self.stored(f'{name}_scales', f'tensor<{form}f32>', b''.join(struct.pack('<f', x) for x in scales))
        inputs = [w, s]
        if 'zero' in rest or low == 0:
            inputs.append(self.constant(zeros[0], element) if scalar else self.stored(f'{name}_zeros', f'tensor<{form}{element}>', pack(zeros)))
        half = dict(version=23, output_dtype=FLOAT16) if self.broken('half-output') else {}
        y = self.op('DequantizeLinear', *inputs, **half, axis=axis if blocked else 1 - axis, **({'block_size': (1 << 63) - 1 if 'large' in rest else 32} if blocked else {}))
        if self.broken('half-output') or self.broken('half-scales'):
            y = self.op('Cast', y, to=FLOAT)
        return self.op('Transpose', y, perm=[1, 0]) if swapped else y

    def nbits(self, name, rows, columns):
        """Codes, scales and zero points of [rows, columns] in blocks along its rows, in the way of --nbits; rows from 256 on are zero, but for the last scale and codes."""
        bits, block, *rest = self.o.nbits.split(':')
        lookup = name == 'embedding'  # whose rows are not padded
        bits, block = int(bits), min(int(block), columns) if lookup else int(block)
        some, blocks = min(rows, 256), (columns + block - 1) // block
        codes = bytes(self.random.randrange(256) for _ in range(some * blocks * block * bits // 8))
        typed = lookup and bits == 4 and [e for e in ('ui4', 'i4') if e in rest]
        inputs = [self.stored(name, f'tensor<{rows}x{columns}x{typed[0]}>' if typed else f'tensor<{rows}x{blocks * block * bits // 8}xui8>' if lookup else f'tensor<{rows}x{blocks}x{block * bits // 8}xui8>', codes, rows * blocks * block * bits // 8)]
        # f16 holds these scales, and their products with zero points.
        scales = [self.random.randrange(1, 40) / (1 << (15 if bits == 8 else 11)) for _ in range(some * blocks)]
        if self.broken('tiny-scales', name == 'layer1_q'):
            scales = [x * 2.0 ** -24 for x in scales]
        if self.broken('tiny-scale', name == 'layer1_q'):
            scales[0] *= 2.0 ** -24
        if self.broken('huge-scales', name == 'layer1_o'):
            scales = [x * 2.0 ** 24 for x in scales]
        if self.broken('last-scale', name == 'embedding'):
            scales[-1] *= 2.0 ** 40
        form, pack = f'{rows}x{blocks}' if lookup else f'{rows * blocks}', lambda kind: b''.join(struct.pack('<' + kind, x) for x in scales)
        if self.broken('scale-rows', not lookup):
            inputs.append(self.op('Transpose', self.stored(f'{name}_scales', f'tensor<{blocks}x{rows}xf32>', pack('f')), perm=[1, 0]))
        elif self.broken('scale-order', not lookup):
            inputs.append(self.stored(f'{name}_scales', f'tensor<{blocks}x{rows}xf32>', pack('f')))
        elif self.broken('scale-codes', not lookup):
            codes = self.stored(f'{name}_scales', f'tensor<{rows}x{blocks}xui8>', bytes(round(x * (1 << 11)) for x in scales))
            inputs.append(self.op('DequantizeLinear', codes, self.number(1 / (1 << 11))))
        elif self.broken('scale-type', not lookup):
            inputs.append(self.op('Cast', self.stored(f'{name}_scales', f'tensor<{form}xf64>', pack('d')), to=FLOAT))
        else:
            inputs.append(self.stored(f'{name}_scales', f'tensor<{form}xf32>', pack('f'), rows * blocks * 4))
        if 'zero' in rest:
            count = (blocks * bits + 7) // 8
            zeros = bytes(self.random.randrange(3, 7) * 17 for _ in range(rows * count))
            form = f'{count}x{rows}' if self.broken('zero-order', not lookup) else f'{rows}x{count}' if lookup else f'{rows * count}'
            if typed:
                zeros = bytes(self.random.randrange(3, 7) * 17 for _ in range((rows * blocks + 1) // 2))
                inputs.append(self.stored(f'{name}_zeros', f'tensor<{rows}x{blocks}x{typed[0]}>', zeros))
            elif 'numbers' in rest:
                text = ', '.join(map(str, zeros))
                kind = f'tensor<{rows * count}xui8>' if not lookup else f'tensor<{rows}x{count}xui8>'
                flat = f'[{text}]' if not lookup else '[' + ', '.join('[' + ', '.join(map(str, zeros[r * count:(r + 1) * count])) + ']' for r in range(rows)) + ']'
                inputs.append(self.value(f'onnx.constant dense<{flat}> : {kind}', kind))
            else:
                inputs.append(self.stored(f'{name}_zeros', f'tensor<{form}xui8>', zeros))
        return inputs, dict(bits=bits, block_size=1 << 62 if self.broken('huge-blocks', not lookup) else block)

    def constant(self, value, element='i64'):
        key = f'{value} {element}'
        if key not in self.known:
            shape = f'{len(value)}x' if isinstance(value, list) else ''
            text = ', '.join(map(str, value)) if isinstance(value, list) else value
            kind = f'tensor<{shape}{element}>'
            self.known[key] = self.value(f'onnx.constant dense<{"[" + text + "]" if shape else text}> : {kind}', kind)
        return self.known[key]

    def number(self, x, element=None):
        return self.constant(f'{x:.9e}', element or self.element)

    def wide(self, x):
        """As float32, which is what norms and softmaxes are computed in."""
        return x if self.type == FLOAT else self.op('Cast', x, to=FLOAT)

    def narrow(self, x):
        """In the type of the weights again."""
        return x if self.type == FLOAT else self.op('Cast', x, to=self.type)

    def through(self, x, kind):
        """Rounded to another type on the way."""
        return self.op('Cast', self.op('Cast', x, to=kind), to=self.type)

    def none(self):
        if 'none' not in self.known:
            self.known['none'] = self.value('onnx.none : none', 'none')
        return self.known['none']

    def op(self, name, *inputs, results=1, domain='', version=0, **attributes):
        def text(value):
            if isinstance(value, list):
                return f'array<i64: {", ".join(map(str, value))}>'
            return f'"{value}"' if isinstance(value, str) else f'{value} : i64' if isinstance(value, int) else f'{value:.9e} : f32'

        fields = ([f'domain = "{domain}"'] if domain else []) + [f'version = {version or (1 if domain else SINCE[name])} : i64']
        if attributes:
            fields.append('attrs = {' + ', '.join(f'{k} = {text(v)}' for k, v in attributes.items()) + '}')
        unknown = 'tensor<*x!onnx.any>'
        name_text = f'onnx.op "{name}"({", ".join(inputs)}) {{{", ".join(fields)}}} : ({", ".join(self.types[i] for i in inputs)}) -> '
        out = f'%v{len(self.types)}'
        self.types[out] = unknown
        if results == 1:
            self.lines.append(f'  {out} = {name_text}{unknown}')
            return out
        self.lines.append(f'  {out}:{results} = {name_text}({", ".join([unknown] * results)})')
        outs = [f'{out}#{k}' for k in range(results)]
        self.types.update({o: unknown for o in outs})
        return outs

    def contrib(self, name, *inputs, **rest):
        return self.op(name, *inputs, domain='com.microsoft', **rest)

    # Parts.
    def broken(self, what, layer=1):
        """Whether the option --break=WHAT breaks this place."""
        return self.o.breaks == what and layer == 1

    def norm(self, x, name, size=None):
        way, size = self.o.norm, size or HIDDEN
        w = self.weight(f'{name}.weight'.replace('.', '_').replace('-', '_'), size, scale=0.1, offset=1.0)
        if way in ('chain', 'chain-div'):
            x = self.wide(x)
            square = self.op('Pow', x, self.number(2, 'f32')) if way == 'chain' else self.op('Mul', x, x)
            root = self.op('Sqrt', self.op('Add', self.op('ReduceMean', square, self.constant([-1])), self.number(1e-5, 'f32')))
            return self.op('Mul', w, self.narrow(self.op('Mul', x, self.op('Reciprocal', root)) if way == 'chain' else self.op('Div', x, root)))
        if way == 'power':
            scale = self.op('Pow', self.op('Add', self.op('ReduceMean', self.op('Mul', x, x), self.constant([-1])), self.number(1e-5)), self.number(-0.5))
            return self.op('Mul', self.op('Mul', x, scale), w)
        if way == 'op':
            return self.op('RMSNormalization', x, w, axis=-1, epsilon=1e-3 if self.broken('epsilon', name == 'layer1.norm2') else 1e-5)
        if way == 'simplified':
            return self.op('SimplifiedLayerNormalization', x, w, axis=-1, epsilon=1e-5)
        b = self.weight(f'{name}.bias'.replace('.', '_').replace('-', '_'), size, scale=0.1)
        if way == 'layer' and self.broken('norm-bias'):
            return self.op('LayerNormalization', x, w, axis=-1, epsilon=1e-5)
        if way == 'layer' and self.broken('half-bias'):
            y = self.op('Reshape', self.op('LayerNormalization', x, w, axis=-1, epsilon=1e-5), self.constant([0, 0, 2, size // 2]))
            return self.op('Reshape', self.op('Add', y, self.weight(f'{name}.half'.replace('.', '_').replace('-', '_'), size // 2)), self.constant([0, 0, size]))
        if way == 'layer':
            return self.op('LayerNormalization', x, w, b, axis=-1, epsilon=1e-5)
        centred = self.op('Sub', x, self.op('ReduceMean', x, self.constant([-1])))
        root = self.op('Sqrt', self.op('Add', self.op('ReduceMean', self.op('Pow', centred, self.number(2)), self.constant([-1])), self.number(1e-5)))
        return self.op('Add', self.op('Mul', self.op('Div', centred, root), w), b)

    def skip(self, x, y, name):
        """x + y and its norm."""
        if self.o.skip or self.o.skip_bias:
            more = [self.weight(f'{name}.skip'.replace('.', '_').replace('-', '_'), HIDDEN, scale=0.1)] if self.o.skip_bias else []
            w = self.weight(f'{name}.weight'.replace('.', '_').replace('-', '_'), HIDDEN, scale=0.1, offset=1.0)
            if self.o.norm == 'layer':
                b = self.weight(f'{name}.bias'.replace('.', '_').replace('-', '_'), HIDDEN, scale=0.1)
                out = self.contrib('SkipLayerNormalization', x, y, w, b, *more, results=4, epsilon=1e-5)
            else:
                out = self.contrib('SkipSimplifiedLayerNormalization', x, y, w, *more, results=4, epsilon=1e-5)
            return out[3], out[0]
        x = self.op('Add', x, y)
        return x, self.norm(x, name)

    def linear(self, x, name, rows, columns, bias=False):
        symbol = name.replace('.', '_').replace('-', '_')
        if self.o.nbits:
            inputs, attributes = self.nbits(symbol, columns, rows)
            if self.broken('column-order'):
                inputs += [self.none()] * (3 - len(inputs)) + [self.stored(f'{symbol}_g_idx', f'tensor<{rows}xi32>', b''.join(struct.pack('<i', k // 32) for k in range(rows)))]
            y = self.contrib('MatMulNBits', x, *inputs, N=columns, K=rows, **attributes)
        else:
            w = self.coded(symbol, rows, columns) if self.o.quantized else self.weight(symbol, rows, columns)
            if self.broken('weight-float8', name == 'layer1.down'):
                w = self.through(w, FLOAT8)
            if self.o.linear == 'fused':
                y = self.contrib('FusedMatMul', x, w, **({'transBatchA': 1} if self.broken('batches', name == 'layer1.down') else {}))
            elif self.o.linear == 'fused-transposed':
                y = self.contrib('FusedMatMul', x, self.op('Transpose', w, perm=[1, 0]), transB=1)
            else:
                y = self.op('MatMul', x, w)
        return self.op('Add', y, self.weight(f'{name}.bias'.replace('.', '_').replace('-', '_'), columns)) if bias else y

    def heads(self, x, count, size=None):
        return self.op('Transpose', self.op('Reshape', x, self.constant([1, -1, count, size or SIZE] if self.o.alone else [0, 0, count, size or SIZE])), perm=[0, 2, 1, 3])

    def frequencies(self):
        found = [self.o.base ** (-2 * k / SIZE) * (1 + self.o.detune * (k % 2)) for k in range(SIZE // 2)]
        if not self.o.llama3:
            return found
        # Llama 3's: low frequencies are divided by a factor, with a passage between 1/4 and the whole of 8192 positions.
        def scaled(f):
            share = min(1.0, max(0.0, (8192 * f / (2 * math.pi) - 1) / 3))
            return (1 - share) * f / self.o.llama3 + share * f
        return [scaled(f) for f in found]

    def tables(self):
        low, _, high = self.o.change[6:].partition('-') if self.o.change.startswith('table:') else ('0', '', '-1')
        low, high, found = int(low), int(high or POSITIONS), self.frequencies()
        angles = [(p / 4 if low <= p <= high else p) * f for p in range(POSITIONS) for f in found]
        stretch = self.o.stretch
        both = {'cosines': [stretch * math.cos(a) for a in angles], 'sines': [stretch * math.sin(a) for a in angles]}
        if self.o.grain == 'f16':
            both = {name: [struct.unpack('<e', struct.pack('<e', x))[0] for x in values] for name, values in both.items()}
        if self.o.grain == 'bf16':
            nearest = lambda x: struct.unpack('<f', struct.pack('<I', rounded16(x) << 16))[0]
            both = {name: [nearest(x) for x in values] for name, values in both.items()}
        if POSITIONS > 4096:
            for name in both:
                if name not in self.known:
                    self.known[name] = self.stored(name, f'tensor<{POSITIONS}x{SIZE // 2}xf32>', struct.pack(f'<{len(both[name])}f', *both[name]))
            return self.known['cosines'], self.known['sines']
        if not self.o.coded_tables:
            return tuple(self.weight(name, POSITIONS, SIZE // 2, values=values) for name, values in both.items())
        for name in both:
            if name not in self.known:
                w = self.stored(name, f'tensor<{POSITIONS}x{SIZE // 2}xi32>', b''.join(struct.pack('<i', round(x * (1 << 30))) for x in both[name]))
                self.known[name] = self.op('DequantizeLinear', w, self.number(2.0 ** -30))
        return tuple(self.known[name] for name in both)

    def angles(self):
        """Cosines and sines of this step's tokens, [batch, step, size / 2]."""
        if self.o.gathered:
            return tuple(self.op('Gather', t, 'POSITIONS', axis=0) for t in self.tables())
        f = self.weight('frequencies', SIZE // 2, values=self.frequencies(), element='f32')
        what, _, place = self.o.change.partition(':')
        if what == 'table':
            low, _, high = place.partition('-')
            slower = lambda p: p / 4 if int(low) <= p <= int(high or POSITIONS) else p
            both = (self.weight(n, POSITIONS, SIZE // 2, values=[t(slower(p) * f) for p in range(POSITIONS) for f in self.frequencies()]) for n, t in (('rows_c', math.cos), ('rows_s', math.sin)))
            return tuple(self.op('Gather', t, 'POSITIONS') for t in both)
        if what == 'split':
            near = lambda p: p + (p == int(place))
            both = self.weight('rows', POSITIONS, SIZE, values=[x for p in range(POSITIONS) for t in (lambda f: math.cos(near(p) * f), lambda f: math.sin(p * f)) for x in map(t, self.frequencies())])
            return tuple(self.op('Gather', t, 'POSITIONS', axis=0) for t in self.op('Split', both, results=2, axis=1, num_outputs=2))
        if what == 'made':
            list_ = self.weight('places', POSITIONS, 1, values=[float(p + (p == int(place))) for p in range(POSITIONS)])
            a = self.op('Mul', list_, f)
            return tuple(self.op('Gather', self.op(t, a), 'POSITIONS', axis=0) for t in ('Cos', 'Sin'))
        if what == 'frequencies':
            total = self.op('Cast', self.op('Gather', self.op('Shape', 'MASK'), self.constant(1), axis=0), to=FLOAT)
            low, _, high = place.partition('-')
            there = self.op('Greater', total, self.number(float(low)))
            if high:
                there = self.op('And', there, self.op('Less', total, self.number(float(high))))
            f = self.op('Where', there, self.op('Mul', f, self.number(0.25)), f)
        if what == 'numbers':
            for k in range(int(place)):
                self.constant(2000 + 10 * k)
        rows = 'POSITIONS'
        if what == 'hole':
            rows = self.op('Where', self.op('Equal', rows, self.constant(int(place))), self.constant(0), rows)
        if what == 'moved':
            order = self.constant([p + (p == int(place)) for p in range(POSITIONS)], 'i32')
            rows = self.op('Gather', self.op('Cast', order, to=INT64), 'POSITIONS')
        positions = self.op('Unsqueeze', self.op('CastLike', rows, f) if self.o.like else self.op('Cast', rows, to=FLOAT), self.constant([2]))
        if what == 'clip':
            positions = self.op('Min', positions, self.number(float(place)))
        a = self.op('Mul', positions, f)
        both = self.op('Cos', a), self.op('Sin', a)
        if self.o.grain:
            both = (self.op('Cast', self.op('Cast', t, to=FLOAT16 if self.o.grain == 'f16' else BFLOAT16), to=FLOAT) for t in both)
        return tuple(self.narrow(t) for t in both)

    def rotate(self, x, count):
        """Of [batch, heads, step, size]."""
        way = self.o.rope
        if way == 'none':
            return x
        if way in ('op', 'pairs-op'):
            return self.op('RotaryEmbedding', x, *self.tables(), 'POSITIONS', interleaved=int(way == 'pairs-op'))
        if way in ('contrib', 'pairs-contrib'):
            return self.contrib('RotaryEmbedding', x, 'POSITIONS', *self.tables(), interleaved=int(way == 'pairs-contrib'))
        if way == 'rows-contrib':  # each token has its own row, and its number for a position
            c, s = (self.op('Reshape', t, self.constant([-1, SIZE // 2])) for t in self.angles())
            shape = self.op('Shape', 'POSITIONS')
            count = self.op('Mul', *(self.op('Gather', shape, self.constant(k), axis=0) for k in (0, 1)))
            order = self.op('Reshape', self.op('Range', self.constant(0), count, self.constant(1)), shape)
            return self.contrib('RotaryEmbedding', x, order, c, s)
        if way == 'pairs-part':
            tables = [self.op('Slice', t, self.constant([0]), self.constant([SIZE // 4]), self.constant([1])) for t in self.tables()]
            return self.op('RotaryEmbedding', x, *tables, 'POSITIONS', interleaved=1, rotary_embedding_dim=SIZE // 2)
        if way == 'half-heads':
            rows = self.op('Reshape', self.op('Transpose', x, perm=[0, 2, 1, 3]), self.constant([0, 0, count * SIZE]))
            tables = [self.op('Slice', t, self.constant([0]), self.constant([SIZE // 4]), self.constant([1])) for t in self.tables()]
            rows = self.op('RotaryEmbedding', rows, *tables, 'POSITIONS', num_heads=2 * count)
            return self.heads(rows, count)
        if way == 'short-rows':  # for four tokens
            rows = [(name, turn) for name, turn in (('short_cosines', math.cos), ('short_sines', math.sin))]
            tables = [self.weight(name, 1, 4, SIZE // 2, values=[turn(p * f) for p in range(4) for f in self.frequencies()]) for name, turn in rows]
            return self.op('RotaryEmbedding', x, *tables)
        if way == 'sub-heads':  # the front half of each head as two heads of their own
            front, rest = self.op('Split', x, results=2, axis=-1, num_outputs=2)
            size = SIZE // 4
            two = self.op('Reshape', front, self.constant([0, 0, 0, 2, size]))
            c, s = (self.op('Unsqueeze', self.op('Slice', t, self.constant([0]), self.constant([size // 2]), self.constant([2])), self.constant([1, 3])) for t in self.angles())
            c, s = (self.op('Concat', t, t, axis=-1) for t in (c, s))
            a, b = self.op('Split', two, results=2, axis=-1, num_outputs=2)
            two = self.op('Add', self.op('Mul', two, c), self.op('Mul', self.op('Concat', self.op('Neg', b), a, axis=-1), s))
            return self.op('Concat', self.op('Reshape', two, self.constant([0, 0, 0, SIZE // 2])), rest, axis=-1)
        c, s = (self.op('Unsqueeze', t, self.constant([1])) for t in self.angles())
        if way in ('pairs-chain', 'pairs-turned'):
            last, whole = self.constant([3]), self.constant([0, 0, 0, SIZE])
            stack = lambda *parts: self.op('Reshape', self.op('Concat', *(self.op('Unsqueeze', p, self.constant([-1])) for p in parts), axis=-1), whole)
            if way == 'pairs-chain':  # the even and the odd elements apart
                a, b = (self.op('Slice', x, self.constant([k]), self.constant([SIZE]), last, self.constant([2])) for k in (0, 1))
                return stack(self.op('Sub', self.op('Mul', a, c), self.op('Mul', b, s)), self.op('Add', self.op('Mul', b, c), self.op('Mul', a, s)))
            # x cos + turned(x) sin, each cosine twice
            pairs = self.op('Reshape', x, self.constant([0, 0, 0, SIZE // 2, 2]))
            a, b = (self.op('Gather', pairs, self.constant(k), axis=-1) for k in (0, 1))
            c, s = (self.op('Reshape', self.op('Concat', *2 * [self.op('Unsqueeze', t, self.constant([-1]))], axis=-1), whole) for t in (c, s))
            return self.op('Add', self.op('Mul', x, c), self.op('Mul', stack(self.op('Neg', b), a), s))
        if way == 'halves':
            a, b = self.op('Split', x, results=2, axis=-1, num_outputs=2)
            return self.op('Concat', self.op('Sub', self.op('Mul', a, c), self.op('Mul', b, s)), self.op('Add', self.op('Mul', b, c), self.op('Mul', a, s)), axis=-1)
        c, s = (self.op('Concat', t, t, axis=-1) for t in (c, s))
        parts = [self.op('Slice', x, self.constant([b]), self.constant([e]), self.constant([3])) for b, e in ((0, SIZE // 2), (SIZE // 2, SIZE))]
        turned = self.op('Concat', self.op('Neg', parts[1]), parts[0], axis=-1)
        return self.op('Add', self.op('Mul', x, c), self.op('Mul', turned, s))

    def mask(self):
        """True where a query sees a key, [1, step, total]."""
        total = self.op('Gather', self.op('Shape', 'MASK'), self.constant(1), axis=0)
        keys = self.op('Range', self.constant(0), total, self.constant(1))
        rows = self.op('Unsqueeze', 'POSITIONS', self.constant([-1]))
        causal = self.op('LessOrEqual', keys, rows)
        way, window, size = self.o.window_in, self.o.window, self.o.table
        if self.broken('head-masks'):  # a window in the first head only
            near = self.op('And', causal, self.op('LessOrEqual', rows, self.op('Add', keys, self.constant(3))))
            return self.op('Concat', *(self.op('Unsqueeze', m, self.constant([1])) for m in (near, causal)), axis=1)
        if way == 'table':
            seen = [int(k <= p < k + window) for p in range(size) for k in range(size)]
            if 'seen' not in self.known:
                text = ', '.join(f'[{", ".join(map(str, seen[p * size:(p + 1) * size]))}]' for p in range(size))
                self.known['seen'] = self.value(f'onnx.constant dense<[{text}]> : tensor<{size}x{size}xi1>', f'tensor<{size}x{size}xi1>')
            end = self.op('Unsqueeze', total, self.constant([0]))
            step = self.op('Slice', self.op('Shape', 'POSITIONS'), self.constant([1]), self.constant([2]))
            t = self.op('Slice', self.known['seen'], self.op('Sub', end, step), end, self.constant([0]))
            return self.op('Unsqueeze', self.op('Slice', t, self.constant([0]), end, self.constant([1])), self.constant([0]))
        if way == 'chunks':
            causal = self.op('And', causal, self.op('Equal', *(self.op('Div', x, self.constant(window)) for x in (rows, keys))))
        elif way == 'product':
            causal = self.op('And', causal, self.op('Less', self.op('Sub', rows, keys), self.op('Mul', self.constant(window // 4), self.constant(4))))
        elif way == 'float':
            causal = self.op('And', causal, self.op('Less', self.op('Cast', self.op('Sub', rows, keys), to=FLOAT), self.number(window - 0.5)))
        elif window:
            causal = self.op('And', causal, self.op('LessOrEqual', rows, self.op('Add', keys, self.constant(self.o.window - 1))))
        if self.o.mask == 'float':
            causal = self.op('And', causal, self.op('Unsqueeze', self.op('Cast', 'MASK', to=BOOL), self.constant([1])))
        return self.op('Unsqueeze', causal, self.constant([1]))

    def grown(self, past, k):
        """The cache with this step's tokens."""
        if not self.o.branch:
            return self.op('Concat', past, k, axis=2)
        if 'branch' not in self.known:
            length = self.op('Gather', self.op('Shape', past), self.constant(2), axis=0)
            self.known['branch'] = self.op('Equal', length, self.constant(0)) if self.o.branch == 'length' else '%branch'
        # A first step has no past; the condition of an input is the other way round.
        choices, regions = [lambda: self.op('Identity', self.op('Neg', k) if self.broken('first-branch') else k), lambda: self.op('Concat', past, k, axis=2)], []
        for choice in choices if self.o.branch == 'length' else choices[::-1]:
            outer, self.lines = self.lines, []
            y = choice()
            regions.append('{\n' + '\n'.join(self.lines) + f'\n  onnx.yield {y} : {self.types[y]}\n  }}')
            self.lines = outer
        c = self.known['branch']
        return self.value(f'onnx.op "If"({c}) {{version = 16 : i64}} : ({self.types[c]}) -> tensor<*x!onnx.any> {", ".join(regions)}', 'tensor<*x!onnx.any>')

    def attention(self, x, i):
        n, way = f'layer{i}', self.o.attention
        wide, narrow, value = HEADS * SIZE, self.kv * SIZE, SIZE // 2 if self.broken('values') else SIZE
        bias = self.o.bias and way != 'mha'
        if self.broken('no-attention', i):
            self.presents += [self.grown(f'%past{i}{c}', self.heads(self.linear(x, f'{n}.{c}', HIDDEN, narrow), self.kv)) for c in 'kv']
            return self.linear(self.linear(x, f'{n}.q', HIDDEN, wide), f'{n}.o', wide, HIDDEN)
        if self.broken('shuffle', i):
            parts = self.op('Split', x, results=2, axis=-1, num_outputs=2)
            parts = (self.op('Reshape', t, self.constant([0, 0, 2, HIDDEN // 4])) for t in parts)
            x = self.op('Reshape', self.op('Concat', *parts, axis=-1), self.constant([0, 0, HIDDEN]))
        if self.o.nothing:
            cut = lambda starts, ends, axes, steps: self.op('Slice', x, *map(self.constant, (starts, ends, axes, steps)))
            a, b = cut([0], [3], [2], [1]), cut([3], [HIDDEN], [2], [1])
            for starts, ends, axes, steps in (([9000, 0], [9001, 3], [1, 2], [1, 1]), ([9000, 0], [9001, 5], [1, 2], [1, 2]), ([9000, 2], [9001, -9000], [1, 2], [1, -1])):
                a = self.op('Concat', a, cut(starts, ends, axes, steps), axis=1)
            x = self.op('Concat', a, b, axis=-1)
        if self.broken('axis-twice', i):
            x = self.op('Slice', x, *map(self.constant, ([1, 1], [9, 17], [2, 2], [1, 1])))
        other = self.op('Neg', x)
        q, k, v = (self.linear(other if self.broken(f'rows-{p}', i) else x, f'{n}.{p}', HIDDEN, w, bias) for p, w in (('q', wide), ('k', narrow), ('v', self.kv_values * value)))
        past = [f'%past{i}k', f'%past{i}v']
        if self.broken('swapped-halves', 1):
            past.reverse()
        scale = self.o.scale / math.sqrt(SIZE)
        if way == 'fused':
            w = self.weight(f'{n}_qkv', HIDDEN, 3 * wide)
            b = self.weight(f'{n}_qkv_bias', 3 * wide) if self.o.bias else self.none()
            mask = self.op('Cast', 'MASK', to=INT32)
            y, present = self.contrib('Attention', x, w, b, mask, f'%past{i}', results=2, num_heads=HEADS, **({} if self.broken('causal', i) else {'unidirectional': 1}))
            self.presents.append(present)
            return self.linear(y, f'{n}.o', wide, HIDDEN)
        if way == 'gqa':
            length = self.op('ReduceSum', 'MASK', self.constant([1]))
            last = self.op('Cast', self.op('Sub', length, self.constant([1])), to=INT32)
            total = self.op('Cast', self.op('Gather', self.op('Shape', 'MASK'), self.constant(1), axis=0), to=INT32)
            for what in self.o.total.split('-') if self.o.total else ():  # both from one input, in this order
                if what == 'last':
                    last = self.op('Sub', '%total', self.constant([1], 'i32'))
                else:
                    total = self.op('Identity', '%total')
            rest = dict(do_rotary=1, rotary_interleaved=int(self.o.rope.startswith('pairs'))) if self.o.rope != 'none' else {}
            tables = self.tables() if rest else ()
            if self.o.cap:
                rest['softcap'] = self.o.cap
            if self.o.window:
                rest['local_window_size'] = self.o.window
            if self.o.headnorm:
                tables = list(tables or [self.none()] * 2) + [self.none()] * 5 + [self.weight(f'{n}_{p}norm', SIZE, scale=0.1, offset=1.0) for p in 'qk']
                rest['qk_norm_epsilon'] = 1e-5
            for what, wrong in (('not-causal', dict(causal=0)), ('sliding-cache', dict(sliding_window_cache=1)), ('quantized-cache', dict(k_quant_type='PER_TENSOR')), ('smooth', dict(smooth_softmax=1)), ('no-window', dict(local_window_size=0))):
                if self.broken(what, i):
                    rest |= wrong
            y, pk, pv = self.contrib('GroupQueryAttention', q, k, v, *past, last, total, *tables, results=3, num_heads=HEADS, kv_num_heads=self.kv, scale=-scale if self.broken('negative-scale', i) else scale, **rest)
        elif way == 'mha':
            q, k = (self.op('Reshape', self.op('Transpose', self.rotate(self.heads(t, HEADS), HEADS), perm=[0, 2, 1, 3]), self.constant([0, 0, HEADS * SIZE])) if self.o.rope != 'none' else t
                    for t in (q, k))
            b = self.weight(f'{n}_qkv_bias', 3 * wide) if self.o.bias else self.none()
            added = self.op('Where', self.mask(), self.number(0), self.number(-1e30))
            padding = self.op('Cast', self.op('Sub', 'MASK', self.constant(1)), to=INT32) if self.broken('padding', i) else self.none()
            y, pk, pv = self.contrib('MultiHeadAttention', q, k, v, b, padding, added, *past, results=3, num_heads=HEADS, scale=scale)
        else:
            q, k, v = (self.heads(t, c, s) for t, c, s in ((q, HEADS, SIZE), (k, self.kv, SIZE), (v, self.kv_values, value)))
            if self.broken('half-norms', i):
                halves = self.constant([0, 0, 0, 2, SIZE // 2])
                q = self.op('Reshape', self.norm(self.op('Reshape', q, halves), f'{n}.qnorm', SIZE // 2), self.constant([0, 0, 0, SIZE]))
            elif self.o.headnorm:
                q, k = self.norm(q, f'{n}.qnorm', SIZE), k if self.broken('norm-of-queries', i) else self.norm(k, f'{n}.knorm', SIZE)
            q = self.rotate(q, HEADS)
            plain = k
            if not self.broken('rotated-queries', i):
                k = self.rotate(k, self.kv)
            if way == 'scatter':
                # Into caches of fixed length, at the number of tokens before.
                place = [] if self.broken('scatter-place', i) else ['WRITE']
                mode = dict(mode='circular') if self.broken('circular') else {}
                pk, pv = (self.op('TensorScatter', p, t, *place, **mode) for p, t in zip(past, (k, v)))
                y = self.op('Attention', q, pk, pv, self.none(), self.none(), self.none(), 'LENGTHS', is_causal=1, scale=scale)
            elif way == 'op':
                rest = dict(softcap=self.o.cap) if self.o.cap else {}
                if self.broken('window-attribute', i):
                    rest |= dict(version=25, left_window_size=4)
                y, pk, pv, *_ = self.op('Attention', q, k, v, self.none(), *past, results=3 + self.broken('scores-output', i), is_causal=1, scale=scale, **rest)
            else:
                pk, pv = self.grown(past[0], k), self.grown(past[1], v)
                total = self.op('Gather', self.op('Shape', pk), self.constant([2]), axis=0)
                kk, vv = pk, pv
                if self.kv != HEADS:
                    shape = self.op('Concat', self.constant([1, self.kv, HEADS // self.kv]), total, self.constant([SIZE]), axis=0)
                    flat = self.op('Concat', self.constant([-1, HEADS]), total, self.constant([SIZE]), axis=0)
                    kk, vv = (self.op('Reshape', self.op('Expand', self.op('Unsqueeze', t, self.constant([2])), shape), flat) for t in (pk, pv))
                    vv = pv if self.broken('value-heads') else vv
                factor = self.number(scale)
                if self.o.like:
                    q, factor = self.op('CastLike', q, kk), self.op('CastLike', factor, q)
                s = self.op('Mul', self.op('MatMul', q, self.op('Transpose', kk, perm=[0, 1, 3, 2])), factor)
                if self.broken('mask-cap', i):
                    s = self.op('Where', self.mask(), s, self.number(-3e38))
                if self.broken('weak-mask', i):
                    s = self.op('Mul', self.op('Add', s, self.op('Where', self.mask(), self.number(0), self.number(-1001))), self.number(0.001))
                if self.o.cap:
                    s = self.op('Mul', self.op('Tanh', self.op('Div', s, self.number(self.o.cap))), self.number(self.o.cap))
                if self.o.change.startswith('scale:'):  # grows with the logarithm of the length
                    total = self.op('Cast', self.op('Gather', self.op('Shape', 'MASK'), self.constant(1), axis=0), to=FLOAT)
                    s = self.op('Mul', s, self.op('Max', self.op('Div', self.op('Log', total), self.number(math.log(float(self.o.change[6:])))), self.number(1)))
                if self.o.change.startswith('step:'):  # a step of so many tokens
                    step = self.op('Gather', self.op('Shape', 'POSITIONS'), self.constant(1), axis=0)
                    s = self.op('Mul', s, self.op('Where', self.op('Equal', step, self.constant(int(self.o.change[5:]))), self.number(2), self.number(1)))
                if self.o.change.startswith('steps:'):  # one of more tokens
                    step = self.op('Cast', self.op('Gather', self.op('Shape', 'POSITIONS'), self.constant(1), axis=0), to=FLOAT)
                    *same, last = map(float, self.o.change[6:].split(','))
                    for limit in same + [last]:
                        s = self.op('Mul', s, self.op('Where', self.op('Greater', step, self.number(limit)), self.number(2 if limit == last else 1), self.number(1)))
                if self.o.change.startswith(('list:', 'pair:', 'off:', 'line:', 'distance:', 'hot:', 'product:')):  # a stored list says it of every length
                    what, place = self.o.change.split(':')
                    total, place, count = self.op('Gather', self.op('Shape', 'MASK'), self.constant(1), axis=0), int(place), POSITIONS + 1
                    values = [2.0 if n == place else 1.0 for n in range(count)]
                    if what == 'pair':  # beside that of the length before
                        both = self.weight(what, count, 2, values=[x for n in range(count) for x in (values[n], values[n - 1])])
                        factor = self.op('Gather', self.op('Gather', both, total, axis=0), self.constant(0), axis=0)
                    elif what == 'distance':  # from the first token
                        square = self.weight(what, count, count, values=[values[i - j] if i >= j else 1.0 for i in range(count) for j in range(count)])
                        factor = self.op('Gather', self.op('Gather', square, total, axis=0), self.constant(0), axis=0)
                    elif what in ('hot', 'product'):  # by a row of zeros and a one
                        one = self.op('Cast', self.op('Equal', self.constant(list(range(count))), total), to=FLOAT)
                        list_ = self.weight(what, count, values=values)
                        factor = self.op('ReduceSum', self.op('Mul', list_, one), keepdims=0) if what == 'hot' else self.op('MatMul', one, list_)
                    elif what == 'line':  # that passes zero there
                        far = self.op('Gather', self.weight(what, count, values=[2.0 * (n - place) for n in range(count)]), total, axis=0)
                        factor = self.op('Where', self.op('Less', self.op('Mul', far, far), self.number(2.25)), self.number(2), self.number(1))
                    else:
                        at = self.op('Add', total, self.constant(3)) if what == 'off' else total
                        factor = self.op('Gather', self.weight(what, count + 3, values=values + 3 * [1.0]), at, axis=0)
                    s = self.op('Mul', s, factor)
                if self.o.change.startswith('past:'):
                    past = self.op('Slice', self.op('Shape', f'%past{i}k'), self.constant([2]), self.constant([3]))
                    s = self.op('Mul', s, self.op('Where', self.op('Equal', past, self.constant([int(self.o.change[5:])])), self.number(2), self.number(1)))
                if self.o.change.startswith('prompt:'):  # a first step of more tokens
                    past, step = (self.op('Gather', self.op('Shape', of), self.constant(axis), axis=0) for of, axis in ((f'%past{i}k', 2), ('POSITIONS', 1)))
                    both = self.op('And', self.op('Equal', past, self.constant(0)), self.op('Greater', step, self.constant(int(self.o.change[7:]))))
                    s = self.op('Mul', s, self.op('Where', both, self.number(2), self.number(1)))
                if self.o.change.startswith('bucket:'):  # every so many tokens of the past are a bucket, and the third is another
                    past = self.op('Gather', self.op('Shape', f'%past{i}k'), self.constant(2), axis=0)
                    third = self.op('Equal', self.op('Div', past, self.constant(int(self.o.change[7:]))), self.constant(2))
                    s = self.op('Mul', s, self.op('Where', third, self.number(2), self.number(1)))
                if self.o.change in ('decode', 'first'):
                    of, axis, length = ('POSITIONS', 1, 1) if self.o.change == 'decode' else (f'%past{i}k', 2, 0)
                    one = self.op('Equal', self.op('Slice', self.op('Shape', of), self.constant([axis]), self.constant([axis + 1])), self.constant([length]))
                    s = self.op('Mul', s, self.op('Where', one, self.number(2), self.number(1)))
                s = self.op('Where', self.mask(), s, self.number(-65504 if self.type == FLOAT16 else -3e38))
                if self.broken('softmax-axis', i):
                    s = self.op('Transpose', self.op('Softmax', self.op('Transpose', s, perm=[0, 1, 3, 2]), axis=-1), perm=[0, 1, 3, 2])
                else:
                    s = self.narrow(self.op('Softmax', self.wide(s), axis=-1))
                y = self.op('MatMul', s, vv)
                if self.o.guard:  # against a mask that shows nothing
                    shown = self.op('ReduceSum', self.op('Cast', 'MASK', to=FLOAT), self.constant([1]), keepdims=1)
                    nothing = self.op('Unsqueeze', self.op('Less', shown, self.number(1)), self.constant([2, 3]))
                    y = self.op('Where', nothing, self.number(0), y)
            if self.broken('present', i):  # a cache of keys that are not rotated
                pk = self.op('Concat', past[0], plain, axis=2)
            y = self.op('Reshape', self.op('Transpose', y, perm=[0, 2, 1, 3]), self.constant([0, 0, HEADS * value]))
        self.presents += [pk, pv]
        for what, kind in (('float8', FLOAT8), ('float16', FLOAT16), ('bfloat16', BFLOAT16)):
            if self.broken(what, i):
                y = self.through(y, kind)
        return self.linear(y, f'{n}.o', HEADS * value, HIDDEN)

    def feed_forward(self, x, i):
        n, way = f'layer{i}', self.o.mlp
        gated = way not in ('biasgelu', 'relu')
        gate = self.linear(self.op('Neg', x) if self.broken('gate', i) else x, f'{n}.gate', HIDDEN, INNER) if gated else None
        up = self.linear(x, f'{n}.up', HIDDEN, INNER)
        if self.broken('no-activation', i):
            y = self.op('Mul', gate, up)
        elif self.broken('no-product', i):
            y = self.op('Add', gate, up)
        elif way == 'silu':
            y = self.op('Mul', self.op('Mul', gate, self.op('Sigmoid', gate)), up)
        elif way == 'swish':
            y = self.op('Mul', self.op('Swish', gate), up)
        elif way == 'swiglu':
            y = self.op('SwiGLU', gate, up)
        elif way == 'quickgelu':
            y = self.op('Mul', self.contrib('QuickGelu', gate, alpha=1.0), up)
        elif way == 'gelu':
            y = self.op('Mul', self.op('Gelu', gate, approximate='tanh'), up)
        elif way == 'fastgelu':
            y = self.op('Mul', self.contrib('FastGelu', gate), up)
        elif way == 'erf':
            curve = self.op('Add', self.op('Erf', self.op('Div', gate, self.number(math.sqrt(2)))), self.number(1))
            y = self.op('Mul', self.op('Mul', self.op('Mul', gate, curve), self.number(0.5)), up)
        elif way == 'tanh':
            cubic = self.op('Add', gate, self.op('Mul', self.op('Pow', gate, self.number(3)), self.number(0.044715)))
            if self.broken('gelu-squared', i):  # x x (1 + c x^2)
                square = self.op('Add', self.op('Mul', self.op('Pow', gate, self.number(2)), self.number(0.044715)), self.number(1))
                cubic = self.op('Mul', self.op('Mul', gate, square), gate)
            curve = self.op('Add', self.op('Tanh', self.op('Mul', cubic, self.number(math.sqrt(2 / math.pi)))), self.number(1))
            y = self.op('Mul', self.op('Mul', self.op('Mul', gate, self.number(0.5)), curve), up)
        else:  # no gate: x + bias through the activation
            y = self.contrib('BiasGelu', up, self.weight(f'{n}_up_bias', INNER))
            return self.linear(y, f'{n}.down', INNER, HIDDEN, bias=not self.o.skip_bias)
        return self.linear(y, f'{n}.down', INNER, HIDDEN)

    def text(self):
        self.presents = []
        names = {'MASK': ('%mask', f'tensor<?x?x{"f32" if self.o.mask == "float" else "i64"}>', 'attention_mask'), 'POSITIONS': ('%positions', 'tensor<?x?xi64>', 'position_ids')}
        if self.o.attention == 'scatter':
            names |= {'WRITE': ('%write', 'tensor<?xi64>', 'write_indices'), 'LENGTHS': ('%lengths', 'tensor<?xi64>', 'nonpad_kv_seqlen')}
        arguments = [('%ids', 'tensor<?x?xi64>', 'input_ids')] + list(names.values())
        if self.o.total:
            arguments.append(('%total', 'tensor<1xi32>', 'n_tokens'))
        if self.o.last == 'asked':
            arguments.append(('%kept', 'tensor<i64>', 'num_logits_to_keep'))
            self.types['%kept'] = 'tensor<i64>'
        if self.o.branch == 'input':
            arguments.append(('%branch', 'tensor<1xi1>', 'use_cache_branch'))
        for i in range(LAYERS if self.o.attention == 'fused' else 0):
            arguments.append((f'%past{i}', f'tensor<2x?x{HEADS}x?x{SIZE}x{self.element}>', f'past_{i}'))
        for i in range(0 if self.o.attention == 'fused' else LAYERS):
            arguments += [(f'%past{i}{c}', f'tensor<?x{self.kv if c == "k" else self.kv_values}x?x{SIZE // 2 if c == "v" and self.broken("values") else SIZE}x{self.element}>', f'past_key_values.{i}.{c}') for c in 'kv']
        if self.o.alone:
            arguments = [(a, t.replace('tensor<?x', 'tensor<1x'), n) for a, t, n in arguments]
            names = {key: (a, t.replace('tensor<?x', 'tensor<1x'), n) for key, (a, t, n) in names.items()}
        self.types.update({a[0]: a[1] for a in arguments} | {n: a[1] for n, a in names.items()})
        if self.o.nbits:
            (codes, *rest), attributes = self.nbits('embedding', VOCABULARY, HIDDEN)
            ids = '%ids'
            if self.broken('token-shape'):
                shape = self.op('Shape', ids)
                ids = self.op('Reshape', ids, self.op('Concat', *(self.op('Gather', shape, self.constant([k]), axis=0) for k in (1, 0)), axis=0))
            x = self.contrib('GatherBlockQuantized', codes, ids, *rest, gather_axis=0, quantize_axis=1, **attributes)
        else:
            table = self.coded('embedding', VOCABULARY, HIDDEN, axis=1) if self.o.quantized else self.weight('embedding', VOCABULARY, HIDDEN, scale=1.0)
            ids = '%ids'
            if self.broken('tokens'):
                ids = self.op('Cast', self.op('Cast', ids, to=BOOL), to=INT64)
            x = self.op('Gather', table, ids, axis=0)
        if self.broken('embedding'):
            x = self.op('Tanh', x)
        start, h = x, self.norm(x, 'layer0.norm1')
        for i in range(0 if self.broken('no-layers') else LAYERS):
            post = lambda y, name: self.norm(y, name) if self.o.postnorms and not self.broken(name, i) else y
            if self.broken('attention-start', i):
                h = self.norm(start, 'other')
            x, h = self.skip(x, post(self.attention(h, i), f'attention-norm{i}'), f'layer{i}.norm2')
            if self.broken('feed-forward-start', i):
                h = self.norm(start, 'other')
            x, h = self.skip(x, post(self.feed_forward(h, i), f'feed-forward-norm{i}'), f'layer{i + 1}.norm1')
        if self.broken('no-layers'):
            self.presents = [self.op('Concat', f'%past{i}{c}', self.heads(self.linear(x, f'p{i}{c}', HIDDEN, self.kv * SIZE), self.kv), axis=2) for i in range(LAYERS) for c in 'kv']
        hidden = x if self.broken('final-norm') else h
        if self.o.last == 'slice':  # of the last token only
            hidden = self.op('Slice', hidden, self.constant([-1]), self.constant([(1 << 63) - 1]), self.constant([1]))
        if self.o.last == 'gather':
            hidden = self.op('Unsqueeze', self.op('Gather', hidden, self.constant(-1), axis=1), self.constant([1]))
        if self.o.last == 'asked':  # of as many as an input says
            hidden = self.op('Slice', hidden, self.op('Unsqueeze', self.op('Neg', '%kept'), self.constant([0])), self.constant([(1 << 63) - 1]), self.constant([1]))
        if self.o.dropout:
            hidden = self.op('Dropout', hidden, self.number(0.5), *([self.constant(self.o.dropout, 'i1')] if self.o.dropout != 'none' else []))
        logits = self.linear(hidden, 'head', HIDDEN, VOCABULARY + self.broken('vocabulary'))
        if self.o.finalcap:
            logits = self.op('Mul', self.op('Tanh', self.op('Div', logits, self.number(self.o.finalcap))), self.number(self.o.finalcap * (1 + self.broken('final-cap'))))
        logits = self.wide(logits)
        if self.broken('swapped-layers'):
            half = len(self.presents) // 2
            self.presents = self.presents[half:] + self.presents[:half]
        name = (lambda k: f'present_{k}') if self.o.attention == 'fused' else lambda k: f'present.{k // 2}.{"kv"[k % 2]}'
        outs = [(h, f'hidden_states{k or ""}') for k in range(self.o.hidden)] + [(logits, 'logits')] + [(p, name(k)) for k, p in enumerate(self.presents)]
        config = ', onnx.config = "{\\22model_type\\22: \\22unheard-of\\22, \\22max_position_embeddings\\22: %d}"' % self.o.trained if self.o.trained else ''
        lines = ['module attributes {onnx.model = {path = "m.onnx"}' + config + '} {']
        lines += ['  ' + p for p in self.params]
        lines.append('  func.func @main(' + ', '.join(f'{a}: {t} {{onnx.name = "{n}"}}' for a, t, n in arguments) + ') -> (' +
                     ', '.join(f'tensor<*x!onnx.any> {{onnx.name = "{n}"}}' for _, n in outs) + ') {')
        lines += ['  ' + line for line in self.lines]
        lines.append(f'    return {", ".join(o for o, _ in outs)} : {", ".join(self.types[o] for o, _ in outs)}')
        text = '\n'.join(lines + ['  }', '}'])
        for n, a in names.items():
            text = text.replace(n, a[0])
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--norm', default='op', choices=['chain', 'chain-div', 'power', 'op', 'simplified', 'layer', 'layer-chain'])
    parser.add_argument('--skip', action='store_true')
    parser.add_argument('--skip-bias', action='store_true', help="skip norms that take the bias of the linear before them")
    parser.add_argument('--rope', default='op', choices=['none', 'chain', 'halves', 'op', 'contrib', 'rows-contrib', 'pairs-op', 'pairs-contrib', 'pairs-chain', 'pairs-turned', 'pairs-part', 'half-heads', 'sub-heads', 'short-rows'])
    parser.add_argument('--stretch', type=float, default=1.0, help='factor of cosines and sines')
    parser.add_argument('--detune', type=float, default=0.0, help='how far frequencies are from the formula')
    parser.add_argument('--base', type=float, default=10000.0, help='of the frequencies')
    parser.add_argument('--llama3', type=float, default=0.0, help="factor of Llama 3's formula")
    parser.add_argument('--grain', default='', choices=['', 'f16', 'bf16'], help='what cosines and sines are rounded to')
    parser.add_argument('--last', default='', choices=['', 'slice', 'gather', 'asked'], help='logits of the last token only, or of as many as an input says')
    parser.add_argument('--alone', action='store_true', help='a batch of one, in the types of inputs and in shapes')
    parser.add_argument('--trained', type=int, default=0, help='positions in a config.json of another family')
    parser.add_argument('--guard', action='store_true', help='rows that see nothing give nothing: there are none')
    parser.add_argument('--like', action='store_true', help='casts to the type of another value')
    parser.add_argument('--hidden', type=int, default=0, help='so many outputs of hidden states before the logits')
    parser.add_argument('--dtype', default='float32', choices=list(ELEMENTS), help='of weights, caches and what is computed, but for norms and softmaxes')
    parser.add_argument('--rows', type=int, default=11, help='of the embedding and the head; more than 256 with --nbits only, without zero points')
    parser.add_argument('--positions', type=int, default=64, help='rows of tables')
    parser.add_argument('--gathered', action='store_true', help='cosines and sines are rows of stored tables, for the ropes written in small operators')
    parser.add_argument('--attention', default='chain', choices=['chain', 'op', 'mha', 'gqa', 'scatter', 'fused'])
    parser.add_argument('--cap', type=float, default=0.0)
    parser.add_argument('--scale', type=float, default=1.0, help='factor of what scores are scaled by')
    parser.add_argument('--finalcap', type=float, default=0.0)
    parser.add_argument('--window', type=int, default=0)
    parser.add_argument('--window-in', default='', choices=['', 'table', 'product', 'float', 'chunks'], help='what says the window: a mask of --table rows, a product, a number '
                        'of floats; or each token sees its own chunk')
    parser.add_argument('--mask', default='integer', choices=['integer', 'float'], help='elements of the mask that is an input')
    parser.add_argument('--total', default='', choices=['', 'last-all', 'all-last'], help='what GroupQueryAttention takes for lengths is an input, its last place first or behind')
    parser.add_argument('--table', type=int, default=64, help='rows and columns of a mask that is stored')
    parser.add_argument('--change', default='', help='table|frequencies|clip|scale|hole:POSITION: what changes there, cosines or the scale of scores; '
                        'table:FIRST-LAST and frequencies:LOW-HIGH, between them; moved:POSITION: a stored list of positions has the next one there; list|off|pair|distance|hot|product:LENGTH: the scale of scores is in a stored list of all lengths, read three places on, of pairs with the one before, in column 0 of a table of distances, or summed with all others times zero, and is another for this one; line:LENGTH: in a list that passes zero there; split:POSITION, made:POSITION: cosines are half of a stored table of both, or made of a stored list of positions, which is another there; numbers:COUNT: so many constants; step:N, steps:N, past:N, prompt:N, bucket:N: the scale of scores in steps of N or of more than N tokens, behind a past of N, in first steps of more than N, or behind a past of 2 N to 3 N - 1; steps:M,...,N: the same, and steps are compared with M and more, where nothing changes; decode, first: the scale of scores in steps of one token, or behind an empty past')
    parser.add_argument('--bias', action='store_true')
    parser.add_argument('--headnorm', action='store_true')
    parser.add_argument('--postnorms', action='store_true')
    parser.add_argument('--break', dest='breaks', default='')
    parser.add_argument('--mlp', default='silu', choices=['silu', 'swish', 'swiglu', 'quickgelu', 'gelu', 'fastgelu', 'erf', 'tanh', 'biasgelu'])
    parser.add_argument('--quantized', default='', help='CODE:tensor|channel|block[:zero][:transposed][:large][:twins][:coded-scales|wide-scales], CODE one of int8, uint8, int4, uint4; large: '
                        'blocks of more than a matrix has; twins: keys and values have the same codes, tensor only; coded-scales, wide-scales: scales behind DequantizeLinear, or a Cast from float64')
    parser.add_argument('--linear', default='matmul', choices=['matmul', 'fused', 'fused-transposed'])
    parser.add_argument('--dropout', default='', choices=['', 'none', 'false', 'true'], help='Dropout of the last hidden states, with this training_mode')
    parser.add_argument('--nothing', action='store_true', help='slices without elements before queries, keys and values')
    parser.add_argument('--nbits', default='', help='BITS:BLOCK[:zero[:numbers]][:ui4|:i4]: MatMulNBits and GatherBlockQuantized; their zero points are constants; codes and zero points of the embedding are of a type of 4 bits')
    parser.add_argument('--branch', default='', choices=['', 'length', 'input'], help='caches behind an If, whose condition is the length of the past or an input')
    parser.add_argument('--data', default='', help='file for what --quantized and --coded-tables write')
    parser.add_argument('--coded-tables', action='store_true', help='cosines and sines behind DequantizeLinear')
    options = parser.parse_args()
    global VOCABULARY, HIDDEN, SIZE, INNER, POSITIONS
    VOCABULARY, POSITIONS = options.rows, options.positions
    if options.quantized:
        HIDDEN, SIZE, INNER = 32, 16, 64
    if options.nbits:
        HIDDEN, SIZE, INNER = 64, 32, 128
    graph = Graph(options)
    print(graph.text())
    if options.data:
        with open(options.data, 'wb') as file:
            for at, part in graph.data:
                file.seek(at)
                file.write(part)


if __name__ == '__main__':
    main()
