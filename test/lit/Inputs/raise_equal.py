"""raise_equal.py [--kept] [--limit=X] [--long] OPTION...: makes the decoder that onnx_decoder.py makes of OPTIONs, raises it, and prints remarks and the step. Fails unless
the interpreter gives the same logits, within X (1e-5) of the largest, for the graph, for the graph in pieces with its cache, and for the step. --kept: the graph stays one; prints warnings. --long: with 60 tokens instead of 20.
"""
import pathlib
import subprocess
import sys
import tempfile

TOKENS = '3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3,2,3,8,4'


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f'{" ".join(map(str, command))}\n{result.stderr}')
    return result


def logits(*command):
    return [float(v) for line in run('lathe-interp', *command, *last, '--tokens', TOKENS).stdout.splitlines() for v in line.split(': ')[1].split()]


kept, options = sys.argv[1:2] == ['--kept'], [a for a in sys.argv[1:] if a != '--kept' and a != '--long' and not a.startswith('--limit=')]
if '--long' in sys.argv:
    TOKENS = ','.join(3 * [TOKENS])
limit = float(([a[8:] for a in sys.argv if a.startswith('--limit=')] or ['1e-5'])[0])
last = ['--last'] * any(a.startswith('--last=') for a in options)
with tempfile.TemporaryDirectory() as folder:
    graph, step = pathlib.Path(folder) / 'graph.mlir', pathlib.Path(folder) / 'step.mlir'
    graph.write_text(run(sys.executable, pathlib.Path(__file__).with_name('onnx_decoder.py'), *options, '--data', pathlib.Path(folder) / 'data').stdout)
    raised = run('lathe-opt', graph, '--onnx-raise=remarks=true', '--llm-set-kv=key=f32 value=f32', '-o', step)
    for line in raised.stderr.splitlines():
        if 'remark: ' in line or 'warning: ' in line:
            print(line.split(': ', 1)[1])
    text = step.read_text()
    if kept:
        if 'func.func @main' not in text:
            sys.exit('expected a graph that stays one')
        sys.exit()
    print(text)
    if 'func.func @step' not in text or 'onnx.' in text:
        sys.exit('expected a graph that is raised')
    want, got = logits(graph), logits(step)
    largest = max(map(abs, want))
    for name, values in (('the graph in pieces', logits(graph, '--chunk', '3')), ('the step', got)):
        error = max(abs(a - b) for a, b in zip(want, values)) / largest if len(want) == len(values) else float('inf')
        if not error <= limit:
            sys.exit(f'{name} differs from the graph by {error}')
