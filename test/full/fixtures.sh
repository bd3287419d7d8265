#!/bin/bash
# The fixtures of the tree made again by the scripts beside them: storage blocks by ggml's packers, tiny models by the numpy forward pass, chat
# templates by Jinja2 - each byte for byte; and the ids of the tokenizers by the library that made them, whose training is not repeatable
# (test/full/tokenizers.sh trains others). Downloads 110 MB (77 of them the llama-cpp-python archive), takes 2 minutes after that.
# (test/full/onnx.sh exports the ONNX fixtures afresh, test/full/transformers.sh is the same for models of transformers' own.)
. "$(dirname "$0")/../../scripts/common.sh"
VENV=$ROOT/build/venv-fixtures
WORK=$ROOT/build/test/full/fixtures
if [ ! -f "$VENV/complete" ]; then
  say "fixtures: installing numpy, gguf, safetensors, jinja2 and tokenizers from PyPI into $VENV"
  python3 -m venv "$VENV"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check numpy gguf safetensors jinja2==3.1.6 tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
  touch "$VENV/complete"
fi
command -v gcc >/dev/null || install_packages gcc libc6-dev
fetch_llama_archive
rm -rf "$WORK"
mkdir -p "$WORK/archive"
tar -xf "$LLAMA_ARCHIVE" -C "$WORK/archive" --strip-components=1 --wildcards '*/vendor/llama.cpp/ggml'
same() { # same WHAT MADE KEPT
  diff -r "$2" "$3" >"$WORK/difference" || { head -20 "$WORK/difference" >&2; fail "$1: what is made now differs from $3"; }
  echo "$1: as in the tree"
}
say "fixtures: making them again"
"$VENV/bin/python" test/fixtures/import/make_blocks.py "$WORK/archive/vendor/llama.cpp/ggml" "$WORK/blocks.gguf"
same "storage blocks" "$WORK/blocks.gguf" test/fixtures/import/blocks.gguf
"$VENV/bin/python" test/fixtures/import/make_models.py "$WORK/models"
same "tiny models" "$WORK/models" test/fixtures/import/models
"$VENV/bin/python" test/fixtures/template/make_cases.py >"$WORK/cases.json"
same "chat templates" "$WORK/cases.json" test/fixtures/template/cases.json
"$VENV/bin/python" test/fixtures/tokenizer/make_tokenizers.py --check
