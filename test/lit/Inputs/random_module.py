"""Prints a random small model as an llm module: random_module.py SEED.

Every feature that importers produce occurs under some seed: mixed weight storages, biases, head norms, norms behind sublayers, parallel
residuals, gated and plain feed-forwards, partial and interleaved rotation, windows, soft caps, learned positions, tied heads. In some
modules every layer has its own head counts, head sizes and width, as no importer makes them. The vocabulary has 16 tokens; at most 64 positions.
"""
import random
import sys

STORAGES = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'int8', 'int4_g32', 'int4z_g32', 'e4m3']


class Module:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.seed = seed
        self.params, self.groups, self.body, self.count = [], {}, [], 0

    def chance(self, p):
        return self.r.random() < p

    def value(self):
        self.count += 1
        return f'%v{self.count}'

    def element(self, storage):
        return storage if storage in ('f32', 'f16', 'bf16') else f'!llm.q<{storage}>'

    def weight(self, name, shape, storage='f32', value=None):
        """Declares a param and reads it; returns (value, type)."""
        dims = ', '.join(map(str, shape))
        kind = f"tensor<{'x'.join(map(str, shape))}x{self.element(storage)}>"
        value = value or f'#llm.synthetic<{self.seed * 1000 + len(self.params)}, {storage}, [{dims}]>'
        self.params.append(f'llm.param @{name} : {kind} = {value}')
        return self.read(name, kind)

    def read(self, name, kind):
        v = self.value()
        self.body.append(f'{v} = llm.weight @{name} : {kind}')
        return v, kind

    def op(self, text, name):
        v = self.value()
        self.body.append(f'{v} = {text} loc("{name}")')
        return v

    def linear(self, x, k, n, name, storage, bias):
        w, kind = self.weight(name, [n, k], storage)
        b, bias_type = ('', '')
        if bias:
            b, bias_type = self.weight(name + '_bias', [n])
        return self.op(f'llm.linear {x}, {w}' + (f' bias {b} : {bias_type}' if bias else '') +
                       f' : (tensor<?x{k}xf32>, {kind}) -> tensor<?x{n}xf32>', name)

    def norm(self, x, width, name, heads=1):
        size = width // heads
        w, kind = self.weight(name, [size], value=f'#llm.add_one<#llm.synthetic<{len(self.params)}, f32, [{size}]>>')
        rows = f'tensor<?x{width}xf32>'
        if self.layer_norm and heads == 1:
            b, _ = self.weight(name + '_bias', [size])
            return self.op(f'llm.layer_norm {x}, {w}, {b} eps 1.0e-5 : {rows}, {kind}', name)
        return self.op(f'llm.rms_norm {x}, {w} eps 1.0e-5 heads {heads} : {rows}, {kind}', name)

    def build(self):
        r = self.r
        hidden = r.choice([64, 96, 128])
        layers = r.choice([1, 2, 3])

        def shape():
            """Heads, KV heads, sizes of keys and values, width of the feed-forward."""
            kv_heads = r.choice([1, 2])
            heads = kv_heads * r.choice([1, 2, 3])
            size = r.choice([16, 32, 64])
            if size * heads % 32:  # rows of the output projection are whole blocks
                size = 32
            return heads, kv_heads, size, size if self.chance(0.8) else 32, r.choice([96, 160])

        shapes = [shape() for _ in range(layers)] if self.chance(0.5) else [shape()] * layers
        self.layer_norm = self.chance(0.25)
        bias, out_bias = self.chance(0.3), self.chance(0.2)
        head_norms, post_norms, parallel = self.chance(0.3), self.chance(0.3), self.chance(0.2)
        gated = self.chance(0.75)
        activation = r.choice(['silu', 'gelu_tanh', 'gelu_erf'] + ([] if gated else ['relu']))
        part = r.choice([2, 4, 0]) if self.chance(0.4) else 2  # of a head that rotates; 0: none does
        interleaved = self.chance(0.2)
        main_storage = r.choice(STORAGES)
        rows = f'tensor<?x{hidden}xf32>'

        def storage():
            return main_storage if self.chance(0.8) else r.choice(STORAGES)

        embedding, embedding_type = self.weight('embedding', [16, hidden], r.choice(['f32', 'q8_0', 'f16']))
        scale = ' {scale = 8.0 : f32}' if self.chance(0.7) else ''
        x = self.op(f'llm.embed %b, {embedding}{scale} : {embedding_type} -> {rows}', 'embedding')
        if not part:
            positions, kind = self.weight('positions', [64, hidden])
            p = self.op(f'llm.embed %b, {positions} positions : {kind} -> {rows}', 'positions')
            x = self.op(f'llm.add {x}, {p} : {rows}', 'embedding_sum')
        windows = [r.choice([0, 0, 5]) for _ in range(layers)]
        members = {w: [i for i in range(layers) if windows[i] == w] for w in set(windows)}
        kv = '%kv'
        angles = {}
        for i in range(layers):
            heads, kv_heads, size, value_size, inner = shapes[i]
            q_width, k_width, v_width, o_width = heads * size, kv_heads * size, kv_heads * value_size, heads * value_size
            rotary = size // part if part else 0
            name = f'layers.{i}.'
            h = self.norm(x, hidden, name + 'attention_norm')
            q = self.linear(h, hidden, q_width, name + 'q', storage(), bias)
            k = self.linear(h, hidden, k_width, name + 'k', storage(), bias)
            v = self.linear(h, hidden, v_width, name + 'v', storage(), bias)
            if head_norms:
                q, k = self.norm(q, q_width, name + 'q_norm', heads), self.norm(k, k_width, name + 'k_norm', kv_heads)
            if rotary:
                # One llm.angles per layer, as importers may write it; CSE makes it one of each width.
                if rotary in angles:
                    f, kind = self.read(angles[rotary], f'tensor<{rotary}xf32>')
                else:
                    f, kind = self.weight(f'{name}frequencies', [rotary], value=f'dense<0.3> : tensor<{rotary}xf32>')
                    angles[rotary] = f'{name}frequencies'
                angle_type = f'tensor<?x{2 * rotary}xf32>'
                a = self.op(f'llm.angles %b, {f} : {kind} -> {angle_type}', 'angles')
                how = ' interleaved' if interleaved else ''
                q = self.op(f'llm.rope {q}, {a} heads {heads}{how} : tensor<?x{q_width}xf32>, {angle_type}', name + 'q_rope')
                k = self.op(f'llm.rope {k}, {a} heads {kv_heads}{how} : tensor<?x{k_width}xf32>, {angle_type}', name + 'k_rope')
            window = windows[i]
            group, layer = f'@window{window}', members[window].index(i)
            kv = self.op(f'llm.kv.append {kv}, {k}, {v}, %b group {group} layer {layer} : tensor<?x{k_width}xf32>, tensor<?x{v_width}xf32>', name + 'append')
            cap = ' {softcap = 3.0 : f32}' if self.chance(0.2) else ''
            o = self.op(f'llm.attention {q}, {kv}, %b group {group} layer {layer} heads {heads} scale 0.25{cap} : tensor<?x{q_width}xf32> -> tensor<?x{o_width}xf32>', name + 'attention')
            o = self.linear(o, o_width, hidden, name + 'o', storage(), out_bias)
            if post_norms:
                o = self.norm(o, hidden, name + 'post_attention_norm')
            middle = self.op(f'llm.add {x}, {o} : {rows}', name + 'attention_residual')
            h = self.norm(x if parallel else middle, hidden, name + 'feed_forward_norm')
            inner_rows = f'tensor<?x{inner}xf32>'
            gate = self.linear(h, hidden, inner, name + 'gate', storage(), out_bias)
            if gated:
                up = self.linear(h, hidden, inner, name + 'up', storage(), out_bias)
                y = self.op(f'llm.glu {activation} {gate}, {up} : {inner_rows}', name + 'activation')
            else:
                y = self.op(f'llm.activation {activation} {gate} : {inner_rows}', name + 'activation')
            d = self.linear(y, inner, hidden, name + 'down', storage(), out_bias)
            if post_norms:
                d = self.norm(d, hidden, name + 'post_feed_forward_norm')
            x = self.op(f'llm.add {d}, {middle} : {rows}', name + 'residual')
        for window, inside in members.items():
            entries = ', '.join(f'#llm.kv_layer<{shapes[i][1]}, {shapes[i][2]}, {shapes[i][3]}>' for i in inside)
            self.params.insert(0, f'llm.kv_group @window{window} layers [{entries}] key f32 value f32 window {window} page 0')
        # Some models norm before they select, some behind.
        if self.chance(0.5):
            x = self.norm(x, hidden, 'output_norm')
            x = self.op(f'llm.select_rows {x}, %b : {rows}', 'select')
        else:
            x = self.op(f'llm.select_rows {x}, %b : {rows}', 'select')
            x = self.norm(x, hidden, 'output_norm')
        if self.chance(0.5):
            logits = self.op(f'llm.linear {x}, {embedding} : ({rows}, {embedding_type}) -> tensor<?x16xf32>', 'head')
        else:
            logits = self.linear(x, hidden, 16, 'head', storage(), False)
        if self.chance(0.2):
            logits = self.op(f'llm.softcap {logits} cap 3.0 : tensor<?x16xf32>', 'logits')
        lines = self.params + ['func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {']
        lines += ['  ' + line for line in self.body]
        lines += [f'  return {logits}, {kv} : tensor<?x16xf32>, !llm.kv', '}']
        return '\n'.join(lines)


if __name__ == '__main__':
    print(Module(int(sys.argv[1])).build())
