"""Runs the examples of the llm dialect's op descriptions on lathe-interp.

usage: run_examples.py LLMOps.td OUTPUT_DIRECTORY

Every op must have a summary and either an example that uses it or "Example: see `llm.other`" where other's
example uses it. Prints one line for each op; fails on the first thing missing or an example that does not run.
"""
import pathlib
import re
import subprocess
import sys

text = pathlib.Path(sys.argv[1]).read_text()
out = pathlib.Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)

parts = re.split(r'^def LLM_\w+Op : \w+<"([\w.]+)"', text, flags=re.M)
bodies = dict(zip(parts[1::2], parts[2::2]))


def example(name):
    found = re.search(r'```mlir\n(.*?)```', bodies[name], re.S)
    return found and found[1]


for name, body in bodies.items():
    code = example(name)
    where = f'llm.{name}'
    if not re.search(r'let summary = ".+"', body):
        sys.exit(f'{where}: no summary')
    if code is None:
        other = re.search(r'Example: see `llm\.([\w.]+)`', body)
        if not other:
            sys.exit(f'{where}: neither an example nor a reference to one')
        code = example(other[1])
        if not re.search(rf'\bllm\.{re.escape(name)}\b', code or ''):
            sys.exit(f'{where}: the example of llm.{other[1]} does not use it')
        print(f'{where}: see llm.{other[1]}')
        continue
    if not re.search(rf'\bllm\.{re.escape(name)}\b', code):
        sys.exit(f'{where}: its example does not use it')
    path = out / f'{name}.mlir'
    path.write_text(code)
    ran = subprocess.run(['lathe-interp', str(path), '--tokens', '1,0,1', '--tokens', '0,1'], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f'{where}: {ran.stderr}')
    rows = ran.stdout.splitlines()
    if len(rows) != 5 or 'nan' in ran.stdout:
        sys.exit(f'{where}: expected 5 rows of numbers, found\n{ran.stdout}')
    print(f'{where}: ' + ' | '.join(row.split(': ')[1] for row in rows))
