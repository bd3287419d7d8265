#!/bin/bash
# Every kernel of x86 against the scalar model of docs/exactness.md, bit for bit, over the whole grid of storage types, row counts, shapes and
# variants; and PTX kernels of every chip, by ptxas and on the emulator. LATHE_LONG=1: each pair of storage type and activations in every shape.
. "$(dirname "$0")/../../scripts/common.sh"
export LATHE_FULL=1
ensure_ptxas
say "kernels: the whole grid"
ctest --test-dir build --output-on-failure -j2 --timeout 7200 -R '^(Codegen|Nvptx)'
