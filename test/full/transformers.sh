#!/bin/bash
# Tiny random models of every family and RoPE kind against transformers. Installs torch and transformers (about 6 GB
# under build/, 3 GB to download) and takes 5 minutes after that.
#   test/full/transformers.sh [NAME...]     only cases whose name starts with NAME
# LATHE_BUILD: another build directory; TRANSFORMERS_PYTHON: a Python that has torch and transformers already.
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
if [ -z "${TRANSFORMERS_PYTHON:-}" ] && [ -f "$ROOT/build/venv-exporters/complete" ]; then
  TRANSFORMERS_PYTHON="$ROOT/build/venv-exporters/bin/python" # of test/full/onnx.sh: the same versions
fi
if [ -z "${TRANSFORMERS_PYTHON:-}" ]; then
  VENV="$ROOT/build/venv-transformers"
  TRANSFORMERS_PYTHON="$VENV/bin/python"
  if [ ! -f "$VENV/complete" ]; then
    say "transformers: installing torch and transformers from PyPI into build/venv-transformers (3 GB to download, 6 GB on disk)"
    python3 -m venv "$VENV"
    "$TRANSFORMERS_PYTHON" -m pip install -q --disable-pip-version-check 'torch==2.15.0' 'transformers==5.24.0' safetensors numpy
    touch "$VENV/complete"
  fi
fi
[ -n "${LATHE_BUILD:-}" ] || build build lathe lathe-compiler CompareLogits CompareEmbeddings
"$TRANSFORMERS_PYTHON" test/fixtures/server/make_embeddings.py --check
"$TRANSFORMERS_PYTHON" test/full/transformers.py --build "$BUILD" --work "$BUILD/test/full/transformers" "$@"
