"""check_random.py DIRECTORY FIRST LAST: random modules before and after the pipeline, on the interpreter.

Merging, fusing and paging may change no bit; a cut into chunks neither. Prints how often each fused kind occurred.
"""
import collections
import pathlib
import re
import subprocess
import sys

from random_module import Module

TOKENS = ['--tokens', '1,2,3,4,5,6,7,8,9,10,11,12', '--tokens', '15,0,3']


def run(*command, stdin=None):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'{" ".join(map(str, command))}: {done.stderr}')
    return done.stdout


def main():
    directory, first, last = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    directory.mkdir(parents=True, exist_ok=True)
    kinds = collections.Counter()
    for seed in range(first, last + 1):
        path = directory / f'{seed}.mlir'
        path.write_text(Module(seed).build())

        def outputs(*options, how=()):
            return run('lathe-interp', '-', *TOKENS, *how, stdin=run('lathe-opt', path, '-llm-pipeline=' + ' '.join(options)))

        exact = ('activations=f32', 'key=f32', 'value=f32')
        imported = run('lathe-interp', path, *TOKENS)
        if 'nan' in imported:
            sys.exit(f'{path}: the module makes no numbers')
        if outputs(*exact, how=('--chunk', '5')) != imported:
            sys.exit(f'{path}: the pipeline changes the result without a rounding')
        rounded = outputs('fuse=false', 'merge=false', 'page=0')
        if outputs('page=16') != rounded:
            sys.exit(f'{path}: merging and fusing change the result')
        fused = run('lathe-opt', path, '-llm-pipeline')
        kinds.update(re.findall(r'llm\.fused "(\w+)"', fused))
        kinds['merged'] += len(re.findall(r'FusedLoc|llm\.columns', fused)) > 0
    print(' '.join(f'{kind}: {count}' for kind, count in sorted(kinds.items())))


main()
