"""What making exports and checking them have in common."""
import random

import numpy as np


def cache_shape(config):
    """(KV heads, size of a head) of the cache, by a configuration as a dictionary."""
    heads = config.get('num_attention_heads') or config['n_head']
    hidden = config.get('hidden_size') or config['n_embd']
    return config.get('num_key_value_heads') or heads, config.get('head_dim') or hidden // heads


def run_ort(path, tokens, prompt, config):
    """Logits of every token: |prompt| of them at once, then one token a step with the cache. |config|: of the model, as a dictionary."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every constant that it folds away
    session = onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])
    names = [i.name for i in session.get_inputs()]
    mask = {'tensor(float)': np.float32, 'tensor(bool)': np.bool_}.get(next((i.type for i in session.get_inputs() if i.name == 'attention_mask'), ''), np.int64)
    heads, size = cache_shape(config)
    past = {n: np.zeros((1, heads, 0, size), np.float32) for n in names if n.startswith('past')}
    rows, done = [], 0
    for chunk in [tokens[:prompt]] + [[t] for t in tokens[prompt:]]:
        feed = {'input_ids': np.array([chunk], np.int64), 'attention_mask': np.ones((1, done + len(chunk)), mask),
                'position_ids': np.arange(done, done + len(chunk), dtype=np.int64)[None], **past}
        out = session.run(None, {n: feed[n] for n in names})
        rows.append(out[0][0])
        presents = [o.name for o in session.get_outputs()][1:]
        past = {n.replace('present', 'past_key_values'): v for n, v in zip(presents, out[1:])}
        done += len(chunk)
    return np.concatenate(rows)


def float_activations(source, target):
    """Writes |source| with block-quantized products in float: onnxruntime rounds their activations to 8 bits where the builder says that it may."""
    import onnx
    model = onnx.load(source, load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == 'accuracy_level':
                attribute.i = 1
    target.write_bytes(model.SerializeToString())


def disguise(source, target, seed):
    """Writes |source| with other names everywhere and its nodes and weights in another order (not a topological one); weights stay in the files that they
    are in, which have to lie beside |target|."""
    import onnx
    model = onnx.load(source, load_external_data=False)
    chance, names = random.Random(seed), {}

    def rename(name):
        if name and name not in names:
            names[name] = f'v{chance.randrange(1 << 40)}_{len(names)}'
        return names.get(name, name)

    def visit(graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            value.name = rename(value.name)
        for tensor in graph.initializer:
            tensor.name = rename(tensor.name)
        for node in graph.node:
            node.name = ''
            for values in (node.input, node.output):
                values[:] = [rename(v) for v in values]
            for attribute in node.attribute:
                if attribute.HasField('g'):
                    visit(attribute.g)
        for items in (graph.node, graph.initializer):
            order = list(items)
            chance.shuffle(order)
            del items[:]
            items.extend(order)

    visit(model.graph)
    target.write_bytes(model.SerializeToString())
