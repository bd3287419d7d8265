#!/bin/bash
# The 70 chat templates of the llama-cpp-python archive, and random ones, against Jinja2. Downloads 77 MB, takes 10 minutes.
#   test/full/chat-templates.sh [--renderer PROGRAM]
. "$(dirname "$0")/../../scripts/common.sh"
VENV="$ROOT/build/venv-templates"
if [ ! -x "$VENV/bin/python" ]; then
  python3 -m venv "$VENV"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check 'jinja2==3.1.6'
fi
[ $# -gt 0 ] || build build lathe-render-template
export LATHE_TEMPLATES="${LATHE_TEMPLATES:-$ROOT/build/templates}"
if [ ! -d "$LATHE_TEMPLATES" ]; then
  fetch_llama_archive
  mkdir -p "$LATHE_TEMPLATES.part"
  tar -xf "$LLAMA_ARCHIVE" -C "$LATHE_TEMPLATES.part" --strip-components=5 --wildcards '*/vendor/llama.cpp/models/templates/*.jinja'
  mv "$LATHE_TEMPLATES.part" "$LATHE_TEMPLATES"
fi
"$VENV/bin/python" test/e2e/check_templates.py "$@"
for seed in 1 2 3; do
  "$VENV/bin/python" test/e2e/fuzz_templates.py --seed $seed --count 3000 "$@"
done
"$VENV/bin/python" test/e2e/fuzz_templates.py --mutate --seed 1 --count 2000 "$@"
