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
  fetch_llama_archive
  mkdir -p "$LATHE_VOCAB_DIR.part"
  tar -xf "$LLAMA_ARCHIVE" -C "$LATHE_VOCAB_DIR.part" --strip-components=4 --wildcards '*/vendor/llama.cpp/models/ggml-vocab-*'
  mv "$LATHE_VOCAB_DIR.part" "$LATHE_VOCAB_DIR"
fi
[ -x "$BUILD/bin/lathe-tokenize" ] || build "$BUILD" lathe-tokenize
say "tokenizers: comparing"
"$VENV/bin/python3" test/tokenizer/compare.py --tool "$BUILD/bin/lathe-tokenize" --count 2500
