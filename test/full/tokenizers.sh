#!/bin/bash
# Tokenizers against the libraries `tokenizers` and `sentencepiece`, on more than 10^5 random texts, and the ids that the vocabularies of the
# llama-cpp-python archive come with. Downloads 90 MB (77 of them the archive).
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
VENV="$BUILD/venv-tokenizers"
if [ ! -x "$VENV/bin/python" ]; then
  say "tokenizers: installing the libraries to compare with"
  python3 -m venv "$VENV.part"
  "$VENV.part/bin/python" -m pip install -q --disable-pip-version-check tokenizers sentencepiece protobuf gguf numpy
  mv "$VENV.part" "$VENV"
fi
export LATHE_VOCAB_DIR="${LATHE_VOCAB_DIR:-$BUILD/vocabularies}"
if [ ! -d "$LATHE_VOCAB_DIR" ]; then
  say "tokenizers: fetching the source archive of llama-cpp-python from PyPI"
  work=$(mktemp -d)
  python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$work" llama-cpp-python==0.3.36
  mkdir -p "$work/vocabularies"
  tar -xf "$work"/*.tar.gz -C "$work/vocabularies" --strip-components=4 --wildcards '*/vendor/llama.cpp/models/ggml-vocab-*'
  mv "$work/vocabularies" "$LATHE_VOCAB_DIR"
  rm -rf "$work"
fi
[ -x "$BUILD/bin/lathe-tokenize" ] || build "$BUILD" lathe-tokenize
say "tokenizers: comparing"
"$VENV/bin/python3" test/tokenizer/compare.py --tool "$BUILD/bin/lathe-tokenize" --count 2500
